"""Fixtures that every test folder uses."""

import os
import shutil
import types
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

SHARED = Path(__file__).resolve().parents[2] / "shared"
"""Reference data on meshes of others, beside the checkout; most machines have none."""
ORACLE = Path(__file__).parent / "data" / "oracle"
"""Reference data on scenes of our own; tests/data/oracle/README.md says what it holds."""
NEEDS = {
    "cuda": ("a CUDA device", torch.cuda.is_available),
    "shared": (f"reference data in {SHARED}", SHARED.is_dir),
    "browser": ("Chromium", lambda: shutil.which("chromium") is not None),
}
"""Marks of tests that not every machine can run: what they need, and whether it is there."""


def pytest_collection_modifyitems(config, items):
    """Leave out the tests that cannot run here, so that none is reported as skipped; `pytest_terminal_summary` says so.

    A test needs ../shared where it is marked so or takes the fixture `shared`.
    """
    absent = {mark for mark, (_, is_there) in NEEDS.items() if not is_there()}
    left_out = [item for item in items if absent & ({mark.name for mark in item.iter_markers()} | {*item.fixturenames})]
    config.hook.pytest_deselected(items=left_out)
    items[:] = [item for item in items if item not in left_out]


def pytest_terminal_summary(terminalreporter):
    """Say which tests were left out."""
    for what, is_there in NEEDS.values():
        if not is_there():
            terminalreporter.write_line(f"left out: tests that need {what}")


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item, call):
    """In CI, whose machine has all that a test may ask for, a test that skips has failed."""
    report = yield
    if report.skipped and in_ci() and not hasattr(report, "wasxfail"):
        report.outcome, report.longrepr = "failed", f"skipped in CI: {call.excinfo.value}"
    return report


def in_ci() -> bool:
    """Whether tests run in CI."""
    return os.environ.get("CI", "").lower() == "true"


@pytest.fixture(scope="session")
def shared() -> Path:
    """The folder of reference data beside the checkout. Tests that take it run only where it is."""
    return SHARED


@pytest.fixture(scope="session")
def oracle() -> Callable[[str], Path]:
    """Finds a recorded file by name: on a scene of our own in the checkout, on others' meshes in ../shared.

    A case on others' meshes is marked `shared`.
    """
    return lambda name: ORACLE / name if (ORACLE / name).is_file() else SHARED / "oracle" / name


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
    """For tests that need OpenGL 4.5: they skip where there is none."""
    from batchnav.errors import DeviceError
    from batchnav.renderers.opengl.gl import open_context

    try:
        open_context(torch.device("cpu")).release()
    except DeviceError as error:
        pytest.skip(str(error))
