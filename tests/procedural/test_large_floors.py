"""Floors of large buildings: the same each time, whole, each room in one piece and covered once."""

import hashlib
import subprocess
import sys

import numpy as np
import pytest
from scipy import ndimage

from batchnav import procedural as houses
from batchnav.errors import ArgumentError
from batchnav.procedural.corridor_floor import make_building_plan
from batchnav.procedural.plans.layout import OUTSIDE
from batchnav.procedural.room_block import make_block_plan
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


def test_a_seed_gives_the_same_floor_in_another_process(made):
    maker, mesh = made
    program = (
        f"import hashlib; from batchnav.procedural import {maker}; m = {maker}({SEED});"
        "print(hashlib.sha256(m.vertices.tobytes() + m.faces.tobytes()).hexdigest())"
    )
    other = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout.strip()
    assert hashlib.sha256(mesh.vertices.tobytes() + mesh.faces.tobytes()).hexdigest() == other


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
