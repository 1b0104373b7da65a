"""Kernels from a function for one item: a loop over all items on the CPU, a grid of threads on CUDA, and their launch.

    @kernel(block=64)
    def move(i, nav, speed, scratch, row, position_out): ...

    step = move.bind(num_agents, nav, speed, scratch, position, rows=chunks)    # prepares the arguments once
    step()

CUDA kernels run on the device of their arrays, which need not be torch's current device, on torch's current stream of
that device. `launch` starts one that is written by hand and prepares the arguments at each call; `BoundKernel` prepares
them once.

The two forms of a function are made from text, since numba's parallel loops neither take `*args` that hold NamedTuples
nor keep all writes to fields of NamedTuples in their own body. A form's arguments are the items (their number, or a
queue of them), on the CPU the number of scratch rows, then the function's arguments without those of the loop.
"""

from __future__ import annotations

import ast
import ctypes
import functools
import inspect
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import numba
import numpy as np
import torch
from numba import prange, types

from batchnav.errors import DeviceError
from batchnav.runtime.kernels.arrays import view
from batchnav.runtime.kernels.decorators import cuda, cuda_kernel, exact_cuda_kernel, inline_function, lean_kernel
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


def has_device_arrays(args: tuple) -> bool | None:
    """True if the first array among the arguments and their fields is on a CUDA device; None without an array."""
    for argument in args:
        if isinstance(argument, np.ndarray):
            return False
        if isinstance(argument, tuple):
            if (found := has_device_arrays(argument)) is not None:
                return found
        elif hasattr(argument, "gpu_data"):
            return True
    return None


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


CPU_LOOPS = {
    "items": """
    for k in prange(items):
        one({index}(k), {rest})""",
    "items in rows": """
    for chunk in prange(rows):
        row = np.int64(chunk)
        for i in range(row * items // rows, (row + 1) * items // rows):
            one({index}(i), {rest})""",
    "queue": """
    for k in prange(items.count[0]):
        i = np.int64(items.agents[k])
        if i >= 0:
            one({index}(i), {rest})""",
    "queue in rows": """
    number = np.int64(items.count[0])
    for chunk in prange(rows):
        row = np.int64(chunk)
        for k in range(row * number // rows, (row + 1) * number // rows):
            i = np.int64(items.agents[k])
            if i >= 0:
                one({index}(i), {rest})""",
    "teams": """
    for k in prange(items.count[0]):
        i = np.int64(items.agents[k])
        if i >= 0:
            one(0, 1, {index}(i), {rest})""",
    "teams in rows": """
    number = np.int64(items.count[0])
    for chunk in prange(rows):
        row = np.int64(chunk)
        for k in range(row * number // rows, (row + 1) * number // rows):
            i = np.int64(items.agents[k])
            if i >= 0:
                one(0, 1, {index}(i), {rest})""",
    "pixels": """
    for task in prange(items * height):
        image, y = {index}(np.int64(task) // height), {index}(np.int64(task) % height)
        for x in range(width):
            one(image, y, {index}(x), {rest})""",
    "blocks": """
    for k in prange(items):
        one(0, 1, {index}(k), {rest})""",
}
"""Loops of the CPU. `prange` counts in unsigned integers, for which every callee would be compiled again: hence the
casts. Chunks of items share the scratch rows."""
CUDA_LOOPS = {
    "items": """
    row = cuda.grid(1)
    if row < items:
        one({index}(row), {rest})""",
    "strided": """
    row = cuda.grid(1)
    if row < rows:
        for i in range(row, items, rows):
            one({index}(i), {rest})""",
    "queue": """
    row = cuda.grid(1)
    for k in range(row, items.count[0], cuda.gridsize(1)):
        one({index}(items.agents[k]), {rest})""",
    "teams": """
    row = cuda.grid(1)
    for k in range(row // {lanes}, items.count[0], cuda.gridsize(1) // {lanes}):
        one(row % {lanes}, {lanes}, {index}(items.agents[k]), {rest})""",
    "pixels": """
    pixel = np.int32(cuda.blockIdx.y * cuda.blockDim.x + cuda.threadIdx.x)
    if pixel < np.int32(height) * np.int32(width):
        y, x = {index}(pixel // np.int32(width)), {index}(pixel % np.int32(width))
        one({index}(cuda.blockIdx.x), y, x, {rest})""",
    "blocks": """
    one(cuda.threadIdx.x, cuda.blockDim.x, {index}(cuda.blockIdx.x), {rest})""",
}
"""Grids of CUDA: a thread an item, a thread for several items, neighbouring threads an item, a thread a pixel (a row of
blocks an image), a block an item."""
GIVEN = {"items": 1, "queue": 1, "teams": 3, "pixels": 3, "blocks": 3}
"""Number of the function's first arguments that the loop provides."""


