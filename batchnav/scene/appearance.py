"""What a scene's surfaces look like, by triangle: what sensors read beside visibility."""

from __future__ import annotations

import logging
from collections.abc import Collection, Sequence
from typing import Generic, NamedTuple

import numpy as np
import torch

from batchnav.errors import ArgumentError
from batchnav.scene.material_sampling import FINISH_WIDTH, STAYS, finish_rows
from batchnav.scene.surface import PLAIN
from batchnav.scene.textures import LEVEL_WIDTH, MATERIAL_WIDTH, Palette, num_levels, num_texels
from batchnav.types import Column, Surface, TriangleMesh

PATCH_WIDTH = 16
LINK, MATERIAL = 11, 15
"""Of a patch's row of f32 the two that hold an int's bits."""
_log = logging.getLogger(__name__)


class Appearance(NamedTuple, Generic[Column]):
    """Of F triangles, in the order in which `Visibility` numbers them. What no sensor reads has no rows.

    Colour is kept apart, so that a triangle takes no more than it has. A textured one has a patch, a row that says
    where in the texture a point P lies: corner A, and UV at A with its gradients along the triangle's plane,

        A (x y z), U | gradient of U (x y z), V | gradient of V (x y z), tint | unit normal (x y z), material

    A triangle whose corners have colours has a tint, a patch that says the colour at P, each channel 0 to 1,

        A (x y z), red | gradient of red, green | gradient of green, blue | gradient of blue, material

    `tint` and `material` are rows of `patches` and `materials`, bit for bit as int32; tint -1: none.
    """

    normal: Column
    """f32 [F, 4]: the unit vector (x, y, z) that points out of the triangle's front, and 0."""
    object_id: Column
    """i32 [F]: the instance that a triangle is part of, as the data set numbers them; 0: not known."""
    category: Column
    """i32 [F]: rows of the bank's `categories`; 0: not known."""
    paint: Column
    """i32 [F]: a row of `patches`; or of one colour all over, ~row of `materials`."""
    patches: Column
    """f32 [R, 16]."""
    materials: Column
    """f32 [M, 8], see scene/textures.py."""
    levels: Column
    """i32 [L, 4]: mip levels: first texel, width, height, 0."""
    texels: Column
    """i32 [T]: bytes red, green, blue, alpha, rows of a level from the top."""
    finish: Column
    """i32 [M, 4], of materials where finishes are drawn anew, see scene/material_sampling.py."""


PALETTE_FIELDS = ("materials", "levels", "texels")
"""What a `Palette` gives."""
COLOR_FIELDS = ("paint", "patches", *PALETTE_FIELDS)
"""What colours take."""
FROM_FILES = frozenset(Appearance._fields) - {"normal"}
"""What follows from more than the geometry."""
COLUMNS = Appearance(
    (4, torch.float32), (None, torch.int32), (None, torch.int32), (None, torch.int32), (PATCH_WIDTH, torch.float32),
    (MATERIAL_WIDTH, torch.float32), (LEVEL_WIDTH, torch.int32), (None, torch.int32), (FINISH_WIDTH, torch.int32),
)  # fmt: skip
"""Columns (None: one dimension) and type of each array."""


def appearance_fields(wanted: bool | Collection[str]) -> frozenset[str]:
    """The fields of `Appearance` that a bank is to keep: True means all that sensors read.

    ArgumentError for a name that is unknown.
    """
    if isinstance(wanted, bool):
        return frozenset(Appearance._fields if wanted else ()) - {"finish"}
    if isinstance(wanted, str) or not set(wanted) <= set(Appearance._fields):
        raise ArgumentError(f"appearance: found {wanted!r}, expected True, False, or some of {Appearance._fields}")
    return frozenset(wanted)


def with_finish(fields: frozenset[str]) -> frozenset[str]:
    """The fields of a bank whose finishes are drawn anew. ArgumentError where it has no colours."""
    if "paint" not in fields:
        raise ArgumentError("swatches: found them for a bank without colours, expected a sensor that sees colour")
    return fields | {"finish"}


