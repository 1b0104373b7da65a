"""Disturbances between simulation and robot: odometry that drifts, latency, depth noise, camera errors, slip, people.

`DisturbedPlayer` plays as an agent does, under one condition. Drift and latency change what the agent observes; the
other conditions are options of its environment.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import torch

from batchnav.agents.protocol import Agent
from batchnav.envs.config import NavConfig, with_options
from batchnav.envs.nav import NavEnv
from batchnav.envs.observations import image_sources
from batchnav.evaluation.players import Player

SIGNS_SEED = 0
"""Seed of the directions of drift."""


class Condition(NamedTuple):
    """One disturbance."""

    name: str
    drift: float = 0.0
    """Error of odometry per distance travelled, to either side by episode."""
    drift_deg: float = 0.0
    """Error of odometry's heading, degrees per metre, to either side by episode."""
    latency: int = 0
    """Steps by which observations are late."""
    options: Mapping[str, Any] = {}  # a tuple's field
    """Options of the environment; those of the camera are added to its values."""

    def applies(self, config: NavConfig) -> bool:
        """True where the condition changes what agents of an environment observe or do, and all that it should."""
        if self.drift or self.drift_deg:  # the simulator's map has the true pose
            return not config.has_map and getattr(config.task, "gps_compass", True)
        if "depth_noise" in self.options:
            return "depth" in config.sensors and config.depth.depth_noise == 0.0
        if "actuation_noise" in self.options:
            return config.body.is_discrete and config.body.actuation_noise == 0.0
        if "people" in self.options:
            return not config.world.people[1]
        if self.options:  # of the camera
            return config.has_map or bool(image_sources(config))
        return True

    def config(self, config: NavConfig) -> NavConfig:
        """The environment under this condition."""
        own = vars(config.camera)
        changes = {name: value + own[name] if name in own else value for name, value in self.options.items()}
        return with_options(config, changes)


CONDITIONS = (
    Condition("drift 1%", drift=0.01),
    Condition("drift 3%", drift=0.03),
    Condition("drift 10%", drift=0.1),
    Condition("drift 1°/m", drift_deg=1.0),
    Condition("latency 1 step", latency=1),
    Condition("latency 2 steps", latency=2),
    Condition("latency 3 steps", latency=3),
    Condition("Redwood depth noise", options={"depth_noise": 1.0}),
    Condition("D435 depth noise", options={"depth_noise": 1.0, "depth_noise_model": "d435"}),
    Condition("camera 2 cm higher", options={"camera_height": 0.02}),
    Condition("camera 2° down", options={"camera_pitch_deg": -2.0}),
    Condition("slip (PyRobot noise)", options={"actuation_noise": 1.0}),
    Condition("1 to 6 people", options={"people": (1, 6)}),
)


class DisturbedPlayer:
    """A player under a condition."""

    def __init__(self, player: Player, condition: Condition):
        self.player, self.condition, self.name = player, condition, condition.name
        self.config, self.changes = condition.config(player.config), player.changes

    @property
    def env_config(self) -> NavConfig:
        """The player's environment under the condition."""
        return self.condition.config(self.player.env_config)

    def make_agent(self, env: NavEnv) -> Agent:
        """The player's agent, whose observations are disturbed."""
        return DisturbedAgent(self.player.make_agent(env), env, self.condition)


