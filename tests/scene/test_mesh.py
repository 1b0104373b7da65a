import json
import struct

import numpy as np
import pytest
import trimesh

import batchnav.scene.gltf as gltf
from batchnav.errors import ArgumentError, MeshError
from batchnav.scene.mesh import check_mesh, load_mesh, save_mesh
from batchnav.types import TriangleMesh

FLOAT32 = 1e-6  # rounding of coordinates near 1


def box(extents=(1.0, 2.0, 3.0)):
    return trimesh.creation.box(extents)


def glb(tree: dict, binary: bytes = b"") -> bytes:
    """A GLB file of this JSON and binary chunk."""
    text = json.dumps(tree).encode()
    text += b" " * (-len(text) % 4)
    binary += b"\0" * (-len(binary) % 4)
    chunks = struct.pack("<2I", len(text), 0x4E4F534A) + text + struct.pack("<2I", len(binary), 0x004E4942) + binary
    return struct.pack("<3I", 0x46546C67, 2, 12 + len(chunks)) + chunks


def triangle_tree(**changes) -> tuple[dict, bytes]:
    """glTF of one triangle; `changes` replace its top-level entries."""
    corners, indices = np.float32([[0, 0, 0], [1, 0, 0], [0, 1, 0]]), np.uint16([0, 1, 2])
    data = corners.tobytes() + indices.tobytes()
    tree = {
        "asset": {"version": "2.0"}, "scene": 0, "scenes": [{"nodes": [0]}], "nodes": [{"mesh": 0}],
        "meshes": [{"primitives": [{"attributes": {"POSITION": 0}, "indices": 1}]}],
        "accessors": [
            {"bufferView": 0, "componentType": 5126, "count": 3, "type": "VEC3"},
            {"bufferView": 1, "componentType": 5123, "count": 3, "type": "SCALAR"},
        ],
        "bufferViews": [
            {"buffer": 0, "byteOffset": 0, "byteLength": 36}, {"buffer": 0, "byteOffset": 36, "byteLength": 6},
        ],
        "buffers": [{"byteLength": len(data)}],
    }  # fmt: skip
    return {**tree, **changes}, data


@pytest.mark.parametrize("suffix", [".glb", ".gltf", ".obj", ".ply", ".stl", ".off"])
def test_every_format_gives_the_same_box(tmp_path, suffix):
    path = tmp_path / f"box{suffix}"
    box().export(path)
    mesh = load_mesh(path)
    assert mesh.vertices.dtype == np.float32 and mesh.faces.dtype == np.int32
    assert len(mesh.faces) == 12 and mesh.num_dropped == 0
    np.testing.assert_allclose(np.ptp(mesh.vertices, axis=0), [1, 2, 3], atol=FLOAT32)
    volume = trimesh.Trimesh(mesh.vertices, mesh.faces).volume  # positive: triangles face outwards
    assert volume == pytest.approx(6.0, rel=1e-5)


def test_scene_graph_is_applied_and_geometry_merged(tmp_path):
    scene = trimesh.Scene()
    scene.add_geometry(box((1, 1, 1)), transform=trimesh.transformations.translation_matrix([5, 0, 0]))
    turn = trimesh.transformations.rotation_matrix(np.pi / 2, [0, 1, 0])
    scene.add_geometry(box((4, 1, 1)), transform=turn)
    scene.add_geometry(box((1, 1, 1)), transform=np.diag([-1.0, 1, 1, 1]) @ turn)  # a mirrored part
    scene.export(tmp_path / "scene.glb")
    mesh = load_mesh(tmp_path / "scene.glb")
    assert len(mesh.faces) == 36
    np.testing.assert_allclose(
        [mesh.vertices.min(0), mesh.vertices.max(0)], [[-0.5, -0.5, -2], [5.5, 0.5, 2]], atol=1e-6
    )
    assert trimesh.Trimesh(mesh.vertices, mesh.faces).volume == pytest.approx(1 + 4 + 1, rel=1e-5)


def test_up_axis_turns_z_up_into_y_up(tmp_path):
    box().export(tmp_path / "box.ply")
    np.testing.assert_allclose(np.ptp(load_mesh(tmp_path / "box.ply", up="z").vertices, axis=0), [1, 3, 2])
    moved = box()
    moved.apply_translation([10, 20, 30])
    moved.export(tmp_path / "box.ply")
    np.testing.assert_allclose(load_mesh(tmp_path / "box.ply", up="z").vertices.mean(0), [10, 30, -20], atol=1e-5)
    with pytest.raises(ArgumentError, match="up: found 'x'"):
        load_mesh(tmp_path / "box.ply", up="x")


