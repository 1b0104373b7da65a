"""Outcomes and thirds in closed form, and the program from a checkpoint to its maps."""

import json

import numpy as np
import pytest

from batchnav.errors import ArgumentError
from batchnav.runtime.bundled import find_policy
from eval.studies import failures


def test_outcomes_and_what_they_take_from_spl():
    played = {
        "success": np.array([1, 1, 0, 0, 0], float), "steps": np.array([10, 50, 500, 500, 30], float),
        "collisions": np.array([0, 5, 10, 400, 0], float), "path_length": np.array([2.4, 9, 80, 5, 6], float),
        "start_distance": np.array([2.0, 4, 5, 5, 5]),
    }  # fmt: skip
    outcome = failures.outcomes(played, 500)
    assert outcome.tolist() == ["arrived", "detour", "timed out", "stuck", "wrong stop"]
    lost = failures.by_outcome(outcome, np.array([0.8, 0.4, 0.0, 0.0, 0.0]))
    assert lost["arrived"] == {"episodes": 0.2, "spl_lost": pytest.approx(0.04)}
    assert sum(part["spl_lost"] for part in lost.values()) == pytest.approx(1 - 1.2 / 5)


def test_program(rooms, checkpoint, tmp_path, capsys):
    options = failures.Options(checkpoint, rooms / "mine.json.gz", tmp_path / "found", maps=2, device="cpu")
    failures.main(options)
    found = json.loads((tmp_path / "found" / "results.json").read_text())
    assert found["spl"] == pytest.approx(1.0 - sum(part["spl_lost"] for part in found["outcomes"].values()), abs=1e-6)
    assert len(list((tmp_path / "found").glob("*.png"))) == min(2, round((1 - found["success"]) * found["episodes"]))
    assert "SPL lost" in capsys.readouterr().out


def test_policies_of_other_tasks_are_refused(tmp_path):
    with pytest.raises(ArgumentError, match="found a policy of objectnav, expected one of pointnav or imagenav"):
        policy = find_policy("objectnav_rgbd_small")
        failures.main(failures.Options(checkpoint=policy, episodes=tmp_path, out=tmp_path, device="cpu"))
