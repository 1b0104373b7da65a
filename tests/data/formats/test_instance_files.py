"""Files and generated goals of Instance ImageNav: HM3D v3, round trips, bad fields, coverage of images."""

import copy
import math

import numpy as np
import pytest
import torch
from squares import points_on_the_main_island, square_around
from worlds import boxes, read_packed, write_packed

from batchnav.data.episodes import rotation_of
from batchnav.data.formats import EpisodeFile, format_of, load_episodes
from batchnav.data.formats.instance_imagenav import images_of_goal
from batchnav.data.goals import GOALS
from batchnav.data.goals.instance import (
    FRAME_COVERAGE,
    HEIGHTS,
    OBJECT_COVERAGE,
    SIZE,
    _Cameras,
    coverages,
    generate_instances,
    images_of,
    with_image_goals,
)
from batchnav.data.goals.view_points import objects_of
from batchnav.data.play import check_kind
from batchnav.data.scenes.load import load_scene
from batchnav.data.validate import validate
from batchnav.envs.config import NavConfig, with_options
from batchnav.envs.observations import needed_appearance
from batchnav.errors import EpisodeError
from batchnav.evaluation.players import ReferencePlayer
from batchnav.evaluation.run import Evaluation
from batchnav.scene.goals import ObjectGoal, SceneGoals
from batchnav.scene.scene import make_scene
from batchnav.tasks.instance_imagenav import InstanceImageNavConfig
from batchnav.types import Material, Surface

CPU = torch.device("cpu")
IMAGE = {"position": [1.0, 1.2, 2.0], "rotation": [*rotation_of(0.5)], "hfov": 90, "image_dimensions": [512, 512]}
EPISODE = {
    "episode_id": "331", "scene_id": "hm3d/val/00800-TEE/TEE.basis.glb", "scene_dataset_config": "hm3d.json",
    "start_position": [0.0, 0.1, 0.0], "start_rotation": [0.0, 0.0, 0.0, 1.0], "goals": [], "info": {},
    "object_category": "chair", "goal_object_id": "10", "goal_image_id": 0,
}  # fmt: skip
GOAL = {
    "position": [1.0, 0.5, 1.0], "object_id": 10, "object_name": "chair_10", "object_category": "chair",
    "object_surface_area": 2.5, "image_goals": [IMAGE],
    "view_points": [{"agent_state": {"position": [1.0, 0.1, 2.0], "rotation": [0.0, 0.0, 0.0, 1.0]}, "iou": 0.5}],
}  # fmt: skip
FILE = {"goals": {"TEE_10": GOAL}, "episodes": [EPISODE]}


@pytest.mark.parametrize("content", [True, False])
def test_files_are_written_and_read_back_equal(tmp_path, content):
    write_packed(tmp_path / "a" / "val.json.gz", {"episodes": []})
    write_packed(tmp_path / "a" / "content" / "TEE.json.gz", FILE)
    assert format_of(EpisodeFile(tmp_path / "a" / "val.json.gz")) == "instance_imagenav"
    dataset = load_episodes(tmp_path / "a" / "val.json.gz")
    dataset.save(tmp_path / "b" / "val.json.gz", content)
    again = load_episodes(tmp_path / "b" / "val.json.gz")
    assert again == dataset and list(again.goals) == ["TEE_10"]
    held = read_packed(tmp_path / "b" / ("content/TEE.json.gz" if content else "val.json.gz"))
    for key, value in GOAL.items():
        assert held["goals"]["TEE_10"][key] == value, key
    for key, value in EPISODE.items():
        assert held["episodes"][0][key] == value, key
    (goal,) = GOALS[again.kind].scene_goals(again, EPISODE["scene_id"]).objects
    assert goal.category == "10" and len(goal.view_points) == 1
    assert goal.images[0] == pytest.approx([1.0, 1.2, 2.0, 0.5, 0.0, math.pi / 2], abs=1e-6)


@pytest.mark.parametrize("content", [True, False])
def test_goals_of_scenes_with_similar_names_are_kept_apart(tmp_path, content):
    """The name of one scene is that of the other and a number, as is the key of a goal."""
    scenes, goals = ("hm3d/TEE.glb", "hm3d/TEE_2.glb"), {"TEE_10": GOAL, "TEE_2_11": {**GOAL, "object_id": 11}}
    ids = {"TEE_10": "10", "TEE_2_11": "11"}
    rows = [
        {**EPISODE, "scene_id": scene, "goal_object_id": ids[key]} for scene, key in zip(scenes, goals, strict=True)
    ]
    dataset = load_episodes(write_packed(tmp_path / "a.json.gz", {"goals": goals, "episodes": rows}))
    dataset.save(tmp_path / "b" / "val.json.gz", content)
    for found in (dataset, load_episodes(tmp_path / "b" / "val.json.gz")):
        assert [
            [goal.category for goal in GOALS[found.kind].scene_goals(found, scene).objects] for scene in scenes
        ] == [["10"], ["11"]]


