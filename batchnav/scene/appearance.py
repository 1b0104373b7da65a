"""Appearance of a scene's triangles: the arrays that sensors read in addition to visibility."""

from __future__ import annotations

import logging
from collections.abc import Collection, Mapping, Sequence
from typing import Generic, NamedTuple

import numpy as np
import torch
from numba import prange

from batchnav.errors import ArgumentError, few
from batchnav.runtime.kernels.decorators import cpu_kernel
from batchnav.runtime.parallel import concatenated
from batchnav.scene.id_tiles import FIRST, HEIGHT, PATCH_WIDTH, WIDTH
from batchnav.scene.material_sampling import FINISH_WIDTH, FIXED, finish_rows
from batchnav.scene.small_nodes import is_large
from batchnav.scene.small_patches import SMALL, small_patches
from batchnav.scene.small_patches import WIDTH as SMALL_WIDTH
from batchnav.scene.surface import PLAIN
from batchnav.scene.textures import LEVEL_WIDTH, MATERIAL_WIDTH, ROW, Palette, num_block_rows, num_levels, num_texels
from batchnav.types import Blocks, Column, Surface, TriangleMesh

LINK, MATERIAL = 11, 15
"""Columns of a patch's f32 row that hold int bits."""
_log = logging.getLogger(__name__)


class Appearance(NamedTuple, Generic[Column]):
    """Appearance of F triangles, in the order of `Visibility.triangle`. Fields that no sensor reads have no rows.

    Colour is stored sparsely. A textured triangle has a patch, which gives the texture coordinates of a point P: corner
    A, UV at A, and the gradients of U and V in the triangle's plane,

        A (x y z), U | gradient of U (x y z), V | gradient of V (x y z), tint | unit normal (x y z), material

    A triangle with vertex colours has a tint: a patch that gives the colour at P, 0 to 1 per channel,

        A (x y z), red | gradient of red, green | gradient of green, blue | gradient of blue, material

    `tint` is a row of `patches` (-1: no tint) and `material` a row of `materials`, both stored as int32 bits. In scenes
    of `small_nodes.FROM_TRIANGLES` or more most textured triangles have a row of `small_patches` in place of a patch.
    """

    normal: Column
    """f32 [F, 4]: unit normal (x, y, z) of the front face, and 0."""
    object_id: Column
    """i32 [F]: instance number in the dataset; 0: unknown; below 0: the complement (~) of a row of `id_patches`."""
    category: Column
    """i32 [F]: rows of the bank's `categories`; 0: unknown; below 0: the complement (~) of a row of `id_patches`."""
    goal: Column
    """i32 [F]: 1 + number of the goal category (`SceneBank.goal_categories`) whose objects the triangle belongs to; 0:
    none; below 0: the complement (~) of a row of `id_patches`."""
    paint: Column
    """i32 [F]: row of `patches`, or for a uniform colour the bitwise complement (~) of a row of `materials`; with the
    bit `small_patches.SMALL` a row of `small_patches`."""
    patches: Column
    """f32 [R, 16]: texture patches and tints, see above."""
    materials: Column
    """f32 [M, 8]: see scene/textures.py."""
    levels: Column
    """i32 [L, 4]: first texel, or row of blocks, width, height of each mip level, 0."""
    texels: Column
    """i32 [T]: bytes red, green, blue, alpha; the rows of a level from the top."""
    blocks: Column
    """i64 [R, 8]: blocks of 4x4 texels of the textures in blocks, see scene/blocks.py; a level begins a row."""
    finish: Column
    """i32 [M, 4]: finish of each material, for material randomisation; see scene/material_sampling.py."""
    id_patches: Column
    """f32 [P, 16]: as a texture patch, with the place on a tile of ids, texels: A, U | gradient of U, V | gradient of
    V, first row of the tile in `id_texels` | width, height (int bits), 0, 0."""
    id_texels: Column
    """i32 [Q, 3]: object id, category and goal of each texel of the tiles."""
    small_patches: Column
    """i32 [S, 7]: texture patches of large scenes, see scene/small_patches.py."""


