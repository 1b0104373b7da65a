"""View points of boxes on an open floor: closed forms for place, number, order and visibility."""

import dataclasses

import numpy as np
import pytest
import torch

from batchnav.data.goals import view_points
from batchnav.data.goals.rules import RULES, labels_named
from batchnav.data.goals.view_points import grid_around, least_rectangle, make_goals, objects_of, with_goals
from batchnav.data.scenes.load import load_scene
from batchnav.errors import ArgumentError
from batchnav.navmesh.settings import NavMeshSettings
from batchnav.tasks.objectnav import HM3D
from tests.labelled import labelled_scene

BODY = NavMeshSettings(agent_radius=0.17, agent_height=1.41)
STEP = RULES["hm3d_v2"].view_points.step


def goals_of(*things, rules="hm3d_v2", **options):
    return make_goals([labelled_scene(things, settings=BODY, **options)], rules, device="cpu")[0]


def distance_to_box(points, low, high):
    """Horizontal distance of points to a box, metres."""
    away = np.maximum(np.maximum(np.array(low) - points, points - np.array(high)), 0.0)
    return np.hypot(away[:, 0], away[:, 2])


def test_view_points_fill_the_metre_around_a_box():
    """On an open floor: the grid's places within 1 m of the box where the body fits; the box's height has no effect."""
    low, high = (-0.3, 0.0, -0.5), (0.3, 0.8, 0.5)
    goals = goals_of(("chair", low, high))
    (chair,) = goals.objects
    assert chair.category == "chair" and chair.object_id == 2 and chair.name == "chair_2"
    assert chair.position == (0.0, 0.4, 0.0)
    size_x, size_z, radius = 0.6, 1.0, 0.17
    disc = size_x * size_z + 2.0 * (size_x + size_z) + np.pi
    body = size_x * size_z + 2.0 * radius * (size_x + size_z) + np.pi * radius**2
    boundary = 2.0 * (size_x + size_z) * 2.0 + 2.0 * np.pi * (1.0 + radius)
    assert abs(len(chair.iou) - (disc - body) / STEP**2) <= 0.5 * boundary / STEP
    distance = distance_to_box(chair.view_points, low, high)
    assert distance.max() <= 1.0 + 0.011 and distance.min() >= radius - 0.1  # snapping; voxels of the navmesh
    taller = goals_of(("chair", low, (0.3, 1.2, 0.5)))
    np.testing.assert_allclose(len(taller.objects[0].iou), len(chair.iou), rtol=0.01)


def test_view_points_face_the_centre_and_are_sorted_by_coverage():
    (chair,) = goals_of(("chair", (-0.3, 0.0, 1.5), (0.3, 0.8, 2.5))).objects
    toward = np.array(chair.position) - chair.view_points
    facing = np.arctan2(-toward[:, 0], -toward[:, 2])
    np.testing.assert_allclose(chair.headings, facing, atol=1e-6)
    assert (np.diff(chair.iou) <= 0.0).all() and (chair.iou > 0.0).all()
    pixels = chair.iou.astype(float) * 76_800 / 3  # five decimals
    np.testing.assert_allclose(pixels, np.round(pixels), atol=76_800 / 3 * 0.6e-5)
    assert (chair.view_points == np.round(chair.view_points.astype(float), 5).astype(np.float32)).all()


def test_a_wall_hides_one_side():
    """A wall through the disc removes the places behind it, and no other."""
    low, high = (-0.3, 0.0, -0.3), (0.3, 0.8, 0.3)
    wall = ("wall", (-4.0, 0.0, 0.6), (4.0, 2.5, 0.65))
    (open_,), (hidden,) = (goals_of(("chair", low, high), *walls).objects for walls in ((), (wall,)))
    assert (open_.view_points[:, 2] > 0.8).any() and (hidden.view_points[:, 2] < 0.6).all()
    before = {tuple(point) for point in np.round(open_.view_points[:, [0, 2]], 3).tolist() if point[1] < 0.35}
    after = {tuple(point) for point in np.round(hidden.view_points[:, [0, 2]], 3).tolist() if point[1] < 0.35}
    assert before == after


def test_an_object_that_is_too_high_has_no_view_points():
    """A candidate is lowered by at most 1.95 m, and then 0.5 m above the navmesh, 0 to 0.2 m up, is near enough."""
    rules = dataclasses.replace(RULES["hm3d_v2"], view_points=dataclasses.replace(
        RULES["hm3d_v2"].view_points, pitches_deg=(60.0,)))  # fmt: skip
    for centre, number in ((2.4, 1), (2.8, 0)):
        box = ("tv", (-0.2, centre - 0.1, -0.2), (0.2, centre + 0.1, 0.2))
        assert len(goals_of(box, rules=rules).objects) == number


