"""Fused rollouts do exactly what single steps do."""

import importlib
import sys

import numba
import pytest
import torch
from numba import types as nb

from batchnav.cartpole.env import CartPoleEnv
from batchnav.cartpole.rollout import CartPoleRollout, Trajectory, roll_cuda
from batchnav.errors import ArgumentError
from batchnav.runtime.kernels.arrays import view

NUM_ENVS = 100  # not a multiple of the lanes that the CPU steps side by side


def at_clock(clock, **options):
    """An environment that has taken so many steps, as far as its clock says."""
    env = CartPoleEnv(NUM_ENVS, seed=4, **options)
    env.load_state_dict({**env.state_dict(), "clock": torch.tensor(clock)})
    return env


# In a window's middle, at its last step, and where the 16 bits that are kept of a beginning turn over.
@pytest.mark.parametrize("clock", [0, 5, 7, 2**35 + 30, 2**15 - 60, 2**16 - 60])
@pytest.mark.parametrize("linear", [False, True])
def test_fused_equals_stepwise(clock, linear):
    """State, counters and trajectory, bit for bit; long enough for time-outs where the policy is good."""
    steps = 1100 if linear else 130
    env, stepped = at_clock(clock), at_clock(clock, block=7)
    weights = torch.tensor([0.1, 0.4, 1.0, 0.6]) + 0.3 * torch.randn(NUM_ENVS, 4) if linear else None
    trajectory = Trajectory.empty(steps, NUM_ENVS)
    fused = CartPoleRollout(env, steps, weights, trajectory)
    fused()
    timeouts, final_steps = 0, torch.zeros(NUM_ENVS)
    for k in range(steps):
        assert torch.equal(trajectory.observations[k], stepped.carts.state)
        if linear:  # summed in the kernel's order
            actions = trajectory.actions[k].long()
            total = (weights * stepped.carts.state).sum(1)
            assert torch.equal((total > 0).long()[total.abs() > 1e-6], actions[total.abs() > 1e-6])
        else:
            actions = fused.random_actions(clock + k)
        assert torch.equal(trajectory.actions[k].long(), actions)
        _, _, terminated, truncated, info = stepped.step(actions)
        assert torch.equal(trajectory.terminated[k], terminated) and torch.equal(trajectory.truncated[k], truncated)
        timeouts += int(truncated.sum())
        final_steps = torch.where(info["_episode"], info["episode"]["steps"], final_steps)
    for name, tensor in stepped.state_dict().items():
        assert torch.equal(env.state_dict()[name], tensor), name
    assert torch.equal(fused.final_steps, final_steps)
    assert (timeouts > 0) == linear


@pytest.mark.parametrize("size", [30, 1, 9])
def test_without_trajectory_and_in_pieces(size):
    """And with single steps in between, on the environment's one clock."""
    whole, pieces = CartPoleEnv(NUM_ENVS, seed=4), CartPoleEnv(NUM_ENVS, seed=4)
    CartPoleRollout(whole, 4 * (size + 1))()
    piece = CartPoleRollout(pieces, size)
    for k in range(4):
        piece()
        pieces.step(piece.random_actions(k * (size + 1) + size))
    for name, tensor in whole.state_dict().items():
        assert torch.equal(pieces.state_dict()[name], tensor), name


def test_episodes_shorter_than_the_window():
    """From odd states: one that fails at once, and one that is out of steps two steps later."""
    env, stepped = CartPoleEnv(4, seed=4), CartPoleEnv(4, seed=4)
    state = env.state_dict()
    state["state"][:2, 0] = 3.0
    state["steps"][:] = 498
    for each in (env, stepped):
        each.load_state_dict(state)
    rollout = CartPoleRollout(env, 40)
    rollout()
    for k in range(40):
        stepped.step(rollout.random_actions(k))
    assert torch.equal(env.carts.state, stepped.carts.state) and torch.equal(env.steps, stepped.steps)


def test_random_policy_is_random():
    trajectory = Trajectory.empty(256, 1000)
    CartPoleRollout(CartPoleEnv(1000, seed=8), 256, None, trajectory)()
    actions = trajectory.actions.double()
    assert abs(actions.mean() - 0.5) < 5 * 0.5 / 256_000**0.5
    assert (actions.mean(0) - 0.5).abs().max() < 5 * 0.5 / 256**0.5  # per environment
    assert abs((actions[1:] * actions[:-1]).mean() - 0.25) < 0.005


@pytest.mark.parametrize(
    "bad",
    [
        lambda env: CartPoleRollout(env, 0),
        lambda env: CartPoleRollout(env, 2.0),
        lambda env: CartPoleRollout(env, 3, torch.zeros(4)),
        lambda env: CartPoleRollout(env, 3, torch.zeros((5, 4), dtype=torch.float64)),
        lambda env: CartPoleRollout(env, 3, None, Trajectory.empty(2, 5)),
        lambda env: CartPoleRollout(env, 3, None, Trajectory.empty(3, 4)),
    ],
)
def test_bad_arguments(bad):
    with pytest.raises(ArgumentError):
        bad(CartPoleEnv(5))


