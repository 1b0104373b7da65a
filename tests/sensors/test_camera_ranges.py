"""Cameras sampled per episode: values, sensors and maps with such cameras, and evaluation with fixed ones."""

import dataclasses
import math

import numpy as np
import pytest
import torch
from frames import bodies_at, make_frame, mapped_obstacles, pack

from batchnav.config import from_dict, to_dict
from batchnav.data.scenes.load import load_scene
from batchnav.envs.config import NavConfig, config_of
from batchnav.envs.nav import NavEnv
from batchnav.errors import ArgumentError, ConfigError
from batchnav.geometry.pose import tan_half
from batchnav.renderers.raycast import RaycastRenderer
from batchnav.scene.bank import SceneBank
from batchnav.sensors import SENSORS
from batchnav.sensors.camera import MAIN, CameraConfig, camera_poses
from batchnav.sensors.depth import DepthConfig
from batchnav.sensors.frame import GivenImages
from batchnav.sensors.sensor import Cameras

HEIGHTS, HFOVS = (0.3, 1.6), (55.0, 120.0)
RANGES = {"camera_height_range": HEIGHTS, "hfov_range_deg": HFOVS}
SIGHTS = ("depth", "rgb", "normals", "semantic")


@pytest.fixture(scope="module")
def house():
    return load_scene("house:3")


def cameras(env):
    """Heights above the bodies, and fields of view in degrees, f32 [N]."""
    cameras = env.frame.cameras(MAIN)
    heights = cameras.position[:, 1] - env.sim.bodies.position[:, 1]
    return heights.cpu().numpy(), np.degrees(2 * np.arctan(cameras.tan_half_hfov.cpu().numpy()))


def test_every_episode_samples_a_camera_within_the_ranges(house, device):
    env = NavEnv([house], 256, device, seed=3, height=4, width=4, max_steps=3, **RANGES)
    env.reset()
    first = cameras(env)
    env.step([1] * 256)
    for found, same in zip(cameras(env), first, strict=True):
        np.testing.assert_allclose(found, same, atol=1e-5)
    for _ in range(2):
        env.step([1] * 256)
    drawn = [np.concatenate(parts) for parts in zip(first, cameras(env), strict=True)]
    assert (np.abs(drawn[0][:256] - drawn[0][256:]) > 1e-4).mean() > 0.99, "an episode has the last one's"
    widths = np.tan(np.radians(drawn[1]) / 2)
    for values, ends in ((drawn[0], HEIGHTS), (widths, np.tan(np.radians(HFOVS) / 2))):
        share = (values - ends[0]) / (ends[1] - ends[0])
        assert (share > -1e-5).all() and (share < 1 + 1e-5).all()
        # Uniform: deciles of 512 have deviations of 0.02 at most (Kolmogorov's bound at 1e-6 is 0.12).
        np.testing.assert_allclose(np.quantile(share, np.arange(0.1, 1.0, 0.1)), np.arange(0.1, 1.0, 0.1), atol=0.1)
    assert abs(np.corrcoef(drawn[0], widths)[0, 1]) < 0.2


def test_sampled_cameras_depend_on_seed_agent_and_episode(house):
    """Independent of the number of environments in a process, and of resets with the seed."""
    options = {"height": 4, "width": 4, **RANGES}
    whole = NavEnv([house], 8, "cpu", seed=5, **options)
    whole.reset()
    found = cameras(whole)
    part = NavEnv([house], 4, "cpu", seed=5, first_env=4, **options)
    part.reset()
    for own, all_of_them in zip(cameras(part), found, strict=True):
        np.testing.assert_allclose(own, all_of_them[4:], atol=1e-5)
    whole.reset(seed=6)
    assert not np.isclose(cameras(whole)[0], found[0], atol=1e-4).any()
    whole.reset(seed=5)
    np.testing.assert_allclose(cameras(whole)[0], found[0], atol=1e-5)


def test_two_cameras_of_a_body_are_sampled_independently(house):
    config = NavConfig(camera=CameraConfig(4, 4, **RANGES), cameras={"left": CameraConfig(4, 4, **RANGES)})
    env = NavEnv([house], 64, "cpu", seed=0, config=config, sensors=("depth", "left_depth"))
    env.reset()
    main, left = (env.frame.cameras(name) for name in ("", "left"))
    for a, b in ((main.tan_half_hfov, left.tan_half_hfov), (main.position[:, 1], left.position[:, 1])):
        assert ((a - b).abs() > 1e-4).float().mean() > 0.95