PALETTE_FIELDS = ("materials", "levels", "texels", "blocks")
"""Fields that a `Palette` collects."""
COLOR_FIELDS = ("paint", "patches", *PALETTE_FIELDS, "small_patches")
"""Fields that sensors of colour read."""
ID_FIELDS = ("object_id", "category", "goal")
"""Fields that sensors of ids read."""
TILE_FIELDS = ("id_patches", "id_texels")
"""Fields that a bank with one of `ID_FIELDS` holds too."""
FROM_FILES = frozenset(Appearance._fields) - {"normal"}
"""Fields that need data beyond the geometry."""
COLUMNS = Appearance(
    (4, torch.float32), (None, torch.int32), (None, torch.int32), (None, torch.int32), (None, torch.int32),
    (PATCH_WIDTH, torch.float32), (MATERIAL_WIDTH, torch.float32), (LEVEL_WIDTH, torch.int32), (None, torch.int32),
    (ROW, torch.int64),
    (FINISH_WIDTH, torch.int32), (PATCH_WIDTH, torch.float32), (len(ID_FIELDS), torch.int32),
    (SMALL_WIDTH, torch.int32),
)  # fmt: skip
"""Number of columns (None: one-dimensional) and dtype of each array."""
NO_ROWS: Appearance[int] = Appearance(*[0] * len(COLUMNS))


def appearance_fields(wanted: bool | Collection[str]) -> frozenset[str]:
    """Names of the fields of `Appearance` that a bank holds; True: all but those of randomised materials and of goals.

    ArgumentError for an unknown name.
    """
    if isinstance(wanted, bool):
        return frozenset(Appearance._fields if wanted else ()) - {"finish", "goal"}
    if isinstance(wanted, str) or not set(wanted) <= set(Appearance._fields):
        raise ArgumentError(f"appearance: found {wanted!r}, expected True, False, or some of {Appearance._fields}")
    return frozenset(wanted)


def stored_fields(fields: Collection[str]) -> frozenset[str]:
    """Fields that have rows in a bank with these fields: ids come with their tiles."""
    return frozenset(fields) | (set() if set(ID_FIELDS).isdisjoint(fields) else set(TILE_FIELDS))


def split_fields(fields: frozenset[str]) -> tuple[frozenset[str], frozenset[str]]:
    """Fields of the mesh with colours, and fields of the mesh with ids, where ids have a mesh of their own."""
    of_ids = fields & {*ID_FIELDS, *TILE_FIELDS}
    return fields - of_ids, of_ids | (fields & {"normal"}) if of_ids.intersection(ID_FIELDS) else frozenset()


def with_finish(fields: frozenset[str]) -> frozenset[str]:
    """Fields of a bank with material randomisation. ArgumentError where the bank has no colours."""
    if "paint" not in fields:
        raise ArgumentError("material_library: found one for a bank without colours, expected a sensor such as 'rgb'")
    return fields | {"finish"}


def pack_appearance(
    meshes: Sequence[TriangleMesh],
    fields: Collection[str],
    categories: dict[str, int],
    palette: Palette | None = None,
    goals: Sequence[Mapping[int, int]] = (),
) -> Appearance[np.ndarray]:
    """Concatenated appearance of several meshes as NumPy arrays; only `fields` have rows.

    Args:
        meshes: meshes, in the order of the bank's scenes.
        fields: fields that have rows.
        categories: as in `appearance_of`.
        palette: materials that precede those of the meshes; None: no such materials.
        goals: `goals` of each mesh, as in `appearance_of`; empty: none.
    """
    palette, parts, first = palette or Palette(), [], NO_ROWS
    for mesh, of_mesh in zip(meshes, goals or [{}] * len(meshes), strict=True):
        parts.append(appearance_of(mesh, fields, categories, palette, first, of_mesh))
        first = Appearance(*(n + len(array) for n, array in zip(first, parts[-1], strict=True)))
    packed = Appearance(*map(concatenated, zip(*parts, strict=True)))
    return with_palette(packed, palette, fields)


def with_palette(look: Appearance[np.ndarray], palette: Palette, fields: Collection[str]) -> Appearance[np.ndarray]:
    """The appearance with the arrays of a palette."""
    columns = dict(zip(PALETTE_FIELDS, palette.arrays(), strict=True))
    return look._replace(**columns, **({"finish": palette.finish} if "finish" in fields else {}))


