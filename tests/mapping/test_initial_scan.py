"""Initial scan: rotation, map and first prediction after it, resuming, errors, CPU against CUDA."""

import math

import pytest
import torch
from map_helpers import SENSORS

import batchnav
from batchnav.agents.registry import make_reference_agent
from batchnav.data.scenes.load import load_scene
from batchnav.envs.nav import NavEnv
from batchnav.errors import CheckpointError, ConfigError
from batchnav.mapping.state import PREDICTION_INTERVAL
from batchnav.scene.bank import SceneBank
from batchnav.sim.bodies import LEFT, RIGHT, VelocityConfig

SCAN_BEARING = math.pi / 2
"""Bearing of the waypoint during the scan: a quarter turn to the left."""


@pytest.fixture(scope="module")
def house():
    return load_scene("house:3")


def make(house, n=4, device="cpu", **settings):
    bank = SceneBank.pack([house], device)
    return NavEnv(bank, n, **{"sensors": SENSORS, "initial_scan": True, "closest_goal": 3.0, **settings})


def is_scanning(observation):
    """bool [N]: True during the initial scan."""
    return observation["waypoint"][:, 1] == SCAN_BEARING


def finish_scan(env):
    """Number of left turns until all scans are finished, and the last observation."""
    observation, _ = env.reset(seed=0)
    for steps in range(200):
        if not is_scanning(observation).any():
            return steps, observation
        observation, *_ = env.step([LEFT] * env.num_envs)
    raise AssertionError("the scan does not end")


@pytest.mark.parametrize(("hfov", "turn", "turns"), [(90.0, 10.0, 27), (120.0, 10.0, 24), (60.0, 30.0, 10)])
def test_the_scan_ends_when_the_camera_has_seen_360_degrees(house, hfov, turn, turns):
    env = make(house, hfov_deg=hfov, turn_angle_deg=turn)
    steps, observation = finish_scan(env)
    assert steps in (turns, turns + 1), "rounding may take one turn more"
    state, goal = env.mapper.map_state, observation["pointgoal"]
    assert (state.path_length > 0).all() and (observation["waypoint"][:, 0] >= goal[:, 0] - 0.3).all()
    plain = make(house, hfov_deg=hfov, turn_angle_deg=turn, initial_scan=False)
    plain.reset(seed=0)
    for _ in range(steps):
        seen, *_ = plain.step([LEFT] * 4)
    assert all(torch.equal(seen[name], observation[name]) for name in ("waypoint", "ego_map"))
    assert not is_scanning(seen).any() and not (plain.mapper.map_state.remaining_scan > 0).any()


def test_there_is_no_path_during_the_scan(house):
    env = make(house)
    observation, _ = env.reset(seed=0)
    assert is_scanning(observation).all() and (env.mapper.map_state.path_length == 0).all()
    assert torch.equal(observation["waypoint"][:, 0], observation["pointgoal"][:, 0])


def test_turns_to_the_right_lengthen_the_scan(house):
    env = make(house)
    env.reset(seed=0)
    before = env.mapper.map_state.remaining_scan.clone()
    for action in (RIGHT, RIGHT, LEFT, LEFT):
        env.step([action] * 4)
    torch.testing.assert_close(env.mapper.map_state.remaining_scan, before)


@pytest.mark.parametrize("settings", [{"control": "velocity", "velocity": VelocityConfig()}, {"actuation_noise": 1.0}])
def test_headings_that_wrap_around_are_no_turn(house, settings):
    """Headings within -pi to pi jump by a full turn in one step; the scan does not."""
    env = make(house, n=16, max_steps=100, **settings)
    agent, observation = make_reference_agent("map_planner", env), env.reset(seed=0)[0]
    agent.reset(16)
    starts, steps = torch.ones(16, dtype=torch.bool), 0
    while is_scanning(observation).any():
        observation, *_ = env.step(agent.act(observation, starts))
        steps += 1
        assert steps < 40
    assert steps > 20


def test_every_episode_begins_with_a_scan(house):
    env = make(house, max_steps=30)
    finish_scan(env)
    for _ in range(4):
        observation, *_ = env.step([LEFT] * 4)
    assert is_scanning(observation).all()


@pytest.mark.parametrize("turn", [10.0, 30.0])
def test_the_first_path_after_a_scan_has_a_prediction(house, turn):
    env = make(house, anticipation="occupancy", turn_angle_deg=turn)
    steps, _ = finish_scan(env)
    state = env.mapper.map_state
    assert ((state.predicted_at >= steps - 2) & (state.predicted_at <= steps)).all()
    assert (state.predicted_cost > 0).any(1).all()
    first = state.predicted_at.clone()
    for _ in range(PREDICTION_INTERVAL):
        env.step([RIGHT] * 4)
    assert ((state.predicted_at == first) | (state.predicted_at == first + PREDICTION_INTERVAL)).all()


def test_a_resumed_run_continues_the_scan(house):
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
    plain = make(house, initial_scan=False)
    plain.reset(seed=0)
    assert "map_remaining_scan" not in plain.state_dict()


def test_a_scan_without_waypoint_is_refused(house):
    for sensors in (("depth",), ("depth", "ego_map")):
        found = f"initial_scan: found True with sensors {', '.join(sensors)}, expected waypoint among them"
        with pytest.raises(ConfigError, match=found):
            batchnav.PointNavEnv([house], 2, "cpu", sensors=sensors, initial_scan=True)


@pytest.mark.cuda
def test_cuda_scans_as_the_cpu_does(house):
    on = {device: make(house, 64, device, anticipation="occupancy") for device in ("cpu", "cuda")}
    for env in on.values():
        env.reset(seed=7)
    waypoints = []
    for _ in range(40):
        waypoints.append([env.step([LEFT] * 64)[0]["waypoint"].cpu() for env in on.values()])
    for name in ("remaining_scan", "predicted_at"):
        values = [getattr(env.mapper.map_state, name).cpu() for env in on.values()]
        torch.testing.assert_close(*values)
    on_cpu, on_cuda = (torch.stack(part) for part in zip(*waypoints, strict=True))
    assert ((on_cpu - on_cuda).abs() < 0.05).float().mean() > 0.95, "predictions are in bfloat16 on CUDA"
