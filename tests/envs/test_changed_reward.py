"""Environments in wrappers, of batchnav and of Gymnasium, for the learner."""

import copy

import gymnasium
import pytest
import torch
from networks import policy_config

from batchnav.cartpole.env import CartPoleEnv
from batchnav.envs.wrapper import Wrapper
from batchnav.errors import ArgumentError
from batchnav.learning import PPO, PPOConfig
from batchnav.policy.actor_critic import ActorCritic

N = 4


class Doubled(Wrapper):
    """batchnav's wrapper."""

    def step(self, actions):
        observation, reward, *rest = self.env.step(actions)
        return observation, 2.0 * reward, *rest


class Closer(gymnasium.vector.VectorWrapper):
    """Gymnasium's wrapper."""

    def step(self, actions):
        observation, reward, *rest = self.env.step(actions)
        return observation, 2.0 * reward, *rest


def learner_of(env):
    torch.manual_seed(0)
    policy = ActorCritic(env.single_observation_space, env.single_action_space, policy_config(hidden_size=8, layers=0))
    return PPO(policy, env, PPOConfig(num_envs=N, rollout_steps=8, total_frames=64, optimizer="adamw"))


def test_wrappers_of_both_kinds_train_alike_and_resume():
    learners = [learner_of(kind(CartPoleEnv(N, seed=0))) for kind in (Doubled, Closer)]
    rows = [learner.update(0.0).read() for learner in learners]
    assert rows[0]["reward"] == rows[1]["reward"] == 2.0
    torch.testing.assert_close(*(learner.policy.state_dict() for learner in learners), rtol=0.0, atol=0.0)
    other = learner_of(Closer(CartPoleEnv(N, seed=5)))
    other.load_state_dict(copy.deepcopy(learners[1].state_dict()))
    for learner in (other, learners[1]):
        learner.update(0.5)
    torch.testing.assert_close(other.policy.state_dict(), learners[1].policy.state_dict(), rtol=0.0, atol=0.0)


def test_a_wrapper_has_all_members_of_the_environment():
    inside = CartPoleEnv(N)
    env = Doubled(Doubled(inside))
    assert env.action_space == inside.action_space and env.observation_space == inside.observation_space
    assert env.metadata == inside.metadata
    with pytest.raises(AttributeError, match="nothing_of_this_name"):
        env.nothing_of_this_name  # noqa: B018


def test_wrappers_of_both_kinds_surround_each_other():
    row = learner_of(Doubled(Closer(CartPoleEnv(N, seed=0)))).update(0.0).read()
    assert row["reward"] == 4.0


def test_other_environments_are_refused():
    env = gymnasium.make_vec("CartPole-v1", N, vectorization_mode="sync")
    with pytest.raises(ArgumentError, match=r"SyncVectorEnv, expected a batchnav\.types\.VecEnv"):
        Doubled(env)
    with pytest.raises(ArgumentError, match=r"SyncVectorEnv, expected a batchnav\.types\.VecEnv.*FromGymnasium"):
        learner_of(env)
