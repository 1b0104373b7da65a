"""Preparing scenes: every scene loaded, its navmesh baked, its tree built, all packed into one file; in parallel."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from batchnav.data.habitat.datasets import load_dataset
from batchnav.data.habitat.scene_dataset import DATASET_CONFIG, SCENE_INSTANCE, SceneDatasetConfig
from batchnav.data.parallel import in_parallel
from batchnav.data.prepared.scene_file import SUFFIX, fingerprint, made_from, save_prepared
from batchnav.data.procthor.houses import make_procthor_house, read_houses, read_sizes
from batchnav.data.source import (
    SCENES_DIR,
    STAGE_CONFIG,
    Z_UP,
    Frame,
    SceneSource,
    file_source,
    mesh_source,
    stage_source,
)
from batchnav.errors import BatchnavError, MeshError
from batchnav.runtime.files.atomic import replacing
from batchnav.scene.mesh import SUFFIXES, save_mesh


class Outcome(NamedTuple):
    """What became of one scene."""

    name: str
    path: Path
    """The prepared file."""
    problem: str = ""
    """Why there is none; empty where there is one."""
    fresh: bool = False
    """It was there already, made from the same files in the same way."""
    missing: tuple[str, ...] = ()
    """Assets that the scene is without."""
    z_up: bool = False
    """Its first mesh file was taken to be +Z up."""


def find_sources(path: Path, split: str = "train", frame: Frame | None = None) -> list[SceneSource]:
    """The scenes of a path: a mesh file, a stage config, a scene instance, a data set's config, or its folder.

    Args:
        path: what to look into. A folder gives the mesh files in it, one that has none, or lies below a folder
            `scene_datasets`, the scenes of a data set of Habitat's.
        split: of a data set.
        frame: which way is up in mesh files; None: +Y in files of one's own, what Habitat says in its data sets.

    Raises MeshError where there are none.
    """
    if path.name.endswith(SCENE_INSTANCE):
        # The data set's config lies in a folder above.
        for folder in path.absolute().parents:
            for config in sorted(folder.glob(f"*{DATASET_CONFIG}")):
                return [SceneDatasetConfig(config).source(path.name.removesuffix(SCENE_INSTANCE))]
        raise MeshError(f"{path}: found no *{DATASET_CONFIG} in a folder above, which would know its objects")
    if path.name.endswith(STAGE_CONFIG):
        return [stage_source(path.with_name(path.name.removesuffix(STAGE_CONFIG) + ".glb"), str(path))]
    if path.suffix.lower() in SUFFIXES and path.is_file():
        return [file_source(path) if frame is None else mesh_source(path, frame)]
    if path.is_dir() and (frame is not None or SCENES_DIR.name not in path.absolute().parts):
        own = [mesh_source(file, frame) for file in sorted(path.iterdir()) if file.suffix.lower() in SUFFIXES]
        if own or frame is not None:
            if not own:
                raise MeshError(f"{path}: found no mesh files, expected some of {', '.join(SUFFIXES)}")
            return own
    return list(load_dataset(path, split).scenes)


def import_houses(path: Path, sizes: Path, out: Path) -> tuple[list[SceneSource], set[str]]:
    """ProcTHOR houses as mesh files OUT/NAME_0000.ply ... Returns them, and the ids of assets of unknown size.

    Their surfaces go with the sources, and so into prepared scenes: the files hold triangles alone.
    """
    known, unknown, sources = read_sizes(sizes), set(), []
    stem = path.name.partition(".")[0]
    for i, house in enumerate(read_houses(path)):
        target = out / f"{stem}_{i:04d}.ply"
        mesh, without = make_procthor_house(house, known, f"{path}: house {i}")
        out.mkdir(parents=True, exist_ok=True)
        save_mesh(mesh, target)
        unknown.update(without)
        sources.append(dataclasses.replace(mesh_source(target), surface=mesh.surface))
    return sources, unknown


def prepare(sources: Sequence[SceneSource], out: Path | None = None) -> list[Outcome]:
    """Prepare scenes in as many processes as there are threads, with progress; those that are up to date are kept.

    Args:
        sources: the scenes; one whose navmesh is not there gets one baked with the default settings.
        out: folder for the prepared files, and the navmeshes beside them; None: where `find_scene` and `load_dataset`
            look for prepared files.

    Returns one outcome a scene, in order. A scene that cannot be used does not stop the others.
    """
    return list(in_parallel(functools.partial(_prepare_one, out=out), sources, "preparing"))


def _prepare_one(source: SceneSource, out: Path | None) -> Outcome:
    path = source.prepared if out is None else out / f"{_file_name(source.name)}{SUFFIX}"
    outcome = Outcome(source.name, path, missing=source.missing, z_up=source.parts[0].asset.frame == Z_UP)
    navmesh = None if out is None else path.with_suffix(".navmesh")
    try:
        wanted = fingerprint(source)
        fresh = made_from(path) == wanted and (navmesh is None or navmesh.is_file())
        if not fresh:
            scene = source.load()
            if navmesh is not None:  # first: where the prepared scene lies, all of it was written
                with replacing(navmesh, MeshError) as part:
                    scene.navmesh.save(part)
            save_prepared(scene, path, wanted)
        return outcome._replace(fresh=fresh)
    except BatchnavError as error:
        return outcome._replace(problem=str(error))


def _file_name(name: str) -> str:
    """A scene's name as that of a file."""
    stem = Path(name).name
    for suffix in (*SUFFIXES, ".basis"):
        stem = stem.removesuffix(suffix)
    return stem
