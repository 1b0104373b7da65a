"""The learning rate over a run, as pure functions of progress (0 at the start, 1 at the end)."""

from __future__ import annotations

import math

WARM_UP = 0.01
"""Share of the run in which the rate rises."""

WARM_UP_FROM = 0.5
"""Share of the full rate at which it starts."""

FINAL = 0.01
"""Share of the *base* rate at which the run ends."""

REFERENCE_FRAMES = 256
"""Minibatch size at which the base rate is meant."""


def learning_rate_scale(minibatch_frames: int) -> float:
    """sqrt(frames / 256), at least 1: the square-root rule for large batches (Krizhevsky 2014)."""
    return max(math.sqrt(minibatch_frames / REFERENCE_FRAMES), 1.0)


def learning_rate(progress: float, base: float, minibatch_frames: int) -> float:
    """Linear from half the scaled rate to all of it in the first hundredth, then a cosine to a hundredth of `base`."""
    full, final = base * learning_rate_scale(minibatch_frames), FINAL * base
    progress = min(max(progress, 0.0), 1.0)
    if progress < WARM_UP:
        return full * (WARM_UP_FROM + (1.0 - WARM_UP_FROM) * progress / WARM_UP)
    fallen = 0.5 * (1.0 - math.cos(math.pi * (progress - WARM_UP) / (1.0 - WARM_UP)))
    return full + (final - full) * fallen
