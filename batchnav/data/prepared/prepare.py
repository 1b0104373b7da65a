"""Preparation of scenes: load, bake the navmesh, build the BVH, write one file per scene; in parallel."""

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
    """Result of preparing one scene."""

    name: str
    path: Path
    """Path of the prepared scene."""
    problem: str = ""
    """Error message; empty on success."""
    fresh: bool = False
    """True where an up-to-date file was there already."""
    missing: tuple[str, ...] = ()
    """Names of assets that the scene lacks."""
    z_up: bool = False
    """True where the first mesh file was read as +Z up."""


def prepare(sources: Sequence[SceneSource], out: Path | None = None) -> list[Outcome]:
    """Prepare scenes in parallel processes, with progress; up-to-date files are kept.

    Args:
        sources: the scenes. A scene without a navmesh gets one baked with the default settings.
        out: folder for prepared scenes and their navmeshes; None for the paths where `find_scene` and `load_dataset`
            look for prepared scenes.

    Returns one outcome per scene, in order. An unusable scene does not stop the others.
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
            if navmesh is not None:  # written first: a prepared scene implies a complete navmesh
                with replacing(navmesh, MeshError) as part:
                    scene.navmesh.save(part)
            save_prepared(scene, path, wanted)
        return outcome._replace(fresh=fresh)
    except BatchnavError as error:
        return outcome._replace(problem=str(error))


def _file_name(name: str) -> str:
    """File name for a scene, without suffix."""
    stem = Path(name).name
    for suffix in (*SUFFIXES, ".basis"):
        stem = stem.removesuffix(suffix)
    return stem
