"""Queries on hand-made tiles with known results, invalid arguments, and packed scenes."""

import copy
import pickle
import warnings

import handmade
import numpy as np
import pytest
import torch

from batchnav.errors import ArgumentError
from batchnav.navmesh import batch
from batchnav.navmesh.data import MIDDLE_ROW, POLYGON_ROW, PORTAL_ROW, WALL, pack, records
from batchnav.navmesh.file import single_tile_file
from batchnav.navmesh.heap import search_scratch, search_size
from batchnav.navmesh.lower import lowered
from batchnav.navmesh.navmesh import NavMesh
from batchnav.navmesh.settings import NavMeshSettings
from batchnav.runtime.kernels.arrays import to_device, view
from batchnav.types import TriangleMesh

ROUNDING = 2e-6
"""Metres: float32 arithmetic on coordinates below 10 m."""


@pytest.fixture(scope="module")
def rooms():
    return NavMesh(handmade.two_rooms())


def test_facts(rooms):
    assert rooms.num_polygons == 4 and rooms.num_islands == 2
    assert rooms.area == pytest.approx(16 + 0.2 + 15.2 + 1, abs=1e-5)
    np.testing.assert_allclose(rooms.bounds, [[0, 0, 0], [8, 2.4, 4]], atol=1e-6)
    np.testing.assert_array_equal(
        records(rooms.data.polygons, POLYGON_ROW)["edges"]["neighbour"][0], [WALL, WALL, WALL, 1, WALL, WALL]
    )


@pytest.mark.plain
def test_snap(rooms):
    points = np.array([
        [1.0, 0.1, 0.5],  # within the climb above the floor
        [1.5, 0.75, 1.5],  # just below the table: its top
        [1.5, 0.3, 1.5],  # nearer to the floor than to the table
        [4.1, 0.0, 0.5],  # inside the wall, midway: a tie, the first in BV order
        [-1.0, 0.0, 2.0],  # outside
        [100.0, 0.0, 0.0],
        [1.0, 50.0, 1.0],
    ], np.float32)  # fmt: skip
    expected = [
        [1.0, 0.0, 0.5], [1.5, 0.8, 1.5], [1.5, 0.0, 1.5], [4.0, 0.0, 0.5], [0.0, 0.0, 2.0], [np.nan] * 3, [np.nan] * 3,
    ]  # fmt: skip
    np.testing.assert_allclose(rooms.snap(points), expected, atol=ROUNDING)
    np.testing.assert_array_equal(rooms.snap(points.astype(np.float64)), rooms.snap(points))
    assert rooms.snap(points[0]).shape == (3,)


@pytest.mark.plain
def test_points_are_lowered_until_they_are_navigable(rooms):
    """The first navigable height of each point, inside and outside of the floor, on edges and above the table."""
    side = np.linspace(-0.3, 8.3, 15)
    edges = [(0.0, 2.0), (0.009, 2.0), (-0.009, 1.0), (-0.011, 1.0), (4.0, 0.5), (1.0, 0.0)]
    ground = np.array([*((x, z) for x in side for z in side / 2.0), *edges])
    points = np.insert(ground, 1, np.linspace(0.2, 3.1, len(ground)), axis=1)
    expected = np.full(len(points), np.nan)
    for turn in range(6, -1, -1):
        at = points - [0.0, 0.4 * turn, 0.0]
        found = rooms.is_navigable(at.astype(np.float32), 0.9 if turn == 0 else 0.3)
        expected[found] = at[found, 1]
    rows, below = lowered(rooms, points, 0.9, 0.3, 0.4, 6)
    np.testing.assert_array_equal(rows, np.flatnonzero(np.isfinite(expected)))
    np.testing.assert_allclose(below[:, 1], expected[rows], atol=1e-12)
    np.testing.assert_array_equal(below[:, [0, 2]], points[rows][:, [0, 2]])
    assert 0 < len(rows) < len(points) and len(lowered(rooms, points[:0], 0.9, 0.3, 0.4, 6)[0]) == 0


