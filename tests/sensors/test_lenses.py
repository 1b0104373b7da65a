"""Cameras by their matrix: pixels that are not square, principal points off the middle, calibrations, distortion."""

import math
from dataclasses import replace

import cv2
import numpy as np
import pytest
import torch
from frames import bodies_at, make_frame, mapped_obstacles, observe

import batchnav
from batchnav.config import from_dict, to_dict
from batchnav.data.scenes.load import load_scene
from batchnav.envs.config import NavConfig, with_camera
from batchnav.envs.nav import NavEnv
from batchnav.errors import ArgumentError, ConfigError
from batchnav.sensors.camera import MAIN, CameraConfig, load_camera_info
from batchnav.sensors.depth import DepthConfig
from batchnav.sensors.distortion import Distortion, distort, undistort

KINDS = ("depth", "rgb", "semantic", "normals")
LENS = {"fx": 41.0, "fy": 53.0, "cx": 20.0, "cy": 30.5}
BROWN = (-0.28, 0.09, 0.002, -0.001, -0.01)
"""Coefficients of a webcam."""
CAMERA_INFO = """image_width: 640
image_height: 480
camera_name: head
camera_matrix:
  rows: 3
  cols: 3
  data: [410.0, 0.0, 300.0, 0.0, 420.0, 250.0, 0.0, 0.0, 1.0]
distortion_model: plumb_bob
distortion_coefficients:
  rows: 1
  cols: 5
  data: [-0.28, 0.09, 0.002, -0.001, -0.01]
rectification_matrix:
  rows: 3
  cols: 3
  data: [1.0, 0.0, 0.0, 0.0, 1.0, 0.0, 0.0, 0.0, 1.0]
projection_matrix:
  rows: 3
  cols: 4
  data: [380.0, 0.0, 310.0, 0.0, 0.0, 390.0, 240.0, 0.0, 0.0, 0.0, 1.0, 0.0]
"""


@pytest.fixture(scope="module")
def house():
    return load_scene("house:3")


@pytest.fixture(scope="module")
def bank(house):
    return batchnav.SceneBank.pack([house], "cpu", appearance=True)


def seen_by(bank, camera, position, heading, renderer="raycast"):
    settings = {"depth": DepthConfig(max_depth=1000.0)}
    return observe(*make_frame(bank, bodies_at([position], [heading]), camera, KINDS, settings, renderer))


@pytest.mark.parametrize("renderer", ["raycast", "opengl"])
def test_a_camera_off_the_middle_sees_a_part_of_a_larger_image(request, house, bank, renderer):
    """Every sensor, with textures and normals."""
    if renderer == "opengl":
        request.getfixturevalue("opengl")
    position, pose = house.navmesh.sample(1, seed=1)[0], {"camera_heading_deg": 20.0, "camera_pitch_deg": -15.0}
    whole = CameraConfig(height=64, width=64, **pose)
    row, column, height, width = 10, 25, 40, 30
    part = CameraConfig(height=height, width=width, fx=32.0, fy=32.0, cx=31.5 - column, cy=31.5 - row, **pose)
    large, small = (seen_by(bank, camera, position, 0.7, renderer) for camera in (whole, part))
    for name, image in small.items():
        expected = large[name][:, :, row : row + height, column : column + width]
        differing = np.abs(image.astype(float) - expected.astype(float)).max(1) > (2 if name == "rgb" else 1e-4)
        assert differing.mean() < 0.005, name  # pixels on silhouettes


def test_a_symmetric_matrix_gives_the_same_pictures_as_a_field_of_view(house, bank):
    position = house.navmesh.sample(1, seed=1)[0]
    camera = CameraConfig(height=24, width=32, hfov_deg=80.0)
    (fx, _, cx), (_, fy, cy), _ = camera.intrinsics.tolist()
    by_matrix = replace(camera, fx=fx, fy=fy, cx=cx, cy=cy)
    assert by_matrix.lens is None and by_matrix.hfov_deg == pytest.approx(80.0, abs=1e-12)
    expected, found = (seen_by(bank, each, position, 0.7) for each in (camera, by_matrix))
    assert all(np.array_equal(found[name], expected[name]) for name in KINDS)


def test_the_matrix_is_that_of_habitat_sims_projection():
    """Magnum's `Matrix4::perspectiveProjection(hfov, aspect, near, far)`, which habitat-sim's sensors use."""
    height, width, hfov = 120, 160, math.radians(79.0)
    x_scale = 1.0 / math.tan(hfov / 2)
    projection = np.array([[x_scale, 0.0], [0.0, x_scale * width / height]])
    points = np.random.default_rng(0).uniform([-1, -1, 1], [1, 1, 5], (50, 3)) @ np.diag([1.0, 1.0, -1.0])
    ndc = points[:, :2] @ projection / -points[:, 2:]
    viewport = (ndc * [1, -1] + 1) / 2 * [width, height] - 0.5  # pixel centres have integer coordinates
    optical = points * [1, -1, -1]
    found = optical @ CameraConfig(height=height, width=width, hfov_deg=79.0).intrinsics.T
    np.testing.assert_allclose(found[:, :2] / found[:, 2:], viewport, atol=1e-9)


