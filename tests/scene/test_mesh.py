import struct
import time

import numpy as np
import pytest
import trimesh
from files import compressed, glb, triangle_tree, written

from batchnav.errors import ArgumentError, MeshError
from batchnav.scene.mesh import check_mesh, load_mesh, save_mesh
from batchnav.types import TriangleMesh

FLOAT32 = 1e-6  # rounding of coordinates near 1


def box(extents=(1.0, 2.0, 3.0)):
    return trimesh.creation.box(extents)


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
    with pytest.raises(ArgumentError, match="up: found 'w'"):
        load_mesh(tmp_path / "box.ply", up="w")


def test_degenerate_and_non_finite_triangles_are_dropped_and_counted(tmp_path):
    vertices = [[0, 0, 0], [1, 0, 0], [0, 1, 0], [2, 0, 0], [np.nan, 0, 0], [np.inf, 1, 0]]
    faces = [[0, 1, 2], [0, 0, 1], [0, 1, 3], [0, 1, 4], [5, 1, 2]]
    mesh = check_mesh(TriangleMesh(np.float32(vertices), np.int32(faces)), "mesh")
    assert mesh.num_dropped == 4 and mesh.faces.tolist() == [[0, 1, 2]] and np.isfinite(mesh.vertices).all()
    trimesh.Trimesh(vertices, faces, process=False).export(tmp_path / "bad.ply")
    assert load_mesh(tmp_path / "bad.ply").num_dropped == 4


def test_without_appearance_no_texture_is_looked_at(tmp_path, recwarn):
    broken = {"images": [{"bufferView": 1, "mimeType": "image/png"}], "textures": [{"source": 0}]}
    broken["materials"] = [{"pbrMetallicRoughness": {"baseColorTexture": {"index": 0}}}]
    tree, data = triangle_tree(**broken)
    tree["meshes"][0]["primitives"][0]["material"] = 0
    (tmp_path / "a.glb").write_bytes(glb(tree, data))
    (tmp_path / "a.obj").write_text("mtllib absent.mtl\nusemtl x\nv 0 0 0\nv 1 0 0\nv 0 1 0\nf 1 2 3\n")
    for name in ("a.glb", "a.obj"):
        mesh = load_mesh(tmp_path / name, appearance=False)
        assert len(mesh.faces) == 1 and mesh.surface is None
    assert not recwarn


def changed(edit) -> bytes:
    tree, data = triangle_tree()
    edit(tree)
    return glb(tree, data)


def with_parents(tree):
    tree["nodes"] = [{"children": [1]}, {"children": [0]}]


def signed_indices():
    tree, data = triangle_tree()
    tree["accessors"][1]["componentType"] = 5122
    return glb(tree, data[:36] + np.int16([0, 1, -1]).tobytes())


