import json
import os
import tracemalloc
import zlib

import numpy as np
import pytest
from safetensors import safe_open
from safetensors.numpy import load_file, save
from worlds import FLOOR, write_floor

from batchnav.data.scenes import prepared as prepare_module
from batchnav.data.scenes.asset import FileAxes
from batchnav.data.scenes.datasets import find_sources
from batchnav.data.scenes.load import load_all, load_scene
from batchnav.data.scenes.prepared import fingerprint, load_prepared, load_source, made_from, prepare, save_prepared
from batchnav.data.scenes.source import mesh_source
from batchnav.data.validate import validate
from batchnav.errors import MeshError, NavMeshError
from batchnav.navmesh.navmesh import NavMesh
from batchnav.scene import scene as scenes
from batchnav.scene.bvh import BVH, build_bvh
from batchnav.scene.scene import Scene
from batchnav.types import Material, Surface, Texture, TriangleMesh


@pytest.fixture
def source(tmp_path):
    return mesh_source(write_floor(tmp_path / "floor.ply"))


def same(a, b):
    """Two arrays bit for bit: links in nodes are integers, which as floats may be NaN."""
    return a.dtype == b.dtype and a.shape == b.shape and a.tobytes() == b.tobytes()


def test_round_trip(tmp_path, source):
    scene = source.load()
    save_prepared(scene, tmp_path / "a.scene", "so")
    loaded = load_prepared(tmp_path / "a.scene")
    assert loaded.name == scene.name and loaded.mesh.num_dropped == scene.mesh.num_dropped
    for part in ("vertices", "faces"):
        assert same(getattr(loaded.mesh, part), getattr(scene.mesh, part))
    for part in BVH._fields:
        assert same(getattr(loaded.bvh, part), getattr(scene.bvh, part))
    assert loaded.navmesh.area == scene.navmesh.area and loaded.navmesh.settings == scene.navmesh.settings
    assert made_from(tmp_path / "a.scene") == "so"
    assert [file.name for file in tmp_path.glob("*.scene")] == ["a.scene"]
    assert load_all([str(tmp_path / "a.scene")])[0].name == str(tmp_path / "a.scene")


def with_surface(scene):
    """Two textures of one picture, and all that a surface may have."""
    count, pixels = len(scene.mesh.faces), np.arange(48, dtype=np.uint8).reshape(3, 4, 4)
    textures = (Texture(pixels), Texture(pixels, ("clamp", "mirror"), "nearest", "nearest_mipmap_linear"))
    draw = np.random.default_rng(0)
    look = Surface(
        np.arange(count, dtype=np.int32) % 2, (Material((0.1, 0.2, 0.3, 0.4), 1), Material(texture=0)), textures,
        draw.random((count, 3, 2), np.float32), draw.integers(0, 256, (count, 3, 4), np.uint8),
        np.arange(count, dtype=np.int32), np.arange(count, dtype=np.int32) % 2, ("", "f\u00e4cher"),
    )  # fmt: skip
    return scene._replace(mesh=scene.mesh._replace(surface=look))


def test_surfaces_are_kept_and_left_in_the_file_where_depth_is_enough(tmp_path, source):
    scene = with_surface(source.load())
    save_prepared(scene, tmp_path / "a.scene")
    kept, found = scene.mesh.surface, load_prepared(tmp_path / "a.scene").mesh.surface
    for name in ("material", "uv", "color", "object_id", "category"):
        assert same(getattr(found, name), getattr(kept, name))
    assert found.materials == kept.materials and found.categories == kept.categories
    assert [texture[1:] for texture in found.textures] == [texture[1:] for texture in kept.textures]
    assert found.textures[0].pixels is found.textures[1].pixels and same(found.textures[0].pixels, kept.textures[0][0])
    assert load_prepared(tmp_path / "a.scene", appearance=False).mesh.surface is None
    assert load_scene(str(tmp_path / "a.scene"), appearance=False).mesh.surface is None
    bytes_ = (tmp_path / "a.scene").read_bytes()
    save_prepared(load_prepared(tmp_path / "a.scene"), tmp_path / "b.scene")
    assert (tmp_path / "b.scene").read_bytes() == bytes_


