"""Goals of a bank's scenes as rows that kernels read: view points and distance fields of every (scene, category).

One set of arrays holds the goals of K scenes for the C categories of a task. Row `scene * C + category` of `rows` has
the view points and the field of a category in a scene. `scene/goal_field.py` computes the fields.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Sequence
from typing import Generic, NamedTuple

import numpy as np
import torch

from batchnav.errors import ArgumentError
from batchnav.geometry.pose import distance
from batchnav.navmesh.data import as_int
from batchnav.navmesh.navmesh import NavMesh
from batchnav.runtime.kernels.decorators import inline_function
from batchnav.runtime.kernels.intrinsics import load4
from batchnav.runtime.parallel import concatenated
from batchnav.scene.goal_field import CELL, distance_fields, make_grid
from batchnav.scene.goals import SceneGoals
from batchnav.scene.scene import Scene
from batchnav.types import Column

_PER_CELL, _HALF = np.float32(1.0 / CELL), np.float32(0.5)
_INF = np.float32(np.inf)
GRID_ROW = np.dtype([
    ("origin_x", "f4"), ("origin_z", "f4"), ("width", "i4"), ("depth", "i4"),
    ("first_column", "i4"), ("first_node", "i4"), ("pad", "f4", 2),
])  # fmt: skip
"""Grid of a scene: centre of its first column, number of columns along x and z, first rows of columns and nodes."""


class GoalData(NamedTuple, Generic[Column]):
    """Goals of K scenes: NumPy arrays on the host, torch tensors on a device, or the kernel arguments from `view`."""

    keys: Column
    """i64 [C]: a number of each category that depends on its name alone, for random choices."""
    rows: Column
    """i32 [K * C, 4]: first view point, view point after the last, first row of the field, 0."""
    grids: Column
    """f32 [K, 8]: GRID_ROW."""
    columns: Column
    """i32 [Q]: nodes of column c are columns[c] to columns[c + 1] - 1."""
    heights: Column
    """f32 [M]: height of each node, metres."""
    field: Column
    """f32 [V, 4]: x, y, z of the last turning point of the path to a node, and the path length from there to the
    nearest view point, metres; inf where no view point can be reached."""
    nearest: Column
    """i32 [V]: row of the nearest view point; -1 for none."""
    places: Column
    """f32 [P, 4]: x, y, z and heading of each view point, metres and radians."""


_FLOAT, _INT = torch.float32, torch.int32
GOAL_COLUMNS = GoalData(
    keys=(None, torch.int64), rows=(4, _INT), grids=(GRID_ROW.itemsize // 4, _FLOAT), columns=(None, _INT),
    heights=(None, _FLOAT), field=(4, _FLOAT), nearest=(None, _INT), places=(4, _FLOAT),
)  # fmt: skip
"""Number of columns (None: one-dimensional) and dtype of each array."""


NO_GOALS: GoalData[int] = GoalData(*[0] * len(GOAL_COLUMNS))


def category_keys(categories: Sequence[str]) -> np.ndarray:
    """`GoalData.keys` of categories."""
    return np.array([zlib.crc32(category.encode()) for category in categories], np.int64)


def goals_of(scene: Scene, categories: Sequence[str]) -> GoalData[np.ndarray]:
    """Goals of one scene, of these categories. ArgumentError where the scene has none of its own."""
    if scene.goals is None:
        raise ArgumentError(
            f"scene {scene.name!r}: found no goals, expected a scene with objects to find; make them with "
            "batchnav.with_goals"
        )
    return goal_data(scene.navmesh, scene.goals, categories)


def categories_of(scenes: Iterable[Scene]) -> tuple[str, ...]:
    """Categories of the goals of scenes, sorted."""
    return tuple(sorted({name for scene in scenes if scene.goals for name in scene.goals.categories}))


def goal_numbers(scenes: Iterable[Scene], categories: Sequence[str]) -> list[dict[int, int]]:
    """`Appearance.goal` by object id, for each scene."""
    return [{} if scene.goals is None else scene.goals.numbers(categories) for scene in scenes]


def goal_data(navmesh: NavMesh, goals: SceneGoals, categories: Sequence[str]) -> GoalData[np.ndarray]:
    """Goals of one scene, of these categories."""
    places, headings = zip(*(_places_of(goals, category) for category in categories), strict=True)
    grid = make_grid(navmesh)
    present = [k for k, points in enumerate(places) if len(points)]
    field, nearest = distance_fields(navmesh, grid, [places[k] for k in present])
    rows = np.zeros((len(categories), 4), np.int32)
    ends = np.cumsum([0, *map(len, places)])
    rows[:, 0], rows[:, 1] = ends[:-1], ends[1:]
    rows[present, 2] = np.arange(len(present)) * len(grid.points)
    nearest += np.where(nearest >= 0, rows[present, 0][:, None], 0).astype(np.int32)
    row = np.zeros(1, GRID_ROW)
    (row["origin_x"], row["origin_z"]), (row["width"], row["depth"]) = grid.origin, grid.shape
    packed = np.concatenate([np.column_stack(pair) for pair in zip(places, headings, strict=True)])
    heights = np.ascontiguousarray(grid.points[:, 1])
    return GoalData(
        category_keys(categories), rows, row.view(np.float32).reshape(1, -1), grid.columns, heights,
        field.reshape(-1, 4), nearest.reshape(-1), packed.astype(np.float32),
    )  # fmt: skip


def _places_of(goals: SceneGoals, category: str) -> tuple[np.ndarray, np.ndarray]:
    """View points f32 [P, 3] of a category, and their headings f32 [P]."""
    headings = [goal.headings for goal in goals.objects if goal.category == category]
    return goals.view_points(category), np.concatenate([np.zeros(0, np.float32), *headings])


def goal_size(navmesh: NavMesh, goals: SceneGoals) -> GoalData[int]:
    """Largest number of rows of one scene's goals, of any categories; `keys` and `rows` do not depend on the scene."""
    grid, present = make_grid(navmesh), len(goals.categories)
    nodes, places = len(grid.points), sum(len(goal.view_points) for goal in goals.objects)
    return GoalData(0, 0, 1, len(grid.columns), nodes, present * nodes, present * nodes, places)


