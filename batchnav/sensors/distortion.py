"""Distorted images: Brown-Conrady's model, and observations resampled from a pinhole camera's images.

A renderer draws pinhole images. A camera with distortion is rendered by a pinhole camera that sees all that it sees;
each pixel of its images is the nearest pixel of the pinhole image. Maps read the pinhole image, as a robot's software
rectifies images before it uses them.

Source: Brown, "Close-range camera calibration" (1971); coefficients in OpenCV's order.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Self

import numpy as np
import torch

from batchnav.config import shortened
from batchnav.errors import ConfigError
from batchnav.observation import Frame
from batchnav.sensors.sensor import CameraSensor

_ITERATIONS = 50
"""Fixed-point iterations that invert the model; lenses up to 120 degrees need about 30."""
_INVERTED = 0.05
"""Largest error of the inverse, pixels."""


def distort(x: np.ndarray, y: np.ndarray, coefficients: Sequence[float]) -> tuple[np.ndarray, np.ndarray]:
    """Distorted coordinates at distance 1 of pinhole coordinates (x to the right, y down)."""
    k1, k2, p1, p2, k3 = (*coefficients, 0.0)[:5]
    r2 = x * x + y * y
    radial = 1.0 + r2 * (k1 + r2 * (k2 + r2 * k3))
    return (
        x * radial + 2.0 * p1 * x * y + p2 * (r2 + 2.0 * x * x),
        y * radial + p1 * (r2 + 2.0 * y * y) + 2.0 * p2 * x * y,
    )


def undistort(x: np.ndarray, y: np.ndarray, coefficients: Sequence[float]) -> tuple[np.ndarray, np.ndarray]:
    """Pinhole coordinates of distorted ones, by OpenCV's fixed-point iteration."""
    k1, k2, p1, p2, k3 = (*coefficients, 0.0)[:5]
    u, v = x, y
    with np.errstate(all="ignore"):  # a lens that cannot be inverted diverges
        for _ in range(_ITERATIONS):
            r2 = u * u + v * v
            radial = 1.0 + r2 * (k1 + r2 * (k2 + r2 * k3))
            across, down = 2.0 * p1 * u * v + p2 * (r2 + 2.0 * u * u), p1 * (r2 + 2.0 * v * v) + 2.0 * p2 * u * v
            u, v = (x - across) / radial, (y - down) / radial
    return u, v


@dataclass(frozen=True, eq=False)
class Distortion:
    """A distorted image as pixels of a pinhole image of the same size."""

    pinhole: np.ndarray
    """Camera matrix f64 [3, 3] of the pinhole image."""
    pixels: np.ndarray
    """i64 [H * W]: for each pixel of the distorted image the one of the pinhole image, row by row."""

    @classmethod
    def of(cls, intrinsics: np.ndarray, height: int, width: int, coefficients: Sequence[float]) -> Distortion:
        """The distortion of a camera. ConfigError for coefficients that fold the image or are not four or five."""
        if len(coefficients) not in (4, 5):
            raise ConfigError(
                f"distortion: found {shortened(list(coefficients))}, expected k1, k2, p1, p2 and, optionally, k3"
            )
        focal, centre = intrinsics[[0, 1], [0, 1]], intrinsics[:2, 2]
        rows, columns = np.indices((height, width)).reshape(2, -1)
        seen = (columns - centre[0]) / focal[0], (rows - centre[1]) / focal[1]
        x, y = undistort(*seen, coefficients)
        with np.errstate(all="ignore"):
            error = max(
                np.abs(a - b).max() * f for a, b, f in zip(distort(x, y, coefficients), seen, focal, strict=True)
            )
        if not error <= _INVERTED:
            raise ConfigError(
                f"distortion: found {shortened(list(coefficients))}, expected coefficients that do not fold the image: "
                "calibrate with views that reach its corners"
            )
        pinhole, places = np.eye(3), []
        for axis, (values, count) in enumerate(((x, width), (y, height))):
            least, most = float(values.min()), float(values.max())
            pinhole[axis, axis] = (count - 1) / (most - least)
            pinhole[axis, 2] = -least * pinhole[axis, axis]
            place = np.rint(pinhole[axis, axis] * values + pinhole[axis, 2]).astype(np.int64)
            places.append(place.clip(0, count - 1))
        return cls(pinhole, places[1] * width + places[0])


class DistortedImage(CameraSensor):
    """The observation of a camera sensor, distorted by the camera's lens.

    Args:
        sensor: sensor of the pinhole images; the source takes ownership.
        distortion: lens of the camera.
    """

    def __init__(self, sensor: CameraSensor, distortion: Distortion):
        self.sensor, self.distortion = sensor, distortion
        self.spec, self.requires = sensor.spec, sensor.requires
        self._ready: tuple[torch.Tensor, torch.Tensor] | None = None

    def of_camera(self, name: str) -> Self:
        """Assign the sensor to a camera by name, and return this source."""
        self.sensor.of_camera(name)
        self.spec, self.requires = self.sensor.spec, self.sensor.requires
        return self

    def memory(self, num_envs: int, device: torch.device) -> Mapping[str, int]:
        """Bytes of the sensor, and of its images before they are resampled."""
        size = num_envs * int(np.prod(self.spec.shape)) * self.spec.dtype.itemsize
        return {**self.sensor.memory(num_envs, device), f"images of {self.spec.name} without distortion": size}

    def bind(self, frame: Frame) -> None:
        """Bind the sensor."""
        self.sensor.bind(frame)

    def reset(self) -> None:
        """Reset the sensor."""
        self.sensor.reset()

    @property
    def state(self) -> Mapping[str, torch.Tensor]:
        """State of the sensor."""
        return self.sensor.state

    @property
    def ranges(self) -> Mapping[str, tuple[float, float]]:
        """Ranges of the sensor's state."""
        return self.sensor.ranges

    def restore(self, frame: Frame, set_materials: Callable[[int], None]) -> None:
        """Restore the sensor."""
        self.sensor.restore(frame, set_materials)

    @property
    def repeatable(self) -> bool:
        """True where the sensor is."""
        return self.sensor.repeatable

    @property
    def capturable(self) -> bool:
        """True where the sensor is."""
        return self.sensor.capturable

    def write(self, frame: Frame, out: torch.Tensor) -> None:
        """Write the sensor's observation, resampled."""
        if self._ready is None or self._ready[0].dtype != out.dtype:
            self._ready = torch.empty_like(out), torch.from_numpy(self.distortion.pixels).to(out.device)
        image, pixels = self._ready
        self.sensor.write(frame, image)
        torch.index_select(image.flatten(2), 2, pixels, out=out.view(*out.shape[:2], -1))
