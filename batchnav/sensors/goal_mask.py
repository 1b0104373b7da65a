"""Goal mask: pixels of the objects that ObjectNav's episode asks for.

The mask is exact: it comes from the triangle of each pixel, as the semantic sensor's ids do. Settings give it the
errors of a detector (`mask_noise`), or replace it by the masks of a detector that sees the camera's colour image.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Self, cast

import numpy as np
import torch

from batchnav.config import Registry, shortened
from batchnav.errors import ArgumentError, ConfigError
from batchnav.observation import Frame, Spec
from batchnav.runtime.bundled import find_encoder
from batchnav.runtime.kernels.arrays import tensor_text, view
from batchnav.runtime.kernels.decorators import cuda, cuda_kernel, device_function
from batchnav.runtime.kernels.intrinsics import load4
from batchnav.runtime.kernels.launch import kernel, launch
from batchnav.sensors.camera import CameraConfig
from batchnav.sensors.detector import AT_ONCE, BYTES_PER_PIXEL, SCALE, views_of
from batchnav.sensors.detector import Detector as NetworkDetector
from batchnav.sensors.mask_noise import MaskNoiseConfig, SeenObjects, detect
from batchnav.sensors.noise import checked_noise
from batchnav.sensors.rgb import RGBSensor
from batchnav.sensors.semantic import IdSensor, InstanceSensor

GOAL, OTHER = np.uint8(255), np.uint8(0)
"""Values of pixels of the goal's category, and of other pixels."""
_LANES = 4
"""CUDA: pixels per thread."""
Detector = Callable[[torch.Tensor, torch.Tensor], torch.Tensor]
"""Function of colour images u8 [N, 3, H, W] and numbers of the goal categories i64 [N], which returns masks
[N, 1, H, W]: bool, scores in 0..1, or u8 with 255 for a score of 1."""
DETECTORS = Registry({})
"""Detectors by name. A module that is loaded with `--import` registers its own."""


@dataclass(frozen=True)
class GoalMaskConfig(MaskNoiseConfig):
    """Noise of goal masks, or a detector in place of the true mask."""

    detector: str = ""
    """Name of a detector in `DETECTORS`, which gets the camera's colour image; or weights of `batchnav train detector`,
    a file or a bundled name, which get colour and depth at twice the resolution; "": the true mask."""

    def validate(self) -> None:
        """ConfigError for an unknown detector, and for a detector together with noise."""
        if not self.detector:
            return
        if self.detector not in DETECTORS:
            try:
                find_encoder(self.detector)
            except ConfigError as error:
                known = ", ".join(DETECTORS) or "none, since no module registered one"
                raise ConfigError(
                    f"detector: found {shortened(self.detector)}, expected one of DETECTORS: {known}; --import its "
                    "module; or weights of `batchnav train detector`"
                ) from error
        if self.mask_noise:
            raise ConfigError(
                f"mask_noise: found {self.mask_noise:g} with the detector {self.detector!r}, expected 0: a detector "
                "makes errors of its own"
            )

    @property
    def is_exact(self) -> bool:
        """True where the mask is the true one."""
        return not (self.mask_noise or self.detector)


