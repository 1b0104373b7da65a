"""Atomic file writes and folder locks."""

import fcntl
import json
import os
import signal
import subprocess
import sys
import warnings

import numpy as np
import pytest
import trimesh
from PIL import Image

import batchnav
from batchnav.config import load_config
from batchnav.data.formats import load_episodes
from batchnav.data.procthor import read_houses
from batchnav.data.scenes.prepared import load_prepared, made_from
from batchnav.data.scenes.scene_dataset import SceneDatasetConfig, read_urdf
from batchnav.data.scenes.source import read_asset
from batchnav.errors import BatchnavError, CheckpointError, ConfigError, MeshError
from batchnav.mapping.predictor import load_occupancy
from batchnav.report.charts import load_metrics
from batchnav.runtime import files as files
from batchnav.runtime.files import (
    check_target,
    check_writable,
    data_root,
    lock_folder,
    read_array,
    read_named_file,
    read_regular,
    read_text,
    remove_leftovers,
    replacing,
)
from batchnav.scene.mesh import load_mesh
from batchnav.sensors.detector import load_detector
from batchnav.sensors.noise import load_table
from batchnav.training.config import TrainingConfig
from batchnav.training.curves import rows_until


def test_unwritable_folders_are_detected_before_writing(tmp_path, monkeypatch):
    (tmp_path / "file").touch()
    for place in (tmp_path, tmp_path / "new" / "er"):
        check_writable(place, BatchnavError)
    for place in (tmp_path / "file", tmp_path / "file" / "new"):
        with pytest.raises(CheckpointError, match=rf"{place}: found a file at {tmp_path}/file, expected a folder"):
            check_writable(place, CheckpointError)
    monkeypatch.setattr(os, "access", lambda path, mode: path != tmp_path)
    with pytest.raises(CheckpointError, match=rf"new: cannot be written .no permission to write in {tmp_path}"):
        check_writable(tmp_path / "new", CheckpointError)
    assert not (tmp_path / "new").exists()


def test_unwritable_files_are_detected_before_writing(tmp_path):
    (tmp_path / "file").touch()
    for name in ("new", "file", "new/er"):
        check_target(tmp_path / name, BatchnavError)
    with pytest.raises(CheckpointError, match=rf"{tmp_path}: found a folder, expected a file; .* {tmp_path}/NAME"):
        check_target(tmp_path, CheckpointError)
    with pytest.raises(CheckpointError, match=rf"found a file at {tmp_path}/file, expected a folder"):
        check_target(tmp_path / "file" / "new", CheckpointError)


def test_replacement_is_atomic(tmp_path):
    path = tmp_path / "new" / "a.txt"
    with replacing(path, BatchnavError) as part:
        part.write_text("one")
    with pytest.raises(ZeroDivisionError), replacing(path, BatchnavError) as part:
        part.write_text("two")
        raise ZeroDivisionError
    with pytest.raises(CheckpointError, match=r"a\.txt: cannot be written"), replacing(path, CheckpointError) as part:
        pass  # nothing was written
    assert path.read_text() == "one" and [p.name for p in path.parent.iterdir()] == ["a.txt"]
    with (
        pytest.raises(BatchnavError, match="cannot be written"),
        replacing(tmp_path / "no" / "b", BatchnavError, make_folder=False) as part,
    ):
        part.write_text("three")
    assert not (tmp_path / "no").exists()


def test_two_writers_of_one_file_do_not_interfere(tmp_path):
    path = tmp_path / "a.txt"
    with replacing(path, BatchnavError) as first, replacing(path, BatchnavError) as second:
        assert first != second
        first.write_text("first")
        second.write_text("second")
    assert path.read_text() == "first"  # which ended last


def test_content_is_flushed_before_the_name(tmp_path, monkeypatch):
    path, seen = tmp_path / "a.txt", []
    sync, replace = os.fsync, os.replace

    def note_sync(handle):
        seen.append(os.path.basename(os.readlink(f"/proc/self/fd/{handle}")))
        sync(handle)

    def note_replace(source, target):
        seen.append("renamed")
        replace(source, target)

    monkeypatch.setattr(files.os, "fsync", note_sync)
    monkeypatch.setattr(files.os, "replace", note_replace)
    with replacing(path, BatchnavError) as part:
        part.write_text("x")
    assert seen == [part.name, "renamed", tmp_path.name]