def test_degenerate_and_non_finite_triangles_are_dropped_and_counted(tmp_path):
    vertices = [[0, 0, 0], [1, 0, 0], [0, 1, 0], [2, 0, 0], [np.nan, 0, 0], [np.inf, 1, 0]]
    faces = [[0, 1, 2], [0, 0, 1], [0, 1, 3], [0, 1, 4], [5, 1, 2]]
    mesh = check_mesh(TriangleMesh(np.float32(vertices), np.int32(faces)), "mesh")
    assert mesh.num_dropped == 4 and mesh.faces.tolist() == [[0, 1, 2]] and np.isfinite(mesh.vertices).all()
    trimesh.Trimesh(vertices, faces, process=False).export(tmp_path / "bad.ply")
    assert load_mesh(tmp_path / "bad.ply").num_dropped == 4


def test_textures_are_not_decoded(tmp_path):
    broken = {"images": [{"bufferView": 1, "mimeType": "image/png"}], "textures": [{"source": 0}]}
    broken["materials"] = [{"pbrMetallicRoughness": {"baseColorTexture": {"index": 0}}}]
    tree, data = triangle_tree(**broken)
    tree["meshes"][0]["primitives"][0]["material"] = 0
    (tmp_path / "a.glb").write_bytes(glb(tree, data))
    assert len(load_mesh(tmp_path / "a.glb").faces) == 1
    (tmp_path / "a.obj").write_text("mtllib absent.mtl\nusemtl x\nv 0 0 0\nv 1 0 0\nv 0 1 0\nf 1 2 3\n")
    assert len(load_mesh(tmp_path / "a.obj").faces) == 1


def compressed(name):
    tree, data = triangle_tree()
    tree["extensionsRequired"] = tree["extensionsUsed"] = [name]
    if "draco" in name:
        tree["meshes"][0]["primitives"][0]["extensions"] = {name: {"bufferView": 0, "attributes": {"POSITION": 0}}}
    else:
        tree["bufferViews"][0]["extensions"] = {name: {"buffer": 0, "byteLength": 36, "byteStride": 12, "count": 3}}
    return glb(tree, data)


def changed(edit) -> bytes:
    tree, data = triangle_tree()
    edit(tree)
    return glb(tree, data)


def with_parents(tree):
    tree["nodes"] = [{"children": [1]}, {"children": [0]}]


HUGE_ACCESSOR = {"componentType": 5126, "count": 10**12, "type": "VEC3"}
GOOD = glb(*triangle_tree())
PLY = b"ply\nformat ascii 1.0\nelement vertex 3\nproperty float x\nproperty float y\nproperty float z\n"
PLY += b"element face 1\nproperty list uchar int vertex_indices\nend_header\n0 0 0\n1 0 0\n0 1 0\n"
HUGE = b"ply\nformat binary_little_endian 1.0\nelement vertex 900000000000\nproperty float x\nproperty float y\n"
HUGE += b"property float z\nelement face 1\nproperty list uchar int vertex_indices\nend_header\n" + b"\0" * 100
STL = b"\0" * 80 + struct.pack("<I", 4_000_000_000) + b"\0" * 50
BAD_FILES = {
    "draco.glb": (compressed("KHR_draco_mesh_compression"), "KHR_draco_mesh_compression"),
    "meshopt.glb": (compressed("EXT_meshopt_compression"), "EXT_meshopt_compression"),
    "empty.glb": (b"", "is empty"),
    "short.glb": (GOOD[:15], "truncated"),
    "cut.glb": (GOOD[:-20], "truncated"),
    "magic.glb": (b"XXXX" + GOOD[4:], "not a GLB"),
    "json.gltf": (b'{"asset": ', "JSON"),
    "list.gltf": (b"[1, 2]", "expected an object"),
    "no_mesh.glb": (glb({"asset": {"version": "2.0"}, "scenes": [{"nodes": []}], "scene": 0}), "no triangles"),
    "index.glb": (changed(lambda t: t["accessors"][0].update(count=2)), "vertex index 2"),
    "accessor.glb": (changed(lambda t: t["accessors"][0].update(count=10**12)), "accessor of"),
    "zeros.glb": (changed(lambda t: t["accessors"].append({**HUGE_ACCESSOR})), "no data"),
    "sparse.glb": (changed(lambda t: t["accessors"][0].update(sparse={})), "sparse"),
    "normalized.glb": (changed(lambda t: t["accessors"][0].update(normalized=True)), "KHR_mesh_quantization"),
    "view.glb": (changed(lambda t: t["accessors"][0].update(bufferView=9)), "not valid glTF"),
    "cycle.glb": (changed(with_parents), "ancestor"),
    "empty.ply": (b"", "is empty"),
    "header.ply": (PLY[:40], "header is truncated"),
    "cut.ply": (PLY, "truncated: 3 rows"),
    "index.ply": (PLY + b"3 0 1 7\n", "7"),
    "huge.ply": (HUGE, "PLY"),
    "index.obj": (b"v 0 0 0\nv 1 0 0\nv 0 1 0\nf 1 2 9\n", "index.obj"),
    "words.obj": (b"hello\nworld\n", "words.obj"),
    "points.obj": (b"v 0 0 0\nv 1 0 0\n", "points.obj"),
    "flat.obj": (b"v 0 0 0\nv 1 0 0\nv 2 0 0\nf 1 2 3\n", "degenerate"),
    "huge.stl": (STL, "huge.stl"),
    "words.off": (b"OFF\nthree one\n", "words.off"),
    "mesh.fbx": (b"x", "suffix '.fbx'"),
    "mesh": (b"x", "suffix ''"),
}  # fmt: skip


