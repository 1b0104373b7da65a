"""Maps and waypoints: path costs, kept paths, images, resuming, errors, CPU against CUDA."""

import math
import os
import pickle
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from frames import mapped_obstacles
from map_helpers import SENSORS, check_path_costs, check_ptx, follow_waypoints, kernel_arguments, reached_by, towards
from numba import typeof

import batchnav
from batchnav.data.scenes.load import load_scene
from batchnav.envs.config import NavConfig
from batchnav.envs.nav import NavEnv
from batchnav.envs.observations import specs_of
from batchnav.errors import CheckpointError, ConfigError
from batchnav.mapping import mapper
from batchnav.mapping.costs import COST_UNITS
from batchnav.mapping.mapper import map_cuda
from batchnav.mapping.observations import MAP_SPECS
from batchnav.mapping.state import OCCUPIED, SIDE
from batchnav.scene.bank import SceneBank
from batchnav.sim.bodies import LEFT

ROOT = Path(__file__).parents[2]
PIXEL = 0.25
"""Side of a pixel of the egocentric map, metres."""


@pytest.fixture(scope="module")
def house():
    return load_scene("house:3")


def test_path_costs_equal_the_reference(house):
    env = NavEnv([house], 12, "cpu", sensors=SENSORS)
    assert check_path_costs(env, follow_waypoints(env, 10)[-1]["waypoint"][:, 0].numpy()) >= 3


def test_path_costs_with_predictions_equal_the_reference(house):
    env = NavEnv([house], 6, "cpu", sensors=SENSORS, anticipation="occupancy")
    follow_waypoints(env, 12)
    state = env.mapper.map_state
    distances = env.observe()["waypoint"][:, 0].numpy()
    predicted = state.predicted_cost * (state.explored == 0)
    assert (predicted > 0).any(1).all()
    assert check_path_costs(env, distances, predicted.view(-1, SIDE, SIDE).numpy().astype(int)) >= 2


def test_a_path_is_found_however_much_its_cost_has_risen(house):
    """Walls of different thickness appear around the agents, so the bounds of the first searches are too low."""
    env = NavEnv([house], 3, "cpu", sensors=SENSORS)
    follow_waypoints(env, 5)
    state, r = env.mapper.map_state, torch.arange(SIDE)
    state.quadrants.zero_()  # those of the house may be gaps
    origin, size = state.origin_and_resolution[:, :2], state.origin_and_resolution[:, 2:]
    for i, (u, v) in enumerate((env.sim.bodies.position[:, [0, 2]] - origin) / size):
        distance = torch.maximum((r[:, None] - v.int()).abs(), (r[None] - u.int()).abs())
        state.occupancy[i][((distance > 3) & (distance < 5 + i)).flatten()] = OCCUPIED
    check_path_costs(env, env.step([LEFT] * 3)[0]["waypoint"][:, 0].numpy())
    crossing = 10_000 * COST_UNITS  # two straight edges (2 x 5) times the cost of an occupied cell
    assert (state.expected_cost > crossing * torch.tensor([1, 2, 3])).all()


@pytest.mark.plain
def test_no_index_is_out_of_range(house):
    env = NavEnv([house], 2, "cpu", sensors=SENSORS, height=16, width=16)
    check_path_costs(env, follow_waypoints(env, 2)[-1]["waypoint"][:, 0].numpy())


def test_a_kept_path_is_the_one_that_a_search_finds(house):
    """Two agents with the same actions, one of which discards its path at every step, observe the same."""
    keeping, searching = (NavEnv([house], 1, "cpu", sensors=SENSORS) for _ in range(2))
    observation, kept, marker = keeping.reset(seed=5)[0], 0, -7
    searching.reset(seed=5)
    for _ in range(200):
        action = towards(observation["waypoint"][:, 1])
        for env in (keeping, searching):
            env.mapper._search.cost_to_go.fill_(marker)  # a search overwrites it
        searching.mapper.map_state.path_length.zero_()
        observation, searched = (env.step(action)[0] for env in (keeping, searching))
        for name in SENSORS:
            assert torch.equal(observation[name], searched[name]), name
        kept += int((keeping.mapper._search.cost_to_go == marker).all())
        assert not (searching.mapper._search.cost_to_go == marker).all()
    assert kept > 60, "hardly any path was kept"


