"""Image noise: distributions by formula, seeds, cameras, JPEG, and files with distortion tables."""

import io

import numpy as np
import pytest
import torch
from numba import types as nb
from PIL import Image
from scipy import stats
from scipy.special import ndtr

from batchnav.envs.config import NavConfig, with_options
from batchnav.errors import ArgumentError, ConfigError
from batchnav.sensors import color_effects, noise
from batchnav.sensors.camera import CameraConfig
from batchnav.sensors.color_effects import Exposure, ExposureNoise, Jpeg
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


def exposed(device, rgb, stops=0.0, balance=0.0, gamma=0.0, each_step=False, drawn=None):
    rgb = torch.as_tensor(rgb, device=device).clone()
    settings = ExposureNoise(*map(np.float32, (stops, balance, gamma)), each_step)
    Exposure(settings).apply(drawn or draws(device, len(rgb)), rgb)
    return rgb.cpu().numpy()


def test_exposure_balance_and_gamma_change_images_by_their_formulas(device):
    ramp = np.broadcast_to(np.arange(256, dtype=np.uint8), (500, 3, 1, 256)).copy()
    assert np.array_equal(exposed(device, ramp), ramp)
    level = ramp / 255.0
    brighter = exposed(device, ramp, stops=2.0).astype(float)
    gain = brighter[:, 1, 0, 100] / 100  # of values that are not clipped
    stops = 2.2 * np.log2(gain)
    unclipped = gain < 2.5
    assert stats.kstest(stops, stats.uniform(-2.0, 4.0).cdf).pvalue > NEVER_BELOW
    expected = np.minimum(255.0 * gain[:, None, None, None] * level, 255.0)[unclipped]
    assert abs(brighter[unclipped] - expected).max() < 2.5  # the gain is read from a byte near 100
    balanced = exposed(device, ramp, balance=0.3)
    assert np.array_equal(balanced[:, 1], ramp[:, 1])
    shares = balanced[:, (0, 2), 0, 190].astype(float) / 190
    assert stats.kstest(shares[:, 0], stats.uniform(0.7, 0.6).cdf).pvalue > NEVER_BELOW
    assert abs(np.corrcoef(shares.T)[0, 1]) < 0.2
    bent = exposed(device, ramp, gamma=0.5).astype(float)
    powers = np.log(bent[:, 0, 0, 128] / 255.0) / np.log(128 / 255.0)
    assert powers.min() == pytest.approx(1 / 1.5, abs=0.02) and powers.max() == pytest.approx(1.5, abs=0.02)
    assert abs(bent - 255.0 * level ** powers[:, None, None, None]).max() < 2.5


def test_exposure_belongs_to_an_episode_or_a_step(device):
    images = np.random.default_rng(0).integers(0, 256, (N, 3, 8, 8)).astype(np.uint8)
    first, later = draws(device), draws(device, steps=6)
    episode, step = (
        [exposed(device, images, 1.0, 0.2, 0.2, each, d) for d in (first, later)] for each in (False, True)
    )
    assert np.array_equal(*episode) and not np.array_equal(*step)
    other = exposed(device, images, 1.0, 0.2, 0.2, False, draws(device, episode=3))
    assert not np.array_equal(episode[0], other)


def compressed(device, rgb, low, high=None, drawn=None):
    rgb = torch.as_tensor(rgb, device=device).clone()
    Jpeg((low, low if high is None else high)).apply(drawn or draws(device, len(rgb)), rgb)
    return rgb.cpu().numpy().astype(int)


