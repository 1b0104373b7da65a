"""Obstacle courses: the same each time, one island, and of each kind what its name says."""

import numpy as np
import pytest

from batchnav.errors import ArgumentError
from batchnav.navmesh.navmesh import NavMesh
from batchnav.navmesh.settings import NavMeshSettings
from batchnav.procedural import COURSE_KINDS, course_kind, make_course
from batchnav.scene.mesh import check_mesh

SEEDS = {kind: [seed for seed in range(100_000, 100_012) if course_kind(seed) == kind] for kind in COURSE_KINDS}


@pytest.fixture(scope="module")
def navmeshes():
    return {seed: NavMesh.bake(make_course(seed), NavMeshSettings()) for seeds in SEEDS.values() for seed in seeds}


def storeys(navmesh, number=400):
    """Sampled points of a navmesh and the height of each, metres."""
    points = navmesh.sample(number, seed=0)
    return points, points[:, 1]


@pytest.mark.parametrize("seed", range(4))
def test_a_course_is_the_same_each_time(seed):
    course, again, other = make_course(seed), make_course(seed, surface=True), make_course(seed + 4)
    assert course.vertices.tobytes() == again.vertices.tobytes() and course.faces.tobytes() == again.faces.tobytes()
    assert course.vertices.tobytes() != other.vertices.tobytes()
    assert check_mesh(again, "course").num_dropped == 0 and len(again.surface.material) == len(course.faces)


@pytest.mark.parametrize("seed", [-1, 1.0, True, "1"])
def test_the_seed_of_a_course_is_a_whole_number(seed):
    with pytest.raises(ArgumentError, match="seed: found"):
        make_course(seed)


def test_nearly_all_of_a_course_is_one_island(navmeshes):
    """Gates, ramps and steps are passable, so all parts are connected; the rest lies below the ramps."""
    for seed, navmesh in navmeshes.items():
        share = np.bincount(navmesh.island(navmesh.sample(400, seed=0))).max() / 400
        assert share >= (0.95 if course_kind(seed) == "ramp" else 1.0), seed


def test_gates_are_closed_to_a_wider_body():
    """A gate is 0.32 to 0.42 m wide, so a body of radius 0.22 m cannot enter the pens behind it."""
    for seed in SEEDS["gate"]:
        navmesh = NavMesh.bake(make_course(seed), NavMeshSettings(agent_radius=0.22))
        island = navmesh.island(navmesh.sample(400, seed=0))
        assert 0.2 < (island == np.bincount(island).argmax()).mean() < 0.95, seed


def test_thin_walls_have_no_thickness_and_lead_to_detours(navmeshes):
    for seed in SEEDS["wall"]:
        corners = make_course(seed).vertices
        sides = np.unique(corners[corners[:, 1] > 2.0][:, 2])
        assert len(sides) >= 4 + 2, "four outer walls have four sides; each thin wall has one"
        points, _ = storeys(navmeshes[seed])
        distance = navmeshes[seed].geodesic_distance(points[:200], points[200:])
        straight = np.linalg.norm(points[:200] - points[200:], axis=1)
        assert ((distance > 5.0) & (straight < 1.5)).any(), "no goal close behind a wall"


def test_a_ramp_joins_two_storeys(navmeshes):
    for seed in SEEDS["ramp"]:
        points, height = storeys(navmeshes[seed])
        low, high = points[height < 0.5], points[height > 2.0]
        assert min(len(low), len(high)) > 100
        number = min(len(low), len(high))
        distance = navmeshes[seed].geodesic_distance(low[:number], high[:number])
        assert np.isfinite(distance).mean() > 0.9 and distance[np.isfinite(distance)].min() > 2.0


def test_a_platform_is_higher_than_one_step_and_walkable(navmeshes):
    for seed in SEEDS["platform"]:
        top = make_course(seed).vertices[:, 1]
        assert (top[top < 1.0].max() > NavMeshSettings().agent_max_climb) and top[top < 1.0].max() < 0.4
        _, height = storeys(navmeshes[seed])
        assert (height > height.min() + 0.25).mean() > 0.05
