"""Programs change tracked result files only with the option to record."""

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
        load.Options,
        navmesh.Options,
        render.Options,
        sim.Options,
        train.Options,
    ],
)
def test_recording_is_asked_for(options):
    assert options.record is False


def test_evaluation_appends_results_where_asked_for():
    assert evaluate.Options.append_results is False