def pictures(n, height, width):
    """Smooth pictures with an edge and a little noise."""
    y, x = np.mgrid[:height, :width]
    grey = np.array(
        [128 + 60 * np.sin(x / 5 + i) + 40 * np.cos(y / 7 + 2 * i) + 30 * (x > width // 2) for i in range(n)]
    )
    noisy = grey + np.random.default_rng(0).normal(0.0, 4.0, grey.shape)
    return np.repeat(np.clip(noisy, 0, 255).astype(np.uint8)[:, None], 3, axis=1)


@pytest.mark.parametrize("quality", [5, 30, 75, 90])
@pytest.mark.parametrize("size", [(48, 64), (30, 21)])
def test_grey_pictures_are_compressed_as_libjpeg_does(device, quality, size):
    images = pictures(4, *size)
    found = compressed(device, images, quality)
    for image, ours in zip(images, found, strict=True):
        file = io.BytesIO()
        Image.fromarray(image.transpose(1, 2, 0)).save(file, "JPEG", quality=quality, subsampling=2)
        theirs = np.asarray(Image.open(file)).transpose(2, 0, 1).astype(int)
        lost = abs(theirs - image).mean()
        assert abs(ours - theirs).mean() < 0.02 * lost + 0.5  # a byte; libjpeg's transform works on integers
        assert abs(ours - image).mean() == pytest.approx(lost, rel=0.05)


def test_compression_keeps_plain_colours_and_halves_the_resolution_of_colours(device):
    plain = np.zeros((1, 3, 32, 32), np.uint8)
    plain[0, 0], plain[0, 1], plain[0, 2] = 200, 90, 30
    assert abs(compressed(device, plain, 95) - plain).max() <= 2
    striped = np.zeros((1, 3, 32, 32), np.uint8)
    striped[0, 0, :, ::2], striped[0, 2, :, 1::2] = 200, 200  # red and blue columns
    red, _, blue = (channel.astype(int) for channel in compressed(device, striped, 100)[0])
    assert abs((red - blue)[:, ::2] - (red - blue)[:, 1::2]).max() < 6


def test_the_quality_differs_by_image_and_step(device):
    images = np.repeat(pictures(1, 32, 32), 200, axis=0)
    found = compressed(device, images, 1, 100)
    each = np.array([compressed(device, images[:1], quality)[0] for quality in range(1, 101)])
    chosen = [int(abs(each - image).reshape(100, -1).sum(1).argmin()) for image in found]
    assert all(np.array_equal(each[quality], image) for quality, image in zip(chosen, found, strict=True))
    assert min(chosen) < 10 and max(chosen) > 90
    assert not np.array_equal(found, compressed(device, images, 1, 100, draws(device, 200, steps=6)))


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
    images = pictures(4, 48, 64)
    a, b = (exposed(device, images, 1.0, 0.2, 0.3).astype(int) for device in ("cpu", "cuda"))
    assert abs(a - b).max() <= 1 and np.mean(a != b) < 0.02
    a, b = (compressed(device, images, 20, 80) for device in ("cpu", "cuda"))
    assert np.mean(abs(a - b) > 1) < 1e-3


def test_kernels_compile_without_float64(compile_ptx):
    drawn = nb.NamedTuple((nb.int64[::1],) * 2 + (nb.int32[::1],) * 2 + (nb.int64,), NoiseCounters)
    settings = nb.NamedTuple((nb.float32,) * 3 + (nb.boolean,), ColorNoise)
    exposure = nb.NamedTuple((nb.float32,) * 3 + (nb.boolean,), ExposureNoise)
    images, table = nb.float32[:, :, ::1], nb.float32[:, :, ::1]
    for kernel, arguments in (
        (noise.add_noise, (drawn, settings, nb.uint8[:, :, :, ::1])),
        (color_effects.make_curves, (drawn, nb.float32[::1], exposure, nb.uint8[:, :, ::1])),
        (color_effects.look_up, (nb.uint8[:, :, ::1], nb.uint8[:, :, :, ::1])),
        (color_effects.compress, (drawn, table, nb.int32, nb.int32, nb.uint8[:, :, :, ::1])),
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
        ({"exposure_noise": 5.0}, "exposure_noise: found 5.0, expected 0 to 4"),
        ({"white_balance_noise": 1.0}, "white_balance_noise: found 1.0"), ({"gamma_noise": -1.0}, "noise: found -1"),
        ({"exposure_per": "frame"}, "exposure_per: found 'frame', expected one of 'episode', 'step'"),
        ({"jpeg_quality": (0, 50)}, "jpeg_quality.*: found 0"), ({"jpeg_quality": (50,)}, r"quality: found \[50\]"),
        ({"jpeg_quality": (80, 20)}, r"found \[80, 20\], expected the lowest and the highest value"),
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