class Kernel:
    """A function for one item in its forms for all items. `cpu` and `cuda` are numba's kernels.

    `items` below is the number of items, or a queue: a NamedTuple with the fields `agents`, i32 [N], and `count`, i32
    [1]; negative entries are skipped on the CPU. Arrays among `args` are results of `view`, of one device.
    """

    def __init__(self, cpu: Any, cuda: Any, over: str, in_rows: bool, strided: bool, block: int):
        self.cpu, self.cuda, self.block = cpu, cuda, block
        self.over, self.strided, self._in_rows = over, strided, in_rows

    def __call__(self, items: Any, *args: Any, rows: int = 1, threads: int = 0) -> None:
        """Run it once. `rows` and `threads`: as in `bind`."""
        if not has_device_arrays(args):
            self.cpu(*self._header(items), *((rows,) if self._in_rows else ()), *args)
        elif grid := self._grid(items, rows, threads):
            launch(self.cuda, grid, *self._on_cuda(items, rows), *args, block=self.block)

    def bind(
        self, items: Any, *args: Any, rows: int = 1, threads: int = 0, live: tuple[int, ...] = ()
    ) -> Callable[..., None]:
        """A function that runs it; all other arguments are prepared once.

        Args:
            items: number of items or a queue.
            *args: the function's arguments without those that the loop provides.
            rows: rows of scratch memory, among which the items are divided: on the CPU, and on CUDA if `strided`.
            threads: CUDA: number of threads for a queue; 0: one an item.
            live: indices of `args` that change between calls: tensors that the returned function takes, in this order,
                with shape, strides and dtype of the ones given here.
        """
        if not has_device_arrays(args):
            given = self._on_cpu(items, rows, args)
            if not live:
                return partial(self.cpu, *given)
            at = [len(given) - len(args) + k for k in live]
            return lambda *tensors: self.cpu(*_replaced(given, at, map(view, tensors)))
        header = self._on_cuda(items, rows)
        bound = BoundKernel(self.cuda, self._grid(items, rows, threads), *header, *args, block=self.block)
        places = [len(header) + k for k in live]

        def run(*tensors: torch.Tensor) -> None:
            for place, tensor in zip(places, tensors, strict=True):
                bound.change(place, tensor.data_ptr())
            bound()

        return run if live else bound

    def _on_cpu(self, items: Any, rows: int, args: tuple) -> list[Any]:
        """Arguments of the CPU form."""
        return [*self._header(items), *((rows,) if self._in_rows else ()), *args]

    def _on_cuda(self, items: Any, rows: int) -> tuple[Any, ...]:
        """First arguments of the CUDA form."""
        return (items, rows) if self.strided else self._header(items)

    def _header(self, items: Any) -> tuple[Any, ...]:
        return items if self.over == "pixels" else (items,)

    def _grid(self, items: Any, rows: int, threads: int) -> int | tuple[int, int, int]:
        """Number of threads or grid of blocks on CUDA; 0 for no work."""
        if self.over == "pixels":
            number, height, width = items
            return number and (number, -(-height * width // self.block), 1)
        if self.over == "blocks":
            return items * self.block
        if self.strided:
            return rows
        return threads or (len(items.agents) if self.over in ("queue", "teams") else items)


def _replaced(given: list, places: list[int], values: Any) -> list:
    for place, value in zip(places, values, strict=True):
        given[place] = value
    return given


def kernel(
    *, over: str = "items", lanes: int = 1, strided: bool = False, block: int = 128, index: str = "np.int64",
    fastmath: bool = False, max_registers: int | None = None, lto: bool | None = None,
    cuda_form: Callable | None = None,
) -> Callable[[Any], Kernel]:  # fmt: skip
    """Decorator that makes a `Kernel` of the function for one item.

    The function's first arguments are provided by the loop: the item's number; for "pixels" image, row and column; for
    "teams" and "blocks" lane, number of lanes, item. If it has an argument `row`, that is its row of the scratch
    memory: on CUDA the thread, else the item's chunk.

    Args:
        over: "items"; "queue": those in a queue; "teams": those in a queue, each with `lanes` threads on CUDA, which
            meet in `synchronization.first_lane` and `sync_team`; "pixels" of images, with `items` (images, height,
            width); "blocks": the threads of a block share an item on CUDA.
        lanes: CUDA: threads of a team, a power of two up to 32.
        strided: CUDA: there are as many threads as scratch rows, and a thread takes several items.
        block: CUDA: threads per block.
        index: type of the first arguments.
        fastmath: CUDA: approximate square roots and divisions, and fused operations. Otherwise they are IEEE's, so that
            equal path lengths compare equal as on the CPU.
        max_registers: as in `cuda_kernel`.
        lto: as in `cuda_kernel`.
        cuda_form: the CUDA kernel, if it is written by hand; its arguments are those that the decorator would make.
    """

    def decorate(function: Any) -> Kernel:
        one = function if hasattr(function, "_compile_for_args") else inline_function(function)
        plain = getattr(function, "py_func", function)
        names = list(inspect.signature(plain).parameters)[GIVEN[over] :]
        in_rows = "row" in names and over != "pixels"
        own, rest = [name for name in names if name != "row" or not in_rows], ", ".join(names)
        header = ["items", "height", "width"] if over == "pixels" else ["items"]
        cpu_loop = CPU_LOOPS[f"{over} in rows" if in_rows else over].format(index=index, rest=rest)
        cpu = _made(plain, "cpu", [*header, *(["rows"] if in_rows else []), *own], cpu_loop, one)
        if cuda_form is None:
            cuda_loop = CUDA_LOOPS["strided" if strided else over].format(index=index, rest=rest, lanes=lanes)
            on_cuda = _made(plain, "cuda", [*header, *(["rows"] if strided else []), *own], cuda_loop, one)
            options = {"max_registers": max_registers, "lto": lto}
            made = cuda_kernel(on_cuda, **options) if fastmath else exact_cuda_kernel(on_cuda)
        else:
            made = cuda_form
        return Kernel(lean_kernel(cpu), made, over, in_rows, strided, block)

    return decorate


def _made(function: Any, form: str, arguments: list[str], loop: str, one: Any) -> Any:
    """A form of a function for one item, as Python: in its module and file, which numba's caches read.

    Every line counts as the function's first, so that tracebacks and numba's errors name it.
    """
    name = f"{function.__name__.strip('_')}_{form}"
    tree = ast.parse(f"def {name}({', '.join(arguments)}):{loop}\n")
    node: Any
    for node in ast.walk(tree):
        if hasattr(node, "lineno"):
            node.lineno = node.end_lineno = function.__code__.co_firstlineno
    scope = {"__name__": function.__module__, "one": one, "np": np, "prange": prange, "cuda": cuda}
    exec(compile(tree, function.__code__.co_filename, "exec"), scope)
    made: Any = scope[name]
    made.__doc__ = f"`{function.__name__}` of every item."
    return made
