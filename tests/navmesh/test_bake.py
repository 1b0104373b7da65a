"""Baking: closed forms on simple shapes, Recast's tiles of the same meshes, and invalid input."""

import numpy as np
import pytest
import trimesh

from batchnav.errors import ConfigError, NavMeshError
from batchnav.navmesh import file as navmesh_file
from batchnav.navmesh.bake import bake_tile
from batchnav.navmesh.data import WALKABLE, Tile
from batchnav.navmesh.settings import NavMeshSettings

SETTINGS = NavMeshSettings()
AREA_ROUNDING = 1e-5
"""Relative: the recorded areas were summed in float32."""
CELL_ROUNDING = 1e-4
"""Relative: corners are float32 multiples of the cell."""


def mesh_of(*shapes: trimesh.Trimesh) -> tuple[np.ndarray, np.ndarray]:
    mesh = trimesh.util.concatenate(shapes)
    return np.asarray(mesh.vertices, np.float32), np.asarray(mesh.faces, np.int32)


def box(low, high) -> trimesh.Trimesh:
    return trimesh.creation.box(bounds=(low, high))


def quad(x0, z0, x1, z1, y0=0.0, y1=None) -> trimesh.Trimesh:
    """A floor that faces up; it rises from y0 to y1 along x."""
    y1 = y0 if y1 is None else y1
    corners = [[x0, y0, z0], [x0, y0, z1], [x1, y1, z1], [x1, y1, z0]]
    return trimesh.Trimesh(corners, [[0, 1, 2], [0, 2, 3]], process=False)


def polygon_areas(tile: Tile) -> np.ndarray:
    """3-D area of each polygon's detail triangles, in float64."""
    areas = np.zeros(len(tile.polygons))
    for p, (polygon, detail) in enumerate(zip(tile.polygons, tile.details, strict=True)):
        own = tile.vertices[polygon["vertices"][: polygon["num_vertices"]]]
        extra = tile.detail_vertices[detail["vertex_base"] : detail["vertex_base"] + detail["num_vertices"]]
        first = detail["triangle_base"]
        triangles = tile.detail_triangles[first : first + detail["num_triangles"], :3]
        a, b, c = np.concatenate([own, extra]).astype(np.float64)[triangles].swapaxes(0, 1)
        areas[p] = 0.5 * np.linalg.norm(np.cross(b - a, c - b), axis=1).sum()
    return areas


def islands(tile: Tile) -> int:
    """Number of connected sets of polygons."""
    label = np.arange(len(tile.polygons))
    for _ in label:
        for p, polygon in enumerate(tile.polygons):
            for neighbour in polygon["neighbours"][: polygon["num_vertices"]]:
                if neighbour > 0:
                    label[p] = label[neighbour - 1] = min(label[p], label[neighbour - 1])
    return len(np.unique(label))


def area(*shapes, settings=SETTINGS) -> float:
    return polygon_areas(bake_tile(*mesh_of(*shapes), settings)).sum()


def test_a_floor_loses_three_cells_at_an_open_edge():
    """One as a ledge, two to the agent's radius: 0.15 m on each side."""
    assert area(quad(0, 0, 10, 10)) == pytest.approx(9.7**2, rel=CELL_ROUNDING)


@pytest.mark.parametrize("radius", [0.0, 0.1, 0.18, 0.3])
def test_the_radius_counts_in_whole_cells(radius):
    lost = 0.05 + np.ceil(radius / 0.05 - 1e-6) * 0.05
    settings = NavMeshSettings(agent_radius=radius)
    assert area(quad(0, 0, 10, 10), settings=settings) == pytest.approx((10 - 2 * lost) ** 2, rel=CELL_ROUNDING)


def test_a_wall_costs_its_thickness_and_the_radius():
    """Between walls of 0.2 m a room loses two cells on each side; a wall inside divides it in two islands."""
    walls = [box((-0.2, 0, -0.2), (0, 2.5, 4.2)), box((6, 0, -0.2), (6.2, 2.5, 4.2))]
    walls += [box((-0.2, 0, -0.2), (6.2, 2.5, 0)), box((-0.2, 0, 4), (6.2, 2.5, 4.2))]
    floor = quad(-0.2, -0.2, 6.2, 4.2)
    inside = bake_tile(*mesh_of(floor, *walls), SETTINGS)
    ground = polygon_areas(inside)[_mean_height(inside) < 1.0].sum()
    assert 5.7 * 3.7 <= ground <= 5.8 * 3.8 + 1e-3
    divided = bake_tile(*mesh_of(floor, *walls, box((3, 0, 0), (3.2, 2.5, 4))), SETTINGS)
    assert islands(divided) == islands(inside) + 1


def _mean_height(tile: Tile) -> np.ndarray:
    return np.array([tile.vertices[p["vertices"][: p["num_vertices"]], 1].mean() for p in tile.polygons])