def test_an_empty_map_has_straight_paths_and_shows_them():
    """Without obstacles the waypoint equals the goal sensor. The image shows the path and the goal."""
    env = NavEnv([load_scene("house:3")], 8, "cpu", sensors=SENSORS, max_depth=0.05)
    observation, _ = env.reset(seed=1)
    assert not env.mapper.map_state.occupancy.any()
    torch.testing.assert_close(observation["waypoint"], observation["pointgoal"], atol=0.3, rtol=0.0)
    for image, (rho, angle) in zip(observation["ego_map"][:, 0], observation["pointgoal"].tolist(), strict=True):
        centre = image.shape[0] / 2
        row, column = centre - rho * math.cos(angle) / PIXEL, centre - rho * math.sin(angle) / PIXEL
        if min(row, column) > 1 and max(row, column) < image.shape[0] - 1:
            around = image[int(row) - 1 : int(row) + 2, int(column) - 1 : int(column) + 2]
            assert ((around * 10).int() == 6).any(), "the goal is not at its position"
            assert ((image * 10).int() == 5).any(), "there is no path"


def test_mapped_obstacles_are_off_the_navmesh(house):
    """Few obstacle cells have a navigable centre: the surface may touch only a corner of the cell."""
    env = NavEnv([house], 8, "cpu", sensors=SENSORS)
    follow_waypoints(env, 60)
    obstacles, navigable = mapped_obstacles(env, house)
    assert obstacles > 500 and navigable / obstacles < 0.2


def test_agents_that_follow_the_waypoint_reach_more_goals(house):
    """Fraction of agents near the goal at some step, for agents that follow the waypoint or the goal sensor."""
    env = NavEnv([house], 32, "cpu", sensors=SENSORS, max_steps=200)
    reached = {name: reached_by(env, name, 2) for name in ("waypoint", "pointgoal")}
    assert reached["waypoint"] > 0.85 > 0.7 > reached["pointgoal"], reached


def test_an_episode_begins_with_an_empty_map(house):
    env = NavEnv([house], 4, "cpu", sensors=SENSORS, max_steps=30)
    for observation in follow_waypoints(env, 30)[-1:]:
        assert (env.sim.bodies.steps == 0).all()
        fresh = {name: value.clone() for name, value in observation.items()}
    again = NavEnv([house], 4, "cpu", sensors=SENSORS, max_steps=30)
    again.reset(seed=5)
    again.load_state_dict(env.state_dict())
    again.mapper.map_state.episode.fill_(-1)  # discards the maps
    for name, value in again.observe().items():
        assert torch.equal(value, fresh[name]), name


def test_a_reset_discards_maps_of_episodes_with_the_same_number(house):
    env = NavEnv([house], 4, "cpu", sensors=SENSORS)
    first = {name: value.clone() for name, value in env.reset(seed=1)[0].items()}
    follow_waypoints(env, 10)
    for name, value in env.reset(seed=1)[0].items():
        assert torch.equal(value, first[name]), name


def test_a_resumed_run_continues_with_its_map(house):
    env, other = (NavEnv([house], 4, "cpu", sensors=SENSORS) for _ in range(2))
    follow_waypoints(env, 25)
    other.reset()
    state = env.state_dict()
    for name, wrong in (("map_path", SIDE * SIDE), ("map_path_length", -1)):
        with pytest.raises(CheckpointError, match=f"'{name}'"):
            other.load_state_dict({**state, name: torch.full_like(state[name], wrong)})
    other.load_state_dict(state)
    for action in ([1, 2, 3, 1], [2, 2, 1, 1]):
        before, after = env.step(action)[0], other.step(action)[0]
        for name in SENSORS:
            assert torch.equal(before[name], after[name]), name


def test_an_observation_does_not_depend_on_the_other(house):
    """A rollout may read "ego_map", "waypoint", or both in turn."""
    env = NavEnv([house], 4, "cpu", sensors=SENSORS)
    env.reset(seed=3)
    both = env.step([2, 2, 2, 2])[0]
    for name in ("ego_map", "waypoint", "ego_map"):
        out = {name: torch.zeros_like(both[name])}
        env.observe_into(out)
        env.observe()
        assert torch.equal(out[name], both[name])
    env.observe_into(None)
    alone = NavEnv([house], 4, "cpu", sensors=("waypoint",))
    alone.reset(seed=3)
    assert torch.equal(alone.step([2, 2, 2, 2])[0]["waypoint"], both["waypoint"])


