"""GOAT-Bench episodes, version 1 (Khanna et al., 2024): categories, images and descriptions of objects in sequence.

A split is a gzipped JSON file without episodes; each scene's episodes and goals are in a file of the folder `content`.
Its `goals` are lists of objects by `goals_key`, with view points, images (`image_goals`) and a text (`lang_desc`). A
task of an episode is [category, "object", null], [category, "image", object id, number of the image] or [category,
"description", object id].

As in the benchmark's loader, episodes are numbered by their place, descriptions of more than `MOST_WORDS` words are
left out, and objects of a category's `children_object_categories` count for it. The loader adds these objects anew for
every task, so that a child's own children may count too; here they do not.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

from batchnav.data.formats.dataset import (
    EpisodeDataset,
    EpisodeFile,
    Format,
    common_fields,
    in_scenes,
    names_of,
    numbered,
    plain_fields,
    read_parts,
    write_split,
)
from batchnav.data.formats.instance_imagenav import IMAGE_GOALS, images_of_goal
from batchnav.data.formats.objectnav import FileGoal, goal_of, goals_key, plain_goal
from batchnav.data.sequences import CATEGORY, DESCRIPTION, INSTANCE, SequenceEpisode, Subtask
from batchnav.errors import EpisodeError, shortened
from batchnav.runtime.console import number_of

MOST_WORDS = 55
"""Descriptions of more words, which spaces separate, are left out."""
CHILDREN, TEXT = "children_object_categories", "lang_desc"
"""Keys of a goal."""
_EMPTY: dict[str, Any] = {TEXT: None, IMAGE_GOALS: [], CHILDREN: []}
"""Keys that the benchmark's loader reads of every goal, with the values of goals that have none."""
_OBJECT_ID = "object_id"
_KINDS = {"object": CATEGORY, "image": INSTANCE, "description": DESCRIPTION}
"""Kinds of subtasks by the file's word."""
_WORDS = {kind: word for word, kind in _KINDS.items()}
_log = logging.getLogger(__name__)


class _Goals(NamedTuple):
    """The goals of a file."""

    by_key: dict[str, list[FileGoal]]
    by_object: dict[tuple[str, str], FileGoal]
    """By `goals_key` and number of the object."""

    @classmethod
    def of(cls, by_key: Any) -> _Goals:
        """The goals of a dataset."""
        return cls(by_key, {(key, str(goal.number)): goal for key, some in by_key.items() for goal in some})

    def children(self, scene_id: str, category: str) -> tuple[str, ...]:
        """Further categories whose objects count for a category: the benchmark's loader reads those of its first goal.

        Empty for a category without goals.
        """
        some = self.by_key.get(goals_key(scene_id, category))
        return tuple(some[0].other.get(CHILDREN, ())) if some else ()

    def find(self, scene_id: str, subtask: Subtask) -> FileGoal | None:
        """The object of an image or a description, of the category or of one of its children."""
        names = (subtask.category, *self.children(scene_id, subtask.category))
        keys = ((goals_key(scene_id, name), subtask.object_id) for name in names)
        return next((self.by_object[key] for key in keys if key in self.by_object), None)


def detect(file: EpisodeFile) -> bool:
    """True for a GOAT-Bench file, recognised by the tasks of its first episode."""
    return "tasks" in file.first


def read(file: EpisodeFile, content_scenes: Sequence[str]) -> EpisodeDataset:
    """The episodes of a split, and the goals of its scenes by `goals_key`; see `load_episodes`."""
    rows: list[tuple[Any, str]] = []
    by_key: dict[str, list[FileGoal]] = {}
    for part in read_parts(file, content_scenes):
        by_key |= _goals(part.data.get("goals", {}), str(part.path))
        rows += [(item, f"{part.path}: episode {i}") for i, item in enumerate(part.data["episodes"])]
    goals = _Goals.of(by_key)
    episodes = numbered([_episode(item, where, file.folder, goals) for item, where in rows])
    if left_out := sum(len(item["tasks"]) for item, _ in rows) - sum(len(each.subtasks) for each in episodes):
        _log.info("%s: left out %s of more than %d words", file.path, number_of(left_out, "description"), MOST_WORDS)
    kept = [episode for episode in episodes if episode.subtasks]
    return EpisodeDataset(in_scenes(kept, content_scenes, file.path), "sequence", by_key)


def write(dataset: EpisodeDataset, path: Path, content: bool | None) -> None:
    """Write sequences of categories, images and descriptions in the format of GOAT-Bench; see `EpisodeDataset.save`."""
    goals = _Goals.of(dataset.goals)

    def rows(episodes: Sequence[SequenceEpisode], scene_id: str) -> dict[str, Any]:
        prefix = goals_key(scene_id, "") if scene_id else ""
        mine = {key: some for key, some in dataset.goals.items() if key.startswith(prefix)}
        plain = {key: [{**_EMPTY, **plain_goal(goal)} for goal in some] for key, some in mine.items()}
        return {**({"goals": plain} if episodes else {}), "episodes": [_plain(each, goals) for each in episodes]}

    write_split(dataset.episodes, path, content is not False, rows)


