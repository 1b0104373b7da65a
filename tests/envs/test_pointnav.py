"""PointNavEnv: episodes, observations, determinism, resuming, and refused arguments."""

import math

import numpy as np
import pytest
import torch

from batchnav.data.scenes.load import load_scene
from batchnav.envs.nav import PointNavEnv
from batchnav.errors import ArgumentError, CheckpointError, ConfigError, EpisodeError
from batchnav.navmesh.navmesh import NavMesh
from batchnav.scene.bank import SceneBank
from batchnav.scene.scene import make_scene
from batchnav.types import TriangleMesh
from tests.navmesh import handmade

N = 6
SILHOUETTES = 0.005
"""Share of pixels of a 16 x 16 image whose ray may pass an edge within rounding."""
ROUNDING = 1e-4
"""Tolerance in metres for float32 positions in a house after a few operations."""


@pytest.fixture(scope="module")
def bank():
    return SceneBank.pack([load_scene("house:3"), load_scene("house:4")], "cpu")


def make(bank, seed=0, **options):
    return PointNavEnv(bank, N, seed=seed, height=16, width=16, **options)


def actions(steps, seed=0, first=1):
    return torch.randint(first, 4, (steps, N), generator=torch.Generator().manual_seed(seed))


def play(env, moves):
    """Copies of all results of each step."""
    seen = []
    for action in moves:
        observation, reward, terminated, truncated, info = env.step(action)
        tensors = (observation["depth"], observation["pointgoal"], reward, terminated, truncated, info["_episode"])
        seen.append([t.clone() for t in tensors])
    return seen


def same(one, other):
    return all(torch.equal(a, b) for x, y in zip(one, other, strict=True) for a, b in zip(x, y, strict=True))


def test_observations_have_their_shapes_and_ranges(bank):
    env = make(bank)
    observation, _ = env.reset()
    assert observation["depth"].shape == (N, 1, 16, 16)
    assert observation["depth"].min() >= 0.0 and observation["depth"].max() <= 1.0
    assert env.single_observation_space["depth"].contains(observation["depth"][0].numpy())
    flat = env.task.state.goal[:, [0, 2]] - env.sim.bodies.position[:, [0, 2]]
    assert torch.allclose(observation["pointgoal"][:, 0], flat.norm(dim=1), atol=ROUNDING)


def test_sampled_episodes_keep_habitats_rules(bank):
    env = make(bank)
    for seed in range(3):
        env.reset(seed=seed)
        position, goals = env.sim.bodies.position, env.task.state
        assert (goals.start_distance >= 1.0).all() and (goals.start_distance <= 30.0).all()
        assert ((position[:, 1] - goals.goal[:, 1]).abs() <= 0.5).all()
        straight = (goals.goal - position).norm(dim=1)
        assert (goals.start_distance >= straight - ROUNDING).all()


def test_a_seed_gives_the_same_run_and_another_seed_another(bank):
    runs = []
    for seed in (5, 5, 6):
        env = make(bank)
        env.reset(seed=seed)
        runs.append(play(env, actions(20, first=0)))
    assert same(runs[0], runs[1]) and not same(runs[0], runs[2])


def test_opengl_gives_equal_trajectories_and_similar_images(bank, opengl):
    runs = []
    for renderer in ("raycast", "opengl"):
        env = make(bank, renderer=renderer)
        env.reset()
        runs.append(play(env, actions(20, first=0)))
    for cast, rasterised in zip(*runs, strict=True):
        assert all(torch.equal(a, b) for a, b in zip(cast[1:], rasterised[1:], strict=True))
        assert ((cast[0] - rasterised[0]).abs() > 1e-3).float().mean() < SILHOUETTES


def test_rewards_sum_to_the_progress_made(bank):
    env = make(bank)
    env.reset()
    before = env.task.state.distance.clone()
    rewards = sum(step[2] for step in play(env, actions(40)))
    expected = before - env.task.state.distance + 40 * env.config.task.slack_reward
    assert torch.allclose(rewards, expected, atol=1e-3)


def test_stop_terminates_and_the_next_episode_begins_at_once(bank):
    env = make(bank)
    env.reset()
    episode = env.sim.bodies.episode.clone()
    move = torch.full((N,), 2)
    move[0] = 0
    _, _, terminated, truncated, info = env.step(move)
    assert terminated.tolist() == [True] + [False] * (N - 1) and not truncated.any()
    assert info["_episode"].tolist() == terminated.tolist()
    assert info["episode"]["steps"][0] == 1 and info["episode"]["success"][0] == 0
    assert (env.sim.bodies.episode - episode).tolist() == [1] + [0] * (N - 1)
    assert env.sim.bodies.steps.tolist() == [0] + [1] * (N - 1)


def test_out_of_steps_truncates_and_does_not_succeed(bank):
    env = make(bank, max_steps=7)
    env.reset()
    seen = play(env, torch.full((7, N), 2))
    assert not any(step[4].any() for step in seen[:-1])
    assert seen[-1][4].all() and not seen[-1][3].any()


