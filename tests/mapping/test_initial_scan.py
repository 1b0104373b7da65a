"""Agents that look around first: how far they turn, what they know then, when they guess, both devices, resuming."""

import math

import pytest
import torch
from walks import SENSORS

import batchnav
from batchnav.agents.registry import make_reference_agent
from batchnav.data.scenes import find_scene
from batchnav.envs.nav import NavEnv
from batchnav.errors import CheckpointError, ConfigError
from batchnav.mapping.state import PREDICTION_INTERVAL
from batchnav.scene.bank import SceneBank
from batchnav.sim.bodies import LEFT, RIGHT
from batchnav.sim.velocity import VelocityConfig

TOLD = math.pi / 2
"""The angle of who is to turn to the left."""


@pytest.fixture(scope="module")
def house():
    return find_scene("house:3")


def make(house, n=4, device="cpu", **settings):
    bank = SceneBank.pack([house], device)
    return NavEnv(bank, n, **{"sensors": SENSORS, "look_around": True, "closest_goal": 3.0, **settings})


def looking(observation):
    return observation["waypoint"][:, 1] == TOLD


def until_looked(env):
    """Steps to the left until nobody is told to turn, and the last observation."""
    observation, _ = env.reset(seed=0)
    for steps in range(200):
        if not looking(observation).any():
            return steps, observation
        observation, *_ = env.step([LEFT] * env.num_envs)
    raise AssertionError("told to turn for ever")


@pytest.mark.parametrize(("hfov", "turn", "turns"), [(90.0, 10.0, 27), (120.0, 10.0, 24), (60.0, 30.0, 10)])
def test_it_turns_until_its_camera_has_seen_all_around(house, hfov, turn, turns):
    env = make(house, hfov_deg=hfov, turn_angle_deg=turn)
    steps, observation = until_looked(env)
    assert steps in (turns, turns + 1), "one more where what is left is a rounding"
    state, goal = env.mapper.map_state, observation["pointgoal"]
    assert (state.path_length > 0).all() and (observation["waypoint"][:, 0] >= goal[:, 0] - 0.3).all(), (
        "no way was planned"
    )
    plain = make(house, hfov_deg=hfov, turn_angle_deg=turn, look_around=False)
    plain.reset(seed=0)
    for _ in range(steps):
        seen, *_ = plain.step([LEFT] * 4)
    assert torch.equal(seen["waypoint"], observation["waypoint"]) and torch.equal(
        seen["ego_map"], observation["ego_map"]
    )
    assert not looking(seen).any() and not (plain.mapper.map_state.remaining_scan > 0).any()


def test_it_has_no_way_before(house):
    env = make(house)
    observation, _ = env.reset(seed=0)
    assert looking(observation).all() and (env.mapper.map_state.path_length == 0).all()
    assert torch.equal(observation["waypoint"][:, 0], observation["pointgoal"][:, 0])


def test_turns_to_the_right_are_to_be_turned_back(house):
    env = make(house)
    env.reset(seed=0)
    before = env.mapper.map_state.remaining_scan.clone()
    for action in (RIGHT, RIGHT, LEFT, LEFT):
        env.step([action] * 4)
    torch.testing.assert_close(env.mapper.map_state.remaining_scan, before)


@pytest.mark.parametrize("settings", [{"control": "velocity", "velocity": VelocityConfig()}, {"actuation_noise": 1.0}])
def test_headings_that_begin_anew_are_no_turn(house, settings):
    """Where headings stay within half a turn to either side, one step passes from one end to the other."""
    env = make(house, n=16, max_steps=100, **settings)
    agent, observation = make_reference_agent("map_planner", env), env.reset(seed=0)[0]
    agent.reset(16)
    starts, steps = torch.ones(16, dtype=torch.bool), 0
    while looking(observation).any():
        observation, *_ = env.step(agent.act(observation, starts))
        steps += 1
        assert steps < 40
    assert steps > 20


def test_every_episode_begins_so(house):
    env = make(house, max_steps=30)
    until_looked(env)
    for _ in range(4):
        observation, *_ = env.step([LEFT] * 4)
    assert looking(observation).all()


@pytest.mark.parametrize("turn", [10.0, 30.0])
def test_its_first_plan_has_a_guess(house, turn):
    env = make(house, anticipation="occupancy", turn_angle_deg=turn)
    steps, _ = until_looked(env)
    state = env.mapper.map_state
    assert (
        (state.predicted_at >= steps - 2).all()
        and (state.predicted_at <= steps).all()
        and (state.predicted_cost > 0).any(1).all()
    )
    first = state.predicted_at.clone()
    for _ in range(PREDICTION_INTERVAL):
        env.step([RIGHT] * 4)
    assert ((state.predicted_at == first) | (state.predicted_at == first + PREDICTION_INTERVAL)).all()


def test_resuming_goes_on_looking(house):
    env, again = make(house), make(house)
    env.reset(seed=0)
    for _ in range(9):
        env.step([LEFT] * 4)
    again.reset(seed=1)
    again.load_state_dict(env.state_dict())
    for _ in range(25):
        assert torch.equal(env.step([LEFT] * 4)[0]["waypoint"], again.step([LEFT] * 4)[0]["waypoint"])
    with pytest.raises(CheckpointError, match="map_remaining_scan"):
        again.load_state_dict({**env.state_dict(), "map_remaining_scan": torch.full((4,), -1.0)})
    plain = make(house, look_around=False)
    plain.reset(seed=0)
    assert "map_remaining_scan" not in plain.state_dict()


def test_an_agent_without_a_plan_cannot(house):
    for sensors in (("depth",), ("depth", "ego_map")):
        found = f"look_around: found True with sensors {', '.join(sensors)}, expected waypoint among them"
        with pytest.raises(ConfigError, match=found):
            batchnav.PointNavEnv([house], 2, "cpu", sensors=sensors, look_around=True)


@pytest.mark.cuda
def test_both_devices_look_alike(house):
    on = {device: make(house, 64, device, anticipation="occupancy") for device in ("cpu", "cuda")}
    for env in on.values():
        env.reset(seed=7)
    told = []
    for _ in range(40):
        told.append([env.step([LEFT] * 64)[0]["waypoint"].cpu() for env in on.values()])
    for name in ("remaining_scan", "predicted_at"):
        values = [getattr(env.mapper.map_state, name).cpu() for env in on.values()]
        torch.testing.assert_close(*values)
    plans, others = (torch.stack(part) for part in zip(*told, strict=True))
    assert ((plans - others).abs() < 0.05).float().mean() > 0.95, "guesses are in bfloat16 on CUDA"
