"""The episode files in assets/episodes are what they claim to be, in the houses as they are made today."""

import dataclasses
import gzip
import math
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
import torch
from labelled import write_named

from batchnav.agents.simple import GreedyAgent
from batchnav.data.episodes import episode_table
from batchnav.data.formats import load_episodes
from batchnav.data.goals import GOALS
from batchnav.data.goals.category import generate_objectnav, view_point_hash
from batchnav.data.goals.instance import FRAME_COVERAGE, HEIGHTS, OBJECT_COVERAGE, _Cameras, coverages
from batchnav.data.goals.view_points import objects_of, with_goals
from batchnav.data.play import check_episodes
from batchnav.data.procthor import import_houses
from batchnav.data.scenes.islands import select_islands
from batchnav.data.scenes.load import load_all, load_scene
from batchnav.envs.config import NavConfig, with_options
from batchnav.envs.nav import PointNavEnv
from batchnav.envs.observations import needed_appearance
from batchnav.errors import EpisodeError
from batchnav.evaluation.play import evaluate
from batchnav.evaluation.players import ReferencePlayer
from batchnav.evaluation.run import Evaluation
from batchnav.procedural import SPLITS
from batchnav.tasks.instance_imagenav import InstanceImageNavConfig
from batchnav.tasks.objectnav import HM3D, ObjectNavConfig

FOLDER = Path(__file__).resolve().parents[3] / "assets" / "episodes"
DISTANCE_TOLERANCE = 1e-2
"""Metres: machines contract and round sums differently, which may move a baked navmesh's heights a little."""


@pytest.mark.parametrize("split", ["val", "test"])
def test_two_hundred_episodes_with_detours_in_twenty_unseen_houses(split):
    episodes = load_episodes(FOLDER / f"{split}.json.gz")
    houses = Counter(e.scene_id for e in episodes)
    assert len(houses) == 20 and set(houses.values()) == {10}
    assert all(int(name.removeprefix("house:")) in SPLITS[split] for name in houses)
    distance = np.array([e.info["geodesic_distance"] for e in episodes])
    ratio = distance / [math.dist(e.start_position, e.goals[0].position) for e in episodes]
    assert ratio.mean() >= 1.3
    assert distance.min() >= 1.0 and distance.max() <= 30.0
    # Easy and hard ones: some nearly straight, some at least twice as far as they look.
    assert (ratio < 1.15).mean() > 0.1 and (ratio > 2.0).mean() > 0.1


@pytest.mark.parametrize("kind", ["hall", "building", "block", "scan", "course"])
def test_two_hundred_episodes_in_twenty_unseen_scenes_of_each_kind(kind):
    episodes = load_episodes(FOLDER / f"{kind}.json.gz")
    scenes = Counter(e.scene_id for e in episodes)
    assert len(scenes) == 20 and set(scenes.values()) == {10}
    assert all(int(name.removeprefix(f"{kind}:")) in SPLITS["val"] for name in scenes)
    distance = [e.info["geodesic_distance"] for e in episodes]
    assert min(distance) >= 1.0 and max(distance) <= 30.0


@pytest.mark.parametrize(
    "split, scene_id",
    [
        ("val", "house:100003"),
        ("test", "house:110000"),
        ("hall", "hall:100003"),
        ("building", "building:100003"),
        ("block", "block:100003"),
        ("scan", "scan:100004"),
        ("course", "course:100002"),
    ],
)
def test_episodes_fit_todays_scenes(split, scene_id):
    """Fails where scenes or baker have changed since `eval/publish/make_episodes.py` was run."""
    episodes = [e for e in load_episodes(FOLDER / f"{split}.json.gz") if e.scene_id == scene_id]
    scene = load_scene(scene_id)
    check_episodes(episodes, {scene_id: scene})
    starts = np.array([e.start_position for e in episodes], np.float32)
    goals = np.array([e.goals[0].position for e in episodes], np.float32)
    expected = [e.info["geodesic_distance"] for e in episodes]
    assert scene.navmesh.geodesic_distance(starts, goals) == pytest.approx(expected, abs=DISTANCE_TOLERANCE)


