"""Every bundled policy with every reference agent of its task: report, videos, viewer."""

import dataclasses
import gzip
import json

import pytest
import torch
from worlds import write_episodes, write_floor

from batchnav.agents.registry import REFERENCE_AGENTS
from batchnav.cli import evaluate
from batchnav.envs.config import config_of
from batchnav.evaluation.players import find_players
from batchnav.runtime.bundled import EPISODES, POLICIES
from batchnav.sim.bodies import FORWARD
from batchnav.tasks import TASKS

BUNDLED = sorted(path.parent.name for path in POLICIES.glob("*/policy.safetensors"))
POINTNAV = [name for name in BUNDLED if name.startswith("pointnav_")]
OTHERS = [name for name in BUNDLED if name not in POINTNAV]
MAX_STEPS = 8
REFERENCES = TASKS["pointnav"].reference_agents


@pytest.fixture(scope="module")
def episodes(tmp_path_factory):
    """Three short episodes on an open floor."""
    folder = tmp_path_factory.mktemp("floor")
    return write_episodes(folder / "mine.json.gz", [str(write_floor(folder / "floor.ply"))])


@pytest.fixture(autouse=True)
def short_episodes(monkeypatch):
    """Episodes end after a few steps, since the policies' networks are slow on a CPU."""

    def short(info):
        config = config_of(info)
        return dataclasses.replace(config, task=dataclasses.replace(config.task, max_steps=MAX_STEPS))

    monkeypatch.setattr("batchnav.evaluation.players.config_of", short)


def test_there_are_bundled_policies():
    others = ["imagenav_rgb_small", "objectnav_mask_small", "objectnav_rgbd_small", "sequence_mask_small"]
    assert len(POINTNAV) == 4 and others == OTHERS
    assert set(REFERENCES) == set(REFERENCE_AGENTS) - {
        "frontier", "map_searcher", "map_searcher_forgetful", "orca", "wait_and_go", "predictive", "follower"
    }  # fmt: skip


@pytest.mark.parametrize("policy", POINTNAV)
def test_evaluation_with_report_and_videos(policy, episodes, tmp_path):
    evaluate.main(evaluate.Options(
        agents=(policy, *REFERENCES), episodes=episodes, device="cpu", out=tmp_path, report=True, report_episodes=1,
        videos="gif",
    ))  # fmt: skip
    for name in (policy, *REFERENCES):
        found = json.loads((tmp_path / name / "results.json").read_text())
        assert found["agent"] == name and len(found["episodes"]) == 3
    assert f">{policy}</span>" in (tmp_path / "index.html").read_text()
    assert len(list((tmp_path / "videos").glob("*.gif"))) == 3


@pytest.mark.slow
@pytest.mark.parametrize("policy", OTHERS)
def test_evaluation_of_other_tasks(policy, tmp_path):
    """The first three bundled validation episodes, in one house."""
    task = policy.split("_")[0]
    file = json.loads(gzip.decompress((EPISODES / f"{task}_val.json.gz").read_bytes()))
    few = tmp_path / "few.json.gz"
    few.write_bytes(gzip.compress(json.dumps(file | {"episodes": file["episodes"][:3]}).encode()))
    agents = (policy, *TASKS[task].reference_agents)
    evaluate.main(evaluate.Options(
        agents=agents, task=task, episodes=few, device="cpu", out=tmp_path / "out", report=True, report_episodes=1,
        videos="gif",
    ))  # fmt: skip
    for name in agents:
        found = json.loads((tmp_path / "out" / name / "results.json").read_text())
        assert found["agent"] == name and len(found["episodes"]) == 3
    assert f">{policy}</span>" in (tmp_path / "out" / "index.html").read_text()
    assert len(list((tmp_path / "out" / "videos").glob("*.gif"))) == 3


@pytest.mark.parametrize("policy", POINTNAV)
def test_viewer(policy, episodes):
    """The viewer's model plays every agent, shows what it sees, and can be driven, without viser."""
    pytest.importorskip("viser", reason="the viewer's library is not installed")
    from batchnav.view.viewer.session import YOU, open_session

    players = find_players((policy, *REFERENCES), torch.device("cpu"), "pointnav")
    session = open_session((), episodes, players, torch.device("cpu"))
    assert session.agents == (policy, *REFERENCES, YOU)
    session.driver.step(FORWARD)
    for name in session.agents:
        assert len(session.track(name).trajectory.headings) >= 1
        images = {"depth"} if name in REFERENCES and REFERENCE_AGENTS[name].needs_images else session.config.sensors
        assert session.seen(name, 0).keys() == set(images) - {"waypoint"}
    assert session.plan(3, dict.fromkeys(session.agents, (0, 0, 0))).size[0] > 10
