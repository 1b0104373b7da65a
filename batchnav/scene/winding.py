"""Meshes whose floors can be walked on from both sides."""

from __future__ import annotations

import numpy as np

from batchnav.types import TriangleMesh


def two_sided(mesh: TriangleMesh) -> TriangleMesh:
    """The mesh, without its surface, with every face that looks down turned up: a navmesh is baked on both sides."""
    a, b, c = (mesh.vertices[mesh.faces[:, k]].astype(np.float64) for k in range(3))
    edge, other = b - a, c - a
    looks_down = edge[:, 2] * other[:, 0] - edge[:, 0] * other[:, 2] < 0
    faces = np.where(looks_down[:, None], mesh.faces[:, ::-1], mesh.faces)
    return mesh._replace(faces=np.ascontiguousarray(faces), surface=None)