def test_a_link_can_be_replaced(tmp_path):
    path = tmp_path / "link"
    with replacing(path, BatchnavError) as part:
        part.symlink_to("nowhere")
    assert path.is_symlink()


def test_only_a_files_own_leftovers_are_removed(tmp_path):
    for name in (".a.pt.01234567.part", ".a.pt.part", ".b.pt.01234567.part", "a.pt"):
        (tmp_path / name).touch()
    remove_leftovers(tmp_path / "a.pt")
    assert sorted(p.name for p in tmp_path.iterdir()) == [".a.pt.part", ".b.pt.01234567.part", "a.pt"]


def test_a_locked_folder_names_its_process(tmp_path):
    held = lock_folder(tmp_path, BatchnavError)
    assert json.loads((tmp_path / ".lock").read_text())["pid"] == os.getpid()
    with pytest.raises(CheckpointError, match=f"in use by process {os.getpid()} on .* since 20"):
        lock_folder(tmp_path, CheckpointError)
    (tmp_path / ".lock").write_text("{")
    with pytest.raises(CheckpointError, match="in use by another process"):
        lock_folder(tmp_path, CheckpointError)
    held.close()
    lock_folder(tmp_path, BatchnavError).close()


def test_without_file_locks_there_is_a_warning(tmp_path, monkeypatch, caplog):
    def refuse(*_):
        raise OSError(38, "Function not implemented")

    monkeypatch.setattr(fcntl, "flock", refuse)
    lock_folder(tmp_path, BatchnavError).close()
    assert "cannot be locked" in caplog.text


# A cache folder without space: the run goes on, and one warning says so

PROGRAM = """
import resource
import batchnav
from batchnav.runtime.kernels.decorators import cpu_kernel
import numpy as np
from numba import prange

from batchnav.cartpole import plain  # reads what the cache has of other modules

resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))  # every write ends in an OSError, as on a full disk


@cpu_kernel
def double(values, out):
    for i in prange(len(values)):
        out[i] = 2 * values[i]


values = np.arange(3)
double(values, values)
double(values.astype(np.int32), values.astype(np.int32))
print(values.tolist())
print(batchnav.load_scene("house:0").navmesh.num_polygons > 0)
mesh = batchnav.load_scene("house:0").mesh
from batchnav.scene.scene import bake_cached
print(bake_cached(mesh, "mesh", batchnav.NavMeshSettings()).num_polygons > 0)
"""


def test_a_full_disk_costs_a_warning(tmp_path):
    folder = tmp_path / "program"
    folder.mkdir()
    (folder / "program.py").write_text(PROGRAM)
    cache = tmp_path / "cache"
    kernels = os.environ.get("BATCHNAV_CACHE")
    if kernels:  # compiled kernels of the package are reused, houses are not
        cache.mkdir(mode=0o700)
        os.symlink(os.path.join(kernels, "kernels"), cache / "kernels")
    environment = {**os.environ, "BATCHNAV_CACHE": str(cache)}
    command = [sys.executable, str(folder / "program.py")]
    done = subprocess.run(command, capture_output=True, text=True, env=environment, check=False)
    assert done.stdout.split() == ["[0,", "2,", "4]", "True", "True"], done.stderr
    assert "cannot be written (File too large)" in done.stderr and "Traceback" not in done.stderr


# Names of files in mesh files: upwards within the data root, links, and files elsewhere

RED = (255, 0, 0, 255)
OBJ = "mtllib room.mtl\nusemtl red\nv 0 0 0\nv 1 0 0\nv 0 1 0\nvt 0 0\nvt 1 0\nvt 0 1\nf 1/1 2/2 3/3\n"


def write_picture(path):
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(np.full((4, 4, 4), RED, np.uint8)).save(path)
    return path


def write_gltf(path, image):
    """A triangle with a texture in a file, and a buffer in a file `scene.bin`."""
    path.parent.mkdir(parents=True, exist_ok=True)
    material = trimesh.visual.material.PBRMaterial(baseColorTexture=Image.new("RGB", (1, 1)))
    visual = trimesh.visual.TextureVisuals(uv=np.eye(3)[:, :2], material=material)
    mesh = trimesh.Trimesh(np.eye(3), [[0, 1, 2]], visual=visual, process=False)
    files = trimesh.Scene(mesh).export(file_type="gltf")
    for name, data in files.items():
        if name != "model.gltf":
            (path.parent / name).write_bytes(data)
    tree = json.loads(files["model.gltf"]) | {"images": [{"uri": image}]}
    path.write_text(json.dumps(tree))
    return path


