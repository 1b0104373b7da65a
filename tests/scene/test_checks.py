"""Invalid BVHs and indices are rejected before kernels use them."""

import numpy as np
import pytest

from batchnav.errors import MeshError
from batchnav.scene.bvh import MAX_LEVELS, build_bvh
from batchnav.scene.checks import check_scene_arrays
from batchnav.types import TriangleMesh


def soup(count=200):
    """Small triangles anywhere, and their tree."""
    draw = np.random.default_rng(count)
    corners = draw.random((count, 1, 3)) + 0.1 * draw.random((count, 3, 3))
    mesh = TriangleMesh(corners.reshape(-1, 3).astype(np.float32), np.arange(3 * count, dtype=np.int32).reshape(-1, 3))
    return mesh, build_bvh(mesh)


def links(bvh):
    return bvh.nodes.view(np.int32)[:, 12:14]


def set_link(row, side, value):
    def spoil(mesh, bvh):
        links(bvh)[row, side] = value

    return spoil


def last_leaf(mesh, bvh):
    """The leaf with the last triangles takes one more."""
    links(bvh)[links(bvh) == links(bvh).min()] -= 1


def shared_child(mesh, bvh):
    """Each row's children are the next row, twice: 2^M visits."""
    links(bvh)[:-1] = np.arange(1, len(bvh.nodes))[:, None]


def spoil_array(part, index, value):
    def spoil(mesh, bvh):
        getattr(mesh if hasattr(mesh, part) else bvh, part)[index] = value

    return spoil


@pytest.mark.parametrize("count", [1, 2, 5, 200, 5000])
def test_what_is_built_passes(count):
    check_scene_arrays(*soup(count), "scene")


@pytest.mark.parametrize(
    ("spoil", "match"),
    [
        (set_link(1, 0, 10**6), "later row"),
        (set_link(3, 0, 0), "later row"),
        (set_link(3, 1, 3), "later row"),
        (set_link(0, 1, ~(4 * 10**6)), "leaf beyond"),
        (set_link(0, 1, ~0), "one link to each row"),
        (last_leaf, "leaf beyond"),
        (shared_child, "one link to each row"),
        (spoil_array("faces", (5, 1), 600), "vertex index out of range, expected 0 to 599"),
        (spoil_array("faces", (5, 1), -1), "vertex index"),
        (spoil_array("vertices", (5, 1), np.nan), "vertices: found a number that is not finite"),
        (spoil_array("vertices", (slice(5, 7), 1), (np.inf, -np.inf)), "vertices: found a number that is not finite"),
        (spoil_array("nodes", (2, 5), np.inf), "nodes: found a number that is not finite"),
        (spoil_array("nodes", (2, 4), 1e-6), "nodes: found a box in row 2 that does not contain its triangles"),
        (spoil_array("nodes", (0, 8), 1e9), "nodes: found a box in row 0 that"),
        (spoil_array("triangles", (7, 3), np.nan), "triangles: found a row, 7, that differs from its face of the mesh"),
        (spoil_array("triangles", (7, slice(0, 12)), 0.0), "triangles: found a row, 7, that"),
        (spoil_array("triangles", (9, 3), 2.0), "triangles: found a row, 9, that"),
        (spoil_array("order", 5, 200), "each of 0 to 199 once"),
        (spoil_array("order", slice(0, 2), 7), "each of 0 to 199 once"),
    ],
)
def test_what_is_not_safe_is_refused(spoil, match):
    mesh, bvh = soup()
    spoil(mesh, bvh)
    with pytest.raises(MeshError, match=f"a.scene: .*{match}"):
        check_scene_arrays(mesh, bvh, "a.scene")


@pytest.mark.parametrize("levels", [MAX_LEVELS, MAX_LEVELS + 1])
def test_no_path_is_deeper_than_a_traversals_stack(levels):
    mesh, bvh = soup(levels + 1)
    nodes = np.zeros((levels, 16), np.float32)
    nodes[:, [4, 5, 6, 7, 10, 11]] = 10.0  # half sizes of boxes
    rows = nodes.view(np.int32)
    rows[:, 12], rows[:, 13] = np.arange(1, levels + 1), ~(4 * np.arange(levels))
    rows[-1, 12] = ~(4 * levels)
    if levels <= MAX_LEVELS:
        check_scene_arrays(mesh, bvh._replace(nodes=nodes), "chain")
    else:
        with pytest.raises(MeshError, match="more levels, expected at most 32"):
            check_scene_arrays(mesh, bvh._replace(nodes=nodes), "chain")


def test_rows_and_faces_belong_together():
    mesh, bvh = soup()
    for part in ("order", "triangles"):
        with pytest.raises(MeshError, match=f"{part}: .*expected one for each"):
            check_scene_arrays(mesh, bvh._replace(**{part: getattr(bvh, part)[:-1]}), "short")
    with pytest.raises(MeshError, match="found 200 faces and 0 nodes"):
        check_scene_arrays(mesh, bvh._replace(nodes=bvh.nodes[:0]), "no nodes")
    with pytest.raises(MeshError, match="order: found 200 rows"):
        check_scene_arrays(mesh._replace(faces=mesh.faces[:0]), bvh, "no faces")