def _goals(groups: Any, where: str) -> dict[str, list[FileGoal]]:
    """The goals of a file by `goals_key`. EpisodeError, which begins with `where`."""
    if not isinstance(groups, dict):
        raise EpisodeError(f"{where}: field 'goals': found {shortened(groups)}, expected lists by scene and category")
    found = {}
    for key, rows in groups.items():
        if not isinstance(rows, list):
            raise EpisodeError(f"{where}: goals {key!r}: found {shortened(rows)}, expected a list")
        found[key] = [_goal(row, f"{where}: goals {key!r}, goal {i}") for i, row in enumerate(rows)]
    return found


def _goal(data: Any, where: str) -> FileGoal:
    """One goal from its JSON value, with its images, text and further categories in `other`."""
    goal = goal_of(data, where)
    images_of_goal(goal, where)
    text, children = goal.other.get(TEXT), goal.other.get(CHILDREN, [])
    if not isinstance(text, str | None):
        raise EpisodeError(f"{where}: field {TEXT!r}: found {shortened(text)}, expected a text")
    if not isinstance(children, list) or not all(isinstance(name, str) for name in children):
        raise EpisodeError(f"{where}: field {CHILDREN!r}: found {shortened(children)}, expected a list of categories")
    return replace(goal, other={k: v for k, v in goal.other.items() if k not in _EMPTY or v != _EMPTY[k]})


def _episode(data: Any, where: str, folder: str, goals: _Goals) -> SequenceEpisode:
    """One episode from its JSON value, without long descriptions; error messages begin with `where`.

    `folder`: folder of the episode file.
    """
    names, where = names_of(data, where)
    tasks = data.get("tasks")
    if not isinstance(tasks, list) or not tasks:
        raise EpisodeError(f"{where}: field 'tasks': found {shortened(tasks)}, expected a list of at least one task")
    subtasks = (
        _subtask(task, names["scene_id"], goals, f"{where}: field 'tasks[{i}]'") for i, task in enumerate(tasks)
    )
    kept = tuple(subtask for subtask in subtasks if subtask is not None)
    return SequenceEpisode(**names, **common_fields(data, where), folder=folder, subtasks=kept)


def _subtask(task: Any, scene_id: str, goals: _Goals, where: str) -> Subtask | None:
    """A subtask from its JSON value; None for a long description. EpisodeError, which begins with `where`."""
    is_task = isinstance(task, list) and len(task) in (3, 4) and all(isinstance(word, str) for word in task[:2])
    if not is_task or task[1] not in _KINDS:
        expected = f"[category, {' or '.join(map(repr, _KINDS))}, object id or null]"
        raise EpisodeError(f"{where}: found {shortened(task)}, expected {expected}")
    category, word, object_id = task[:3]
    some = goals.by_key.get(goals_key(scene_id, category), [])
    if not some:
        raise EpisodeError(f"{where}: found {category!r}, expected a category with goals in its scene")
    if (kind := _KINDS[word]) == CATEGORY:
        other = {} if object_id is None else {_OBJECT_ID: object_id}
        return Subtask(kind, category, children_object_categories=goals.children(scene_id, category), other=other)
    subtask = Subtask(kind, category, str(object_id).rpartition("_")[2].lstrip("0") or "0")
    goal = None if isinstance(object_id, bool) else goals.find(scene_id, subtask)
    if goal is None:
        found = f"found the object {shortened(object_id)}"
        raise EpisodeError(f"{where}: {found}, expected the id of one of the {len(some)} goals of {category!r}")
    if kind == DESCRIPTION:
        if not (text := goal.other.get(TEXT)):
            raise EpisodeError(f"{where}: found the object {object_id!r} without {TEXT!r}, expected its description")
        return None if len(text.split(" ")) > MOST_WORDS else subtask
    image, count = task[3] if len(task) > 3 else None, len(images_of_goal(goal, where))
    if isinstance(image, bool) or not isinstance(image, int) or not 0 <= image < count:
        found, expected = shortened(image), f"the number of one of the {count} images of {object_id!r}, from 0"
        raise EpisodeError(f"{where}: found image {found}, expected {expected}")
    return replace(subtask, image=image)


def _plain(episode: SequenceEpisode, goals: _Goals) -> dict[str, Any]:
    """An episode as JSON values. EpisodeError for kinds of subtasks that GOAT-Bench does not have."""
    tasks = []
    for subtask in episode.subtasks:
        if subtask.kind not in _WORDS:
            raise EpisodeError(
                f"{episode.label}: found a subtask of kind {subtask.kind!r}, expected one that GOAT-Bench has: "
                f"{', '.join(_WORDS)}"
            )
        goal = None if subtask.kind == CATEGORY else goals.find(episode.scene_id, subtask)
        object_id = subtask.other.get(_OBJECT_ID) if goal is None else goal.object_id
        image = [subtask.image] if subtask.kind == INSTANCE else []
        tasks.append([subtask.category, _WORDS[subtask.kind], object_id, *image])
    return {**plain_fields(episode, []), "tasks": tasks}


FORMAT = Format(detect, read, write)
