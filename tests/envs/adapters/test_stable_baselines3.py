"""Stable-Baselines3's vector environments as Gymnasium's, by a stand-in with its interface."""

import gymnasium
import numpy as np
import torch

from batchnav.envs.adapters.gymnasium_vector import FromGymnasium
from batchnav.envs.adapters.stable_baselines3 import GymnasiumFromSB3


class StandIn:
    """CartPole as `DummyVecEnv` gives it: one flag for an end, all else in a list of infos. Three steps at most."""

    def __init__(self, num_envs):
        self.envs = [gymnasium.make("CartPole-v1", max_episode_steps=3) for _ in range(num_envs)]
        self.num_envs, self.closed, self.seeds = num_envs, False, [None] * num_envs
        self.observation_space, self.action_space = self.envs[0].observation_space, self.envs[0].action_space

    def seed(self, seed):
        self.seeds = [seed + i for i in range(self.num_envs)]

    def reset(self):
        found = [env.reset(seed=seed)[0] for env, seed in zip(self.envs, self.seeds, strict=True)]
        self.seeds = [None] * self.num_envs
        return np.stack(found)

    def step(self, actions):
        rows = []
        for env, action in zip(self.envs, actions, strict=True):
            obs, reward, terminated, truncated, info = env.step(action)
            info["TimeLimit.truncated"] = truncated and not terminated
            if terminated or truncated:
                info["terminal_observation"] = obs
                obs, _ = env.reset()
            rows.append((obs, reward, terminated or truncated, info))
        obs, reward, ended, infos = zip(*rows, strict=True)
        return np.stack(obs), np.array(reward, np.float32), np.array(ended), infos

    def close(self):
        self.closed = True


def test_steps_and_ends():
    """The third step ends every episode: out of time, or, for a cart put off the track, by failure."""
    inner, twin = StandIn(2), StandIn(2)
    env = FromGymnasium(GymnasiumFromSB3(inner))
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
    assert inner.closed
