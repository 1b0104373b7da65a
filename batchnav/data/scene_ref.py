"""Scene ids: what each kind looks like, parsed into a `SceneRef`; and lists of scene ids from ranges and folders.

A scene id is one of

    FAMILY:SEED                               a procedural scene, as "house:7"; `procedural/__init__.py` lists families
    NAME.scene_dataset_config.json:SCENE      a scene of a dataset that the config describes
    PATH                                      a mesh file, a prepared scene, or a stage below Habitat's scene folder

`data/resolve.py` finds what a `SceneRef` refers to.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from batchnav.data.habitat.scene_dataset import DATASET_CONFIG
from batchnav.data.prepared.scene_file import SUFFIX
from batchnav.data.sources.mesh_files import is_hidden, mesh_files_in
from batchnav.errors import MeshError
from batchnav.procedural import FAMILIES, SceneFamily

_SEEDS = re.compile(rf"({'|'.join(FAMILIES)}):(\d{{1,6}}(?:-\d{{1,6}})?(?:,\d{{1,6}}(?:-\d{{1,6}})?)*)", re.ASCII)
"""A family, and its seeds and ranges of seeds."""


@dataclass(frozen=True)
class GeneratedRef:
    """A procedural scene."""

    scene_id: str
    family: SceneFamily
    seed: int


@dataclass(frozen=True)
class DatasetRef:
    """A scene of a dataset that a `*.scene_dataset_config.json` file (`config`) describes."""

    scene_id: str
    config: Path
    name: str


@dataclass(frozen=True)
class FileRef:
    """A file: a mesh, or a prepared scene."""

    scene_id: str

    @property
    def path(self) -> Path:
        """The scene id as a path."""
        return Path(self.scene_id)

    @property
    def is_prepared(self) -> bool:
        """True where the file is a prepared scene, by its name."""
        return self.path.suffix == SUFFIX


SceneRef = GeneratedRef | DatasetRef | FileRef


def parse_scene_id(scene_id: str) -> SceneRef:
    """The kind and the parts of a scene id; no file is read. MeshError where a seed is no whole number."""
    family, colon, seed = scene_id.partition(":")
    if colon and family in FAMILIES:
        if not (seed.isascii() and seed.isdigit()):
            raise MeshError(
                f"scene {scene_id!r}: found seed {seed!r}, expected a whole number, as in '{family}:7'; "
                f"lists of scenes take several seeds, as in '{family}:0-3,7'"
            )
        return GeneratedRef(scene_id, FAMILIES[family], int(seed))
    config, marker, name = scene_id.rpartition(f"{DATASET_CONFIG}:")
    if marker:
        return DatasetRef(scene_id, Path(config + DATASET_CONFIG), name)
    return FileRef(scene_id)


def has_random_materials(scene_id: str) -> bool:
    """True where the materials of a scene can be randomised: procedural scenes; prepared ones may be procedural."""
    ref = parse_scene_id(scene_id)
    if isinstance(ref, GeneratedRef):
        return ref.family.random_materials
    return isinstance(ref, FileRef) and ref.is_prepared


def scene_ids(names: Iterable[str]) -> list[str]:
    """Scene ids, where "FAMILY:0-3,7" expands to one id per seed, and a folder to the scenes in it.

    MeshError where a range has no seeds or a folder no scenes.
    """
    ids: list[str] = []
    if isinstance(names, (str, Path)) or not isinstance(names, Iterable):
        raise MeshError(f"names: found {str(names)!r}, expected a list of names, such as [{str(names)!r}]")
    for name in map(str, names):
        seeds = _SEEDS.fullmatch(name)
        if seeds:
            parts = [(*map(int, part.split("-")),) for part in seeds[2].split(",")]
            found = [f"{seeds[1]}:{seed}" for part in parts for seed in range(part[0], part[-1] + 1)]
            if any(part[0] > part[-1] for part in parts):
                found = []
        else:
            found = [str(file) for file in scenes_in(Path(name))] if os.path.isdir(name) else [name]
        if not found:
            what = "a range without seeds" if seeds else f"a folder without prepared scenes (*{SUFFIX}) or mesh files"
            raise MeshError(f"{name}: found {what}, expected at least one scene")
        ids += found
    return ids


def prepared_in(folder: Path) -> list[Path]:
    """The prepared scenes in a folder, without those that belong to a `.glb` of the same name."""
    files = [file for file in sorted(folder.glob(f"*{SUFFIX}")) if not is_hidden(file)]
    return [file for file in files if not file.with_suffix(".glb").is_file()]


def scenes_in(folder: Path) -> list[Path]:
    """The prepared scenes in a folder; its mesh files where it has no prepared scenes."""
    return prepared_in(folder) or mesh_files_in(folder)