@pytest.mark.plain
def test_is_navigable_and_island(rooms):
    points = np.array(
        [[1, 0.4, 0.5], [1, 0.6, 0.5], [-0.005, 0, 2], [-0.02, 0, 2], [1.5, 0.8, 1.5], [7, 0, 1]], np.float32
    )
    np.testing.assert_array_equal(rooms.is_navigable(points), [True, False, True, False, True, True])
    assert rooms.is_navigable(points[1], max_y_delta=1.0) and not rooms.is_navigable(points[0], max_y_delta=0.1)
    np.testing.assert_array_equal(rooms.island(points), [0, 0, 0, 0, 1, 0])
    assert rooms.island([50.0, 0.0, 0.0]) == -1 and rooms.island_radius([50.0, 0.0, 0.0]) == 0
    assert rooms.island_radius([1.5, 0.8, 1.5]) == pytest.approx(np.sqrt(0.5), abs=ROUNDING)


@pytest.mark.plain
def test_geodesic_through_the_door(rooms):
    start, goal = np.array([1.0, 0.0, 0.5]), np.array([7.0, 0.0, 0.5])
    expected = np.hypot(3.0, 1.0) + 0.2 + np.hypot(2.8, 1.0)
    assert rooms.geodesic_distance(start, goal) == pytest.approx(expected, abs=ROUNDING)
    np.testing.assert_allclose(
        rooms.shortest_path(start, goal), [start, [4.0, 0, 1.5], [4.2, 0, 1.5], goal], atol=ROUNDING
    )
    assert rooms.geodesic_distance(start, [3.0, 0.0, 0.5]) == pytest.approx(2.0, abs=ROUNDING)
    assert rooms.geodesic_distance(start, start) == 0
    assert np.isinf(rooms.geodesic_distance(start, [1.5, 0.8, 1.5]))  # on the table
    assert np.isinf(rooms.geodesic_distance(start, [50.0, 0.0, 0.0]))
    assert rooms.shortest_path(start, [50.0, 0.0, 0.0]).shape == (0, 3)


@pytest.mark.plain
def test_nearest_of_several_goals(rooms):
    starts = np.array([[1.0, 0.0, 0.5], [7.0, 0.0, 0.5]])
    goals = np.array(
        [[[7.0, 0.0, 0.5], [1.0, 0.0, 1.5], [50.0, 0.0, 0.0]], [[1.0, 0.0, 0.5], [7.0, 0.0, 3.5], [6, 0, 0.5]]]
    )
    np.testing.assert_allclose(rooms.geodesic_distance(starts, goals), [1.0, 1.0], atol=ROUNDING)
    assert rooms.geodesic_distance(starts[0], goals[0]) == pytest.approx(1.0, abs=ROUNDING)


@pytest.mark.plain
def test_steps(rooms):
    starts = np.array([[3.9, 0, 3.0], [3.9, 0, 3.0], [3.9, 0, 2.0], [1, 0, 3], [1, 0, 3], [1.5, 0.8, 1.5]], np.float32)
    ends = np.array(
        [[4.2, 0, 3.2], [3.5, 0, 3.0], [4.3, 0, 2.0], [1, 0, 30], [np.nan, 0, 3], [1.5, 0.8, 3.0]], np.float32
    )
    # Along the wall; free; through the door; end off the mesh; end not finite; from the table towards the floor.
    slid = [[4.0, 0, 3.2], [3.5, 0, 3.0], [4.3, 0, 2.0], [1, 0, 3], [1, 0, 3], [1.5, 0.8, 1.5]]
    np.testing.assert_allclose(rooms.try_step(starts, ends), slid, atol=ROUNDING)
    stopped = [[4.0, 0, 3.0 + 0.2 / 3], *slid[1:]]
    np.testing.assert_allclose(rooms.try_step(starts, ends, sliding=False), stopped, atol=ROUNDING)


