"""Bodies: pose and kinematics of every agent, velocity control and actuation noise. They do not depend on the task."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple

import numpy as np
import torch
from gymnasium import spaces
from scipy.special import ndtr

from batchnav.config import bounded, shortened
from batchnav.errors import ArgumentError, ConfigError
from batchnav.geometry.pose import point_at, squared_distance, store_point, wrapped
from batchnav.navmesh.settings import NavMeshSettings
from batchnav.navmesh.step import try_step
from batchnav.runtime.kernels.arrays import check_tensor, record_type
from batchnav.runtime.kernels.decorators import device_function, lean_function
from batchnav.runtime.kernels.rng import ACTUATION, normal_quantile, step_uniforms
from batchnav.sim.episodes import SamplingState, agent_number
from batchnav.sim.others import Others, others_of, step_among

# Velocity control: an agent commands a linear and an angular speed at every step, as with Habitat's `VelocityAction`

ACTION_SIZE = 2
"""Components of an action: forward, and to the left, each from -1 (lowest speed of its range) to 1 (highest)."""
MAX_LENGTH = 10.0
"""Maximum length of a step, metres."""
_ONE, _HALF = np.float32(1.0), np.float32(0.5)


@dataclass(frozen=True)
class VelocityConfig:
    """Ranges of the speeds. Names and defaults: habitat-lab's `velocity_control`."""

    lin_vel_range: tuple[float, ...] = (0.0, 0.25)
    """Lowest and highest speed along the heading, m/s."""
    ang_vel_range_deg: tuple[float, ...] = (-10.0, 10.0)
    """Lowest and highest angular speed to the left, degrees/s."""
    min_abs_lin_speed: float = bounded(0.025, 0.0, 1e4)
    """Forward speed, m/s, below which an action is a stop if its angular speed is below `min_abs_ang_speed_deg`."""
    min_abs_ang_speed_deg: float = bounded(1.0, 0.0, 1e6)
    """Angular speed, degrees/s, below which an action is a stop if its forward speed is below `min_abs_lin_speed`."""
    time_step: float = bounded(1.0, 1e-4, 1e3)
    """Duration of a step, seconds."""

    def validate(self) -> None:
        """ConfigError where a value is out of range."""
        for name, most in (("lin_vel_range", MAX_LENGTH / self.time_step), ("ang_vel_range_deg", 180 / self.time_step)):
            speeds = getattr(self, name)
            if len(speeds) != 2 or not -most <= speeds[0] < speeds[1] <= most:  # NaN fails here too
                raise ConfigError(
                    f"{name}: found {shortened(list(speeds))}, expected the lowest and a larger highest speed, within "
                    f"-{most:g} and {most:g} with time_step {self.time_step:g}"
                )

    @property
    def numbers(self) -> dict[str, np.float32]:
        """Fields of `sim.bodies.Body` for kernels, by name, in metres, radians and seconds."""
        (low, high), (right, left) = self.lin_vel_range, map(math.radians, self.ang_vel_range_deg)
        values = {
            "linear_low": low, "linear_high": high, "angular_low": right, "angular_high": left,
            "least_linear": self.min_abs_lin_speed, "least_angular": math.radians(self.min_abs_ang_speed_deg),
            "time_step": self.time_step,
        }  # fmt: skip
        return {name: np.float32(value) for name, value in values.items()}


@lean_function
def _speed(action, low, high):
    """The speed of a command from -1 to 1. Commands outside are clipped; NaN counts as -1."""
    action = action if action > -_ONE else -_ONE
    action = action if action < _ONE else _ONE
    return low + _HALF * (action + _ONE) * (high - low)


@lean_function
def speeds(i, actions, body):
    """Commanded speeds of row i of actions f32 [N, 2]: m/s forward, radians/s to the left."""
    linear = _speed(actions[i, 0], body.linear_low, body.linear_high)
    return linear, _speed(actions[i, 1], body.angular_low, body.angular_high)


@lean_function
def is_stop(linear, angular, body):
    """True where both speeds are below their minima."""
    return abs(linear) < body.least_linear and abs(angular) < body.least_angular