@pytest.mark.parametrize("lens", [{}, LENS], ids=["field of view", "matrix"])
def test_point_clouds_lie_on_the_mesh(house, lens):
    camera = {"camera_forward": 0.1, "camera_left": -0.05, "camera_pitch_deg": -20.0, "camera_heading_deg": 30.0}
    env = NavEnv([house], 3, "cpu", seed=4, sensors=("depth", "normals"), height=48, width=40, **camera, **lens)
    env.reset()
    bodies, main = env.sim.bodies, env.cameras["main"]
    depth, triangle = env.frame.depth(MAIN).numpy(), env.frame.triangle(MAIN).numpy()
    corners = house.mesh.vertices[house.mesh.faces].astype(np.float64)
    rows, columns = np.indices(depth.shape[1:])
    pixels = np.stack([columns, rows, np.ones_like(rows)], -1).reshape(-1, 3).astype(np.float64)
    for i in range(3):
        seen = triangle[i].ravel() >= 0
        optical = (pixels @ np.linalg.inv(main.intrinsics).T * depth[i].ravel()[:, None])[seen]
        body = (main.extrinsics @ np.column_stack([optical, np.ones(len(optical))]).T)[:3]
        yaw = float(bodies.heading[i])
        ahead, left, up = body
        east, north = np.cos(yaw) * ahead - np.sin(yaw) * left, np.sin(yaw) * ahead + np.cos(yaw) * left
        points = np.stack([-north, up, -east], 1) + bodies.position[i].numpy().astype(np.float64)
        a, b, c = corners[triangle[i].ravel()[seen]].transpose(1, 0, 2)
        normal = np.cross(b - a, c - a)
        normal /= np.linalg.norm(normal, axis=1, keepdims=True)
        assert np.abs(((points - a) * normal).sum(1)).max() < 1e-3
        assert (points >= corners.min(axis=(0, 1)) - 1e-3).all() and (points <= corners.max(axis=(0, 1)) + 1e-3).all()
    env.close()


def test_maps_of_such_cameras_are_as_accurate(house):
    lens = {"height": 48, "width": 64, "fx": 30.0, "fy": 38.0, "cx": 20.0, "cy": 30.0}
    env = NavEnv([house], 8, "cpu", seed=1, sensors=("depth", "ego_map"), **lens)
    env.reset()
    generator = torch.Generator().manual_seed(0)
    for _ in range(40):
        env.step(torch.randint(1, 4, (8,), generator=generator))
    cells, navigable = mapped_obstacles(env, house)
    assert cells > 100 and navigable < 0.02 * cells
    env.close()


def test_pictures_without_an_environment_take_a_matrix(house):
    eye = house.navmesh.sample(1, seed=3)[0] + np.float32([0.0, 1.2, 0.0])
    image = {"height": 40, "width": 30, "sensors": ("depth",)}
    matrix = [[41.0, 0.0, 20.0], [0.0, 53.0, 30.5], [0.0, 0.0, 1.0]]
    found = batchnav.render(house, eye, 0.4, intrinsics=matrix, **image)["depth"]
    bank = batchnav.SceneBank.pack([house], "cpu")
    renderer = batchnav.RaycastRenderer(bank, 1, 40, 30, intrinsics=matrix)
    poses = torch.zeros(1, dtype=torch.int32), torch.tensor(eye)[None], torch.tensor([0.4])
    np.testing.assert_array_equal(found, renderer.render(*poses).numpy())
    with pytest.raises(ArgumentError, match=r"intrinsics: found \[\[1.0, 0.5, 0.0\], .*expected \[\[fx, 0, cx\]"):
        batchnav.render(house, eye, 0.4, intrinsics=[[1.0, 0.5, 0.0], [0.0, 1.0, 0.0], [0.0, 0.0, 1.0]], **image)
    with pytest.raises(ArgumentError, match=r"tan_half_hfov: found .*expected .*\[1, 4\]"):
        renderer.render(*poses, tan_half_hfov=torch.ones(1))


# Distortion


def test_the_model_is_opencvs():
    camera = CameraConfig(height=48, width=64, fx=50.0, fy=55.0, cx=30.0, cy=25.0, distortion=BROWN)
    rows, columns = np.indices((48, 64)).reshape(2, -1).astype(np.float64)
    x, y = (columns - 30.0) / 50.0, (rows - 25.0) / 55.0
    found = np.stack(distort(x, y, BROWN), 1) * [50.0, 55.0] + [30.0, 25.0]
    zero = np.zeros(3)
    points = np.column_stack([x, y, np.ones_like(x)])
    expected, _ = cv2.projectPoints(points, zero, zero, camera.intrinsics, np.array(BROWN))
    np.testing.assert_allclose(found, expected[:, 0], atol=1e-9)
    np.testing.assert_allclose(np.stack(distort(*undistort(x, y, BROWN), BROWN)), np.stack([x, y]), atol=1e-9)


