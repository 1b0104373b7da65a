"""Fixtures that every test folder uses."""

import os
import types
from pathlib import Path

import pytest
import torch

SHARED = Path(__file__).resolve().parents[2] / "shared"


def pytest_collection_modifyitems(items):
    """Tests marked `cuda` need a device."""
    if not torch.cuda.is_available():
        skip = pytest.mark.skip(reason="no CUDA device")
        for item in items:
            if "cuda" in item.keywords:
                item.add_marker(skip)


@pytest.fixture(scope="session")
def shared() -> Path:
    """The folder of reference data beside the checkout; the test skips where it is absent (and fails in CI)."""
    if not SHARED.is_dir():
        pytest.skip("reference data is not there")
    return SHARED


@pytest.fixture
def compile_ptx(monkeypatch):
    """Compile a CUDA kernel to PTX on a machine with no GPU: compile_ptx(kernel, argument types...) -> text.

    For compute capability 9.0, or the one given as `capability`.
    """
    from numba import cuda
    from numba import types as nb
    from numba.cuda import dispatcher

    def compile_kernel(kernel, *argument_types, capability=(9, 0)) -> str:
        device = types.SimpleNamespace(compute_capability=capability)
        monkeypatch.setattr(dispatcher, "get_current_device", lambda: device)
        function, signature = getattr(kernel, "py_func", kernel), nb.void(*argument_types)
        ptx, _ = cuda.compile(function, signature, device=False, abi="numba", cc=capability, fastmath=True)
        return ptx

    return compile_kernel


@pytest.fixture(scope="session")
def opengl() -> None:
    """For tests that need OpenGL 4.5: they skip where there is none, and fail in CI, which installs Mesa's."""
    from batchnav.errors import DeviceError
    from batchnav.render.opengl.gl import open_context

    try:
        open_context(torch.device("cpu")).release()
    except DeviceError as error:
        if in_ci():
            pytest.fail(str(error))
        pytest.skip(str(error))


def in_ci() -> bool:
    """Whether tests run in CI, where what must be there may not be skipped."""
    return os.environ.get("CI", "").lower() == "true"