# Actuation noise of steps and turns: PyRobot's models of robot motion, which habitat-sim's noisy actions use

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


STOP, FORWARD, LEFT, RIGHT, LOOK_UP, LOOK_DOWN = range(6)
"""The actions, numbered as Habitat numbers them."""
ACTIONS = ("stop", "forward", "left", "right", "look up", "look down")
NUM_ACTIONS = {"v0": 4, "v1": 6}
"""Number of actions, by name of the discrete action space. The names are habitat-lab's."""
COLLISION_EPSILON = np.float32(1e-5)
"""Square metres. A step collides if its squared length is smaller than commanded by more than this (habitat-sim)."""


@dataclass(frozen=True)
class BodyConfig:
    """Size of an agent's body, and its actions. Defaults: Habitat's."""

    agent_radius: float = bounded(0.1, 0.0, 10.0)
    """Radius of the body, metres. A scene's navmesh must be baked for it."""
    agent_height: float = bounded(1.5, 1e-2, 10.0)
    """Height of the body, metres. A scene's navmesh must be baked for it."""
    control: Literal["v0", "v1", "velocity"] = "v0"
    """Action space: Habitat's four actions (v0), six with look up and look down (v1), or linear and angular velocity
    (velocity)."""
    forward_step: float = bounded(0.25, 1e-3, 10.0)
    """Length of a forward step, metres."""
    turn_angle_deg: float = bounded(10.0, 1e-3, 180.0)
    """Angle of a turn, degrees."""
    tilt_angle_deg: float = bounded(30.0, 1e-3, 90.0)
    """Angle by which look up and look down tilt every camera, degrees. Default: Habitat's ObjectNav."""
    max_tilt_deg: float = bounded(60.0, 0.0, 90.0)
    """Largest tilt up and down, degrees."""
    velocity: VelocityConfig = field(default_factory=VelocityConfig)
    """Ranges of the velocities, for the control "velocity"."""
    sliding: bool = True
    """Slide along walls. False: walls stop the agent."""
    actuation_noise: float = bounded(0.0, 0.0, 10.0)
    """Multiplier of PyRobot's noise of steps and turns (`sim/bodies.py`). 0: no noise."""
    robot: Literal["LoCoBot", "LoCoBot-Lite"] = "LoCoBot"
    """Robot that the noise was measured on."""
    controller: Literal["ILQR", "Proportional", "Movebase"] = "ILQR"
    """Controller that the noise was measured with."""

    @property
    def navmesh(self) -> NavMeshSettings:
        """Settings for baking a navmesh for this body."""
        return NavMeshSettings(agent_radius=self.agent_radius, agent_height=self.agent_height)

    @property
    def is_discrete(self) -> bool:
        """True if actions are integers; False for velocity control."""
        return self.control != "velocity"

    @property
    def action_space(self) -> spaces.Space:
        """One agent's Gymnasium action space."""
        if self.is_discrete:
            return spaces.Discrete(NUM_ACTIONS[self.control])
        return spaces.Box(-1.0, 1.0, (ACTION_SIZE,), np.float32)

    @property
    def longest_step(self) -> float:
        """Length of the longest forward step, metres."""
        return self.forward_step if self.is_discrete else self.velocity.lin_vel_range[1] * self.velocity.time_step

    @property
    def widest_turn_deg(self) -> float:
        """Largest angle that one step turns to the left, degrees."""
        velocity = self.velocity
        return self.turn_angle_deg if self.is_discrete else velocity.ang_vel_range_deg[1] * velocity.time_step

    def empty_actions(self, n: int, device: torch.device) -> torch.Tensor:
        """A tensor for the actions of `n` agents: i64 [n], or f32 [n, 2]."""
        if self.is_discrete:
            return torch.zeros(n, dtype=torch.int64, device=device)
        return torch.zeros(n, ACTION_SIZE, dtype=torch.float32, device=device)

    def check_actions(self, actions: torch.Tensor, n: int, device: torch.device) -> None:
        """ArgumentError for actions of another shape or type than `empty_actions`; on the CPU also for invalid ones."""
        if self.is_discrete:
            check_tensor("actions", actions, (n,), torch.int64, device)
            if device.type == "cpu" and (actions.min() < 0 or actions.max() >= NUM_ACTIONS[self.control]):
                unknown = (actions < 0) | (actions >= NUM_ACTIONS[self.control])
                raise ArgumentError(f"actions: found {actions[unknown][0]}, expected {self.valid_actions}")
        else:
            check_tensor("actions", actions, (n, ACTION_SIZE), torch.float32, device)
            if device.type == "cpu" and actions.isnan().any():
                unknown = actions.isnan().any(1)
                raise ArgumentError(f"actions: found {actions[unknown][0].tolist()}, expected {self.valid_actions}")

    @property
    def valid_actions(self) -> str:
        """The valid actions in words, for error messages."""
        if not self.is_discrete:
            return "numbers from -1 to 1, forward and to the left (larger ones are clipped)"
        named = [f"{number} ({name})" for number, name in enumerate(ACTIONS[: NUM_ACTIONS[self.control]])]
        return f"{', '.join(named[:-1])} or {named[-1]}"

    def validate(self) -> None:
        """ConfigError where a value is out of range."""
        if self.actuation_noise and not self.is_discrete:
            raise ConfigError(
                f"actuation_noise: found {self.actuation_noise:g} with control {self.control!r}, expected 0 (PyRobot's "
                "noise models discrete steps and turns); set actuation_noise to 0, or control to 'v0' or 'v1'"
            )