def test_sensors_use_the_field_of_view_of_each_agent(house, device):
    """Equal to images of a batch with one field of view."""
    bank, fields = SceneBank.pack([house], device, appearance=True), (60.0, 90.0, 115.0)
    places, headings = house.navmesh.sample(6, seed=1) + np.float32([0.0, 1.0, 0.0]), np.linspace(-3, 3, 6)
    poses = torch.zeros(6, dtype=torch.int32), torch.from_numpy(places), torch.from_numpy(np.float32(headings))
    poses = tuple(part.to(device) for part in poses)
    lens = torch.tensor([tan_half(field) for field in fields * 2], device=device)
    renderer, camera = RaycastRenderer(bank, 6, 12, 16), CameraConfig(12, 16)

    def seen_by(cameras):
        depth, triangle = renderer.visibility(*cameras.poses)
        for name in SIGHTS:
            sensor = SENSORS[name](camera, DepthConfig() if name == "depth" else None)
            out = torch.zeros(6, *sensor.spec.shape, dtype=sensor.spec.dtype, device=device)
            sensor.write(GivenImages(depth, triangle, cameras, bank.appearance), out)
            yield name, out.cpu().numpy()

    mixed = dict(seen_by(Cameras.level(*poses)._replace(tan_half_hfov=lens)))
    for k, field in enumerate(fields):
        for name, image in seen_by(Cameras.level(*poses, field)):
            np.testing.assert_array_equal(mixed[name][k::3], image[k::3], err_msg=name)
            assert image.std() > 0


def test_maps_are_as_accurate_as_with_a_fixed_camera(house):
    """Few obstacles are navigable cells, and the floor around the agent is recognised."""
    env = NavEnv([house], 32, "cpu", sensors=("depth", "waypoint"), seed=5, **RANGES)
    env.reset()
    for step in range(40):
        env.step([2 + step % 2 if step % 3 else 1] * 32)
    for _ in range(36):
        env.step([2] * 32)
    obstacles, navigable = mapped_obstacles(env, house)
    assert obstacles > 1000 and navigable / obstacles < 0.2
    assert env.mapper.map_state.layers.is_explored.sum(1).min() > 5


def test_agents_are_evaluated_with_the_fixed_camera():
    """Camera ranges of a policy file's training do not apply to evaluation."""
    config = NavConfig(camera=CameraConfig(**RANGES), cameras={"left": CameraConfig(**RANGES)})
    assert from_dict(NavConfig, to_dict(config)) == config
    assert config_of({"env": to_dict(config)}) == NavConfig(cameras={"left": CameraConfig()})
    assert camera_poses(CameraConfig(), *np.float32([[[0, 0, 0]]]), *np.float32([[0], [0]]))[0][0, 1] == 1.25


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"camera_height_range": (0.5,)}, r"camera_height_range: found \[0.5\], expected two numbers from 0 to 10"),
        ({"camera_height_range": (0.3, 0.9)}, r"with camera_height, 1.25, between them"),
        ({"camera_height_range": (1.6, 0.3)}, r"found \[1.6, 0.3\]"),
        ({"camera_height_range": (-1.0, 2.0)}, r"found \[-1.0, 2.0\]"),
        ({"hfov_range_deg": (60.0, 180.0)}, r"hfov_range_deg: found \[60.0, 180.0\], expected two numbers from 1 to"),
        ({"hfov_range_deg": (60.0, math.nan)}, r"hfov_range_deg: found \[60.0, nan\]"),
        ({"hfov_range_deg": "wide"}, r"hfov_range_deg: found 'wide', expected a list"),
    ],
)
def test_invalid_ranges_are_refused(house, options, message):
    with pytest.raises(ConfigError, match=message):
        NavEnv([house], 1, "cpu", **options)


def test_a_range_needs_a_seed():
    with pytest.raises(ArgumentError, match="camera: found a range and no seed, expected"):
        make_frame(pack(), bodies_at([[0, 0, 0]], [0.0]), CameraConfig(8, 8, **RANGES), ["normals"])
    assert dataclasses.replace(CameraConfig(8, 8), **RANGES).fixed == CameraConfig(8, 8)
