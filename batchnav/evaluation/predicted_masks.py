"""What the mask of the goal that a policy predicts, or a detector gives, says in the views of an episode.

A mask counts in a view from MASK_PIXELS pixels on. Recall: share of the views with the goal in which it is
predicted, on pixels of the goal. Precision: share of the views with a predicted mask in which it lies on the goal.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
import torch

from batchnav.data.goals import kind_of
from batchnav.envs.config import NavConfig
from batchnav.envs.observations import image_sources, needed_appearance
from batchnav.evaluation.play import Images
from batchnav.evaluation.trajectories import POSES_AT_ONCE, PoseCameras, Trajectory, images_along
from batchnav.observation import ObservationSource
from batchnav.policy.actor_critic import ActorCritic
from batchnav.scene.bank import SceneBank
from batchnav.sensors.camera import MAIN
from batchnav.sensors.goal_mask import GOAL, GoalCategorySensor, GoalMaskSensor
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
    """i64 [M]: views in which it is predicted."""
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
        """Share of the views that show the goal in which it is predicted; NaN without such views."""
        return self.hits / self.in_view if self.in_view else math.nan


class Wanted(NamedTuple):
    """The part of a task that sensors of goal masks read."""

    goal_category: torch.Tensor
    """i64 [N]."""


@torch.inference_mode()
def predicted_masks(
    bank: SceneBank,
    config: NavConfig,
    network: ActorCritic | None,
    episodes: Sequence[Any],
    scenes: np.ndarray,
    trajectories: Sequence[Trajectory],
    renderer: str = "raycast",
) -> MaskViews | None:
    """Predicted and true masks along trajectories, rendered again; None for an agent or a task without such masks.

    Args:
        bank: scenes with the field "goal" of the appearance.
        config: environment of the agent; with a detector, its masks are the predicted ones.
        network: the policy, or None for another agent.
        episodes: the played episodes.
        scenes: i32 [M], row of the bank of each episode.
        trajectories: the agent's trajectories.
        renderer: "raycast", "opengl" or "auto".
    """
    is_searched = "goal" in bank.appearance_fields and not TASKS[config.task_name].changes_goals
    predict = _detects(config) or _predicts(config, network)
    if not is_searched or predict is None:
        return None
    wanted = Wanted(torch.zeros(POSES_AT_ONCE, dtype=torch.int64, device=bank.device))
    true = GoalCategorySensor(config.camera).of_camera(MAIN)
    sources = {**predict.read, true.spec.name: true}
    cameras = PoseCameras(bank, config, renderer=renderer, sources=sources, task=wanted)
    kind = kind_of(config.task_name)
    found = np.zeros((len(MaskViews._fields), len(trajectories)), np.int64)
    numbers = [bank.goal_categories.index(kind.goal_name(episode)) for episode in episodes]
    wanted.goal_category.fill_(numbers[0] if numbers else 0)
    for i, images in enumerate(images_along(cameras, scenes, trajectories)):
        goal = images[true.spec.name].values == numbers[i] + 1
        found[:, i] = _counted(goal, predict(images, numbers[i]))
        wanted.goal_category.fill_(numbers[min(i + 1, len(numbers) - 1)])  # before the next images are rendered
    return MaskViews(*found)


class _Predictor(NamedTuple):
    """How masks are predicted."""

    read: dict[str, ObservationSource]
    """The images that it reads, by name."""
    predict: Callable[[dict[str, Images], int], np.ndarray]

    def __call__(self, images: dict[str, Images], number: int) -> np.ndarray:
        """Predicted masks bool [S, 1, H, W] of a category in the images of S views."""
        return self.predict(images, number)


def _detects(config: NavConfig) -> _Predictor | None:
    """The masks of the main camera's detector; None without one, and where no sensor reads its images."""
    sensor = GoalMaskSensor(config.camera, config.goal_mask).of_camera(MAIN)
    if not config.goal_mask.detector or not sensor.requires.appearance <= needed_appearance(config):
        return None
    name, least = sensor.spec.name, _LIKELY * GOAL
    return _Predictor({name: sensor}, lambda images, number: images[name].values >= least)


def _predicts(config: NavConfig, network: ActorCritic | None) -> _Predictor | None:
    """The masks that a policy predicts; None for another agent."""
    if network is None or network.mask_head is None or {*network.num_categories} != {CATEGORY}:
        return None
    read = {name: source for name, source in image_sources(config).items() if name in network.images[0]}
    device = next(network.parameters()).device

    def predict(images: dict[str, Images], number: int) -> np.ndarray:
        obs = {name: torch.from_numpy(images[name].values).to(device) for name in read}
        views = len(next(iter(obs.values())))
        obs[CATEGORY] = torch.full((views,), number, dtype=torch.int64, device=device)
        likely: np.ndarray = (network.predict_mask(obs) >= _LIKELY).cpu().numpy()
        return likely

    return _Predictor(read, predict)


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