class GoalMaskSensor(IdSensor):
    """u8 [N, 1, H, W]: 255 where an object of the goal's category is visible, else 0; with noise or a detector, scores.

    The objects are those with a view point (`scene/goals.py`). The sensor reads `task.goal_category` i64 [N].
    """

    Config = GoalMaskConfig
    name, field = "goal_mask", "goal"

    def __init__(self, camera: CameraConfig, config: GoalMaskConfig | None = None):
        super().__init__(camera)
        self.config, self._rates = config or GoalMaskConfig(), (config or GoalMaskConfig()).noise
        shape = (1, camera.height, camera.width)
        self.spec = Spec(self.name, shape, torch.uint8, 0.0, float(GOAL), torch.uint8)
        self.requires = self.requires._replace(goal=frozenset({"goal_category"}))
        self._ids = torch.zeros(0, dtype=torch.int32, device="cpu")
        self._sees: list[IdSensor] = []
        self._colour: RGBSensor | None = None
        self._network: NetworkDetector | None = None
        self._numbers = self._ids
        if self.config.detector:
            scale = 1 if self.config.detector in DETECTORS else SCALE
            fine = CameraConfig(height=scale * camera.height, width=scale * camera.width)
            self._colour = RGBSensor(fine, scale=scale)
            self.requires = self._colour.requires._replace(goal=self.requires.goal)
        elif self._rates is not None:
            self._sees = [GoalCategorySensor(camera), InstanceSensor(camera)]
            self.requires = self.requires._replace(appearance=frozenset({"goal", "object_id"}))
        self._bound: tuple[Any, Callable[..., None]] | None = None

    def of_camera(self, name: str) -> Self:
        """Assign the sensor to a camera by name, and return it."""
        for sensor in (*self._sees, *([] if self._colour is None else [self._colour])):
            sensor.of_camera(name)
        return super().of_camera(name)

    def memory(self, num_envs: int, device: torch.device) -> Mapping[str, int]:
        """Bytes of ids and of late masks, or of the detector's colour images; none for the true mask."""
        pixels = num_envs * self.spec.shape[1] * self.spec.shape[2]
        if self._colour is not None:
            colour = {f"colour of {self.spec.name}": 3 * pixels * self.requires.scale**2}
            if self.config.detector not in DETECTORS:
                fine = pixels // num_envs * SCALE**2
                colour[f"detector of {self.spec.name}"] = min(num_envs, AT_ONCE) * fine * BYTES_PER_PIXEL
            return colour | dict(self._colour.memory(num_envs, device))
        if self._rates is None:
            return {}
        late = 2 * pixels if self._rates.late > 0.0 else 0
        return {f"ids of {self.spec.name}": 8 * pixels, f"late {self.spec.name}": late}

    def bind(self, frame: Frame) -> None:
        """ConfigError for a task whose goals are not objects of a category."""
        if frame.task.goal_category is None:
            raise ConfigError(
                f"sensors: found {self.spec.name!r} with a task without goal categories, expected objectnav"
            )
        n, (_, height, width) = frame.num_envs, self.spec.shape
        if self._colour is not None:
            self._rgb = torch.zeros(n, *self._colour.spec.shape, dtype=torch.uint8, device=frame.device)
            if (name := self.config.detector) not in DETECTORS:
                self._network = frame.resource(("detector", name), lambda: NetworkDetector(name))
                self._numbers = self._network.numbers_of(frame.bank.goal_categories).to(frame.device)
        elif self._rates is not None:
            shape, key = (n, 1, height, width), ("late masks", self._camera)
            self._seen = [torch.zeros(shape, dtype=torch.int32, device=frame.device) for _ in self._sees]
            late = n if self._rates.late > 0.0 else 0
            self._history = frame.resource(
                key, lambda: torch.zeros(late, 2, height, width, dtype=torch.uint8, device=frame.device)
            )

    @property
    def state(self) -> Mapping[str, torch.Tensor]:
        """The masks of the last two steps, where masks may be late; the sensors of a camera share them."""
        if self._rates is None or self._rates.late == 0.0:
            return {}
        return {f"late_{self.spec.name}": self._history}

    @property
    def repeatable(self) -> bool:
        """True: a second `write` in a step writes the same masks."""
        return True

    @property
    def capturable(self) -> bool:
        """False for a detector, which may compute on the host."""
        return self._colour is None

    def write(self, frame: Frame, out: torch.Tensor) -> None:
        """Write the mask."""
        if self._colour is not None:
            colour = self._colour
            out.copy_(frame.shared(("detected", self._camera), lambda: self._detected(frame, colour)))
        elif self._rates is not None:
            self._write_noisy(frame, out)
        else:
            self._write_exact(frame, out)

    def _detected(self, frame: Frame, colour: RGBSensor) -> torch.Tensor:
        """Masks of the detector, u8 [N, 1, H, W]. ArgumentError for a result that is no mask."""
        colour.write(frame, self._rgb)
        category = frame.task.goal_category
        if self._network is None:
            found = DETECTORS[self.config.detector](self._rgb, category)
        else:
            found = self._network.masks(views_of(frame, self._camera, self._rgb), self._numbers[category])
        return as_mask(self.config.detector, found, (frame.num_envs, *self.spec.shape))

    def _write_noisy(self, frame: Frame, out: torch.Tensor) -> None:
        """Write the mask with the noise of a detector."""
        for sensor, ids in zip(self._sees, self._seen, strict=True):
            sensor.write(frame, ids)
        noise = checked_noise(self.spec.name, self.cameras(frame).noise)
        if self._bound is None or self._bound[0] is not noise:
            seen = SeenObjects(self._seen[0], self._seen[1], frame.task.goal_category)
            n, _, height, width = out.shape
            read = view(noise), view(seen), cast(Any, self._rates)
            self._bound = noise, detect.bind((n, height, width), *read, view(self._history), view(out), live=(4,))
        self._bound[1](out)

    def _write_exact(self, frame: Frame, out: torch.Tensor) -> None:
        """Write the true mask."""
        triangle, appearance = self.surfaces(frame, out)
        category = frame.task.goal_category
        if len(appearance.id_patches):
            ids = self._image(out)
            self.write_tiled(frame, appearance, triangle, ids)
            torch.eq(ids.sub_(1), category.view(-1, 1, 1, 1), out=out.view(torch.bool))
            out.mul_(int(GOAL))
            return
        goal, pixels = view(appearance.goal), out[0].numel()
        if pixels % _LANES or not out.is_cuda:
            mask_pixels(tuple(triangle.shape), view(triangle), goal, view(category), view(out))
        else:
            four = view(triangle.view(-1, _LANES)), view(out.view(-1).view(torch.int32))
            launch(_mask4_cuda, len(four[1]), four[0], goal, view(category), pixels // _LANES, four[1])

    def _image(self, out: torch.Tensor) -> torch.Tensor:
        """i32 image of the shape of `out`, allocated once."""
        if self._ids.shape != out.shape or self._ids.device != out.device:
            self._ids = torch.zeros_like(out, dtype=torch.int32)
        return self._ids


class GoalCategorySensor(IdSensor):
    """i32 [N, 1, H, W]: 1 + number of the goal category that the visible object belongs to, 0 for other surfaces.

    No agent observes it. Analyses use it to find out what an agent saw.
    """

    name, field = "goal_category", "goal"


def as_mask(name: str, found: Any, shape: tuple[int, ...]) -> torch.Tensor:
    """A detector's masks as u8 with 255 for a score of 1. ArgumentError for another shape, type or device.

    Scores are clipped to 0..1; NaN becomes 0.
    """
    if not isinstance(found, torch.Tensor) or tuple(found.shape) != shape:
        raise ArgumentError(f"detector {name!r}: found {tensor_text(found)}, expected a tensor {list(shape)}")
    if found.dtype == torch.bool:
        return found * GOAL.item()
    if found.is_floating_point():
        return (found.nan_to_num(0.0).clamp(0.0, 1.0) * 255.0).round().to(torch.uint8)
    if found.dtype != torch.uint8:
        raise ArgumentError(f"detector {name!r}: found {found.dtype}, expected bool, uint8 or floating point")
    return found


@device_function
def _is_goal(number, goal, category):
    """True if a triangle, -1 for none, is of the category."""
    return number >= 0 and goal[np.uint32(number)] == category


@kernel(over="pixels", fastmath=True)
def mask_pixels(i, row, column, triangle, goal, category, mask_out):
    """Write the mask of one pixel."""
    found = _is_goal(triangle[i, row, column], goal, np.int32(category[i] + 1))
    mask_out[i, 0, row, column] = GOAL if found else OTHER


@cuda_kernel
def _mask4_cuda(triangle, goal, category, quads, mask_out):
    """Four pixels per thread: rows of `triangle` i32 [Q, 4] to `mask_out` i32 [Q]; `quads`: rows per image."""
    quad = np.int32(cuda.grid(1))
    if quad < len(triangle):
        wanted = np.int32(category[np.uint32(quad) // np.uint32(quads)] + 1)
        a, b, c, d = load4(triangle, quad, 0)
        mask = np.uint32(GOAL) if _is_goal(a, goal, wanted) else np.uint32(0)
        mask |= np.uint32(GOAL) << np.uint32(8) if _is_goal(b, goal, wanted) else np.uint32(0)
        mask |= np.uint32(GOAL) << np.uint32(16) if _is_goal(c, goal, wanted) else np.uint32(0)
        mask |= np.uint32(GOAL) << np.uint32(24) if _is_goal(d, goal, wanted) else np.uint32(0)
        mask_out[np.uint32(quad)] = mask
