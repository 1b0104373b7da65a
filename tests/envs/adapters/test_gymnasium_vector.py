"""Gymnasium's vector environments as `VecEnv`: equal steps, ends of episodes, and refused arguments."""

import dataclasses
import math

import gymnasium
import numpy as np
import pytest
import torch
from gymnasium import spaces
from gymnasium.vector import AutoresetMode, SyncVectorEnv
from networks import policy_config

from batchnav.envs.adapters.gymnasium_vector import FromGymnasium
from batchnav.errors import ArgumentError, CheckpointError
from batchnav.learning import PPO, PPOConfig
from batchnav.policy.actor_critic import ActorCritic
from batchnav.types import VecEnv
from tests.envs.adapters.counters import counters

SAME_STEP = AutoresetMode.SAME_STEP


def carts(num_envs=4, mode=SAME_STEP, **options):
    return SyncVectorEnv([lambda: gymnasium.make("CartPole-v1")] * num_envs, autoreset_mode=mode, **options)


class Batched(gymnasium.vector.VectorEnv):
    """A vector environment with episodes of two steps that returns final observations as one array, or none."""

    metadata = {"autoreset_mode": SAME_STEP}  # noqa: RUF012

    def __init__(self, final=True):
        self.num_envs, self.final, self.steps = 2, final, 0
        self.single_observation_space, self.single_action_space = spaces.Box(-9, 9, (1,)), spaces.Discrete(2)
        self.observation_space, self.action_space = spaces.Box(-9, 9, (2, 1)), spaces.MultiDiscrete([2, 2])
        self.buffer = np.zeros((2, 1), np.float32)

    def reset(self, *, seed=None, options=None):
        self.steps = 0
        return self.buffer, {}

    def step(self, actions):
        self.steps += 1
        self.buffer += 1
        ended = np.full(2, self.steps % 2 == 0)
        info = {"final_obs": self.buffer + 5.0, "_final_obs": ended} if self.final and ended.any() else {}
        return self.buffer, np.ones(2), ended, np.zeros(2, bool), info


def test_steps_equal_the_environments():
    """Compares with a second environment: observations, rewards, flags, final observations, returns and lengths."""
    env, twin = FromGymnasium(carts()), carts()
    seen, expected = env.reset(seed=3)[0], twin.reset(seed=3)[0]
    assert seen.dtype == torch.float32 and np.array_equal(seen.numpy(), expected)
    lengths, ends = np.zeros(4), 0
    for t in range(120):
        actions = torch.randint(0, 2, (4,), generator=torch.Generator().manual_seed(t))
        seen, reward, terminated, truncated, info = env.step(actions)
        expected, *rest, expected_info = twin.step(actions.numpy())
        assert np.array_equal(seen.numpy(), expected) and reward.dtype == torch.float32
        for mine, theirs in zip((reward, terminated, truncated), rest, strict=True):
            assert np.array_equal(mine.numpy(), theirs)
        lengths += 1
        ended = (terminated | truncated).numpy()
        assert np.array_equal(info["_episode"].numpy(), ended) and np.array_equal(info["_final_obs"].numpy(), ended)
        for name in ("return", "steps"):
            assert np.array_equal(info["episode"][name].numpy()[ended], lengths[ended])
        for i in ended.nonzero()[0]:
            assert np.array_equal(info["final_obs"][i].numpy(), expected_info["final_obs"][i])
        lengths[ended] = 0
        ends += ended.sum()
    assert ends > 10


def test_dict_observations():
    """Bytes stay bytes and float64 becomes float32; one episode terminates, one is truncated."""
    env = FromGymnasium(counters(2, 3))
    assert env.storage == {"image": torch.uint8, "count": torch.float32}
    observation, _ = env.reset()
    assert {name: value.dtype for name, value in observation.items()} == env.storage
    actions, found = torch.tensor([1, 2]), []
    for _ in range(3):
        observation, _, terminated, truncated, info = env.step(actions)
        found.append((observation["count"].flatten().tolist(), terminated.tolist(), truncated.tolist()))
        final, ended = info["final_obs"], info["_final_obs"]
        assert torch.equal(final["count"][:, 0].byte(), final["image"][:, 0, 0, 0])
        assert torch.equal(final["count"][ended, 0], info["episode"]["steps"][ended])
        assert torch.equal(info["episode"]["return"], info["episode"]["steps"] * actions)
    assert found == [
        ([1.0, 1.0], [False, False], [False, False]),
        ([0.0, 2.0], [False, False], [True, False]),
        ([1.0, 0.0], [False, True], [False, False]),
    ]


def test_final_observations_as_one_array_and_buffers_used_again():
    env = FromGymnasium(Batched())
    first = env.reset()[0]
    actions = torch.tensor([0, 1])
    second, *_, info = env.step(actions)
    assert not info["_final_obs"].any() and torch.equal(info["final_obs"], second)
    *_, info = env.step(actions)
    assert info["final_obs"].flatten().tolist() == [7.0, 7.0] and info["_final_obs"].all()
    assert not first.any() and second.flatten().tolist() == [1.0, 1.0]


