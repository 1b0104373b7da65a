"""Floors of large buildings: the same each time, whole, each room in one piece and covered once."""

from collections import Counter

import numpy as np
import pytest
from scipy import ndimage

from batchnav import procedural as houses
from batchnav.errors import ArgumentError
from batchnav.navmesh.navmesh import NavMesh
from batchnav.navmesh.settings import NavMeshSettings
from batchnav.procedural import make_block, make_building
from batchnav.procedural.large_floors import make_block_plan, make_building_plan
from batchnav.procedural.plans import CELL, OUTSIDE
from batchnav.scene.mesh import check_mesh

MAKERS = {"make_building": make_building_plan, "make_block": make_block_plan}
SIZES = {"make_building": (5, 9, 10.0, 25.0, 75.0), "make_block": (3, 5, 16.0, 22.0, 51.0)}
"""Two seeds, and in metres the least of the shorter side, the least and the most of the longer one."""
SEED = 5
PLANS = range(40)


@pytest.fixture(scope="module", params=MAKERS)
def made(request):
    """A maker's name, and its floor of SEED."""
    return request.param, getattr(houses, request.param)(SEED)


def test_a_surface_changes_no_triangle(made):
    maker, mesh = made
    coloured = getattr(houses, maker)(SEED, surface=True)
    assert coloured.vertices.tobytes() == mesh.vertices.tobytes()
    surface = check_mesh(coloured, maker).surface
    there = {surface.categories[row] for row in np.unique(surface.category)}
    assert {"wall", "floor", "ceiling", "door", "window", "bed"} <= there


@pytest.mark.parametrize("maker", MAKERS)
def test_meshes_are_whole_and_of_the_promised_size(maker):
    *seeds, thinnest, shortest, longest = SIZES[maker]
    for seed in seeds:
        mesh = getattr(houses, maker)(seed)
        assert check_mesh(mesh, maker).num_dropped == 0
        x, _, z = mesh.vertices.max(0) - mesh.vertices.min(0)
        assert shortest <= max(x, z) <= longest and min(x, z) >= thinnest
        assert 40_000 < len(mesh.faces) < 300_000


@pytest.mark.parametrize("make_plan", MAKERS.values())
def test_rooms_are_in_one_piece_and_covered_once(make_plan):
    for layout, openings in map(make_plan, PLANS):
        assert all(ndimage.label(layout.labels == room.index)[1] == 1 for room in layout.rooms)
        covered = np.zeros(layout.labels.shape, int)
        for (x0, z0, x1, z1), height in zip(layout.footprint, layout.ceilings, strict=True):
            covered[z0:z1, x0:x1] += 1
            assert {layout.rooms[label].height for label in np.unique(layout.labels[z0:z1, x0:x1])} == {height}
        assert np.array_equal(covered, layout.labels != OUTSIDE)  # once each: ceilings do not hang below others
        assert all(2.4 <= height <= 3.8 for height in layout.ceilings)
        assert all(opening.top < layout.rooms[max(opening.sides)].height for opening in openings)


@pytest.mark.parametrize("maker", MAKERS)
@pytest.mark.parametrize("seed", [-1, 1.0, True, "1"])
def test_a_seed_is_a_whole_number(maker, seed):
    with pytest.raises(ArgumentError, match="seed: found"):
        getattr(houses, maker)(seed)


# Large buildings: every room is reached over the floor, ways are long and wind

SEEDS = (5, 9)
"""A T, and a ring with dead ends."""


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


# Floors with blocks of rooms: passages that are one and lead around every block, rooms with several doors

BLOCK_SEEDS = (3, 5)
"""A small one with two blocks, and a large one with rooms along all walls."""
PASSAGES = 0
"""Their label."""


@pytest.fixture(scope="module")
def blocks():
    return {seed: make_block(seed) for seed in BLOCK_SEEDS}


@pytest.fixture(scope="module")
def block_plans():
    return [make_block_plan(seed) for seed in PLANS]


def test_plans_are_rooms_among_passages(block_plans):
    for layout, _ in block_plans:
        assert 8 <= len(layout.rooms) <= 60
        assert [room.index for room in layout.rooms if room.kind == "corridor"] == [PASSAGES]


def test_passages_lead_around_blocks(block_plans):
    """What the passages enclose, seen from outside: holes in them, at least one in each plan, several in most."""
    holes = []
    for layout, _ in block_plans:
        passages = layout.labels == PASSAGES
        holes.append(ndimage.label(ndimage.binary_fill_holes(passages) & ~passages)[1])
    assert min(holes) >= 1 and np.mean([number > 1 for number in holes]) > 0.6


def test_some_rooms_have_several_doors_to_the_passages(block_plans):
    doors = [Counter(max(o.sides) for o in openings if PASSAGES in o.sides and o.swing) for _, openings in block_plans]
    several = np.array([number > 1 for rooms in doors for number in rooms.values()])
    assert 0.1 < several.mean() < 0.5


@pytest.mark.parametrize("seed", BLOCK_SEEDS)
def test_most_is_one_island_and_ways_are_long(blocks, seed):
    navmesh = NavMesh.bake(blocks[seed], NavMeshSettings())
    points = navmesh.sample(600, seed=0)
    island = navmesh.island(points)
    main = island == np.bincount(island).argmax()
    assert main.mean() > 0.85
    labels = make_block_plan(seed)[0].labels
    rooms = labels[(points[:, 2] / CELL).astype(int), (points[:, 0] / CELL).astype(int)]
    assert (island[rooms == PASSAGES] == island[main][0]).mean() > 0.95
    points = points[main]
    distance = navmesh.geodesic_distance(points[:200], points[-200:])
    assert distance.max() > 20.0 and np.median(distance) > 8.0
