"""Parts of Habitat's episode files that all tasks share: fields of episodes, and splits stored scene by scene."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

from batchnav.data.episodes import DEFAULT_CONFIG, AnyEpisode, group_by_scene, scene_name
from batchnav.data.files import SCENES_DIR, is_number, write_json_gz
from batchnav.data.formats.dataset import ALL_SCENES, CONTENT, EpisodeFile, content_files, content_path
from batchnav.errors import EpisodeError, few, shortened

ROTATION_TOLERANCE = 1e-3
"""Tolerance of a quaternion's length and of its deviation from pure yaw: published files have five decimals."""

UNUSED: dict[str, Any] = {"additional_obj_config_paths": [], "start_room": None, "shortest_paths": None}
"""Keys of Habitat's episodes that are kept but unused, with the values that Habitat's generator writes."""


def read_parts(file: EpisodeFile, scenes: Sequence[str]) -> list[EpisodeFile]:
    """A split's file and its files of the wanted scenes (`content_files`)."""
    return [file, *map(EpisodeFile, content_files(file.data, file.path, scenes))]


def in_scenes(episodes: list[AnyEpisode], scenes: Sequence[str], path: Path) -> list[AnyEpisode]:
    """The episodes in scenes with these short names; "*": all. EpisodeError where there are none."""
    if ALL_SCENES not in scenes:
        episodes = [episode for episode in episodes if scene_name(episode.scene_id) in scenes]
    if not episodes:
        raise EpisodeError(f"{path}: found no episodes, expected at least one in it or in files {CONTENT}")
    return episodes


def write_split(
    episodes: Sequence[AnyEpisode],
    path: Path,
    content: bool,
    rows: Callable[[Sequence[AnyEpisode], str], dict[str, Any]],
) -> None:
    """Write a split atomically; equal episodes give equal bytes.

    Args:
        episodes: the episodes of all scenes.
        path: the split's file.
        content: True for each scene's episodes in content/SCENE.json.gz, and a split's file without episodes.
        rows: the JSON object of a file, from its episodes and the id of their scene; "" for the split's file.

    EpisodeError for two scenes with the same short name, and as `check_content`.
    """
    by_scene = group_by_scene(episodes) if content else {}
    names = [scene_name(scene_id) for scene_id in by_scene]
    if len(set(names)) < len(names):
        raise EpisodeError(f"{path}: found two scenes with the same file name, expected different names")
    check_content(path, names)
    for name, (scene_id, some) in zip(names, by_scene.items(), strict=True):
        write_json_gz(rows(some, scene_id), content_path(CONTENT, path, name), EpisodeError)
    write_json_gz(rows([] if content else episodes, ""), path, EpisodeError)


def check_content(path: Path, written: Iterable[str] = ()) -> None:
    """EpisodeError where the folder `content` has files of other scenes, which would belong to the split at `path`.

    `written`: names of the scenes whose files the split has there.
    """
    own = {content_path(CONTENT, path, name) for name in written}
    others = [file.name for file in content_files({}, path, (ALL_SCENES,)) if file not in own]
    if others:
        folder = content_path(CONTENT, path, "").parent
        raise EpisodeError(
            f"{path}: found {few(others)} in {folder}, whose episodes would be added to those of this file; write it "
            f"to another folder, or delete {folder}"
        )


def names_of(data: Any, where: str) -> tuple[dict[str, Any], str]:
    """The ids of an episode and of its scene, and `where` with these ids.

    EpisodeError, which begins with `where`, for a JSON value without them.
    """
    if not isinstance(data, dict):
        raise EpisodeError(f"{where}: found {type(data).__name__}, expected an object")
    names: dict[str, Any] = {}
    for name in ("episode_id", "scene_id"):
        value = data.get(name)
        # Some published files have integers as episode ids.
        if isinstance(value, bool) or not isinstance(value, (str, int)) or value == "":
            raise EpisodeError(f"{where}: field {name!r}: found {shortened(value)}, expected a name")
        names[name] = str(value)
    names["scene_id"] = names["scene_id"].removeprefix(f"{SCENES_DIR}/")  # as in Habitat; loading adds it again
    return names, f"{where} (id {names['episode_id']!r}, scene {names['scene_id']!r})"


def common_fields(data: dict, where: str) -> dict[str, Any]:
    """Fields of `Episode` that all tasks share, apart from its names. EpisodeError, which begins with `where`."""
    info = data.get("info")
    if info is not None and not isinstance(info, dict):
        raise EpisodeError(f"{where}: field 'info': found {shortened(info)}, expected an object")
    config = data.get("scene_dataset_config", DEFAULT_CONFIG)
    if not isinstance(config, str) or "\0" in config:
        raise EpisodeError(f"{where}: field 'scene_dataset_config': found {shortened(config)}, expected a path")
    return {
        "start_position": numbers_of(data, "start_position", 3, where),
        "start_rotation": rotation_in(data, "start_rotation", where),
        "info": info or {},
        "scene_dataset_config": config or DEFAULT_CONFIG,
        "other": {key: data[key] for key, usual in UNUSED.items() if data.get(key, usual) != usual},
    }


def rotation_in(data: dict, name: str, where: str) -> tuple:
    """A field with a unit quaternion about +Y. EpisodeError otherwise."""
    rotation = numbers_of(data, name, 4, where)
    x, _, z, _ = rotation
    length = math.sqrt(sum(v * v for v in rotation))
    if abs(length - 1.0) > ROTATION_TOLERANCE:
        raise EpisodeError(
            f"{where}: field {name!r}: found a quaternion of length {length:.4g}, expected a unit quaternion"
        )
    if math.hypot(x, z) > ROTATION_TOLERANCE:
        raise EpisodeError(
            f"{where}: field {name!r}: found {list(rotation)}, expected [x, y, z, w] of a turn about +Y (x = z = 0)"
        )
    return rotation


def numbers_of(data: dict, name: str, length: int, where: str) -> tuple:
    """A field with `length` finite numbers, as floats. EpisodeError otherwise."""
    value = data.get(name)
    if not isinstance(value, list) or len(value) != length or not all(map(is_number, value)):
        found = "nothing" if name not in data else shortened(value)
        raise EpisodeError(f"{where}: field {name!r}: found {found}, expected {length} finite numbers")
    return tuple(float(v) for v in value)
