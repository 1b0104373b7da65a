"""Detectors of objects: geometry of their input, files, and masks in environments."""

import math

import pytest
import torch
from safetensors.torch import load_file, save_file

from batchnav.errors import CheckpointError, ConfigError
from batchnav.policy.vision import VisionNet, save_vision
from batchnav.sensors.detector import (
    FARTHEST,
    Detector,
    DetectorNet,
    Views,
    encoded,
    load_detector,
    points_of,
    save_detector,
)

HFOV_DEG, HEIGHT, SIDE = 80.0, 1.2, 32
CATEGORIES = "chair", "bed", "plant", "toilet", "tv_monitor", "sofa"


def views_of_floor(lens, pitch):
    """Views of a floor HEIGHT below the camera, with holes above the horizon."""
    half, aspect, _across, rise = lens if lens.ndim else (lens, 1.0, 0.0, 0.0)
    rows = torch.arange(SIDE, dtype=torch.float32)
    v = ((SIDE - 1.0 - 2.0 * rows) / SIDE + rise) * aspect * half
    down = -(math.sin(pitch) + v * math.cos(pitch))
    depth = torch.where(down > 0.0, HEIGHT / down.clamp(min=1e-6), 0.0)
    depth = torch.where(depth < FARTHEST, depth, 0.0)[None, :, None].expand(1, SIDE, SIDE).contiguous()
    rgb = torch.zeros(1, 3, SIDE, SIDE, dtype=torch.uint8)
    return Views(rgb, depth, lens[None], torch.full((1,), HEIGHT), torch.full((1,), pitch))


@pytest.mark.parametrize("pitch", [0.0, -0.3])
@pytest.mark.parametrize("shifted", [False, True])
def test_a_floor_has_height_zero_and_points_up(shifted, pitch):
    half = math.tan(math.radians(HFOV_DEG) / 2)
    lens = torch.tensor([half, 1.1, 0.1, -0.05] if shifted else half)
    views = views_of_floor(lens, pitch)
    seen = views.depth > 0.0
    assert 0.3 < seen.float().mean() < 1.0
    points = points_of(views)
    assert points.up[seen].abs().max() < 1e-4 and (points.ahead[seen] > 0.0).all()
    torch.testing.assert_close(points.footprint[seen], views.depth[seen] * half)
    planes = encoded(views)
    assert planes.shape == (1, 8, SIDE, SIDE) and (planes[:, :3] == -1.0).all()
    inside = seen & torch.roll(seen, 1, 1)  # normals need the row above
    up = planes[:, 5:].permute(0, 2, 3, 1)[inside][: SIDE * 4]
    torch.testing.assert_close(up, torch.tensor([0.0, 1.0, 0.0]).expand_as(up), atol=1e-3, rtol=0.0)


def test_a_wall_faces_the_camera():
    one = torch.ones(1)
    views = Views(torch.zeros(1, 3, SIDE, SIDE), torch.full((1, SIDE, SIDE), 2.0), one, HEIGHT * one, 0.0 * one)
    normal = encoded(views)[0, 5:, 1:-1, 1:-1].flatten(1)
    torch.testing.assert_close(normal, torch.tensor([[0.0], [0.0], [1.0]]).expand_as(normal))


@pytest.fixture(scope="module")
def weights(tmp_path_factory):
    """Weights of a network whose scores depend on all inputs."""
    torch.manual_seed(0)
    network = DetectorNet(CATEGORIES, {"training": "none"})
    network.train()
    network(torch.rand(8, 8, SIDE, SIDE))
    with torch.no_grad():
        network.out.weight.mul_(20.0)
        network.out.bias[1 + CATEGORIES.index("plant")] += 5.0
    path = tmp_path_factory.mktemp("weights") / "objects.safetensors"
    save_detector(path, network)
    return path


def test_a_file_holds_the_network(weights):
    network, images = load_detector(weights), views_of_floor(torch.tensor(1.0), 0.0)
    assert network.categories == CATEGORIES and network.info == {"training": "none"}
    scores = Detector(weights).scores(images)
    logits = network.eval()(encoded(images))
    torch.testing.assert_close(scores, torch.softmax(logits, 1)[:, 1:], atol=1e-3, rtol=0.0)
    assert network(torch.zeros(1, 8, 20, 34)).shape == (1, 1 + len(CATEGORIES), 10, 17)
    for number, name in enumerate(CATEGORIES):
        mask = Detector(weights).masks(images, torch.tensor([number]))
        expected = scores[:, number : number + 1]
        assert torch.equal(mask, torch.where(expected >= 0.5, expected, 0.0)) and mask.any() == (name == "plant")


def test_other_files_are_refused(weights, tmp_path):
    path = tmp_path / "other.safetensors"
    save_vision(path, VisionNet(8, ("", "chair")))
    with pytest.raises(CheckpointError, match="format is 'batchnav encoder 1', expected 'batchnav detector 1'"):
        load_detector(path)
    tensors = load_file(weights)
    save_file(tensors, path, {"format": "batchnav detector 1", "detector": '{"categories": [], "info": {}}'})
    with pytest.raises(CheckpointError, match="damaged metadata"):
        load_detector(path)
    metadata = {"format": "batchnav detector 1", "detector": '{"categories": ["chair"], "info": {}}'}
    save_file(tensors, path, metadata)
    with pytest.raises(CheckpointError, match=r"'out\.weight' is torch\.bfloat16 \[7, 24, 1, 1\], expected"):
        load_detector(path)
    with pytest.raises(ConfigError, match="found chair, expected oven among its categories"):
        torch.manual_seed(0)
        save_detector(path, DetectorNet(["chair"]))
        Detector(path).numbers_of(["chair", "oven"])
