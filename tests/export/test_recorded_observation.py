"""The recorded observation of docs/howto/deploy_on_a_robot.md is the simulator's."""

import json

import numpy as np
import pytest
from PIL import Image

from docs.figures.robot import FOLDER, record

MOST_BYTES = 100_000


@pytest.mark.slow
def test_the_simulator_records_it_again():
    depth, rgb, numbers = record()
    kept = json.loads((FOLDER / "numbers.json").read_text())
    difference = np.abs(np.asarray(Image.open(FOLDER / "depth.png")).astype(int) - depth)
    assert (difference > 1).mean() < 0.005  # millimetres; silhouettes may differ between machines
    assert (np.asarray(Image.open(FOLDER / "rgb.png")) != rgb).mean() < 0.005
    assert kept.keys() == numbers.keys() and kept["scene"] == numbers["scene"]
    for name in ("pose", "goal", "pointgoal", "waypoint", "probabilities", "value"):
        np.testing.assert_allclose(kept[name], numbers[name], atol=1e-3, err_msg=name)
    assert sum(path.stat().st_size for path in FOLDER.iterdir()) < MOST_BYTES
