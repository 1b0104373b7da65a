"""Reference agents by name: their environments and experts."""

from dataclasses import replace

import pytest
import torch
from worlds import write_floor

from batchnav import load_policy, load_scene
from batchnav.agents import REFERENCE_NAMES
from batchnav.agents.registry import (
    EXPERT_STOP_RATIO,
    EXPERTS,
    REFERENCE_AGENTS,
    agent_config,
    check_expert,
    make_expert,
    make_reference_agent,
)
from batchnav.envs.config import NavConfig, config_of
from batchnav.envs.nav import NavEnv
from batchnav.errors import ArgumentError, ConfigError
from batchnav.mapping.config import MapConfig
from batchnav.runtime.bundled import POLICIES
from batchnav.sim.bodies import BodyConfig
from batchnav.tasks import TASKS

BUNDLED = sorted(folder.name for folder in POLICIES.glob("pointnav_*"))
CONFIGS = {name: NavConfig(task=TASKS[name].Config()) for name in ("pointnav", "flee", "explore")}
WITH_MAP = NavConfig(sensors=("depth", "waypoint"), map=MapConfig(anticipation="occupancy", initial_scan=True))


@pytest.fixture(scope="module")
def scene(tmp_path_factory):
    return load_scene(write_floor(tmp_path_factory.mktemp("scene") / "floor.ply"))


@pytest.fixture(scope="module")
def configs():
    return CONFIGS | {name: config_of(load_policy(name).info) for name in BUNDLED}


def agents_of(config):
    return TASKS[config.task_name].reference_agents


@pytest.mark.parametrize("name", [*CONFIGS, *BUNDLED])
def test_every_agent_of_the_task_acts_in_its_environment(scene, configs, name):
    config = configs[name]
    for agent in agents_of(config):
        own = agent_config(agent, config)
        assert own.body == config.body and own.camera == config.camera and own.task == config.task
        env = NavEnv([scene], 2, "cpu", task=own.task_name, config=own, seed=0)
        assert set(REFERENCE_AGENTS[agent].observations) <= set(env.single_observation_space.keys())
        made = make_reference_agent(agent, env)
        made.reset(2)
        if not REFERENCE_AGENTS[agent].needs_images:
            observations, _ = env.reset()
            actions = made.act(observations, torch.ones(2, dtype=torch.bool))
            assert actions.shape == (2,) and actions.dtype == torch.int64
        env.close()


def test_tasks_name_only_agents_of_the_registry():
    for task in TASKS.values():
        assert set(task.reference_agents) <= REFERENCE_AGENTS.keys()


def test_an_unknown_agent_is_named():
    with pytest.raises(ArgumentError, match="agent: found 'best', expected one of random, forward"):
        agent_config("best", NavConfig())


def test_an_agent_of_other_tasks_is_refused(scene):
    env = NavEnv([scene], 1, "cpu", task="explore", sensors=(), seed=0)
    with pytest.raises(ArgumentError, match="agent: found 'shortest_path' with the task explore, expected one of rand"):
        make_reference_agent("shortest_path", env)


def test_an_agent_without_its_observations_is_refused(scene):
    env = NavEnv([scene], 1, "cpu", seed=0)
    with pytest.raises(ArgumentError, match=r"found 'map_planner' in an environment without .* 'waypoint'"):
        make_reference_agent("map_planner", env)


def test_an_expert_stops_before_the_success_distance(scene):
    env = NavEnv([scene], 1, "cpu", sensors=(), seed=0)
    assert make_expert("greedy", env).radius == pytest.approx(0.2 * EXPERT_STOP_RATIO)
    assert make_reference_agent("greedy", env).radius == pytest.approx(0.2)


def test_the_names_of_reference_agents():
    assert tuple(REFERENCE_AGENTS) == REFERENCE_NAMES


def test_any_agent_whose_actions_depend_on_the_state_can_be_an_expert():
    assert set(EXPERTS) == REFERENCE_AGENTS.keys() - {"random"}
    for task, config in CONFIGS.items():
        for name in set(EXPERTS) & set(TASKS[task].reference_agents) - {"map_planner", "map_planner_anticipation"}:
            check_expert(name, config)
    check_expert("map_planner", WITH_MAP)
    check_expert("map_planner_anticipation", WITH_MAP)


@pytest.mark.parametrize(
    ("name", "config", "message"),
    [
        ("random", CONFIGS["pointnav"], "expert: found 'random', expected one of forward, greedy"),
        ("greedy", CONFIGS["flee"], "expert: found 'greedy' with the task flee, expected '', forward, shortest_path"),
        ("map_planner", CONFIGS["pointnav"], "with sensors depth, expected 'waypoint' among them"),
        ("map_planner_anticipation", replace(WITH_MAP, map=MapConfig()), "without map.anticipation"),
        ("greedy", NavConfig(body=BodyConfig(control="velocity")), "with velocity control"),
    ],
)
def test_an_expert_that_cannot_act_there_is_refused(name, config, message):
    with pytest.raises(ConfigError, match=message):
        check_expert(name, config)
