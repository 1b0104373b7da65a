"""The one place that imports numba's CUDA, decorates kernels, and turns torch tensors into what kernels read.

Three decorators, one source:

* `device_function`: the work for one item; callable from both forms below, never compiled with a fixed signature.
* `cpu_kernel`: a `prange` loop over items. Its machine code is kept on disk, in a folder named after a hash of the
  package's sources, since numba's own cache does not notice an edit in another file.
* `cuda_kernel`: the same loop as a CUDA grid; `launch` starts it on torch's current stream.
"""

from __future__ import annotations

import functools
import hashlib
import os
import shutil
from pathlib import Path
from typing import Any

import numba
import numpy as np
import torch
from llvmlite import ir
from numba import cuda, types
from numba.core import cgutils
from numba.extending import intrinsic

from batchnav.errors import ArgumentError, DeviceError

KEPT_KERNEL_FOLDERS = 4
"""Compiled kernels are kept for this many versions of the sources; the least recently used go first."""

device_function = numba.njit(error_model="numpy")


def cache_folder() -> Path:
    """Where compiled kernels and baked navmeshes are kept: $BATCHNAV_CACHE, else the user's cache folder."""
    default = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "batchnav"
    return Path(os.environ.get("BATCHNAV_CACHE") or default)


@functools.cache
def _kernel_folder() -> str:
    """Folder of compiled kernels for exactly these sources; older versions' folders are pruned."""
    digest = hashlib.sha256(f"{numba.__version__} {np.__version__}".encode())
    package = Path(__file__).parent
    for source in sorted(package.rglob("*.py")):
        digest.update(str(source.relative_to(package)).encode() + b"\0" + source.read_bytes())
    kernels = cache_folder() / "kernels"
    folder = kernels / digest.hexdigest()[:16]
    folder.mkdir(parents=True, exist_ok=True)
    os.utime(folder)
    by_use = sorted((f for f in kernels.iterdir() if f.is_dir()), key=lambda f: f.stat().st_mtime, reverse=True)
    for old in by_use[KEPT_KERNEL_FOLDERS:]:
        shutil.rmtree(old, ignore_errors=True)
    return str(folder)


def _with_kernel_folder(decorate, function):
    """Decorate while numba's cache points at our folder: numba reads the setting once, when it decorates."""
    saved, numba.config.CACHE_DIR = numba.config.CACHE_DIR, _kernel_folder()
    try:
        return decorate(function)
    finally:
        numba.config.CACHE_DIR = saved


def cpu_kernel(function):
    """Compile a function with `prange` loops for all CPU threads; cached on disk."""
    decorate = numba.njit(error_model="numpy", parallel=True, cache=True, fastmath={"contract"})
    return _with_kernel_folder(decorate, function)


def cpu_function(function):
    """Compile a serial function for the CPU (tree building, baking); cached on disk."""
    return _with_kernel_folder(numba.njit(error_model="numpy", cache=True), function)


def cuda_kernel(function):
    """Compile a function as a CUDA kernel, at its first launch. Start it with `launch`."""
    return cuda.jit(fastmath=True)(function)


def resolve_device(device: str | torch.device) -> torch.device:
    """A usable torch device ("auto" takes CUDA where it is); DeviceError where it is not there."""
    if str(device) == "auto":
        device = "cuda" if torch.cuda.is_available() else "cpu"
    try:
        device = torch.device(device)
    except (RuntimeError, TypeError) as error:
        raise DeviceError(f"device: found {device!r}, expected 'cpu', 'cuda' or 'cuda:INDEX'") from error
    if device.type not in ("cpu", "cuda"):
        raise DeviceError(f"device: found {str(device)!r}, expected 'cpu' or 'cuda'")
    if device.type == "cuda":
        if not torch.cuda.is_available():
            raise DeviceError(f"device {str(device)!r} was asked for, but torch sees no CUDA device")
        if device.index is None:
            device = torch.device("cuda", torch.cuda.current_device())
        if device.index >= torch.cuda.device_count():
            raise DeviceError(f"device {str(device)!r} was asked for, but there are {torch.cuda.device_count()}")
        if device.index != torch.cuda.current_device():
            torch.cuda.set_device(device)
        cuda.select_device(device.index)
    return device


