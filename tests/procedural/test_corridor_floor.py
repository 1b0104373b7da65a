"""Large buildings: every room is reached over the floor, ways are long and wind."""

import numpy as np
import pytest

from batchnav.navmesh.navmesh import NavMesh
from batchnav.navmesh.settings import NavMeshSettings
from batchnav.procedural import make_building
from batchnav.procedural.corridor_floor import make_building_plan
from batchnav.procedural.plans.layout import CELL, OUTSIDE

SEEDS = (5, 9)
"""A T, and a ring with dead ends."""
PLANS = range(40)


@pytest.fixture(scope="module")
def buildings():
    return {seed: make_building(seed) for seed in SEEDS}


@pytest.fixture(scope="module")
def plans():
    return [make_building_plan(seed) for seed in PLANS]


def test_plans_have_rooms_corridors_and_ceilings_of_several_heights(plans):
    for layout, _ in plans:
        assert 15 <= len(layout.rooms) <= 60
        assert any(room.kind == "corridor" for room in layout.rooms)
    assert sum(len({room.height for room in layout.rooms}) > 1 for layout, _ in plans) > len(plans) // 2


def test_doors_are_open_half_open_and_closed(plans):
    doors = [door for _, openings in plans for door in openings if not door.is_window]
    swings = np.array([door.swing for door in doors if door.leaf])
    assert (swings == 60).mean() > 0.2 and ((swings > 0) & (swings < 60)).mean() > 0.1 and (swings == 0).mean() > 0.1
    assert all(door.swing == 0 for door in doors if OUTSIDE in door.sides)


@pytest.mark.parametrize("seed", SEEDS)
def test_open_doors_are_passed_and_closed_ones_are_not(buildings, seed):
    layout, openings = make_building_plan(seed)
    navmesh = NavMesh.bake(buildings[seed], NavMeshSettings())
    reach = layout.thickness / 2 + 0.35
    passed = 0
    for door in openings:
        if door.is_window or OUTSIDE in door.sides:
            continue
        along, across = np.linspace(door.start + 0.2, door.stop - 0.2, 5), np.array([-reach, 0.0, reach])
        x, z = np.meshgrid(along, door.line + across)
        x, z = (x, z) if door.axis == 0 else (z, x)
        points = np.stack([x, np.zeros_like(x), z], -1).reshape(-1, 3).astype(np.float32)
        near, island = navmesh.snap(points), navmesh.island(points).reshape(3, 5)
        if door.swing:
            passed += 1
            assert set(island[0]) & set(island[2]) - {-1}
        else:
            middle = np.linalg.norm((near - points)[:, [0, 2]], axis=1).reshape(3, 5)[1]
            assert (middle > 0.05).all()  # no floor to stand on in the doorway
    assert passed >= len(layout.rooms) - 1


@pytest.mark.parametrize("seed", [3, 5])
def test_half_open_doors_cut_no_room_off(buildings, seed):
    """Where a leaf had ended in a corner, or beside a cupboard."""
    labels = make_building_plan(seed)[0].labels
    navmesh = NavMesh.bake(buildings[seed] if seed in buildings else make_building(seed), NavMeshSettings())
    points = navmesh.sample(4000, seed=0)
    rooms = labels[(points[:, 2] / CELL).astype(int), (points[:, 0] / CELL).astype(int)]
    island = navmesh.island(points)
    largest = np.bincount(island).argmax()
    assert all((island[rooms == room] == largest).mean() > 0.5 for room in np.unique(rooms[rooms >= 0]))


@pytest.mark.parametrize("seed", SEEDS)
def test_ways_are_long_and_wind(buildings, seed):
    navmesh = NavMesh.bake(buildings[seed], NavMeshSettings())
    points = navmesh.sample(400, seed=0)
    assert np.bincount(navmesh.island(points)).max() > 0.85 * len(points)
    starts, goals = points[:200], points[200:]
    distance = navmesh.geodesic_distance(starts, goals)
    reached = np.isfinite(distance)
    ratio = distance[reached] / np.linalg.norm(starts - goals, axis=1)[reached]
    assert distance[reached].max() > 25.0 and np.median(distance[reached]) > 10.0
    assert (ratio > 1.3).mean() > 0.3
