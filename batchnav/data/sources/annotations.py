"""Semantic annotations of mesh files: the object that each triangle belongs to, and the object's category.

The annotation file lies in the folder of the mesh file:

- HM3D: `X.semantic.glb`, whose texture has one colour per object, and `X.semantic.txt`: a header line, then rows
  `id,RRGGBB,"category",region`. A triangle takes the texture's colour at its centroid. Textures with lossy compression
  (JPEG, most KTX 2) change the colours; such files are refused.
- Replica: `mesh_semantic.ply`, whose faces have an `object_id`, and `info_semantic.json` with `objects` of `id` and
  `class_name`.
- Gibson: `X_semantic.ply`, whose faces have an `object_id`, and `X.scn` with `objects` of `id` and `class_`.
- Matterport3D: `X_semantic.ply`, whose faces have an `object_id`, and `X.house`. Its rows that begin with O are objects
  (object, region, category); rows that begin with C are categories (category, number and name in the full list, number
  and name in mpcat40).

Objects without an annotation have no category.
"""

from __future__ import annotations

import csv
import os
from collections.abc import Mapping
from pathlib import Path

import numpy as np

from batchnav.data.files import read_json, read_text, short
from batchnav.errors import MeshError
from batchnav.types import Surface, TriangleMesh

_HM3D_HEADER = "HM3D Semantic Annotations"
_COLORED = ".semantic.glb"
_NEAR, _MOST_NEAR, _COLORS_ASKED = 4, 0.01, 2000
"""Detection of lossy compression: largest difference per channel between an unlisted colour and a listed one; largest
share of a scene's triangles with such colours; and number of unlisted colours that are compared, most frequent first.

Measured with 600 colours in squares of 24 pixels: JPEG of quality 10 leaves 11% of the pixels this near to a listed
colour, quality 30 and more 46% to 98%. The colour of unlabelled surfaces, which may cover more than the allowed share,
is this near to one of 600 colours by chance in 3% of scenes."""
_NAMES = {"info_semantic.json": "class_name", ".scn": "class_"}
"""Name of the category field of an object, by the end of the file's name."""


def annotation_file(path: Path) -> Path | None:
    """The annotation file of a mesh file, in the same folder; None where there is none."""
    if path.name.endswith(_COLORED):
        beside = [path.with_suffix(".txt")]
    elif path.suffix.lower() == ".ply":
        stem = path.stem.removesuffix("_semantic")
        beside = [path.with_name(name) for name in ("info_semantic.json", f"{stem}.scn", f"{stem}.house")]
    else:
        beside = []
    return next((file for file in beside if os.path.isfile(file)), None)


def annotate(mesh: TriangleMesh, path: Path) -> TriangleMesh:
    """The mesh of a file with object ids and categories; unchanged without annotations. MeshError for broken ones."""
    file, surface = annotation_file(path), mesh.surface
    if file is None or surface is None:
        return mesh
    if path.name.endswith(_COLORED):
        ids, names = _read_hm3d(file)
        found = _colors_in_the_middle(surface)
        keys = np.array(sorted(ids), np.int64)
        at = np.minimum(np.searchsorted(keys, found), len(keys) - 1)
        _refuse_lossy(path, found[keys[at] != found], len(found), keys)
        numbers = np.array([ids[key] for key in keys.tolist()], np.int32)[at]
        object_id = np.where(keys[at] == found, numbers, 0).astype(np.int32)
    elif surface.object_id is not None:
        object_id, names = surface.object_id, _read_house(file) if file.suffix == ".house" else _read_objects(file)
    else:
        return mesh
    return mesh._replace(surface=_with_categories(surface._replace(object_id=object_id), object_id, names))


def _with_categories(surface: Surface, object_id: np.ndarray, names: Mapping[int, str]) -> Surface:
    """The surface with a category for each triangle; `names` are categories by object id."""
    categories = ("", *sorted(set(names.values()) - {""}))
    rows = {name: row for row, name in enumerate(categories)}
    things, places = np.unique(object_id, return_inverse=True)
    row_of = np.array([rows[names.get(thing, "")] for thing in things.tolist()], np.int32)
    return surface._replace(category=row_of[places.reshape(-1)], categories=categories)


def _colors_in_the_middle(surface: Surface) -> np.ndarray:
    """i64 [F]: stored colour 0xRRGGBB at the centroid of each triangle, without interpolation between texels."""
    shade = np.ones((len(surface.material), 3))
    if surface.color is not None:
        shade = surface.color[:, 0, :3] / 255.0
    for row, material in enumerate(surface.materials):
        of_it = surface.material == row
        shade[of_it] *= material.color[:3]
        if material.texture >= 0 and surface.uv is not None:
            pixels = surface.textures[material.texture].pixels
            height, width = pixels.shape[:2]
            u, v = (surface.uv[of_it].astype(np.float64).mean(1) % 1.0).T
            column, line = (u * width).astype(np.int64) % width, (v * height).astype(np.int64) % height
            shade[of_it] *= pixels[line, column, :3] / 255.0
    red, green, blue = np.round(shade * 255.0).astype(np.int64).T
    return red << 16 | green << 8 | blue


def _refuse_lossy(path: Path, unlisted: np.ndarray, num_triangles: int, keys: np.ndarray) -> None:
    """MeshError where many triangles have colours near a listed one: the texture is lossy. Far ones are unlabelled."""
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
            f"{path}: found {short(lines[0] if lines else '')}, expected {_HM3D_HEADER!r} in the first line"
        )
    ids, names = {}, {}
    for number, row in enumerate(csv.reader(lines[1:]), 2):
        if not row:
            continue
        try:
            thing, color = int(row[0]), int(row[1], 16)
            if not (0 <= thing < 2**31 and 0 <= color < 2**24):
                raise ValueError
            ids[color], names[thing] = thing, row[2].strip()
        except (ValueError, IndexError) as error:
            expected = 'id,RRGGBB,"category",region'
            raise MeshError(f"{path}: line {number}: found {short(','.join(row))}, expected {expected}") from error
    if not ids:
        raise MeshError(f"{path}: found no objects, expected at least one row")
    return ids, names


def _read_objects(path: Path) -> dict[int, str]:
    """Replica and Gibson: categories by object id."""
    field = next(name for ending, name in _NAMES.items() if path.name.endswith(ending))
    data = read_json(path, MeshError)
    rows = data.get("objects") if isinstance(data, dict) else None
    if not isinstance(rows, list) or not all(
        isinstance(row, dict) and isinstance(row.get("id"), int) and isinstance(row.get(field), str) for row in rows
    ):
        raise MeshError(f"{path}: field 'objects': found {short(rows)}, expected objects with id and {field}")
    return {row["id"]: row[field] for row in rows}


def _read_house(path: Path) -> dict[int, str]:
    """Matterport3D: mpcat40 names by object id."""
    category_of, named = {}, {}
    for number, line in enumerate(read_text(path, MeshError).splitlines(), 1):
        words = line.split()
        try:
            if words[:1] == ["O"]:
                category_of[int(words[1])] = int(words[3])
            elif words[:1] == ["C"]:
                named[int(words[1])] = words[5]
        except (ValueError, IndexError) as error:
            raise MeshError(f"{path}: line {number}: found {short(line)}, expected an object or a category") from error
    return {thing: named.get(category, "") for thing, category in category_of.items()}
