"""Gazebo worlds as scenes: poses by closed forms, meshes against trimesh's reader."""

import math
import time

import numpy as np
import pytest
import trimesh

import batchnav
from batchnav.cli import main
from batchnav.data.gazebo import VARIABLES, ModelPath, model_file, read_world
from batchnav.errors import MeshError


@pytest.fixture(autouse=True)
def no_path(monkeypatch):
    """No folders of models in the environment."""
    for name in VARIABLES:
        monkeypatch.delenv(name, raising=False)


def write_world(path, body, kind="world"):
    """An SDF file with a world, or another element, of this content."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f'<?xml version="1.0"?>\n<sdf version="1.7"><{kind} name="a">{body}</{kind}></sdf>')
    return path


def write_model(folder, body, pose=""):
    """A folder of a model with model.config."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "model.config").write_text(
        '<model><sdf version="1.5">old.sdf</sdf><sdf version="1.10">new.sdf</sdf></model>'
    )
    text = f'<sdf version="1.6"><model name="{folder.name}">{pose}<link name="link">{body}</link></model></sdf>'
    (folder / "new.sdf").write_text(text)
    (folder / "old.sdf").write_text("<sdf version='1.5'/>")


def box(size="1 1 1", pose="", material=""):
    """A visual with a box."""
    return f"<visual name='v'>{pose}<geometry><box><size>{size}</size></box></geometry>{material}</visual>"


def link(*visuals, pose="", name="link"):
    return f"<link name='{name}'>{pose}{''.join(visuals)}</link>"


def model(name, *parts, pose=""):
    return f"<model name='{name}'>{pose}{''.join(parts)}</model>"


def in_ros(mesh, number):
    """Corners [F * 3, 3] of an object's triangles, in the axes of ROS."""
    corners = mesh.vertices[mesh.faces[mesh.surface.object_id == number]].reshape(-1, 3).astype(np.float64)
    return np.stack([-corners[:, 2], -corners[:, 0], corners[:, 1]], axis=1)


def bounds(mesh, number=1):
    points = in_ros(mesh, number)
    return np.stack([points.min(0), points.max(0)])


def around(centre, size):
    return np.array([np.subtract(centre, np.divide(size, 2)), np.add(centre, np.divide(size, 2))])


PLANE = "<visual name='v'><geometry><plane><size>100 100</size></plane></geometry></visual>"


def test_a_world_is_known_by_its_content(tmp_path, capsys):
    body = model("ground_plane", link(PLANE)) + model("wall", link(box("4 0.2 2", "<pose>0 0 1 0 0 0</pose>")))
    plain, named = write_world(tmp_path / "plain.world", body), tmp_path / "house.model"
    declaration, rest = plain.read_text().split("\n", 1)
    named.write_text(f"\ufeff{declaration}\n<!-- <robot> -->\n{rest}", encoding="utf-8")
    scene = batchnav.load_scene(named)
    np.testing.assert_array_equal(scene.mesh.vertices, batchnav.load_scene(plain).mesh.vertices)
    main(["data", "validate", str(named)])
    assert str(named) in capsys.readouterr().out
    other = tmp_path / "other.model"
    other.write_text("<robot name='sdf'/>")
    with pytest.raises(MeshError, match=r"found suffix '\.model', expected one of "):
        batchnav.load_scene(other)


def test_poses_add_up(tmp_path):
    """A model turned to the left, a link in front of it, a visual to its left: (x, y) = R (1, 2) + (10, 20)."""
    visual = box("0.2 0.4 0.6", "<pose>0 2 0.5 0 0 0</pose>")
    body = model(
        "chair_01", link(visual, pose="<pose>1 0 0 0 0 0</pose>"), pose=f"<pose>10 20 1 0 0 {math.pi / 2}</pose>"
    )
    mesh, left_out = read_world(write_world(tmp_path / "a.world", body))
    assert bounds(mesh) == pytest.approx(around((8, 21, 1.5), (0.4, 0.2, 0.6)), abs=1e-5)
    assert mesh.surface.categories == ("", "chair") and not left_out.reasons and str(left_out) == ""
    a, b, c = (mesh.vertices[mesh.faces[:, k]].astype(np.float64) for k in range(3))
    assert np.einsum("ij,ij->i", a, np.cross(b, c)).sum() / 6 == pytest.approx(0.2 * 0.4 * 0.6, rel=1e-4), (
        "faces look out"
    )


