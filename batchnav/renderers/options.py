"""Checks of the options and arguments that all renderers share."""

from __future__ import annotations

import numpy as np
import torch

from batchnav.errors import ArgumentError
from batchnav.runtime.checks import check_int, check_kind, check_number
from batchnav.runtime.device import check_memory
from batchnav.runtime.kernels.arrays import check_tensor
from batchnav.scene.bank import SceneBank

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


def check_poses(num_agents: int, device: torch.device, scene_index, position, heading, pitch, tan_half_hfov) -> None:
    """ArgumentError where the camera poses are not tensors of the right shape, dtype and device."""
    check_tensor("scene_index", scene_index, (num_agents,), torch.int32, device)
    check_tensor("position", position, (num_agents, 3), torch.float32, device)
    check_tensor("heading", heading, (num_agents,), torch.float32, device)
    check_tensor("pitch", pitch, (num_agents,), torch.float32, device)
    check_tensor("tan_half_hfov", tan_half_hfov, (num_agents,), torch.float32, device)
