"""The record's entries are trainings that the command line accepts."""

from pathlib import Path

import pytest

from batchnav.cartpole.program import CartPoleRun
from batchnav.config import load_config
from batchnav.runtime.bundled import find_config
from batchnav.training import start
from eval.record.run import load_entries

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
