"""Moving bodies on the map, and maps of LiDAR scans: cells that people leave are free again, obstacles stay."""

import itertools
import math

import numpy as np
import pytest
import torch
from frames import mapped_obstacles, room_scene
from map_helpers import follow_waypoints, kernel_arguments, map_codes
from moving_bodies import made
from numba import typeof

from batchnav.data.scenes.load import load_scene
from batchnav.envs.nav import NavEnv
from batchnav.errors import ConfigError
from batchnav.mapping.moving import MovingState, free_cells
from batchnav.mapping.scans import integrate_scan
from batchnav.mapping.state import CELLS
from batchnav.runtime.kernels.arrays import view
from batchnav.scene.bank import SceneBank
from batchnav.types import CYLINDER

N = 3
LIDAR_MAP = {"sensors": ("lidar", "ego_map"), "map_sensor": "lidar"}
DEPTH_MAP = {"sensors": ("depth", "ego_map")}


def room_env(device, n=N, **options):
    """Agents in the middle of a room, looking along -Z, whose map has only its walls."""
    env = NavEnv(SceneBank.pack([room_scene()], device), n, **options)
    env.reset(seed=2)
    env.sim.bodies.position.zero_()
    env.sim.bodies.heading.zero_()
    return env


def occupied_at(env, x, z):
    """Number of occupied cells within 0.45 m of a place, on the map of the first agent."""
    state = env.mapper.map_state
    corner_x, corner_z, size = state.origin_and_resolution[0].cpu().numpy()
    row, column = np.nonzero(map_codes(env)[0][0] >= 2)
    away = np.hypot(corner_x + (column + 0.5) * size - x, corner_z + (row + 0.5) * size - z)
    return int((away < 0.45).sum())


@pytest.mark.parametrize("options", [DEPTH_MAP, LIDAR_MAP], ids=["depth", "lidar"])
def test_a_person_who_leaves_is_no_wall(device, options):
    env = room_env(device, **options)
    bodies = made(device, position=np.tile(np.float32([[[0, 0, -2.0]]]), (N, 1, 1)))
    env.show_bodies(bodies)
    env.mapper.reset()
    env.observe()
    before = occupied_at(env, 0, -2.0)
    assert before >= 2
    bodies.position[:, :, 0] = 1.0
    env.observe()
    assert occupied_at(env, 0, -2.0) == 0 and occupied_at(env, 1.0, -2.0) >= 2
    bodies.count.zero_()
    env.observe()
    assert occupied_at(env, 1.0, -2.0) == 0
    left = map_codes(env)
    env.show_bodies(None)
    env.mapper.reset()
    env.observe()
    expected = map_codes(env)
    np.testing.assert_array_equal(left[0] >= 2, expected[0] >= 2)  # the walls alone
    np.testing.assert_array_equal(left[0] == 1, expected[0] == 1)  # and the cells next to them


def test_a_person_close_to_the_camera_and_one_behind_the_agent_are_no_walls(device):
    """The camera sees the ground from 1.25 m on. The cells at 0.8 m become free since the person was tall there."""
    env = room_env(device, **DEPTH_MAP)
    bodies = made(device, position=np.tile(np.float32([[[0, 0, 3.0]]]), (N, 1, 1)))
    env.show_bodies(bodies)
    env.mapper.reset()
    for z, seen_at in ((3.0, None), (-0.8, -0.8), (3.0, None), (-2.0, -2.0)):
        bodies.position[:, :, 2] = z
        env.observe()
        assert occupied_at(env, 0, -0.8) == 0 or seen_at == -0.8
        assert seen_at is None or occupied_at(env, 0, seen_at) >= 2
    env.sim.bodies.heading.fill_(math.pi)  # the place was free before, and is behind the agent now
    for _ in range(2):
        env.observe()
    assert occupied_at(env, 0, -2.0) >= 2
    for _ in range(10):
        env.observe()
    assert occupied_at(env, 0, -2.0) == 0


def test_an_obstacle_at_the_border_of_the_image_stays(device):
    """An agent that turns to and fro in front of a room's corners does not free parts of the walls."""
    env = room_env(device, n=8, **DEPTH_MAP)
    env.show_bodies(made(device, position=np.zeros((8, 1, 3)), count=0))
    env.mapper.reset()
    env.sim.bodies.heading.copy_(torch.linspace(0.0, 5.5, 8))
    env.sim.bodies.position[:, 0], env.sim.bodies.position[:, 2] = 1.2, -1.7
    seen = []
    for turn in (0.0, 0.35, 0.7, 0.35, 0.0):
        env.sim.bodies.heading.copy_(torch.linspace(0.0, 5.5, 8) + turn)
        env.observe()
        seen.append(map_codes(env)[0] >= 2)
    for before, after in itertools.pairwise(seen):
        assert not (before & ~after).any()


