"""Episode files without view points: these are made anew and checked; the bundled files fit today's scenes."""

import dataclasses
import gzip
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
import torch

from batchnav.data.formats import load_episodes
from batchnav.data.goals import GOALS
from batchnav.data.goals.category import generate_objectnav, view_point_hash
from batchnav.data.goals.view_points import with_goals
from batchnav.data.procthor import import_houses
from batchnav.data.scenes.load import load_scene
from batchnav.envs.config import NavConfig, with_options
from batchnav.errors import EpisodeError
from batchnav.evaluation.players import ReferencePlayer
from batchnav.evaluation.run import Evaluation
from batchnav.procedural import SPLITS
from batchnav.tasks.objectnav import HM3D, ObjectNavConfig

FOLDER = Path(__file__).resolve().parents[3] / "assets" / "episodes"


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
    """A hundred episodes in twenty houses; the view points of two houses, imported anew, have the file's hash."""
    dataset = load_episodes(FOLDER / "objectnav_procthor.json.gz")
    assert set(Counter(episode.scene_id for episode in dataset.episodes).values()) == {5}
    assert {episode.object_category for episode in dataset.episodes} == set(HM3D)
    houses = gzip.decompress((shared / "scenes" / "procthor" / "houses_210.jsonl.gz").read_bytes()).splitlines()[:2]
    path = tmp_path / "houses_210.jsonl.gz"
    path.write_bytes(gzip.compress(b"\n".join(houses)))
    sources, missing = import_houses(path, shared / "scenes" / "procthor" / "asset_bbox.json", tmp_path / "procthor")
    assert not missing.assets
    scenes = [source.load()._replace(name=f"procthor/houses_210_{k:04d}.scene") for k, source in enumerate(sources)]
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
