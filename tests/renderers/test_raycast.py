import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
import trimesh
from banks import as_mesh, assert_close, bank_of, render, room, soup, tensors
from numba import njit
from numba import types as nb
from render_reference import pixel_directions

from batchnav.geometry.pose import camera_axes, pixel_ray, tan_half
from batchnav.procedural import BENCHMARK_HOUSE, make_house
from batchnav.renderers import raycast
from batchnav.renderers import raycast as renderer_module
from batchnav.renderers.raycast import RaycastRenderer
from batchnav.runtime.kernels.arrays import to_device, view
from batchnav.scene.bank import BVHData
from batchnav.scene.bvh import MAX_LEVELS
from batchnav.scene.mesh import load_mesh


@njit(error_model="numpy")
def _ray_by_ray(bvh, scene, position, heading, tan_half_hfov, far, backface_culling, leaf_at_once, depth_out):
    """One view by `closest_hit`, as the CUDA kernels call it."""
    height, width = depth_out.shape
    stack = np.empty(MAX_LEVELS, np.int32)
    origin, axes = (position[0], position[1], position[2]), camera_axes(heading, np.float32(0.0))
    for row in range(height):
        for column in range(width):
            direction = pixel_ray(
                np.int32(row), np.int32(column), axes, np.int32(height), np.int32(width), tan_half_hfov
            )
            depth, _ = raycast.closest_hit(
                bvh, bvh.roots[scene], origin, direction, far, backface_culling, leaf_at_once, stack
            )
            depth_out[row, column] = depth if depth < far else np.float32(0.0)


def walls(gap=0.002):
    """Three rooms, each two thin shells `gap` metres apart, the outer one's faces outwards; far from the origin."""
    shells = []
    for offset in range(3):
        for grow, inwards in ((0.0, True), (2 * gap, False)):
            shell = trimesh.creation.box(np.array([4.0, 3.0, 4.0]) + grow).subdivide()
            shell.apply_translation([100 + 3.0 * offset, 0, 50])
            if inwards:
                shell.invert()
            shells.append(shell)
    return as_mesh(trimesh.util.concatenate(shells))


