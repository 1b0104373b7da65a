"""Fixtures of all test folders, and the rules about tests that a machine cannot run."""

import gc
import lzma
import os
import shutil
import types
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest

# Threads that wait for work sleep: several processes share the cores, and spinning threads would take their time.
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")  # read when OpenMP is loaded, so before PyTorch
# The processes of pytest-xdist, and those that tests start, share the cores: threads that wait for one another on busy
# cores take several times as long as one.
os.environ.setdefault(
    "OMP_NUM_THREADS", str(max(1, (os.cpu_count() or 1) // int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", "1"))))
)

import torch

SHARED = Path(__file__).resolve().parents[2] / "shared"
"""Reference data on third-party meshes, next to the checkout; most machines do not have it."""
ORACLE = Path(__file__).parent / "data" / "oracle"
"""Reference data on batchnav's scenes; tests/data/oracle/README.md describes it."""
THREADS = torch.get_num_threads()
"""Most threads of PyTorch."""
NEEDS = {
    "cuda": ("a CUDA device", torch.cuda.is_available),
    "shared": (f"reference data in {SHARED}", SHARED.is_dir),
    "browser": ("Chromium", lambda: shutil.which("chromium") is not None),
}
"""Marks of tests with requirements: the requirement, and a function that returns True if the machine meets it."""


def pytest_collection_modifyitems(config, items):
    """Deselect the tests that cannot run here, so that none is skipped; `pytest_terminal_summary` lists the reasons.

    A test needs ../shared if it has the mark or takes the fixture `shared`.
    """
    absent = {mark for mark, (_, is_there) in NEEDS.items() if not is_there()}
    left_out = [item for item in items if absent & ({mark.name for mark in item.iter_markers()} | {*item.fixturenames})]
    config.hook.pytest_deselected(items=left_out)
    items[:] = [item for item in items if item not in left_out]
    if hasattr(config, "workerinput"):
        items.sort(key=longest_file_first(items))


def longest_file_first(items) -> Callable[[pytest.Item], tuple]:
    """Key that sorts tests by file: files with slow tests first, then by the number of tests.

    pytest-xdist starts files in this order. A long file that starts last would run while other cores are idle.
    """
    slow, number = Counter(), Counter()
    for item in items:
        number[item.path] += 1
        slow[item.path] += item.get_closest_marker("slow") is not None
    return lambda item: (not slow[item.path], -number[item.path], str(item.path))


def pytest_collection_finish(session):
    """Leave modules and tests out of later garbage collections, which would visit their millions of objects."""
    gc.collect()
    gc.freeze()


def pytest_terminal_summary(terminalreporter):
    """Print the reasons of deselected tests."""
    for what, is_there in NEEDS.values():
        if not is_there():
            terminalreporter.write_line(f"left out: tests that need {what}")


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item):
    """Seed PyTorch before a test's fixtures, so that its networks do not depend on the tests that ran before it.

    Limit its threads too: numba raises their number when its own start.
    """
    torch.manual_seed(0)
    torch.set_num_threads(min(torch.get_num_threads(), THREADS))


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item, call):
    """Fail tests that skip in CI, since its machine meets every requirement."""
    report = yield
    if report.skipped and in_ci() and not hasattr(report, "wasxfail"):
        report.outcome, report.longrepr = "failed", f"skipped in CI: {call.excinfo.value}"
    return report


def in_ci() -> bool:
    """Return True if tests run in CI."""
    return os.environ.get("CI", "").lower() == "true"


@pytest.fixture(scope="session")
def shared() -> Path:
    """Folder of reference data next to the checkout. Tests that take it run only if it exists."""
    return SHARED


@pytest.fixture(scope="session")
def oracle(tmp_path_factory) -> Callable[[str], Path]:
    """Find a reference file by name: in the checkout for batchnav's scenes, in ../shared for third-party meshes.

    Cases on third-party meshes have the mark `shared`. A file in the checkout may be compressed (.xz).
    """
    folder = tmp_path_factory.mktemp("oracle")

    def find(name: str) -> Path:
        if (ORACLE / name).is_file():
            return ORACLE / name
        packed, unpacked = ORACLE / f"{name}.xz", folder / name
        if packed.is_file() and not unpacked.is_file():
            unpacked.write_bytes(lzma.decompress(packed.read_bytes()))
        return unpacked if packed.is_file() else SHARED / "oracle" / name

    return find


@pytest.fixture(params=["cpu", pytest.param("cuda", marks=pytest.mark.cuda)])
def device(request) -> str:
    """Name of the device that a test runs on; tests that take it run once on each."""
    return request.param


@pytest.fixture(scope="module")
def one_thread():
    """Run PyTorch on one thread: small networks are faster on it, and much faster on a busy machine."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture
def compile_ptx(monkeypatch):
    """Compile a CUDA kernel to PTX on a machine with no GPU: compile_ptx(kernel, argument types...) -> text.

    For compute capability 9.0, or the one given as `capability`. The types of a `Kernel` are those of its function; the
    queue comes first if there is one.
    """
    from numba import cuda
    from numba import types as nb
    from numba.cuda import dispatcher

    from batchnav.runtime.kernels.launch import Kernel

    def compile_kernel(kernel, *argument_types, capability=(9, 0)) -> str:
        device = types.SimpleNamespace(compute_capability=capability)
        monkeypatch.setattr(dispatcher, "get_current_device", lambda: device)
        if isinstance(kernel, Kernel):
            counts = {"items": 1, "blocks": 1, "pixels": 3}.get(kernel.over, 0) + kernel.strided
            kernel, argument_types = kernel.cuda, (*[nb.int64] * counts, *argument_types)
        function, signature = getattr(kernel, "py_func", kernel), nb.void(*argument_types)
        ptx, _ = cuda.compile(function, signature, device=False, abi="numba", cc=capability, fastmath=True)
        return ptx

    return compile_kernel


@pytest.fixture(scope="session")
def opengl() -> None:
    """Skip the test if OpenGL 4.5 is missing."""
    from batchnav.errors import DeviceError
    from batchnav.renderers.opengl.gl import open_context

    try:
        open_context(torch.device("cpu")).release()
    except DeviceError as error:
        pytest.skip(str(error))


@pytest.fixture
def run(capsys):
    """Run a command of the command line; returns its output. A failure raises SystemExit."""
    from batchnav.cli import main

    def call(*arguments):
        main([str(argument) for argument in arguments])
        return capsys.readouterr().out

    return call
