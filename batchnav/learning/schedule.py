"""Learning rate as a function of a run's progress, 0 at the start and 1 at the end."""

from __future__ import annotations

import math

WARM_UP = 0.01
"""Fraction of the run in which the learning rate rises."""

WARM_UP_FROM = 0.5
"""Initial learning rate as a fraction of the full rate."""

FINAL = 0.01
"""Final learning rate as a fraction of the base rate, without the scale of `learning_rate_scale`."""

REFERENCE_FRAMES = 256
"""Minibatch size, in frames, that the base rate is for."""


def learning_rate_scale(minibatch_frames: int) -> float:
    """Factor sqrt(frames / 256), at least 1: the square-root rule for large batches (Krizhevsky 2014)."""
    return max(math.sqrt(minibatch_frames / REFERENCE_FRAMES), 1.0)


def learning_rate(progress: float, base: float, minibatch_frames: int) -> float:
    """Learning rate: linear warm-up from half the scaled rate, then a cosine to FINAL * base.

    Args:
        progress: finished fraction of the run, 0 to 1.
        base: base rate, for minibatches of REFERENCE_FRAMES.
        minibatch_frames: minibatch size, frames of all processes.
    """
    full, final = base * learning_rate_scale(minibatch_frames), FINAL * base
    progress = min(max(progress, 0.0), 1.0)
    if progress < WARM_UP:
        return full * (WARM_UP_FROM + (1.0 - WARM_UP_FROM) * progress / WARM_UP)
    fallen = 0.5 * (1.0 - math.cos(math.pi * (progress - WARM_UP) / (1.0 - WARM_UP)))
    return full + (final - full) * fallen
