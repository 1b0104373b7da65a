"""Cameras on bodies: poses, images, several cameras, and rendering on demand."""

import dataclasses
import math

import numpy as np
import pytest
import torch
from frames import bodies_at, make_frame, mapped_obstacles, observe, pack, planes_seen

from batchnav.config import from_dict, to_dict
from batchnav.data.scenes.load import load_scene
from batchnav.envs.config import NavConfig, config_of
from batchnav.envs.nav import NavEnv
from batchnav.envs.observations import specs_of
from batchnav.errors import ArgumentError, ConfigError
from batchnav.geometry.pose import tan_half
from batchnav.renderers.raycast import RaycastRenderer
from batchnav.scene.bank import SceneBank
from batchnav.sensors import SENSORS
from batchnav.sensors.by_name import check_names
from batchnav.sensors.camera import MAIN, CameraConfig, camera_poses
from batchnav.sensors.depth import DepthConfig
from batchnav.sensors.frame import GivenImages, write_observations
from batchnav.sensors.sensor import Cameras

POSITION, HEADINGS = np.array([0.5, 0.1, -1.0]), np.float32([0.0, 0.9, -2.2, 7.0])
ROUNDING = 2e-5
"""Tolerance in metres for float32 poses and rays in a room of eight metres."""
EDGE = 0.005
"""Distance of two planes in metres within which OpenGL, which rounds vertices to a grid, may see the other plane."""
SETTINGS = {"depth": DepthConfig(max_depth=1000.0)}
MOUNTS = [
    {}, {"camera_height": 0.4}, {"camera_forward": 0.6}, {"camera_left": 0.7}, {"camera_left": -0.7},
    {"camera_heading_deg": 90.0}, {"camera_heading_deg": -200.0}, {"camera_pitch_deg": -40.0},
    {"camera_pitch_deg": 90.0}, {"hfov_deg": 140.0},
    {"camera_height": 2.0, "camera_forward": -0.3, "camera_left": 0.2, "camera_heading_deg": 35.0,
     "camera_pitch_deg": 20.0},
    {"camera_height": 0.7, "camera_heading_deg": 35.0, "camera_pitch_deg": 20.0, "fx": 11.0, "fy": 17.0, "cx": 2.5,
     "cy": 9.25},
]  # fmt: skip


def eye_of(camera, heading):
    """Position and heading of a camera in float64."""
    ahead, left = np.array([-np.sin(heading), 0, -np.cos(heading)]), np.array([-np.cos(heading), 0, np.sin(heading)])
    place = POSITION + camera.camera_forward * ahead + camera.camera_left * left + [0, camera.camera_height, 0]
    return place, heading + np.radians(camera.camera_heading_deg)


@pytest.mark.parametrize(
    ("mount", "renderer"),
    [*((mount, "raycast") for mount in MOUNTS), *((mount, "opengl") for mount in MOUNTS[-2:])],
    ids=lambda value: value if isinstance(value, str) else ",".join(name[-7:] for name in value) or "default",
)
def test_a_camera_sees_the_room_from_its_place(request, device, mount, renderer):
    if renderer == "opengl":
        request.getfixturevalue("opengl")
    camera = CameraConfig(height=13, width=19, **mount)
    bodies = bodies_at([POSITION] * len(HEADINGS), HEADINGS, device)
    frame, sensors = make_frame(pack(device), bodies, camera, ["depth"], SETTINGS, renderer)
    metres = 1000.0 * observe(frame, sensors)["depth"][:, 0]
    cameras = frame.cameras(MAIN)
    for i, heading in enumerate(HEADINGS):
        place, direction = eye_of(camera, float(heading))
        np.testing.assert_allclose(cameras.position[i].cpu(), place, atol=ROUNDING)
        expected, _, gap = planes_seen(place, direction, np.radians(camera.camera_pitch_deg), camera)
        sure = gap > EDGE
        assert sure.mean() > 0.9
        np.testing.assert_allclose(metres[i][sure], expected[sure], rtol=1e-5, atol=1e-4)


def test_a_body_facing_minus_z_has_minus_x_on_its_left():
    """By hand: the walls are 3 m to either side and 4 m ahead of the room's middle."""
    bodies = bodies_at([[0.5, 0.0, 1.0]], [0.0])

    def ahead(**mount):
        camera = CameraConfig(height=5, width=5, hfov_deg=1.0, **mount)
        return 1000.0 * observe(*make_frame(pack(), bodies, camera, ["depth"], SETTINGS))["depth"][0, 0, 2, 2].item()

    assert ahead() == pytest.approx(5.0, abs=1e-5)
    assert ahead(camera_forward=0.5) == pytest.approx(4.5, abs=1e-5)
    assert ahead(camera_heading_deg=90.0) == pytest.approx(3.5, abs=1e-5)
    assert ahead(camera_heading_deg=90.0, camera_left=0.4) == pytest.approx(3.1, abs=1e-5)
    assert ahead(camera_heading_deg=-90.0, camera_left=0.4) == pytest.approx(2.9, abs=1e-5)
    assert ahead(camera_pitch_deg=-90.0) == pytest.approx(1.25, abs=1e-5)
    assert ahead(camera_pitch_deg=90.0, camera_height=0.75) == pytest.approx(2.25, abs=1e-5)


