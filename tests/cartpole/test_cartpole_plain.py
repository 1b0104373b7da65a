"""The plain CartPole and the fast one are the same, bit for bit."""

import numba
import pytest
import torch
from numba import types as nb

from batchnav.cartpole import plain
from batchnav.cartpole.env import CartPoleEnv
from batchnav.cartpole.physics import MAX_STEPS, START_RANGE
from batchnav.cartpole.torch_env import TorchCartPoleEnv
from batchnav.errors import CheckpointError
from batchnav.runtime.kernels.arrays import view

HOLDS_UP = torch.tensor([0.1, 0.4, 1.0, 0.6])
"""Pushing right where the state times these is positive holds the pole up until the episode is out of steps."""


SMALL = [pytest.param(*case, marks=pytest.mark.plain) for case in ((1, 256), (7, 3))]


@pytest.mark.parametrize(("num_envs", "block"), [*SMALL, (1300, 256)])  # in one thread, and in several
def test_plain_equals_fast(num_envs, block):
    """Half the carts are pushed at random, half are held up; resets with and without a seed in between."""
    ours, fast = plain.PlainCartPole(num_envs, seed=3), CartPoleEnv(num_envs, seed=3, block=block)
    generator = torch.Generator().manual_seed(0)
    assert torch.equal(ours.carts.state, fast.carts.state)
    failures, time_outs = 0, 0
    for t in range(MAX_STEPS + 200):
        if t in (40, 43, 600):
            seed = 9 if t == 43 else None
            assert torch.equal(ours.reset(seed=seed), fast.reset(seed=seed)[0])
        actions = torch.randint(0, 2, (num_envs,), generator=generator)
        actions[::2] = (fast.carts.state[::2] @ HOLDS_UP > 0).long()
        observation, terminated, truncated = ours.step(actions)
        expected, _, failed, timed_out, _ = fast.step(actions)
        assert torch.equal(observation, expected)
        assert torch.equal(terminated, failed) and torch.equal(truncated, timed_out)
        assert torch.equal(ours.carts.steps, fast.steps.int())
        failures, time_outs = failures + int(failed.sum()), time_outs + int(timed_out.sum())
    assert time_outs > 0 and (failures > 0 or num_envs == 1)


def test_ptx(compile_ptx):
    carts = numba.typeof(view(plain.PlainCartPole(2).carts))
    assert ".f64" not in compile_ptx(plain.start_carts, nb.int64, nb.int64, carts)
    assert ".f64" not in compile_ptx(plain.step_cart, nb.int64[::1], nb.int64, nb.int64, carts)


@pytest.mark.cuda
def test_cuda_steps_as_the_cpu_does():
    """From the same states at every step, since rounding differs and would grow."""
    ours, expected = (plain.PlainCartPole(1000, device, seed=5) for device in ("cuda", "cpu"))
    for t in range(60):
        actions = torch.randint(0, 2, (1000,), generator=torch.Generator().manual_seed(t))
        found, terminated, _ = ours.step(actions.cuda())
        state, failed, _ = expected.step(actions)
        same = terminated.cpu() == failed  # may differ within rounding of a threshold
        assert same.float().mean() > 0.99
        torch.testing.assert_close(found.cpu()[same], state[same], atol=1e-6, rtol=1e-6)
        for mine, theirs in zip(ours.carts, expected.carts, strict=True):
            mine.copy_(theirs)


# The PyTorch form of CartPole steps as the kernels do


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
