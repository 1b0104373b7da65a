"""PLY files (text, or binary in either byte order): vertices and polygons. Time is linear in the file size."""

from __future__ import annotations

import re
from typing import Any, NamedTuple

import numpy as np

from batchnav.errors import MeshError
from batchnav.scene.images import Images
from batchnav.scene.polygons import triangulate
from batchnav.scene.surface import PLAIN, corners_of, fractions, surface_of
from batchnav.types import Surface

_TYPES = {
    "char": "i1", "uchar": "u1", "short": "i2", "ushort": "u2", "int": "i4", "uint": "u4", "float": "f4",
    "double": "f8", "int8": "i1", "uint8": "u1", "int16": "i2", "uint16": "u2", "int32": "i4", "uint32": "u4",
    "float32": "f4", "float64": "f8",
}  # fmt: skip
_ORDERS = {"ascii": "", "binary_little_endian": "<", "binary_big_endian": ">"}
_END = re.compile(rb"[\r\n]end_header[ \t]*(?:\r\n|\r|\n|\Z)")
"""Last line of the header; lines end in LF, CR or both."""
_CORNERS = ("vertex_indices", "vertex_index")
_COLORS = (("red", "green", "blue"), ("diffuse_red", "diffuse_green", "diffuse_blue"), ("r", "g", "b"))
"""Names of colour channels; most programs write the first."""


class _Property(NamedTuple):
    """A property of an element: a number, or a list of numbers."""

    name: str
    kind: str
    """NumPy type code of the number or of the list's items."""
    counter: str | None = None
    """NumPy type code of the list's length; None: a single number."""


class _Element(NamedTuple):
    """An element of the header, such as "vertex" or "face"."""

    name: str
    rows: int
    properties: list[_Property]


def read_ply(data: bytes, images: Images | None = None) -> tuple[np.ndarray, np.ndarray, Surface | None]:
    """Vertices f64 [V, 3] and triangulated faces i64 [F, 3]; with `images` also the surface.

    Colours are those of vertices, or of faces if vertices have none. Textures are not supported, which is noted. A
    face's `object_id` (as in Replica and Matterport3D) applies to its triangles; below 0: unknown.
    MeshError where the file is not a PLY file.
    """
    end = _END.search(data)
    if not data.startswith(b"ply") or not end:
        raise MeshError("is not a PLY file, or its header is truncated")
    header, body = data[: end.start()], data[end.end() :]
    try:
        form, elements = _header(header.decode("latin-1"))
        rows = _text_rows(body, elements) if form == "ascii" else _binary_rows(body, elements, _ORDERS[form])
        vertices, corners, counts = None, np.empty(0, np.int64), np.empty(0, np.int64)
        color = face_color = ids = None
        for element, columns in rows:
            if element.name == "vertex":
                vertices = np.stack([columns[axis] for axis in "xyz"], axis=1).astype(np.float64)
                color = _colors(element, columns, images) if images else None
            elif element.name == "face":
                name = next(name for name in _CORNERS if name in columns)
                corners, counts = columns[name]
                ids = columns.get("object_id") if images else None
                face_color = _colors(element, columns, images) if images else None
            if vertices is not None and len(counts):
                break
    except (KeyError, ValueError, IndexError, TypeError, OverflowError, StopIteration) as error:
        raise MeshError(f"cannot be read as PLY ({type(error).__name__}: {error})") from error
    if vertices is None:
        raise MeshError("is a PLY file without vertices")
    if len(corners) and not 0 <= corners.min() <= corners.max() < len(vertices):
        worst = corners.min() if corners.min() < 0 else corners.max()
        raise MeshError(f"has a face with vertex index {worst}, expected 0 to {len(vertices) - 1}")
    if color is not None:
        face_color = None
    if images and re.search(rb"^comment +TextureFile", header, re.MULTILINE | re.IGNORECASE):
        images.note("a PLY file's texture (save it as GLB, or as OBJ with MTL)")
    with np.errstate(all="ignore"):  # non-finite triangles are dropped later
        if ids is None and face_color is None:
            faces = triangulate(vertices, corners, counts)
        else:  # triangulate unshared corners, which identify the polygon of each triangle
            parts = triangulate(vertices[corners], np.arange(len(corners)), counts)
            faces, polygon = corners[parts], np.repeat(np.arange(len(counts)), counts)[parts[:, 0]]
            ids = None if ids is None else _object_ids(ids)[polygon]
    if color is None and face_color is None and ids is None:
        return vertices, faces, None
    look = corners_of(faces, 0, None, color)
    if face_color is not None:
        look = corners_of(np.repeat(polygon[:, None], 3, axis=1), 0, None, face_color)
    surface = surface_of([look], [PLAIN], [])
    if surface is None:  # no colours
        surface = Surface(np.zeros(len(faces), np.int32), (PLAIN,))
    return vertices, faces, surface._replace(object_id=ids)


def _object_ids(ids: np.ndarray) -> np.ndarray:
    """Object ids of faces, i32 [P]; negative ids become 0. MeshError where they are not 32-bit integers."""
    if not isinstance(ids, np.ndarray) or not (np.abs(ids) < 2.0**31).all() or (ids != np.round(ids)).any():
        raise MeshError("has a face whose 'object_id' is not an integer below 2^31")
    return np.maximum(ids, 0).astype(np.int32)


def _colors(element: _Element, columns: dict, images: Images) -> np.ndarray | None:
    """Colours f64 [rows, 3] of an element, 0 to 1, from floats, bytes or 16-bit integers; None if it has none."""
    kinds = {entry.name: entry.kind for entry in element.properties if entry.counter is None}
    for names in _COLORS:
        if all(name in kinds for name in names):
            values = np.stack([columns[name] for name in names], axis=1).astype(np.float64)
            kind = kinds[names[0]]
            return fractions(values, images.note) if kind[0] == "f" else values / (65535.0 if kind == "u2" else 255.0)
    return None


