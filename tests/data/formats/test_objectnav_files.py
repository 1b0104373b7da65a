"""ObjectNav files: round trips, numbering, files of others, and messages for broken ones."""

import copy
import dataclasses
from pathlib import Path

import numpy as np
import pytest
import torch
import trimesh
from labelled import write_named
from PIL import Image
from worlds import read_packed, write_box, write_json, write_packed

from batchnav.cli.data import make_episodes
from batchnav.data.episodes import heading_of
from batchnav.data.formats import EpisodeDataset, load_episodes
from batchnav.data.formats.objectnav import TASK_IDS, FileGoal, ObjectNavEpisode, goals_key, header_of
from batchnav.data.goals import GOALS
from batchnav.data.goals.rules import LABELS
from batchnav.data.validate import validate
from batchnav.envs.config import NavConfig, with_options
from batchnav.errors import EpisodeError
from batchnav.evaluation.players import ReferencePlayer
from batchnav.evaluation.run import Evaluation
from batchnav.scene.goals import ObjectGoal
from batchnav.tasks.objectnav import ObjectNavConfig
from tests.pages import ROOT, blocks

IDS = {"chair": 0, "bed": 1}
GOAL = {
    "position": [0.5, 0.4, -1.25], "radius": None, "object_id": 12, "object_name": "office chair_12",
    "object_name_id": None, "object_category": "chair", "room_id": None, "room_name": None,
    "view_points": [
        {"agent_state": {"position": [0.5, 0.1, -0.5], "rotation": [0.0, 0.0, 0.0, 1.0]}, "iou": 0.12345},
        {"agent_state": {"position": [0.5, 0.1, -0.25], "rotation": [0.0, 0.6, 0.0, -0.8]}, "iou": 4e-05},
    ],
}  # fmt: skip
EPISODE = {
    "episode_id": "41", "scene_id": "hm3d/val/00001-abc/abc.basis.glb", "scene_dataset_config": "default",
    "additional_obj_config_paths": [], "start_position": [2.0, 0.1, 3.0], "start_rotation": [0, 0.6, 0, 0.8],
    "info": {"geodesic_distance": 4.5, "euclidean_distance": 4.0, "closest_goal_object_id": 12}, "goals": [],
    "start_room": None, "shortest_paths": None, "object_category": "chair",
}  # fmt: skip
PART = {
    "goals_by_category": {"abc.basis.glb_chair": [GOAL]},
    "episodes": [EPISODE, {**EPISODE, "episode_id": "43"}],
    "category_to_task_category_id": IDS, "category_to_scene_annotation_category_id": IDS,
}  # fmt: skip
TOP = {**PART, "episodes": []}
del TOP["goals_by_category"]


def write_split(folder, part=PART, top=TOP):
    write_packed(folder / "content" / "abc.json.gz", part)
    return write_packed(folder / "val.json.gz", top)


def changed(*path, value):
    """PART with one value replaced."""
    part = copy.deepcopy(PART)
    place = part
    for key in path[:-1]:
        place = place[key]
    place[path[-1]] = value
    return part


def without_ids(data):
    return {**data, "episodes": [{k: v for k, v in e.items() if k != "episode_id"} for e in data["episodes"]]}


def test_a_split_is_written_as_it_was_read(tmp_path):
    dataset = load_episodes(write_split(tmp_path / "a"))
    dataset.save(tmp_path / "b" / "val.json.gz")
    assert read_packed(tmp_path / "b" / "val.json.gz") == TOP
    written = read_packed(tmp_path / "b" / "content" / "abc.json.gz")
    assert without_ids(written) == without_ids(PART)
    again = load_episodes(tmp_path / "b" / "val.json.gz")
    assert again == dataset and again.header[TASK_IDS] == IDS
    again.save(tmp_path / "c" / "val.json.gz")
    for name in ("val.json.gz", "content/abc.json.gz"):
        assert (tmp_path / "b" / name).read_bytes() == (tmp_path / "c" / name).read_bytes()


def test_episodes_are_numbered_in_each_scene_as_habitats_loader_does(tmp_path):
    other = {**EPISODE, "scene_id": "hm3d/val/00002-def/def.basis.glb"}
    write_packed(tmp_path / "content" / "def.json.gz", {
        **PART, "goals_by_category": {"def.basis.glb_chair": [GOAL]}, "episodes": [other]})  # fmt: skip
    dataset = load_episodes(write_split(tmp_path))
    assert [(e.scene_id[9:14], e.episode_id) for e in dataset.episodes] == [
        ("00001", "0"), ("00001", "1"), ("00002", "0")]  # fmt: skip
    only = load_episodes(tmp_path / "val.json.gz", ["def"])
    assert [e.scene_id for e in only.episodes] == [other["scene_id"]]


