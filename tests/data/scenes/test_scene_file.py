import json
import os
import time
import tracemalloc
import zlib

import numpy as np
import pytest
from safetensors import safe_open
from safetensors.numpy import load_file, save
from worlds import FLOOR, write_floor

from batchnav.bench.make_scans import photo
from batchnav.data.scenes import cached
from batchnav.data.scenes import prepared as prepare_module
from batchnav.data.scenes.asset import FileAxes
from batchnav.data.scenes.cached import cached_files, load_source
from batchnav.data.scenes.datasets import find_sources
from batchnav.data.scenes.load import load_all, load_scene
from batchnav.data.scenes.prepared import fingerprint, load_prepared, made_from, prepare, save_prepared
from batchnav.data.scenes.source import SceneSource, mesh_source
from batchnav.data.validate import validate
from batchnav.errors import MeshError, NavMeshError
from batchnav.navmesh.navmesh import NavMesh
from batchnav.navmesh.settings import NavMeshSettings
from batchnav.procedural import make_house
from batchnav.scene import scene as scenes
from batchnav.scene.blocks import compress
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


def test_compact_files_hold_the_same(tmp_path, source):
    """Bit for bit, with a mesh for ids; corners that differ in one bit stay apart."""
    scene = with_surface(source.load())
    look, again = scene.mesh.surface, (Texture(compress(photo(0, 64))), Texture(photo(1, 8)))
    uv = look.uv.copy()
    uv[0] = [[0.0, -0.0], [0.0, 0.0], [-0.0, 0.0]]
    look = look._replace(textures=again, uv=uv, object_id=look.object_id + 40_000)
    scene = scene._replace(mesh=scene.mesh._replace(surface=look), semantic=source.load())
    flat = one_triangle()
    scenes = [scene, scene_of(make_house(0, False)), scene._replace(mesh=flat, bvh=build_bvh(flat))]
    for whole in scenes:
        save_prepared(whole, tmp_path / "a.scene", compact=True)
        save_prepared(whole, tmp_path / "b.scene")
        found, expected = load_prepared(tmp_path / "a.scene"), load_prepared(tmp_path / "b.scene")
        for one, other in ((found, expected), (found.semantic, expected.semantic)):
            if other is None:
                assert one is None
                continue
            for part in (*BVH._fields, "vertices", "faces"):
                assert same(*(getattr(each.bvh if part in BVH._fields else each.mesh, part) for each in (one, other)))
            assert repr(one.mesh.surface and one.mesh.surface._replace(textures=())) == repr(
                other.mesh.surface and other.mesh.surface._replace(textures=())
            )
            for name in ("material", "uv", "color", "object_id", "category") if other.mesh.surface else ():
                first, second = (getattr(each.mesh.surface, name) for each in (one, other))
                assert (first is None) == (second is None) and (first is None or same(first, second))
            for texture, kept in zip(*((each.mesh.surface or look).textures for each in (one, other)), strict=True):
                first, second = (getattr(each.pixels, "words", each.pixels) for each in (texture, kept))
                assert same(first, second) and texture[1:] == kept[1:]
        bare = load_prepared(tmp_path / "a.scene", appearance=False)
        assert bare.mesh.surface is None and same(bare.mesh.faces, expected.mesh.faces)
    assert (tmp_path / "a.scene").stat().st_size < (tmp_path / "b.scene").stat().st_size


def scene_of(mesh):
    """A scene of a mesh, with the navmesh of another."""
    return Scene("house", mesh, NavMesh.bake(one_triangle()), build_bvh(mesh))


def one_triangle():
    return TriangleMesh(np.float32([[0, 0, 0], [0, 0, 4], [4, 0, 0]]), np.int32([[0, 1, 2]]))


@pytest.mark.parametrize(
    ("match", "change"),
    [
        ("tree: found bytes that are not a tree", lambda a: a.update(tree=a["tree"][:-1])),
        ("tree: found bytes that are not a tree", lambda a: a.update(tree=a["tree"][:-2])),
        ("tree: found bytes that are not a tree", lambda a: a["tree"].fill(0)),
        ("tree: found bytes that are not a tree", lambda a: a["tree"].fill(1)),
        ("tree: found bytes that are not a tree", lambda a: a["tree"].fill(7)),
        ("array 'tree': found int32", lambda a: a.update(tree=a["tree"].astype(np.int32))),
        ("corners: found a row out of range", lambda a: a["corners"].fill(9999)),
        ("corners: found a row out of range", lambda a: a["corners"].fill(-1)),
        ("corner_uv: found 1 rows", lambda a: a.update(corner_uv=a["corner_uv"][:1])),
        ("faces: found a vertex index out of range", lambda a: a["corner_vertex"].fill(9999)),
        ("order: found a face out of range or twice", lambda a: a["order"].fill(0)),
        ("order: found 1 rows", lambda a: a.update(order=a["order"][:1])),
        ("vertices: found a number that is not finite", lambda a: a["vertices"].fill(np.nan)),
        ("not a prepared scene", lambda a: a.pop("corner_vertex")),
    ],
)
def test_broken_compact_files_are_refused(tmp_path, source, match, change):
    save_prepared(with_surface(source.load()), tmp_path / "a.scene", compact=True)

    def changed(arrays, metadata):
        metadata.pop("sums")
        change(arrays)

    rewrite(tmp_path / "a.scene", changed)
    with pytest.raises(MeshError, match=match):
        load_prepared(tmp_path / "a.scene")


