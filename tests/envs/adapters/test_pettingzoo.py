"""Adapter to PettingZoo: its own test, and what happens to robots whose episode has ended."""

import numpy as np
import pytest

from batchnav.envs.nav import NavEnv
from batchnav.errors import ArgumentError
from tests.tasks.rooms import make_room

pettingzoo = pytest.importorskip("pettingzoo")

OPTIONS = {"agents_per_world": 3, "sensors": (), "max_steps": 40}


@pytest.fixture
def env():
    from batchnav.envs.adapters.pettingzoo import PettingZooEnv

    return PettingZooEnv(NavEnv([make_room(wall=True)], 3, "cpu", autoreset_mode="Disabled", **OPTIONS))


def test_pettingzoo_accepts_it(env):
    from pettingzoo.test import parallel_api_test

    parallel_api_test(env, num_cycles=100)


def test_robots_leave_one_by_one(env):
    observations, infos = env.reset(seed=3)
    assert set(observations) == set(infos) == {"robot_0", "robot_1", "robot_2"}
    assert observations["robot_1"]["pointgoal"].dtype == np.float32
    forward, stop = 1, 0
    _, rewards, terminated, truncated, infos = env.step({"robot_0": forward, "robot_1": stop, "robot_2": forward})
    assert terminated == {"robot_0": False, "robot_1": True, "robot_2": False} and not any(truncated.values())
    assert "success" in infos["robot_1"]["episode"] and infos["robot_0"] == {}
    assert env.agents == ["robot_0", "robot_2"] and len(rewards) == 3
    for _ in range(39):
        observations, _, _, truncated, _ = env.step(dict.fromkeys(env.agents, 2))
    assert truncated == {"robot_0": True, "robot_2": True} and env.agents == []
    assert set(env.reset()[0]) == {"robot_0", "robot_1", "robot_2"}


def test_other_environments_are_refused():
    from batchnav.envs.adapters.pettingzoo import PettingZooEnv

    for options, message in (({"num_envs": 6}, "6 robots, 3 in a world"), ({"num_envs": 3}, "SAME_STEP")):
        with pytest.raises(ArgumentError, match=message):
            PettingZooEnv(NavEnv([make_room(wall=True)], device="cpu", **options, **OPTIONS))
