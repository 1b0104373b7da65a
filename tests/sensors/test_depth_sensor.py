"""Metres to 0..1: clipping, scaling, holes; depth that is predicted from colour."""

import math

import pytest
import torch

from batchnav.data.scenes.load import load_scene
from batchnav.envs.config import NavConfig, with_options
from batchnav.envs.nav import NavEnv
from batchnav.errors import ArgumentError, ConfigError
from batchnav.sensors.camera import CameraConfig
from batchnav.sensors.depth import DEPTH_ESTIMATORS, DepthConfig, DepthSensor
from batchnav.sensors.frame import GivenImages

CAMERA = CameraConfig(height=4, width=4)
METRES = torch.tensor([0.0, 0.01, 0.3, 0.5, 1.0, 4.75, 5.25, 9.0, 9.999, 10.0, 10.001, 12.0, 500.0, 2.5, 2.0, 3.0])


def read(config, dtype=torch.float32):
    """The sensor's observation of METRES."""
    out = torch.full((2, 1, 4, 4), math.nan, dtype=dtype)
    DepthSensor(CAMERA, config).write(GivenImages(METRES.view(1, 4, 4).expand(2, 4, 4).contiguous()), out)
    assert torch.equal(out[0], out[1])
    return out[0].flatten()


def expected(config):
    """Expected observation, computed per number."""

    def scaled(metres):
        if metres == 0.0:
            return config.hole_value
        return min(max((metres - config.min_depth) / (config.max_depth - config.min_depth), 0.0), 1.0)

    return torch.tensor([scaled(metres) for metres in METRES.tolist()])


@pytest.mark.parametrize("hole_value", [0.0, 0.25, 1.0])
@pytest.mark.parametrize(("min_depth", "max_depth"), [(0.0, 10.0), (0.5, 10.0), (0.1, 5.25), (2.0, 3.0)])
def test_clipped_and_scaled_with_holes_as_configured(min_depth, max_depth, hole_value):
    config = DepthConfig(min_depth, max_depth, hole_value)
    torch.testing.assert_close(read(config), expected(config), rtol=0.0, atol=1e-6)


def test_the_default_is_habitats():
    found = read(DepthConfig())
    assert found[0] == 0.0 and found[9:13].tolist() == [1.0, 1.0, 1.0, 1.0]
    torch.testing.assert_close(found[4], torch.tensor(0.1))


@pytest.mark.parametrize("hole_value", [0.0, 0.3, 1.0])
def test_a_rollouts_bfloat16_is_the_observation_rounded_once(hole_value):
    config = DepthConfig(min_depth=0.5, hole_value=hole_value)
    assert torch.equal(read(config, torch.bfloat16), read(config).bfloat16())


@pytest.mark.parametrize(("hole_value", "ends"), [(0.0, math.inf), (0.99, math.inf), (1.0, 6.0)])
def test_rays_end_at_the_maximum_depth_only_where_holes_are_far(hole_value, ends):
    assert DepthSensor(CAMERA, DepthConfig(max_depth=6.0, hole_value=hole_value)).requires.max_depth == ends


def test_spec():
    spec = DepthSensor(CameraConfig(height=6, width=9), DepthConfig()).spec
    assert spec.name == "depth" and spec.shape == (1, 6, 9)
    assert spec.stored_on(torch.device("cpu")) == torch.float32
    assert spec.stored_on(torch.device("cuda")) == torch.bfloat16
    box = spec.box
    assert box.shape == (1, 6, 9) and box.dtype == "float32" and (box.low == 0).all() and (box.high == 1).all()


@pytest.mark.parametrize(
    ("options", "name"),
    [
        ({"min_depth": 10.0}, "max_depth"), ({"min_depth": -1.0}, "min_depth"), ({"hole_value": 1.5}, "hole_value"),
        ({"hole_value": math.nan}, "hole_value"), ({"max_depth": math.inf}, "max_depth"),
    ],
)  # fmt: skip
def test_an_invalid_range_is_refused(options, name):
    with pytest.raises(ConfigError, match=f"{name}: found"):
        with_options(NavConfig(), options)


SMALL = {"num_envs": 2, "device": "cpu", "height": 16, "width": 16, "seed": 3}


def test_an_estimator_replaces_measured_depth_for_sensor_and_map(monkeypatch):
    """The estimator reads the colours that the agent would observe."""
    seen = []

    def two_metres(rgb):
        seen.append(rgb.clone())
        return torch.full((2, 1, 16, 16), 2.0).index_fill(3, torch.tensor([0]), math.nan)

    monkeypatch.setitem(DEPTH_ESTIMATORS, "flat", two_metres)
    scenes = [load_scene("house:0")]
    env = NavEnv(scenes, sensors=("depth", "rgb", "ego_map"), estimator="flat", **SMALL)
    found = {name: value.clone() for name, value in env.reset()[0].items()}
    assert len(seen) == 1 and torch.equal(seen[0], found["rgb"])
    assert (found["depth"][..., 1:] == 0.2).all() and (found["depth"][..., 0] == 0.0).all()
    true = NavEnv(scenes, sensors=("depth", "ego_map"), **SMALL).reset()[0]
    assert not torch.equal(true["ego_map"], found["ego_map"])
    alone = NavEnv(scenes, sensors=("ego_map",), estimator="flat", **SMALL)
    assert torch.equal(alone.reset()[0]["ego_map"], found["ego_map"])
    monkeypatch.setitem(DEPTH_ESTIMATORS, "flat", lambda rgb: rgb)
    with pytest.raises(ArgumentError, match=r"estimator 'flat': found .*expected floats \[2, 1, 16, 16\]"):
        env.step(torch.ones(2, dtype=torch.int64))
    with pytest.raises(ConfigError, match="depth_noise: found 1 with the estimator 'flat', expected 0"):
        with_options(NavConfig(), {"estimator": "flat", "depth_noise": 1.0})
    with pytest.raises(ConfigError, match="estimator: found 'none', expected one of DEPTH_ESTIMATORS: flat"):
        with_options(NavConfig(), {"estimator": "none"})