class Body(NamedTuple):
    """The numbers of `BodyConfig` that kernels read."""

    forward_step: np.float32
    """Length of the longest step, metres."""
    turn: np.float32
    """Angle of the widest turn, radians."""
    tilt: np.float32
    """Tilt of one look up or look down, radians."""
    max_tilt: np.float32
    """Largest tilt up and down, radians."""
    num_actions: np.int32
    """Number of discrete actions; 0 for velocity control."""
    sliding: bool
    """True if agents slide along walls."""
    noisy: bool
    """True with actuation noise."""
    motions: torch.Tensor
    """f32 [2, 3, 4]: noise parameters of `actuation.motions_of`."""
    seed: torch.Tensor
    """i64 [1]: seed of the noise; the same tensor as in `SamplingState`."""
    first_agent: torch.Tensor
    """i64 [1]: number of the first agent; the same tensor as in `SamplingState`."""
    linear_low: np.float32
    linear_high: np.float32
    angular_low: np.float32
    angular_high: np.float32
    least_linear: np.float32
    least_angular: np.float32
    time_step: np.float32
    """Duration of a step, seconds. This field and the six before it are `VelocityConfig` in m/s and radians/s,
    flattened since numba's parallel loops take no nested tuples."""

    @classmethod
    def of(cls, config: BodyConfig, sampling: SamplingState) -> Body:
        """The body of a configuration. Its noise depends on the seed and the agent numbers of `sampling`."""
        angles = config.widest_turn_deg, config.tilt_angle_deg, config.max_tilt_deg
        step, (turn, tilt, most) = config.longest_step, map(math.radians, angles)
        multiplier = config.actuation_noise
        motions = torch.from_numpy(motions_of(config.robot, config.controller, multiplier, step, turn))
        return cls(
            forward_step=np.float32(step), turn=np.float32(turn), tilt=np.float32(tilt), max_tilt=np.float32(most),
            num_actions=np.int32(NUM_ACTIONS.get(config.control, 0)), sliding=bool(config.sliding),
            noisy=multiplier > 0.0, motions=motions.to(sampling.seed.device), seed=sampling.seed,
            first_agent=sampling.first_agent, **config.velocity.numbers,
        )  # fmt: skip


BodyAmongOthers: Any = record_type("BodyAmongOthers", (*Body._fields, *Others._fields), __name__)
"""`Body` in worlds with people or several robots: its fields and those of `Others`."""


