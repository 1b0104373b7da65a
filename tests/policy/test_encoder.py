"""The image encoder: the paper's layer table, image sizes, depth bins."""

import copy
import math

import pytest
import torch
from gymnasium import spaces
from networks import sizes
from numba import int32, int64
from torch.nn import functional as F

from batchnav.errors import ConfigError
from batchnav.policy import ENCODERS, ActorCritic, load_policy, save_policy
from batchnav.policy import encoder as cells
from batchnav.policy.config import PolicyConfig
from batchnav.policy.encoder import SEFixupBlock, SEResNet9, SimpleCNN, _OneHotProduct, conv3x3, dense_weight, is_small

PAPER_PARAMETERS = 10_988_085  # counted by the released system's own log
ROUNDING = 1e-5  # float32 sums of some hundred terms of size 1, in another order


def point_goal_space(height=64, width=64, channels=1):
    return spaces.Dict(
        {"depth": spaces.Box(0.0, 1.0, (channels, height, width)), "goal": spaces.Box(-math.inf, math.inf, (2,))}
    )


def paper_policy(**options):
    return ActorCritic(point_goal_space(**options), spaces.Discrete(4), PolicyConfig(polar=("goal",)))


def count(module):
    return sum(parameter.numel() for parameter in module.parameters())


def test_parameters_follow_the_papers_table():
    policy = paper_policy()
    encoder = policy.encoder
    squeeze_excite = [count(block.squeeze) + count(block.excite) for block in encoder.blocks]
    fixup = [sum(p.numel() for n, p in block.named_parameters() if "fixup" in n) for block in encoder.blocks]
    whole = [count(block) for block in encoder.blocks]
    assert count(encoder.stem) == 11_264
    assert [w - s - f for w, s, f in zip(whole, squeeze_excite, fixup, strict=True)] == [
        73_728, 229_376, 917_504, 3_670_016,
    ]  # fmt: skip
    assert squeeze_excite == [580, 2_184, 8_464, 33_312]
    assert fixup == [5, 5, 5, 5]
    assert count(encoder.compress) == 1_179_904
    assert count(encoder.project) == 525_312
    assert count(policy.embeddings) + count(policy.previous_action) == 128 + 160
    assert count(policy.body) == 4_333_568
    assert count(policy.actor) + count(policy.critic) == 2_565
    assert count(policy) == PAPER_PARAMETERS


@pytest.mark.parametrize("kind", [SEResNet9, SimpleCNN])
@pytest.mark.parametrize(("height", "width"), [(16, 16), (32, 32), (48, 48), (18, 70), (33, 100), (90, 160)])
def test_any_size_of_at_least_16(height, width, kind):
    encoder = kind((1, height, width), PolicyConfig(visual_size=24), kind.Config(base_width=8))
    assert encoder(torch.rand(3, 1, height, width)).shape == (3, 24)


@pytest.mark.parametrize("kind", [SEResNet9, SimpleCNN])
@pytest.mark.parametrize(("height", "width"), [(15, 64), (64, 8)])
def test_smaller_images_are_refused(height, width, kind):
    with pytest.raises(ConfigError, match=f"{height}x{width}"):
        kind((1, height, width), PolicyConfig())


def test_simple_cnn_has_the_layers_that_it_says():
    encoder = SimpleCNN((3, 24, 30), PolicyConfig(visual_size=20), SimpleCNN.Config(base_width=8))
    first, second, third = (layer for layer in encoder.convolutions if isinstance(layer, torch.nn.Conv2d))
    assert [count(layer) for layer in (first, second, third)] == [
        16 * (3 * 4 * 4 + 1), 32 * (16 * 3 * 3 + 1), 32 * (32 * 3 * 3 + 1),
    ]  # fmt: skip
    assert count(encoder.project) == 3 * 4 * 32 * 20 + 2 * 20  # three by four places, as 24x32 pixels have
    image = torch.rand(2, 3, 24, 30)
    torch.testing.assert_close(encoder(image), encoder(F.pad(image, (0, 2))))  # beyond the edge there are zeros


def test_unknown_encoder_is_named():
    with pytest.raises(ConfigError, match=r"'resnet1000'.*se_resnet9, simple_cnn"):
        ActorCritic(point_goal_space(), spaces.Discrete(4), PolicyConfig(encoder="resnet1000", polar=()))