def test_names_of_copies_are_those_of_one_category(tmp_path):
    """Numbers, and the suffix of copies that were made in Gazebo."""
    names = "chair", "chair_01", "chair_clone", "chair_2_clone_clone_0", "clone", "7", "my_clone_shelf"
    mesh, _ = read_world(write_world(tmp_path / "a.world", "".join(model(name, link(box())) for name in names)))
    assert set(mesh.surface.categories) == {"", "7", "chair", "clone", "my_clone_shelf"}


def test_roll_pitch_yaw_degrees_and_quaternions(tmp_path):
    """Fixed axes: roll, then pitch, then yaw. A long box along x, pitched up by -90 degrees, stands on end."""
    poses = [
        f"<pose>0 0 0 0 {-math.pi / 2} 0.3</pose>", '<pose degrees="true">0 0 0 0 -90 20</pose>',
        f'<pose rotation_format="quat_xyzw">0 0 0 0 {-math.sin(math.pi / 4)} 0 {math.cos(math.pi / 4)}</pose>',
        f"<pose>0 0 0 {math.pi / 2} 0 {math.pi / 2}</pose>",
    ]  # fmt: skip
    sizes = [(None, None, 4), (None, None, 4), (1, 2, 4), (1, 4, 2)]
    for pose, size in zip(poses, sizes, strict=True):
        body = model("post", link(box("4 2 1")), pose=pose)
        found = np.ptp(bounds(read_world(write_world(tmp_path / "a.world", body))[0]), axis=0)
        for value, expected in zip(found, size, strict=True):
            assert expected is None or value == pytest.approx(expected, abs=1e-5), pose


def test_frames(tmp_path):
    """Poses relative to other models, links and frames; frames attached to others."""
    body = (
        model("table", link(box()), pose="<pose>5 0 0 0 0 0</pose>")
        + "<frame name='corner' attached_to='table'><pose>0 3 0 0 0 0</pose></frame>"
        + model("lamp", link(box(), pose="<pose relative_to='mast'>0 0 1 0 0 0</pose>"), link(name="mast",
                pose="<pose>0 0 2 0 0 0</pose>"), pose="<pose relative_to='corner'>1 0 0 0 0 0</pose>")
    )  # fmt: skip
    mesh, _ = read_world(write_world(tmp_path / "a.world", body))
    assert bounds(mesh, 1).mean(0) == pytest.approx([5, 0, 0], abs=1e-6)
    assert bounds(mesh, 2).mean(0) == pytest.approx([6, 3, 3], abs=1e-6)
    for wrong, reason in (("nowhere", "frame 'nowhere' is unknown"), ("lamp", "frame 'lamp' is its own base")):
        text = body.replace("relative_to='corner'", f"relative_to='{wrong}'")
        mesh, left_out = read_world(write_world(tmp_path / "a.world", text))
        assert str(left_out) == f"left out 1 of 2 parts (50%): model 'lamp': {reason} (1)"


