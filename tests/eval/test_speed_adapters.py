"""The benchmark of RL libraries: every library trains, and a failure does not stop the others."""

import runpy
import sys

import pytest

from eval import speed_adapters

SMALL = {"num_envs": 8, "num_steps": 8, "epochs": 1, "minibatches": 2, "seconds": 0.0, "repeats": 2}


def test_all_libraries_are_measured():
    options = speed_adapters.Options(**SMALL)
    for name in speed_adapters.PACKAGES:
        pytest.importorskip(name)
    rows = speed_adapters.main(options)
    assert [row["params"]["library"].rsplit(" ", 1)[0] for row in rows[2:]] == list(speed_adapters.PACKAGES)
    assert [row["params"]["library"] for row in rows[:2]] == ["ours", "single file"]
    assert all(row["repeats"] == 2 and row["value"] > 0 and row["params"]["num_envs"] == 8 for row in rows)


@pytest.mark.parametrize(
    "option, value",
    [("num-envs", "-1"), ("num-steps", "0"), ("epochs", "-1"), ("minibatches", "0"), ("seconds", "nan"),
     ("seconds", "1e999"), ("repeats", "0")],
)  # fmt: skip
def test_a_number_out_of_range_is_a_one_line_error(option, value, monkeypatch):
    monkeypatch.setattr(sys, "argv", ["speed_adapters.py", f"--{option}", value])
    with pytest.raises(SystemExit, match=f"^error: --{option}: found .*, expected an? (integer|number) from"):
        runpy.run_path(speed_adapters.__file__, run_name="__main__")
