"""LAMB against its formula in float64 NumPy, and the learning-rate schedule against its corner points."""

import copy
import math

import numpy as np
import pytest
import torch

from batchnav.learning import Lamb
from batchnav.learning.optimizers import _fits_kernels, learning_rate, learning_rate_scale, trust_ratio

FLOAT32 = 2e-6  # relative; 20 steps in float32 against float64

SHAPES = {
    "net.weight": (7, 5),
    "net.bias": (7,),
    "visual.LayerNorm.weight": (6,),
    "block.fixup_scale": (),
    "zero.weight": (3, 2),
    "large.weight": (40, 40),
}


def parameters():
    rng = np.random.default_rng(0)
    values = {name: rng.normal(size=shape).astype(np.float32) for name, shape in SHAPES.items()}
    values["zero.weight"][:] = 0.0
    values["large.weight"] *= 3.0  # a norm of 120, above the bound of 10
    return {name: torch.nn.Parameter(torch.tensor(value)) for name, value in values.items()}


def gradients(step):
    rng = np.random.default_rng(100 + step)
    return {name: rng.normal(size=shape).astype(np.float32) * 0.1 for name, shape in SHAPES.items()}


class NumpyLamb:
    """The published formula, one tensor and one number at a time."""

    def __init__(self, values, rho, decay):
        self.theta = {name: np.float64(value) for name, value in values.items()}
        self.m = {name: np.zeros_like(value) for name, value in self.theta.items()}
        self.v = {name: np.zeros_like(value) for name, value in self.theta.items()}
        self.rho, self.decay, self.t = rho, decay, 0

    def step(self, gradient, lr):
        self.t += 1
        for name, g in gradient.items():
            g, theta = np.float64(g), self.theta[name]
            self.m[name] = 0.9 * self.m[name] + 0.1 * g
            self.v[name] = 0.999 * self.v[name] + 0.001 * g * g
            m_hat, v_hat = self.m[name] / (1 - 0.9**self.t), self.v[name] / (1 - 0.999**self.t)
            u = m_hat / (np.sqrt(v_hat) + 1e-5) + self.decay * theta
            theta_norm, u_norm = np.sqrt(np.sum(theta**2)), np.sqrt(np.sum(u**2))
            plain = any(word in name for word in ("bias", "gamma", "beta", "LayerNorm", "GroupNorm", "fixup"))
            if plain or theta_norm == 0 or u_norm == 0:
                r = 1.0
            else:
                r = min(max(min(theta_norm, 10.0) / u_norm, self.rho), 1 / self.rho)
            self.theta[name] = theta - lr * r * u


def run(optimizer, params, twin, steps=20):
    for step in range(steps):
        lr, gradient = 1e-2 / (1 + step), gradients(step)
        optimizer.param_groups[0]["lr"].fill_(lr)
        for name, parameter in params.items():
            parameter.grad = torch.tensor(gradient[name])
        optimizer.step()
        twin.step(gradient, lr)


@pytest.mark.parametrize("rho", [0.01, 0.5, 1.0])
@pytest.mark.parametrize("decay", [0.0, 1e-2])
def test_lamb_is_its_formula(rho, decay):
    params = parameters()
    twin = NumpyLamb({name: p.detach().numpy() for name, p in params.items()}, rho, decay)
    run(Lamb(params.items(), torch.tensor(0.0), weight_decay=decay, min_trust=rho), params, twin)
    for name, parameter in params.items():
        np.testing.assert_allclose(parameter.detach().numpy(), twin.theta[name], rtol=FLOAT32, atol=FLOAT32)


def test_rho_one_is_adamw():
    params, others = parameters(), parameters()
    lamb = Lamb(params.items(), torch.tensor(1e-2), weight_decay=1e-2, min_trust=1.0)
    adamw = torch.optim.AdamW(others.values(), 1e-2, eps=1e-5, weight_decay=1e-2)
    for step in range(10):
        for name, value in gradients(step).items():
            params[name].grad, others[name].grad = torch.tensor(value), torch.tensor(value)
        lamb.step()
        adamw.step()
    for name in params:
        torch.testing.assert_close(params[name], others[name], rtol=FLOAT32, atol=FLOAT32)