SIGNED = signed_indices()
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
    "zeros.glb": (changed(lambda t: t["accessors"].__setitem__(0, {**HUGE_ACCESSOR})), "empty accessor"),
    "sparse.glb": (changed(lambda t: t["accessors"][0].update(sparse={})), "sparse"),
    "normalized.glb": (changed(lambda t: t["accessors"][0].update(normalized=True)), "normalized float32"),
    "view.glb": (changed(lambda t: t["accessors"][0].update(bufferView=9)), "not valid glTF"),
    "cycle.glb": (changed(with_parents), "ancestor"),
    "empty.ply": (b"", "is empty"),
    "header.ply": (PLY[:40], "header is truncated"),
    "cut.ply": (PLY, "truncated: 3 rows"),
    "index.ply": (PLY + b"3 0 1 7\n", "7"),
    "huge.ply": (HUGE, "truncated: element 'vertex' has 900000000000 rows of 12 bytes"),
    "index.obj": (b"v 0 0 0\nv 1 0 0\nv 0 1 0\nf 1 2 9\n", "index.obj"),
    "words.obj": (b"hello\nworld\n", "words.obj"),
    "points.obj": (b"v 0 0 0\nv 1 0 0\n", "points.obj"),
    "flat.obj": (b"v 0 0 0\nv 1 0 0\nv 2 0 0\nf 1 2 3\n", "degenerate"),
    "huge.stl": (STL, "huge.stl"),
    "words.off": (b"OFF\nthree one\n", "words.off"),
    "short.off": (b"OFF\n3 1 0\n0 0 0\n1 0 0\n0 1 0\n", "line 1: found 3 lines"),
    "faces.off": (b"OFF\n3 1 0\n0 0 0\n1 0 0\n0 1 0\n9 0 1\n", "line 6: found 2 of 9"),
    "index.off": (b"OFF 3 1 0\n0 0 0\n1 0 0\n0 1 0\n3 0 1 -7\n", "vertex index -7"),
    "nothing.off": (b"\n# a\n", "not an OFF file"),
    "four.off": (b"4OFF\n3 1 0\n0 0 0 1\n1 0 0 1\n0 1 0 1\n3 0 1 2\n", "three coordinates .* '4OFF'"),
    "zero.obj": (b"v 0 0 0\nv 1 0 0\nv 0 1 0\nf 0 1 2\n", "vertex index -1"),
    "face.obj": (b"v 0 0 0\nv 1 0 0\nv 0 1 0\nf 1 2 x\n", "line 4: .*'x'"),
    "long.obj": (b"v 0 0 0\nv 1 0 0\nv 0 1 0\nf " + b"1 2 3 " * 2000, "polygon of 6000 corners"),
    "overflow.glb": (changed(lambda t: t["nodes"][0].update(translation=[10**400, 0, 0])), "OverflowError"),
    "signed.glb": (SIGNED, "vertex index -1"),
    "stride.glb": (changed(lambda t: t["bufferViews"][0].update(byteStride=0)), "stride 0"),
    "negative.glb": (changed(lambda t: t["nodes"][0].update(mesh=-1)), "not valid glTF"),
    "twice.glb": (changed(lambda t: t["scenes"][0].update(nodes=[0, 0])), "twice"),
    "mode.glb": (changed(lambda t: t["meshes"][0]["primitives"][0].update(mode=9)), "mode 9"),
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
    save_mesh(mesh, tmp_path / "new" / f"a{suffix}")
    assert (tmp_path / "new" / f"a{suffix}").is_file()
    with pytest.raises(MeshError, match="cannot be written"):
        save_mesh(mesh, tmp_path / f"a{suffix}" / f"a{suffix}")


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


def area(mesh):
    a, b, c = (mesh.vertices[mesh.faces[:, k]].astype(np.float64) for k in range(3))
    return np.linalg.norm(np.cross(b - a, c - a), axis=1).sum() / 2


NOTCHED = [(0, 0), (2, 0), (2, 2), (3, 2), (3, 0), (5, 0), (5, 2.5), (0, 2.5)]
"""A wall 5 m long with a door of 1 x 2 m: 10.5 m2."""


@pytest.mark.parametrize("turned", [False, True])
def test_a_door_in_a_wall_stays_open(tmp_path, turned):
    corners = NOTCHED[::-1] if turned else NOTCHED
    lines = [f"v 1 {y} {x}" for x, y in corners] + ["f " + " ".join(map(str, range(1, 9)))]
    mesh = load_mesh(written(tmp_path, "wall.obj", "\n".join(lines).encode()))
    assert area(mesh) == pytest.approx(10.5) and len(mesh.faces) == 6
    a, b, c = (mesh.vertices[mesh.faces[:, k]] for k in range(3))
    front = np.cross(b - a, c - a)[:, 0]
    assert (front > 0).all() if turned else (front < 0).all()  # as its corners go round
    rows = [f"1 {y} {x}" for x, y in corners] + ["8 " + " ".join(map(str, range(8)))]
    mesh = load_mesh(written(tmp_path, "wall.off", ("OFF # a wall\n8 1 0\n" + "\n".join(rows)).encode()))
    assert area(mesh) == pytest.approx(10.5)


