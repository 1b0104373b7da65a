"""Episode datasets as environments play them: their scenes with the goals of the file, and episodes that fit them."""

from __future__ import annotations

import contextlib
import logging
import math
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch

from batchnav.data.episodes import Episode, group_by_scene, in_scene_frames, scene_name
from batchnav.data.files import SCENES_DIR
from batchnav.data.formats import EpisodeDataset
from batchnav.data.goals import GOALS, kind_of
from batchnav.data.scenes.load import load_all, located, missing_scene
from batchnav.errors import EpisodeError, MeshError, NavMeshError, few
from batchnav.navmesh.settings import NavMeshSettings
from batchnav.runtime.console import number_of
from batchnav.scene.images import AppearanceConfig
from batchnav.scene.scene import Scene
from batchnav.tasks import TASKS

log = logging.getLogger(__name__)


@contextlib.contextmanager
def named(dataset: EpisodeDataset) -> Iterator[None]:
    """Context manager whose errors about episodes and scenes begin with the name of the dataset's file."""
    try:
        yield
    except (EpisodeError, MeshError, NavMeshError) as error:
        if not dataset.path or str(error).startswith(dataset.path):
            raise
        raise type(error)(f"{dataset.path}: {error}") from error


def check_kind(dataset: EpisodeDataset, task: str) -> None:
    """EpisodeError for a dataset whose goals are of another kind than those of a task, by its name."""
    kind = kind_of(task)
    if dataset.kind not in kind.plays:
        players = [name for name in TASKS if dataset.kind in kind_of(name).plays]
        where = f"{dataset.path}: " if dataset.path else "episodes: "
        found, expected = (GOALS[each].title for each in (dataset.kind, kind.plays[0]))
        raise EpisodeError(
            f"{where}found episodes of {found}, expected those of {expected}, which the task {task} plays; "
            f"{'task' if len(players) == 1 else 'tasks'} for this file: {', '.join(players)}"
        )


def load_played_scenes(
    dataset: EpisodeDataset,
    scenes_dir: str | Path = SCENES_DIR,
    settings: NavMeshSettings | None = None,
    appearance: AppearanceConfig | bool = True,
    device: str | torch.device = "auto",
) -> list[Scene]:
    """The scenes of a dataset's episodes, with their goals, in the order of their scene ids; each is named by its id.

    Other arguments as in `load_scene`; `device` renders objects of files without view points.
    """
    kind = GOALS[dataset.kind]
    with named(dataset):
        if kind.lacks_goals(dataset):
            appearance = appearance or True  # view points are made from the ids of objects
        ids = played_scene_ids(dataset.episodes, scenes_dir)
        check_present(ids, scenes_dir)
        found = load_all(ids.values(), settings, appearance, scenes_dir)
        scenes = [scene._replace(name=name) for scene, name in zip(found, ids, strict=True)]
        return kind.with_goals_of(dataset, scenes, device)


def check_present(ids: Mapping[str, str], scenes_dir: str | Path) -> None:
    """MeshError where files of scenes are missing, with their number; `ids` as of `played_scene_ids`."""
    problems = [problem for found in ids.values() if (problem := missing_scene(found, scenes_dir))]
    if problems:
        more = "" if len(ids) == 1 else f"; {len(problems)} of {number_of(len(ids), 'scene')} are missing"
        if len(problems) < len(ids):
            more += ": --skip-missing plays the others, --content-scenes names those to play (data.play.part_to_play)"
        raise MeshError(problems[0] + more)


