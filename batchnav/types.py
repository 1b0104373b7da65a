"""The words every room of the house speaks. Read this first.

Letters:  N environments (agents), T rollout steps, K scenes, V vertices, F triangles, P polygons, H x W image.
Units:    SI: metres, seconds, radians unless a name ends in `_deg`.
Frame:    right-handed, +Y up; heading 0 looks along -Z and grows to the left (counter-clockwise from above).
Depth:    planar (along the camera's forward axis), metres; 0 where nothing is hit.
Kernels:  NamedTuples of arrays travel into compiled code as one argument; what is written comes last.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple, Protocol

import numpy as np
import torch

Observation = dict[str, torch.Tensor]


class TriangleMesh(NamedTuple):
    """Triangles in the world frame: +Y up, metres."""

    vertices: np.ndarray
    """f32 [V, 3]."""
    faces: np.ndarray
    """i32 [F, 3], counter-clockwise seen from the front."""
    num_dropped: int = 0
    """Triangles left out at loading because they were degenerate or not finite."""


class DepthRenderer(Protocol):
    """What every renderer offers. The renderer owns the depth it returns, until its next call."""

    def render(self, scene_id: torch.Tensor, position: torch.Tensor, heading: torch.Tensor) -> torch.Tensor:
        """i32 [N], f32 [N, 3] camera position, f32 [N] -> f32 [N, H, W] metres, 0 where nothing is hit."""
        ...


class VecEnv(Protocol):
    """The seam between the world and the learner: a `gymnasium.vector.VectorEnv` on torch tensors.

    Autoreset is SAME_STEP: the observation after an episode's end is the next episode's first.
    Returned tensors are valid until the next call.

    An environment may also have
        step_into(actions, out) -> reward, terminated, truncated, info: `step` with the observation written into the
            tensors of `out`, by name, floats of any width; what is not named there need not be made;
        capturable: bool, set where a step only launches kernels on torch's current stream that read and write tensors
            which stay where they are, so that a CUDA graph can hold it;
        settle(): let torch's current stream wait for what steps run on others.
    """

    num_envs: int
    device: torch.device
    single_observation_space: Any
    single_action_space: Any

    def reset(self, *, seed: int | None = None, options: dict | None = None) -> tuple[Any, Mapping]:
        """Start all episodes anew: observation, info."""
        ...

    def step(self, actions: torch.Tensor) -> tuple[Any, torch.Tensor, torch.Tensor, torch.Tensor, Mapping]:
        """i64 [N] -> observation, reward f32 [N], terminated bool [N], truncated bool [N], info.

        info["episode"] holds f32 [N] tensors by name, meaningful where the bool [N] info["_episode"] is set;
        info["final_obs"], where the environment offers it, is the observation before the reset.
        """
        ...

    def state_dict(self) -> dict[str, torch.Tensor]:
        """Everything that the next step depends on; `load_state_dict` continues exactly from there."""
        ...

    def load_state_dict(self, state: dict[str, torch.Tensor]) -> None:
        """Continue from `state_dict`'s result."""
        ...
