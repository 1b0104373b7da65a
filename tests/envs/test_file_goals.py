"""`NavEnv` with a dataset of ObjectNav or Instance ImageNav plays the episodes and goals of its file."""

import dataclasses
import gzip
import json

import numpy as np
import pytest
import torch
from labelled import labelled_scene

import batchnav
from batchnav.data.episodes import episode_table
from batchnav.data.formats import load_episodes
from batchnav.data.goals import GOALS
from batchnav.data.goals.category import generate_objectnav
from batchnav.data.goals.instance import generate_instances, with_image_goals
from batchnav.data.scenes.load import load_scene
from batchnav.envs.nav import PointNavEnv
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
    with pytest.raises(ArgumentError, match=r"scenes: found 'room' without object ids, .* since view"):
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


# Episodes compared with their course in habitat-sim, in procedural houses and in a scene of ../shared

DISTANCE, SHARE = 1e-4, 1e-4
"""Tolerance of metres and SPL: both sides sum steps in float32, in different order."""


@pytest.fixture(params=["house:110020", "house:110022", pytest.param("aws_small_house", marks=pytest.mark.shared)])
def runs(request, oracle):
    """A scene, the episodes of its file, and their course in habitat-sim."""
    name = request.param
    if name != "aws_small_house":
        rows = [
            row for row in json.loads(oracle("habitat_houses.json").read_text()) if row["episode"]["scene_id"] == name
        ]
        return load_scene(name), [row["episode"] for row in rows], [row["habitat"] for row in rows]
    episodes = json.loads(gzip.decompress(oracle("habitat_runs/aws_small_house.episodes.json.gz").read_bytes()))
    found = json.loads(oracle("habitat_runs/aws_small_house_100.json").read_text())["per_episode"]["habitat"]
    return load_scene(oracle("aws_small_house.glb")), episodes["episodes"], [recorded(row) for row in found]


def recorded(row):
    """A row of ../shared in the format of `habitat_houses.json`."""
    renamed = {"start_distance": "d0", "path_length": "path", "distance_to_goal": "distance"}
    kept = {name: row[renamed.get(name, name)] for name in ("steps", "collisions", "success", "spl", *renamed)}
    return kept | {"actions": "".join(map(str, row["actions"]))}


def play(scene, episodes, actions):
    """Metrics of the episodes under these actions, one string each."""
    n, longest = len(episodes), max(map(len, actions))
    steps = torch.tensor([[int(a) for a in string.ljust(longest, "0")] for string in actions])
    env = PointNavEnv([scene], n, "cpu", episodes=episode_table(episodes, [scene.name], "cpu"), height=4, width=4)
    env.reset()
    ended, found = np.zeros(n, bool), {}
    for action in steps.T:
        info = env.step(action)[-1]
        first = info["_episode"].numpy() & ~ended
        for name, value in info["episode"].items():
            found.setdefault(name, np.full(n, np.nan))[first] = value.numpy()[first]
        ended |= first
    assert ended.all()
    return found


def loaded(episodes, tmp_path):
    """The episodes as `Episode` objects."""
    path = tmp_path / "e.json.gz"
    path.write_bytes(gzip.compress(json.dumps({"episodes": episodes}).encode()))
    return load_episodes(path)


def test_equal_actions_give_equal_metrics(runs, tmp_path):
    scene, rows, habitat = runs
    episodes = loaded(rows, tmp_path)
    found = play(scene, episodes, [row["actions"] for row in habitat])
    expected = {name: np.array([row[name] for row in habitat]) for name in habitat[0] if name != "actions"}
    for name in ("steps", "collisions", "success"):
        np.testing.assert_array_equal(found[name], expected[name], err_msg=name)
    for name in ("path_length", "distance_to_goal"):
        np.testing.assert_allclose(found[name], expected[name], atol=DISTANCE, err_msg=name)
    np.testing.assert_allclose(found["spl"], expected["spl"], atol=SHARE)
    stated = [episode.info["geodesic_distance"] for episode in episodes]
    np.testing.assert_allclose(stated, expected["start_distance"], atol=DISTANCE)


@pytest.mark.shared
@pytest.mark.parametrize(
    ("record", "same"), [("aws_small_house_100", 89), ("house_110020_20", 19), ("house_110022_20", 18)]
)
def test_the_records_of_the_bundled_policy(shared, tmp_path, record, same):
    """Replays the recorded actions of the bundled policy: equal ends, metrics and episodes."""
    folder = shared / "oracle" / "habitat_runs"
    data = json.loads((folder / f"{record}.json").read_text())
    ours, theirs = ([recorded(row) for row in data["per_episode"][side]] for side in ("batchnav", "habitat"))
    file = "houses" if data["scene"].startswith("house:") else data["scene"]
    rows = json.loads(gzip.decompress((folder / f"{file}.episodes.json.gz").read_bytes()))["episodes"]
    rows = [row for row in rows if row["scene_id"] == data["scene"]][: len(ours)]
    scene = load_scene(data["scene"]) if file == "houses" else load_scene(shared / "oracle" / f"{file}.glb")
    found = play(scene, loaded(rows, tmp_path), [row["actions"] for row in ours])
    for name in ("steps", "collisions", "success"):
        np.testing.assert_array_equal(found[name], [row[name] for row in ours], err_msg=name)
    np.testing.assert_allclose(found["spl"], [row["spl"] for row in ours], atol=SHARE)
    assert found["spl"].mean() == pytest.approx(data["batchnav"]["spl"], abs=SHARE)
    alike = [a["actions"] == b["actions"] for a, b in zip(ours, theirs, strict=True)]
    assert sum(alike) == same == data["agreement"]["identical_actions"]
    assert [a["success"] for a in ours] == [b["success"] for b in theirs]