def test_the_kind_of_a_file_is_recognised(tmp_path):
    searches = write_packed(tmp_path / "val.json.gz", {"episodes": [{"object_category": "chair"}]})
    assert format_of(EpisodeFile(searches)) == "objectnav"
    found = load_episodes(write_packed(tmp_path / "other.json.gz", FILE))
    assert found.kind == "instance" and found[0].goal_name == "10" and found[0].object_category == "chair"
    with pytest.raises(
        EpisodeError, match=r"other.json.gz: found episodes of Instance ImageNav, expected .* ObjectNav"
    ):
        check_kind(found, "objectnav")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            lambda f: f["episodes"][0].update(goal_image_id=1),
            "found 1 of object '10', expected the number of one of its 1 images in the file, from 0",
        ),
        (
            lambda f: f["episodes"][0].update(goal_object_id="11"),
            "found 0 of object '11', expected the number of one of its 0 images in the file, from 0",
        ),
        (lambda f: f["episodes"][0].update(goal_object_id="chair"), "'goal_object_id': found 'chair', expected the id"),
        (lambda f: f["episodes"][0].update(goal_image_id=None), "'goal_image_id': found None, expected a number"),
        (lambda f: f["goals"]["TEE_10"]["image_goals"][0].update(hfov=180), "'hfov': found 180, expected 1 to 170"),
        (
            lambda f: f["goals"]["TEE_10"]["image_goals"][0].update(rotation=[0.0, 0.0, 0.6, 0.8]),
            "expected a unit quaternion .* without roll",
        ),
        (lambda f: f["goals"]["TEE_10"].update(image_goals=3), "'image_goals': found 3, expected a list"),
        (lambda f: f.update(goals=[]), r"field 'goals': found \[\], expected goals by scene and object"),
        (lambda f: f.update(episodes=[]), "found no episodes"),
    ],
)
def test_bad_files_are_refused(tmp_path, change, message):
    bad = copy.deepcopy(FILE)
    change(bad)
    with pytest.raises(EpisodeError, match=message):
        load_episodes(write_packed(tmp_path / "bad.json.gz", bad))


@pytest.mark.shared
def test_the_published_files_are_read_and_obey_our_bounds(shared, tmp_path):
    path = shared / "scenes" / "habitat_episodes" / "instance_imagenav_hm3d_v3" / "val_mini" / "val_mini.json.gz"
    dataset = load_episodes(path)
    assert len(dataset.episodes) == 27 and len(dataset.goals) == 20
    for goal in dataset.goals.values():
        images = images_of_goal(goal, "")
        away = np.array(goal.position) - images[:, :3]
        assert np.isin(np.round(np.hypot(away[:, 0], away[:, 2]), 3), (0.5, 1.0, 1.5, 2.0)).all()
        off = images[:, 3] - np.arctan2(-away[:, 0], -away[:, 2])
        tilt = images[:, 4] - np.arctan2(away[:, 1], np.hypot(away[:, 0], away[:, 2]))
        assert np.abs(np.degrees((off + np.pi) % (2 * np.pi) - np.pi)).max() <= 5.0
        assert np.abs(np.degrees(tilt)).max() <= 5.0
        assert [row["hfov"] for row in goal.other["image_goals"]] == pytest.approx(np.degrees(images[:, 5]), abs=1e-4)
    dataset.save(tmp_path / "val_mini.json.gz")
    again = load_episodes(tmp_path / "val_mini.json.gz")
    assert again == dataset and list(again.goals) == list(dataset.goals)
    name = "content/TEEsavR23oF.json.gz"
    held, published = (read_packed(folder / name)["episodes"][0] for folder in (tmp_path, path.parent))
    assert all(held[key] == value for key, value in published.items())


def block_room(wall=False):
    """A floor with a box of 0.4 m (object 1) whose centre is at (3, 0.6, 3), on a stand; with a wall beside it."""
    bounds = [
        ((0.0, -0.2, 0.0), (6.0, 0.0, 6.0)), ((2.8, 0.4, 2.8), (3.2, 0.8, 3.2)), ((2.85, 0.0, 2.85), (3.15, 0.4, 3.15)),
        *([((2.0, 0.0, 3.4), (4.0, 2.5, 3.5))] if wall else []),
    ]  # fmt: skip
    ids = np.zeros(12 * len(bounds), np.int32)
    ids[12:24] = 1
    material, names = np.zeros(len(ids), np.int32), ("", "chair")
    surface = Surface(material, (Material(),), object_id=ids, category=ids, categories=names)
    return make_scene("blocks", boxes(*bounds, surface=surface))


