"""LiDAR and full-circle depth: trimesh's rays, closed forms in a room, LaserScan's order, noise, people, kernels."""

import math

import numpy as np
import pytest
import torch
import trimesh
from frames import SIZE, bodies_at, observe, pack, room_scene
from moving_bodies import made
from numba import typeof
from numba import types as nb

from batchnav.config import from_dict
from batchnav.envs.config import NavConfig
from batchnav.envs.nav import NavEnv
from batchnav.envs.observations import observation_sources
from batchnav.errors import ArgumentError, ConfigError
from batchnav.procedural import make_house
from batchnav.renderers.bodies import SeenBodies
from batchnav.renderers.rays import RayCaster, cast_rays, cast_rays_at_bodies
from batchnav.runtime.kernels.arrays import view
from batchnav.scene.bank import SceneBank
from batchnav.scene.scene import make_scene
from batchnav.sensors import scan
from batchnav.sensors.frame import Frame
from batchnav.sensors.scan import SCANNERS, LidarConfig, laser_ranges
from batchnav.types import CYLINDER

ROUNDING = 1e-4
"""Difference of ranges in float32, metres."""
EDGES = 2e-3
"""Fraction of rays that pass within rounding of an edge."""


def seen(bank, position, heading, bodies=None, sensors=("lidar",), **settings):
    """Observations of sensors of ranges from bodies in the bank's first scene."""
    config = from_dict(NavConfig, {"sensors": list(sensors), **settings})
    sources = {name: source for name, source in observation_sources(config).items() if name in sensors}
    frame = Frame(bank, bodies_at(position, heading, bank.device), config.all_cameras, sources.values())
    frame.show_bodies(bodies)
    return observe(frame, sources)


def room_range(position, direction):
    """Closed form of the distance to the walls, floor and ceiling of the room: [..., 3] -> [...]."""
    low, high = np.array([-0.5, 0.0, -0.5]) * SIZE, np.array([0.5, 1.0, 0.5]) * SIZE
    with np.errstate(divide="ignore"):
        away = (np.where(direction > 0, high, low) - position) / direction
    return np.where(direction == 0, np.inf, away).min(-1)


def world(directions, heading):
    """Directions ahead, left, up in the world's frame."""
    ahead, left = np.array([-np.sin(heading), 0, -np.cos(heading)]), np.array([-np.cos(heading), 0, np.sin(heading)])
    return directions[..., :1] * ahead + directions[..., 1:2] * left + directions[..., 2:] * np.array([0, 1, 0])


@pytest.mark.parametrize(
    "settings", [{"beams": 90}, {"beams": 61, "fov_deg": 270.0, "rows": 5, "vertical_fov_deg": 40.0}]
)
def test_trimesh_sees_the_same_ranges_in_a_house(device, settings):
    mesh = make_house(4)
    bank = SceneBank.pack([make_scene("house", mesh)], device)
    config = LidarConfig(lidar_height=0.7, range_max=30.0, **settings)
    places = bank.scenes[0].navmesh.sample(6, seed=1)
    headings = np.linspace(-3, 3, 6, dtype=np.float32)
    found = seen(bank, places, headings, lidar={"lidar_height": 0.7, "range_max": 30.0, **settings})["lidar"] * 30.0
    shape, wrong = trimesh.Trimesh(mesh.vertices, mesh.faces, process=False), []
    for place, heading, ranges in zip(places, headings, found, strict=True):
        rays = world(config.directions, float(heading)).reshape(-1, 3)
        origins = np.repeat((place + np.array([0, 0.7, 0]))[None], len(rays), 0)
        hits, ray, _ = shape.ray.intersects_location(origins, rays, multiple_hits=False)
        expected = np.full(len(rays), 30.0)
        expected[ray] = np.minimum(np.linalg.norm(hits - origins[ray], axis=1), 30.0)
        wrong.append(np.abs(ranges.ravel() - expected) > ROUNDING + 1e-4 * expected)
    assert np.mean(wrong) <= EDGES and np.ptp(found) > 3.0


@pytest.mark.parametrize("heading", [0.0, 0.8, -2.5])
def test_beams_go_counter_clockwise_from_behind(device, heading):
    """As in a LaserScan: angle_min -pi, angle_increment 2 pi / beams, 0 straight ahead."""
    position = np.array([0.7, 0.0, -1.2])
    found = seen(pack(device), [position], [heading], lidar={"beams": 36})["lidar"][0, 0] * 12.0
    angle = -np.pi + 2 * np.pi / 36 * np.arange(36) + heading
    direction = np.stack([-np.sin(angle), 0 * angle, -np.cos(angle)], -1)  # left of heading 0 (-Z) is -X
    np.testing.assert_allclose(found, room_range(position, direction), atol=ROUNDING)
    np.testing.assert_allclose(LidarConfig(beams=36).angles[18], 0.0, atol=1e-12)


