"""First surfaces along rays in a scene, for checks of its geometry."""

from __future__ import annotations

import numpy as np
import torch

from batchnav.renderers.raycast import RaycastRenderer
from batchnav.scene.bank import SceneBank
from batchnav.scene.scene import Scene


def first_hits(scene: Scene, origins: np.ndarray, directions: np.ndarray) -> np.ndarray:
    """Distance f32 [N] to the first surface along each ray, metres; inf where there is none.

    Args:
        scene: the scene.
        origins: f32 [N, 3], metres.
        directions: f32 [N, 3], unit vectors.
    """
    count = len(origins)
    renderer = RaycastRenderer(SceneBank.pack([scene]), count, 1, 1)
    x, y, z = np.asarray(directions, np.float32).T
    heading, pitch = np.arctan2(-x, -z), np.arcsin(np.clip(y, -1.0, 1.0))
    poses = (torch.from_numpy(np.ascontiguousarray(each, np.float32)) for each in (origins, heading, pitch))
    depth = renderer.render(torch.zeros(count, dtype=torch.int32, device="cpu"), *poses)[:, 0, 0].numpy()
    return np.where(depth > 0.0, depth, np.float32(np.inf))