def test_trust_ratio_corners():
    theta = torch.tensor([0.0, 1.0, 4.0, 50.0, 1e-6, 5.0, 4.0])
    u = torch.tensor([1.0, 0.0, 2.0, 2.0, 1.0, 1e-6, 2.0])
    trusted = torch.tensor([True] * 6 + [False])
    assert trust_ratio(theta, u, trusted, 0.01).tolist() == pytest.approx([1, 1, 2, 5, 0.01, 100, 1])


def test_a_loaded_state_continues():
    params = parameters()
    first = Lamb(params.items(), torch.tensor(1e-2))
    twin = NumpyLamb({name: p.detach().numpy() for name, p in params.items()}, 0.01, 1e-2)
    run(first, params, twin, steps=3)
    copies = {name: torch.nn.Parameter(p.detach().clone()) for name, p in params.items()}
    second = Lamb(copies.items(), torch.tensor(0.0))
    second.load_state_dict(copy.deepcopy(first.state_dict()))
    for optimizer, tensors in ((first, params), (second, copies)):
        for name, parameter in tensors.items():
            parameter.grad = torch.tensor(gradients(9)[name])
        optimizer.step()
    assert all(torch.equal(params[name], copies[name]) for name in params)


def test_kernels_need_equal_strides():
    """They go by addresses: moments laid out otherwise would be other numbers' moments."""
    parameter = torch.zeros(16, 8, 3, 3).to(memory_format=torch.channels_last)
    moment = torch.zeros_like(parameter)
    assert _fits_kernels(parameter, moment, moment)
    assert not _fits_kernels(parameter, moment, moment.contiguous())
    assert not _fits_kernels(parameter.bfloat16(), moment, moment)
    every_second, part = torch.zeros(8)[::2], torch.zeros(9)[1:]
    assert not _fits_kernels(every_second, torch.zeros_like(every_second))
    assert not _fits_kernels(part, torch.zeros_like(part))


@pytest.mark.cuda
@pytest.mark.parametrize("graph", [False, True])
def test_kernels_are_the_plain_step(graph, monkeypatch):
    """Also where parameters lie in channels_last, and with another's state; and a step in a graph is one."""
    generator = torch.Generator().manual_seed(0)
    shapes = {**SHAPES, "conv.weight": (16, 8, 3, 3)}
    values = {name: torch.randn(shape, generator=generator) for name, shape in shapes.items()}
    values["conv.weight"] = values["conv.weight"].to(memory_format=torch.channels_last)
    gradients = [{n: 0.1 * torch.randn(s, generator=generator).cuda() for n, s in shapes.items()} for _ in range(6)]

    def learn(fused):
        monkeypatch.setattr("batchnav.learning.optimizers.has_triton", lambda device: fused)
        params = {name: torch.nn.Parameter(value.cuda()) for name, value in values.items()}
        for parameter in params.values():
            parameter.grad = torch.zeros_like(parameter)
        optimizer = Lamb(params.items(), torch.tensor(1e-2, device="cuda"))
        step, replayed = optimizer.step, torch.cuda.CUDAGraph()
        for i, gradient in enumerate(gradients):
            for name, parameter in params.items():
                parameter.grad.copy_(gradient[name])
            if i == 2:
                optimizer.load_state_dict(copy.deepcopy(optimizer.state_dict()))
            if i == 4 and graph:
                with torch.cuda.graph(replayed):
                    optimizer.step()
                step = replayed.replay
            step()
        return params

    fused, plain = learn(True), learn(False)
    for name in shapes:
        torch.testing.assert_close(fused[name], plain[name], rtol=FLOAT32, atol=FLOAT32)


def test_rate_scale_is_the_square_root_rule():
    assert learning_rate_scale(8192) == pytest.approx(math.sqrt(32))  # the paper's depth agent
    assert learning_rate_scale(256) == 1.0
    assert learning_rate_scale(64) == 1.0


def test_schedule_corners():
    def rate(progress):
        return learning_rate(progress, 5e-4, 8192)

    full = 5e-4 * math.sqrt(32)
    assert rate(0.0) == pytest.approx(full / 2)
    assert rate(0.005) == pytest.approx(0.75 * full)
    assert rate(0.01) == pytest.approx(full)
    assert rate(0.505) == pytest.approx((full + 5e-6) / 2)
    assert rate(1.0) == pytest.approx(5e-6)
    assert rate(1.5) == rate(1.0) and rate(-1.0) == rate(0.0)
    assert all(rate(a) >= rate(b) for a, b in zip(np.linspace(0.01, 1, 50), np.linspace(0.02, 1, 50), strict=True))