def test_shapes(tmp_path):
    """Sizes, areas and the colours of their visuals."""
    shapes = {
        "<cylinder><radius>1</radius><length>3</length></cylinder>": ((2, 2, 3), 2 * math.pi + 6 * math.pi),
        "<sphere><radius>2</radius></sphere>": ((4, 4, 4), 16 * math.pi),
        "<capsule><radius>1</radius><length>2</length></capsule>": ((2, 2, 4), 8 * math.pi),
        "<ellipsoid><radii>1 2 3</radii></ellipsoid>": ((2, 4, 6), 48.88),
        "<plane><size>4 6</size></plane>": ((4, 6, 0), 24),
        "<plane><normal>1 0 0</normal><size>4 6</size></plane>": ((0, 6, 4), 24),
        "<box><size>1 2 3</size></box>": ((1, 2, 3), 22),
    }
    for shape, (size, area) in shapes.items():
        paint = "<material><diffuse>0.1 0.2 0.3 1</diffuse></material>"
        thing = link(f"<visual name='v'><geometry>{shape}</geometry>{paint}</visual>")
        body = model("shape", thing, pose="<pose>1 2 3 0 0 0</pose>")
        mesh, _ = read_world(write_world(tmp_path / "a.world", body))
        assert bounds(mesh) == pytest.approx(around((1, 2, 3), size), abs=0.03), shape
        solid = trimesh.Trimesh(mesh.vertices, mesh.faces, process=False)
        assert solid.area == pytest.approx(area, rel=0.02), shape
        assert "plane" in shape or trimesh.Trimesh(mesh.vertices, mesh.faces).volume > 0, shape
        assert mesh.surface.materials[mesh.surface.material[0]].color == pytest.approx((0.1, 0.2, 0.3, 1.0))
    mesh, _ = read_world(write_world(tmp_path / "a.world", model("p", link(
        "<visual name='v'><geometry><plane><size>1 1</size></plane></geometry></visual>"))))  # fmt: skip
    a, b, c = (mesh.vertices[mesh.faces[:, k]] for k in range(3))
    assert (np.cross(b - a, c - a)[:, 1] > 0).all(), "a plane faces up"


def test_included_models(tmp_path):
    """Found on the path; the latest version; the pose of an include replaces that of the file; nested includes."""
    write_model(tmp_path / "lib" / "office_chair_02", box(), pose="<pose>0 0 7 0 0 0</pose>")
    uri = "<uri>model://office_chair_02</uri>"
    body = (
        f"<include>{uri}<name>mine_003</name><pose>1 0 0 0 0 0</pose></include><include>{uri}</include>"
        + model("outer_1", f"<include>{uri}<pose>0 0 1 0 0 0</pose></include>", pose="<pose>0 5 0 0 0 0</pose>")
        + "<include><uri>model://sun</uri></include>"
    )
    world = write_world(tmp_path / "worlds" / "a.world", body)
    mesh, left_out = read_world(world, [tmp_path / "lib"])
    centres = [bounds(mesh, number).mean(0).round(5).tolist() for number in (1, 2, 3)]
    assert centres == [[1, 0, 0], [0, 0, 7], [0, 5, 1]]
    assert mesh.surface.categories == ("", "office_chair") and not left_out.reasons
    with pytest.raises(MeshError, match=r"found no visual.*left out 3 of 3 parts \(100%\): model://office_chair_02 is"):
        read_world(world)
    with pytest.raises(MeshError, match=r"--models: found no folder .*none, expected one"):
        read_world(world, [tmp_path / "none"])


