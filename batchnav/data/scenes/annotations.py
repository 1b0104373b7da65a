"""Semantic annotations of mesh files: the object that each triangle belongs to, and the object's category.

The annotation file lies in the folder of the mesh file, unless a stage config names one:

- HM3D: `X.semantic.glb`, whose texture has one colour per object, and `X.semantic.txt`: a header line, then rows
  `id,RRGGBB,"category",region`. A pixel reads the texel at the visible point; `Surface.object_id` has the one at the
  triangle's centroid. Textures with lossy compression (JPEG, most KTX 2) change the colours; such files are refused.
- Replica: `mesh_semantic.ply`, whose faces have an `object_id`, and `info_semantic.json` with `objects` of `id` and
  `class_name`.
- Gibson: `X_semantic.ply`, whose faces have an `object_id`, and `X.scn` with `objects` of `id` and `class_`.
- Matterport3D: `X_semantic.ply`, whose faces have an `object_id`, and `X.house`. Its rows that begin with O are objects
  (object, region, category); rows that begin with C are categories (category, number and name in the full list, number
  and name in mpcat40).

Objects without an annotation have no category; triangles of black or of an unlisted colour have no object. A warning
counts unlisted colours and ids, and names rows that contradict each other, of which the last counts. The ids are in
another mesh file than the colours (Replica's has both); `semantic_file` finds it.
"""

from __future__ import annotations

import csv
import logging
import os
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from batchnav.data.files import read_json, read_text
from batchnav.errors import MeshError, few, shortened
from batchnav.runtime.console import number_of
from batchnav.scene.blocks import pixels_of
from batchnav.scene.id_tiles import FIELDS as TILE_FIELDS
from batchnav.scene.id_tiles import TileMaker, wrapped_texels
from batchnav.scene.images import AppearanceConfig
from batchnav.scene.surface import PLAIN
from batchnav.types import Surface, TriangleMesh

log = logging.getLogger(__name__)

_HM3D_HEADER = "HM3D Semantic Annotations"
_HM3D_ROW = 'id,RRGGBB,"category",region'
_UNPAINTED = 0
"""Colour of surfaces without an object."""
_COLORED, _WITH_IDS = ".semantic.glb", "_semantic.ply"
FULL_SIZE = AppearanceConfig(largest_texture=16384)
"""Settings for reading mesh files with ids: large textures are not reduced, since that mixes the colours of objects."""
_NEAR, _MOST_NEAR, _COLORS_ASKED = 4, 0.01, 2000
"""Detection of lossy compression: largest difference per channel at which an unlisted colour counts as near to a listed
one; largest allowed share of triangles with near colours; number of unlisted colours compared, most frequent first.

Measured with 600 colours in squares of 24 pixels: with JPEG of quality 10, 11% of the pixels are near to a listed
colour but unequal; with quality 30 and more, 46% to 98%. The colour of unlabelled surfaces, which may cover more than
the allowed share, is near to one of 600 colours by chance in 3% of scenes."""
ANNOTATIONS = (".txt", ".scn", ".house")
"""Suffixes of annotation files; other descriptors (`.json`) are lexicons of objects."""
_NAMES = {"info_semantic.json": "class_name", ".scn": "class_"}
"""Name of the category field of an object, by the end of the file's name."""


def is_semantic(path: Path) -> bool:
    """True for the name of a mesh file that has ids in place of colours."""
    return path.name.endswith((_COLORED, _WITH_IDS))


def semantic_file(path: Path) -> Path | None:
    """The mesh file that has the ids of another mesh file's scene; None where there is none.

    X.basis.glb and X.glb: X.semantic.glb, if X.semantic.txt is there too, else X_semantic.ply. X.ply: X_semantic.ply.
    """
    if not path.name:
        return None
    stem = path.stem.removesuffix(".basis")
    found = [path.with_name(stem + _COLORED), path.with_name(stem + _WITH_IDS)]
    found.append(path.parent / "habitat" / (stem + _WITH_IDS))  # Replica
    present = [file for file in found if os.path.isfile(file) and (file.suffix == ".ply" or annotation_file(file))]
    return present[0] if present and not is_semantic(path) else None


