"""Embeddings of goals, such as those that CLIP makes of category names and descriptions, and the observation of them.

A file names its embeddings. "chair" is that of a category. "SCENE_12" is that of object 12 of a scene, by the short
name of its file (`data.formats.instance_imagenav.instance_key`): the description of a goal in GOAT-Bench.

    NAME.safetensors    an array f32 [D] for each name
    NAME.npy            f32 [G, D], with the names in NAME.txt, a line each
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import torch

from batchnav.data.formats.instance_imagenav import instance_key
from batchnav.data.sequences import instance_name
from batchnav.errors import ConfigError, few, shortened
from batchnav.observation import Frame, ObservationSource, Requirements, Spec
from batchnav.runtime.files import open_tensors, read_array, read_text, tensor_errors
from batchnav.scene.scene import Scene
from batchnav.tasks import TASKS

if TYPE_CHECKING:
    from batchnav.envs.config import NavConfig

GOAL_EMBEDDING = "goal_embedding"
"""Name of the observation."""
MOST_COLUMNS = 2**14
"""Largest length of an embedding."""
_log = logging.getLogger(__name__)


class Embeddings(NamedTuple):
    """The content of a file."""

    names: tuple[str, ...]
    values: np.ndarray
    """f32 [G, D]: finite."""


def read_embeddings(path: str | Path) -> Embeddings:
    """Read a file of embeddings. ConfigError for another kind of file, names, shapes or types, and for NaN."""
    path = Path(path)
    if path.suffix == ".npy":
        values, names = read_array(path, ConfigError), read_text(path.with_suffix(".txt"), ConfigError).splitlines()
        if values.ndim != 2 or len(values) != len(names):
            found = f"an array {list(values.shape)} and {len(names)} names in {path.with_suffix('.txt').name}"
            raise ConfigError(f"{path}: found {found}, expected f32 [G, D] and G names")
        rows = list(values)
    elif path.suffix == ".safetensors":
        names, rows = _tensors(path)
    else:
        raise ConfigError(f"{path}: found a file *{path.suffix}, expected .safetensors, or .npy with names in .txt")
    if not rows:
        raise ConfigError(f"{path}: found no embedding, expected at least one")
    if len(set(names)) < len(names) or "" in names:
        wrong = next(name for name in names if not name or names.count(name) > 1)
        raise ConfigError(f"{path}: found the name {wrong!r} {names.count(wrong)} times, expected different names")
    for name, row in zip(names, rows, strict=True):
        if row.dtype != np.float32 or row.shape != rows[0].shape or row.ndim != 1 or not 1 <= len(row) <= MOST_COLUMNS:
            expected = f"f32 [D] with 1 to {MOST_COLUMNS} numbers, as many for each name"
            raise ConfigError(f"{path}: {shortened(name)}: found {row.dtype} {list(row.shape)}, expected {expected}")
        if not np.isfinite(row).all():
            raise ConfigError(f"{path}: {shortened(name)}: found NaN or infinity, expected finite numbers")
    return Embeddings(tuple(names), np.stack(rows))


def _tensors(path: Path) -> tuple[list[str], list[np.ndarray]]:
    """Names and arrays of a safetensors file, in the order of the names."""
    try:
        with open_tensors(path, ConfigError) as file:
            names = sorted(file.keys())
            return names, [file.get_tensor(name).numpy() for name in names]
    except ConfigError:
        raise
    except tensor_errors() as problem:
        raise ConfigError(f"{path}: not a whole safetensors file of f32 arrays ({problem})") from problem


def _objects(scenes: Sequence[Scene]) -> list[dict[str, str]]:
    """Names of embeddings by the name of the goal, for the goals of each scene that are single objects."""
    return [
        {
            goal.category: instance_key(scene.name, str(goal.object_id))
            for goal in (scene.goals.objects if scene.goals else ())
            if goal.category == instance_name(goal.object_id)
        }
        for scene in scenes
    ]


@dataclass(frozen=True)
class GoalEmbeddingConfig:
    """The file of the observation "goal_embedding"."""

    embeddings: str = ""
    """Embeddings of goals by name: a .safetensors file, or a .npy file with the names in a .txt file."""


class GoalEmbedding(ObservationSource):
    """f32 [N, D]: embedding of each agent's goal; 0 for goals without one, such as places and objects in images.

    `path`: file of `read_embeddings`.
    """

    def __init__(self, path: str):
        self._path, (self._names, self._values) = path, read_embeddings(path)
        size = self._values.shape[1]
        self.spec = Spec(GOAL_EMBEDDING, (size,), torch.float32, -np.inf, np.inf, torch.float32)
        self.requires = Requirements(goal=frozenset({"state"}))

    def memory(self, num_envs: int, device: torch.device) -> Mapping[str, int]:
        """Bytes of the embeddings."""
        return {GOAL_EMBEDDING: self._values.nbytes}

    def bind(self, frame: Frame) -> None:
        """Find the row of each goal of each scene. ConfigError for categories that the file lacks."""
        bank, none = frame.bank, len(self._names)
        goals, row = bank.goal_categories, {name: k for k, name in enumerate(self._names)}
        objects = _objects(bank.scenes)
        missing = [name for name in goals if name not in row and not any(name in mine for mine in objects)]
        if missing:
            found = f"{none} embeddings, none of {few(missing)}"
            raise ConfigError(f"{self._path}: found {found}, expected one of each of the goals: {few(goals, 8)}")
        keys = [[mine.get(name, name) for name in goals] for mine in objects]
        rows = np.array([[*(row.get(key, none) for key in mine), none] for mine in keys], np.int64)
        if absent := sorted({key for mine in objects for key in mine.values() if key not in row}):
            _log.warning("%s: no embeddings of %s, whose rows are 0", self._path, few(absent))
        zeros = np.zeros((1, self._values.shape[1]), np.float32)
        self._rows = torch.from_numpy(rows.ravel()).to(frame.device)
        self._table = torch.from_numpy(np.concatenate([self._values, zeros])).to(frame.device)
        self._columns = rows.shape[1]

    def write(self, frame: Frame, out: torch.Tensor) -> None:
        """Write the embedding of every agent's current goal."""
        goal = frame.bodies.scene.long() * self._columns + frame.task.state.category.remainder(self._columns)
        out.copy_(self._table[self._rows[goal]])


class GoalEmbeddingSensor:
    """Maker of the sensor "goal_embedding"."""

    Config = GoalEmbeddingConfig

    def __call__(self, config: NavConfig) -> ObservationSource:
        """The sensor of an environment."""
        return GoalEmbedding(config.goal_embedding.embeddings)

    def check(self, config: NavConfig) -> None:
        """ConfigError for a sensor without a file, and for a task whose goals have no names."""
        if GOAL_EMBEDDING not in config.sensors:
            return
        if not config.goal_embedding.embeddings:
            raise ConfigError(f"{GOAL_EMBEDDING}.embeddings: found none with this sensor, expected a file")
        if TASKS[config.task_name].goal_categories(config.task) is None:
            raise ConfigError(
                f"sensors: found {GOAL_EMBEDDING!r} with the task {config.task_name}, expected one whose goals are "
                "objects: objectnav or sequence; leave the sensor out"
            )