def test_stopping_at_the_goal_succeeds_with_spl(bank):
    env = make(bank)
    env.reset()
    bodies, goals = env.sim.bodies, env.task.state
    bodies.position.copy_(goals.goal)
    goals.distance.zero_()
    bodies.path_length.copy_(2 * goals.start_distance)
    _, reward, _, _, info = env.step(torch.zeros(N, dtype=torch.int64))
    assert (info["episode"]["success"] == 1).all()
    assert torch.allclose(info["episode"]["spl"], torch.full((N,), 0.5))
    assert torch.allclose(reward, torch.full((N,), -0.01 + 2.5 * 0.5))


def test_a_full_turn_returns_to_the_same_view(bank):
    env = make(bank)
    first = env.reset()[0]["depth"].clone()
    last = play(env, torch.full((36, N), 2))[-1][0]
    assert (first - last).abs().median() < ROUNDING
    assert torch.allclose(env.sim.bodies.heading - env.sim.bodies.start_heading, torch.tensor(2 * math.pi), atol=1e-5)


def test_resumes_exactly(bank):
    env, moves = make(bank), actions(30, first=0)
    env.reset()
    play(env, moves[:10])
    saved = env.state_dict()
    expected = play(env, moves[10:])
    other = make(bank, seed=99)
    other.reset()
    other.load_state_dict(saved)
    assert same(expected, play(other, moves[10:]))


def test_holes_read_the_configured_value():
    floor = TriangleMesh(
        np.array([[-5, 0, -5], [5, 0, -5], [5, 0, 5], [-5, 0, 5]], np.float32),
        np.array([[0, 2, 1], [0, 3, 2]], np.int32),
    )
    bank = SceneBank.pack([make_scene("floor", floor)], "cpu")
    for hole in (0.0, 1.0):
        depth = make(bank, hole_value=hole).reset()[0]["depth"]
        assert (depth[:, 0, 0] == hole).all()  # the sky


@pytest.mark.parametrize(
    "bad",
    [
        torch.full((N,), 4),
        torch.full((N,), -1),
        torch.zeros(N, dtype=torch.bool),
        torch.zeros(N + 1, dtype=torch.int64),
        torch.zeros(N),
        [0.5] * N,
        ["stop"] * N,
        [[0], [0, 1]],
    ],
)
def test_bad_actions_are_named(bank, bad):
    env = make(bank)
    env.reset()
    with pytest.raises(ArgumentError, match="actions"):
        env.step(bad)


@pytest.mark.parametrize(
    ("options", "error", "word"),
    [
        ({"num_envs": 0}, ArgumentError, "num_envs"),
        ({"num_envs": 2.5}, ArgumentError, "num_envs"),
        ({"heigth": 32}, ConfigError, "heigth"),
        ({"height": 1}, ConfigError, "height"),
        ({"hfov_deg": 180.0}, ConfigError, "hfov_deg"),
        ({"max_steps": 0}, ConfigError, "max_steps"),
        ({"max_depth": float("nan")}, ConfigError, "max_depth"),
        ({"config": "habitat_v9"}, ConfigError, "habitat_v9"),
    ],
)
def test_bad_options_are_named(bank, options, error, word):
    with pytest.raises(error, match=word):
        PointNavEnv(bank, **{"num_envs": N, **options})


def test_a_scene_with_no_episode_is_named(bank):
    with pytest.raises(EpisodeError, match=r"house:.*no episode found in 1000 tries"):
        make(bank, closest_goal=500.0, furthest_goal=501.0)


def test_a_state_of_another_shape_is_refused(bank):
    env = make(bank)
    env.reset()
    state = env.state_dict()
    with pytest.raises(CheckpointError, match="position"):
        env.load_state_dict({**state, "position": state["position"][:2]})
    for name, value in (("scene", 10**6), ("scene", -1), ("heading", float("nan"))):
        bad = state[name].clone()
        bad[1] = value
        with pytest.raises(CheckpointError, match=name):
            env.load_state_dict({**state, name: bad})


# A whole step of an environment, small enough for kernels in plain Python, which check each index

FLOOR = np.array([[0, 0, 0], [8, 0, 0], [8, 0, 4], [0, 0, 4]], np.float32)


@pytest.mark.plain
def test_episodes_begin_and_end():
    """Four agents of 8x8 pixels on a floor without walls: they see the floor below the horizon, and nothing above."""
    mesh = TriangleMesh(FLOOR, np.array([[0, 2, 1], [0, 3, 2]], np.int32))
    scene = make_scene("rooms", mesh, NavMesh(handmade.two_rooms()))
    env = PointNavEnv([scene], num_envs=4, device="cpu", seed=0, height=8, width=8, max_steps=3)
    observation, _ = env.reset()
    for step in range(4):
        observation, reward, terminated, truncated, _ = env.step(torch.tensor([0, 1, 2, 3]))
        assert terminated.tolist() == [True, False, False, False]
        assert truncated.tolist() == [False, *[step == 2] * 3]
        assert torch.isfinite(reward).all() and torch.isfinite(observation["pointgoal"]).all()
        depth = observation["depth"][:, 0]
        assert (depth[:, :4] == 0).all() and (depth[:, 7] > 0).any()
