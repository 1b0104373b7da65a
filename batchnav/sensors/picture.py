"""Pictures of a scene without an environment: `render`."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch

from batchnav.config import validate
from batchnav.errors import ArgumentError, ConfigError
from batchnav.render.choose import make_renderer
from batchnav.runtime.checks import check_number
from batchnav.runtime.device import resolve_device
from batchnav.scene.bank import SceneBank
from batchnav.scene.scene import Scene
from batchnav.sensors import SENSORS
from batchnav.sensors.camera import CameraConfig
from batchnav.sensors.sensor import Sensor, Views


def render(
    scene: Scene,
    position: np.ndarray | Sequence,
    heading: np.ndarray | Sequence | float,
    sensors: Sequence[str] = ("rgb", "depth"),
    height: int = 64,
    width: int = 64,
    hfov_deg: float = 90.0,
    renderer: str = "raycast",
    device: str | torch.device = "cpu",
    backface_culling: bool = False,
) -> dict[str, np.ndarray]:
    """What level cameras in a scene see, by sensor; for a few pictures, as every call takes the scene to the device.

    Args:
        scene: see `load_scene`.
        position: f32 [N, 3] or [3], of the cameras, metres, +Y up.
        heading: f32 [N], or one for all: radians, 0 along -Z, positive to the left.
        sensors: names of `batchnav.sensors.SENSORS`.
        height: rows of a picture.
        width: columns.
        hfov_deg: horizontal field of view.
        renderer: "raycast", "opengl", or "auto" for the faster one here.
        device: "cpu", "cuda" or "auto".
        backface_culling: leave out triangles seen from behind, as habitat-sim does.

    Returns "rgb" u8 [N, H, W, 3]; "depth" f32 [N, H, W], planar metres, 0 where nothing is seen; any other sensor's
    values as [N, H, W], or [N, H, W, C] where there are several.

    ArgumentError for what is not as described.
    """
    if not isinstance(scene, Scene):
        raise ArgumentError(f"scene: found {type(scene).__name__}, expected a Scene (see load_scene)")
    listed = isinstance(sensors, Sequence) and not isinstance(sensors, str)
    if not listed or not all(isinstance(name, str) and name in SENSORS for name in sensors):
        raise ArgumentError(f"sensors: found {sensors!r}, expected some of {', '.join(SENSORS)}")
    hfov_deg = check_number("hfov_deg", hfov_deg, 0.0, 180.0)
    camera = CameraConfig(height, width, hfov_deg, backface_culling=backface_culling)
    try:
        validate(camera)
    except ConfigError as error:
        raise ArgumentError(str(error)) from error
    places, headings = _poses(position, heading)
    made: dict[str, Sensor] = {name: SENSORS[name](camera, None) for name in sensors if name != "depth"}
    fields = frozenset(field for sensor in made.values() for field in sensor.needs_appearance)
    bank = SceneBank.pack([scene], resolve_device(device), fields)
    n = len(headings)
    eyes = make_renderer(
        renderer, bank, n, height=height, width=width, hfov_deg=camera.hfov_deg, backface_culling=backface_culling
    )
    views = Views(
        torch.zeros(n, dtype=torch.int32, device=bank.device), places.to(bank.device), headings.to(bank.device),
        torch.zeros(n, device=bank.device),
    )  # fmt: skip
    depth, triangle = eyes.visibility(*views.pose) if made else (eyes.render(*views.pose), None)
    pictures = {"depth": depth.cpu().numpy().copy()} if "depth" in sensors else {}
    for name, sensor in made.items():
        out = torch.zeros(n, *sensor.spec.shape, dtype=sensor.spec.dtype, device=bank.device)
        sensor.write(depth, triangle, views, bank.appearance, out)
        values = out.cpu().numpy().transpose(0, 2, 3, 1)
        pictures[name] = np.ascontiguousarray(values[..., 0] if values.shape[-1] == 1 else values)
    return {name: pictures[name] for name in sensors}


def _poses(position, heading) -> tuple[torch.Tensor, torch.Tensor]:
    """f32 [N, 3] and f32 [N]. ArgumentError for other shapes, and what is not finite."""
    try:
        places, headings = np.array(position, np.float32), np.array(heading, np.float32)
    except (TypeError, ValueError) as error:
        raise ArgumentError(f"position and heading: found {error}, expected numbers") from error
    places = np.atleast_2d(places)
    if headings.ndim == 0:
        headings = np.full(len(places), headings)
    if places.ndim != 2 or places.shape[1] != 3 or headings.shape != places.shape[:1] or not len(places):
        found = f"{list(places.shape)} and {list(headings.shape)}"
        raise ArgumentError(f"position and heading: found {found}, expected [N, 3] and [N]")
    for name, values in (("position", places), ("heading", headings)):
        if not np.isfinite(values).all():
            raise ArgumentError(f"{name}: found a number that is not finite")
    return torch.from_numpy(places), torch.from_numpy(headings)
