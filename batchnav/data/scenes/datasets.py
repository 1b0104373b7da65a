"""Datasets in the folder layout of Habitat's downloads: scenes, navmeshes and episodes of a split.

    data/scene_datasets/gibson/Adrian.glb                                 Gibson, habitat-test-scenes
    data/scene_datasets/mp3d/17DRP5sb8fy/17DRP5sb8fy.glb                  MP3D
    data/scene_datasets/hm3d/val/00800-TEEsavR23oF/TEEsavR23oF.basis.glb  HM3D
    data/scene_datasets/hssd-hab/hssd-hab.scene_dataset_config.json       HSSD, ReplicaCAD (data/replica_cad), AI2-THOR
    data/datasets/pointnav/gibson/v1/val/val.json.gz                      PointNav episodes

A navmesh lies in the folder of its mesh, in the dataset's folder `navmeshes`, or at the path in the config.
`find_sources` also takes mesh files and folders of them.
"""

from __future__ import annotations

import dataclasses
import functools
import glob
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import torch

from batchnav.data.episodes import episode_table, in_scene_frames, is_georeferenced, order_episodes, scene_name
from batchnav.data.files import SCENES_DIR, natural_order
from batchnav.data.formats import EpisodeDataset, load_episodes
from batchnav.data.formats.pointnav import scenes_played
from batchnav.data.scenes.annotations import is_semantic
from batchnav.data.scenes.asset import FileAxes
from batchnav.data.scenes.cached import load_source
from batchnav.data.scenes.scene_dataset import DATASET_CONFIG, SCENE_INSTANCE, SceneDatasetConfig
from batchnav.data.scenes.source import (
    STAGE_CONFIG,
    SceneSource,
    file_source,
    is_hidden,
    mesh_files_in,
    mesh_source,
    one_per_scene,
    stage_source,
)
from batchnav.errors import ArgumentError, EpisodeError, MeshError, shortened
from batchnav.navmesh.settings import NavMeshSettings
from batchnav.runtime.console import number_of
from batchnav.runtime.files import as_path
from batchnav.runtime.parallel import SCENES_PER_WORKER, in_parallel
from batchnav.scene.formats import unsupported_format
from batchnav.scene.images import AppearanceConfig
from batchnav.scene.mesh import SUFFIXES
from batchnav.scene.scene import Scene
from batchnav.tasks.episode_sampling import EpisodeTable

SPLITS = ("train", "val", "test", "minival", "train_mini", "val_mini", "example")
EPISODE_VERSION = "v1"
"""Version of the PointNav episodes in Habitat's configs, for datasets with several versions."""


@dataclass(frozen=True)
class Dataset:
    """A split of a scene dataset. Scenes and episodes are read on first use."""

    path: Path
    """Folder of scenes, or the config file that describes them."""
    split: str
    scene_names: tuple[str, ...]
    """Scene ids, as in the split's episodes."""
    episode_file: Path | None
    """File of the split's PointNav episodes; None where there is none."""
    config: SceneDatasetConfig | None = None
    """The config that describes the scenes; None for scenes that are found by their folders."""

    @functools.cached_property
    def scenes(self) -> tuple[SceneSource, ...]:
        """Sources of the scenes, in the order of `scene_names`. MeshError where a config is broken."""
        return tuple(map(self.scene, self.scene_names))

    @property
    def navmeshes(self) -> dict[str, Path]:
        """Existing navmesh files, by scene name; scenes without a file get a baked navmesh."""
        return {source.name: source.navmesh for source in self.scenes if source.navmesh}

    @functools.cached_property
    def episodes(self) -> EpisodeDataset:
        """The split's PointNav episodes. EpisodeError where there is no file, or the file is broken."""
        if self.episode_file is None:
            raise EpisodeError(
                f"{self.path}: found no PointNav episodes of split {self.split!r}, expected "
                f"{_episode_pattern(self.path, self.split)} (`batchnav data make-episodes` makes one)"
            )
        return load_episodes(self.episode_file)

    def scene(self, name: str) -> SceneSource:
        """The source of a scene. ArgumentError for an unknown name."""
        if name not in self.scene_names:
            raise ArgumentError(f"scene: found {name!r}, expected one of the {len(self.scene_names)} of {self.path}")
        return self.config.source(name) if self.config else stage_source(self.path.parent / name, name)

    def load_scenes(
        self,
        names: Sequence[str] | None = None,
        settings: NavMeshSettings | None = None,
        appearance: AppearanceConfig | bool = True,
        two_sided: bool = False,
        islands: str = "all",
    ) -> list[Scene]:
        """Load scenes with their navmeshes, in parallel processes, with progress.

        Args:
            names: scene names; None for all scenes of the split.
            settings: as in `load_scene`.
            appearance: as in `load_scene`.
            two_sided: as in `load_scene`.
            islands: as in `load_scene`.
        """
        sources = self.scenes if names is None else [self.scene(name) for name in names]
        sources = [source.adjusted(two_sided=two_sided, islands=islands) for source in sources]
        load = functools.partial(load_source, settings=settings, appearance=appearance)
        return list(in_parallel(load, sources, "scenes", SCENES_PER_WORKER))

    def episode_table(self, device: torch.device | str = "cpu", **order) -> EpisodeTable:
        """The episodes as a table for `PointNavEnv(data.load_scenes(), ..., episodes=table)`.

        Georeferenced episodes are shifted into the frames of their scenes (`scene.origin`), whose meshes are read.

        Args:
            device: device of the table's tensors.
            order: options of `order_episodes`: shuffle, grouped, num_episode_sample, rounds, seed.
        """
        ordered = order_episodes(self.episodes.episodes, **order)
        far = sorted({episode.scene_id for episode in ordered if is_georeferenced(episode)} & {*self.scene_names})
        origins = {name: self.scene(name).load_mesh(appearance=False).origin for name in far}
        return episode_table(in_scene_frames(ordered, origins), self.scene_names, device)


