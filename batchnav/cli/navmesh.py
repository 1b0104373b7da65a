"""`batchnav navmesh ...`: bake, describe and plot navmeshes; write them as ROS maps."""

from __future__ import annotations

import dataclasses
import logging
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np
import tyro
from rich.table import Table
from rich.text import Text
from tyro.conf import FlagCreatePairsOff, Positional

from batchnav.cli.console import show, with_axes
from batchnav.cli.names import check_file, check_scenes
from batchnav.errors import ArgumentError, BatchnavError, MeshError, NavMeshError, printable
from batchnav.navmesh.settings import NavMeshSettings
from batchnav.runtime.checks import check_number
from batchnav.runtime.command_line import call_subcommand
from batchnav.runtime.console import next_command, number_of, terminal
from batchnav.runtime.files import check_target
from batchnav.scene.axes import Up

if TYPE_CHECKING:
    from batchnav.data.scenes.asset import Asset
    from batchnav.navmesh.navmesh import NavMesh

log = logging.getLogger(__name__)

MAX_ISLANDS = 10
"""Number of islands that `navmesh info` lists."""
MAX_COORDINATE = 1e7
"""Largest coordinate of a point on the command line, metres."""


def bake_navmesh(
    mesh: Positional[Path],
    /,
    *,
    out: Path | None = None,
    up: Up = "auto",
    flip: bool = False,
    two_sided: bool = False,
    scale: float = 1.0,
    settings: Annotated[NavMeshSettings, tyro.conf.arg(name="")],
) -> None:
    """Bake a navmesh from a mesh file, a ROS map, a Gazebo world or a prepared scene. The defaults are Habitat's.

    Args:
        mesh: the file. Islands that the navmesh of a prepared scene leaves out stay left out.
        out: the .navmesh file to write; default: MESH with the suffix .navmesh.
        up: axis of the mesh file that points up; auto: y.
        flip: reverse the winding of all triangles, for meshes whose faces look outwards or down.
        two_sided: make floors walkable whose faces look down.
        scale: factor from the file's unit to metres; 0.001 for millimetres.
        settings: Habitat's settings, in metres and degrees.
    """
    check_file(mesh, MeshError)
    from batchnav.data.scenes.asset import oriented_asset

    out = out or mesh.with_suffix(".navmesh")
    check_target(out, NavMeshError)
    with terminal(stderr=True).status(Text(printable(f"baking {mesh}"))):
        asset = oriented_asset(mesh, up, scale, flip)
        is_given = up != "auto" or scale != 1.0 or flip or two_sided
        navmesh = _bake_scene(mesh, settings, is_given) or _bake_mesh(asset, two_sided, settings)
    navmesh.save(out)
    counts = number_of(navmesh.num_polygons, "polygon"), number_of(navmesh.num_islands, "island")
    show(f"{out}: {navmesh.area:.2f} m², {', '.join(counts)}")
    if settings.radius_note:
        show(f"  {settings.radius_note}")
    show(next_command("plot it", "batchnav", "navmesh", "view", out))


def _bake_mesh(asset: Asset, two_sided: bool, settings: NavMeshSettings) -> NavMesh:
    """The navmesh of a mesh file; suspicious geometry is logged."""
    from batchnav.data.scenes.asset import Part
    from batchnav.data.scenes.orientation import mesh_warnings
    from batchnav.data.scenes.source import SceneSource
    from batchnav.scene.scene import bake

    name = str(asset.path)
    source = SceneSource(name, (Part(asset),), two_sided=two_sided)
    loaded = source.load_mesh(appearance=False)
    for text in mesh_warnings(loaded, name, source.frame):
        log.warning("%s", text)
    return bake(source.mesh_to_bake(loaded), name, settings)


def _bake_scene(path: Path, settings: NavMeshSettings, is_oriented: bool) -> NavMesh | None:
    """The navmesh of a file that holds a whole scene; None for mesh files. ArgumentError where `is_oriented`."""
    from batchnav.data.scenes.ids import FileRef, parse_scene_id
    from batchnav.data.scenes.load import load_scene
    from batchnav.scene.scene import bake, mesh_to_bake, with_rebaked

    ref = parse_scene_id(str(path))
    if not isinstance(ref, FileRef) or not (ref.is_prepared or ref.load):
        return None
    if is_oriented:
        raise ArgumentError(f"up, scale, flip, two_sided: found one of them for {path}, expected a mesh file")
    scene = load_scene(path, None if ref.is_prepared else settings, appearance=False)
    if not ref.is_prepared:
        return scene.navmesh
    return with_rebaked(scene, bake(mesh_to_bake(scene), str(path), settings), settings).navmesh


