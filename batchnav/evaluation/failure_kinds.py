"""Failure analysis: why each failed episode failed.

A failed episode has the first kind of `MEANINGS` that applies. "At" a goal or view point: within the task's success
distance. Images are rendered again from the agent's poses, with at most IMAGE_SIDE rows and columns; an object of one
pixel counts as seen.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from scipy.spatial import cKDTree

from batchnav.envs.config import NavConfig
from batchnav.evaluation.trajectories import POSES_AT_ONCE, PoseCameras, Trajectory
from batchnav.navmesh.navmesh import NavMesh
from batchnav.scene.bank import SceneBank
from batchnav.scene.goals import SceneGoals
from batchnav.sensors.camera import MAIN
from batchnav.sensors.goal_mask import GoalCategorySensor
from batchnav.sim.bodies import STOP
from batchnav.tasks import TASKS

WRONG_OBJECT, NEVER_SAW, PASSED, EARLY, OUT_OF_STEPS = FAILURES = (
    "wrong object", "never saw it", "saw and passed", "stopped early", "out of steps",
)  # fmt: skip
"""All kinds of ObjectNav and Instance ImageNav."""
WRONG_HEADING, PASSED_BY = "wrong heading", "passed by"
_OBJECTS = {
    WRONG_OBJECT: "it stopped at a view point of another goal: of another category, or another object",
    NEVER_SAW: "no image of the main camera showed the goal: an object of the category, or the object",
    PASSED: "it was at a view point of the goal, but made no successful stop there",
    EARLY: "it stopped, and had never been at a view point of the goal",
    OUT_OF_STEPS: "it did not stop, and had never been at a view point of the goal",
}
MEANINGS: dict[str, dict[str, str]] = {
    "category": _OBJECTS,
    "instance": _OBJECTS,
    "pose": {
        WRONG_HEADING: "it stopped at the goal, but not with its heading, which the configuration asks for",
        PASSED_BY: "it was at the goal, but made no successful stop there",
        EARLY: "it stopped, and had never been at the goal",
        OUT_OF_STEPS: "it did not stop, and had never been at the goal",
    },
}
"""What each kind says about the agent, by `Task.goal_kind` and kind."""
IMAGE_SIDE = 64
"""Largest number of rows and columns of the images that show what an agent saw."""
_DTYPE = f"U{max(map(len, itertools.chain(*MEANINGS.values())))}"


def meanings_of(config: NavConfig) -> dict[str, str]:
    """Kinds of failures in the task of a configuration, with their meanings; empty for a task without kinds."""
    return MEANINGS.get(TASKS[config.task_name].goal_kind, {})


def kinds_of(config: NavConfig) -> tuple[str, ...]:
    """All kinds of failures in the task of a configuration; empty for a task without kinds."""
    return tuple(meanings_of(config))


def failure_kinds(
    bank: SceneBank,
    config: NavConfig,
    episodes: Mapping[str, np.ndarray],
    trajectories: Sequence[Trajectory],
    renderer: str = "raycast",
    goals: Sequence[np.ndarray] = (),
) -> np.ndarray | None:
    """The kind of each failed episode, "" for a success.

    Args:
        bank: the scenes; with goals where these are objects.
        config: environment of the agent.
        episodes: results of `evaluate`.
        trajectories: the agent's trajectories, in the same order.
        renderer: "raycast", "opengl" or "auto".
        goals: f32 [G, 3], goal positions of each episode, which ImageNav reads.

    None for tasks without kinds, and for objects as goals where the bank lacks the field "goal" of the appearance.
    """
    goal_kind = TASKS[config.task_name].goal_kind
    task: Any = config.task
    if goal_kind == "pose":
        return _pose_kinds(bank, config, episodes, trajectories, goals, task.success_distance)
    if goal_kind not in MEANINGS or "goal" not in bank.appearance_fields:
        return None
    kinds = np.full(len(trajectories), "", _DTYPE)
    failed = np.flatnonzero(episodes["success"] == 0.0)
    cameras = _cameras(bank, config, renderer) if len(failed) else None
    for i in failed.tolist():
        row, number, trajectory = int(episodes["scene"][i]), int(episodes["category"][i]), trajectories[i]
        scene, category = bank.scenes[row], bank.goal_categories[number]
        assert scene.goals is not None and cameras is not None
        limit, stopped = task.success_distance, _stopped(trajectory, config)
        others = _view_points_of_others(scene.goals, category, bank.goal_categories)
        if stopped and at_view_points(scene.navmesh, trajectory.positions[-1:], others, limit).any():
            kinds[i] = WRONG_OBJECT
        elif not _saw(cameras, row, number, trajectory):
            kinds[i] = NEVER_SAW
        elif at_view_points(scene.navmesh, trajectory.positions, scene.goals.view_points(category), limit).any():
            kinds[i] = PASSED
        else:
            kinds[i] = EARLY if stopped else OUT_OF_STEPS
    return kinds


def _pose_kinds(
    bank: SceneBank,
    config: NavConfig,
    episodes: Mapping[str, np.ndarray],
    trajectories: Sequence[Trajectory],
    goals: Sequence[np.ndarray],
    limit: float,
) -> np.ndarray:
    """`failure_kinds` of tasks whose goal is a pose; an agent is at its goal below `limit` metres."""
    kinds = np.full(len(trajectories), "", _DTYPE)
    for i in np.flatnonzero(episodes["success"] == 0.0).tolist():
        navmesh, trajectory = bank.scenes[int(episodes["scene"][i])].navmesh, trajectories[i]
        at = at_view_points(navmesh, trajectory.positions, goals[i], limit)
        stopped = _stopped(trajectory, config)
        if at.any():
            kinds[i] = WRONG_HEADING if stopped and at[-1] else PASSED_BY
        else:
            kinds[i] = EARLY if stopped else OUT_OF_STEPS
    return kinds


def at_view_points(navmesh: NavMesh, positions: np.ndarray, points: np.ndarray, limit: float) -> np.ndarray:
    """bool [S]: the geodesic distance of positions f32 [S, 3] to the nearest of points f32 [P, 3] is below `limit`."""
    found = np.zeros(len(positions), bool)
    if len(points):
        gap, nearest = cKDTree(points).query(positions, distance_upper_bound=limit)
        rows = np.flatnonzero(np.isfinite(gap))
        if len(rows):
            found[rows] = navmesh.geodesic_distance(positions[rows], points[nearest[rows]]) < limit
    return found


def _view_points_of_others(goals: SceneGoals, category: str, categories: Sequence[str]) -> np.ndarray:
    """f32 [P, 3]: view points of objects of the task's other categories."""
    own = {goal.object_id for goal in goals.objects if goal.category == category}
    points = [goal.view_points for goal in goals.objects if goal.object_id not in own and goal.category in categories]
    return np.concatenate([np.zeros((0, 3), np.float32), *points])


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


def _saw(cameras: PoseCameras, scene: int, category: int, trajectory: Trajectory) -> bool:
    """True where some image along a trajectory shows an object of a category, both by number."""
    poses = np.unique(np.column_stack([trajectory.positions, trajectory.headings, trajectory.tilts]), axis=0)
    for begin in range(0, len(poses), POSES_AT_ONCE):
        some = poses[begin : begin + POSES_AT_ONCE]
        rows = np.full(len(some), scene, np.int32)
        position = np.ascontiguousarray(some[:, :3])
        (images,) = cameras.images_at(rows, position, some[:, 3].copy(), some[:, 4].copy()).values()
        if (images.values == category + 1).any():
            return True
    return False
