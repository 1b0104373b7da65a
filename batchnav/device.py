"""The one place that imports numba's CUDA, decorates kernels, and turns torch tensors into what kernels read.

Three decorators, one source:

* `device_function`: the work for one item; callable from both forms below, never compiled with a fixed signature.
* `cpu_kernel`: a `prange` loop over items. Its machine code is kept on disk, in a folder named after a hash of the
  sources it is made of, since numba's own cache does not notice an edit in another file.
* `cuda_kernel`: the same loop as a CUDA grid; `launch` starts it on torch's current stream.
"""

from __future__ import annotations

import ctypes
import functools
import hashlib
import os
import re
import shutil
import types as types_module
from pathlib import Path
from typing import Any

import numba
import numpy as np
import torch
from cuda.bindings import driver
from numba import cuda, types

from batchnav.errors import ArgumentError, DeviceError
from batchnav.intrinsics import OVERLAP_CAPABILITY

KEPT_VERSIONS = 4
"""What a module made is kept for this many versions of its sources; the least recently used go first."""


def _called_by_kernels(**options):
    """Decorator of functions that only compiled code calls.

    They do without the code that takes arguments out of Python's objects, which for NamedTuples of arrays is a third
    of the time to compile.
    """
    options |= {"error_model": "numpy", "_nrt": False, "no_cpython_wrapper": True, "no_cfunc_wrapper": True}

    def decorate(function):
        def refuse(*args, **kwargs):
            raise TypeError(f"{function.__name__}: called from Python, expected a call from a compiled function")

        dispatcher = numba.njit(**options)(function)
        # Without these two a call from Python would jump to the code that is not there.
        dispatcher._insert = lambda *entry, **kwargs: None
        dispatcher._compile_for_args = refuse
        return dispatcher

    return decorate


device_function = numba.njit(error_model="numpy")
lean_function = _called_by_kernels()
"""A `device_function` without reference counting, for those that take NamedTuples of arrays: a call would count every
array's references (measured on the CPU: searches 2 to 3 times slower). May not allocate, nor be called from Python."""
inline_function = _called_by_kernels(forceinline=True)
"""A `lean_function` whose code goes into its caller. For those that take NamedTuples and are called once per item, or
more: a real call hands every array over as seven words (measured on the CPU: with the counting, 10 times slower)."""
exact_function = _called_by_kernels(forceinline=True, fastmath=False)
"""An `inline_function` that gives the same bits in every kernel. Without `fastmath` a function takes that of its first
caller, so whether a product and a sum become one instruction depends on what a process happened to compile first."""


def cache_folder() -> Path:
    """Where compiled kernels, houses and baked navmeshes are kept: $BATCHNAV_CACHE, else the user's cache folder."""
    default = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "batchnav"
    return Path(os.environ.get("BATCHNAV_CACHE") or default)


@functools.cache
def _sources(module: str) -> frozenset[Path]:
    """The package's source files that a module is made of: its own and those it imports, and so on."""
    package = Path(__file__).parent
    stem = package.joinpath(*module.split(".")[1:])
    own = stem / "__init__.py" if stem.is_dir() else stem.with_suffix(".py")
    found, todo = set(), [own]
    while todo:
        source = todo.pop()
        if source in found or not source.is_file():
            continue
        found.add(source)
        for name in _IMPORTED.findall(source.read_text(encoding="utf-8")):
            # `from batchnav.a.b import c`: c may be a module of its own
            first, _, rest = name.partition(" import ")
            base = package.joinpath(*first.split(".")[1:])
            parts = [base / part.strip("() \n").split(" as ")[0] for part in rest.split(",")]
            todo += [path.with_suffix(".py") for path in (base, *parts)] + [base / "__init__.py"]
    return frozenset(found)


_IMPORTED = re.compile(r"^(?:from|import) (batchnav[\w.]*(?: import (?:\([^)]*\)|[^\n]*))?)", re.MULTILINE)


@functools.cache
def made_by(kind: str, module: str) -> Path:
    """Folder in the cache for what a module makes with exactly its sources; those of older versions are pruned."""
    digest = hashlib.sha256(f"{numba.__version__} {np.__version__}".encode())
    for source in sorted(_sources(module)):
        digest.update(source.name.encode() + b"\0" + source.read_bytes())
    folder = cache_folder() / kind / f"{module}-{digest.hexdigest()[:16]}"
    folder.mkdir(parents=True, exist_ok=True)
    os.utime(folder)
    by_use = sorted(folder.parent.glob(f"{module}-*"), key=lambda f: f.stat().st_mtime, reverse=True)
    for old in by_use[KEPT_VERSIONS:]:
        shutil.rmtree(old, ignore_errors=True)
    return folder


def _with_kernel_folder(decorate, function):
    """Decorate while numba's cache points at our folder: numba reads the setting once, when it decorates."""
    saved, numba.config.CACHE_DIR = numba.config.CACHE_DIR, str(made_by("kernels", function.__module__))
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


