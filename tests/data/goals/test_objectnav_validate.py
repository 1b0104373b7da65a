"""Validation of ObjectNav files: one line for each bad episode, and findings about goals and view points."""

import dataclasses

import numpy as np
import pytest
from labelled import write_named

from batchnav.data.episodes import rotation_of
from batchnav.data.formats import EpisodeDataset
from batchnav.data.formats.objectnav import FileGoal, ObjectNavEpisode, goals_key, header_of
from batchnav.data.validate import validate

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
