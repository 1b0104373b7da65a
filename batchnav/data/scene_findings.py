"""Findings about one scene in memory: its mesh, its navmesh, its islands."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal, NamedTuple

from batchnav.data.sources.asset import Frame
from batchnav.data.sources.checks import navmesh_outside, origin_warning, unit_warning
from batchnav.data.sources.islands import describe_islands
from batchnav.data.sources.orientation import mesh_warnings
from batchnav.navmesh.islands import SMALL_ISLAND
from batchnav.navmesh.navmesh import NavMesh
from batchnav.runtime.console import number_of
from batchnav.scene.scene import Scene
from batchnav.types import FAR, TriangleMesh


class Finding(NamedTuple):
    """A fact about a file: `error` if it makes the file unusable, `warning` if it is suspicious, else `note`."""

    level: Literal["error", "warning", "note"]
    text: str


def scene_findings(scene: Scene, name: str, frame: Frame | None = None, with_mesh: bool = True) -> Iterator[Finding]:
    """Findings about a loaded scene. `with_mesh=False` leaves out those of `check_mesh`; `frame` as there."""
    if with_mesh:
        yield from check_mesh(scene.mesh, name, frame)
    yield from check_navmesh(scene.navmesh, name)
    if problem := navmesh_outside(scene.navmesh.bounds, scene.mesh, name):
        yield Finding("error", problem)
    note, warnings = describe_islands(scene._replace(name=name))
    if note:
        yield Finding("note", note)
    yield from (Finding("warning", text) for text in warnings)


def check_mesh(mesh: TriangleMesh, name: str, frame: Frame | None = None) -> Iterator[Finding]:
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
    if (farthest := float(abs(navmesh.bounds).max())) > FAR:
        yield Finding(
            "warning", f"{name}: has coordinates up to {farthest:.9g} m, where float32 is too coarse for paths, "
            f"expected up to {FAR:g} m; its mesh is recentred when it is loaded"
        )  # fmt: skip
