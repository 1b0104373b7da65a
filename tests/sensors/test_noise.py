"""Image noise: distributions by formula, seeds, cameras, and files with distortion tables."""

import numpy as np
import pytest
import torch
from numba import types as nb
from scipy import stats
from scipy.special import ndtr

from batchnav.envs.config import NavConfig, with_options
from batchnav.errors import ArgumentError, ConfigError
from batchnav.sensors import noise
from batchnav.sensors.camera import CameraConfig
from batchnav.sensors.depth import DepthConfig, DepthSensor
from batchnav.sensors.frame import GivenImages
from batchnav.sensors.noise import ColorNoise, ColorNoiseModel, RedwoodNoise, StereoNoise, load_table, synthetic_table
from batchnav.sensors.sensor import Cameras, NoiseCounters

N, H, W = 6, 60, 80
NEVER_BELOW = 1e-4
"""Smallest p value for a correct distribution."""


def draws(device, n=N, seed=0, first=0, episode=2, steps=5, camera=0):
    seeds = (torch.full((1,), value, dtype=torch.int64, device=device) for value in (seed, first))
    counts = (torch.full((n,), value, dtype=torch.int32, device=device) for value in (episode, steps))
    return NoiseCounters(*seeds, *counts, camera)


def colored(device, kind, value, settings, drawn=None, shape=(N, 3, H, W)):
    """Images of one value with noise of (intensity, mean, sigma)."""
    rgb = torch.full(shape, value, dtype=torch.uint8, device=device)
    ColorNoiseModel(ColorNoise(*map(np.float32, settings), kind == "speckle")).add(drawn or draws(device), rgb)
    return rgb.cpu().numpy()


def assert_probable(observed, expected):
    """Chi-squared test of counts against their expectation; rare values are merged."""
    order = np.argsort(expected)
    observed, expected = observed[order], expected[order]
    rare = max(1, int((expected < 20).sum()))
    observed, expected = (np.append(x[rare:], x[:rare].sum()) for x in (observed, expected))
    if expected[-1] < 5:
        assert observed[-1] < 30
        observed, expected = observed[:-1], expected[:-1]
    assert stats.chisquare(observed, expected / expected.sum() * observed.sum()).pvalue > NEVER_BELOW


@pytest.mark.parametrize("kind", ["gaussian", "speckle"])
@pytest.mark.parametrize(("value", "settings"), [
    (128, (0.1, 0.0, 1.0)), (40, (0.2, 0.0, 1.0)), (250, (0.2, -0.5, 2.0)), (0, (0.1, 0.0, 1.0)), (99, (0.2, 0.0, 0.0)),
])  # fmt: skip
def test_bytes_have_the_probabilities_of_the_formula(device, kind, value, settings):
    intensity, mean, sigma = settings
    scale = 255.0 if kind == "gaussian" else float(value)
    found = np.bincount(colored(device, kind, value, settings).ravel(), minlength=256)
    if scale * sigma == 0.0:
        assert found[value] == found.sum()
        return
    edges = (np.arange(1, 256) - value - scale * intensity * mean) / (scale * intensity * sigma)
    expected = np.diff(ndtr(edges), prepend=0.0, append=1.0) * found.sum()  # below 1 is 0, 255 and above is 255
    assert_probable(found, expected)


def test_noise_differs_by_seed_agent_episode_step_camera_and_pixel(device):
    settings = (0.1, 0.0, 1.0)
    kept = colored(device, "gaussian", 128, settings)
    assert np.array_equal(kept, colored(device, "gaussian", 128, settings, draws(device)))
    for changed in ({"seed": 1}, {"first": 1}, {"episode": 3}, {"steps": 6}, {"camera": 1}):
        other = colored(device, "gaussian", 128, settings, draws(device, **changed))
        same = kept[1:] == other[:-1] if "first" in changed else kept == other
        assert same.all() if "first" in changed else same.mean() < 0.1
    images = kept.reshape(N * 3, -1).astype(np.float64)
    correlation = np.corrcoef(images) - np.eye(N * 3)
    assert abs(correlation).max() < 5 / (H * W) ** 0.5
    assert abs(np.corrcoef(images[:, 1:].ravel(), images[:, :-1].ravel())[0, 1]) < 5 / images.size**0.5


