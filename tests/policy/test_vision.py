"""Colour encoders that learned on renders: their files, policies that start from their weights or keep them."""

import numpy as np
import pytest
import torch
from gymnasium import spaces
from networks import policy_config
from safetensors.torch import load_file, save_file

from batchnav.errors import CheckpointError, ConfigError
from batchnav.policy import ActorCritic, load_policy, save_policy
from batchnav.policy.vision import VisionNet, cell_pixels, load_vision, save_vision
from batchnav.policy.weights import load_weights

WIDTH, SIDE = 8, 32
NORM = 1e-3  # of features: the policy adds 1e-5 to variances


@pytest.fixture(scope="module")
def weights(tmp_path_factory):
    """Weights file of a network whose outputs depend on all inputs."""
    torch.manual_seed(0)
    network = VisionNet(WIDTH, ("", "chair", "bed"), {"training": "none"})
    with torch.no_grad():
        for parameter in network.parameters():
            parameter.add_(0.05 * torch.randn(parameter.shape))
    path = tmp_path_factory.mktemp("weights") / "eyes.safetensors"
    save_vision(path, network)
    return path


def colour(n, channels=3):
    return torch.randint(0, 256, (n, channels, SIDE, SIDE), dtype=torch.uint8)


def policy(weights, *names, more=None, width=WIDTH, **settings):
    """A policy that reads colour images of these names, and starts from the weights."""
    images = {name: spaces.Box(0, 255, (3, SIDE, SIDE), np.uint8) for name in names}
    sizes = {"visual_size": 16, "hidden_size": 16, "layers": 1, "normalized": names}
    sections = {"se_resnet9": {"base_width": width, "weights": str(weights)}}
    space = spaces.Dict([*images.items(), *(more or {}).items()])  # Gymnasium sorts a dict
    return ActorCritic(space, spaces.Discrete(3), policy_config(**sizes | sections | settings))


def frozen(weights, *names, **settings):
    section = {"base_width": WIDTH, "weights": str(weights)} | settings
    return policy("", *names, encoder="frozen_resnet9", frozen_resnet9=section, normalized=(), se_resnet9={})


def trunk_features(network, image):
    x = (image.float() / 255.0 - network.mean) / network.std
    for stage in network.trunk.stages():
        x = stage(x)
    return x