@pytest.mark.parametrize(("height", "count"), [(0.15, 1), (0.5, 2)])
def test_a_step_is_climbed_up_to_the_climb(height, count):
    tile = bake_tile(*mesh_of(quad(0, 0, 4, 4), box((4, -0.1, 0), (8, height, 4))), SETTINGS)
    assert islands(tile) == count


@pytest.mark.parametrize(("ceiling", "open_below"), [(1.2, False), (2.2, True)])
def test_a_low_ceiling_closes_what_is_below(ceiling, open_below):
    tile = bake_tile(*mesh_of(quad(0, 0, 4, 4), box((0, ceiling, 0), (4, ceiling + 0.2, 4))), SETTINGS)
    assert (_mean_height(tile) < 1.0).any() == open_below


@pytest.mark.parametrize(("degrees", "walkable"), [(30.0, True), (50.0, False)])
def test_a_slope_above_the_limit_is_closed(degrees, walkable):
    slope = quad(4, 0, 7, 4, 0.0, 3 * np.tan(np.radians(degrees)))
    tile = bake_tile(*mesh_of(quad(0, 0, 4, 4), slope), SETTINGS)
    assert (tile.vertices[:, 0].max() > 5.0) == walkable


def test_regions_below_the_minimum_are_dropped():
    """20 x 20 cells are kept: after erosion 1 m2 of floor."""
    big, small = quad(0, 0, 4, 4), quad(6, 0, 6.9, 0.9)
    assert area(big, small) == pytest.approx(area(big), rel=1e-6)
    assert area(big, quad(6, 0, 7.6, 1.6)) > area(big) + 1.0


def test_holes_are_cut_out():
    pillar = box((4.5, -1, 4.5), (5.5, 3, 5.5))
    free = 9.7**2 - 1.2**2
    tile = bake_tile(*mesh_of(quad(0, 0, 10, 10), pillar), SETTINGS)
    assert polygon_areas(tile)[_mean_height(tile) < 1.5].sum() == pytest.approx(free, rel=5e-3)


def test_the_tile_is_consistent(oracle):
    tile = bake_tile(*load(oracle("house_r3_s3.ply")), SETTINGS)
    polygons = tile.polygons
    assert tile.max_links == polygons["num_vertices"].sum()
    assert (polygons["flags"] == WALKABLE).all()
    for p, polygon in enumerate(polygons):
        for k in range(polygon["num_vertices"]):
            neighbour = int(polygon["neighbours"][k]) - 1
            if neighbour >= 0:
                assert p + 1 in polygons["neighbours"][neighbour]
    nodes = tile.bv_nodes
    leaves = nodes["index"][: 2 * len(polygons) - 1]
    assert sorted(leaves[leaves >= 0]) == list(range(len(polygons)))
    assert not nodes[-1].tobytes().strip(b"\0")


def load(path) -> tuple[np.ndarray, np.ndarray]:
    scene = trimesh.load(path, process=False)
    return mesh_of(scene.to_geometry() if isinstance(scene, trimesh.Scene) else scene)


OURS = [
    "boxes.ply", "empty10.ply", "gaps.ply", "house_r3_s3.ply", "house_r4.ply", "lcorridor.ply", "ramp20.ply",
    "stairs.ply", "table.ply", "twolevel.ply", "tworooms.ply", "wallroom.ply",
]  # fmt: skip
OTHERS = [
    "recast_dungeon.ply", "aws_small_house.glb", "cpr_office.glb", "procthor_000.glb", "quest_music_room.glb",
    "van_gogh_rebake.glb",
]  # fmt: skip


@pytest.mark.parametrize("name", [*OURS, *(pytest.param(name, marks=pytest.mark.shared) for name in OTHERS)])
def test_equals_recast(oracle, name):
    """The same tile as Recast and Detour make, byte for byte."""
    path = oracle(name)
    tile = bake_tile(*load(path), SETTINGS)
    recorded = np.load(oracle(f"{path.stem}.npz"))
    assert polygon_areas(tile).sum() == pytest.approx(float(recorded["area_total"]), rel=AREA_ROUNDING)
    expected = navmesh_file.read(oracle(f"{path.stem}.navmesh")).tiles[0]
    for field, ours, theirs in zip(Tile._fields, tile, expected._replace(links=None), strict=True):
        if isinstance(ours, np.ndarray):
            assert ours.shape == np.shape(theirs), field
            assert ours.tobytes() == np.asarray(theirs).tobytes(), field
        else:
            assert ours == theirs, field


def test_habitats_own_area_of_van_gogh_room(shared):
    """habitat-sim's tests expect 9.27384 m2 when this room is baked anew."""
    tile = bake_tile(*load(shared / "oracle" / "van_gogh_rebake.glb"), SETTINGS)
    assert polygon_areas(tile).sum() == pytest.approx(9.27384, abs=5e-6)