def appearance_of(
    mesh: TriangleMesh,
    fields: Collection[str],
    categories: dict[str, int],
    palette: Palette,
    first: Appearance[int],
    goals: Mapping[int, int],
) -> Appearance[np.ndarray]:
    """Appearance of one mesh in the order of its faces, without the palette's arrays (see `with_palette`).

    Args:
        mesh: mesh with or without a surface.
        fields: fields that have rows.
        categories: category numbers of the bank by name; new names are added.
        palette: collects materials and textures.
        first: first row of the mesh's patches of each kind and id texels in the bank; other fields are not read.
        goals: `Appearance.goal` by object id; other objects have 0.
    """
    count, surface = len(mesh.faces), mesh.surface
    look, normals = empty_appearance(), None
    if "normal" in fields:
        normals = normals_of(mesh)
        look = look._replace(normal=np.pad(normals, ((0, 0), (0, 1))).astype(np.float32))
    if "object_id" in fields:
        known = None if surface is None else surface.object_id
        look = look._replace(object_id=np.zeros(count, np.int32) if known is None else np.maximum(known, 0))
    if "category" in fields:
        known = None
        if surface is not None and surface.category is not None:
            known = _common_rows(surface, categories)[surface.category]
        look = look._replace(category=np.zeros(count, np.int32) if known is None else known)
    if "goal" in fields:
        known = None if surface is None else surface.object_id
        look = look._replace(goal=np.zeros(count, np.int32) if known is None else _goals_of(known, goals))
    if not set(ID_FIELDS).isdisjoint(fields) and surface is not None and surface.tile is not None:
        look = _with_tiles(look, mesh, _common_rows(surface, categories), first, goals)
    if "paint" in fields:
        paint, patches, small = _painted(mesh, palette, first, "finish" in fields, normals)
        look = look._replace(paint=paint, patches=patches, small_patches=small)
    return look


def _common_rows(surface: Surface, categories: dict[str, int]) -> np.ndarray:
    """i32 [C]: the bank's number of each of the mesh's categories. The mesh's number 0 stays 0, whatever its name."""
    return np.array([0, *(categories.setdefault(n, len(categories)) for n in surface.categories[1:])], np.int32)


def _goals_of(object_id: np.ndarray, goals: Mapping[int, int]) -> np.ndarray:
    """`Appearance.goal` i32 of object ids."""
    ids = np.array(sorted(goals), np.int64)
    if not len(ids):
        return np.zeros(len(object_id), np.int32)
    place = np.searchsorted(ids, object_id).clip(max=len(ids) - 1)
    numbers = np.array([goals[number] for number in ids.tolist()], np.int32)
    return np.where(ids[place] == object_id, numbers[place], np.int32(0))


def _with_tiles(
    look: Appearance[np.ndarray], mesh: TriangleMesh, rows: np.ndarray, first: Appearance[int], goals: Mapping[int, int]
) -> Appearance[np.ndarray]:
    """The appearance with tiles of ids. `rows`: the bank's number of each of the mesh's categories."""
    surface = mesh.surface
    assert surface is not None and surface.tiles is not None and surface.tile_ids is not None
    tiled = np.asarray(surface.tile) >= 0
    patches = _linear(mesh, tiled, np.asarray(surface.tile_uv)[tiled].astype(np.float64), np.zeros((tiled.sum(), 3)))
    tiles, bits = surface.tiles[np.asarray(surface.tile)[tiled]], patches.view(np.int32)
    bits[:, FIRST], bits[:, WIDTH : HEIGHT + 1] = tiles[:, 0] + np.int32(first.id_texels), tiles[:, 1:]
    objects = surface.tile_ids[:, 0]
    ids = np.stack([objects, rows[surface.tile_ids[:, 1]], _goals_of(objects, goals)], axis=1)
    numbers = ~(np.arange(len(patches), dtype=np.int32) + np.int32(first.id_patches))
    columns = {field: getattr(look, field).copy() for field in ID_FIELDS}
    for column in columns.values():
        if len(column):
            column[tiled] = numbers
    return look._replace(**columns, id_patches=patches, id_texels=ids)


def empty_appearance() -> Appearance[np.ndarray]:
    """Appearance without rows."""
    types = {torch.float32: np.float32, torch.int32: np.int32, torch.int64: np.int64}
    return Appearance(*(np.empty((0,) if width is None else (0, width), types[t]) for width, t in COLUMNS))


