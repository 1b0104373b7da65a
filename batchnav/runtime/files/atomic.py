"""Atomic file writes and folder locks; reading is in `reading.py`."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import glob
import json
import logging
import os
import platform
import secrets
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

import numpy as np

from batchnav.errors import ArgumentError, BatchnavError, shortened

if TYPE_CHECKING:
    import torch

log = logging.getLogger(__name__)


def as_path(path: Any) -> Path:
    """A caller's argument as a Path. ArgumentError where it is not a path or too long for the file system."""
    try:
        path = Path(path)
        path.lstat()
    except TypeError as error:
        raise ArgumentError(f"path: found {shortened(path)}, expected a string or a Path") from error
    except (OSError, ValueError) as error:  # other errors are reported when the file is read
        if getattr(error, "errno", None) == errno.ENAMETOOLONG:
            raise ArgumentError(f"path: found {shortened(str(path))}, expected a shorter path") from error
    return path


@contextlib.contextmanager
def replacing(path: Path, error: type[BatchnavError], make_folder: bool = True, durable: bool = True) -> Iterator[Path]:
    """Context manager: a temporary path in the same folder that replaces `path` at the end, or is removed on failure.

    A killed process leaves the temporary file (see `remove_leftovers`).

    Args:
        path: file to replace.
        error: exception class where the file cannot be written.
        make_folder: create the parent folder if needed.
        durable: flush content and name to disk, so that `path` holds the old or the new content even after a power
            failure. Off for caches with checksums, which may be damaged by a power failure.
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
    """Raise `error` where a folder could not be created, or exists and cannot be written. Creates nothing."""
    there = next(path for path in (folder.absolute(), *folder.absolute().parents) if path.exists())
    if not there.is_dir():
        raise error(f"{folder}: found a file at {there}, expected a folder or a path where one can be created")
    if not os.access(there, os.W_OK | os.X_OK):
        raise error(f"{folder}: cannot be written (no permission to write in {there})")


def check_target(path: Path, error: type[BatchnavError]) -> None:
    """Raise `error` where a file could not be created: `path` is a folder, or see `check_writable`. Creates nothing."""
    if path.is_dir():
        raise error(f"{path}: found a folder, expected a file; name one in it, such as {path / 'NAME'}")
    check_writable(path.parent, error)


def remove_leftovers(path: Path) -> None:
    """Remove the temporary files of `path` that killed processes left. No other process may be writing `path`."""
    for part in path.parent.glob(f".{glob.escape(path.name)}.????????.part"):
        part.unlink(missing_ok=True)


def lock_folder(folder: Path, error: type[BatchnavError]) -> IO[str]:
    """Lock a folder for this process until the returned file is closed or the process ends.

    The file, `.lock`, names the process. Raises `error` where another process holds the lock or the folder is not
    writable.
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
        raise error(f"{folder}: found it in use by {owner}, expected a folder that no other run uses") from problem
    except OSError as problem:  # some network file systems have no locks
        log.warning("%s: cannot be locked (%s); make sure that no other run writes to it", folder, problem.strerror)
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
    """Content of a safetensors file. Equal input gives equal bytes; the library itself orders metadata randomly."""
    import safetensors.torch  # imports PyTorch
    import torch

    tensors = {name: a if isinstance(a, torch.Tensor) else torch.from_numpy(a) for name, a in arrays.items()}
    data = safetensors.torch.save(tensors)
    end = 8 + int.from_bytes(data[:8], "little")
    header = {"__metadata__": dict(sorted(metadata.items())), **json.loads(data[8:end])}
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)  # safetensors aligns the tensors to 8 bytes
    return len(text).to_bytes(8, "little") + text + data[end:]


def _sync(path: Path) -> None:
    """Flush a file's content, or a folder's entries, to disk."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    except OSError as problem:
        if problem.errno != errno.EINVAL:  # the file system does not support it
            raise
    finally:
        os.close(handle)


def _owner(file: IO[str]) -> str:
    """The process that a lock file names."""
    file.seek(0)
    try:
        owner = json.load(file)
        return f"process {owner['pid']} on {owner['host']} since {owner['since']}"
    except (ValueError, KeyError, TypeError, OSError):
        return "another process"