def annotation_file(path: Path) -> Path | None:
    """The annotation file of a mesh file, in the same folder; None where there is none."""
    if path.name.endswith(_COLORED):
        candidates = [path.with_suffix(".txt")]
    elif path.suffix.lower() == ".ply":
        stem = path.stem.removesuffix("_semantic")
        candidates = [path.with_name(name) for name in ("info_semantic.json", f"{stem}.scn", f"{stem}.house")]
    else:
        candidates = []
    return next((file for file in candidates if os.path.isfile(file)), None)


def annotate(mesh: TriangleMesh, path: Path, file: Path | None = None) -> TriangleMesh:
    """The mesh of a file with object ids and categories; unchanged without annotations. MeshError for broken ones.

    `file`: the annotation file; None: the one that belongs to the mesh file by name.
    """
    file, surface = file or annotation_file(path), mesh.surface
    if file is None or surface is None:
        return mesh
    if file.suffix == ".txt":
        ids, names = _read_hm3d(file)
        found = _centroid_colors(surface)
        keys = np.array(sorted(ids), np.int64)
        at = np.minimum(np.searchsorted(keys, found), len(keys) - 1)
        _refuse_lossy(path, found[keys[at] != found], len(found), keys)
        painted = found[(keys[at] != found) & (found != _UNPAINTED)]
        _warn_unlisted(file, "colours", [f"{key:06X}" for key in painted.tolist()], len(found))
        numbers = np.array([ids[key] for key in keys.tolist()], np.int32)
        object_id = np.where(keys[at] == found, numbers[at], 0).astype(np.int32)
        surface = _with_categories(surface._replace(object_id=object_id), object_id, names)
        return mesh._replace(surface=_with_tiles(surface, keys, numbers, names, str(path)))
    if surface.object_id is None:
        return mesh
    names = _read_house(file) if file.suffix == ".house" else _read_objects(file)
    unlisted = surface.object_id[(surface.object_id > 0) & ~np.isin(surface.object_id, list(names))]
    _warn_unlisted(file, "object ids", unlisted.tolist(), len(surface.object_id))
    return mesh._replace(surface=_with_categories(surface, surface.object_id, names))


def _warn_unlisted(file: Path, what: str, unlisted: Sequence[object], num_triangles: int) -> None:
    """Warn about triangles whose colour or object id has no row. `unlisted`: that of each such triangle."""
    if unlisted:
        most = [f"{name} ({number_of(count, 'triangle')})" for name, count in Counter(unlisted).most_common()]
        log.warning(
            "%s: %d of %d triangles have %s without a row, which belong to no object: %s",
            file, len(unlisted), num_triangles, what, few(most),
        )  # fmt: skip


def _without_repeats(file: Path, what: str, pairs: Iterable[tuple[int, Any]], show: str = "d") -> dict[int, Any]:
    """Values by key; the last counts. Warns about keys with several values. `show`: format of a key."""
    found: dict[int, Any] = {}
    repeated: dict[int, list[str]] = {}
    for key, value in pairs:
        if found.get(key, value) != value:
            repeated.setdefault(key, [repr(found[key])]).append(repr(value))
        found[key] = value
    if repeated:
        lines = [f"{key:{show}}: {' and '.join(values)}" for key, values in repeated.items()]
        number, listed = number_of(len(repeated), what), few(lines, separator="; ")
        log.warning("%s: several rows, of which the last counts, for %s: %s", file, number, listed)
    return found


def ids_only(mesh: TriangleMesh) -> TriangleMesh:
    """The mesh with its ids and without its colours."""
    surface = mesh.surface
    if surface is None:
        return mesh
    plain = Surface(np.zeros(len(mesh.faces), np.int32), (PLAIN,))
    fields = ("object_id", "category", "categories", *TILE_FIELDS)
    return mesh._replace(surface=plain._replace(**{field: getattr(surface, field) for field in fields}))


