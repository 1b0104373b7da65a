"""Extruded walls: the mesh of a ROS map.

Floor and ceiling cover the free cells; a wall stands on every edge between a free cell and any other one. Unknown cells
are therefore solid. All surfaces face the free space. Neighbouring quads in one plane are merged.
"""

from __future__ import annotations

import numpy as np

from batchnav.errors import MeshError
from batchnav.scene.ros_map import RosMap
from batchnav.types import Material, Surface

WALL_HEIGHT = 2.5
"""Height of walls and ceiling above the floor (y = 0), metres."""
MOST_QUADS = 2**21
"""Largest number of quads of a map."""
_MATERIALS = {"floor": 0.55, "ceiling": 0.95, "wall": 0.8}
"""Category and grey of the surfaces."""


def map_mesh(grid: RosMap) -> tuple[np.ndarray, np.ndarray, Surface]:
    """Vertices f64 [V, 3], faces i64 [F, 3] and surface (categories floor, ceiling, wall) of a map.

    MeshError where no cell is free, or the map has too many edges.
    """
    free = grid.is_free
    if not free.any():
        occupied, known = int(grid.is_occupied.sum()), int((grid.cells >= 0).sum())
        raise MeshError(
            f"found no free cell ({occupied} occupied, {free.size - known} unknown of {free.size}), expected some; "
            "check negate, free_thresh and mode"
        )
    floor = _rectangles(free)
    walls = [_walls(free, axis, step) for axis in (0, 1) for step in (-1, 1)]
    if (count := 2 * len(floor) + sum(map(len, walls))) > MOST_QUADS:
        raise MeshError(f"has {count} walls and pieces of floor, expected at most {MOST_QUADS}; remove its noise")
    left, right, low, high = floor.T.astype(np.float64)
    places = (left, low), (right, low), (right, high), (left, high)
    corners = [np.stack([u, v, np.zeros(len(floor))], axis=1) for u, v in places]
    below = np.stack(corners, axis=1)
    quads = np.concatenate([below, below[:, ::-1] + (0.0, 0.0, WALL_HEIGHT), *walls])
    vertices, rows = np.unique(quads.reshape(-1, 3), axis=0, return_inverse=True)
    faces = rows.reshape(-1, 4)[:, [0, 1, 2, 0, 2, 3]].reshape(-1, 3)
    counts = [len(floor), len(floor), sum(map(len, walls))]
    kind = np.repeat(np.arange(3, dtype=np.int32), 2 * np.array(counts))
    materials = tuple(Material((grey, grey, grey, 1.0)) for grey in _MATERIALS.values())
    surface = Surface(kind, materials, category=kind + np.int32(1), categories=("", *_MATERIALS))
    return grid.to_world(vertices), faces, surface


def _runs(mask: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Row, first column and end column of each run of True in the rows of a mask."""
    padded = np.zeros((mask.shape[0], mask.shape[1] + 2), np.int8)
    padded[:, 1:-1] = mask
    change = np.diff(padded, axis=1)
    row, first = np.nonzero(change == 1)
    return row, first, np.nonzero(change == -1)[1]


def _rectangles(mask: np.ndarray) -> np.ndarray:
    """i64 [R, 4]: first and end column, first and end row of disjoint rectangles that cover a mask.

    Equal runs of successive rows form a rectangle.
    """
    row, first, end = _runs(mask)
    order = np.lexsort((row, end, first))
    row, first, end = row[order], first[order], end[order]
    begins = np.ones(len(row), bool)
    begins[1:] = (np.diff(first) != 0) | (np.diff(end) != 0) | (np.diff(row) != 1)
    start = np.flatnonzero(begins)
    last = np.append(start[1:], len(row)) - 1
    return np.stack([first[start], end[start], row[start], row[last] + 1], axis=1)


def _walls(free: np.ndarray, axis: int, step: int) -> np.ndarray:
    """f64 [W, 4, 3]: quads (column, row, height) on the edges where free cells end.

    Args:
        free: bool [rows, columns].
        axis: 0 for edges between columns, 1 for edges between rows.
        step: direction from a free cell to its neighbour.
    """
    grid = free if axis == 0 else free.T
    neighbour = np.zeros_like(grid)
    if step > 0:
        neighbour[:, :-1] = grid[:, 1:]
    else:
        neighbour[:, 1:] = grid[:, :-1]
    line, first, end = _runs((grid & ~neighbour).T)
    line = line + (step > 0)
    ends = (first, end) if (step > 0) == (axis == 1) else (end, first)
    bottom = np.stack([np.stack([line, at], axis=1) for at in ends], axis=1).astype(np.float64)
    if axis == 1:
        bottom = bottom[..., ::-1]
    low = np.dstack([bottom, np.zeros(bottom.shape[:2])])
    high = np.dstack([bottom[:, ::-1], np.full(bottom.shape[:2], WALL_HEIGHT)])
    return np.concatenate([low, high], axis=1)