def test_a_file_holds_the_network(weights):
    network, image = load_vision(weights), colour(2)
    assert network.categories == ("", "chair", "bed") and network.info == {"training": "none"}
    found = network(image)
    shapes = [(2, 1, SIDE, SIDE), (2, 3, SIDE // 4, SIDE // 4), (2, 3, SIDE // 4, SIDE // 4), (2, 128)]
    assert [value.shape for value in found] == shapes
    torch.testing.assert_close(found.embedding.norm(dim=1), torch.ones(2))
    again = load_vision(weights)
    torch.testing.assert_close(again(image.float() / 255.0).log_depth, found.log_depth)
    metres = network.depth(image[:, :, :30, :29])  # sides that are no multiples of four
    assert metres.shape == (2, 1, 30, 29) and metres.min() >= 0.1 and metres.max() <= 10.0
    torch.testing.assert_close(network.depth(image), found.log_depth.exp().clamp(0.1, 10.0))


def test_labels_are_those_of_one_pixel_in_a_cell():
    image = torch.arange(64).view(1, 1, 8, 8)
    assert cell_pixels(image).tolist() == [[[[18, 22], [50, 54]]]]


def test_a_policy_begins_with_the_features_and_learns_all_of_them(weights):
    network, image = load_vision(weights), colour(2)
    made = policy(weights, "rgb")
    encoder = made.encoder
    found = encoder.blocks(encoder.read_cells(made._prepare_image("rgb", image)))
    torch.testing.assert_close(found, trunk_features(network, image), rtol=NORM, atol=NORM)
    assert all(parameter.requires_grad for parameter in encoder.parameters())
    for name, value in encoder.state_dict().items():  # of the layers behind the trunk nothing is known
        assert name.startswith(("compress", "project")) or torch.isfinite(value).all()


def test_further_channels_begin_without_effect(weights):
    """The image of a goal, a mask, or another camera, whose channels join those of the first colour image."""
    more = {"goal_mask": spaces.Box(0, 255, (1, SIDE, SIDE), np.uint8)}
    made = policy(weights, "rgb", "imagegoal", more=more)
    assert made.images == [("rgb", "imagegoal", "goal_mask")]
    first, others = made.encoder.stem.weight.split([48, 64], dim=1)
    assert torch.equal(first, load_vision(weights).trunk.stem.weight) and not others.any()


def test_images_that_modulate_begin_with_the_features_too(weights):
    made, image = policy(weights, "rgb", "imagegoal", film=("imagegoal",)), colour(2)
    expected = trunk_features(load_vision(weights), image)
    for name, trunk in (("rgb", made.encoder.encoder), ("imagegoal", made.encoder.trunk)):
        found = trunk.blocks(trunk.read_cells(made._prepare_image(name, image)))
        torch.testing.assert_close(found, expected, rtol=NORM, atol=NORM)


def test_policies_are_loaded_without_the_weights_file(weights, tmp_path):
    here = tmp_path / "eyes.safetensors"
    here.write_bytes(weights.read_bytes())
    made = {"started": policy(here, "rgb"), "frozen": frozen(here, "rgb")}
    here.unlink()
    for name, network in made.items():
        save_policy(network, tmp_path / name)
        loaded = load_policy(tmp_path / name).network
        assert loaded.config == network.config and loaded.pretrained_source == network.pretrained_source
        for key, value in network.state_dict().items():
            assert torch.equal(value, loaded.state_dict()[key]), key
    source = made["frozen"].pretrained_source
    assert source.weights == "eyes.safetensors" and len(source.sha256) == 64 and source.licence == "MIT"


def test_a_policy_continues_without_the_weights_file(weights, tmp_path):
    """A later part of a training starts from the policy of the first, whose encoder began with the weights."""
    first = policy(weights, "rgb")
    save_policy(first, tmp_path / "first.safetensors")
    then = policy("", "rgb")
    load_weights(then, tmp_path / "first.safetensors")
    for key, value in first.state_dict().items():
        assert torch.equal(value, then.state_dict()[key]), key
    with pytest.raises(CheckpointError, match=r"config: found .*base_width"):
        load_weights(policy("", "rgb", width=16), tmp_path / "first.safetensors")


def test_a_rollout_keeps_the_features_of_a_frozen_trunk(weights):
    made, image = frozen(weights, "rgb"), colour(2)
    assert made.rollout_shapes == {"rgb.features": (8 * WIDTH, 1, 1)}
    found = made.with_features({"rgb": image})["rgb.features"]
    torch.testing.assert_close(found, trunk_features(load_vision(weights), image), rtol=1e-5, atol=1e-5)
    trained = {name for name, parameter in made.named_parameters() if parameter.requires_grad}
    assert not any(name.startswith("pretrained.backbone") for name in trained)
    assert any(name.startswith("pretrained.heads") for name in trained)


@pytest.mark.parametrize(
    "made, message",
    [
        (lambda file: policy(file, "rgb", width=16), r"se_resnet9.base_width: found 16, expected 8"),
        (lambda file: policy(file, "rgb", normalized=()), r"normalized: found \[\], expected 'rgb' in it"),
        (
            lambda file: policy(file, more={"depth": spaces.Box(0.0, 1.0, (1, SIDE, SIDE), np.float32)}),
            r"se_resnet9.weights: found images depth \[1, 32, 32\], expected one with 3 channels",
        ),
        (lambda file: policy("nothing", "rgb"), r"nothing: no such file or weights file"),
        (lambda file: frozen(file, "rgb", base_width=16), r"frozen_resnet9.base_width: found 16, expected 8"),
        (lambda file: frozen("", "rgb"), r"frozen_resnet9.weights: found none, expected a file"),
    ],
)
def test_weights_that_do_not_fit_are_refused(made, message, weights):
    with pytest.raises(ConfigError, match=message):
        made(weights)


@pytest.mark.parametrize(
    "metadata, message",
    [
        ({}, "format is None, expected 'batchnav encoder 1'"),
        ({"format": "batchnav encoder 1"}, "damaged metadata"),
        ({"format": "batchnav encoder 1", "encoder": "[]"}, "damaged metadata"),
        (
            {"format": "batchnav encoder 1", "encoder": '{"base_width": 1e9, "categories": [], "info": {}}'},
            "damaged metadata",
        ),
        (
            {"format": "batchnav encoder 1", "encoder": '{"base_width": 8, "categories": [], "info": {}}'},
            "0 categories",
        ),
        (
            {"format": "batchnav encoder 1", "encoder": '{"base_width": 16, "categories": ["", "a"], "info": {}}'},
            "tensor 'trunk.stem.weight' is",
        ),
    ],
    ids=range(6),
)
def test_damaged_files_are_refused(metadata, message, weights, tmp_path):
    path = tmp_path / "other.safetensors"
    save_file(load_file(weights), path, metadata)
    with pytest.raises(CheckpointError, match=message):
        load_vision(path)
    path.write_bytes(weights.read_bytes()[:1000])
    with pytest.raises(CheckpointError, match="found no weights"):
        load_vision(path)
