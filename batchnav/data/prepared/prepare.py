"""Preparation of scenes: load, bake the navmesh, build the BVH, write one file per scene; in parallel."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from batchnav.data.parallel import in_parallel
from batchnav.data.prepared.scene_file import SUFFIX, fingerprint, load_prepared, made_from, save_prepared
from batchnav.data.scene_findings import check_mesh, scene_findings
from batchnav.data.sources.asset import axis_of
from batchnav.data.sources.islands import ceiling_above
from batchnav.data.sources.scene_source import SceneSource
from batchnav.errors import BatchnavError
from batchnav.navmesh.islands import SMALL_ISLAND, list_islands, main_island
from batchnav.runtime.console import number_of
from batchnav.scene.mesh import SUFFIXES
from batchnav.scene.scene import Scene


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
    """Names of assets that the dataset lacks; the scene is prepared without them."""
    up: str = "y"
    """Axis of the first mesh file that points up; "" for none of the six."""
    summary: str = ""
    """Size, floor and ceiling of the scene in one line."""
    warnings: tuple[str, ...] = ()
    """Warnings about the scene, as `batchnav data validate` gives them."""

    @property
    def z_up(self) -> bool:
        """True where the first mesh file was read as +Z up."""
        return self.up == "z"


def prepare(sources: Sequence[SceneSource], out: Path | None = None, describe: bool = False) -> list[Outcome]:
    """Prepare scenes in parallel processes, with progress; up-to-date files are kept.

    Args:
        sources: the scenes. A scene without a navmesh gets one baked with the default settings.
        out: folder for prepared scenes and their navmeshes; None for the paths where `find_scene` and `load_dataset`
            look for prepared scenes.
        describe: True to summarise each scene, which also loads the up-to-date ones.

    Returns one outcome per scene, in order. An unusable scene does not stop the others.
    """
    return list(in_parallel(functools.partial(_prepare_one, out=out, describe=describe), sources, "preparing"))


def _prepare_one(source: SceneSource, out: Path | None, describe: bool) -> Outcome:
    path = source.prepared if out is None else out / f"{_file_name(source.name)}{SUFFIX}"
    outcome = Outcome(source.name, path, missing=source.missing, up=axis_of(source.parts[0].asset.frame))
    navmesh = None if out is None else path.with_suffix(".navmesh")
    warnings: list[str] = []
    scene = None
    try:
        wanted = fingerprint(source)
        fresh = made_from(path) == wanted and (navmesh is None or navmesh.is_file())
        if not fresh:
            mesh = source.load_mesh()
            warnings += [finding.text for finding in check_mesh(mesh, source.name, source.frame)]
            scene, misfits = source.make(mesh)
            warnings += misfits
            if navmesh is not None:  # written first: a prepared scene implies a complete navmesh
                scene.navmesh.save(navmesh)
            save_prepared(scene, path, wanted)
        if not describe:
            return outcome._replace(fresh=fresh, warnings=tuple(warnings))
        scene = scene or load_prepared(path, appearance=False)
        findings = scene_findings(scene, source.name, source.frame)
        found = [finding.text for finding in findings if finding.level == "warning"]
        warnings = list(dict.fromkeys([*warnings, *found]))
        return outcome._replace(fresh=fresh, summary=summarise(scene), warnings=tuple(warnings))
    except BatchnavError as error:
        return outcome._replace(problem=str(error), warnings=tuple(warnings))


def summarise(scene: Scene) -> str:
    """Size, walkable area, height of the floor, share of it below a ceiling, and islands, in one line."""
    x, y, z = np.ptp(scene.mesh.vertices[np.unique(scene.mesh.faces)], axis=0)
    islands, covered = list_islands(scene.navmesh.data), ceiling_above(scene)
    main = main_island(scene.navmesh.data) if islands else None
    floor = "no floor" if main is None else (
        f"floor at y = {main.height:.2f} m, ceiling above {covered[main.number]:.0%} of it"
    )  # fmt: skip
    playable = sum(island.is_playable for island in islands)
    count = f"{number_of(len(islands), 'island')}, {playable} of radius {SMALL_ISLAND:g} m or more"
    return f"{x:.2f} x {y:.2f} x {z:.2f} m (x, y, z), {scene.navmesh.area:.1f} m² walkable, {floor}, {count}"


def _file_name(name: str) -> str:
    """File name for a scene, without suffix."""
    stem = Path(name).name
    for suffix in (*SUFFIXES, ".basis"):
        stem = stem.removesuffix(suffix)
    return stem
