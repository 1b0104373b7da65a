"""The LSTM's own kernels against the plain loop, which is their specification: forward and gradient."""

import pytest
import torch

from batchnav.policy import lstm as lstm_module
from batchnav.policy.lstm import EpisodicLSTM, lstm_cell
from batchnav.runtime.device import CAPABILITY as NEEDED

SLACK = 2.0
"""The plain loop rounds to bfloat16 as often as the kernels do; sums of what is rounded differ by chance."""
LEAST = 5e-3
"""Relative error that bfloat16, with its 8 bits, may have even where the plain loop has luck."""


CAPABILITY = torch.cuda.get_device_capability() if torch.cuda.is_available() else NEEDED
fused = pytest.mark.skipif(
    CAPABILITY < NEEDED,
    reason=f"the GPU has compute capability {CAPABILITY}, the kernels' products in bfloat16 need {NEEDED}",
)


def error(found, expected):
    return float((found.double() - expected.double()).norm() / expected.double().norm())


def learn(lstm, x, starts, state, weight, bfloat16):
    """Outputs, last state and all gradients, by name."""
    lstm.zero_grad()
    x = x.clone().requires_grad_()
    with torch.autocast("cuda", torch.bfloat16, enabled=bfloat16):
        out, last = lstm(x, starts, state)
    (out.float() * weight).sum().backward()
    found = {"out": out.detach(), "state": last.detach(), "x": x.grad}
    return found | {name: parameter.grad.clone() for name, parameter in lstm.named_parameters()}


@fused
@pytest.mark.cuda
@pytest.mark.parametrize(("hidden", "batch"), [(512, 256), (64, 5), (192, 100), (512, 1024), (64, 700)])
def test_kernels_are_the_plain_loop(hidden, batch, monkeypatch):
    torch.manual_seed(0)
    lstm = EpisodicLSTM(40, hidden, 2).cuda()
    x, starts = torch.randn(7, batch, 40, device="cuda"), torch.rand(7, batch, device="cuda") < 0.2
    state, weight = 0.3 * torch.randn(2, 2, batch, hidden, device="cuda"), torch.randn(7, batch, hidden, device="cuda")
    own = learn(lstm, x, starts, state, weight, bfloat16=True)
    exact = learn(lstm, x, starts, state, weight, bfloat16=False)
    monkeypatch.setattr(lstm_module, "FUSED_SEQUENCES", 0)
    plain = learn(lstm, x, starts, state, weight, bfloat16=True)
    assert not torch.equal(own["weight_hh_l0"], plain["weight_hh_l0"])  # the kernel did run
    for name, expected in exact.items():
        assert error(own[name], expected) < max(SLACK * error(plain[name], expected), LEAST), name


@fused
@pytest.mark.cuda
def test_starts_may_have_any_strides():
    torch.manual_seed(0)
    lstm = EpisodicLSTM(40, 64, 1).cuda()
    x, starts = torch.randn(7, 5, 40, device="cuda"), torch.rand(7, 5, device="cuda") < 0.4
    state, weight = torch.zeros(2, 1, 5, 64, device="cuda"), torch.randn(7, 5, 64, device="cuda")
    turned = starts.t().contiguous().t()
    first, second = (learn(lstm, x, laid, state, weight, bfloat16=True) for laid in (starts, turned))
    assert not turned.is_contiguous() and all(torch.equal(first[name], second[name]) for name in first)


@fused
@pytest.mark.cuda
def test_kernels_give_the_same_bits_twice_and_in_a_graph():
    torch.manual_seed(0)
    lstm = EpisodicLSTM(40, 128, 2).cuda()
    x, starts = torch.randn(5, 64, 40, device="cuda"), torch.rand(5, 64, device="cuda") < 0.2
    state, weight = torch.zeros(2, 2, 64, 128, device="cuda"), torch.randn(5, 64, 128, device="cuda")
    first, second = (learn(lstm, x, starts, state, weight, bfloat16=True) for _ in range(2))
    assert all(torch.equal(first[name], second[name]) for name in first)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        replayed = learn(lstm, x, starts, state, weight, bfloat16=True)
    graph.replay()
    assert all(torch.equal(first[name], replayed[name]) for name in first)


@fused
@pytest.mark.cuda
@pytest.mark.parametrize(("hidden", "batch"), [(512, 300), (40, 7)])
def test_acting_is_the_plain_loop(hidden, batch, monkeypatch):
    """Several steps, each from the state of the one before."""
    torch.manual_seed(0)
    lstm = EpisodicLSTM(24, hidden, 2).cuda()
    with torch.no_grad():
        for name, parameter in lstm.named_parameters():
            if "bias" in name:
                parameter.normal_(0.0, 0.3)
    x, starts = torch.randn(6, batch, 24, device="cuda"), torch.rand(6, batch, device="cuda") < 0.2
    state = 0.3 * torch.randn(2, 2, batch, hidden, device="cuda")

    def act(bfloat16):
        last, out = state, []
        with torch.no_grad(), torch.autocast("cuda", torch.bfloat16, enabled=bfloat16):
            for t in range(6):
                found, last = lstm(x[t : t + 1], starts[t : t + 1], last)
                out.append(found[0])
        return {"out": torch.stack(out), "hidden": last[0], "carry": last[1]}

    own, again, exact = act(True), act(True), act(False)
    monkeypatch.setattr(lstm, "has_kernels", False)
    plain = act(True)
    assert not torch.equal(own["out"], plain["out"])  # the kernel did run
    assert own["out"].dtype == plain["out"].dtype and all(torch.equal(own[name], again[name]) for name in own)
    for name, expected in exact.items():
        assert error(own[name], expected) < max(SLACK * error(plain[name], expected), LEAST), name


