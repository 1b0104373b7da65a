import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

import batchnav.scene.scene as scenes
from batchnav.errors import ArgumentError, DeviceError, MeshError, NavMeshError
from batchnav.navmesh.settings import NavMeshSettings
from batchnav.scene import bvh, small_nodes
from batchnav.scene.bank import SceneBank, pack_bvhs
from batchnav.scene.bvh import MAX_LEAF, MAX_LEVELS, build_bvh, build_bvhs
from batchnav.scene.scene import make_scene
from batchnav.types import TriangleMesh


def soup(count, seed=0, size=0.2, spread=5.0):
    """Random triangles in a cube."""
    rng = np.random.default_rng(seed)
    centres = rng.uniform(-spread, spread, (count, 1, 3))
    corners = centres + rng.normal(0, size, (count, 3, 3))
    return TriangleMesh(corners.reshape(-1, 3).astype(np.float32), np.arange(3 * count, dtype=np.int32).reshape(-1, 3))


def walk(nodes, root=0):
    """Every (node row, side, link, box [2, 3], interior nodes above and including it)."""
    links, stack = nodes.view(np.int32)[:, 12:14], [(root, 1)]
    while stack:
        row, level = stack.pop()
        for side in range(2):
            n = nodes[row]
            centre = np.float64([n[side], n[2 + side], n[8 + side]])
            half = np.float64([n[4 + side], n[6 + side], n[10 + side]])
            link = links[row, side]
            yield row, side, int(link), np.array([centre - half, centre + half]), level
            if link >= 0:
                stack.append((link, level + 1))


def leaves(nodes, root=0):
    """(first triangle, count, box, level) of every leaf."""
    for _, _, link, box, level in walk(nodes, root):
        if link < 0:
            yield ~link >> 2, (~link & 3) + 1, box, level


def sheet(count, step):
    """Triangles in the plane z = 0, every other one a little in front of it."""
    mesh = soup(count)
    mesh.vertices[:, 2] = np.repeat(np.arange(count) % 2 * np.float32(step), 3)
    return mesh


MESHES = {
    "one": soup(1), "two": soup(2), "five": soup(5), "many": soup(3000),
    "same": TriangleMesh(np.eye(3, dtype=np.float32), np.tile(np.int32([0, 1, 2]), (1000, 1))),
    "geometric": TriangleMesh(  # centres at 2^-k: a tree by surface area alone would be a list
        (soup(120).vertices.reshape(-1, 3, 3) * 0.5 ** np.arange(120)[:, None, None]).reshape(-1, 3).astype(np.float32),
        soup(120).faces,
    ),
    "nearly flat": sheet(600, 1e-37),
}  # fmt: skip


@pytest.mark.parametrize("name", MESHES)
def test_small_nodes_contain_their_boxes(name):
    """Boxes grow by two cells and rounding at most; links count the grid's row."""
    nodes = build_bvh(MESHES[name]).nodes
    rows = small_nodes.small_nodes(nodes)
    (origin, cell), first = rows.view(np.float32)[0, :, :3].astype(float), 100
    for row, side, link, (low, high), _ in walk(nodes):
        words = rows[row + 1].ravel()[[side, 2 + side, 4 + side]].view(np.uint32)
        found = origin + (words & 0xFFFF) * cell, origin + (words >> 16) * cell
        assert (found[0] <= low - 0.99 * cell).all() and (found[1] >= high + 0.99 * cell).all()
        assert (found[0] >= low - 2.01 * cell).all() and (found[1] <= high + 2.01 * cell).all()
        assert rows[row + 1, 1, 2 + side] == (link + 1 if link >= 0 else link)
    moved = small_nodes.placed_nodes(nodes, first, 7, True)[1:, 1, 2:] - rows[1:, 1, 2:]
    assert set(np.unique(moved)) <= {first, -4 * 7}


@pytest.mark.parametrize("name", ["many", "same", "geometric", "five"])
def test_parts_give_the_same_tree(name, monkeypatch):
    expected = build_bvh(MESHES[name])
    monkeypatch.setattr(bvh, "_IN_PARTS", 5)
    for found, array in zip(build_bvh(MESHES[name]), expected, strict=True):
        assert found.tobytes() == array.tobytes()


def test_large_scenes_have_small_nodes(monkeypatch):
    monkeypatch.setattr(small_nodes, "FROM_TRIANGLES", 50)
    small, large = build_bvh(soup(49)), build_bvh(soup(50))
    wide = build_bvh(soup(60, spread=300.0))
    for trees, kind in (([small], 2), ([small, large], 3), ([large, wide], 2)):
        assert pack_bvhs(trees).nodes.ndim == kind


@pytest.mark.parametrize("name", MESHES)
def test_every_triangle_is_in_one_leaf_and_in_its_box(name):
    mesh = MESHES[name]
    tree = build_bvh(mesh)
    assert sorted(tree.order) == list(range(len(mesh.faces)))
    seen = np.zeros(len(mesh.faces), int)
    for first, count, box, level in leaves(tree.nodes):
        assert 1 <= count <= MAX_LEAF and level <= MAX_LEVELS
        seen[first : first + count] += 1
        corners = mesh.vertices[mesh.faces[tree.order[first : first + count]]].reshape(-1, 3)
        assert (corners >= box[0]).all() and (corners <= box[1]).all()
    assert (seen == (2 if name == "one" else 1)).all()  # a lone triangle is both children of the root


