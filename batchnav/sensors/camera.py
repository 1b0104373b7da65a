"""Cameras on bodies: image size, pose relative to the body, tilt and field of view."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, NamedTuple, Protocol

import numpy as np
import torch

from batchnav.config import bounded, shortened
from batchnav.errors import ArgumentError, ConfigError
from batchnav.geometry.pose import forward, tan_half
from batchnav.runtime.kernels.arrays import view
from batchnav.runtime.kernels.decorators import device_function
from batchnav.runtime.kernels.launch import kernel
from batchnav.runtime.kernels.rng import CAMERA, step_uniforms
from batchnav.sensors.sensor import Cameras, NoiseCounters

MAIN = ""
"""Name of the main camera: its sensors have no prefix."""
_HEIGHTS, _HFOVS = (0.0, 10.0), (1.0, 170.0)
"""Valid camera heights in metres, and horizontal fields of view in degrees."""


@dataclass(frozen=True)
class CameraConfig:
    """A pinhole camera, mounted relative to the agent's position on the navmesh and its heading."""

    height: int = bounded(64, 4, 1024)
    """Rows of an image, pixels."""
    width: int = bounded(64, 4, 1024)
    """Columns of an image, pixels."""
    hfov_deg: float = bounded(90.0, *_HFOVS)
    """Horizontal field of view, degrees."""
    camera_height: float = bounded(1.25, *_HEIGHTS)
    """Height of the camera above the navmesh, metres."""
    camera_forward: float = bounded(0.0, -10.0, 10.0)
    """Offset of the camera in front of the agent's position, metres."""
    camera_left: float = bounded(0.0, -10.0, 10.0)
    """Offset of the camera to the left of the agent's position, metres."""
    camera_heading_deg: float = bounded(0.0, -360.0, 360.0)
    """Direction of the camera, degrees to the left of the agent's heading."""
    camera_pitch_deg: float = bounded(0.0, -90.0, 90.0)
    """Pitch of the camera, degrees; up is positive."""
    backface_culling: bool = False
    """Ignore triangles seen from behind, as Habitat's renderer does."""
    camera_height_range: tuple[float, ...] = ()
    """Lowest and highest camera height, metres, for training policies that generalise over cameras: each episode
    samples a height uniformly. Empty: always `camera_height`. Evaluation uses `camera_height`."""
    hfov_range_deg: tuple[float, ...] = ()
    """Narrowest and widest field of view, degrees: each training episode samples tan(hfov / 2) uniformly. Empty: always
    `hfov_deg`."""

    def validate(self) -> None:
        """ConfigError where a value is out of range."""
        _check_ends("camera_height_range", self.camera_height_range, "camera_height", self.camera_height, _HEIGHTS)
        _check_ends("hfov_range_deg", self.hfov_range_deg, "hfov_deg", self.hfov_deg, _HFOVS)

    @property
    def fixed(self) -> CameraConfig:
        """The camera without ranges."""
        return replace(self, camera_height_range=(), hfov_range_deg=())

    @property
    def heights(self) -> tuple[float, ...]:
        """Lowest and highest camera height, metres; equal without a range."""
        return self.camera_height_range or (self.camera_height, self.camera_height)

    @property
    def hfovs_deg(self) -> tuple[float, ...]:
        """Narrowest and widest field of view, degrees; equal without a range."""
        return self.hfov_range_deg or (self.hfov_deg, self.hfov_deg)

    def beyond(self, trained: CameraConfig) -> list[str]:
        """Heights, fields of view and pitches outside of those of the camera in training, one text each."""
        compared = {
            "camera_height": (self.heights, trained.heights),
            "hfov_deg": (self.hfovs_deg, trained.hfovs_deg),
            "camera_pitch_deg": ((self.camera_pitch_deg,) * 2, (trained.camera_pitch_deg,) * 2),
        }
        return [
            f"{name} {_span(found)}, trained with {_span(expected)}"
            for name, (found, expected) in compared.items()
            if found[0] < expected[0] or found[1] > expected[1]
        ]


def _span(ends: tuple[float, ...]) -> str:
    """A range for a message: "0.3 to 1.6", or "1.25" where both ends are equal."""
    return " to ".join(dict.fromkeys(f"{end:g}" for end in ends))


def _check_ends(name: str, ends: tuple[float, ...], usual: str, value: float, limits: tuple[float, float]) -> None:
    """ConfigError for a range that is not two numbers within `limits` around the fixed value."""
    if ends and not (len(ends) == 2 and limits[0] <= ends[0] <= value <= ends[1] <= limits[1]):
        raise ConfigError(
            f"{name}: found {shortened(list(ends))}, expected two numbers from {limits[0]:g} to {limits[1]:g} with "
            f"{usual}, {value:g}, between them"
        )


class Mount(NamedTuple):
    """Pose of a camera relative to its body, and its field of view: float32, metres and radians."""

    forward: np.float32
    """Metres in front of the body."""
    left: np.float32
    """Metres to the left of the body."""
    up: np.float32
    """Lowest height above the navmesh."""
    up_range: np.float32
    """Highest minus lowest height."""
    heading: np.float32
    pitch: np.float32
    tan_half_hfov: np.float32
    """Lowest tan(hfov / 2)."""
    tan_half_range: np.float32
    """Highest minus lowest tan(hfov / 2)."""

    @classmethod
    def of(cls, camera: CameraConfig) -> Mount:
        """The mount of a configuration."""
        low, high = camera.heights
        narrow, wide = (float(tan_half(end)) for end in camera.hfovs_deg)
        places = (camera.camera_forward, camera.camera_left, low, high - low)
        angles = math.radians(camera.camera_heading_deg), math.radians(camera.camera_pitch_deg)
        return cls(*map(np.float32, (*places, *angles, narrow, wide - narrow)))


