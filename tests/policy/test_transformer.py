"""The transformer memory: a sequence is its steps, episodes and windows bound what a step attends to."""

import math

import pytest
import torch

from batchnav.errors import ConfigError
from batchnav.policy.config import PolicyConfig
from batchnav.policy.memory import map_state
from batchnav.policy.transformer import WINDOWS_IN_PERIOD, CausalTransformer

ROUNDING = 1e-12
"""In float64, relative to the largest number: sums in another order."""


def make(input_size=5, width=12, layers=2, heads=2, window=4, seed=0):
    """A memory in float64 whose blocks are not the identity."""
    torch.manual_seed(seed)
    memory = CausalTransformer(input_size, width, layers, heads, window).double()
    with torch.no_grad():
        for parameter in memory.parameters():
            parameter.add_(0.3 * torch.randn_like(parameter))
    return memory


def fresh(memory, num_envs):
    state = memory.initial_state(num_envs)
    return state._replace(caches=tuple(cache.double() for cache in state.caches))


def play(memory, x, starts, state):
    """Outputs of `step`, and the last state."""
    outputs = []
    for inputs, start in zip(x, starts, strict=True):
        output, state = memory.step(inputs, start, state)
        outputs.append(output)
    return torch.stack(outputs), state


def close(found, expected):
    assert (found - expected).abs().max() <= ROUNDING * expected.abs().max()


@pytest.mark.parametrize("lengths", [(3, 9, 1, 6), (1, 1), (17,), (4, 4)])
@pytest.mark.parametrize("share_of_starts", [0.0, 0.15, 0.6])
def test_a_sequence_is_its_steps(lengths, share_of_starts):
    """Sequences of several lengths, each from the state after the one before, with a window of four steps."""
    memory, batch = make(), 6
    stepped = whole = fresh(memory, batch)
    with torch.no_grad():
        for length in lengths:
            x, starts = torch.randn(length, batch, 5).double(), torch.rand(length, batch) < share_of_starts
            expected, stepped = play(memory, x, starts, stepped)
            found, whole = memory(x, starts, whole)
            close(found, expected)
            assert whole.steps.equal(stepped.steps)
            for kept, cache in zip(whole.caches, stepped.caches, strict=True):
                close(kept, cache)


def test_gradients_are_those_of_the_steps():
    memory, batch, length = make(), 3, 11
    x, starts = torch.randn(length, batch, 5).double(), torch.rand(length, batch) < 0.2
    weight, state = torch.randn(length, batch, 12).double(), fresh(memory, batch)
    found = []
    for run in (lambda: memory(x, starts, state)[0], lambda: play(memory, x, starts, state)[0]):
        memory.zero_grad()
        (run() * weight).sum().backward()
        found.append([parameter.grad.clone() for parameter in memory.parameters()])
    for sequence, steps in zip(*found, strict=True):
        close(sequence, steps)


def test_a_step_attends_to_its_window_and_episode():
    """The inputs with a gradient are those of the window of each layer, after the last start."""
    memory, T = make(layers=1), 12
    x = torch.randn(T, 1, 5).double().requires_grad_()
    starts = torch.zeros(T, 1, dtype=torch.bool)
    starts[6] = True
    outputs, _ = memory(x, starts, fresh(memory, 1))
    for t in range(T):
        (gradient,) = torch.autograd.grad(outputs[t].square().sum(), x, retain_graph=True)
        read = gradient.abs().sum((1, 2)).nonzero().flatten().tolist()
        assert read == list(range(max(t - 3, 6 if t >= 6 else 0), t + 1))


def test_nothing_before_the_episode_is_read():
    """An episode's outputs are those that it has alone, whatever the state before it, and after its start is reset."""
    memory = make()
    x, starts = torch.randn(9, 2, 5).double(), torch.zeros(9, 2, dtype=torch.bool)
    starts[3] = True
    before = fresh(memory, 2)
    used = before._replace(caches=tuple(torch.randn_like(c) for c in before.caches), steps=torch.tensor([2, 77]))
    found, _ = memory(x, starts, used)
    alone, _ = memory(x[3:], starts[3:], before)
    close(found[3:], alone)


@pytest.mark.parametrize("bad", [torch.nan, torch.inf])
def test_an_episode_begins_whatever_the_state_holds(bad):
    memory = make()
    x, starts = torch.randn(9, 2, 5).double(), torch.zeros(9, 2, dtype=torch.bool)
    starts[0] = True
    before = fresh(memory, 2)
    used = before._replace(caches=tuple(torch.full_like(c, bad) for c in before.caches))
    alone, after = memory(x, starts, before)
    for found, state in (memory(x, starts, used), play(memory, x, starts, used)):
        close(found.detach(), alone.detach())
        for kept, cache in zip(state.caches, after.caches, strict=True):
            close(kept.detach(), cache)


def test_positions_are_relative():
    """A window in the middle of a long episode gives the same outputs, at any number of steps."""
    memory, T = make(layers=1), 6
    period = WINDOWS_IN_PERIOD * memory.window
    x, no = torch.randn(T, 1, 5).double(), torch.zeros(T, 1, dtype=torch.bool)
    outputs = []
    for steps in (100, 101, 100 + period, 10**12 + 3):
        state = fresh(memory, 1)._replace(steps=torch.tensor([steps]))
        outputs.append(play(memory, x, no, state)[0][memory.window - 1 :])
    assert outputs[2].equal(outputs[0])  # the angles repeat exactly
    for output in outputs[1:]:
        torch.testing.assert_close(output, outputs[0], atol=1e-5, rtol=1e-5)  # angles are float32
    state = fresh(memory, 1)._replace(steps=torch.tensor([100]))
    swapped = play(memory, x.flip(0), no, state)[0]
    assert (swapped[-1] - play(memory, x, no, state)[0][0]).abs().max() > 1e-3  # order matters


