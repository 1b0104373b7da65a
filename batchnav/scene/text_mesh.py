"""Text whose polygons may have any number of corners, and OFF files. Time and memory are linear in the file."""

from __future__ import annotations

import array
import codecs

import numpy as np

from batchnav.errors import MeshError
from batchnav.scene.polygons import triangulate

_BYTE_ORDER_MARKS = {codecs.BOM_UTF8: "utf-8-sig", codecs.BOM_UTF16_LE: "utf-16", codecs.BOM_UTF16_BE: "utf-16"}


def read_off(data: bytes) -> tuple[np.ndarray, np.ndarray]:
    """Vertices f64 [V, 3] that faces use, and faces i64 [F, 3], of an OFF file. MeshError names the line."""
    lines = [(i, line.partition("#")[0].split()) for i, line in enumerate(text_of(data).split("\n"), 1)]
    lines = [(i, words) for i, words in lines if words]
    if not lines or not lines[0][1][0].endswith("OFF") or "BINARY" in lines[0][1]:
        raise MeshError("is not an OFF file of text")
    number, points, corners, counts = lines[0][0], array.array("d"), array.array("q"), array.array("q")
    try:
        sizes, rows = (lines[0][1][1:], lines[1:]) if len(lines[0][1]) > 1 else (lines[1][1], lines[2:])
        num_vertices, num_faces = (int(word) for word in sizes[:2])
        if not 0 <= num_vertices + num_faces <= len(rows) or min(num_vertices, num_faces) < 0:
            raise ValueError(f"found {len(rows)} lines for {num_vertices} vertices and {num_faces} faces")
        for number, words in rows[:num_vertices]:  # noqa: B007 - the error names it
            x, y, z = map(float, words[:3])
            points.extend((x, y, z))
        for number, words in rows[num_vertices : num_vertices + num_faces]:  # noqa: B007
            count = int(words[0])
            found = [int(word) for word in words[1 : 1 + count]]
            if len(found) != count:
                raise ValueError(f"found {len(found)} of {count} corners")
            corners.extend(found)
            counts.append(count)
    except (ValueError, OverflowError, IndexError) as error:
        raise MeshError(f"line {number}: {error}, expected OFF") from error
    return polygon_mesh(points, corners, counts)


def text_of(data: bytes) -> str:
    """UTF-8, UTF-16 with its mark, or Latin-1, with lines that end in LF, CR or both."""
    encoding = next((name for mark, name in _BYTE_ORDER_MARKS.items() if data.startswith(mark)), "utf-8")
    try:
        text = data.decode(encoding)
    except UnicodeDecodeError:
        text = data.decode("latin-1")
    return text.replace("\r\n", "\n").replace("\r", "\n")


def polygon_mesh(points: array.array, corners: array.array, counts: array.array) -> tuple[np.ndarray, np.ndarray]:
    """Vertices f64 [V, 3] that polygons use, and their triangles i64 [F, 3]. MeshError for an index out of range."""
    vertices = np.frombuffer(points, np.float64).reshape(-1, 3)
    corner, count = np.frombuffer(corners, np.int64), np.frombuffer(counts, np.int64)
    if len(corner) and not 0 <= corner.min() <= corner.max() < len(vertices):
        worst = int(corner.min() if corner.min() < 0 else corner.max())
        raise MeshError(f"has a face with vertex index {worst} counted from 0, expected 0 to {len(vertices) - 1}")
    with np.errstate(all="ignore"):  # what is not finite is dropped later
        faces = triangulate(vertices, corner, count)
    used, faces = np.unique(faces, return_inverse=True)
    return vertices[used], faces.reshape(-1, 3)
