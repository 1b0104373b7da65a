"""Checks of what calls are given, and when: each error names what was found and what was expected."""

from __future__ import annotations

import numbers
from typing import Any

from batchnav.errors import ArgumentError

MAX_SEED = 2**63 - 1
"""Kernels take seeds as int64."""


def check_int(name: str, value: Any, low: int, high: int) -> int:
    """A whole number from `low` to `high`, Python's or NumPy's, as an int; ArgumentError for anything else."""
    if not isinstance(value, numbers.Integral) or isinstance(value, bool) or not low <= int(value) <= high:
        raise ArgumentError(f"{name}: found {value!r}, expected an integer from {low} to {high}")
    return int(value)


def check_seed(seed: Any) -> int:
    """A seed, a whole number from 0 to `MAX_SEED`; ArgumentError for anything else."""
    return check_int("seed", seed, 0, MAX_SEED)


def check_open(env: Any) -> None:
    """ArgumentError where a `gymnasium.vector.VectorEnv` is closed."""
    if env.closed:
        raise ArgumentError(f"{type(env).__name__}: found a closed environment, expected an open one")