def test_small_islands_have_no_view_points():
    assert len(goals_of(("chair", (-0.2, 0.0, -0.2), (0.2, 0.8, 0.2)), floor=2.2).objects) == 0


def test_both_boxes_limit_the_grid():
    """The corners of the axis-aligned box of a turned object are farther than 1 m from its least rectangle."""
    turned = np.array([(0.0, 1.0), (1.0, 0.0), (0.0, -1.0), (-1.0, 0.0)])
    centre, side, half = least_rectangle(turned)
    np.testing.assert_allclose(centre, 0.0, atol=1e-12)
    np.testing.assert_allclose(np.abs(side), np.sqrt(0.5), atol=1e-12)
    np.testing.assert_allclose(half, np.sqrt(0.5), atol=1e-12)
    thing = objects_of(labelled_scene([("bed", (-1, 0, -1), (1, 1, 1))]).mesh)[1]
    straight = grid_around(thing, 0.1, 1.0)
    across = grid_around(thing._replace(rectangle=(centre, side, half)), 0.1, 1.0)
    assert len(across) < len(straight)
    assert np.abs(straight[:, [0, 2]]).max() <= 2.0 + 1e-9
    assert np.abs(across[:, [0, 2]]).sum(1).max() <= 1.0 + np.sqrt(2.0) + 1e-6  # distance to the turned square


@pytest.mark.parametrize("points", [[(1, 2), (1, 2)], [(0, 0), (1, 1), (2, 2)], [(0, 1), (1, 0)]])
def test_the_least_rectangle_of_points_on_a_line(points):
    points = np.array(points, float)
    centre, side, half = least_rectangle(points)
    np.testing.assert_allclose(centre, (points.min(0) + points.max(0)) / 2, atol=1e-12)
    np.testing.assert_allclose(half, [np.linalg.norm(np.ptp(points, 0)) / 2, 0.0], atol=1e-12)
    assert np.linalg.norm(side) == pytest.approx(1.0)


def test_goals_of_a_house_come_from_the_cache_the_second_time(tmp_path, monkeypatch):
    scene = load_scene("house:2")
    monkeypatch.setattr("batchnav.data.goals.view_points.versioned_cache_folder", lambda *_: tmp_path)
    (made,) = with_goals([scene], device="cpu")
    monkeypatch.setattr("batchnav.data.goals.view_points.search_goals", None)
    (again,) = with_goals([scene], device="cpu")
    assert made.goals.rules == "hm3d_v2" and set(made.goals.categories) <= set(HM3D)
    assert len(made.goals.objects) >= 5
    for one, other in zip(made.goals.objects, again.goals.objects, strict=True):
        assert one[:4] == other[:4]
        assert all((a == b).all() and a.dtype == b.dtype for a, b in zip(one[4:], other[4:], strict=True))


@pytest.mark.parametrize("data", [b"", b"damaged", b"PK\x03\x04"])
def test_goals_in_a_damaged_file_of_the_cache_are_made_again(data, tmp_path, monkeypatch):
    scene = labelled_scene([("chair", (-0.2, 0, -0.2), (0.2, 0.8, 0.2))])
    monkeypatch.setattr("batchnav.data.goals.view_points.versioned_cache_folder", lambda *_: tmp_path)
    (made,) = make_goals([scene], device="cpu")
    next(tmp_path.iterdir()).write_bytes(data)
    (again,) = make_goals([scene], device="cpu")
    assert len(again.objects) == len(made.objects) == 1


def test_a_scene_without_categories_has_no_goals():
    (scene,) = with_goals([load_scene("house:2", appearance=False)], device="cpu")
    assert scene.goals.objects == () and scene.goals.categories == ()


def test_unknown_rules_and_labels_are_refused():
    with pytest.raises(ArgumentError, match="rules: found 'hm3d', expected one of hm3d_v2, hssd, ovon, procthor"):
        make_goals([], "hm3d")
    with pytest.raises(ArgumentError, match="labels: found 'coco', expected one of hm3d, mp3d"):
        make_goals([], labels="coco")
    with pytest.raises(ArgumentError, match=r"labels: found {'chair': 'seat'}, expected one of hm3d.* or a LabelMap"):
        make_goals([], labels={"chair": "seat"})
    with pytest.raises(ArgumentError, match=r"scenes\[0\]: found str, expected a Scene \(see load_scenes\)"):
        with_goals(["house:0"])


