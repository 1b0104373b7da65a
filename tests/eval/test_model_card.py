"""The program eval/publish/model_card.py with the folders of two runs."""

import dataclasses
import json
import shutil

import pytest
import torch
from safetensors.torch import load_file

from batchnav.config import from_dict
from batchnav.errors import ArgumentError
from batchnav.report.model_card import Trained, _inputs, _licence, _observations, _pretrained
from batchnav.runtime.weights import Source
from batchnav.training.config import TrainingConfig
from eval.publish import model_card

CONFIG = """
scenes: {houses: 3, sources: [data/more, "<b>x"]}
env: {camera: {height: 64, width: 48}}
policy: {encoder: simple_cnn, lstm: {layers: 1}}
"""


def test_weights_figures_and_curves(rooms, checkpoint, tmp_path, monkeypatch):
    for name in ("mine", "blind"):
        (tmp_path / name).mkdir()
        shutil.copy(checkpoint, tmp_path / name / "policy.safetensors")
        (tmp_path / name / "config.yaml").write_text(CONFIG)
        row = {"frames": 1234, "seconds": 36.0, "frames_per_second": 500.0, "spl": 0.25}
        test = {"frames": 1234, "seconds": 37.0, "eval": {"spl": 0.125}}
        (tmp_path / name / "metrics.jsonl").write_text(json.dumps(row) + "\n" + json.dumps(test) + "\n")
    out = tmp_path / "card"
    recorded = []
    monkeypatch.setattr(model_card, "append_rows", lambda name, rows: recorded.extend(rows))
    options = model_card.Options(
        run=tmp_path / "mine", control=tmp_path / "blind", out=out, episodes=(rooms / "mine.json.gz",), device="cpu",
        record=True,
    )  # fmt: skip
    model_card.main(options)
    (tmp_path / "mine" / "config.yaml").rename(tmp_path / "mine" / "other.yaml")
    with pytest.raises(ArgumentError, match=r"mine: found no config\.yaml, expected the folder of a training run"):
        model_card.main(options)
    (tmp_path / "mine" / "other.yaml").rename(tmp_path / "mine" / "config.yaml")
    assert {tensor.dtype for tensor in load_file(out / "policy.safetensors").values()} == {torch.bfloat16}
    assert (out / "curves.webp").stat().st_size > 1000
    text = (out / "README.md").read_text()
    assert len(text.split()) < 400
    assert "Images: depth, 64x48 pixels." in text and "simple_cnn and lstm (1 layers)" in text
    assert "exact GPS and compass, exact steps of 0.25 m and turns of 10 degrees, depth to 10 m from 1.25 m" in text
    assert "The blind agent has the same sensors" in text and "houses" not in text.partition("## Training")[0]
    assert "1,234 frames in 0.01 hours" in text and "3 procedural houses and data/more and \\<b\\>x" in text
    assert all(f"| mine |  | {agent} agent | " in text for agent in ("this", "blind", "greedy"))
    assert "| mine |  | greedy agent | 1.000 (" in text  # success on open floors
    assert f"batchnav train --config {out.as_posix()}/config.yaml" in text
    assert (out / "config.yaml").read_text() == CONFIG
    model_card.main(dataclasses.replace(options, control=None, out=tmp_path / "alone", record=False))
    text = (tmp_path / "alone" / "README.md").read_text()
    assert "blind agent |" not in text and "The blind agent" not in text
    assert {(r["params"]["agent"], r["metric"]) for r in recorded} == {
        (agent, metric) for agent in (out.name, "blind", "greedy") for metric in ("success", "spl", "soft_spl")
    }


def test_a_card_names_pretrained_weights_and_their_licence():
    source = Source("vit_small_patch14_dinov2.lvd142m", "model.safetensors", "ab12", "apache-2.0")
    name = "vit_small_patch14_dinov2.lvd142m"
    assert f"{name} of timm, weights model.safetensors, SHA-256 `ab12`." in _pretrained(source)
    assert _licence(source) == f"MIT; the weights of {name} inside: apache-2.0."
    assert "not named by timm" in _licence(source._replace(licence=""))
    assert (_pretrained(None), _licence(None)) == ("", "MIT.")


def test_a_card_says_what_its_agent_sees_and_is_told():
    env = {
        "sensors": ["rgb", "depth"], "depth": {"max_depth": 5.0}, "camera": {"camera_height": 0.88},
        "body": {"forward_step": 0.3, "actuation_noise": 0.5}, "task": {"name": "pointnav", "gps_compass": False},
    }  # fmt: skip
    run = from_dict(TrainingConfig, {"env": env})
    assert _observations(Trained(run.env, run.policy, run.scenes, "")) == "colour and depth, 64x64 pixels"
    told = "the goal position at the start only, steps of 0.3 m and turns of 10 degrees"
    assert _inputs(run.env) == f"{told}, depth to 5 m from 0.88 m above the floor"
    camera = dataclasses.replace(run.env.camera, camera_height_range=(0.3, 1.6), hfov_range_deg=(55.0, 120.0))
    cameras = "depth to 5 m from 0.3 to 1.6 m above the floor, fields of view of 55 to 120 degrees"
    assert _inputs(dataclasses.replace(run.env, camera=camera)) == f"{told}, {cameras}"