def _with_tiles(
    surface: Surface, keys: np.ndarray, numbers: np.ndarray, names: Mapping[int, str], name: str
) -> Surface:
    """The surface with tiles (`scene/id_tiles.py`) for triangles of several colours.

    Args:
        surface: surface with categories.
        keys: i64 [K], colours 0xRRGGBB of objects.
        numbers: i32 [K], object id of each colour.
        names: categories by object id.
        name: start of warnings.
    """
    rows = {category: row for row, category in enumerate(surface.categories)}
    categories = [rows[names.get(number, "")] for number in numbers.tolist()]
    table = np.array([(0, 0), *zip(numbers.tolist(), categories, strict=True)], np.int32)
    row_of = np.zeros(2**24, np.int32)
    row_of[keys] = np.arange(1, len(keys) + 1)
    white = np.ones(len(surface.material), np.bool_)
    if surface.color is not None:
        white = (surface.color[..., :3] == 255).all(axis=(1, 2))
    maker = TileMaker(len(surface.material), name)
    for row, material in enumerate(surface.materials):
        faces = np.flatnonzero((surface.material == row) & white)
        if material.texture < 0 or surface.uv is None or not len(faces):
            continue
        texture = surface.textures[material.texture]
        colors = pixels_of(texture)[..., :3]
        if material.color[:3] != (1.0, 1.0, 1.0):
            colors = np.round(colors * np.array(material.color[:3])).astype(np.uint8)
        red, green, blue = np.moveaxis(colors.astype(np.int32), -1, 0)
        maker.add(faces, surface.uv[faces], row_of[red << 16 | green << 8 | blue], texture.wrap)
    tiles = maker.made(table)
    if tiles is None:
        return surface
    return surface._replace(tile=tiles.tile, tile_uv=tiles.tile_uv, tiles=tiles.tiles, tile_ids=tiles.tile_ids)


def _with_categories(surface: Surface, object_id: np.ndarray, names: Mapping[int, str]) -> Surface:
    """The surface with a category for each triangle; `names` are categories by object id."""
    categories = ("", *sorted(set(names.values()) - {""}))
    rows = {name: row for row, name in enumerate(categories)}
    present, inverse = np.unique(object_id, return_inverse=True)
    row_of = np.array([rows[names.get(number, "")] for number in present.tolist()], np.int32)
    return surface._replace(category=row_of[inverse.reshape(-1)], categories=categories)


def _centroid_colors(surface: Surface) -> np.ndarray:
    """i64 [F]: stored colour 0xRRGGBB at the centroid of each triangle, without interpolation between texels."""
    shade = np.ones((len(surface.material), 3))
    if surface.color is not None:
        shade = surface.color[:, 0, :3] / 255.0
    for row, material in enumerate(surface.materials):
        of_it = surface.material == row
        shade[of_it] *= material.color[:3]
        if material.texture >= 0 and surface.uv is not None:
            texture = surface.textures[material.texture]
            pixels, wrap = pixels_of(texture), texture.wrap
            height, width = pixels.shape[:2]
            u, v = surface.uv[of_it].astype(np.float64).mean(1).T
            column = wrapped_texels(np.floor(u * width).astype(np.int64), width, wrap[0])
            line = wrapped_texels(np.floor(v * height).astype(np.int64), height, wrap[1])
            shade[of_it] *= pixels[line, column, :3] / 255.0
    red, green, blue = np.round(shade * 255.0).astype(np.int64).T
    return red << 16 | green << 8 | blue


