"""Moving bodies in what sensors observe: colours, normals, ids and depth of people, cylinders and boxes."""

import numpy as np
import pytest
import torch
from frames import bodies_at, make_frame, observe, pack, room_scene
from moving_bodies import crowd, made
from numba import typeof
from numba import types as nb

from batchnav.envs.nav import NavEnv
from batchnav.geometry.solids import HEAD_RADIUS
from batchnav.renderers.bodies import SeenBodies
from batchnav.runtime.kernels.arrays import view
from batchnav.scene.bank import SceneBank
from batchnav.sensors import body_surfaces
from batchnav.sensors.body_surfaces import FIRST_INSTANCE, HEADS, PALETTE
from batchnav.sensors.camera import CameraConfig
from batchnav.sensors.depth import DepthConfig
from batchnav.sensors.rgb import RGBConfig
from batchnav.types import BOX, CYLINDER, PERSON

CAMERA = CameraConfig(height=33, width=33, hfov_deg=60.0)
ALL = ("depth", "rgb", "normals", "semantic", "instance")


def ahead(device, shape, metres=3.0, **columns):
    """A body in front of an agent in the origin."""
    return made(device, position=[[[0.0, 0.0, -metres]]], shape=shape, **columns)


def seen(device, bodies, names=ALL, settings=None, camera=CAMERA):
    """Observations of an agent in the origin of the room, and the bank."""
    bank = pack(device)
    frame, sensors = make_frame(
        bank,
        bodies_at([[0.0, 0.0, 0.0]], [0.0], bank.device),
        camera,
        list(names),
        {"depth": DepthConfig()} | (settings or {}),
    )
    frame.show_bodies(bodies)
    return observe(frame, sensors), bank


def test_a_person_has_a_colour_a_head_a_category_and_an_id(device):
    found, bank = seen(device, ahead(device, PERSON, appearance=34))
    number = bank.categories.index("person")
    body, head = found["instance"][0, 0] == FIRST_INSTANCE, found["semantic"][0, 0] == number
    np.testing.assert_array_equal(body, head)
    assert 0.05 < body.mean() < 0.3 and number > 0
    colors = found["rgb"][0].transpose(1, 2, 0)[body].astype(float)
    parts = [np.array(PALETTE[34 % len(PALETTE)]), np.array(HEADS[34 % len(HEADS)])]
    shares = [colors / part for part in parts]  # each pixel is one of the two colours, times its light
    off = np.min([np.ptp(share, axis=1) for share in shares], axis=0)
    assert off.max() < 0.06 and {int(np.argmin([np.ptp(s[k]) for s in shares])) for k in range(len(colors))} == {0, 1}
    plain, _ = seen(device, None)
    for name in ALL:
        np.testing.assert_array_equal(found[name][0][:, ~body], plain[name][0][:, ~body])


@pytest.mark.parametrize("shape", [CYLINDER, BOX])
def test_standing_objects_have_an_id_and_no_category(device, shape):
    found, _ = seen(device, ahead(device, shape, heading=0.4))
    body = found["instance"][0, 0] >= FIRST_INSTANCE
    assert body.any() and (found["semantic"][0, 0][body] == 0).all()


@pytest.mark.parametrize("shape", [PERSON, CYLINDER, BOX])
@pytest.mark.parametrize("pitch", [0.0, -35.0])
def test_normals_are_those_of_the_shape(device, shape, pitch):
    """Distances from the shape grow by a step along the normal by the length of the step, and are 0 at the surface."""
    camera = CameraConfig(height=33, width=33, hfov_deg=60.0, camera_pitch_deg=pitch)
    bodies = ahead(device, shape, metres=1.5, heading=0.4)
    found, _ = seen(device, bodies, ("depth", "normals", "instance"), camera=camera)
    body = found["instance"][0, 0] >= FIRST_INSTANCE
    assert body.sum() > 100
    row, column = np.nonzero(body)
    scale = np.tan(np.radians(30.0)) / 33
    depth = found["depth"][0, 0][body] * 10.0
    rays = np.stack([(2 * column - 32) * scale, (32 - 2 * row) * scale, -np.ones(len(row))], 1)
    tilt = np.radians(pitch)
    turn = np.array([[1, 0, 0], [0, np.cos(tilt), -np.sin(tilt)], [0, np.sin(tilt), np.cos(tilt)]])  # heading 0
    point = (rays * depth[:, None]) @ turn.T + [0, 1.25, 1.5]
    normal = found["normals"][0].transpose(1, 2, 0)[body] @ turn.T
    np.testing.assert_allclose(np.linalg.norm(normal, axis=1), 1.0, atol=1e-5)
    np.testing.assert_allclose(distance(shape, point), 0.0, atol=1e-4)
    np.testing.assert_allclose(distance(shape, point + 0.01 * normal), 0.01, atol=2e-4)


