"""Surfaces on the host: checking, selecting and merging. `appearance.py` packs them for kernels."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from batchnav.errors import MeshError
from batchnav.scene import id_tiles
from batchnav.scene.textures import ROW, num_block_rows, num_levels
from batchnav.types import Blocks, Material, Surface, Texture, TriangleMesh

WRAPS = ("repeat", "mirror", "clamp")
MAGNIFY = ("nearest", "linear")
MINIFY = (*MAGNIFY, *(f"{texels}_mipmap_{levels}" for texels in MAGNIFY for levels in MAGNIFY))
PLAIN = Material()
"""Material of triangles without known appearance: white."""
FAR_UV = 1e5
"""Largest valid UV; beyond it float32 has fewer than a hundred steps per texture repetition."""


def check_surface(surface: Surface, num_faces: int, name: str) -> Surface:
    """A valid surface in the dtypes of kernels; UVs that are not finite, or beyond `FAR_UV`, become (0, 0).

    MeshError, with `name`, for an invalid field.
    """
    checked: dict[str, Any] = {}
    for field, dtype, shape in (
        ("material", np.int32, ()), ("uv", np.float32, (3, 2)), ("color", np.uint8, (3, 4)),
        ("object_id", np.int32, ()), ("category", np.int32, ()), ("tile", np.int32, ()),
        ("tile_uv", np.float32, (3, 2)),
    ):  # fmt: skip
        array, expected = getattr(surface, field), [num_faces, *shape]
        if array is None and field != "material":
            continue
        array = np.asarray(array)
        kinds = {np.float32: "fiu", np.int32: "iu", np.uint8: "u"}[dtype]
        bytes_only = dtype is np.uint8 and array.dtype != np.uint8
        if list(array.shape) != expected or array.dtype.kind not in kinds or bytes_only:
            found = f"{array.dtype} {list(array.shape)}"
            raise MeshError(f"{name}: surface.{field}: found {found}, expected {np.dtype(dtype)} {expected}")
        with np.errstate(over="ignore"):
            checked[field] = np.ascontiguousarray(array, dtype)
    for field, rows in (("material", len(surface.materials)), ("category", len(surface.categories))):
        array = checked.get(field)
        if array is not None and len(array) and not 0 <= array.min() <= array.max() < rows:
            worst = int(array.min() if array.min() < 0 else array.max())
            raise MeshError(f"{name}: surface.{field}: found row {worst}, expected 0 to {rows - 1}")
    if not all(isinstance(name, str) for name in surface.categories):
        raise MeshError(f"{name}: surface.categories: found {surface.categories[:3]}, expected names")
    for i, material in enumerate(surface.materials):
        _check_material(material, len(surface.textures), f"{name}: surface.materials[{i}]")
    for i, texture in enumerate(surface.textures):
        check_texture(texture, f"{name}: surface.textures[{i}]")
    if "uv" in checked:
        with np.errstate(invalid="ignore"):
            good = np.abs(checked["uv"]) <= FAR_UV
        if not good.all():
            checked["uv"] = np.where(good, checked["uv"], np.float32(0.0))
    elif any(material.texture >= 0 for material in surface.materials):
        raise MeshError(f"{name}: surface.uv: found None, expected f32 [{num_faces}, 3, 2] for materials with textures")
    if any(getattr(surface, field) is not None for field in id_tiles.FIELDS):
        checked |= id_tiles.check_tiles(surface._replace(**checked), name)
    if surface.finish is not None:
        checked["finish"] = _checked_finish(surface.finish, len(surface.materials), name)
    return surface._replace(**checked)


def _checked_finish(finish: np.ndarray, num_materials: int, name: str) -> np.ndarray:
    """`Surface.finish` as i32 [M, 4]; its values are not restricted."""
    finish = np.asarray(finish)
    if finish.shape != (num_materials, 4) or finish.dtype != np.int32:
        found = f"{finish.dtype} {list(finish.shape)}"
        raise MeshError(f"{name}: surface.finish: found {found}, expected int32 [{num_materials}, 4]")
    return np.ascontiguousarray(finish)


def _check_material(material: Material, num_textures: int, where: str) -> None:
    color, texture = tuple(material.color), material.texture
    if len(color) != 4 or not all(isinstance(c, (int, float)) and 0.0 <= c <= 1.0 for c in color):
        raise MeshError(f"{where}.color: found {color}, expected four numbers from 0 to 1")
    if not isinstance(texture, (int, np.integer)) or not -1 <= texture < num_textures:
        raise MeshError(f"{where}.texture: found {material.texture}, expected -1 to {num_textures - 1}")


def check_texture(texture: Texture, where: str) -> None:
    """Raise MeshError, which begins with `where`, for invalid pixels or an invalid sampler."""
    if isinstance(texture.pixels, Blocks):
        _check_blocks(texture.pixels, where)
        pixels = np.empty((1, 1, 4), np.uint8)
    else:
        pixels = np.asarray(texture.pixels)
    if pixels.ndim != 3 or pixels.shape[2] != 4 or pixels.dtype != np.uint8 or not pixels.size:
        raise MeshError(f"{where}.pixels: found {pixels.dtype} {list(pixels.shape)}, expected uint8 [h, w, 4]")
    found, known = (*texture.wrap, texture.magnify, texture.minify), (WRAPS, WRAPS, MAGNIFY, MINIFY)
    if len(found) != len(known):
        raise MeshError(f"{where}.wrap: found {texture.wrap}, expected one mode for U and one for V")
    for value, offered in zip(found, known, strict=True):
        if value not in offered:
            raise MeshError(f"{where}: found {value!r}, expected one of {', '.join(offered)}")


def _check_blocks(blocks: Blocks, where: str) -> None:
    """Raise MeshError where the blocks are not those of an image of this size."""
    width, height, words = blocks
    rows = num_block_rows(width, height, num_levels(width, height)) if min(width, height) > 0 else 0
    if not rows or words.shape != (rows, ROW) or words.dtype != np.int64:
        raise MeshError(
            f"{where}.pixels: found blocks {words.dtype} {list(words.shape)} for {width} x {height} texels, "
            f"expected int64 [{rows}, {ROW}]"
        )


class Corners(NamedTuple):
    """Appearance of some triangles of a file, by corner."""

    material: np.ndarray
    """i32 [F]."""
    uv: np.ndarray | None
    """f32 [F, 3, 2]."""
    color: np.ndarray | None
    """u8 [F, 3, 4]."""

    @classmethod
    def merged(cls, parts: Sequence[Corners]) -> Corners:
        """Concatenation; parts without UVs get (0, 0), parts without colours white, if other parts have them."""
        count = sum(len(part.material) for part in parts)
        uv = np.zeros((count, 3, 2), np.float32) if any(part.uv is not None for part in parts) else None
        color = np.full((count, 3, 4), 255, np.uint8) if any(part.color is not None for part in parts) else None
        first = 0
        for part in parts:
            rows = slice(first, first + len(part.material))
            if uv is not None and part.uv is not None:
                uv[rows] = part.uv
            if color is not None and part.color is not None:
                color[rows] = part.color
            first = rows.stop
        return cls(np.concatenate([np.empty(0, np.int32), *(part.material for part in parts)]), uv, color)

    def turned(self) -> Corners:
        """Copy with reversed order of corners."""
        uv, color = (None if column is None else column[:, ::-1] for column in (self.uv, self.color))
        return self._replace(uv=uv, color=color)


def corners_of(faces: np.ndarray, material: int, uv: np.ndarray | None, color: np.ndarray | None) -> Corners:
    """Corners of triangles i [F, 3] with one material, from vertex UVs f [V, 2] and colours f [V, 3 or 4], 0 to 1."""
    if uv is not None:
        uv = uv.astype(np.float32)[faces]
    if color is not None:
        bytes_ = (np.clip(np.nan_to_num(color), 0.0, 1.0) * 255.0 + 0.5).astype(np.uint8)
        if bytes_.shape[1] == 3:
            bytes_ = np.pad(bytes_, ((0, 0), (0, 1)), constant_values=255)
        color = bytes_[faces]
    return Corners(np.full(len(faces), material, np.int32), uv, color)


def fractions(color: np.ndarray, note: Callable[[str], None]) -> np.ndarray:
    """Float colours scaled to 0 to 1: whole numbers up to 255 are divided by 255. Other values above 1 are noted."""
    finite = color[np.isfinite(color)]
    most = finite.max(initial=0.0)
    if 1.0 < most <= 255.0 and (finite == np.round(finite)).all():
        return color / 255.0
    if most > 1.0 + 0.5 / 255.0:
        note(f"colours above 1 (found up to {most:g}, expected 0 to 1, or integers to 255)")
    return color


def surface_of(parts: Sequence[Corners], materials: Sequence[Material], textures: Sequence[Texture]) -> Surface | None:
    """Surface of a file's triangles; None if the file has no appearance. Textures without UVs are sampled at (0, 0)."""
    material, uv, color = Corners.merged(parts)
    if color is None and set(materials) <= {PLAIN}:
        return None
    if not any(m.texture >= 0 for m in materials):
        uv = None
    elif uv is None:
        uv = np.zeros((len(material), 3, 2), np.float32)
    return Surface(material, tuple(materials), tuple(textures), uv, color)


