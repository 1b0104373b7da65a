"""The LSTM's layers as the CPU learns with them against the plain loop, their specification: forward and gradient."""

import pytest
import torch

from batchnav.policy.lstm import EpisodicLSTM, lstm_cell

ROUNDING = 1e-12
"""In float64, relative to the largest number: sums in another order."""


def learn(lstm, x, starts, state, weight):
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
    own = learn(lstm, **given)
    assert all(torch.equal(given[name], before[name]) for name in given)
    lstm.cell = lambda *parts: lstm_cell(*parts)  # as a compiled one: the plain loop
    plain = learn(lstm, **given)
    assert not torch.equal(own["weight_hh_l0"], plain["weight_hh_l0"]) or steps == 1  # the kernel did run
    for name, expected in plain.items():
        assert (own[name] - expected).abs().max() <= ROUNDING * expected.abs().max(), name


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