SIMULATE = """
import pickle, sys
import numpy as np, torch
from batchnav.mapping.mapper import map_cuda
from batchnav.mapping.mapper import Schedule
from batchnav.mapping.shortest_path import SearchBuffers
from batchnav.mapping.state import Agents, MapCameras, MappingParameters, MapState

with open(sys.argv[1], "rb") as file:
    calls = pickle.load(file)
for depth, cameras, agents, parameters, before, after, waypoint, ego_map in calls:
    state, found = MapState(*(array.copy() for array in before)), (np.zeros_like(waypoint), np.zeros_like(ego_map))
    search = SearchBuffers(*(tensor.numpy() for tensor in SearchBuffers.empty(2, torch.device("cpu"))))
    read = MapCameras(*cameras), Agents(*agents), MappingParameters(*parameters)
    schedule = Schedule(*(tensor.numpy() for tensor in Schedule.empty(len(waypoint), torch.device('cpu'))))
    map_cuda[2, 16](depth, *read, schedule, search, state, *found)
    for array, expected in zip((*state, *found), (*after, waypoint, ego_map), strict=True):
        np.testing.assert_allclose(array, expected, atol=1e-6)
print(len(calls), "calls")
"""


def test_blocks_of_threads_equal_one_thread(house, tmp_path, monkeypatch):
    """The CUDA kernel in numba's simulator, with two blocks of sixteen threads, against the CPU kernel."""
    calls, map_cpu = [], mapper.map_cpu

    def recorded(depth, cameras, agents, parameters, search, state, waypoint, ego_map):
        read = [tuple(np.array(value) for value in part) for part in (cameras, agents, parameters, state)]
        map_cpu(depth, cameras, agents, parameters, search, state, waypoint, ego_map)
        after = tuple(array.copy() for array in state)
        calls.append((depth.copy(), *read, after, waypoint.copy(), ego_map.copy()))

    monkeypatch.setattr(mapper, "map_cpu", recorded)
    env = NavEnv([house], 4, "cpu", sensors=SENSORS, height=20, width=20, anticipation="occupancy")
    follow_waypoints(env, 9)
    with (tmp_path / "calls.pkl").open("wb") as file:
        pickle.dump([calls[0], calls[9]], file)
    simulated = subprocess.run(
        [sys.executable, "-c", SIMULATE, str(tmp_path / "calls.pkl")], text=True, capture_output=True, check=False,
        env={**os.environ, "NUMBA_ENABLE_CUDASIM": "1", "NUMBA_DISABLE_JIT": "1"}, cwd=ROOT,
    )  # fmt: skip
    assert simulated.stdout == "2 calls\n", simulated.stderr


TAKE = """
import numpy as np, torch
from numba import cuda
from batchnav.mapping.mapper import LONG, Schedule, end_agent, end_block, take_agent


@cuda.jit
def play(lengths, schedule, order):
    taken = cuda.shared.array(1, np.int32)
    lane = cuda.threadIdx.x
    i = take_agent(lane, taken, schedule)
    while i >= 0:
        if lane == 0:
            order[cuda.atomic.add(order, len(order) - 1, 1)] = i
        end_agent(lane, i, lengths[i], schedule)
        cuda.syncthreads()
        i = take_agent(lane, taken, schedule)
    end_block(lane, cuda.gridDim.x, schedule)


schedule, n = Schedule(*(tensor.numpy() for tensor in Schedule.empty(6, torch.device("cpu")))), 6
for long in ([], [4], [4, 1], [], [5, 0], [0]):
    order = np.zeros(n + 1, np.int32)
    play[2, 4](np.array([LONG if i in long else LONG - 1 for i in range(n)]), schedule, order)
    print(*order[:n])
"""


def test_agents_with_long_searches_come_first():
    """Two blocks of four threads in numba's simulator, which runs one block after the other."""
    simulated = subprocess.run(
        [sys.executable, "-c", TAKE], text=True, capture_output=True, check=False, cwd=ROOT,
        env={**os.environ, "NUMBA_ENABLE_CUDASIM": "1", "NUMBA_DISABLE_JIT": "1"},
    )  # fmt: skip
    expected = "0 1 2 3 4 5", "0 1 2 3 4 5", "4 0 1 2 3 5", "4 1 0 2 3 5", "0 1 2 3 4 5", "0 5 1 2 3 4"
    assert simulated.stdout.split("\n")[:-1] == [*expected], simulated.stderr


