"""Episodes of a file with the goals of their scenes, and the registry of the formats of such files.

A format is one file with a `Format` and one line in `FORMATS`:

    from batchnav.data.formats import FORMATS, Format
    FORMATS["mine"] = Format(detect, read, write, suffix=".mine")
"""

from __future__ import annotations

import dataclasses
import functools
import math
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple, overload

import numpy as np

from batchnav.data.episodes import DEFAULT_CONFIG, AnyEpisode, Episode, group_by_scene, scene_name
from batchnav.data.files import SCENES_DIR, is_number, read_json, write_json_gz
from batchnav.errors import EpisodeError, few, shortened
from batchnav.runtime.files import as_path

ALL_SCENES = "*"
"""Name that selects all scenes."""
CONTENT = "{data_path}/content/{scene}.json.gz"
"""Path of a scene's episodes in a split that is stored scene by scene; Habitat's default for `content_scenes_path`."""


@dataclass(frozen=True)
class EpisodeDataset(Sequence[Episode]):
    """Episodes, and the goals of their scenes. It is a sequence of its episodes. Datasets with equal values are equal.

    A slice, and a list of numbers, give a dataset of some of the episodes with the same goals.
    """

    episodes: list[Any] = field(repr=False)
    kind: str = "point"
    """Kind of the goals: a name in `batchnav.data.goals.GOALS`."""
    goals: Mapping[str, Any] = field(default_factory=dict, repr=False)
    """Goals that episodes share, by the key of the format; empty where each episode has its own."""
    header: Mapping[str, Any] = field(default_factory=dict)
    """Further fields of the file, such as the ids of categories."""
    format: str = field(default="pointnav", compare=False)
    """Format of the file, by which `save` writes: a name in `FORMATS`."""
    path: str = field(default="", compare=False)
    """The file, for messages; "" for none."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "episodes", list(self.episodes))  # any sequence, a dataset too

    def __len__(self) -> int:
        return len(self.episodes)

    def __iter__(self) -> Iterator[Any]:
        return iter(self.episodes)

    @overload
    def __getitem__(self, index: int) -> Any: ...
    @overload
    def __getitem__(self, index: slice | Sequence[int]) -> EpisodeDataset: ...
    def __getitem__(self, index: int | slice | Sequence[int]) -> Any:
        if isinstance(index, (int, np.integer)):
            return self.episodes[index]
        chosen = self.episodes[index] if isinstance(index, slice) else [self.episodes[i] for i in index]
        return self.with_episodes(chosen)

    def with_episodes(self, episodes: Iterable[Any]) -> EpisodeDataset:
        """The dataset with other episodes and the same goals."""
        return dataclasses.replace(self, episodes=list(episodes))

    def save(self, path: str | Path, content: bool | None = None, format: str | None = None) -> None:
        """Write the file atomically; equal datasets give equal bytes. `load_episodes` reads an equal dataset back.

        Args:
            path: the file; its name ends in the format's suffix, `.json.gz` for Habitat's.
            content: True to write each scene's episodes and goals to content/SCENE.json.gz, as Habitat does; they are
                read in the order of these names, and goals of scenes without episodes are left out. False: all go to
                `path`. None: the format's default, False for PointNav and ImageNav, else True.
            format: a name in `FORMATS`; None: that of the dataset.

        Raises EpisodeError for an unknown format, for two scenes with one short name, and for a folder `content` with
        files of other scenes.
        """
        name = self.format if format is None else format
        if name not in FORMATS:
            raise EpisodeError(f"format: found {shortened(name)}, expected one of {', '.join(FORMATS)}")
        FORMATS[name].write(self, as_path(path), content)


class EpisodeFile:
    """A file whose format is looked for. JSON is parsed once, when a format first asks for it."""

    def __init__(self, path: str | Path):
        self.path = as_path(path)

    @property
    def folder(self) -> str:
        """Folder of the file, where the scenes of its episodes are searched too."""
        return str(self.path.absolute().parent)

    @functools.cached_property
    def data(self) -> dict[str, Any]:
        """The JSON object of Habitat's file. EpisodeError where it is not one with a list of episodes.

        ImageNav's files of Mezghani et al. are the list alone.
        """
        data = read_json(self.path, EpisodeError, gzipped=True)
        if isinstance(data, list) and data:
            return {"episodes": data}
        if not isinstance(data, dict) or not isinstance(data.get("episodes"), list):
            raise EpisodeError(f"{self.path}: found no list 'episodes', expected an episode file in Habitat's format")
        return data

    @functools.cached_property
    def first(self) -> dict[str, Any]:
        """The first episode of the split, in the file or in its folder `content`; empty where it has none."""
        data = self.data
        if not data["episodes"]:
            parts = content_files(data, self.path, (ALL_SCENES,))
            data = EpisodeFile(parts[0]).data if parts else data
        first = data["episodes"][0] if data["episodes"] else {}
        return first if isinstance(first, dict) else {}


def content_path(template: str, path: Path, scene: str) -> Path:
    """Path of the episodes of one scene, from a template like `CONTENT`."""
    return Path(template.replace("{data_path}", str(path.parent)).replace("{scene}", scene))


def content_files(data: dict, path: Path, scenes: Sequence[str]) -> list[Path]:
    """The files of the wanted scenes; empty for a split that is not stored scene by scene."""
    template = data.get("content_scenes_path", CONTENT)
    if not isinstance(template, str) or "\0" in template or "{scene}" not in Path(template).name:
        raise EpisodeError(
            f"{path}: field 'content_scenes_path': found {shortened(template)}, expected one like {CONTENT}"
        )
    folder = content_path(template, path, "").parent
    if not os.path.isdir(folder):
        return []
    head, _, tail = Path(template).name.partition("{scene}")
    names = sorted(file.name for file in folder.iterdir() if not file.name.startswith("."))
    files = [folder / name for name in names if name.startswith(head) and name.endswith(tail)]
    if ALL_SCENES in scenes:
        return files
    wanted = [content_path(template, path, scene) for scene in scenes]
    for file in wanted:
        if file not in files:
            raise EpisodeError(f"{file}: content_scenes: found no such file, expected one of {len(files)} there")
    return wanted


class Format(NamedTuple):
    """A format of episode files."""

    detect: Callable[[EpisodeFile], bool]
    """True for a file of this format. Formats that were registered last are asked first."""
    read: Callable[[EpisodeFile, Sequence[str]], EpisodeDataset]
    """The dataset of a file, from the file and the short names of the wanted scenes; ("*",): all. EpisodeError."""
    write: Callable[[EpisodeDataset, Path, bool | None], None]
    """Writes a dataset, from (dataset, path, content); see `EpisodeDataset.save`."""
    suffix: str = ".json.gz"
    """End of the names of its files."""


FORMATS: dict[str, Format] = {}
"""Formats of episode files by name; `batchnav.data.formats` registers those of the package. Add your own."""


def is_episode_file(path: Path) -> bool:
    """True where the name of a file is that of an episode file."""
    return path.name.endswith(tuple(each.suffix for each in FORMATS.values()))


def format_of(file: EpisodeFile) -> str:
    """Name of the format of a file. EpisodeError for a file that no format reads."""
    named = [name for name, each in FORMATS.items() if file.path.name.endswith(each.suffix)]
    for name in reversed(named or list(FORMATS)):
        if FORMATS[name].detect(file):
            return name
    raise EpisodeError(f"{file.path}: found no known format, expected one of {', '.join(FORMATS)}")


def load_episodes(path: str | Path, content_scenes: Sequence[str] = (ALL_SCENES,)) -> EpisodeDataset:
    """Read an episode file of any kind, and the files in its folder `content`.

    Formats: PointNav and ImageNav, with one goal or several; ObjectNav (HM3D v1 and v2, Matterport3D, HSSD, OVON);
    Instance ImageNav (HM3D v3); GOAT-Bench; MultiON; and those that you add to `batchnav.data.formats.FORMATS`.

    Args:
        path: the split's file. The files of its `content_scenes_path`, by default the folder `content` in the same
            folder, belong to it, in the order of their names.
        content_scenes: short names of the scenes to read, as `Adrian` for gibson/Adrian.glb; "*" reads all.

    Returns the episodes in the order of the files, with the goals of their scenes: metres, quaternions [x, y, z, w].
    Episodes of a scene are numbered from 0, as by Habitat's loaders, where the goals are objects.

    Raises EpisodeError with file, episode or goal, and field for: a file that is not gzipped JSON, or is truncated; a
    field that is missing, not finite or of the wrong length; a rotation that is not a unit quaternion; an episode
    without a goal; episodes of a task that batchnav does not have.
    """
    file = EpisodeFile(path)
    name = format_of(file)
    found = FORMATS[name].read(file, content_scenes)
    return dataclasses.replace(found, format=name, path=str(file.path))


# Parts of Habitat's episode files that all tasks share: fields of episodes, and splits stored scene by scene

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


def numbered(episodes: Iterable[AnyEpisode]) -> list[AnyEpisode]:
    """The episodes with the ids that Habitat's loader gives them: numbers from 0 in each scene."""
    counts: dict[str, int] = {}
    found = []
    for episode in episodes:
        number = counts.get(episode.scene_id, 0)
        counts[episode.scene_id] = number + 1
        found.append(dataclasses.replace(episode, episode_id=str(number)))
    return found


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


def plain_fields(episode: Episode, goals: list[Any]) -> dict[str, Any]:
    """The fields of all tasks as JSON values, with every key that Habitat's generator writes; `goals`: JSON values."""
    return {
        "episode_id": episode.episode_id,
        "scene_id": episode.scene_id,
        "scene_dataset_config": episode.scene_dataset_config,
        "start_position": list(episode.start_position),
        "start_rotation": list(episode.start_rotation),
        "info": episode.info,
        "goals": goals,
        **UNUSED,
        **episode.other,
    }
