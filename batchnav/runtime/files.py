"""Files that are written whole or not at all, and read only where they are files."""

from __future__ import annotations

import contextlib
import os
import stat
from collections.abc import Iterator
from pathlib import Path

from batchnav.errors import BatchnavError


@contextlib.contextmanager
def replacing(path: Path, error: type[BatchnavError]) -> Iterator[Path]:
    """A temporary path beside `path` that takes its place when the block ends, and is gone when it fails.

    The folder is made where there is none. Raises `error` where the file cannot be written.
    """
    part = path.with_name(f".{path.name}.{os.getpid()}.part")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        yield part
        os.replace(part, path)
    except OSError as problem:
        raise error(f"{path}: cannot be written ({problem.strerror or problem})") from problem
    finally:
        with contextlib.suppress(OSError):
            part.unlink()


def read_regular(path: Path, error: type[BatchnavError]) -> bytes:
    """The bytes of a regular file; `error` names any other: a pipe would wait for ever, a device never end."""
    try:
        if not stat.S_ISREG(os.stat(path).st_mode):
            raise error(f"{path}: is a folder, a pipe or a device, expected a file")
        return path.read_bytes()
    except (OSError, ValueError) as problem:
        raise error(f"{path}: cannot be read ({getattr(problem, 'strerror', None) or problem})") from problem
