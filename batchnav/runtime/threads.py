"""Number of CPU threads that kernels use."""

from __future__ import annotations

import numba


def num_threads() -> int:
    """Number of CPU threads that a `cpu_kernel` loop uses."""
    return numba.get_num_threads()


def limit_threads(count: int) -> None:
    """Set the number of CPU threads, at least one, for the `cpu_kernel` loops that this thread starts."""
    numba.set_num_threads(max(1, count))
