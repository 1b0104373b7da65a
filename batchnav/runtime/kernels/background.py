"""Kernels that threads run in the background, beside the thread that launches the simulation."""

from __future__ import annotations

from typing import Any


def releases_lock(kernel: Any) -> Any:
    """Decorator above `cpu_kernel` and `cpu_function`: other Python threads run while the kernel does."""
    if hasattr(kernel, "targetoptions"):  # not with NUMBA_DISABLE_JIT
        kernel.targetoptions["nogil"] = True
    return kernel
