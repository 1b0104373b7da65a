"""Disk cache of CUDA kernels, which compile to cubins without a GPU."""

import fcntl
import logging
import threading
import time
import types

import numba
import numpy as np
import pytest
import torch
from numba import types as nb

from batchnav.runtime.kernels import compile_lock, cubins
from batchnav.runtime.kernels.decorators import cuda, device_function, exact_cuda_kernel

pytestmark = pytest.mark.skipif(numba.config.DISABLE_JIT, reason="nothing is compiled")
ARGUMENTS = (nb.float32[::1], nb.float32[::1])


@device_function
def _twice(x):
    return x * np.float32(2)


def _double(source, target_out):
    i = cuda.grid(1)
    if i < len(target_out):
        target_out[i] = _twice(source[i])


@pytest.fixture
def capability(monkeypatch, tmp_path):
    """Of a device that is not there, to be changed; the cache is an empty folder."""
    from numba.cuda import codegen, dispatcher

    device = types.SimpleNamespace(compute_capability=(9, 0))
    monkeypatch.setattr(dispatcher, "get_current_device", lambda: device)
    monkeypatch.setattr(codegen.CUDACodeLibrary, "_ensure_cc", lambda _, cc: cc or (*device.compute_capability, ""))
    monkeypatch.setattr(codegen.JITCUDACodegen, "magic_tuple", lambda _: ((13, 0), device.compute_capability))
    monkeypatch.setattr(dispatcher._Kernel, "bind", lambda kernel: kernel.library.get_cubin())
    monkeypatch.setattr(cubins, "versioned_cache_folder", lambda kind, module: tmp_path)
    return device


def compiled(arguments=ARGUMENTS, function=_double, **options):
    """A kernel of a process that begins: its code, and whether it had to be compiled."""
    kernel = cuda.jit(function, **options)
    kernel._cache = cubins.CubinCache(kernel)
    code = kernel.compile(arguments).library.get_cubin().code
    return code, bool(kernel._cache_misses)


def test_cached_kernels_are_not_compiled_again(capability, tmp_path):
    code, compiles = compiled()
    assert compiles and b"_double" in code
    assert compiled() == (code, False)
    assert [path.suffix for path in tmp_path.iterdir()] == [".cubin"]


def test_another_type_option_capability_or_compiler_is_another_kernel(capability, tmp_path, monkeypatch):
    compiled()
    assert compiled((nb.float64[::1], nb.float64[::1]))[1]
    assert compiled(fastmath=True)[1]
    capability.compute_capability = (8, 0)
    assert compiled()[1]
    monkeypatch.setattr(cubins, "_versions", lambda: "others")
    assert compiled()[1]
    assert len(list(tmp_path.iterdir())) == 5


@pytest.mark.parametrize(
    "damage", [lambda kept: b"", lambda kept: kept[:-9], lambda kept: kept[:99] + kept[:1] + kept[100:]]
)
def test_a_damaged_file_is_replaced(capability, tmp_path, damage):
    compiled()
    (path,) = tmp_path.iterdir()
    path.write_bytes(damage(path.read_bytes()))
    code, compiles = compiled()
    assert compiles and compiled() == (code, False)
    assert list(tmp_path.iterdir()) == [path]


def test_a_kernel_that_cannot_be_cached_runs(capability, tmp_path, caplog):
    tmp_path.rmdir()
    with caplog.at_level(logging.WARNING):
        assert compiled()[1]
    assert "cannot be written" in caplog.text and not tmp_path.exists()


@pytest.mark.cuda
def test_a_cached_kernel_runs(tmp_path, monkeypatch):
    monkeypatch.setattr(cubins, "versioned_cache_folder", lambda kind, module: tmp_path)
    source = torch.arange(1000, dtype=torch.float32, device="cuda")
    for misses in (1, 0):
        kernel = cuda.jit(_double)
        kernel._cache = cubins.CubinCache(kernel)
        target = torch.zeros_like(source)
        kernel[8, 128](cuda.as_cuda_array(source), cuda.as_cuda_array(target))
        assert torch.equal(target, 2 * source) and sum(kernel._cache_misses.values()) == misses


def test_processes_compile_in_turn_and_name_the_kernel(capability, tmp_path, monkeypatch):
    lines: list[str] = []
    monkeypatch.setattr(compile_lock, "announce", lines.append)
    monkeypatch.setattr(compile_lock, "SECONDS", 0.0)
    monkeypatch.setattr(compile_lock, "versioned_cache_folder", lambda kind, module: tmp_path)
    monkeypatch.setattr(_double, "__module__", "batchnav.part")  # only kernels of the package are cached
    counted, kernels = compile_lock.compilations.count, [exact_cuda_kernel(_double) for _ in range(2)]
    with open(tmp_path / "_double.lock", "w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        thread = threading.Thread(target=kernels[0].compile, args=(ARGUMENTS,))
        thread.start()
        while thread.is_alive() and not lines:
            time.sleep(0.01)
        assert lines == ["waiting for another process to compile part._double"]
    thread.join(timeout=60)
    assert lines[-1].startswith("compiled part._double in "), lines
    kernels[1].compile(ARGUMENTS)
    assert [bool(kernel._cache_misses) for kernel in kernels] == [True, False]
    assert compile_lock.compilations.count == counted + 1