def test_the_cpu_does_not_use_the_kernels():
    lstm = EpisodicLSTM(4, 64, 1)
    x = torch.randn(3, 2, 4)
    out, _ = lstm(x, torch.zeros(3, 2, dtype=torch.bool), torch.zeros(2, 1, 2, 64))
    plain = torch.nn.LSTM(4, 64, 1)
    plain.load_state_dict(lstm.state_dict())
    expected, _ = plain(x)
    torch.testing.assert_close(out, expected, atol=1e-6, rtol=1e-6)


# The LSTM's layers as the CPU learns with them against the plain loop, their specification: forward and gradient

ROUNDING = 1e-12
"""In float64, relative to the largest number: sums in another order."""


def learn_on_cpu(lstm, x, starts, state, weight):
    """Outputs, last state and all gradients, by name."""
    lstm.zero_grad()
    x = x.clone().requires_grad_()
    out, last = lstm(x, starts, state)
    (out * weight).sum().backward()
    found = {"out": out.detach(), "state": last.detach(), "x": x.grad}
    return found | {name: parameter.grad.clone() for name, parameter in lstm.named_parameters()}


@pytest.mark.parametrize(("steps", "batch", "layers"), [(8, 5, 2), (1, 3, 1), (6, 1, 3)])
def test_layers_are_the_plain_loop(steps, batch, layers):
    torch.manual_seed(0)
    lstm = EpisodicLSTM(9, 7, layers).double()
    with torch.no_grad():
        for parameter in lstm.parameters():
            parameter.copy_(torch.randn_like(parameter) * 0.5)
    x, weight = torch.randn(steps, batch, 9).double(), torch.randn(steps, batch, 7).double()
    state, starts = torch.randn(2, layers, batch, 7).double(), torch.rand(steps, batch) < 0.3
    starts[0, 0], starts[-1, -1] = steps > 1, False
    given = {"x": x, "starts": starts, "state": state, "weight": weight}
    before = {name: tensor.clone() for name, tensor in given.items()}
    own = learn_on_cpu(lstm, **given)
    assert all(torch.equal(given[name], before[name]) for name in given)
    lstm.cell = lambda *parts: lstm_cell(*parts)  # as a compiled one: the plain loop
    plain = learn_on_cpu(lstm, **given)
    assert not torch.equal(own["weight_hh_l0"], plain["weight_hh_l0"]) or steps == 1  # the kernel did run
    for name, expected in plain.items():
        assert (own[name] - expected).abs().max() <= ROUNDING * expected.abs().max(), name


@pytest.mark.parametrize("bad", [torch.nan, torch.inf])
@pytest.mark.parametrize("grad", [True, False])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_an_episode_begins_from_zeros_whatever_the_state_holds(bad, grad, dtype):
    torch.manual_seed(0)
    lstm, x, starts = EpisodicLSTM(9, 7, 2), torch.randn(6, 5, 9), torch.zeros(6, 5, dtype=torch.bool)
    starts[2], state = True, torch.zeros(2, 2, 5, 7)
    with torch.set_grad_enabled(grad), torch.autocast("cpu", torch.bfloat16, enabled=dtype == torch.bfloat16):
        expected, after = lstm(x[2:], starts[2:], state)
        out, found = lstm(x, starts, state.fill_(bad))
    torch.testing.assert_close(out[2:], expected)
    torch.testing.assert_close(found, after)
    if grad:
        out, _ = lstm(x[2:], starts[2:], state)
        out.float().sum().backward()
        assert all(parameter.grad.isfinite().all() for parameter in lstm.parameters())


def test_unsupported_inputs_use_the_plain_loop():
    """Gradients of the state that is given, and products in bfloat16."""
    torch.manual_seed(0)
    lstm, x, starts = EpisodicLSTM(9, 7, 2), torch.randn(6, 5, 9), torch.zeros(6, 5, dtype=torch.bool)
    state = torch.randn(2, 2, 5, 7, requires_grad=True)
    lstm(x, starts, state)[0].sum().backward()
    assert (state.grad != 0).any(-1).all()
    with torch.autocast("cpu", torch.bfloat16):
        out, _ = lstm(x, starts, state.detach())
    assert out.dtype == torch.bfloat16
    torch.testing.assert_close(out.float(), lstm(x, starts, state.detach())[0], rtol=0.05, atol=0.02)  # 8 bits, 6 steps
