"""Disturbances between simulation and robot, sampled for every episode: odometry that drifts, and late observations.

`Odometry` estimates the pose of each agent from its true motion: every motion is too long or too short by one factor in
an episode, and the estimated heading turns by one angle per metre. Sensors of the pose, goals relative to it, and the
agents' maps read the estimate. Images, collisions, reward and metrics belong to the true pose.

`Latency` keeps the observations of the last steps, and returns those of some steps ago; at the start of an episode the
first ones, as from a robot whose camera and computer take so many steps from an image to a command.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import torch

from batchnav.config import bounded, shortened
from batchnav.errors import ConfigError
from batchnav.geometry.pose import forward, sin_cos, wrapped
from batchnav.observation import Frame, Spec
from batchnav.runtime.kernels.arrays import view
from batchnav.runtime.kernels.decorators import device_function
from batchnav.runtime.kernels.launch import kernel
from batchnav.runtime.kernels.rng import DISTURBANCE, step_uniforms
from batchnav.sensors.camera import Seeds
from batchnav.types import Observation

_ZERO, _ONE, _TWO = np.float32(0.0), np.float32(1.0), np.float32(2.0)


@dataclass(frozen=True)
class DisturbanceConfig:
    """Ranges of disturbances, for training policies that tolerate them: each episode samples its own, uniformly.

    Evaluation leaves those of the training out; `batchnav evaluate` sets its own by `--env.disturbances`.
    """

    drift: tuple[float, ...] = bounded((0.0, 0.0), 0.0, 0.5)
    """Smallest and largest error of odometry's distances, as a fraction: too long or too short by episode. (0, 0):
    odometry is exact."""
    turn_drift_deg_per_m: tuple[float, ...] = bounded((0.0, 0.0), 0.0, 45.0)
    """Smallest and largest error of odometry's heading, degrees per metre travelled, to the left or to the right by
    episode."""
    latency: tuple[int, ...] = bounded((0, 0), 0, 32)
    """Smallest and largest number of steps by which observations are late."""

    def validate(self) -> None:
        """ConfigError where a range is not one."""
        for name in ("drift", "turn_drift_deg_per_m", "latency"):
            value = getattr(self, name)
            if len(value) != 2 or not value[0] <= value[1]:
                found = shortened(list(value))
                raise ConfigError(f"{name}: found {found}, expected the smallest and the largest value")

    @property
    def has_drift(self) -> bool:
        """True where odometry has errors."""
        return bool(self.drift[1] or self.turn_drift_deg_per_m[1])

    def memory(self, specs: Iterable[Spec], num_envs: int, aligned_pixels: int = 0) -> int:
        """Bytes of estimated poses and of observations that are kept.

        `aligned_pixels`: pixels of a depth image that corrects the estimate; 0: none does.
        """
        size = sum(math.prod(spec.shape) * spec.dtype.itemsize for spec in specs)
        kept = self.latency[1] + 2 if self.latency[1] else 0  # and the newest ones
        return num_envs * (kept * size + (_BYTES_OF_TRACK + 8 * aligned_pixels if self.has_drift else 0))


# Odometry


class Track(NamedTuple):
    """Estimated poses of N agents."""

    position: torch.Tensor
    """f32 [N, 3], metres; the height is the true one."""
    heading: torch.Tensor
    """f32 [N], radians."""
    turned: torch.Tensor
    """f32 [N]: estimated minus true heading, radians."""
    before: torch.Tensor
    """f32 [N, 2]: true x and z at the last estimate, metres."""
    moved: torch.Tensor
    """f32 [N]: length of the last motion by odometry, metres."""


_BYTES_OF_TRACK = 4 * (3 + 1 + 1 + 2 + 1)


class _True(NamedTuple):
    """True poses and counters of the agents."""

    position: Any
    heading: Any
    episode: Any
    steps: Any
    seed: Any
    first_agent: Any


class _Errors(NamedTuple):
    """Ranges of the errors: fractions, and radians per metre."""

    least: np.float32
    most: np.float32
    least_turn: np.float32
    most_turn: np.float32


class Odometry:
    """Estimated poses of N agents, and goals relative to them. `update` follows a step.

    Args:
        bodies: true poses, episodes and steps: live tensors of `sim.bodies.Bodies`.
        config: ranges of the errors.
        seeds: seed of the errors.
    """

    def __init__(self, bodies: Any, config: DisturbanceConfig, seeds: Seeds):
        n, device = len(bodies.heading), bodies.heading.device
        sizes = (n, 3), (n,), (n,), (n, 2), (n,)
        self.track = Track(*(torch.zeros(size, dtype=torch.float32, device=device) for size in sizes))
        self.bodies = bodies._replace(position=self.track.position, heading=self.track.heading)
        """The bodies at their estimated poses."""
        self.correction: Any = None
        """Corrects the estimates by images (`sensors.depth_odometry.DepthOdometry`), or None."""
        errors = *config.drift, *map(math.radians, config.turn_drift_deg_per_m)
        given = bodies.position, bodies.heading, bodies.episode, bodies.steps, seeds.seed, seeds.first_agent
        self.poses, self.errors = _True(*map(view, given)), _Errors(*map(np.float32, errors))
        """Arguments of the kernels."""
        self._goals: dict[int, tuple[torch.Tensor, Callable[[], None]]] = {}
        self._estimate = estimate_pose.bind(n, self.poses, self.errors, view(self.track))

    @property
    def state(self) -> dict[str, torch.Tensor]:
        """Live tensors that the next estimate depends on, by name."""
        own = {f"odometry_{name}": getattr(self.track, name) for name in ("position", "turned", "before")}
        return own if self.correction is None else own | self.correction.state

    def update(self, frame: Frame | None = None) -> None:
        """Estimate the poses after a step; no change where an agent has not moved since the last call.

        `frame`: images of the step, for a correction; None: no agent has moved.
        """
        self._estimate()
        if self.correction is not None and frame is not None:
            self.correction.correct(frame)
        for _, run in self._goals.values():
            run()

    def goal(self, goal: torch.Tensor) -> torch.Tensor:
        """Live tensor f32 [N, 2]: a goal's distance and bearing from the estimated poses.

        Args:
            goal: distance, metres, and bearing, radians, from the true poses; a live tensor. Zeros stay zeros.
        """
        if goal.data_ptr() not in self._goals:
            estimated = torch.zeros_like(goal)
            run = estimate_goal.bind(len(goal), view(goal), self.poses, view(self.track), view(estimated))
            self._goals[goal.data_ptr()] = estimated, run
            run()
        return self._goals[goal.data_ptr()][0]


@device_function
def _to_either_side(u, least, most):
    """A number between least and most, or between -most and -least, from a uniform u in (0, 1)."""
    side = _TWO * u - _ONE
    return (least if side > _ZERO else -least) + side * (most - least)


@kernel()
def estimate_pose(i, true, errors, track_out):
    """Estimate the pose of agent i from its motion since the last estimate; at the start of an episode it is exact."""
    x, z = true.position[i, 0], true.position[i, 2]
    if true.steps[i] == 0:
        track_out.position[i, 0], track_out.position[i, 2] = x, z
        track_out.turned[i], track_out.moved[i] = _ZERO, _ZERO
    else:
        agent = true.first_agent[0] + np.int64(i)
        u, v, _, _ = step_uniforms(true.seed[0], agent, true.episode[i], 0, DISTURBANCE, 0)
        scale = _ONE + _to_either_side(u, errors.least, errors.most)
        dx, dz = x - track_out.before[i, 0], z - track_out.before[i, 1]
        sine, cosine = sin_cos(track_out.turned[i])
        track_out.position[i, 0] += scale * (dx * cosine + dz * sine)
        track_out.position[i, 2] += scale * (dz * cosine - dx * sine)
        metres = np.float32(math.sqrt(dx * dx + dz * dz))
        track_out.moved[i] = scale * metres
        track_out.turned[i] += metres * _to_either_side(v, errors.least_turn, errors.most_turn)
    track_out.position[i, 1] = true.position[i, 1]
    track_out.heading[i] = true.heading[i] + track_out.turned[i]
    track_out.before[i, 0], track_out.before[i, 1] = x, z


@kernel()
def estimate_goal(i, goal, true, track, goal_out):
    """Write the distance and the bearing of a goal from the estimated pose of agent i."""
    rho, bearing = goal[i, 0], goal[i, 1]
    if rho > _ZERO:
        fx, fz = forward(true.heading[i] + bearing)
        dx = true.position[i, 0] + rho * fx - track.position[i, 0]
        dz = true.position[i, 2] + rho * fz - track.position[i, 2]
        rho = np.float32(math.sqrt(dx * dx + dz * dz))
        bearing = wrapped(np.float32(math.atan2(-dx, -dz)) - track.heading[i])
    goal_out[i, 0], goal_out[i, 1] = rho, bearing


# Latency


class Latency:
    """Observations of N agents that are late by some steps.

    Args:
        specs: specs of all observations.
        bodies: episodes and steps: live tensors of `sim.bodies.Bodies`.
        config: smallest and largest number of steps.
        seeds: seed of the numbers of steps.
    """

    def __init__(self, specs: Iterable[Spec], bodies: Any, config: DisturbanceConfig, seeds: Seeds):
        n, device, latency = len(bodies.steps), bodies.steps.device, config.latency
        self.specs, slots = {spec.name: spec for spec in specs}, latency[1] + 1
        empty = lambda rows, spec: torch.zeros(rows, *spec.shape, dtype=spec.dtype, device=device)  # noqa: E731
        self.present = {name: empty(n, spec) for name, spec in self.specs.items()}
        """The newest observations, which agents get later."""
        self._kept = {name: empty(slots * n, spec) for name, spec in self.specs.items()}
        self._rows = torch.zeros(2, n, dtype=torch.int64, device=device)
        """Rows of the newest and of the late observations."""
        given = bodies.episode, bodies.steps, seeds.seed, seeds.first_agent
        low, high = map(np.int32, latency)
        self._find_rows = find_rows.bind(n, *map(view, given), low, high, view(self._rows))

    @property
    def state(self) -> dict[str, torch.Tensor]:
        """Live tensors of the kept observations, by name."""
        return {f"late_{name}": kept for name, kept in self._kept.items()}

    @property
    def ranges(self) -> dict[str, tuple[float, float]]:
        """Lowest and highest valid values of the tensors of `state`."""
        return {f"late_{name}": (spec.low, spec.high) for name, spec in self.specs.items()}

    def write(self, write: Callable[[Observation], None], out: Observation) -> None:
        """Write the late observations.

        Args:
            write: writes the newest observations into tensors by name.
            out: tensors by name for the late ones.
        """
        newest = {name: self.present[name] for name in out if name in self.present}
        write(newest)
        self._find_rows()
        for name, values in newest.items():
            self._kept[name].index_copy_(0, self._rows[0], values)
        self._read(1, {name: out[name] for name in newest})

    def write_again(self, out: Observation) -> None:
        """Write the late observations of the last `write` again."""
        self._find_rows()
        self._read(1, out)

    def restore(self) -> None:
        """Compute `present` from the state."""
        self._find_rows()
        self._read(0, self.present)

    def _read(self, rows: int, out: Mapping[str, torch.Tensor]) -> None:
        for name, target in out.items():
            target.copy_(self._kept[name].index_select(0, self._rows[rows]))


@kernel()
def find_rows(i, episode, steps, seed, first_agent, low, high, rows_out):
    """Write the rows of agent i in the kept observations: for the newest one, and of the one that the agent gets."""
    n, now = np.int32(rows_out.shape[1]), steps[i]
    agent = first_agent[0] + np.int64(i)
    _, _, w, _ = step_uniforms(seed[0], agent, episode[i], 0, DISTURBANCE, 0)
    late = low + np.int32(w * np.float32(high - low + np.int32(1)))
    slots = high + np.int32(1)
    rows_out[0, i] = np.int64(now % slots) * n + i
    rows_out[1, i] = np.int64(max(now - late, np.int32(0)) % slots) * n + i
