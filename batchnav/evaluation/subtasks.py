"""Results of the subtasks of sequences of goals: by position in the sequence, and why subtasks failed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from batchnav.data.goals import FailedEpisode, kind_of
from batchnav.data.goals.sequence import NOT_BEGUN
from batchnav.data.sequences import POINT
from batchnav.envs.config import NavConfig
from batchnav.evaluation.intervals import Interval, mean_interval, proportion_interval, scene_interval
from batchnav.evaluation.trajectories import Trajectory, goal_cameras, saw_goal
from batchnav.scene.bank import SceneBank
from batchnav.sim.bodies import STOP
from batchnav.tasks.sequence import RESULTS
from batchnav.tasks.subtasks import MOST_SUBTASKS


class Subtasks(NamedTuple):
    """Results of the subtasks of M episodes, in the order in which they ended, at most `MOST_SUBTASKS` each."""

    planned: np.ndarray
    """i64 [M]: number of subtasks of each episode."""
    success: np.ndarray
    """f32 [M, MOST_SUBTASKS]: 1 for a right stop; 0 for others, also those that never began; NaN for none."""
    spl: np.ndarray
    """f32 [M, MOST_SUBTASKS]: SPL from where the subtask began; 0 and NaN as in `success`."""
    end: np.ndarray
    """i64 [M, MOST_SUBTASKS]: number of steps of the episode at the end of the subtask; -1 where it never ended."""
    number: np.ndarray
    """i64 [M, MOST_SUBTASKS]: number of the subtask in the list of its episode; -1 where it never ended."""

    @classmethod
    def of(cls, episodes: Mapping[str, np.ndarray]) -> Subtasks:
        """The results among those that `evaluate` returns."""
        planned = episodes["subtasks"].astype(np.int64)
        nothing = np.full(len(planned), np.nan, np.float32)
        success, spl, end, number = (
            np.stack([episodes.get(f"{name}_{k + 1}", nothing) for k in range(MOST_SUBTASKS)], axis=1)
            for name in RESULTS
        )
        there = np.arange(MOST_SUBTASKS) < planned[:, None]
        success, spl = (np.where(there, np.nan_to_num(values), np.nan) for values in (success, spl))
        return cls(
            planned, success, spl, *(np.nan_to_num(values, nan=-1.0).astype(np.int64) for values in (end, number))
        )


class Position(NamedTuple):
    """Results of the k-th subtasks of all episodes that have one."""

    position: int
    """k, from 1."""
    success: Interval
    spl: Interval


def by_position(episodes: Mapping[str, np.ndarray]) -> list[Position]:
    """Success rate and SPL of the first, the second ... subtasks, with intervals over episodes and over scenes."""
    found, rows = Subtasks.of(episodes), []
    for k in range(int(found.planned.max())):
        there = found.planned > k
        success, spl, scene = found.success[there, k], found.spl[there, k], episodes["scene"][there]
        parts = []
        for values, plain in ((success, proportion_interval(success)), (spl, mean_interval(spl, (0.0, 1.0)))):
            low, high = scene_interval(values, scene) if len(np.unique(scene)) > 1 else (np.nan, np.nan)
            parts.append(plain._replace(scene_low=low, scene_high=high, scenes=len(np.unique(scene))))
        rows.append(Position(k + 1, *parts))
    return rows


def parts_of(found: Subtasks, i: int, trajectory: Trajectory) -> list[Trajectory]:
    """The trajectory of each subtask of episode i that ended."""
    ends = [int(end) for end in found.end[i] if end >= 0]
    return [trajectory.rows(np.arange(*ends_of)) for ends_of in zip([0, *ends[:-1]], ends, strict=True)]


def subtask_failures(
    bank: SceneBank,
    config: NavConfig,
    episodes: Sequence[Any],
    results: Mapping[str, np.ndarray],
    trajectories: Sequence[Trajectory],
    renderer: str = "raycast",
) -> np.ndarray:
    """The kind of each failed subtask [M, MOST_SUBTASKS], "" for successes and none. Arguments as `failure_kinds`."""
    kind, found = kind_of(config.task_name), Subtasks.of(results)
    kinds = np.full(found.success.shape, "", f"U{max(map(len, kind.failures))}")
    task: Any = config.task
    sees = "goal" in bank.appearance_fields
    cameras = goal_cameras(bank, config, renderer) if sees and (found.success == 0.0).any() else None
    for i, k in np.argwhere(found.success == 0.0).tolist():
        if found.end[i, k] < 0:
            kinds[i, k] = NOT_BEGUN
            continue
        row, episode, walk = int(results["scene"][i]), episodes[i], parts_of(found, i, trajectories[i])[k]
        number = int(found.number[i, k])
        subtask, place = episode.subtasks[number], episode.places[number]
        alone = replace(episode, subtasks=(subtask,), goals=() if place is None else (place,))
        saw = partial(saw_goal, cameras, row, bank.goal_categories, subtask.category, walk)
        stopped = bool(walk.actions[-1] == STOP) if config.body.is_discrete else True
        names = bank.goal_categories if subtask.kind != POINT else ()
        failed = FailedEpisode(
            alone, bank.scenes[row], walk.positions, stopped, task.success_distance, names, saw if sees else _unknown
        )
        kinds[i, k] = kind.failure(failed)
    return kinds


def _unknown() -> bool:
    """True: it is not known whether an agent without images of the goals saw them."""
    return True