def moved_goals(part: GoalData[np.ndarray], first: GoalData[int]) -> GoalData[np.ndarray]:
    """A copy of one scene's goals with ids for rows that begin at `first` in larger arrays."""
    part = GoalData(*(array.copy() for array in part))
    part.rows[:, :2] += np.int32(first.places)
    part.rows[:, 2] += np.int32(first.field)
    grid = part.grids.view(GRID_ROW)
    grid["first_column"], grid["first_node"] = first.columns, first.heights
    part.columns[:] += np.int32(first.heights)
    part.nearest[part.nearest >= 0] += np.int32(first.places)
    return part


def pack_goals(parts: Sequence[GoalData[np.ndarray]]) -> GoalData[np.ndarray]:
    """Concatenate the goals of scenes."""
    first, found = GoalData(*[0] * len(GoalData._fields)), []
    for part in parts:
        found.append(moved_goals(part, first))
        first = GoalData(*(a + len(b) for a, b in zip(first, part, strict=True)))
        if first.field >= 2**31:  # rows are int32
            raise ArgumentError(
                f"scenes: found {first.field} rows of distance fields, expected fewer than {2**31}; load fewer scenes"
            )
    return GoalData(*map(concatenated, zip(*found, strict=True)))._replace(keys=parts[0].keys)


# Kernels. `row`: scene * C + category.


@inline_function
def goal_row(goals, scene, category):
    """Row of a category in a scene."""
    return scene * np.int32(goals.keys.shape[0]) + np.int32(category)


@inline_function
def goal_places(goals, row):
    """(first view point, view point after the last)."""
    return goals.rows[row, 0], goals.rows[row, 1]


@inline_function
def place_at(goals, k):
    """Position and heading of a view point."""
    x, y, z, heading = load4(goals.places, k, 0)
    return (x, y, z), heading


@inline_function
def node_at(goals, scene, point):
    """Node of a scene's grid for a point on the navmesh, counted from the scene's first node; -1: there is none."""
    origin_x, origin_z, width, depth = load4(goals.grids, scene, 0)
    first_column, first_node, _, _ = load4(goals.grids, scene, 4)
    x = np.int32((point[0] - origin_x) * _PER_CELL + _HALF)
    z = np.int32((point[2] - origin_z) * _PER_CELL + _HALF)
    x, z = max(min(x, as_int(width) - 1), 0), max(min(z, as_int(depth) - 1), 0)
    column = as_int(first_column) + z * as_int(width) + x
    found, gap = np.int32(-1), _INF
    for node in range(goals.columns[column], goals.columns[column + 1]):
        difference = abs(goals.heights[node] - point[1])
        if difference < gap:
            found, gap = np.int32(node - as_int(first_node)), difference
    return found


@inline_function
def field_distance(goals, scene, row, point):
    """Geodesic distance in metres from a point to the nearest view point of a row, and the view point.

    The distance is that of the field. inf and -1 where no view point can be reached.
    """
    node = node_at(goals, scene, point)
    if node < 0 or goals.rows[row, 0] == goals.rows[row, 1]:
        return _INF, np.int32(-1)
    value = goals.rows[row, 2] + node
    x, y, z, length = load4(goals.field, value, 0)
    nearest = goals.nearest[value]
    if nearest < 0:
        return _INF, nearest
    return length + np.float32(distance((x, y, z), point)), nearest
