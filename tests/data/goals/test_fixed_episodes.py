"""The episode files in assets/episodes are what they claim to be, in the houses as they are made today."""

import math
from collections import Counter
from pathlib import Path

import numpy as np
import pytest

from batchnav.agents.simple import GreedyAgent
from batchnav.data.episodes import episode_table
from batchnav.data.formats import load_episodes
from batchnav.data.play import check_episodes
from batchnav.data.scenes.load import load_all, load_scene
from batchnav.envs.nav import PointNavEnv
from batchnav.evaluation.play import evaluate
from batchnav.procedural import SPLITS

FOLDER = Path(__file__).resolve().parents[3] / "assets" / "episodes"
DISTANCE_TOLERANCE = 1e-2
"""Metres: machines contract and round sums differently, which may move a baked navmesh's heights a little."""


@pytest.mark.parametrize("split", ["val", "test"])
def test_two_hundred_episodes_with_detours_in_twenty_unseen_houses(split):
    episodes = load_episodes(FOLDER / f"{split}.json.gz")
    houses = Counter(e.scene_id for e in episodes)
    assert len(houses) == 20 and set(houses.values()) == {10}
    assert all(int(name.removeprefix("house:")) in SPLITS[split] for name in houses)
    distance = np.array([e.info["geodesic_distance"] for e in episodes])
    ratio = distance / [math.dist(e.start_position, e.goals[0].position) for e in episodes]
    assert ratio.mean() >= 1.3
    assert distance.min() >= 1.0 and distance.max() <= 30.0
    # Easy and hard ones: some nearly straight, some at least twice as far as they look.
    assert (ratio < 1.15).mean() > 0.1 and (ratio > 2.0).mean() > 0.1


@pytest.mark.parametrize("kind", ["hall", "building", "block", "scan", "course"])
def test_two_hundred_episodes_in_twenty_unseen_scenes_of_each_kind(kind):
    episodes = load_episodes(FOLDER / f"{kind}.json.gz")
    scenes = Counter(e.scene_id for e in episodes)
    assert len(scenes) == 20 and set(scenes.values()) == {10}
    assert all(int(name.removeprefix(f"{kind}:")) in SPLITS["val"] for name in scenes)
    distance = [e.info["geodesic_distance"] for e in episodes]
    assert min(distance) >= 1.0 and max(distance) <= 30.0


@pytest.mark.parametrize(
    "split, scene_id",
    [
        ("val", "house:100003"),
        ("test", "house:110000"),
        ("hall", "hall:100003"),
        ("building", "building:100003"),
        ("block", "block:100003"),
        ("scan", "scan:100004"),
        ("course", "course:100002"),
    ],
)
def test_episodes_fit_todays_scenes(split, scene_id):
    """Fails where scenes or baker have changed since `eval/publish/make_episodes.py` was run."""
    episodes = [e for e in load_episodes(FOLDER / f"{split}.json.gz") if e.scene_id == scene_id]
    scene = load_scene(scene_id)
    check_episodes(episodes, {scene_id: scene})
    starts = np.array([e.start_position for e in episodes], np.float32)
    goals = np.array([e.goals[0].position for e in episodes], np.float32)
    expected = [e.info["geodesic_distance"] for e in episodes]
    assert scene.navmesh.geodesic_distance(starts, goals) == pytest.approx(expected, abs=DISTANCE_TOLERANCE)


@pytest.mark.slow
@pytest.mark.parametrize("split", ["val", "test"])
def test_greedy_fails_in_at_least_half(split):
    episodes = load_episodes(FOLDER / f"{split}.json.gz")
    names = sorted({e.scene_id for e in episodes})
    scenes = load_all(names)
    check_episodes(episodes, dict(zip(names, scenes, strict=True)))
    env = PointNavEnv(scenes, 200, "cpu", episodes=episode_table(episodes, names, "cpu"), height=4, width=4)
    assert evaluate(GreedyAgent(env), env, 200)["success"].mean() <= 0.5
