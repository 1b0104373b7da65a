"""Meshes whose floors are walkable whichever side faces up."""

from __future__ import annotations

import numpy as np

from batchnav.types import TriangleMesh


def two_sided(mesh: TriangleMesh) -> TriangleMesh:
    """The mesh for baking a navmesh: without its surface, and with every face that looks down reversed."""
    a, b, c = (mesh.vertices[mesh.faces[:, k]].astype(np.float64) for k in range(3))
    edge, other = b - a, c - a
    looks_down = edge[:, 2] * other[:, 0] - edge[:, 0] * other[:, 2] < 0
    faces = np.where(looks_down[:, None], mesh.faces[:, ::-1], mesh.faces)
    return mesh._replace(faces=np.ascontiguousarray(faces), surface=None)
