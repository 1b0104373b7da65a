"""Preparation of scenes in parallel: load, bake the navmesh, build the BVH, write one file each; and their findings."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Literal, NamedTuple

import numpy as np

from batchnav.data.parallel import in_parallel
from batchnav.data.scenes.asset import FileAxes, axis_of
from batchnav.data.scenes.checks import navmesh_outside, origin_warning, unit_warning
from batchnav.data.scenes.islands import ceiling_above, describe_islands, dropped_islands, keep_islands
from batchnav.data.scenes.orientation import mesh_warnings
from batchnav.data.scenes.prepared import SUFFIX, fingerprint, load_prepared, made_from, save_prepared
from batchnav.data.scenes.source import SceneSource
from batchnav.errors import BatchnavError
from batchnav.navmesh.islands import SMALL_ISLAND, list_islands, main_island
from batchnav.navmesh.navmesh import NavMesh
from batchnav.runtime.console import number_of
from batchnav.scene.mesh import SUFFIXES
from batchnav.scene.scene import Scene
from batchnav.types import FAR, TriangleMesh


class Finding(NamedTuple):
    """A fact about a file: `error` if it makes the file unusable, `warning` if it is suspicious, else `note`."""

    level: Literal["error", "warning", "note"]
    text: str


def scene_findings(scene: Scene, name: str, frame: FileAxes | None = None, with_mesh: bool = True) -> Iterator[Finding]:
    """Findings about a loaded scene: its mesh, its navmesh and its islands.

    Args:
        scene: the scene.
        name: its name in the findings.
        frame: frame of its mesh file, as in `mesh_warnings`.
        with_mesh: False to leave out the findings of `check_mesh`.
    """
    if with_mesh:
        yield from check_mesh(scene.mesh, name, frame)
    yield from check_navmesh(scene.navmesh, name)
    if problem := navmesh_outside(scene.navmesh.bounds, scene.mesh, name):
        yield Finding("error", problem)
    note, warnings = describe_islands(scene._replace(name=name))
    if note:
        yield Finding("note", note)
    yield from (Finding("warning", text) for text in warnings)


def check_mesh(mesh: TriangleMesh, name: str, frame: FileAxes | None = None) -> Iterator[Finding]:
    """Warnings about a loaded mesh: dropped triangles, up axis, winding, unit, and distance from the origin.

    `frame`: frame of its mesh file, as in `mesh_warnings`.
    """
    if mesh.num_dropped:
        share = mesh.num_dropped / (mesh.num_dropped + len(mesh.faces))
        dropped = f"{number_of(mesh.num_dropped, 'triangle')} ({share:.1%})"
        yield Finding("warning", f"{name}: {dropped} without area, or with a corner that is not finite")
    for text in (*mesh_warnings(mesh, name, frame), unit_warning(mesh, name), origin_warning(mesh, name)):
        if text:
            yield Finding("warning", text)


def check_navmesh(navmesh: NavMesh, name: str) -> Iterator[Finding]:
    """Findings about a loaded navmesh: no usable island, or coordinates that float32 stores too coarsely."""
    radii = navmesh.data.island_radius
    if not len(radii):
        yield Finding("error", f"{name}: has no walkable polygon")
    elif radii.max() < SMALL_ISLAND:
        largest = f"its largest island has a radius of {radii.max():.2f} m"
        yield Finding("error", f"{name}: {largest}, expected {SMALL_ISLAND:g} or more, else no episode can be sampled")
    if navmesh.settings and (note := navmesh.settings.radius_note):
        yield Finding("note", f"{name}: {note}")
    if (farthest := float(abs(navmesh.bounds).max())) > FAR:
        yield Finding(
            "warning", f"{name}: has coordinates up to {farthest:.9g} m, where float32 is too coarse for paths, "
            f"expected up to {FAR:g} m; its mesh is recentred when it is loaded"
        )  # fmt: skip


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
        out: folder for prepared scenes and their navmeshes; None for the paths where `load_scene` and `load_dataset`
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
            scene, misfits = dataclasses.replace(source, islands="all").make(mesh)
            if dropped := dropped_islands(scene, source.islands):
                warnings.append(f"{source.name}: left out {dropped}; `--islands all` keeps every island")
            scene = keep_islands(scene, source.islands)
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
