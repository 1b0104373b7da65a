"""The contract of all renderers: options, arguments and results."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from batchnav.config import shortened
from batchnav.errors import ArgumentError
from batchnav.geometry.pose import lens_of, tan_half
from batchnav.renderers.bodies import DrawingOptions, SeenBodies, draw_bodies
from batchnav.runtime.checks import check_int, check_kind, check_number, refuse_copies
from batchnav.runtime.device import check_memory
from batchnav.runtime.kernels.arrays import check_tensor, view
from batchnav.scene.bank import SceneBank
from batchnav.types import MovingBodies, Visibility

NEAR = np.float32(0.01)
"""Distance of the near plane, metres; nearer surfaces are not rendered."""


def check_options(bank: SceneBank, num_agents: int, height: int, width: int, hfov_deg: float, max_depth: float) -> None:
    """ArgumentError where a renderer's option has the wrong type, is out of range or needs too much memory."""
    check_kind("bank", bank, SceneBank)
    count = check_int("num_agents", num_agents, 1, 2**24)
    count *= check_int("height", height, 1, 8192) * check_int("width", width, 1, 8192)
    check_memory("num_agents, height, width", 4 * count, bank.device)
    if not check_number("hfov_deg", hfov_deg, 1.0, 180.0) < 180.0:
        raise ArgumentError(f"hfov_deg: found {hfov_deg!r}, expected degrees from 1 to less than 180")
    if not check_number("max_depth", max_depth, 0.0, float("inf")) > NEAR:
        raise ArgumentError(f"max_depth: found {max_depth!r}, expected metres beyond the near plane ({NEAR:g})")


def check_intrinsics(intrinsics: Any) -> np.ndarray:
    """A camera matrix as f64 [3, 3]. ArgumentError for another shape, and for other entries than fx, fy, cx and cy."""
    try:
        found = np.asarray(intrinsics, np.float64)
    except (TypeError, ValueError) as error:
        raise ArgumentError(f"intrinsics: found {type(intrinsics).__name__}, expected numbers [3, 3]") from error
    if found.shape != (3, 3) or not np.isfinite(found).all():
        raise ArgumentError(f"intrinsics: found {shortened(found.tolist())}, expected finite numbers [3, 3]")
    focal = np.diag(np.diag(found))
    focal[:2, 2] = found[:2, 2]
    if not np.array_equal(found, focal) or found[2, 2] != 1.0 or min(found[0, 0], found[1, 1]) <= 0.0:
        raise ArgumentError(
            f"intrinsics: found {found.tolist()}, expected [[fx, 0, cx], [0, fy, cy], [0, 0, 1]] with fx and fy above 0"
        )
    return found


def check_poses(
    num_agents: int, device: torch.device, lens: torch.Size, scene_index, position, heading, pitch, tan_half_hfov
) -> None:
    """ArgumentError where the camera poses are not tensors of the right shape, dtype and device."""
    check_tensor("scene_index", scene_index, (num_agents,), torch.int32, device)
    check_tensor("position", position, (num_agents, 3), torch.float32, device)
    check_tensor("heading", heading, (num_agents,), torch.float32, device)
    check_tensor("pitch", pitch, (num_agents,), torch.float32, device)
    check_tensor("tan_half_hfov", tan_half_hfov, tuple(lens), torch.float32, device)


class CameraPoses(NamedTuple):
    """Poses of N cameras, in the order of a renderer's arguments: contiguous tensors on the bank's device."""

    scene: Tensor
    """i32 [N]: rows of the scene bank."""
    position: Tensor
    """f32 [N, 3], metres."""
    heading: Tensor
    """f32 [N], radians."""
    pitch: Tensor
    """f32 [N], radians, up is positive."""
    tan_half_hfov: Tensor
    """f32 [N]: tan(hfov / 2), half the image's width at distance 1; f32 [N, 4]: lenses of `geometry.pose.lens_of`."""


