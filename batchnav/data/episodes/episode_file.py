"""PointGoal episodes in Habitat's format: gzipped JSON, one object per episode.

The schema is habitat-lab's `NavigationEpisode`: positions in metres, rotations as quaternions [x, y, z, w]. Extra keys
would stop Habitat's loader, so further facts about an episode go into its `info`.
"""

from __future__ import annotations

import math
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from batchnav.data.episodes.episode import DEFAULT_CONFIG, Episode, Goal, group_by_scene, scene_name
from batchnav.data.files import is_number, read_json, write_json_gz
from batchnav.data.sources.scene_source import SCENES_DIR
from batchnav.errors import EpisodeError, shortened
from batchnav.runtime.files.atomic import as_path

ROTATION_TOLERANCE = 1e-3
"""Tolerance of a quaternion's length and of its deviation from pure yaw: published files have five decimals."""

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

CONTENT = "{data_path}/content/{scene}.json.gz"
"""Path of a scene's episodes in a split that is stored scene by scene; Habitat's default for `content_scenes_path`."""
ALL_SCENES = "*"
UNUSED: dict[str, Any] = {"additional_obj_config_paths": [], "start_room": None, "shortest_paths": None}
"""Keys of Habitat's episodes that are kept but unused, with the values that Habitat's generator writes."""


