"""Validation of a mesh and its BVH before kernels use them, since kernels do not check links and indices.

Files are validated too: a checksum proves that a file is complete, not that it is valid.
"""

from __future__ import annotations

import numpy as np

from batchnav.errors import MeshError
from batchnav.geometry.triangle import triangle_planes
from batchnav.runtime.kernels.background import releases_lock
from batchnav.runtime.kernels.decorators import cpu_function
from batchnav.scene.bvh import BVH, MAX_LEVELS, slack_of
from batchnav.types import TriangleMesh

_PROBLEMS = (
    "faces: found a vertex index out of range, expected 0 to {vertices}",
    "order: found a face out of range or twice, expected each of 0 to {faces} once",
    "nodes: found a link to no later row, expected rows up to {nodes}",
    "nodes: found a row with two links to it or none, expected one link to each row but the first",
    "nodes: found a leaf beyond the last triangle, expected triangles 0 to {faces}",
    f"nodes: found more levels, expected at most {MAX_LEVELS}",
)
_FACE, _ORDER, _LINK, _PARENT, _LEAF, _DEEP = range(len(_PROBLEMS))
_FINE = -1
_ROUNDING = 1e-3
"""Allowed difference of a triangle's planes, as a fraction of their largest number; processors round differently."""


def check_scene_arrays(mesh: TriangleMesh, bvh: BVH, name: str) -> None:
    """Raise MeshError, with `name`, where a mesh and its BVH (of the right dtypes and widths) are invalid.

    Valid means: vertices and boxes are finite; faces and `order` are in range; every node but the root is the child of
    exactly one earlier node; no path has more than MAX_LEVELS nodes; leaves are within the triangles; boxes contain
    what is below them; `triangles` are those of the mesh. Linear time: 33 ms for 100,000 triangles, compared with
    10 ms for mapping the file and its checksums.
    """
    for field, found, expected in (
        ("order", len(bvh.order), len(mesh.faces)), ("triangles", len(bvh.triangles), len(mesh.faces)),
    ):  # fmt: skip
        if found != expected:
            raise MeshError(f"{name}: {field}: found {found} rows, expected one for each of the {expected} faces")
    if not len(mesh.faces) or not len(bvh.nodes):
        raise MeshError(f"{name}: found {len(mesh.faces)} faces and {len(bvh.nodes)} nodes, expected at least one")
    with np.errstate(invalid="ignore"):
        # A sum is finite only if all numbers are; float64 sums of float32 do not overflow.
        sums = mesh.vertices.sum(dtype=np.float64), bvh.nodes[:, :12].sum(dtype=np.float64)
    for field, total in zip(("vertices", "nodes"), sums, strict=True):
        if not np.isfinite(total):
            raise MeshError(f"{name}: {field}: found a number that is not finite, expected finite numbers")
    links, scratch = bvh.nodes.view(np.int32)[:, 12:14], np.zeros(max(len(bvh.nodes), len(bvh.order)), np.int8)
    problem = _first_problem(len(mesh.vertices), mesh.faces, bvh.order, links, scratch)
    if problem != _FINE:
        last = {"vertices": len(mesh.vertices) - 1, "faces": len(mesh.faces) - 1, "nodes": len(bvh.nodes) - 1}
        raise MeshError(f"{name}: {_PROBLEMS[problem].format(**last)}")
    bounds = np.empty((len(bvh.nodes), 6), np.float32)
    box, largest = _first_small_box(mesh.vertices, mesh.faces, bvh.order, bvh.nodes, links, bounds)
    if box >= 0:
        raise MeshError(f"{name}: nodes: found a box in row {box} that does not contain its triangles")
    row = _first_other_triangle(mesh.vertices, mesh.faces, bvh.order, bvh.triangles, slack_of(float(largest)))
    if row >= 0:
        raise MeshError(f"{name}: triangles: found a row, {row}, that differs from its face of the mesh")


