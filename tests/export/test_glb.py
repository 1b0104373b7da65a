"""Scenes as GLB files, read back by batchnav and by trimesh."""

import json
import struct
import xml.etree.ElementTree as ET

import numpy as np
import pytest
import trimesh
from scipy.spatial.transform import Rotation
from worlds import as_mesh

import batchnav
from batchnav.cli import main
from batchnav.envs.config import NavConfig
from batchnav.errors import ArgumentError, MeshError
from batchnav.export.glb import body_urdf, save_glb, save_urdf
from batchnav.procedural import make_house
from batchnav.scene.mesh import load_mesh
from batchnav.sensors.camera import CameraConfig
from batchnav.types import Material, Surface, Texture, TriangleMesh

SAMPLERS = (("repeat", "repeat"), "linear", "linear_mipmap_linear"), (("clamp", "mirror"), "nearest", "linear")


def painted_mesh():
    """Random triangles with textures, vertex colours, ids and categories; some share vertices."""
    rng = np.random.default_rng(5)
    count = 40
    pixels = rng.integers(0, 256, (5, 7, 4), np.uint8)
    textures = tuple(Texture(pixels if k < 2 else 255 - pixels, *SAMPLERS[k % 2]) for k in range(3))
    materials = (Material(), Material((0.1, 0.7, 1 / 3, 0.5)), *(Material((1.0, 0.5, 1.0, 1.0), k) for k in range(3)))
    color = np.full((count, 3, 4), 255, np.uint8)
    color[::3] = rng.integers(0, 256, (len(color[::3]), 3, 4), np.uint8)
    surface = Surface(
        rng.integers(0, 5, count).astype(np.int32), materials, textures,
        rng.random((count, 3, 2)).astype(np.float32) * 9 - 4,
        color, rng.integers(0, 4, count).astype(np.int32), rng.integers(0, 3, count).astype(np.int32),
        ("", "office chair", "Tür"),
    )  # fmt: skip
    vertices = rng.normal(size=(30, 3)).astype(np.float32)
    faces = np.stack([rng.permutation(30)[:3] for _ in range(count)]).astype(np.int32)
    return TriangleMesh(vertices, faces, surface=surface)


def triangles(mesh):
    """All that can be seen of each triangle, as a sorted list."""
    surface = mesh.surface
    count = len(mesh.faces)
    found = []
    for k in range(count):
        material = surface.materials[surface.material[k]]
        texture = surface.textures[material.texture] if material.texture >= 0 else None
        look = (texture.pixels.tobytes(), texture.pixels.shape, texture[1:]) if texture else None
        uv = surface.uv[k].tobytes() if texture else None
        color = np.full((3, 4), 255, np.uint8) if surface.color is None else surface.color[k]
        thing = 0 if surface.object_id is None else int(surface.object_id[k])
        category = "" if surface.category is None else surface.categories[surface.category[k]]
        corners = (mesh.vertices[mesh.faces[k]] + 0.0).tobytes()
        found.append(repr((corners, material.color, look, uv, color.tobytes(), thing, category)))
    return sorted(found)


@pytest.mark.parametrize("make", [painted_mesh, lambda: make_house(3, surface=True)])
def test_it_reads_back_equal(tmp_path, make):
    mesh = make()
    save_glb(mesh, tmp_path / "out" / "house.glb")
    assert triangles(load_mesh(tmp_path / "out" / "house.glb")) == triangles(mesh)


def test_a_mesh_without_a_surface(tmp_path):
    mesh = as_mesh(trimesh.creation.box((1, 2, 3)))
    assert save_glb(mesh, tmp_path / "box.glb") == 1
    found = load_mesh(tmp_path / "box.glb")
    assert found.surface is None and len(found.faces) == 12
    assert np.ptp(found.vertices, axis=0).tolist() == [1, 2, 3]
    with pytest.raises(MeshError, match=r"box.obj: found suffix '.obj', expected .glb"):
        save_glb(mesh, tmp_path / "box.obj")