def test_cameras_follow_their_bodies(device):
    bodies = bodies_at([POSITION], [0.0], device)
    frame, sensors = make_frame(
        pack(device), bodies, CameraConfig(8, 8, camera_forward=0.3), ["depth", "normals"], SETTINGS
    )
    before = observe(frame, sensors)
    bodies.position[:, 0] += 0.5
    bodies.heading.add_(0.3)
    moved = observe(frame, sensors)
    fresh = bodies_at(bodies.position.cpu(), bodies.heading.cpu(), device)
    again = observe(*make_frame(pack(device), fresh, CameraConfig(8, 8, camera_forward=0.3), ["depth"], SETTINGS))
    np.testing.assert_array_equal(moved["depth"], again["depth"])
    assert not np.array_equal(moved["depth"], before["depth"])
    bodies.position[:, 0] -= 0.5
    bodies.heading.zero_()
    for name, image in observe(frame, sensors).items():
        np.testing.assert_array_equal(image, before[name])


def test_several_cameras_of_different_sizes(device):
    """Each camera's observation equals that of the camera alone, under its own name."""
    cameras = {
        MAIN: CameraConfig(16, 16), "left": CameraConfig(8, 24, camera_heading_deg=90.0),
        "top_view": CameraConfig(12, 4, camera_height=2.5, camera_pitch_deg=-90.0, hfov_deg=60.0),
    }  # fmt: skip
    bank, bodies = pack(device), bodies_at([POSITION] * 4, HEADINGS, device)
    names = ["depth", "left_depth", "left_normals", "top_view_normals"]
    frame, sensors = make_frame(bank, bodies, cameras, names, SETTINGS)
    together = observe(frame, sensors)
    assert {name: image.shape for name, image in together.items()} == {
        "depth": (4, 1, 16, 16), "left_depth": (4, 1, 8, 24), "left_normals": (4, 3, 8, 24),
        "top_view_normals": (4, 3, 12, 4),
    }  # fmt: skip
    for name in names:
        camera, sensor = name.rsplit("_", 1) if "_" in name else (MAIN, name)
        alone = observe(*make_frame(bank, bodies, cameras[camera], [sensor], SETTINGS))[sensor]
        np.testing.assert_array_equal(together[name], alone)
    assert set(frame.renderers) == {(name, 1) for name in cameras}


def test_a_camera_without_a_sensor_is_not_rendered():
    cameras = {MAIN: CameraConfig(), "left": CameraConfig(8, 8)}
    frame, _ = make_frame(pack(), bodies_at([POSITION], [0.0]), cameras, ["left_depth"], SETTINGS)
    assert set(frame.renderers) == {("left", 1)} and set(frame.mounts) == {"left"}


def test_only_requested_observations_are_rendered(monkeypatch):
    frame, sensors = make_frame(
        pack(), bodies_at([POSITION], [0.0]), CameraConfig(8, 8), ["depth", "normals"], SETTINGS
    )
    drawn = []
    for method in ("render", "visibility"):
        renderer, plain = frame.renderers[MAIN, 1], getattr(frame.renderers[MAIN, 1], method)
        monkeypatch.setattr(
            renderer, method, lambda *views, plain=plain, method=method: (drawn.append(method), plain(*views))[1]
        )
    depth, normals = torch.zeros(1, 1, 8, 8), torch.zeros(1, 3, 8, 8)
    write_observations(frame, sensors, {})
    write_observations(frame, sensors, {"pointgoal": torch.zeros(1, 2)})
    assert drawn == []
    write_observations(frame, sensors, {"depth": depth})  # depth alone needs no triangles
    assert drawn == ["render"]
    write_observations(frame, sensors, {"depth": depth, "normals": normals})  # both from one rendering
    assert drawn == ["render", "visibility"]


def test_without_sensors_nothing_is_rendered():
    env = NavEnv(pack(), 3, sensors=())
    assert env.frame.renderers == {} and set(env.single_observation_space.spaces) == {"pointgoal"}
    observation, _ = env.reset()
    assert set(observation) == {"pointgoal"} and env.capturable
    observation, *_ = env.step(torch.full((3,), 1))
    assert set(observation) == {"pointgoal"}


@pytest.mark.parametrize("name", ["detph", "", "right_depth", "left_", "left", "left_smell", "_depth"])
def test_unknown_sensors_are_named_with_all_sensors(name):
    config = NavConfig(cameras={"left": CameraConfig(8, 8)})
    for make in (
        lambda: check_names((name,), config.all_cameras),
        lambda: NavEnv(pack(), 2, config=config, sensors=("depth", name)),
        lambda: specs_of(dataclasses.replace(config, sensors=(name,))),
    ):
        with pytest.raises(ConfigError, match=f"sensors: found '{name}', expected some of ") as error:
            make()
        for offered in ("depth", "normals", "left_depth", "left_normals"):
            assert offered in str(error.value)


def test_a_sensor_listed_twice_is_observed_once():
    assert [spec.name for spec in specs_of(NavConfig(sensors=("depth", "normals", "depth")))] == [
        "depth", "normals", "pointgoal",
    ]  # fmt: skip


def test_observations_match_the_specs():
    config = NavConfig(
        camera=CameraConfig(8, 8), cameras={"left": CameraConfig(4, 6)}, sensors=("depth", "left_normals")
    )
    env = NavEnv(pack(), 3, config=config)
    observation, _ = env.reset()
    assert env.specs == specs_of(config)
    assert set(observation) == {"depth", "left_normals", "pointgoal"} == set(env.storage)
    for spec in env.specs:
        value = observation[spec.name]
        assert value.shape == (3, *spec.shape) and value.dtype == spec.dtype == env.storage[spec.name]
        assert env.single_observation_space[spec.name] == spec.box
        assert all(spec.box.contains(row.numpy()) for row in value)


@pytest.mark.parametrize("name", ["", "top view", "1st", "a-b"])
def test_cameras_have_names_that_are_identifiers(name):
    with pytest.raises(ConfigError, match="cameras: found a camera named"):
        NavEnv(pack(), 2, config=NavConfig(cameras={name: CameraConfig()}))


# Cameras sampled per episode: values, sensors and maps with such cameras, and evaluation with fixed ones

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