def appearance_rows(mesh: TriangleMesh) -> Appearance[int]:
    """Largest number of rows of each array that a mesh needs."""
    count, surface = len(mesh.faces), mesh.surface
    if surface is None:
        return Appearance(count, count, count, count, count, 0, 1, 0, 0, 0, 1, 0, 0, 0)
    num_tiled = 0 if surface.tile is None else int((surface.tile >= 0).sum())
    num_ids = 0 if surface.tile_ids is None else len(surface.tile_ids)
    textured, tinted = _kinds(surface)
    num_small = int(_small_patches(mesh, textured, tinted)[0].sum())
    rows = np.unique(surface.material)
    used = {surface.materials[m] for m in rows}
    stored = dict[tuple[int, bool], tuple[int, int, int]]()  # by texture, with or without mip levels
    blocks = dict[tuple[int, bool], tuple[int, int, int]]()
    for texture in (surface.textures[m.texture] for m in used if m.texture >= 0):
        mipmapped, (height, width) = "_mipmap_" in texture.minify, texture.pixels.shape[:2]
        of_kind = blocks if isinstance(texture.pixels, Blocks) else stored
        of_kind[id(texture.pixels), mipmapped] = width, height, num_levels(width, height) if mipmapped else 1
    levels, texels = (
        sum(size[2] for size in (stored | blocks).values()),
        sum(num_texels(*size) for size in stored.values()),
    )
    return Appearance(
        count, count, count, count, count, int(textured.sum() + tinted.sum()) - num_small, max(len(used), 1), levels,
        texels, sum(num_block_rows(*size) for size in blocks.values()), max(len(rows), 1), num_tiled, num_ids,
        num_small,
    )  # fmt: skip


def normals_of(mesh: TriangleMesh) -> np.ndarray:
    """f64 [F, 3]: unit normals of the front faces."""
    a, b, c = (mesh.vertices[mesh.faces[:, i]].astype(np.float64) for i in range(3))
    normal = np.cross(b - a, c - a)
    return normal / np.linalg.norm(normal, axis=1, keepdims=True)


def _kinds(surface: Surface) -> tuple[np.ndarray, np.ndarray]:
    """Two masks, bool [F]: True where a triangle has a texture; True where a vertex colour is not white."""
    has_texture = np.array([material.texture >= 0 for material in surface.materials], np.bool_)
    tinted = np.zeros(len(surface.material), np.bool_)
    if surface.color is not None:
        tinted = (surface.color[..., :3] != 255).any(axis=(1, 2))
    return has_texture[surface.material], tinted


def _small_patches(
    mesh: TriangleMesh, textured: np.ndarray, tinted: np.ndarray, rows: np.ndarray | None = None
) -> tuple[np.ndarray, np.ndarray]:
    """Which triangles of a mesh have a small patch, bool [F], and their patches; `rows` as in `small_patches`."""
    chosen, words = np.zeros(len(textured), np.bool_), np.empty((0, SMALL_WIDTH), np.int32)
    which = np.flatnonzero(textured & ~tinted & is_large(len(textured)))
    if len(which):
        fits, words = small_patches(mesh, which, rows)
        chosen[which[fits]], words = True, words[fits]
    return chosen, words