def view(value: Any) -> Any:
    """A torch tensor, or a NamedTuple of them, as the arrays that kernels take. Do it once: it is slow on CUDA.

    Memory is shared. CPU tensors become NumPy arrays, CUDA tensors numba device arrays; other values pass through.
    """
    if isinstance(value, torch.Tensor):
        return value.numpy() if value.device.type == "cpu" else cuda.as_cuda_array(value, sync=False)
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return type(value)(*(view(field) for field in value))
    return value


def to_device(value: Any, device: torch.device) -> Any:
    """NumPy arrays, or a NamedTuple of them, as torch tensors on the device; other values pass through."""
    if isinstance(value, np.ndarray):
        return torch.from_numpy(np.ascontiguousarray(value)).to(device)
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return type(value)(*(to_device(field, device) for field in value))
    return value


def launch(kernel, num_threads: int, *args: Any, block: int = 128) -> None:
    """Start a CUDA kernel of `num_threads` threads on torch's current stream; `args` as `view` returns them."""
    if num_threads > 0:
        kernel[-(-num_threads // block), block, _stream(torch.cuda.current_stream().cuda_stream)](*args)


@functools.lru_cache(maxsize=64)
def _stream(handle: int):
    """The numba stream of a torch stream. Handle 0 is the legacy default stream, which numba names so."""
    return cuda.external_stream(handle) if handle else cuda.default_stream()


def num_threads() -> int:
    """CPU threads that `cpu_kernel` loops use."""
    return numba.get_num_threads()


def check_tensor(name: str, value: Any, shape: tuple, dtype: torch.dtype, device: torch.device) -> None:
    """ArgumentError where a tensor is not of this shape, type and device. A None in `shape` takes any size."""
    if not isinstance(value, torch.Tensor):
        raise ArgumentError(f"{name}: found {type(value).__name__}, expected a torch tensor")
    fits = value.ndim == len(shape) and all(e is None or e == s for e, s in zip(shape, value.shape, strict=True))
    if not fits or value.dtype != dtype or value.device.type != device.type:
        raise ArgumentError(
            f"{name}: found {value.dtype} {list(value.shape)} on {value.device}, "
            f"expected {dtype} {['*' if s is None else s for s in shape]} on {device}"
        )


@intrinsic
def load4(typingctx, array, row, column):
    """Four neighbouring elements of a C-ordered 2-D array, in one 16-byte load.

    The row length and `column` must be multiples of four, the array 16-byte aligned (torch and NumPy allocate so).
    On the GPU this decides the speed of tree traversal (`ld.global.v4`, measured 2.4 times the scalar loads).
    """
    if not (isinstance(array, types.Array) and array.ndim == 2 and array.layout == "C"):
        return None
    signature = types.UniTuple(array.dtype, 4)(array, types.int32, types.int32)

    def codegen(context, builder, signature, args):
        array_type = signature.args[0]
        struct = context.make_array(array_type)(context, builder, args[0])
        row_length = cgutils.unpack_tuple(builder, struct.shape, 2)[1]
        wide = row_length.type
        index = builder.add(builder.mul(builder.sext(args[1], wide), row_length), builder.sext(args[2], wide))
        element = context.get_data_type(array_type.dtype)
        pointer = builder.bitcast(builder.gep(struct.data, [index]), ir.VectorType(element, 4).as_pointer())
        vector = builder.load(pointer, align=16)
        lanes = [builder.extract_element(vector, ir.Constant(ir.IntType(32), i)) for i in range(4)]
        return context.make_tuple(builder, signature.return_type, lanes)

    return signature, codegen
