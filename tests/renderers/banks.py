"""Meshes, and banks without navmeshes, for tests of renderers."""

import numpy as np
import torch
import trimesh
from worlds import as_mesh

from batchnav.runtime.device import resolve_device
from batchnav.runtime.kernels.arrays import to_device
from batchnav.scene.bank import SceneBank, pack_bvhs
from batchnav.scene.bvh import build_bvh
from batchnav.scene.scene import Scene
from batchnav.types import TriangleMesh

DEPTH_ERROR = 1e-4  # metres: float32 against float64, surfaces met at a slant included
SILHOUETTES = 1e-3  # fraction of pixels whose ray passes within rounding of an edge and may see what is behind


def bank_of(meshes, device) -> SceneBank:
    device = resolve_device(device)
    scenes = tuple(Scene(f"mesh {i}", mesh, None, build_bvh(mesh)) for i, mesh in enumerate(meshes))
    first = np.cumsum([0, *(len(mesh.faces) for mesh in meshes[:-1])]).tolist()
    return SceneBank(scenes, to_device(pack_bvhs([scene.bvh for scene in scenes]), device), None, first, None, device)


def tensors(device, scene_id, position, heading):
    """Arguments of `render` from arrays."""
    return (
        torch.as_tensor(np.asarray(scene_id, np.int32), device=device),
        torch.as_tensor(np.asarray(position, np.float32), device=device),
        torch.as_tensor(np.asarray(heading, np.float32), device=device),
    )


def soup(count, seed, size=0.5):
    rng = np.random.default_rng(seed)
    corners = rng.uniform(-4, 4, (count, 1, 3)) + rng.normal(0, size, (count, 3, 3))
    return TriangleMesh(corners.reshape(-1, 3).astype(np.float32), np.arange(3 * count, dtype=np.int32).reshape(-1, 3))


def room(size=(6.0, 3.0, 8.0)) -> TriangleMesh:
    """A closed box around the origin; its faces look inwards."""
    shape = trimesh.creation.box(size)
    shape.invert()
    return as_mesh(shape)


def render(kind, bank, scene_id, position, heading, **options):
    """One picture of each view: f32 [N, H, W]."""
    renderer = kind(bank, len(heading), **options)
    return renderer.render(*tensors(bank.device, scene_id, position, heading)).cpu().numpy().copy()


def assert_close(depth, expected, silhouettes=SILHOUETTES):
    wrong = np.abs(depth - expected) > DEPTH_ERROR
    assert wrong.mean() <= silhouettes, f"{wrong.sum()} pixels differ by up to {np.abs(depth - expected).max()}"
