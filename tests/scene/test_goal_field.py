"""Distance fields of goals against Detour's distances; lines of sight against steps without sliding."""

import numba
import numpy as np
import pytest
from worlds import boxes

from batchnav.data.scenes.load import load_scene
from batchnav.geometry.pose import point_at
from batchnav.navmesh.line_of_sight import in_line_of_sight
from batchnav.navmesh.locate import nearest_polygon
from batchnav.scene.goal_data import field_distance, goal_data
from batchnav.scene.goal_field import CELL
from batchnav.scene.goals import ObjectGoal, SceneGoals
from batchnav.scene.scene import make_scene

TURN = 2 * CELL * 0.5**0.5
"""Metres that a path may be longer for each corner: it turns at a node, which is half a column's diagonal away."""


@numba.njit
def _distances(goals, points, distance_out, nearest_out):
    for i in range(len(points)):
        distance_out[i], nearest_out[i] = field_distance(goals, np.int32(0), np.int32(0), point_at(i, points))


@numba.njit
def _visible(nav, starts, ends, visible_out):
    for i in range(len(starts)):
        first, start = nearest_polygon(nav, np.int32(0), point_at(i, starts))
        last, end = nearest_polygon(nav, np.int32(0), point_at(i, ends))
        visible_out[i] = in_line_of_sight(nav, first, start, last, end)


def field_at(navmesh, view_points, points):
    """Distance f32 [N] from points to the nearest view point by the field, and the view point i32 [N]."""
    zero = np.zeros(len(view_points), np.float32)
    goal = ObjectGoal("chair", 1, "chair_1", (0.0, 0.0, 0.0), view_points, zero, zero)
    found = np.zeros(len(points), np.float32), np.zeros(len(points), np.int32)
    _distances(goal_data(navmesh, SceneGoals("test", (goal,)), ("chair",)), points, *found)
    return found


def floors(*bounds):
    """A scene of floors at y = 0, each from (x, z) to (x, z)."""
    return make_scene("floors", boxes(*(((x, -0.2, z), (to_x, 0.0, to_z)) for x, z, to_x, to_z in bounds)))


def test_distances_around_a_corner():
    """An L: straight in sight of the view point, else by way of the inner corner, where Detour's path is shortest."""
    navmesh = floors((0, 0, 6, 2), (0, 0, 2, 6)).navmesh
    view_points = navmesh.snap(np.array([[5.5, 0, 1]], np.float32))
    points = navmesh.sample(2000, seed=2)
    distance, _ = field_at(navmesh, view_points, points)
    straight = np.linalg.norm(points - view_points, axis=1)
    exact = navmesh.geodesic_distance(points, np.tile(view_points, (len(points), 1)))
    in_sight = exact < straight + 1e-4
    assert 0.5 < in_sight.mean() < 0.9
    np.testing.assert_allclose(distance[in_sight], straight[in_sight], atol=2e-3)
    longer = (distance - exact)[~in_sight]
    assert longer.min() >= -2e-3 and longer.max() <= TURN


@pytest.mark.parametrize("scene_id", ["house:2", "house:5"])
def test_distances_in_a_house(scene_id):
    """Detour's path is not always the shortest one: the field may be shorter, but no shorter than a straight line."""
    navmesh = load_scene(scene_id).navmesh
    view_points = navmesh.sample(3, seed=1, island="largest")
    points = navmesh.sample(2000, seed=2, island="largest")
    distance, nearest = field_at(navmesh, view_points, points)
    exact = np.stack([navmesh.geodesic_distance(points, np.tile(v, (len(points), 1))) for v in view_points])
    longer = distance - exact.min(0)
    assert longer.max() <= 2 * TURN and np.abs(np.median(longer)) <= 0.01
    assert (longer < -0.05).mean() <= 0.02
    assert (distance >= np.linalg.norm(points[:, None] - view_points, axis=2).min(1) - 1e-5).all()
    assert (nearest == exact.argmin(0)).mean() >= 0.99


def test_another_island_is_out_of_reach():
    navmesh = floors((0, 0, 3, 3), (4, 0, 7, 3)).navmesh
    points = navmesh.snap(np.array([[1, 0, 1], [6, 0, 1]], np.float32))
    distance, nearest = field_at(navmesh, points[:1], points)
    assert distance.tolist() == [0.0, np.inf] and nearest.tolist() == [0, -1]


@pytest.mark.parametrize("scene_id", ["house:2", "hall:1"])
def test_lines_of_sight_are_steps_that_arrive(scene_id):
    """Up to lines that pass a corner within the slack of 1 mm."""
    navmesh = load_scene(scene_id).navmesh
    starts, ends = (navmesh.sample(3000, seed=seed, island="largest") for seed in (2, 3))
    visible = np.zeros(len(starts), bool)
    _visible(navmesh.data, starts, ends, visible)
    reached = navmesh.try_step(starts, ends, sliding=False)
    arrives = np.hypot(*(reached - ends)[:, [0, 2]].T) < 0.01
    assert 0.05 <= arrives.mean() <= 0.5
    assert (visible != arrives).mean() <= 0.003
