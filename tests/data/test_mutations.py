"""Broken files of every kind give a BatchnavError or load; none crashes, hangs, or takes much memory."""

import contextlib
import gzip
import json
import os
import sys
import tracemalloc

import numpy as np
import pytest
from worlds import episodes_on, write_box, write_floor, write_json

from batchnav.data.episodes import load_episodes, save_episodes
from batchnav.data.prepared import load_prepared, save_prepared
from batchnav.data.procthor import make_procthor_house, read_houses
from batchnav.data.scene_dataset import SceneDatasetConfig
from batchnav.data.scenes import find_scene
from batchnav.data.source import mesh_source
from batchnav.data.urdf import read_urdf
from batchnav.errors import BatchnavError
from batchnav.navmesh.navmesh import NavMesh
from batchnav.scene.mesh import load_mesh

COUNT = int(os.environ.get("BATCHNAV_MUTATIONS", "150"))
"""Mutations of each kind of file."""
CALLS_PER_BYTE, SPARE_CALLS = 10, 20_000
"""A file may take so many calls of functions."""
SPARE_BYTES = 100 * 2**20
"""A file may take ten times its size and this."""
WORDS = [b"\xff\xff\xff\x7f", b"\xff\xff\xff\xff", b"\0\0\0\x80", b"\0\0\xc0\x7f", b"\0\0\x80\x7f", b"\0\0\0\0"]
"""Huge and negative counts, NaN, infinity, nothing."""
TOKENS = [b"NaN", b"1e999", b"-1", b"null", b"[]", b"{}", b'"x"', b"99999999999999999999", b"1e38", b"../../..", b"*"]