def test_goals_of_a_scene(tmp_path):
    dataset = load_episodes(write_split(tmp_path))
    goals = GOALS[dataset.kind].scene_goals(dataset, EPISODE["scene_id"])
    (chair,) = goals.objects
    assert goals.rules == "file" and goals.categories == ("chair",)
    assert chair[:4] == ("chair", 12, "office chair_12", (0.5, 0.4, -1.25))
    np.testing.assert_array_equal(chair.view_points, np.float32([[0.5, 0.1, -0.5], [0.5, 0.1, -0.25]]))
    np.testing.assert_allclose(chair.headings, [0.0, heading_of([0.0, 0.6, 0.0, -0.8])], atol=1e-6)
    assert dataset.episodes[0].heading == pytest.approx(2 * np.arctan2(0.6, 0.8))


def test_goals_that_were_made_here_survive_the_file(tmp_path):
    rng = np.random.default_rng(0)
    points, headings = rng.normal(size=(50, 3)).astype(np.float32), rng.uniform(-3, 3, 50).astype(np.float32)
    made = ObjectGoal("chair", 5, "chair_5", (1.0, 0.25, -3.1), points, headings, rng.random(50).astype(np.float32))
    episode = ObjectNavEpisode("0", "house:7", (0.0, 0.1, 0.0), (0.0, 0.0, 0.0, 1.0), object_category="chair")
    key = goals_key("house:7", "chair")
    dataset = EpisodeDataset([episode], "category", {key: [FileGoal.of(made)]}, header_of(IDS, IDS), "objectnav")
    for content in (True, False):
        dataset.save(tmp_path / str(content) / "val.json.gz", content)
        again = load_episodes(tmp_path / str(content) / "val.json.gz")
        assert again == dataset
        (goal,) = GOALS[again.kind].scene_goals(again, "house:7").objects
        assert goal[:4] == made[:4]
        np.testing.assert_array_equal(goal.view_points, made.view_points)
        np.testing.assert_array_equal(goal.iou, made.iou)
        np.testing.assert_allclose(goal.headings, made.headings, atol=1e-6)


def test_ovons_further_categories_and_names_of_objects(tmp_path):
    """An id with a name, categories whose goals count too, and further keys of goals are kept."""
    part = changed("episodes", 0, "children_object_categories", value=["office chair"])
    part["goals_by_category"]["abc.basis.glb_chair"][0] |= {"object_id": "office chair_12", "children": ["x"]}
    dataset = load_episodes(write_split(tmp_path, part))
    assert dataset.episodes[0].goal_categories == ("chair", "office chair")
    assert dataset.episodes[1].goal_categories == ("chair",)
    assert GOALS[dataset.kind].scene_goals(dataset, EPISODE["scene_id"]).objects[0].object_id == 12
    dataset.save(tmp_path / "b" / "val.json.gz")
    assert without_ids(read_packed(tmp_path / "b" / "content" / "abc.json.gz")) == without_ids(part)
    assert load_episodes(tmp_path / "b" / "val.json.gz") == dataset


UNLIKE = [
    ("position", (0.5, 0.4, -1.0)), ("object_id", 13), ("object_name", None), ("object_category", "bed"),
    ("points", np.zeros((2, 3))), ("rotations", np.zeros((2, 4))), ("iou", np.array([np.nan, 0.5])),
    ("points", np.zeros((1, 3))), ("other", {"children": []}),
]  # fmt: skip


@pytest.mark.parametrize(("name", "value"), UNLIKE)
def test_datasets_are_equal_where_all_values_are(tmp_path, name, value):
    """A score that is null in the file equals itself, though it is NaN."""
    part = changed("goals_by_category", "abc.basis.glb_chair", 0, "view_points", 0, "iou", value=None)
    path = write_split(tmp_path, part)
    dataset, other = load_episodes(path), load_episodes(path)
    assert dataset == other
    (goal,) = other.goals["abc.basis.glb_chair"]
    other.goals["abc.basis.glb_chair"] = [dataclasses.replace(goal, **{name: value})]
    assert dataset != other


def test_the_name_of_empty_annotation_ids_survives_the_file(tmp_path):
    dataset = load_episodes(write_split(tmp_path / "a"))
    for ids in {}, {"chair": 3}:
        other = dataclasses.replace(dataset, header=header_of(IDS, ids, "category_to_mp3d_category_id"))
        other.save(tmp_path / f"{len(ids)}.json.gz", content=False)
        assert load_episodes(tmp_path / f"{len(ids)}.json.gz") == other