def part_to_play(
    dataset: EpisodeDataset,
    scenes_dir: str | Path = SCENES_DIR,
    content_scenes: Collection[str] = (),
    skip_missing: bool = False,
) -> EpisodeDataset:
    """The episodes of a dataset in some of its scenes. What is left out because scenes are missing is logged.

    Args:
        dataset: the episodes.
        scenes_dir: folder of Habitat's scenes.
        content_scenes: names of scenes, as Habitat's `content_scenes`: scene ids, or file names without suffixes; empty
            for all scenes.
        skip_missing: leave out the episodes of scenes whose files are missing.

    EpisodeError for a name of `content_scenes` that no episode has; MeshError where all scenes are missing.
    """
    by_scene = group_by_scene(dataset.episodes)
    with named(dataset):
        if content_scenes:
            known = {name: scene_id for scene_id in by_scene for name in (scene_id, scene_name(scene_id))}
            if unknown := [name for name in content_scenes if name not in known]:
                names = sorted(map(scene_name, by_scene))
                raise EpisodeError(f"content_scenes: found {few(unknown)}, expected scenes of the file: {few(names)}")
            wanted = {known[name] for name in content_scenes}
            dataset = dataset.with_episodes(episode for episode in dataset if episode.scene_id in wanted)
        if skip_missing:
            ids = played_scene_ids(dataset.episodes, scenes_dir)
            missing = [name for name, found in ids.items() if missing_scene(found, scenes_dir)]
            if missing and len(missing) < len(ids):
                kept = [episode for episode in dataset if episode.scene_id not in missing]
                log.warning(
                    "%s: left out %s of %s in %s of %s whose files are missing: %s", dataset.path or "episodes",
                    f"{len(dataset) - len(kept):,}", number_of(len(dataset), "episode"), f"{len(missing):,}",
                    number_of(len(ids), "scene"), few(missing),
                )  # fmt: skip
                dataset = dataset.with_episodes(kept)
    return dataset


def played_scene_ids(episodes: Iterable[Episode], scenes_dir: str | Path = SCENES_DIR) -> dict[str, str]:
    """Scene ids for `load_scene` by the scene ids of episodes, sorted; the file's own folder is searched last."""
    scenes = {episode.scene_id: episode for episode in episodes}
    return {name: located(scenes[name].scene, Path(scenes_dir), scenes[name].folder) for name in sorted(scenes)}


def placed(dataset: EpisodeDataset, scenes: Sequence[Scene], config: Any = None) -> EpisodeDataset:
    """The dataset with positions in the frames of its scenes, which have their goals.

    `config`: the task's, whose success distance decides which goals a stop can reach. EpisodeError for the first
    episode that cannot be played.
    """
    by_name = {scene.name: scene for scene in scenes}
    with named(dataset):
        episodes = check_episodes(dataset.episodes, by_name, dataset.kind, success_distance_of(config))
    return dataset.with_episodes(episodes)


def success_distance_of(config: Any) -> float:
    """Success distance of a task's configuration, metres; inf where it has none."""
    return math.inf if config.success_rule is None else config.success_rule.distance


def check_episodes(
    episodes: Sequence[Episode], scenes: Mapping[str, Scene], kind: str = "point", success_distance: float = math.inf
) -> list[Episode]:
    """The episodes in the frames of their scenes. EpisodeError for the first one that cannot be played.

    Args:
        episodes: episodes with goals of one kind.
        scenes: scenes by scene id, with their goals.
        kind: name of the kind.
        success_distance: as in `GoalKind.out_of_reach`; episodes in which no stop succeeds are logged as a warning.
    """
    episodes = in_scene_frames(episodes, {name: scene.mesh.origin for name, scene in scenes.items()})
    hopeless: list[str] = []
    for scene_id, group in group_by_scene(episodes).items():
        if scene_id not in scenes:
            raise EpisodeError(f"{group[0].label}: field 'scene_id': found a scene that is not loaded")
        for _, problem in GOALS[kind].unplayable(group, scenes[scene_id]):
            raise EpisodeError(problem)
        if math.isfinite(success_distance):
            hopeless += GOALS[kind].out_of_reach(group, scenes[scene_id], success_distance)
    if hopeless:
        log.warning("%s in which no stop succeeds, such as %s", number_of(len(hopeless), "episode"), hopeless[0])
    return episodes
