"""Fixtures for evaluation: small rooms with episodes, and an untrained policy."""

import numpy as np
import pytest
import torch
import trimesh
from gymnasium import spaces
from networks import policy_config

from batchnav.config import to_dict
from batchnav.data.episodes import Episode, Goal, rotation_of
from batchnav.data.formats import EpisodeDataset
from batchnav.envs.config import NavConfig, with_options
from batchnav.policy.actor_critic import ActorCritic
from batchnav.policy.weights import save_policy


@pytest.fixture(scope="module")
def rooms(tmp_path_factory):
    """Two floors as mesh files with five episodes each; the goal is straight ahead, 1 to 3 m away."""
    folder = tmp_path_factory.mktemp("rooms")
    episodes = []
    for name in ("a", "b"):
        trimesh.creation.box((6.0, 0.2, 6.0)).export(folder / f"{name}.ply")
        for k in range(5):
            goal = (0.0, 0.2, 2.0 - (1.0 + 0.5 * k))
            scene_id = str(folder / f"{name}.ply")
            episodes.append(Episode(str(k), scene_id, (0.0, 0.2, 2.0), rotation_of(0.0), (Goal(goal, 0.2),)))
    EpisodeDataset(episodes).save(folder / "mine.json.gz")
    return folder


@pytest.fixture
def checkpoint(tmp_path):
    """An untrained policy of a small task."""
    config = with_options(NavConfig(), {"height": 32, "width": 32, "max_steps": 20})
    observations = spaces.Dict({
        "depth": spaces.Box(0.0, 1.0, (1, 32, 32), np.float32),
        "pointgoal": spaces.Box(-np.inf, np.inf, (2,), np.float32),
    })  # fmt: skip
    torch.manual_seed(0)
    network = ActorCritic(observations, spaces.Discrete(4), policy_config(base_width=4, visual_size=8, hidden_size=8))
    save_policy(network, tmp_path / "policy.safetensors", {"env": to_dict(config), "frames": 1234})
    return tmp_path / "policy.safetensors"
