"""The depth sensor: planar depth, clipped to a range and scaled to 0..1."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal, Self

import torch

from batchnav.config import bounded, in_range
from batchnav.errors import ConfigError
from batchnav.observation import Frame, Spec
from batchnav.sensors.camera import MAIN, CameraConfig
from batchnav.sensors.noise import RedwoodNoise, StereoNoise
from batchnav.sensors.sensor import CameraSensor


@dataclass(frozen=True)
class DepthConfig:
    """Range and noise of the depth sensor. Defaults: Habitat's."""

    min_depth: float = bounded(0.0, 0.0, 1e3)
    """Depth that becomes 0, metres; smaller depths become 0 too."""
    max_depth: float = 10.0
    """Depth that becomes 1, metres; larger depths become 1 too. The scale between is linear."""
    hole_value: float = bounded(0.0, 0.0, 1.0)
    """Value of pixels whose ray hits nothing, 0..1: 0 follows Habitat, 1 makes holes far."""
    depth_noise: float = bounded(0.0, 0.0, 10.0)
    """Multiplier of the noise (`sensors/noise.py`): 1 is the noise of the real camera, 0 none. With noise, depth is
    quantised and has holes, and nothing is measured from 10 m on."""
    depth_noise_model: Literal["redwood", "d435"] = "redwood"
    """Camera that the noise is that of: Redwood's Kinect, or the stereo camera RealSense D435."""
    redwood_table: str = ""
    """A `.npy` file with a distortion table, such as habitat-sim's `redwood-depth-dist-model.npy`; "": a synthetic
    table."""

    def validate(self) -> None:
        """ConfigError where a value is out of range."""
        in_range(self, "max_depth", self.min_depth + 1e-3, 1e3)
        if self.redwood_table and not self.depth_noise:
            raise ConfigError(f"redwood_table: found {self.redwood_table!r} with depth_noise 0, expected noise")
        if self.redwood_table and self.depth_noise_model != "redwood":
            raise ConfigError(f"redwood_table: found {self.redwood_table!r}, expected depth_noise_model 'redwood'")


class MeasuredDepth:
    """Depth as a camera measures it, exact or with noise. Sources of one frame share the result.

    `semantic`: True for images of the mesh with the ids.
    """

    def __init__(self, config: DepthConfig, camera: str = MAIN, semantic: bool = False):
        self.camera, self._semantic = camera, semantic
        self._key = "measured depth", config.depth_noise, config.depth_noise_model, config.redwood_table
        self._noise: RedwoodNoise | StereoNoise | None = None
        if config.depth_noise and config.depth_noise_model == "d435":
            self._noise = StereoNoise(config.depth_noise)
        elif config.depth_noise:
            self._noise = RedwoodNoise(config.depth_noise, config.redwood_table)

    def read(self, frame: Frame) -> torch.Tensor:
        """f32 [N, H, W], metres, 0 where nothing is measured."""
        camera, noise = self.camera, self._noise
        depth = frame.depth(camera, semantic=self._semantic)
        if noise is None:
            return depth
        key, cameras = (self._key, camera, self._semantic), frame.cameras(camera)
        if isinstance(noise, StereoNoise):
            return frame.shared(key, lambda: noise.measure(cameras.noise, depth, cameras.tan_half_hfov))
        return frame.shared(key, lambda: noise.measure(cameras.noise, depth))


class DepthSensor(CameraSensor):
    """f32 [N, 1, H, W] in 0..1. Rollouts on CUDA store bfloat16, the precision of the network's input."""

    Config = DepthConfig

    def __init__(self, camera: CameraConfig, config: DepthConfig):
        self.config = config
        spec = Spec("depth", (1, camera.height, camera.width), torch.float32, 0.0, 1.0, torch.bfloat16)
        # A ray may end at the sensor's range only where a hole reads the same as a far surface.
        super().__init__(spec, max_depth=config.max_depth if config.hole_value == 1.0 else math.inf)
        self._measured = MeasuredDepth(config)

    def of_camera(self, name: str) -> Self:
        """Assign the sensor to a camera by name, and return it."""
        self._measured.camera = name
        return super().of_camera(name)

    def write(self, frame: Frame, out: torch.Tensor) -> None:
        """Convert metres to 0..1, in few passes over the images."""
        config, metres = self.config, self._measured.read(frame).unsqueeze(1)
        above = metres - config.min_depth if config.min_depth else metres
        torch.mul(above, 1.0 / (config.max_depth - config.min_depth), out=out)
        out.clamp_(0.0, 1.0)
        if config.hole_value > 0.0:
            out.masked_fill_(metres == 0.0, config.hole_value)
