"""The encoder's own kernels against the plain blocks, which are their specification: forward and gradient."""

import pytest
import torch
from networks import sizes

from batchnav.policy.encoder import SEResNet9

SLACK = 1.5
"""The plain form rounds to bfloat16 more often than the kernels do; sums of what is rounded differ by chance."""
SEEDS = range(20)
"""Encoders and images whose errors count together: one gradient alone may be right or wrong by luck, by a ReLU that one
form lets a frame through and the other does not."""
LEAST = 1e-2
"""Relative error that bfloat16, with its 8 bits, may have after nine layers even where the plain form has luck."""


def make_encoder(height, width, base, bins=10, seed=0):
    """An encoder without zero biases or second convolutions, which could hide an error.

    Biases of squeezed units are around one, so that most images activate them. With biases around zero, half of the
    encoders with one unit have no gradient through it, and a few seeds dominate the sum. Two correct forms then differ
    by more than SLACK: their error ratio is 0.72 to 1.63 in 20 seeds on the CPU, but 0.84 to 1.14 with biases around
    one.
    """
    torch.manual_seed(seed)
    encoder = SEResNet9((1, height, width), *sizes(base_width=base, depth_bins=bins)).cuda()
    with torch.no_grad():
        for name, parameter in encoder.named_parameters():
            if "fixup" in name:
                parameter.copy_(0.2 * torch.randn(()) + ("scale" in name))
            elif "conv2" in name:
                parameter.normal_(0.0, (2.0 / (9 * len(parameter))) ** 0.5)
            elif "squeeze" in name or "excite" in name:
                parameter.normal_(1.0 if name.endswith("squeeze.bias") else 0.0, 0.3)
    return encoder


def make_images(batch, height, width):
    images = torch.rand(batch, 1, height, width, device="cuda").bfloat16()
    images[0, 0, 0, :4] = torch.tensor([0.0, 0.1, 0.5, 1.0])
    return images


def learn(encoder, images, weight, autocast=True):
    """The result and all gradients, by name.

    One weight for all images: with one for each, gradients nearly cancel, and rounding is up to half of what is left.
    """
    encoder.zero_grad()
    with torch.autocast("cuda", torch.bfloat16, enabled=autocast):
        out = encoder(images)
    (out.float() * weight).sum().backward()
    return {"out": out.detach().float()} | {n: p.grad.clone() for n, p in encoder.named_parameters()}


def error(found, expected):
    """Relative; where what is expected is zero, as behind a ReLU that lets nothing through, what is found has to be."""
    return float((found.double() - expected.double()).norm() / expected.double().norm().clamp(min=1e-30))


def together(runs):
    """Results of several seeds by name; scalars, whose gradients nearly cancel, are joined in one vector."""
    return {
        name: torch.cat([run[one].flatten() for run in runs for one in run if name_of(run, one) == name])
        for name in {name_of(runs[0], one) for one in runs[0]}
    }


def name_of(run, name):
    return name if run[name].numel() > 1 else "numbers"


@pytest.mark.cuda
@pytest.mark.parametrize(
    ("height", "width", "base", "bins", "batch"),
    [(64, 64, 64, 10, 256), (36, 20, 16, 3, 397), (128, 96, 32, 10, 24), (34, 22, 16, 15, 397)],
)
def test_kernels_are_the_plain_blocks(height, width, base, bins, batch, monkeypatch):
    fused, plain, exact = [], [], []
    for seed in SEEDS:
        encoder, images = make_encoder(height, width, base, bins, seed), make_images(batch, height, width)
        weight = torch.randn(encoder.output_size, device="cuda")
        assert encoder._is_fused(images)
        fused.append(learn(encoder, images, weight))
        with monkeypatch.context() as patch:
            patch.setattr(SEResNet9, "_is_fused", lambda self, image: False)
            plain.append(learn(encoder, images, weight))
            exact.append(learn(encoder, images.float(), weight, autocast=False))
    assert not torch.equal(fused[0]["blocks.0.conv1.weight"], plain[0]["blocks.0.conv1.weight"])  # the kernels did run
    fused, plain = together(fused), together(plain)
    for name, expected in together(exact).items():
        assert error(fused[name], expected) < max(SLACK * error(plain[name], expected), LEAST), name


@pytest.mark.cuda
def test_kernels_give_the_same_bits_twice_and_in_a_graph_and_without_gradients():
    encoder, images = make_encoder(64, 64, 32), make_images(20, 64, 64)
    weight = torch.randn(20, encoder.output_size, device="cuda")
    first, second = (learn(encoder, images, weight) for _ in range(2))
    assert all(torch.equal(first[name], second[name]) for name in first)
    with torch.no_grad(), torch.autocast("cuda", torch.bfloat16):
        assert torch.equal(encoder(images).float(), first["out"])
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        replayed = learn(encoder, images, weight)
    graph.replay()
    assert all(torch.equal(first[name], replayed[name]) for name in first)


@pytest.mark.cuda
@pytest.mark.parametrize("name", ["stem", "blocks.0.conv1", "blocks.1.conv2", "blocks.2.squeeze"])
def test_nan_stays_nan(name):
    """A run that diverged is to be seen."""
    encoder, images = make_encoder(32, 32, 16), make_images(5, 32, 32)
    weight = torch.ones(5, encoder.output_size, device="cuda")
    assert learn(encoder, images, weight)["out"].isfinite().all()
    with torch.no_grad():
        parameter = encoder.get_parameter(f"{name}.weight")
        parameter[(0,) * parameter.ndim] = torch.nan
    found = learn(encoder, images, weight)
    assert found["out"].isnan().all() and found[f"{name}.weight"].isnan().any()


@pytest.mark.cuda
def test_kernels_run_where_the_tensors_are():
    """Not on the current device."""
    if torch.cuda.device_count() < 2:
        pytest.skip("one GPU")
    encoder, images = make_encoder(32, 32, 16), make_images(5, 32, 32)
    weight = torch.randn(5, encoder.output_size, device="cuda")
    here, there = (learn(encoder.to(device), images.to(device), weight.to(device)) for device in ("cuda:0", "cuda:1"))
    assert all(torch.equal(here[name], there[name].cpu().cuda()) for name in here)


@pytest.mark.cuda
def test_compiled_encoders_use_them_too():
    """Compiled layers round differently: both versions have similar errors against the exact gradients.

    All parameters have gradients with seed 3; with seed 0 `blocks.3.conv1` has none.
    """
    encoder, weight = make_encoder(32, 32, 16, seed=3), torch.randn(512, device="cuda")
    batches = [make_images(99, 32, 32) for _ in SEEDS]
    plain = together([learn(encoder, images, weight) for images in batches])
    exact = together([learn(encoder, images.float(), weight, autocast=False) for images in batches])
    encoder.compile(dynamic=False)
    found = together([learn(encoder, images, weight) for images in batches])
    for name, expected in exact.items():
        assert error(found[name], expected) < max(SLACK * error(plain[name], expected), LEAST), name


@pytest.mark.parametrize("channels", [1, 3])
def test_the_cpu_has_the_plain_blocks(channels):
    encoder = SEResNet9((channels, 32, 32), *sizes(base_width=16))
    assert not encoder._is_fused(torch.rand(2, channels, 32, 32).bfloat16())
