"""What a scene's surfaces look like, by triangle: what sensors read beside visibility."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import torch

from batchnav.types import TriangleMesh


class Appearance(NamedTuple):
    """Of F triangles, in the order in which `Visibility` numbers them."""

    normal: torch.Tensor
    """f32 [F, 4]: the unit vector (x, y, z) that points out of the triangle's front, and 0."""


def appearance_of(mesh: TriangleMesh) -> Appearance:
    """The appearance of one mesh, as NumPy arrays in the order of its faces."""
    a, b, c = (mesh.vertices[mesh.faces[:, i]].astype(np.float64) for i in range(3))
    normal = np.cross(b - a, c - a)
    normal /= np.linalg.norm(normal, axis=1, keepdims=True)
    return Appearance(np.pad(normal, ((0, 0), (0, 1))).astype(np.float32))
