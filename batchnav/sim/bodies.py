"""Bodies: where every agent is, how it walks and turns. A body knows nothing of what it is to do."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple

import numpy as np
import torch
from gymnasium import spaces

from batchnav.config import in_range
from batchnav.errors import ArgumentError, ConfigError
from batchnav.geometry.angle import wrapped
from batchnav.geometry.point import keep_point, point_at, squared_distance
from batchnav.navmesh.settings import NavMeshSettings
from batchnav.navmesh.step import try_step
from batchnav.runtime.kernels.arrays import check_tensor
from batchnav.runtime.kernels.decorators import device_function, lean_function
from batchnav.sim.actuation import MOVE, TURN, motions_of, slip
from batchnav.sim.episodes import SamplingState
from batchnav.sim.velocity import ACTION_SIZE, VelocityConfig, is_stop, speeds

STOP, FORWARD, LEFT, RIGHT, LOOK_UP, LOOK_DOWN = range(6)
"""The actions, numbered as Habitat numbers them."""
ACTIONS = ("stop", "forward", "left", "right", "look up", "look down")
NUM_ACTIONS = {"v0": 4, "v1": 6}
"""How many of them the controls that are discrete have; habitat-lab's names of its action spaces."""
COLLISION_EPSILON = np.float32(1e-5)
"""Habitat's: a step collides where its squared length falls short of what was asked for by more than this (m^2)."""


@dataclass(frozen=True)
class BodyConfig:
    """An agent's body and its steps. Defaults: Habitat's."""

    agent_radius: float = 0.1
    agent_height: float = 1.5
    """Metres; a scene's navmesh has to be one for this body."""
    control: Literal["v0", "v1", "velocity"] = "v0"
    """What an agent chooses at a step: one of Habitat's four actions (v0), one of six, which look up and down too (v1),
    or two speeds."""
    forward_step: float = 0.25
    turn_angle_deg: float = 10.0
    tilt_angle_deg: float = 30.0
    """By which a look up or down tilts every camera: that of Habitat's ObjectNav."""
    max_tilt_deg: float = 60.0
    """Up or down: no look goes beyond."""
    velocity: VelocityConfig = field(default_factory=VelocityConfig)
    sliding: bool = True
    """Whether walls let the agent slide along, or stop it."""
    actuation_noise: float = 0.0
    """Steps and turns end beside where they should, by so many times the noise of `robot` under `controller`
    (PyRobot's, `sim/actuation.py`). 0: none."""
    robot: Literal["LoCoBot", "LoCoBot-Lite"] = "LoCoBot"
    controller: Literal["ILQR", "Proportional", "Movebase"] = "ILQR"

    @property
    def navmesh(self) -> NavMeshSettings:
        """How a navmesh for this body is baked."""
        return NavMeshSettings(agent_radius=self.agent_radius, agent_height=self.agent_height)

    @property
    def is_discrete(self) -> bool:
        """Whether an action is a number out of a few."""
        return self.control != "velocity"

    @property
    def action_space(self) -> spaces.Space:
        """One agent's actions, as Gymnasium says it."""
        if self.is_discrete:
            return spaces.Discrete(NUM_ACTIONS[self.control])
        return spaces.Box(-1.0, 1.0, (ACTION_SIZE,), np.float32)

    @property
    def longest_step(self) -> float:
        """Metres that a step goes ahead at most."""
        return self.forward_step if self.is_discrete else self.velocity.lin_vel_range[1] * self.velocity.time_step

    @property
    def widest_turn_deg(self) -> float:
        """Degrees that a step turns to the left at most."""
        velocity = self.velocity
        return self.turn_angle_deg if self.is_discrete else velocity.ang_vel_range_deg[1] * velocity.time_step

    def empty_actions(self, n: int, device: torch.device) -> torch.Tensor:
        """Room for actions of `n` agents: i64 [n], or f32 [n, 2]."""
        if self.is_discrete:
            return torch.zeros(n, dtype=torch.int64, device=device)
        return torch.zeros(n, ACTION_SIZE, device=device)

    def check_actions(self, actions: torch.Tensor, n: int, device: torch.device) -> None:
        """ArgumentError where actions are not of the shape and type of `empty_actions`, or, on the CPU, out of range."""
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
        """The actions in words, for messages."""
        if not self.is_discrete:
            return "numbers from -1 to 1, forward and to the left; what is beyond is cut off"
        named = [f"{number} ({name})" for number, name in enumerate(ACTIONS[: NUM_ACTIONS[self.control]])]
        return f"{', '.join(named[:-1])} or {named[-1]}"

    def validate(self) -> None:
        """ConfigError where a value is out of range."""
        in_range(self, "agent_radius", 0.0, 10.0)
        in_range(self, "agent_height", 1e-2, 10.0)
        in_range(self, "forward_step", 1e-3, 10.0)
        in_range(self, "turn_angle_deg", 1e-3, 180.0)
        in_range(self, "actuation_noise", 0.0, 10.0)
        if self.actuation_noise and not self.is_discrete:
            raise ConfigError(
                f"actuation_noise: found {self.actuation_noise:g} with control {self.control!r}, expected 0: PyRobot's "
                "noise is one of steps and turns"
            )
        in_range(self, "tilt_angle_deg", 1e-3, 90.0)
        in_range(self, "max_tilt_deg", 0.0, 90.0)


