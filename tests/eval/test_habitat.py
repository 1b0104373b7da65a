"""eval/studies/habitat.py and the agent for habitat-lab, against a stand-in for habitat-sim."""

import json
import sys

import numpy as np
import pytest
import torch
import trimesh

from batchnav.data.episodes import Episode, Goal, rotation_of
from batchnav.data.formats import EpisodeDataset
from batchnav.errors import ArgumentError, DeviceError
from batchnav.habitat import HabitatAgent
from batchnav.policy.weights import load_policy, save_policy
from eval.studies import habitat as program
from tests.eval.habitat_stand_in import Tampering, module


@pytest.fixture
def stand_in(monkeypatch):
    """Function that replaces habitat-sim: stand_in(tampering)."""
    return lambda *tampering: monkeypatch.setitem(sys.modules, "habitat_sim", module(*tampering))


def play(checkpoint, episodes, tmp_path, **options):
    out = tmp_path / "out.json"
    program.main(program.Options(str(checkpoint), episodes=episodes, out=out, **options))
    return json.loads(out.read_text())


def test_the_same_world_gives_the_same_episodes(rooms, checkpoint, tmp_path, stand_in, capsys):
    stand_in(Tampering())
    found = play(checkpoint, rooms / "mine.json.gz", tmp_path)
    assert found["episodes"] == found["same_outcome"] == found["same_actions"] == 10
    assert found["batchnav"] == pytest.approx(found["habitat"], abs=1e-5)
    assert found["largest"]["position"] < 1e-5 and found["largest"]["heading"] < 1e-5
    for episode in found["per_episode"]:
        assert episode["first"] == {} and episode["batchnav"]["actions"] == episode["habitat"]["actions"]
        assert len(episode["habitat"]["actions"]) == episode["habitat"]["steps"]
    text = " ".join(capsys.readouterr().out.split())  # the terminal's width determines the line breaks
    assert "10 of 10: episode 4" in text and "no difference" in text
    assert "10 episodes: 10 with the same success, 10 with the same actions" in text


def test_what_differs_first_is_reported(rooms, checkpoint, tmp_path, stand_in, monkeypatch):
    """The agent only moves forward, whatever it observes, while steps become longer and depths smaller."""
    monkeypatch.setattr(HabitatAgent, "act", lambda self, observations: {"action": 1})
    monkeypatch.setattr(
        "batchnav.policy.agent.PolicyAgent.act", lambda self, observations, **_: torch.ones(1, dtype=torch.int64)
    )
    stand_in(Tampering(step=3, forward=0.05))
    (found,) = play(checkpoint, rooms / "mine.json.gz", tmp_path, count=1)["per_episode"]
    assert found["first"]["position"] == {"step": 3, "by": "0.05 m"} and "action" not in found["first"]
    stand_in(Tampering(step=5, nearer=0.5))
    (found,) = play(checkpoint, rooms / "mine.json.gz", tmp_path, count=1)["per_episode"]
    assert set(found["first"]) == {"depth"} and found["first"]["depth"]["step"] == 5
    assert found["first"]["depth"]["by"].startswith("0.5 m at most, ")


def test_an_action_that_differs_ends_the_comparison(rooms, checkpoint, tmp_path, stand_in, monkeypatch):
    stand_in(Tampering())
    taken = iter([1, 1, 2, 0])
    monkeypatch.setattr(HabitatAgent, "act", lambda self, observations: {"action": next(taken)})
    monkeypatch.setattr(
        "batchnav.policy.agent.PolicyAgent.act", lambda self, observations, **_: torch.ones(1, dtype=torch.int64)
    )
    found = play(checkpoint, rooms / "mine.json.gz", tmp_path, count=1)
    assert found["same_actions"] == 0
    (episode,) = found["per_episode"]
    assert episode["first"] == {"action": {"step": 2, "by": "1 here, 2 in habitat-sim"}}
    assert episode["habitat"]["actions"] == "1120" and episode["habitat"]["steps"] == 4.0


def test_habitats_own_stages(checkpoint, tmp_path, stand_in):
    """habitat-sim loads a scene below --scenes-dir from its file: +Z up, with the navmesh next to it, if any."""
    stand_in(Tampering())
    floor = trimesh.creation.box((6.0, 8.0, 0.2))
    (tmp_path / "scenes" / "gibson").mkdir(parents=True)
    floor.export(tmp_path / "scenes" / "gibson" / "Adrian.glb")
    episode = Episode("0", "gibson/Adrian.glb", (0.0, 0.1, 3.0), rotation_of(0.3), (Goal((1.0, 0.1, -1.0)),))
    EpisodeDataset([episode]).save(tmp_path / "e.json.gz")
    found = play(checkpoint, tmp_path / "e.json.gz", tmp_path, scenes_dir=tmp_path / "scenes")
    assert found["same_actions"] == 1 and found["per_episode"][0]["first"] == {}


def test_the_agent_acts_as_the_policy(checkpoint):
    """Habitat's observations give the actions that batchnav's give in a batch of one, also after `reset`."""
    agent, twin = HabitatAgent(checkpoint, deterministic=True), load_policy(checkpoint)
    draw = np.random.default_rng(0)
    seen = [
        {"depth": draw.random((32, 32, 1), np.float32), "pointgoal_with_gps_compass": np.float32([3.0, 0.1 * k])}
        for k in range(6)
    ]
    for _ in range(2):
        agent.reset()
        twin.reset(1)
        for one in seen:
            ours = {
                "depth": torch.from_numpy(one["depth"]).permute(2, 0, 1).unsqueeze(0),
                "pointgoal": torch.from_numpy(one["pointgoal_with_gps_compass"]).unsqueeze(0),
            }
            assert agent.act(one) == {"action": int(twin.act(ours, deterministic=True))}


def test_holes_are_compared_as_in_training(rooms, checkpoint, tmp_path, stand_in):
    """A policy trained with holes as far surfaces gets them as far in both simulators."""
    policy = load_policy(checkpoint)
    policy.info["env"]["depth"]["hole_value"] = 1.0
    save_policy(policy.network, tmp_path / "far.safetensors", policy.info)
    stand_in(Tampering())
    found = play(tmp_path / "far.safetensors", rooms / "mine.json.gz", tmp_path, count=2)
    assert [episode["first"] for episode in found["per_episode"]] == [{}, {}]


def test_a_policy_that_is_told_speeds_is_refused(checkpoint):
    policy = load_policy(checkpoint)
    policy.info["env"]["body"]["control"] = "velocity"
    with pytest.raises(ArgumentError, match="found control 'velocity', expected v0 or v1"):
        HabitatAgent(policy)


def test_what_the_agent_refuses(checkpoint):
    agent = HabitatAgent(checkpoint)
    agent.reset()
    depth, goal = np.zeros((32, 32, 1), np.float32), np.zeros(2, np.float32)
    with pytest.raises(ArgumentError, match="found depth, expected also 'pointgoal_with_gps_compass'"):
        agent.act({"depth": depth})
    with pytest.raises(ArgumentError, match="found 4, expected 0 to 1"):
        agent.act({"depth": depth + 4.0, "pointgoal_with_gps_compass": goal})
    with pytest.raises(ArgumentError, match=r"shape \[1, 1, 64, 64\]"):
        agent.act({"depth": np.zeros((64, 64, 1), np.float32), "pointgoal_with_gps_compass": goal})


def test_without_habitat_sim(rooms, checkpoint, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "habitat_sim", None)
    with pytest.raises(DeviceError, match="built from source"):
        play(checkpoint, rooms / "mine.json.gz", tmp_path, count=1)
    assert not (tmp_path / "out.json").exists()
