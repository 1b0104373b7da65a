"""What annotations beside a mesh file say of its triangles: which thing each is part of, and its category.

- HM3D: `X.semantic.glb`, whose texture has a colour for each thing, and `X.semantic.txt`: after a line that says what
  it is, rows `id,RRGGBB,"category",region`. A triangle has the colour in its middle. Colours that are only nearly those
  of the list, as lossy compression leaves them (JPEG, most KTX 2), are refused.
- Replica: `mesh_semantic.ply`, whose faces have an `object_id`, and `info_semantic.json` with `objects` of `id` and
  `class_name`.
- Gibson: `X_semantic.ply` likewise, and `X.scn` with `objects` of `id` and `class_`.
- Matterport3D: `X_semantic.ply` likewise, and `X.house`: of its rows those that begin with O (object, region, category)
  and C (category, its number and name in the full list, its number and name in mpcat40).

Things that a file has and its annotations do not have no category.
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
"""A colour no farther from a listed one, in its worst channel, is taken for it, spoilt by compression; so many of a
scene's triangles may have such colours by chance; and so many of its colours are looked at, the commonest. Of 600
colours in squares of 24 pixels a JPEG file of quality 10 leaves 11% so near, of quality 30 and more 46% to 98%. That of
no thing, which may have more of a scene than that, is so near to one of 600 by chance in 3% of scenes."""
_NAMES = {"info_semantic.json": "class_name", ".scn": "class_"}
"""The field of an object that names its category, by how the file's name ends."""


def annotation_file(path: Path) -> Path | None:
    """The file beside a mesh file that says what its triangles are; None where there is none."""
    if path.name.endswith(_COLORED):
        beside = [path.with_suffix(".txt")]
    elif path.suffix.lower() == ".ply":
        stem = path.stem.removesuffix("_semantic")
        beside = [path.with_name(name) for name in ("info_semantic.json", f"{stem}.scn", f"{stem}.house")]
    else:
        beside = []
    return next((file for file in beside if os.path.isfile(file)), None)


def annotate(mesh: TriangleMesh, path: Path) -> TriangleMesh:
    """A file's mesh with what is known of its things; as it is where nothing is. MeshError names what is broken."""
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
    """The surface with the categories of its things, by id."""
    categories = ("", *sorted(set(names.values()) - {""}))
    rows = {name: row for row, name in enumerate(categories)}
    things, places = np.unique(object_id, return_inverse=True)
    row_of = np.array([rows[names.get(thing, "")] for thing in things.tolist()], np.int32)
    return surface._replace(category=row_of[places.reshape(-1)], categories=categories)


def _colors_in_the_middle(surface: Surface) -> np.ndarray:
    """i64 [F]: 0xRRGGBB in the middle of each triangle, as bytes are stored: nothing is mixed between texels."""
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
    """MeshError where many of the triangles' colours are near one of the list, but not it. Far ones are of no thing."""
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
    """Ids by colour 0xRRGGBB, and categories by id."""
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
        raise MeshError(f"{path}: found no things, expected some")
    return ids, names


def _read_objects(path: Path) -> dict[int, str]:
    """Categories by id, of Replica's and Gibson's files."""
    field = next(name for ending, name in _NAMES.items() if path.name.endswith(ending))
    data = read_json(path, MeshError)
    rows = data.get("objects") if isinstance(data, dict) else None
    if not isinstance(rows, list) or not all(
        isinstance(row, dict) and isinstance(row.get("id"), int) and isinstance(row.get(field), str) for row in rows
    ):
        raise MeshError(f"{path}: field 'objects': found {short(rows)}, expected objects with id and {field}")
    return {row["id"]: row[field] for row in rows}


def _read_house(path: Path) -> dict[int, str]:
    """Names in mpcat40 by id, of Matterport3D's files."""
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
