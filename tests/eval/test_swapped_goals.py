"""Evaluation with goal images of other episodes: an agent that trusts the image succeeds with its own goals only."""

import numpy as np
import pytest
import torch

from batchnav.agents.shortest_path import ShortestPathAgent
from batchnav.data.formats import EpisodeDataset
from batchnav.data.goals.point import generate_imagenav
from batchnav.data.scenes.load import load_scenes
from batchnav.envs.config import PRESETS, with_options
from batchnav.envs.observations import needed_appearance
from batchnav.errors import ArgumentError
from batchnav.evaluation.run import Evaluation
from batchnav.sim.bodies import STOP
from eval.studies import swapped_goals

CONFIG = with_options(PRESETS["imagenav_houses"], {"height": 16, "width": 16, "max_steps": 200})
HOUSES = "house:0", "house:1"
PER_HOUSE = 3


class Trusting:
    """An agent that walks to the goal if it is shown the image of its episode, and stops at once otherwise."""

    name, config, env_config, changes = "trusting", CONFIG, CONFIG, {}

    def __init__(self, images):
        self.images, self.seen = images, {}

    def make_agent(self, env):
        self.env, self.path = env, ShortestPathAgent(env, env.task.target_radius)
        return self

    def reset(self, num_envs):
        self.path.reset(num_envs)
        self.seen.clear()

    def act(self, observations, episode_start):
        rows, shown = self.env.task.state.table_index.tolist(), observations["imagegoal"]
        for row, image in zip(rows, shown, strict=True):
            if row >= 0:
                torch.testing.assert_close(image, self.seen.setdefault(row, image.clone()), rtol=0, atol=0)
        own = torch.stack([(image == self.images[row]).all() for row, image in zip(rows, shown, strict=True)])
        return torch.where(own, self.path.act(observations, episode_start), STOP)


@pytest.fixture(scope="module")
def path(tmp_path_factory):
    episodes = [e for scene in load_scenes(HOUSES, appearance=False) for e in generate_imagenav(scene, PER_HOUSE)]
    file = tmp_path_factory.mktemp("swapped") / "mine.json.gz"
    EpisodeDataset(episodes).save(file, content=False)
    return file


@pytest.fixture(scope="module")
def evaluation(path):
    return Evaluation(path, torch.device("cpu"), CONFIG, num_envs=2, appearance=needed_appearance(CONFIG))


@pytest.mark.parametrize("goals", ["own", "same_scene", "other_scene"])
def test_only_the_image_of_the_episode_leads_to_its_goal(evaluation, goals):
    player = Trusting(None)
    images = swapped_goals.goal_images(evaluation, player)
    player.images = images["imagegoal"]
    shown = swapped_goals.shown_episodes(evaluation.episodes, goals)
    found = evaluation.play(swapped_goals.OtherGoals(player, {"imagegoal": player.images[shown]}))
    assert (found.episodes["success"] == (goals == "own")).all()
    for row, image in player.seen.items():  # the image of one episode, constant until its end
        np.testing.assert_array_equal(image, player.images[shown[row]])
    assert len(player.seen) == len(evaluation.episodes)


def test_program(path, monkeypatch, capsys):
    """An agent that does not see the image plays equally with every goal image; rows name the goals."""
    rows = []
    monkeypatch.setattr(swapped_goals, "append_rows", lambda name, new: rows.extend(new))
    swapped_goals.main(swapped_goals.Options(("shortest_path",), path, device="cpu", num_envs=2, record=True))
    found = {r["params"]["goals"]: r["value"] for r in rows if r["metric"] == "success"}
    assert found == {"own": 1.0, "same_scene": 1.0, "other_scene": 1.0}
    text = " ".join(capsys.readouterr().out.split())
    assert "shortest_path, same scene" in text and "own: 1.000 of the shown goals are within 1 m" in text


def test_other_tasks_are_refused(path):
    with pytest.raises(ArgumentError, match="found imagenav, expected pointnav, the task of the policy"):
        swapped_goals.main(swapped_goals.Options(("pointnav_waypoint_small",), path, device="cpu"))