def textures(path):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        return [texture.pixels[0, 0].tolist() for texture in load_mesh(path).surface.textures]


@pytest.mark.parametrize("name", ["../textures/red.png", "..\\textures\\red.png", "./../meshes/../textures/red.png"])
def test_textures_in_a_folder_next_to_the_meshes(tmp_path, name):
    write_picture(tmp_path / "textures" / "red.png")
    (tmp_path / "meshes").mkdir()
    (tmp_path / "meshes" / "room.obj").write_text(OBJ)
    (tmp_path / "meshes" / "room.mtl").write_text(f"newmtl red\nmap_Kd {name}\n")
    assert textures(tmp_path / "meshes" / "room.obj") == [list(RED)]
    gltf = write_gltf(tmp_path / "gltf" / "room.gltf", name.replace("\\", "%5C").replace("meshes", "gltf"))
    assert textures(gltf) == [list(RED)]


def test_a_library_in_a_folder_next_to_the_meshes(tmp_path):
    write_picture(tmp_path / "materials" / "red.png")
    (tmp_path / "meshes").mkdir()
    (tmp_path / "meshes" / "room.obj").write_text(OBJ.replace("room.mtl", "../materials/room.mtl"))
    (tmp_path / "materials" / "room.mtl").write_text("newmtl red\nmap_Kd red.png\n")
    assert textures(tmp_path / "meshes" / "room.obj") == [list(RED)]


def test_linked_files_of_a_cache(tmp_path):
    """As the Hugging Face Hub stores a dataset: names are links to files that are named by their content."""
    snapshot, blobs = tmp_path / "snapshots" / "abc", tmp_path / "blobs"
    blobs.mkdir()
    write_gltf(snapshot / "meshes" / "room.gltf", "../textures/red.png")
    write_picture(snapshot / "textures" / "red.png")
    for number, file in enumerate(sorted(p for p in snapshot.rglob("*") if p.is_file())):
        os.replace(file, blobs / str(number))
        file.symlink_to(os.path.relpath(blobs / str(number), file.parent))
    assert textures(snapshot / "meshes" / "room.gltf") == [list(RED)]
    assert data_root(snapshot / "meshes" / "room.gltf") == tmp_path


def test_names_may_climb_to_the_folder_of_data_sets(tmp_path):
    mesh = tmp_path / "scene_datasets" / "own" / "stages" / "a" / "room.glb"
    write_picture(tmp_path / "scene_datasets" / "textures" / "red.png")
    write_picture(tmp_path / "red.png")
    mesh.parent.mkdir(parents=True)
    assert read_named_file(mesh, "../../../textures/red.png", MeshError)
    with pytest.raises(MeshError, match=r"scene_datasets$"):
        read_named_file(mesh, "../../../../red.png", MeshError)


@pytest.mark.parametrize(
    "name", ["../../secret", "/etc/passwd", "../link", "../folder/secret", "in/../../../secret", "..\\..\\secret"]
)
def test_files_elsewhere_are_refused(tmp_path, name):
    """A name with `..` leads into the data root, whatever links do."""
    top = tmp_path / "top"
    (top / "in").mkdir(parents=True)
    (tmp_path / "secret").write_text("secret")
    (top / "link").symlink_to(tmp_path / "secret")
    (top / "folder").symlink_to(tmp_path)
    with pytest.raises(MeshError, match="lies outside the mesh file's data root, found"):
        read_named_file(top / "in" / "a.obj", name, MeshError)


# All readers open regular files only, and turn the errors of libraries into errors of the package

READERS = {
    "a.npy": load_table, "a.obj": batchnav.load_mesh, "a.scene": load_prepared, "a.navmesh": batchnav.NavMesh.load,
    "a.json.gz": load_episodes,
    "policy.safetensors": batchnav.load_policy,
    "a.safetensors": load_occupancy, "objects.safetensors": load_detector,
    "a.yaml": lambda path: load_config(path, TrainingConfig), "metrics.jsonl": load_metrics,
    "a.scene_dataset_config.json": SceneDatasetConfig, "a.stage_config.json": read_asset,
    "a.urdf": lambda path: read_urdf(path, {}), "houses.json": read_houses, "map.yaml": batchnav.load_scene,
}  # fmt: skip


