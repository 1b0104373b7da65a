"""Halls: the same each time, only the floor faces up, and most of them can be walked through."""

import numpy as np
import pytest

from batchnav.errors import ArgumentError
from batchnav.navmesh.navmesh import NavMesh
from batchnav.navmesh.settings import NavMeshSettings
from batchnav.procedural import make_hall
from batchnav.scene.mesh import check_mesh

SEEDS = (0, 1, 3, 12)
"""A lounge, a café, a shop, another shop."""


@pytest.mark.parametrize("seed", SEEDS)
def test_a_hall_is_the_same_each_time(seed):
    hall, again, other = make_hall(seed), make_hall(seed), make_hall(seed + 100)
    assert hall.vertices.tobytes() == again.vertices.tobytes() and hall.faces.tobytes() == again.faces.tobytes()
    assert hall.vertices.tobytes() != other.vertices.tobytes()
    assert check_mesh(hall, "hall").num_dropped == 0


@pytest.mark.parametrize("seed", SEEDS)
def test_one_walks_on_the_floor_and_nearly_all_of_it_is_one_piece(seed):
    hall = make_hall(seed)
    low, high = hall.vertices.min(0), hall.vertices.max(0)
    navmesh = NavMesh.bake(hall, NavMeshSettings())
    assert 0.1 * (high[0] - low[0]) * (high[2] - low[2]) < navmesh.area
    points = navmesh.sample(300, seed=0)
    assert points[:, 1].max() < 1.3  # on a table at most, never on the roof
    assert np.bincount(navmesh.island(points)).max() > 0.85 * len(points)


def test_ceilings_windows_and_heights_vary():
    halls = [make_hall(seed).vertices for seed in range(40)]
    heights = [vertices[:, 1].max() for vertices in halls]
    assert min(heights) < 2.5 and max(heights) > 4.5


@pytest.mark.parametrize("seed", [-1, 1.0, True, "1"])
def test_a_seed_is_a_whole_number(seed):
    with pytest.raises(ArgumentError, match="seed: found"):
        make_hall(seed)
