"""Adapters to and from Stable-Baselines3: equal steps, and ends of episodes."""

import types
import warnings

import gymnasium
import numpy as np
import pytest
import torch
from worlds import write_floor

import batchnav
from batchnav.cartpole.env import CartPoleEnv
from batchnav.envs.adapters.gymnasium_vector import FromGymnasium
from batchnav.errors import ArgumentError
from tests.envs.adapters.counters import ours

NAV = "batchnav/PointNav-v0"


@pytest.fixture
def adapters():
    pytest.importorskip("stable_baselines3")
    from batchnav.envs.adapters import stable_baselines3

    return stable_baselines3


def test_from_stable_baselines3(adapters):
    """The third step ends every episode: by truncation or, for a cart off the track, by termination."""
    from stable_baselines3.common.vec_env import DummyVecEnv

    make = [lambda: gymnasium.make("CartPole-v1", max_episode_steps=3)] * 2
    inner, twin = DummyVecEnv(make), DummyVecEnv(make)
    env = FromGymnasium(adapters.GymnasiumFromSB3(inner))
    twin.seed(4)
    assert np.array_equal(env.reset(seed=4)[0].numpy(), twin.reset())
    actions = torch.tensor([0, 1])
    for t in range(3):
        if t == 2:
            for each in (inner, twin):
                each.envs[1].unwrapped.state = (3.0, 0.0, 0.0, 0.0)
        observation, reward, terminated, truncated, info = env.step(actions)
        expected, expected_reward, ended, infos = twin.step(actions.numpy())
        assert np.array_equal(observation.numpy(), expected) and np.array_equal(reward.numpy(), expected_reward)
        assert info["_episode"].tolist() == ended.tolist() == [t == 2] * 2
    assert terminated.tolist() == [False, True] and truncated.tolist() == [True, False]
    assert info["episode"]["steps"].tolist() == [3.0, 3.0]
    for i in range(2):
        assert np.array_equal(info["final_obs"][i].numpy(), infos[i]["terminal_observation"])
    env.close()


def test_to_stable_baselines3(adapters):
    """Compares with a second environment: equal steps, copied, and infos of ended episodes."""
    env, twin = adapters.SB3VecEnv(CartPoleEnv(8, seed=1)), CartPoleEnv(8)
    env.seed(3)
    seen, expected = env.reset(), twin.reset(seed=3)[0]
    kept, draw, ends = [], np.random.default_rng(0), 0
    for _ in range(60):
        kept.append((seen, expected.numpy().copy()))
        actions = draw.integers(0, 2, 8)
        seen, reward, ended, infos = env.step(actions)
        expected, expected_reward, terminated, truncated, info = twin.step(torch.from_numpy(actions))
        assert np.array_equal(reward, expected_reward.numpy()) and reward.dtype == np.float32
        assert np.array_equal(ended, (terminated | truncated).numpy())
        for i in range(8):
            assert set(infos[i]) == ({"episode", "terminal_observation", "TimeLimit.truncated"} if ended[i] else set())
        for i in ended.nonzero()[0]:
            assert infos[i]["episode"]["r"] == infos[i]["episode"]["l"] == info["episode"]["steps"][i]
            assert np.array_equal(infos[i]["terminal_observation"], info["final_obs"][i].numpy())
            assert infos[i]["TimeLimit.truncated"] is False
            ends += 1
    assert ends > 5
    for mine, theirs in kept:
        assert np.array_equal(mine, theirs), "an observation was written to"


def test_dicts_and_truncation(adapters):
    """An episode of two steps is truncated, one of three steps terminates."""
    env = adapters.SB3VecEnv(ours(2, 3))
    env.reset()
    told = [env.step(np.array([1, 2]))[3] for _ in range(3)]
    assert told[1][0]["TimeLimit.truncated"] and not told[2][1]["TimeLimit.truncated"]
    assert told[1][0]["terminal_observation"]["count"] == 2.0 and told[1][1] == {}
    assert told[2][1]["episode"]["r"] == 6.0
    env = adapters.SB3VecEnv(ours(2, 3, final=False))
    env.reset()
    _, _, ended, infos = [env.step(np.array([0, 0])) for _ in range(2)][-1]
    assert ended.tolist() == [True, False] and "TimeLimit.truncated" not in infos[0]


def test_evaluation_and_images(adapters, tmp_path):
    """Metrics need no `Monitor`, and give no warning; `render` gives one image."""
    from stable_baselines3.common.evaluation import evaluate_policy

    floor = batchnav.load_scene(write_floor(tmp_path / "floor.ply"))
    options = {"scenes": [floor], "device": "cpu", "seed": 0, "height": 16, "width": 16, "max_steps": 4}
    env = adapters.SB3VecEnv(gymnasium.make_vec(NAV, num_envs=4, render_mode="rgb_array", **options))
    stop = types.SimpleNamespace(predict=lambda seen, state, **_: (np.zeros(4, int), state))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        returns, lengths = evaluate_policy(stop, env, n_eval_episodes=8, return_episode_rewards=True)
    assert lengths == [1] * 8 and len(returns) == 8
    picture, whole = env.get_images()[0], env.render()
    assert env.render_mode == "rgb_array" and whole.shape == (2 * picture.shape[0], 2 * picture.shape[1], 3)


def test_single_environments_are_refused(adapters):
    env = adapters.SB3VecEnv(ours(2, 3))
    assert env.get_attr("num_envs", 1) == [2] and env.env_is_wrapped(gymnasium.Wrapper) == [False, False]
    with pytest.raises(ArgumentError, match="set_attr"):
        env.set_attr("length", 4)
    with pytest.raises(ArgumentError, match="env_method"):
        env.env_method("reset", indices=[0])
    env.close()
    with pytest.raises(ArgumentError, match="closed"):
        env.reset()


def test_continuous_actions_of_sac(adapters, tmp_path):
    from stable_baselines3 import SAC

    scene = batchnav.load_scene(str(write_floor(tmp_path / "floor.ply")))
    inner = batchnav.PointNavEnv([scene], 2, "cpu", height=8, width=8, control="velocity", final_observation=True)
    env = adapters.SB3VecEnv(inner)
    model = SAC("MultiInputPolicy", env, learning_starts=4, buffer_size=50, batch_size=4)
    model.learn(12)
    action, _ = model.predict(env.reset(), deterministic=True)
    assert action.shape == (2, 2) and action.dtype == np.float32
    assert env.env_method("settle") == [None, None]


def test_a_method_of_the_batch_is_called_once(adapters):
    env = adapters.SB3VecEnv(CartPoleEnv(3))
    calls = []
    env.env.mark = lambda value: calls.append(value) or len(calls)
    assert env.env_method("mark", "x") == [1, 1, 1] and calls == ["x"]
