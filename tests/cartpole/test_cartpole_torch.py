"""The PyTorch form of CartPole steps as the kernels do."""

import pytest
import torch

from batchnav.cartpole.env import CartPoleEnv
from batchnav.cartpole.physics import MAX_STEPS, START_RANGE
from batchnav.cartpole.torch_env import TorchCartPoleEnv
from batchnav.errors import CheckpointError


def test_steps_as_the_kernels_do():
    env, other = CartPoleEnv(500, seed=2), TorchCartPoleEnv(500, seed=2)
    generator = torch.Generator().manual_seed(0)
    for _ in range(60):
        saved = {**other.state_dict(), **env.state_dict()}
        other.load_state_dict(saved)
        actions = torch.randint(0, 2, (500,), generator=generator)
        observation, reward, terminated, truncated, info = env.step(actions)
        found, other_reward, other_terminated, other_truncated, other_info = other.step(actions)
        ended = info["_episode"]
        assert torch.equal(terminated, other_terminated) and torch.equal(truncated, other_truncated)
        assert torch.equal(reward, other_reward) and torch.equal(ended, other_info["_episode"])
        torch.testing.assert_close(found[~ended], observation[~ended], atol=1e-6, rtol=1e-6)
        torch.testing.assert_close(other_info["final_obs"][ended], info["final_obs"][ended], atol=1e-6, rtol=1e-6)
        assert torch.equal(other_info["episode"]["steps"][ended], info["episode"]["steps"][ended])
        assert (found[ended].abs() <= START_RANGE).all()


def test_time_limit():
    env = TorchCartPoleEnv(2)
    state = env.state_dict()
    state["steps"][0] = MAX_STEPS - 1
    env.load_state_dict(state)
    *_, terminated, truncated, _ = env.step(torch.tensor([0, 1]))
    assert truncated.tolist() == [True, False] and not terminated.any() and env.steps.tolist() == [0, 1]


def test_resume_is_exact():
    env, other = TorchCartPoleEnv(50, seed=1), TorchCartPoleEnv(50, seed=2)
    actions = torch.ones(50, dtype=torch.int64)
    for _ in range(5):
        env.step(actions)
    other.load_state_dict(env.state_dict())
    for _ in range(30):
        assert torch.equal(env.step(actions)[0], other.step(actions)[0])


def test_a_resume_state_without_a_generator_is_refused():
    env = TorchCartPoleEnv(3)
    for generator in ({}, {"generator": 3}):
        with pytest.raises(CheckpointError, match="generator"):
            env.load_state_dict({**CartPoleEnv(3).state_dict(), **generator})
