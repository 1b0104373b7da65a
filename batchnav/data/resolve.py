"""From a parsed scene id to the function that loads its scene: one resolver for each kind of `SceneRef`."""

from __future__ import annotations

import functools
import os
from collections.abc import Callable
from pathlib import Path

from batchnav.data.generated import load_generated
from batchnav.data.habitat.scene_dataset import DATASET_CONFIG, SceneDatasetConfig
from batchnav.data.prepared.scene_file import load_prepared, load_source
from batchnav.data.scene_ref import DatasetRef, FileRef, GeneratedRef, SceneRef
from batchnav.data.sources.scene_source import SceneSource, file_source, scene_id_of, stage_source
from batchnav.errors import MeshError
from batchnav.navmesh.settings import NavMeshSettings
from batchnav.procedural import FAMILIES
from batchnav.scene.images import AppearanceConfig
from batchnav.scene.scene import Scene, check_baked_for

Loader = Callable[[NavMeshSettings | None, AppearanceConfig | bool], Scene]
"""load(settings, appearance), both as in `load_scene`."""
Adjust = Callable[[SceneSource], SceneSource]
"""Changes the source of a mesh file, as `SceneSource.adjusted` does."""


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
    config = ref.config
    if scenes_dir is not None and not os.path.isfile(config):
        config = scenes_dir / scene_id_of(config)
    return functools.partial(load_source, _config(config).source(ref.name))


def _file(ref: FileRef, scenes_dir: Path | None, adjust: Adjust | None) -> Loader:
    path = ref.path
    if scenes_dir is not None:
        below = scenes_dir / path
        if not path.is_absolute() and os.path.isfile(below):
            if not ref.is_prepared:
                return functools.partial(load_source, (adjust or _same)(stage_source(below)))
            path = below
        elif not os.path.isfile(path):
            generated = ", ".join(f"'{family}:SEED'" for family in FAMILIES)
            raise MeshError(
                f"scene {ref.scene_id!r}: found no such file, here or in {scenes_dir} (an episode file's paths count "
                f"from the folder where `batchnav data episodes` was called), expected {generated}, the path of a mesh "
                f"file or of a prepared scene, or 'CONFIG{DATASET_CONFIG}:NAME'"
            )
    if ref.is_prepared:
        return functools.partial(_load_prepared, path)
    return functools.partial(load_source, (adjust or _same)(file_source(path)))


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
    """The config of a data set, read once: a search for thousands of objects takes time."""
    return SceneDatasetConfig(path)
