"""Findings about loaded meshes and navmeshes: unit, origin, islands, and whether a navmesh file fits its mesh."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal, NamedTuple

import numpy as np

from batchnav.data.scenes.asset import FileAxes
from batchnav.data.scenes.islands import describe_islands, first_hits
from batchnav.data.scenes.orientation import mesh_warnings
from batchnav.errors import NavMeshError
from batchnav.navmesh.islands import SMALL_ISLAND
from batchnav.navmesh.navmesh import NavMesh
from batchnav.runtime.console import number_of
from batchnav.scene.axes import NO_ORIGIN, listed, used_vertices
from batchnav.scene.scene import Scene
from batchnav.types import FAR, TriangleMesh

LARGEST, SMALLEST = 300.0, 1.0
"""Range of a building's longest side, metres; outside it the unit is probably not metres."""
EDGE = 1.0
"""Distance by which a navmesh may exceed its mesh, metres: baked navmeshes have a border, and headroom above."""
_UNITS = ((0.001, "millimetres"), (0.01, "centimetres"), (1000.0, "kilometres"))
"""Factors to metres, with the units' names."""
_USUAL = 2.0, 100.0
"""Range of a building's longest side for a suggestion of its unit, metres."""
_PROBES, _REACH = 512, 3.0
"""Number of points on a navmesh that are compared with the mesh, and length of the step from each, metres."""
_KNEE, _BODY = 0.5, 0.75
"""Heights above the navmesh of rays that look down, and of rays along a step, metres."""
_ON_FLOOR, _THROUGH = 0.5, 0.05
"""Smallest share of points with a floor below, and largest share of steps through surfaces, for a fitting navmesh."""


def unit_warning(mesh: TriangleMesh, name: str) -> str:
    """A warning about a mesh that is too large or small for a building in metres; empty for others."""
    size = float(np.ptp(mesh.vertices[used_vertices(len(mesh.vertices), mesh.faces)], axis=0).max())
    if SMALLEST <= size <= LARGEST:
        return ""
    hints = [
        f"; in {unit}, import it with `--scale {factor:g}`"
        for factor, unit in _UNITS
        if _USUAL[0] <= size * factor <= _USUAL[1]
    ]
    text = f"{name}: is {size:.3g} m long, expected {SMALLEST:g} to {LARGEST:g}: is it in metres?"
    return text + (hints[0][1:] if hints else "")


def origin_warning(mesh: TriangleMesh, name: str) -> str:
    """A warning that a mesh was recentred; empty for others."""
    if mesh.origin == NO_ORIGIN:
        return ""
    return (
        f"{name}: is far from the origin; loading subtracts ({listed(mesh.origin)}) m (`scene.origin`), "
        "and shifts its navmesh and episodes with it"
    )


def navmesh_outside(bounds: np.ndarray, mesh: TriangleMesh, name: str) -> str:
    """Error message where a navmesh exceeds its mesh; empty for others. `bounds`: f32 [2, 3], metres."""
    used = mesh.vertices[used_vertices(len(mesh.vertices), mesh.faces)]
    walls = np.stack([used.min(0), used.max(0)])
    # A navmesh covers floors only, so only an extent beyond the mesh is suspicious.
    if (bounds[0] < walls[0] - EDGE).any() or (bounds[1] > walls[1] + np.array([EDGE, 2 * EDGE, EDGE])).any():
        spans = f"the navmesh spans {_box(bounds)}, the mesh {_box(walls)}"
        return f"{name}: {spans}: are they of one scene, and is the same axis up?"
    return ""


def check_fit(scene: Scene, name: str) -> list[str]:
    """Warnings about a navmesh file that does not fit the scene's mesh well; `name` begins them.

    Compares the bounds, the heights of random points with the floor below them, and random steps with the surfaces that
    they cross. NavMeshError where the navmesh exceeds the mesh, or has no floor below most of its points.
    """
    bake = "delete it, or bake another with `batchnav navmesh bake`"
    if problem := navmesh_outside(scene.navmesh.bounds, scene.mesh, name):
        raise NavMeshError(f"{problem} If not, {bake}")
    if not scene.navmesh.num_islands:
        return []
    points = scene.navmesh.sample(_PROBES)
    knee = points + np.array([0.0, _KNEE, 0.0], np.float32)
    below = first_hits(scene, knee, np.tile(np.array([0.0, -1.0, 0.0], np.float32), (_PROBES, 1)))
    on_floor = float((below <= 2 * _KNEE).mean())
    if on_floor < _ON_FLOOR:
        raise NavMeshError(
            f"{name}: found a floor of the mesh within {_KNEE:g} m of {on_floor:.0%} of the navmesh, expected "
            f"{_ON_FLOOR:.0%} or more: it belongs to another scene; {bake}"
        )
    heading = np.arange(_PROBES) * 2.4  # radians; about the golden angle, so that directions are even
    reach = (_REACH * np.stack([np.sin(heading), np.zeros(_PROBES), np.cos(heading)], axis=1)).astype(np.float32)
    steps = scene.navmesh.try_step(points, points + reach, sliding=False) - points
    length = np.linalg.norm(steps, axis=1)
    walks = length > _BODY / 2
    if not walks.any():
        return []
    body = points[walks] + np.array([0.0, _BODY, 0.0], np.float32)
    ahead = first_hits(scene, body, steps[walks] / length[walks, None])
    through = float((ahead < length[walks]).mean())
    if through <= _THROUGH:
        return []
    return [
        f"{name}: {through:.0%} of short steps on the navmesh go through surfaces of the mesh, expected at most "
        f"{_THROUGH:.0%}: are they of one scene? If not, {bake}"
    ]


def _box(bounds: np.ndarray) -> str:
    return " to ".join(str([round(float(v), 2) for v in corner]) for corner in bounds)


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
