"""What a policy's predicted mask of the goal says in the views of an episode, beside the true mask.

A mask counts in a view from MASK_PIXELS pixels on. Recall: share of the views with the goal in which the policy
predicts it, on pixels of the goal. Precision: share of the views with a predicted mask in which it lies on the goal.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import torch

from batchnav.data.goals import kind_of
from batchnav.envs.config import NavConfig
from batchnav.envs.observations import image_sources
from batchnav.evaluation.trajectories import PoseCameras, Trajectory, images_along
from batchnav.policy.actor_critic import ActorCritic
from batchnav.scene.bank import SceneBank
from batchnav.sensors.camera import MAIN
from batchnav.sensors.goal_mask import GoalCategorySensor
from batchnav.tasks import TASKS

MASK_PIXELS = 25
"""Pixels from which on a mask counts in a view."""
CATEGORY = "objectgoal"
"""Observation that tells the policy which category to predict."""
_LIKELY = 0.5
"""Probability from which on a pixel is predicted."""


class MaskViews(NamedTuple):
    """Numbers of views of each of M episodes."""

    in_view: np.ndarray
    """i64 [M]: views that show the goal."""
    predicted: np.ndarray
    """i64 [M]: views in which the policy predicts it."""
    hits: np.ndarray
    """i64 [M]: views with both, where the masks overlap."""
    pixels: np.ndarray
    """i64 [M]: predicted pixels in the views that show the goal, in total."""


class MaskRow(NamedTuple):
    """Predicted masks in a group of episodes."""

    label: str
    """"all episodes", or the kind of failure."""
    episodes: int
    in_view: int
    predicted: int
    hits: int
    pixels: float
    """Predicted pixels in a view that shows the goal, mean; NaN without such views."""

    @property
    def precision(self) -> float:
        """Share of the views with a predicted mask in which it lies on the goal; NaN without such views."""
        return self.hits / self.predicted if self.predicted else math.nan

    @property
    def recall(self) -> float:
        """Share of the views that show the goal in which the policy predicts it; NaN without such views."""
        return self.hits / self.in_view if self.in_view else math.nan


@torch.inference_mode()
def predicted_masks(
    bank: SceneBank,
    config: NavConfig,
    network: ActorCritic,
    episodes: Sequence[Any],
    scenes: np.ndarray,
    trajectories: Sequence[Trajectory],
    renderer: str = "raycast",
) -> MaskViews | None:
    """Predicted and true masks along trajectories, rendered again; None for a policy or a task without such masks.

    Args:
        bank: scenes with the field "goal" of the appearance.
        config: environment of the policy.
        network: the policy.
        episodes: the played episodes.
        scenes: i32 [M], row of the bank of each episode.
        trajectories: the policy's trajectories.
        renderer: "raycast", "opengl" or "auto".
    """
    is_searched = "goal" in bank.appearance_fields and not TASKS[config.task_name].changes_goals
    if network.mask_head is None or {*network.num_categories} != {CATEGORY} or not is_searched:
        return None
    true = GoalCategorySensor(config.camera).of_camera(MAIN)
    read = {name: source for name, source in image_sources(config).items() if name in network.images[0]}
    cameras = PoseCameras(bank, config, renderer=renderer, sources={**read, true.spec.name: true})
    kind, device = kind_of(config.task_name), next(network.parameters()).device
    found = np.zeros((len(MaskViews._fields), len(trajectories)), np.int64)
    for i, images in enumerate(images_along(cameras, scenes, trajectories)):
        number = bank.goal_categories.index(kind.goal_name(episodes[i]))
        goal = images[true.spec.name].values == number + 1
        obs = {name: torch.from_numpy(images[name].values).to(device) for name in read}
        obs[CATEGORY] = torch.full((len(goal),), number, dtype=torch.int64, device=device)
        predicted = (network.predict_mask(obs) >= _LIKELY).cpu().numpy()
        found[:, i] = _counted(goal, predicted)
    return MaskViews(*found)


def _counted(goal: np.ndarray, predicted: np.ndarray) -> tuple[int, int, int, int]:
    """Numbers of `MaskViews` of one episode, from its true and predicted masks, bool [S, 1, H, W]."""
    axes = 1, 2, 3
    pixels = predicted.sum(axes)
    shown, said = goal.sum(axes) >= MASK_PIXELS, pixels >= MASK_PIXELS
    hits = shown & said & (goal & predicted).any(axes)
    return int(shown.sum()), int(said.sum()), int(hits.sum()), int(pixels[shown].sum())


def mask_rows(masks: MaskViews, failures: np.ndarray | None, kinds: Sequence[str]) -> list[MaskRow]:
    """A row for all episodes, and one for each of these kinds of failures that an episode has."""
    groups = {"all episodes": np.arange(len(masks.in_view))}
    if failures is not None:
        groups |= {kind: np.flatnonzero(failures == kind) for kind in kinds}
    return [_row(label, masks, rows) for label, rows in groups.items() if len(rows)]


def _row(label: str, masks: MaskViews, rows: np.ndarray) -> MaskRow:
    in_view, predicted, hits, pixels = (int(column[rows].sum()) for column in masks)
    return MaskRow(label, len(rows), in_view, predicted, hits, pixels / in_view if in_view else math.nan)
