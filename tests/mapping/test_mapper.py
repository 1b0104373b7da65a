"""Maps and waypoints: closed forms in a room, path costs, both devices, resuming, and errors."""

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
from numba import types as nb
from walks import SENSORS, check_path_costs, reached_by, towards, walk

import batchnav
from batchnav.data.scenes import find_scene
from batchnav.envs.config import NavConfig
from batchnav.envs.nav import NavEnv
from batchnav.envs.observations import specs_of
from batchnav.errors import CheckpointError, ConfigError
from batchnav.mapping import mapper
from batchnav.mapping.costs import COST_UNITS
from batchnav.mapping.mapper import map_cuda
from batchnav.mapping.observations import MAP_SPECS
from batchnav.mapping.shortest_path import SearchBuffers
from batchnav.mapping.state import OCCUPIED, SIDE, Agents, MapCameras, MappingParameters, MapState
from batchnav.scene.bank import SceneBank
from batchnav.sim.bodies import LEFT

ROOT = Path(__file__).parents[2]
PIXEL = 0.25


@pytest.fixture(scope="module")
def house():
    return find_scene("house:3")


def test_lengths_are_those_of_another_search(house):
    env = NavEnv([house], 12, "cpu", sensors=SENSORS)
    assert check_path_costs(env, walk(env, 10)[-1]["waypoint"][:, 0].numpy()) >= 3


def test_guesses_lengthen_ways_as_much_as_in_another_search(house):
    env = NavEnv([house], 6, "cpu", sensors=SENSORS, anticipation="occupancy")
    walk(env, 12)
    state = env.mapper.map_state
    told = env.observe()["waypoint"][:, 0].numpy()
    added = state.predicted_cost * (state.explored == 0)
    assert (added > 0).any(1).all()
    assert check_path_costs(env, told, added.view(-1, SIDE, SIDE).numpy().astype(int)) >= 2


def test_a_way_is_found_however_much_longer_it_has_become(house):
    """Walls of several thicknesses come up around the agents: the bounds of the first searches are all too near."""
    env = NavEnv([house], 3, "cpu", sensors=SENSORS)
    walk(env, 5)
    state, r = env.mapper.map_state, torch.arange(SIDE)
    for i, (u, v) in enumerate(
        (env.sim.bodies.position[:, [0, 2]] - state.origin_and_resolution[:, :2]) / state.origin_and_resolution[:, 2:]
    ):
        away = torch.maximum((r[:, None] - v.int()).abs(), (r[None] - u.int()).abs())
        state.occupancy[i][((away > 3) & (away < 5 + i)).flatten()] = OCCUPIED
    check_path_costs(env, env.step([LEFT] * 3)[0]["waypoint"][:, 0].numpy())
    through = 10_000 * COST_UNITS  # ten times an obstacle's toll, for each on the way
    assert (state.expected_cost > through * torch.tensor([1, 2, 3])).all()


@pytest.mark.plain
def test_no_index_is_out_of_range(house):
    env = NavEnv([house], 2, "cpu", sensors=SENSORS, height=16, width=16)
    check_path_costs(env, walk(env, 2)[-1]["waypoint"][:, 0].numpy())


def test_a_way_that_is_kept_is_the_one_that_a_search_finds(house):
    """Two agents with the same actions, of which one forgets its way: all that both are told is the same."""
    keeps, forgets = (NavEnv([house], 1, "cpu", sensors=SENSORS) for _ in range(2))
    observation, kept, marker = keeps.reset(seed=5)[0], 0, -7
    forgets.reset(seed=5)
    for _ in range(200):
        action = towards(observation["waypoint"][:, 1])
        for env in (keeps, forgets):
            env.mapper._search.cost_to_go.fill_(marker)  # which a search clears
        forgets.mapper.map_state.path_length.zero_()
        observation, searched = (env.step(action)[0] for env in (keeps, forgets))
        for name in SENSORS:
            assert torch.equal(observation[name], searched[name]), name
        kept += int((keeps.mapper._search.cost_to_go == marker).all())
        assert not (forgets.mapper._search.cost_to_go == marker).all()
    assert kept > 60, "hardly a way was kept"


def test_an_open_room_is_crossed_straight_and_drawn_as_it_is():
    """On a bare floor the plan is the goal sensor's, and the picture has the way from the middle to the goal."""
    env = NavEnv([find_scene("house:3")], 8, "cpu", sensors=SENSORS, max_depth=0.05)
    observation, _ = env.reset(seed=1)
    assert not env.mapper.map_state.occupancy.any()
    torch.testing.assert_close(observation["waypoint"], observation["pointgoal"], atol=0.3, rtol=0.0)
    for picture, (rho, angle) in zip(observation["ego_map"][:, 0], observation["pointgoal"].tolist(), strict=True):
        middle = picture.shape[0] / 2
        row, column = middle - rho * math.cos(angle) / PIXEL, middle - rho * math.sin(angle) / PIXEL
        if min(row, column) > 1 and max(row, column) < picture.shape[0] - 1:
            around = picture[int(row) - 1 : int(row) + 2, int(column) - 1 : int(column) + 2]
            assert ((around * 10).int() == 6).any(), "the goal is not where it lies"
            assert ((picture * 10).int() == 5).any(), "there is no way"


