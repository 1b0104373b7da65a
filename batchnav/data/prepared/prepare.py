"""Preparing scenes: every scene loaded, its navmesh baked, its tree built, all packed into one file; in parallel."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from batchnav.data.parallel import in_parallel
from batchnav.data.prepared.scene_file import SUFFIX, fingerprint, made_from, save_prepared
from batchnav.data.sources.asset import Z_UP
from batchnav.data.sources.scene_source import SceneSource
from batchnav.errors import BatchnavError, MeshError
from batchnav.runtime.files.atomic import replacing
from batchnav.scene.mesh import SUFFIXES


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
