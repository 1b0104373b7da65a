"""Disturbances of odometry, time, depth, cameras and actions."""

import json
from dataclasses import replace

import pytest

from batchnav.data.formats import EpisodeDataset, load_episodes
from batchnav.envs.config import NavConfig
from batchnav.evaluation.robustness import CONDITIONS
from batchnav.runtime.bundled import find_episodes
from batchnav.sim.bodies import BodyConfig
from batchnav.tasks.pointnav import PointNavConfig
from batchnav.world.config import WorldConfig

BY_NAME = {condition.name: condition for condition in CONDITIONS}


def test_conditions_apply_where_they_change_something():
    applies = lambda config: {name for name, condition in BY_NAME.items() if condition.applies(config)}  # noqa: E731
    plain = NavConfig()
    of_colour = {"exposure to 1 stop off", "JPEG quality 30"}
    assert applies(plain) == set(BY_NAME) - of_colour
    assert applies(replace(plain, sensors=("rgb", "depth", "waypoint"))) == set(BY_NAME)
    assert of_colour < applies(replace(plain, sensors=("left_rgb",), cameras={"left": plain.camera}))
    without = replace(plain, task=PointNavConfig(gps_compass=False))
    assert not any("drift" in name for name in applies(without))
    assert "drift 3%" in applies(replace(without, sensors=("depth", "gps")))
    assert not any("depth noise" in name for name in applies(replace(plain, sensors=("rgb",))))
    assert "1 to 6 people" not in applies(replace(plain, world=WorldConfig(people=(2, 2))))
    assert not any("camera" in name for name in applies(replace(plain, sensors=())))
    assert "slip (PyRobot noise)" not in applies(replace(plain, body=BodyConfig(control="velocity")))
    changed = BY_NAME["camera 2° down"].config(replace(plain, camera=replace(plain.camera, camera_pitch_deg=-15.0)))
    assert changed.camera.camera_pitch_deg == -17.0


@pytest.mark.slow
def test_evaluate_writes_table_and_picture(run, tmp_path):
    few = tmp_path / "few.json.gz"
    EpisodeDataset(load_episodes(find_episodes("val"))[:2]).save(few)
    shown = run("evaluate", "greedy", "--episodes", few, "--out", tmp_path, "--robustness")
    rows = json.loads((tmp_path / "robustness.json").read_text())["conditions"]
    assert next(iter(rows)) == "undisturbed" and {"drift 10%", "latency 3 steps", "slip (PyRobot noise)"} < set(rows)
    assert "1 to 6 people" in rows and not any("depth noise" in name for name in rows)  # the agent has no camera
    assert (tmp_path / "robustness.webp").stat().st_size > 1000
    assert rows["undisturbed"]["spl"]["mean"] <= 1.0
    assert "do not apply to this agent: Redwood depth noise, D435 depth noise" in " ".join(shown.split())
