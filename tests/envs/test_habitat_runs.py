"""Episodes compared with their course in habitat-sim, in procedural houses and in a scene of ../shared."""

import gzip
import json

import numpy as np
import pytest
import torch

from batchnav.data.episodes import episode_table
from batchnav.data.formats import load_episodes
from batchnav.data.scenes.load import load_scene
from batchnav.envs.nav import PointNavEnv

DISTANCE, SHARE = 1e-4, 1e-4
"""Tolerance of metres and SPL: both sides sum steps in float32, in different order."""


@pytest.fixture(params=["house:110020", "house:110022", pytest.param("aws_small_house", marks=pytest.mark.shared)])
def runs(request, oracle):
    """A scene, the episodes of its file, and their course in habitat-sim."""
    name = request.param
    if name != "aws_small_house":
        rows = [
            row for row in json.loads(oracle("habitat_houses.json").read_text()) if row["episode"]["scene_id"] == name
        ]
        return load_scene(name), [row["episode"] for row in rows], [row["habitat"] for row in rows]
    episodes = json.loads(gzip.decompress(oracle("habitat_runs/aws_small_house.episodes.json.gz").read_bytes()))
    found = json.loads(oracle("habitat_runs/aws_small_house_100.json").read_text())["per_episode"]["habitat"]
    return load_scene(oracle("aws_small_house.glb")), episodes["episodes"], [recorded(row) for row in found]


def recorded(row):
    """A row of ../shared in the format of `habitat_houses.json`."""
    renamed = {"start_distance": "d0", "path_length": "path", "distance_to_goal": "distance"}
    kept = {name: row[renamed.get(name, name)] for name in ("steps", "collisions", "success", "spl", *renamed)}
    return kept | {"actions": "".join(map(str, row["actions"]))}


def play(scene, episodes, actions):
    """Metrics of the episodes under these actions, one string each."""
    n, longest = len(episodes), max(map(len, actions))
    steps = torch.tensor([[int(a) for a in string.ljust(longest, "0")] for string in actions])
    env = PointNavEnv([scene], n, "cpu", episodes=episode_table(episodes, [scene.name], "cpu"), height=4, width=4)
    env.reset()
    ended, found = np.zeros(n, bool), {}
    for action in steps.T:
        info = env.step(action)[-1]
        first = info["_episode"].numpy() & ~ended
        for name, value in info["episode"].items():
            found.setdefault(name, np.full(n, np.nan))[first] = value.numpy()[first]
        ended |= first
    assert ended.all()
    return found


def loaded(episodes, tmp_path):
    """The episodes as `Episode` objects."""
    path = tmp_path / "e.json.gz"
    path.write_bytes(gzip.compress(json.dumps({"episodes": episodes}).encode()))
    return load_episodes(path)


def test_equal_actions_give_equal_metrics(runs, tmp_path):
    scene, rows, habitat = runs
    episodes = loaded(rows, tmp_path)
    found = play(scene, episodes, [row["actions"] for row in habitat])
    expected = {name: np.array([row[name] for row in habitat]) for name in habitat[0] if name != "actions"}
    for name in ("steps", "collisions", "success"):
        np.testing.assert_array_equal(found[name], expected[name], err_msg=name)
    for name in ("path_length", "distance_to_goal"):
        np.testing.assert_allclose(found[name], expected[name], atol=DISTANCE, err_msg=name)
    np.testing.assert_allclose(found["spl"], expected["spl"], atol=SHARE)
    stated = [episode.info["geodesic_distance"] for episode in episodes]
    np.testing.assert_allclose(stated, expected["start_distance"], atol=DISTANCE)


@pytest.mark.shared
@pytest.mark.parametrize(
    ("record", "same"), [("aws_small_house_100", 89), ("house_110020_20", 19), ("house_110022_20", 18)]
)
def test_the_records_of_the_bundled_policy(shared, tmp_path, record, same):
    """Replays the recorded actions of the bundled policy: equal ends, metrics and episodes."""
    folder = shared / "oracle" / "habitat_runs"
    data = json.loads((folder / f"{record}.json").read_text())
    ours, theirs = ([recorded(row) for row in data["per_episode"][side]] for side in ("batchnav", "habitat"))
    file = "houses" if data["scene"].startswith("house:") else data["scene"]
    rows = json.loads(gzip.decompress((folder / f"{file}.episodes.json.gz").read_bytes()))["episodes"]
    rows = [row for row in rows if row["scene_id"] == data["scene"]][: len(ours)]
    scene = load_scene(data["scene"]) if file == "houses" else load_scene(shared / "oracle" / f"{file}.glb")
    found = play(scene, loaded(rows, tmp_path), [row["actions"] for row in ours])
    for name in ("steps", "collisions", "success"):
        np.testing.assert_array_equal(found[name], [row[name] for row in ours], err_msg=name)
    np.testing.assert_allclose(found["spl"], [row["spl"] for row in ours], atol=SHARE)
    assert found["spl"].mean() == pytest.approx(data["batchnav"]["spl"], abs=SHARE)
    alike = [a["actions"] == b["actions"] for a, b in zip(ours, theirs, strict=True)]
    assert sum(alike) == same == data["agreement"]["identical_actions"]
    assert [a["success"] for a in ours] == [b["success"] for b in theirs]
