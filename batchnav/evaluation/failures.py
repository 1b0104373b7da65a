"""Failure analysis: why each failed episode failed.

A failed episode has one of the kinds that the task's goals tell apart (`GoalKind.failures`). "At" a goal or view point
means within the task's success distance. Images are rendered again from the agent's poses, with at most IMAGE_SIDE
rows and columns; an object of one pixel counts as seen.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

from batchnav.data.goals import FailedEpisode, kind_of
from batchnav.envs.config import NavConfig
from batchnav.evaluation.trajectories import POSES_AT_ONCE, PoseCameras, Trajectory
from batchnav.scene.bank import SceneBank
from batchnav.sensors.camera import MAIN
from batchnav.sensors.goal_mask import GoalCategorySensor
from batchnav.sim.bodies import STOP

IMAGE_SIDE = 64
"""Largest number of rows and columns of the images that show what an agent saw."""


def meanings_of(config: NavConfig) -> dict[str, str]:
    """Kinds of failures in the task of a configuration, with their meanings; empty for a task without kinds."""
    return dict(kind_of(config.task_name).failures)


def failure_kinds(
    bank: SceneBank,
    config: NavConfig,
    episodes: Sequence[Any],
    results: Mapping[str, np.ndarray],
    trajectories: Sequence[Trajectory],
    renderer: str = "raycast",
) -> np.ndarray | None:
    """The kind of each failed episode, "" for a success.

    Args:
        bank: the scenes; with goals where these are objects.
        config: environment of the agent.
        episodes: the played episodes.
        results: results of `evaluate`, in the same order.
        trajectories: the agent's trajectories, in the same order.
        renderer: "raycast", "opengl" or "auto".

    None for tasks without kinds, and where they need images but the bank lacks the field "goal" of the appearance.
    """
    kind = kind_of(config.task_name)
    if not kind.failures or (kind.failures_need_images and "goal" not in bank.appearance_fields):
        return None
    task: Any = config.task
    found = np.full(len(trajectories), "", f"U{max(map(len, kind.failures))}")
    failed = np.flatnonzero(results["success"] == 0.0)
    cameras = _cameras(bank, config, renderer) if kind.failures_need_images and len(failed) else None
    for i in failed.tolist():
        row, episode, trajectory = int(results["scene"][i]), episodes[i], trajectories[i]
        saw = partial(_saw, cameras, row, bank.goal_categories, kind.goal_name(episode), trajectory)
        found[i] = kind.failure(
            FailedEpisode(
                episode, bank.scenes[row], trajectory.positions, _stopped(trajectory, config), task.success_distance,
                bank.goal_categories, saw,
            )
        )  # fmt: skip
    return found


def _stopped(trajectory: Trajectory, config: NavConfig) -> bool:
    """True where the agent ended the episode."""
    if config.body.is_discrete:
        return bool(trajectory.actions[-1] == STOP)
    return len(trajectory.actions) < config.task.max_steps


def _cameras(bank: SceneBank, config: NavConfig, renderer: str) -> PoseCameras:
    """The main camera with images of goal categories, at most IMAGE_SIDE rows and columns."""
    camera = config.camera.fixed
    scale = min(1.0, IMAGE_SIDE / max(camera.height, camera.width))
    height, width = (max(4, round(side * scale)) for side in (camera.height, camera.width))
    small = replace(config, camera=replace(camera, height=height, width=width))
    sensor = GoalCategorySensor(small.camera).of_camera(MAIN)
    return PoseCameras(bank, small, renderer=renderer, sources={sensor.spec.name: sensor})


def _saw(
    cameras: PoseCameras | None, scene: int, goal_names: Sequence[str], goal_name: str, trajectory: Trajectory
) -> bool:
    """True where some image along a trajectory, in a row of the bank, shows a goal of this name."""
    assert cameras is not None
    number = goal_names.index(goal_name)
    poses = np.unique(np.column_stack([trajectory.positions, trajectory.headings, trajectory.tilts]), axis=0)
    for begin in range(0, len(poses), POSES_AT_ONCE):
        some = poses[begin : begin + POSES_AT_ONCE]
        rows = np.full(len(some), scene, np.int32)
        position = np.ascontiguousarray(some[:, :3])
        (images,) = cameras.images_at(rows, position, some[:, 3].copy(), some[:, 4].copy()).values()
        if (images.values == number + 1).any():
            return True
    return False
