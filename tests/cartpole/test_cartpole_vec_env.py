"""CartPole as a complete `VecEnv`: every member is there, and none works once the environment is closed."""

import copy
import pickle

import numba
import numpy as np
import pytest
import torch
from numba import types as nb

from batchnav.cartpole import step
from batchnav.cartpole.env import CartPoleEnv
from batchnav.cartpole.rollout import CartPoleRollout
from batchnav.cartpole.torch_env import TorchCartPoleEnv
from batchnav.errors import ArgumentError, DeviceError
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


# CartPole's actions and arguments: what is refused, what is converted; its kernels compile to PTX


@pytest.mark.parametrize(
    "actions",
    [
        [0, 1, 0],
        np.zeros(3, np.int64),
        torch.zeros(3),
        torch.zeros(3, dtype=torch.int32),
        torch.zeros(4, dtype=torch.int64),
        torch.zeros((3, 1), dtype=torch.int64),
        torch.tensor([0, 2, 1]),
        torch.tensor([0, -1, 1]),
        None,
    ],
)
def test_bad_actions(actions):
    env = CartPoleEnv(3)
    with pytest.raises(ArgumentError, match="actions"):
        env.step(actions)
    env.step(torch.tensor([0, 1, 0]))  # goes on


def test_actions_need_not_be_contiguous():
    env, other = CartPoleEnv(3), CartPoleEnv(3)
    actions = torch.tensor([[0, 1], [1, 0], [1, 0]])
    assert torch.equal(env.step(actions[:, 0])[0], other.step(torch.tensor([0, 1, 1]))[0])


def test_a_seed_for_each_environment():
    env, other = CartPoleEnv(3), CartPoleEnv(3)
    for seed, same in (([7, 8, 9], 7), ([None] * 3, None)):
        assert torch.equal(env.reset(seed=seed)[0], other.reset(seed=same)[0])
    for seed in ([7, 8], [7, 9, 8], [7, None, None]):
        with pytest.raises(ArgumentError, match=r"seed: found .*, expected one integer, or 3 consecutive ones"):
            env.reset(seed=seed)


@pytest.mark.parametrize("num_envs", [7, 1300])  # in one thread, and in several
def test_actions_may_be_bytes(num_envs):
    env, other = CartPoleEnv(num_envs, seed=5), CartPoleEnv(num_envs, seed=5)
    actions = torch.randint(0, 2, (30, num_envs), generator=torch.Generator().manual_seed(0))
    for row in actions:
        assert torch.equal(env.step(row.to(torch.uint8))[0], other.step(row)[0])
    with pytest.raises(ArgumentError, match="environment 3"):
        env.step(torch.where(torch.arange(num_envs) == 3, 255, 0).to(torch.uint8))


@pytest.mark.parametrize(
    "arguments",
    [
        {"num_envs": 0},
        {"num_envs": 2**28},
        {"num_envs": 2.5},
        {"num_envs": 4, "seed": -1},
        {"num_envs": 4, "seed": None},
        {"num_envs": 4, "block": 0},
        {"num_envs": 4, "block": 2048},
    ],
)
def test_bad_arguments(arguments):
    with pytest.raises(ArgumentError):
        CartPoleEnv(**arguments)
    if not torch.cuda.is_available():
        with pytest.raises(DeviceError):
            CartPoleEnv(4, device="cuda")


@pytest.mark.parametrize("actions", [nb.int64[::1], nb.uint8[::1]])
def test_ptx(compile_ptx, actions):
    """The kernel is in float32 and in registers. One instruction reads the state; one writes it, another a start; two
    write a record."""
    ptx = compile_ptx(step.step_cuda, actions, nb.int64, numba.typeof(CartPoleEnv(2).kernel_carts))
    assert ".f64" not in ptx and ".local" not in ptx
    assert ptx.count("ld.global.v4") == 1 and ptx.count("st.global.v4") == 4
    # nothing is read before the last step's kernel has ended, and the next one may come in once all is read
    assert ptx.index("griddepcontrol.wait") < ptx.index("ld.global")
    assert ptx.rindex("ld.global", 0, ptx.index("bar.sync")) < ptx.index("griddepcontrol.launch_dependents")
    assert ptx.index("griddepcontrol.launch_dependents") < ptx.index("st.global")


def test_ptx_of_a_restart(compile_ptx):
    assert ".f64" not in compile_ptx(step.restart, numba.typeof(CartPoleEnv(2).kernel_carts))


@pytest.mark.parametrize("action_type", [torch.int64, torch.uint8])
def test_bytes_of_a_step(action_type):
    """BYTES_PER_STEP equals the tensors' bytes per cart, without those per block and without truncation flags."""
    carts, actions = CartPoleEnv(1).carts, torch.zeros(1, dtype=action_type)
    read = carts.state.nbytes + carts.began.nbytes + actions.nbytes
    written = carts.state.nbytes + carts.terminated.nbytes
    assert step.BYTES_PER_STEP[action_type] == read + written and carts.record.nbytes == step.BYTES_PER_END
