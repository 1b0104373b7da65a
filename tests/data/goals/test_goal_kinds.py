"""Kinds of goals: every task names one, and tasks of users are treated by theirs."""

from dataclasses import dataclass

import numpy as np
import pytest
import torch
from labelled import labelled_scene

from batchnav.data.goals import GOALS
from batchnav.data.goals.category import CategoryGoals
from batchnav.data.goals.rules import LABELS
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
