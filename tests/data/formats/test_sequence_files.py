"""Files of goals in sequence: GOAT-Bench, MultiON and tours. Round trips, loaders' rules, messages for broken files."""

import copy
import dataclasses
import logging

import pytest
from worlds import read_packed, write_packed

from batchnav.data.episodes import Episode, Goal
from batchnav.data.formats import EpisodeDataset, load_episodes
from batchnav.data.formats.multion import CYLINDERS, HEADER, cylinders_of
from batchnav.data.play import check_kind
from batchnav.data.sequences import CATEGORY, DESCRIPTION, INSTANCE, POINT, SequenceEpisode, Subtask
from batchnav.errors import EpisodeError

CAMERA = {
    "position": [0.5, 1.2, -0.5], "rotation": [0.0, 0.6, 0.0, 0.8], "hfov": 60, "image_dimensions": [512, 512],
}  # fmt: skip


def thing(category, number, words=3, images=2, children=()):
    """One object of a GOAT-Bench file, with a description of a number of words."""
    return {
        "position": [0.5, 0.4, -1.25], "radius": None, "object_id": f"{category}_{number}",
        "object_name": f"{category}_{number}", "object_name_id": None, "object_category": category, "room_id": None,
        "room_name": None, "lang_desc": " ".join(["word"] * words) if words else None, "image_goals": [CAMERA] * images,
        "children_object_categories": list(children),
        "view_points": [{"agent_state": {"position": [0.5, 0.1, -0.5], "rotation": [0, 0, 0, 1]}, "iou": 0.5}],
    }  # fmt: skip


START = {
    "scene_id": "hm3d/val/00001-abc/abc.basis.glb", "scene_dataset_config": "hm3d/config.json",
    "additional_obj_config_paths": [], "start_position": [2.0, 0.1, 3.0], "start_rotation": [0, 0.6, 0, 0.8],
    "info": {"geodesic_distance": 4.5}, "goals": [], "start_room": None, "shortest_paths": None,
}  # fmt: skip
TASKS = [["bed", "object", None], ["chair", "image", "chair_12", 1], ["chair", "description", "chair_12"]]
GOAT = {
    "goals": {
        "abc.basis.glb_bed": [thing("bed", 3, children=["bunk bed"]), thing("bed", 4)],
        "abc.basis.glb_bunk bed": [thing("bunk bed", 5)],
        "abc.basis.glb_chair": [thing("chair", 12, words=55), thing("chair", 13, words=56), thing("chair", 14, 0, 0)],
    },
    "episodes": [{**START, "episode_id": str(k), "tasks": TASKS} for k in range(2)],
}  # fmt: skip
ON = {
    "category_to_mp3d_category_id": {name: k for k, name in enumerate(CYLINDERS)},
    "category_to_task_category_id": {name: k for k, name in enumerate(CYLINDERS)},
    "episodes": [{
        **START, "episode_id": "0", "object_category": ["cylinder_red", "cylinder_cyan"], "object_index": 0,
        "goals": [
            {"object_category": name, "position": [float(k), 0.1, 2.0], "radius": None, "room_id": None,
             "room_name": None} for k, name in enumerate(("cylinder_red", "cylinder_cyan"))
        ],
    }],
}  # fmt: skip
TOUR = {"episodes": [{
    **START, "episode_id": "7", "goals": [{"position": [float(k), 0.1, 1.0], "radius": 0.2} for k in range(3)],
}]}  # fmt: skip


def write_goat(folder, part=GOAT):
    write_packed(folder / "content" / "abc.json.gz", part)
    return write_packed(folder / "val.json.gz", {"episodes": []})


def changed(data, *path, value):
    """A copy of a file with one value replaced; a value of `...` takes the key out."""
    place = data = copy.deepcopy(data)
    for key in path[:-1]:
        place = place[key]
    if value is ...:
        del place[path[-1]]
    else:
        place[path[-1]] = value
    return data


def with_tasks(*tasks):
    return changed(GOAT, "episodes", 0, "tasks", value=list(tasks))


