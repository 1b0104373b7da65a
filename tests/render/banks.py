"""Banks of meshes for renderers, which read trees and never navmeshes."""

import numpy as np
import torch

from batchnav.device import resolve_device, to_device
from batchnav.scene.bank import SceneBank, pack_bvhs
from batchnav.scene.bvh import build_bvh


def bank_of(meshes, device) -> SceneBank:
    device = resolve_device(device)
    return SceneBank((), to_device(pack_bvhs([build_bvh(mesh) for mesh in meshes]), device), None, device)


def tensors(device, scene_id, position, heading):
    """Arguments of `render` from arrays."""
    return (
        torch.as_tensor(np.asarray(scene_id, np.int32), device=device),
        torch.as_tensor(np.asarray(position, np.float32), device=device),
        torch.as_tensor(np.asarray(heading, np.float32), device=device),
    )