class Bodies(NamedTuple):
    """Every agent's body in its running episode. The simulator owns it; renderers, tasks and sensors read it."""

    scene: torch.Tensor
    """i32 [N]: rows of the bank."""
    position: torch.Tensor
    """f32 [N, 3], metres: a point on the navmesh."""
    heading: torch.Tensor
    """f32 [N], radians: start_heading + turns * turn angle, so that rounding errors do not accumulate. With noise or
    velocity control it is accumulated step by step and wrapped to -pi to pi."""
    start: torch.Tensor
    """f32 [N, 3]: start position of the episode."""
    start_heading: torch.Tensor
    """f32 [N], radians: heading at the start of the episode."""
    turns: torch.Tensor
    """i32 [N]: number of left turns minus number of right turns."""
    tilt: torch.Tensor
    """f32 [N], radians: upward tilt, added to the configured pitch of every camera."""
    path_length: torch.Tensor
    """f32 [N]: length of the path so far, metres."""
    collisions: torch.Tensor
    """i32 [N]: collisions so far."""
    steps: torch.Tensor
    """i32 [N]: steps so far."""
    episode: torch.Tensor
    """i32 [N]: number of this agent's earlier episodes, which its random numbers depend on; -1 before the first."""
    terminated: torch.Tensor
    """bool [N]: True where the last step ended the task."""
    truncated: torch.Tensor
    """bool [N]: True where the last step reached the maximum number of steps."""
    done: torch.Tensor
    """bool [N]: terminated or truncated."""

    @classmethod
    def empty(cls, n: int, device: torch.device) -> Bodies:
        """Bodies of `n` agents before their first episode."""
        f32: dict[str, Any] = {"dtype": torch.float32, "device": device}
        i32: dict[str, Any] = {"dtype": torch.int32, "device": device}
        terminated, truncated, done = torch.zeros(3, n, dtype=torch.bool, device=device)
        return cls(
            scene=torch.zeros(n, **i32), position=torch.zeros(n, 3, **f32), heading=torch.zeros(n, **f32),
            start=torch.zeros(n, 3, **f32), start_heading=torch.zeros(n, **f32), turns=torch.zeros(n, **i32),
            tilt=torch.zeros(n, **f32),
            path_length=torch.zeros(n, **f32), collisions=torch.zeros(n, **i32), steps=torch.zeros(n, **i32),
            episode=torch.full((n,), -1, **i32), terminated=terminated, truncated=truncated, done=done,
        )  # fmt: skip


@device_function
def collided(moved_squared, commanded_squared):
    """True where a step was shorter than commanded: habitat-sim's rule on squared lengths, square metres."""
    return moved_squared + COLLISION_EPSILON < commanded_squared


@lean_function
def point_ahead(point, heading, length):
    """The point `length` metres along the heading, on the same level."""
    x, y, z = point
    return x - length * np.float32(math.sin(heading)), y, z - length * np.float32(math.cos(heading))


@lean_function
def level_squared_distance(a, b):
    """Squared horizontal distance of two points, square metres."""
    dx, dz = b[0] - a[0], b[2] - a[2]
    return dx * dx + dz * dz


# `actions` below are i64 [N], or velocity commands f32 [N, 2]. Their type selects the branch at compile time.


@lean_function
def is_invalid(i, actions, body):
    """True where an action is out of range or NaN."""
    if actions.ndim == 1:
        return actions[i] < 0 or actions[i] >= body.num_actions
    return math.isnan(actions[i, 0]) or math.isnan(actions[i, 1])


@lean_function
def calls_stop(i, actions, body):
    """True where the action is a stop."""
    if actions.ndim == 1:
        return actions[i] == STOP
    linear, angular = speeds(i, actions, body)
    return is_stop(linear, angular, body)


