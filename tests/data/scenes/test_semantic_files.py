"""Scenes whose colours and ids lie in two mesh files: HM3D, Gibson, Matterport3D, Replica, and names in configs."""

import json
import logging

import numpy as np
import pytest
import torch
import trimesh
from PIL import Image
from render_reference import pixel_directions

import batchnav
from batchnav.data.scenes.prepared import prepare
from batchnav.data.scenes.source import mesh_source, stage_source
from batchnav.envs.stream import SceneStream
from batchnav.errors import ArgumentError
from batchnav.observation import Spec
from batchnav.scene.bank import SceneBank
from batchnav.scene.goals import ObjectGoal, SceneGoals
from batchnav.scene.images import AppearanceConfig
from batchnav.scene.resident import ResidentSceneBank, SceneSize
from batchnav.sensors.camera import CameraConfig
from batchnav.sensors.frame import Frame
from batchnav.sensors.sensor import CameraSensor

SIZE = np.array([4.0, 3.0, 4.0])
EYE = [0.0, 1.5, 0.0]
RED, BLUE, GREY, LEFT_ID, RIGHT_ID = (200, 0, 0), (0, 10, 120), (90, 90, 90), 1, 2
TEXT = 'HM3D Semantic Annotations\n1,C80000,"door",0\n2,000A78,"chair",0\n'
BORDER = 5 / 16
"""Share of the front wall, from its left side, that has the first id."""
SCN = json.dumps({"objects": [{"id": 1, "class_": "door"}, {"id": 2, "class_": "chair"}]})
HOUSE = "C 3 0 x 1 door\nC 4 0 x 2 chair\nO 1 0 3\nO 2 0 4\n"


def room(divisions=0):
    """Corners [F, 3, 3] of a room that is seen from inside; its floor is at y = 0."""
    box = trimesh.creation.box(SIZE)
    for _ in range(divisions):
        box = box.subdivide()
    return (box.vertices + np.array([0, SIZE[1] / 2, 0]))[box.faces[:, ::-1]]


def write_glb(path, corners, uv, pixels, z_up=False):
    """A mesh with one texture; +Z up as Habitat's stages, or +Y up."""
    material = trimesh.visual.material.PBRMaterial(baseColorTexture=Image.fromarray(np.uint8(pixels)))
    points = corners.reshape(-1, 3)
    points = points[:, [0, 2, 1]] * [1, -1, 1] if z_up else points
    visual = trimesh.visual.TextureVisuals(uv=uv.reshape(-1, 2) * [1, -1] + [0, 1], material=material)
    mesh = trimesh.Trimesh(points, np.arange(len(points)).reshape(-1, 3), visual=visual, process=False)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(trimesh.Scene(mesh).export(file_type="glb"))
    return path


def write_colors(path, z_up=False):
    """The room in grey."""
    corners = room()
    return write_glb(path, corners, np.full((len(corners), 3, 2), 0.5), [[GREY]], z_up)


