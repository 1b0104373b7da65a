"""Images of a scene without an environment: `render`."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch

from batchnav.config import from_dict
from batchnav.errors import ArgumentError
from batchnav.observation import Frame as FrameInput
from batchnav.observation import Spec
from batchnav.renderers.base import check_intrinsics
from batchnav.runtime.device import check_memory, resolve_device
from batchnav.runtime.kernels.arrays import floats
from batchnav.scene.bank import SceneBank
from batchnav.scene.scene import Scene
from batchnav.sensors import SENSORS
from batchnav.sensors.by_name import with_distortion
from batchnav.sensors.camera import MAIN, CameraConfig, FreeBodies
from batchnav.sensors.frame import Frame, appearance_needed, write_observations
from batchnav.sensors.sensor import CameraSensor


def render(
    scene: Scene,
    position: np.ndarray | torch.Tensor | Sequence,
    heading: np.ndarray | torch.Tensor | Sequence | float,
    sensors: Sequence[str] = ("rgb", "depth", "semantic"),
    height: int = 64,
    width: int = 64,
    hfov_deg: float = 90.0,
    renderer: str = "raycast",
    device: str | torch.device = "cpu",
    backface_culling: bool = False,
    intrinsics: np.ndarray | Sequence | None = None,
    distortion: Sequence[float] = (),
) -> dict[str, np.ndarray]:
    """Images from level cameras in a scene, by sensor. Each call copies the scene to the device: meant for few images.

    Args:
        scene: see `load_scene`.
        position: camera positions f32 [N, 3] or [3], metres, +Y up: an array, a tensor or a list; N may be 0.
        heading: f32 [N], or one value for all: radians, 0 along -Z, positive to the left.
        sensors: names in `batchnav.sensors.SENSORS`.
        height: rows of an image, 4 to 1024.
        width: columns of an image, 4 to 1024.
        hfov_deg: horizontal field of view, 1 to 170 degrees.
        renderer: "raycast", "opengl", or "auto" for the faster one on this machine.
        device: "cpu", "cuda" or "auto".
        backface_culling: ignore triangles seen from behind, as habitat-sim does.
        intrinsics: camera matrix [3, 3], pixels, which replaces `hfov_deg`; see `CameraConfig.intrinsics`.
        distortion: Brown-Conrady coefficients k1, k2, p1, p2 and, optionally, k3.

    Returns "rgb" u8 [N, H, W, 3]; "depth" f32 [N, H, W], planar, metres, 0 for holes; other sensors as [N, H, W], or
    [N, H, W, C] for several channels.

    ArgumentError for invalid arguments.
    """
    if not isinstance(scene, Scene):
        raise ArgumentError(f"scene: found {type(scene).__name__}, expected a Scene (see load_scene)")
    listed = isinstance(sensors, Sequence) and not isinstance(sensors, str)
    if not listed or not all(isinstance(name, str) and name in SENSORS for name in sensors):
        raise ArgumentError(f"sensors: found {sensors!r}, expected some of {', '.join(SENSORS)}")
    size = {"height": height, "width": width, "hfov_deg": hfov_deg, "camera_height": 0.0}
    if intrinsics is not None:
        matrix = check_intrinsics(intrinsics)
        size |= dict(zip(("fx", "fy", "cx", "cy"), matrix[[0, 1, 0, 1], [0, 1, 2, 2]].tolist(), strict=True))
    lens = {"distortion": [float(value) for value in distortion]}
    camera = from_dict(CameraConfig, {**size, **lens, "backface_culling": backface_culling})
    kinds = {**SENSORS, "depth": PlanarDepth}
    made = {name: with_distortion(kinds[name](camera, None), camera) for name in sensors}
    bank = SceneBank.pack([scene], resolve_device(device), appearance_needed(made.values()))
    places, headings = _poses(position, heading, bank.device)
    n = len(headings)
    check_memory("position, height, width", 8 * n * camera.height * camera.width, bank.device)
    out = {
        name: torch.zeros(n, *sensor.spec.shape, dtype=sensor.spec.dtype, device=bank.device)
        for name, sensor in made.items()
    }
    if n:
        bodies = FreeBodies.at_origin(n, bank.device)
        bodies.position.copy_(places)
        bodies.heading.copy_(headings)
        write_observations(Frame(bank, bodies, {MAIN: camera}, made.values(), renderer), made, out)
    return {name: _by_pixel(out[name].cpu().numpy()) for name in sensors}


class PlanarDepth(CameraSensor):
    """Rendered depth: f32 [N, 1, H, W], metres, 0 for holes."""

    def __init__(self, camera: CameraConfig, config: None = None):
        super().__init__(Spec("depth", (1, camera.height, camera.width), torch.float32, 0.0, math.inf, torch.float32))

    def write(self, frame: FrameInput, out: torch.Tensor) -> None:
        """Copy the rendered depth."""
        out.copy_(self.depth(frame).unsqueeze(1))


def _by_pixel(values: np.ndarray) -> np.ndarray:
    """[N, C, H, W] as [N, H, W, C], or [N, H, W] for one channel."""
    values = values.transpose(0, 2, 3, 1)
    return np.ascontiguousarray(values[..., 0] if values.shape[-1] == 1 else values)


def _poses(position: Any, heading: Any, device: torch.device) -> tuple[torch.Tensor, torch.Tensor]:
    """Positions f32 [N, 3] and headings f32 [N]. ArgumentError for other shapes and values that are not finite."""
    places, headings = floats("position", position, device), floats("heading", heading, device)
    for name, values in (("position", places), ("heading", headings)):
        if not bool(values.isfinite().all()):
            raise ArgumentError(f"{name}: found NaN or infinity, expected finite numbers")
    found = f"{list(places.shape)} and {list(headings.shape)}"
    places = torch.atleast_2d(places)
    if headings.ndim == 0:
        headings = headings.repeat(len(places))
    if places.ndim != 2 or places.shape[1] != 3 or headings.shape != places.shape[:1]:
        raise ArgumentError(f"position and heading: found {found}, expected [N, 3] and [N], or one heading for all")
    return places, headings
