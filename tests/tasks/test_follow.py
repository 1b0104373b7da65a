"""Follow: metrics and rewards by their formulas, the person's observation, ends of an episode, the reference agent."""

import math

import pytest
import torch

from batchnav.agents.registry import agent_config
from batchnav.envs.config import PRESETS
from batchnav.envs.nav import NavEnv
from batchnav.sim.bodies import FORWARD, LEFT, RIGHT, STOP
from tests.tasks.rooms import make_room, metrics_of, walker_episode


@pytest.fixture(scope="module")
def room():
    return make_room(wall=False)


def make(room, person, robot, walks_to=None, heading=0.0, **options):
    """A robot, and a person that stands or walks, at (x, z). The person has its path after the first step."""
    episode = walker_episode(room, person, [walks_to or person], robot, heading)
    return NavEnv([room], 1, "cpu", task="follow", episodes=[episode], sensors=(), at_last_waypoint="stand", **options)


def run(env, actions):
    """Rewards of the steps, the metrics after the last, and whether it ended the episode: (terminated, truncated)."""
    env.reset()
    rewards = []
    for action in actions:
        _, reward, terminated, truncated, info = env.step(torch.tensor([action]))
        rewards.append(float(reward[0]))
    metrics = {name: float(value[0]) for name, value in info["episode"].items()}
    return rewards, metrics, (bool(terminated[0]), bool(truncated[0]))


@pytest.mark.slow
def test_an_agent_that_stands_and_looks_at_a_person_follows(room):
    rewards, metrics, ended = run(make(room, (3.0, 3.0), (3.0, 4.5), max_steps=5), [STOP] * 5)
    assert rewards == pytest.approx([3.0] * 5, abs=1e-3)  # 2 for the distance, and 1 for the direction
    assert ended == (False, True)
    assert metrics["found"] == metrics["finding_spl"] == metrics["following_rate"] == 1.0
    assert metrics["human_collision"] == 0.0 and metrics["distance_to_person"] == pytest.approx(1.5, abs=0.01)


@pytest.mark.parametrize(("heading", "found"), [(math.radians(50), 1.0), (math.radians(70), 0.0), (math.pi, 0.0)])
def test_the_person_must_be_within_60_degrees(room, heading, found):
    rewards, metrics, _ = run(make(room, (3.0, 3.0), (3.0, 4.5), heading=heading), [STOP] * 2)
    assert rewards == pytest.approx([2.0 + math.cos(heading)] * 2, abs=1e-2)
    assert metrics["found"] == found
    assert metrics["following_rate"] == pytest.approx(2 * found / 499, abs=1e-5)


def test_finding_is_weighted_by_the_fewest_steps(room):
    """The person is 3.9 m ahead: 8 steps of 0.25 m lead to 2 m from it."""
    rewards, metrics, _ = run(make(room, (3.0, 1.5), (3.0, 5.4)), [FORWARD] * 8)
    assert metrics["found"] == metrics["finding_spl"] == 1.0
    assert rewards[1:3] == pytest.approx([0.25] * 2, abs=1e-3) and rewards[3] == pytest.approx(1.25, abs=1e-3)
    _, metrics, _ = run(make(room, (3.0, 1.5), (3.0, 5.4)), [LEFT, RIGHT] + [FORWARD] * 8)
    assert metrics["finding_spl"] == pytest.approx(8 / 10, abs=1e-4)
    assert metrics["following_rate"] == pytest.approx(1 / (500 - 8), abs=1e-5)


def test_coming_too_near_is_no_progress(room):
    rewards, metrics, _ = run(make(room, (3.0, 3.0), (3.0, 4.1)), [FORWARD] * 2)
    assert rewards == pytest.approx([1.0, 0.75], abs=5e-2) and metrics["found"] == 0.0  # 0.85 m, 0.6 m: -0.25


@pytest.mark.parametrize("rule", ["any", "caused", "never"])
def test_a_person_that_walks_into_the_agent_ends_the_episode_by_the_rule(room, rule):
    env = make(room, (3.0, 1.0), (3.0, 3.5), walks_to=(3.0, 5.5), human_collision_ends=rule, max_steps=24)
    env.reset()
    for _ in range(24):
        _, _, terminated, truncated, info = env.step(torch.tensor([STOP]))
        if terminated[0] or truncated[0]:
            break
    assert bool(terminated[0]) == (rule == "any")
    assert info["episode"]["human_collision"].tolist() == [1.0]
    assert info["episode"]["robot_on_person"].tolist() == [0.0]


def test_agents_observe_the_person(room):
    env = make(room, (3.0, 3.0), (3.0, 4.5))
    observation, _ = env.reset()
    assert observation["person"][0].tolist() == pytest.approx([1.5, 0.0], abs=1e-2)
    observation, *_ = env.step(torch.tensor([LEFT]))
    assert observation["person"][0].tolist() == pytest.approx([1.5, -math.radians(10)], abs=1e-2)
    assert "person" not in make(room, (3.0, 3.0), (3.0, 4.5), person_gps=False).single_observation_space.spaces


def test_nobody_is_found_where_nobody_is(room):
    env = NavEnv([room], 2, "cpu", task="follow", sensors=(), seed=1)
    observation, _ = env.reset()
    assert not observation["person"].any()
    *_, info = env.step(torch.tensor([STOP, FORWARD]))
    assert not info["episode"]["found"].any() and not info["episode"]["return"].any()


def test_sampled_episodes_start_on_the_floor():
    """Robots and people; tasks without people start on the bed too, whose island has a radius of more than 1.5 m."""
    room = make_room(wall=False, bed=True)
    env = NavEnv([room], 128, "cpu", task="follow", sensors=(), people=(1, 1), seed=1)
    env.reset()
    people = env.sim.world.bodies.position[:, 0, 1]
    assert (env.sim.bodies.position[:, 1] < 0.3).all() and (people < 0.3).all() and len(people) == 128
    flee = NavEnv([room], 128, "cpu", task="flee", sensors=(), seed=1)
    flee.reset()
    assert 0 < (flee.sim.bodies.position[:, 1] > 0.3).sum() < 64


def test_the_reference_agent_finds_and_follows(room):
    config = agent_config("follower", PRESETS["follow_houses"])
    env = NavEnv([room], 16, "cpu", task="follow", config=config, max_steps=100, seed=2)
    ended = metrics_of("follower", env, 100, ("found", "following_rate"))
    found, rate = ended.mean(0)
    assert len(ended) >= 16 and found > 0.9 and rate > 0.2