@pytest.mark.cuda
def test_cpu_and_cuda_find_the_same_view_points(tmp_path, monkeypatch):
    """Places are equal, up to those where a single pixel decides; scores differ by few pixels."""
    scene, found = load_scene("house:2"), {}
    for device in ("cpu", "cuda"):
        folder = tmp_path / device
        monkeypatch.setattr("batchnav.data.goals.view_points.versioned_cache_folder", lambda *_, f=folder: f)
        found[device] = {goal.object_id: goal for goal in make_goals([scene], device=device)[0].objects}
    assert found["cpu"].keys() == found["cuda"].keys()
    differ = total = 0
    for object_id, one in found["cpu"].items():
        scores = [
            {tuple(p): float(s) for p, s in zip(goal.view_points.tolist(), goal.iou, strict=True)}
            for goal in (one, found["cuda"][object_id])
        ]
        places = scores[0].keys() | scores[1].keys()
        total, differ = total + len(places), differ + len(scores[0].keys() ^ scores[1].keys())
        gaps = [abs(scores[0].get(place, 0.0) - scores[1].get(place, 0.0)) for place in places]
        assert max(gaps) <= 3 * 20 / 76_800
    assert differ <= 0.005 * total


def test_goals_of_several_scenes_are_those_of_each(tmp_path, monkeypatch):
    """Scenes are rendered together in batches: in their order, with scenes without objects and known ones between."""
    monkeypatch.setattr("batchnav.data.goals.view_points.versioned_cache_folder", lambda *_: tmp_path)
    monkeypatch.setattr(view_points, "_BATCH", 2)
    things = [[("chair", (-0.3, 0.0, z), (0.3, 0.8, z + 1.0)), ("bed", (z, 0, 2), (z + 1, 0.5, 3))] for z in (0, 1, 2)]
    scenes = [labelled_scene(some, settings=BODY) for some in (things[0], [], things[1], things[2])]
    make_goals(scenes[2:3], device="cpu")
    found = make_goals(scenes, device="cpu")
    assert [len(goals.objects) for goals in found] == [2, 0, 2, 2]
    rules = RULES["hm3d_v2"]
    for goals, scene in zip(found, scenes, strict=True):
        (alone,) = view_points.search_goals([scene], rules.view_points, labels_named("hm3d"), torch.device("cpu"))
        for one, other in zip(goals.objects, alone, strict=True):
            assert one[:4] == other[:4] and all(map(np.array_equal, one[4:], other[4:]))


@pytest.mark.parametrize(
    ("label", "category"),
    [
        ("arm_chair", "chair"), ("ArmChair", "chair"), ("Arm Chair", "chair"), ("dining_chair", "chair"),
        ("aws_robomaker_residential_ChairA", "chair"), ("my_Bed_01", "bed"), ("TV", "tv_monitor"),
        ("TVStand", None), ("tv_stand", None), ("hospital_TestTube", None), ("electric chair", None), ("sofa", "sofa"),
    ],
)  # fmt: skip
def test_spaces_underscores_and_camel_case_of_labels_are_alike(label, category):
    """The last words count in names with underscores or in camel case; plain words are those of the dataset's table."""
    assert labels_named("hm3d").category(label) == category


def test_categories_in_lower_case_are_found():
    known = {"basketball": "BasketBall", "alarm_clock": "AlarmClock", "AlarmClock": "AlarmClock", "cup": "Mug"}
    assert {label: labels_named("procthor").category(label) for label in known} == known


def test_labels_of_a_file(tmp_path):
    """Patterns match a label or its words; the first match counts; other labels have no category."""
    path = tmp_path / "labels.yaml"
    path.write_text('shelf: ["*Shelf*", bookcase]\nbox: "*box_?"\nrest: ["*shelf board*", "*_Mug?"]\n')
    labels = labels_named(str(path))
    assert labels.categories == ("shelf", "box", "rest") and labels.ids == {"shelf": 0, "box": 1, "rest": 2}
    found = {"warehouse_ShelfD_01": "shelf", "Bookcase": "shelf", "CardBox_A": "box", "shelf_board": "shelf",
             "retail_MugE": "rest"}  # fmt: skip
    assert {label: labels.category(label) for label in (*found, "bookcases", "chair")} == {
        **found, "bookcases": None, "chair": None}  # fmt: skip
    scene = labelled_scene([("warehouse_ShelfD", (-0.2, 0, -0.2), (0.2, 0.8, 0.2))])
    assert make_goals([scene], labels=str(path), device="cpu")[0].categories == ("shelf",)


@pytest.mark.parametrize("text", ["", "chair", "- chair", "chair: []", "chair: 3", "1: chair", "chair: ['']", "{"])
def test_files_without_patterns_of_labels_are_refused(tmp_path, text):
    (tmp_path / "labels.yaml").write_text(text)
    with pytest.raises(ArgumentError, match=r"labels: .*labels\.yaml: (found no category|category|is not YAML)"):
        labels_named(str(tmp_path / "labels.yaml"))
    with pytest.raises(ArgumentError, match=r"labels: .*none\.yaml"):
        labels_named(str(tmp_path / "none.yaml"))