def distance(shape, point, radius=0.3, height=1.7, heading=0.4):
    """Signed distance of points [P, 3] from a body in the origin, float64."""
    level, flat = point[:, 1], np.hypot(point[:, 0], point[:, 2])
    if shape == PERSON:
        head = np.linalg.norm(point - [0, height - HEAD_RADIUS, 0], axis=1) - HEAD_RADIUS
        clipped = np.clip(level, radius, height - 2 * HEAD_RADIUS - radius)
        return np.minimum(head, np.hypot(flat, level - clipped) - radius)
    up = np.abs(level - height / 2) - height / 2
    if shape == CYLINDER:
        return np.maximum(up, flat - radius)
    sine, cosine = np.sin(heading), np.cos(heading)
    x, z = cosine * point[:, 0] - sine * point[:, 2], sine * point[:, 0] + cosine * point[:, 2]
    return np.maximum(up, np.maximum(np.abs(x), np.abs(z)) - radius)


def test_samples_blend_a_person_at_its_outline(device):
    settings = {"rgb": RGBConfig(samples=4)}
    found, _ = seen(device, ahead(device, PERSON), ("rgb",), settings)
    single, _ = seen(device, ahead(device, PERSON), ("rgb",))
    plain, _ = seen(device, None, ("rgb",), settings)
    changed = (found["rgb"] != plain["rgb"]).any(1)
    differs = (found["rgb"].astype(int) - single["rgb"]).__abs__().max(1)
    assert changed.mean() > 0.05 and 0 < (differs[changed] > 20).mean() < 0.4


def test_an_environment_shows_bodies_that_move(device):
    sensors = ("depth", "rgb", "semantic")
    bank = SceneBank.pack([room_scene()], device, appearance=True)
    env = NavEnv(bank, 2, sensors=sensors, height=16, width=16)
    first = {name: tensor.clone() for name, tensor in env.reset(seed=3)[0].items()}
    position = env.sim.bodies.position[:, None].clone()
    bodies = made(device, position=position.cpu().numpy() + np.array([0, 50, 0]))
    env.show_bodies(bodies)
    assert all(torch.equal(tensor, first[name]) for name, tensor in env.observe().items())
    heading = env.sim.bodies.heading
    ahead = torch.stack([-torch.sin(heading), torch.zeros_like(heading), -torch.cos(heading)], 1)
    bodies.position.copy_(position + 0.8 * ahead[:, None])
    moved = env.observe()
    assert (moved["depth"] < first["depth"]).any() and not torch.equal(moved["rgb"], first["rgb"])
    assert (moved["semantic"] == env.bank.categories.index("person")).any()
    env.show_bodies(None)
    assert all(torch.equal(tensor, first[name]) for name, tensor in env.observe().items())


def test_kernels_compile_for_the_gpu_without_float64(compile_ptx):
    seen = typeof(view(SeenBodies.of(crowd(1, 1, 0), 1, torch.device("cpu"))))
    floats, bytes4 = [nb.Array(nb.float32, n, "C") for n in range(5)], nb.Array(nb.uint8, 4, "C")
    pictures = floats[3], nb.Array(nb.int32, 3, "C"), floats[2], floats[1], floats[1], floats[1], seen
    for kernel, rest in (
        (body_surfaces.paint_bodies, (floats[2], bytes4)),
        (body_surfaces.write_body_normals, (floats[4],)),
        (body_surfaces.label_bodies, (nb.Array(nb.int32, 1, "C"), nb.Array(nb.int32, 4, "C"))),
    ):
        assert ".f64" not in compile_ptx(kernel, *pictures, *rest)
