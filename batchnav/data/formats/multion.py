"""MultiON episodes (Wani et al., 2020): cylinders of eight colours that are to be found in the order of the file.

Files are like PointNav's: each episode has its `goals`, with `position` and `object_category`. Version 2 adds
`distractors`: cylinders that are no goals, kept in `Episode.other`. Published files have start rotations of any length,
which are normalised. `object_category` and `object_index` of an episode are not needed, and written anew.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from batchnav.data.episodes import Goal
from batchnav.data.formats.dataset import (
    EpisodeDataset,
    EpisodeFile,
    Format,
    common_fields,
    in_scenes,
    names_of,
    numbered,
    numbers_of,
    plain_fields,
    read_parts,
    write_split,
)
from batchnav.data.formats.objectnav import ANNOTATION_IDS, TASK_IDS, category_ids, header_of
from batchnav.data.formats.pointnav import place_of, plain_goal
from batchnav.data.sequences import POINT, SequenceEpisode, Subtask
from batchnav.errors import EpisodeError, shortened

CYLINDERS = tuple(f"cylinder_{color}" for color in ("red", "green", "blue", "yellow", "white", "pink", "black", "cyan"))
"""Categories, in the order of the goal sensor's numbers."""
_IDS = {name: number for number, name in enumerate(CYLINDERS)}
HEADER = header_of(_IDS, _IDS, ANNOTATION_IDS[1])
"""`EpisodeDataset.header`: the ids of the cylinders."""
CYLINDER_RADIUS, CYLINDER_HEIGHT = 0.1, 0.75
"""Metres. The benchmark's models are 1.5 m tall and centred on the goal's position, so half of each is below the
floor."""
DISTRACTORS = "distractors"
"""Key of an episode of version 2."""
_UNUSED: dict[str, Any] = {"room_id": None, "room_name": None}
"""Keys of goals that are kept but unused, with the values of published files."""


def detect(file: EpisodeFile) -> bool:
    """True for a MultiON file: its first episode has a list of categories, or goals of a category without an object."""
    goals = file.first.get("goals")
    goal = goals[0] if isinstance(goals, list) and goals and isinstance(goals[0], dict) else {}
    placed = "object_category" in goal and "object_id" not in goal and "view_points" not in goal
    return placed or "object_index" in file.first or isinstance(file.first.get("object_category"), list)


def read(file: EpisodeFile, content_scenes: Sequence[str]) -> EpisodeDataset:
    """The episodes of a split; see `load_episodes`."""
    episodes: list[SequenceEpisode] = []
    ids: dict[str, dict[str, int]] = {}
    for part in read_parts(file, content_scenes):
        ids |= {key: values for key, values in category_ids(part.data, part.path).items() if values}
        rows = enumerate(part.data["episodes"])
        episodes += [_episode(item, f"{part.path}: episode {i}", file.folder) for i, item in rows]
    for key, values in ids.items():
        for name in values:
            _check_cylinder(name, f"{file.path}: field {key!r}")
    episodes = numbered(in_scenes(episodes, content_scenes, file.path))
    annotation_key = next((key for key in ANNOTATION_IDS if key in ids), ANNOTATION_IDS[1])
    by_name = ids.get(TASK_IDS, HEADER[TASK_IDS])
    return EpisodeDataset(
        episodes, "sequence", header=header_of(by_name, ids.get(annotation_key, by_name), annotation_key)
    )


def write(dataset: EpisodeDataset, path: Path, content: bool | None) -> None:
    """Write sequences of cylinders in the format of MultiON; see `EpisodeDataset.save`."""

    def rows(episodes: Sequence[SequenceEpisode], scene_id: str) -> dict[str, Any]:
        return {**(dataset.header or HEADER), "episodes": list(map(_plain, episodes))}

    write_split(dataset.episodes, path, bool(content), rows)


def _episode(data: Any, where: str, folder: str) -> SequenceEpisode:
    """One episode from its JSON value; error messages begin with `where`. `folder`: folder of the episode file."""
    names, where = names_of(data, where)
    rotation = numbers_of(data, "start_rotation", 4, where)
    length = math.hypot(*rotation)
    if length > 0.0:
        data = {**data, "start_rotation": [value / length for value in rotation]}
    placed = _cylinders(data.get("goals"), f"{where}: field 'goals'")
    if not placed:
        raise EpisodeError(f"{where}: field 'goals': found [], expected a list of at least one goal")
    common = common_fields(data, where)
    if DISTRACTORS in data:
        others = _cylinders(data[DISTRACTORS], f"{where}: field {DISTRACTORS!r}")
        common["other"] = {**common["other"], DISTRACTORS: [_plain_goal(goal, each) for goal, each in others]}
    goals, subtasks = zip(*placed, strict=True)
    return SequenceEpisode(**names, **common, goals=goals, folder=folder, subtasks=subtasks)


def _cylinders(rows: Any, where: str) -> list[tuple[Goal, Subtask]]:
    """Places and categories of cylinders. EpisodeError, which begins with `where`."""
    if not isinstance(rows, list):
        raise EpisodeError(f"{where}: found {shortened(rows)}, expected a list")
    found = []
    for i, row in enumerate(rows):
        at = f"{where}, cylinder {i}"
        if not isinstance(row, dict):
            raise EpisodeError(f"{at}: found {shortened(row)}, expected an object")
        _check_cylinder(row.get("object_category"), f"{at}: field 'object_category'")
        other = {key: row[key] for key, usual in _UNUSED.items() if row.get(key, usual) != usual}
        found.append((place_of(row, at), Subtask(POINT, row["object_category"], other=other)))
    return found


def _check_cylinder(name: Any, where: str) -> None:
    """EpisodeError, which begins with `where`, for a name of no cylinder."""
    if not isinstance(name, str) or name not in CYLINDERS:
        raise EpisodeError(f"{where}: found {shortened(name)}, expected one of MultiON's {', '.join(CYLINDERS)}")


def cylinders_of(episode: SequenceEpisode) -> list[tuple[Goal, str]]:
    """Places and categories of the cylinders of an episode: those that are goals, then distractors."""
    goals = [(goal, each.category) for goal, each in zip(episode.places, episode.subtasks, strict=True)]
    placed = [(goal, name) for goal, name in goals if goal is not None and name in CYLINDERS]
    others = _cylinders(episode.other.get(DISTRACTORS, []), f"{episode.label}: field {DISTRACTORS!r}")
    return [*placed, *((goal, each.category) for goal, each in others)]


def _plain(episode: SequenceEpisode) -> dict[str, Any]:
    """An episode as JSON values. EpisodeError for subtasks that are no cylinders."""
    for subtask in episode.subtasks:
        if subtask.kind != POINT or subtask.category not in CYLINDERS:
            raise EpisodeError(
                f"{episode.label}: found a subtask of kind {subtask.kind!r} and category {subtask.category!r}, "
                "expected the cylinders that MultiON has"
            )
    goals = list(map(_plain_goal, episode.goals, episode.subtasks))
    names = [subtask.category for subtask in episode.subtasks]
    return {**plain_fields(episode, goals), "object_category": names, "object_index": 0}


def _plain_goal(goal: Goal, subtask: Subtask) -> dict[str, Any]:
    """A cylinder as JSON values, with the keys of published files."""
    return {"object_category": subtask.category, **plain_goal(goal), **_UNUSED, **subtask.other}


FORMAT = Format(detect, read, write)
