"""What has to hold of a mesh and its tree before kernels see them: they follow links and indices without looking.

Whoever made them: a file's check sums say that it came whole, not that it is right.
"""

from __future__ import annotations

import numpy as np

from batchnav.errors import MeshError
from batchnav.scene.bvh import BVH, MAX_LEVELS
from batchnav.types import TriangleMesh


def check_scene_arrays(mesh: TriangleMesh, bvh: BVH, name: str) -> None:
    """MeshError naming `name` where a mesh and its tree, of the right types and widths, are not safe to traverse.

    Vertices and boxes are finite, faces and `order` in range; the tree is one: every row but the root is the child of
    exactly one row before it, no path has more than MAX_LEVELS rows, leaves lie within the triangles. Linear time.
    """
    num_faces = len(mesh.faces)

    def require(ok: bool, field: str, expected: str) -> None:
        if not ok:
            raise MeshError(f"{name}: {field}: found a bad value, expected {expected}")

    require(num_faces > 0, "faces", "at least one")
    require(np.isfinite(mesh.vertices).all(), "vertices", "finite coordinates")
    in_range = mesh.faces.min() >= 0 and mesh.faces.max() < len(mesh.vertices)
    require(in_range, "faces", f"vertex indices from 0 to {len(mesh.vertices) - 1}")
    require(len(bvh.order) == num_faces, "order", f"one row for each of the {num_faces} faces")
    require(len(bvh.triangles) == num_faces, "triangles", f"one row for each of the {num_faces} faces")
    permuted = bvh.order.min() >= 0 and bvh.order.max() < num_faces and np.bincount(bvh.order).max() == 1
    require(permuted, "order", f"each of 0 to {num_faces - 1} once")
    require(len(bvh.nodes) > 0, "nodes", "at least one")
    require(np.isfinite(bvh.nodes[:, :12]).all(), "nodes", "finite boxes")
    _check_links(np.ascontiguousarray(bvh.nodes[:, 12:14]).view(np.int32), num_faces, require)


def _check_links(links: np.ndarray, num_faces: int, require) -> None:
    """Links i32 [M, 2] make a tree of at most MAX_LEVELS levels over the triangles."""
    parent, side = np.nonzero(links >= 0)
    child = links[parent, side]
    require((child > parent).all() and (child < len(links)).all(), "nodes", f"links to later rows below {len(links)}")
    # Two ways to one row are a graph that takes 2^32 visits, and a row that none leads to has no place in a tree.
    require(len(child) == len(links) - 1, "nodes", "one link to each row but the first")
    require((np.bincount(child, minlength=1) <= 1).all(), "nodes", "one link to each row but the first")
    leaf = ~links[links < 0].astype(np.int64)
    require((leaf // 4 + leaf % 4 + 1 <= num_faces).all(), "nodes", f"leaves within the {num_faces} triangles")
    level, levels = links[:1].ravel(), 1
    while (inner := level[level >= 0]).size:
        level, levels = links[inner].ravel(), levels + 1
        require(levels <= MAX_LEVELS, "nodes", f"at most {MAX_LEVELS} levels")