def test_where_models_are_searched(tmp_path, monkeypatch):
    write_model(tmp_path / "worlds" / "a", box())
    write_model(tmp_path / "models" / "b", box())
    write_model(tmp_path / "env" / "c", box())
    write_model(tmp_path / "given" / "c", box())
    monkeypatch.setenv("GAZEBO_MODEL_PATH", f"/nowhere:{tmp_path / 'env'}")
    path = ModelPath([tmp_path / "given"], tmp_path / "worlds" / "w.world")
    folder = tmp_path / "worlds"
    found = {name: path.find(f"model://{name}", folder) for name in "abcd"}
    assert found == {
        "a": tmp_path / "worlds/a", "b": tmp_path / "models/b", "c": tmp_path / "given/c", "d": None,
    }  # fmt: skip
    assert path.find("b/new.sdf", tmp_path / "models") == tmp_path / "models/b/new.sdf"
    assert path.find(f"file://{tmp_path}/models/b", folder) == tmp_path / "models/b"
    assert path.find("https://fuel.gazebosim.org/1.0/a", folder) is None
    assert path.find("model://../../../etc/passwd", folder) is None and path.find("file:///etc/passwd", folder) is None
    assert model_file(tmp_path / "models/b") == tmp_path / "models/b/new.sdf"
    (tmp_path / "models/b/model.config").unlink()
    assert model_file(tmp_path / "models/b") is None
    (tmp_path / "models/b/new.sdf").rename(tmp_path / "models/b/model.sdf")
    assert model_file(tmp_path / "models/b") == tmp_path / "models/b/model.sdf"


def test_a_saved_state_replaces_poses(tmp_path):
    state = "<state world_name='a'><model name='m'><pose>4 5 6 0 0 0</pose><scale>2 1 1</scale></model></state>"
    body = model("m", link(box()), pose="<pose>1 1 1 0 0 0</pose>") + state
    mesh, _ = read_world(write_world(tmp_path / "a.world", body))
    assert bounds(mesh) == pytest.approx(around((4, 5, 6), (2, 1, 1)), abs=1e-5)


def test_meshes_keep_their_axes(tmp_path):
    """STL, OBJ, and COLLADA that names another axis: x y z of the file are those of the link. glTF is +Y up."""
    solid = trimesh.creation.box((1, 2, 3))
    meshes = tmp_path / "lib" / "part" / "meshes"
    meshes.mkdir(parents=True)
    for name in ("a.stl", "a.obj", "a.glb"):
        solid.export(meshes / name)
    text = trimesh.exchange.dae.export_collada([solid]).decode()
    (meshes / "a.dae").write_text(text.replace("<up_axis>Y_UP</up_axis>", "<up_axis>Z_UP</up_axis>"))
    assert "Z_UP" in (meshes / "a.dae").read_text() or "up_axis" not in text
    for name in ("a.stl", "a.obj", "a.dae", "a.glb"):
        scale = "<scale>2 1 0.5</scale>" if name != "a.glb" else ""
        uri = f"<geometry><mesh><uri>model://part/meshes/{name}</uri>{scale}</mesh></geometry>"
        write_model(tmp_path / "lib" / "part", f"<visual name='v'><pose>0 0 9 0 0 0</pose>{uri}</visual>")
        world = write_world(tmp_path / "a.world", "<include><uri>model://part</uri></include>")
        mesh, left_out = read_world(world, [tmp_path / "lib"])
        size = (1, 3, 2) if name == "a.glb" else (2, 2, 1.5)
        assert bounds(mesh) == pytest.approx(around((0, 0, 9), size), abs=1e-5), (name, left_out)
        assert trimesh.Trimesh(mesh.vertices, mesh.faces).volume > 0
    mirrored = "<geometry><mesh><uri>model://part/meshes/a.stl</uri><scale>-1 1 1</scale></mesh></geometry>"
    write_model(tmp_path / "lib" / "part", f"<visual name='v'>{mirrored}</visual>")
    mesh, _ = read_world(world, [tmp_path / "lib"])
    assert trimesh.Trimesh(mesh.vertices, mesh.faces).volume > 0


