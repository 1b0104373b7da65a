"""Kinds of goals: every task names one, and tasks of users are treated by theirs."""

import dataclasses
from dataclasses import dataclass

import numpy as np
import pytest
import torch
from labelled import labelled_scene, write_named

from batchnav.data.episodes import rotation_of
from batchnav.data.formats import EpisodeDataset
from batchnav.data.formats.objectnav import FileGoal, ObjectNavEpisode, goals_key, header_of
from batchnav.data.goals import GOALS
from batchnav.data.goals.category import CategoryGoals
from batchnav.data.goals.rules import LABELS
from batchnav.data.validate import validate
from batchnav.envs.config import NavConfig
from batchnav.envs.nav import NavEnv
from batchnav.evaluation.trajectories import meanings_of
from batchnav.procedural.materials.surface import CATEGORIES
from batchnav.tasks import TASKS
from batchnav.tasks.goal_task import GoalTask, GoalTaskConfig
from batchnav.tasks.imagenav import ImageNav, ImageNavConfig
from batchnav.tasks.objectnav import ObjectNav

CHAIR = "chair", (-0.3, 0.0, 1.2), (0.3, 0.8, 1.8)


@dataclass(frozen=True)
class OwnImageNavConfig(ImageNavConfig):
    """Settings of a user's ImageNav."""


class OwnImageNav(ImageNav):
    """A user's ImageNav."""

    Config = OwnImageNavConfig


@dataclass(frozen=True)
class OwnSearchConfig(GoalTaskConfig):
    """Settings of a user's search, which are not those of ObjectNav."""

    success_angle_deg: float = 180.0
    categories: tuple[str, ...] = ("chair",)
    rules: str = "hm3d_v2"
    labels: str = "hm3d"


class OwnSearch(ObjectNav):
    """A user's search."""

    Config = OwnSearchConfig


@pytest.fixture
def own():
    """Users' tasks, registered for one test."""
    known = dict(TASKS)
    TASKS.update(own_image=OwnImageNav, own_search=OwnSearch)
    yield TASKS
    TASKS.clear()
    TASKS.update(known)


def test_every_task_names_the_kind_of_its_goals():
    kinds = {name: task.goal_kind for name, task in TASKS.items()}
    assert set(kinds.values()) == set(GOALS) and GoalTask.goal_kind == "point"
    for name, task in TASKS.items():
        needs_objects = task.goal_categories(task.Config()) is not None
        assert needs_objects == GOALS[kinds[name]].needs_ids, name


def test_failures_of_a_users_task_have_the_kinds_of_its_goals(own):
    own_image, own_search = (NavConfig(task=kind()) for kind in (OwnImageNavConfig, OwnSearchConfig))
    assert meanings_of(own_image) == meanings_of(NavConfig(task=ImageNavConfig())) != {}
    assert meanings_of(own_search) == CategoryGoals.failures and meanings_of(NavConfig()) == {}


def test_scenes_get_the_goals_of_a_users_task(own):
    env = NavEnv([labelled_scene([CHAIR])], 2, "cpu", task="own_search", sensors=(), seed=1)
    env.reset()
    (chair,) = env.bank.scenes[0].goals.objects
    goals = torch.from_numpy(chair.view_points)
    assert (torch.cdist(env.task.goal_position, goals).min(1).values < 1e-3).all()
    assert np.all(env.task.state.start_distance.numpy() >= 1.0)


# Label maps: categories and ids of published datasets, and labels of scenes


def test_ids_are_those_of_the_published_files():
    assert LABELS["hm3d"].ids == {"chair": 0, "bed": 1, "plant": 2, "toilet": 3, "tv_monitor": 4, "sofa": 5}
    mp3d = LABELS["mp3d"].ids
    assert len(mp3d) == 21 and mp3d["chair"] == 0 and mp3d["tv_monitor"] == 13 and mp3d["clothes"] == 20
    assert LABELS["hssd"].categories == ("bed", "chair", "potted_plant", "sofa", "toilet", "tv")
    assert len(LABELS["procthor"].categories) == 16


@pytest.mark.parametrize("name, label, category", [
    ("hm3d", "armchair", "chair"), ("hm3d", " Couch ", "sofa"), ("hm3d", "toilet seat", "toilet"),
    ("hm3d", "flower vase", "plant"), ("hm3d", "decorative plant", "plant"), ("hm3d", "chaise longue", "sofa"),
    ("hm3d", "tv", "tv_monitor"), ("hm3d", "table", None), ("hm3d", "", None), ("hm3d", "bedside lamp", None),
    ("mp3d", "chest_of_drawers", "chest_of_drawers"), ("mp3d", "wall", None), ("hssd", "tv_monitor", "tv"),
    ("hssd", "plant", "potted_plant"), ("procthor", "tv_monitor", "Television"), ("procthor", "bed", "Bed"),
    ("procthor", "toilet_paper", None), ("all", "Office Chair", "office chair"), ("all", "", None),
])  # fmt: skip
def test_labels_of_scenes(name, label, category):
    assert LABELS[name].category(label) == category


def test_the_categories_of_procedural_scenes_are_labels_of_them():
    procedural = LABELS["procedural"]
    assert set(procedural.categories) <= set(CATEGORIES)
    assert procedural.categories[:6] == LABELS["hm3d"].categories
    assert {LABELS["hm3d"].category(name) for name in CATEGORIES} == {*LABELS["hm3d"].categories, None}


