"""Scene ids, parsed once into a `SceneRef`; lists of scene ids from ranges and folders; the registry of scene sources.

A scene id is one of

    FAMILY:SEED                               a procedural scene, as "house:7"; `procedural/__init__.py` lists families
    FAMILY:SEED?furniture=FOLDER              the same with models of a folder for furniture; "&materials=random" gives
                                              these the finishes of ours
    FAMILY:SEED?kinds=more                    the same with more constructions of our furniture; also with "&furniture="
    FAMILY:SEED?materials=FOLDER              the same with pictures of a folder on walls, floors and furniture of ours
    FAMILY:SEED?lights=random                 the same under random lights; all options can be joined by "&"
    NAME.scene_dataset_config.json:SCENE      a scene of a dataset that the config describes
    PREFIX:ANYTHING                           a scene of a source in `SCENE_SOURCES`
    PATH                                      a mesh file, a prepared scene, a file whose suffix is in `SCENE_SOURCES`,
                                              or a stage below Habitat's scene folder

`load.py` finds what a `SceneRef` refers to.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from batchnav.data.scenes.prepared import SUFFIX, is_imported
from batchnav.data.scenes.scene_dataset import DATASET_CONFIG
from batchnav.data.scenes.source import is_hidden, mesh_files_in
from batchnav.errors import MeshError, shortened
from batchnav.navmesh.settings import NavMeshSettings
from batchnav.procedural import FAMILIES, LARGEST_SEED, MATERIALS, SceneFamily
from batchnav.scene.images import AppearanceConfig
from batchnav.scene.scene import Scene

_SEED_RANGES = re.compile(r"([^:]+):(\d+(?:-\d+)?(?:,\d+(?:-\d+)?)*)(\?.*)?", re.ASCII | re.DOTALL)
"""A word, numbers and ranges of numbers, and options."""
_MOST_SEEDS = 1_000_000
"""Largest number of seeds of a name."""
SceneLoader = Callable[[str, NavMeshSettings | None, AppearanceConfig | bool], Scene]
"""load(name, settings, appearance): the scene id, or the path of the file that was found; the others as in
`load_scene`."""
SCENE_SOURCES: dict[str, SceneLoader] = {}
"""Further scene sources, such as your own: the prefix of ids with its colon, as "maze:", or the suffix of files, as
".rooms". `load.py` adds Gazebo worlds."""


@dataclass(frozen=True)
class GeneratedRef:
    """A procedural scene."""

    scene_id: str
    family: SceneFamily
    seed: int
    furniture: Path | None = None
    """Folder of models that take places of the furniture; None for none."""
    materials: str = MATERIALS[0]
    """Materials of these models, one of `MATERIALS`."""
    more_kinds: bool = False
    """True for more constructions of our own furniture."""
    pictures: Path | None = None
    """Folder of pictures that are materials of the scene; None for none."""
    lights: bool = False
    """True for random lights."""


@dataclass(frozen=True)
class DatasetRef:
    """A scene of a dataset that a `*.scene_dataset_config.json` file (`config`) describes."""

    scene_id: str
    config: Path
    name: str


@dataclass(frozen=True)
class SourceRef:
    """A scene of a source in `SCENE_SOURCES` whose ids have a prefix."""

    scene_id: str
    load: SceneLoader


@dataclass(frozen=True)
class FileRef:
    """A file: a mesh, a prepared scene, or a file with a loader in `SCENE_SOURCES`."""

    scene_id: str
    load: SceneLoader | None = None

    @property
    def path(self) -> Path:
        """The scene id as a path."""
        return Path(self.scene_id)

    @property
    def is_prepared(self) -> bool:
        """True where the file is a prepared scene, by its name."""
        return self.path.suffix == SUFFIX


SceneRef = GeneratedRef | DatasetRef | SourceRef | FileRef


def parse_scene_id(scene_id: str) -> SceneRef:
    """The kind and the parts of a scene id; no file is read. MeshError for a seed that is not 0 to LARGEST_SEED."""
    family, colon, rest = scene_id.partition(":")
    if colon and family in FAMILIES:
        seed, mark, options = rest.partition("?")
        if not (seed.isascii() and seed.isdigit()):
            raise MeshError(
                f"scene {scene_id!r}: found seed {seed!r}, expected a whole number, as in '{family}:7'; "
                f"lists of scenes take several seeds, as in '{family}:0-3,7'"
            )
        more = _options(scene_id, FAMILIES[family], options) if mark else {}
        return GeneratedRef(scene_id, FAMILIES[family], _seed(seed, scene_id), **more)
    config, marker, name = scene_id.rpartition(f"{DATASET_CONFIG}:")
    if marker:
        return DatasetRef(scene_id, Path(config + DATASET_CONFIG), name)
    if family + colon in SCENE_SOURCES:
        return SourceRef(scene_id, SCENE_SOURCES[family + colon])
    return FileRef(scene_id, SCENE_SOURCES.get(Path(scene_id).suffix.lower()))


def _options(scene_id: str, family: SceneFamily, options: str) -> dict[str, Any]:
    """Fields of a `GeneratedRef` from the options of a scene id. MeshError for others."""
    words = [word.partition("=")[::2] for word in options.split("&")]
    given = dict(words)
    offered = {**(_FURNISHED if family.takes_options else {}), **(_FINISHED if family.random_materials else {})}
    if not offered:
        raise MeshError(f"scene {shortened(scene_id)}: found options, expected none for the family {family.name!r}")
    materials = given.get("materials", MATERIALS[0])
    is_alone = "materials" in given and materials in MATERIALS and "furniture" not in given
    if len(given) < len(words) or not set(given) <= set(offered) or not all(given.values()) or is_alone:
        raise MeshError(
            f"scene {shortened(scene_id)}: found options {shortened(options)}, expected some of "
            f"{', '.join(offered.values())}, joined by '&'"
        )
    for name, expected in (("kinds", "more"), ("lights", "random")):
        if given.get(name, expected) != expected:
            raise MeshError(f"scene {shortened(scene_id)}: {name}: found {shortened(given[name])}, expected {expected}")
    pictures = None if materials in MATERIALS else Path(materials)
    folder = given.get("furniture")
    return {
        "furniture": folder and Path(folder), "materials": MATERIALS[0] if pictures else materials,
        "more_kinds": "kinds" in given, "pictures": pictures, "lights": "lights" in given,
    }  # fmt: skip


_FURNISHED = {"furniture": f"furniture=FOLDER with materials={'|'.join(MATERIALS)}", "kinds": "kinds=more"}
_FINISHED = {"materials": "materials=FOLDER", "lights": "lights=random"}
"""Options of scene ids: of families with furniture to replace, and of those with finishes."""


def _seed(digits: str, name: str) -> int:
    """The seed that the digits say, of the scene or range `name`. MeshError above LARGEST_SEED."""
    if len(digits.lstrip("0")) > len(str(LARGEST_SEED)) or int(digits) > LARGEST_SEED:
        raise MeshError(f"scene {shortened(name)}: found seed {shortened(digits)}, expected 0 to {LARGEST_SEED}")
    return int(digits)


def has_random_materials(scene_id: str) -> bool:
    """True where the materials of a scene can be randomised: procedural scenes; prepared ones may be procedural."""
    ref = parse_scene_id(scene_id)
    if isinstance(ref, GeneratedRef):
        return ref.family.random_materials
    return isinstance(ref, FileRef) and ref.is_prepared


def scene_ids(names: Iterable[str]) -> list[str]:
    """Scene ids, where "FAMILY:0-3,7" expands to one id per seed, with its options, and a folder to its scenes.

    MeshError where a range has no seeds, too many or too large ones, or a folder no scenes.
    """
    ids: list[str] = []
    if isinstance(names, (str, Path)) or not isinstance(names, Iterable):
        raise MeshError(f"names: found {str(names)!r}, expected a list of names, such as [{str(names)!r}]")
    for name in map(str, names):
        seeds = _SEED_RANGES.fullmatch(name)
        if seeds and (seeds[1] in FAMILIES or f"{seeds[1]}:" in SCENE_SOURCES):
            parts = [[_seed(digits, name) for digits in part.split("-")] for part in seeds[2].split(",")]
            if (count := sum(part[-1] - part[0] + 1 for part in parts)) > _MOST_SEEDS:
                raise MeshError(f"{name}: found {count} seeds, expected at most {_MOST_SEEDS}")
            options = seeds[3] or ""
            found = [f"{seeds[1]}:{seed}{options}" for part in parts for seed in range(part[0], part[-1] + 1)]
            if any(part[0] > part[-1] for part in parts):
                found = []
        else:
            seeds = None
            found = [str(file) for file in scenes_in(Path(name))] if os.path.isdir(name) else [name]
        if not found:
            what = "a range without seeds" if seeds else f"a folder without prepared scenes (*{SUFFIX}) or mesh files"
            raise MeshError(f"{name}: found {what}, expected at least one scene")
        ids += found
    return ids


def prepared_in(folder: Path) -> list[Path]:
    """The prepared scenes in a folder, without those that belong to a `.glb` of the same name.

    An imported scene belongs to no file: it may have other axes or islands than the file that it was made from.
    """
    files = [file for file in sorted(folder.glob(f"*{SUFFIX}")) if not is_hidden(file)]
    return [file for file in files if not file.with_suffix(".glb").is_file() or is_imported(file)]


def scenes_in(folder: Path) -> list[Path]:
    """The prepared scenes in a folder; where it has none, its mesh files, and files of the sources of your own."""
    own = [file for file in sorted(folder.iterdir()) if file.suffix.lower() in SCENE_SOURCES and not is_hidden(file)]
    return prepared_in(folder) or sorted({*mesh_files_in(folder, SCENE_SOURCES), *own})