def load_dataset(path: str | Path, split: str = "train", episodes: str | Path | None = None) -> Dataset:
    """Find the scenes, navmeshes and episodes of a split in the layout of Habitat's downloads.

    Args:
        path: the dataset's folder, such as `data/scene_datasets/hm3d`, or its `*.scene_dataset_config.json`.
        split: train, val ... If the dataset has no folder per split, the scenes of a split are those of its episodes;
            without episodes, all scenes.
        episodes: episode file in place of the one in data/datasets/pointnav; `{split}` in it is replaced.

    Raises MeshError where there are no scenes, EpisodeError where the episodes are broken.
    """
    path = as_path(path)
    if not path.exists():
        raise MeshError(f"{path}: found no such file or folder, expected that of a dataset, such as {SCENES_DIR}/hm3d")
    file = Path(str(episodes).replace("{split}", split)) if episodes else _find_episodes(path, split)
    names = _names_in_folders(path, split) if path.is_dir() else []
    config = None if names else _find_config(path)
    names = names or (config.scene_names if config else [])
    if not names:
        raise MeshError(f"{path}: found no scenes, expected NAME.glb, NAME/NAME.glb, SPLIT/*/NAME.glb or a config")
    dataset = Dataset(path, split, tuple(names), file, config)
    if file is None or (path / split).is_dir():
        return dataset
    played = scenes_played(file)
    present = tuple(name for name in names if scene_name(name) in played)
    if not present:
        raise MeshError(f"{path}: found none of the {number_of(len(played), 'scene')} that {file} plays in")
    return dataclasses.replace(dataset, scene_names=present)


def find_sources(path: Path, split: str = "train", frame: FileAxes | None = None) -> list[SceneSource]:
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


def _find_episodes(path: Path, split: str) -> Path | None:
    """The split's PointNav file: version v1, or the only version."""
    if not split or "/" in split or "\0" in split:
        raise ArgumentError(f"split: found {shortened(split)}, expected a name, such as val")
    folder, name = _episode_pattern(path, split).parents[2], glob.escape(split)
    found = sorted(folder.glob(f"*/{name}/{name}.json.gz")) if folder.is_dir() else []
    return next((file for file in found if file.parts[-3] == EPISODE_VERSION), found[0] if len(found) == 1 else None)


def _episode_pattern(path: Path, split: str) -> Path:
    folder = path.absolute() if path.is_dir() else path.absolute().parent
    data = folder.parent.parent if folder.parent.name == SCENES_DIR.name else folder.parent
    return data / "datasets" / "pointnav" / folder.name / "*" / split / f"{split}.json.gz"


def _find_config(path: Path) -> SceneDatasetConfig | None:
    """The dataset's config: the file itself, else the one named like its folder, else the first."""
    if path.is_file():
        if not path.name.endswith(DATASET_CONFIG):
            raise MeshError(f"{path}: found a file, expected a folder of scenes or a *{DATASET_CONFIG}")
        return SceneDatasetConfig(path)
    configs = sorted(file for file in path.glob(f"*{DATASET_CONFIG}") if not is_hidden(file))
    named = [file for file in configs if file.name == path.name + DATASET_CONFIG]
    return SceneDatasetConfig((named or configs)[0]) if configs else None


def _names_in_folders(path: Path, split: str) -> list[str]:
    """Scene names in the folder layout of HM3D, MP3D or Gibson."""
    by_split = {folder.name: _glbs(folder, "*/*.glb") for folder in path.iterdir() if folder.name in SPLITS}
    by_split = {name: files for name, files in by_split.items() if files}
    if by_split and split not in by_split:
        raise MeshError(f"{path}: found no scenes of split {split!r}, expected one of {', '.join(sorted(by_split))}")
    own_folder = [file for file in _glbs(path, "*/*.glb") if file.stem == file.parent.name]
    files = by_split.get(split) or own_folder or _glbs(path, "*.glb")
    return [file.relative_to(path.parent).as_posix() for file in files]


def _glbs(folder: Path, pattern: str) -> list[Path]:
    """Mesh files without semantic ones; a `.basis.glb` replaces the uncompressed file of the same scene."""
    files = [f for f in folder.glob(pattern) if not (is_semantic(f) or is_hidden(f) or is_hidden(f.parent))]
    return sorted(one_per_scene(files), key=natural_order)
