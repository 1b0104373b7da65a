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
    """Compile a CUDA kernel to sm_90 PTX on a machine with no GPU: compile_ptx(kernel, argument types...) -> text."""
    from numba import cuda
    from numba import types as nb
    from numba.cuda import dispatcher

    device = types.SimpleNamespace(compute_capability=(9, 0))
    monkeypatch.setattr(dispatcher, "get_current_device", lambda: device)

    def compile_kernel(kernel, *argument_types) -> str:
        function = getattr(kernel, "py_func", kernel)
        ptx, _ = cuda.compile(function, nb.void(*argument_types), device=False, abi="numba", cc=(9, 0), fastmath=True)
        return ptx

    return compile_kernel


def in_ci() -> bool:
    """Whether tests run in CI, where what must be there may not be skipped."""
    return os.environ.get("CI", "").lower() == "true"