def test_what_is_left_out_is_listed_with_its_share(tmp_path):
    body = (
        model("ok", link(box(), box(), box(), box()))
        + model("a", link("<visual name='v'><geometry><mesh><uri>model://none/a.dae</uri></mesh></geometry></visual>"))
        + model("b", link("<visual name='v'><geometry><heightmap/></geometry></visual>", box("1 -1 1")))
        + "<include><uri>model://bed</uri></include><include><uri>model://bed</uri></include>"
        + model("c", link(box(), pose="<pose>1 2</pose>"))
    )
    mesh, left_out = read_world(write_world(tmp_path / "a.world", body))
    assert len(mesh.faces) == 48 and left_out.num_all == 10 and left_out.reasons["model://bed is not found"] == 2
    text = str(left_out)
    assert text.startswith("left out 6 of 10 parts (60%): model://bed is not found (2), ")
    assert text.endswith("; name folders of models by --models or GAZEBO_MODEL_PATH")
    for reason in (
        "model://none/a.dae is not found (1)", "geometry 'heightmap' is not read (1)",
        "<size>: found '1 -1 1', expected numbers above 0 (1)", "model 'c': found '1 2', expected 6 numbers (1)",
    ):  # fmt: skip
        assert reason in text


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("no XML", "is not an SDF file"), ("<robot/>", "found <robot>, expected <sdf>"),
        ("<sdf version='1.6'><world name='a'/></sdf>", "found no visual that can be read, expected some; it has none"),
    ],
)  # fmt: skip
def test_what_is_no_world_is_refused(tmp_path, text, message):
    (tmp_path / "a.world").write_text(text)
    with pytest.raises(MeshError, match=f"a.world: {message}"):
        read_world(tmp_path / "a.world")


def test_a_world_whose_models_are_all_missing_is_refused(tmp_path):
    """Its ground plane alone would be a scene, of which nobody is told that it is empty."""
    plane = "<visual name='v'><geometry><plane><size>100 100</size></plane></geometry></visual>"
    ground = model("ground", link(plane))
    world = write_world(tmp_path / "a.world", ground + "<include><uri>model://bed</uri></include>")
    with pytest.raises(MeshError, match=r"found a ground alone, expected models; .*bed is not found .*--models"):
        read_world(world)
    mesh, left_out = read_world(write_world(tmp_path / "b.world", ground))  # a world that names no more
    assert len(mesh.faces) and not left_out.reasons


def test_included_files_that_are_no_models_are_left_out(tmp_path):
    (tmp_path / "lib" / "arm").mkdir(parents=True)
    (tmp_path / "lib" / "arm" / "model.sdf").write_text("<robot/>")
    body = model("ok", link(box())) + "<include><uri>model://arm</uri></include>"
    mesh, left_out = read_world(write_world(tmp_path / "a.world", body), [tmp_path / "lib"])
    assert len(mesh.faces) == 12
    text = str(left_out)
    assert text.startswith("left out 1 of 2 parts (50%): ") and "found <robot>, expected <sdf>" in text


@pytest.mark.parametrize("body", [model("a") + model("b") + model("c"), model("a", link(box(), box(), box()))])
def test_worlds_that_are_too_large_are_refused_by_name(body, tmp_path, monkeypatch):
    monkeypatch.setattr("batchnav.data.gazebo._MOST_PARTS", 2)
    with pytest.raises(MeshError, match=r"a\.world: found more than 2 (models|visuals)"):
        read_world(write_world(tmp_path / "a.world", body))


def test_models_that_include_themselves_end(tmp_path):
    write_model(tmp_path / "lib" / "loop", box())
    path = tmp_path / "lib" / "loop" / "new.sdf"
    path.write_text(path.read_text().replace("</model>", "<include><uri>model://loop</uri></include></model>"))
    world = write_world(tmp_path / "a.world", "<include><uri>model://loop</uri></include>")
    _, left_out = read_world(world, [tmp_path / "lib"])
    assert "nested deeper than 16" in str(left_out)