@pytest.mark.parametrize("form", ["ascii", "binary_little_endian", "binary_big_endian"])
def test_polygons_of_ply(tmp_path, form):
    """A wall with a door, a triangle and a square, between other elements and properties."""
    polygons = [range(8), (8, 9, 10), (8, 9, 10, 11)]
    points = [(1, y, x) for x, y in NOTCHED] + [(0, 0, 0), (1, 0, 0), (1, 1, 0), (0, 1, 0)]
    head = f"ply\nformat {form} 1.0\ncomment by hand\nelement camera 1\nproperty list uchar float view\n"
    head += "element vertex 12\nproperty uchar red\nproperty float x\nproperty double y\nproperty float z\n"
    head += "element face 3\nproperty list uchar int vertex_indices\nproperty short label\nend_header\n"
    if form == "ascii":
        rows = [["2 0.5 0.25"], [f"7 {x} {y} {z}" for x, y, z in points]]
        rows += [[" ".join(map(str, [len(p), *p, 9])) for p in polygons]]
        body = "\n".join(line for part in rows for line in part).encode()
    else:
        order = "<" if "little" in form else ">"
        body = struct.pack(f"{order}B2f", 2, 0.5, 0.25)
        body += b"".join(struct.pack(f"{order}Bfdf", 7, *point) for point in points)
        body += b"".join(struct.pack(f"{order}B{len(p)}ih", len(p), *p, 9) for p in polygons)
    mesh = load_mesh(written(tmp_path, "a.ply", head.encode() + body))
    assert area(mesh) == pytest.approx(10.5 + 0.5 + 1) and len(mesh.faces) == 6 + 1 + 2
    for cut in range(1, len(body), 7):
        with pytest.raises(MeshError, match=r"a\.ply"):
            load_mesh(written(tmp_path, "a.ply", head.encode() + body[:-cut]))


def test_indices_that_count_back(tmp_path):
    square = "v {0} 0 0\nv {1} 0 0\nv {1} 1 0\nv {0} 1 0\nf -4//1 -3 -2/7/8 -1\n"
    text = "".join(f"o part{k}\n" + square.format(2 * k, 2 * k + 1) for k in range(3))
    mesh = load_mesh(written(tmp_path, "a.obj", text.encode()))
    assert area(mesh) == pytest.approx(3.0) and mesh.vertices[:, 0].max() == 5


@pytest.mark.parametrize("encoding", ["latin-1", "utf-16", "utf-8-sig"])
@pytest.mark.parametrize("end", ["\n", "\r\n", "\r"])
def test_encodings_and_line_ends(tmp_path, encoding, end):
    text = "# Küche\ng Küche\nv 0 0 0\nv 1 0 0\nv 0 1 0\nf 1 2 \\\n3\n".replace("\n", end)
    assert len(load_mesh(written(tmp_path, "a.obj", text.encode(encoding))).faces) == 1
    ply = (PLY + b"3 0 1 2\n").replace(b"\n", end.encode())
    assert len(load_mesh(written(tmp_path, "a.ply", ply)).faces) == 1


@pytest.mark.parametrize("appearance", [True, False])
def test_comments_behind_numbers(tmp_path, appearance):
    """Also of so many words that they might be colours; what is broken behind them is still named."""
    text = "v 0 0 0 # a b c d\nv 1 0 0 # 1 2 3\nv 0 1 0#\nvt 0 0 # 1\nusemtl a#1\nf 1/1 2/1 3/1 # one\nf 1 3 2 #1\n"
    mesh = load_mesh(written(tmp_path, "a.obj", text.encode()), appearance=appearance)
    assert len(mesh.faces) == 2 and mesh.surface is None
    with pytest.raises(MeshError, match=r"line 8: .*, expected OBJ"):
        load_mesh(written(tmp_path, "a.obj", (text + "f 1 2 x # 3\n").encode()), appearance=appearance)


def test_a_binary_body_behind_a_header_with_other_line_ends(tmp_path):
    box().export(tmp_path / "a.ply")
    data = (tmp_path / "a.ply").read_bytes()
    head, end, body = data.partition(b"end_header\n")
    for line_end in (b"\r\n", b"\r"):
        mesh = load_mesh(written(tmp_path, "b.ply", (head + end).replace(b"\n", line_end) + body))
        assert len(mesh.faces) == 12 and area(mesh) == pytest.approx(22)


@pytest.mark.parametrize("comment", [b"", b"comment up to end_header, below\n"])
def test_a_header_that_ends_with_spaces(tmp_path, comment):
    box().export(tmp_path / "a.ply")
    head, end, body = (tmp_path / "a.ply").read_bytes().partition(b"element vertex")
    body = (end + body).replace(b"end_header\n", b"end_header \t\n")
    assert area(load_mesh(written(tmp_path, "b.ply", head + comment + body))) == pytest.approx(22)


def test_many_groups_take_linear_time(tmp_path):
    text = "".join(f"g {k}\nusemtl m{k}\nv {k} 0 0\nv {k} 1 0\nv {k} 0 1\nf -3 -2 -1\n" for k in range(40_000))
    begin = time.process_time()
    assert len(load_mesh(written(tmp_path, "a.obj", text.encode())).faces) == 40_000
    assert time.process_time() - begin < 5.0  # measured: 0.4 s


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