@pytest.fixture
def large_file(tmp_path, monkeypatch):
    """A mesh file that is cached, in a cache of its own."""
    monkeypatch.setattr(cached, "SMALLEST", 1)
    monkeypatch.setattr(cached, "cache_folder", lambda: tmp_path / "cache")
    monkeypatch.setattr(
        cached, "versioned_cache_folder", lambda kind, module: made_folder(tmp_path / "cache" / kind / "version")
    )
    path = write_floor(tmp_path / "floor.glb")
    settle(path)
    return path


def made_folder(path):
    path.mkdir(parents=True, exist_ok=True)
    return path


def settle(path, seconds=60):
    """Give a file a modification time in the past."""
    then = time.time_ns() - seconds * 10**9
    os.utime(path, ns=(then, then))


def test_a_second_load_comes_from_the_cache(large_file, monkeypatch):
    first = load_scene(large_file)
    assert len(cached_files()) == 1
    with monkeypatch.context() as patch:
        patch.setattr(SceneSource, "load", None)
        again, bare = load_scene(large_file), load_scene(large_file, appearance=False)
        assert again.name == first.name == "floor" and load_all([str(large_file)])[0].name == str(large_file)
        assert bare.mesh.surface is None and all(map(same, bare.bvh, first.bvh))
    small = load_scene(large_file, NavMeshSettings(agent_radius=0.3))
    assert small.navmesh.area < first.navmesh.area == again.navmesh.area
    larger = load_scene(large_file, scale=2.0)
    assert np.ptp(larger.mesh.vertices, 0) == pytest.approx(2.0 * np.ptp(first.mesh.vertices, 0))
    settle(large_file, 30)  # another content
    load_scene(large_file)
    assert len(cached_files()) == 4


def test_files_that_have_just_changed_are_not_cached(large_file):
    settle(large_file, 0)
    load_scene(large_file)
    assert not cached_files()


def test_warnings_are_repeated(large_file, caplog):
    """Those of the package's loggers and Python's."""

    def warned():
        caplog.clear()
        with pytest.warns(UserWarning, match="of its nodes have skins"):
            load_scene(large_file, flip=True)
        return [(record.name, record.getMessage()) for record in caplog.records]

    data = large_file.read_bytes()
    length = int.from_bytes(data[12:16], "little")
    tree = json.loads(data[20 : 20 + length])
    tree["skins"] = [{"joints": [0]}]
    next(node for node in tree["nodes"] if "mesh" in node)["skin"] = 0
    text = json.dumps(tree).encode()
    text += b" " * (-len(text) % 4)
    rest = data[20 + length :]
    head = data[:8] + (20 + len(text) + len(rest)).to_bytes(4, "little") + len(text).to_bytes(4, "little")
    large_file.write_bytes(head + data[16:20] + text + rest)
    settle(large_file)
    first = warned()
    assert cached_files() and warned() == first


def test_damaged_files_of_the_cache_are_made_again(large_file):
    expected = load_scene(large_file)
    (file,) = cached_files()
    file.write_bytes(b"")
    assert all(map(same, load_scene(large_file).bvh, expected.bvh)) and file.stat().st_size


def test_the_cache_keeps_the_newest_scenes(large_file, monkeypatch):
    load_scene(large_file)
    (first,) = cached_files()
    monkeypatch.setattr(cached, "MOST_BYTES", 2 * first.stat().st_size + 1000)
    settle(first, 10)
    others = []
    for scale in (2.0, 3.0):
        load_scene(large_file, scale=scale)
        others.append(next(file for file in cached_files() if file not in (first, *others)))
        settle(others[-1], 9)
    assert set(cached_files()) == set(others) and not first.exists()


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

    def killed(*arguments, **options):
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
