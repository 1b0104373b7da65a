"""Geometry features of glTF: compression, quantisation, strips, instances, buffers."""

import base64
import json
import os
import time

import numpy as np
import pytest
import trimesh
from files import compressed, glb, triangle_tree, written

import batchnav.scene.gltf as gltf
from batchnav.errors import MeshError
from batchnav.scene.mesh import load_mesh


def draco_glb(vertices, faces, **options):
    """A GLB whose one primitive is compressed by Draco itself, as exporters write it."""
    data = pytest.importorskip("DracoPy").encode(np.float32(vertices), np.uint32(faces), preserve_order=True, **options)
    name = "KHR_draco_mesh_compression"
    tree = {
        "asset": {"version": "2.0"}, "extensionsUsed": [name], "extensionsRequired": [name], "scene": 0,
        "scenes": [{"nodes": [0]}], "nodes": [{"mesh": 0, "translation": [0, 5, 0]}],
        "buffers": [{"byteLength": len(data)}], "bufferViews": [{"buffer": 0, "byteLength": len(data)}],
        "accessors": [  # what they would hold, without a place
            {"componentType": 5126, "count": len(vertices), "type": "VEC3"},
            {"componentType": 5125, "count": 3 * len(faces), "type": "SCALAR"},
        ],
        "meshes": [{"primitives": [{
            "attributes": {"POSITION": 0}, "indices": 1,
            "extensions": {name: {"bufferView": 0, "attributes": {"POSITION": 0}}},
        }]}],
    }  # fmt: skip
    return glb(tree, data)


def test_meshes_compressed_with_draco_are_read(tmp_path):
    ball = trimesh.creation.icosphere(subdivisions=2)
    bits = 14
    path = written(tmp_path, "a.glb", draco_glb(ball.vertices, ball.faces, quantization_bits=bits))
    mesh = load_mesh(path)
    corners, expected = mesh.vertices[mesh.faces], ball.vertices[ball.faces] + np.array([0, 5, 0])
    step = np.ptp(ball.vertices) / (2**bits - 1)  # positions are whole multiples of it
    np.testing.assert_allclose(corners, expected, atol=step)
    path.write_bytes(draco_glb(ball.vertices, ball.faces)[:-100] + b"\0" * 100)
    with pytest.raises(MeshError, match=r"a\.glb: has KHR_draco_mesh_compression data that cannot be decoded"):
        load_mesh(path)


