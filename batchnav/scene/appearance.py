"""What a scene's surfaces look like, by triangle: what sensors read beside visibility."""

from __future__ import annotations

from collections.abc import Collection
from typing import NamedTuple

import numpy as np
import torch

from batchnav.errors import ArgumentError
from batchnav.types import TriangleMesh


class Appearance(NamedTuple):
    """Of F triangles, in the order in which `Visibility` numbers them. What no sensor reads has no rows."""

    normal: torch.Tensor
    """f32 [F, 4]: the unit vector (x, y, z) that points out of the triangle's front, and 0."""
    object_id: torch.Tensor
    """i32 [F]: the instance that a triangle is part of, as the data set numbers them; 0: not known."""
    category: torch.Tensor
    """i32 [F]: rows of the scene's `surface.categories`; 0: not known."""


def appearance_fields(wanted: bool | Collection[str]) -> frozenset[str]:
    """The fields of `Appearance` that a bank is to keep: True means all. ArgumentError for a name that is unknown."""
    if isinstance(wanted, bool):
        return frozenset(Appearance._fields if wanted else ())
    if isinstance(wanted, str) or not set(wanted) <= set(Appearance._fields):
        raise ArgumentError(f"appearance: found {wanted!r}, expected True, False, or some of {Appearance._fields}")
    return frozenset(wanted)


def appearance_of(mesh: TriangleMesh, fields: Collection[str]) -> Appearance:
    """The appearance of one mesh, as NumPy arrays in the order of its faces; other `fields` than these have no rows."""
    count, surface = len(mesh.faces), mesh.surface
    normal, object_id, category = np.empty((0, 4), np.float32), np.empty(0, np.int32), np.empty(0, np.int32)
    if "normal" in fields:
        normal = np.pad(normals_of(mesh), ((0, 0), (0, 1))).astype(np.float32)
    if "object_id" in fields:
        known = surface is not None and surface.object_id is not None
        object_id = surface.object_id if known else np.zeros(count, np.int32)
    if "category" in fields:
        known = surface is not None and surface.category is not None
        category = surface.category if known else np.zeros(count, np.int32)
    return Appearance(normal, object_id, category)


def normals_of(mesh: TriangleMesh) -> np.ndarray:
    """f64 [F, 3]: the unit vectors that point out of the triangles' fronts."""
    a, b, c = (mesh.vertices[mesh.faces[:, i]].astype(np.float64) for i in range(3))
    normal = np.cross(b - a, c - a)
    return normal / np.linalg.norm(normal, axis=1, keepdims=True)
