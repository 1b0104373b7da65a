"""Maps of an agent in another simulator, beside those of the environment."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from gymnasium import spaces
from networks import policy_config

from batchnav.config import to_dict
from batchnav.data.scenes.load import load_scene
from batchnav.envs.config import NavConfig
from batchnav.envs.nav import NavEnv
from batchnav.errors import ArgumentError, ConfigError
from batchnav.habitat.agent import HabitatAgent, HabitatMapper
from batchnav.policy.actor_critic import ActorCritic
from batchnav.policy.agent import PolicyAgent
from batchnav.sensors.camera import CameraConfig
from batchnav.sim.bodies import BodyConfig
from batchnav.tasks.pointnav import PointNavConfig

BOTH = frozenset({"ego_map", "waypoint"})


def policy(sensors, **changes):
    """One that is not trained, for sensors of a small camera."""
    config = replace(NavConfig(sensors=sensors), **changes)
    shapes = {"depth": (1, 64, 64), "ego_map": (1, 48, 48), "waypoint": (2,), "pointgoal": (2,)}
    names = (*sensors, "pointgoal")
    space = spaces.Dict({name: spaces.Box(-np.inf, np.inf, shapes[name]) for name in names})
    torch.manual_seed(0)
    network = ActorCritic(space, spaces.Discrete(4), policy_config(base_width=4, visual_size=8, hidden_size=8))
    return PolicyAgent(network, {"env": to_dict(config)})


@pytest.mark.parametrize("told", ["turns", "compass"])
def test_plans_are_the_environments_but_for_the_cells(told):
    """A map that lies otherwise has other cells: nine tenths of the plans differ by less than a tenth."""
    env = NavEnv([load_scene("house:3")], 1, "cpu", seed=3, sensors=("depth", "waypoint"))
    generator, longer, turned, ran_into = torch.Generator().manual_seed(0), [], [], []
    for _ in range(3):
        seen, _ = env.reset()
        own = HabitatMapper(BOTH, env.config)
        own.reset()
        start = float(env.sim.bodies.heading[0])
        for _ in range(60):
            compass = float(env.sim.bodies.heading[0]) - start if told == "compass" else None
            found = own.observe(seen["depth"][0], seen["pointgoal"][0], compass)
            longer.append(float(found["waypoint"][0, 0] / seen["waypoint"][0, 0]))
            apart = found["waypoint"][0, 1] - seen["waypoint"][0, 1]
            turned.append(abs(float(torch.atan2(torch.sin(apart), torch.cos(apart)))))
            angle = seen["waypoint"][0, 1]
            action = 1 if abs(angle) < 0.1 else 2 if angle > 0 else 3
            if torch.rand(1, generator=generator) < 0.2:
                action = int(torch.randint(1, 4, (1,), generator=generator))
            if told == "turns":
                own.move(action)
            seen, *_ = env.step(torch.tensor([action]))
        if told == "turns":  # what it ran into is seen by how far it came
            own.observe(seen["depth"][0], seen["pointgoal"][0], None)
            ran_into.append(own.collisions)
            assert ran_into[-1] == int(env.sim.bodies.collisions[0])
    assert np.mean(np.abs(np.array(longer) - 1.0) < 0.1) > 0.9
    assert told == "compass" or sum(ran_into) > 0
    assert np.median(turned) < 0.1 and np.mean(turned) < 0.2
    assert found["ego_map"].shape == (1, 1, 48, 48) and 0.0 < found["ego_map"].min() < found["ego_map"].max() < 1.0


def test_the_agent_for_habitat_plans_by_itself():
    agent, draw = HabitatAgent(policy(("depth", "waypoint")), deterministic=True), np.random.default_rng(0)
    seen = {"depth": np.full((64, 64, 1), 0.4, np.float32), "pointgoal_with_gps_compass": np.float32([3.0, 0.2])}
    acts = []
    for _ in range(2):
        agent.reset()
        acts.append([agent.act(seen)["action"] for _ in range(5)])
    assert acts[0] == acts[1]  # `reset` forgets
    agent.act({**seen, "depth": draw.random((64, 64, 1), np.float32), "compass": np.float32([0.3])})
    with pytest.raises(ArgumentError, match="observations: found depth, expected also 'pointgoal_with_gps_compass'"):
        agent.act({"depth": seen["depth"]})


def test_it_plans_for_the_camera_that_it_is_told_of():
    """A floor as a camera at 0.5 m sees it; to one at 1.25 m it would be in the air, and bar the way."""
    trained = replace(CameraConfig(), camera_height_range=(0.3, 1.6), hfov_range_deg=(60.0, 120.0))
    rows = np.float32((2 * np.arange(64) + 1 - 64) / 64)[:, None, None]  # of a field of view of 90 degrees
    down = np.where(rows > 0, 0.5 / np.maximum(rows, 1e-6), 10.0).clip(0.0, 10.0)
    depth = np.float32(np.broadcast_to(down / 10.0, (64, 64, 1)))
    seen = {"depth": depth, "pointgoal_with_gps_compass": np.float32([5.0, 0.0])}
    ways = {}
    for height, hfov_deg in ((0.5, 90.0), (None, 90.0), (0.5, None)):
        agent = HabitatAgent(policy(("depth", "waypoint"), camera=trained), camera_height=height, hfov_deg=hfov_deg)
        assert agent.config.camera == CameraConfig(camera_height=height or 1.25)
        agent.reset()
        agent.act(seen)
        ways[height, hfov_deg] = float(agent._mapper._mapper._mapper.waypoint[0, 0])
    assert ways[0.5, 90.0] == ways[0.5, None] == pytest.approx(5.0, abs=0.3) and ways[None, 90.0] > 7.0
    with pytest.raises(ConfigError, match=r"camera_height: found 11\.0, expected 0 to 10"):
        HabitatAgent(policy(("depth",)), camera_height=11.0)


def test_what_it_cannot_map_for_is_refused():
    with pytest.raises(ArgumentError, match="found the sensors ego_map in a task without GPS and compass, expected"):
        HabitatAgent(policy(("depth", "ego_map"), task=PointNavConfig(gps_compass=False)))
    noisy = HabitatMapper(BOTH, replace(NavConfig(sensors=("depth", "waypoint")), body=BodyConfig(actuation_noise=1.0)))
    with pytest.raises(ArgumentError, match="found no 'compass', expected one"):
        noisy.observe(torch.ones(1, 64, 64), torch.tensor([1.0, 0.0]), None)
    exact = HabitatMapper(BOTH, NavConfig(sensors=("depth", "waypoint")))
    with pytest.raises(ArgumentError, match=r"depth: found torch.float32 \[1, 32, 64\].*, expected .* \[1, 64, 64\]"):
        exact.observe(torch.ones(1, 32, 64), torch.tensor([1.0, 0.0]), None)
    blind = HabitatAgent(policy(("waypoint",)))  # which maps what it does not read
    blind.reset()
    metres = {"depth": np.full((64, 64, 1), 4.0, np.float32), "pointgoal_with_gps_compass": np.float32([3.0, 0.2])}
    with pytest.raises(ArgumentError, match="depth: found 4, expected 0 to 1"):
        blind.act(metres)
