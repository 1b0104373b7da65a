"""Large buildings: the same each time, every room is reached over the floor, ways are long and wind."""

import hashlib
import subprocess
import sys

import numpy as np
import pytest
from scipy import ndimage

from batchnav.errors import ArgumentError
from batchnav.houses import make_building
from batchnav.houses.building import make_building_plan
from batchnav.houses.layout import CELL, OUTSIDE
from batchnav.navmesh.navmesh import NavMesh
from batchnav.navmesh.settings import NavMeshSettings
from batchnav.scene.mesh import check_mesh

SEEDS = (5, 9)
"""A T, and a ring with dead ends."""
PLANS = range(40)


@pytest.fixture(scope="module")
def buildings():
    return {seed: make_building(seed) for seed in SEEDS}


@pytest.fixture(scope="module")
def plans():
    return [make_building_plan(seed) for seed in PLANS]


def test_a_seed_gives_the_same_building_in_another_process(buildings):
    program = (
        "import hashlib; from batchnav.houses import make_building; m = make_building(5);"
        "print(hashlib.sha256(m.vertices.tobytes() + m.faces.tobytes()).hexdigest())"
    )
    other = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout.strip()
    mesh = buildings[5]
    assert hashlib.sha256(mesh.vertices.tobytes() + mesh.faces.tobytes()).hexdigest() == other


@pytest.mark.parametrize("seed", SEEDS)
def test_meshes_are_whole_and_of_the_promised_size(buildings, seed):
    mesh = buildings[seed]
    assert check_mesh(mesh, "building").num_dropped == 0
    low, high = mesh.vertices.min(0), mesh.vertices.max(0)
    assert 25.0 <= max(high[0] - low[0], high[2] - low[2]) <= 75.0
    assert 40_000 < len(mesh.faces) < 300_000


def test_a_surface_changes_no_triangle(buildings):
    coloured = make_building(5, surface=True)
    assert coloured.vertices.tobytes() == buildings[5].vertices.tobytes()
    surface = check_mesh(coloured, "building").surface
    there = {surface.categories[row] for row in np.unique(surface.category)}
    assert {"wall", "floor", "ceiling", "door", "window", "bed"} <= there


def test_plans_have_rooms_corridors_and_ceilings_of_several_heights(plans):
    for layout, openings in plans:
        assert 15 <= len(layout.rooms) <= 60
        assert any(room.kind == "corridor" for room in layout.rooms)
        assert all(ndimage.label(layout.labels == room.index)[1] == 1 for room in layout.rooms)
        covered = np.zeros(layout.labels.shape, int)
        for (x0, z0, x1, z1), height in zip(layout.footprint, layout.ceilings, strict=True):
            covered[z0:z1, x0:x1] += 1
            assert {layout.rooms[label].height for label in np.unique(layout.labels[z0:z1, x0:x1])} == {height}
        assert np.array_equal(covered, layout.labels != OUTSIDE)  # once each: ceilings do not hang below others
        assert all(2.4 <= height <= 3.8 for height in layout.ceilings)
        assert all(opening.top < layout.rooms[max(opening.sides)].height for opening in openings)
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


@pytest.mark.parametrize("seed", [-1, 1.0, True, "1"])
def test_a_seed_is_a_whole_number(seed):
    with pytest.raises(ArgumentError, match="seed: found"):
        make_building(seed)