def test_coverages_of_a_box_are_those_of_its_front_face():
    """Seen level from 1 m before its front face, hfov 90: its face is 0.4 of the image's 2 m. Then half outside."""
    scene = block_room()
    (thing,) = objects_of(scene.mesh)
    place = np.array([(3.0, 0.6, 4.2), (3.0, 0.6, 4.2)])
    half = math.pi / 4  # the left edge of the image passes through the box's middle
    cameras = _Cameras(place, np.array([0.0, -half]), np.zeros(2), np.array([90, 90]))
    frame, outline = coverages(scene, thing, cameras, CPU)
    assert frame[0] == pytest.approx(0.04, abs=2.5 / SIZE * 0.4) and outline[0] == pytest.approx(1.0, abs=0.01)
    inside, outside = (1 - 1 / 1.2**2) / 2, (1 / 0.8**2 - 1) / 2  # integrals of 1 / z^3 over the halves of the face
    assert outline[1] == pytest.approx(inside / (inside + outside), abs=0.02)


def test_cameras_of_images_obey_the_bounds_and_a_wall_hides_the_object():
    scene = block_room(wall=True)
    (thing,) = objects_of(scene.mesh)
    images = images_of(scene, thing, CPU)
    hidden = (np.abs(images[:, 0] - 3.0) < 1.0) & (images[:, 2] > 3.4)
    assert len(images) >= 8 and not hidden.any()
    open_images = images_of(block_room(), thing, CPU)
    assert ((np.abs(open_images[:, 0] - 3.0) < 1.0) & (open_images[:, 2] > 3.4)).any()
    assert np.isin(np.round(np.hypot(images[:, 0] - 3.0, images[:, 2] - 3.0), 3), (0.5, 1.0, 1.5, 2.0)).all()
    floor = scene.navmesh.snap(images[:, :3] * [1, 0, 1])[:, 1]
    assert (images[:, 1] - floor >= HEIGHTS[0] - 0.01).all() and (images[:, 1] - floor <= HEIGHTS[1] + 0.01).all()
    cameras = _Cameras(*(images[:, k].astype(np.float64) for k in (slice(3), 3, 4)), np.degrees(images[:, 5]).round())
    frame, outline = coverages(scene, thing, cameras, CPU)
    assert (frame >= FRAME_COVERAGE[0] * 0.98).all() and (outline >= OBJECT_COVERAGE * 0.98).all()
    assert np.array_equal(images_of(scene, thing, CPU), images)


def test_generated_files_are_played(tmp_path):
    """Squares of view points in a house: the shortest-path follower succeeds, with the goals of the file."""
    house = load_scene("house:3", appearance=False)
    points = points_on_the_main_island(house.navmesh, 64)
    camera = np.array([(1.0, 1.2, 1.0, 0.5, -0.2, 1.2), (1.0, 1.2, 1.0, -0.5, 0.1, 1.9)], np.float32)
    objects = []
    for k in (3, 12):
        places = square_around(house.navmesh, points[k])
        zero = np.zeros(len(places), np.float32)
        objects.append(ObjectGoal("chair", k, f"chair_{k}", (0.0, 0.5, 0.0), places, zero, zero + 1, camera))
    (scene,) = with_image_goals([house._replace(goals=SceneGoals("test", tuple(objects)))], device="cpu")
    dataset = generate_instances([scene], 6, seed=2)
    assert [e.goal_object_id for e in dataset.episodes] == ["3", "12"] * 3
    assert {e.object_category for e in dataset.episodes} == {"chair"}
    path = tmp_path / "val.json.gz"
    dataset.save(path, content=False)
    again = load_episodes(path)
    assert again.episodes == dataset.episodes
    np.testing.assert_allclose(GOALS[again.kind].scene_goals(again, "house:3").objects[1].images, camera, atol=1e-5)
    options = {"goal_height": 16, "goal_width": 16, "turn_angle_deg": 30.0}
    config = with_options(NavConfig(sensors=(), task=InstanceImageNavConfig()), options)
    found = Evaluation(path, CPU, config, 3, appearance=needed_appearance(config))
    assert found.play(ReferencePlayer("shortest_path", config)).episodes["success"].tolist() == [1.0] * 6
    levels = [finding.level for finding in validate(path)]
    assert levels == ["note", "note"]  # one line an object
