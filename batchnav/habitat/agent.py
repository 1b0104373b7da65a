"""A policy as habitat-lab's `habitat.Agent`: its observations in, its actions out, one episode at a time."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch

from batchnav.envs.config import NavConfig, config_of, with_camera
from batchnav.errors import ArgumentError
from batchnav.habitat.mapper import OwnMap
from batchnav.mapping.observations import MAP_SPECS
from batchnav.policy.agent import PolicyAgent
from batchnav.policy.weights import load_policy
from batchnav.tasks.pointnav import PointNavConfig


class HabitatAgent:
    """What `habitat.Benchmark` and `habitat.Challenge` evaluate: `reset` before each episode, `act` at each step.

        habitat.Benchmark("pointnav.yaml").evaluate(HabitatAgent("pointnav_h200"), num_episodes=100)

    habitat-lab asks for these two methods alone, so it need not be installed for the import. Observations, unbatched:
    "depth" f32 [H, W, 1], normalised to 0..1 over the policy's range (`normalize_depth`, Habitat's default), "rgb" u8
    [H, W, 3], "semantic" i32 [H, W, 1], "pointgoal_with_gps_compass" f32 [2] (or "pointgoal", for a policy trained
    without GPS and compass). Sizes, field of view and heights are to be configured as in the policy's training:
    `config` says how; or another height and field of view are told, which policies can go by that trained with many
    (`CameraConfig.camera_height_range`). Actions go by the indices of PointNav's: 0 stop, 1 move_forward, 2 turn_left,
    3 turn_right.
    The sensors "ego_map" and "waypoint" of a policy are made here, from "depth", the goal sensor, and turns, or
    "compass" f32 [1] (radians, as Habitat's CompassSensor) where that is observed: `evaluation.own_map`.
    """

    def __init__(
        self,
        policy: PolicyAgent | str | Path,
        device: str | torch.device = "cpu",
        sample: bool = True,
        seed: int = 0,
        camera_height: float | None = None,
        hfov_deg: float | None = None,
    ):
        """Load a policy, unless it is one. ArgumentError for one that is told speeds, ConfigError for no such camera.

        Args:
            policy: what `load_policy` takes, or what it returned.
            device: where it acts.
            sample: draw actions, as Habitat's evaluation does; else take the most probable ones.
            seed: of drawn actions; each episode begins with it.
            camera_height: metres of the camera above the floor; None: as in the policy's training.
            hfov_deg: its field of view, likewise.
        """
        self.policy = policy if isinstance(policy, PolicyAgent) else load_policy(policy, device)
        self.sample, self.seed = sample, seed
        self.config: NavConfig = with_camera(config_of(self.policy.info), camera_height, hfov_deg)
        body = self.config.body
        if not body.is_discrete:
            raise ArgumentError(f"policy: found control {body.control!r}, expected v0 or v1, whose actions are indices")
        seen = self.policy.network.observation_shapes.keys()
        self._names = {name: name for name in seen if name not in MAP_SPECS}
        if "pointgoal" in self._names:
            self._names["pointgoal"] = goal_sensor(self.config)
        mapped = frozenset(seen & MAP_SPECS.keys())
        self._map = OwnMap(mapped, self.config) if mapped else None

    def reset(self) -> None:
        """Begin an episode."""
        self.policy.reset(1, self.seed)
        if self._map:
            self._map.begin()

    def act(self, observations: Mapping[str, Any]) -> dict[str, int]:
        """{"action": index} for Habitat's observations; ArgumentError where one is missing or is not as described."""
        batch = {}
        for ours, theirs in self._names.items():
            value = _found(observations, theirs)
            if ours.endswith("depth"):
                value = self.with_holes(_normalised(value, theirs))
            batch[ours] = value.unsqueeze(0)
        if self._map:
            depth, goal = (_found(observations, name).float() for name in ("depth", goal_sensor(self.config)))
            compass = float(_found(observations, "compass")) if "compass" in observations else None
            batch |= self._map.observe(_normalised(depth, "depth"), goal, compass)
        action = int(self.policy.act(batch, deterministic=not self.sample))
        if self._map:
            self._map.act(action)
        return {"action": action}

    def with_holes(self, depth: torch.Tensor) -> torch.Tensor:
        """Habitat's depth of 0..1, its holes as in training."""
        hole = self.config.depth.hole_value
        return depth.masked_fill(depth == 0.0, hole) if hole > 0.0 else depth


def _found(observations: Mapping[str, Any], name: str) -> torch.Tensor:
    """One of Habitat's observations, images with their channels first. ArgumentError where there is none."""
    if name not in observations:
        raise ArgumentError(f"observations: found {', '.join(observations) or 'none'}, expected {name!r} too")
    value = torch.as_tensor(np.array(observations[name]))
    return value.permute(2, 0, 1) if value.ndim == 3 else value


def _normalised(depth: torch.Tensor, name: str) -> torch.Tensor:
    """Depth, unless it is in metres: ArgumentError."""
    if depth.max() > 1.0:
        raise ArgumentError(f"{name}: found {float(depth.max()):g}, expected 0 to 1 (normalize_depth: True)")
    return depth


def goal_sensor(config: NavConfig) -> str:
    """Habitat's name of the sensor that tells a PointNav policy of this configuration where its goal lies."""
    knows = isinstance(config.task, PointNavConfig) and config.task.gps_compass
    return "pointgoal_with_gps_compass" if knows else "pointgoal"