def _refuse_lossy(path: Path, unlisted: np.ndarray, num_triangles: int, keys: np.ndarray) -> None:
    """MeshError where many triangles have colours near a listed one, since the texture's compression is lossy then.

    Args:
        path: mesh file, for the message.
        unlisted: i64 [U], colours 0xRRGGBB of the triangles whose colour is not in `keys`.
        num_triangles: number of all triangles.
        keys: i64 [K], listed colours.
    """
    colors, counts = np.unique(unlisted, return_counts=True)
    most = np.argsort(-counts)[:_COLORS_ASKED]
    channels = [(keys >> shift & 255, colors[most] >> shift & 255) for shift in (16, 8, 0)]
    off = np.max([np.abs(listed - found[:, None]) for listed, found in channels], axis=0)  # [colours, keys]
    near = off.min(1) <= _NEAR
    if counts[most][near].sum() > _MOST_NEAR * num_triangles:
        worst = int(near.argmax())
        found, listed = int(colors[most][worst]), int(keys[off[worst].argmin()])
        raise MeshError(
            f"{path}: {counts[most][near].sum()} of {num_triangles} triangles have colours near those of the "
            f"annotations: found {found:06X}, expected {listed:06X} exactly; store the texture without loss, as PNG"
        )


def _read_hm3d(path: Path) -> tuple[dict[int, int], dict[int, str]]:
    """HM3D: object ids by colour 0xRRGGBB, and categories by object id."""
    lines = read_text(path, MeshError).splitlines()
    if not lines or _HM3D_HEADER not in lines[0]:
        raise MeshError(
            f"{path}: found {shortened(lines[0] if lines else '')}, expected {_HM3D_HEADER!r} in the first line"
        )
    colors: list[tuple[int, int]] = []
    categories: list[tuple[int, str]] = []
    try:
        rows = list(csv.reader(lines[1:]))
    except csv.Error as error:
        raise MeshError(f"{path}: found a row that cannot be read ({error}), expected {_HM3D_ROW}") from error
    for number, row in enumerate(rows, 2):
        if not row:
            continue
        try:
            object_id, color = int(row[0]), int(row[1], 16)
            if not (0 <= object_id < 2**31 and 0 <= color < 2**24):
                raise ValueError
            categories.append((object_id, row[2].strip()))
            colors.append((color, object_id))
        except (ValueError, IndexError) as error:
            raise MeshError(f"{path}: line {number}: found {shortened(','.join(row))}, expected {_HM3D_ROW}") from error
    if not colors:
        raise MeshError(f"{path}: found no objects, expected at least one row")
    return _without_repeats(path, "colour", colors, "06X"), _without_repeats(path, "object id", categories)


def _read_objects(path: Path) -> dict[int, str]:
    """Replica and Gibson: categories by object id."""
    field = next(name for ending, name in _NAMES.items() if path.name.endswith(ending))
    data = read_json(path, MeshError)
    rows = data.get("objects") if isinstance(data, dict) else None
    if not isinstance(rows, list) or not all(
        isinstance(row, dict) and isinstance(row.get("id"), int) and isinstance(row.get(field), str) for row in rows
    ):
        raise MeshError(f"{path}: field 'objects': found {shortened(rows)}, expected objects with id and {field}")
    return _without_repeats(path, "object id", ((row["id"], row[field]) for row in rows))


def _read_house(path: Path) -> dict[int, str]:
    """Matterport3D: mpcat40 names by object id."""
    category_of: list[tuple[int, int]] = []
    names: list[tuple[int, str]] = []
    for number, line in enumerate(read_text(path, MeshError).splitlines(), 1):
        words = line.split()
        try:
            if words[:1] == ["O"]:
                category_of.append((int(words[1]), int(words[3])))
            elif words[:1] == ["C"]:
                names.append((int(words[1]), words[5]))
        except (ValueError, IndexError) as error:
            raise MeshError(
                f"{path}: line {number}: found {shortened(line)}, expected an object or a category"
            ) from error
    name_of = _without_repeats(path, "category", names)
    found = _without_repeats(path, "object id", category_of)
    return {object_id: name_of.get(category, "") for object_id, category in found.items()}