def test_opencv_undistorts_images_to_those_of_a_pinhole_camera(house, bank):
    position = house.navmesh.sample(4, seed=1)[3]
    pinhole = CameraConfig(height=240, width=320, fx=230.0, fy=235.0, cx=150.0, cy=130.0)
    camera = replace(pinhole, distortion=BROWN)
    expected, distorted = (seen_by(bank, each, position, 3.7) for each in (pinhole, camera))
    assert camera.rendered.hfov_deg > camera.hfov_deg  # it sees more than its image at the corners
    image, whole = (seen["rgb"][0].transpose(1, 2, 0) for seen in (distorted, expected))
    straight = cv2.undistort(np.ascontiguousarray(image), camera.intrinsics, np.array(BROWN))
    near, far = (np.abs(seen.astype(int) - whole).max(-1) for seen in (straight, image))
    # Resampling to the nearest pixel moves edges by a pixel; the distorted image is elsewhere altogether.
    assert near.mean() < 0.25 * far.mean() and (near > 24).mean() < 0.06 < 0.15 < (far > 24).mean()


def test_every_sensor_of_a_camera_is_distorted_alike(house, bank):
    position = house.navmesh.sample(1, seed=1)[0]
    camera = CameraConfig(height=40, width=48, fx=30.0, fy=31.0, cx=22.0, cy=20.0, distortion=BROWN[:4])
    found, straight = (seen_by(bank, each, position, 0.7) for each in (camera, camera.rendered))
    pixels = Distortion.of(camera.intrinsics, 40, 48, BROWN[:4]).pixels
    for name in KINDS:
        channels = found[name].shape[1]
        np.testing.assert_array_equal(
            found[name].reshape(channels, -1), straight[name].reshape(channels, -1)[:, pixels]
        )


# Calibration files


def test_a_calibration_of_ros_is_a_camera(tmp_path):
    path = tmp_path / "head.yaml"
    path.write_text(CAMERA_INFO)
    camera = batchnav.load_camera_info(path, camera_height=0.4)
    assert (camera.width, camera.height, camera.camera_height) == (640, 480, 0.4)
    np.testing.assert_array_equal(camera.intrinsics, [[410.0, 0, 300], [0, 420.0, 250], [0, 0, 1]])
    assert camera.distortion == BROWN
    straight = load_camera_info(path, rectified=True)
    np.testing.assert_array_equal(straight.intrinsics, [[380.0, 0, 310], [0, 390.0, 240], [0, 0, 1]])
    assert straight.distortion == ()
    small = load_camera_info(path, height=48, width=64)
    np.testing.assert_allclose(small.intrinsics, [[41.0, 0, 29.55], [0, 42.0, 24.55], [0, 0, 1]])
    assert from_dict(CameraConfig, to_dict(small)) == small


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (("image_width: 640\n", ""), r"head\.yaml: found no calibration \(KeyError: 'image_width'"),
        (("plumb_bob", "equidistant"), r"distortion_model: found 'equidistant', expected plumb_bob"),
        (("0.09, 0.002, -0.001, -0.01]", "0.09]"), r"distortion: found \[-0\.28, 0\.09\], expected k1, k2, p1, p2"),
        (("[-0.28, 0.09", "[-3.0, 0.09"), r"distortion: found .*do not fold the image"),
        (("[410.0, 0.0", "[-410.0, 0.0"), r"fx: found -410\.0, expected 1"),
        ((CAMERA_INFO, "[1, 2]"), r"head\.yaml: found no calibration"),
    ],
)
def test_a_damaged_calibration_is_refused(change, message, tmp_path):
    path = tmp_path / "head.yaml"
    path.write_text(CAMERA_INFO.replace(*change))
    with pytest.raises(ConfigError, match=message):
        load_camera_info(path)


def test_a_policy_is_told_of_another_lens(tmp_path, caplog):
    path = tmp_path / "head.yaml"
    path.write_text(CAMERA_INFO)
    config = with_camera(NavConfig(), 0.4, None, path)
    assert (config.camera.height, config.camera.width, config.camera.camera_height) == (64, 64, 0.4)
    assert config.camera.fx == pytest.approx(41.0) and config.camera.fy == pytest.approx(56.0)
    texts = "; ".join(config.camera.beyond(CameraConfig()))
    assert "pixel aspect or principal point" in texts and "distortion" in texts
    back = with_camera(config, None, 90.0).camera
    assert back.lens is None and back.distortion == () and back.hfov_deg == 90.0
    with pytest.raises(ConfigError, match="hfov_deg: found 90 with the camera"):
        with_camera(NavConfig(), None, 90.0, path)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"fx": 30.0}, "camera: found fx, expected all of fx, fy, cx, cy or none"),
        ({**LENS, "hfov_range_deg": (40.0, 90.0)}, r"hfov_range_deg: found \[40\.0, 90\.0\] with fx"),
        ({**LENS, "fx": 0.0}, r"fx: found 0\.0, expected 1"),
        ({**LENS, "cx": math.nan}, "cx: found nan"),
        ({"distortion": (0.1,)}, r"distortion: found \[0\.1\], expected k1, k2, p1, p2"),
    ],
)
def test_invalid_lenses_are_refused(house, options, message):
    with pytest.raises(ConfigError, match=message):
        NavEnv([house], 1, "cpu", **options)
