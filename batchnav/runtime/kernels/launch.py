"""Launching CUDA kernels on the device of their arrays, which need not be torch's current device.

Kernels run on torch's current stream of that device. `launch` prepares the arguments at each call; `BoundKernel`
prepares them once.
"""

from __future__ import annotations

import ctypes
import functools
from collections.abc import Iterator
from typing import Any

import numba
import numpy as np
import torch
from numba import types

from batchnav.errors import DeviceError
from batchnav.runtime.kernels.decorators import cuda
from batchnav.runtime.kernels.synchronization import OVERLAP_CAPABILITY


def launch(kernel, size: int | tuple[int, int, int], *args: Any, block: int = 128) -> None:
    """Launch a CUDA kernel with `size` threads, or a 3-D grid of blocks; `args` are results of `view` or scalars."""
    grid = size if isinstance(size, tuple) else -(-size // block)
    if grid:
        with torch.cuda.device(_device_of(args)):
            stream = _stream(torch.cuda.current_stream().cuda_stream)
            _configured(kernel, grid, block, stream)(*args)


def _configured(kernel, *configuration: Any):
    """`kernel[configuration]` without numba's warning about few blocks: small launches are intended."""
    settings: Any = numba.config
    saved, settings.CUDA_LOW_OCCUPANCY_WARNINGS = settings.CUDA_LOW_OCCUPANCY_WARNINGS, 0
    try:
        return kernel[configuration]
    finally:
        settings.CUDA_LOW_OCCUPANCY_WARNINGS = saved


class BoundKernel:
    """A CUDA kernel with prepared arguments, for loops where host time matters.

    numba prepares all arguments at each launch: 12 us, plus about 4 us per array. A BoundKernel prepares them once; a
    call passes the list to the driver. The arrays must not be reallocated; `change` replaces an argument.
    """

    def __init__(self, kernel, size: int | tuple[int, int, int], *args: Any, block: int = 128, overlap: bool = False):
        """Prepare a launch.

        Args:
            kernel: a `cuda_kernel`.
            size: number of threads, or a 3-D grid of blocks (second and third dimension at most 65,535).
            *args: results of `view` or scalars.
            block: threads per block.
            overlap: set up the first blocks while the preceding kernel ends (programmatic dependent launch, compute
                capability 9.0 and later). The kernel must call `wait_for_predecessor` before it accesses memory.
        """
        from cuda.bindings import driver  # part of the extra "cuda", which CPU installations lack

        self._device = _device_of(args)
        with torch.cuda.device(self._device):
            compiled = kernel.compile(tuple(kernel.typeof_pyval(argument) for argument in args))
            function = driver.CUfunction(int(compiled._codelibrary.get_cufunc().handle))
        values: list[Any] = []
        keep: list[Any] = []
        self._place: dict[int, int] = {}
        for index, (kind, argument) in enumerate(zip(compiled.argument_types, args, strict=True)):
            if isinstance(kind, (types.Array, types.Integer)):
                # numba's words of an array: owner (2), length, item size, address, shape, strides
                self._place[index] = len(values) + (4 if isinstance(kind, types.Array) else 0)
            compiled._prepare_args(kind, argument, 0, keep, values)
        # Integers or ctypes scalars. The driver reads each at its address, with the declared number of bytes.
        integers = (int, np.integer, np.bool_)
        words = [bytes(ctypes.c_int64(int(v)) if isinstance(v, integers) else v).ljust(8, b"\0") for v in values]
        self._words = np.frombuffer(b"".join(words), np.int64).copy()
        self._addresses = self._words.ctypes.data + 8 * np.arange(len(words))
        self._keep = args, compiled  # keeps arrays and code alive

        self._config = driver.CUlaunchConfig()
        self._config.gridDimX, self._config.gridDimY, self._config.gridDimZ = (
            size if isinstance(size, tuple) else (-(-size // block), 1, 1)
        )
        self._config.blockDimX, self._config.blockDimY, self._config.blockDimZ = block, 1, 1
        if overlap and torch.cuda.get_device_capability(self._device) >= OVERLAP_CAPABILITY:
            attribute = driver.CUlaunchAttribute()
            attribute.id = driver.CUlaunchAttributeID.CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION
            attribute.value.programmaticStreamSerializationAllowed = 1
            self._config.attrs, self._config.numAttrs = [attribute], 1
        self._stream: int | None = None
        self._launch = functools.partial(
            driver.cuLaunchKernelEx, self._config, function, self._addresses.ctypes.data, 0
        )

    def change(self, index: int, value: int) -> None:
        """Replace an argument by another integer, or by another address of an array (same shape, strides and dtype).

        KeyError where argument `index` is neither an integer nor an array.
        """
        self._words[self._place[index]] = value

    def __call__(self) -> None:
        """Launch the kernel."""
        stream = torch.cuda.current_stream(self._device).cuda_stream
        if stream != self._stream:
            self._config.hStream = self._stream = stream
        if torch.cuda.current_device() == self._device:
            (result,) = self._launch()
        else:
            with torch.cuda.device(self._device):
                (result,) = self._launch()
        if result:
            raise DeviceError(f"kernel launch: found {result.name}, expected CUDA_SUCCESS")


def has_device_arrays(args: tuple) -> bool:
    """True if an argument or a field of one is an array on a CUDA device."""
    return next(_arrays(args), None) is not None


def _device_of(args: tuple) -> int:
    """Index of the CUDA device that holds the arrays, read from the first array."""
    return next(_arrays(args)).gpu_data.context.device.id


def _arrays(args: tuple) -> Iterator[Any]:
    """Device arrays among the arguments and their fields."""
    for argument in args:
        if isinstance(argument, tuple):
            yield from _arrays(argument)
        elif hasattr(argument, "gpu_data"):
            yield argument


@functools.lru_cache(maxsize=64)
def _stream(handle: int):
    """numba stream of a torch stream; handle 0 is the legacy default stream."""
    return cuda.external_stream(handle) if handle else cuda.default_stream()