@pytest.mark.cuda
def test_cuda_maps_as_the_cpu_does(house):
    """Depth images agree to rounding only, so a few cells differ, and the waypoints that depend on them."""
    on = {device: NavEnv(SceneBank.pack([house], device), 64, sensors=SENSORS) for device in ("cpu", "cuda")}
    for env in on.values():
        env.reset(seed=7)
    generator = torch.Generator().manual_seed(0)
    waypoints, images = [], []
    for _ in range(60):
        action = torch.randint(1, 4, (64,), generator=generator)
        seen = {device: env.step(action.to(env.device))[0] for device, env in on.items()}
        waypoints.append((seen["cuda"]["waypoint"].cpu() - seen["cpu"]["waypoint"]).abs())
        images.append((seen["cuda"]["ego_map"].cpu() - seen["cpu"]["ego_map"]).abs() > 0.01)
    state, other = (on[device].mapper.map_state for device in ("cpu", "cuda"))
    torch.testing.assert_close(other.origin_and_resolution.cpu(), state.origin_and_resolution, rtol=0, atol=1e-4)
    for name in ("occupancy", "explored", "quadrants"):
        assert (getattr(state, name) != getattr(other, name).cpu()).float().mean() < 1e-3, name
    assert (torch.stack(waypoints) < 1e-3).float().mean() > 0.97
    assert torch.stack(images).float().mean() < 2e-3


def test_the_kernel_compiles_for_the_gpu(compile_ptx):
    given, depth, waypoint = kernel_arguments(), np.zeros((1, 8, 8), np.float32), np.zeros((1, 2), np.float32)
    records = (given[name] for name in ("cameras", "agents", "parameters", "schedule", "search", "state"))
    check_ptx(compile_ptx(map_cuda, *map(typeof, (depth, *records, waypoint, np.zeros((1, 1, 8, 8), np.float32)))))


def test_specs_and_errors(house):
    assert [spec.name for spec in specs_of(NavConfig(sensors=SENSORS))] == [*SENSORS, "pointgoal"]
    env = NavEnv([house], 2, "cpu", sensors=SENSORS)
    assert env.specs == specs_of(NavConfig(sensors=SENSORS))
    assert env.single_observation_space["ego_map"].shape == MAP_SPECS["ego_map"].shape
    with pytest.raises(
        ConfigError, match="'waypoint', expected it only with the task objectnav, or pointnav and gps_compass=True"
    ):
        NavEnv([house], 2, "cpu", task="explore", sensors=("waypoint",))
    with pytest.raises(ConfigError, match="'waypoint', expected it"):
        NavEnv([house], 2, "cpu", sensors=("waypoint",), gps_compass=False)
    with pytest.raises(ConfigError, match=r"'maps', expected some of depth.*ego_map, waypoint.*heading"):
        batchnav.PointNavEnv([house], 2, "cpu", sensors=("maps",))
    explorer = NavEnv([house], 8, "cpu", task="explore", sensors=("ego_map",))
    observation, _ = explorer.reset()
    shown = set((observation["ego_map"] * 10).int().unique().tolist())
    assert {0, 1, 2, 3} <= shown and 5 not in shown, "without a goal there is a map but no path"


def test_a_search_succeeds_where_rounding_moved_the_goal_to_another_cell(house):
    """The kept path then ends next to the goal, and every path may be longer than it."""
    env = NavEnv([house], 4, "cpu", sensors=SENSORS)
    expected = follow_waypoints(env, 5)[-1]["waypoint"][:, 0]
    state = env.mapper.map_state
    for i in range(4):
        length = int(state.path_length[i]) - 1
        state.cost_to_go[i, :length] -= state.cost_to_go[i, length - 1].clone()
        state.cost_to_go[i, : length - 1] += 1  # the path is not kept
        state.path_length[i] = length
    found = env.observe()["waypoint"][:, 0]
    torch.testing.assert_close(found, expected, rtol=0, atol=1e-4)
