"""Leaving out what scans have: which scenes that gives, and runs in them that are made once."""

import dataclasses

import pytest

from batchnav.data.prepared import load_prepared
from batchnav.data.scenes import find_scene
from batchnav.errors import ArgumentError
from eval import leave_out


@pytest.mark.parametrize("name", leave_out.LEFT_OUT)
def test_scans_lack_what_is_left_out(tmp_path, name):
    """Seed 3 is of a hall; with nothing left out, or halls alone, it is the scan that everybody has."""
    leave_out.make_scan(name, tmp_path / "scan_3.scene")
    made = load_prepared(tmp_path / "scan_3.scene")
    walked = find_scene("house:3" if name in ("halls", "scans") else "hall:3", appearance=False)
    assert made.navmesh.area == walked.navmesh.area
    is_scan = made.mesh.vertices.tobytes() == find_scene("scan:3", appearance=False).mesh.vertices.tobytes()
    assert is_scan == (name == "nothing")
    assert (len(made.mesh.faces) == len(walked.mesh.faces)) == (name in ("defects", "scans"))


def test_runs_are_made_once_and_compared(rooms, tmp_path, capsys, monkeypatch):
    config = tmp_path / "small.yaml"
    config.write_text(
        "camera: {height: 24, width: 32}\ntask: {max_steps: 20}\n"
        "policy: {encoder: simple_cnn, base_width: 4, visual_size: 8, hidden_size: 8, lstm_layers: 1}\n"
        "ppo: {num_envs: 4, rollout_steps: 8, minibatches: 2, optimizer: adamw}\n"
    )
    options = leave_out.Options(
        tmp_path / "out", config, ("nothing", "holes"), (0,), 1, 64, (rooms / "mine.json.gz",), "cpu"
    )
    leave_out.main(options)
    shown = capsys.readouterr().out
    assert "holes     mine" in shown and "seeds 0" in shown
    monkeypatch.setattr(leave_out.subprocess, "run", None)
    leave_out.main(dataclasses.replace(options, total_frames=10**9))
    assert capsys.readouterr().out.endswith(shown)


def test_what_cannot_be_left_out_is_refused(tmp_path):
    with pytest.raises(ArgumentError, match="expected some of nothing, holes"):
        leave_out.main(leave_out.Options(tmp_path, left_out=("nothing", "doors")))
    assert not list(tmp_path.iterdir())
