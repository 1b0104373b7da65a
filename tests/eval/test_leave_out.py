"""Ablation of scan defects: its scenes, and its runs, which are made once or refused."""

import dataclasses
import shutil

import pytest

from batchnav.data.prepared.scene_file import load_prepared
from batchnav.data.scenes import find_scene
from batchnav.errors import ArgumentError, CheckpointError
from eval.studies import leave_out

SMALL = (
    "env: {camera: {height: 24, width: 32}, task: {max_steps: 20}}\n"
    "policy: {encoder: simple_cnn, simple_cnn: {base_width: 4}, visual_size: 8, hidden_size: 8, lstm: {layers: 1}}\n"
    "ppo: {num_envs: 4, rollout_steps: 8, minibatches: 2, optimizer: adamw}\n"
)


@pytest.mark.parametrize("name", [name for name, defects in leave_out.LEFT_OUT.items() if defects])
def test_scans_lack_what_is_left_out(tmp_path, name):
    """Seed 3 is of a hall, except in the ablation "halls". With nothing left out, its scan equals `scan:3`."""
    options = leave_out.Options(tmp_path, houses=3)
    leave_out.make_scan(options, (name, 3))
    made = load_prepared(leave_out.scanned_scene(options, name, 3))
    walked = find_scene("house:3" if name == "halls" else "hall:3", appearance=False)
    assert made.navmesh.area == walked.navmesh.area
    is_scan = made.mesh.vertices.tobytes() == find_scene("scan:3", appearance=False).mesh.vertices.tobytes()
    assert is_scan == (name == "nothing")


def test_whole_scenes_are_those_that_scans_are_of():
    options = leave_out.Options(houses=3)
    assert [leave_out.scanned_scene(options, "defects", seed) for seed in (3, 4, 5)] == ["hall:3", "house:4", "house:5"]
    assert [leave_out.scanned_scene(options, "scans", seed) for seed in (3, 4)] == ["house:3", "house:4"]


@pytest.fixture
def options(rooms, tmp_path):
    """Options of a study with two small agents."""
    config = tmp_path / "small.yaml"
    config.write_text(SMALL)
    return leave_out.Options(
        tmp_path / "out", config, ("nothing", "holes"), (0,), 1, 64, (rooms / "mine.json.gz",), "cpu"
    )


def test_runs_are_made_once_and_compared(options, capsys, monkeypatch):
    leave_out.main(options)
    shown = capsys.readouterr().out
    assert "holes     mine" in shown and "seeds 0" in shown
    monkeypatch.setattr(leave_out, "train", None)
    leave_out.main(options)
    assert shown.endswith(capsys.readouterr().out)


def test_results_of_other_settings_are_refused(options, rooms, tmp_path):
    leave_out.main(dataclasses.replace(options, left_out=("nothing",)))
    with pytest.raises(CheckpointError, match=r"ppo.total_frames = 64, expected 1000"):
        leave_out.main(dataclasses.replace(options, total_frames=1000))
    with pytest.raises(CheckpointError, match=r"scenes.houses = 1, expected 2"):
        leave_out.main(dataclasses.replace(options, houses=2))
    options.config.write_text(SMALL + "renderer: auto\n")
    with pytest.raises(CheckpointError, match=r"renderer = 'raycast', expected 'auto'"):
        leave_out.main(options)
    options.config.write_text(SMALL)
    shutil.copy(rooms / "mine.json.gz", tmp_path)
    with pytest.raises(ArgumentError, match=r"found results in .*mine.json.gz, expected .*mine.json.gz"):
        leave_out.main(dataclasses.replace(options, episodes=(tmp_path / "mine.json.gz",)))


def test_what_cannot_be_left_out_is_refused(tmp_path):
    with pytest.raises(ArgumentError, match="expected some of nothing, holes"):
        leave_out.main(leave_out.Options(tmp_path, left_out=("nothing", "doors")))
    assert not list(tmp_path.iterdir())