def pack_appearance(
    meshes: Sequence[TriangleMesh], fields: Collection[str], categories: dict[str, int], palette: Palette | None = None
) -> Appearance[np.ndarray]:
    """The appearance of several meshes, one after another, as NumPy arrays; other `fields` than these have no rows.

    `categories`: see `appearance_of`. `palette`: what comes before; None: nothing.
    """
    palette, num_patches, parts = palette or Palette(), 0, []
    for mesh in meshes:
        parts.append(appearance_of(mesh, fields, categories, palette, num_patches))
        num_patches += len(parts[-1].patches)
    packed = Appearance(*map(np.concatenate, zip(*parts, strict=True)))
    return with_palette(packed, palette, fields)


def with_palette(look: Appearance[np.ndarray], palette: Palette, fields: Collection[str]) -> Appearance[np.ndarray]:
    """An appearance with what its palette has."""
    columns = dict(zip(PALETTE_FIELDS, palette.arrays(), strict=True))
    return look._replace(**columns, **({"finish": palette.finish} if "finish" in fields else {}))


def appearance_of(
    mesh: TriangleMesh, fields: Collection[str], categories: dict[str, int], palette: Palette, first_patch: int = 0
) -> Appearance[np.ndarray]:
    """The appearance of one mesh, in the order of its faces, but for what `palette` has: see `with_palette`.

    Other `fields` than these have no rows. Its patches begin at row `first_patch` of those of the bank. `categories`
    are the bank's rows by name, to which those that are new are added.
    """
    count, surface = len(mesh.faces), mesh.surface
    look = empty_appearance()
    if "normal" in fields:
        look = look._replace(normal=np.pad(normals_of(mesh), ((0, 0), (0, 1))).astype(np.float32))
    if "object_id" in fields:
        known = None if surface is None else surface.object_id
        look = look._replace(object_id=np.zeros(count, np.int32) if known is None else known)
    if "category" in fields:
        look = look._replace(category=_common_category(mesh, categories))
    if "paint" in fields:
        paint, patches = _painted(mesh, palette, first_patch, "finish" in fields)
        look = look._replace(paint=paint, patches=patches)
    return look


def _common_category(mesh: TriangleMesh, categories: dict[str, int]) -> np.ndarray:
    """i32 [F]: a mesh's categories as rows of a bank's. Row 0 is row 0, whatever it is called."""
    surface = mesh.surface
    if surface is None or surface.category is None:
        return np.zeros(len(mesh.faces), np.int32)
    rows = [0, *(categories.setdefault(name, len(categories)) for name in surface.categories[1:])]
    return np.array(rows, np.int32)[surface.category]


def empty_appearance() -> Appearance[np.ndarray]:
    """No rows."""
    types = {torch.float32: np.float32, torch.int32: np.int32}
    return Appearance(*(np.empty((0,) if width is None else (0, width), types[t]) for width, t in COLUMNS))


def appearance_rows(mesh: TriangleMesh) -> Appearance[int]:
    """How many rows of each array a mesh takes at most."""
    count, surface = len(mesh.faces), mesh.surface
    if surface is None:
        return Appearance(count, count, count, count, 0, 1, 0, 0, 1)
    textured, tinted = _kinds(surface)
    rows = np.unique(surface.material)
    used = {surface.materials[m] for m in rows}
    stored = {}  # of a texture with and without mip levels
    for texture in (surface.textures[m.texture] for m in used if m.texture >= 0):
        mipmapped, (height, width) = "_mipmap_" in texture.minify, texture.pixels.shape[:2]
        stored[id(texture.pixels), mipmapped] = width, height, num_levels(width, height) if mipmapped else 1
    levels, texels = sum(size[2] for size in stored.values()), sum(num_texels(*size) for size in stored.values())
    return Appearance(
        count, count, count, count, int(textured.sum() + tinted.sum()), max(len(used), 1), levels, texels,
        max(len(rows), 1),
    )  # fmt: skip


def normals_of(mesh: TriangleMesh) -> np.ndarray:
    """f64 [F, 3]: the unit vectors that point out of the triangles' fronts."""
    a, b, c = (mesh.vertices[mesh.faces[:, i]].astype(np.float64) for i in range(3))
    normal = np.cross(b - a, c - a)
    return normal / np.linalg.norm(normal, axis=1, keepdims=True)


def _kinds(surface: Surface) -> tuple[np.ndarray, np.ndarray]:
    """bool [F] each: which triangles have a texture, and which have corners that are not white."""
    has_texture = np.array([material.texture >= 0 for material in surface.materials], np.bool_)
    tinted = np.zeros(len(surface.material), np.bool_)
    if surface.color is not None:
        tinted = (surface.color[..., :3] != 255).any(axis=(1, 2))
    return has_texture[surface.material], tinted