@pytest.mark.plain
def test_distance_to_wall(rooms):
    points = np.array([[0.7, 0, 3.0], [2, 0, 2], [4.1, 0, 2.0], [50, 0, 0], [1.5, 0.8, 1.4]], np.float32)
    np.testing.assert_allclose(rooms.distance_to_wall(points), [0.7, 2.0, 0.5, np.inf, 0.4], atol=ROUNDING)
    # A cap; walls of the second room count through the door; the table's edge is a wall only on the table.
    np.testing.assert_allclose(rooms.distance_to_wall(points[1], 0.5), 0.5)


def test_topdown_view(rooms):
    """The union of two rooms and the door between them, each wider by the 0.01 m that `is_navigable` allows."""
    z, x = np.mgrid[0:40, 0:80] * 0.1
    rectangles = ((0, 4, 0, 4), (4, 4.2, 1.5, 2.5), (4.2, 8, 0, 4))
    expected = np.any([(abs(2 * x - a - b) < b - a + 0.02) & (abs(2 * z - c - d) < d - c + 0.02)
                       for a, b, c, d in rectangles], axis=0)  # fmt: skip
    view = rooms.topdown_view(0.1, 0.0)
    assert view.dtype == bool and not view.all()
    np.testing.assert_array_equal(view, expected)
    np.testing.assert_array_equal(rooms.topdown_view(0.1, 0.3, eps=0.4), view)
    table = (abs(2 * x - 3) < 1.02) & (abs(2 * z - 3) < 1.02)
    np.testing.assert_array_equal(rooms.topdown_view(0.1, 1.0), table)  # the floor is more than 0.5 m below
    assert rooms.topdown_view(0.3, 0.0).shape == (13, 26)  # whole pixels only


def test_sample(rooms):
    points = rooms.sample(20000, seed=3)
    np.testing.assert_array_equal(points, rooms.sample(20000, seed=3))
    assert rooms.is_navigable(points).all() and not np.array_equal(points, rooms.sample(20000, seed=4))
    share = np.array([(points[:, 1] > 0.4).mean(), (points[:, 0] > 4.2).mean()])
    area = np.array([1.0, 15.2]) / 32.4
    assert np.all(np.abs(share - area) < 5 * np.sqrt(area * (1 - area) / 20000))
    inside = points[points[:, 0] > 4.2]
    np.testing.assert_allclose(inside[:, [0, 2]].mean(0), [6.1, 2.0], atol=0.06)


def test_not_finite_points_are_off_the_mesh(rooms):
    bad = np.array([[np.nan, 0, 0], [0, np.inf, 0], [1, 0, -np.inf], [3e38, 0, 0]], np.float32)
    good = np.tile(np.float32([1, 0, 0.5]), (4, 1))
    assert np.isnan(rooms.snap(bad)).all() and not rooms.is_navigable(bad).any()
    assert np.isinf(rooms.geodesic_distance(bad, good)).all() and np.isinf(rooms.geodesic_distance(good, bad)).all()
    np.testing.assert_array_equal(rooms.try_step(bad, good), bad)
    np.testing.assert_array_equal(rooms.try_step(good, bad), good)
    assert np.isinf(rooms.distance_to_wall(bad)).all() and (rooms.island(bad) == -1).all()


def test_what_float32_cannot_hold_is_infinitely_far(rooms):
    with warnings.catch_warnings(action="error"):
        assert np.isnan(rooms.snap([[1e300, 0, 0]])).all()


def test_a_copy_returns_equal_results(rooms):
    start, near, far = np.float32([[1, 0, 0.5], [1.5, 0, 0.5], [7, 0, 0.5]])
    rooms.shortest_path(start, near)  # what it works in is there, and would be copied
    for other in (copy.deepcopy(rooms), pickle.loads(pickle.dumps(rooms))):
        np.testing.assert_array_equal(other.shortest_path(start, far), rooms.shortest_path(start, far))


