"""A policy with the interface of habitat-lab's `habitat.Agent`."""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch

from batchnav.data.goals import kind_of
from batchnav.envs.config import NavConfig, config_of, warn_other_cameras, with_camera
from batchnav.errors import ArgumentError
from batchnav.export.robot_mapper import RobotMapper
from batchnav.mapping.observations import MAP_SPECS
from batchnav.policy.agent import PolicyAgent
from batchnav.policy.weights import load_policy
from batchnav.runtime.kernels.arrays import check_tensor
from batchnav.sensors.goal_image import GOAL_HFOV
from batchnav.sim.bodies import FORWARD, LEFT, LOOK_DOWN, LOOK_UP, RIGHT, collided
from batchnav.tasks.pointnav import PointNavConfig

# Observations "ego_map" and "waypoint" for an agent in Habitat, whose pose follows from the goal sensor


class HabitatMapper:
    """Mapper of one agent in Habitat: observations of `mapping` from depth, goal and turns.

    The goal is the origin of the map. The position relative to the goal follows from the goal sensor and the heading;
    the heading follows from the executed turns, or from a compass. The map's axes are those of the agent at its start.

    Args:
        names: observations to compute.
        config: training environment of the policy. ArgumentError unless its goal sensor uses GPS and compass.
    """

    def __init__(self, names: frozenset[str], config: NavConfig):
        self._mapper, self._config = RobotMapper(names, config), config
        if not self._mapper.has_goal:
            raise ArgumentError(
                f"policy: found the sensors {', '.join(sorted(names))} in a task without GPS and compass, expected a "
                "policy trained with gps_compass: true"
            )
        self.reset()

    def reset(self) -> None:
        """Start an episode with an empty map."""
        self._mapper.reset()
        self._position, self._heading, self._tilt = np.zeros(2, np.float32), np.float32(0.0), 0.0
        self.collisions = 0
        """Collisions of the episode so far."""
        self._intended = 0.0
        """Commanded translation of the last action, metres."""

    def observe(self, depth: torch.Tensor, goal: torch.Tensor, compass: float | None) -> dict[str, torch.Tensor]:
        """Update the map from one step's observations; returns the map observations [1, ...] by name.

        Args:
            depth: f32 [1, H, W], 0..1 over the range of the configuration; holes are 0.
            goal: f32 [2], PointGoal sensor with GPS and compass: distance in metres, angle in radians.
            compass: heading since the start, radians to the left; None: the sum of the executed turns.

        ArgumentError for wrong shapes, and without a compass for a body with actuation noise.
        """
        limits, camera, cpu = self._config.depth, self._config.camera, torch.device("cpu")
        check_tensor("depth", depth, (1, camera.height, camera.width), torch.float32, cpu)
        check_tensor("goal", goal, (2,), torch.float32, cpu)
        if compass is not None:
            self._heading = np.float32(compass)
        elif self._config.body.actuation_noise:
            raise ArgumentError(
                "observations: found no 'compass', expected one: with actuation noise, turns do not give the heading"
            )
        distance, angle = float(goal[0]), float(self._heading + np.float32(goal[1]))
        position = np.array([-distance * math.cos(angle), -distance * math.sin(angle)], np.float32)
        moved = float(np.square(position - self._position).sum())
        stopped = bool(collided(moved, self._intended**2))
        self.collisions, self._position = self.collisions + stopped, position
        metres = depth * (limits.max_depth - limits.min_depth) + limits.min_depth
        measured = metres.masked_fill(depth == 0.0, 0.0)[0].numpy()
        pose = float(position[0]), float(position[1]), float(self._heading)
        found = self._mapper.observe(measured, pose, goal.numpy(), stopped, self._tilt)
        return {name: torch.from_numpy(value) for name, value in found.items()}

    def move(self, action: int) -> None:
        """Apply the turn or tilt of an action; the next `observe` measures its translation and detects collisions."""
        body, turn = self._config.body, math.radians(self._config.body.turn_angle_deg)
        tilt, limit = math.radians(body.tilt_angle_deg), math.radians(body.max_tilt_deg)
        self._intended = body.forward_step if action == FORWARD else 0.0
        self._heading += np.float32({LEFT: turn, RIGHT: -turn}.get(action, 0.0))
        self._tilt = min(max(self._tilt + {LOOK_UP: tilt, LOOK_DOWN: -tilt}.get(action, 0.0), -limit), limit)


