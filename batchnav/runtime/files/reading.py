"""Reading files that others may have made. All readers of the package open files here.

Only regular files are opened: a pipe may block for ever, a device may never end. A file's header never decides how much
memory is allocated, and errors of the operating system and of libraries become errors of the caller's class.
"""

from __future__ import annotations

import contextlib
import io
import math
import os
import stat
import tokenize
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

from batchnav.errors import BatchnavError

if TYPE_CHECKING:
    import numpy as np

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


def read_text(path: str | Path, error: type[BatchnavError], most: int | None = None) -> str:
    """Text of a regular UTF-8 file. Raises `error` otherwise; arguments as in `read_regular`."""
    try:
        return read_regular(path, error, most).decode("utf-8")
    except UnicodeDecodeError as problem:
        raise error(f"{path}: byte {problem.start} is not UTF-8, expected UTF-8 text") from problem


def read_array(path: str | Path, error: type[BatchnavError]) -> np.ndarray:
    """The array of a `.npy` file of versions 1 and 2, without Python objects. Raises `error` otherwise."""
    import numpy as np  # not at the top: configurations are read without it

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
