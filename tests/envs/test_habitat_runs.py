"""Episodes in houses of our own, beside what happened in them inside habitat-sim."""

import gzip
import json

import numpy as np
import pytest
import torch

from batchnav.data.episodes import episode_table, load_episodes
from batchnav.data.scenes import find_scene
from batchnav.envs.nav import PointNavEnv

DISTANCE, SHARE = 1e-4, 1e-4
"""Metres, and of SPL: both sides sum steps in float32, in another order."""


@pytest.mark.parametrize("house", ["house:110020", "house:110022"])
def test_the_same_actions_lead_to_the_same_ends(oracle, tmp_path, house):
    runs = [run for run in json.loads(oracle("habitat_houses.json").read_text()) if run["episode"]["scene_id"] == house]
    path, n = tmp_path / "e.json.gz", len(runs)
    path.write_bytes(gzip.compress(json.dumps({"episodes": [run["episode"] for run in runs]}).encode()))
    episodes = load_episodes(path)
    longest = max(len(run["habitat"]["actions"]) for run in runs)
    actions = torch.tensor([[int(a) for a in run["habitat"]["actions"].ljust(longest, "0")] for run in runs])
    table = episode_table(episodes, [house], "cpu")
    env = PointNavEnv([find_scene(house)], n, "cpu", episodes=table, height=4, width=4)
    env.reset()
    ended, found = np.zeros(n, bool), {}
    for action in actions.T:
        info = env.step(action)[-1]
        first = info["_episode"].numpy() & ~ended
        for name, value in info["episode"].items():
            found.setdefault(name, np.full(n, np.nan))[first] = value.numpy()[first]
        ended |= first
    assert n == 20 and ended.all()
    expected = {
        name: np.array([run["habitat"][name] for run in runs]) for name in runs[0]["habitat"] if name != "actions"
    }
    for name in ("steps", "collisions", "success"):
        np.testing.assert_array_equal(found[name], expected[name], err_msg=name)
    for name in ("path_length", "distance_to_goal"):
        np.testing.assert_allclose(found[name], expected[name], atol=DISTANCE, err_msg=name)
    np.testing.assert_allclose(found["spl"], expected["spl"], atol=SHARE)
    stated = [episode.info["geodesic_distance"] for episode in episodes]
    np.testing.assert_allclose(stated, expected["start_distance"], atol=DISTANCE)
