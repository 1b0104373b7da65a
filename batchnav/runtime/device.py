"""Which device is used, and how."""

from __future__ import annotations

import importlib.util
import os
import platform
from pathlib import Path

import torch

from batchnav.errors import ArgumentError, DeviceError
from batchnav.runtime.console.announce import number_of
from batchnav.runtime.kernels.decorators import cuda


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
        if importlib.util.find_spec("numba_cuda") is None:
            raise DeviceError(
                f"device {str(device)!r}: found no numba-cuda to compile kernels for it, expected it: pip install "
                f"'batchnav[cuda]', or --device cpu"
            )
        if device.index is None:
            device = torch.device("cuda", torch.cuda.current_device())
        if device.index >= torch.cuda.device_count():
            raise DeviceError(f"device {str(device)!r} was asked for, but there are {torch.cuda.device_count()}")
        if device.index != torch.cuda.current_device():
            torch.cuda.set_device(device)
        cuda.select_device(device.index)
        return device
    return torch.device("cpu")  # without a number, as tensors have it


def check_memory(name: str, num_bytes: int, device: torch.device) -> None:
    """ArgumentError where `name` asks for more bytes than the device has in all.

    To be called before they are allocated: Linux promises more than there is, and then ends the process.
    """
    if device.type == "cuda":
        most = torch.cuda.get_device_properties(device).total_memory
    else:
        most = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    if num_bytes > most:
        found, expected = f"{num_bytes / 1e9:,.1f} GB in all", f"less than the {most / 1e9:,.1f} GB of {device}"
        raise ArgumentError(f"{name}: found {found}, expected {expected}")


def make_deterministic() -> None:
    """Let torch use only operations that give the same bits twice, where it has them. Before anything runs on CUDA."""
    os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")  # cuBLAS else picks workspaces, and sums, by timing
    # Warnings, not errors: a cumulative sum over a few actions is refused by name, though each row has one thread.
    torch.use_deterministic_algorithms(True, warn_only=True)


def machine(device: str | torch.device) -> str:
    """The GPU's name, or "CPU: model, N cores" for the cores that this process may use."""
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
