"""Devices: choice, memory, determinism, Triton and torch.compile, and construction under PyTorch's own defaults."""

from __future__ import annotations

import contextlib
import functools
import getpass
import importlib
import importlib.util
import os
import platform
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import TypeVar

import torch

from batchnav.errors import ArgumentError, DeviceError
from batchnav.runtime.cache import cache_folder, private_folder
from batchnav.runtime.console import number_of
from batchnav.runtime.imports import install_command
from batchnav.runtime.kernels.decorators import cuda


def resolve_device(device: str | torch.device) -> torch.device:
    """The torch device, with an index if it is a GPU, made current for torch and numba.

    "auto" is CUDA where available, else the CPU. DeviceError for another type and for a GPU that cannot be used.
    """
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
            raise DeviceError(f"device {str(device)!r}: found no CUDA device, expected one; use device='cpu'")
        if importlib.util.find_spec("numba_cuda") is None:
            raise DeviceError(
                f"device {str(device)!r}: found no numba-cuda, which compiles kernels for it; "
                f"{install_command('cuda')}, or use device='cpu'"
            )
        if device.index is None:
            device = torch.device("cuda", torch.cuda.current_device())
        if device.index >= torch.cuda.device_count():
            raise DeviceError(
                f"device {str(device)!r}: found {torch.cuda.device_count()} CUDA devices, expected a lower index"
            )
        if device.index != torch.cuda.current_device():
            torch.cuda.set_device(device)
        cuda.select_device(device.index)
        return device
    return torch.device("cpu")  # without an index, as in `tensor.device`


def wait_for(device: torch.device) -> None:
    """Wait until the work on a GPU has ended; no effect on the CPU."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def check_memory(name: str, num_bytes: int, device: torch.device) -> None:
    """ArgumentError where `num_bytes` exceeds the device's total memory.

    Call it before an allocation: Linux overcommits memory and kills the process later.
    """
    if device.type == "cuda":
        most = torch.cuda.get_device_properties(device).total_memory
    else:
        most = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    if num_bytes > most:
        found, expected = f"{num_bytes / 1e9:,.1f} GB in all", f"less than the {most / 1e9:,.1f} GB of {device}"
        raise ArgumentError(f"{name}: found {found}, expected {expected}")


def make_deterministic() -> None:
    """Select deterministic operations wherever torch has them. Call it before any CUDA operation."""
    # Without it cuBLAS may select workspaces, and so the order of sums, by timing.
    os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
    # Warnings, not errors: torch rejects `cumsum`, though over a few actions it is deterministic (one thread per row).
    torch.use_deterministic_algorithms(True, warn_only=True)


def machine(device: str | torch.device) -> str:
    """Name of the GPU, or "CPU: model, N cores" with the cores available to this process."""
    if torch.device(device).type == "cuda":
        return torch.cuda.get_device_name(device)
    model = platform.processor() or platform.machine()
    info = Path("/proc/cpuinfo")
    if info.is_file():
        names = [
            line.split(":", 1)[1].strip() for line in info.read_text().splitlines() if line.startswith("model name")
        ]
        model = names[0] if names else model
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    return f"CPU: {model}, {number_of(cores or 1, 'core')}"


# Check whether a device, the installation and Triton's version support this package's Triton kernels

CAPABILITY = 8, 0
"""Lowest compute capability with bfloat16 matrix products."""
OLDEST = 3, 5
"""Lowest Triton version, included in torch 2.9: the first whose products may have fewer than 16 rows."""


def has_triton(device: torch.device) -> bool:
    """True where a device is a GPU with bfloat16 products and Triton can compile for it.

    A module calls this when it moves to a device, and stores the result, since compiled code cannot call it.
    """
    return device.type == "cuda" and _triton_is_installed() and torch.cuda.get_device_capability(device) >= CAPABILITY


@functools.cache
def _triton_is_installed() -> bool:
    """True where a recent Triton is installed, and the C compiler that it needs for its first kernel."""
    compiler = os.environ.get("CC") or shutil.which("gcc") or shutil.which("clang")
    return compiler is not None and importlib.util.find_spec("triton") is not None and _triton_version() >= OLDEST


def _triton_version() -> tuple[int, ...]:
    """Major and minor version of Triton."""
    return tuple(map(int, importlib.import_module("triton").__version__.split(".")[:2]))


# Construction that does not depend on the caller's settings of PyTorch.
#
# A program may call `torch.set_default_dtype` or `torch.set_default_device`, or run under `torch.inference_mode`:
#
# * Tensors of this package name their dtype and device.
# * Networks are made under `torch_defaults`.
# * Constructors of everything that keeps tensors switch inference mode off (`@torch.inference_mode(False)`).


@contextlib.contextmanager
def torch_defaults(device: str | torch.device = "cpu") -> Iterator[None]:
    """Context, or decorator, in which modules are made in float32, on `device`, with inference mode off."""
    saved = torch.get_default_dtype()
    torch.set_default_dtype(torch.float32)
    try:
        with torch.inference_mode(False), torch.device(device):
            yield
    finally:
        torch.set_default_dtype(saved)


# The one place that switches torch.compile on

Part = TypeVar("Part")
CACHE, TRITON_CACHE = "TORCHINDUCTOR_CACHE_DIR", "TRITON_CACHE_DIR"
"""Environment variables with the folders of PyTorch and of Triton for compiled code."""


def compiled(part: Part) -> Part:
    """A function, or a module in place, run through torch.compile for static shapes."""
    _choose_cache()
    if isinstance(part, torch.nn.Module):
        part.compile(dynamic=False)
        return part
    return torch.compile(part, dynamic=False)  # type: ignore[call-overload]


def _choose_cache() -> None:
    """Name the folders of compiled code where the user has not.

    PyTorch's is ours where the user has no name: PyTorch 2.6 needs one for its own choice. Triton's is the same before
    and after PyTorch's compiler names another: kernels would be compiled a second time.
    """
    if CACHE not in os.environ:
        try:
            getpass.getuser()
        except (KeyError, OSError, ImportError):  # no variable such as USER, no entry in the passwd file
            os.environ[CACHE] = str(private_folder(private_folder(cache_folder()) / "torch"))
    named = os.environ.get(CACHE)
    triton = f"{named}/triton" if named else os.path.expanduser(f"{os.environ.get('TRITON_HOME', '~')}/.triton/cache")
    os.environ.setdefault(TRITON_CACHE, triton)