@pytest.mark.parametrize("kind", ["i1", "i2", "u1", "u2"])
def test_quantized_positions(tmp_path, kind):
    """KHR_mesh_quantization: whole numbers, or shares of the largest, which the node scales."""
    whole = np.array([[1, 2, 3], [4, 0, 0], [0, 5, 6]], kind)
    share = np.array([[0, 0, 0], [np.iinfo(kind).max, 0, 0], [0, np.iinfo(kind).max, 0]], kind)
    for values, normalized, expected in ((whole, False, whole), (share, True, [[0, 0, 0], [1, 0, 0], [0, 1, 0]])):
        tree, _ = triangle_tree()
        code = {"i1": 5120, "u1": 5121, "i2": 5122, "u2": 5123}[kind]
        tree["accessors"][0] |= {"componentType": code, "normalized": normalized}
        padded = np.zeros((3, 4), kind)
        padded[:, :3] = values
        data = padded.tobytes() + np.uint16([0, 1, 2]).tobytes()
        size = padded.nbytes
        tree["bufferViews"] = [
            {"buffer": 0, "byteOffset": 0, "byteLength": size, "byteStride": size // 3},
            {"buffer": 0, "byteOffset": size, "byteLength": 6},
        ]
        tree["buffers"] = [{"byteLength": len(data)}]
        tree["nodes"][0]["scale"] = [2.0, 2.0, 2.0]
        mesh = load_mesh(written(tmp_path, "a.glb", glb(tree, data)))
        corners = mesh.vertices[mesh.faces].reshape(3, 3)
        np.testing.assert_allclose(corners, 2.0 * np.array(expected), atol=1e-6)


def test_without_its_decoder_draco_is_refused_by_name(monkeypatch, tmp_path):
    monkeypatch.setattr(gltf.importlib.util, "find_spec", lambda name: None)
    path = written(tmp_path, "a.glb", compressed("KHR_draco_mesh_compression"))
    with pytest.raises(MeshError, match=r"compressed with KHR_draco_mesh_compression, which needs the package DracoPy"):
        load_mesh(path)


@pytest.mark.parametrize("name", ["EXT_meshopt_compression", "KHR_meshopt_compression"])
def test_meshopt_is_refused_by_name(tmp_path, name):
    path = written(tmp_path, "a.glb", compressed(name))
    with pytest.raises(MeshError, match=rf"a\.glb: is compressed with {name}, which cannot be decoded; save it uncom"):
        load_mesh(path)


@pytest.mark.parametrize("name", ["EXT_meshopt_compression", "KHR_draco_mesh_compression"])
def test_a_file_with_optional_compression_is_read_uncompressed(monkeypatch, tmp_path, name):
    """The views and accessors hold everything; no decoder is needed."""
    monkeypatch.setattr(gltf.importlib.util, "find_spec", lambda name: None)
    tree, data = triangle_tree()
    tree["extensionsUsed"] = [name]
    if name.startswith("EXT"):
        for view in tree["bufferViews"]:
            view["extensions"] = {name: {"buffer": 0, "byteOffset": 0, "byteLength": 4, "count": 1, "byteStride": 4}}
    else:
        primitive = tree["meshes"][0]["primitives"][0]
        primitive["extensions"] = {name: {"bufferView": 0, "attributes": {"POSITION": 0}}}
    assert len(load_mesh(written(tmp_path, "a.glb", glb(tree, data))).faces) == 1
    tree["extensionsRequired"] = [name]
    with pytest.raises(MeshError, match=f"is compressed with {name}"):
        load_mesh(written(tmp_path, "a.glb", glb(tree, data)))


def test_lists_strips_and_fans_beside_each_other(tmp_path):
    """Five corners of a pentagon: a list of one triangle, a strip and a fan of three each."""
    angle = np.arange(5) * 2 * np.pi / 5
    corners = np.stack([np.cos(angle), np.sin(angle), 0 * angle], axis=1).astype(np.float32)
    tree, _ = triangle_tree()
    tree["accessors"] = [{"bufferView": 0, "componentType": 5126, "count": 5, "type": "VEC3"}]
    tree["bufferViews"], tree["buffers"] = [{"buffer": 0, "byteLength": 60}], [{"byteLength": 60}]
    position = {"attributes": {"POSITION": 0}}
    tree["meshes"] = [{"primitives": [{**position, "mode": mode} for mode in (0, 4, 5, 6)]}]
    mesh = load_mesh(written(tmp_path, "a.glb", glb(tree, corners.tobytes())))
    assert len(mesh.faces) == 1 + 3 + 3
    a, b, c = (mesh.vertices[mesh.faces[:, k]] for k in range(3))
    up = np.cross(b - a, c - a)[:, 2]
    # The pentagon's fan covers it; the strip zigzags over its edge, every other triangle turned round.
    assert up[4:].sum() / 2 == pytest.approx(2.5 * np.sin(2 * np.pi / 5), rel=1e-5) and (up[[0, 1, 4, 5, 6]] > 0).all()


def instanced(number, **columns):
    tree, data = triangle_tree()
    attributes = {}
    for name, values in columns.items():
        values = np.asarray(values, np.float32)
        attributes[name] = len(tree["accessors"])
        view = {"buffer": 0, "byteOffset": len(data) + -len(data) % 4, "byteLength": values.nbytes}
        data += b"\0" * (-len(data) % 4) + values.tobytes()
        tree["accessors"].append({
            "bufferView": len(tree["bufferViews"]), "componentType": 5126, "count": number,
            "type": f"VEC{values.shape[1]}",
        })  # fmt: skip
        tree["bufferViews"].append(view)
    tree["nodes"] = [{"mesh": 0, "extensions": {"EXT_mesh_gpu_instancing": {"attributes": attributes}}}]
    tree["nodes"][0]["scale"], tree["buffers"] = [2, 2, 2], [{"byteLength": len(data)}]
    return glb({**tree, "extensionsUsed": ["EXT_mesh_gpu_instancing"]}, data)


def test_instances_of_a_mesh(tmp_path):
    half = np.sqrt(0.5)
    places = {"TRANSLATION": [[0, 0, 0], [5, 0, 0]], "ROTATION": [[0, 0, 0, 1], [0, 0, half, half]]}
    mesh = load_mesh(written(tmp_path, "a.glb", instanced(2, **places)))
    expected = [[0, 0, 0], [2, 0, 0], [0, 2, 0], [10, 0, 0], [10, 2, 0], [8, 0, 0]]
    np.testing.assert_allclose(mesh.vertices, expected, atol=1e-6)


def test_extensions_that_are_not_read_are_named(tmp_path):
    tree, data = triangle_tree(extensionsUsed=["KHR_node_visibility", "KHR_materials_unlit", "KHR_texture_transform"])
    with pytest.warns(UserWarning, match="a.glb: uses .* not read: KHR_node_visibility; its"):
        load_mesh(written(tmp_path, "a.glb", glb(tree, data)))


def test_skins_and_morph_targets_are_named(tmp_path, recwarn):
    """Where they deform what is placed; a target of weight 0 does not."""
    tree, data = triangle_tree(nodes=[{"mesh": 0}, {"mesh": 0, "skin": 0}, {"mesh": 0, "weights": [0.0, 0.5]}])
    for roots, found in (([0], None), ([1], 1), ([0, 1, 2], 2)):
        path = written(tmp_path, "a.glb", glb({**tree, "scenes": [{"nodes": roots}]}, data))
        assert len(load_mesh(path).faces) == len(roots)
        texts = [str(warning.message) for warning in recwarn.list]
        assert texts == [] if found is None else f"{found} of its nodes have skins or morph targets" in texts[-1]
    tree["meshes"][0]["weights"] = [0.25]
    with pytest.warns(UserWarning, match="1 of its nodes have"):
        load_mesh(written(tmp_path, "a.glb", glb({**tree, "scenes": [{"nodes": [0]}]}, data)))
    with pytest.raises(MeshError, match="not valid glTF"):
        load_mesh(written(tmp_path, "a.glb", glb({**tree, "nodes": [{"mesh": 0, "weights": 1}]}, data)))


def test_small_gltf_asks_for_little(tmp_path, monkeypatch):
    tree, data = triangle_tree()
    chain = [{"children": [i + 1]} for i in range(20_000)] + [{"mesh": 0, "translation": [1, 0, 0]}]
    begin = time.process_time()
    assert len(load_mesh(written(tmp_path, "chain.glb", glb({**tree, "nodes": chain}, data))).faces) == 1
    assert time.process_time() - begin < 2.0  # measured: 0.2 s; it grew with the square
    monkeypatch.setattr(gltf, "MOST_TRIANGLES", 0)
    monkeypatch.setattr(gltf, "PLACING", 1000)
    copies = {"nodes": [{"mesh": 0}] * 20_000, "scenes": [{"nodes": list(range(20_000))}]}
    path = written(tmp_path, "copies.glb", glb({**tree, **copies}, data))
    begin = path.stat().st_size
    with pytest.raises(MeshError, match=f"places more than {begin} triangles or vertices"):
        load_mesh(path)
    many = [{"primitives": [{"attributes": {"POSITION": 0}}] * 5000}]
    with pytest.raises(MeshError, match="holds more than"):
        long = {"bufferViews": [{"buffer": 0, "byteLength": 120_000}], "buffers": [{"byteLength": 120_000}]}
        long["accessors"] = [{"bufferView": 0, "componentType": 5126, "count": 10_000, "type": "VEC3"}]
        load_mesh(written(tmp_path, "shared.glb", glb({**tree, **long, "meshes": many}, bytes(120_000))))


def test_primitives_without_triangles_ask_for_little(tmp_path):
    """Points, and UVs that fit no vertices, of an accessor that states many elements are counted, not read."""
    tree, data = triangle_tree()
    sparse = {"count": 1, "indices": {"bufferView": 1, "componentType": 5123}, "values": {"bufferView": 0}}
    large = {"componentType": 5126, "count": gltf.MOST_TRIANGLES, "sparse": sparse}
    tree["accessors"] += [{**large, "type": "VEC3"}, {**large, "type": "VEC2"}]
    own = tree["meshes"][0]["primitives"][0]
    points = {"attributes": {"POSITION": 2}, "mode": 0}
    begin = time.process_time()
    path = written(tmp_path, "a.glb", glb({**tree, "meshes": [{"primitives": [own] + [points] * 20_000}]}, data))
    assert len(load_mesh(path).faces) == 1
    wrong = {**own, "attributes": {"POSITION": 0, "TEXCOORD_0": 3}}
    path = written(tmp_path, "b.glb", glb({**tree, "meshes": [{"primitives": [wrong] * 1_000}]}, data))
    with pytest.warns(UserWarning, match="has 4194304 TEXCOORD_0 for 3 vertices"):
        assert len(load_mesh(path, appearance=True).faces) == 1_000
    assert time.process_time() - begin < 3.0  # measured: 0.5 s; reading takes 0.1 s each


def test_buffers_beside_the_file_and_nowhere_else(tmp_path):
    tree, data = triangle_tree()
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "a b.bin").write_bytes(data)
    (tmp_path.parent / "out.bin").write_bytes(data)
    os.mkfifo(tmp_path / "in" / "pipe")
    path = tmp_path / "in" / "a.gltf"

    def with_uri(uri):
        path.write_text(json.dumps({**tree, "buffers": [{"byteLength": len(data), "uri": uri}]}))
        return path

    encoded = base64.b64encode(data).decode()
    for uri in ("a%20b.bin", f"data:application/octet-stream;base64,{encoded}"):
        assert len(load_mesh(with_uri(uri)).faces) == 1
    (tmp_path / "link").symlink_to(tmp_path.parent / "out.bin")
    bad = {"../../out.bin": "outside", str(tmp_path / "in" / "a b.bin"): "outside", "../link": "outside"}
    bad |= {"pipe": "a pipe", "../in/pipe": "a pipe"}
    bad |= {"absent": "No such file", "": "folder", "a\0b": "null", "data:base64,AAAA": "truncated"}
    for uri, match in bad.items():
        with pytest.raises(MeshError, match=match):
            load_mesh(with_uri(uri))
    os.mkfifo(tmp_path / "pipe.obj")
    with pytest.raises(MeshError, match="a pipe"):
        load_mesh(tmp_path / "pipe.obj")


