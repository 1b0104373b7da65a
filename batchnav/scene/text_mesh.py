"""Text files of polygons with any number of corners: their lines, and OFF. Time and memory are linear in the size."""

from __future__ import annotations

import array
import codecs
import re
from collections.abc import Callable, Sequence
from itertools import groupby

import numpy as np

from batchnav.errors import MeshError
from batchnav.scene.formats import point_cloud_error
from batchnav.scene.polygons import triangulate

_BYTE_ORDER_MARKS = {codecs.BOM_UTF8: "utf-8-sig", codecs.BOM_UTF16_LE: "utf-16", codecs.BOM_UTF16_BE: "utf-16"}
_AT_A_TIME = 2**14
"""Number of lines that are parsed together; line by line, the interpreter would take most of the time."""
Columns = list[list[str]]
"""Words of lines of equal length, by column: first words, second words, ..."""


def read_off(data: bytes) -> tuple[np.ndarray, np.ndarray]:
    """Vertices f64 [V, 3] that faces use, and faces i64 [F, 3], of an OFF file. MeshError names the line."""
    lines = text_of(data).split("\n")
    if any("#" in line for line in lines):
        lines = [line.partition("#")[0] for line in lines]
    numbers = [i for i, line in enumerate(lines, 1) if line and not line.isspace()]
    head = lines[numbers[0] - 1].split() if numbers else [""]
    if not re.fullmatch("(ST)?C?N?OFF", head[0]) or "BINARY" in head:
        raise MeshError(f"is not an OFF file of text with three coordinates a vertex (its head is {head[0][:20]!r})")
    points, corners, counts = array.array("d"), array.array("q"), array.array("q")

    def vertices(columns: Columns, count: int) -> None:
        points.frombytes(coordinates(columns, count).tobytes())

    def faces(columns: Columns, count: int) -> None:
        sizes = parsed(columns[:1], count, int, np.int64)[:, 0]
        size = int(sizes[0])
        if (sizes != size).any() or not 0 <= size < len(columns):
            raise ValueError(f"found {len(columns) - 1} of {size} corners")
        corners.frombytes(parsed(columns[1 : 1 + size], count, int, np.int64).tobytes())
        counts.frombytes(sizes.tobytes())

    first = 1 if len(head) > 1 else 2
    try:
        sizes = head[1:] if first == 1 else lines[numbers[1] - 1].split()
        num_vertices, num_faces = (int(word) for word in sizes[:2])
        found = len(numbers) - first
        if not 0 <= num_vertices + num_faces <= found or min(num_vertices, num_faces) < 0:
            raise ValueError(f"found {found} lines for {num_vertices} vertices and {num_faces} faces")
    except (ValueError, IndexError) as error:
        raise MeshError(f"line {numbers[0]}: {error}, expected OFF") from error
    middle = first + num_vertices
    for reader, some in ((vertices, numbers[first:middle]), (faces, numbers[middle : middle + num_faces])):
        # Comments are removed, so "#" can mark the start of each line.
        read_lines(reader, "#", ["# " + lines[number - 1] for number in some], some, "OFF")
    return polygon_mesh(points, corners, counts)


def read_lines(
    reader: Callable[[Columns, int], None], word: str, lines: Sequence[str], numbers: Sequence[int], kind: str
) -> None:
    """Pass the words of lines that begin with `word` to a reader, which accepts all of them or raises ValueError.

    Lines with equal numbers of words are passed together. MeshError names an invalid line.
    """
    for first in range(0, len(lines), _AT_A_TIME):
        some, places = lines[first : first + _AT_A_TIME], numbers[first : first + _AT_A_TIME]
        count, words = len(some), " ".join(some).split()
        width = len(words) // count
        try:
            if len(words) != width * count or words[::width].count(word) != count:
                raise ValueError("found lines of different lengths")
            reader([words[k::width] for k in range(1, width)], count)
        except (ValueError, OverflowError) as error:
            if count > 1:
                _read_apart(reader, word, some, places, kind)
            elif "#" in (rest := some[0][len(word) :]):  # a comment follows
                read_lines(reader, word, [word + rest.partition("#")[0]], places, kind)
            else:
                raise MeshError(f"line {places[0]}: {error}, expected {kind}") from error


def _read_apart(reader, word: str, lines: Sequence[str], numbers: Sequence[int], kind: str) -> None:
    """Split lines that cannot be read together into runs of equal length, or single lines, and read those."""
    lengths = [len(line.split()) for line in lines]
    alike = [len(list(run)) for _, run in groupby(lengths)]
    parts, first = alike if len(alike) > 1 else [1] * len(lines), 0
    for part in parts:
        read_lines(reader, word, lines[first : first + part], numbers[first : first + part], kind)
        first += part


def parsed(columns: Columns, count: int, convert: Callable[[str], float], dtype: type) -> np.ndarray:
    """Words as numbers [count, len(columns)]."""
    found: np.ndarray = np.empty((count, len(columns)), dtype)
    for k, column in enumerate(columns):
        found[:, k] = np.fromiter(map(convert, column), dtype, count)
    return found


def coordinates(columns: Columns, count: int) -> np.ndarray:
    """Points f64 [count, 3]."""
    if len(columns) < 3:
        raise ValueError(f"found {len(columns)} coordinates")
    return parsed(columns[:3], count, float, np.float64)


def text_of(data: bytes) -> str:
    """Text of bytes in UTF-8, UTF-16 (with a byte order mark) or Latin-1, with LF line ends."""
    encoding = next((name for mark, name in _BYTE_ORDER_MARKS.items() if data.startswith(mark)), "utf-8")
    try:
        text = data.decode(encoding)
    except UnicodeDecodeError:
        text = data.decode("latin-1")
    return text.replace("\r\n", "\n").replace("\r", "\n")


def polygon_mesh(points: array.array, corners: array.array, counts: array.array) -> tuple[np.ndarray, np.ndarray]:
    """Vertices f64 [V, 3] that polygons use, and triangles i64 [F, 3]. MeshError for an index out of range."""
    vertices = np.frombuffer(points, np.float64).reshape(-1, 3)
    corner, count = np.frombuffer(corners, np.int64), np.frombuffer(counts, np.int64)
    if len(vertices) and not len(corner):
        raise MeshError(point_cloud_error(len(vertices)))
    if len(corner) and not 0 <= corner.min() <= corner.max() < len(vertices):
        worst = int(corner.min() if corner.min() < 0 else corner.max())
        raise MeshError(f"has a face with vertex index {worst} counted from 0, expected 0 to {len(vertices) - 1}")
    with np.errstate(all="ignore"):  # non-finite triangles are dropped later
        faces = triangulate(vertices, corner, count)
    used, faces = np.unique(faces, return_inverse=True)
    return vertices[used], faces.reshape(-1, 3)
