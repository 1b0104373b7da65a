"""The image of the goal beside what the agent sees: in reports, in the viewer's sessions and in videos."""

import dataclasses
import json
import re

import numpy as np
import pytest
import torch

from batchnav.data.episodes import Episode, Goal, rotation_of
from batchnav.data.formats import EpisodeDataset, load_episodes
from batchnav.data.formats.objectnav import goals_key
from batchnav.data.scenes.load import load_scenes
from batchnav.data.sequences import CATEGORY, INSTANCE, Subtask
from batchnav.envs.config import PRESETS, NavConfig, with_options
from batchnav.envs.observations import needed_appearance
from batchnav.evaluation.players import ReferencePlayer
from batchnav.evaluation.run import Evaluation
from batchnav.evaluation.trajectories import PoseCameras
from batchnav.report.evaluation import write_report
from batchnav.runtime.bundled import EPISODES
from batchnav.sim.bodies import STOP
from batchnav.view.topdown import TopDownMap
from batchnav.view.video import colour, video_frames
from batchnav.view.viewer.session import YOU, Session

CONFIG = with_options(PRESETS["imagenav_houses"], {"height": 16, "width": 24, "max_steps": 20})
HOUSE = "house:0"


class Seeing(ReferencePlayer):
    """An agent whose images the report shows."""

    env_config = property(lambda self: self.config)


@pytest.fixture(scope="module")
def evaluation(tmp_path_factory):
    navmesh = load_scenes([HOUSE], appearance=True)[0].navmesh
    points = navmesh.sample(200, seed=1)
    far = navmesh.geodesic_distance(points[:100], points[100:])
    pairs = np.flatnonzero((far > 1.5) & (far < 10.0))[:5]
    assert len(pairs) == 5
    episodes = [
        Episode(
            str(k), HOUSE, tuple(points[i].tolist()), rotation_of(0.3 * k),
            (Goal(tuple(points[100 + i].tolist()), 1.0),), {"geodesic_distance": float(far[i])},
        )
        for k, i in enumerate(pairs)
    ]  # fmt: skip
    path = tmp_path_factory.mktemp("imagenav") / "mine.json.gz"
    EpisodeDataset(episodes).save(path, content=False)
    device = torch.device("cpu")
    return Evaluation(path, device, CONFIG, num_envs=2, appearance=needed_appearance(CONFIG))


def from_the_goal(evaluation, i):
    """What the main camera sees from the goal's pose."""
    env = evaluation._environment([i], CONFIG)
    env.reset()
    position, heading = env.task.goal_position.numpy().copy(), env.task.goal_heading.numpy().copy()
    (images,) = (
        PoseCameras(evaluation.bank, CONFIG)
        .images_at(np.zeros(1, np.int32), position, heading, np.zeros(1, np.float32))
        .values()
    )
    return images.values


def test_goal_images_are_those_of_the_episodes(evaluation):
    numbers = [3, 0, 4, 1, 1]  # more than the environments
    found = evaluation.goal_images(CONFIG, numbers)
    for i, images in zip(numbers, found, strict=True):
        assert list(images) == ["imagegoal"] and images["imagegoal"].values.shape == (1, 3, 16, 24)
        np.testing.assert_array_equal(images["imagegoal"].values, from_the_goal(evaluation, i))
    assert (found[0]["imagegoal"].values != found[1]["imagegoal"].values).any()
    assert evaluation.goal_images(NavConfig(), numbers) == [{}] * 5


def test_the_report_shows_the_goal_and_counts_failures(evaluation, tmp_path):
    agents = {name: evaluation.play(Seeing(name, CONFIG)) for name in ("forward", "shortest_path")}
    text = write_report(tmp_path, evaluation, agents, films=2).read_text()
    data = json.loads(re.search(r'<script type="application/json" id="data">(.*?)</script>', text)[1])
    filmed = [episode["films"] for episode in data["episodes"] if episode["films"]]
    assert len(filmed) == 2
    for films in filmed:
        for film in films.values():
            rgb, goal = film["strips"]
            assert (rgb["sensor"], goal["sensor"], goal["count"]) == ("rgb", "imagegoal", 1)
            assert goal["shape"] == "24x16" and goal["source"].startswith("data:image/webp;base64,")
    assert "<h2>Failures</h2>" in text
    assert all(f"<th>{kind}</th>" in text for kind in ("wrong heading", "passed by", "stopped early", "out of steps"))
    assert "<th>never saw it</th>" not in text
    assert set(agents["forward"].failures.tolist()) <= {"", "passed by", "out of steps"}  # it never stops
    assert (agents["shortest_path"].failures == "").all() == bool(agents["shortest_path"].episodes["success"].all())


