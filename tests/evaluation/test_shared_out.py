"""Episodes shared out over processes: the figures of one, in the file's order."""

import numpy as np
import pytest
import torch
from ranks import results_of

from batchnav.data.formats import EpisodeDataset
from batchnav.data.goals.point import generate_episodes
from batchnav.data.scenes.load import load_scene
from batchnav.envs.config import NavConfig
from batchnav.evaluation.players import ReferencePlayer
from batchnav.evaluation.run import Evaluation
from batchnav.runtime.distributed import Ranks


def play(ranks, path):
    evaluation = Evaluation(path, ranks.device, NavConfig(), ranks=ranks)
    return evaluation.play(ReferencePlayer("greedy", NavConfig())).episodes


@pytest.fixture
def episodes(tmp_path):
    path = tmp_path / "some.json.gz"
    EpisodeDataset(generate_episodes(load_scene("house:0"), 7)).save(path)
    return path


def test_each_rank_plays_its_share_and_knows_all_results(tmp_path, episodes):
    expected = play(Ranks(torch.device("cpu")), episodes)
    assert len(expected["spl"]) == 7
    for found in results_of(play, 2, tmp_path / "log", episodes):
        for name, values in expected.items():
            np.testing.assert_array_equal(found[name], values, err_msg=name)