@pytest.mark.parametrize(
    ("match", "change"),
    [
        ("surface.material: found row 7", lambda a, m: a["material"].fill(7)),
        ("surface.uv: found", lambda a, m: a.update(uv=a["uv"][:1])),
        ("surface.textures.0..pixels", lambda a, m: a.update(texture_0=a["texture_0"][:0])),
        ("not a prepared scene", lambda a, m: a.pop("texture_0")),
        ("not a prepared scene", lambda a, m: m.pop("surface")),
        ("not a prepared scene", lambda a, m: m.update(surface="[]")),
        ("not a prepared scene", lambda a, m: m.update(surface="{")),
        (r"materials.0..color: found", lambda a, m: m.update(surface=m["surface"].replace("0.1,", '"x",'))),
        (r"materials.0..color: found", lambda a, m: m.update(surface=m["surface"].replace("0.1,", "NaN,"))),
        (r"materials.0..texture: found", lambda a, m: m.update(surface=m["surface"].replace("0.4], 1", "0.4], [1]"))),
        (r"textures.1..wrap: found", lambda a, m: m.update(surface=m["surface"].replace('"clamp", ', ""))),
        ("surface.categories", lambda a, m: m.update(surface=m["surface"].replace('[""', "[0"))),
    ],
)
def test_broken_surfaces_are_refused(tmp_path, source, match, change):
    save_prepared(with_surface(source.load()), tmp_path / "a.scene")

    def both(arrays, metadata):
        metadata.pop("sums")
        change(arrays, metadata)

    rewrite(tmp_path / "a.scene", both)
    with pytest.raises(MeshError, match=match):
        load_prepared(tmp_path / "a.scene")


def test_two_preparations_of_one_scene_have_equal_bytes(tmp_path, source):
    for name in "abcdefgh":  # metadata in a random order would be equal now and then
        save_prepared(source.load(), tmp_path / name, "so")
    assert len({(tmp_path / name).read_bytes() for name in "abcdefgh"}) == 1


def test_prepared_scenes_are_found_while_they_are_up_to_date(source):
    (first,) = prepare([source])
    assert not first.problem and not first.fresh and first.path == source.prepared
    assert prepare([source])[0].fresh
    marked = load_prepared(source.prepared)._replace(name="marked")
    save_prepared(marked._replace(mesh=marked.mesh._replace(num_dropped=7)), source.prepared, fingerprint(source))
    assert load_source(source).mesh.num_dropped == 7 and load_source(source).name == source.name
    assert load_scene(str(source.parts[0].asset.path)).mesh.num_dropped == 7
    os.utime(source.parts[0].asset.path, (1, 1))
    assert load_source(source).mesh.num_dropped == 0  # the mesh file is another one now
    assert not prepare([source])[0].fresh


def test_out_of_place(tmp_path, source):
    (outcome,) = prepare([source], tmp_path / "out")
    assert outcome.path == tmp_path / "out" / "floor.scene"
    assert sorted(file.name for file in (tmp_path / "out").iterdir()) == ["floor.navmesh", "floor.scene"]


def test_a_navmesh_that_went_missing_comes_back(tmp_path, source, monkeypatch):
    """And one that was written before its scene came to be is no reason to take that for ready."""

    def killed(*arguments):
        raise MeshError("killed here")

    out = tmp_path / "out"
    monkeypatch.setattr(prepare_module, "save_prepared", killed)
    assert prepare([source], out)[0].problem and [file.name for file in out.iterdir()] == ["floor.navmesh"]
    monkeypatch.undo()
    assert not prepare([source], out)[0].fresh and prepare([source], out)[0].fresh
    (out / "floor.navmesh").unlink()
    assert not prepare([source], out)[0].fresh and (out / "floor.navmesh").is_file()


def test_which_way_is_up_is_one_rule(tmp_path):
    """A folder of one's own is +Y up, of Habitat's +Z; and the outcome says so."""
    for folder, up in (("mine", "y"), ("scene_datasets/gibson", "z")):
        write_floor(tmp_path / folder / "a.glb", up)
        (outcome,) = prepare(find_sources(tmp_path / folder))
        assert outcome.z_up == (up == "z")
        assert np.ptp(load_prepared(outcome.path).mesh.vertices, axis=0)[1] == pytest.approx(FLOOR[1])
    with pytest.raises(MeshError, match="found no mesh files"):
        find_sources(tmp_path, frame=FileAxes())


def test_many_in_processes_and_a_broken_one_stops_no_other(tmp_path):
    sources = [mesh_source(write_floor(tmp_path / f"{k}.ply")) for k in range(3)]
    (tmp_path / "1.ply").write_bytes(b"ply")
    outcomes = prepare(sources)
    assert [bool(outcome.problem) for outcome in outcomes] == [False, True, False]
    assert "1.ply" in outcomes[1].problem and not outcomes[1].path.exists()
    assert [outcome.fresh for outcome in prepare(sources)] == [True, False, True]


