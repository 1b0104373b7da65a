"""Ctrl-C: one line says what was written, the exit status is 130, and no file is left incomplete."""

import signal
import sys
import time
import weakref
from dataclasses import dataclass

import pytest
from worlds import write_episodes, write_floor

from batchnav.cli import doctor as doctor_command
from batchnav.cli import main
from batchnav.cli.console import run
from batchnav.evaluation.run import Evaluation


@pytest.fixture(autouse=True)
def python_handles_interrupts():
    """A shell starts programs in the background with SIGINT ignored, and Python then leaves it so."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """Working folder with a small scene and episodes."""
    monkeypatch.chdir(tmp_path)
    write_floor(tmp_path / "floor.ply")
    write_episodes(tmp_path / "few.json.gz", ["floor.ply"])
    return tmp_path


@pytest.fixture
def interrupted(capsys):
    """Run a command that is interrupted; returns its last line on stderr."""

    def call(*words):
        with pytest.raises(SystemExit) as caught:
            main(words)
        assert caught.value.code == 130
        assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
        *_, last = capsys.readouterr().err.splitlines()
        return last

    return call


def interrupt(*_, **__):
    signal.raise_signal(signal.SIGINT)


EVALUATE = ("evaluate", "greedy", "forward", "--episodes", "few.json.gz", "--device", "cpu", "--out", "out")


def test_evaluate_names_the_results_that_it_wrote(folder, interrupted, monkeypatch):
    played = []

    def play(evaluation, player, original=Evaluation.play):
        if len(played) == allowed:
            interrupt()
        played.append(player.name)
        return original(evaluation, player)

    monkeypatch.setattr(Evaluation, "play", play)
    allowed = 0
    assert interrupted(*EVALUATE) == "interrupted: no results were written"
    assert not (folder / "out").exists()
    allowed = 1
    expected = "interrupted: results are in out/greedy/results.json; no results of forward"
    assert interrupted(*EVALUATE) == expected
    assert [path.name for path in (folder / "out").rglob("*") if path.is_file()] == ["results.json"]


def test_evaluate_without_its_report(folder, interrupted, monkeypatch):
    monkeypatch.setattr("batchnav.cli.measure.write_report", interrupt)
    expected = "interrupted: results are in out/greedy/results.json, out/forward/results.json"
    assert interrupted(*EVALUATE, "--report") == expected


@pytest.mark.parametrize(
    ("words", "work", "expected"),
    [
        (
            ("data", "make-episodes", "floor.ply", "--out", "new.json.gz"), "data.goals.point.generate_episodes",
            "new.json.gz was not written",
        ),
        (
            ("export", "pointnav_waypoint_small", "--out", "p.onnx"), "export.onnx_policy.write_onnx",
            "p.onnx was not written",
        ),
        (
            ("data", "download", "habitat_test_scenes"), "data.download._fetch_repository",
            "run the same command to continue",
        ),
        (("navmesh", "bake", "floor.ply"), "scene.scene.bake", "no file was left incomplete"),
        (("train", "--out", "run"), "training.start.parse", "no file was left incomplete"),
        (("view", "floor.ply"), "cli.view.session_of", ""),
    ],
    ids=lambda value: value[0] if isinstance(value, tuple) else "",
)  # fmt: skip
def test_other_commands(words, work, expected, folder, interrupted, monkeypatch):
    before = {path for path in folder.rglob("*") if path.is_file()}
    monkeypatch.setattr(f"batchnav.{work}", interrupt)
    assert interrupted(*words) == "interrupted" + (expected and f": {expected}")
    assert {path for path in folder.rglob("*") if path.is_file()} == before


def test_an_interrupt_that_python_discards_is_repeated(interrupted, monkeypatch):
    """As in the callbacks of weak references, which kernels' compilation has many of."""

    def work(arguments):
        class Thing:
            pass

        thing = Thing()
        reference = weakref.ref(thing, interrupt)
        del thing
        assert reference() is None
        time.sleep(60)

    monkeypatch.setattr(doctor_command, "command", work)
    start = time.monotonic()
    assert interrupted("doctor") == "interrupted"
    assert time.monotonic() - start < 30


def test_an_interrupt_that_became_an_error_is_one(interrupted, monkeypatch):
    """NumPy's comparison of arrays, compiled kernels and PyTorch's exporter raise errors of their own."""

    def work(arguments):
        try:
            interrupt()
        except KeyboardInterrupt:
            raise TypeError("cannot compare") from None

    monkeypatch.setattr(doctor_command, "command", work)
    assert interrupted("doctor") == "interrupted"


def test_only_rank_0_prints(interrupted, monkeypatch, capsys):
    monkeypatch.setattr(doctor_command, "command", interrupt)
    monkeypatch.setenv("RANK", "1")
    with pytest.raises(SystemExit, match="130"):
        main(["doctor"])
    assert capsys.readouterr().err == ""


def test_a_program_with_options_of_its_own(monkeypatch, capsys):
    """Studies and example programs."""

    @dataclass(frozen=True)
    class Options:
        seed: int = 0

    monkeypatch.setattr(sys, "argv", ["study.py", "--seed", "3"])
    with pytest.raises(SystemExit) as caught:
        run(Options, interrupt, None)
    assert caught.value.code == 130 and capsys.readouterr().err == "interrupted\n"