def test_from_a_world_to_a_scene(tmp_path, capsys):
    """`data import`: a GLB file and a prepared scene with the objects of the world."""
    walls = [("6 0.1 2.5", 0, 2), ("6 0.1 2.5", 0, -2), ("0.1 4 2.5", 3, 0), ("0.1 4 2.5", -3, 0)]
    room = [box(size, f"<pose>{x} {y} 1.25 0 0 0</pose>") for size, x, y in walls]
    write_model(tmp_path / "models" / "table_01", box("1 1 0.8", "<pose>0 0 0.4 0 0 0</pose>"))
    body = (
        model("floor", link(box("6 4 0.1", "<pose>0 0 -0.05 0 0 0</pose>"))) + model("walls_1", link(*room))
        + "<include><uri>model://table_01</uri><pose>2 1 0 0 0 0</pose></include><include><uri>model://bed</uri></include>"
    )  # fmt: skip
    world = write_world(tmp_path / "home.world", body)
    main(["data", "import", str(world), "--models", str(tmp_path / "models"), "--out", str(tmp_path / "out")])
    text = capsys.readouterr().out.replace("\n", " ")
    assert "left out 1 of 7 parts (14%): model://bed is not found (1)" in text
    scene = batchnav.load_scene(tmp_path / "out" / "home.scene")
    assert set(scene.categories) == {"", "floor", "walls", "table"}
    surface = scene.mesh.surface
    table = surface.object_id[surface.category == scene.categories.index("table")]
    assert set(table.tolist()) == {3}
    at = [[-1, 0, -2], [1, 0, 2]]  # beside the table: (x, y) of ROS is (-z, -x)
    assert scene.navmesh.is_navigable(np.array([[1, 0, -2], [1, 0, 2], [-1, 0, 2]], np.float32)).all()
    assert not scene.navmesh.is_navigable(np.array(at[:1], np.float32)).any()
    named = trimesh.load_scene(tmp_path / "out" / "meshes" / "home.glb")
    assert {"floor_1", "walls_2", "table_3"} <= set(named.graph.nodes)
    found = batchnav.load_scene(world)  # the folder `models` is beside it
    assert found.name == "home" and found.navmesh.area == pytest.approx(scene.navmesh.area, rel=0.01)
    (bare,) = batchnav.load_scenes([str(tmp_path)], appearance=False)
    assert bare.mesh.surface is None and bare.navmesh.area == found.navmesh.area
    episodes = tmp_path / "out" / "episodes.json.gz"
    assert f"batchnav data make-episodes {tmp_path / 'out'} --out {episodes}" in text
    main(["data", "make-episodes", str(tmp_path / "out"), "--out", str(episodes), "--per-scene", "3"])
    assert len(batchnav.load_episodes(episodes)) == 3


def test_models_of_a_repository_are_found_from_its_folder_and_from_the_one_that_holds_it(tmp_path):
    """URIs name models from the folder of models, the repository, or the folder that holds it."""
    write_model(tmp_path / "repo" / "models" / "table", box())
    uris = "model://table", "model://models/table", "model://repo/models/table"
    body = "".join(f"<include><uri>{uri}</uri></include>" for uri in uris)
    world = write_world(tmp_path / "elsewhere" / "home.world", body)
    for folder in (tmp_path / "repo" / "models", tmp_path / "repo"):
        mesh, left_out = read_world(world, [folder])
        assert not str(left_out) and len(np.unique(mesh.surface.object_id)) == 3


@pytest.mark.parametrize(
    ("pose", "where"), [("343000 0 0", "343 km"), ("0 0 -4000", "4 km"), ("3 -300 0", "295 m"), ("150 0 0", "")]
)
def test_far_models_are_left_out_by_name(pose, where, tmp_path):
    """A gap of 200 m to all others; the building stays, though the models that are far away are more."""
    far = model("antenna", link(box(), box(pose="<pose>1 0 0 0 0 0</pose>")), pose=f"<pose>{pose} 0 0 0</pose>")
    body = (
        model("floor", link(box("9 9 1"))) + far + model("ground_plane", link(PLANE), pose=f"<pose>{pose} 0 0 0</pose>")
    )
    mesh, left_out = read_world(write_world(tmp_path / "a.world", body))
    objects = set(np.unique(mesh.surface.object_id).tolist())
    if not where:
        assert not left_out.reasons and objects == {1, 2, 3}
        return
    assert mesh.origin == (0.0, 0.0, 0.0) and objects == {1}
    assert f"'antenna' stands {where} from the other models (2)" in str(left_out) and left_out.num_all == 4


