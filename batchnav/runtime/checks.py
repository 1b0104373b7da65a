"""Checks of arguments; each error states what was found and what was expected."""

from __future__ import annotations

import numbers
from collections.abc import Sequence
from typing import Any, NoReturn, SupportsIndex

import numpy as np

from batchnav.errors import ArgumentError, shortened

MAX_SEED = 2**63 - 1
"""Largest seed: kernels take seeds as int64."""


def check_int(name: str, value: Any, low: int, high: int) -> int:
    """A Python or NumPy integer from `low` to `high`, as an int. ArgumentError for anything else."""
    if not isinstance(value, numbers.Integral) or isinstance(value, bool) or not low <= int(value) <= high:
        raise ArgumentError(f"{name}: found {shortened(value)}, expected an integer from {low} to {high}")
    return int(value)


def check_seed(seed: Any) -> int:
    """A seed: an integer from 0 to `MAX_SEED`. ArgumentError for anything else."""
    return check_int("seed", seed, 0, MAX_SEED)


Seeds = int | Sequence[int | None] | None
"""Argument `seed` of a vector environment's `reset`: Gymnasium also takes a seed per environment."""


def common_seed(seed: Any, num_envs: int) -> int | None:
    """The one seed of all environments; None to continue their random numbers.

    Args:
        seed: None, a seed, or `num_envs` of them as Gymnasium's vector environments take them: all None, or
            consecutive ones, which Gymnasium makes of one seed. ArgumentError for anything else: environments have one
            seed, and random numbers of their own by their index.
        num_envs: number of environments.
    """
    seed = seed.tolist() if isinstance(seed, np.ndarray) else seed
    if not isinstance(seed, (list, tuple)):
        return None if seed is None else check_seed(seed)
    seeds = [None if each is None else check_seed(each) for each in seed]
    first = seeds[0] if seeds else None
    if seeds != ([None] * num_envs if first is None else list(range(first, first + num_envs))):
        raise ArgumentError(
            f"seed: found {shortened(seeds)}, expected one integer, or {num_envs} consecutive ones; environments "
            f"share a seed and differ by their index"
        )
    return first


def check_number(name: str, value: Any, low: float, high: float) -> float:
    """A Python or NumPy number from `low` to `high`, as a float. ArgumentError for anything else."""
    numeric = isinstance(value, (int, float, np.integer, np.floating)) and not isinstance(value, bool)
    if not numeric or not low <= value <= high:
        raise ArgumentError(f"{name}: found {shortened(value)}, expected a number from {low:g} to {high:g}")
    return float(value)


def check_kind(name: str, value: Any, kind: type) -> None:
    """ArgumentError where an argument is not an instance of `kind`."""
    if not isinstance(value, kind):
        raise ArgumentError(f"{name}: found {type(value).__name__}, expected a {kind.__name__}")


def refuse_copies(self: Any, protocol: SupportsIndex) -> NoReturn:
    """`__reduce_ex__` of classes that cannot be copied or pickled; raises ArgumentError.

    Kernels hold views of their tensors; in a copy these views would not refer to the copied tensors.
    """
    name = type(self).__name__
    raise ArgumentError(f"{name}: cannot be copied or pickled, since kernels hold its memory; create a new one")


def check_open(env: Any) -> None:
    """ArgumentError where a `gymnasium.vector.VectorEnv` is closed."""
    if env.closed:
        raise ArgumentError(f"{type(env).__name__}: found a closed environment, expected an open one")
