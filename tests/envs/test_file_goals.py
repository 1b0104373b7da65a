"""`NavEnv` with a dataset of ObjectNav or Instance ImageNav plays the episodes and goals of its file."""

import dataclasses

import numpy as np
import pytest
from labelled import labelled_scene

import batchnav
from batchnav.data.goals import GOALS
from batchnav.data.goals.category import generate_objectnav
from batchnav.data.goals.instance import generate_instances, with_image_goals
from batchnav.errors import ArgumentError, EpisodeError
from batchnav.scene.bank import SceneBank

THINGS = ("chair", (1.0, 0.0, 1.0), (1.5, 1.0, 1.5)), ("bed", (-3.0, 0.0, -3.0), (-1.5, 0.6, -2.0))


@pytest.fixture(scope="module")
def room():
    """A room with a chair and a bed, without goals."""
    return labelled_scene(THINGS, name="room")


@pytest.fixture
def file(room, tmp_path):
    """An ObjectNav file of the room, whose goals have one view point each."""
    full = generate_objectnav(batchnav.with_goals([room], device="cpu"), 4, seed=3)
    goals = {
        key: [dataclasses.replace(g, points=g.points[:1], rotations=g.rotations[:1], iou=g.iou[:1]) for g in some]
        for key, some in full.goals.items()
    }
    dataclasses.replace(full, goals=goals).save(tmp_path / "val.json.gz")
    return tmp_path / "val.json.gz"


def make(scenes, episodes, task="objectnav", **options):
    return batchnav.NavEnv(scenes, 4, "cpu", task=task, sensors=(), episodes=episodes, **options)


def values(goals):
    """All values of a scene's goals, in a form that can be compared."""
    return goals.rules, [[each.tolist() if isinstance(each, np.ndarray) else each for each in g] for g in goals.objects]


def test_episodes_and_goals_are_those_of_the_file(room, file):
    data = batchnav.load_episodes(file)
    env = make([room], data)
    env.reset()
    starts = np.array([episode.start_position for episode in data.episodes], np.float32)
    np.testing.assert_allclose(env.sim.bodies.position.numpy(), starts, atol=1e-3)
    assert values(env.bank.scenes[0].goals) == values(GOALS[data.kind].scene_goals(data, "room"))
    assert [len(goal.view_points) for goal in env.bank.scenes[0].goals.objects] == [1, 1]
    made = make([room], data.episodes)  # without the goals of the file, the environment makes its own
    assert min(len(goal.view_points) for goal in made.bank.scenes[0].goals.objects) > 1
    assert room.goals is None


def test_goals_of_child_categories_count(room, file):
    data = batchnav.load_episodes(file)
    episodes = [
        dataclasses.replace(e, children_object_categories=("bed",)) if e.object_category == "chair" else e
        for e in data.episodes
    ]
    found = make([room], dataclasses.replace(data, episodes=episodes)).bank.scenes[0].goals.objects
    assert sorted((goal.category, goal.object_id) for goal in found) == [("bed", 3), ("chair", 2), ("chair", 3)]


def test_view_points_that_a_file_lacks_are_made_from_object_ids(room):
    full = generate_objectnav(batchnav.with_goals([room], device="cpu"), 4)
    few = GOALS["category"].without_view_points(full, "hm3d_v2", "hm3d")
    found = make([room], few).bank.scenes[0].goals.objects
    assert [len(goal.view_points) for goal in found] == [
        len(goal.view_points) for goal in GOALS["category"].scene_goals(full, "room").objects
    ]
    bare = room._replace(mesh=room.mesh._replace(surface=None))
    with pytest.raises(ArgumentError, match=r"scenes: found 'room' without object ids, .* appearance=True, since view"):
        make([bare], few)


def test_images_of_instances_are_those_of_the_file(room, tmp_path):
    (scene,) = with_image_goals([room], device="cpu")
    generate_instances([scene], 3).save(tmp_path / "val.json.gz")
    data = batchnav.load_episodes(tmp_path / "val.json.gz")
    env = make(room, data, "instance_imagenav", goal_height=8, goal_width=8)
    observation, _ = env.reset()
    assert observation["imagegoal"].shape == (4, 3, 8, 8)
    assert values(env.bank.scenes[0].goals) == values(GOALS[data.kind].scene_goals(data, "room"))


def test_what_does_not_fit_is_named(room, file):
    data = batchnav.load_episodes(file)
    for task, expected in (("pointnav", "PointNav or ImageNav"), ("instance_imagenav", "Instance ImageNav")):
        message = (
            rf"{file}: found episodes of ObjectNav, expected those of {expected}, .*; task for this file: objectnav$"
        )
        with pytest.raises(EpisodeError, match=message):
            make([room], data, task)
    for other in str(file), dataclasses.replace(data, episodes=[]):
        with pytest.raises(ArgumentError, match=r"expected an EpisodeTable or the result of batchnav.load_episodes$"):
            make([room], other)
    bank = SceneBank.pack(batchnav.with_goals([room], device="cpu"), goal_categories=("chair", "bed"))
    with pytest.raises(ArgumentError, match="scenes: found a SceneBank with the goals of a file, expected Scenes"):
        make(bank, data)
    with pytest.raises(ArgumentError, match=r"scenes\[0\]: found str, expected a Scene"):
        make(["room"], data)
    with pytest.raises(EpisodeError, match=r"'scene_id': found 'room', which is not loaded, .* the scenes: other"):
        make([room._replace(name="other")], data)
    with pytest.raises(EpisodeError, match=r"'object_category': found .*, expected one of the task's: sofa"):
        make([room], data, categories=("sofa",))