def test_rows_rise_and_the_ends_of_a_partial_circle_have_beams(device):
    settings = {"beams": 9, "fov_deg": 180.0, "rows": 3, "vertical_fov_deg": 60.0, "lidar_height": 1.0}
    config = LidarConfig(**settings)
    np.testing.assert_allclose(config.angles[[0, 4, 8]], [-np.pi / 2, 0, np.pi / 2], atol=1e-12)
    found = seen(pack(device), [[0.0, 0.0, 3.8]], [0.0], lidar=settings)["lidar"][0] * 12.0
    np.testing.assert_allclose(found[:, 4], [2.0, 7.8, 4.0], atol=ROUNDING)  # floor, far wall, ceiling
    np.testing.assert_allclose(found[1, [0, 8]], [3.0, 3.0], atol=ROUNDING)


def test_out_of_range_is_one_too_near_is_zero_and_a_laser_scan_has_infinities(device):
    settings = {"beams": 8, "range_min": 0.5, "range_max": 3.5}
    found = seen(pack(device), [[2.8, 0.0, 0.0]], [0.0], lidar=settings)["lidar"]
    ahead, left, right = found[0, 0, 4], found[0, 0, 6], found[0, 0, 2]
    assert ahead == 1.0 and left == 1.0 and right == 0.0  # 4 m, 5.8 m, 0.2 m
    metres = laser_ranges(torch.tensor(found), LidarConfig(**settings))[0, 0]
    assert metres[[4, 6, 2]].tolist() == [math.inf, math.inf, -math.inf]
    assert metres.shape == (8,)


def test_mount_moves_and_turns_the_scanner(device):
    mount = {"lidar_forward": 0.5, "lidar_left": 0.25, "lidar_heading_deg": 90.0, "beams": 8}
    found = seen(pack(device), [[0.0, 0.0, 0.0]], [0.0], lidar=mount)["lidar"][0, 0] * 12.0
    np.testing.assert_allclose(found[[4, 2, 6]], [2.75, 3.5, 4.5], atol=ROUNDING)  # -X, -Z and +Z from (-0.25, -0.5)


@pytest.mark.parametrize("name", SCANNERS)
def test_scanners_have_their_beams(name):
    config = LidarConfig(scanner=name)
    own, given = config.resolved, SCANNERS[name]
    assert {key: getattr(own, key) for key in given} == given
    assert config.directions.shape == (own.rows, own.beams, 3)
    np.testing.assert_allclose(np.linalg.norm(config.directions, axis=-1), 1.0)
    assert LidarConfig(scanner=name, beams=77).resolved.beams == 77


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"range_min": 5.0, "range_max": 2.0}, "range_max"),
        ({"rows": 4}, "vertical_fov_deg: found 0 with 4 rows"),
        ({"scanner": "sick"}, "scanner"),
    ],
)
def test_settings_that_contradict_each_other_are_refused(settings, message):
    with pytest.raises(ConfigError, match=message):
        from_dict(LidarConfig, settings)


def test_full_circle_depth_is_the_horizontal_distance(device):
    settings = {"panorama_rows": 6, "panorama_columns": 16, "elevation_deg": 20.0, "panorama_range": 20.0}
    position = np.array([0.5, 0.0, 1.0])
    found = seen(pack(device), [position], [0.6], sensors=("depth360",), depth360=settings)["depth360"][0, 0] * 20.0
    column, row = np.meshgrid(np.arange(16), np.arange(6))
    angle = np.pi - 2 * np.pi * (column + 0.5) / 16 + 0.6  # from the left edge, behind, to the right
    up = np.tan(np.radians(20.0)) * (1 - (2 * row + 1) / 6)
    direction = np.stack([-np.sin(angle), up, -np.cos(angle)], -1)
    np.testing.assert_allclose(found, room_range(position + np.array([0, 1.25, 0]), direction), atol=2 * ROUNDING)


def test_beams_hit_people(device):
    bodies = made(device, position=[[[0.0, 0.0, -2.0], [1.0, 0.0, 0.0]]], shape=CYLINDER, radius=0.25)
    plain, found = (
        seen(pack(device), [[0.0, 0.0, 0.0]], [0.0], each, lidar={"beams": 360})["lidar"][0, 0] * 12.0
        for each in (None, bodies)
    )
    np.testing.assert_allclose(found[[180, 90]], [1.75, 0.75], atol=ROUNDING)
    hit = found < plain - ROUNDING
    half = [np.degrees(np.arcsin(0.25 / metres)) for metres in (2.0, 1.0)]
    assert abs(hit.sum() - 2 * sum(half)) <= 4
    np.testing.assert_array_equal(found[~hit], plain[~hit])