def test_arguments(rooms):
    ok = np.zeros((2, 3), np.float32)
    for call, name in (
        (lambda: rooms.snap(np.zeros((2, 2))), "points"),
        (lambda: rooms.snap(np.zeros((1, 2, 3))), "points"),
        (lambda: rooms.snap("here"), "points"),
        (lambda: rooms.snap(np.zeros((2, 3), complex)), "points"),
        (lambda: rooms.snap([[0, 0, 0], [0, 0]]), "points"),
        (lambda: rooms.snap(torch.zeros(2, 3).to_sparse()), "points"),
        (lambda: rooms.snap(torch.zeros(2, 3, device="meta")), "points"),
        (lambda: NavMesh.bake("house.glb"), "mesh: found str, expected a TriangleMesh"),
        (lambda: NavMesh.bake(TriangleMesh(ok, np.zeros((1, 3), np.int32)), {}), "settings: found dict"),
        (lambda: rooms.try_step(ok, ok[:1]), "ends"),
        (lambda: rooms.geodesic_distance(ok, ok[:1]), "goals"),
        (lambda: rooms.geodesic_distance(ok, np.zeros((2, 0, 3))), "goals"),
        (lambda: rooms.geodesic_distance(ok[0], np.zeros((2, 2, 3))), "goals"),
        (lambda: rooms.shortest_path(ok, ok), "start"),
        (lambda: rooms.distance_to_wall(ok, -1.0), "max_distance"),
        (lambda: rooms.distance_to_wall(ok, "far"), "max_distance"),
        (lambda: rooms.is_navigable(ok, float("nan")), "max_y_delta"),
        (lambda: rooms.topdown_view(0.0, 0.0), "meters_per_pixel"),
        (lambda: rooms.topdown_view(0.001, 0.0, -1.0), "eps"),
        (lambda: rooms.topdown_view(9.0, 0.0), "0 x 0 pixels"),
        (lambda: rooms.topdown_view(0.1, np.inf), "height"),
        (lambda: _of_bounds((0, 0, 0), (1e6, 1, 1e6)).topdown_view(0.01, 0.0), "100000000 x 100000000 pixels"),
        (lambda: _of_bounds((9, 9, 9), (0, 0, 0)).topdown_view(0.1, 0.0), "pixels"),
        (lambda: rooms.sample(-1), "n:"),
        (lambda: rooms.sample(2.5), "n:"),
        (lambda: rooms.sample(1, seed=-1), "seed"),
        (lambda: pack([]), "navmeshes"),
        (lambda: search_scratch(2**8, 2**28, rooms.device), "rows"),
    ):
        with pytest.raises(ArgumentError, match=name):
            call()
    empty = np.zeros((0, 3), np.float32)
    assert rooms.snap(empty).shape == (0, 3) and rooms.geodesic_distance(empty, empty).shape == (0,)
    assert rooms.try_step(empty, empty).shape == (0, 3) and rooms.sample(0).shape == (0, 3)


def _of_bounds(low, high):
    """The rooms in a file whose header states other bounds."""
    made = handmade.two_rooms()
    bounds = {"low": np.float32(low), "high": np.float32(high)}
    return NavMesh(made._replace(tiles=[made.tiles[0]._replace(**bounds)]))


@pytest.mark.plain
def test_polygons_without_the_flag_or_of_no_area_are_walls():
    made = handmade.two_rooms()
    tile = made.tiles[0]
    polygons = tile.polygons.copy()
    polygons["flags"][1] = 0  # the door
    navmesh = NavMesh(made._replace(tiles=[tile._replace(polygons=polygons)]))
    assert navmesh.num_islands == 3 and navmesh.area == pytest.approx(32.2, abs=1e-5)
    assert np.isinf(navmesh.geodesic_distance([1.0, 0, 0.5], [7.0, 0, 0.5]))
    np.testing.assert_allclose(navmesh.try_step([3.9, 0, 2.0], [4.05, 0, 2.0]), [4.0, 0, 2.0], atol=2e-4)
    vertices = tile.vertices.copy()
    vertices[(vertices == np.float32(4.2)).any(1), 0] = 4.0
    flat = NavMesh(made._replace(tiles=[tile._replace(vertices=vertices)]))
    assert flat.data.polygon_island[1] == -1