@pytest.mark.parametrize("split", ["val", "test"])
def test_greedy_fails_in_at_least_half(split):
    """In the first three of the twenty houses; making all would take a minute."""
    episodes = load_episodes(FOLDER / f"{split}.json.gz")
    names = sorted({e.scene_id for e in episodes})[:3]
    episodes = [e for e in episodes if e.scene_id in names]
    scenes = load_all(names)
    check_episodes(episodes, dict(zip(names, scenes, strict=True)))
    table = episode_table(episodes, names, "cpu")
    env = PointNavEnv(scenes, len(episodes), "cpu", episodes=table, height=4, width=4)
    assert evaluate(GreedyAgent(env), env, len(episodes))["success"].mean() <= 0.5


# Episode files without view points: these are made anew and checked; the bundled files fit today's scenes


@pytest.fixture(scope="module")
def house():
    return with_goals([load_scene("house:2")], device="cpu")[0]


def test_view_points_are_left_out_and_made_anew(house, tmp_path):
    full = generate_objectnav([house], 6)
    GOALS["category"].without_view_points(full, "hm3d_v2", "hm3d").save(tmp_path / "few.json.gz", content=False)
    full.save(tmp_path / "full" / "all.json.gz", content=False)
    assert (tmp_path / "few.json.gz").stat().st_size < 0.1 * (tmp_path / "full" / "all.json.gz").stat().st_size
    few = load_episodes(tmp_path / "few.json.gz")
    assert [dataclasses.replace(e, info={}) for e in few.episodes] == [
        dataclasses.replace(e, info={}) for e in full.episodes]  # fmt: skip
    (again,) = [scene.goals for scene in GOALS["category"].with_goals_of(few, [house._replace(goals=None)], "cpu")]
    assert view_point_hash(again) == view_point_hash(house.goals)
    for one, other in zip(again.objects, house.goals.objects, strict=True):
        np.testing.assert_array_equal(one.view_points, other.view_points)


def test_view_points_of_a_file_are_used(house):
    full = generate_objectnav([house], 6)
    (goals,) = [scene.goals for scene in GOALS["category"].with_goals_of(full, [house._replace(goals=None)], "cpu")]
    assert goals.rules == "file" and len(goals.objects) == len(house.goals.objects)


def test_another_scene_is_refused(house):
    few = GOALS["category"].without_view_points(generate_objectnav([house], 6), "hm3d_v2", "hm3d")
    other = load_scene("house:3")._replace(name="house:2")
    with pytest.raises(EpisodeError, match=r"of scene 'house:2': found .* m to the nearest view point"):
        GOALS["category"].with_goals_of(few, [other], "cpu")


@pytest.mark.parametrize(
    ("info", "message"),
    [
        (
            {"view_point_rules": []},
            r"scene 'house:2': field 'info': view_point_rules: found \[\], expected one of",
        ),
        ({"labels": "coco"}, "labels: found 'coco', expected one of hm3d, mp3d"),
        ({"view_points_sha256": "", "geodesic_distance": "far"}, "expected nan m as in the file"),
        ({"view_points_sha256": "", "geodesic_distance": 10**400}, "expected nan m as in the file"),
    ],
)
def test_broken_facts_about_view_points_are_refused(house, info, message):
    few = GOALS["category"].without_view_points(generate_objectnav([house], 6), "hm3d_v2", "hm3d")
    episodes = [dataclasses.replace(episode, info=episode.info | info) for episode in few.episodes]
    with pytest.raises(EpisodeError, match=message):
        GOALS["category"].with_goals_of(dataclasses.replace(few, episodes=episodes), [house], "cpu")


def test_the_hash_ignores_the_order_of_view_points(house):
    goals = house.goals
    turned = [goal._replace(view_points=goal.view_points[::-1], headings=goal.headings[::-1]) for goal in goals.objects]
    assert view_point_hash(goals._replace(objects=tuple(turned))) == view_point_hash(goals)
    assert view_point_hash(goals._replace(objects=goals.objects[1:])) != view_point_hash(goals)