def test_noise_is_that_of_the_seed(device):
    settings = {"beams": 360, "range_noise": 0.03, "range_noise_share": 0.01, "lidar_height": 1.0}
    config = from_dict(NavConfig, {"sensors": ["lidar"], "lidar": settings})
    bank = SceneBank.pack([room_scene()], device)
    exact = NavEnv(bank, 4, sensors=("lidar",), beams=360, lidar_height=1.0, seed=5).reset()[0]["lidar"] * 12.0
    first, again = (NavEnv(bank, 4, config=config, seed=5).reset()[0]["lidar"].clone() * 12.0 for _ in range(2))
    assert torch.equal(first, again)
    within = (exact > 0.5) & (exact < 11.0)
    score = ((first - exact) / (0.03 + 0.01 * exact))[within]
    assert abs(float(score.mean())) < 0.1 and 0.9 < float(score.std()) < 1.1


@pytest.mark.parametrize("task", ["pointnav", "flee", "explore"])
def test_any_task_has_a_lidar(device, task):
    bank = SceneBank.pack([room_scene()], device)
    env = NavEnv(bank, 2, task=task, sensors=("lidar", "depth360"), scanner="rplidar_a1", panorama_columns=16)
    observation = env.reset(seed=1)[0]
    assert observation["lidar"].shape == (2, 1, 360) and observation["depth360"].shape == (2, 1, 32, 16)
    for _ in range(3):
        observation = env.step(torch.ones(2, dtype=torch.int64, device=device))[0]
    assert env.single_observation_space["lidar"].contains(observation["lidar"][0].cpu().numpy())


def test_invalid_poses_hit_nothing(device):
    bank = pack(device)
    caster = RayCaster(bank, 3, LidarConfig(beams=8).directions, 9.0)
    scene = torch.tensor([0, -1, 5], dtype=torch.int32, device=device)
    position = torch.tensor([[math.nan, 0, 0], [0, 1, 0], [0, 1, 0]], device=device)
    heading = torch.zeros(3, device=device)
    bodies = SeenBodies.of(made(device, position=np.full((3, 1, 3), [0, 0, -1])), 3, bank.device)
    assert (caster.cast(scene, position, heading, bodies) == 9.0).all()
    with pytest.raises(ArgumentError, match="position"):
        caster.cast(scene, position[:2], heading)
    with pytest.raises(ArgumentError, match="directions"):
        RayCaster(bank, 3, np.zeros((4, 3)), 9.0)


def test_kernels_compile_for_the_gpu_without_float64(compile_ptx):
    floats = [nb.Array(nb.float32, n, "C") for n in range(4)]
    poses = nb.Array(nb.int32, 1, "C"), floats[2], floats[1]
    bank = pack("cpu")
    ptx = compile_ptx(cast_rays, *poses, typeof(bank.bvh_view), floats[3], nb.float32, floats[3])
    assert ".f64" not in ptx and ptx.count("ld.global.v4") + ptx.count("ld.global.nc.v4") >= 4 + 3
    bodies = typeof(view(SeenBodies.of(made(position=np.zeros((1, 1, 3))), 1, torch.device("cpu"))))
    assert ".f64" not in compile_ptx(cast_rays_at_bodies, *poses, bodies, floats[3], nb.int32, nb.float32, floats[3])
    counters = NavEnv(SceneBank.pack([room_scene()], "cpu"), 1).sim.sampling
    frame = Frame(bank, bodies_at([[0, 0, 0]], [0.0]), {}, (), seeds=counters)
    mount = scan.MountedCamera(frame.bodies, scan.CameraConfig(), 1000, frame.seeds)
    noise = typeof(view(mount.cameras.noise))
    assert ".f64" not in compile_ptx(scan.add_range_noise, noise, *[nb.float32] * 4, floats[3])


@pytest.mark.cuda
def test_cpu_and_cuda_see_the_same_ranges():
    rows = {"rows": 16, "beams": 900, "vertical_fov_deg": 30.0, "range_max": 100.0}
    mesh, images = make_house(4), []
    for device in ("cpu", "cuda"):
        bank = SceneBank.pack([make_scene("house", mesh)], device)
        places = bank.scenes[0].navmesh.sample(16, seed=1)
        images.append(seen(bank, places, np.linspace(-3, 3, 16), lidar=rows)["lidar"])
    assert (np.abs(images[0] - images[1]) > 1e-5).mean() < EDGES
