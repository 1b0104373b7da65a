"""Matching of EGL devices and CUDA devices."""

import subprocess
import sys
from types import SimpleNamespace

import pytest
import torch

from batchnav.errors import DeviceError
from batchnav.renderers.opengl import gl
from batchnav.renderers.opengl.gl import EGLDevice, cuda_match

UUID = "0123456789abcdef0123456789abcdef"
DASHED = "01234567-89ab-cdef-0123-456789abcdef"


@pytest.mark.parametrize(
    ("devices", "visible", "index"),
    [
        ([EGLDevice(0, "", "", -1), EGLDevice(1, "", UUID, -1)], "", 1),
        ([EGLDevice(0, "", "", 1), EGLDevice(1, "", "", 0)], "", 1),
        ([EGLDevice(0, "", "", 1), EGLDevice(1, "", "", 0)], "1,0", 0),
        ([EGLDevice(0, "", "", 1), EGLDevice(1, "", "", 0)], "GPU-01234567", 1),
        ([EGLDevice(0, "", "", -1)], "", None),
    ],
)
def test_an_egl_device_is_known_by_uuid_or_ordinal(monkeypatch, devices, visible, index):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda i: SimpleNamespace(uuid=DASHED))
    match = cuda_match(0, devices)
    assert match is None if index is None else match.index == index


def test_a_gpu_without_egl_is_an_error(monkeypatch):
    monkeypatch.setattr(gl, "egl_devices", lambda: [EGLDevice(0, "Mesa on the CPU", "", -1)])
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda i: SimpleNamespace(uuid=DASHED))
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda device: "NVIDIA H200")
    with pytest.raises(
        DeviceError, match="found Mesa on the CPU among EGL's devices, expected NVIDIA H200; install the driver's EGL"
    ):
        gl.open_context(torch.device("cuda", 0))


OPTIMISER_AFTER_OPENGL = """
import torch
from batchnav.renderers.opengl.gl import open_context

context = open_context(torch.device("cpu"))
weight = torch.nn.Parameter(torch.ones(2))
optimiser = torch.optim.SGD([weight], lr=0.5)
weight.sum().backward()
optimiser.step()
print(weight.tolist())
"""


def test_training_goes_on_after_a_context_is_open(opengl):
    """In a new process: a crash ends it. PyTorch's CUDA builds import Triton when an optimiser is made."""
    done = subprocess.run([sys.executable, "-c", OPTIMISER_AFTER_OPENGL], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert done.stdout == "[0.5, 0.5]\n"
