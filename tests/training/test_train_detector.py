"""Training of detectors: views with labels, a loss that falls, precision and recall, and the command."""

import math

import pytest
import torch
from worlds import write_floor

from batchnav.cli.detector import main
from batchnav.cli.train import DetectorOptions
from batchnav.data.scenes.load import load_scene
from batchnav.errors import ArgumentError
from batchnav.scene.bank import SceneBank
from batchnav.sensors.detector import DetectorNet, load_detector
from batchnav.sensors.frame import appearance_needed
from batchnav.training.detection import MaskCounts, ObjectViews, loss_of, measure, sensors_of, train

SIDE, VIEWS = 64, 16
ONE = torch.zeros(1, dtype=torch.int64)


@pytest.fixture(scope="module")
def bank():
    return SceneBank.pack([load_scene("house:0")], "cpu", appearance_needed(sensors_of(SIDE).values()))


class Known(DetectorNet):
    """A network that answers with the labels of the views that a sampler rendered last."""

    def forward(self, planes):
        shares = torch.nn.functional.one_hot(self.sampler.last.labels, 1 + len(self.categories)).float()
        return 50.0 * torch.nn.functional.avg_pool2d(shares.permute(0, 3, 1, 2), 2)


class Remembering(ObjectViews):
    def __call__(self, scenes):
        self.last = super().__call__(scenes)
        return self.last


def test_half_of_the_views_look_at_objects(bank):
    sampler = Remembering(bank, 128, SIDE, "hm3d", seed=0)
    views, labels = sampler(ONE)
    shown = (labels > 0).float().mean((1, 2)) > 0.005
    assert 0.3 < shown.float().mean() < 0.9 and len(labels[labels > 0].unique()) >= 4
    assert (labels > 0).float().mean() < 0.3 and views.height.min() >= 0.6 and views.height.max() <= 1.6
    changed = sampler.changed(views)
    blank = changed.rgb.flatten(2).amax(2) - changed.rgb.flatten(2).amin(2) < 1e-3
    assert 0.2 < blank.all(1).float().mean() < 0.6 and changed.rgb.min() >= 0.0 and changed.rgb.max() <= 1.0
    ratio = (changed.height / views.height)[:, None, None]
    same = changed.depth > 0.0
    torch.testing.assert_close(changed.depth[same], (views.depth * ratio)[same])
    assert 0.01 < 1.0 - same.float().mean() < 0.3
    again = ObjectViews(bank, 128, SIDE, "hm3d", seed=0)(ONE)
    assert torch.equal(again.labels, labels) and torch.equal(again.views.rgb, views.rgb)


def test_true_labels_have_full_marks(bank):
    sampler = Remembering(bank, VIEWS, SIDE, "hm3d", seed=0)
    network = Known(sampler.categories)
    network.sampler = sampler
    counts = measure(network, sampler, ONE, batches=2)
    assert counts.rates() == (1.0, 1.0) and sum(counts.shown) > VIEWS // 2
    assert all(math.isnan(rate) for rate in MaskCounts([0, 1], [0, 4], [0, 1]).rates(0))
    assert MaskCounts([0, 1], [0, 4], [0, 1]).rates(1) == (0.25, 1.0)


def test_the_loss_is_least_for_the_shares_of_the_quarters():
    labels = torch.tensor([[[0, 0], [0, 2]]])
    shares = torch.tensor([0.75, 1e-9, 0.25])
    best = loss_of(shares.log().view(1, 3, 1, 1), labels, torch.ones(1, 2, 2))
    assert float(best) == pytest.approx(-0.75 * math.log(0.75) - 0.25 * math.log(0.25))
    far = torch.tensor([[[1.0, 1.0], [1.0, 3.0]]])
    assert float(loss_of(shares.log().view(1, 3, 1, 1), labels, far)) > float(best)


def test_the_loss_falls(bank, tmp_path, monkeypatch):
    monkeypatch.setattr("batchnav.training.vision.REPORT_INTERVAL", 8)
    monkeypatch.setattr("batchnav.training.vision.WARM_UP", 4)
    torch.manual_seed(0)
    sampler = ObjectViews(bank, VIEWS, SIDE, "hm3d", seed=0)
    network = DetectorNet(sampler.categories)
    first, last = train(network, sampler, ONE, 16, 4e-3, tmp_path / "objects.safetensors")
    assert last < 0.8 * first
    written = load_detector(tmp_path / "objects.safetensors").state_dict()
    for name, value in network.state_dict().items():
        torch.testing.assert_close(written[name], value, rtol=0.01, atol=1e-6)  # bfloat16


@pytest.mark.cuda
def test_a_gpu_trains_in_bfloat16(tmp_path):
    fields = appearance_needed(sensors_of(SIDE).values())
    bank = SceneBank.pack([load_scene("house:0")], "cuda", fields)
    sampler, scenes = ObjectViews(bank, VIEWS, SIDE, "hm3d", seed=0), ONE.to("cuda")
    network = DetectorNet(sampler.categories).to("cuda")
    (loss,) = train(network, sampler, scenes, 5, 1e-3, tmp_path / "objects.safetensors")
    assert math.isfinite(loss) and sum(measure(network, sampler, scenes, batches=1).shown) > 0


def test_the_command_is_seeded_and_measures(run, tmp_path):
    scenes = [write_floor(tmp_path / f"{k}.glb") for k in range(10)]
    small = ("--views", 2, "--image-size", 32, "--eval-batches", 1, "--device", "cpu")
    command, out = ("train", "detector", "--scenes", *scenes, *small, "--steps", 2), tmp_path / "objects.safetensors"
    text = run(*command, "--out", out)
    assert "precision, recall of masks of 25 pixels" in text and "toilet" in text
    assert "4 rendered views, 2 steps" in (tmp_path / "objects.md").read_text()
    network = load_detector(out)
    assert network.info["training"]["views"] == 2 and network.categories[0] == "chair"
    again = tmp_path / "again.safetensors"
    run(*command, "--out", again)
    assert again.read_bytes() == out.read_bytes()
    run("train", "detector", "--scenes", scenes[0], *small, "--steps", 0, "--init-from", out, "--out", again)
    assert load_detector(again).info["measures"].keys() == {"files", "all"}
    for options, message in (
        ({"scenes": (str(scenes[0]),)}, "scenes: found 1 scene, expected 10 or more"),
        ({"steps": 0}, "--steps: found 0 without --init-from"),
        ({"labels": "all"}, "--labels: found all, expected a label map with categories"),
        ({"labels": "hssd", "init_from": str(out)}, "--labels: found bed, chair, potted_plant.*, expected chair, bed"),
        ({"image_size": 48}, "--image-size: found 48, expected a multiple of 32"),
    ):
        with pytest.raises(ArgumentError, match=message):
            main(DetectorOptions(out=out, device="cpu", **options))
