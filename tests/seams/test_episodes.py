"""From outside the package: an episode format, a source and a family of scenes, a task with its own kind of goal."""

import importlib

import numpy as np
import pytest
import torch

import batchnav
from batchnav import cli
from batchnav.config import from_dict
from batchnav.data.formats import FORMATS, EpisodeDataset
from batchnav.data.goals import GOALS
from batchnav.data.goals.point import generate_episodes
from batchnav.data.scenes.ids import SCENE_SOURCES
from batchnav.data.validate import validate
from batchnav.envs.config import NavConfig
from batchnav.evaluation.players import ReferencePlayer
from batchnav.evaluation.run import Evaluation, failure_table
from batchnav.procedural import FAMILIES
from batchnav.tasks import TASKS
from batchnav.training.config import TrainingConfig
from batchnav.training.loop import train
from batchnav.view.viewer.session import open_session

CPU, SCENE = torch.device("cpu"), "floor:6x8"
REGISTRIES = FORMATS, GOALS, SCENE_SOURCES, FAMILIES, TASKS


@pytest.fixture(scope="module", autouse=True)
def toys():
    """Import the toys, which register themselves; the registries are as before afterwards."""
    before = [dict(each) for each in REGISTRIES]
    for name in ("toy_format", "toy_source", "toy_family", "toy_task"):
        importlib.import_module(name)
    yield
    for registry, known in zip(REGISTRIES, before, strict=True):
        registry.clear()
        registry.update(known)


def test_a_format_is_read_written_converted_and_played(tmp_path):
    (scene,) = batchnav.load_scenes([SCENE])
    walks = tmp_path / "val.walks"
    EpisodeDataset(generate_episodes(scene, 4)).save(walks, format="walks")
    dataset = batchnav.load_episodes(walks)
    assert dataset.format == "walks" and len(dataset) == 4 and list(validate(walks)) == []
    dataset.save(tmp_path / "val.json.gz", format="pointnav")
    env = batchnav.NavEnv.from_episodes(walks, 4, "cpu", sensors=())
    env.reset()
    again = batchnav.NavEnv.from_episodes(tmp_path / "val.json.gz", 4, "cpu", sensors=())
    again.reset()
    assert torch.equal(env.task.goal_position, again.task.goal_position)


def test_a_source_and_a_family_of_scenes_are_loaded_one_and_many():
    assert batchnav.load_scene("growing:3").name == "growing:3"
    names = ["growing:0-1", SCENE, "floor:3x4"]
    scenes = batchnav.load_scenes(names)
    assert [scene.name for scene in scenes] == ["growing:0", "growing:1", SCENE, "floor:3x4"]
    area = [scene.navmesh.area for scene in scenes]
    assert area[0] < area[1] < area[2] and area[3] == min(area)


def test_a_task_with_its_own_goals_is_generated_checked_trained_resumed_evaluated_and_viewed(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    cli.main(["data", "make-episodes", SCENE, "--task", "corner", "--per-scene", "8", "--out", "val.corners"])
    path = tmp_path / "val.corners"
    dataset = batchnav.load_episodes(path)
    assert dataset.kind == "corner" and len({episode.corner for episode in dataset}) == 4
    assert list(validate(path)) == []
    env = batchnav.NavEnv.from_episodes(path, 8, "cpu", sensors=())
    seen, _ = env.reset()
    assert env.config.task_name == "corner" and seen["corner"].tolist() == [0, 1, 2, 3] * 2
    run = {
        "env": {"task": {"name": "corner", "max_steps": 20}, "sensors": []},
        "scenes": {"houses": 0, "episodes": str(path)},
        "device": "cpu", "save_every": 0.0, "policy": {"hidden_size": 8},
        "ppo": {"num_envs": 8, "rollout_steps": 32, "total_frames": 1024, "optimizer": "adamw"},
    }  # fmt: skip
    train(from_dict(TrainingConfig, run), tmp_path / "run")
    longer = run | {"ppo": run["ppo"] | {"total_frames": 2048}}
    train(from_dict(TrainingConfig, longer), tmp_path / "run", allow_changes=True)
    config = NavConfig(sensors=(), task=TASKS["corner"].Config(max_steps=60))
    evaluation = Evaluation(path, CPU, config)
    best, random = (evaluation.play(ReferencePlayer(name, config)) for name in ("shortest_path", "random"))
    assert best.overall["success"].mean == 1.0
    assert set(random.failures) <= {"", *GOALS["corner"].failures} and "never there" in random.failures
    labels = [row.label for row in failure_table(evaluation, random)][1:5]
    assert labels == ["north east", "north west", "south east", "south west"]
    session = open_session((), path, {}, CPU, config=config)
    np.testing.assert_allclose(session.goal, evaluation_goal(evaluation, 0), atol=1e-4)


def evaluation_goal(evaluation, number):
    """Position of the goal of an episode."""
    env = batchnav.NavEnv.from_episodes(evaluation.episodes[[number]], 1, scenes=evaluation.bank, sensors=())
    env.reset()
    return env.task.goal_position[0].numpy()