def _painted(
    mesh: TriangleMesh, palette: Palette, first: Appearance[int], with_finish: bool, normals: np.ndarray | None
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """`Appearance.paint` i32 [F], `Appearance.patches` f32 [R, 16] and `Appearance.small_patches` of a mesh.

    `normals`: f64 [F, 3], `normals_of` the mesh; None: not computed yet.
    """
    surface, first_patch, none_small = mesh.surface, first.patches, np.empty((0, SMALL_WIDTH), np.int32)
    if surface is None:
        paint = np.full(len(mesh.faces), ~palette.add(PLAIN, ()), np.int32)
        return paint, np.empty((0, PATCH_WIDTH), np.float32), none_small
    used = np.flatnonzero(np.bincount(surface.material, minlength=len(surface.materials)))
    finish = [FIXED] * len(surface.materials)
    if with_finish and surface.finish is not None:
        finish = finish_rows(surface.finish)
    rows = np.array([palette.add(surface.materials[m], surface.textures, finish[m]) for m in used], np.int32)
    textured, tinted = _kinds(surface)
    of_surface = np.zeros(len(surface.materials), np.int32)
    of_surface[used] = rows
    material = of_surface[surface.material]
    is_small, small = _small_patches(mesh, textured, tinted, of_surface)
    textured = textured & ~is_small
    paint, num_textured = ~material, int(textured.sum())
    paint[is_small] = SMALL | (np.arange(len(small), dtype=np.int32) + np.int32(first.small_patches))
    links = np.full(len(mesh.faces), -1, np.int32)
    tint_rows = np.arange(tinted.sum(), dtype=np.int32) + np.int32(first_patch + num_textured)
    paint[tinted] = links[tinted] = tint_rows
    paint[textured] = np.arange(num_textured, dtype=np.int32) + np.int32(first_patch)
    patches = np.zeros((num_textured + len(tint_rows), PATCH_WIDTH), np.float32)
    bits = patches.view(np.int32)
    if num_textured:
        uv = _near_zero(surface, textured)
        faced = normals_of(mesh._replace(faces=mesh.faces[textured])) if normals is None else normals[textured]
        patches[:num_textured] = _linear(mesh, textured, uv, faced)
        bits[:num_textured, LINK] = links[textured]
        bits[:num_textured, MATERIAL] = material[textured]
    if len(tint_rows):
        color = np.asarray(surface.color)[tinted, :, :3] / 255.0
        patches[num_textured:] = _linear(mesh, tinted, color)
        bits[num_textured:, MATERIAL] = material[tinted]
    return paint, patches, small


def _near_zero(surface: Surface, textured: np.ndarray) -> np.ndarray:
    """UVs f64 [n, 3, 2] of triangles; wrapped UVs are shifted towards 0 by multiples of 2 to keep float32 precision."""
    uv = np.asarray(surface.uv)[textured].astype(np.float64)
    wraps = [surface.textures[m.texture].wrap if m.texture >= 0 else ("clamp", "clamp") for m in surface.materials]
    moves = np.array(wraps).reshape(-1, 2)[surface.material[textured]] != "clamp"
    return uv - np.where(moves, 2.0 * np.floor(uv[:, 0] / 2.0), 0.0)[:, None]


def _linear(mesh: TriangleMesh, which: np.ndarray, values: np.ndarray, last: np.ndarray | None = None) -> np.ndarray:
    """Patches f32 [n, 16] that interpolate corner values f64 [n, 3, k] linearly; k = 2 if `last` is given, else 3."""
    faces = np.flatnonzero(which) if which.dtype == np.bool_ else which
    patches = np.zeros((len(values), PATCH_WIDTH), np.float32)
    vertices = np.ascontiguousarray(mesh.vertices, np.float32)
    _interpolate(vertices, mesh.faces, faces, np.ascontiguousarray(values, np.float64), patches)
    if last is not None:
        patches[:, 12:15] = last
    return patches


@cpu_kernel
def _interpolate(vertices, faces, which, values, patches_out):
    """Write corner A, values at A and gradients of patches f32 [n, 16]. Gradients on tiny triangles may overflow.

    Args:
        vertices: f32 [V, 3].
        faces: i32 [F, 3].
        which: i64 [n]: faces of the patches.
        values: f64 [n, 3, k]: values at the corners.
        patches_out: f32 [n, 16].
    """
    for i in prange(len(which)):
        a, b, c = faces[which[i], 0], faces[which[i], 1], faces[which[i], 2]
        ax, ay, az = np.float64(vertices[a, 0]), np.float64(vertices[a, 1]), np.float64(vertices[a, 2])
        ex, ey, ez = vertices[b, 0] - ax, vertices[b, 1] - ay, vertices[b, 2] - az
        fx, fy, fz = vertices[c, 0] - ax, vertices[c, 1] - ay, vertices[c, 2] - az
        nx, ny, nz = ey * fz - ez * fy, ez * fx - ex * fz, ex * fy - ey * fx
        square = nx * nx + ny * ny + nz * nz
        nx, ny, nz = nx / square, ny / square, nz / square
        # gradients of the barycentric coordinates of b and c
        ux, uy, uz = fy * nz - fz * ny, fz * nx - fx * nz, fx * ny - fy * nx
        vx, vy, vz = ny * ez - nz * ey, nz * ex - nx * ez, nx * ey - ny * ex
        patches_out[i, 0], patches_out[i, 1], patches_out[i, 2] = ax, ay, az
        for k in range(values.shape[2]):
            start = values[i, 0, k]
            to_b, to_c = values[i, 1, k] - start, values[i, 2, k] - start
            patches_out[i, 4 * k + 3] = start
            patches_out[i, 4 * k + 4] = to_b * ux + to_c * vx
            patches_out[i, 4 * k + 5] = to_b * uy + to_c * vy
            patches_out[i, 4 * k + 6] = to_b * uz + to_c * vz


def warn_of_white(names: Sequence[str], meshes: Sequence[TriangleMesh]) -> None:
    """Log a warning that names the scenes without colours."""
    white = [name for name, mesh in zip(names, meshes, strict=True) if mesh.surface is None]
    if white:
        _log.warning("scenes without colours are rendered white: %s", few(white))
