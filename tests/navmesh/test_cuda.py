"""Queries on CUDA: kernels compile to PTX without a GPU, and agree with the CPU on a GPU."""

import re

import handmade
import numpy as np
import pytest
import torch

from batchnav.navmesh import batch
from batchnav.navmesh.data import NavMeshData
from batchnav.navmesh.heap import SearchScratch
from batchnav.navmesh.navmesh import NavMesh

STEP, DISTANCE = 1e-4, 1e-3
AGREE = 0.999
"""Share within those tolerances: fused multiply-adds decide ties and wall contacts differently now and then."""


def kernel_types():
    from numba import types as nb

    def array(element, dimensions):
        return nb.Array(element, dimensions, "C")

    f1, f2, f3, i1, i2 = (*(array(nb.float32, n) for n in (1, 2, 3)), *(array(nb.int32, n) for n in (1, 2)))
    nav = nb.NamedTuple([f2, f2, i2, f2, f2, i1, f2, f2, i1, i1, f1, f1], NavMeshData)
    scratch = nb.NamedTuple([f2, f2, *[nb.int64] * 4], SearchScratch)
    return {
        "locate": (nav, f2, i1, f2),
        "step": (nav, f2, f2, nb.boolean, scratch, f2),
        "path": (nav, f2, f3, scratch, f1, i1),
        "clearance": (nav, f2, nb.float32, scratch, f1),
        "sample": (nav, nb.int64, f2),
    }


@pytest.mark.parametrize("name", ["locate", "step", "path", "clearance", "sample"])
def test_kernels_compile_without_float64_or_calls(compile_ptx, name):
    ptx = compile_ptx(getattr(batch, name), *kernel_types()[name])
    assert not re.search(r"\.f64", ptx)
    assert re.search(r"ld\.global(\.nc)?\.v4", ptx)
    assert not re.search(r"^\s*call", ptx, re.MULTILINE)


@pytest.mark.cuda
@pytest.mark.parametrize("name", ["two_rooms", "four_tiles", "hills", "house_r4"])
def test_agrees_with_the_cpu(name, oracle):
    if name == "house_r4":
        navmesh = NavMesh.load(oracle("house_r4.navmesh"))
    else:
        navmesh = NavMesh({"hills": lambda: handmade.hills(9, 2)}.get(name, getattr(handmade, name))())
    on_gpu = navmesh.to("cuda")
    low, high = navmesh.bounds
    rng = np.random.default_rng(0)
    points = np.concatenate([navmesh.sample(3000, seed=1), rng.uniform(low - 1, high, (500, 3)).astype(np.float32)])
    other = points[rng.permutation(len(points))]
    ends = points + rng.uniform(-0.5, 0.5, points.shape).astype(np.float32) * np.float32([1, 0, 1])
    assert isinstance(on_gpu.snap(points), torch.Tensor) and on_gpu.snap(points).device.type == "cuda"
    _close(on_gpu.snap(points), navmesh.snap(points), STEP)
    _close(on_gpu.try_step(points, ends), navmesh.try_step(points, ends), STEP)
    _close(on_gpu.try_step(points, ends, sliding=False), navmesh.try_step(points, ends, sliding=False), STEP)
    _close(on_gpu.geodesic_distance(points, other), navmesh.geodesic_distance(points, other), DISTANCE)
    _close(on_gpu.distance_to_wall(points), navmesh.distance_to_wall(points), STEP)
    _close(on_gpu.sample(2000, seed=9), navmesh.sample(2000, seed=9), STEP)
    _close(on_gpu.island(points).float(), navmesh.island(points).astype(np.float32), 0)
    assert np.mean(on_gpu.topdown_view(0.1, 0.1).cpu().numpy() == navmesh.topdown_view(0.1, 0.1)) >= AGREE
    path = navmesh.shortest_path(points[0], points[1])
    _close(on_gpu.shortest_path(torch.tensor(points[0]), points[1]), path, STEP)
    many, single = on_gpu.geodesic_distance(points, np.stack([other, points], 1)), np.zeros(len(points), np.float32)
    _close(many[:3000], single[:3000], STEP)


def _close(ours, theirs, tolerance):
    ours, theirs = np.atleast_2d(ours.cpu().numpy().T).T, np.atleast_2d(theirs.T).T
    both = (np.isnan(ours) & np.isnan(theirs)) | (ours == theirs)
    with np.errstate(invalid="ignore"):
        within = both | (np.abs(ours - theirs) <= tolerance * np.maximum(1.0, np.abs(theirs)))
    assert np.mean(within.all(1)) >= AGREE
