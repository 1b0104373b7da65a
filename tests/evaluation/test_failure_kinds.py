"""Kinds of ObjectNav failures: one hand-made trajectory for each kind, and tables by category and distance."""

import json
import math

import numpy as np
import pytest
import torch
from labelled import labelled_scene, write_named

from batchnav.data.objectnav.episode_file import save_objectnav
from batchnav.data.objectnav.generate import generate_objectnav
from batchnav.data.objectnav.view_points import with_goals
from batchnav.data.scenes import find_scene
from batchnav.envs.config import NavConfig, with_options
from batchnav.envs.observations import needed_appearance
from batchnav.evaluation.failure_kinds import (
    EARLY,
    FAILURES,
    NEVER_SAW,
    OUT_OF_STEPS,
    PASSED,
    WRONG_OBJECT,
    failure_kinds,
)
from batchnav.evaluation.failures import failure_table
from batchnav.evaluation.players import ReferencePlayer
from batchnav.evaluation.results import write_results
from batchnav.evaluation.run import Evaluation
from batchnav.evaluation.trajectories import Trajectory
from batchnav.report.evaluation import write_report
from batchnav.scene.bank import SceneBank
from batchnav.scene.goals import ObjectGoal, SceneGoals
from batchnav.sim.bodies import FORWARD, STOP
from batchnav.tasks.objectnav import ObjectNavConfig

CATEGORIES = CHAIR, BED = "chair", "bed"
NORTH, SOUTH = 0.0, math.pi
BY_CHAIR, BY_BED, MIDDLE = (-1.75, -1.0), (1.25, -1.0), (0.0, 1.5)
CONFIG = with_options(NavConfig(sensors=(), task=ObjectNavConfig()), {"categories": CATEGORIES})


def furnished():
    """A floor with a chair and a bed, one view point each, to the south of them."""
    scene = labelled_scene([(CHAIR, [-2.0, 0.0, -2.0], [-1.5, 1.0, -1.5]), (BED, [1.0, 0.0, -2.0], [1.5, 1.0, -1.5])])
    goals = []
    for number, (category, (x, z)) in enumerate(((CHAIR, BY_CHAIR), (BED, BY_BED)), 2):
        place, one = scene.navmesh.snap(np.array([[x, 0.0, z]], np.float32)), np.ones(1, np.float32)
        goals.append(ObjectGoal(category, number, f"{category}_{number}", (x, 0.5, -1.75), place, 0.0 * one, one))
    return scene._replace(goals=SceneGoals("test", tuple(goals)))


def trajectory(scene, poses, last_action):
    """A trajectory through poses of (x, z), heading; its last action is `last_action`."""
    points = scene.navmesh.snap(np.array([(x, 0.0, z) for (x, z), _ in poses], np.float32))
    actions = np.full(len(poses), FORWARD)
    actions[-1] = last_action
    headings = np.array([heading for _, heading in poses], np.float32)
    return Trajectory(points, headings, np.zeros(len(poses), np.float32), actions)


@pytest.mark.parametrize(
    ("category", "poses", "last_action", "kind"),
    [
        (CHAIR, [(MIDDLE, NORTH), (BY_BED, NORTH)], STOP, WRONG_OBJECT),
        (CHAIR, [(BY_BED, SOUTH)], STOP, WRONG_OBJECT),
        (CHAIR, [(BY_BED, SOUTH)], FORWARD, NEVER_SAW),
        (CHAIR, [(MIDDLE, SOUTH)], STOP, NEVER_SAW),
        (CHAIR, [(BY_CHAIR, SOUTH), (MIDDLE, SOUTH)], FORWARD, NEVER_SAW),
        (CHAIR, [(BY_CHAIR, NORTH), (MIDDLE, SOUTH)], FORWARD, PASSED),
        (BED, [(MIDDLE, NORTH), (BY_BED, SOUTH), (MIDDLE, SOUTH)], STOP, PASSED),
        (BED, [(MIDDLE, SOUTH), (MIDDLE, NORTH)], STOP, EARLY),
        (BED, [(MIDDLE, NORTH)] * 40, FORWARD, OUT_OF_STEPS),
    ],
)
def test_each_failure_has_one_kind(category, poses, last_action, kind):
    scene = furnished()
    bank = SceneBank.pack([scene], "cpu", frozenset({"goal"}), goal_categories=CATEGORIES)
    walked, number = [trajectory(scene, poses, last_action)] * 2, CATEGORIES.index(category)
    episodes = {"success": np.array([0.0, 1.0]), "scene": np.zeros(2, np.int32), "category": np.full(2, number)}
    assert failure_kinds(bank, CONFIG, episodes, walked).tolist() == [kind, ""]
    assert failure_kinds(bank, NavConfig(), episodes, walked) is None
    without = SceneBank.pack([scene], "cpu", goal_categories=CATEGORIES)
    assert failure_kinds(without, CONFIG, episodes, walked) is None


def test_results_and_report_have_the_table(tmp_path):
    """An agent that walks straight ahead and one that stops at random, in a room with a chair and a bed."""
    things = (CHAIR, [1.0, 0.0, 1.0], [1.5, 1.0, 1.5]), (BED, [-3.0, 0.0, -3.0], [-1.5, 0.6, -2.0])
    room = find_scene(str(write_named(tmp_path / "room.glb", things)))
    dataset = generate_objectnav(with_goals([room], device="cpu"), 8)
    save_objectnav(dataset, tmp_path / "val.json.gz", content=False)
    fields = needed_appearance(CONFIG)
    evaluation = Evaluation(
        tmp_path / "val.json.gz", torch.device("cpu"), CONFIG.body, appearance=fields, goal_categories=CATEGORIES
    )
    agents = {name: evaluation.play(ReferencePlayer(name, CONFIG)) for name in ("random", "shortest_path")}
    random, best = agents.values()
    assert (best.failures == "").all() and (random.failures[random.episodes["success"] == 0] != "").all()
    table = failure_table(evaluation, random)
    assert [row.label for row in table[:3]] == ["all episodes", "chair", "bed"]
    assert [row.group for row in table] == ["all", "category", "category", *["distance"] * 4]
    assert all(row.successes + sum(row.failures.values()) == row.episodes for row in table)
    for group in ("category", "distance"):
        assert sum(row.episodes for row in table if row.group == group) == 8
    write_results(tmp_path / "results.json", evaluation, random)
    stored = json.loads((tmp_path / "results.json").read_text())
    assert [row["failures"] for row in stored["failures"]] == [row.failures for row in table]
    assert [row["failure"] or "" for row in stored["episodes"]] == random.failures.tolist()
    text = write_report(tmp_path, evaluation, agents, films=0).read_text()
    assert "<h2>Failures</h2>" in text and all(f"<th>{kind}</th>" in text for kind in FAILURES)