def test_damaged_files_are_named(tmp_path, source):
    path = tmp_path / "a.scene"
    save_prepared(source.load(), path)
    data = bytearray(path.read_bytes())
    data[-100] ^= 1
    path.write_bytes(bytes(data))
    with pytest.raises(MeshError, match=r"a\.scene: array .* is damaged"):
        load_prepared(path)
    path.write_bytes(b"")
    with pytest.raises(MeshError, match=r"a\.scene"):
        load_prepared(path)
    assert made_from(path) is None
    with pytest.raises(MeshError, match="cannot be read"):
        load_prepared(tmp_path / "absent.scene")


def rewrite(path, change):
    """A prepared scene with other arrays or metadata, its check sums right again."""
    arrays = load_file(path)
    with safe_open(path, framework="np") as file:
        metadata = file.metadata()
    change(arrays, metadata)
    sums = {name: zlib.crc32(np.ascontiguousarray(array)) for name, array in arrays.items()}
    path.write_bytes(save(arrays, {"sums": json.dumps(sums), **metadata}))


def test_right_sums_around_wrong_contents_are_refused(tmp_path, source):
    path = tmp_path / "a.scene"
    scene = source.load()

    def refused(match, change):
        save_prepared(scene, path)
        rewrite(path, change)
        with pytest.raises((MeshError, NavMeshError), match=match) as caught:
            load_prepared(path)
        assert "a.scene" in str(caught.value)
        assert [finding.level for finding in validate(path)] == ["error"]

    def keep_sums(arrays, metadata):
        metadata.pop("sums")

    def child_out(arrays, metadata):
        keep_sums(arrays, metadata)
        arrays["nodes"].view(np.int32)[0, 12] = 10**6

    def face_out(arrays, metadata):
        keep_sums(arrays, metadata)
        arrays["faces"][0, 0] = 10**6

    refused("nodes: .*later row", child_out)
    refused("faces: .*vertex index", face_out)
    refused("navmesh|magic", lambda arrays, metadata: (keep_sums(arrays, metadata), arrays["navmesh"].fill(0)))
    for key, value in (
        ("sums", "[" * 50_000), ("sums", "[]"), ("dropped", "9" * 5000), ("dropped", "-1"), ("name", None),
    ):  # fmt: skip
        refused("is not a prepared scene", lambda arrays, metadata, key=key, value=value: (
            metadata.pop(key) if value is None else metadata.update({key: value})
        ))  # fmt: skip


def test_a_file_that_does_not_say_what_it_was_made_from_is_made_again(tmp_path, source):
    save_prepared(source.load(), source.prepared, fingerprint(source))
    rewrite(source.prepared, lambda arrays, metadata: (metadata.pop("made_from"), metadata.pop("sums")))
    assert made_from(source.prepared) is None
    assert not prepare([source])[0].fresh and prepare([source])[0].fresh


def test_a_large_scene_is_mapped_and_nothing_is_made_again(tmp_path, source, monkeypatch):
    ticks = np.arange(400, dtype=np.float32)
    x, z = (part.ravel() for part in np.meshgrid(ticks, ticks))
    first = (np.arange(399)[:, None] * 400 + np.arange(399)).ravel()
    faces = np.concatenate([np.stack([first, first + 400, first + b], 1) for b in (401, 1)]).astype(np.int32)
    mesh = TriangleMesh(np.stack([x, 0 * x, z], 1), faces)
    path = tmp_path / "large.scene"
    save_prepared(Scene("large", mesh, source.load().navmesh, build_bvh(mesh)), path)
    monkeypatch.delattr(NavMesh, "bake")
    monkeypatch.delattr(scenes, "build_bvh")
    tracemalloc.start()
    try:
        loaded = load_prepared(path)
        taken = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert not any(part.flags.owndata for part in (*loaded.mesh[:2], *loaded.bvh))
    # What is kept is the navmesh; checks may look at a part of the file at a time.
    assert taken[0] < 2**20 and taken[1] < path.stat().st_size / 2


def test_errors_name_the_file_that_cannot_be_written(tmp_path, source):
    """Not the temporary one."""
    for name in ("floor.navmesh", "floor.scene"):
        out = tmp_path / f"without {name}"
        (out / name / "in the way").mkdir(parents=True)
        (outcome,) = prepare([source], out)
        assert outcome.problem.startswith(f"{out / name}: cannot be written (")
        assert not list(out.glob(".*"))
