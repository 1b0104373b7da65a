"""CartPole as a complete `VecEnv`: every member is there, and none works once the environment is closed."""

import copy
import pickle

import pytest
import torch

from batchnav.cartpole.env import CartPoleEnv
from batchnav.cartpole.rollout import CartPoleRollout
from batchnav.cartpole.torch_env import TorchCartPoleEnv
from batchnav.errors import ArgumentError
from batchnav.types import VecEnv

ENVS = pytest.mark.parametrize("make", [CartPoleEnv, TorchCartPoleEnv])


@ENVS
def test_every_member_is_there(make):
    members = VecEnv.__annotations__.keys() | {name for name in vars(VecEnv) if not name.startswith("_")}
    assert {"storage", "step", "between_rollouts"} <= members
    env = make(3)
    assert not [name for name in members if not hasattr(env, name)]
    assert dict(env.storage) == {"observation": torch.float32} and not env.capturable
    assert env.between_rollouts() == {} and env.settle() is None


@ENVS
def test_observe_into_changes_nothing(make):
    env, other = make(3, seed=1), make(3, seed=1)
    out = {"observation": torch.zeros(3, 4)}
    env.observe_into(out)
    actions = torch.tensor([0, 1, 0])
    assert torch.equal(env.step(actions)[0], other.step(actions)[0]) and not out["observation"].any()
    env.observe_into(None)


@pytest.mark.parametrize("num_envs", [3, 1300])
def test_invalid_actions_of_a_replayed_step_are_reported_between_rollouts(num_envs):
    """A graph launches the kernel without `step`; what the kernel notes is raised once."""
    env = CartPoleEnv(num_envs)
    env._advance(torch.where(torch.arange(num_envs) == 2, 5, 0))
    with pytest.raises(ArgumentError, match=r"actions: .* environment 2"):
        env.between_rollouts()
    assert env.between_rollouts() == {}
    env.step(torch.zeros(num_envs, dtype=torch.int64))


@pytest.mark.cuda
def test_cuda_invalid_actions_are_reported_between_rollouts():
    env = CartPoleEnv(3, device="cuda")
    actions = torch.tensor([0, 2, 1], device="cuda")
    graph = torch.cuda.CUDAGraph()
    env.step(torch.zeros_like(actions))
    torch.cuda.synchronize()
    with torch.cuda.graph(graph):
        env.step(actions)
    graph.replay()
    torch.cuda.synchronize()
    with pytest.raises(ArgumentError, match="environment 1"):
        env.between_rollouts()
    assert env.between_rollouts() == {}


@ENVS
def test_a_closed_environment_is_refused(make):
    env = make(3)
    state = env.state_dict()
    env.close()
    env.close()  # twice does no harm
    calls = [
        env.reset, lambda: env.step(torch.tensor([0, 1, 0])), lambda: env.observe_into(None), env.settle,
        env.observe_again, env.between_rollouts, env.state_dict, lambda: env.load_state_dict(state), lambda: env.steps,
    ]  # fmt: skip
    for call in calls:
        with pytest.raises(ArgumentError, match=rf"{make.__name__}: found a closed"):
            call()


@ENVS
def test_none_is_copied_or_pickled(make):
    for copied in (copy.deepcopy, pickle.dumps):
        with pytest.raises(ArgumentError, match="cannot be copied or pickled"):
            copied(make(3))


def test_a_rollout_of_a_closed_environment_is_refused():
    env = CartPoleEnv(3)
    rollout = CartPoleRollout(env, 4)
    env.close()
    with pytest.raises(ArgumentError, match="closed"):
        rollout()


def test_info_says_where_final_observations_are():
    env, other = CartPoleEnv(8, seed=1), TorchCartPoleEnv(8, seed=1)
    for each in (env, other):
        for _ in range(12):
            *_, terminated, truncated, info = each.step(torch.ones(8, dtype=torch.int64))
            assert torch.equal(info["_final_obs"], terminated | truncated)
