"""Halls: the same each time, only the floor faces up, and most of them can be walked through."""

import subprocess
import sys

import numpy as np
import pytest

from batchnav.data.scenes.ids import DatasetRef, FileRef, GeneratedRef, has_random_materials, parse_scene_id, scene_ids
from batchnav.data.scenes.load import load_scene
from batchnav.errors import ArgumentError
from batchnav.navmesh.navmesh import NavMesh
from batchnav.navmesh.settings import NavMeshSettings
from batchnav.procedural import (
    COURSE_KINDS,
    EPISODE_FAMILIES,
    FAMILIES,
    course_kind,
    degrade,
    make_course,
    make_hall,
    make_house,
)
from batchnav.procedural.degrade import LARGEST_EDGE, outside
from batchnav.report.model_card import EPISODE_TITLES
from batchnav.runtime.bundled import find_episodes
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


# Obstacle courses: the same each time, one island, and of each kind what its name says

COURSES = {kind: [seed for seed in range(100_000, 100_012) if course_kind(seed) == kind] for kind in COURSE_KINDS}


@pytest.fixture(scope="module")
def navmeshes():
    return {seed: NavMesh.bake(make_course(seed), NavMeshSettings()) for seeds in COURSES.values() for seed in seeds}


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
    for seed in COURSES["gate"]:
        navmesh = NavMesh.bake(make_course(seed), NavMeshSettings(agent_radius=0.22))
        island = navmesh.island(navmesh.sample(400, seed=0))
        assert 0.2 < (island == np.bincount(island).argmax()).mean() < 0.95, seed


def test_thin_walls_have_no_thickness_and_lead_to_detours(navmeshes):
    for seed in COURSES["wall"]:
        corners = make_course(seed).vertices
        sides = np.unique(corners[corners[:, 1] > 2.0][:, 2])
        assert len(sides) >= 4 + 2, "four outer walls have four sides; each thin wall has one"
        points, _ = storeys(navmeshes[seed])
        distance = navmeshes[seed].geodesic_distance(points[:200], points[200:])
        straight = np.linalg.norm(points[:200] - points[200:], axis=1)
        assert ((distance > 5.0) & (straight < 1.5)).any(), "no goal close behind a wall"


def test_a_ramp_joins_two_storeys(navmeshes):
    for seed in COURSES["ramp"]:
        points, height = storeys(navmeshes[seed])
        low, high = points[height < 0.5], points[height > 2.0]
        assert min(len(low), len(high)) > 100
        number = min(len(low), len(high))
        distance = navmeshes[seed].geodesic_distance(low[:number], high[:number])
        assert np.isfinite(distance).mean() > 0.9 and distance[np.isfinite(distance)].min() > 2.0


def test_a_platform_is_higher_than_one_step_and_walkable(navmeshes):
    for seed in COURSES["platform"]:
        top = make_course(seed).vertices[:, 1]
        assert (top[top < 1.0].max() > NavMeshSettings().agent_max_climb) and top[top < 1.0].max() < 0.4
        _, height = storeys(navmeshes[seed])
        assert (height > height.min() + 0.25).mean() > 0.05


# Houses torn as scans are: the same each time, with holes, and walked in as before

SEED = 5


def area(corners):
    return np.linalg.norm(np.cross(corners[:, 1] - corners[:, 0], corners[:, 2] - corners[:, 0]), axis=1).sum() / 2


def test_a_scan_is_the_same_each_time_and_lacks_some_of_the_surface():
    house = make_house(SEED)
    scan, again, other = degrade(house, SEED), degrade(house, SEED), degrade(house, SEED + 1)
    assert scan.vertices.tobytes() == again.vertices.tobytes() and scan.faces.tobytes() == again.faces.tobytes()
    assert scan.vertices.tobytes() != other.vertices.tobytes()
    assert check_mesh(scan, "scan").num_dropped <= 0.001 * len(scan.faces)
    surface = [area(mesh.vertices[mesh.faces].astype(float)) for mesh in (house, scan)]
    assert 0.3 < surface[1] / surface[0] < 1.0
    assert len(scan.faces) < 12 * len(house.faces)


@pytest.mark.parametrize("radius", [0.1, 0.5, 1.0])
def test_a_ball_is_cut_out_of_a_wall(radius):
    wall = np.array([[[-2, -2, 0], [2, -2, 0], [2, 2, 0]], [[-2, -2, 0], [2, 2, 0], [-2, 2, 0]]], float)
    left = outside(wall, np.zeros((1, 3)), np.array([radius]))
    # The border is as coarse as the triangles there.
    border = 2 * np.pi * radius * LARGEST_EDGE / 2
    assert area(left) == pytest.approx(16 - np.pi * radius**2, abs=border)
    assert np.linalg.norm(left.mean(1), axis=1).min() > radius
    beside = outside(wall, np.array([[0.0, 0.0, 5.0]]), np.array([radius]))
    assert np.array_equal(beside, wall)


def test_one_walks_in_the_house_and_sees_the_scan():
    house, scan = load_scene(f"house:{SEED}"), load_scene(f"scan:{SEED}")
    assert scan.name == f"scan:{SEED}" and scan.navmesh.area == house.navmesh.area
    assert scan.mesh.vertices.shape != house.mesh.vertices.shape
    assert scene_ids([f"scan:{SEED}-{SEED + 1}"]) == [f"scan:{SEED}", f"scan:{SEED + 1}"]


# The registry of scene families, and what reads it


def test_every_family_has_scene_ids_titles_and_fixed_episodes():
    assert list(FAMILIES) == ["house", "hall", "building", "block", "scan", "course"]
    assert list(EPISODE_FAMILIES) == ["val", "test", "hall", "building", "block", "scan", "course"]
    for name, family in FAMILIES.items():
        ref = parse_scene_id(f"{name}:7")
        assert isinstance(ref, GeneratedRef) and ref.family is family and ref.seed == 7
        for file, split in family.episode_files.items():
            assert find_episodes(file).is_file() and split in family.splits and EPISODE_TITLES[file] == family.title


def test_scene_ids_of_data_sets_and_files():
    ref = parse_scene_id("hssd.scene_dataset_config.json:102344049")
    assert isinstance(ref, DatasetRef) and ref.name == "102344049"
    assert parse_scene_id("castle:7") == FileRef("castle:7")
    assert parse_scene_id("a/b.scene").is_prepared and not parse_scene_id("a/b.glb").is_prepared
    found = {name: has_random_materials(name) for name in ("house:1", "scan:1", "a.scene", "a.glb")}
    assert found == {"house:1": True, "scan:1": True, "a.scene": True, "a.glb": False}


DIGESTS = """
from hashlib import sha256
from batchnav import procedural
for make, seed in (("house", 7), ("hall", 3), ("building", 5), ("block", 5), ("course", 1)):
    mesh = getattr(procedural, f"make_{make}")(seed, surface=True)
    surface = mesh.surface
    parts = (mesh.vertices, mesh.faces, surface.material, surface.uv, surface.object_id, surface.category)
    parts = [part.tobytes() for part in (*parts, *(texture.pixels for texture in surface.textures))]
    print(make, sha256(b"".join(parts) + repr(surface.materials).encode()).hexdigest())
"""


def test_a_seed_gives_the_same_scene_and_surface_in_another_process(capsys):
    other = subprocess.run([sys.executable, "-c", DIGESTS], capture_output=True, text=True)
    exec(DIGESTS, {})
    assert other.stdout == capsys.readouterr().out and other.stdout.count("\n") == 5, other.stderr