def test_a_degenerate_search_stops_at_the_pool_and_path_limits():
    """Detour gives up after 256 polygons of path: a corridor of 300 quads has no path from end to end."""
    outlines = [handmade.rectangle(float(i), 0.0, float(i + 1), 1.0) for i in range(300)]
    navmesh = NavMesh(single_tile_file(handmade.make_tile(outlines), NavMeshSettings()))
    assert navmesh.geodesic_distance([0.5, 0, 0.5], [255.5, 0, 0.5]) == pytest.approx(255.0, abs=1e-3)
    assert np.isinf(navmesh.geodesic_distance([0.5, 0, 0.5], [256.5, 0, 0.5]))


def test_across_tiles():
    navmesh = NavMesh(handmade.four_tiles())
    assert navmesh.num_polygons == 16 and navmesh.num_islands == 1
    rng = np.random.default_rng(1)
    starts, goals = (rng.uniform([0.1, 0, 0.1], [7.9, 0, 7.9], (400, 3)).astype(np.float32) for _ in range(2))
    np.testing.assert_allclose(navmesh.snap(starts), starts, atol=ROUNDING)
    distance, straight = navmesh.geodesic_distance(starts, goals), np.linalg.norm(goals - starts, axis=1)
    assert np.all(distance >= straight - 1e-4) and np.all(distance <= 1.25 * straight + 0.5)
    steps = starts + np.clip(goals - starts, -0.25, 0.25)
    np.testing.assert_allclose(navmesh.try_step(starts, steps), steps, atol=ROUNDING)
    assert navmesh.geodesic_distance([3.9, 0, 1.0], [4.1, 0, 1.0]) == pytest.approx(0.2, abs=1e-5)


def test_links_across_tiles_are_detours(shared):
    """A file of 41 tiles that Recast's demo saved with its links: the same links, in the same order.

    Except around tiles that were built again in the editor, and so connected later than their place in the file says.
    """
    navmesh = NavMesh.load(shared / "scenes" / "recast_demo" / "all_tiles_navmesh.bin")
    first = np.cumsum([0] + [len(tile.polygons) for tile in navmesh.file.tiles])
    count = in_order = 0
    for k, tile in enumerate(navmesh.file.tiles):
        for p in range(len(tile.polygons)):
            expected, ours = _stored_links(navmesh.file, k, p, first), _our_links(navmesh.data, first[k] + p)
            assert sorted(ours) == sorted(expected)
            in_order += ours == expected
            count += 1
    assert count == 143 and in_order == 125


def _stored_links(file, tile_index, polygon, first):
    """(target, edge + 8 * side) of a polygon's links as the file lists them."""
    bits, tiles = (file.max_polygons - 1).bit_length(), (1 << (file.max_tiles - 1).bit_length()) - 1
    place = {(reference >> bits) & tiles: k for k, reference in enumerate(file.references)}
    tile, found = file.tiles[tile_index], []
    stored = tile.links.view(np.dtype([("ref", "<u4"), ("next", "<u4"), ("small", "u1", 4)]))[:, 0]
    link = tile.polygons[polygon]["first_link"]
    while link != 0xFFFFFFFF:
        ref, edge, side = int(stored[link]["ref"]), *(int(v) for v in stored[link]["small"][:2])
        target = first[place[(ref >> bits) & tiles]] + (ref & ((1 << bits) - 1))
        found.append((int(target), edge + 8 * (0 if side == 0xFF else side >> 1)))
        link = stored[link]["next"]
    return found


def _our_links(data, polygon):
    rows = slice(data.link_start[polygon], data.link_start[polygon + 1])
    targets = records(data.link_middle, MIDDLE_ROW)["target"][rows]
    edges = records(data.link_portal, PORTAL_ROW)["edge_and_side"][rows]
    return list(zip(targets.tolist(), edges.tolist(), strict=True))