def mutate(data: bytes, draw: np.random.Generator) -> bytes:
    """A file with a few bits, words or tokens changed, a part repeated or cut out, or its end cut off."""
    broken = bytearray(data)
    for _ in range(draw.integers(1, 4)):
        at, kind = int(draw.integers(len(broken) or 1)), draw.integers(6)
        end = at + int(draw.integers(1, 40))
        if kind == 0 and broken:
            broken[at] ^= 1 << int(draw.integers(8))
        elif kind == 1:
            broken[at // 4 * 4 : at // 4 * 4 + 4] = WORDS[draw.integers(len(WORDS))]
        elif kind == 2:
            broken[at:end] = TOKENS[draw.integers(len(TOKENS))]
        elif kind == 3:
            broken[at:at] = broken[at:end]
        elif kind == 4:
            del broken[at:end]
        elif draw.integers(3) == 0:
            del broken[at:]
    return bytes(broken)


def a_navmesh(folder):
    path = folder / "a.navmesh"
    NavMesh.bake(load_mesh(write_floor(folder / "floor.ply"))).save(path)
    return path, lambda: NavMesh.load(path).geodesic_distance(np.zeros((1, 3)), np.ones((1, 3)))


def a_glb(folder):
    path = write_floor(folder / "a.glb")
    return path, lambda: load_mesh(path)


def episodes(folder):
    path = folder / "a.json.gz"
    save_episodes(episodes_on("gibson/Adrian.glb"), path)
    return path, lambda: load_episodes(path)


def a_prepared_scene(folder):
    path = folder / "a.scene"
    save_prepared(mesh_source(write_floor(folder / "floor.ply")).load(), path)
    return path, lambda: load_prepared(path)


def a_dataset(folder):
    """Stage, object, scene instance; returns a function that makes their data set's scene."""
    write_floor(folder / "stages" / "floor.ply")
    write_json(folder / "stages" / "floor.stage_config.json", {"render_asset": "floor.ply", "scale": [1, 1, 1]})
    write_box(folder / "objects" / "cube.ply", [0, 0, 0], [1, 1, 1])
    write_json(folder / "objects" / "cube.object_config.json", {"render_asset": "cube.ply", "up": [0, 1, 0]})
    row = {"template_name": "cube", "rotation": [1, 0, 0, 0], "translation": [0, 1, 0], "uniform_scale": 1.5}
    instance = {"stage_instance": {"template_name": "floor"}, "object_instances": [row]}
    write_json(folder / "scenes" / "flat.scene_instance.json", instance)
    sections = {"stages": "stages", "objects": "objects", "scene_instances": "scenes"}
    config = {key: {"paths": {".json": [value]}} for key, value in sections.items()}
    path = write_json(folder / "own.scene_dataset_config.json", {**config, "navmesh_instances": {"a": "b"}})
    return path, lambda: SceneDatasetConfig(path).source("flat").load_mesh()


def a_stage_config(folder):
    return folder / "stages" / "floor.stage_config.json", a_dataset(folder)[1]


def an_object_config(folder):
    return folder / "objects" / "cube.object_config.json", a_dataset(folder)[1]


def a_scene_instance(folder):
    return folder / "scenes" / "flat.scene_instance.json", a_dataset(folder)[1]


def a_urdf(folder):
    path = folder / "a.urdf"
    path.write_text(
        '<robot><link name="a"/><link name="b"><visual><origin xyz="1 2 3" rpy="0 1 0"/><geometry><mesh filename="b"'
        ' scale="1 1 1"/></geometry></visual></link><joint name="j" type="revolute"><parent link="a"/><child link="b"/>'
        '<axis xyz="0 0 1"/></joint></robot>'
    )
    return path, lambda: read_urdf(path, {"j": 0.5})


def a_house(folder):
    corners = [{"x": x, "y": 0, "z": z} for x, z in ((0, 0), (0, 4), (4, 4), (4, 0))]
    wall = {"id": "w", "polygon": [*corners[:2], *({**corner, "y": 2.5} for corner in corners[:2])]}
    hole = [{"x": 1, "y": 0, "z": 0}, {"x": 2, "y": 2, "z": 0}]
    door = {"wall0": "w", "wall1": "w", "holePolygon": hole, "openable": True, "openness": 1}
    item = {
        "assetId": "Cup",
        "position": {"x": 1, "y": 1, "z": 1},
        "rotation": {"x": 0, "y": 30, "z": 0},
        "children": [],
    }
    house = {"rooms": [{"floorPolygon": corners}], "walls": [wall], "doors": [door], "objects": [item]}
    path = write_json(folder / "a.json", house)
    return path, lambda: [make_procthor_house(house, {"Cup": [0.1, 0.1, 0.1]}) for house in read_houses(path)]


KINDS = (
    a_navmesh, a_glb, episodes, a_prepared_scene, a_dataset, a_stage_config, an_object_config, a_scene_instance, a_urdf,
    a_house,
)  # fmt: skip


@contextlib.contextmanager
def counted_calls():
    """Gives an array that grows by a byte with each call of a function, of Python's or of a library's in C."""
    calls = bytearray()
    sys.setprofile(lambda frame, event, value: calls.append(0) if event in ("call", "c_call") else None)
    try:
        yield calls
    finally:
        sys.setprofile(None)


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
def test_mutated_files(kind, tmp_path):
    path, use = kind(tmp_path)
    use()
    good = path.read_bytes()
    zipped = good[:2] == b"\x1f\x8b"
    draw = np.random.default_rng(0)
    tracemalloc.start()
    try:
        for i in range(COUNT):
            # Of a gzip file most mutations are within, else none would get past its check sum.
            data = gzip.compress(mutate(gzip.decompress(good), draw)) if zipped and i % 4 else mutate(good, draw)
            path.write_bytes(data)
            tracemalloc.reset_peak()
            before = tracemalloc.get_traced_memory()[0]
            with contextlib.suppress(BatchnavError), np.errstate(all="ignore"), counted_calls() as calls:
                use()
            assert tracemalloc.get_traced_memory()[1] - before <= 10 * len(data) + SPARE_BYTES, i
            assert len(calls) <= CALLS_PER_BYTE * len(data) + SPARE_CALLS, i
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("name", ["x" * 5000, "a\0b", "/", "", ".", "../../.."])
def test_names_that_are_no_names(name, tmp_path):
    """Names in files may be anything; what uses them says that there is no such file."""
    save_episodes(episodes_on(name or "x", scene_dataset_config="default"), tmp_path / "e.json.gz")
    with pytest.raises(BatchnavError):
        find_scene(load_episodes(tmp_path / "e.json.gz")[0].scene, tmp_path / "scenes")
    path, use = a_dataset(tmp_path)
    config = json.loads(path.read_text())
    for section in ("stages", "objects", "scene_instances"):
        write_json(path, config | {section: {"paths": {".json": [name]}}, "navmesh_instances": {"flat": name}})
        with contextlib.suppress(BatchnavError):
            use()
    write_json(path, config)
    for file, field in (("stages/floor.stage_config", "render_asset"), ("objects/cube.object_config", "render_asset")):
        write_json(tmp_path / f"{file}.json", {field: name})
    row = {"template_name": name, "uniform_scale": 1}
    write_json(tmp_path / "scenes/flat.scene_instance.json", {"stage_instance": row, "object_instances": [row]})
    with pytest.raises(BatchnavError):
        use()
    write_json(path, {"episodes": [], "content_scenes_path": f"{name}/{{scene}}.json.gz"})
    (tmp_path / "e.json.gz").write_bytes(gzip.compress(path.read_bytes()))
    with pytest.raises(BatchnavError):
        load_episodes(tmp_path / "e.json.gz")


def test_deep_json_is_refused(tmp_path):
    deep = "[" * 100_000
    (tmp_path / "a.json.gz").write_bytes(gzip.compress(deep.encode()))
    with pytest.raises(BatchnavError, match="does not hold JSON"):
        load_episodes(tmp_path / "a.json.gz")
    (tmp_path / "a.scene_dataset_config.json").write_text(deep)
    with pytest.raises(BatchnavError, match="does not hold JSON"):
        SceneDatasetConfig(tmp_path / "a.scene_dataset_config.json")
    item = {"assetId": "Cup", "position": {"x": 1, "y": 1, "z": 1}, "rotation": {"y": 0}}
    for _ in range(50):
        item = {**item, "children": [item]}
    path, _ = a_house(tmp_path)
    house = json.loads(path.read_text()) | {"objects": [item]}
    with pytest.raises(BatchnavError, match="nested"):
        make_procthor_house(house, {})
