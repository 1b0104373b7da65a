"""Trying a program leaves the tracked result files as they are: recording is asked for."""

import pytest

from batchnav.bench import load, navmesh, render, sim, train
from batchnav.cli import evaluate
from eval import batch_study, model_card


@pytest.mark.parametrize(
    "options",
    [
        batch_study.Options,
        model_card.Options,
        evaluate.Options,
        load.Options,
        navmesh.Options,
        render.Options,
        sim.Options,
        train.Options,
    ],
)
def test_recording_is_asked_for(options):
    assert options.record is False
