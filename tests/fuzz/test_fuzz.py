"""Some hundred broken files of every kind; `make fuzz N=10000` runs as many as one likes."""

import os
import subprocess
import sys
from pathlib import Path

from harness import CLEAN, FINDING, LOADED, fuzz

NUMBER = 1100
FORGIVEN = {"mtl", "png"}
"""Kinds that are left out with a warning where they are broken."""


def test_broken_files_are_refused_or_answer(tmp_path):
    outcomes, findings = fuzz(seed=3, number=NUMBER, processes=min(2, os.cpu_count()), keep=tmp_path)
    assert not findings, "\n".join(findings)
    assert sum(outcomes.values()) == NUMBER and {word for _, word in outcomes} <= {CLEAN, LOADED, FINDING}
    kinds = {kind for kind, _ in outcomes}
    for kind in kinds:  # an input that is always refused at once tests little
        assert (outcomes[kind, CLEAN] or kind in FORGIVEN) and outcomes[kind, LOADED], kind


FREED = """
from pathlib import Path

import numpy as np
from harness import peak

Path("/proc/self/clear_refs").write_text("5")
before = peak()
assert np.ones(2**24).sum() == 2**24  # 128 MiB
print(peak() - before)
"""


def test_the_harness_sees_memory_that_is_free_again():
    # In a process of its own, as the harness's inputs are: what earlier tests left may be given back meanwhile.
    command = [sys.executable, "-c", FREED]
    found = subprocess.run(command, cwd=Path(__file__).parent, capture_output=True, text=True, check=True)
    assert int(found.stdout) > 100 * 2**20