@pytest.mark.parametrize("name, number", [("val", 20), ("test", 20), ("building", 10)])
def test_two_hundred_episodes_in_unseen_scenes(name, number):
    dataset = load_episodes(FOLDER / f"objectnav_{name}.json.gz")
    scenes = Counter(episode.scene_id for episode in dataset.episodes)
    assert len(scenes) == number and set(scenes.values()) == {200 // number}
    assert all(int(scene.partition(":")[2]) in SPLITS["test" if name == "test" else "val"] for scene in scenes)
    assert len({episode.object_category for episode in dataset.episodes}) >= 5
    distance = np.array([episode.info["geodesic_distance"] for episode in dataset.episodes])
    ratio = distance / [episode.info["euclidean_distance"] for episode in dataset.episodes]
    assert distance.min() >= 1.0 and distance.max() <= 30.0 and ratio.mean() >= 1.2


@pytest.mark.parametrize("name, scene_id", [("val", "house:100003"), ("test", "house:110003")])
def test_bundled_episodes_fit_todays_scenes(name, scene_id):
    """Fails where scenes, baker or rules have changed since `eval/publish/make_episodes.py` was run."""
    dataset = load_episodes(FOLDER / f"objectnav_{name}.json.gz")
    (goals,) = [scene.goals for scene in GOALS["category"].with_goals_of(dataset, [load_scene(scene_id)], "cpu")]
    wanted = {episode.object_category for episode in dataset.episodes if episode.scene_id == scene_id}
    assert wanted and wanted <= set(goals.categories)


def test_episodes_in_houses_of_procthor(shared, tmp_path):
    """A hundred episodes in twenty houses; the view points of four houses, imported anew, have the file's hash.

    The fourth has a dog's bed, which HM3D's labels count as a bed.
    """
    dataset = load_episodes(FOLDER / "objectnav_procthor.json.gz")
    assert set(Counter(episode.scene_id for episode in dataset.episodes).values()) == {5}
    assert {episode.object_category for episode in dataset.episodes} == set(HM3D)
    houses = gzip.decompress((shared / "scenes" / "procthor" / "houses_210.jsonl.gz").read_bytes()).splitlines()[:4]
    path = tmp_path / "houses_210.jsonl.gz"
    path.write_bytes(gzip.compress(b"\n".join(houses)))
    sources, missing = import_houses(path, shared / "scenes" / "procthor" / "asset_bbox.json", tmp_path / "procthor")
    assert not missing.assets
    scenes = [
        select_islands(source.load(), "indoor")._replace(name=f"procthor/houses_210_{k:04d}.scene")
        for k, source in enumerate(sources)
    ]
    of_scene = {episode.scene_id: episode.info["view_points_sha256"] for episode in dataset.episodes}
    for scene, found in zip(scenes, GOALS["category"].with_goals_of(dataset, scenes, "cpu"), strict=True):
        assert view_point_hash(found.goals) == of_scene[scene.name]


def test_the_shortest_path_follower_succeeds_in_episodes_without_view_points(house, tmp_path):
    """Success 1 and SPL near 1: stored distances are those that the task computes."""
    few = GOALS["category"].without_view_points(generate_objectnav([house], 10, seed=7), "hm3d_v2", "hm3d")
    few.save(tmp_path / "few.json.gz", content=False)
    config = with_options(NavConfig(sensors=(), task=ObjectNavConfig()), {"turn_angle_deg": 10.0})
    evaluation = Evaluation(tmp_path / "few.json.gz", torch.device("cpu"), config)
    played = evaluation.play(ReferencePlayer("shortest_path", config)).episodes
    assert played["success"].tolist() == [1.0] * 10 and played["spl"].mean() >= 0.9
    stored = [episode.info["geodesic_distance"] for episode in evaluation.episodes]
    np.testing.assert_allclose(played["start_distance"], stored, atol=1e-3)


# Instance ImageNav files without view points: these are made anew, images come from the file; the bundled file

BUNDLED = Path(__file__).resolve().parents[3] / "assets" / "episodes" / "instance_imagenav_val.json.gz"
THINGS = [("chair", (-2.0, 0.0, -2.0), (-1.4, 0.8, -1.4)), ("bed", (1.0, 0.0, 1.0), (2.0, 0.6, 2.4))]
RULES, LABELS, CPU = "hm3d_v2", "hm3d", torch.device("cpu")


@pytest.fixture(scope="module")
def room(tmp_path_factory):
    """A room in a file, with a chair and a bed that images show."""
    (scene,) = load_all([str(write_named(tmp_path_factory.mktemp("room") / "room.glb", THINGS))])
    return GOALS["instance"].with_goals([scene], InstanceImageNavConfig(), "cpu")[0]


@pytest.fixture(scope="module")
def dataset(room):
    return GOALS["instance"].generate([room], 6, 0, InstanceImageNavConfig())


def cameras(goals, episodes):
    """The camera of each episode's image, f32 [E, 6]."""
    images = {goal.category: goal.images for goal in goals.objects}
    return np.array([images[episode.goal_name][episode.goal_image_id] for episode in episodes])


def test_view_points_are_made_anew_and_the_images_are_those_of_the_file(room, dataset, tmp_path):
    GOALS["instance"].without_view_points(dataset, RULES, LABELS).save(tmp_path / "few.json.gz", content=False)
    few = load_episodes(tmp_path / "few.json.gz")
    assert all(len(goal.points) == 0 for goal in few.goals.values())
    (goals,) = [scene.goals for scene in GOALS["instance"].with_goals_of(few, [room._replace(goals=None)], "cpu")]
    assert goals.categories == room.goals.categories == ("2", "3")
    assert view_point_hash(goals) == view_point_hash(room.goals)
    whole = GOALS[dataset.kind].scene_goals(dataset, room.name)
    np.testing.assert_array_equal(cameras(goals, few.episodes), cameras(whole, dataset.episodes))
    for goal in goals.objects:
        assert len(goal.images) == len({e.goal_image_id for e in few.episodes if e.goal_name == goal.category})


def test_another_scene_of_instances_is_refused(room, dataset):
    moved = [(label, np.add(low, (0.5, 0.0, 0.0)), np.add(high, (0.5, 0.0, 0.0))) for label, low, high in THINGS]
    other = load_scene(str(write_named(Path(room.name).with_name("moved.glb"), moved)))._replace(name=room.name)
    with pytest.raises(EpisodeError, match=r"found .* m to the nearest view point of '[23]', expected"):
        GOALS["instance"].with_goals_of(GOALS["instance"].without_view_points(dataset, RULES, LABELS), [other], "cpu")


def test_the_shortest_path_follower_succeeds_in_a_file_without_view_points(dataset, tmp_path):
    GOALS["instance"].without_view_points(dataset, RULES, LABELS).save(tmp_path / "few.json.gz", content=False)
    config = with_options(NavConfig(sensors=(), task=InstanceImageNavConfig()), {"goal_height": 16, "goal_width": 16})
    found = Evaluation(tmp_path / "few.json.gz", CPU, config, 3, appearance=needed_appearance(config))
    played = found.play(ReferencePlayer("shortest_path", config))
    assert played.episodes["success"].tolist() == [1.0] * 6 and not played.mismatches


def test_two_hundred_bundled_episodes_in_unseen_houses():
    dataset = load_episodes(BUNDLED)
    scenes = Counter(episode.scene_id for episode in dataset.episodes)
    assert len(scenes) == 10 and set(scenes.values()) == {20}
    assert all(int(scene.partition(":")[2]) in SPLITS["val"] for scene in scenes)
    assert {episode.object_category for episode in dataset.episodes} == set(HM3D)
    distance = np.array([episode.info["geodesic_distance"] for episode in dataset.episodes])
    ratio = distance / [episode.info["euclidean_distance"] for episode in dataset.episodes]
    assert distance.min() >= 1.0 and distance.max() <= 30.0 and ratio.mean() >= 1.2


def test_bundled_instances_fit_todays_scenes():
    """View points have the file's hash, and the image of an episode shows its object within the published bounds.

    Fails where scenes, baker or rules have changed since `eval/publish/make_episodes.py` was run.
    """
    dataset = load_episodes(BUNDLED)
    scene_id = dataset.episodes[0].scene_id
    scene = load_scene(scene_id)
    (goals,) = [scene.goals for scene in GOALS["instance"].with_goals_of(dataset, [scene], "cpu")]
    mine = [episode for episode in dataset.episodes if episode.scene_id == scene_id]
    assert view_point_hash(goals) == mine[0].info["view_points_sha256"]
    things = {str(thing.object_id): thing for thing in objects_of(scene.mesh)}
    for episode, camera in zip(mine[:2], cameras(goals, mine), strict=False):
        given = _Cameras(camera[None, :3].astype(np.float64), *camera[None, 3:5].T, np.degrees(camera[None, 5]).round())
        frame, outline = coverages(scene, things[episode.goal_name], given, CPU)
        assert FRAME_COVERAGE[0] * 0.98 <= frame[0] <= FRAME_COVERAGE[1] and outline[0] >= OBJECT_COVERAGE * 0.98
        floor = scene.navmesh.snap(camera[None, :3] * np.float32([1, 0, 1]))[0, 1]
        assert HEIGHTS[0] - 0.01 <= camera[1] - floor <= HEIGHTS[1] + 0.01
