"""ROS maps of a floor's navmesh and of the map that an agent built (`batchnav.scene.ros_map` writes the files).

A map of a floor is raw or inflated. A raw map is free wherever a surface of the mesh leaves room, up to the walls; Nav2
inflates it by the robot's radius. An inflated map is the navmesh, which is shrunk by the agent's radius already, so its
inflation layer has to be off. The walls of both are one cell thick; what lies beyond is unknown.
"""

from __future__ import annotations

import dataclasses
import math

import numpy as np
import torch
from scipy.ndimage import binary_dilation

from batchnav.data.scenes.islands import first_hits
from batchnav.errors import ArgumentError
from batchnav.evaluation.play import AgentMap
from batchnav.mapping.state import SIDE
from batchnav.navmesh.data import surface
from batchnav.navmesh.islands import list_islands, main_island
from batchnav.navmesh.navmesh import NavMesh
from batchnav.navmesh.settings import NavMeshSettings
from batchnav.runtime.checks import check_number
from batchnav.scene.ros_map import FREE, OCCUPIED, UNKNOWN, RosMap
from batchnav.scene.scene import Scene, bake

FLOOR_BAND = 0.5
"""Largest vertical distance of a floor's surface from its height, metres; table tops are higher."""
_MARGIN = 2
"""Cells around the walkable area."""
_MOST_CELLS = 2**26
_LOST = 1.5
"""Width of the free space that baking may lose along a wall, voxels."""
_HEIGHTS, _EDGE = 5, 0.02
"""Number of heights at which a cell is tested for obstacles; distance from its edges, as a share of its side."""
_ACROSS = (-0.5 + _EDGE, 0.0, 0.5 - _EDGE)
"""Places across a cell that are tested, as shares of its side."""


def floor_map(scene: Scene, height: float | None = None, resolution: float = 0.05, inflated: bool = False) -> RosMap:
    """The map of one floor of a scene.

    Args:
        scene: with its navmesh; a raw map is baked from its mesh.
        height: y of the floor, metres; None: that of the main island (`navmesh.islands.main_island`).
        resolution: side of a cell, metres.
        inflated: True for the navmesh itself, False for free space up to the walls.

    Islands too small for episodes are left out where the floor has a larger one. ArgumentError where the floor has no
    walkable area or the map too many cells.
    """
    resolution = check_number("resolution", resolution, 1e-3, 10.0)
    height = main_island(scene.navmesh.data).height if height is None else check_number("floor", height, -1e6, 1e6)
    grid = _empty_map(scene.navmesh, height, resolution)
    islands = _playable_islands(scene.navmesh, grid.centres(height))
    reached = islands >= 0
    settings = scene.navmesh.settings or NavMeshSettings()
    if inflated:
        return _with_free(grid._replace(inflated_by=round(settings.agent_radius, 6)), reached)
    # Contours follow the cells of the bake: simplified ones may deviate by more than a cell.
    raw = bake(scene.mesh, scene.name, dataclasses.replace(settings, agent_radius=0.0, edge_max_error=0.0))
    return _with_free(grid, _up_to_walls(scene, grid, _connected(raw, grid.centres(height), reached), height, settings))


def agent_map(built: AgentMap) -> RosMap:
    """The map that an agent built: occupied, explored and unknown cells, in the scene's frame."""
    layers = built.layers
    cells = torch.where(layers.is_occupied, OCCUPIED, torch.where(layers.is_explored, FREE, UNKNOWN))
    x, z, resolution = built.origin_and_resolution.double().tolist()
    extent = SIDE * resolution
    # Rows grow along z, the opposite of x in ROS; columns grow along x, the opposite of y in ROS.
    turned = cells.reshape(SIDE, SIDE).cpu().numpy().astype(np.int8).T[::-1, ::-1]
    return RosMap(np.ascontiguousarray(turned), resolution, (-(z + extent), -(x + extent), 0.0))


def describe(grid: RosMap, what: str) -> str:
    """Comment for a map's file: its source, whether it is inflated, and its frame.

    Args:
        grid: the map.
        what: source of the map.
    """
    inflation = "Free space reaches the walls: inflate it by the robot's radius."
    if grid.inflated_by > 0.0:
        inflation = f"Free space is shrunk by a robot's radius of {grid.inflated_by:g} m: do not inflate it again."
    return f"{what}\n{inflation}\nFrame: (x, y, z) of ROS is (-z, -x, y) of the scene; yaw is heading."