class CameraBodies(Protocol):
    """N bodies that carry cameras: the tensors of `sim.bodies.Bodies` that cameras read."""

    @property
    def scene(self) -> torch.Tensor:
        """i32 [N]: rows of the scene bank."""
        ...

    @property
    def position(self) -> torch.Tensor:
        """f32 [N, 3], on the navmesh."""
        ...

    @property
    def heading(self) -> torch.Tensor:
        """f32 [N], radians."""
        ...

    @property
    def tilt(self) -> torch.Tensor:
        """f32 [N], radians, up is positive; added to the pitch of each camera."""
        ...

    @property
    def episode(self) -> torch.Tensor:
        """i32 [N]: index of each agent's running episode."""
        ...

    @property
    def steps(self) -> torch.Tensor:
        """i32 [N]: steps of the running episode."""
        ...


class FreeBodies(NamedTuple):
    """`CameraBodies` without a simulator: the caller sets the poses."""

    scene: torch.Tensor
    position: torch.Tensor
    heading: torch.Tensor
    tilt: torch.Tensor
    episode: torch.Tensor
    steps: torch.Tensor
    collisions: torch.Tensor

    @classmethod
    def at_origin(cls, n: int, device: torch.device) -> FreeBodies:
        """`n` bodies with all values 0."""
        scene, episode, steps, collisions = torch.zeros(4, n, dtype=torch.int32, device=device)
        heading, tilt = torch.zeros(2, n, dtype=torch.float32, device=device)
        return cls(
            scene, torch.zeros(n, 3, dtype=torch.float32, device=device), heading, tilt, episode, steps, collisions
        )


class Seeds(Protocol):
    """Seed of random numbers: the tensors of the simulator's `SamplingState` that sensors read."""

    @property
    def seed(self) -> torch.Tensor:
        """i64 [1]: seed."""
        ...

    @property
    def first_agent(self) -> torch.Tensor:
        """i64 [1]: index of the first agent among the agents of all processes."""
        ...


class MountedCamera:
    """One camera on each of N bodies. `move` updates `cameras` to the bodies' current poses.

    Args:
        bodies: bodies that carry the cameras.
        camera: configuration of the camera.
        number: index of the camera on its body, which selects its random numbers.
        seeds: seed of noise and of camera ranges; None: no noise, and ArgumentError for a camera with a range.
    """

    def __init__(self, bodies: CameraBodies, camera: CameraConfig, number: int = 0, seeds: Seeds | None = None):
        n, device = len(bodies.heading), bodies.heading.device
        if seeds is None and camera != camera.fixed:
            raise ArgumentError("camera: found a range and no seed, expected `seeds` or a camera without ranges")
        zero = torch.zeros(1, dtype=torch.int64, device=device)
        by = (seeds.seed, seeds.first_agent) if seeds else (zero, zero)
        noise = NoiseCounters(*by, bodies.episode, bodies.steps, number)
        heading, pitch, tan_half_hfov = (torch.zeros(n, dtype=torch.float32, device=device) for _ in range(3))
        written = torch.zeros(n, 3, dtype=torch.float32, device=device), heading, pitch, tan_half_hfov
        self.cameras = Cameras(bodies.scene, *written, noise if seeds else None)
        read = map(view, (bodies.position, bodies.heading, bodies.tilt, noise))
        arguments = *read, Mount.of(camera), *map(view, written)
        self.move: Callable[[], Any] = place_camera.bind(n, *arguments)


def camera_poses(
    camera: CameraConfig, position: np.ndarray, heading: np.ndarray, tilt: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Camera poses for bodies at `position` f32 [N, 3] with `heading` and `tilt` f32 [N].

    Returns:
        Position f32 [N, 3], heading f32 [N] and pitch f32 [N], metres and radians.
    """
    bodies = FreeBodies.at_origin(len(heading), torch.device("cpu"))
    for target, source in zip(bodies[1:4], (position, heading, tilt), strict=True):
        target.copy_(torch.from_numpy(source))
    mounted = MountedCamera(bodies, camera)
    mounted.move()
    places, headings, pitches = (tensor.numpy() for tensor in mounted.cameras[1:4])
    return places, headings, pitches


@kernel(fastmath=True)
@device_function
def place_camera(i, position, heading, tilt, noise, mount, position_out, heading_out, pitch_out, tan_half_out):
    """Write the pose and the field of view of camera i in the running episode."""
    agent = noise.first_agent[0] + np.int64(i)
    u, v, _, _ = step_uniforms(noise.seed[0], agent, noise.episode[i], 0, CAMERA, 1 + noise.camera)
    fx, fz = forward(heading[i])  # left is (fz, 0, -fx)
    position_out[i, 0] = position[i, 0] + mount.forward * fx + mount.left * fz
    position_out[i, 1] = position[i, 1] + (mount.up + u * mount.up_range)
    position_out[i, 2] = position[i, 2] + mount.forward * fz - mount.left * fx
    heading_out[i], pitch_out[i] = heading[i] + mount.heading, tilt[i] + mount.pitch
    tan_half_out[i] = mount.tan_half_hfov + v * mount.tan_half_range