# Validation of ObjectNav files: one line for each bad episode, and findings about goals and view points

TOWER = ("bed", [-3.5, 0.0, -3.5], [-1.0, 3.0, -1.0])
"""A block whose top is an island of the navmesh."""
STRAIGHT = 5.0
"""Distance of the episodes' starts from the chair's view point, metres."""


@pytest.fixture
def scene(tmp_path):
    return str(write_named(tmp_path / "room.glb", [TOWER]))


def goal(category, number, *points):
    count = len(points)
    return FileGoal(
        (0.0, 0.5, 0.0), number, category, f"{category}_{number}", np.array(points, float),
        np.tile(rotation_of(0.0), (count, 1)), np.ones(count),
    )  # fmt: skip


def dataset(scene, episodes, goals):
    found = {}
    for each in goals:
        found.setdefault(goals_key(scene, each.object_category), []).append(each)
    ids = {"chair": 0, "bed": 1, "sofa": 2}
    return EpisodeDataset(episodes, "category", found, header_of(ids, ids), "objectnav")


def episode(scene, category="chair", start=(3.0, 0.2, 3.0), distance=STRAIGHT):
    info = {"geodesic_distance": distance, "euclidean_distance": distance}
    return ObjectNavEpisode("0", scene, start, rotation_of(0.0), info=info, object_category=category)


def findings(path, data):
    data.save(path, content=False)
    return [(found.level, found.text) for found in validate(path)]


def test_nothing_is_wrong(scene, tmp_path):
    chair = goal("chair", 2, (3.0, 0.2, -2.0), (3.1, 0.2, -2.0))
    found = findings(tmp_path / "a.json.gz", dataset(scene, [episode(scene)] * 2, [chair]))
    assert found == [("note", f"{tmp_path / 'a.json.gz'}: category 'chair': 2 episodes, 1 goal, 2 view points")]


def test_each_bad_episode_has_a_line(scene, tmp_path):
    top = (-2.2, 3.2, -2.2)
    goals = [goal("chair", 2, (3.0, 0.2, -2.0)), goal("bed", 3, top), goal("sofa", 4)]
    episodes = [
        episode(scene), episode(scene, start=(30.0, 0.0, 0.0)), episode(scene, "bed"), episode(scene, distance=9.0),
        episode(scene, "sofa"),
    ]  # fmt: skip
    found = findings(tmp_path / "a.json.gz", dataset(scene, episodes, goals))
    of_scene = f"of scene {scene!r}: "
    assert [level for level, _ in found] == ["error"] * 3 + ["warning"] * 2 + ["note"] * 3
    for (_, text), expected in zip(
        found,
        (
            f"episode '1' {of_scene}field 'start_position': found [30.0, 0.0, 0.0], expected a point on the navmesh",
            f"episode '2' {of_scene}found view points of 'bed' on other islands of the navmesh only",
            f"episode '4' {of_scene}found no view point of 'sofa'",
            f"scene {scene!r}: category 'bed': 1 of 1 goal cannot be reached from any start, such as 'bed_3'",
            f"episode '3' {of_scene}its file states a geodesic distance of 9.000 m, found 5.000 m on the navmesh",
            f"{tmp_path / 'a.json.gz'}: category 'bed': 1 episode, 1 goal, 1 view point",
            f"{tmp_path / 'a.json.gz'}: category 'chair': 3 episodes, 1 goal, 1 view point",
            f"{tmp_path / 'a.json.gz'}: category 'sofa': 1 episode, 0 goals, 0 view points",
        ),
        strict=True,
    ):
        assert text.startswith(expected)


def test_view_points_off_the_navmesh_are_counted(scene, tmp_path):
    chair = goal("chair", 2, (3.0, 0.2, -2.0), (20.0, 0.0, 0.0), (3.0, 9.0, 0.0))
    found = findings(tmp_path / "a.json.gz", dataset(scene, [episode(scene)], [chair]))
    text = "category 'chair': 2 of 3 view points are off the navmesh, such as [20.0, 0.0, 0.0]"
    assert found[0] == ("warning", f"scene {scene!r}: {text}")
    assert [level for level, _ in found[1:]] == ["note"]


def test_a_scene_that_is_missing_and_a_file_that_is_broken(scene, tmp_path):
    chair, path = goal("chair", 2, (3.0, 0.2, -2.0)), tmp_path / "a.json.gz"
    absent = [dataclasses.replace(episode(scene), scene_id="nowhere.glb")] * 3
    found = findings(path, dataset("nowhere.glb", absent, [chair]))
    assert [level for level, _ in found] == ["error"] and found[0][1].startswith(f"{path}: scene 'nowhere.glb'")
    assert found[0][1].endswith("; 3 episodes cannot be played")
    ((level, text),) = findings(path, dataset(scene, [episode(scene, "bed")], [chair]))
    assert level == "error" and "found 'bed', expected a category with goals in its scene" in text


def test_view_points_above_the_floor_that_no_stop_reaches(scene, tmp_path):
    chair = goal("chair", 2, (3.0, 0.4, -2.0))
    found = findings(tmp_path / "a.json.gz", dataset(scene, [episode(scene)], [chair]))
    assert found[0][0] == "warning" and "the success distance of 0.1 m, so no stop succeeds" in found[0][1]
