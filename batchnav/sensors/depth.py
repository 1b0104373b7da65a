"""The depth sensor: planar depth, clipped to a range and scaled to 0..1."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Self

import torch

from batchnav.config import in_range
from batchnav.errors import ConfigError
from batchnav.sensors.camera import MAIN, CameraConfig
from batchnav.sensors.redwood import RedwoodNoise
from batchnav.sensors.sensor import CameraSensor
from batchnav.types import Frame, Spec


@dataclass(frozen=True)
class DepthConfig:
    """Range of the depth sensor. Defaults: Habitat's."""

    min_depth: float = 0.0
    max_depth: float = 10.0
    """Depth is clipped to [min_depth, max_depth] metres and scaled to 0..1."""
    hole_value: float = 0.0
    """What a ray that hits nothing reads, 0..1: 0 is Habitat's convention, 1 makes a hole far."""
    depth_noise: float = 0.0
    """Redwood's noise (`sensors/redwood.py`), this many times: 1 is the camera's. 0: none. Above, depth is quantised
    and distorted, and nothing is measured from 10 m on."""
    redwood_table: str = ""
    """A `.npy` file with the camera's distortion, as habitat-sim's `redwood-depth-dist-model.npy`; "": our own."""

    def validate(self) -> None:
        """ConfigError where a value is out of range."""
        in_range(self, "min_depth", 0.0, 1e3)
        in_range(self, "max_depth", self.min_depth + 1e-3, 1e3)
        in_range(self, "hole_value", 0.0, 1.0)
        in_range(self, "depth_noise", 0.0, 10.0)
        if self.redwood_table and not self.depth_noise:
            raise ConfigError(f"redwood_table: found {self.redwood_table!r} with depth_noise 0, expected noise")


class MeasuredDepth:
    """Depth that a camera measures: exact, or with Redwood noise, computed once per moment for all that read it."""

    def __init__(self, config: DepthConfig, camera: str = MAIN):
        self.camera = camera
        self._key = "measured depth", config.depth_noise, config.redwood_table
        self._noise = RedwoodNoise(config.depth_noise, config.redwood_table) if config.depth_noise else None

    def read(self, frame: Frame) -> torch.Tensor:
        """f32 [N, H, W], metres, 0 where nothing is measured."""
        camera, noise = self.camera, self._noise
        if noise is None:
            return frame.depth(camera)
        return frame.shared(
            (self._key, camera), lambda: noise.measure(frame.cameras(camera).noise, frame.depth(camera))
        )


class DepthSensor(CameraSensor):
    """f32 [N, 1, H, W] in 0..1; a rollout on CUDA keeps it in bfloat16, as the network reads it."""

    def __init__(self, camera: CameraConfig, config: DepthConfig):
        self.config = config
        spec = Spec("depth", (1, camera.height, camera.width), torch.float32, 0.0, 1.0, torch.bfloat16)
        # A ray may end at the sensor's range only where a hole reads the same as a far surface.
        super().__init__(spec, max_depth=config.max_depth if config.hole_value == 1.0 else math.inf)
        self._measured = MeasuredDepth(config)

    def of_camera(self, name: str) -> Self:
        """The sensor itself, made to read the camera of this name, which becomes part of the observation's name."""
        self._measured.camera = name
        return super().of_camera(name)

    def write(self, frame: Frame, out: torch.Tensor) -> None:
        """Metres -> 0..1, in as few passes over the images as there can be."""
        config, metres = self.config, self._measured.read(frame).unsqueeze(1)
        above = metres - config.min_depth if config.min_depth else metres
        torch.mul(above, 1.0 / (config.max_depth - config.min_depth), out=out)
        out.clamp_(0.0, 1.0)
        if config.hole_value > 0.0:
            out.masked_fill_(metres == 0.0, config.hole_value)