def test_a_scene_far_away_keeps_its_place(tmp_path):
    box = trimesh.creation.box((1, 2, 3))
    vertices = np.asarray(box.vertices + 0.123, np.float32)  # finer than float32 can be out there
    mesh = TriangleMesh(vertices, np.asarray(box.faces, np.int32), origin=(4e5, 0.0, -5e6))
    save_glb(mesh, tmp_path / "box.glb")
    found = load_mesh(tmp_path / "box.glb")
    assert found.origin == mesh.origin and sorted(found.vertices.tolist()) == sorted(vertices.tolist())
    bounds = trimesh.load_scene(tmp_path / "box.glb").bounds
    assert bounds.mean(0) == pytest.approx(np.array(mesh.origin) + 0.123)


def test_trimesh_reads_named_objects(tmp_path):
    """Nodes, extras, geometry, images and colours, by an independent reader."""
    mesh = painted_mesh()
    surface = mesh.surface
    save_glb(mesh, tmp_path / "scene.glb")
    scene = trimesh.load_scene(tmp_path / "scene.glb", process=False)
    corners = mesh.vertices[mesh.faces]
    named = {(int(i), int(c)) for i, c in zip(surface.object_id, surface.category, strict=True)}
    extras = {
        (data["metadata"]["instance"], data["metadata"]["category"]): child
        for (_, child), data in scene.graph.transforms.edge_data.items()
        if data.get("metadata")
    }
    assert {(i, surface.categories[c]) for i, c in named} == extras.keys()
    for (instance, category), node in extras.items():
        assert node.startswith(f"{category or 'object'}_{instance}")  # trimesh adds letters for each primitive
    total, colors = 0, set()
    for node in scene.graph.nodes_geometry:
        matrix, name = scene.graph[node]
        part = scene.geometry[name]
        assert np.allclose(matrix, np.eye(4))
        distance = np.abs(part.triangles[:, None] - corners[None]).max((2, 3)).min(1)
        assert distance.max() < 1e-6, node
        total += len(part.faces)
        material = part.visual.material
        colors.add(tuple(np.round(np.asarray(material.baseColorFactor) / 255, 2).tolist()))
        if material.baseColorTexture is not None:
            assert material.baseColorTexture.size == (7, 5)
            used = surface.textures[0].pixels, 255 - surface.textures[0].pixels
            assert any((np.asarray(material.baseColorTexture) == pixels).all() for pixels in used)
    assert total == len(mesh.faces)
    assert colors >= {(1.0, 1.0, 1.0, 1.0), (0.1, 0.7, 0.33, 0.5), (1.0, 0.5, 1.0, 1.0)}


def test_the_file_keeps_the_rules_of_gltf(tmp_path):
    """Alignment, lengths, and bounds of positions: what strict readers check."""
    save_glb(painted_mesh(), tmp_path / "scene.glb")
    data = (tmp_path / "scene.glb").read_bytes()
    magic, version, length, json_length, kind = struct.unpack_from("<5I", data)
    assert (magic, version, length, kind) == (0x46546C67, 2, len(data), 0x4E4F534A) and json_length % 4 == 0
    tree = json.loads(data[20 : 20 + json_length])
    size, kind = struct.unpack_from("<2I", data, 20 + json_length)
    assert kind == 0x004E4942 and size == tree["buffers"][0]["byteLength"] == len(data) - 28 - json_length
    for accessor in tree["accessors"]:
        view = tree["bufferViews"][accessor["bufferView"]]
        width = {"SCALAR": 1, "VEC2": 2, "VEC3": 3, "VEC4": 4}[accessor["type"]]
        item = {5126: 4, 5125: 4, 5121: 1}[accessor["componentType"]] * width
        assert view["byteLength"] == accessor["count"] * item and view["byteOffset"] % 4 == 0
    for mesh in tree["meshes"]:
        for primitive in mesh["primitives"]:
            position = tree["accessors"][primitive["attributes"]["POSITION"]]
            view = tree["bufferViews"][position["bufferView"]]
            begin = 28 + json_length + view["byteOffset"]
            values = np.frombuffer(data[begin : begin + view["byteLength"]], "<f4").reshape(-1, 3)
            assert values.min(0).tolist() == position["min"] and values.max(0).tolist() == position["max"]
            assert len(np.unique(values, axis=0)) <= len(values)
    assert all("KHR_materials_unlit" in material["extensions"] for material in tree["materials"])
    assert len(tree["images"]) == 2 and len(tree["textures"]) == 3 and len(tree["samplers"]) == 2