def test_baking_is_deterministic_and_leaves_its_input_alone(oracle):
    vertices, faces = load(oracle("table.ply"))
    copies = vertices.copy(), faces.copy()
    first, second = bake_tile(vertices, faces, SETTINGS), bake_tile(vertices, faces, SETTINGS)
    for ours, again in zip(first, second, strict=True):
        assert ours is again or np.asarray(ours).tobytes() == np.asarray(again).tobytes()
    assert (vertices == copies[0]).all() and (faces == copies[1]).all()


@pytest.mark.parametrize(
    "changes",
    [
        {"cell_size": 0.1},
        {"cell_height": 0.05},
        {"verts_per_poly": 3},
        {"detail_sample_dist": 0.0},
        {"detail_sample_max_error": 0.0},
        {"edge_max_error": 0.0},
        {"edge_max_len": 0.0},
        {"edge_max_error": 10.0},
        {"region_min_size": 0.0, "region_merge_size": 0.0},
        {"agent_max_climb": 0.0},
        {"filter_low_hanging_obstacles": False, "filter_ledge_spans": False, "filter_walkable_low_height_spans": False},
    ],
)
def test_other_settings(oracle, changes):
    """Any valid settings bake; the floor's area stays near."""
    tile = bake_tile(*load(oracle("wallroom.ply")), NavMeshSettings(**changes))
    assert (tile.polygons["num_vertices"] <= changes.get("verts_per_poly", 6)).all()
    assert polygon_areas(tile)[_mean_height(tile) < 1.0].sum() == pytest.approx(42.78, rel=0.1)


def test_vertices_without_a_face_do_not_count():
    vertices, faces = mesh_of(quad(0, 0, 10, 10))
    stray = np.concatenate([vertices, np.array([[500.0, 0.0, 500.0], [np.nan, 0.0, 0.0]], np.float32)])
    assert (bake_tile(stray, faces, SETTINGS).high == bake_tile(vertices, faces, SETTINGS).high).all()


def floor_mesh():
    return mesh_of(quad(0, 0, 4, 4))


def test_meshes_without_a_floor_are_rejected():
    wall = trimesh.Trimesh([[0, 0, 0], [4, 0, 1], [4, 3, 1], [0, 3, 0]], [[0, 1, 2], [0, 2, 3]], process=False)
    with pytest.raises(NavMeshError, match="none of them flatter than 45 degrees"):
        bake_tile(*mesh_of(wall), SETTINGS)
    with pytest.raises(NavMeshError, match="no floor that is wide and high enough for the agent"):
        bake_tile(*mesh_of(quad(0, 0, 0.2, 4)), SETTINGS)
    with pytest.raises(NavMeshError, match="no floor of 400 cells"):
        bake_tile(*mesh_of(quad(0, 0, 1, 1)), SETTINGS)
    with pytest.raises(NavMeshError, match="no outline that is wider than edge_max_error"):
        bake_tile(*floor_mesh(), NavMeshSettings(edge_max_error=1000.0))
    with pytest.raises(NavMeshError, match="found no triangles"):
        bake_tile(floor_mesh()[0], np.zeros((0, 3), np.int32), SETTINGS)


def test_invalid_meshes_are_rejected():
    vertices, faces = floor_mesh()
    broken = vertices.copy()
    broken[2, 1] = np.inf
    with pytest.raises(NavMeshError, match="face 0 has a vertex that is not finite"):
        bake_tile(broken, faces, SETTINGS)
    for index in (-1, 4, 2**31 - 1):
        wrong = faces.copy()
        wrong[1, 2] = index
        with pytest.raises(NavMeshError, match=r"face 1 is .* expected vertices 0 to 3"):
            bake_tile(vertices, wrong, SETTINGS)
    with pytest.raises(NavMeshError, match=r"expected \[V, 3\]"):
        bake_tile(vertices[:, :2], faces, SETTINGS)


def test_grids_that_are_too_large_or_too_small_are_rejected():
    vertices, faces = floor_mesh()
    with pytest.raises(NavMeshError, match=r"80000 x 80000 cells of 0\.05 m"):
        bake_tile(vertices * 1000, faces, SETTINGS)
    with pytest.raises(NavMeshError, match="which is inf x inf cells"):
        bake_tile((vertices - 2) * np.float32(1e38), faces, SETTINGS)
    with pytest.raises(NavMeshError, match="expected at least one cell"):
        bake_tile(vertices * np.float32(0.001), faces, SETTINGS)
    with pytest.raises(ConfigError, match="cell_size"):
        bake_tile(vertices, faces, NavMeshSettings(cell_size=0.0))