def test_goat_bench_is_written_as_it_was_read(tmp_path):
    dataset = load_episodes(write_goat(tmp_path / "a"))
    assert dataset.kind == "sequence" and dataset.format == "goat" and [e.episode_id for e in dataset] == ["0", "1"]
    assert dataset[0].subtasks == (
        Subtask(CATEGORY, "bed", children_object_categories=("bunk bed",)),
        Subtask(INSTANCE, "chair", "12", 1), Subtask(DESCRIPTION, "chair", "12"),
    )  # fmt: skip
    assert dataset[0].places == [None] * 3 and dataset[0].heading == pytest.approx(2 * 0.6435011, abs=1e-6)
    dataset.save(tmp_path / "b" / "val.json.gz")
    assert read_packed(tmp_path / "b" / "val.json.gz") == {"episodes": []}
    assert read_packed(tmp_path / "b" / "content" / "abc.json.gz") == GOAT
    assert load_episodes(tmp_path / "b" / "val.json.gz") == dataset
    dataset.save(tmp_path / "c.json.gz", content=False)
    assert load_episodes(tmp_path / "c.json.gz") == dataset


def test_goat_benchs_long_descriptions_are_left_out(tmp_path, caplog):
    """As in the benchmark's loader; the numbers of episodes count those of which nothing is left."""
    part = with_tasks(["chair", "description", "chair_13"])
    with caplog.at_level(logging.INFO, "batchnav"):
        dataset = load_episodes(write_goat(tmp_path, part))
    assert [e.episode_id for e in dataset] == ["1"]
    assert "left out 1 description of more than 55 words" in caplog.text
    part = with_tasks(["chair", "description", "chair_13"], ["chair", "image", "chair_13", 0])
    assert [s.kind for s in load_episodes(write_goat(tmp_path, part))[0].subtasks] == [INSTANCE]


def test_goat_benchs_objects_of_child_categories(tmp_path):
    """An image may show an object of a child category; a part of a scene name does not select goals of another."""
    dataset = load_episodes(write_goat(tmp_path / "a", with_tasks(["bed", "image", "bunk bed_5", 0])))
    assert dataset[0].subtasks == (Subtask(INSTANCE, "bed", "5"),)
    dataset.save(tmp_path / "b" / "val.json.gz")
    written = read_packed(tmp_path / "b" / "content" / "abc.json.gz")["episodes"][0]["tasks"]
    assert written == [["bed", "image", "bunk bed_5", 0]]


def test_generated_goals_without_view_points_survive_the_file(tmp_path):
    """The benchmark's loader finds its keys in every goal; equal datasets are read back."""
    dataset = load_episodes(write_goat(tmp_path / "a"))
    bare = {key: [goal.without_view_points for goal in some] for key, some in dataset.goals.items()}
    bare["abc.basis.glb_chair"][2] = dataclasses.replace(bare["abc.basis.glb_chair"][2], other={})
    dataset = dataclasses.replace(dataset, goals=bare)
    dataset.save(tmp_path / "b" / "val.json.gz")
    assert load_episodes(tmp_path / "b" / "val.json.gz") == dataset
    chair = read_packed(tmp_path / "b" / "content" / "abc.json.gz")["goals"]["abc.basis.glb_chair"][2]
    assert chair["lang_desc"] is None and chair["image_goals"] == chair["children_object_categories"] == []