def check_faces(mesh: TriangleMesh, order: np.ndarray, name: str) -> None:
    """Raise MeshError, with `name`, where vertices, faces and `order` (of the right dtypes and widths) are invalid.

    `unpack_tree` needs no other checks.
    """
    if len(order) != len(mesh.faces) or not len(order):
        raise MeshError(f"{name}: order: found {len(order)} rows, expected one for each of the {len(mesh.faces)} faces")
    with np.errstate(invalid="ignore"):
        if not np.isfinite(mesh.vertices.sum(dtype=np.float64)):
            raise MeshError(f"{name}: vertices: found a number that is not finite, expected finite numbers")
    leaf = np.full((1, 2), -1, np.int32)
    problem = _first_problem(len(mesh.vertices), mesh.faces, order, leaf, np.zeros(len(order), np.int8))
    if problem != _FINE:
        last = {"vertices": len(mesh.vertices) - 1, "faces": len(order) - 1, "nodes": 0}
        raise MeshError(f"{name}: {_PROBLEMS[problem].format(**last)}")


@releases_lock
@cpu_function
def _first_problem(num_vertices, faces, order, links, scratch):
    """Index into _PROBLEMS, or _FINE. `scratch`: zeros i8, as many as nodes or faces."""
    for i in range(len(faces)):
        for k in range(3):
            if faces[i, k] < 0 or faces[i, k] >= num_vertices:
                return _FACE
    for i in range(len(order)):
        if order[i] < 0 or order[i] >= len(order) or scratch[order[i]] != 0:
            return _ORDER
        scratch[order[i]] = 1
    scratch[:] = 0
    level = scratch  # level of each row that an earlier row links to; 1 for the root
    level[0] = 1
    for row in range(len(links)):
        # A row with two parents could cause 2^32 visits; a row without a parent does not belong to a tree.
        if level[row] == 0:
            return _PARENT
        if level[row] > MAX_LEVELS:
            return _DEEP
        for side in range(2):
            link = np.int64(links[row, side])
            if link < 0:
                if (~link >> 2) + (~link & 3) >= len(order):
                    return _LEAF
            elif link <= row or link >= len(links):
                return _LINK
            elif level[link] != 0:
                return _PARENT
            else:
                level[link] = level[row] + 1
    return _FINE


@cpu_function
def _first_small_box(vertices, faces, order, nodes, links, bounds_out):
    """First node, from the last row on, with a box that does not contain its triangles, or _FINE; largest coordinate.

    `bounds_out`: scratch f32 [M, 6], low and high corner of the triangles below each node.
    """
    largest = np.float32(0.0)
    for row in range(len(links) - 1, -1, -1):
        for k in range(3):
            bounds_out[row, k], bounds_out[row, 3 + k] = np.float32(np.inf), -np.float32(np.inf)
        for side in range(2):
            link = links[row, side]
            first, last = np.int64(~link) >> 2, (np.int64(~link) >> 2) + (np.int64(~link) & 3)
            for k in range(3):
                low, high = np.float32(np.inf), -np.float32(np.inf)
                if link >= 0:
                    low, high = bounds_out[link, k], bounds_out[link, 3 + k]
                else:
                    for i in range(first, last + 1):
                        for corner in range(3):
                            value = vertices[faces[order[i], corner], k]
                            low, high = min(low, value), max(high, value)
                    largest = max(largest, max(-low, high))
                column = 2 * k + side + (4 if k == 2 else 0)
                centre, half = nodes[row, column], nodes[row, column + (2 if k == 2 else 4)]
                if not (centre - half <= low and high <= centre + half):
                    return row, largest
                bounds_out[row, k] = min(bounds_out[row, k], low)
                bounds_out[row, 3 + k] = max(bounds_out[row, 3 + k], high)
    return _FINE, largest


@cpu_function
def _first_other_triangle(vertices, faces, order, triangles, slack):
    """First row of `triangles` that differs from the planes of its face, or _FINE."""
    for i in range(len(order)):
        a, b, c = faces[order[i], 0], faces[order[i], 1], faces[order[i], 2]
        planes = triangle_planes(
            (np.float64(vertices[a, 0]), np.float64(vertices[a, 1]), np.float64(vertices[a, 2])),
            (np.float64(vertices[b, 0]), np.float64(vertices[b, 1]), np.float64(vertices[b, 2])),
            (np.float64(vertices[c, 0]), np.float64(vertices[c, 1]), np.float64(vertices[c, 2])), slack,
        )  # fmt: skip
        for p in range(3):
            most = 0.0
            for k in range(4):
                most = max(most, abs(planes[p][k]))
            for k in range(4):
                if not abs(triangles[i, 4 * p + k] - planes[p][k]) <= _ROUNDING * most:
                    return i
    return _FINE
