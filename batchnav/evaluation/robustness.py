"""Disturbances between simulation and robot: odometry, latency, noise and errors of cameras, slip, people.

`DisturbedPlayer` plays as an agent does, under one condition: options of the agent's environment.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from batchnav.agents.protocol import Agent
from batchnav.envs.config import NavConfig, with_options
from batchnav.envs.nav import NavEnv
from batchnav.envs.observations import image_sources
from batchnav.evaluation.players import Player


class Condition(NamedTuple):
    """One disturbance."""

    name: str
    options: Mapping[str, Any]
    """Options of the environment; those of the camera are added to its values."""

    def applies(self, config: NavConfig) -> bool:
        """True where the condition changes what agents of an environment observe or do, and all that it should."""
        if "drift" in self.options or "turn_drift_deg_per_m" in self.options:
            return config.reads_pose
        if "latency" in self.options:
            return True
        if "depth_noise" in self.options:
            return "depth" in config.sensors and config.depth.depth_noise == 0.0
        if "exposure_noise" in self.options or "jpeg_quality" in self.options:
            return "rgb" in config.also_in_use
        if "actuation_noise" in self.options:
            return config.body.is_discrete and config.body.actuation_noise == 0.0
        if "people" in self.options:
            return not config.world.people[1]
        return config.has_map or bool(image_sources(config))  # the camera's

    def config(self, config: NavConfig) -> NavConfig:
        """The environment under this condition."""
        own = vars(config.camera)
        changes = {name: value + own[name] if name in own else value for name, value in self.options.items()}
        return with_options(config, changes)


CONDITIONS = (
    Condition("drift 1%", {"drift": (0.01, 0.01)}),
    Condition("drift 3%", {"drift": (0.03, 0.03)}),
    Condition("drift 10%", {"drift": (0.1, 0.1)}),
    Condition("drift 1°/m", {"turn_drift_deg_per_m": (1.0, 1.0)}),
    Condition("latency 1 step", {"latency": (1, 1)}),
    Condition("latency 2 steps", {"latency": (2, 2)}),
    Condition("latency 3 steps", {"latency": (3, 3)}),
    Condition("Redwood depth noise", {"depth_noise": 1.0}),
    Condition("D435 depth noise", {"depth_noise": 1.0, "depth_noise_model": "d435"}),
    Condition("exposure to 1 stop off", {"exposure_noise": 1.0, "white_balance_noise": 0.2, "gamma_noise": 0.2}),
    Condition("JPEG quality 30", {"jpeg_quality": (30, 30)}),
    Condition("camera 2 cm higher", {"camera_height": 0.02}),
    Condition("camera 2° down", {"camera_pitch_deg": -2.0}),
    Condition("slip (PyRobot noise)", {"actuation_noise": 1.0}),
    Condition("1 to 6 people", {"people": (1, 6)}),
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
        """The player's agent."""
        return self.player.make_agent(env)
