"""Intrinsics, functions that only kernels may call, and overlapping launches."""

import warnings

import numba
import numpy as np
import pytest
import torch
from numba import types as nb

from batchnav.errors import DeviceError
from batchnav.runtime.kernels.arrays import view
from batchnav.runtime.kernels.decorators import cuda, cuda_kernel, inline_function, lean_function
from batchnav.runtime.kernels.intrinsics import GROUP, load1, load4, load_columns, prefetch, store1, store2, store4
from batchnav.runtime.kernels.launch import BoundKernel, launch
from batchnav.runtime.kernels.synchronization import let_successor_start, wait_for_predecessor


@pytest.mark.parametrize("decorate", [lean_function, inline_function])
def test_a_call_from_python_is_rejected(decorate):
    """Before and after a kernel has had it compiled; there is no code that Python could jump to."""

    @decorate
    def double(x):
        return x + x

    with pytest.raises(TypeError, match="double: called from Python"):
        double(2)
    assert numba.njit(lambda x: double(x))(2) == 4
    with pytest.raises(TypeError, match="double: called from Python"):
        double(2)


@numba.njit
def _moved(array, row):
    """Read four numbers, and write them one row down: together, as a pair and one by one."""
    values, below = load4(array, row, np.int32(4)), np.int32(row - 1)
    store4(array, below, np.int32(8), values)
    store2(array, below, np.int32(2), (load1(array, row, np.int32(6)), values[3]))
    store1(array, below, np.int32(5), load1(array, row, np.int32(5)))
    return values


def test_rows_beyond_two_to_the_31_elements(tmp_path):
    """The triangles of four thousand houses are as many. On disk, where what is never touched takes no room."""
    rows = 2**31 // 12 + 2
    array = np.memmap(tmp_path / "rows", np.float32, "w+", shape=(rows, 12))
    array[-1, 4:8] = 1, 2, 3, 4
    assert _moved(np.asarray(array), np.int32(rows - 1)) == (1, 2, 3, 4)
    assert array[-2].tolist() == [0, 0, 3, 4, 0, 2, 0, 0, 1, 2, 3, 4]


@numba.njit
def _columns(array, rows, whole, real):
    load_columns(array, rows, np.int32(GROUP), np.int32(4), whole)
    load_columns(array.view(np.float32), rows, np.int32(0), np.int32(0), real)


def test_rows_become_columns():
    """Of the rows asked for and no others."""
    rng = np.random.default_rng(0)
    array, rows = rng.integers(0, 2**30, (99, 8), np.int32), rng.integers(0, 99, 2 * GROUP, np.int32)
    outs = [tuple(np.zeros((4, 2 * GROUP), dtype)) for dtype in (np.int32, np.float32)]
    _columns(array, rows, *outs)
    for c in range(4):
        np.testing.assert_array_equal(outs[0][c], [0] * GROUP + array[rows[GROUP:], 4 + c].tolist())
        np.testing.assert_array_equal(outs[1][c][:GROUP], array.view(np.float32)[rows[:GROUP], c])
        assert not outs[1][c][GROUP:].any()


@numba.njit
def _prefetched(array, row):
    prefetch(array, row, np.int32(4))
    return array[0, 4]


def test_prefetching_beyond_the_array_is_harmless():
    array = np.arange(16, dtype=np.float32).reshape(2, 8)
    assert [_prefetched(array, np.int32(row)) for row in (0, 1, 2, 2**24)] == [4] * 4
    assert "llvm.prefetch" in "".join(_prefetched.inspect_llvm().values())


def _shift(source, target):
    """Each number taken from the neighbour that the kernel before wrote in another block."""
    wait_for_predecessor()
    let_successor_start()  # at once: the most overlap that there can be
    i = cuda.grid(1)
    if i < len(target):
        target[i] = source[(i + 1000) % len(source)] + 1


@pytest.mark.parametrize("capability, there", [((9, 0), True), ((8, 0), False)])
def test_overlap_is_used_from_capability_nine(compile_ptx, capability, there):
    ptx = compile_ptx(_shift, nb.int64[::1], nb.int64[::1], capability=capability)
    assert ("griddepcontrol.wait" in ptx) == ("griddepcontrol.launch_dependents" in ptx) == there
    assert "nvvm_reflect" not in ptx


@pytest.mark.cuda
def test_overlapping_kernels_read_the_writes_of_the_predecessor():
    """A thousand launches, each of which needs all of the last one; with torch's kernels before and behind."""
    numbers = torch.arange(1_000_003, device="cuda")
    a, b = numbers.clone(), torch.empty_like(numbers)
    kernel = cuda_kernel(_shift)
    forth, back = (BoundKernel(kernel, len(a), view(x), view(y), overlap=True) for x, y in ((a, b), (b, a)))
    for _ in range(500):
        forth()
        back()
    assert torch.equal(a.clone(), numbers.roll(-1000 * 1000) + 1000)


@pytest.mark.cuda
def test_kernels_run_on_the_device_of_their_arrays():
    """Not on the current device, which stays as it is."""
    if torch.cuda.device_count() < 2:
        pytest.skip("one GPU")

    @cuda_kernel
    def count(target):
        i = cuda.grid(1)
        if i < len(target):
            target[i] += 1 + i

    for there, here in ((0, 1), (1, 0)):
        numbers, streams = torch.zeros(1000, device=f"cuda:{there}"), [torch.cuda.Stream(k) for k in range(2)]
        with torch.cuda.device(here):
            bound = BoundKernel(count, len(numbers), view(numbers))
            launch(count, len(numbers), view(numbers))
            for _ in range(500):
                bound()
                numbers.mul_(0.5)  # by torch, on its stream of the tensor's device
            assert torch.cuda.current_device() == here
            first = numbers.clone()
            streams[there].wait_stream(torch.cuda.current_stream(there))
            with torch.cuda.stream(streams[there]), torch.cuda.device(here):
                numbers.zero_()
                for _ in range(499):
                    bound()
                    numbers.mul_(0.5)
            streams[there].synchronize()
        expected = torch.arange(1.0, 1001.0)
        assert torch.equal(first.cpu(), expected) and torch.equal(numbers.cpu(), expected)


@pytest.mark.cuda
def test_small_launches_do_not_warn():
    numbers = torch.arange(100, device="cuda")
    target = torch.empty_like(numbers)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        launch(cuda_kernel(_shift), len(numbers), view(numbers), view(target))
    assert torch.equal(target, numbers.roll(-1000) + 1)


@pytest.mark.cuda
def test_a_failed_launch_raises():
    numbers = view(torch.zeros(4096, dtype=torch.int64, device="cuda"))
    with pytest.raises(DeviceError, match="found CUDA_ERROR_INVALID_VALUE, expected CUDA_SUCCESS"):
        BoundKernel(cuda_kernel(_shift), 4096, numbers, numbers, block=2048)()


@pytest.mark.cuda
def test_arguments_of_every_kind_reach_the_kernel():
    """And those that were changed: a number, and an array's address."""

    @cuda_kernel
    def fill(flag, whole, real, target):
        target[cuda.grid(1)] = real * whole if flag else real

    first, second = torch.zeros(2, 64, device="cuda")
    kernel = BoundKernel(fill, 64, True, -3, np.float32(0.5), view(first), block=64)
    kernel()
    kernel.change(1, 2**40)
    kernel.change(3, second.data_ptr())
    kernel()
    assert (first == -1.5).all() and (second == 2.0**39).all()