def _header(text: str) -> tuple[str, list[_Element]]:
    """Format and elements of a header."""
    form, elements = "", []
    for words in map(str.split, text.replace("\r", "\n").split("\n")):
        if words[:1] == ["format"]:
            form = words[1]
        elif words[:1] == ["element"]:
            elements.append(_Element(words[1], int(words[2]), []))
            if elements[-1].rows < 0:
                raise ValueError(f"element {words[1]}: found {words[2]} rows, expected 0 or more")
        elif words[:2] == ["property", "list"]:
            elements[-1].properties.append(_Property(words[4], _TYPES[words[3]], _TYPES[words[2]]))
        elif words[:1] == ["property"]:
            elements[-1].properties.append(_Property(words[2], _TYPES[words[1]]))
    if form not in _ORDERS:
        raise ValueError(f"format: found {form!r}, expected one of {', '.join(_ORDERS)}")
    return form, elements


def _text_rows(body: bytes, elements: list[_Element]):
    """Each element with its columns by name: an array, or for lists a pair (all items, lengths)."""
    lines = [line for line in body.replace(b"\r", b"\n").split(b"\n") if line.strip()]
    expected = sum(element.rows for element in elements)
    if len(lines) < expected:
        raise MeshError(f"is truncated: {len(lines)} rows, expected {expected} as in its header")
    first = 0
    for element in elements:
        rows = [line.split() for line in lines[first : first + element.rows]]
        first += element.rows
        columns: dict[str, Any] = {}
        at = [0] * len(rows)
        for entry in element.properties:
            if entry.counter is None:
                values = np.array([float(row[i]) for row, i in zip(rows, at, strict=True)])
                columns[entry.name], at = values, [i + 1 for i in at]
                continue
            counts = [int(row[i]) for row, i in zip(rows, at, strict=True)]
            items = [row[i + 1 : i + 1 + n] for row, i, n in zip(rows, at, counts, strict=True)]
            if any(n < 0 or len(item) < n for item, n in zip(items, counts, strict=True)):
                raise ValueError(f"a list {entry.name} that is longer than its line")
            flat = [float(word) for item in items for word in item]
            columns[entry.name] = np.array(flat).astype(np.int64), np.array(counts, np.int64)
            at = [i + 1 + n for i, n in zip(at, counts, strict=True)]
        yield element, columns


def _binary_rows(body: bytes, elements: list[_Element], order: str):
    """`_text_rows` of a binary file."""
    offset = 0
    for element in elements:
        columns, offset = _equal_rows(body, offset, element, order) or _unequal_rows(body, offset, element, order)
        yield element, columns


def _equal_rows(body: bytes, offset: int, element: _Element, order: str) -> tuple[dict, int] | None:
    """Columns of an element and its end, if all lists are as long as those of the first row; else None."""
    fields: list[tuple] = []
    at = offset
    for k, entry in enumerate(element.properties):
        length: tuple[int, ...] = ()
        if entry.counter is not None:
            counter = np.dtype(order + entry.counter)
            length = (int(np.frombuffer(body, counter, 1, at)[0]),) if element.rows else (0,)
            fields.append((f"{k} length", counter))
            at += counter.itemsize
        fields.append((str(k), order + entry.kind, length))
        at += np.dtype(entry.kind).itemsize * (length[0] if length else 1)
    row = np.dtype(fields)
    if offset + element.rows * row.itemsize > len(body):
        if any(entry.counter is not None for entry in element.properties):
            return None
        raise MeshError(f"is truncated: element {element.name!r} has {element.rows} rows of {row.itemsize} bytes")
    rows = np.frombuffer(body, row, element.rows, offset)
    columns: dict[str, Any] = {}
    for k, entry in enumerate(element.properties):
        values = rows[str(k)]
        if entry.counter is None:
            columns[entry.name] = values
            continue
        counts = rows[f"{k} length"].astype(np.int64)
        if len(counts) and (counts != values.shape[1]).any():
            return None
        columns[entry.name] = values.astype(np.int64).ravel(), counts
    return columns, offset + element.rows * row.itemsize


def _unequal_rows(body: bytes, offset: int, element: _Element, order: str) -> tuple[dict, int]:
    """Columns of an element with lists of any length, read row by row, and its end."""
    items: list[list[np.ndarray]] = [[] for _ in element.properties]
    lengths: list[list[int]] = [[] for _ in element.properties]
    if element.rows > len(body) - offset:
        raise MeshError(f"is truncated: element {element.name!r} has {element.rows} rows")
    for _ in range(element.rows):
        for k, entry in enumerate(element.properties):
            length = 1
            if entry.counter is not None:
                counter = np.dtype(order + entry.counter)
                length = int(np.frombuffer(body, counter, 1, offset)[0])
                offset += counter.itemsize
            kind = np.dtype(order + entry.kind)
            if length < 0 or offset + length * kind.itemsize > len(body):
                raise MeshError(f"is truncated: a list {entry.name!r} of {length} ends after {len(body)} bytes")
            items[k].append(np.frombuffer(body, kind, length, offset))
            lengths[k].append(length)
            offset += length * kind.itemsize
    columns = {}
    for entry, values, counts in zip(element.properties, items, lengths, strict=True):
        flat = np.concatenate([np.empty(0), *values])
        columns[entry.name] = flat if entry.counter is None else (flat.astype(np.int64), np.array(counts, np.int64))
    return columns, offset
