"""All readers open regular files only, and turn the errors of libraries into errors of the package."""

import json
import os
import signal

import numpy as np
import pytest

import batchnav
from batchnav.config import load_config
from batchnav.data.episodes.episode_file import load_episodes
from batchnav.data.habitat.scene_dataset import SceneDatasetConfig
from batchnav.data.habitat.urdf import read_urdf
from batchnav.data.prepared.scene_file import load_prepared, made_from
from batchnav.data.procthor.houses import read_houses
from batchnav.data.sources.scene_source import read_asset
from batchnav.errors import BatchnavError, ConfigError
from batchnav.mapping.predictor import load_occupancy
from batchnav.report.charts import load_metrics
from batchnav.runtime.files.reading import read_array, read_regular, read_text
from batchnav.sensors.redwood import load_table
from batchnav.training.config import TrainingConfig
from batchnav.training.curves import rows_until

READERS = {
    "a.npy": load_table, "a.obj": batchnav.load_mesh, "a.scene": load_prepared, "a.navmesh": batchnav.NavMesh.load,
    "a.json.gz": load_episodes, "objects.json.gz": batchnav.load_objectnav,
    "instances.json.gz": batchnav.load_instance_imagenav, "policy.safetensors": batchnav.load_policy,
    "a.safetensors": load_occupancy,
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
