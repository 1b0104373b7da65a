"""Surface normals: closed forms in a room, triangles of a house, and holes."""

import numpy as np
import pytest
import torch
from frames import bodies_at, make_frame, observe, pack, planes_seen
from numba import types as nb
from render_reference import pixel_directions

from batchnav.data.scenes.load import load_scene
from batchnav.envs.nav import NavEnv
from batchnav.errors import ArgumentError
from batchnav.scene.bank import SceneBank
from batchnav.scene.resident import ResidentSceneBank, SceneSize
from batchnav.sensors import normals
from batchnav.sensors.camera import MAIN, CameraConfig
from batchnav.sensors.depth import DepthConfig
from batchnav.sensors.frame import GivenImages
from batchnav.sensors.normals import NormalSensor

HEADINGS = np.float32([0.0, 0.7, -2.0, 3.1, 9.4])
POSITION = np.array([0.6, 0.0, -1.1])
ROUNDING = 2e-6
EDGE = 0.02
"""Distance in metres within which rounding decides which of two planes is visible."""


def axes(heading, pitch):
    """Right, up and back of a camera, as rows of a matrix."""
    level = np.array([-np.sin(heading), 0.0, -np.cos(heading)])
    up = np.array([0.0, 1.0, 0.0])
    right = np.array([np.cos(heading), 0.0, -np.sin(heading)])
    return np.stack([right, np.cos(pitch) * up - np.sin(pitch) * level, -(np.cos(pitch) * level + np.sin(pitch) * up)])


def normals_in(bank, camera, position, heading, scene=0):
    """[N, H, W, 3]: right, up, back."""
    bodies = bodies_at(position, heading, bank.device, scene)
    return observe(*make_frame(bank, bodies, camera, ["normals"]))["normals"].transpose(0, 2, 3, 1)


@pytest.mark.parametrize("outwards", [False, True])
@pytest.mark.parametrize("pitch_deg", [0.0, -30.0, 55.0, -90.0])
def test_a_rooms_walls_floor_and_ceiling_face_the_camera(device, pitch_deg, outwards):
    """Independent of the front side of the triangles."""
    camera = CameraConfig(height=15, width=21, hfov_deg=80.0, camera_pitch_deg=pitch_deg)
    found = normals_in(pack(device, outwards=outwards), camera, [POSITION] * len(HEADINGS), HEADINGS)
    np.testing.assert_allclose(np.linalg.norm(found, axis=-1), 1.0, atol=ROUNDING)
    compared = 0
    for image, heading in zip(found, HEADINGS, strict=True):
        eye, pitch = POSITION + np.array([0.0, camera.camera_height, 0.0]), np.radians(pitch_deg)
        _, normal, gap = planes_seen(eye, heading, pitch, camera)
        expected, sure = normal @ axes(heading, pitch).T, gap > EDGE
        np.testing.assert_allclose(image[sure], expected[sure], atol=ROUNDING)
        compared += sure.mean()
    assert compared > 0.9 * len(HEADINGS)


@pytest.mark.parametrize("heading", HEADINGS)
@pytest.mark.parametrize("pitch_deg", [-20.0, -45.0, -80.0])
def test_the_floor_reads_up_in_the_cameras_frame(device, pitch_deg, heading):
    """The lowest row sees the floor: cosine of the pitch upwards, and its sine towards the camera."""
    camera = CameraConfig(height=9, width=9, camera_pitch_deg=pitch_deg)
    lowest = normals_in(pack(device), camera, [[0.0, 0.0, 0.0]], [heading])[0, -1, 3:6]
    pitch = np.radians(pitch_deg)
    np.testing.assert_allclose(lowest, np.tile([0.0, np.cos(pitch), -np.sin(pitch)], (3, 1)), atol=ROUNDING)


def test_a_wall_straight_ahead_looks_back(device):
    camera = CameraConfig(height=5, width=5, hfov_deg=20.0)
    found = normals_in(pack(device), camera, [POSITION] * 4, np.radians([0, 90, 180, 270]))
    np.testing.assert_allclose(found, np.broadcast_to([0.0, 0.0, 1.0], found.shape), atol=ROUNDING)


def test_holes_read_zero(device):
    found = normals_in(pack(device), CameraConfig(height=8, width=8), [[0, 50, 0], [0, 0, 0]], [0.0, 0.0])
    assert (found[0] == 0).all() and (np.abs(found[1]).sum(-1) > 0).all()


def house_normals(scene, triangle, heading, pitch):
    """Normals of a scene's triangles in a camera's frame, up to the sign."""
    a, b, c = (scene.mesh.vertices[scene.mesh.faces[triangle][..., k]].astype(np.float64) for k in range(3))
    normal = np.cross(b - a, c - a)
    return normal / np.linalg.norm(normal, axis=-1, keepdims=True) @ axes(heading, pitch).T