def sparse_tree(indices, values, dense=True, /, **changes):
    """glTF of one triangle whose positions are sparse."""
    tree, data = triangle_tree()
    begin = -(-len(data) // 4) * 4
    data = data.ljust(begin, b"\0") + indices.tobytes()
    data = data.ljust(-(-len(data) // 4) * 4, b"\0")
    kind = {"u1": 5121, "u2": 5123, "u4": 5125, "i2": 5122}[indices.dtype.str[1:]]
    views = [
        {"buffer": 0, "byteOffset": begin, "byteLength": indices.nbytes},
        {"buffer": 0, "byteOffset": len(data), "byteLength": values.nbytes},
    ]
    tree["bufferViews"] += views
    data += values.tobytes()
    tree["buffers"] = [{"byteLength": len(data)}]
    tree["accessors"][0]["sparse"] = {
        "count": len(indices), "indices": {"bufferView": 2, "componentType": kind}, "values": {"bufferView": 3},
        **changes,
    }  # fmt: skip
    if not dense:
        del tree["accessors"][0]["bufferView"]
    return glb(tree, data)


@pytest.mark.parametrize("kind", [np.uint8, np.uint16, np.uint32])
@pytest.mark.parametrize("dense", [True, False])
def test_sparse_accessors_replace_elements(tmp_path, kind, dense):
    """Without a buffer view the other elements are 0."""
    values = np.float32([[5, 0, 0], [0, 7, 0]])
    mesh = load_mesh(written(tmp_path, "a.glb", sparse_tree(np.array([1, 2], kind), values, dense)))
    np.testing.assert_array_equal(mesh.vertices[mesh.faces[0]], [[0, 0, 0], *values])


@pytest.mark.parametrize(
    ("indices", "changes", "message"),
    [
        ([1, 3], {}, "sparse POSITION accessor with index 3 of 3"), ([1, 2], {"count": 4}, "4 of 3 elements"),
        ([1, 2], {"count": 3}, "has a sparse POSITION accessor of"), ([1, 2], {"values": {}}, "not valid glTF"),
        ([1, 2], {"indices": {"bufferView": 2, "componentType": 5122}}, "indices of int16, expected unsigned"),
        ([1, 2], {"values": {"bufferView": 3, "byteOffset": 4}}, "has a sparse POSITION accessor of 28 bytes"),
    ],
)  # fmt: skip
def test_broken_sparse_accessors_are_named(tmp_path, indices, changes, message):
    data = sparse_tree(np.array(indices, np.uint16), np.float32([[5, 0, 0], [0, 7, 0]]), **changes)
    with pytest.raises(MeshError, match=message):
        load_mesh(written(tmp_path, "a.glb", data))


@pytest.mark.parametrize("suffix", [".glb", ".gltf"])
def test_points_alone_are_called_a_point_cloud(suffix, tmp_path):
    path = tmp_path / f"scan{suffix}"
    cloud = trimesh.Scene(trimesh.PointCloud(np.random.default_rng(0).random((7, 3))))
    if suffix == ".glb":
        path.write_bytes(cloud.export(file_type="glb"))
    else:
        for name, data in trimesh.exchange.gltf.export_gltf(cloud).items():
            (tmp_path / name).write_bytes(data)
        (tmp_path / "model.gltf").rename(path)
    with pytest.raises(MeshError, match=r"scan\.gl\S+: holds no triangles: its 7 points are a point cloud.*mesh it fi"):
        load_mesh(path)


# Objects of glTF files by the names of their nodes


def write(path, *names):
    """A GLB file of one box for each name, two metres apart."""
    scene = trimesh.Scene()
    for k, name in enumerate(names):
        box = trimesh.creation.box((1, 1, 1))
        scene.add_geometry(
            box, node_name=name, geom_name=f"g{k}", transform=trimesh.transformations.translation_matrix([2 * k, 0, 0])
        )
    scene.export(path)
    return path


def found(path):
    """Object id and category by the place of each box along x."""
    mesh = load_mesh(path)
    surface = mesh.surface
    place = np.round(mesh.vertices[mesh.faces].mean(1)[:, 0] / 2).astype(int)
    rows = zip(place, surface.object_id, surface.category, strict=True)
    return {int(k): (int(thing), surface.categories[row]) for k, thing, row in rows}


def test_names_of_nodes_tell_category_and_instance(tmp_path):
    path = write(tmp_path / "room.glb", "office chair_12", "walls", "tv_monitor_03", "office chair_4")
    assert found(path) == {0: (12, "office chair"), 1: (0, ""), 2: (3, "tv_monitor"), 3: (4, "office chair")}


def test_numbers_that_each_category_counts_alone_give_different_objects(tmp_path):
    """`chair_1` beside `bed_1`: ids in the order of the file; nodes of equal names are one object."""
    path = write(tmp_path / "room.glb", "bed_1", "floor", "chair_1", "chair_2", "bad_1")
    path.write_bytes(path.read_bytes().replace(b'"bad_1"', b'"bed_1"'))
    assert found(path) == {0: (1, "bed"), 1: (0, ""), 2: (2, "chair"), 3: (3, "chair"), 4: (1, "bed")}


@pytest.mark.parametrize("names", [("chunk_1", "chunk_2"), ("Cube", "Sphere"), ("a_0", "b_0")])
def test_other_names_tell_nothing(tmp_path, names):
    """A single category is a numbered part."""
    surface = load_mesh(write(tmp_path / "room.glb", *names)).surface
    assert surface is None or (surface.object_id is None and surface.category is None)