def measured(device, depth, multiplier=1.0, path="", **drawn):
    depth = torch.as_tensor(depth, dtype=torch.float32, device=device)
    return RedwoodNoise(multiplier, path).measure(draws(device, len(depth), **drawn), depth).cpu().numpy()


@pytest.fixture
def ones(tmp_path):
    """A table without distortion."""
    np.save(tmp_path / "ones.npy", np.ones((80, 400), np.float32))
    return str(tmp_path / "ones.npy")


def assert_levels(eighths, metres):
    """Distribution of disparities measured at a depth: P(k) = Phi((k + 1/2 - c) / s) - Phi((k - 1/2 - c) / s)."""
    levels = np.arange(eighths.min() - 2, eighths.max() + 3)
    counts = np.array([(eighths == k).sum() for k in levels])
    centre = 281.04 / metres
    expected = ndtr((levels + 0.5 - centre) / 0.222224) - ndtr((levels - 0.5 - centre) / 0.222224)
    assert_probable(counts, expected * eighths.size)


@pytest.mark.parametrize("metres", [0.5, 1.7, 4.0, 9.5])
def test_measured_depths_have_the_probabilities_of_the_formula(device, ones, metres):
    found = measured(device, np.full((N, H, W), metres), path=ones)
    eighths = np.round(281.04 / found).astype(int)
    np.testing.assert_allclose(found, 281.04 / eighths, rtol=1e-5)
    assert_levels(eighths, metres)


def test_far_surfaces_and_holes_are_not_measured(device, ones):
    for metres in (0.0, 10.0, 11.0, 500.0):
        assert not measured(device, np.full((2, H, W), metres), path=ones).any()


def test_pixels_are_shuffled_by_a_quarter_of_a_pixel(device, ones):
    """Depth encodes the column: the pixel read is the even one where a normal step of 0.25 ends."""
    columns = np.broadcast_to(1.0 + np.arange(16) / 16, (2000, 4, 16)).copy()
    found = measured(device, columns, path=ones)
    read = np.abs(found[..., None] - columns[0, 0]).argmin(-1)
    assert (read % 2 == 0).all()
    for column in (5, 8):  # an odd one, whose pair is read unless the step goes beyond it
        down = np.mean(read[:, :, column] < column - column % 2)
        up = np.mean(read[:, :, column] > column)
        beyond = (ndtr(-(0.5 + column % 2) / 0.25), ndtr(-(1.5 - column % 2) / 0.25))
        assert (down, up) == pytest.approx(beyond, abs=5 * (0.25 / 8000) ** 0.5)
    assert np.array_equal(found, measured(device, columns, path=ones))