def test_a_houses_triangles_of_the_second_scene(device):
    """Compares with the mesh, under triangle indices of a bank of several scenes."""
    scenes = [load_scene("house:3"), load_scene("house:4")]
    bank, camera = SceneBank.pack(scenes, device, appearance=True), CameraConfig(24, 32, camera_pitch_deg=-15.0)
    places, headings = scenes[1].navmesh.sample(8, seed=0), np.linspace(-3, 3, 8).astype(np.float32)
    bodies = bodies_at(places, headings, device, scene=1)
    frame, sensors = make_frame(bank, bodies, camera, ["normals", "depth"], {"depth": DepthConfig()})
    found = observe(frame, sensors)["normals"].transpose(0, 2, 3, 1)
    triangle = frame.renderers[MAIN, 1].visibility(*frame.cameras(MAIN).poses).triangle.cpu().numpy() - len(
        scenes[0].mesh.faces
    )
    seen = triangle >= 0
    assert seen.mean() > 0.9
    np.testing.assert_allclose(np.linalg.norm(found[seen], axis=-1), 1.0, atol=ROUNDING)
    for image, numbers, heading in zip(found, triangle, headings, strict=True):
        expected = house_normals(scenes[1], np.maximum(numbers, 0), heading, np.radians(-15.0))
        cosine = (image * expected).sum(-1)[numbers >= 0]
        np.testing.assert_allclose(np.abs(cosine), 1.0, atol=1e-5)


def test_normals_face_the_camera(device):
    """In a house, whose surfaces are visible from both sides."""
    bank, camera = SceneBank.pack([load_scene("house:3")], device, appearance=True), CameraConfig(24, 24)
    places = bank.scenes[0].navmesh.sample(8, seed=1)
    found = normals_in(bank, camera, places, np.linspace(-3, 3, 8))
    rays = pixel_directions(0.0, 24, 24, 90.0)  # at heading 0 the camera's right, up and back are x, y and z
    assert ((found * rays).sum(-1) <= ROUNDING).all()


def test_a_bank_without_appearance_is_refused():
    scene = load_scene("house:3")
    with pytest.raises(ArgumentError, match="scenes: found a bank without appearance"):
        NavEnv(SceneBank.pack([scene]), 2, sensors=("normals",))
    assert NavEnv(SceneBank.pack([scene]), 2, sensors=("depth",), height=8, width=8).bank.appearance is None
    assert NavEnv([scene], 2, "cpu", sensors=("normals",), height=8, width=8).bank.appearance is not None
    assert NavEnv([scene], 2, "cpu", height=8, width=8).bank.appearance is None  # not requested


def test_a_slot_renders_as_its_scene(device):
    scenes = [load_scene("house:3"), load_scene("house:4")]
    bank = ResidentSceneBank([SceneSize.largest(map(SceneSize.of, scenes))] * 3, device, appearance=True)
    camera, headings = CameraConfig(16, 16), np.linspace(-3, 3, 6)
    for slot, scene in ((1, scenes[0]), (2, scenes[1]), (1, scenes[1])):  # the last scene is loaded into a slot
        bank.replace(slot, scene)
        places = scene.navmesh.sample(6, seed=2)
        packed = SceneBank.pack([scene], device, appearance=True)
        found = normals_in(bank, camera, places, headings, scene=slot)
        np.testing.assert_array_equal(found, normals_in(packed, camera, places, headings))
        assert (np.abs(found).sum(-1) > 0).mean() > 0.9


def test_a_bound_kernel_writes_to_the_given_output(device):
    """The first call binds the kernel; poses and outputs may be other tensors at later calls."""
    bank, camera = SceneBank.pack([load_scene("house:3")], device, appearance=True), CameraConfig(16, 16)
    headings = np.linspace(-3, 3, 4)
    places = bank.scenes[0].navmesh.sample(8, seed=3)
    frame, sensors = make_frame(bank, bodies_at(places[:4], headings, device), camera, ["normals"])
    first, again = observe(frame, sensors), observe(frame, sensors)
    np.testing.assert_array_equal(first["normals"], again["normals"])
    sensor, renderer = sensors["normals"], frame.renderers[MAIN, 1]
    moved, others = make_frame(bank, bodies_at(places[4:], headings, device), camera, ["normals"])
    expected, cameras = observe(moved, others)["normals"], moved.cameras(MAIN)
    for _ in range(2):
        out = torch.full((4, 3, 16, 16), 9.0, device=device)
        sensor.write(GivenImages(*renderer.visibility(*cameras.poses), cameras, bank.appearance), out)
        np.testing.assert_array_equal(out.cpu().numpy(), expected)
    with pytest.raises(ArgumentError, match="triangles: found none"):
        sensor.write(GivenImages(renderer.depth, None, cameras), out)
    with pytest.raises(ArgumentError, match="normals: found scenes without appearance"):
        sensor.write(GivenImages(renderer.depth, torch.zeros(4, 16, 16, dtype=torch.int32), cameras), out)


def test_spec():
    spec = NormalSensor(CameraConfig(height=6, width=9)).spec
    assert spec.name == "normals" and spec.shape == (3, 6, 9)
    assert {spec.stored_on(torch.device(kind)) for kind in ("cpu", "cuda")} == {torch.float32}
    box = spec.box
    assert box.shape == (3, 6, 9) and box.dtype == "float32" and (box.low == -1).all() and (box.high == 1).all()


def test_cuda_kernel_has_no_float64(compile_ptx):
    ints, rows = nb.Array(nb.int32, 3, "C"), nb.Array(nb.float32, 2, "C")
    angles, out = nb.Array(nb.float32, 1, "C"), nb.Array(nb.float32, 4, "C")
    ptx = compile_ptx(normals.write_normals, ints, angles, angles, angles, rows, out)
    assert ".f64" not in ptx
    assert "ld.global.v4" in ptx or "ld.global.nc.v4" in ptx