@lean_function
def _move_by_action(i, action, body, bodies_out):
    """Turn the body or tilt its cameras. Returns whether it must move, and where to. Turns move it only with noise."""
    point, heading = point_at(i, bodies_out.position), bodies_out.heading[i]
    if action == LOOK_UP or action == LOOK_DOWN:
        tilt = bodies_out.tilt[i] + (body.tilt if action == LOOK_UP else -body.tilt)
        bodies_out.tilt[i] = min(max(tilt, -body.max_tilt), body.max_tilt)
        return False, point
    if action == STOP:
        return False, point
    side = np.int32(0) if action == FORWARD else np.int32(1) if action == LEFT else np.int32(-1)
    length = body.forward_step if action == FORWARD else np.float32(0.0)
    bodies_out.turns[i] += side
    if not body.noisy:
        if action != FORWARD:
            bodies_out.heading[i] = bodies_out.start_heading[i] + np.float32(bodies_out.turns[i]) * body.turn
        return action == FORWARD, point_ahead(point, heading, length)
    along, right, yaw = motion_noise(i, MOVE if action == FORWARD else TURN, bodies_out, body)
    yaw = yaw if action == FORWARD else np.float32(side) * (body.turn + yaw)
    bodies_out.heading[i] = wrapped(heading + yaw)
    x, y, z = point_ahead(point, heading, length + along)
    return True, (x + right * np.float32(math.cos(heading)), y, z - right * np.float32(math.sin(heading)))


@lean_function
def _move_by_velocity(i, actions, body, bodies_out):
    """Velocity control's form of `_move_by_action`: the body moves along its current heading, then turns."""
    point, heading = point_at(i, bodies_out.position), bodies_out.heading[i]
    linear, angular = speeds(i, actions, body)
    if is_stop(linear, angular, body):
        return False, point
    length = linear * body.time_step
    bodies_out.heading[i] = wrapped(heading + angular * body.time_step)
    return length != np.float32(0.0), point_ahead(point, heading, length)


@lean_function
def _move(i, actions, nav, body, scratch, row, bodies_out):
    """Apply an action. Returns the squared length of the movement and the squared commanded length, square metres."""
    if actions.ndim == 1:
        moves, end = _move_by_action(i, actions[i], body, bodies_out)
    else:
        moves, end = _move_by_velocity(i, actions, body, bodies_out)
    if not moves:
        return np.float32(0.0), np.float32(0.0)
    point, scene = point_at(i, bodies_out.position), bodies_out.scene[i]
    reached = try_step(nav, scene, point, end, body.sliding, scratch, row)
    stopped = step_among(i, point, reached, others_of(body), nav, scene, scratch, row)
    store_point(i, stopped, bodies_out.position)
    lost = squared_distance(point, reached) - squared_distance(point, stopped)  # by others: no collision with a wall
    return squared_distance(point, stopped), level_squared_distance(point, end) - lost


@lean_function
def step_body(i, actions, nav, body, scratch, row, bodies_out):
    """Apply an action, and update path length, collisions and steps. Returns True where the position changed."""
    moved, commanded = _move(i, actions, nav, body, scratch, row, bodies_out)
    if moved > np.float32(0.0):
        bodies_out.path_length[i] += np.float32(math.sqrt(moved))
    if collided(moved, commanded):
        bodies_out.collisions[i] += np.int32(1)
    bodies_out.steps[i] += np.int32(1)
    return moved > np.float32(0.0)


@lean_function
def end_episode(i, terminated, max_steps, bodies_out):
    """Set the flags of an ended episode: terminated by the task, or truncated after `max_steps`."""
    truncated = not terminated and bodies_out.steps[i] >= max_steps
    bodies_out.terminated[i], bodies_out.truncated[i] = terminated, truncated
    bodies_out.done[i] = terminated or truncated


@lean_function
def keep_start(i, scene, point, heading, next_out):
    """Write the start of the agent's next episode to the fields scene, position and heading of `next_out`."""
    next_out.scene[i], next_out.heading[i] = scene, heading
    store_point(i, point, next_out.position)


@lean_function
def begin_episode(i, next_episode, bodies_out):
    """Move the agent to the start of its next episode, and reset its counters."""
    bodies_out.episode[i] += np.int32(1)
    bodies_out.scene[i] = next_episode.scene[i]
    start = point_at(i, next_episode.position)
    store_point(i, start, bodies_out.position)
    store_point(i, start, bodies_out.start)
    heading = next_episode.heading[i]
    bodies_out.start_heading[i], bodies_out.heading[i], bodies_out.turns[i] = heading, heading, np.int32(0)
    bodies_out.tilt[i], bodies_out.path_length[i] = np.float32(0.0), np.float32(0.0)
    bodies_out.collisions[i], bodies_out.steps[i] = np.int32(0), np.int32(0)