def test_without_bodies_a_map_keeps_what_it_saw(device):
    env = room_env(device, **DEPTH_MAP)
    bodies = made(device, position=np.tile(np.float32([[[0, 0, -2.0]]]), (N, 1, 1)))
    env.show_bodies(bodies)
    env.mapper.reset()
    env.observe()
    env.show_bodies(None)
    env.observe()
    assert occupied_at(env, 0, -2.0) >= 2


def test_furniture_stays_on_the_map(device):
    """The same steps with nobody in the world, with and without the kernel that frees cells."""
    scene, maps = load_scene("house:3"), []
    for shown in (False, True):
        env = NavEnv([scene], 6, device, seed=4, sensors=("depth", "waypoint"))
        if shown:
            env.show_bodies(made(device, position=np.zeros((6, 1, 3)), count=0))
        follow_waypoints(env, 40)
        maps.append(map_codes(env)[0] >= 2)
    kept, freed = maps
    assert kept.sum() > 300
    assert (kept & ~freed).sum() <= 0.06 * kept.sum()


def test_a_scan_maps_the_walls_of_a_room(device):
    env = room_env(device, **LIDAR_MAP)
    env.mapper.reset()
    env.observe()
    occupancy, explored = map_codes(env)
    state = env.mapper.map_state
    corner_x, corner_z, size = state.origin_and_resolution[0].cpu().numpy()
    row, column = np.nonzero(occupancy[0] >= 2)
    x, z = corner_x + (column + 0.5) * size, corner_z + (row + 0.5) * size
    off = np.minimum(np.abs(np.abs(x) - 3.0), np.abs(np.abs(z) - 4.0))
    assert len(x) > 100 and (off < size).all()  # all four walls, and nothing else
    assert explored[0].sum() * size * size > 0.9 * 6 * 8
    shown = env.observe()["ego_map"]
    assert (shown > 0.3).any() and (shown < 0.1).any()


def test_an_agent_with_a_lidar_alone_plans_in_a_house(device):
    scene = load_scene("house:3")
    env = NavEnv([scene], 4, device, seed=4, sensors=("waypoint",), map_sensor="lidar")
    follow_waypoints(env, 60)
    marked, navigable = mapped_obstacles(env, scene) if device == "cpu" else (1, 0)
    assert marked > 0 and navigable <= 0.25 * marked


def test_settings_that_contradict_a_map_of_scans_are_refused():
    scene = room_scene()
    with pytest.raises(ConfigError, match="initial_scan: found true with map_sensor lidar"):
        NavEnv([scene], 1, "cpu", sensors=("waypoint",), map_sensor="lidar", initial_scan=True)
    with pytest.raises(ConfigError, match="found lidar with the task objectnav, expected depth"):
        NavEnv([scene], 1, "cpu", task="objectnav", sensors=("ego_map",), map_sensor="lidar")


@pytest.mark.parametrize(
    "options",
    [
        {"sensors": ("lidar", "waypoint"), "map_sensor": "lidar", "range_noise": 0.02},
        {"sensors": ("depth", "waypoint")},
    ],
    ids=["lidar", "depth"],
)
def test_agents_with_maps_resume_among_people(device, options):
    envs = [NavEnv(SceneBank.pack([room_scene()], device), N, seed=3, **options) for _ in range(2)]
    first, second = envs
    first.reset()
    actions = torch.ones(N, dtype=torch.int64, device=device)
    bodies = made(device, position=np.tile(np.float32([[[0, 0, -2.0]]]), (N, 1, 1)), shape=CYLINDER)
    for env in envs:
        env.show_bodies(bodies)
    for _ in range(3):
        first.step(actions)
    second.reset()
    second.load_state_dict(first.state_dict())
    observed = [env.step(actions)[0] for env in envs]
    assert all(torch.equal(observed[0][name], observed[1][name]) for name in observed[0])


def test_kernels_compile_for_the_gpu_without_float64(compile_ptx):
    given, left = kernel_arguments(), np.zeros(1, np.int32)
    depth, table = np.zeros((1, 8, 8), np.float32), np.zeros((1, 8, 3), np.float32)
    read = *(given[name] for name in ("cameras", "agents")), given["parameters"]
    moving = view(MovingState.empty(1, torch.device("cpu"))._replace(bins=torch.zeros(3, 8, dtype=torch.int32)))
    found = compile_ptx(free_cells, *map(typeof, (depth, *read, given["state"], moving)))
    assert ".f64" not in found and "bar.sync" in found
    hits = np.zeros((1, CELLS // 32), np.int32)
    arguments = depth, table, *read[:2], True, read[2], np.float32(9.0), left, hits, given["state"]
    assert ".f64" not in compile_ptx(integrate_scan, *map(typeof, arguments))