def test_walls_stand_where_the_navmesh_ends(house):
    """Few obstacles are cells in whose middle an agent could stand: a hit may lie in a corner of such a one."""
    env = NavEnv([house], 8, "cpu", sensors=SENSORS)
    walk(env, 60)
    obstacles, navigable = mapped_obstacles(env, house)
    assert obstacles > 500 and navigable / obstacles < 0.2


def test_following_it_succeeds_where_the_goals_direction_alone_does_not(house):
    """Episodes that end by being near the goal, of agents that go where the sensor points."""
    env = NavEnv([house], 32, "cpu", sensors=SENSORS, max_steps=200)
    reached = {name: reached_by(env, name, 2) for name in ("waypoint", "pointgoal")}
    assert reached["waypoint"] > 0.85 > 0.7 > reached["pointgoal"], reached


def test_an_episode_begins_with_an_empty_map(house):
    env = NavEnv([house], 4, "cpu", sensors=SENSORS, max_steps=30)
    for observation in walk(env, 30)[-1:]:
        assert (env.sim.bodies.steps == 0).all()
        fresh = {name: value.clone() for name, value in observation.items()}
    again = NavEnv([house], 4, "cpu", sensors=SENSORS, max_steps=30)
    again.reset(seed=5)
    again.load_state_dict(env.state_dict())
    again.mapper.map_state.episode.fill_(-1)  # forgets
    for name, value in again.observe().items():
        assert torch.equal(value, fresh[name]), name


def test_a_reset_forgets_maps_of_episodes_with_the_same_number(house):
    env = NavEnv([house], 4, "cpu", sensors=SENSORS)
    first = {name: value.clone() for name, value in env.reset(seed=1)[0].items()}
    walk(env, 10)
    for name, value in env.reset(seed=1)[0].items():
        assert torch.equal(value, first[name]), name


def test_resuming_goes_on_with_the_map(house):
    env, other = (NavEnv([house], 4, "cpu", sensors=SENSORS) for _ in range(2))
    walk(env, 25)
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


def test_what_is_asked_for_alone_is_the_same(house):
    """A rollout may read one of the two, or both in turn."""
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
from batchnav.mapping.shortest_path import SearchBuffers
from batchnav.mapping.state import Agents, MapCameras, MappingParameters, MapState

with open(sys.argv[1], "rb") as file:
    calls = pickle.load(file)
for depth, cameras, agents, parameters, before, after, waypoint, ego_map in calls:
    state, found = MapState(*(array.copy() for array in before)), (np.zeros_like(waypoint), np.zeros_like(ego_map))
    search = SearchBuffers(*(tensor.numpy() for tensor in SearchBuffers.empty(2, torch.device("cpu"))))
    read = MapCameras(*cameras), Agents(*agents), MappingParameters(*parameters)
    map_cuda[2, 16](depth, *read, search, state, *found)
    for array, expected in zip((*state, *found), (*after, waypoint, ego_map), strict=True):
        np.testing.assert_allclose(array, expected, atol=1e-6)