def test_own_encoder_plugs_in(monkeypatch):
    class Mean(torch.nn.Module):
        def __init__(self, image_shape, config):
            super().__init__()
            self.output_size = image_shape[0]

        def forward(self, image):
            return image.mean((2, 3))

    monkeypatch.setitem(ENCODERS, "mean", Mean)
    policy = ActorCritic(point_goal_space(), spaces.Discrete(4), PolicyConfig(encoder="mean", polar=("goal",)))
    assert policy.body.input_size == 1 + 32 + 32


def test_own_encoder_keeps_its_constants_when_it_is_loaded(monkeypatch, tmp_path):
    """Those that no file holds."""

    class Centred(torch.nn.Module):
        def __init__(self, image_shape, config):
            super().__init__()
            self.output_size, self.scale = image_shape[0], torch.tensor(2.0)
            self.register_buffer("centre", torch.tensor([0.25]), persistent=False)

        def forward(self, image):
            return self.scale * (image - self.centre).mean((2, 3))

    monkeypatch.setitem(ENCODERS, "centred", Centred)
    policy = ActorCritic(point_goal_space(), spaces.Discrete(4), PolicyConfig(encoder="centred", polar=("goal",)))
    save_policy(policy, tmp_path / "policy.safetensors")
    image = torch.rand(3, 1, 16, 16)
    assert torch.equal(load_policy(tmp_path / "policy.safetensors").network.encoder(image), policy.encoder(image))


def test_stem_sees_each_cell_with_its_one_hot_bins():
    """Against the plain form: pixels to channels, one-hot channels appended, a 1x1 convolution."""
    torch.manual_seed(0)
    encoder = SEResNet9((1, 20, 18), *sizes(base_width=8, depth_bins=10))
    image = torch.rand(2, 1, 20, 18)
    image[0, 0, 0, :3] = torch.tensor([0.0, 0.1, 1.0])  # edges: bins 0, 1, and the last one's upper end
    padded = F.pad(image, (0, 2, 0, 0))
    cells = F.pixel_unshuffle(padded, 4)  # [2, 16, 5, 5]
    bins = (cells.double() * 10).floor().clamp(max=9)
    one_hot = (bins[:, :, None] == torch.arange(10.0)[:, None, None]).float().flatten(1, 2)  # [2, 160, 5, 5]
    expected = F.relu(F.conv2d(torch.cat([cells, one_hot], 1), encoder.stem.weight))
    torch.testing.assert_close(encoder.read_cells(image), expected, atol=ROUNDING, rtol=ROUNDING)


def test_one_hot_product_is_one_and_so_is_its_gradient(monkeypatch):
    monkeypatch.setattr("batchnav.policy.encoder.CHUNK", 7)
    torch.manual_seed(0)
    which = torch.randint(5, (20, 3), dtype=torch.int32)
    table, grad = torch.randn(15, 4, requires_grad=True), torch.randn(20, 4)
    product = _OneHotProduct.apply(which, table)
    expected = F.one_hot(which.long(), 5).float().flatten(1) @ table
    torch.testing.assert_close(product, expected, atol=ROUNDING, rtol=ROUNDING)
    gradients = [torch.autograd.grad(y, table, grad)[0] for y in (product, expected)]
    torch.testing.assert_close(*gradients, atol=ROUNDING, rtol=ROUNDING)


def test_block_is_fixup_with_squeeze_and_excitation():
    """Against the textbook form, a scalar at a time."""
    torch.manual_seed(0)
    block = SEFixupBlock(8, 16, 2, num_blocks=4)
    with torch.no_grad():
        for parameter in block.parameters():
            parameter.copy_(torch.randn_like(parameter) * 0.3)
    x = torch.randn(2, 8, 6, 6)
    y = x + block.fixup_bias1a
    skip = F.conv2d(F.avg_pool2d(y, 3, 2, 1), block.skip.weight)
    y = F.relu(F.conv2d(y, block.conv1.weight, stride=2, padding=1) + block.fixup_bias1b) + block.fixup_bias2a
    y = F.conv2d(y, block.conv2.weight, padding=1) * block.fixup_scale + block.fixup_bias2b
    gate = torch.sigmoid(block.excite(F.relu(block.squeeze(y.mean((2, 3))))))
    expected = F.relu(y * gate[..., None, None] + skip)
    torch.testing.assert_close(block(x), expected, atol=ROUNDING, rtol=ROUNDING)