@pytest.mark.parametrize("name", ["five", "many", "geometric"])
def test_a_child_lies_in_its_parent(name):
    """To the rounding of centres and half sizes, of which the slack of boxes is four times as much."""
    nodes, rounding = build_bvh(MESHES[name]).nodes, 2.0**-22 * np.abs(MESHES[name].vertices).max()
    boxes = {(row, side): box for row, side, _, box, _ in walk(nodes)}
    for row, side, link, _, _ in walk(nodes):
        if link >= 0:
            for below in range(2):
                assert (boxes[link, below][0] >= boxes[row, side][0] - rounding).all()
                assert (boxes[link, below][1] <= boxes[row, side][1] + rounding).all()


def test_depth_is_bounded_where_surface_area_would_make_a_list():
    """Nested shells: each split by surface area peels one triangle off, and 5000 levels would overflow the stack."""
    scales = 1.01 ** np.arange(5000)
    corners = np.array([[0, 0, 0], [1, 0, 0], [0, 1, 1]])[None] * scales[:, None, None]
    mesh = TriangleMesh(corners.reshape(-1, 3).astype(np.float32), np.arange(15000, dtype=np.int32).reshape(-1, 3))
    assert max(level for *_, level in leaves(build_bvh(mesh).nodes)) <= MAX_LEVELS


def test_a_nearly_flat_mesh_stays_within_the_bins(tmp_path):
    """Its reciprocal extent is not finite. Compiled code looks at its indices only where it is told to beforehand."""
    build = f"import sys; sys.path.insert(0, {str(Path(__file__).parent)!r}); import test_bvh as t; "
    environment = {**os.environ, "NUMBA_BOUNDSCHECK": "1", "BATCHNAV_CACHE": str(tmp_path)}
    command = [sys.executable, "-c", build + "t.build_bvh(t.MESHES['nearly flat'])"]
    found = subprocess.run(command, env=environment, capture_output=True, text=True)
    assert found.returncode == 0, found.stderr


def test_surface_area_heuristic_keeps_clusters_apart():
    left, right = soup(64, 1, spread=1.0), soup(64, 2, spread=1.0)
    vertices = np.concatenate([left.vertices - np.float32([50, 0, 0]), right.vertices + np.float32([50, 0, 0])])
    tree = build_bvh(TriangleMesh(vertices, np.concatenate([left.faces, right.faces + len(left.vertices)])))
    assert {side: box[1][0] < 0 for row, side, _, box, _ in walk(tree.nodes) if row == 0} == {0: True, 1: False}


def test_packing_moves_links():
    trees = [build_bvh(MESHES[name]) for name in ("five", "one", "many")]
    data = pack_bvhs(trees)
    first = 0
    for root, tree in zip(data.roots, trees, strict=True):
        alone, packed = list(leaves(tree.nodes)), list(leaves(data.nodes, root))
        assert [(a + first, n) for a, n, *_ in alone] == [(a, n) for a, n, *_ in packed]
        np.testing.assert_array_equal(data.triangles[first : first + len(tree.triangles)], tree.triangles)
        first += len(tree.triangles)


def test_trees_that_are_built_together_are_those_built_alone():
    meshes = [MESHES[name] for name in ("five", "one", "many", "nearly flat")]
    for together, mesh in zip(build_bvhs(meshes), meshes, strict=True):
        for one, other in zip(together, build_bvh(mesh), strict=True):
            assert one.tobytes() == other.tobytes()  # links as float32 may be NaN
    assert build_bvhs([]) == []


def floor(size=4.0) -> TriangleMesh:
    corners = np.float32([[0, 0, 0], [0, 0, size], [size, 0, size], [size, 0, 0]])
    return TriangleMesh(corners, np.int32([[0, 1, 2], [0, 2, 3]]))


@pytest.fixture
def cache(tmp_path, monkeypatch):
    """An empty cache of navmeshes."""
    monkeypatch.setattr(scenes, "cache_folder", lambda: tmp_path / "cache")


def test_bad_scenes_are_named():
    with pytest.raises(MeshError, match="room: holds no triangles"):
        make_scene("room", TriangleMesh(np.zeros((3, 3), np.float32), np.zeros((0, 3), np.int32)))


def test_a_bank_holds_its_scenes_in_order(cache):
    rooms = [make_scene("small", floor(2.0)), make_scene("large", floor(4.0))]
    bank = SceneBank.pack(rooms, "cpu")
    assert bank.names == ("small", "large") and bank.num_scenes == 2 and bank.device == torch.device("cpu")
    assert bank.bvh.roots.tolist() == [0, 1] and bank.bvh.triangles.shape == (4, 12)
    assert bank.bvh_view.nodes.ctypes.data == bank.bvh.nodes.data_ptr()
    assert SceneBank.pack(rooms[0]).num_scenes == 1


def test_bad_banks_are_named(cache):
    with pytest.raises(ArgumentError, match="scenes: found none"):
        SceneBank.pack([])
    with pytest.raises(ArgumentError, match=r"scenes\[0\]: found TriangleMesh"):
        SceneBank.pack([floor()])
    with pytest.raises(DeviceError, match="device"):
        SceneBank.pack([make_scene("room", floor())], "abacus")


@pytest.mark.parametrize(
    ("body", "what"),
    [({"agent_radius": 3.0}, "agent_radius 3 and agent_height 1.5"), ({"agent_height": 3.0}, "agent_height 3")],
)
def test_a_body_that_no_navmesh_fits_is_named(cache, body, what):
    """Too wide for a floor of 4 m, or too tall for a room of 2.5 m."""
    low, high = floor(), floor()
    ceiling = high.vertices + np.float32([0, 2.5, 0])
    faces = np.concatenate([low.faces, high.faces[:, ::-1] + 4])
    mesh = TriangleMesh(np.concatenate([low.vertices, ceiling]), np.ascontiguousarray(faces))
    make_scene("room", mesh)
    with pytest.raises(NavMeshError, match=rf"room, for .*{what}: mesh: found no "):
        make_scene("room", mesh, settings=NavMeshSettings(**body))