def exact_cuda_kernel(function):
    """A `cuda_kernel` with IEEE roots and divisions, so that equal paths compare equal as they do on the CPU."""
    return cuda.jit(function)


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


def make_deterministic() -> None:
    """Let torch use only operations that give the same bits twice, where it has them. Before anything runs on CUDA."""
    os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")  # cuBLAS else picks workspaces, and sums, by timing
    # Warnings, not errors: a cumulative sum over a few actions is refused by name, though each row has one thread.
    torch.use_deterministic_algorithms(True, warn_only=True)


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


class BoundKernel:
    """A CUDA kernel with its arguments laid out once, for loops where the host's time counts.

    numba sorts out every argument at every launch: 12 us, and about 4 us more per array. Here that is done once, and a
    call only hands the finished list to the driver. The arrays must stay where they are; `change` swaps an argument.
    """

    def __init__(self, kernel, size: int | tuple[int, int, int], *args: Any, block: int = 128, overlap: bool = False):
        """`size`: threads, or a 3-D grid of blocks (the last two at most 65,535); `args` as `view` returns them.

        `overlap`: the GPU sets up the first blocks while the kernel before comes to its end, where it can (compute
        capability 9.0 and later; "programmatic dependent launch"). Such a kernel must call `wait_for_predecessor`
        before it touches memory.
        """
        compiled = kernel.compile(tuple(kernel.typeof_pyval(argument) for argument in args))
        values, self._place, keep = [], {}, []
        for index, (kind, argument) in enumerate(zip(compiled.argument_types, args, strict=True)):
            if isinstance(kind, (types.Array, types.Integer)):
                # an array's address comes after numba's owner (2 words), length and item size
                self._place[index] = len(values) + (4 if isinstance(kind, types.Array) else 0)
            compiled._prepare_args(kind, argument, 0, keep, values)
        # Integers or ctypes scalars. The driver finds each by its address, and takes as many bytes as declared.
        integers = (int, np.integer, np.bool_)
        words = [bytes(ctypes.c_int64(int(v)) if isinstance(v, integers) else v).ljust(8, b"\0") for v in values]
        self._words = np.frombuffer(b"".join(words), np.int64).copy()
        self._addresses = self._words.ctypes.data + 8 * np.arange(len(words))
        self._keep = args, compiled  # the arrays, and the code

        self._config = driver.CUlaunchConfig()
        self._config.gridDimX, self._config.gridDimY, self._config.gridDimZ = (
            size if isinstance(size, tuple) else (-(-size // block), 1, 1)
        )
        self._config.blockDimX, self._config.blockDimY, self._config.blockDimZ = block, 1, 1
        if overlap and torch.cuda.get_device_capability() >= OVERLAP_CAPABILITY:
            attribute = driver.CUlaunchAttribute()
            attribute.id = driver.CUlaunchAttributeID.CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION
            attribute.value.programmaticStreamSerializationAllowed = 1
            self._config.attrs, self._config.numAttrs = [attribute], 1
        self._stream = None
        function = driver.CUfunction(int(compiled._codelibrary.get_cufunc().handle))
        self._launch = functools.partial(
            driver.cuLaunchKernelEx, self._config, function, self._addresses.ctypes.data, 0
        )

    def change(self, index: int, value: int) -> None:
        """Give an argument another value: an integer, or an array's new address (shape, strides and type stay).

        KeyError where argument `index` is of another kind.
        """
        self._words[self._place[index]] = value

    def __call__(self) -> None:
        """Launch on torch's current stream."""
        stream = torch.cuda.current_stream().cuda_stream
        if stream != self._stream:
            self._config.hStream = self._stream = stream
        (result,) = self._launch()
        if result:
            raise DeviceError(f"a kernel's launch: found {result.name}, expected CUDA_SUCCESS")


def host_flag(device: torch.device) -> tuple[np.ndarray, Any]:
    """One int32 that a kernel may set and the host reads without waiting: the host's view and the kernel's.

    On CUDA it lies in pinned host memory, which the device reaches at the same address.
    """
    if device.type == "cpu":
        flag = np.zeros(1, np.int32)
        return flag, flag
    flag = torch.zeros(1, dtype=torch.int32, pin_memory=True)
    interface = {"shape": (1,), "typestr": "<i4", "data": (flag.data_ptr(), False), "version": 3}
    owner = types_module.SimpleNamespace(__cuda_array_interface__=interface, tensor=flag)
    return flag.numpy(), cuda.as_cuda_array(owner, sync=False)


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
    fits = value.shape == shape or (  # the first is quick, which counts where a step takes microseconds
        value.ndim == len(shape) and all(e is None or e == s for e, s in zip(shape, value.shape, strict=True))
    )
    if not fits or value.dtype != dtype or value.device.type != device.type:
        raise ArgumentError(
            f"{name}: found {value.dtype} {list(value.shape)} on {value.device}, "
            f"expected {dtype} {['*' if s is None else s for s in shape]} on {device}"
        )
