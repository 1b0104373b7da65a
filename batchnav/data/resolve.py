"""From a parsed scene id to the function that loads its scene: one resolver for each kind of `SceneRef`."""

from __future__ import annotations

import functools
import logging
import os
from collections.abc import Callable
from pathlib import Path

from batchnav.data.generated import load_generated
from batchnav.data.habitat.scene_dataset import DATASET_CONFIG, SceneDatasetConfig
from batchnav.data.prepared.scene_file import SUFFIX, load_prepared, load_source
from batchnav.data.scene_ref import DatasetRef, FileRef, GeneratedRef, SceneRef, parse_scene_id
from batchnav.data.sources.scene_source import SceneSource, file_source, scene_id_of, stage_source
from batchnav.errors import MeshError, shortened
from batchnav.navmesh.settings import NavMeshSettings
from batchnav.procedural import FAMILIES
from batchnav.scene.images import AppearanceConfig
from batchnav.scene.scene import Scene, check_baked_for

_log = logging.getLogger(__name__)

Loader = Callable[[NavMeshSettings | None, AppearanceConfig | bool], Scene]
"""load(settings, appearance), both as in `load_scene`."""
Adjust = Callable[[SceneSource], SceneSource]
"""Changes the source of a mesh file, as `SceneSource.adjusted` does."""
_DATASETS = "download or link its dataset there (`batchnav data list`), or name another folder by --scenes-dir"
"""What to do about a missing scene of a dataset."""
_LONGEST_NAME = 200
"""Longest name of a scene that messages show whole."""


def resolve(ref: SceneRef, scenes_dir: Path | None = None, adjust: Adjust | None = None) -> Loader:
    """The loader of a scene.

    Args:
        ref: the parsed scene id.
        scenes_dir: folder below which files are searched first; None: files are taken by their own path alone.
        adjust: changes the source of a mesh file.

    Raises MeshError where there is no such file or scene.
    """
    if isinstance(ref, FileRef):
        return _file(ref, scenes_dir, adjust)
    return _generated(ref) if isinstance(ref, GeneratedRef) else _of_dataset(ref, scenes_dir)


def _generated(ref: GeneratedRef) -> Loader:
    return lambda settings, appearance: load_generated(ref, settings, appearance is not False)


def _of_dataset(ref: DatasetRef, scenes_dir: Path | None) -> Loader:
    """A scene that its dataset's config describes; else, as Habitat does, the file that the scene id names."""
    config, _ = _existing(ref.config, scenes_dir)
    if config is not None and (found := _config(config)).has(ref.name):
        return functools.partial(load_source, found.source(ref.name))
    file, _ = _existing(Path(ref.name), scenes_dir)
    if file is None and config is not None:
        file, _ = _existing(Path(ref.name), config.parent)
    if file is None:
        what = f"no file {ref.config}" if config is None else f"no scene {shortened(ref.name)} in {config}"
        raise MeshError(
            f"scene {_shown(ref.name)}: found {what}, and no file of this name here{_or_in(scenes_dir)}, "
            f"expected one of them; {_DATASETS}"
        )
    why = "is missing" if config is None else "does not list it"
    _log.warning("%s: loaded by its path, since the dataset's config %s %s", file, ref.config, why)
    return _by_path(file, is_stage=True)


def _file(ref: FileRef, scenes_dir: Path | None, adjust: Adjust | None) -> Loader:
    if scenes_dir is None:
        return _by_path(ref.path, adjust=adjust)
    file, is_below = _existing(ref.path, scenes_dir)
    if file is None and ref.path.suffix and len(ref.path.parts) > 1:
        raise MeshError(
            f"scene {_shown(ref.scene_id)}: found no such file here{_or_in(scenes_dir)} (paths in an episode file "
            f"count from the current folder or the file's own), expected a mesh file or a prepared scene; {_DATASETS}"
        )
    if file is None:
        generated = ", ".join(f"'{family}:SEED'" for family in FAMILIES)
        raise MeshError(
            f"scene {shortened(ref.scene_id)}: found no such file here{_or_in(scenes_dir)} (paths in an episode file "
            f"count from the current folder or the file's own), expected {generated}, the path of a mesh file or of "
            f"a prepared scene, or 'CONFIG{DATASET_CONFIG}:NAME'"
        )
    return _by_path(file, is_below and not ref.path.is_absolute(), adjust)


def _by_path(file: Path, is_stage: bool = False, adjust: Adjust | None = None) -> Loader:
    """The loader of a prepared scene or of a mesh file; `is_stage`: with the conventions of Habitat's stages."""
    if file.suffix == SUFFIX:
        return functools.partial(_load_prepared, file)
    return functools.partial(load_source, (adjust or _same)((stage_source if is_stage else file_source)(file)))


def _existing(path: Path, scenes_dir: Path | None) -> tuple[Path | None, bool]:
    """The file that a scene id names, and whether it lies below `scenes_dir`; None where there is none.

    A name without a file is also tried with "/" for each backslash, as it was written on Windows, and below
    `scenes_dir` without what precedes the folder `scene_datasets`.
    """
    name = str(path)
    slashed = name.replace("\\", "/")
    below = [] if scenes_dir is None else [scenes_dir / each for each in (name, slashed, scene_id_of(Path(slashed)))]
    places = [(below[0], True)] if below else []
    places += [(path, False), *((place, True) for place in below[1:]), (Path(slashed), False)]
    return next(((place, is_below) for place, is_below in places if os.path.isfile(place)), (None, False))


def _shown(name: str) -> str:
    """The name of a scene for a message: whole, unless it is longer than names of datasets are."""
    return repr(name) if len(name) <= _LONGEST_NAME else shortened(name)


def _or_in(scenes_dir: Path | None) -> str:
    return "" if scenes_dir is None else f" or in {scenes_dir}"


def located(scene_id: str, scenes_dir: Path, folder: str) -> str:
    """The scene id, with its file in `folder` where only that one exists: an episode file's own folder.

    Paths in a file that `batchnav data make-episodes` wrote count from the folder where the command was called.
    """
    ref = parse_scene_id(scene_id)
    if isinstance(ref, GeneratedRef) or not folder:
        return scene_id
    path = ref.path if isinstance(ref, FileRef) else ref.config
    if path.is_absolute() or _existing(path, scenes_dir)[0] is not None:
        return scene_id
    file, _ = _existing(Path(folder) / path, None)
    if file is None:
        return scene_id
    return f"{file}:{ref.name}" if isinstance(ref, DatasetRef) else str(file)


def _same(source: SceneSource) -> SceneSource:
    return source


def _load_prepared(path: Path, settings: NavMeshSettings | None, appearance: AppearanceConfig | bool) -> Scene:
    """A prepared scene. NavMeshError where its navmesh was baked for another body than that of `settings`."""
    scene = load_prepared(path, appearance)
    if settings is not None:
        check_baked_for(scene.navmesh, str(path), settings)
    return scene


@functools.cache
def _config(path: Path) -> SceneDatasetConfig:
    """The config of a dataset, read once: a search for thousands of objects takes time."""
    return SceneDatasetConfig(path)