def test_nearest_polygon_against_brute_force():
    """The pruned tree search agrees with looking at every polygon (heights from the detail triangles, float64)."""
    navmesh = NavMesh(handmade.hills(9, 2))
    tile = navmesh.file.tiles[0]
    rng = np.random.default_rng(5)
    points = rng.uniform(tile.low - 1.0, tile.high + np.float32([1, -1, 1]), (300, 3)).astype(np.float32)
    ours = navmesh.snap(points).astype(np.float64)
    corners = tile.vertices[tile.polygons["vertices"][:, :4]].astype(np.float64)
    for point, answer in zip(points.astype(np.float64), ours, strict=True):
        reached = _metric(point, corners).min()
        assert np.isfinite(answer).all()
        found = _metric_of_answer(point, answer)
        assert found == pytest.approx(reached, abs=1e-4)


def _metric(point, outlines):
    """The distance that counts from a point to each of the quadrilaterals f64 [P, 4, 3]: f64 [P]."""
    start, edge = outlines, np.roll(outlines, -1, 1) - outlines
    along = ((point - start) * edge)[..., [0, 2]].sum(-1) / (edge[..., [0, 2]] ** 2).sum(-1)
    away = start + np.clip(along, 0, 1)[..., None] * edge - point
    nearest = np.hypot(away[..., 0], away[..., 2]).argmin(1)
    metric = np.linalg.norm(away[np.arange(len(outlines)), nearest], axis=1)
    for b, c in ((1, 2), (2, 3)):
        sides = np.stack([outlines[:, b], outlines[:, c]], axis=1) - outlines[:, :1]
        flat = (point - outlines[:, 0])[:, [0, 2]]
        u, v = np.linalg.solve(sides[..., [0, 2]].swapaxes(1, 2), flat[..., None])[..., 0].T
        height = outlines[:, 0, 1] + u * sides[:, 0, 1] + v * sides[:, 1, 1]
        inside = (u >= -1e-9) & (v >= -1e-9) & (u + v <= 1 + 1e-9)
        metric = np.where(inside, np.maximum(np.abs(point[1] - height) - 0.2, 0.0), metric)
    return metric


def _metric_of_answer(point, answer):
    if np.hypot(*(answer - point)[[0, 2]]) < 1e-9:
        return max(abs(answer[1] - point[1]) - 0.2, 0.0)
    return np.linalg.norm(answer - point)


def test_a_navmesh_that_was_moved_answers_the_same():
    navmesh = NavMesh(handmade.hills(5, 1))
    starts, goals = np.split(navmesh.sample(200), 2)
    found = navmesh.to("cpu").geodesic_distance(starts, goals)
    np.testing.assert_array_equal(found, navmesh.geodesic_distance(starts, goals))


def test_several_scenes_in_one_set_of_arrays():
    """A scene answers the same packed with others as on its own."""
    alone = [NavMesh(made) for made in (handmade.hills(5, 1), handmade.two_rooms(), handmade.four_tiles())]
    packed = to_device(pack([navmesh.data for navmesh in alone]), alone[0].device)
    rng = np.random.default_rng(8)
    for scene, navmesh in enumerate(alone):
        low, high = navmesh.bounds
        starts, ends = (rng.uniform(low, high, (300, 3)).astype(np.float32) for _ in range(2))
        one = _as_first_scene(packed, scene)
        scratch = view(search_scratch(search_size(one), 1, navmesh.device))
        distance, corners = np.empty(300, np.float32), np.empty(300, np.int32)
        batch.path(300, view(one), starts, ends[:, None].copy(), scratch, distance, corners)
        np.testing.assert_array_equal(distance, navmesh.geodesic_distance(starts, ends))
        out = np.empty_like(starts)
        batch.step(300, view(one), starts, ends, True, scratch, out)
        np.testing.assert_array_equal(out, navmesh.try_step(starts, ends))
        batch.sample(300, view(one), 7, out)
        np.testing.assert_array_equal(out, navmesh.sample(300, seed=7))


def _as_first_scene(packed, scene):
    """The batch kernels ask scene 0: put another one first."""
    return packed._replace(scenes=packed.scenes[scene:].clone())