def test_an_episode_of_another_task_is_named(tmp_path):
    instance = changed("episodes", 1, value={**EPISODE, "goal_object_id": "12", "goal_image_id": 0})
    with pytest.raises(
        EpisodeError, match=r"episode 1: .*'goal_image_id': found Instance ImageNav, expected ObjectNav"
    ):
        load_episodes(write_split(tmp_path / "c", instance))


def test_older_files_name_the_episode_of_a_broken_goal(tmp_path):
    bad = {**EPISODE, "object_category": "bed", "goals": [{**GOAL, "position": 5}]}
    old = {"episodes": [{**EPISODE, "goals": [GOAL]}, bad]}
    with pytest.raises(EpisodeError, match=r"val.json.gz: episode 1, goal 0: field 'position': found 5"):
        load_episodes(write_packed(tmp_path / "val.json.gz", old))


def test_written_episodes_have_the_keys_of_habitats_classes_only(tmp_path):
    load_episodes(write_split(tmp_path / "a")).save(tmp_path / "val.json.gz", content=False)
    data = read_packed(tmp_path / "val.json.gz")
    assert all(episode.keys() == EPISODE.keys() for episode in data["episodes"])
    assert all(goal.keys() == GOAL.keys() for goals in data["goals_by_category"].values() for goal in goals)


BROKEN = [
    (changed("episodes", 1, "object_category", value="sofa"), "'1' of scene .*'object_category': found 'sofa'"),
    (changed("episodes", 1, "object_category", value="bed"), "found 'bed', expected a category with goals"),
    (changed("episodes", 1, "object_category", value=3), r"episode 1 \(id '43'.*'object_category': found 3"),
    (changed("episodes", 1, "object_category", value=None), "found none, .* of this ObjectNav file"),
    (changed("episodes", 1, "goals", value=None), r"episode 1 \(id '43'.*'goals': found None"),
    (changed("episodes", 0, "start_position", value=[1, 2]), r"episode 0 \(id '41'.*'start_position'"),
    (changed("episodes", 0, "start_rotation", value=[0, 1, 0, 1]), r"episode 0 \(id '41'.*length 1.414"),
    (changed("episodes", 0, "children_object_categories", value="x"), "episode 0 .*'children_object_categories'"),
    (changed("episodes", 0, value=7), "episode 0: found int, expected an object"),
    (changed("goals_by_category", value=[1]), "'goals_by_category': found"),
    (changed("goals_by_category", "abc.basis.glb_chair", value=1), "goals 'abc.basis.glb_chair': found 1"),
    (changed("goals_by_category", "abc.basis.glb_chair", 0, "object_id", value="x"), "field 'object_id': .*'x'"),
    (changed("goals_by_category", "abc.basis.glb_chair", 0, "object_id", value="chair_" + 5000 * "9"),
     "field 'object_id': .*expected a number of at most 9 digits"),
    (changed("goals_by_category", "abc.basis.glb_chair", 0, "position", value=None), "goal 0: field 'position'"),
    (changed("goals_by_category", "abc.basis.glb_chair", 0, "object_name", value=2), "goal 0: field 'object_name'"),
    (changed("goals_by_category", "abc.basis.glb_chair", 0, "view_points", value=3), "goal 0: field 'view_points'"),
    (changed("goals_by_category", "abc.basis.glb_chair", 0, "view_points", 1, "iou", value="a"), "view point 1: found"),
    (changed("goals_by_category", "abc.basis.glb_chair", 0, "view_points", 1, value=5), "view point 1: found 5"),
    (changed("goals_by_category", "abc.basis.glb_chair", 0, "view_points", 0, "agent_state", "rotation",
             value=[0, 0, 0, 2]), "view point 0: found"),
    (changed("category_to_task_category_id", value={"chair": 1, "bed": 0}), "found other ids than in"),
    (changed("category_to_task_category_id", value={"chair": "a"}), "expected an integer by category"),
    ({"episodes": 5}, "found no list 'episodes'"),
]  # fmt: skip


@pytest.mark.parametrize(("part", "message"), BROKEN)
def test_broken_files_get_one_line_that_names_the_place(tmp_path, part, message):
    with pytest.raises(EpisodeError, match=message) as caught:
        load_episodes(write_split(tmp_path, part))
    assert "\n" not in str(caught.value) and str(tmp_path) in str(caught.value)


def test_an_empty_split_is_refused(tmp_path):
    with pytest.raises(EpisodeError, match="found no episodes"):
        load_episodes(write_packed(tmp_path / "val.json.gz", TOP))


