"""PointGoal and ImageGoal episodes in Habitat's format, and tours: gzipped JSON, one object per episode.

A tour has several goals in an episode, which are visited in their order; the task `sequence` plays it.

The schema is habitat-lab's `NavigationEpisode`: positions in metres, rotations as quaternions [x, y, z, w]. Extra keys
would stop Habitat's loader, so further facts about an episode go into its `info`.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from batchnav.data.episodes import Episode, Goal, scene_name
from batchnav.data.files import is_number
from batchnav.data.formats.dataset import (
    ALL_SCENES,
    EpisodeDataset,
    EpisodeFile,
    Format,
    common_fields,
    content_files,
    in_scenes,
    names_of,
    numbers_of,
    plain_fields,
    read_parts,
    rotation_in,
    write_split,
)
from batchnav.data.sequences import POINT, SequenceEpisode, Subtask
from batchnav.errors import EpisodeError, shortened

_READ = "GOAT-Bench", "MultiON", "InstanceImageNav", "ObjectNav"
"""Tasks with a format of their own."""
OTHER_TASKS = {
    "tasks": "GOAT-Bench",
    "object_index": "MultiON",
    "goal_image_id": "InstanceImageNav",  # before ObjectNav: its episodes have a category too
    "object_category": "ObjectNav",
    "object_id": "ObjectNav",
    "view_points": "ObjectNav",
    "goals_by_category": "ObjectNav",
    "instruction": "vision-and-language navigation",
    "question": "embodied question answering",
    "rigid_objs": "rearrangement",
    "target_receptacles": "rearrangement",
}
"""Keys of files, episodes, goals or `info` of other tasks, with the task; PointNav episodes have none of them."""
_NRNS_DISTANCE = "length_shortest"
"""Key of the geodesic distance in the files of NRNS, whose episodes have no `info`."""


def read(file: EpisodeFile, content_scenes: Sequence[str]) -> EpisodeDataset:
    """The episodes of a split; see `load_episodes`."""
    episodes = [each for part in read_parts(file, content_scenes) for each in _episodes(part, file.folder)]
    return EpisodeDataset(in_scenes(episodes, content_scenes, file.path))


def is_tour(file: EpisodeFile) -> bool:
    """True for a file whose first episode has several goals, without the marks of another task."""
    goals, first = file.first.get("goals"), file.first
    if not isinstance(goals, list) or len(goals) < 2:
        return False
    return not any(key in part for part in (file.data, first, *goals) if isinstance(part, dict) for key in OTHER_TASKS)


def read_tours(file: EpisodeFile, content_scenes: Sequence[str]) -> EpisodeDataset:
    """The tours of a split; see `load_episodes`."""
    found = read(file, content_scenes)
    tours = [SequenceEpisode(**vars(each), subtasks=(Subtask(POINT),) * len(each.goals)) for each in found]
    return EpisodeDataset(tours, "sequence")


def write_tours(dataset: EpisodeDataset, path: Path, content: bool | None) -> None:
    """Write tours as PointNav episodes with several goals. EpisodeError for goals that are no places."""
    for episode in dataset:
        if any(subtask != Subtask(POINT) for subtask in episode.subtasks):
            raise EpisodeError(f"{episode.label}: found goals that are objects, expected a tour of places")
    write(dataset, path, content)


def scenes_played(path: str | Path) -> set[str]:
    """Short names (`scene_name`) of the scenes of a split; files in its folder `content` are listed, not read."""
    file = EpisodeFile(path)
    names = {scene_name(episode.scene_id) for episode in _episodes(file)}
    return names | {part.name.partition(".")[0] for part in content_files(file.data, file.path, (ALL_SCENES,))}


def write(dataset: EpisodeDataset, path: Path, content: bool | None) -> None:
    """Write PointNav or ImageNav episodes in Habitat's format; see `EpisodeDataset.save`."""

    def rows(episodes: Sequence[Episode], scene_id: str) -> dict[str, Any]:
        return {"episodes": [plain_fields(each, list(map(plain_goal, each.goals))) for each in episodes]}

    write_split(dataset.episodes, path, bool(content), rows)


def _episodes(file: EpisodeFile, folder: str = "") -> list[Episode]:
    refuse_other_tasks(file.data, f"{file.path}")
    return [_episode(item, f"{file.path}: episode {i}", folder) for i, item in enumerate(file.data["episodes"])]


def _episode(data: Any, where: str, folder: str) -> Episode:
    """One episode from its JSON value; error messages begin with `where`. `folder`: folder of the episode file."""
    names, where = names_of(data, where)
    refuse_other_tasks(data, where)
    goals = data.get("goals")
    if not isinstance(goals, list) or not goals:
        raise EpisodeError(f"{where}: field 'goals': found {shortened(goals)}, expected a list of at least one goal")
    common = common_fields(data, where)
    refuse_other_tasks(common["info"], f"{where}: field 'info'")
    if is_number(data.get(_NRNS_DISTANCE)):
        common["info"] = {"geodesic_distance": data[_NRNS_DISTANCE], **common["info"]}
    return Episode(
        **names,
        **common,
        goals=tuple(_goal(goal, f"{where}: field 'goals[{i}]'") for i, goal in enumerate(goals)),
        folder=folder,
    )


def _goal(data: Any, where: str) -> Goal:
    if not isinstance(data, dict):
        raise EpisodeError(f"{where}: found {shortened(data)}, expected an object")
    refuse_other_tasks(data, where)
    return place_of(data, where)


def place_of(data: dict, where: str) -> Goal:
    """A goal's place from its JSON value, and its radius and rotation where it has them. EpisodeError otherwise."""
    radius = data.get("radius")
    if radius is not None and not (is_number(radius) and radius > 0):
        raise EpisodeError(f"{where}: field 'radius': found {shortened(radius)}, expected metres > 0, or null")
    rotation = None if data.get("rotation") is None else rotation_in(data, "rotation", where)
    return Goal(numbers_of(data, "position", 3, where), None if radius is None else float(radius), rotation)


def refuse_other_tasks(data: dict, where: str) -> None:
    """EpisodeError, which begins with `where`, for a JSON object with a key of another task."""
    for key, task in OTHER_TASKS.items():
        if key in data:
            expected = "or of another task with a format; add a format of your own (`batchnav.data.formats.FORMATS`)"
            if task in _READ:
                expected = "as the first episode of the file is"
            raise EpisodeError(
                f"{where}: field {key!r}: found episodes of {task}, expected those of PointNav or ImageNav, {expected}"
            )


def plain_goal(goal: Goal) -> dict:
    """A goal as JSON values. Without a rotation it has the keys of Habitat's goals alone."""
    rotation = {} if goal.rotation is None else {"rotation": list(goal.rotation)}
    return {"position": list(goal.position), "radius": goal.radius, **rotation}


FORMAT = Format(lambda file: bool(file.data), read, write)
"""Files without the marks of another task: PointNav's and ImageNav's."""
TOUR = Format(is_tour, read_tours, write_tours)
"""PointNav files whose first episode has several goals."""