@pytest.mark.parametrize(
    "extras", [{"instance": "3"}, {"instance": -1}, {"instance": True}, {"instance": 2**31}, {"category": 3}, [1], "x"]
)
def test_extras_of_others_are_no_objects(tmp_path, extras):
    save_glb(painted_mesh(), tmp_path / "scene.glb")
    data = (tmp_path / "scene.glb").read_bytes()
    (length,) = struct.unpack_from("<I", data, 12)
    tree = json.loads(data[20 : 20 + length])
    for node in tree["nodes"]:
        node["extras"] = extras
        node.pop("name", None)
    text = json.dumps(tree).encode()
    text += b" " * (-len(text) % 4)
    rest = data[20 + length :]
    head = struct.pack("<5I", 0x46546C67, 2, 20 + len(text) + len(rest), len(text), 0x4E4F534A)
    (tmp_path / "other.glb").write_bytes(head + text + rest)
    surface = load_mesh(tmp_path / "other.glb").surface
    assert surface.object_id is None and surface.category is None


def test_command(tmp_path, capsys):
    main(["data", "export", "house:3", "--out", str(tmp_path / "house.glb"), "--urdf", str(tmp_path / "body.urdf")])
    assert "house.glb: 104 objects, 16,418 triangles" in capsys.readouterr().out.replace("\n", "")
    scene = batchnav.load_scene(tmp_path / "house.glb")
    first = batchnav.load_scene("house:3")
    assert scene.navmesh.area == pytest.approx(first.navmesh.area, rel=1e-3)
    assert set(scene.categories) <= set(first.categories)
    assert (tmp_path / "body.urdf").read_text() == body_urdf(NavConfig())
    with pytest.raises(SystemExit, match=r"found suffix '.obj', expected .glb"):
        main(["data", "export", "house:3", "--out", str(tmp_path / "house.obj")])


def pose_of(robot, link):
    """f64 [4, 4]: a link's frame in base_link, from the joints above it; rpy turns about fixed axes."""
    pose = np.eye(4)
    while link != "base_link":
        (joint,) = [j for j in robot.findall("joint") if j.find("child").get("link") == link]
        origin, step = joint.find("origin"), np.eye(4)
        step[:3, 3] = [float(v) for v in origin.get("xyz").split()]
        step[:3, :3] = Rotation.from_euler("xyz", [float(v) for v in origin.get("rpy").split()]).as_matrix()
        pose, link = step @ pose, joint.find("parent").get("link")
    return pose


def test_urdf_of_a_body(tmp_path):
    camera = CameraConfig(
        camera_height=0.9, camera_forward=0.2, camera_left=-0.1, camera_heading_deg=30, camera_pitch_deg=-20
    )
    config = NavConfig(camera=camera)
    save_urdf(config, tmp_path / "body.urdf")
    robot = ET.parse(tmp_path / "body.urdf").getroot()
    assert robot.tag == "robot" and {link.get("name") for link in robot.findall("link")} == {
        "base_link", "camera_link", "camera_optical_frame",
    }  # fmt: skip
    for kind in ("visual", "collision"):
        part = robot.find(f"link[@name='base_link']/{kind}")
        cylinder = part.find("geometry/cylinder")
        assert float(cylinder.get("radius")) == 0.1 and float(cylinder.get("length")) == 1.5
        assert part.find("origin").get("xyz") == "0 0 0.75"
    pose = pose_of(robot, "camera_link")
    assert pose[:3, 3] == pytest.approx([0.2, -0.1, 0.9])
    h, p = np.radians([30, -20])
    forward = [np.cos(p) * np.cos(h), np.cos(p) * np.sin(h), np.sin(p)]  # down, and to the left
    assert pose[:3, 0] == pytest.approx(forward)
    optical = pose_of(robot, "camera_optical_frame")
    assert optical[:3, 2] == pytest.approx(forward) and optical[2, 0] == pytest.approx(0, abs=1e-6)
    assert optical[2, 1] < -0.9, "y of an optical frame points down"
    with pytest.raises(ArgumentError, match=r"body.xml: found suffix '.xml', expected .urdf"):
        save_urdf(config, tmp_path / "body.xml")