@pytest.fixture
def _not_for_ever():
    """An opened pipe would wait for a writer until the whole test run is killed."""
    signal.signal(signal.SIGALRM, lambda *_: pytest.fail("the reader waits"))
    signal.alarm(60)
    yield
    signal.alarm(0)


@pytest.mark.usefixtures("_not_for_ever")
@pytest.mark.parametrize("name", READERS)
def test_pipes_devices_and_folders_are_refused(name, tmp_path):
    pipe, device, folder = (tmp_path / kind / name for kind in ("pipe", "device", "folder"))
    for path in (pipe, device, folder):
        path.parent.mkdir()
    os.mkfifo(pipe)
    device.symlink_to("/dev/zero")
    folder.mkdir()
    for path in (pipe, device, folder, tmp_path / name, tmp_path / ("x" * 5000 + name)):
        with pytest.raises(BatchnavError, match=r"\S"):
            list(READERS[name](path))


@pytest.mark.usefixtures("_not_for_ever")
def test_curves_and_prepared_scenes_in_the_place_of_a_pipe(tmp_path):
    os.mkfifo(tmp_path / "a")
    with pytest.raises(BatchnavError, match="a: is a folder, a pipe or a device, expected a file"):
        rows_until(tmp_path / "a", 10)
    assert made_from(tmp_path / "a") is None


def test_files_are_read_up_to_a_bound(tmp_path):
    path = tmp_path / "a"
    path.write_bytes(b"12345")
    assert read_regular(path, ConfigError, most=5) == b"12345" and read_text(path, ConfigError) == "12345"
    with pytest.raises(ConfigError, match="a: is too large, expected 4 bytes at most"):
        read_regular(path, ConfigError, most=4)
    path.write_bytes(b"12\xff")
    with pytest.raises(ConfigError, match="a: byte 2 is not UTF-8"):
        read_text(path, ConfigError)


@pytest.mark.parametrize("order", ["C", "F"])
def test_arrays_are_those_of_numpy(order, tmp_path):
    values = np.asarray(np.random.default_rng(0).random((3, 4, 5)), order=order)
    np.save(tmp_path / "a.npy", values)
    np.testing.assert_array_equal(read_array(tmp_path / "a.npy", ConfigError), values)


def npy(header: str, content: bytes = b"") -> bytes:
    """A `.npy` file of version 1."""
    text = header.encode() + b"\n"
    return b"\x93NUMPY\x01\x00" + len(text).to_bytes(2, "little") + text + content


@pytest.mark.parametrize(
    "data",
    [
        npy("{'descr': '<f8', 'fortran_order': False, 'shape': (1000000000000,), }"),
        npy("{'descr': '<f8', 'fortran_order': False, 'shape': (-1, -1), }", b"12345678"),
        npy("{'descr': '<f8', 'fortran_order': False, 'shape': (2,), }", b"12345678"),
        npy("{'descr': '<f8', 'fortran_order': False, 'shape': (((((((((("),
        npy("'" * 3),
        npy("{'descr': '" + "(" * 3000 + "', 'fortran_order': False, 'shape': (1,)}"),
        npy("{'descr': [('a', '<f8'), ('a', '<f8')], 'fortran_order': False, 'shape': ()}"),
        npy("{'descr': '|O', 'fortran_order': False, 'shape': (1,)}", b"12345678"),
        npy("x" * 20_000), b"PK\x03\x04" + b"\0" * 100, b"\x80\x04K\x01.", b"\x93NUMPY\x03\x00", b"\x93NUMPY", b"",
    ],
)  # fmt: skip
def test_headers_that_lie_are_refused(data, tmp_path):
    path = tmp_path / "a.npy"
    path.write_bytes(data)
    with pytest.raises(ConfigError, match=r"redwood_table: .*a\.npy: cannot be read as a \.npy file"):
        load_table(path)


@pytest.mark.parametrize(
    "row",
    [
        {"frames": -5, "spl": 0.5}, {"frames": 10**400}, {"frames": float("inf")}, {"frames": 1, "eval": 3},
        {"frames": float("nan")},
    ],
)  # fmt: skip
def test_rows_without_a_possible_step_are_named(row, tmp_path):
    path = tmp_path / "metrics.jsonl"
    path.write_text(json.dumps(row) + "\n" + '{"frames": 3}\n')
    with pytest.raises(BatchnavError, match=r"metrics\.jsonl, line 1: found .* expected an object with 'frames', a st"):
        load_metrics(path)
