"""The depth sensor: planar depth, measured or predicted from colour, clipped to a range and scaled to 0..1."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal, Self

import torch

from batchnav.config import Registry, bounded, in_range, shortened
from batchnav.errors import ArgumentError, ConfigError
from batchnav.observation import Frame, Requirements, Spec
from batchnav.runtime.kernels.arrays import tensor_text
from batchnav.scene.appearance import COLOR_FIELDS
from batchnav.sensors.camera import MAIN, CameraConfig
from batchnav.sensors.noise import RedwoodNoise, StereoNoise
from batchnav.sensors.rgb import RGBSensor
from batchnav.sensors.sensor import CameraSensor

DepthEstimator = Callable[[torch.Tensor], torch.Tensor]
"""Function of colour images u8 [N, 3, H, W], which returns planar depth [N, 1, H, W] in metres, 0 where unknown."""
DEPTH_ESTIMATORS = Registry({})
"""Functions that predict depth from colour, by name. A module that is loaded with `--import` registers its own."""


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
    estimator: str = ""
    """Name of a function in `DEPTH_ESTIMATORS` that predicts depth from the camera's colour image, for the sensor and
    for the agent's map; "": depth is measured."""

    def validate(self) -> None:
        """ConfigError where a value is out of range, and for an unknown estimator or one together with noise."""
        if self.estimator and self.estimator not in DEPTH_ESTIMATORS:
            known = ", ".join(DEPTH_ESTIMATORS) or "none, since no module registered one"
            raise ConfigError(
                f"estimator: found {shortened(self.estimator)}, expected one of DEPTH_ESTIMATORS: {known}; --import "
                "its module"
            )
        if self.estimator and self.depth_noise:
            raise ConfigError(
                f"depth_noise: found {self.depth_noise:g} with the estimator {self.estimator!r}, expected 0: an "
                "estimator makes errors of its own"
            )
        in_range(self, "max_depth", self.min_depth + 1e-3, 1e3)
        if self.redwood_table and not self.depth_noise:
            raise ConfigError(f"redwood_table: found {self.redwood_table!r} with depth_noise 0, expected noise")
        if self.redwood_table and self.depth_noise_model != "redwood":
            raise ConfigError(f"redwood_table: found {self.redwood_table!r}, expected depth_noise_model 'redwood'")


class MeasuredDepth:
    """Depth as a camera measures it, exact or with noise, or as an estimator predicts it from the camera's colours.

    Sources of one frame share the result. `semantic`: True for images of the mesh with the ids.
    """

    def __init__(self, config: DepthConfig, camera: str = MAIN, semantic: bool = False):
        self.camera, self._semantic = camera, semantic
        self._key = "measured depth", config.depth_noise, config.depth_noise_model, config.redwood_table
        self._noise: RedwoodNoise | StereoNoise | None = None
        if config.depth_noise and config.depth_noise_model == "d435":
            self._noise = StereoNoise(config.depth_noise)
        elif config.depth_noise:
            self._noise = RedwoodNoise(config.depth_noise, config.redwood_table)
        self._estimator = config.estimator
        self._colour: tuple[RGBSensor, torch.Tensor, torch.Tensor] | None = None

    def required(self, requires: Requirements) -> Requirements:
        """The requirements of a source that reads this depth."""
        if not self._estimator:
            return requires
        appearance = requires.appearance | frozenset(COLOR_FIELDS)
        return requires._replace(triangles=True, appearance=appearance, max_depth=math.inf)

    @property
    def capturable(self) -> bool:
        """False for an estimator, which may compute on the host."""
        return not self._estimator

    def read(self, frame: Frame) -> torch.Tensor:
        """f32 [N, H, W], metres, 0 where nothing is measured."""
        camera, noise = self.camera, self._noise
        if self._estimator:
            return frame.shared(("estimated depth", camera), lambda: self._estimated(frame))
        depth = frame.depth(camera, semantic=self._semantic)
        if noise is None:
            return depth
        key, cameras = (self._key, camera, self._semantic), frame.cameras(camera)
        if isinstance(noise, StereoNoise):
            return frame.shared(key, lambda: noise.measure(cameras.noise, depth, cameras.tan_half_hfov))
        return frame.shared(key, lambda: noise.measure(cameras.noise, depth))

    def _estimated(self, frame: Frame) -> torch.Tensor:
        """Depth of the estimator, f32 [N, H, W]. ArgumentError for a result that is no depth."""
        if self._colour is None:
            n, height, width = frame.triangle(self.camera).shape
            rgb = torch.zeros(n, 3, height, width, dtype=torch.uint8, device=frame.device)
            metres = torch.zeros(n, height, width, dtype=torch.float32, device=frame.device)
            sensor = RGBSensor(CameraConfig(height=height, width=width)).of_camera(self.camera)
            self._colour = sensor, rgb, metres
        sensor, rgb, metres = self._colour
        sensor.write(frame, rgb)
        found: Any = DEPTH_ESTIMATORS[self._estimator](rgb)
        expected = len(metres), 1, *metres.shape[1:]
        if not isinstance(found, torch.Tensor) or tuple(found.shape) != expected or not found.is_floating_point():
            raise ArgumentError(
                f"estimator {self._estimator!r}: found {tensor_text(found)}, expected floats {list(expected)}"
            )
        metres.copy_(found[:, 0]).nan_to_num_(0.0, 0.0, 0.0).clamp_(min=0.0)
        return metres


class DepthSensor(CameraSensor):
    """f32 [N, 1, H, W] in 0..1. Rollouts on CUDA store bfloat16, the precision of the network's input."""

    Config = DepthConfig

    def __init__(self, camera: CameraConfig, config: DepthConfig):
        self.config = config
        spec = Spec("depth", (1, camera.height, camera.width), torch.float32, 0.0, 1.0, torch.bfloat16)
        # A ray may end at the sensor's range only where a hole reads the same as a far surface.
        super().__init__(spec, max_depth=config.max_depth if config.hole_value == 1.0 else math.inf)
        self._measured = MeasuredDepth(config)
        self.requires = self._measured.required(self.requires)

    @property
    def capturable(self) -> bool:
        """False for an estimator, which may compute on the host."""
        return self._measured.capturable

    def memory(self, num_envs: int, device: torch.device) -> Mapping[str, int]:
        """Bytes of the estimator's colour images and depth; none for measured depth."""
        pixels = num_envs * self.spec.shape[1] * self.spec.shape[2]
        return {} if self._measured.capturable else {f"colour and {self.spec.name}": 7 * pixels}

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
