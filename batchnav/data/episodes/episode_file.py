"""PointGoal and ImageGoal episodes in Habitat's format: gzipped JSON, one object per episode.

The schema is habitat-lab's `NavigationEpisode`: positions in metres, rotations as quaternions [x, y, z, w]. Extra keys
would stop Habitat's loader, so further facts about an episode go into its `info`.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from batchnav.data.episodes.episode import Episode, Goal, scene_name
from batchnav.data.episodes.fields import (
    ALL_SCENES,
    CONTENT,
    UNUSED,
    common_fields,
    content_files,
    names_of,
    numbers_of,
    read_split,
    readers_of,
    rotation_in,
    write_split,
)
from batchnav.data.files import is_number
from batchnav.errors import EpisodeError, shortened
from batchnav.runtime.files import as_path

OTHER_TASKS = {
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
"""Keys of files, episodes or goals of other tasks, with the task; PointNav episodes have none of them."""
TASK_NAMES = {"InstanceImageNav": "instance_imagenav", "ObjectNav": "objectnav"}
"""Names of those other tasks that batchnav has."""

_NRNS_DISTANCE = "length_shortest"
"""Key of the geodesic distance in the files of NRNS, whose episodes have no `info`."""


def load_episodes(path: str | Path, content_scenes: Sequence[str] = (ALL_SCENES,)) -> list[Episode]:
    """Read a `.json.gz` file of PointNav or ImageNav episodes, and the files in its folder `content`.

    Args:
        path: the split's file. The files of its `content_scenes_path`, by default the folder `content` in the same
            folder, belong to it, in the order of their names.
        content_scenes: short names of the scenes to read, as `Adrian` for gibson/Adrian.glb; "*" reads all.

    Raises EpisodeError with file, episode and field for: a file that is not gzipped JSON, or is truncated; a field that
    is missing, not finite or of the wrong length; a rotation that is not a unit quaternion about +Y; an episode without
    goals; episodes of another task.
    """
    path = as_path(path)
    data = _read_file(path)
    folder = str(path.absolute().parent)
    episodes = _episodes(data, path, folder)
    if ALL_SCENES not in content_scenes:
        episodes = [episode for episode in episodes if scene_name(episode.scene_id) in content_scenes]
    for file in content_files(data, path, content_scenes):
        episodes += _episodes(_read_file(file), file, folder)
    if not episodes:
        raise EpisodeError(f"{path}: found no episodes, expected at least one in it or in files {CONTENT}")
    return episodes


def scenes_played(path: str | Path) -> set[str]:
    """Short names (`scene_name`) of the scenes of a split; files in its folder `content` are listed, not read."""
    path = Path(path)
    data = _read_file(path)
    names = {scene_name(episode.scene_id) for episode in _episodes(data, path)}
    return names | {file.name.partition(".")[0] for file in content_files(data, path, (ALL_SCENES,))}


def save_episodes(episodes: Sequence[Episode], path: str | Path, content: bool = False) -> None:
    """Write PointNav or ImageNav episodes in Habitat's format, atomically; equal episodes give equal bytes.

    `load_episodes` reads equal episodes back, in the order of the files.

    Args:
        episodes: at least one episode.
        path: the split's file, `NAME.json.gz`.
        content: True to write each scene's episodes to content/SCENE.json.gz; they are read in the order of these
            names. False: all go to `path`.

    Raises EpisodeError for two scenes with one short name and for a folder `content` with files of other scenes.
    """
    write_split(episodes, Path(path), content, lambda some, scene_id: {"episodes": list(map(_plain, some))})


def _read_file(path: Path) -> dict:
    """The JSON object of a PointNav file. EpisodeError for any other file."""
    data = read_split(path)
    _refuse_other_tasks(data, f"{path}")
    return data


def _episodes(data: dict, path: Path, folder: str = "") -> list[Episode]:
    return [_episode(item, f"{path}: episode {i}", folder) for i, item in enumerate(data["episodes"])]


def _episode(data: Any, where: str, folder: str) -> Episode:
    """One episode from its JSON value; error messages begin with `where`. `folder`: folder of the episode file."""
    names, where = names_of(data, where)
    _refuse_other_tasks(data, where)
    goals = data.get("goals")
    if not isinstance(goals, list) or not goals:
        raise EpisodeError(f"{where}: field 'goals': found {shortened(goals)}, expected a list of at least one goal")
    common = common_fields(data, where)
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
    _refuse_other_tasks(data, where)
    radius = data.get("radius")
    if radius is not None and not (is_number(radius) and radius > 0):
        raise EpisodeError(f"{where}: field 'radius': found {shortened(radius)}, expected metres > 0, or null")
    rotation = None if data.get("rotation") is None else rotation_in(data, "rotation", where)
    return Goal(numbers_of(data, "position", 3, where), None if radius is None else float(radius), rotation)


def _refuse_other_tasks(data: dict, where: str) -> None:
    for key, task in OTHER_TASKS.items():
        if key in data:
            hint = f"; {readers_of(TASK_NAMES[task])}" if task in TASK_NAMES else ""
            raise EpisodeError(
                f"{where}: field {key!r}: found episodes of {task}, expected PointNav or ImageNav episodes{hint}"
            )


def _plain(episode: Episode) -> dict:
    """An episode as JSON values, with every key that Habitat's generator writes."""
    return {
        "episode_id": episode.episode_id,
        "scene_id": episode.scene_id,
        "scene_dataset_config": episode.scene_dataset_config,
        "start_position": list(episode.start_position),
        "start_rotation": list(episode.start_rotation),
        "info": episode.info,
        "goals": list(map(_plain_goal, episode.goals)),
        **UNUSED,
        **episode.other,
    }


def _plain_goal(goal: Goal) -> dict:
    """A goal as JSON values. Without a rotation it has the keys of Habitat's goals alone."""
    rotation = {} if goal.rotation is None else {"rotation": list(goal.rotation)}
    return {"position": list(goal.position), "radius": goal.radius, **rotation}