def test_attention_by_hand():
    """One head of one layer against the formula, in an episode that fills the window."""
    memory = make(width=4, layers=1, heads=1, window=3)
    (block,) = memory.blocks
    x, no = torch.randn(5, 1, 5).double(), torch.zeros(5, 1, dtype=torch.bool)
    with torch.no_grad():
        found = memory(x, no, fresh(memory, 1))[0][:, 0]
        h = memory.input(x[:, 0])
        query, key, value = block.query_key_value(block.attention_norm(h)).chunk(3, dim=1)
        angle = 2 * math.pi * memory.turns.double() / (WINDOWS_IN_PERIOD * memory.window)
        for t in range(5):
            seen = range(max(t - 2, 0), t + 1)
            scores = []
            for s in seen:  # the query is rotated back by the difference of the positions
                cos, sin = torch.cos(angle * (t - s)), torch.sin(angle * (t - s))
                a, b = query[t].chunk(2)
                scores.append(torch.cat([a * cos - b * sin, a * sin + b * cos]) @ key[s] / 2.0)  # sqrt(4)
            weights = torch.softmax(torch.stack(scores), 0)
            y = h[t] + block.project(weights @ value[list(seen)])
            y = memory.norm(y + block.mlp(block.mlp_norm(y)))
            torch.testing.assert_close(found[t], y, atol=1e-6, rtol=1e-6)


def test_a_new_network_acts_on_the_current_step():
    torch.manual_seed(0)
    memory = CausalTransformer(5, 12, 2, 2, 4)
    x = torch.randn(6, 3, 5)
    found, _ = memory(x, torch.zeros(6, 3, dtype=torch.bool), memory.initial_state(3))
    torch.testing.assert_close(found, memory.norm(memory.input(x)))


def test_bfloat16_products():
    memory = make().float()
    x, starts = torch.randn(9, 4, 5), torch.rand(9, 4) < 0.2
    expected = memory(x, starts, memory.initial_state(4))[0]
    half = map_state(lambda t: t.bfloat16() if t.is_floating_point() else t, memory.initial_state(4))  # as on CUDA
    with torch.autocast("cpu", torch.bfloat16):
        sequence, after = memory(x, starts, half)
        steps, stepped = play(memory, x, starts, half)
    assert {cache.dtype for cache in (*after.caches, *stepped.caches)} == {torch.bfloat16}
    torch.testing.assert_close(sequence.float(), expected, rtol=0.05, atol=0.1)  # 8 bits, two layers
    torch.testing.assert_close(steps.float(), expected, rtol=0.05, atol=0.1)


@pytest.mark.slow
def test_compiled_blocks_compute_the_same():
    memory = make(layers=1).float()
    x, starts, state = torch.randn(5, 2, 5), torch.rand(5, 2) < 0.3, memory.initial_state(2)
    with torch.no_grad():
        expected, stepped = memory(x, starts, state)[0], play(memory, x[:2], starts[:2], state)[0]
        memory.compile_parts()
        torch.testing.assert_close(memory(x, starts, state)[0], expected, atol=1e-5, rtol=1e-5)
        torch.testing.assert_close(play(memory, x[:2], starts[:2], state)[0], stepped, atol=1e-5, rtol=1e-5)


def test_bytes_of_the_state():
    memory = CausalTransformer.from_config(9, PolicyConfig(memory="transformer"))
    state = memory.initial_state(3, "meta")
    assert sum(cache.nbytes for cache in state.caches) == 3 * 2 * 4 * 2 * 128 * 512  # f32: twice CUDA's
    assert [tuple(cache.shape) for cache in state.caches] == [(3, 2, 8, 128, 64)] * 2


def test_heads_that_do_not_divide_the_width_are_refused():
    for heads in (3, 16):
        with pytest.raises(ConfigError, match=r"hidden_size: found 16 with transformer\.heads"):
            CausalTransformer.from_config(4, PolicyConfig(hidden_size=16), CausalTransformer.Config(heads=heads))


@pytest.mark.cuda
def test_cuda_computes_what_the_cpu_does():
    """In bfloat16 its errors are those of the CPU in bfloat16, but for the order of sums. Some are as large as 0.5."""
    memory = make(width=128, heads=2, window=16).float()
    x, starts = torch.randn(40, 32, 5), torch.rand(40, 32) < 0.05
    with torch.no_grad():
        expected, after = memory(x, starts, memory.initial_state(32))
        with torch.autocast("cpu", torch.bfloat16):
            rounding = (memory(x, starts, memory.initial_state(32))[0] - expected).abs()
        memory.cuda()
        x, starts, state = x.cuda(), starts.cuda(), memory.initial_state(32, "cuda")
        torch.cuda.set_sync_debug_mode("error")
        try:
            with torch.autocast("cuda", torch.bfloat16):
                found, whole = memory(x, starts, state)
                steps, stepped = play(memory, x, starts, state)
        finally:
            torch.cuda.set_sync_debug_mode("default")
    for output in (found, steps):
        error = (output.float().cpu() - expected).abs()
        assert error.mean() < 1.5 * rounding.mean() and error.max() < 2 * rounding.max()
    assert whole.steps.cpu().equal(after.steps) and stepped.steps.cpu().equal(after.steps)