def test_the_viewers_session_shows_the_goal(evaluation):
    session = Session(evaluation.bank, evaluation.episodes, {"forward": Seeing("forward", CONFIG)})
    for name in ("forward", YOU):
        for number in (0, 2):
            session.pick(number)
            seen = session.seen(name, 0)
            assert list(seen) == ["rgb", "imagegoal"]
            spec = evaluation.goal_images(CONFIG, [number])[0]["imagegoal"].spec
            np.testing.assert_array_equal(seen["imagegoal"], colour(from_the_goal(evaluation, number)[0], spec))
            assert session._goal_seen(name) is session._goal_seen(name)


def test_videos_show_the_goal_in_every_frame(evaluation):
    (recording,) = evaluation.record(Seeing("forward", CONFIG), np.array([2]))
    goal = recording.images["imagegoal"].values
    assert len(goal) == len(recording.positions) and (goal == from_the_goal(evaluation, 2)).all()
    scene = evaluation.bank.scenes[recording.scene]
    plan = TopDownMap(scene.navmesh, scene.mesh, float(recording.positions[0, 1]), 96)
    frames = video_frames(plan, recording, None)
    side, (width, _) = plan.size[1], plan.size
    assert frames[0].size[0] == 2 * round(side * 24 / 16) + 12 + width


TOUR = with_options(
    dataclasses.replace(PRESETS["sequence_houses"], sensors=("rgb",)),
    {"height": 16, "width": 24, "max_subtask_steps": 20, "goals": ("category", "instance"), "goal_height": 20,
     "goal_width": 20},
)  # fmt: skip
"""Goals in sequence, of which some are images."""


@pytest.fixture(scope="module")
def tour(tmp_path_factory):
    """An episode whose first and last subtasks ask for the object in an image, and the second for a category."""
    (first, *_), file = (dataset := load_episodes(EPISODES / "sequence_val.json.gz")).episodes, "instance_imagenav_val"
    pictured = {goal.number: goal for goal in load_episodes(EPISODES / f"{file}.json.gz").goals.values()}
    names = goals_key(first.scene_id, "chair"), goals_key(first.scene_id, "sofa")
    goals = {
        key: [
            dataclasses.replace(goal, other=goal.other | {"image_goals": pictured[goal.number].other["image_goals"]})
            for goal in dataset.goals[key]
            if goal.number in pictured
        ]
        for key in names
    }
    chair, sofa = (str(goals[key][0].number) for key in names)
    subtasks = Subtask(INSTANCE, "chair", chair), Subtask(CATEGORY, "sofa"), Subtask(INSTANCE, "sofa", sofa)
    path = tmp_path_factory.mktemp("tour") / "tour.json.gz"
    episode = dataclasses.replace(first, subtasks=subtasks)
    EpisodeDataset([episode], "sequence", goals, format="goat").save(path, content=False)
    return Evaluation(path, torch.device("cpu"), TOUR, num_envs=1, appearance=needed_appearance(TOUR))


def test_the_image_shown_is_that_of_the_current_subtask(tour, tmp_path):
    """In the report and in the viewer's sessions; it is black while a subtask asks for a category."""
    goals = tour.goal_images(TOUR, [0])[0]["imagegoal"].values
    assert goals.shape == (3, 3, 20, 20) and [bool(image.any()) for image in goals] == [True, False, True]
    assert (goals[0] != goals[2]).any()
    played = tour.play(Seeing("forward", TOUR))
    index = played.trajectories[0].goal_index
    assert index.tolist() == [0] * 20 + [1] * 20 + [2] * 20  # it never stops, and a subtask has 20 steps
    text = write_report(tmp_path, tour, {"forward": played}, films=1).read_text()
    (episode,) = json.loads(re.search(r'<script type="application/json" id="data">(.*?)</script>', text)[1])["episodes"]
    assert episode["tour"] == [[20, False], [40, False], [60, False]]
    rgb, goal = episode["films"]["0"]["strips"]
    assert (goal["sensor"], goal["count"]) == ("imagegoal", rgb["count"]) and goal["shape"] == "20x20"
    session = Session(tour.bank, tour.episodes, {"forward": Seeing("forward", TOUR)})
    for step in (0, 19, 20, 59):
        expected = colour(goals[index[step]][None], tour.goal_images(TOUR, [0])[0]["imagegoal"].spec)[0]
        np.testing.assert_array_equal(session.seen("forward", step)["imagegoal"], expected)
    for action in (STOP, STOP):
        session.driver.step(action)
    expected = colour(goals[2:], tour.goal_images(TOUR, [0])[0]["imagegoal"].spec)[0]
    np.testing.assert_array_equal(session.seen(YOU, 2)["imagegoal"], expected)