def test_distortion_is_interpolated_between_layers(device, tmp_path):
    table = np.zeros((80, 80, 5), np.float32)
    table[:, :] = [1.0, 1.1, 0.9, 1.0, 1.2]
    table[:, :40] = 0.0  # the left half of the picture gives nothing
    np.save(tmp_path / "table.npy", table.reshape(80, 400))
    for metres, factor in ((0.3, 1.0), (1.0, 1.0), (2.0, 1.05), (4.0, 1.0), (5.0, 0.9), (9.5, 1.2)):
        found = measured(device, np.full((N, H, W), metres), path=str(tmp_path / "table.npy"))
        assert not found[:, :, : W // 2 - 3].any()
        eighths = np.round(281.04 / found[:, :, W // 2 + 3 :]).astype(int)
        assert_levels(eighths, metres / factor)


def test_the_synthetic_table_models_disparity_errors(device):
    table = synthetic_table()
    assert table.shape == (80, 80, 5) and table.dtype == np.float32
    seen = table[..., 0] > 0
    assert (seen == (table > 0).all(-1)).all() and seen.sum() == 76 * 75
    eighths = (table - 1.0) * 281.04 / (1.0 + 2.0 * np.arange(5))
    assert abs(eighths[seen]).max() == pytest.approx(3.0, abs=0.2)
    np.testing.assert_allclose(eighths[seen] - eighths[seen][:, :1], 0.0, atol=1e-3)
    found = measured(device, np.full((40, H, W), 3.0))
    inside = found[:, 5:-5, 5:-6]
    expected = 281.04 / 3.0 * table[5:75:5, 5:70:5, 1].mean()
    assert (281.04 / inside[inside > 0]).mean() == pytest.approx(expected, rel=0.02)
    assert not found[:, :, -3:].any()


def stereo(device, depth, multiplier=1.0):
    """Depth that a D435 measures with a field of view of 90 degrees."""
    depth = torch.as_tensor(depth, dtype=torch.float32, device=device)
    lens = torch.ones(len(depth), device=device)
    return StereoNoise(multiplier).measure(draws(device, len(depth)), depth, lens).cpu().numpy()


@pytest.mark.parametrize("metres", [0.5, 1.7, 5.0])
def test_stereo_disparities_have_the_probabilities_of_the_formula(device, metres):
    found = stereo(device, np.full((N, H, W), metres))[:, :, 8:]  # right of the band that the right imager does not see
    steps = np.round(32 * 21.2 / found).astype(int)
    np.testing.assert_allclose(found, 32 * 21.2 / steps, rtol=1e-5)
    levels = np.arange(steps.min(), steps.max() + 1)
    edges = (np.append(levels, levels[-1] + 1) - 0.5 - 32 * 21.2 / metres) / 3.2
    edges[0], edges[-1] = -np.inf, np.inf
    assert_probable(np.array([(steps == k).sum() for k in levels]), np.diff(ndtr(edges)) * steps.size)


def test_stereo_has_a_shadow_on_the_left_of_near_surfaces(device):
    """Focal length 212 pixels: disparities of 10.6 pixels at 1 m and 2.65 at 4 m."""
    depth = np.full((1, 4, 424), 4.0)
    depth[:, :, 200:300] = 1.0
    (rows,) = stereo(device, depth, multiplier=1e-6)
    lost = [*range(3), *range(192, 200)]
    for row in rows:
        assert np.flatnonzero(row == 0.0).tolist() == lost
    seen = np.delete(rows, lost, 1)
    np.testing.assert_allclose(seen, np.delete(depth[0], lost, 1), rtol=0.01)


def test_stereo_loses_far_and_very_near_surfaces(device):
    found = lambda metres: np.mean(stereo(device, np.full((N, H, W), metres))[:, :, 8:] > 0.0)  # noqa: E731
    assert [found(z) for z in (0.0, 0.2, 10.0, 50.0)] == [0.0] * 4 and found(5.9) == 1.0
    assert found(8.0) == pytest.approx(0.5, abs=0.05)


@pytest.mark.cuda
def test_cuda_measures_as_the_cpu():
    depth = np.random.default_rng(0).uniform(0.0, 11.0, (N, H, W)).astype(np.float32)
    a, b = (measured(device, depth, seed=3) for device in ("cpu", "cuda"))
    assert np.mean(np.abs(a - b) > 1e-3) < 1e-3  # where a rounding decides between two levels, or two pixels
    a, b = (stereo(device, depth) for device in ("cpu", "cuda"))
    assert np.mean(np.abs(a - b) > 1e-3 * b) < 2e-3
    a, b = (colored(device, "speckle", 120, (0.2, 0.1, 1.0)).astype(int) for device in ("cpu", "cuda"))
    assert abs(a - b).max() <= 1 and np.mean(a != b) < 1e-3


def test_kernels_compile_without_float64(compile_ptx):
    drawn = nb.NamedTuple((nb.int64[::1],) * 2 + (nb.int32[::1],) * 2 + (nb.int64,), NoiseCounters)
    settings = nb.NamedTuple((nb.float32,) * 3 + (nb.boolean,), ColorNoise)
    images, table = nb.float32[:, :, ::1], nb.float32[:, :, ::1]
    for kernel, arguments in (
        (noise.add_noise, (drawn, settings, nb.uint8[:, :, :, ::1])),
        (noise.measure_depth, (images, drawn, table, nb.float32, images)),
        (noise.measure_stereo, (images, drawn, nb.float32[::1], nb.float32, images)),
    ):
        assert ".f64" not in compile_ptx(kernel, *arguments)


def test_noise_precedes_clipping(ones):
    sensor = DepthSensor(CameraConfig(H, W), DepthConfig(hole_value=0.5, depth_noise=1.0, redwood_table=ones))
    depth, out = torch.full((N, H, W), 4.0), torch.zeros(N, 1, H, W)
    depth[:, :, : W // 2] = 30.0
    cameras = Cameras.level(torch.zeros(N, dtype=torch.int32), torch.zeros(N, 3), torch.zeros(N))
    sensor.write(GivenImages(depth, cameras=cameras._replace(noise=draws("cpu"))), out)
    assert (out[..., : W // 2 - 3] == 0.5).all() and len(out[..., W // 2 + 3 :].unique()) > 1
    assert out[..., W // 2 + 3 :].mean() == pytest.approx(0.4, abs=1e-3)
    with pytest.raises(ArgumentError, match="depth: found noise but cameras without a seed"):
        sensor.write(GivenImages(depth, cameras=cameras), out)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"depth_noise": -1.0}, "depth_noise: found -1.0, expected 0 to 10"),
        ({"depth_noise": float("nan")}, "depth_noise: found nan"),
        ({"redwood_table": "mine.npy"}, "redwood_table: found 'mine.npy' with depth_noise 0, expected noise"),
        (
            {"redwood_table": "mine.npy", "depth_noise": 1.0, "depth_noise_model": "d435"},
            "redwood_table: found 'mine.npy', expected depth_noise_model 'redwood'",
        ),
        ({"rgb_noise": "poisson"}, "rgb_noise: found 'poisson', expected one of 'none', 'gaussian', 'speckle'"),
        ({"noise_intensity": -0.1}, "noise_intensity: found -0.1"), ({"noise_sigma": -1.0}, "noise_sigma: found -1.0"),
        ({"noise_mean": float("inf")}, "noise_mean: found inf"),
    ],
)  # fmt: skip
def test_noise_out_of_range_is_refused(options, message):
    with pytest.raises(ConfigError, match=message):
        with_options(NavConfig(), options)


def test_files_without_a_table_are_refused(tmp_path):
    path = tmp_path / "table.npy"
    with pytest.raises(ConfigError, match=r"redwood_table: .*table\.npy: cannot be read \(No such file"):
        load_table(path)
    path.write_text("1 2 3")
    with pytest.raises(ConfigError, match=r"table\.npy: cannot be read as a \.npy file"):
        load_table(path)
    for table, message in (
        (np.ones((80, 100)), r"found float64 \[80, 100\], expected floats \[80, 400\] or \[80, 80, 5\]"),
        (np.ones((80, 400), np.int32), "found int32"), (np.full((80, 400), np.nan), "found nan"),
        (np.full((80, 400), -1.0), r"found -1\.0, expected factors from 0 to 10"),
        (np.array([{}]), r"cannot be read as a \.npy file \(its header states object"),
    ):  # fmt: skip
        np.save(path, table)
        with pytest.raises(ConfigError, match=message):
            load_table(path)
    np.save(path, np.ones((80, 80, 5)))
    np.testing.assert_array_equal(load_table(path), np.ones((80, 80, 5)))