def test_fixup_starts_as_the_identity():
    block = SEFixupBlock(8, 8, 1, num_blocks=4)
    x = torch.rand(2, 8, 6, 6)
    assert torch.equal(block(x), x)


def test_compiles_into_one_graph():
    encoder = SEResNet9((1, 32, 32), *sizes(base_width=4, visual_size=8))
    compiled = torch.compile(encoder, backend="eager", fullgraph=True, dynamic=False)
    image = torch.rand(2, 1, 32, 32)
    assert torch.equal(compiled(image), encoder(image))


def test_the_one_hot_kernel_compiles_for_the_gpu(compile_ptx):
    ptx = compile_ptx(cells._one_hot_cells, int32[:, :, ::1], int64, int64, int32[:, ::1])
    assert "st.global.v4" in ptx and ".local" not in ptx


@pytest.mark.cuda
@pytest.mark.parametrize(("bins", "per_launch"), [(10, cells._CELLS_PER_LAUNCH), (3, 17)])
def test_one_hot_rows_are_the_plain_ones(bins, per_launch, monkeypatch):
    monkeypatch.setattr(cells, "_CELLS_PER_LAUNCH", per_launch)
    torch.manual_seed(0)
    image = torch.rand(5, 1, 20, 36, device="cuda").bfloat16()
    image[0, 0, 0, :4] = torch.tensor([0.0, 0.1, 0.5, 1.0])
    raw = F.pixel_unshuffle(image, 4).permute(0, 2, 3, 1).flatten(0, 2)
    which = (raw.float() * bins).int().clamp(max=bins - 1)
    one_hot = (which[:, None] == torch.arange(bins, device="cuda")[:, None]).to(raw.dtype).flatten(1)
    assert torch.equal(cells.one_hot_cells(image, bins), torch.cat([raw, one_hot], 1))


@pytest.mark.cuda
def test_bfloat16_images_take_the_same_first_step():
    torch.manual_seed(0)
    encoder, image = SEResNet9((1, 64, 48), *sizes(base_width=16)).to("cuda"), torch.rand(8, 1, 64, 48)
    image = image.to("cuda").bfloat16()
    with torch.autocast("cuda", dtype=torch.bfloat16):
        found = encoder.read_cells(image)
    torch.testing.assert_close(found.float(), encoder.read_cells(image.float()), atol=2e-2, rtol=2e-2)


@pytest.mark.cuda
def test_devices_agree_on_gradients(monkeypatch):
    """Strided blocks are included: torch's gradient of padded means, in their shortcut, is wrong on CUDA.

    TF32 is off: with it cuDNN's products put 15% of the stem's gradients beyond the bounds.
    """
    monkeypatch.setattr(torch.backends.cudnn, "allow_tf32", False)
    torch.manual_seed(0)
    encoder, image = SEResNet9((1, 64, 64), *sizes(base_width=16, visual_size=24)), torch.rand(8, 1, 64, 64)
    encoder(image).square().sum().backward()
    expected = {name: parameter.grad for name, parameter in encoder.named_parameters()}
    twin = copy.deepcopy(encoder).to("cuda")
    twin.zero_grad()
    twin(image.to("cuda")).square().sum().backward()
    for name, parameter in twin.named_parameters():
        torch.testing.assert_close(parameter.grad.cpu(), expected[name], atol=1e-3, rtol=1e-2, msg=name)


@pytest.mark.cuda
def test_devices_agree():
    """The CPU looks the depth bins up in a table, CUDA multiplies one-hot rows."""
    torch.manual_seed(0)
    encoder, image = SEResNet9((1, 64, 64), *sizes(base_width=16)), torch.rand(8, 1, 64, 64)
    expected = encoder.read_cells(image)
    found = encoder.to("cuda").read_cells(image.to("cuda")).cpu()
    torch.testing.assert_close(found, expected, atol=ROUNDING, rtol=ROUNDING)


# Convolutions of small images as matrix products

SMALL_ROUNDING = 1e-4  # float32 sums of 144 products of size 1, in another order
SIZES = [(1, 1), (1, 2), (2, 1), (2, 2)]


