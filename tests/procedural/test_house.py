"""Houses: the same for a seed, closed, wound outwards, of the promised sizes, and passable."""

import numpy as np
import pytest

from batchnav.errors import ArgumentError
from batchnav.navmesh.navmesh import NavMesh
from batchnav.procedural import BENCHMARK_HOUSE, SPLITS, make_house
from batchnav.procedural.furniture import decor, kitchen, living
from batchnav.procedural.furniture.placement import Piece
from batchnav.procedural.house import MAX_TRIANGLES, MIN_TRIANGLES, make_plan
from batchnav.procedural.plans import CELL
from batchnav.procedural.random_stream import RandomStream
from batchnav.procedural.solids import Solids

SEEDS = (0, 3, 7, 17, 100_001, 110_005)
_PIECES = {
    f"{module.__name__.rpartition('.')[2]}.{name}": value
    for module in (kitchen, living, decor, kitchen, living, living, living)
    for name, value in vars(module).items()
    if isinstance(value, Piece)
}
_OVERHANG = 0.1
"""Metres by which leaves, cushions and handles may reach over a piece's footprint."""


@pytest.fixture(scope="module")
def houses():
    return {seed: make_house(seed) for seed in SEEDS}


def room_points(layout) -> list[tuple[float, float, float]]:
    """A point under the ceiling in each room: nothing but a pendant lamp's cord is there."""
    centre = [((r.rect[0] + r.rect[2]) / 2 * CELL + 0.35, (r.rect[1] + r.rect[3]) / 2 * CELL) for r in layout.rooms]
    return [(x, layout.height - 0.12, z) for x, z in centre]


def corners(mesh) -> np.ndarray:
    return mesh.vertices[mesh.faces].astype(np.float64)


def test_splits_are_disjoint():
    assert set(SPLITS) == {"train", "val", "test"}
    seeds = [seed for split in SPLITS.values() for seed in split]
    assert len(seeds) == len(set(seeds))


def test_the_house_that_is_measured_in_is_large_and_in_no_split():
    assert len(make_house(BENCHMARK_HOUSE).faces) == 151_716
    layout, _ = make_plan(BENCHMARK_HOUSE)
    assert len(layout.rooms) == 24 and round(sum(room.area for room in layout.rooms)) == 277
    assert not any(BENCHMARK_HOUSE in seeds for seeds in SPLITS.values())


@pytest.mark.parametrize("seed", [-1, 1.5, "3", None, True])
def test_a_bad_seed_is_named(seed):
    with pytest.raises(ArgumentError, match="seed"):
        make_house(seed)


def test_arrays(houses):
    for mesh in houses.values():
        assert mesh.vertices.dtype == np.float32 and mesh.faces.dtype == np.int32
        assert mesh.vertices.shape[1:] == (3,) and mesh.faces.shape[1:] == (3,)
        assert np.isfinite(mesh.vertices).all()
        assert mesh.faces.min() >= 0 and mesh.faces.max() < len(mesh.vertices)
        assert MIN_TRIANGLES <= len(mesh.faces) <= MAX_TRIANGLES


def test_no_triangle_is_degenerate(houses):
    for mesh in houses.values():
        a, b, c = np.moveaxis(corners(mesh), 1, 0)
        assert (np.abs(np.cross(b - a, c - a)).max(axis=1) > 0).all()


def test_plans_have_the_promised_sizes():
    for seed in range(60):
        layout, openings = make_plan(seed)
        assert 30 <= sum(room.area for room in layout.rooms) <= 300
        assert 2.4 <= layout.height <= 2.8 and 0.1 <= layout.thickness <= 0.2
        joined = {0}
        for _ in layout.rooms:
            joined |= {r for o in openings if not o.is_window and joined & set(o.sides) for r in o.sides}
        assert joined == set(range(len(layout.rooms)))
        for opening in openings:
            if not opening.is_window:
                assert 0.8 - 1e-9 <= opening.stop - opening.start <= 2.4 and 2.0 <= opening.top <= 2.3


def test_no_ray_from_inside_escapes_and_none_meets_a_back(houses):
    random = np.random.default_rng(0)
    for seed, mesh in houses.items():
        scene = pytest.importorskip("embreex.rtcore_scene").EmbreeScene()
        pytest.importorskip("embreex.mesh_construction").TriangleMesh(scene, mesh.vertices[mesh.faces])
        points = np.repeat(np.array(room_points(make_plan(seed)[0]), np.float32), 4000, axis=0)
        direction = random.normal(size=points.shape).astype(np.float32)
        hit = scene.run(points, direction, output=1)["primID"]
        assert (hit >= 0).all(), seed
        a, b, c = np.moveaxis(corners(mesh)[hit], 1, 0)
        facing = np.einsum("ij,ij->i", np.cross(b - a, c - a), direction) < 0
        # Single rays may slip along an edge into a solid; a wrongly wound face would catch many.
        assert (~facing).mean() < 1e-4, seed


