"""Results of sequences of goals by position, and kinds of failures of subtasks."""

import math

import numpy as np
import pytest
import torch

from batchnav.data.episodes import rotation_of
from batchnav.data.sequences import CATEGORY, SequenceEpisode, Subtask
from batchnav.envs.nav import NavEnv
from batchnav.evaluation.play import evaluate
from batchnav.evaluation.subtasks import Subtasks, by_position, parts_of, subtask_failures
from batchnav.evaluation.trajectories import TrajectoryRecorder
from batchnav.sim.bodies import FORWARD, STOP
from tests.tasks.object_rooms import CATEGORIES, corridor, with_objects


class Script:
    """An agent that plays a list of actions."""

    def __init__(self, actions):
        self.actions = list(actions)

    def reset(self, num_envs):
        pass

    def act(self, observations, episode_start):
        return torch.full((len(episode_start),), self.actions.pop(0) if self.actions else STOP)


def test_subtasks_that_never_began_count_as_failures_at_their_position():
    nothing = np.nan
    rows = {
        "subtasks": [2, 2, 1], "scene": [0, 0, 1], "success_1": [1, 0, 1], "spl_1": [0.5, 0.0, 1.0],
        "steps_1": [4, 9, 2], "subtask_1": [0, 0, 0], "success_2": [1, nothing, nothing],
        "spl_2": [1.0, nothing, nothing], "steps_2": [8, nothing, nothing], "subtask_2": [1, nothing, nothing],
    }  # fmt: skip
    episodes = {name: np.array(values, np.float32) for name, values in rows.items()}
    first, second = by_position(episodes)
    assert (first.success.mean, first.success.count) == (pytest.approx(2 / 3), 3)
    assert (second.success.mean, second.spl.mean, second.spl.count) == (0.5, 0.5, 2)
    assert first.spl.scenes == 2 and math.isnan(second.spl.scene_low), "all second subtasks are in one scene"
    found = Subtasks.of(episodes)
    assert found.end[0, :3].tolist() == [4, 8, -1] and found.success[1, 1] == 0.0 and np.isnan(found.success[2, 1])


@pytest.mark.parametrize("wrong_stop", ["continue", "end"])
def test_failed_subtasks_have_kinds(wrong_stop):
    """From the bed, it calls out for the chair; then it leaves the bed and stops halfway."""
    scene = with_objects(corridor(), ("chair", 1, [(3.0, 0.5)]), ("bed", 2, [(9.0, 0.5)]))
    start = tuple(scene.navmesh.snap(np.array([[9.0, 0.0, 0.5]], np.float32))[0].tolist())
    subtasks = Subtask(CATEGORY, "chair"), Subtask(CATEGORY, "bed")
    episode = SequenceEpisode("0", scene.name, start, rotation_of(math.pi / 2), subtasks=subtasks)
    options = {"categories": CATEGORIES, "sensors": (), "wrong_stop": wrong_stop}
    env = NavEnv([scene], 1, "cpu", task="sequence", episodes=[episode], **options)
    agent = TrajectoryRecorder(Script([STOP, FORWARD, FORWARD, STOP]), env)
    results = evaluate(agent, env, 1)
    assert results["start_distance"].tolist() == [pytest.approx(6.0, abs=1e-3)], "of the first goal"
    trajectories = agent.trajectories(1)
    kinds = subtask_failures(env.bank, env.config, [episode], results, trajectories)
    expected = ["wrong object", "saw and passed"] if wrong_stop == "continue" else ["wrong object", "not begun"]
    assert kinds[0, :3].tolist() == [*expected, ""]
    lengths = [len(part.actions) for part in parts_of(Subtasks.of(results), 0, trajectories[0])]
    assert lengths == ([1, 3] if wrong_stop == "continue" else [1])
