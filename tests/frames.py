"""A simple room, bodies in it, and observations of sensors."""

import functools

import numpy as np
import torch
import trimesh
from render_reference import pixel_directions

from batchnav.mapping.state import SIDE
from batchnav.scene.bank import SceneBank
from batchnav.scene.scene import make_scene
from batchnav.sensors.by_name import camera_sensors
from batchnav.sensors.camera import MAIN
from batchnav.sensors.frame import Frame, write_observations
from batchnav.sim.bodies import Bodies
from batchnav.types import TriangleMesh

SIZE = np.array([6.0, 3.0, 8.0])
"""Size of the room, metres; the middle of its floor is the origin."""


def room_scene(outwards=False):
    """The room as a scene; its faces look inwards, or all outwards."""
    box = trimesh.creation.box(SIZE)
    box.apply_translation([0.0, SIZE[1] / 2, 0.0])
    navmesh = make_scene("room", _mesh(box, inwards=True)).navmesh
    return make_scene("room", _mesh(box, inwards=not outwards), navmesh)


def _mesh(box, inwards):
    faces = box.faces[:, ::-1] if inwards else box.faces
    return TriangleMesh(box.vertices.astype(np.float32), np.ascontiguousarray(faces, np.int32))


def bodies_at(position, heading, device="cpu", scene=0):
    """Bodies at these positions."""
    bodies = Bodies.empty(len(heading), torch.device(device))
    bodies.position.copy_(torch.as_tensor(np.asarray(position, np.float32)))
    bodies.heading.copy_(torch.as_tensor(np.asarray(heading, np.float32)))
    bodies.scene.fill_(scene)
    return bodies


def make_frame(bank, bodies, cameras, names, settings=None, renderer="raycast"):
    """A frame, and the sensors of these names that read it; a single camera is the main one."""
    cameras = cameras if isinstance(cameras, dict) else {MAIN: cameras}
    sensors = camera_sensors(names, cameras, settings or {})
    return Frame(bank, bodies, cameras, sensors.values(), renderer), sensors


def observe(frame, sensors):
    """Each sensor's observation as a NumPy array, by name."""
    n, device, specs = frame.num_envs, frame.device, [sensor.spec for sensor in sensors.values()]
    out = {spec.name: torch.full((n, *spec.shape), 7.0, dtype=spec.dtype, device=device) for spec in specs}
    write_observations(frame, sensors, out)
    return {name: value.cpu().numpy() for name, value in out.items()}


@functools.cache
def pack(device="cpu", **options):
    """A bank of the room, with appearance."""
    return SceneBank.pack([room_scene(**options)], device, appearance=True)


def mapped_obstacles(env, scene):
    """Number of cells with obstacles on the maps of an environment, and how many of those are navigable."""
    state = env.mapper.map_state
    frame, occupied = state.origin_and_resolution.numpy(), state.layers.is_occupied.view(-1, SIDE, SIDE).numpy()
    i, r, c = np.nonzero(occupied)
    x, z = frame[i, 0] + (c + 0.5) * frame[i, 2], frame[i, 1] + (r + 0.5) * frame[i, 2]
    level = env.sim.bodies.position[:, 1].numpy()[i]
    return len(i), scene.navmesh.is_navigable(np.stack([x, level, z], 1).astype(np.float32)).sum()


def planes_seen(position, heading, pitch, camera):
    """Closed form of the visible plane of the room.

    Returns planar depth f64 [H, W], normals [H, W, 3] that point into the room, and the distance to the next plane.
    """
    matrix = camera.intrinsics if camera.fx else None
    rays = pixel_directions(heading, camera.height, camera.width, camera.hfov_deg, pitch, matrix)
    low, high = np.array([-0.5, 0.0, -0.5]) * SIZE, np.array([0.5, 1.0, 0.5]) * SIZE
    with np.errstate(divide="ignore"):
        distance = (np.where(rays > 0, high, low) - position) / rays
    distance = np.where(rays == 0, np.inf, distance)
    axis, ordered = distance.argmin(-1), np.sort(distance, axis=-1)
    inwards = -np.sign(rays) * np.eye(3)[axis]
    return ordered[..., 0], inwards, ordered[..., 1] - ordered[..., 0]
