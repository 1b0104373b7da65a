"""Positions of bodies and cameras: kernels compile for the GPU, and positions off the navmesh are refused."""

import numpy as np
import pytest
import torch
from numba import typeof
from numba import types as nb

from batchnav.data.scenes.load import load_scene
from batchnav.errors import CheckpointError
from batchnav.scene.bank import SceneBank
from batchnav.sensors import camera
from batchnav.sensors.camera import CameraConfig, Mount
from batchnav.sensors.sensor import NoiseCounters
from batchnav.sim.simulator import check_positions, snap


@pytest.fixture(scope="module")
def bank():
    return SceneBank.pack([load_scene("house:3")])


def test_kernels_compile_for_the_gpu(bank, compile_ptx):
    points, floats = nb.Array(nb.float32, 2, "C"), nb.Array(nb.float32, 1, "C")
    scenes = nb.Array(nb.int32, 1, "C")
    assert ".entry" in compile_ptx(snap, typeof(bank.navmesh_view), scenes, points, points)
    mount = typeof(Mount.of(CameraConfig()))
    counters = nb.NamedTuple((nb.int64[::1],) * 2 + (nb.int32[::1],) * 2 + (nb.int64,), NoiseCounters)
    ptx = compile_ptx(camera.place_camera, points, floats, floats, counters, mount, points, *[floats] * 3)
    assert ".entry" in ptx and ".f64" not in ptx


@pytest.mark.parametrize("device", ["cpu", pytest.param("cuda", marks=pytest.mark.cuda)])
def test_a_position_off_the_navmesh_is_refused(device):
    scene = load_scene("house:3")
    bank = SceneBank.pack([scene], device)
    points = torch.from_numpy(scene.navmesh.sample(5, seed=0))
    scenes = torch.zeros(5, dtype=torch.int32)
    check_positions("position", bank, scenes, points, CheckpointError)
    points[3] += torch.from_numpy(np.float32([0.0, 5.0, 0.0]))
    with pytest.raises(CheckpointError, match=r"position\[3\].*'house:3'"):
        check_positions("position", bank, scenes, points, CheckpointError)
