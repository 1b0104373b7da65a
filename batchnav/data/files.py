"""Habitat's folders; JSON and text files, gzipped or not: reading with bounds, atomic writing; checks of values."""

from __future__ import annotations

import gzip
import json
import re
import zlib
from pathlib import Path
from typing import Any, TypeGuard
from xml.etree import ElementTree

from batchnav.errors import BatchnavError
from batchnav.runtime.files import read_regular, replacing

DATA = Path("data")
"""Habitat's data folder, relative to the current folder."""
SCENES_DIR = DATA / "scene_datasets"
"""Habitat's folder of scenes; scene ids of episodes are paths below it."""
_GZIP = b"\x1f\x8b"
_PIECE = 4096
MAX_RATIO, MAX_UNPACKED = 20, 16 * 2**20
"""Bound on unpacked bytes: MAX_RATIO times the file's size plus MAX_UNPACKED. A file that unpacks to more counts as a
decompression bomb; data files have a ratio of 4 to 10."""


def write_json_gz(data: Any, path: Path, error: type[BatchnavError]) -> None:
    """Write gzipped JSON atomically; equal data give equal bytes."""
    try:
        text = json.dumps(data, separators=(",", ":"), allow_nan=False)
    except (TypeError, ValueError) as problem:
        raise error(f"{path}: cannot be written: the data has a value that JSON cannot hold ({problem})") from problem
    with replacing(path, error) as part:
        part.write_bytes(gzip.compress(text.encode(), compresslevel=9, mtime=0))


def read_json(path: Path, error: type[BatchnavError], gzipped: bool | None = None) -> Any:
    """The JSON value of a file. `gzipped`: True requires gzip, False plain text, None accepts both."""
    text = read_text(path, error, gzipped)
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as problem:
        raise error(f"{path}: does not hold JSON ({problem})") from problem
    except MemoryError as problem:
        raise error(f"{path}: holds JSON of {len(text)} characters, for which memory does not suffice") from problem


def read_text(path: Path, error: type[BatchnavError], gzipped: bool | None = None) -> str:
    """The text of a file. `gzipped`: True requires gzip, False plain text, None accepts both."""
    data = read_regular(path, error)
    if gzipped and data[:2] != _GZIP:
        found = "an empty file" if not data else "no gzip header"
        raise error(f"{path}: found {found}, expected gzipped JSON (.json.gz)")
    try:
        return (_unpack(data) if data[:2] == _GZIP and gzipped is not False else data).decode("utf-8")
    except EOFError as problem:
        raise error(f"{path}: is cut short: the gzip stream ends too early") from problem
    except (ValueError, zlib.error) as problem:
        raise error(f"{path}: is damaged ({problem}), expected text, or gzipped text") from problem


def read_xml(path: Path, error: type[BatchnavError]) -> ElementTree.Element:
    """The root of an XML file. Blank lines before the declaration are skipped, as most readers do. ParseError."""
    return ElementTree.fromstring(read_text(path, error).lstrip("\ufeff \t\r\n"))


def _unpack(data: bytes) -> bytes:
    """`gzip.decompress` with a bound on the unpacked size. EOFError where the stream ends early."""
    left, parts, stream = MAX_RATIO * len(data) + MAX_UNPACKED, [], None
    # In pieces: each gzip member copies the rest of its input, and a file may consist of many empty members.
    for begin in range(0, len(data), _PIECE):
        piece = data[begin : begin + _PIECE]
        while piece:
            if stream is None:
                piece = piece.lstrip(b"\0")
                stream = zlib.decompressobj(wbits=31) if piece else None
                continue
            parts.append(stream.decompress(piece, left + 1))
            left -= len(parts[-1])
            if left < 0:
                raise ValueError(f"it unpacks to more than {MAX_RATIO * len(data) + MAX_UNPACKED} bytes")
            piece = stream.unused_data
            stream = None if stream.eof else stream
    if stream is not None:
        raise EOFError
    return b"".join(parts)


def is_number(value: Any) -> TypeGuard[float]:
    """True where a value is a number that float32 can hold."""
    return isinstance(value, (int, float)) and not isinstance(value, bool) and abs(value) <= 3e38


def natural_order(path: Path | str) -> list:
    """Sort key that compares digits as numbers: scene_2 before scene_10."""
    return [(0, int(part), "") if part.isdigit() else (1, 0, part) for part in re.split(r"([0-9]+)", str(path))]