class Body(NamedTuple):
    """The numbers of `BodyConfig` that kernels need."""

    forward_step: np.float32
    """The longest, where steps have several lengths."""
    turn: np.float32
    """Radians; the widest, where turns have several angles."""
    tilt: np.float32
    """Radians."""
    max_tilt: np.float32
    """Radians."""
    num_actions: np.int32
    """0 where they are speeds."""
    sliding: bool
    noisy: bool
    motions: torch.Tensor
    """f32 [2, 3, 4]: see `actuation.motions_of`."""
    seed: torch.Tensor
    """i64 [1], and the next: those of `SamplingState`, by which noise is drawn."""
    first_agent: torch.Tensor
    linear_low: np.float32
    linear_high: np.float32
    angular_low: np.float32
    angular_high: np.float32
    least_linear: np.float32
    least_angular: np.float32
    time_step: np.float32
    """Speeds are metres and radians a second: `VelocityConfig`, flat, since parallel loops take no tuples in tuples."""

    @classmethod
    def of(cls, config: BodyConfig, sampling: SamplingState) -> Body:
        """The body that a configuration describes; its noise is drawn from `sampling`."""
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


class Bodies(NamedTuple):
    """Every agent's body in its running episode. The simulator owns it; renderers, tasks and sensors read it."""

    scene: torch.Tensor
    """i32 [N]: rows of the bank."""
    position: torch.Tensor
    """f32 [N, 3], on the navmesh."""
    heading: torch.Tensor
    """f32 [N]: start_heading + turns * turn angle, so that no error accumulates; with noise, or where turns are speeds,
    the true one, within pi."""
    start: torch.Tensor
    """f32 [N, 3]: where the episode began."""
    start_heading: torch.Tensor
    """f32 [N]."""
    turns: torch.Tensor
    """i32 [N]: left turns less right turns."""
    tilt: torch.Tensor
    """f32 [N], radians: by how much every camera looks up, beside its own pitch."""
    path_length: torch.Tensor
    """f32 [N]: metres walked."""
    collisions: torch.Tensor
    """i32 [N]."""
    steps: torch.Tensor
    """i32 [N]."""
    episode: torch.Tensor
    """i32 [N]: how many episodes this agent began before this one; the counter of its random numbers."""
    terminated: torch.Tensor
    """bool [N]: with the last step the task came to its end."""
    truncated: torch.Tensor
    """bool [N]: with the last step the steps were used up."""
    done: torch.Tensor
    """bool [N]: either."""

    @classmethod
    def empty(cls, n: int, device: torch.device) -> Bodies:
        """`n` bodies before their first episode."""
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
def collided(moved_squared, wanted_squared):
    """Whether a step fell short: Habitat's rule on squared 3-D lengths."""
    return moved_squared + COLLISION_EPSILON < wanted_squared


@lean_function
def point_ahead(point, heading, length):
    """The point so many metres ahead on the same level."""
    x, y, z = point
    return x - length * np.float32(math.sin(heading)), y, z - length * np.float32(math.cos(heading))


@lean_function
def level_squared_distance(a, b):
    """Between two points seen from above, in square metres."""
    dx, dz = b[0] - a[0], b[2] - a[2]
    return dx * dx + dz * dz


