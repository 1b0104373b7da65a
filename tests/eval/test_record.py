"""The record: its entries are trainings that the command line accepts; what a call measures, prints and appends."""

import dataclasses
import json
from pathlib import Path

import numpy as np
import pytest

from batchnav.cartpole.program import CartPoleRun
from batchnav.config import load_config
from batchnav.errors import ArgumentError
from batchnav.runtime.bundled import find_config
from batchnav.training import start
from eval.record.run import POINTS, ROOT, TIMED, Options, curve_of, load_entries, main

ENTRIES = load_entries()


@pytest.mark.parametrize("name", ENTRIES)
def test_stages_of_an_entry_are_commands_of_train(name):
    entry, before = ENTRIES[name], None
    assert entry.stages and entry.metric in entry.bars
    if entry.task == "cartpole":
        assert load_config(find_config(entry.stages[0].options), CartPoleRun).ppo.total_frames == entry.stages[0].frames
        return
    for number, stage in enumerate(entry.stages):
        command = stage.command(Path(str(number)), 3, "cpu", before)
        found = start.parse(command[1:]).run
        assert (found.algorithm, found.eval_every, found.seed) == (stage.algorithm, 0, 3)
        assert getattr(found, stage.algorithm).total_frames == stage.frames
        assert found.init_from == ("" if before is None else str(before))
        before = Path(str(number))


def test_make_train_has_the_options_of_the_entry_for_two_cores():
    rows = (line.split(" := ") for line in (ROOT / "Makefile").read_text().splitlines())
    variables = {words[0]: words[1] for words in rows if len(words) == 2}
    stages = ENTRIES["pointnav_waypoint_cpu_092"].stages
    assert [variables["FIRST"], variables["THEN"]] == [
        f"{stage.options} --dagger.total-frames {stage.frames:_}" for stage in stages
    ]


def test_a_seed_that_misses_its_bar_is_a_row_with_its_curve(tmp_path, capsys):
    """CartPole for two updates; another call finds folders of measured seeds, or evaluates a seed that trained."""
    short = tmp_path / "short.yaml"
    short.write_text("base: cartpole_cpu\nppo: {total_frames: 4096}\n")
    entries = tmp_path / "entries.yaml"
    entries.write_text(
        "short: {title: Short, bars: {return: 475.0}, task: cartpole, device: cpu, "
        f"stages: [{{frames: 4096, options: {short}}}]}}\n"
    )
    options = Options(("short",), (0, 1), tmp_path / "out", entries)
    main(options)
    assert "return" in (text := capsys.readouterr().out) and "misses the bar of 475" in text
    rows = [json.loads(line) for line in (tmp_path / "out" / "record.jsonl").read_text().splitlines()]
    assert [row["params"]["seed"] for row in rows] == [0, 1]
    for row in rows:
        assert row["params"]["frames"] == 4096 and 0.0 < row["params"]["val_return"] < 475.0
        curve = row["curve"]
        assert len(curve["seconds"]) == len(curve["values"]) == 2
        assert 0.0 < curve["seconds"][0] < curve["seconds"][1] <= row["value"] + 1e-3
    with pytest.raises(ArgumentError, match="expected none, so that the record begins empty"):
        main(options)
    one = tmp_path / "out" / "short" / "seed_1"
    (one / TIMED).write_text(json.dumps({**rows[1], "params": {"entry": "short", "seed": 1}, "commit": "earlier"}))
    main(dataclasses.replace(options, seeds=(1,)))  # it trained and was not evaluated
    again = json.loads((tmp_path / "out" / "record.jsonl").read_text().splitlines()[2])
    assert again["value"] == rows[1]["value"] and again["params"]["val_return"] == rows[1]["params"]["val_return"]
    assert again["commit"] == "earlier" and not (one / TIMED).exists()
    with pytest.raises(ArgumentError, match=r"entry: found 'shorter', expected one of short"):
        main(dataclasses.replace(options, names=("shorter",)))


def test_curves_have_at_most_as_many_points_as_a_row_keeps():
    seconds, values = np.arange(1.0, 1001.0), np.linspace(0.0, 1.0, 1000)
    curve = curve_of(seconds, values)
    assert len(curve["seconds"]) == POINTS and np.all(np.diff(curve["values"]) > 0.0)
    assert np.mean(curve["values"]) == pytest.approx(0.5, abs=1e-3)
    assert curve_of(seconds[:0], values[:0]) == {"seconds": [], "values": []}
