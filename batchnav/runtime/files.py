"""Files that are written whole or not at all."""

from __future__ import annotations

import contextlib
import os
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