def test_only_floors_and_furniture_face_up(houses):
    """The top of a house is no floor for a navmesh: what is level there are lintels, rails and small things."""
    for seed, mesh in houses.items():
        triangles, layout = corners(mesh), make_plan(seed)[0]
        a, b, c = np.moveaxis(triangles, 1, 0)
        normal = np.cross(b - a, c - a)
        area = np.linalg.norm(normal, axis=1) / 2
        level = (normal[:, 1] > 2 * area * np.cos(np.pi / 4)) & (triangles[:, :, 1].min(axis=1) > layout.height - 0.4)
        assert area[level].max(initial=0.0) < 0.1 and area[level].sum() < 0.2 * len(layout.rooms)
        assert (triangles[level, :, 1] < layout.height).all()


@pytest.mark.parametrize("name", sorted(_PIECES))
@pytest.mark.parametrize("detail", [1, 3])
def test_furniture_is_closed_and_wound_outwards(name, detail):
    for seed in range(8):
        solids, rng = Solids(detail), RandomStream(seed)
        width, depth, height = _PIECES[name].size(rng)
        _PIECES[name].build(solids, rng, width, depth, height)
        vertices, faces = solids.arrays()
        assert_closed(vertices, faces)
        assert vertices[:, 1].min() >= -0.13  # wall shelves have brackets below their board
        assert np.abs(vertices[:, 0]).max() < width / 2 + _OVERHANG
        if "PICTURE" not in name and "SHELF" not in name:
            assert np.abs(vertices[:, 2]).max() < depth / 2 + _OVERHANG


@pytest.mark.parametrize("thing", sorted({*decor.ON_SURFACES, *decor.ON_FLOORS}, key=lambda f: f.__name__))
def test_small_things_are_closed_and_wound_outwards(thing):
    for seed in range(8):
        solids = Solids(2)
        thing(solids, RandomStream(seed))
        assert_closed(*solids.arrays())


def assert_closed(vertices: np.ndarray, faces: np.ndarray) -> None:
    """Every directed edge has its opposite, and every connected part has a positive volume."""
    from scipy.sparse import coo_matrix
    from scipy.sparse.csgraph import connected_components

    edges = np.concatenate([faces[:, [0, 1]], faces[:, [1, 2]], faces[:, [2, 0]]]).astype(np.int64)
    forward = np.sort(edges[:, 0] * len(vertices) + edges[:, 1])
    assert (np.diff(forward) > 0).all()
    assert (forward == np.sort(edges[:, 1] * len(vertices) + edges[:, 0])).all()
    graph = coo_matrix((np.ones(len(edges)), (edges[:, 0], edges[:, 1])), shape=(len(vertices),) * 2)
    count, part = connected_components(graph, directed=False)
    a, b, c = (vertices[faces[:, i]] for i in range(3))
    a, b, c = a - vertices[faces[:, 0]][0], b - vertices[faces[:, 0]][0], c - vertices[faces[:, 0]][0]
    volume = np.bincount(part[faces[:, 0]], np.einsum("ij,ij->i", a, np.cross(b, c)) / 6, minlength=count)
    assert (volume > 0).all()


@pytest.mark.parametrize("seed", [0, 7])
def test_rooms_are_joined_over_the_floor(houses, seed):
    navmesh = NavMesh.bake(houses[seed])
    layout, _ = make_plan(seed)
    points = navmesh.sample(4000, seed=1)
    floor = points[points[:, 1] < 0.4]  # a floor at 0 lies within one cell height of 0.2 m
    islands, counts = np.unique(navmesh.island(floor), return_counts=True)
    assert counts.max() >= 0.9 * len(floor)
    main = floor[navmesh.island(floor) == islands[counts.argmax()]]
    rooms = layout.labels[(main[:, 2] / CELL).astype(int), (main[:, 0] / CELL).astype(int)]
    assert set(rooms.tolist()) >= {room.index for room in layout.rooms}
    goals = np.stack([main[rooms == room.index][0] for room in layout.rooms])
    starts = np.repeat(main[:1], len(goals), axis=0)
    assert np.isfinite(navmesh.geodesic_distance(starts, goals)).all()