def test_ptx(compile_ptx):
    carts, trajectory = CartPoleEnv(2).kernel_carts, view(Trajectory.empty(3, 2).flat())
    ptx = compile_ptx(
        roll_cuda, nb.float32[:, ::1], nb.int32, nb.boolean, nb.boolean,
        numba.typeof(carts), nb.float32[::1], numba.typeof(trajectory),
    )  # fmt: skip
    assert ".f64" not in ptx and "ld.global.v4" in ptx and "st.global.v4" in ptx


@pytest.mark.cuda
@pytest.mark.parametrize("linear", [False, True])
def test_cuda_fused_equals_cuda_stepwise(linear):
    env, stepped = (CartPoleEnv(NUM_ENVS, device="cuda", seed=4) for _ in range(2))
    weights = torch.tensor([0.1, 0.4, 1.0, 0.6], device="cuda").repeat(NUM_ENVS, 1) if linear else None
    trajectory = Trajectory.empty(100, NUM_ENVS, "cuda")
    CartPoleRollout(env, 100, weights, trajectory)()
    for k in range(100):
        torch.testing.assert_close(trajectory.observations[k], stepped.carts.state, atol=1e-5, rtol=1e-5)
        saved = stepped.state_dict()
        saved["state"] = trajectory.observations[k].clone()  # rounding may differ between kernels, and would grow
        stepped.load_state_dict(saved)
        stepped.step(trajectory.actions[k])
    assert torch.equal(env.carts.clock, stepped.carts.clock)


@pytest.mark.cuda
def test_cuda_in_pieces():
    """Rollouts that begin anywhere in a window, on the clock that lies on the device."""
    whole, pieces = (CartPoleEnv(NUM_ENVS, device="cuda", seed=4, block=32) for _ in range(2))
    CartPoleRollout(whole, 90)()
    piece = CartPoleRollout(pieces, 9)
    for _ in range(10):
        piece()
    for name, tensor in whole.state_dict().items():
        assert torch.equal(pieces.state_dict()[name], tensor), name


# The study's programs: like is compared with like, what varies too much is refused, and nothing is kept unasked


def rate(how, value, p5=None, p95=None, part="scaling", machine="M", metric="steps_per_second", **params):
    params = {"part": part, "how": how, "num_envs": 64, **params}
    p5, p95 = p5 or value, p95 or value
    return {"machine": machine, "metric": metric, "value": value, "p5": p5, "p95": p95, "params": params}


def test_a_rate_counts_all_steps_of_a_call_and_says_where_actions_come_from(monkeypatch):
    bench = importlib.import_module("eval.cartpole.bench")
    monkeypatch.setattr(bench, "interleaved", lambda calls, *_: {who: [0.1, 0.2, 0.4] for who in calls})
    candidate = bench.Candidate(lambda: None, 96, bench.SAMPLED)
    (found,) = bench.throughput("fused", {"x": candidate}, torch.device("cpu"), 10)
    assert found["params"] == {
        "part": "fused", "how": "x", "num_envs": 10, "steps_per_call": 96, "actions": "sampled inside",
    }  # fmt: skip
    assert found["value"] == pytest.approx(960 / 0.2) and found["repeats"] == 3


def test_the_page_shows_steady_pairs_with_their_spread(monkeypatch, tmp_path):
    page = importlib.import_module("eval.cartpole.page")
    monkeypatch.setattr(page, "FIGURES", tmp_path)
    names = {"part": "peers", "peer": "them 1"}
    rows = [
        rate("them 1", 10.0, 9.0, 11.0, **names),
        rate("batchnav env.step", 30.0, **names),
        {**rate("them 1", 7.0, 1.0, 11.0, **names), "params": {**names, "how": "them 1", "num_envs": 8}},
        {**rate("batchnav env.step", 70.0, **names), "params": {**names, "how": "batchnav env.step", "num_envs": 8}},
    ]
    text = page.peers(rows, "M", "m")
    assert "| them 1 | 64 | 10 | 20% | 30 | 0% | 3.0 |" in text and "| them 1 | 8 |" not in text
    assert "at most 25% for both: 1 of the 2" in text


@pytest.mark.parametrize("asked", [False, True])
def test_rows_are_recorded_where_asked_for(monkeypatch, asked):
    speed = importlib.import_module("eval.speed_cartpole")
    kept = []
    monkeypatch.setattr(speed, "record", lambda name, rows, append: kept.append((name, rows, append)))
    monkeypatch.setitem(speed.PARTS, "work", lambda device: iter([["row"], []]))
    monkeypatch.setattr(sys, "argv", ["speed_cartpole.py", "--device", "cpu", "--parts", "work"] + ["--record"] * asked)
    speed.main()
    assert kept == [("cartpole", ["row"], asked)]


def test_a_library_that_is_not_there_is_named(capsys):
    speed = importlib.import_module("eval.speed_cartpole")

    def absent(num_envs):
        import no_such_library  # noqa: F401

    assert speed.attempt("them", absent, 4) is None
    assert capsys.readouterr().out == "not measured: them: not installed (no_such_library)\n"