# `actions` below are i64 [N], or f32 [N, 2] where they are speeds. Which branch is meant follows from their type, so
# the other is not compiled.


@lean_function
def is_invalid(i, actions, body):
    """Whether an action is none of those that there are, or not a number."""
    if actions.ndim == 1:
        return actions[i] < 0 or actions[i] >= body.num_actions
    return math.isnan(actions[i, 0]) or math.isnan(actions[i, 1])


@lean_function
def calls_stop(i, actions, body):
    """Whether an agent calls stop."""
    if actions.ndim == 1:
        return actions[i] == STOP
    linear, angular = speeds(i, actions, body)
    return is_stop(linear, angular, body)


@lean_function
def _aim(i, action, body, bodies_out):
    """Turn the body, or tilt its cameras. Whether it is to go elsewhere, and where to: turns do so only with noise."""
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
    along, right, yaw = slip(i, MOVE if action == FORWARD else TURN, bodies_out, body)
    yaw = yaw if action == FORWARD else np.float32(side) * (body.turn + yaw)
    bodies_out.heading[i] = wrapped(heading + yaw)
    x, y, z = point_ahead(point, heading, length + along)
    return True, (x + right * np.float32(math.cos(heading)), y, z - right * np.float32(math.sin(heading)))


@lean_function
def _aim_by_speeds(i, actions, body, bodies_out):
    """As `_aim`: to go along the heading that the body has, and turn then."""
    point, heading = point_at(i, bodies_out.position), bodies_out.heading[i]
    linear, angular = speeds(i, actions, body)
    if is_stop(linear, angular, body):
        return False, point
    length = linear * body.time_step
    bodies_out.heading[i] = wrapped(heading + angular * body.time_step)
    return length != np.float32(0.0), point_ahead(point, heading, length)


@lean_function
def _go(i, actions, nav, body, scratch, row, bodies_out):
    """Apply an action: squared length moved, squared length wanted."""
    if actions.ndim == 1:
        goes, end = _aim(i, actions[i], body, bodies_out)
    else:
        goes, end = _aim_by_speeds(i, actions, body, bodies_out)
    if not goes:
        return np.float32(0.0), np.float32(0.0)
    point = point_at(i, bodies_out.position)
    reached = try_step(nav, bodies_out.scene[i], point, end, body.sliding, scratch, row)
    keep_point(i, reached, bodies_out.position)
    return squared_distance(point, reached), level_squared_distance(point, end)


@lean_function
def step_body(i, actions, nav, body, scratch, row, bodies_out):
    """Walk, turn, look or stay, and count. Whether the agent is elsewhere now."""
    moved, wanted = _go(i, actions, nav, body, scratch, row, bodies_out)
    if moved > np.float32(0.0):
        bodies_out.path_length[i] += np.float32(math.sqrt(moved))
    if collided(moved, wanted):
        bodies_out.collisions[i] += np.int32(1)
    bodies_out.steps[i] += np.int32(1)
    return moved > np.float32(0.0)


@lean_function
def end_episode(i, terminated, max_steps, bodies_out):
    """Note whether the episode is at its end: by the task, or because the steps are used up."""
    truncated = not terminated and bodies_out.steps[i] >= max_steps
    bodies_out.terminated[i], bodies_out.truncated[i] = terminated, truncated
    bodies_out.done[i] = terminated or truncated


@lean_function
def keep_start(i, scene, point, heading, next_out):
    """Where the agent's next episode is to begin: `next_out` has tensors as `Bodies` has, among others."""
    next_out.scene[i], next_out.heading[i] = scene, heading
    keep_point(i, point, next_out.position)


@lean_function
def begin_episode(i, next_episode, bodies_out):
    """Put the agent where its next episode begins."""
    bodies_out.episode[i] += np.int32(1)
    bodies_out.scene[i] = next_episode.scene[i]
    place = point_at(i, next_episode.position)
    keep_point(i, place, bodies_out.position)
    keep_point(i, place, bodies_out.start)
    heading = next_episode.heading[i]
    bodies_out.start_heading[i], bodies_out.heading[i], bodies_out.turns[i] = heading, heading, np.int32(0)
    bodies_out.tilt[i], bodies_out.path_length[i] = np.float32(0.0), np.float32(0.0)
    bodies_out.collisions[i], bodies_out.steps[i] = np.int32(0), np.int32(0)