def _painted(
    mesh: TriangleMesh, palette: Palette, first_patch: int, with_finish: bool
) -> tuple[np.ndarray, np.ndarray]:
    """Paint i32 [F] and patches f32 [R, 16] of a mesh."""
    surface = mesh.surface
    if surface is None:
        return np.full(len(mesh.faces), ~palette.add(PLAIN, ()), np.int32), np.empty((0, PATCH_WIDTH), np.float32)
    used, places = np.unique(surface.material, return_inverse=True)
    finish = [STAYS] * len(surface.materials)
    if with_finish and surface.finish is not None:
        finish = finish_rows(surface.finish)
    rows = np.array([palette.add(surface.materials[m], surface.textures, finish[m]) for m in used], np.int32)
    material = rows[places]
    textured, tinted = _kinds(surface)
    paint, num_textured = ~material, int(textured.sum())
    links = np.full(len(mesh.faces), -1, np.int32)
    tint_rows = np.arange(tinted.sum(), dtype=np.int32) + np.int32(first_patch + num_textured)
    paint[tinted] = links[tinted] = tint_rows
    paint[textured] = np.arange(num_textured, dtype=np.int32) + np.int32(first_patch)
    patches = np.zeros((num_textured + len(tint_rows), PATCH_WIDTH), np.float32)
    bits = patches.view(np.int32)
    if num_textured:
        uv = _near_zero(surface, textured)
        patches[:num_textured] = _linear(mesh, textured, uv, normals_of(mesh._replace(faces=mesh.faces[textured])))
        bits[:num_textured, LINK] = links[textured]
        bits[:num_textured, MATERIAL] = material[textured]
    if len(tint_rows):
        color = np.asarray(surface.color)[tinted, :, :3] / 255.0
        patches[num_textured:] = _linear(mesh, tinted, color)
        bits[num_textured:, MATERIAL] = material[tinted]
    return paint, patches


def _near_zero(surface: Surface, textured: np.ndarray) -> np.ndarray:
    """UVs f64 [n, 3, 2] of triangles, moved by two's multiples where they wrap, so that float32 tells them apart."""
    uv = np.asarray(surface.uv)[textured].astype(np.float64)
    wraps = [surface.textures[m.texture].wrap if m.texture >= 0 else ("clamp", "clamp") for m in surface.materials]
    moves = np.array(wraps).reshape(-1, 2)[surface.material[textured]] != "clamp"
    return uv - np.where(moves, 2.0 * np.floor(uv[:, 0] / 2.0), 0.0)[:, None]


@np.errstate(all="ignore")  # gradients on the smallest triangles are beyond float32; kernels bear with them
def _linear(mesh: TriangleMesh, which: np.ndarray, values: np.ndarray, last: np.ndarray | None = None) -> np.ndarray:
    """Patches f32 [n, 16] of values f64 [n, 3, k] at triangles' corners, that are linear between; k = 2 with `last`."""
    a, b, c = (mesh.vertices[mesh.faces[which, i]].astype(np.float64) for i in range(3))
    e, f = b - a, c - a
    normal = np.cross(e, f)
    normal /= (normal * normal).sum(1, keepdims=True)
    # gradients of the barycentric coordinates of b and c
    along_u, along_v = np.cross(f, normal), np.cross(normal, e)
    patches = np.zeros((len(values), 4, 4), np.float32)
    patches[:, 0, :3] = a
    patches[:, : values.shape[2], 3] = values[:, 0]
    to_b, to_c = values[:, 1] - values[:, 0], values[:, 2] - values[:, 0]
    gradient = to_b[..., None] * along_u[:, None] + to_c[..., None] * along_v[:, None]  # [n, k, 3]
    patches[:, 1 : 1 + values.shape[2], :3] = gradient
    if last is not None:
        patches[:, 3, :3] = last
    return patches.reshape(-1, PATCH_WIDTH)


def warn_of_white(names: Sequence[str], meshes: Sequence[TriangleMesh]) -> None:
    """Say which scenes have no colours: they are drawn white."""
    white = [name for name, mesh in zip(names, meshes, strict=True) if mesh.surface is None]
    if white:
        more = f" and {len(white) - 3} more" if len(white) > 3 else ""
        _log.warning("scenes without colours are drawn white: %s%s", ", ".join(white[:3]), more)