@pytest.mark.parametrize("name", BAD_FILES)
def test_a_file_that_cannot_be_used_is_named(tmp_path, name):
    data, message = BAD_FILES[name]
    (tmp_path / name).write_bytes(data)
    with pytest.raises(MeshError, match=message) as caught:
        load_mesh(tmp_path / name)
    assert name in str(caught.value)


def test_absent_file_and_folder(tmp_path):
    with pytest.raises(MeshError, match=r"absent\.glb.*No such file"):
        load_mesh(tmp_path / "absent.glb")
    (tmp_path / "folder.glb").mkdir()
    with pytest.raises(MeshError, match="is a folder"):
        load_mesh(tmp_path / "folder.glb")


def test_a_truncated_binary_file_is_never_half_read(tmp_path):
    for suffix in (".glb", ".ply", ".stl"):
        path = tmp_path / f"box{suffix}"
        box().export(path)
        data = path.read_bytes()
        for length in (1, len(data) // 2, len(data) - 1):
            path.write_bytes(data[:length])
            with pytest.raises(MeshError, match=path.name):
                load_mesh(path)


@pytest.mark.parametrize("suffix", [".glb", ".ply"])
def test_saved_and_loaded_again(tmp_path, suffix):
    mesh = TriangleMesh(np.float32([[0, 0, 0], [1.5, 0, 0], [0, 1, 7]]), np.int32([[0, 1, 2], [2, 1, 0]]))
    save_mesh(mesh, tmp_path / f"a{suffix}")
    again = load_mesh(tmp_path / f"a{suffix}")
    np.testing.assert_array_equal(again.vertices[again.faces], mesh.vertices[mesh.faces])
    assert [p.name for p in tmp_path.iterdir()] == [f"a{suffix}"]
    with pytest.raises(MeshError, match=r"expected \.glb or \.ply"):
        save_mesh(mesh, tmp_path / "a.obj")
    with pytest.raises(MeshError, match="cannot be written"):
        save_mesh(mesh, tmp_path / "absent" / f"a{suffix}")


@pytest.mark.parametrize(
    ("vertices", "faces", "message"),
    [
        (np.zeros((3, 2)), np.zeros((1, 3), int), r"found vertices \[3, 2\]"),
        (np.zeros((3, 3)), np.zeros((1, 3)), "float64 faces"),
        (np.zeros((3, 3)), np.zeros((0, 3), int), "no triangles"),
        (np.zeros((3, 3)), np.int64([[0, 1, 3]]), "vertex index 3"),
        (np.zeros((3, 3)), np.int64([[0, 1, -1]]), "vertex index -1"),
        (np.full((3, 3), 1e200), np.int64([[0, 1, 2]]), "not finite"),
    ],
)
def test_a_mesh_in_memory_is_checked(vertices, faces, message):
    with pytest.raises(MeshError, match=f"room: .*{message}"):
        check_mesh(TriangleMesh(vertices, faces), "room")


def test_draco_is_left_to_trimesh_where_its_decoder_is_installed(monkeypatch):
    monkeypatch.setattr(gltf.importlib.util, "find_spec", lambda name: object())
    gltf.check_gltf(compressed("KHR_draco_mesh_compression"), binary=True)


@pytest.mark.parametrize(
    ("file", "triangles"),
    [("scenes/aws_small_house/aws_small_house.glb", 145_840), ("scenes/van-gogh-room/van-gogh-room.yup.glb", None)],
)
def test_real_scenes(shared, file, triangles):
    mesh = load_mesh(shared / file)
    assert triangles is None or len(mesh.faces) + mesh.num_dropped == triangles
    assert mesh.faces.max() < len(mesh.vertices)


def test_z_up_scan_is_habitats_frame(shared):
    scan = load_mesh(shared / "scenes/van-gogh-room/van-gogh-room.mesh.ply", up="z")
    stage = load_mesh(shared / "scenes/van-gogh-room/van-gogh-room.yup.glb")
    np.testing.assert_allclose(scan.vertices.min(0), stage.vertices.min(0), atol=1e-3)
    np.testing.assert_allclose(scan.vertices.max(0), stage.vertices.max(0), atol=1e-3)
