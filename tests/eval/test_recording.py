"""Trying a program leaves the tracked result files as they are: recording is asked for."""

import pytest

from batchnav.bench import load, navmesh, render, sim, train
from batchnav.cli import evaluate
from eval.publish import model_card
from eval.studies import batch_size as batch_study


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