@pytest.mark.parametrize("name", ["{outside}/secret.sdf", "../../secret.sdf", "a" * 5000, ""])
def test_a_file_of_a_model_lies_in_its_folder(tmp_path, name):
    """model.config names files of its folder only; `model.sdf` counts otherwise."""
    (tmp_path / "secret.sdf").write_text("<sdf version='1.6'><model name='secret'/></sdf>")
    folder = tmp_path / "models" / "table"
    folder.mkdir(parents=True)
    (folder / "model.sdf").write_text("<sdf version='1.6'/>")
    text = name.format(outside=tmp_path)
    (folder / "model.config").write_text(f"<model><sdf version='1.6'>{text}</sdf></model>")
    assert model_file(folder) == folder / "model.sdf"


def test_names_and_chains_of_frames_take_time_in_proportion(tmp_path):
    """A name of 100 kB, sizes of 9 MB, and 90 frames on another under 3,000 models, each computed once."""
    begin = time.process_time()
    frames = "".join(
        f"<frame name='f{k}'><pose relative_to='{f'f{k - 1}' if k else ''}'>0.01 0 0 0 0 0</pose></frame>"
        for k in range(90)
    )
    last = "<pose relative_to='f89'>0 0 0 0 0 0</pose>"
    many = "".join(model(f"m{k}", link(box()), pose=last) for k in range(3000))
    names = model("_1" * 50_000 + "x", link(box())) + model("long", link(box("1 " * 4_500_000)))
    mesh, left_out = read_world(write_world(tmp_path / "a.world", frames + many + names))
    assert in_ros(mesh, 1).mean(0) == pytest.approx([0.9, 0, 0], abs=1e-4)
    assert len(str(left_out)) < 400 and max(map(len, mesh.surface.categories)) <= 200
    assert time.process_time() - begin < 20


def test_blank_lines_before_the_declaration_are_skipped(tmp_path):
    write_model(tmp_path / "models" / "table", box("1 1 2"))
    world = write_world(tmp_path / "a.world", "<include><uri>model://table</uri></include>")
    for file in (world, tmp_path / "models" / "table" / "model.config", tmp_path / "models" / "table" / "new.sdf"):
        file.write_text("\ufeff\n\n  " + file.read_text(), encoding="utf-8")
    mesh, left_out = read_world(world)
    assert np.ptp(bounds(mesh), axis=0) == pytest.approx([1, 1, 2], abs=1e-5) and str(left_out) == ""


def house(*more):
    """Four walls around 6 x 4 m, and further models."""
    walls = [("6 0.1 2.5", 0, 2), ("6 0.1 2.5", 0, -2), ("0.1 4 2.5", 3, 0), ("0.1 4 2.5", -3, 0)]
    parts = (box(size, f"<pose>{x} {y} 1.25 0 0 0</pose>") for size, x, y in walls)
    return model("walls", link(*parts)) + "".join(more)


