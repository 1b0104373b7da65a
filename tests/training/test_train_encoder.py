"""Training of colour encoders: views with their labels, losses that fall, measures, and the command."""

import math

import pytest
import torch
from worlds import write_floor

from batchnav.data.scenes.load import load_scene
from batchnav.errors import ArgumentError
from batchnav.policy.vision import Predictions, VisionNet, cell_pixels, load_vision
from batchnav.scene.bank import SceneBank
from batchnav.sensors.frame import appearance_needed
from batchnav.training.vision import ViewSampler, losses, mean_iou, measure, place_loss, sensors_of, train

SIDE, PAIRS = 32, 8


@pytest.fixture(scope="module")
def bank():
    return SceneBank.pack([load_scene("house:0")], "cpu", appearance_needed(sensors_of(SIDE).values()))


def perfect(views, categories):
    """Predictions that are the labels."""
    labels = cell_pixels(views.categories)[:, 0].long()
    logits = 50.0 * torch.nn.functional.one_hot(labels, categories).float().permute(0, 3, 1, 2)
    place = torch.eye(PAIRS).repeat(2, 1)
    return Predictions(views.depth.clamp(0.1, 10.0).log(), cell_pixels(views.normals), logits, place)


class Known(VisionNet):
    """A network that answers with the labels of the views that a sampler rendered last."""

    def forward(self, image):
        return perfect(self.views, len(self.categories))


def test_views_have_labels_that_fit(bank):
    sampler = ViewSampler(bank, PAIRS, SIDE, seed=0)
    views = sampler(torch.zeros(1, dtype=torch.int64))
    assert views.image.shape == (2 * PAIRS, 3, SIDE, SIDE) and views.image.float().std() > 10.0
    seen = views.depth > 0.0
    assert seen.float().mean() > 0.9 and (views.normals.norm(dim=1)[seen[:, 0]] - 1.0).abs().max() < 1e-3
    assert int(views.categories.max()) < len(bank.categories) and (views.categories > 0).float().mean() > 0.9
    varied = sampler.varied(views.image)
    assert varied.shape == views.image.shape and varied.min() >= 0.0 and varied.max() <= 1.0
    first = views.image.clone()
    again = ViewSampler(bank, PAIRS, SIDE, seed=0)(torch.zeros(1, dtype=torch.int64))
    assert torch.equal(first, again.image)
    assert not torch.equal(first, ViewSampler(bank, PAIRS, SIDE, seed=1)(torch.zeros(1, dtype=torch.int64)).image)


def test_true_labels_have_no_loss_and_full_marks(bank):
    sampler, scenes = ViewSampler(bank, PAIRS, SIDE, seed=0), torch.zeros(1, dtype=torch.int64)
    views = sampler(scenes)
    found = losses(perfect(views, len(bank.categories)), views)
    assert {name: pytest.approx(0.0, abs=1e-3) for name in found} == {name: float(x) for name, x in found.items()}
    network = Known(8, bank.categories)
    network.views = views  # the tensors that the sampler writes to
    rows = measure(network, sampler, scenes, batches=1)
    assert (rows.views, rows.depth_within, rows.place_accuracy) == (2 * PAIRS, 1.0, 1.0)
    assert rows.depth_error < 1e-4 and rows.normal_angle < 0.1 and rows.mean_iou == pytest.approx(1.0)


def test_losses_of_chance():
    torch.manual_seed(0)
    alike = torch.nn.functional.normalize(torch.ones(2 * PAIRS, 4), dim=1)
    assert float(place_loss(alike)) == pytest.approx(math.log(PAIRS))


def test_mean_iou_counts_categories_that_occur():
    confusion = torch.tensor([[9, 9, 9, 9], [0, 6, 2, 0], [0, 0, 4, 0], [0, 0, 0, 0]])
    assert mean_iou(confusion) == pytest.approx((6 / 8 + 4 / 6) / 2)
    assert mean_iou(torch.zeros(3, 3, dtype=torch.int64)) == 0.0


def test_losses_fall(bank, tmp_path, monkeypatch):
    monkeypatch.setattr("batchnav.training.vision.REPORT_INTERVAL", 15)
    monkeypatch.setattr("batchnav.training.vision.WARM_UP", 5)
    torch.manual_seed(0)
    network, scenes = VisionNet(8, bank.categories), torch.zeros(1, dtype=torch.int64)
    sampler = ViewSampler(bank, PAIRS, SIDE, seed=0)
    first, last = train(network, sampler, scenes, 30, 5e-3, tmp_path / "eyes.safetensors")
    assert last["depth"] < 0.8 * first["depth"] and last["normals"] < first["normals"]
    assert last["categories"] < 0.8 * first["categories"]
    written = load_vision(tmp_path / "eyes.safetensors").state_dict()
    for name, value in network.state_dict().items():
        torch.testing.assert_close(written[name], value, rtol=0.01, atol=1e-6)  # bfloat16


@pytest.mark.cuda
def test_a_gpu_trains_in_bfloat16(tmp_path):
    fields = appearance_needed(sensors_of(SIDE).values())
    sampler = ViewSampler(SceneBank.pack([load_scene("house:0")], "cuda", fields), PAIRS, SIDE, seed=0)
    scenes = torch.zeros(1, dtype=torch.int64, device="cuda")
    network = VisionNet(8, sampler.bank.categories).to("cuda")
    (means,) = train(network, sampler, scenes, 5, 1e-3, tmp_path / "eyes.safetensors")
    assert all(map(math.isfinite, means.values()))
    rows = measure(network, sampler, scenes, batches=1)
    assert rows.depth_error > 0.0 and load_vision(tmp_path / "eyes.safetensors").base_width == 8


def test_the_command_is_seeded_and_continues(run, tmp_path):
    scenes = [write_floor(tmp_path / f"{k}.glb") for k in range(10)]
    small = ("--steps", 2, "--pairs", 2, "--image-size", 16, "--eval-batches", 1, "--device", "cpu")
    command = ("train", "encoder", "--scenes", *scenes, *small)
    out = tmp_path / "eyes.safetensors"
    text = run(*command, "--base-width", 8, "--out", out)
    assert "depth error" in text and "place" in text
    card = (tmp_path / "eyes.md").read_text()
    assert "8 rendered views, 2 steps" in card and "| files |" in card and "base_width: 8, weights: eyes" in card
    network = load_vision(out)
    assert network.info["training"]["pairs"] == 2 and network.info["measures"]["all"]["views"] == 4
    again = tmp_path / "again.safetensors"
    run(*command, "--base-width", 8, "--out", again)
    assert again.read_bytes() == out.read_bytes()
    run(*command, "--base-width", 8, "--init-from", out, "--out", again)
    assert again.read_bytes() != out.read_bytes()
    with pytest.raises(SystemExit):
        run(*command, "--base-width", 16, "--init-from", out, "--out", again)
    with pytest.raises(ArgumentError, match="scenes: found 1 scene, expected 10 or more"):
        from batchnav.cli.encoder import main
        from batchnav.cli.train import EncoderOptions

        main(EncoderOptions(out=out, scenes=(str(scenes[0]),), device="cpu"))