@pytest.mark.parametrize("culling", [False, True])
@pytest.mark.parametrize(
    ("size", "hfov", "max_depth"),
    [
        ((33, 17), 90.0, np.inf),
        ((17, 33), 20.0, np.inf),
        ((64, 64), 90.0, 3.0),
        ((5, 3), 150.0, np.inf),
        ((1, 1), 60, 9),
    ],
)
def test_packets_see_what_single_rays_see(culling, size, hfov, max_depth):
    house = make_house(BENCHMARK_HOUSE)
    low, high = house.vertices.min(axis=0), house.vertices.max(axis=0)
    bank, rng, n = bank_of([soup(2000, 7), walls(), house], "cpu"), np.random.default_rng(8), 48
    scene_id = np.arange(n) % 3
    position = rng.uniform(-4, 4, (n, 3))
    position[1::3] += [103, 0, 50]
    position[1:24:3, 2] = 52.001  # between the shells of a wall
    position[2::3] = rng.uniform(low, high, (n // 3, 3))
    position, heading = position.astype(np.float32), rng.uniform(-9, 9, n).astype(np.float32)
    heading[:12] = np.arange(12) * np.float32(
        np.pi / 4
    )  # along the axes: directions and their inverses at their limits
    options = {"height": size[0], "width": size[1], "hfov_deg": hfov, "backface_culling": culling}
    depth = render(RaycastRenderer, bank, scene_id, position, heading, max_depth=max_depth, **options)
    expected, at_once, far = np.empty_like(depth), np.empty_like(depth), np.float32(min(max_depth, 3e38))
    for i in range(n):
        view_of = bank.bvh_view, scene_id[i], position[i], heading[i], tan_half(hfov), far, culling
        _ray_by_ray(*view_of, False, expected[i])
        _ray_by_ray(*view_of, True, at_once[i])
    assert_close(depth, expected)
    np.testing.assert_array_equal(at_once, expected)
    assert 0.05 < (depth > 0).mean() < 0.98  # both hits and holes were compared


@pytest.mark.parametrize(
    ("name", "suffix"), [("house_r4", ".ply"), pytest.param("aws_small_house", ".glb", marks=pytest.mark.shared)]
)
def test_embree_sees_the_same_house(device, oracle, name, suffix):
    mesh = load_mesh(oracle(name + suffix))
    walks = np.load(oracle(f"{name}.npz"))["walk_positions"].reshape(-1, 3)
    rng = np.random.default_rng(0)
    position = (walks[rng.integers(0, len(walks), 16)] + [0, 1.25, 0]).astype(np.float32)
    heading = rng.uniform(-np.pi, np.pi, 16).astype(np.float32)
    depth = render(RaycastRenderer, bank_of([mesh], device), [0] * 16, position, heading)
    tree = pytest.importorskip("embreex.rtcore_scene").EmbreeScene()
    pytest.importorskip("embreex.mesh_construction").TriangleMesh(tree, mesh.vertices[mesh.faces])
    for image, p, h in zip(depth, position, heading, strict=True):
        rays = pixel_directions(h, 64, 64, 90.0).reshape(-1, 3).astype(np.float32)
        expected = tree.run(np.repeat(p[None], len(rays), 0), rays, query="DISTANCE").reshape(64, 64)
        assert_close(image, np.where(expected < 1e5, expected, 0))


@pytest.mark.parametrize("count", [1, 2, 5, 8])
def test_rows_go_from_the_middle_out(count):
    middle_out = njit(lambda k, count: raycast.middle_out(k, count))
    rows = [middle_out(np.int32(k), np.int32(count)) for k in range(count)]
    assert sorted(rows) == list(range(count)) and rows[0] == count // 2
    distances = [abs(2 * row + 1 - count) for row in rows]
    assert distances == sorted(distances)


def test_cuda_kernel_has_vector_loads_and_no_float64(compile_ptx):
    floats = [nb.Array(nb.float32, n, "C") for n in range(4)]
    ints = nb.Array(nb.int32, 1, "C")
    bvh = nb.NamedTuple((floats[2], floats[2], ints, ints), BVHData)
    read = (bvh, ints, floats[2], floats[1], floats[1], floats[1], nb.float32, nb.boolean)
    triangles = nb.Array(nb.int32, 3, "C")
    depth, both = floats[3:], (floats[3], triangles)
    kernels = {
        raycast.depth_cuda: depth, raycast.few_depth_cuda: depth, raycast.visibility_cuda: both,
        raycast.few_visibility_cuda: both,
    }  # fmt: skip
    for kernel, written in kernels.items():
        ptx = compile_ptx(kernel, *read, *written)
        assert ".f64" not in ptx
        assert ptx.count("ld.global.v4") + ptx.count("ld.global.nc.v4") >= 4 + 3
        assert ptx.count(".local .align") == 1  # the stack, and nothing that spilled into memory


def test_poses_may_be_parts_of_larger_tensors(device):
    position, heading = np.random.default_rng(0).uniform(-0.5, 0.5, (8, 3)), np.linspace(-3, 3, 8)
    scene_id, position, heading = tensors(device, [0] * 8, position, heading)
    renderer = RaycastRenderer(bank_of([room()], device), 8)
    expected = renderer.render(scene_id, position, heading).clone()
    scattered = [torch.stack([part, part + 1], dim=-1)[..., 0] for part in (scene_id, position, heading)]
    assert not any(part.is_contiguous() for part in scattered)
    assert torch.equal(renderer.render(*scattered), expected)


SIMULATED = """
import sys
sys.path.insert(0, {folder!r})
from test_raycast import *
bank, zero = bank_of([soup(50, 5)], "cpu"), np.zeros(1, np.float32)
poses = np.zeros(1, np.int32), np.zeros((1, 3), np.float32), zero
lens, options = np.full(1, tan_half(90.0)), (np.float32(9.0), False)
expected = render(RaycastRenderer, bank, *poses, height=8, width=16, max_depth=9.0)
for kernel in (ray.depth_cuda, ray.few_depth_cuda):
    found = np.full((1, 8, 16), -1, np.float32)
    kernel[(1, 1, 1), 128](bank.bvh_view, *poses, zero, lens, *options, found)
    assert_close(found, expected)
print((found > 0).any() and (found == 0).any())
"""


def test_a_kernel_in_numbas_simulator():
    environment = {**os.environ, "NUMBA_ENABLE_CUDASIM": "1", "NUMBA_DISABLE_JIT": "1"}
    program = SIMULATED.format(folder=str(Path(__file__).parent))
    found = subprocess.run([sys.executable, "-c", program], env=environment, capture_output=True, text=True)
    assert found.stdout.split() == ["True"], found.stderr


@pytest.mark.cuda
def test_cpu_and_cuda_see_the_same():
    mesh, rng = soup(2000, 5), np.random.default_rng(6)
    position, heading = rng.uniform(-3, 3, (64, 3)), rng.uniform(-3, 3, 64)
    images = [render(RaycastRenderer, bank_of([mesh], d), [0] * 64, position, heading) for d in ("cpu", "cuda")]
    assert_close(*images)


@pytest.mark.cuda
def test_few_views_and_many_see_the_same(monkeypatch):
    rng, n = np.random.default_rng(6), 64
    poses = tensors("cuda", [0] * n, rng.uniform(-3, 3, (n, 3)), rng.uniform(-3, 3, n))
    bank = bank_of([soup(2000, 5)], "cuda")
    few = RaycastRenderer(bank, n).visibility(*poses)
    monkeypatch.setattr(renderer_module, "FEW_PIXELS", 0)
    many = RaycastRenderer(bank, n)
    assert torch.equal(many.render(*poses), few.depth)
    assert all(map(torch.equal, many.visibility(*poses), few))


@pytest.mark.cuda
def test_rendering_neither_waits_nor_allocates_and_can_be_captured():
    bank = bank_of([room()], "cuda")
    renderer = RaycastRenderer(bank, 4)
    arguments = tensors("cuda", [0] * 4, np.zeros((4, 3)), [0.0, 1.0, 2.0, 3.0])
    first = renderer.render(*arguments).clone()
    torch.cuda.synchronize()
    allocations = torch.cuda.memory_stats()["allocation.all.allocated"]
    torch.cuda.set_sync_debug_mode("error")
    try:
        renderer.render(*arguments)
    finally:
        torch.cuda.set_sync_debug_mode("default")
    assert torch.cuda.memory_stats()["allocation.all.allocated"] == allocations
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        renderer.render(*arguments)
    renderer.depth.zero_()
    graph.replay()
    assert torch.equal(renderer.depth, first)


def test_views_share_the_tensors_memory():
    rows = np.zeros((1, 16), np.float32), np.zeros((1, 12), np.float32), np.zeros(1, np.int32), np.zeros(1, np.int32)
    bvh = to_device(BVHData(*rows), "cpu")
    view(bvh).nodes[0, 3] = 7
    assert bvh.nodes[0, 3] == 7