BAD_GOAT = {
    "tasks of no list": (with_tasks(), r"'tasks': found \[\], expected a list of at least one task"),
    "a task of one word": (with_tasks(["bed"]), r"'tasks\[0\]': found \['bed'\], expected \[category, 'object' or"),
    "a task of numbers": (with_tasks([1, [2], None]), r"'tasks\[0\]': found \[1, \[2\], None\], expected \[categ"),
    "an unknown kind": (with_tasks(["bed", "sound", None]), r"found \['bed', 'sound', None\], expected"),
    "a category without goals": (
        with_tasks(TASKS[0], ["sofa", "object", None]),
        r"episode 0 \(id '0', .*'tasks\[1\]': found 'sofa', expected a category with goals in its scene",
    ),
    "an object of another category": (
        with_tasks(["bed", "image", "chair_12", 0]), r"found the object 'chair_12', expected .* the 2 goals of 'bed'"),
    "no object": (with_tasks(["bed", "description", None]), "found the object None, expected the id of one of the 2"),
    "no number of an image": (with_tasks(["chair", "image", "chair_12"]), "found image None, expected .* 2 images"),
    "an image that is not there": (
        with_tasks(["chair", "image", "chair_12", 2]), "found image 2, expected the number of one of the 2 images of"),
    "no description": (
        with_tasks(["chair", "description", "chair_14"]), "'chair_14' without 'lang_desc', expected its description"),
    "a description of no text": (
        changed(GOAT, "goals", "abc.basis.glb_bed", 0, "lang_desc", value=[3]),
        r"abc.json.gz: goals 'abc.basis.glb_bed', goal 0: field 'lang_desc': found \[3\], expected a text",
    ),
    "children of no list": (
        changed(GOAT, "goals", "abc.basis.glb_bed", 0, "children_object_categories", value="x"), "found 'x', expected"),
    "goals of no list": (changed(GOAT, "goals", "abc.basis.glb_bed", value=3), "found 3, expected a list"),
    "goals of no object": (changed(GOAT, "goals", value=[]), r"'goals': found \[\], expected lists by scene and cat"),
    "an object without a number": (
        changed(GOAT, "goals", "abc.basis.glb_bed", 1, "object_id", value="bed"), "goal 1: field 'object_id': found"),
    "a camera with roll": (
        changed(GOAT, "goals", "abc.basis.glb_bed", 1, "image_goals", 0, "rotation", value=[0, 0, 1, 0]),
        "image 0: field 'rotation'",
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", BAD_GOAT)
def test_broken_goat_bench_files_are_named(case, tmp_path):
    part, message = BAD_GOAT[case]
    with pytest.raises(EpisodeError, match=message) as caught:
        load_episodes(write_goat(tmp_path, part))
    assert str(tmp_path) in str(caught.value)


def test_multion_is_written_as_it_was_read(tmp_path):
    dataset = load_episodes(write_packed(tmp_path / "a.json.gz", ON))
    assert dataset.kind == "sequence" and dataset.format == "multion" and dataset.header == HEADER
    assert dataset[0].subtasks == (Subtask(POINT, "cylinder_red"), Subtask(POINT, "cylinder_cyan"))
    assert dataset[0].goals == (Goal((0.0, 0.1, 2.0)), Goal((1.0, 0.1, 2.0)))
    dataset.save(tmp_path / "b.json.gz")
    assert read_packed(tmp_path / "b.json.gz") == ON
    for content in (True, False):
        dataset.save(tmp_path / str(content) / "val.json.gz", content)
        assert load_episodes(tmp_path / str(content) / "val.json.gz") == dataset


def test_multions_published_keys(tmp_path):
    """Published episodes name neither categories nor an index, and their start rotations have any length."""
    episode = {key: value for key, value in ON["episodes"][0].items() if not key.startswith("object_")}
    far = {**episode, "start_rotation": [0, 0.3, 0, 0.4], "episode_id": "45"}
    dataset = load_episodes(write_packed(tmp_path / "a.json.gz", {**ON, "episodes": [far]}))
    assert dataset[0].start_rotation == (0.0, 0.6, 0.0, 0.8) and dataset[0].episode_id == "0"
    bare = load_episodes(write_packed(tmp_path / "b.json.gz", {"episodes": [far]}))
    assert bare.format == "multion" and bare.header == HEADER and list(bare) == list(dataset)


def test_multions_distractors_stand_beside_the_goals(tmp_path):
    others = [{"object_category": "cylinder_pink", "position": [5, 0.1, 2], "radius": None, "room_id": 3,
               "room_name": None}]  # fmt: skip
    dataset = load_episodes(
        write_packed(tmp_path / "a.json.gz", changed(ON, "episodes", 0, "distractors", value=others))
    )
    assert cylinders_of(dataset[0])[1:] == [
        (Goal((1.0, 0.1, 2.0)), "cylinder_cyan"), (Goal((5.0, 0.1, 2.0)), "cylinder_pink"),
    ]  # fmt: skip
    dataset.save(tmp_path / "b.json.gz")
    assert load_episodes(tmp_path / "b.json.gz") == dataset
    assert read_packed(tmp_path / "b.json.gz")["episodes"][0]["distractors"] == others


BAD_MULTION = {
    "no goals": (changed(ON, "episodes", 0, "goals", value=[]), r"episode 0 \(id '0', .*'goals': found \[\]"),
    "goals of no list": (changed(ON, "episodes", 0, "goals", value=4), "'goals': found 4, expected a list"),
    "a goal of a number": (changed(ON, "episodes", 0, "goals", 1, value=4), "'goals', cylinder 1: found 4"),
    "a natural object": (
        changed(ON, "episodes", 0, "goals", 1, "object_category", value="guitar"),
        "cylinder 1: field 'object_category': found 'guitar', expected one of MultiON's cylinder_red, cylinder_green",
    ),
    "a goal without a place": (
        changed(ON, "episodes", 0, "goals", 0, "position", value=...), "cylinder 0: field 'position': found nothing"),
    "a goal at two numbers": (
        changed(ON, "episodes", 0, "goals", 0, "position", value=[1, 2]), r"'position': found \[1, 2\], expected 3"),
    "rotation of length 0": (
        changed(ON, "episodes", 0, "start_rotation", value=[0, 0, 0, 0]), "'start_rotation': found a quaternion of"),
    "rotation about x": (
        changed(ON, "episodes", 0, "start_rotation", value=[1, 0, 0, 0]), r"expected .* of a turn about \+Y"),
    "a distractor of text": (changed(ON, "episodes", 0, "distractors", value=["x"]), "'distractors', cylinder 0"),
    "ids of other things": (
        changed(ON, "category_to_task_category_id", value={"chair": 0}), "'category_to_task_category_id': found 'chai"),
}  # fmt: skip


@pytest.mark.parametrize("case", BAD_MULTION)
def test_broken_multion_files_are_named(case, tmp_path):
    data, message = BAD_MULTION[case]
    path = write_packed(tmp_path / "bad.json.gz", data)
    with pytest.raises(EpisodeError, match=message) as caught:
        load_episodes(path)
    assert str(path) in str(caught.value)


def test_pointnav_episodes_with_several_goals_are_tours(tmp_path):
    path = write_packed(tmp_path / "a.json.gz", TOUR)
    dataset = load_episodes(path)
    assert dataset.kind == "sequence" and dataset.format == "tour" and dataset[0].episode_id == "7"
    assert dataset[0].subtasks == (Subtask(POINT),) * 3
    assert dataset[0].goals[2] == Goal((2.0, 0.1, 1.0), 0.2)
    dataset.save(tmp_path / "b.json.gz")
    assert read_packed(tmp_path / "b.json.gz") == TOUR
    assert load_episodes(tmp_path / "b.json.gz") == dataset
    with pytest.raises(EpisodeError, match=r"a\.json\.gz: found episodes of goals in sequence, .* file: sequence$"):
        check_kind(dataset, "pointnav")
    later = {"episodes": [{**TOUR["episodes"][0], "goals": TOUR["episodes"][0]["goals"][:1]}, *TOUR["episodes"]]}
    assert load_episodes(write_packed(tmp_path / "c.json.gz", later)).kind == "point"


def test_a_format_refuses_goals_that_it_does_not_have(tmp_path):
    place = SequenceEpisode(
        "0", "house:7", (0.0, 0.1, 0.0), (0.0, 0.0, 0.0, 1.0), (Goal((1.0, 0.1, 0.0)),), subtasks=(Subtask(POINT),)
    )
    chair = dataclasses.replace(place, goals=(), subtasks=(Subtask(CATEGORY, "chair"),))
    for episode, format, message in (
        (
            place,
            "goat",
            "'0' of scene 'house:7': found a subtask of kind 'point', expected one that GOAT-Ben",
        ),
        (place, "multion", "found a subtask of kind 'point' and category '', expected the cylinders"),
        (chair, "multion", "found a subtask of kind 'category' and category 'chair', expected the cylinders"),
        (chair, "tour", "found goals that are objects, expected a tour of places"),
    ):
        with pytest.raises(EpisodeError, match=message):
            EpisodeDataset([episode], "sequence").save(tmp_path / "e.json.gz", format=format)
    assert not list(tmp_path.iterdir())


def test_mixed_files_name_the_episode(tmp_path):
    plain = {**START, "episode_id": "9", "goals": [{"position": [1, 0, 1], "radius": 0.2}]}
    for data, message in (
        ({**GOAT, "episodes": [*GOAT["episodes"], plain]}, "episode 2 .*'tasks': found None, expected a list"),
        (
            {**ON, "episodes": [*ON["episodes"], plain]},
            "episode 1 .*'object_category': found None, expected one of",
        ),
        (
            {"episodes": [plain, *ON["episodes"]]},
            "episode 1 .*'object_index': found episodes of MultiON",
        ),
        ({"episodes": [plain, *GOAT["episodes"]]}, "episode 1 .*'tasks': found episodes of GOAT-Bench, .* first"),
        ({"episodes": [*TOUR["episodes"], *ON["episodes"]]}, "episode 1 .*'object_index': found episodes of MultiON"),
    ):
        with pytest.raises(EpisodeError, match=message):
            load_episodes(write_packed(tmp_path / "a.json.gz", data))
    assert isinstance(load_episodes(write_packed(tmp_path / "b.json.gz", {"episodes": [plain]}))[0], Episode)
