"""A model card from two runs' folders, as its users make one."""

import json
import shutil
import subprocess
import sys
from pathlib import Path

import torch
from safetensors.torch import load_file

EVAL = Path(__file__).resolve().parents[2] / "eval"


def test_weights_figures_and_curves(rooms, checkpoint, tmp_path):
    for name in ("mine", "blind"):
        (tmp_path / name).mkdir()
        shutil.copy(checkpoint, tmp_path / name / "policy.safetensors")
        (tmp_path / name / "config.yaml").write_text("scenes: {houses: 3, files: [data/more]}\n")
        row = {"frames": 1234, "seconds": 36.0, "frames_per_second": 500.0, "spl": 0.25}
        test = {"frames": 1234, "seconds": 37.0, "eval": {"spl": 0.125}}
        (tmp_path / name / "metrics.jsonl").write_text(json.dumps(row) + "\n" + json.dumps(test) + "\n")
    out = tmp_path / "card"
    command = [sys.executable, str(EVAL / "model_card.py"), "--device", "cpu", "--no-record", "--out", str(out)]
    command += ["--run", str(tmp_path / "mine"), "--control", str(tmp_path / "blind")]
    subprocess.run([*command, "--episodes", str(rooms / "mine.json.gz")], check=True)
    assert {tensor.dtype for tensor in load_file(out / "policy.safetensors").values()} == {torch.bfloat16}
    assert (out / "curves.png").stat().st_size > 1000
    text = (out / "README.md").read_text()
    assert "1,234\nframes in 0.01 hours" in text and "3 procedural houses and data/more" in text
    assert all(f"| mine | {agent} agent | " in text for agent in ("this", "blind", "greedy"))
    assert "| mine | greedy agent | 1.000 (" in text  # success on open floors
