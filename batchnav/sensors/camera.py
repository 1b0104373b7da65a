"""Cameras on bodies: their size, place and tilt."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

import numpy as np
import torch
from numba import prange

from batchnav.config import in_range
from batchnav.geometry.pose import forward
from batchnav.runtime.arrays import view
from batchnav.runtime.kernels import cpu_kernel, cuda, cuda_kernel, device_function
from batchnav.runtime.launch import BoundKernel
from batchnav.sensors.sensor import Draws, Views


@dataclass(frozen=True)
class CameraConfig:
    """A pinhole camera. Its place is relative to the agent's point on the navmesh and heading."""

    height: int = 64
    width: int = 64
    hfov_deg: float = 90.0
    camera_height: float = 1.25
    """Metres above the navmesh."""
    camera_forward: float = 0.0
    camera_left: float = 0.0
    camera_heading_deg: float = 0.0
    """To the left of the agent's heading."""
    camera_pitch_deg: float = 0.0
    """Up is positive."""
    backface_culling: bool = False
    """Leave out triangles seen from behind, as Habitat's renderer does."""

    def validate(self) -> None:
        """ConfigError where a value is out of range."""
        in_range(self, "height", 4, 1024)
        in_range(self, "width", 4, 1024)
        in_range(self, "hfov_deg", 1.0, 170.0)
        in_range(self, "camera_height", 0.0, 10.0)
        in_range(self, "camera_forward", -10.0, 10.0)
        in_range(self, "camera_left", -10.0, 10.0)
        in_range(self, "camera_heading_deg", -360.0, 360.0)
        in_range(self, "camera_pitch_deg", -90.0, 90.0)


class Mount(NamedTuple):
    """Where a camera sits on its body: float32, metres and radians."""

    forward: np.float32
    left: np.float32
    up: np.float32
    heading: np.float32
    pitch: np.float32

    @classmethod
    def of(cls, camera: CameraConfig) -> Mount:
        """The mount that a configuration describes."""
        places = (camera.camera_forward, camera.camera_left, camera.camera_height)
        angles = math.radians(camera.camera_heading_deg), math.radians(camera.camera_pitch_deg)
        return cls(*map(np.float32, (*places, *angles)))


class Carriers(Protocol):
    """What carries N cameras: of the simulator's bodies, what a camera has to know."""

    @property
    def scene(self) -> torch.Tensor:
        """i32 [N]: rows of the bank."""
        ...

    @property
    def position(self) -> torch.Tensor:
        """f32 [N, 3], on the navmesh."""
        ...

    @property
    def heading(self) -> torch.Tensor:
        """f32 [N]."""
        ...

    @property
    def tilt(self) -> torch.Tensor:
        """f32 [N], radians, up is positive: added to every camera's pitch."""
        ...

    @property
    def episode(self) -> torch.Tensor:
        """i32 [N]: counts each one's episodes."""
        ...

    @property
    def steps(self) -> torch.Tensor:
        """i32 [N]: made in the running episode."""
        ...


class FreeCarriers(NamedTuple):
    """`Carriers` where there is no simulator: whoever has them says where they are."""

    scene: torch.Tensor
    position: torch.Tensor
    heading: torch.Tensor
    tilt: torch.Tensor
    episode: torch.Tensor
    steps: torch.Tensor
    collisions: torch.Tensor

    @classmethod
    def at_origin(cls, n: int, device: torch.device) -> FreeCarriers:
        """`n` of them, all zeros."""
        scene, episode, steps, collisions = torch.zeros(4, n, dtype=torch.int32, device=device)
        heading, tilt = torch.zeros(2, n, device=device)
        return cls(scene, torch.zeros(n, 3, device=device), heading, tilt, episode, steps, collisions)


class Seeds(Protocol):
    """What random numbers are drawn from: of the simulator's `Origin`, what noise has to know."""

    @property
    def seed(self) -> torch.Tensor:
        """i64 [1]."""
        ...

    @property
    def first_agent(self) -> torch.Tensor:
        """i64 [1]: the first agent's number among those of all processes."""
        ...


class MountedCamera:
    """The poses of one camera on N bodies: `views`, which `move` brings up to date.

    `number` is the camera's on its body, and `seeds` what noise is drawn from; None: it has none.
    """

    def __init__(self, bodies: Carriers, camera: CameraConfig, number: int = 0, seeds: Seeds | None = None):
        n, device = len(bodies.heading), bodies.heading.device
        draws = Draws(seeds.seed, seeds.first_agent, bodies.episode, bodies.steps, number) if seeds else None
        heading, pitch = (torch.zeros(n, device=device) for _ in range(2))
        self.views = Views(bodies.scene, torch.zeros(n, 3, device=device), heading, pitch, draws)
        read = map(view, (bodies.position, bodies.heading, bodies.tilt))
        arguments = *read, Mount.of(camera), *map(view, (self.views.position, heading, pitch))
        if device.type == "cuda":
            self.move: Callable[[], Any] = BoundKernel(_place_cuda, n, *arguments)
        else:
            self.move = lambda: _place_cpu(*arguments)


def camera_poses(
    camera: CameraConfig, position: np.ndarray, heading: np.ndarray, tilt: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Where a camera is on bodies that stand at `position` f32 [N, 3] with `heading` and `tilt` f32 [N].

    Returns:
        Its place f32 [N, 3], and its heading and pitch f32 [N], radians.
    """
    out = np.zeros_like(position), np.zeros_like(heading), np.zeros_like(tilt)
    _place_cpu(position, heading, tilt, Mount.of(camera), *out)
    return out


@device_function
def _place(i, position, heading, tilt, mount, position_out, heading_out, pitch_out):
    """Put camera i where its body carries it."""
    fx, fz = forward(heading[i])  # left is (fz, 0, -fx)
    position_out[i, 0] = position[i, 0] + mount.forward * fx + mount.left * fz
    position_out[i, 1] = position[i, 1] + mount.up
    position_out[i, 2] = position[i, 2] + mount.forward * fz - mount.left * fx
    heading_out[i], pitch_out[i] = heading[i] + mount.heading, tilt[i] + mount.pitch


@cpu_kernel
def _place_cpu(position, heading, tilt, mount, position_out, heading_out, pitch_out):
    for i in prange(len(heading)):
        _place(i, position, heading, tilt, mount, position_out, heading_out, pitch_out)


@cuda_kernel
def _place_cuda(position, heading, tilt, mount, position_out, heading_out, pitch_out):
    i = cuda.grid(1)
    if i < len(heading):
        _place(i, position, heading, tilt, mount, position_out, heading_out, pitch_out)