@pytest.mark.parametrize(("height", "width"), SIZES)
def test_a_dense_weight_is_the_convolution(height, width):
    torch.manual_seed(0)
    x = torch.randn(7, 5, height, width, dtype=torch.float64)
    weight = torch.randn(3, 5, 3, 3, dtype=torch.float64, requires_grad=True)
    rows = F.linear(x.permute(0, 2, 3, 1).flatten(1), dense_weight(weight, height, width))
    found = rows.view(7, height, width, 3).permute(0, 3, 1, 2)
    expected = F.conv2d(x, weight, padding=1)
    torch.testing.assert_close(found, expected)
    by = torch.randn_like(found)
    torch.testing.assert_close(*(torch.autograd.grad(y, weight, by)[0] for y in (found, expected)))


@pytest.mark.parametrize(("height", "width"), SIZES)
def test_small_images_fill_a_dense_weight(height, width):
    """Each pixel sees every other one; of images beyond, corners would see nothing of each other."""
    assert is_small(height, width) and dense_weight(torch.ones(2, 2, 3, 3), height, width).all()
    assert not is_small(3, width) and not is_small(height, 3)


@pytest.mark.cuda
@pytest.mark.parametrize(("height", "width"), [*SIZES, (3, 2)])
def test_convolutions_on_cuda(height, width, monkeypatch):
    monkeypatch.setattr(torch.backends.cudnn, "allow_tf32", False)
    torch.manual_seed(0)
    x = torch.randn(9, 16, height, width, device="cuda").to(memory_format=torch.channels_last)
    weight, bias = torch.randn(32, 16, 3, 3, device="cuda"), torch.randn(32, device="cuda")
    found, expected = conv3x3(x, weight, bias), F.conv2d(x, weight, bias, padding=1)
    torch.testing.assert_close(found, expected, atol=SMALL_ROUNDING, rtol=SMALL_ROUNDING)
    assert found.is_contiguous(memory_format=torch.channels_last)


# Scans


def scan_policy(beams=45, rows=1, **options):
    space = spaces.Dict({"lidar": spaces.Box(0.0, 1.0, (rows, beams)), "goal": spaces.Box(-math.inf, math.inf, (2,))})
    return ActorCritic(space, spaces.Discrete(4), PolicyConfig(polar=("goal",), visual_size=16, **options))


@pytest.mark.parametrize(("rows", "beams"), [(1, 45), (3, 64), (1, 8)])
def test_scans_have_an_encoder_of_their_own(rows, beams):
    policy = scan_policy(beams, rows)
    assert policy.encoder is None and policy.body_inputs["lidar"] == 16
    obs = {"lidar": torch.rand(5, rows, beams), "goal": torch.zeros(5, 2)}
    act = policy.act(obs, torch.zeros(5, dtype=torch.int64), torch.ones(5, dtype=torch.bool), policy.initial_state(5))
    assert act.value.shape == (5,)
    other = policy.value(
        obs | {"lidar": obs["lidar"] + 1.0},
        torch.zeros(5, dtype=torch.int64),
        torch.ones(5, dtype=torch.bool),
        policy.initial_state(5),
    )
    assert (other != act.value).all()


def test_a_turned_scan_gives_turned_features():
    """The convolutions are circular: beams that move by the product of the strides move the features by one."""
    encoder = scan_policy(64).scan_encoders["lidar"]
    encoder.project = torch.nn.Identity()
    scan = torch.rand(2, 1, 1, 64)
    turned = encoder(scan.roll(8, dims=-1)).view(2, 64, 8)
    torch.testing.assert_close(turned, encoder(scan).view(2, 64, 8).roll(1, dims=-1))


def test_an_image_encoder_reads_scans_as_images_and_a_blind_policy_none():
    assert isinstance(scan_policy(64, 16, scan_encoder="simple_cnn").scan_encoders["lidar"], SimpleCNN)
    assert not scan_policy(blind=True).scan_encoders
    with pytest.raises(ConfigError, match="scan: found 7 columns, expected at least 8"):
        scan_policy(7)
    with pytest.raises(ConfigError, match="scan_encoder: found 'polar'"):
        scan_policy(scan_encoder="polar")
