"""Trying a program leaves the tracked result files as they are: recording is asked for."""

import pytest

from eval import batch_study, model_card, pointnav, speed_navmesh, speed_render, speed_sim, speed_train


@pytest.mark.parametrize(
    "options",
    [
        batch_study.Options,
        model_card.Options,
        pointnav.Options,
        speed_navmesh.Options,
        speed_render.Arguments,
        speed_sim.Options,
        speed_train.Options,
    ],
)
def test_recording_is_asked_for(options):
    assert options.record is False