def write_painted(path, z_up=False, size=64):
    """The room with ids painted on its front wall, whose left part has another id than its right; other walls none."""
    corners = room(1)
    pixels = np.zeros((size, size, 3), np.uint8)
    pixels[: size // 2, : int(size * BORDER)], pixels[: size // 2, int(size * BORDER) :] = RED, BLUE
    uv = np.full((len(corners), 3, 2), 0.9)
    front = (corners[..., 2] < -SIZE[2] / 2 + 1e-6).all(1)
    uv[front, :, 0] = corners[front][..., 0] / SIZE[0] + 0.5
    uv[front, :, 1] = 0.1 + 0.3 * corners[front][..., 1] / SIZE[1]
    return write_glb(path, corners, uv, pixels, z_up)


def write_ply(path, z_up=False):
    """The room, finely divided, with an id for each triangle."""
    corners = room(4)
    middle = corners.mean(1)
    front = middle[:, 2] < -SIZE[2] / 2 + 1e-6
    ids = np.where(front, np.where(middle[:, 0] < (BORDER - 0.5) * SIZE[0], LEFT_ID, RIGHT_ID), 0)
    points = corners.reshape(-1, 3)
    points = points[:, [0, 2, 1]] * [1, -1, 1] if z_up else points
    lines = ["ply", "format ascii 1.0", f"element vertex {len(points)}"]
    lines += [f"property float {axis}" for axis in "xyz"] + [f"element face {len(ids)}"]
    lines += ["property list uchar int vertex_indices", "property int object_id", "end_header"]
    lines += [" ".join(map(str, point)) for point in points.tolist()]
    lines += [f"3 {3 * i} {3 * i + 1} {3 * i + 2} {number}" for i, number in enumerate(ids.tolist())]
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("\n".join(lines) + "\n")
    return path


def check_seen(scene, exact=True, names=("door", "chair")):
    """Colours are those of one file, ids those of the other."""
    sensors = ("rgb", "semantic", "instance")
    seen = {name: image[0] for name, image in batchnav.render(scene, EYE, 0.0, sensors, 48, 48).items()}
    assert (seen["rgb"] == GREY).all()
    rays = pixel_directions(0.0, 48, 48, 90.0)
    x, y = rays[..., 0] * SIZE[2] / 2, 1.5 + rays[..., 1] * SIZE[2] / 2
    on_wall = (y > 0) & (y < SIZE[1]) & (abs(x) < SIZE[0] / 2)
    expected = np.where(on_wall, np.where(x < (BORDER - 0.5) * SIZE[0], LEFT_ID, RIGHT_ID), 0)
    agree = seen["instance"] == expected
    assert agree.all() if exact else agree.mean() > 0.97
    found = np.array(scene.categories)[seen["semantic"]]
    np.testing.assert_array_equal(found, np.array(["", *names])[seen["instance"]])
    assert seen["instance"].max() == RIGHT_ID


@pytest.mark.parametrize("stage", ["X.basis.glb", "X.glb"])
def test_hm3d(tmp_path, stage):
    folder = tmp_path / "data" / "scene_datasets" / "hm3d" / "val" / "00800-X"
    path = write_colors(folder / stage, z_up=True)
    write_painted(folder / "X.semantic.glb", z_up=True)
    (folder / "X.semantic.txt").write_text(TEXT)
    check_seen(batchnav.load_scene(path))
    dataset = batchnav.load_dataset(tmp_path / "data" / "scene_datasets" / "hm3d", "val")
    check_seen(dataset.load_scenes()[0])
    assert {folder / "X.semantic.glb", folder / "X.semantic.txt"} <= set(stage_source(path).files)


def test_ids_in_the_same_file_are_exact_too(tmp_path, device):
    path = write_painted(tmp_path / "X.semantic.glb")
    (tmp_path / "X.semantic.txt").write_text(TEXT)
    scene = batchnav.load_scene(path)
    assert scene.semantic is None
    seen = batchnav.render(scene, EYE, 0.0, ("instance",), 48, 48, device=device)["instance"][0]
    x = pixel_directions(0.0, 48, 48, 90.0)[24, :, 0] * SIZE[2] / 2
    np.testing.assert_array_equal(seen[24], np.where(x < (BORDER - 0.5) * SIZE[0], LEFT_ID, RIGHT_ID))


def test_a_smaller_texture_of_colours_leaves_ids(tmp_path):
    path = write_colors(tmp_path / "X.glb")
    write_painted(tmp_path / "X.semantic.glb")
    (tmp_path / "X.semantic.txt").write_text(TEXT)
    check_seen(batchnav.load_scene(path, appearance=AppearanceConfig(largest_texture=8)))


@pytest.mark.parametrize(
    ("mesh", "ids", "descriptor", "text"),
    [
        ("gibson/X.glb", "gibson/X_semantic.ply", "gibson/X.scn", SCN),
        ("mp3d/X/X.glb", "mp3d/X/X_semantic.ply", "mp3d/X/X.house", HOUSE),
        ("room/mesh.glb", "room/mesh_semantic.ply", "room/info_semantic.json", SCN.replace("class_", "class_name")),
        ("room/mesh.glb", "room/habitat/mesh_semantic.ply", "room/habitat/info_semantic.json",
         SCN.replace("class_", "class_name")),
    ],
)  # fmt: skip
def test_ids_in_a_ply_file(tmp_path, mesh, ids, descriptor, text):
    folder = tmp_path / "scene_datasets"
    path = write_colors(folder / mesh, z_up=True)
    write_ply(folder / ids, z_up=True)
    (folder / descriptor).write_text(text)
    check_seen(batchnav.load_scene(path), exact=False)


def test_fields_of_a_stage_config_name_the_files(tmp_path):
    path = write_colors(tmp_path / "scene_datasets" / "own" / "stage.glb", z_up=True)
    write_painted(path.with_name("ids.glb"))  # +Y up
    path.with_name("names.txt").write_text(TEXT)
    fields = {
        "render_asset": "stage.glb", "semantic_asset": "ids.glb", "semantic_descriptor_filename": "names.txt",
        "semantic_up": [0, 1, 0], "semantic_front": [0, 0, -1], "up": [0, 0, 1], "front": [0, 1, 0],
    }  # fmt: skip
    path.with_name("stage.stage_config.json").write_text(json.dumps(fields))
    check_seen(batchnav.load_scene(path))


@pytest.mark.parametrize("by_instance", [False, True])
def test_descriptors_of_a_data_set(tmp_path, by_instance):
    folder = tmp_path / "scene_datasets" / "own"
    write_colors(folder / "stages" / "X.basis.glb", z_up=True)
    write_painted(folder / "stages" / "X.ids.glb", z_up=True)
    (folder / "names").mkdir()
    (folder / "names" / "X.semantic.txt").write_text(TEXT)
    config = {
        "stages": {
            "default_attributes": {"semantic_asset": "%%CONFIG_NAME_AS_ASSET_FILENAME%%.ids.glb"},
            "paths": {".glb": ["stages/X.basis.glb"]},
        },
        "semantic_scene_descriptor_instances": {"paths": {".txt": ["names/*.semantic.txt"]}},
    }
    name = "own/stages/X.basis.glb"
    if by_instance:
        (folder / "one.scene_instance.json").write_text(json.dumps({
            "stage_instance": {"template_name": "X.basis"}, "semantic_scene_instance": "X.semantic",
        }))  # fmt: skip
        config["scene_instances"], name = {"paths": {".json": ["*.scene_instance.json"]}}, "one"
    path = folder / "own.scene_dataset_config.json"
    path.write_text(json.dumps(config))
    check_seen(batchnav.load_dataset(path).load_scenes([name])[0])


def test_a_descriptor_without_its_mesh_is_left_out(tmp_path):
    """Colours of a scene are no ids."""
    folder = tmp_path / "scene_datasets" / "own"
    write_painted(folder / "X.basis.glb", z_up=True)
    (folder / "X.semantic.txt").write_text(TEXT)
    config = {
        "stages": {"paths": {".glb": ["X.basis.glb"]}},
        "semantic_scene_descriptor_instances": {"paths": {".txt": ["*.semantic.txt"]}},
    }
    (folder / "own.scene_dataset_config.json").write_text(json.dumps(config))
    dataset = batchnav.load_dataset(folder / "own.scene_dataset_config.json")
    assert dataset.load_scenes()[0].categories == ("",)


def both(tmp_path):
    path = write_colors(tmp_path / "X.glb")
    write_painted(tmp_path / "X.semantic.glb")
    (tmp_path / "X.semantic.txt").write_text(TEXT)
    return mesh_source(path)


def test_prepared_scenes_keep_both(tmp_path):
    source = both(tmp_path)
    (outcome,) = prepare([source])
    assert not outcome.problem
    check_seen(batchnav.load_scene(outcome.path))
    assert batchnav.load_scene(outcome.path, appearance=False).semantic is None
    scene = batchnav.load_scene(outcome.path, appearance=AppearanceConfig(ids=False))
    assert scene.semantic is None and scene.mesh.surface is not None


def test_a_bank_without_ids_holds_the_colours_alone(tmp_path):
    scene = both(tmp_path).load()
    bank = SceneBank.pack([scene], appearance=("paint", "patches", "materials", "levels", "texels"))
    assert bank.semantic is None and len(bank.appearance.paint) == len(scene.mesh.faces)
    assert SceneBank.pack([scene]).semantic is None
    ids = SceneBank.pack([scene], appearance=("category",))
    assert ids.appearance is None and len(ids.semantic.appearance.category) == len(scene.semantic.mesh.faces)


def test_scenes_of_both_kinds_and_scenes_that_are_replaced(tmp_path):
    """Also scenes that have their ids in the same mesh."""
    scene, plain = both(tmp_path).load(), mesh_source(tmp_path / "X.semantic.glb").load()
    options = {"sensors": ("rgb", "semantic", "instance"), "height": 16, "width": 16}
    env = batchnav.NavEnv([scene, plain], 4, "cpu", **options)
    env.reset(seed=0)
    fields = env.bank.appearance_fields
    size = SceneSize.largest([SceneSize.of(scene), SceneSize.of(plain)])
    resident = ResidentSceneBank([size] * 2, "cpu", fields)
    for row, each in enumerate((scene, plain)):
        resident.replace(row, each)
    assert resident.categories == env.bank.categories
    sources = {name: env.sources[name] for name in options["sensors"]}
    images = []
    for bank in (env.bank, resident):
        frame = Frame(bank, env.sim.bodies, env.config.all_cameras, sources.values())
        frame.begin(sources.values())
        images.append({})
        for name, source in sources.items():
            out = torch.zeros(4, *source.spec.shape, dtype=source.spec.dtype)
            source.write(frame, out)
            images[-1][name] = out.numpy()
    for name in sources:
        np.testing.assert_array_equal(images[0][name], images[1][name])
    assert images[0]["instance"].any() and images[0]["semantic"].any()


def test_a_sensor_of_colours_and_ids_is_refused(tmp_path):
    env = batchnav.NavEnv([both(tmp_path).load()], 1, "cpu", sensors=("rgb", "semantic"), height=8, width=8)
    spec = Spec("both", (1, 8, 8), env.sources["semantic"].spec.dtype, 0.0, 9.0, env.sources["semantic"].spec.dtype)
    sensor = CameraSensor(spec, triangles=True, appearance=("category", "paint"))
    with pytest.raises(ArgumentError, match="both: found a sensor of ids that also reads paint, expected two"):
        Frame(env.bank, env.sim.bodies, {"": CameraConfig(height=8, width=8)}, [sensor])


def test_sensors_of_ids_say_that_a_scene_has_none(tmp_path, caplog):
    scene = batchnav.load_scene(write_colors(tmp_path / "Plain.glb"))
    for _ in range(2):
        with caplog.at_level(logging.WARNING):
            batchnav.NavEnv([scene], 1, "cpu", sensors=("depth", "semantic"), height=8, width=8)
    (message,) = [record.getMessage() for record in caplog.records if "categories" in record.getMessage()]
    assert message.startswith("Plain: found no categories") and "Plain.semantic.txt" in message
    caplog.clear()
    batchnav.NavEnv([both(tmp_path).load()], 1, "cpu", sensors=("semantic",), height=8, width=8)
    assert not caplog.records


@pytest.mark.parametrize("streamed", [False, True])
@pytest.mark.parametrize("two_files", [False, True])
def test_goal_masks_show_painted_ids(tmp_path, device, two_files, streamed):
    """The pixels of the goal's ids, which the front wall has, in the scene's mesh or in one of its own."""
    path = write_painted(tmp_path / "X.semantic.glb")
    (tmp_path / "X.semantic.txt").write_text(TEXT)
    scene = batchnav.load_scene(write_colors(tmp_path / "X.glb") if two_files else path)
    assert (scene.semantic is not None) == two_files
    place, zero = scene.navmesh.snap(np.float32([[0, 0, 1.5]])), np.zeros(1, np.float32)
    goals = [ObjectGoal(name, k, name, (0, 0, 0), place, zero, zero) for k, name in enumerate(("door", "chair"), 1)]
    scene = scene._replace(goals=SceneGoals("test", tuple(goals)))
    size = SceneSize.largest([SceneSize.of(scene)])
    stream = SceneStream(["a", "b", "c"], lambda name: scene._replace(name=name), size, 2)
    scenes = stream if streamed else [scene]
    env = batchnav.NavEnv(
        scenes, 32, device, task="objectnav", categories=("chair", "door"), sensors=("instance", "goal_mask"),
        height=24, width=32, seed=0,
    )  # fmt: skip
    observation, _ = env.reset()
    wanted = torch.tensor([RIGHT_ID, LEFT_ID], device=env.device)[observation["objectgoal"]]
    shown = observation["instance"] == wanted.view(-1, 1, 1, 1)
    assert torch.equal(observation["goal_mask"], shown.to(torch.uint8) * 255)
    assert {int(k) for k in observation["objectgoal"][shown.any(3).any(2)[:, 0]]} == {0, 1}
    env.close()