class Renderer(ABC):
    """Finds the surfaces that N cameras see; it does not shade.

    Args:
        bank: scenes; determines the device.
        num_agents: number of cameras N.
        height: rows of an image.
        width: columns of an image.
        hfov_deg: horizontal field of view, degrees, 1 to less than 180.
        backface_culling: ignore triangles seen from behind (clockwise corners).
        max_depth: planar depth where rays end, metres. Surfaces beyond it give depth 0, as holes do.
        intrinsics: camera matrix [3, 3] in pixels, whose centres have integer coordinates as in OpenCV; it replaces
            `hfov_deg`. None: square pixels and a centred principal point.

    ArgumentError for an option of the wrong type or out of range, and for images that need more memory than there is.
    """

    capturable: bool
    """True where a CUDA graph can hold a call, because it only launches kernels."""
    __reduce_ex__ = refuse_copies

    @torch.inference_mode(False)
    def __init__(
        self, bank: SceneBank, num_agents: int, height: int = 64, width: int = 64, hfov_deg: float = 90.0,
        backface_culling: bool = False, max_depth: float = float("inf"), intrinsics: Any = None,
    ):  # fmt: skip
        check_options(bank, num_agents, height, width, hfov_deg, max_depth)
        self.bank, self.device = bank, bank.device
        self.num_agents, self.height, self.width = int(num_agents), int(height), int(width)
        self.backface_culling, self.max_depth = bool(backface_culling), float(max_depth)
        self._level = torch.zeros(self.num_agents, dtype=torch.float32, device=bank.device)
        self._tan_half = torch.full_like(self._level, float(tan_half(hfov_deg)))
        self._seen: SeenBodies | None = None
        self._body_kernels: dict[bool, Callable[..., None]] = {}
        """Kernels that draw the bodies, without (False) and with surface ids; made at first use."""
        if intrinsics is not None:
            matrix = check_intrinsics(intrinsics)
            self._tan_half.fill_(self.width / (2.0 * matrix[0, 0]))
            if (lens := lens_of(matrix, self.height, self.width)) is not None:
                self._tan_half = torch.tensor(lens, dtype=torch.float32, device=bank.device).repeat(self.num_agents, 1)
        self._allocate()

    @property
    def seen(self) -> SeenBodies | None:
        """Moving bodies in the images; None: none. `show_bodies` sets them."""
        return self._seen

    @seen.setter
    def seen(self, seen: SeenBodies | None) -> None:
        self._seen, self._body_kernels = seen, {}

    def show_bodies(self, bodies: MovingBodies | None, world: Tensor | None = None, own: Tensor | None = None) -> None:
        """Draw moving bodies in all later images, at their places at the time of each call.

        Args:
            bodies: live tensors of W worlds, on the bank's device, at most 128 bodies each; None: no bodies.
            world: i32 [N]: world that each camera sees; None: camera i sees world i.
            own: i32 [N]: body that carries the camera, which does not see it, -1 for none; None: -1 for all cameras.

        ArgumentError for tensors of another shape, dtype or device.
        """
        self.seen = None if bodies is None else SeenBodies.of(bodies, self.num_agents, self.device, world, own)

    def render(
        self, scene_index: Tensor, position: Tensor, heading: Tensor, pitch: Tensor | None = None,
        tan_half_hfov: Tensor | None = None,
    ) -> Tensor:  # fmt: skip
        """Planar depth images f32 [N, H, W], metres; 0 where nothing is hit.

        The returned tensor is the renderer's own, valid until its next call. ArgumentError for an argument of another
        shape, dtype or device. An index outside the bank, or a pose that is not finite, gives an empty image.

        Args:
            scene_index: i32 [N], rows of the bank.
            position: f32 [N, 3], positions of the cameras, metres.
            heading: f32 [N], radians.
            pitch: f32 [N], radians, up is positive; None: level.
            tan_half_hfov: f32 [N], tan(hfov / 2), half the width of each camera's image at distance 1; None: the field
                of view that the renderer was made with. With `intrinsics` that are not symmetric: f32 [N, 4], lenses
                of `geometry.pose.lens_of`.
        """
        poses = self._poses(scene_index, position, heading, pitch, tan_half_hfov)
        depth = self._render(poses)
        if self.seen is not None:
            self._draw_bodies(poses, depth, None)
        return depth

    def visibility(
        self, scene_index: Tensor, position: Tensor, heading: Tensor, pitch: Tensor | None = None,
        tan_half_hfov: Tensor | None = None,
    ) -> Visibility:  # fmt: skip
        """Depth of `render`, and the surface i32 [N, H, W] that each pixel shows: a triangle, -1 where nothing is hit.

        A pixel of moving body k (`show_bodies`) has -2 - k.

        Arguments, errors and lifetime of the result are those of `render`. Where surfaces coincide, the triangle may be
        any of them. The first call allocates memory; DeviceError where it does not suffice.
        """
        poses = self._poses(scene_index, position, heading, pitch, tan_half_hfov)
        seen = self._visibility(poses)
        if self.seen is not None:
            self._draw_bodies(poses, *seen)
        return seen

    def _draw_bodies(self, poses: CameraPoses, depth: Tensor, surface: Tensor | None) -> None:
        """Draw the bodies over the scene, in images that stay where they are from call to call."""
        if (has_surface := surface is not None) not in self._body_kernels:
            surface = torch.zeros(0, 1, 1, dtype=torch.int32, device=self.device) if surface is None else surface
            far = np.float32(min(self.max_depth, 3.0e38))
            options = DrawingOptions(np.int32(self.bank.num_scenes), NEAR, far, self.backface_culling)
            read = *map(view, poses), view(self.seen), options
            live = tuple(range(len(poses)))
            run = draw_bodies.bind(self.num_agents, *read, view(depth), view(surface), live=live)
            self._body_kernels[has_surface] = run
        self._body_kernels[has_surface](*poses)

    def _poses(self, scene_index, position, heading, pitch, tan_half_hfov) -> CameraPoses:
        pitch = self._level if pitch is None else pitch
        tan_half_hfov = self._tan_half if tan_half_hfov is None else tan_half_hfov
        poses = scene_index, position, heading, pitch, tan_half_hfov
        check_poses(self.num_agents, self.device, self._tan_half.shape, *poses)
        return CameraPoses(*((pose.detach() if pose.requires_grad else pose).contiguous() for pose in poses))

    @abstractmethod
    def _allocate(self) -> None:
        """Allocate what `render` needs, by the options in `self`. DeviceError where the device does not support it."""

    @abstractmethod
    def _render(self, poses: CameraPoses) -> Tensor:
        """Depth images of `render`."""

    @abstractmethod
    def _visibility(self, poses: CameraPoses) -> Visibility:
        """Result of `visibility`."""
