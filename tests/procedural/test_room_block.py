"""Floors with blocks of rooms: passages that are one and lead around every block, rooms with several doors."""

from collections import Counter

import numpy as np
import pytest
from scipy import ndimage

from batchnav.navmesh.navmesh import NavMesh
from batchnav.navmesh.settings import NavMeshSettings
from batchnav.procedural import make_block
from batchnav.procedural.plans.layout import CELL
from batchnav.procedural.room_block import make_block_plan

SEEDS = (3, 5)
"""A small one with two blocks, and a large one with rooms along all walls."""
PLANS = range(40)
PASSAGES = 0
"""Their label."""


@pytest.fixture(scope="module")
def blocks():
    return {seed: make_block(seed) for seed in SEEDS}


@pytest.fixture(scope="module")
def plans():
    return [make_block_plan(seed) for seed in PLANS]


def test_plans_are_rooms_among_passages(plans):
    for layout, _ in plans:
        assert 8 <= len(layout.rooms) <= 60
        assert [room.index for room in layout.rooms if room.kind == "corridor"] == [PASSAGES]


def test_passages_lead_around_blocks(plans):
    """What the passages enclose, seen from outside: holes in them, at least one in each plan, several in most."""
    holes = []
    for layout, _ in plans:
        passages = layout.labels == PASSAGES
        holes.append(ndimage.label(ndimage.binary_fill_holes(passages) & ~passages)[1])
    assert min(holes) >= 1 and np.mean([number > 1 for number in holes]) > 0.6


def test_some_rooms_have_several_doors_to_the_passages(plans):
    doors = [Counter(max(o.sides) for o in openings if PASSAGES in o.sides and o.swing) for _, openings in plans]
    several = np.array([number > 1 for rooms in doors for number in rooms.values()])
    assert 0.1 < several.mean() < 0.5


@pytest.mark.parametrize("seed", SEEDS)
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
