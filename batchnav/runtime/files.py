"""Files: reading those that others may have made, names inside mesh files, atomic writes and folder locks.

All readers of the package open files here. Only regular files are opened: a pipe may block for ever, a device may never
end. A file's header never decides how much memory is allocated, and errors of the operating system and of libraries
become errors of the caller's class.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import functools
import glob
import hashlib
import io
import json
import logging
import math
import os
import platform
import secrets
import stat
import time
import tokenize
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, BinaryIO

import numpy as np

from batchnav.errors import ArgumentError, BatchnavError, MeshError, shortened

if TYPE_CHECKING:
    import torch

LIBRARY_ERRORS = (
    ValueError, TypeError, KeyError, IndexError, AttributeError, RuntimeError, ArithmeticError, SyntaxError, EOFError,
    OSError, MemoryError, tokenize.TokenError,
)  # fmt: skip
"""Errors that libraries raise for damaged files; RuntimeError includes RecursionError and NotImplementedError."""
_MAX_HEADER = 10_000
"""Longest header of a `.npy` file, bytes; NumPy has the same bound."""


def open_regular(path: str | Path, error: type[BatchnavError]) -> BinaryIO:
    """A regular file, open for reading. Raises `error` for a folder, a pipe, a device, and where opening fails."""
    try:
        # Without O_NONBLOCK, opening a pipe waits for a writer.
        handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        if stat.S_ISREG(os.fstat(handle).st_mode):
            return os.fdopen(handle, "rb")
    except (OSError, ValueError) as problem:
        raise error(f"{path}: cannot be read ({getattr(problem, 'strerror', None) or problem})") from problem
    os.close(handle)
    raise error(f"{path}: is a folder, a pipe or a device, expected a file")


def read_regular(path: str | Path, error: type[BatchnavError], most: int | None = None) -> bytes:
    """Content of a regular file of at most `most` bytes. Raises `error` otherwise (`open_regular`)."""
    with open_regular(path, error) as file:
        try:
            data = file.read() if most is None else file.read(most + 1)
        except (OSError, MemoryError) as problem:
            raise error(f"{path}: cannot be read ({getattr(problem, 'strerror', None) or problem})") from problem
    if most is not None and len(data) > most:
        raise error(f"{path}: is too large, expected {most:,} bytes at most")
    return data


def content_hash(folder: Path, files: Iterable[Path]) -> str:
    """SHA-256, hex digits, of the names in the folder and the content of its files. MeshError where one is not read.

    Files are read again where their size or time of change differs.
    """
    states = [(file, file.stat()) for file in files]
    return _hash_of(folder, tuple((file, state.st_size, state.st_mtime_ns) for file, state in states))


@functools.lru_cache(maxsize=32)
def _hash_of(folder: Path, states: tuple[tuple[Path, int, int], ...]) -> str:
    digest = hashlib.sha256()
    for file, _, _ in states:
        digest.update(f"{file.relative_to(folder).as_posix()}\0".encode())
        digest.update(hashlib.sha256(read_regular(file, MeshError)).digest())
    return digest.hexdigest()


def read_text(path: str | Path, error: type[BatchnavError], most: int | None = None) -> str:
    """Text of a regular UTF-8 file. Raises `error` otherwise; arguments as in `read_regular`."""
    try:
        return read_regular(path, error, most).decode("utf-8")
    except UnicodeDecodeError as problem:
        raise error(f"{path}: byte {problem.start} is not UTF-8, expected UTF-8 text") from problem


def read_array(path: str | Path, error: type[BatchnavError]) -> np.ndarray:
    """The array of a `.npy` file of versions 1 and 2, without Python objects. Raises `error` otherwise."""
    data = read_regular(path, error)
    try:
        file = io.BytesIO(data)
        version = np.lib.format.read_magic(file)
        read_header: Any = {(1, 0): np.lib.format.read_array_header_1_0, (2, 0): np.lib.format.read_array_header_2_0}
        if version not in read_header:
            raise ValueError(f"found version {version}, expected (1, 0) or (2, 0)")
        shape, is_fortran, dtype = read_header[version](file, max_header_size=_MAX_HEADER)
        size = math.prod(shape) * dtype.itemsize
        if dtype.hasobject or min(shape, default=0) < 0 or size != len(data) - file.tell():
            raise ValueError(f"its header states {dtype} {list(shape)}, {len(data) - file.tell()} bytes follow")
        values = np.frombuffer(data, dtype, math.prod(shape), file.tell()).copy()
        return values.reshape(shape, order="F" if is_fortran else "C")
    except LIBRARY_ERRORS as problem:
        raise error(f"{path}: cannot be read as a .npy file ({_line(problem)})") from problem


@contextlib.contextmanager
def open_tensors(path: str | Path, error: type[BatchnavError]) -> Iterator[Any]:
    """A regular safetensors file, mapped into memory, as a context manager like `safetensors.safe_open` for torch.

    Raises `error` for other kinds of files. `tensor_errors` lists what opening and reading a damaged file raise.
    """
    import safetensors  # not at the top: configurations are read without it

    with open_regular(path, error) as file:
        name = os.fspath(path)
        if not name.isprintable():  # safetensors refuses names that are not UTF-8
            name = f"/dev/fd/{file.fileno()}"
        with safetensors.safe_open(name, framework="pt") as tensors:
            yield tensors


def tensor_errors() -> tuple[type[Exception], ...]:
    """Errors that reading a damaged safetensors file raises."""
    import safetensors

    return (safetensors.SafetensorError, *LIBRARY_ERRORS)


def _line(problem: Exception) -> str:
    """An error's message as one short line, or the error's name where it has none."""
    return " ".join(str(problem).split())[:200] or type(problem).__name__


# Files that a mesh file names: textures, buffers and material libraries.
#
# A name is relative to the mesh file's folder. It may lead upwards (`../textures/red.png`) within the mesh file's data
# root, which is the first of
#
# - the folder with `snapshots` and `blobs`, of a content-addressed cache (Hugging Face Hub);
# - the folder `scene_datasets`;
# - the folder above the mesh file's folder.
#
# A name without `..` may be a symbolic link to any file: whoever placed the link chose the file. A name with `..` must
# lead to a file in the root, links included, so that a file from a stranger cannot name files elsewhere.

_SNAPSHOTS, _BLOBS, _DATASETS = "snapshots", "blobs", "scene_datasets"


def data_root(path: Path) -> Path:
    """The folder that names in a mesh file may not leave."""
    folder = Path(os.path.abspath(path)).parent
    for parent in folder.parents:
        if (parent / _BLOBS).is_dir() and (parent / _SNAPSHOTS) in (folder, *folder.parents):
            return parent
    within = next((parent for parent in (folder, *folder.parents) if parent.name == _DATASETS), None)
    return within or folder.parent


def read_named_file(path: Path, name: str, error: type[BatchnavError]) -> bytes:
    """Content of the file that a mesh file names. Raises `error` for a file outside the data root."""
    if "\0" in name:
        raise error("is not a file name (it contains a null character)")
    try:
        folder = Path(os.path.abspath(path)).parent
        if "\\" in name and not os.path.exists(folder / name):
            name = name.replace("\\", "/")
        file, root = Path(os.path.normpath(folder / name)), data_root(path)
        climbs = ".." in Path(name).parts
        outside = os.path.isabs(name) or not file.is_relative_to(root if climbs else folder)
        if not outside and climbs:
            outside = not file.resolve().is_relative_to(root.resolve())
    except (ValueError, OSError, RuntimeError) as problem:
        raise error(f"is not a file name ({problem})") from problem
    if outside:
        raise error(
            f"lies outside the mesh file's data root, found {name[:60]!r}, expected a relative path to a file in {root}"
        )
    return read_regular(file, error)


# Atomic writes and folder locks

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