def test_the_official_files_of_hm3d_are_written_as_they_were_read(tmp_path, shared):
    folder = shared / "scenes" / "habitat_episodes" / "objectnav_hm3d_v2" / "val_mini"
    dataset = load_episodes(folder / "val_mini.json.gz")
    dataset.save(tmp_path / "val_mini.json.gz")
    assert load_episodes(tmp_path / "val_mini.json.gz") == dataset
    for name in ("val_mini.json.gz", "content/TEEsavR23oF.json.gz"):
        assert without_ids(read_packed(tmp_path / name)) == without_ids(read_packed(folder / name))


def test_the_example_of_the_page_about_datasets_runs(tmp_path, shared, monkeypatch, capsys):
    folder = tmp_path / "data" / "datasets" / "objectnav" / "hm3d"
    folder.mkdir(parents=True)
    (folder / "v2").symlink_to(shared / "scenes" / "habitat_episodes" / "objectnav_hm3d_v2")
    monkeypatch.chdir(tmp_path)
    (block,) = [block for block in blocks(ROOT / "docs" / "howto" / "datasets.md") if "chairs.save" in block.text]
    exec(block.text, {})
    written = load_episodes(folder / "chairs" / "val_mini" / "val_mini.json.gz")
    assert {episode.object_category for episode in written.episodes} == {"chair"}
    first, *goals = capsys.readouterr().out.splitlines()
    assert first == f"{len(written.episodes)} of 15 episodes" and len(goals) == 12
    assert written.goals == load_episodes(folder / "v2" / "val_mini" / "val_mini.json.gz").goals


def test_the_official_files_of_hm3d_obey_their_rules(shared):
    """Scores are whole pixels, three times, of 320 x 240; sorted; view points face the centre, on a grid of 0.085 m."""
    dataset = load_episodes(
        shared / "scenes" / "habitat_episodes" / "objectnav_hm3d_v2" / "val_mini" / "val_mini.json.gz"
    )
    goals = GOALS[dataset.kind].scene_goals(dataset, dataset.episodes[0].scene_id)
    assert goals.categories == tuple(sorted(dataset.header[TASK_IDS])) and len(goals.objects) == 31
    for goal in goals.objects:
        pixels = goal.iou.astype(float) * 76_800 / 3
        np.testing.assert_allclose(pixels, np.round(pixels), atol=76_800 / 3 * 0.6e-5)
        assert (np.diff(goal.iou) <= 0).all() and pixels.min() >= 0.9
        away = np.array(goal.position) - goal.view_points
        turn = goal.headings - np.arctan2(-away[:, 0], -away[:, 2])
        assert np.abs(np.degrees(np.arctan2(np.sin(turn), np.cos(turn)))).max() <= 0.007
    for episode in dataset.episodes:
        points = goals.view_points(episode.object_category)
        distance = np.linalg.norm(points - np.array(episode.start_position), axis=1)
        assert np.abs(distance - episode.info["euclidean_distance"]).min() <= 1.5e-5  # a view point; five decimals
        assert np.abs(points[:, 1] - episode.start_position[1]).min() <= 0.05


def test_the_older_file_of_matterport_has_its_goals_in_the_episodes(tmp_path, shared):
    dataset = load_episodes(shared / "scenes" / "habitat_episodes" / "objectnav_mp3d.val_mini.json.gz")
    assert len(dataset.episodes) == 30 and len(dataset.header[TASK_IDS]) == 21
    assert dataset.header["category_to_mp3d_category_id"]["clothes"] == 38
    assert {key.rpartition("_")[2] for key in dataset.goals} == {"table", "shower"}
    assert all(episode.goals == () for episode in dataset.episodes)
    for content in True, False:
        dataset.save(tmp_path / str(content) / "val.json.gz", content)
        assert load_episodes(tmp_path / str(content) / "val.json.gz") == dataset


# ObjectNav episodes in tiny scenes as datasets lay them out: made, written, read, validated and played

FLOOR = ("floor", [-4.0, -0.2, -4.0], [4.0, 0.0, 4.0])
THINGS = ("armchair", [1.0, 0.0, 1.0], [1.5, 1.0, 1.5]), ("bed", [-3.0, 0.0, -3.0], [-1.5, 0.6, -2.0])
SCENES = Path("data", "scene_datasets")


def named_nodes():
    """A GLB file with names of nodes, out of Habitat's folders."""
    return str(write_named(Path("room.glb"), THINGS))