class DisturbedAgent:
    """An agent that acts on odometry with drift, and on late observations.

    Drift scales each motion by 1 + drift or 1 - drift and turns the estimated heading by `drift_deg` per metre. It
    changes the observations pointgoal, gps, compass and heading.
    """

    def __init__(self, agent: Agent, env: NavEnv, condition: Condition):
        self.agent, self.env, self.condition = agent, env, condition

    def reset(self, num_envs: int) -> None:
        """Reset the agent, and begin without errors."""
        self.agent.reset(num_envs)
        kind: dict[str, Any] = {"dtype": torch.float32, "device": self.env.device}
        self._generator = torch.Generator("cpu").manual_seed(SIGNS_SEED)
        self._pose, self._true, self._start = (torch.zeros(num_envs, 3, **kind) for _ in range(3))
        self._goal, self._signs = torch.zeros(num_envs, 2, **kind), torch.ones(num_envs, 2, **kind)
        self._late: list[dict[str, torch.Tensor]] = []

    def act(self, observations: dict[str, torch.Tensor], episode_start: torch.Tensor) -> torch.Tensor:
        """Actions of the agent on the disturbed observations."""
        if self.condition.drift or self.condition.drift_deg:
            observations = self._drifted(observations, episode_start)
        if self.condition.latency:
            observations = self._delayed(observations, episode_start)
        return self.agent.act(observations, episode_start)

    def _delayed(self, observations: dict[str, torch.Tensor], start: torch.Tensor) -> dict[str, torch.Tensor]:
        """The observations of some steps ago; those of an episode's first step until then."""
        now = {name: value.clone() for name, value in observations.items()}
        self._late = (self._late or [now] * self.condition.latency) + [now]
        for row, old in enumerate(self._late[:-1]):
            self._late[row] = {
                name: torch.where(start.view(-1, *[1] * (value.ndim - 1)), now[name], value)
                for name, value in old.items()
            }
        return self._late.pop(0)

    def _drifted(self, observations: dict[str, torch.Tensor], start: torch.Tensor) -> dict[str, torch.Tensor]:
        """Observations of an estimated pose. Poses are x ahead, y left and yaw in the frame of the episode's start."""
        bodies = self.env.sim.bodies
        world = torch.stack([-bodies.position[:, 2], -bodies.position[:, 0], bodies.heading], 1)
        begins = start[:, None]
        self._start = torch.where(begins, world, self._start)
        true = relative(world, self._start)
        drawn = torch.rand(self._signs.shape, generator=self._generator, dtype=torch.float32, device="cpu")
        signs = torch.where(drawn < 0.5, -1.0, 1.0).to(self._signs)
        self._signs = torch.where(begins, signs, self._signs)
        step, metres = relative(true, self._true), torch.linalg.vector_norm((true - self._true)[:, :2], dim=1)
        step[:, :2] *= 1.0 + self.condition.drift * self._signs[:, :1]
        step[:, 2] += torch.deg2rad(metres * self.condition.drift_deg) * self._signs[:, 1]
        self._pose = torch.where(begins, 0.0, moved(self._pose, step))
        self._true = torch.where(begins, 0.0, true)
        found = dict(observations)
        if "pointgoal" in found:
            rho, bearing = observations["pointgoal"].unbind(1)
            goal = torch.stack([rho * torch.cos(bearing), rho * torch.sin(bearing)], 1)
            self._goal = torch.where(begins, goal, self._goal)
            there = relative(torch.cat([self._goal, self._goal[:, :1] * 0.0], 1), self._pose)[:, :2]
            polar = torch.linalg.vector_norm(there, dim=1), torch.atan2(there[:, 1], there[:, 0])
            found["pointgoal"] = torch.stack(polar, 1).to(observations["pointgoal"])
        if "gps" in found:
            found["gps"] = (self._pose[:, :2] * self._pose.new_tensor([1.0, -1.0])).to(observations["gps"])
        for name in ("compass", "heading"):
            if name in found:
                error = (self._pose - self._true)[:, 2:]
                found[name] = wrapped(observations[name] + error)
        return found


def wrapped(angle: torch.Tensor) -> torch.Tensor:
    """The equivalent angles in [-pi, pi], radians."""
    return torch.atan2(torch.sin(angle), torch.cos(angle))


def relative(pose: torch.Tensor, frame: torch.Tensor) -> torch.Tensor:
    """Poses [N, 3] (x, y, yaw) in frames with these poses."""
    (x, y), (cos, sin) = (pose - frame)[:, :2].unbind(1), (torch.cos(frame[:, 2]), torch.sin(frame[:, 2]))
    return torch.stack([cos * x + sin * y, cos * y - sin * x, wrapped(pose[:, 2] - frame[:, 2])], 1)


def moved(pose: torch.Tensor, step: torch.Tensor) -> torch.Tensor:
    """Poses [N, 3] after steps in their own frames."""
    cos, sin, (x, y, turn) = torch.cos(pose[:, 2]), torch.sin(pose[:, 2]), step.unbind(1)
    return torch.stack([pose[:, 0] + cos * x - sin * y, pose[:, 1] + sin * x + cos * y, pose[:, 2] + turn], 1)