print(len(calls), "calls")
"""


def test_blocks_of_threads_tell_what_one_does(house, tmp_path, monkeypatch):
    """The kernel for CUDA in numba's simulator, two blocks of sixteen threads, beside the CPU's."""
    calls, map_cpu = [], mapper.map_cpu

    def recorded(depth, cameras, agents, rows, parameters, search, state, waypoint, ego_map):
        read = [tuple(np.array(value) for value in part) for part in (cameras, agents, parameters, state)]
        map_cpu(depth, cameras, agents, rows, parameters, search, state, waypoint, ego_map)
        after = tuple(array.copy() for array in state)
        calls.append((depth.copy(), *read, after, waypoint.copy(), ego_map.copy()))

    monkeypatch.setattr(mapper, "map_cpu", recorded)
    walk(NavEnv([house], 4, "cpu", sensors=SENSORS, height=20, width=20, anticipation="occupancy"), 9)
    with (tmp_path / "calls.pkl").open("wb") as file:
        pickle.dump([calls[0], calls[9]], file)
    simulated = subprocess.run(
        [sys.executable, "-c", SIMULATE, str(tmp_path / "calls.pkl")], text=True, capture_output=True, check=False,
        env={**os.environ, "NUMBA_ENABLE_CUDASIM": "1", "NUMBA_DISABLE_JIT": "1"}, cwd=ROOT,
    )  # fmt: skip
    assert simulated.stdout == "2 calls\n", simulated.stderr


@pytest.mark.cuda
def test_both_devices_tell_the_same(house):
    """But for images, which agree to rounding: a few cells, and what follows of them."""
    on = {device: NavEnv(SceneBank.pack([house], device), 64, sensors=SENSORS) for device in ("cpu", "cuda")}
    for env in on.values():
        env.reset(seed=7)
    generator = torch.Generator().manual_seed(0)
    plans, maps = [], []
    for _ in range(60):
        action = torch.randint(1, 4, (64,), generator=generator)
        seen = {device: env.step(action.to(env.device))[0] for device, env in on.items()}
        plans.append((seen["cuda"]["waypoint"].cpu() - seen["cpu"]["waypoint"]).abs())
        maps.append((seen["cuda"]["ego_map"].cpu() - seen["cpu"]["ego_map"]).abs() > 0.01)
    state, other = (on[device].mapper.map_state for device in ("cpu", "cuda"))
    torch.testing.assert_close(other.origin_and_resolution.cpu(), state.origin_and_resolution, rtol=0, atol=1e-4)
    for name in ("occupancy", "explored"):
        assert (getattr(state, name) != getattr(other, name).cpu()).float().mean() < 1e-3, name
    assert (torch.stack(plans) < 1e-3).float().mean() > 0.97
    assert torch.stack(maps).float().mean() < 2e-3


def test_it_compiles_for_the_gpu(compile_ptx):
    def array(kind, dimensions):
        return nb.Array(kind, dimensions, "C")

    def fields(kind, *arrays):
        return nb.NamedTuple(arrays, kind)

    f32, i32, u8 = nb.float32, nb.int32, nb.uint8
    vectors, scalars = array(f32, 2), array(f32, 1)
    grids = array(i32, 2)
    state = fields(
        MapState, *[array(i32, 1)] * 2, grids, grids, array(i32, 1), vectors, *[array(u8, 2)] * 2, vectors,
        scalars, *[array(i32, 1)] * 3, array(u8, 2),
    )  # fmt: skip
    ptx = compile_ptx(
        map_cuda, array(f32, 3), fields(MapCameras, vectors, *[scalars] * 3, vectors),
        fields(Agents, vectors, scalars, *[array(i32, 1)] * 2, vectors), fields(MappingParameters, *[f32] * 6),
        fields(SearchBuffers, *[grids] * 4), state, vectors, array(f32, 4),
    )  # fmt: skip
    assert all(word in ptx for word in ("global.min.s32", "atom.global.or.b32", "atom.global.add.u32", "bar.sync"))
    assert not any(
        "f64" in line.split("\t")[1] for line in ptx.splitlines() if line.startswith("\t") and "\t" in line[1:]
    )


def test_specs_and_what_is_refused(house):
    assert [spec.name for spec in specs_of(NavConfig(sensors=SENSORS))] == [*SENSORS, "pointgoal"]
    env = NavEnv([house], 2, "cpu", sensors=SENSORS)
    assert env.specs == specs_of(NavConfig(sensors=SENSORS))
    assert env.single_observation_space["ego_map"].shape == MAP_SPECS["ego_map"].shape
    with pytest.raises(ConfigError, match="'waypoint', expected it with the task pointnav and gps_compass alone"):
        NavEnv([house], 2, "cpu", task="explore", sensors=("waypoint",))
    with pytest.raises(ConfigError, match="'waypoint', expected it"):
        NavEnv([house], 2, "cpu", sensors=("waypoint",), gps_compass=False)
    with pytest.raises(ConfigError, match=r"'maps', expected some of depth.*heading, ego_map, waypoint"):
        batchnav.PointNavEnv([house], 2, "cpu", sensors=("maps",))
    explorer = NavEnv([house], 8, "cpu", task="explore", sensors=("ego_map",))
    observation, _ = explorer.reset()
    shown = set((observation["ego_map"] * 10).int().unique().tolist())
    assert {0, 1, 2, 3} <= shown and 5 not in shown, "without a goal there is a map, and no way"


def test_a_search_ends_where_the_last_way_ends_beside_the_goal(house):
    """The goal's cell can change by rounding; then no way may be as short as the last one is today."""
    env = NavEnv([house], 4, "cpu", sensors=SENSORS)
    told = walk(env, 5)[-1]["waypoint"][:, 0]
    state = env.mapper.map_state
    for i in range(4):
        length = int(state.path_length[i]) - 1
        state.cost_to_go[i, :length] -= state.cost_to_go[i, length - 1].clone()
        state.cost_to_go[i, : length - 1] += 1  # so that it is not kept
        state.path_length[i] = length
    again = env.observe()["waypoint"][:, 0]
    torch.testing.assert_close(again, told, rtol=0, atol=1e-4)
