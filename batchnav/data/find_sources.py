"""Scenes by path: a mesh file, a stage config, a scene instance, a dataset's config, or a folder of these."""

from __future__ import annotations

from pathlib import Path

from batchnav.data.habitat.datasets import load_dataset
from batchnav.data.habitat.scene_dataset import DATASET_CONFIG, SCENE_INSTANCE, SceneDatasetConfig
from batchnav.data.sources.asset import Frame
from batchnav.data.sources.mesh_files import is_hidden, mesh_files_in
from batchnav.data.sources.scene_source import (
    SCENES_DIR,
    STAGE_CONFIG,
    SceneSource,
    file_source,
    mesh_source,
    stage_source,
)
from batchnav.errors import MeshError
from batchnav.scene.formats import unsupported_format
from batchnav.scene.mesh import SUFFIXES


def find_sources(path: Path, split: str = "train", frame: Frame | None = None) -> list[SceneSource]:
    """The scenes of a path.

    Args:
        path: a mesh file, a stage config, a scene instance, a dataset's config, or a folder. A folder gives its mesh
            files; below a folder `scene_datasets`, or without mesh files, it is read as one of Habitat's datasets.
        split: split of a dataset.
        frame: orientation of mesh files; None for +Y up, and Habitat's conventions in its datasets.

    Raises MeshError where no scene is found.
    """
    if path.name.endswith(SCENE_INSTANCE):
        # The dataset's config lies in a folder above.
        for folder in path.absolute().parents:
            for config in sorted(file for file in folder.glob(f"*{DATASET_CONFIG}") if not is_hidden(file)):
                return [SceneDatasetConfig(config).source(path.name.removesuffix(SCENE_INSTANCE))]
        raise MeshError(f"{path}: found no *{DATASET_CONFIG} in a folder above, expected the dataset's config")
    if path.name.endswith(STAGE_CONFIG):
        return [stage_source(path.with_name(path.name.removesuffix(STAGE_CONFIG) + ".glb"), str(path))]
    if path.suffix.lower() in SUFFIXES and path.is_file():
        return [file_source(path) if frame is None else mesh_source(path, frame)]
    if path.is_file() and not path.name.endswith(DATASET_CONFIG):
        kind = unsupported_format(path.suffix)
        raise MeshError(
            f"{path}: found {kind or 'a file of another kind'}; expected {', '.join(SUFFIXES)}, *{STAGE_CONFIG}, "
            f"*{SCENE_INSTANCE}, *{DATASET_CONFIG}, or a folder of these"
        )
    if path.is_dir() and (frame is not None or SCENES_DIR.name not in path.absolute().parts):
        own = [mesh_source(file, frame) for file in mesh_files_in(path)]
        if own or frame is not None:
            if not own:
                raise MeshError(f"{path}: found no mesh files, expected some of {', '.join(SUFFIXES)}")
            return own
    return list(load_dataset(path, split).scenes)
