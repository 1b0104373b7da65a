"""What an evaluation plays in."""

from types import SimpleNamespace

import pytest
import torch
from worlds import write_episodes, write_floor

from batchnav.envs.config import PRESETS, NavConfig
from batchnav.errors import ArgumentError, NavMeshError
from batchnav.evaluation.players import ReferencePlayer
from batchnav.evaluation.results import non_default_settings
from batchnav.evaluation.run import Evaluation
from batchnav.navmesh.navmesh import NavMesh
from batchnav.runtime.console import progress
from batchnav.scene.mesh import load_mesh
from batchnav.sim.bodies import BodyConfig


def test_more_processes_than_episodes_are_refused(tmp_path):
    """They would play some twice."""
    path = write_episodes(tmp_path / "mine.json.gz", [str(write_floor(tmp_path / "floor.ply"))])
    with pytest.raises(ArgumentError, match="found 3 episodes for 4 processes"):
        Evaluation(path, torch.device("cpu"), BodyConfig(), ranks=SimpleNamespace(world_size=4))


def test_scenes_are_for_the_agents_body(tmp_path):
    floor, cpu = write_floor(tmp_path / "floor.ply"), torch.device("cpu")
    episodes, wide = write_episodes(tmp_path / "mine.json.gz", [str(floor)]), BodyConfig(agent_radius=0.3)
    areas = [Evaluation(episodes, cpu, body).bank.scenes[0].navmesh.area for body in (BodyConfig(), wide)]
    assert areas[1] < areas[0]
    NavMesh.bake(load_mesh(floor), BodyConfig().navmesh).save(tmp_path / "floor.navmesh")
    with pytest.raises(NavMeshError, match="baked for"):
        Evaluation(episodes, cpu, wide)


def test_how_far_it_is_is_told(tmp_path, monkeypatch):
    told: list[str] = []
    monkeypatch.setattr(progress, "SECONDS_BETWEEN_LINES", 0.0)
    monkeypatch.setattr(progress, "announce", told.append)
    path = write_episodes(tmp_path / "mine.json.gz", [str(write_floor(tmp_path / "floor.ply"))])
    Evaluation(path, torch.device("cpu"), BodyConfig()).play(ReferencePlayer("greedy", NavConfig()))
    assert "episodes of greedy: 0 of 3" in told and told[-1] == "episodes of greedy: 3 of 3"


def test_rows_name_what_is_not_as_usual():
    assert non_default_settings(NavConfig()) == {}
    assert non_default_settings(NavConfig(sensors=("rgb", "depth"))) == {"sensors": "rgb+depth"}
    found = non_default_settings(PRESETS["challenge_2020"])
    assert found.items() >= {"agent_radius": 0.18, "actuation_noise": 0.5, "gps_compass": False}.items()
    assert found.items() >= {"camera_height": 0.88, "hfov_deg": 70.0}.items()
    assert not {"forward_step", "max_steps", "height", "width"} & found.keys()
