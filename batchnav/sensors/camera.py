"""Cameras on bodies: image size, lens, pose relative to the body, and tilt."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import numpy as np
import torch

from batchnav.config import bounded, from_dict, read_yaml, shortened
from batchnav.errors import ArgumentError, ConfigError
from batchnav.geometry.pose import forward, lens_of, tan_half
from batchnav.runtime.kernels.arrays import view
from batchnav.runtime.kernels.decorators import device_function
from batchnav.runtime.kernels.launch import kernel
from batchnav.runtime.kernels.rng import CAMERA, step_uniforms
from batchnav.sensors.distortion import Distortion
from batchnav.sensors.sensor import Cameras, NoiseCounters

MAIN = ""
"""Name of the main camera: its sensors have no prefix."""
_HEIGHTS, _HFOVS = (0.0, 10.0), (1.0, 170.0)
"""Valid camera heights in metres, and horizontal fields of view in degrees."""
_FOCAL, _CENTRE = (1.0, 1e5), (-1e4, 1e4)
"""Valid focal lengths and coordinates of the principal point, pixels."""
_MATRIX = "fx", "fy", "cx", "cy"
"""Fields of the camera matrix."""
_SYMMETRIC = 0.0, 1.0, 0.0, 0.0
"""Numbers of `lens_of` of a symmetric lens, without its field of view."""
_OTHER_LENS = 0.02
"""Difference of pixel aspect or principal point, relative to the image, that a policy is told of."""


@dataclass(frozen=True)
class CameraConfig:
    """A camera, mounted relative to the agent's position on the navmesh and its heading.

    Its lens is given by a field of view, or by a camera matrix; `load_camera_info` reads the latter from a file.
    """

    height: int = bounded(64, 4, 1024)
    """Rows of an image, pixels."""
    width: int = bounded(64, 4, 1024)
    """Columns of an image, pixels."""
    hfov_deg: float = bounded(90.0, *_HFOVS)
    """Horizontal field of view, degrees; computed where fx is given."""
    fx: float | None = bounded(None, *_FOCAL)
    """Focal length along rows, pixels, as in a camera matrix; with fy, cx and cy. None: square pixels and a centred
    principal point, with `hfov_deg`."""
    fy: float | None = bounded(None, *_FOCAL)
    """Focal length along columns, pixels."""
    cx: float | None = bounded(None, *_CENTRE)
    """Column of the principal point, pixels. Pixel centres have integer coordinates, as in OpenCV and ROS, so that
    (width - 1) / 2 is the middle."""
    cy: float | None = bounded(None, *_CENTRE)
    """Row of the principal point, pixels."""
    distortion: tuple[float, ...] = ()
    """Brown-Conrady coefficients k1, k2, p1, p2 and, optionally, k3, as OpenCV's and ROS's plumb_bob. Images are
    rendered by a pinhole camera and resampled to the nearest pixel. Empty: none."""
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
        given = [name for name in _MATRIX if getattr(self, name) is not None]
        if given and len(given) < len(_MATRIX):
            raise ConfigError(f"camera: found {', '.join(given)}, expected all of {', '.join(_MATRIX)} or none")
        if given and self.hfov_range_deg:
            raise ConfigError(f"hfov_range_deg: found {list(self.hfov_range_deg)} with fx, expected one of the two")
        if self.distortion:
            self.rendered  # noqa: B018  # it checks the coefficients

    def __post_init__(self) -> None:
        """Compute the field of view from fx."""
        if self.fx is not None and self.fx > 0.0:
            object.__setattr__(self, "hfov_deg", math.degrees(2.0 * math.atan(self.width / (2.0 * self.fx))))

    @property
    def intrinsics(self) -> np.ndarray:
        """The camera matrix f64 [3, 3], pixels: [[fx, 0, cx], [0, fy, cy], [0, 0, 1]].

        A point (x, y, z) of the optical frame (x to the right, y down, z ahead) is seen at column fx x / z + cx and row
        fy y / z + cy. Pixel centres have integer coordinates. With `distortion`, x / z and y / z are distorted first.
        """
        if self.fx is not None and self.fy is not None and self.cx is not None and self.cy is not None:
            fx, fy, cx, cy = self.fx, self.fy, self.cx, self.cy
        else:
            fx = fy = self.width / 2.0 / math.tan(math.radians(self.hfov_deg) / 2.0)
            cx, cy = (self.width - 1) / 2.0, (self.height - 1) / 2.0
        return np.array([[fx, 0.0, cx], [0.0, fy, cy], [0.0, 0.0, 1.0]])

    @property
    def extrinsics(self) -> np.ndarray:
        """Pose of the camera on the body, f64 [4, 4], metres: from the camera's optical frame to the body's frame.

        The optical frame has x to the right, y down and z ahead; the body's frame is that of ROS, with x ahead, y to
        the left and z up, and its origin on the floor.
        """
        turn, rise = math.radians(self.camera_heading_deg), math.radians(self.camera_pitch_deg)
        ahead = np.array([math.cos(rise) * math.cos(turn), math.cos(rise) * math.sin(turn), math.sin(rise)])
        right = np.array([math.sin(turn), -math.cos(turn), 0.0])
        place = self.camera_forward, self.camera_left, self.camera_height
        return np.vstack([np.column_stack([right, np.cross(ahead, right), ahead, place]), [0.0, 0.0, 0.0, 1.0]])

    @property
    def lens(self) -> tuple[float, float, float, float] | None:
        """Numbers of `geometry.pose.lens_of` for renderers; None for a symmetric lens."""
        return None if self.fx is None else lens_of(self.intrinsics, self.height, self.width)

    @property
    def rendered(self) -> CameraConfig:
        """The pinhole camera that renders: this one, or one without distortion that sees all that this one sees."""
        if not self.distortion:
            return self
        shown = Distortion.of(self.intrinsics, self.height, self.width, self.distortion).pinhole
        (fx, _, cx), (_, fy, cy), _ = shown.tolist()
        return replace(self, distortion=(), fx=fx, fy=fy, cx=cx, cy=cy)

    def resized(self, height: int, width: int) -> CameraConfig:
        """The camera with images of another size that show the same."""
        (fx, _, cx), (_, fy, cy), _ = self.intrinsics.tolist()
        down, across = height / self.height, width / self.width
        return replace(
            self, height=height, width=width, fx=fx * across, fy=fy * down,
            cx=(cx + 0.5) * across - 0.5, cy=(cy + 0.5) * down - 0.5,
        )  # fmt: skip

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
        texts = [
            f"{name} {_span(found)}, trained with {_span(expected)}"
            for name, (found, expected) in compared.items()
            if found[0] < expected[0] or found[1] > expected[1]
        ]
        own, other = (np.array(camera.lens or _SYMMETRIC)[1:] for camera in (self, trained))
        if np.abs(own - other).max() > _OTHER_LENS:
            texts.append("another pixel aspect or principal point than in training")
        if self.distortion != trained.distortion:
            texts.append(f"distortion {list(self.distortion)}, trained with {list(trained.distortion)}")
        return texts


def load_camera_info(path: str | Path, rectified: bool = False, **options: Any) -> CameraConfig:
    """A camera from a YAML file of ROS's `camera_calibration` (the fields of `sensor_msgs/CameraInfo`).

    Args:
        path: the file: image_width, image_height, camera_matrix, distortion_model, distortion_coefficients.
        rectified: describe the rectified image (by projection_matrix, without distortion) instead of the raw one.
        options: further fields of `CameraConfig`. With height and width the camera is resized to this image.

    ConfigError for a file that is no calibration, for another distortion model than plumb_bob, and for invalid options.
    """
    values = read_yaml(Path(path))
    try:
        size: dict[str, Any] = {"height": values["image_height"], "width": values["image_width"]}
        name, columns = ("projection_matrix", 4) if rectified else ("camera_matrix", 3)
        matrix = np.array(values[name]["data"], np.float64).reshape(3, columns)
        model, found = values.get("distortion_model") or "", values.get("distortion_coefficients") or {}
        coefficients = [float(value) for value in found.get("data") or ()]
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise ConfigError(
            f"{path}: found no calibration ({type(error).__name__}: {error}), expected image_width, "
            "image_height, camera_matrix and distortion_coefficients of ROS's camera_calibration"
        ) from error
    if rectified or not any(coefficients):
        coefficients = []
    elif model not in ("plumb_bob", ""):
        raise ConfigError(f"{path}: distortion_model: found {shortened(model)}, expected plumb_bob; rectify the images")
    fields = {"fx": matrix[0, 0], "fy": matrix[1, 1], "cx": matrix[0, 2], "cy": matrix[1, 2]}
    try:
        # the size of the file may be beyond that of the images that are rendered
        whole = CameraConfig(**{**size, **{name: float(value) for name, value in fields.items()}})
        image = whole.resized(options.get("height", whole.height), options.get("width", whole.width))
        return from_dict(CameraConfig, {**vars(image), "distortion": coefficients, **options})
    except (ConfigError, TypeError) as error:
        raise ConfigError(f"{path}: {error}") from error


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
        n, device, camera = len(bodies.heading), bodies.heading.device, camera.rendered
        if seeds is None and camera != camera.fixed:
            raise ArgumentError("camera: found a range and no seed, expected `seeds` or a camera without ranges")
        zero = torch.zeros(1, dtype=torch.int64, device=device)
        by = (seeds.seed, seeds.first_agent) if seeds else (zero, zero)
        noise = NoiseCounters(*by, bodies.episode, bodies.steps, number)
        heading, pitch = (torch.zeros(n, dtype=torch.float32, device=device) for _ in range(2))
        tan_half_hfov = torch.zeros_like(heading)
        if camera.lens is not None:
            tan_half_hfov = torch.tensor(camera.lens, dtype=torch.float32, device=device).repeat(n, 1)
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
    half = mount.tan_half_hfov + v * mount.tan_half_range
    if tan_half_out.ndim == 1:
        tan_half_out[i] = half
    else:
        tan_half_out[i, 0] = half