def test_an_end_without_its_final_observation_is_refused():
    env = FromGymnasium(Batched(final=False))
    env.reset()
    env.step(torch.tensor([0, 1]))
    with pytest.raises(ArgumentError, match="no 'final_obs' of environment 0"):
        env.step(torch.tensor([0, 1]))


@pytest.mark.parametrize("mode", [AutoresetMode.NEXT_STEP, AutoresetMode.DISABLED])
def test_other_autoreset_modes_are_refused(mode):
    with pytest.raises(ArgumentError, match=f"found autoreset mode {mode.name}, expected SAME_STEP"):
        FromGymnasium(carts(mode=mode))


def test_an_environment_without_a_mode_is_refused():
    env = carts()
    del env.metadata["autoreset_mode"]
    with pytest.raises(ArgumentError, match="found autoreset mode None"):
        FromGymnasium(env)


@pytest.mark.parametrize(
    ("observations", "actions", "named"),
    [
        (spaces.Discrete(3), spaces.Discrete(2), "Discrete"),
        (spaces.Dict({"a": spaces.Dict({"b": spaces.Box(0, 1)})}), spaces.Discrete(2), "'a'"),
        (spaces.Tuple([spaces.Box(0, 1)]), spaces.Discrete(2), "Tuple"),
        (spaces.Box(0, 1), spaces.Box(-1, 1), "action space"),
        (spaces.Box(0, 1), spaces.MultiDiscrete([2, 2]), "action space"),
        (spaces.Box(0, 1), spaces.Discrete(2, start=1), "action space"),
    ],
)
def test_other_spaces_are_refused(observations, actions, named):
    env = Batched()
    env.single_observation_space, env.single_action_space = observations, actions
    with pytest.raises(ArgumentError, match=named):
        FromGymnasium(env)


@pytest.mark.parametrize("env", [None, gymnasium.make("CartPole-v1")])
def test_other_types_are_refused(env):
    with pytest.raises(ArgumentError, match=r"expected a gymnasium\.vector\.VectorEnv"):
        FromGymnasium(env)


@pytest.mark.parametrize(
    "actions",
    [None, np.zeros(2, np.int64), torch.zeros(2), torch.zeros(3, dtype=torch.int64), torch.tensor([0, 2]),
     torch.tensor([-1, 0])],
)  # fmt: skip
def test_bad_actions(actions):
    env = FromGymnasium(Batched())
    env.reset()
    with pytest.raises(ArgumentError, match="actions"):
        env.step(actions)


def test_a_step_before_the_first_reset_is_refused():
    with pytest.raises(ArgumentError, match="step: found an environment that was never reset"):
        FromGymnasium(carts(2)).step(torch.tensor([0, 1]))


def test_an_observation_of_another_shape_is_refused():
    inner = Batched()
    env = FromGymnasium(inner)
    inner.buffer = np.zeros((2, 3), np.float32)
    with pytest.raises(ArgumentError, match=r"observation 'observation': found shape \[2, 3\], expected \[2, 1\]"):
        env.reset()


def test_all_members_work_until_close():
    members = VecEnv.__annotations__.keys() | {name for name in vars(VecEnv) if not name.startswith("_")}
    inner = carts()
    env = FromGymnasium(inner)
    assert not [name for name in members if not hasattr(env, name)]
    assert env.between_rollouts() == {} and not env.capturable and env.device == torch.device("cpu")
    for call in (env.state_dict, lambda: env.load_state_dict({})):
        with pytest.raises(CheckpointError, match="SyncVectorEnv"):
            call()
    env.close()
    assert inner.closed
    calls = [
        env.reset, lambda: env.step(torch.zeros(4, dtype=torch.int64)), lambda: env.observe_into(None), env.settle,
        env.between_rollouts,
    ]  # fmt: skip
    for call in calls:
        with pytest.raises(ArgumentError, match="closed"):
            call()


def test_the_learner_learns_from_it():
    """Two updates of CartPole; reported returns are those of the ended episodes."""
    env = FromGymnasium(carts(8))
    torch.manual_seed(0)
    policy = ActorCritic(env.single_observation_space, env.single_action_space, policy_config(layers=0, hidden_size=16))
    before = [p.clone() for p in policy.parameters()]
    config = dataclasses.replace(PPOConfig(num_envs=8, rollout_steps=64, minibatches=2), timeout_bootstrap=True)
    learner = PPO(policy, env, config, seed=1)
    for _ in range(2):
        stats = learner.update(0.1).read()
    assert math.isfinite(stats["loss/loss"]) and 8 < stats["episode/return"] == stats["episode/steps"] < 100
    assert not all(torch.equal(p, q) for p, q in zip(policy.parameters(), before, strict=True))