def hm3d():
    """X.basis.glb with colours, X.semantic.glb with a colour per object, X.semantic.txt with labels."""
    folder = SCENES / "hm3d_v0.2" / "minival" / "00800-Tiny"
    folder.mkdir(parents=True)
    things = (FLOOR, *THINGS)
    shades = np.array([[40 * k, 255 - 40 * k, 7] for k in range(1, len(things) + 1)], np.uint8)
    for part, colours in (("basis", np.full_like(shades, 128)), ("semantic", shades)):
        boxes = trimesh.util.concatenate([trimesh.creation.box(bounds=(low, high)) for _, low, high in things])
        corners = boxes.vertices[boxes.faces].reshape(-1, 3)
        column = (np.arange(len(corners)) // (len(corners) // len(things)) + 0.5) / len(things)
        material = trimesh.visual.material.PBRMaterial(baseColorTexture=Image.fromarray(colours[None]))
        visual = trimesh.visual.TextureVisuals(uv=np.stack([column, np.full(len(column), 0.5)], 1), material=material)
        points = corners[:, [0, 2, 1]] * [1, -1, 1]  # +Z up, as Habitat's stages
        mesh = trimesh.Trimesh(points, np.arange(len(points)).reshape(-1, 3), visual=visual, process=False)
        (folder / f"Tiny.{part}.glb").write_bytes(trimesh.Scene(mesh).export(file_type="glb"))
    rows = [
        f'{k},{"".join(f"{v:02X}" for v in shade)},"{label}",0'
        for k, (shade, (label, *_)) in enumerate(zip(shades.tolist(), things, strict=True), 1)
    ]
    (folder / "Tiny.semantic.txt").write_text("\n".join(["HM3D Semantic Annotations", *rows, ""]))
    return "hm3d_v0.2/minival/00800-Tiny/Tiny.basis.glb"


def hssd():
    """A stage, objects with semantic ids, their lexicon, and a scene instance that places them."""
    folder = SCENES / "hssd"
    write_box(folder / "stages" / "floor.glb", *FLOOR[1:])
    write_json(folder / "stages" / "floor.stage_config.json", {"render_asset": "floor.glb", "up": [0, 1, 0]})
    classes, rows = [{"name": "unknown", "id": 0}], []
    for number, (label, low, high) in enumerate(THINGS, 1):
        half = (np.array(high) - low) / 2
        write_box(folder / "objects" / f"{label}.ply", -half, half)
        attributes = {"render_asset": f"{label}.ply", "semantic_id": number}
        write_json(folder / "objects" / f"{label}.object_config.json", attributes)
        classes.append({"name": {"armchair": "chair"}.get(label, label), "id": number})
        rows.append({"template_name": label, "translation": (low + half).tolist()})
    write_json(folder / "semantics" / "words.json", {"classes": classes})
    instance = {"stage_instance": {"template_name": "floor"}, "object_instances": rows}
    write_json(folder / "scenes" / "one.scene_instance.json", {**instance, "semantic_scene_instance": "words"})
    config = {
        "stages": {"paths": {".json": ["stages"]}},
        "objects": {"paths": {".json": ["objects"]}},
        "scene_instances": {"paths": {".json": ["scenes"]}},
        "semantic_scene_descriptor_instances": {"words": "semantics/words.json"},
    }
    return str(write_json(folder / "hssd.scene_dataset_config.json", config))


@pytest.mark.parametrize(("layout", "rules"), [(named_nodes, "hm3d_v2"), (hm3d, "hm3d_v2"), (hssd, "hssd")])
def test_episodes_are_made_written_read_and_played(layout, rules, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    path = Path("episodes", "val.json.gz")
    labels = rules[:4]
    make_episodes((layout(),), path, "objectnav", per_scene=4, content=True, rules=rules, labels=labels, device="cpu")
    dataset = load_episodes(path)
    assert sorted(episode.object_category for episode in dataset.episodes) == ["bed", "bed", "chair", "chair"]
    again = Path("again", "val.json.gz")
    dataset.save(again)
    for file in ("val.json.gz", *(part.relative_to("episodes") for part in Path("episodes", "content").iterdir())):
        assert Path("again", file).read_bytes() == Path("episodes", file).read_bytes()
    assert {finding.level for finding in validate(path)} == {"note"}
    categories = LABELS[labels].categories
    options = {"categories": categories, "turn_angle_deg": 10.0, "max_steps": 100}
    config = with_options(NavConfig(sensors=(), task=ObjectNavConfig()), options)
    evaluation = Evaluation(path, torch.device("cpu"), config)
    played = evaluation.play(ReferencePlayer("shortest_path", config)).episodes
    assert played["success"].tolist() == [1.0] * 4
    stated = [episode.info["geodesic_distance"] for episode in evaluation.episodes]
    np.testing.assert_allclose(played["start_distance"], stated, atol=1e-3)
