"""CartPole's kernels on a GPU against those on the CPU, which `test_cartpole.py` holds against Gymnasium's."""

import pytest
import torch

from batchnav.cartpole.env import CartPoleEnv
from batchnav.errors import ArgumentError

FLOAT32_STEP = 1e-6
"""float32 rounds values of up to 4 to 2.4e-7 a few times."""


def cuda_steps_equal(env, reference, actions, action_type=torch.int64):
    """A step of both from env's state; the observations that should be equal, as they are within rounding."""
    reference.load_state_dict({name: tensor.cpu() for name, tensor in env.state_dict().items()})
    observation, _, terminated, truncated, info = env.step(actions.cuda().to(action_type))
    expected, _, ended, _, expected_info = reference.step(actions)
    same = terminated.cpu() == ended  # may differ within rounding of a threshold
    assert same.float().mean() > 0.999
    torch.testing.assert_close(observation.cpu()[same], expected[same], atol=FLOAT32_STEP, rtol=1e-6)
    shown = same & expected_info["_episode"]
    assert torch.equal(info["_episode"].cpu()[same], expected_info["_episode"][same])
    torch.testing.assert_close(info["final_obs"].cpu()[shown], expected_info["final_obs"][shown], atol=1e-6, rtol=0)
    assert torch.equal(info["episode"]["steps"].cpu()[shown], expected_info["episode"]["steps"][shown])
    assert torch.equal(env.steps.cpu()[same], reference.steps[same])
    assert (env.carts.clock == reference.carts.clock[0].item()).all()
    assert env.carts.count.sum() == (terminated | truncated).sum()


@pytest.mark.cuda
@pytest.mark.parametrize("action_type", [torch.int64, torch.uint8])
def test_cuda_steps_as_the_cpu_does(action_type):
    env, reference = CartPoleEnv(5000, device="cuda", seed=5), CartPoleEnv(5000, seed=5)
    for t in range(100):
        actions = torch.randint(0, 2, (5000,), generator=torch.Generator().manual_seed(t))
        cuda_steps_equal(env, reference, actions, action_type)
        assert not env.carts.truncated.any()


@pytest.mark.cuda
@pytest.mark.parametrize("block", [1, 8, 32, 64, 128, 256, 1024])
def test_cuda_blocks(block):
    """Random steps, then all episodes end in one step; the last block is not full."""
    env, reference = CartPoleEnv(5001, device="cuda", seed=5, block=block), CartPoleEnv(5001, seed=5)
    for t in range(40):
        actions = torch.randint(0, 2, (5001,), generator=torch.Generator().manual_seed(t))
        cuda_steps_equal(env, reference, actions)
    failing = reference.state_dict()
    failing["state"][:, 0] = 3.0
    env.load_state_dict(failing)
    for _ in range(2):
        cuda_steps_equal(env, reference, torch.ones(5001, dtype=torch.int64))
    assert (env.steps == 1).all() and (env.carts.clock == 42).all()


@pytest.mark.cuda
def test_cuda_step_does_not_wait_and_goes_into_a_graph():
    """Info too, which is read at every step; ten replays, so that episodes end and windows pass."""
    env, other = (CartPoleEnv(1024, device="cuda", seed=5) for _ in range(2))
    actions = torch.randint(0, 2, (1024,), device="cuda")
    kept = [torch.zeros(4, 1024, 6, device="cuda") for _ in range(2)]

    def steps(env, kept):
        for t in range(4):
            *_, info = env.step(actions)
            kept[t] = torch.cat([info["final_obs"], info["episode"]["steps"][:, None], info["_episode"][:, None]], 1)

    steps(other, kept[1])
    other.reset(seed=5)
    start = env.state_dict()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        steps(env, kept[0])
    env.load_state_dict(start)
    ends = 0
    for _ in range(10):
        torch.cuda.set_sync_debug_mode("error")
        try:
            steps(other, kept[1])
            graph.replay()
        finally:
            torch.cuda.set_sync_debug_mode("default")
        shown = kept[1][:, :, 5] == 1
        assert torch.equal(kept[0][:, :, 5], kept[1][:, :, 5]) and torch.equal(kept[0][shown], kept[1][shown])
        assert torch.equal(env.carts.state, other.carts.state) and torch.equal(env.carts.clock, other.carts.clock)
        ends += int(shown.sum())
    assert ends > 1000 and (env.carts.clock == 40).all()


@pytest.mark.cuda
def test_cuda_steps_that_overlap():
    """Many blocks, forwards and backwards, launched and in a graph of an odd number of steps: as if each is awaited."""
    env, awaited = (CartPoleEnv(300_001, device="cuda", seed=5) for _ in range(2))
    actions = torch.randint(0, 2, (7, 300_001), device="cuda")

    def steps():
        for row in actions:
            env.step(row)

    def awaited_steps():
        for row in actions:
            awaited.step(row)
            torch.cuda.synchronize()

    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        steps()
    for run in (steps, graph.replay):
        for _ in range(20):
            run()
            awaited_steps()
        for name, tensor in awaited.state_dict().items():
            assert torch.equal(env.state_dict()[name], tensor), name
        assert torch.equal(env.carts.terminated, awaited.carts.terminated)
        assert torch.equal(env.carts.count, awaited.carts.count)


@pytest.mark.cuda
def test_cuda_bad_action_is_reported_without_waiting_for_it():
    env = CartPoleEnv(3, device="cuda")
    with pytest.raises(ArgumentError, match="environment 1"):  # by this step, where its kernel was quick, or the next
        env.step(torch.tensor([0, 2, 1], device="cuda"))
        torch.cuda.synchronize()
        env.step(torch.tensor([0, 1, 1], device="cuda"))
    env.step(torch.tensor([0, 1, 1], device="cuda"))
