"""Episode files as environments play them: episodes, scenes with their goals, and the table for the simulator.

PointNav's files and ObjectNav's have the same functions here; `goal_categories` of the task says which ones to expect.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from batchnav.data.episodes.episode import Episode, group_by_scene
from batchnav.data.episodes.episode_file import load_episodes
from batchnav.data.episodes.playing import check_episodes, episode_table, in_scene_frames, scene_rows
from batchnav.data.objectnav.episode import ObjectNavEpisode
from batchnav.data.objectnav.episode_file import load_objectnav
from batchnav.data.objectnav.fixed import GoalDataset, lacks_view_points, with_goals_of
from batchnav.data.objectnav.instance_file import is_instance_file, load_instance_imagenav
from batchnav.data.objectnav.playing import unplayable_searches
from batchnav.data.scenes import find_played
from batchnav.data.sources.scene_source import SCENES_DIR
from batchnav.errors import BatchnavError, EpisodeError, few
from batchnav.navmesh.settings import NavMeshSettings
from batchnav.scene.goal_data import categories_of
from batchnav.scene.images import AppearanceConfig
from batchnav.scene.scene import Scene
from batchnav.tasks.episode_sampling import EpisodeTable


@dataclass(frozen=True)
class PlayedFile:
    """Episodes of a file, and the goals of its scenes where it is one of ObjectNav."""

    episodes: list[Any]
    dataset: GoalDataset | None = None
    path: str | Path = ""
    """The file, for messages."""

    def scenes(
        self,
        episodes: Sequence[Episode],
        scenes_dir: str | Path = SCENES_DIR,
        settings: NavMeshSettings | None = None,
        appearance: AppearanceConfig | bool = True,
    ) -> list[Scene]:
        """The scenes of some of the episodes, with their goals; arguments as in `find_played`.

        Error messages begin with the name of the file.
        """
        with self.named():
            return self._scenes(episodes, scenes_dir, settings, appearance)

    @contextlib.contextmanager
    def named(self) -> Iterator[None]:
        """Context manager whose errors begin with the name of the file."""
        try:
            yield
        except BatchnavError as error:
            raise type(error)(f"{self.path}: {error}") from error

    def _scenes(
        self, episodes: Sequence[Episode], scenes_dir: str | Path, settings: Any, appearance: Any
    ) -> list[Scene]:
        if self.dataset is not None and lacks_view_points(self.dataset):
            appearance = appearance or True  # view points are made from the ids of objects
        scenes = find_played(episodes, scenes_dir, settings, appearance)
        if self.dataset is None:
            return scenes
        return with_goals_of(self.dataset, scenes)


def load_played(path: str | Path, goal_categories: Sequence[str] | None) -> PlayedFile:
    """The episodes of a file. Errors as `load_episodes`.

    A task with `goal_categories` needs a file of ObjectNav; one without names also takes Instance ImageNav's.
    """
    if goal_categories is None:
        return PlayedFile(load_episodes(path), path=path)
    load = load_instance_imagenav if not goal_categories and is_instance_file(path) else load_objectnav
    dataset = load(path)
    return PlayedFile(dataset.episodes, dataset, path)


def playable(episodes: Sequence[Episode], scenes: Mapping[str, Scene]) -> list[Episode]:
    """The episodes in the frames of their scenes. EpisodeError for the first one that cannot be played."""
    if not any(isinstance(episode, ObjectNavEpisode) for episode in episodes):
        return check_episodes(episodes, scenes)
    episodes = in_scene_frames(episodes, {name: scene.mesh.origin for name, scene in scenes.items()})
    for scene_id, group in group_by_scene(episodes).items():
        for _, problem in unplayable_searches(group, scenes[scene_id]._replace(name=scene_id)):
            raise EpisodeError(problem)
    return episodes


def played_table(
    episodes: Sequence[Any], scenes: Sequence[Scene], goal_categories: Sequence[str] | None, device: torch.device | str
) -> EpisodeTable:
    """The episodes as tensors. EpisodeError for a scene that is not loaded and a category that the task lacks."""
    if goal_categories is None:
        return episode_table(episodes, [scene.name for scene in scenes], device)
    number = {name: k for k, name in enumerate(tuple(goal_categories) or categories_of(scenes))}
    rows = scene_rows(episodes, [scene.name for scene in scenes])
    for episode in episodes:
        where = f"episode {episode.episode_id!r} of scene {episode.scene_id!r}"
        if episode.goal_name not in number:
            raise EpisodeError(
                f"{where}: field 'object_category': found {episode.goal_name!r}, expected one of the task's: "
                f"{few(tuple(number), 30)}; presets (--preset), such as objectnav_mp3d and ovon, have other categories"
            )

    def tensor(values: list, dtype: torch.dtype) -> torch.Tensor:
        return torch.tensor(values, dtype=dtype, device=device)

    start = tensor([episode.start_position for episode in episodes], torch.float32)
    return EpisodeTable(
        scene=tensor(rows, torch.int32), start=start,
        heading=tensor([episode.heading for episode in episodes], torch.float32), goal=start,
        category=tensor([number[episode.goal_name] for episode in episodes], torch.int64),
        goal_image=tensor([getattr(episode, "goal_image_id", 0) for episode in episodes], torch.int64),
    )  # fmt: skip