def show_info(file: Positional[Path], /) -> None:
    """Print size, islands and settings of a navmesh file.

    Args:
        file: a .navmesh file.
    """
    check_file(file, NavMeshError)
    from batchnav.navmesh.islands import list_islands
    from batchnav.navmesh.navmesh import NavMesh

    navmesh = NavMesh.load(file)
    table = Table(show_header=False)
    table.add_row("version", "1 (without settings)" if navmesh.settings is None else "2")
    table.add_row("tiles, polygons", f"{len(navmesh.file.tiles)}, {navmesh.num_polygons}")
    table.add_row("area", f"{navmesh.area:.6f} m²")
    table.add_row("bounds", " to ".join(f"({x:.3f}, {y:.3f}, {z:.3f})" for x, y, z in navmesh.bounds))
    islands = sorted(list_islands(navmesh.data), key=lambda island: -island.area)
    for island in islands[:MAX_ISLANDS]:
        size = f"{island.area:.5f} m², radius {island.radius:.3f} m, at y = {island.height:.2f} m"
        table.add_row(f"island {island.number}", size)
    if len(islands) > MAX_ISLANDS:
        table.add_row("further islands", f"{len(islands) - MAX_ISLANDS}")
    for name, value in dataclasses.asdict(navmesh.settings).items() if navmesh.settings else ():
        table.add_row(name, f"{value:g}" if isinstance(value, float) else str(value))
    if navmesh.settings and navmesh.settings.radius_note:
        table.add_row("note", navmesh.settings.radius_note)
    show(table)
    show(next_command("plot it", "batchnav", "navmesh", "view", file))


def plot_navmesh(
    file: Positional[Path],
    /,
    out: Path | None = None,
    start: tuple[float, float, float] | None = None,
    goal: tuple[float, float, float] | None = None,
    height: float | None = None,
) -> None:
    """Plot a navmesh from above: islands, distance to walls, and a path.

    Args:
        file: a .navmesh file.
        out: the .png file to write; default: FILE with the suffix .png.
        start: start of the path, x y z, metres; default: the start of a long path.
        goal: goal of the path, x y z, metres.
        height: height (y) of the storey, metres; default: the storey of the main island.
    """
    for name, value in [*(("start", v) for v in start or ()), *(("goal", v) for v in goal or ()), ("height", height)]:
        if value is not None:
            check_number(name, value, -MAX_COORDINATE, MAX_COORDINATE)
    check_file(file, NavMeshError)
    from batchnav.navmesh.navmesh import NavMesh
    from batchnav.runtime.files import replacing
    from batchnav.view.navmesh import draw_navmesh

    out = out or file.with_suffix(".png")
    check_target(out, BatchnavError)
    begin, end = (None if point is None else np.array(point, np.float32) for point in (start, goal))
    figure = draw_navmesh(NavMesh.load(file), begin, end, height)
    with replacing(out, BatchnavError) as part:
        figure.savefig(part, format="png", dpi=120)
    show(f"{out}")


def write_floor_map(
    scene: Positional[str],
    /,
    out: Path,
    floor: float | None = None,
    resolution: float = 0.05,
    inflated: FlagCreatePairsOff[bool] = False,
    raw: FlagCreatePairsOff[bool] = False,
) -> None:
    """Write a floor as a ROS map for map_server and Nav2: OUT (.yaml) and a .pgm of the same name.

    Args:
        scene: a scene id, such as house:7, or the path of a scene.
        out: the .yaml file to write.
        floor: height (y) of the floor, metres; default: the floor of the main island.
        resolution: side of a cell, metres.
        inflated: free space is the navmesh, which is shrunk by the agent's radius; switch Nav2's inflation off.
        raw: free space reaches the walls, and Nav2 inflates it. This is the default.
    """
    check_scenes([scene])
    from batchnav.data.scenes.load import load_scene
    from batchnav.export.ros_map import describe, floor_map
    from batchnav.scene.ros_map import write_map

    if inflated and raw:
        raise ArgumentError("--inflated, --raw: found both, expected one of them")
    check_target(out, MeshError)
    grid = floor_map(load_scene(scene, appearance=False), floor, resolution, inflated)
    write_map(grid, out, describe(grid, f"Floor of {scene}."))
    rows, columns = grid.cells.shape
    area = grid.is_free.sum() * resolution**2
    kind = f"shrunk by {grid.inflated_by:g} m" if inflated else "up to the walls"
    show(f"{out}: {columns} x {rows} cells of {resolution:g} m, {area:.2f} m² free ({kind})")
    if not inflated:  # an inflated map would be shrunk again
        show(next_command("bake its navmesh", "batchnav", "data", "import", out, "--out", out.with_suffix("")))


SUBCOMMANDS: dict[str, Callable[..., Any]] = {
    "bake": bake_navmesh, "info": show_info, "view": plot_navmesh, "map": write_floor_map,
}  # fmt: skip
"""Functions of the subcommands by name."""


def command(arguments: Sequence[str]) -> None:
    """Run `batchnav navmesh SUBCOMMAND`."""
    call_subcommand(SUBCOMMANDS, "batchnav navmesh", with_axes(arguments))
