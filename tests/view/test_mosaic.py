import numpy as np
import pytest

from batchnav.errors import ArgumentError
from batchnav.view.video import HOLE, colour_depth, depth_mosaic


def test_colours_run_from_near_yellow_to_far_purple_with_dark_holes():
    depth = np.array([[1e-6, 1.0, 0.0, 2.0, np.nan]], np.float32)
    near, far, hole, beyond, nan = colour_depth(depth)[0].tolist()
    assert near == pytest.approx([253, 231, 37], abs=1)
    assert far == beyond == [68, 1, 84]
    assert tuple(hole) == tuple(nan) == HOLE


def test_nearer_is_lighter():
    ramp = colour_depth(np.linspace(0.01, 1.0, 50, dtype=np.float32)[None])[0]
    lightness = ramp @ np.array([0.2126, 0.7152, 0.0722])
    assert (np.diff(lightness) < 0).all()


def test_images_lie_in_rows():
    depth = np.stack([np.full((4, 6), 0.1 + 0.2 * k, np.float32) for k in range(5)])
    image = np.asarray(depth_mosaic(depth, columns=3, scale=2, gap=1))
    assert image.shape == (2 * 8 + 1, 3 * 12 + 2, 3)
    colours = colour_depth(depth)
    for k in range(5):
        y, x = k // 3 * 9, k % 3 * 13
        assert (image[y : y + 8, x : x + 12] == colours[k, 0, 0]).all()
    assert (image[9:, 26:] == 255).all()  # the empty sixth place
    assert (image[8] == 255).all()  # the gap


def test_a_batch_is_nearly_square():
    assert depth_mosaic(np.ones((10, 4, 4), np.float32), gap=0).size == (16, 12)


@pytest.mark.parametrize("shape", [(4, 4), (0, 4, 4), (1, 1, 4, 4)])
def test_other_shapes_are_refused(shape):
    with pytest.raises(ArgumentError, match="depth: found shape"):
        depth_mosaic(np.ones(shape, np.float32))