def faces_of(surface: Surface, faces: np.ndarray) -> Surface:
    """Surface of selected triangles: indices i64 [n], or mask bool [F]."""
    by_face = ("material", "uv", "color", "object_id", "category", "tile", "tile_uv")
    rows = {field: getattr(surface, field) for field in by_face}
    return surface._replace(**{field: array[faces] for field, array in rows.items() if array is not None})


def turned(surface: Surface) -> Surface:
    """Surface with reversed order of corners."""
    corners = {field: getattr(surface, field) for field in ("uv", "color", "tile_uv")}
    return surface._replace(**{field: array[:, ::-1] for field, array in corners.items() if array is not None})


def merge_surfaces(meshes: Sequence[TriangleMesh]) -> Surface | None:
    """Surface of the concatenated triangles of several meshes; None if no mesh has a surface.

    Merges equal materials, textures with the same array in memory, and categories with the same name.
    """
    if all(mesh.surface is None for mesh in meshes):
        return None
    materials: dict[Material, int] = {}
    textures: dict[tuple, int] = {}
    pixels: dict[int, Texture] = {}
    categories: dict[str, int] = {}
    parts: list[dict[str, Any]] = []
    numbers: list[np.ndarray] = []
    for mesh in meshes:
        count = len(mesh.faces)
        surface = mesh.surface or Surface(np.zeros(count, np.int32), (PLAIN,))
        rows = []
        for texture in surface.textures:
            key = (id(texture.pixels), *texture[1:])
            rows.append(textures.setdefault(key, len(textures)))
            pixels[rows[-1]] = texture
        made = [m if m.texture < 0 else m._replace(texture=rows[m.texture]) for m in surface.materials]
        material = np.array([materials.setdefault(m, len(materials)) for m in made], np.int32)
        names = [categories.setdefault(name, len(categories)) for name in surface.categories or ("",)]
        category = surface.category
        numbers.append(np.array(names, np.int32))
        parts.append({
            "material": material[surface.material],
            "uv": surface.uv, "color": surface.color, "object_id": surface.object_id,
            "category": None if category is None else numbers[-1][category],
        })  # fmt: skip
    empty: dict[str, np.ndarray] = {"uv": np.zeros((1, 3, 2), np.float32), "color": np.full((1, 3, 4), 255, np.uint8)}
    columns: dict[str, Any] = {}
    for field in ("material", "uv", "color", "object_id", "category"):
        if all(part[field] is None for part in parts):
            continue
        blank = empty.get(field, np.zeros(1, np.int32))
        columns[field] = np.concatenate([
            np.broadcast_to(blank, (len(mesh.faces), *blank.shape[1:])) if part[field] is None else part[field]
            for mesh, part in zip(meshes, parts, strict=True)
        ])  # fmt: skip
    if "category" not in columns:
        categories = {}
    columns |= id_tiles.merged_tiles([(mesh.surface, len(mesh.faces)) for mesh in meshes], numbers)
    return Surface(
        materials=tuple(materials), textures=tuple(pixels[i] for i in range(len(pixels))), categories=tuple(categories),
        **columns,
    )  # fmt: skip