def load_episodes(path: str | Path, content_scenes: Sequence[str] = (ALL_SCENES,)) -> list[Episode]:
    """Read a `.json.gz` file of PointNav episodes, and the files in its folder `content`.

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
    for file in _content_files(data, path, content_scenes):
        episodes += _episodes(_read_file(file), file, folder)
    if not episodes:
        raise EpisodeError(f"{path}: found no episodes, expected at least one in it or in files {CONTENT}")
    return episodes


def scenes_played(path: str | Path) -> set[str]:
    """Short names (`scene_name`) of the scenes of a split; files in its folder `content` are listed, not read."""
    path = Path(path)
    data = _read_file(path)
    names = {scene_name(episode.scene_id) for episode in _episodes(data, path)}
    return names | {file.name.partition(".")[0] for file in _content_files(data, path, (ALL_SCENES,))}


def save_episodes(episodes: Sequence[Episode], path: str | Path, content: bool = False) -> None:
    """Write episodes in Habitat's format, atomically; equal episodes give equal bytes.

    If `content` is True, each scene's episodes go to content/SCENE.json.gz, and `path` holds no episodes.
    """
    path = Path(path)
    if content:
        by_scene = group_by_scene(episodes)
        names = [scene_name(scene_id) for scene_id in by_scene]
        if len(set(names)) < len(names):
            raise EpisodeError(f"{path}: found two scenes with the same file name, expected different names")
        for name, some in zip(names, by_scene.values(), strict=True):
            write_json_gz({"episodes": [_plain(e) for e in some]}, _content_path(CONTENT, path, name), EpisodeError)
    rows = [] if content else [_plain(e) for e in episodes]
    write_json_gz({"episodes": rows}, path, EpisodeError)


def _read_file(path: Path) -> dict:
    """The JSON object of an episode file."""
    data = read_json(path, EpisodeError, gzipped=True)
    if not isinstance(data, dict) or not isinstance(data.get("episodes"), list):
        raise EpisodeError(f"{path}: found no list 'episodes', expected an episode file in Habitat's format")
    _refuse_other_tasks(data, f"{path}")
    return data


def _episodes(data: dict, path: Path, folder: str = "") -> list[Episode]:
    return [_episode(item, f"{path}: episode {i}", folder) for i, item in enumerate(data["episodes"])]


def _content_path(template: str, path: Path, scene: str) -> Path:
    return Path(template.replace("{data_path}", str(path.parent)).replace("{scene}", scene))


def _content_files(data: dict, path: Path, scenes: Sequence[str]) -> list[Path]:
    """The files of the wanted scenes; empty for a split that is not stored scene by scene."""
    template = data.get("content_scenes_path", CONTENT)
    if not isinstance(template, str) or "\0" in template or "{scene}" not in Path(template).name:
        raise EpisodeError(
            f"{path}: field 'content_scenes_path': found {shortened(template)}, expected one like {CONTENT}"
        )
    folder = _content_path(template, path, "").parent
    if not os.path.isdir(folder):
        return []
    head, _, tail = Path(template).name.partition("{scene}")
    names = sorted(file.name for file in folder.iterdir() if not file.name.startswith("."))
    files = [folder / name for name in names if name.startswith(head) and name.endswith(tail)]
    if ALL_SCENES in scenes:
        return files
    wanted = [_content_path(template, path, scene) for scene in scenes]
    for file in wanted:
        if file not in files:
            raise EpisodeError(f"{file}: content_scenes: found no such file, expected one of {len(files)} there")
    return wanted


def _episode(data: Any, where: str, folder: str) -> Episode:
    """One episode from its JSON value; error messages begin with `where`. `folder`: folder of the episode file."""
    if not isinstance(data, dict):
        raise EpisodeError(f"{where}: found {type(data).__name__}, expected an object")
    names = {}
    for name in ("episode_id", "scene_id"):
        value = data.get(name)
        # Some published files have integers as episode ids.
        if isinstance(value, bool) or not isinstance(value, (str, int)) or value == "":
            raise EpisodeError(f"{where}: field {name!r}: found {shortened(value)}, expected a name")
        names[name] = str(value)
    names["scene_id"] = names["scene_id"].removeprefix(f"{SCENES_DIR}/")  # as in Habitat; `find_scene` adds it again
    where = f"{where} (id {names['episode_id']!r}, scene {names['scene_id']!r})"
    _refuse_other_tasks(data, where)
    goals = data.get("goals")
    if not isinstance(goals, list) or not goals:
        raise EpisodeError(f"{where}: field 'goals': found {shortened(goals)}, expected a list of at least one goal")
    info = data.get("info")
    if info is not None and not isinstance(info, dict):
        raise EpisodeError(f"{where}: field 'info': found {shortened(info)}, expected an object")
    config = data.get("scene_dataset_config", DEFAULT_CONFIG)
    if not isinstance(config, str) or "\0" in config:
        raise EpisodeError(f"{where}: field 'scene_dataset_config': found {shortened(config)}, expected a path")
    return Episode(
        **names,
        start_position=_numbers(data, "start_position", 3, where),
        start_rotation=_rotation(data, where),
        goals=tuple(_goal(goal, f"{where}: field 'goals[{i}]'") for i, goal in enumerate(goals)),
        info=info or {},
        scene_dataset_config=config or DEFAULT_CONFIG,
        other={key: data[key] for key, usual in UNUSED.items() if data.get(key, usual) != usual},
        folder=folder,
    )


def _goal(data: Any, where: str) -> Goal:
    if not isinstance(data, dict):
        raise EpisodeError(f"{where}: found {shortened(data)}, expected an object")
    _refuse_other_tasks(data, where)
    radius = data.get("radius")
    if radius is not None and not (is_number(radius) and radius > 0):
        raise EpisodeError(f"{where}: field 'radius': found {shortened(radius)}, expected metres > 0, or null")
    return Goal(_numbers(data, "position", 3, where), None if radius is None else float(radius))


def _rotation(data: dict, where: str) -> tuple:
    """The start rotation, a unit quaternion about +Y. EpisodeError otherwise."""
    rotation = _numbers(data, "start_rotation", 4, where)
    x, _, z, _ = rotation
    length = math.sqrt(sum(v * v for v in rotation))
    if abs(length - 1.0) > ROTATION_TOLERANCE:
        raise EpisodeError(
            f"{where}: field 'start_rotation': found a quaternion of length {length:.4g}, expected a unit quaternion"
        )
    if math.hypot(x, z) > ROTATION_TOLERANCE:
        raise EpisodeError(
            f"{where}: field 'start_rotation': found {list(rotation)}, "
            "expected [x, y, z, w] of a turn about +Y (x = z = 0)"
        )
    return rotation


def _numbers(data: dict, name: str, length: int, where: str) -> tuple:
    """A field with `length` finite numbers, as floats. EpisodeError otherwise."""
    value = data.get(name)
    if not isinstance(value, list) or len(value) != length or not all(map(is_number, value)):
        found = "nothing" if name not in data else shortened(value)
        raise EpisodeError(f"{where}: field {name!r}: found {found}, expected {length} finite numbers")
    return tuple(float(v) for v in value)


def _refuse_other_tasks(data: dict, where: str) -> None:
    for key, task in OTHER_TASKS.items():
        if key in data:
            raise EpisodeError(f"{where}: field {key!r}: found episodes of {task}, expected PointNav episodes")


def _plain(episode: Episode) -> dict:
    """An episode as JSON values, with every key that Habitat's generator writes."""
    return {
        "episode_id": episode.episode_id,
        "scene_id": episode.scene_id,
        "scene_dataset_config": episode.scene_dataset_config,
        "start_position": list(episode.start_position),
        "start_rotation": list(episode.start_rotation),
        "info": episode.info,
        "goals": [{"position": list(g.position), "radius": g.radius} for g in episode.goals],
        **UNUSED,
        **episode.other,
    }