class HabitatAgent:
    """A policy that `habitat.Benchmark` and `habitat.Challenge` can evaluate: `reset` before each episode, then `act`.

        habitat.Benchmark("pointnav.yaml").evaluate(HabitatAgent("pointnav_h200"), num_episodes=100)

    habitat-lab calls these two methods only; it does not have to be installed.

    Observations have no batch dimension:

    * "depth": f32 [H, W, 1], normalised to 0..1 over the policy's range (`normalize_depth`, Habitat's default).
    * "rgb": u8 [H, W, 3]. "semantic": i32 [H, W, 1].
    * "pointgoal_with_gps_compass": f32 [2]; "pointgoal" for a policy trained without GPS and compass.
    * "compass": f32 [1], radians, Habitat's CompassSensor. Optional, for a policy that observes a map.
    * "objectgoal": i64 [1], the category's number, as `ObjectNavConfig.categories` lists them; "gps": f32 [2].
    * "imagegoal": u8 [H, W, 3], Habitat's ImageGoalSensor; in Instance ImageNav "instance_imagegoal".
    * "instance_imagegoal_hfov": f32 [1], degrees, for a policy that observes "goal_hfov".
    * "goal_mask": u8 [H, W, 1], 255 on objects of the goal; the caller adds it, as Habitat has no such sensor.

    Image size, field of view and camera height must be those of training, which `config` states. A policy trained with
    ranges of these (`CameraConfig.camera_height_range`) also accepts another `camera_height` and `hfov_deg`.

    Actions are Habitat's indices: 0 stop, 1 move_forward, 2 turn_left, 3 turn_right; with control v1 also 4 look_up, 5
    look_down.

    A `HabitatMapper` computes the observations "ego_map" and "waypoint" from depth, the goal sensor and the turns or
    the compass.
    """

    @torch.inference_mode(False)
    def __init__(
        self,
        policy: PolicyAgent | str | Path,
        device: str | torch.device = "cpu",
        deterministic: bool = False,
        seed: int = 0,
        camera_height: float | None = None,
        hfov_deg: float | None = None,
    ):
        """Load the policy. Logs a warning for a camera that it was not trained with.

        Args:
            policy: policy file, run folder, name of a bundled policy, or a loaded policy. ArgumentError for a policy
                with velocity control.
            device: device of the network.
            deterministic: take the most probable actions; False: sample them, as Habitat's evaluation does.
            seed: seed for action sampling, the same in every episode.
            camera_height: height of the camera above the floor, metres; None: that of training.
            hfov_deg: horizontal field of view, degrees; None: that of training. ConfigError for an invalid camera.
        """
        self.policy = policy if isinstance(policy, PolicyAgent) else load_policy(policy, device)
        self.deterministic, self.seed = deterministic, seed
        self.config: NavConfig = with_camera(config_of(self.policy.info), camera_height, hfov_deg)
        warn_other_cameras("policy", self.policy.info, self.config)
        body = self.config.body
        if not body.is_discrete:
            raise ArgumentError(
                f"policy: found control {body.control!r}, expected v0 or v1: Habitat's actions are indices"
            )
        seen = self.policy.network.observation_shapes.keys()
        self._names = {name: name for name in seen if name not in MAP_SPECS}
        if "pointgoal" in self._names:
            self._names["pointgoal"] = goal_sensor(self.config)
        theirs = kind_of(self.config.task_name).habitat_names
        self._names |= {name: theirs[name] for name in self._names if name in theirs}
        if GOAL_HFOV in self._names:
            self._names[GOAL_HFOV] = "instance_imagegoal_hfov"
        mapped = frozenset(seen & MAP_SPECS.keys())
        self._mapper = HabitatMapper(mapped, self.config) if mapped else None

    def reset(self) -> None:
        """Start an episode: clear memory and map."""
        self.policy.reset(1, self.seed)
        if self._mapper:
            self._mapper.reset()

    def act(self, observations: Mapping[str, Any]) -> dict[str, int]:
        """The next action, {"action": index}. ArgumentError for missing observations and wrong shapes or ranges."""
        batch = {}
        for ours, theirs in self._names.items():
            value = _found(observations, theirs)
            if ours.endswith("depth"):
                value = self.with_holes(_normalised(value, theirs))
            elif ours == GOAL_HFOV:
                value = torch.deg2rad(value.float())
            batch[ours] = value.reshape(1) if ours in self.policy.network.num_categories else value.unsqueeze(0)
        if self._mapper:
            depth, goal = (_found(observations, name).float() for name in ("depth", goal_sensor(self.config)))
            compass = float(_found(observations, "compass")) if "compass" in observations else None
            batch |= self._mapper.observe(_normalised(depth, "depth"), goal, compass)
        action = int(self.policy.act(batch, deterministic=self.deterministic))
        if self._mapper:
            self._mapper.move(action)
        return {"action": action}

    def with_holes(self, depth: torch.Tensor) -> torch.Tensor:
        """Depth images in 0..1 with the hole value of training in place of 0."""
        hole = self.config.depth.hole_value
        return depth.masked_fill(depth == 0.0, hole) if hole > 0.0 else depth


def _found(observations: Mapping[str, Any], name: str) -> torch.Tensor:
    """An observation of Habitat as a tensor, images channels first. ArgumentError where it is missing."""
    if name not in observations:
        raise ArgumentError(f"observations: found {', '.join(observations) or 'none'}, expected also {name!r}")
    value = torch.from_numpy(np.array(observations[name]))
    return value.permute(2, 0, 1) if value.ndim == 3 else value


def _normalised(depth: torch.Tensor, name: str) -> torch.Tensor:
    """The depth images. ArgumentError where values exceed 1, as in metres."""
    if depth.max() > 1.0:
        raise ArgumentError(f"{name}: found {float(depth.max()):g}, expected 0 to 1 (normalize_depth: True)")
    return depth


def goal_sensor(config: NavConfig) -> str:
    """Habitat's name of the goal sensor of a PointNav policy that was trained in this environment."""
    knows = isinstance(config.task, PointNavConfig) and config.task.gps_compass
    return "pointgoal_with_gps_compass" if knows else "pointgoal"