def _empty_map(navmesh: NavMesh, height: float, resolution: float) -> RosMap:
    """An unknown map that covers the floor's walkable area. ArgumentError where there is none."""
    corners, owner = surface(navmesh.data)
    near = (np.abs(corners[:, :, 1] - height) <= FLOOR_BAND).any(1) & (navmesh.data.polygon_island[owner] >= 0)
    if not near.any():
        heights = ", ".join(f"{island.height:.2f}" for island in list_islands(navmesh.data)[:8]) or "none"
        raise ArgumentError(
            f"floor: found no walkable area within {FLOOR_BAND:g} m of y = {height:g}, expected the height of a floor; "
            f"islands are at {heights} m"
        )
    radius = navmesh.settings.agent_radius if navmesh.settings else NavMeshSettings().agent_radius
    ends = -corners[near].reshape(-1, 3)[:, [2, 0]].astype(np.float64)  # x and y in ROS
    low = np.floor((ends.min(0) - radius) / resolution).astype(np.int64) - _MARGIN
    high = np.ceil((ends.max(0) + radius) / resolution).astype(np.int64) + _MARGIN
    columns, rows = (high - low).tolist()
    if rows * columns > _MOST_CELLS:
        raise ArgumentError(
            f"resolution: found {resolution:g}, which gives {rows} x {columns} cells, expected at most {_MOST_CELLS}"
        )
    x, y = (low * resolution).tolist()
    return RosMap(np.full((rows, columns), UNKNOWN, np.int8), resolution, (x, y, 0.0))


def _playable_islands(navmesh: NavMesh, centres: np.ndarray) -> np.ndarray:
    """i32 [rows, columns]: island of each cell's centre; -1 off the floor, and on islands too small for episodes."""
    found = _islands_at(navmesh, centres)
    small = [island.number for island in list_islands(navmesh.data) if not island.is_playable]
    if np.isin(found, small, invert=True)[found >= 0].any():
        found[np.isin(found, small)] = -1
    return found


def _connected(raw: NavMesh, centres: np.ndarray, reached: np.ndarray) -> np.ndarray:
    """bool [rows, columns]: cells on the islands of `raw` that contain a cell of `reached`."""
    islands = _islands_at(raw, centres)
    kept = np.unique(islands[reached & (islands >= 0)])
    return np.isin(islands, kept)


def _up_to_walls(scene: Scene, grid: RosMap, free: np.ndarray, height: float, settings: NavMeshSettings) -> np.ndarray:
    """Free cells bool [rows, columns], with those that baking lost because a wall stands on their edge.

    A cell is added next to a free one if the floor reaches its corners, and nothing stands between their centres and
    its far edge.
    """
    centres, side = grid.centres(height), grid.resolution
    for _ in range(math.ceil(_LOST * settings.cell_size / side)):
        added = np.zeros_like(free)
        for step, axis in ((-1, 0), (1, 0), (-1, 1), (1, 1)):
            cells = np.argwhere(np.roll(free, step, axis) & ~free & ~added)  # a map has a margin of unknown cells
            cells = cells[_is_open(scene, centres, cells, (step, axis), side, settings)]
            added[cells[:, 0], cells[:, 1]] = True
        free = free | added
    return free


def _is_open(
    scene: Scene, centres: np.ndarray, cells: np.ndarray, towards: tuple[int, int], side: float, body: NavMeshSettings
) -> np.ndarray:
    """bool [K]: cells i64 [K, 2] that are open from the neighbours from which `towards` (step, axis) leads."""
    step, axis = towards
    back = np.zeros(2, np.int64)
    back[axis] = -step
    begin, middle = centres[tuple((cells + back).T)], centres[tuple(cells.T)]
    ahead = (middle - begin) / side
    beside = np.stack([ahead[:, 2], ahead[:, 1], -ahead[:, 0]], axis=1)
    up = np.array([0.0, 1.0, 0.0])
    heights = np.linspace(1.25 * body.agent_max_climb, body.agent_height, _HEIGHTS)
    near = [begin + up * height + beside * share * side for height in heights for share in _ACROSS]
    above = [middle + up * body.agent_height + (ahead * a + beside * b) * side for a in _ACROSS for b in _ACROSS]
    if not len(cells):
        return np.zeros(0, bool)
    origins, count = np.concatenate([*near, *above]).astype(np.float32), len(near)
    down = np.tile(-up, (len(above) * len(cells), 1))
    found = first_hits(scene, origins, np.concatenate([np.tile(ahead, (count, 1)), down])).reshape(-1, len(cells))
    floor = np.abs(found[count:] - body.agent_height)
    return np.logical_and((found[:count] > (1.5 - _EDGE) * side).all(0), (floor <= FLOOR_BAND).all(0))


def _islands_at(navmesh: NavMesh, centres: np.ndarray) -> np.ndarray:
    """i32 [rows, columns]: island of each cell's centre; -1 off the floor."""
    points = centres.reshape(-1, 3).astype(np.float32)
    found = np.full(len(points), -1, np.int32)
    there = navmesh.is_navigable(points, FLOOR_BAND)
    found[there] = navmesh.island(points[there])
    return found.reshape(centres.shape[:2])


def _with_free(grid: RosMap, free: np.ndarray) -> RosMap:
    """The map with free cells, and occupied ones where these end."""
    wall = binary_dilation(free, np.ones((3, 3), bool)) & ~free
    return grid._replace(cells=np.where(free, FREE, np.where(wall, OCCUPIED, UNKNOWN)).astype(np.int8))