def test_a_ground_is_cut_at_the_building(tmp_path):
    """A plane of 100 m, turned, is cut at the walls' bounds; smaller planes, and one alone, stay whole."""
    rug = model("rug", link(PLANE.replace("100 100", "30 2")))
    ground = model("ground_plane", link(PLANE), pose="<pose>1 2 0 0 0 0.3</pose>")
    mesh, left_out = read_world(write_world(tmp_path / "a.world", house(ground)))
    assert bounds(mesh, 2) == pytest.approx(np.array([(-3.05, -2.05, 0), (3.05, 2.05, 0)]), abs=1e-4)
    solid = trimesh.Trimesh(mesh.vertices, mesh.faces[mesh.surface.object_id == 2], process=False)
    assert solid.area == pytest.approx(6.1 * 4.1, rel=1e-4) and (solid.face_normals[:, 1] > 0.99).all()
    assert left_out.notes == ("ground 'ground_plane': cut from 125.1 x 125.1 m to 4.1 x 6.1 m, the bounds of the other "
                              "models",)  # fmt: skip
    slab = model("asphalt", link(box("60 70 0.2")), pose="<pose>1 2 -0.1 0 0 0.3</pose>")  # its top is left
    mesh, left_out = read_world(write_world(tmp_path / "a.world", house(slab)))
    assert bounds(mesh, 2) == pytest.approx(np.array([(-3.05, -2.05, 0), (3.05, 2.05, 0)]), abs=1e-4)
    solid = trimesh.Trimesh(mesh.vertices, mesh.faces[mesh.surface.object_id == 2], process=False)
    assert solid.area == pytest.approx(6.1 * 4.1, rel=1e-4) and (solid.face_normals[:, 1] > 0.99).all()
    assert "ground 'asphalt': cut from" in left_out.notes[0]
    mesh, left_out = read_world(write_world(tmp_path / "a.world", house(rug)))
    assert bounds(mesh, 2)[1] == pytest.approx([15, 1, 0], abs=1e-4) and left_out.notes == ()
    mesh, left_out = read_world(write_world(tmp_path / "a.world", ground))
    assert np.ptp(bounds(mesh), axis=0)[0] > 100 and left_out.notes == ()


def test_a_ground_around_objects_without_walls_keeps_a_margin(tmp_path):
    """A table and a chair in the open are no building: 5 m of ground are left around them."""
    body = model("table", link(box())) + model("chair", link(box()), pose="<pose>8 0 0 0 0 0</pose>")
    mesh, left_out = read_world(write_world(tmp_path / "a.world", body + model("ground_plane", link(PLANE))))
    assert bounds(mesh, 3) == pytest.approx(np.array([(-5.5, -5.5, 0), (13.5, 5.5, 0)]), abs=1e-4)
    assert left_out.notes == (
        "ground 'ground_plane': cut from 100.0 x 100.0 m to 11.0 x 19.0 m, 5 m around the other models",
    )


def test_models_of_fuel_are_found_by_name(tmp_path):
    """In folders with spaces, underscores or versions, and with their files; the ground needs no file."""
    fuel = "https://fuel.gazebosim.org/1.0/OpenRobotics/models"
    body = "".join(
        f"<include><uri>{fuel}/{name}</uri></include>" for name in ("Ground%20Plane", "Sun/2", "Office Chair")
    )
    (tmp_path / "a").mkdir()
    world, models = write_world(tmp_path / "a" / "a.world", house(body)), tmp_path / "fuel"
    mesh, left_out = read_world(world)
    hint = "name folders of models by --models or GAZEBO_MODEL_PATH"
    assert str(left_out) == f"left out 1 of 6 parts (17%): {fuel}/Office Chair is not found (1); {hint}"
    assert bounds(mesh, 2) == pytest.approx(np.array([(-3.05, -2.05, 0), (3.05, 2.05, 0)]), abs=1e-4)
    solid = trimesh.creation.box((1, 2, 3)).export(file_type="stl")
    uri = f"{fuel}/office_chair/tip/files/box.stl"
    part = f"<visual name='v'><geometry><mesh><uri>{uri}</uri></mesh></geometry></visual>"
    for name in ("office chair/1", "office chair/12", "Office_Chair"):
        write_model(models / name, part)
        (models / name / "box.stl").write_bytes(solid)
        mesh, left_out = read_world(world, [models])
        assert str(left_out) == "" and np.ptp(bounds(mesh, 4), axis=0) == pytest.approx([1, 2, 3], abs=1e-5)
        assert set(mesh.surface.categories) == {"", "Ground Plane", "Office Chair", "walls"}
