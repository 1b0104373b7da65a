"""Actuation noise of steps and turns: PyRobot's models of robot motion, which habitat-sim's noisy actions use.

The end of every motion deviates from its target by three independent normal variables: along the motion, across it, and
in heading. Murali et al., "PyRobot: An Open-source Robotics Framework for Research and Benchmarking" (2019), measured
their means and variances on two robots with three controllers. The variables are truncated at 3 standard deviations,
and so that noise takes back at most 95% of a motion. A multiplier then scales the sampled variables, including their
means.
"""

from __future__ import annotations

import numpy as np
from scipy.special import ndtr

from batchnav.runtime.kernels.decorators import lean_function
from batchnav.runtime.kernels.rng import ACTUATION, normal_quantile, step_uniforms
from batchnav.sim.episodes import agent_number

MEANS_AND_VARIANCES: dict[tuple[str, str], tuple[tuple[float, ...], tuple[float, ...]]] = {
    ("LoCoBot", "ILQR"): ((0.014, 0.006, 0.009, 0.005, 0.008, 0.004), (0.003, 0.002, 0.003, 0.003, 0.023, 0.012)),
    ("LoCoBot", "Proportional"): (
        (0.017, 0.007, 0.042, 0.023, 0.031, 0.026), (0.001, 0.001, 0.005, 0.004, 0.043, 0.017)
    ),
    ("LoCoBot", "Movebase"): ((0.074, 0.019, 0.036, 0.033, 0.189, 0.038), (0.002, 0.0, 0.003, 0.002, 0.219, 0.019)),
    ("LoCoBot-Lite", "ILQR"): ((0.142, 0.008, 0.023, 0.008, 0.031, 0.028), (0.002, 0.001, 0.002, 0.002, 0.122, 0.03)),
    ("LoCoBot-Lite", "Proportional"): (
        (0.135, 0.007, 0.043, 0.009, 0.049, 0.009), (0.002, 0.002, 0.002, 0.001, 0.054, 0.061)
    ),
    ("LoCoBot-Lite", "Movebase"): (
        (0.192, 0.055, 0.117, 0.144, 0.128, 0.143), (0.002, 0.001, 0.001, 0.001, 0.173, 0.025)
    ),
}  # fmt: skip
"""Noise by robot and controller, of forward steps and of turns. Six numbers each: mean and variance along the motion
(m, m^2), to the right (m, m^2), and of the heading to the left (rad, rad^2)."""
CUT_OFF = 3.0
"""Truncation of the normal variables, standard deviations."""
MAX_REDUCTION = 0.95
"""Maximum fraction of a motion that the noise takes back, before the multiplier."""
MOVE, TURN = range(2)
_MEAN, _DEVIATION, _LOWEST, _SPAN = range(4)


def motions_of(robot: str, controller: str, multiplier: float, step: float, turn: float) -> np.ndarray:
    """Noise parameters that kernels read, f32 [2, 3, 4], for steps of `step` metres and turns of `turn` radians.

    First axis: MOVE, TURN. Second: along, to the right, in heading. Third: mean and standard deviation, both times the
    multiplier; cumulative probability of the lowest value; probability between the lowest and the highest value.
    """
    parts = np.array(MEANS_AND_VARIANCES[robot, controller]).reshape(2, 3, 2)
    mean, deviation = parts[..., 0], np.sqrt(parts[..., 1])
    lowest = np.full((2, 3), -CUT_OFF)
    for motion, part, asked in ((MOVE, 0, step), (TURN, 2, turn)):
        bound = (-MAX_REDUCTION * asked - mean[motion, part]) / deviation[motion, part]
        lowest[motion, part] = max(-CUT_OFF, bound)
    span = ndtr(CUT_OFF) - ndtr(lowest)
    return np.stack([multiplier * mean, multiplier * deviation, ndtr(lowest), span], axis=-1).astype(np.float32)


@lean_function
def motion_noise(i, motion, bodies, body):
    """Noise of this step's MOVE or TURN: metres along the motion and to the right, radians to the left."""
    agent = agent_number(i, body)
    u, v, w, _ = step_uniforms(body.seed[0], agent, bodies.episode[i], bodies.steps[i], ACTUATION, 0)
    return _part(motion, 0, u, body), _part(motion, 1, v, body), _part(motion, 2, w, body)


@lean_function
def _part(motion, part, u, body):
    """One of the three noise variables, from a uniform random number u in (0, 1)."""
    m = body.motions
    p = m[motion, part, _LOWEST] + u * m[motion, part, _SPAN]
    return m[motion, part, _MEAN] + m[motion, part, _DEVIATION] * normal_quantile(p)
