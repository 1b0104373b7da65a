"""Episodes of a file with the goals of their scenes, and the registry of the formats of such files.

A format is one file with a `Format` and one line in `FORMATS`:

    from batchnav.data.formats import FORMATS, Format
    FORMATS["mine"] = Format(detect, read, write, suffix=".mine")
"""

from __future__ import annotations

import dataclasses
import functools
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple, overload

import numpy as np

from batchnav.data.episodes import Episode
from batchnav.data.files import read_json
from batchnav.errors import EpisodeError, shortened
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

    Formats: PointNav and ImageNav; ObjectNav (HM3D v1 and v2, Matterport3D, HSSD, OVON); Instance ImageNav (HM3D v3);
    and those that you add to `batchnav.data.formats.FORMATS`.

    Args:
        path: the split's file. The files of its `content_scenes_path`, by default the folder `content` in the same
            folder, belong to it, in the order of their names.
        content_scenes: short names of the scenes to read, as `Adrian` for gibson/Adrian.glb; "*" reads all.

    Returns the episodes in the order of the files, with the goals of their scenes: metres, quaternions [x, y, z, w].
    ObjectNav's episodes of a scene are numbered from 0, as by Habitat's loader.

    Raises EpisodeError with file, episode or goal, and field for: a file that is not gzipped JSON, or is truncated; a
    field that is missing, not finite or of the wrong length; a rotation that is not a unit quaternion; an episode
    without a goal; episodes of a task that batchnav does not have.
    """
    file = EpisodeFile(path)
    name = format_of(file)
    found = FORMATS[name].read(file, content_scenes)
    return dataclasses.replace(found, format=name, path=str(file.path))
