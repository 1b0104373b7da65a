"""Files that are written whole or not at all, folders that one process at a time writes, and reading only files."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import json
import logging
import os
import platform
import secrets
import stat
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import IO, Any

import numpy as np
import safetensors.torch
import torch

from batchnav.errors import ArgumentError, BatchnavError, shortened

log = logging.getLogger(__name__)


def as_path(path: Any) -> Path:
    """What a caller gave as a path. ArgumentError where it is none, or longer than the file system's can be."""
    try:
        path = Path(path)
        path.lstat()
    except TypeError as error:
        raise ArgumentError(f"path: found {shortened(path)}, expected a string or a Path") from error
    except (OSError, ValueError) as error:  # other kinds are told by whoever reads it
        if getattr(error, "errno", None) == errno.ENAMETOOLONG:
            raise ArgumentError(f"path: found {shortened(str(path))}, expected a shorter one") from error
    return path


@contextlib.contextmanager
def replacing(path: Path, error: type[BatchnavError], make_folder: bool = True, durable: bool = True) -> Iterator[Path]:
    """A temporary path beside `path` that takes its place when the block ends, and is gone when it fails.

    The folder is made where there is none, unless `make_folder` is off. Before the block is over the content reaches
    the disk, then the name: after a power cut too `path` holds the old content or the new. Not `durable`, a power cut
    may leave a damaged file, which is for caches with check sums: the disk is not waited for. A process that is killed
    leaves the temporary file (`remove_leftovers`). Raises `error` where the file cannot be written.
    """
    part = path.with_name(f".{path.name}.{secrets.token_hex(4)}.part")
    try:
        if make_folder:
            path.parent.mkdir(parents=True, exist_ok=True)
        yield part
        if durable and not part.is_symlink():
            _sync(part)
        os.replace(part, path)
        if durable:
            _sync(path.parent)
    except OSError as problem:
        raise error(f"{path}: cannot be written ({problem.strerror or problem})") from problem
    finally:
        with contextlib.suppress(OSError):
            part.unlink()


def check_writable(folder: Path, error: type[BatchnavError]) -> None:
    """Raise `error` where nothing can be written into a folder, or into one to be made there. Makes nothing."""
    there = next(path for path in (folder.absolute(), *folder.absolute().parents) if path.exists())
    if not there.is_dir():
        raise error(f"{folder}: found a file at {there}, expected a folder, or a place for one")
    if not os.access(there, os.W_OK | os.X_OK):
        raise error(f"{folder}: cannot be written (nothing may be made in {there})")


def remove_leftovers(path: Path) -> None:
    """Remove what killed processes left of `replacing(path)`. No other process may be writing it."""
    for part in path.parent.glob(f".{path.name}.????????.part"):
        part.unlink(missing_ok=True)


def lock_folder(folder: Path, error: type[BatchnavError]) -> IO[str]:
    """Lock a folder for this process until the file that is returned is closed, or the process ends, however it ends.

    The file, `.lock`, says whose the folder is. Raises `error` where that is another process's, or where nothing can be
    written there.
    """
    try:
        file = open(folder / ".lock", "a+", encoding="utf-8")  # noqa: SIM115
    except OSError as problem:
        raise error(f"{folder}: cannot be written ({problem.strerror or problem})") from problem
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as problem:
        owner = _owner(file)
        file.close()
        raise error(f"{folder}: found it in use by {owner}, expected a folder that no other run writes") from problem
    except OSError as problem:  # some network file systems lock nothing
        log.warning("%s: cannot be locked (%s): see to it that no other run writes there", folder, problem.strerror)
    try:
        file.truncate(0)
        since = time.strftime("%Y-%m-%d %H:%M:%S %z")
        file.write(json.dumps({"pid": os.getpid(), "host": platform.node(), "since": since}) + "\n")
        file.flush()
    except OSError as problem:
        with contextlib.suppress(OSError):
            file.close()
        raise error(f"{folder}: cannot be written ({problem.strerror or problem})") from problem
    return file


def safetensors_bytes(arrays: Mapping[str, torch.Tensor | np.ndarray], metadata: Mapping[str, str]) -> bytes:
    """A safetensors file: the same bytes for the same content (the library writes metadata in a random order)."""
    data = safetensors.torch.save({name: torch.as_tensor(array) for name, array in arrays.items()})
    end = 8 + int.from_bytes(data[:8], "little")
    header = {"__metadata__": dict(sorted(metadata.items())), **json.loads(data[8:end])}
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)  # tensors are aligned
    return len(text).to_bytes(8, "little") + text + data[end:]


def _sync(path: Path) -> None:
    """Wait until a file's content, or a folder's names, are on the disk."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    except OSError as problem:
        if problem.errno != errno.EINVAL:  # a file system that does not offer it
            raise
    finally:
        os.close(handle)


def _owner(file: IO[str]) -> str:
    """Who wrote a lock file."""
    file.seek(0)
    try:
        owner = json.load(file)
        return f"process {owner['pid']} on {owner['host']} since {owner['since']}"
    except (ValueError, KeyError, TypeError, OSError):
        return "another process"


def read_regular(path: Path, error: type[BatchnavError]) -> bytes:
    """The bytes of a regular file; `error` names any other: a pipe would wait for ever, a device never end."""
    try:
        if not stat.S_ISREG(os.stat(path).st_mode):
            raise error(f"{path}: is a folder, a pipe or a device, expected a file")
        return path.read_bytes()
    except (OSError, ValueError) as problem:
        raise error(f"{path}: cannot be read ({getattr(problem, 'strerror', None) or problem})") from problem
