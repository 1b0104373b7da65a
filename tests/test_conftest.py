"""Selection of tests: those on the checkout's reference data always run, others if their requirements are met."""

import os
import shutil
import subprocess
import sys
import warnings
from pathlib import Path

import pytest

CASES = """
import pytest

def test_on_our_own_data(oracle):
    assert oracle("wallroom.npz").parent.name == "oracle"

def test_on_others_data(shared):
    assert shared.is_dir()

@pytest.mark.parametrize("name", ["ours", pytest.param("theirs", marks=pytest.mark.shared)])
def test_on_both(name):
    pass

@pytest.fixture(params=[1, pytest.param(2, marks=pytest.mark.shared)])
def one(request):
    return request.param

def test_through_a_fixture(one):
    pass
"""
SKIPPING = "import pytest\n\ndef test_what_is_not_installed():\n    pytest.importorskip('no_such_library')\n"


@pytest.fixture
def tests(tmp_path):
    """A test folder with the rules of tests/conftest.py, without ../shared."""
    folder = tmp_path / "checkout" / "tests"
    folder.mkdir(parents=True)
    shutil.copy(Path(__file__).with_name("conftest.py"), folder)
    return folder


def outcome(folder, **environment):
    """Run pytest; returns its exit status and last lines."""
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-o", "markers=shared: x", str(folder)]
    environment = {**os.environ, "CI": "", **environment}
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True)
    return done.returncode, done.stdout


@pytest.mark.parametrize("ci", ["", "true"])
def test_what_needs_absent_data_is_left_out_and_nothing_skips(tests, ci):
    (tests / "test_cases.py").write_text(CASES)
    status, text = outcome(tests, CI=ci)
    assert status == 0 and "3 passed, 3 deselected" in text and "skipped" not in text
    assert "left out: tests that need reference data in" in text
    (tests.parents[1] / "shared").mkdir()
    status, text = outcome(tests, CI=ci)
    assert status == 0 and "6 passed" in text and "reference data in" not in text


def test_skipping_fails_in_ci_and_only_there(tests):
    (tests / "test_cases.py").write_text(SKIPPING)
    status, text = outcome(tests)
    assert status == 0 and "1 skipped" in text
    status, text = outcome(tests, CI="true")
    assert status == 1 and "1 failed" in text and "skipped in CI" in text and "no_such_library" in text


def test_deprecation_warnings_of_our_own_code_are_errors():
    def warn(module):
        warnings.warn_explicit("goes with the next version", DeprecationWarning, "file.py", 1, module)

    warn("somebody_elses.module")
    with pytest.raises(DeprecationWarning, match="next version"):
        warn("batchnav.scene.scene")
