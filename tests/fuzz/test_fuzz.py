"""Some hundred broken files of every kind; `make fuzz N=10000` runs as many as one likes."""

import os

from harness import CLEAN, FINDING, LOADED, fuzz

NUMBER = 500
FORGIVEN = {"mtl", "png"}
"""Kinds that are left out with a warning where they are broken."""


def test_broken_files_are_refused_or_answer(tmp_path):
    outcomes, findings = fuzz(seed=0, number=NUMBER, processes=min(2, os.cpu_count()), keep=tmp_path)
    assert not findings, "\n".join(findings)
    assert sum(outcomes.values()) == NUMBER and {word for _, word in outcomes} <= {CLEAN, LOADED, FINDING}
    kinds = {kind for kind, _ in outcomes}
    for kind in kinds:  # an input that is always refused at once tests little
        assert (outcomes[kind, CLEAN] or kind in FORGIVEN) and outcomes[kind, LOADED], kind
