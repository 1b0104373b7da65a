"""Random choices that are equal on every machine and NumPy version: all derive from PCG64's uniform doubles."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

import numpy as np

from batchnav.errors import ArgumentError

T = TypeVar("T")

LARGEST_SEED = 2**64 - 1
"""Largest seed of a scene."""


class RandomStream:
    """A stream of random numbers from one seed.

    It uses NumPy's `random()` alone, which is stable between NumPy versions; `choice` and `normal` are not.
    """

    def __init__(self, seed: int | Sequence[int]) -> None:
        self._generator = np.random.Generator(np.random.PCG64(seed))

    def uniform(self, low: float, high: float) -> float:
        """A float in [low, high)."""
        return low + (high - low) * float(self._generator.random())

    def array(self, low: float, high: float, *shape: int) -> np.ndarray:
        """Floats in [low, high), f64 of `shape`."""
        return low + (high - low) * self._generator.random(shape)

    def integer(self, low: int, high: int) -> int:
        """An integer in [low, high], both ends included."""
        return low + int(float(self._generator.random()) * (high - low + 1))

    def chance(self, probability: float) -> bool:
        """True with the given probability, else False."""
        return float(self._generator.random()) < probability

    def pick(self, items: Sequence[T]) -> T:
        """One of `items`."""
        return items[self.integer(0, len(items) - 1)]

    def shuffled(self, items: Sequence[T]) -> list[T]:
        """`items` in random order."""
        keys = self._generator.random(len(items))
        return [items[i] for i in np.argsort(keys, kind="stable")]


def seeded_stream(seed: int) -> RandomStream:
    """The random stream of a scene's seed. ArgumentError for a seed that is not an integer from 0 to LARGEST_SEED."""
    if isinstance(seed, bool) or not isinstance(seed, (int, np.integer)) or not 0 <= seed <= LARGEST_SEED:
        raise ArgumentError(f"seed: found {seed!r}, expected an integer from 0 to {LARGEST_SEED}")
    return RandomStream(int(seed))
