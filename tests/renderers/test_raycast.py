import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
import trimesh
from banks import assert_close, bank_of, render, room, soup, tensors
from numba import njit
from numba import types as nb
from parity import near_edges
from render_reference import pixel_directions, visibility_reference
from worlds import as_mesh

from batchnav.geometry.pose import camera_axes, pixel_ray, tan_half
from batchnav.procedural import BENCHMARK_HOUSE, make_house
from batchnav.renderers import raycast
from batchnav.renderers import raycast as renderer_module
from batchnav.renderers.opengl.renderer import OpenGLRenderer
from batchnav.renderers.raycast import RaycastRenderer
from batchnav.renderers.rays import RayCaster
from batchnav.runtime.kernels.arrays import to_device, view
from batchnav.scene import small_nodes
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
@pytest.mark.parametrize("small", [False, True], ids=["whole", "small"])
def test_embree_sees_the_same_house(device, oracle, monkeypatch, name, suffix, small):
    monkeypatch.setattr(small_nodes, "FROM_TRIANGLES", 1 if small else 10**9)
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


def test_small_nodes_see_the_same(device, monkeypatch):
    """Images and LiDAR through nodes on a grid, from inside and far outside the scenes: equal depths.

    Of triangles at one place either may come first: where the numbers differ, both planes have the pixel's depth.
    """
    house, rng, n = make_house(BENCHMARK_HOUSE), np.random.default_rng(9), 48
    meshes, scene_id = [soup(2000, 7), house, soup(3, 2), room()], np.arange(n) % 4
    position = np.where(scene_id[:, None] == 1, rng.uniform(house.vertices.min(0), house.vertices.max(0), (n, 3)), 0.0)
    position += rng.uniform(-3, 3, (n, 3)) * np.where(np.arange(n) % 5, 1.0, 100.0)[:, None]
    heading = np.where(np.arange(n) < 12, np.arange(n) * np.pi / 4, rng.uniform(-3, 3, n))
    poses = scene_id, position, heading
    angle = np.linspace(0.0, 2.0 * np.pi, 512)
    table = np.stack([np.cos(angle), np.sin(angle), 0.2 * np.sin(9.0 * angle)], -1)[None].astype(np.float32)
    found = []
    for large in (10**9, 1000):
        monkeypatch.setattr(small_nodes, "FROM_TRIANGLES", large)
        bank = bank_of(meshes, device)
        seen = RaycastRenderer(bank, n).visibility(*tensors(device, *poses))
        scan = RayCaster(bank, n, table, 400.0).cast(*tensors(device, *poses))
        found.append([bank.bvh.nodes.element_size() * bank.bvh.nodes[0].numel(), *(x.cpu() for x in (*seen, scan))])
    (whole, depth, triangle, scan), (small, *others) = found
    assert (whole, small) == (64, 32) and 0.2 < (depth > 0).float().mean() < 0.9
    assert torch.equal(depth, others[0]) and torch.equal(scan, others[2])
    view, row, column = np.nonzero((triangle != others[1]).numpy())
    assert len(view) < 1e-3 * triangle.numel()  # edges: the order of equal hits is that of the nodes, 3e-4 on an H200
    if not len(view):
        return
    rays = np.stack([pixel_directions(h, *depth.shape[1:], 90.0) for h in heading])[view, row, column]
    corners = np.concatenate([mesh.vertices[mesh.faces] for mesh in meshes]).astype(np.float64)
    for each in (triangle, others[1]):
        a, b, c = np.moveaxis(corners[each[view, row, column]], 1, 0)
        normal = np.cross(b - a, c - a)
        distance = ((a - position[view]) * normal).sum(-1) / (rays * normal).sum(-1)
        assert_close(distance, depth[view, row, column].numpy())


@pytest.mark.parametrize("count", [1, 2, 5, 8])
def test_rows_go_from_the_middle_out(count):
    middle_out = njit(lambda k, count: raycast.middle_out(k, count))
    rows = [middle_out(np.int32(k), np.int32(count)) for k in range(count)]
    assert sorted(rows) == list(range(count)) and rows[0] == count // 2
    distances = [abs(2 * row + 1 - count) for row in rows]
    assert distances == sorted(distances)


@pytest.mark.parametrize("small", [False, True], ids=["whole", "small"])
@pytest.mark.parametrize("lens", [1, 2], ids=["symmetric", "matrix"])
def test_cuda_kernel_has_vector_loads_and_no_float64(compile_ptx, lens, small):
    floats = [nb.Array(nb.float32, n, "C") for n in range(4)]
    ints = nb.Array(nb.int32, 1, "C")
    nodes = nb.Array(nb.int32, 3, "C") if small else floats[2]
    bvh = nb.NamedTuple((nodes, floats[2], ints, ints), BVHData)
    read = (bvh, ints, floats[2], floats[1], floats[1], floats[lens], nb.float32, nb.boolean)
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
        assert ptx.count("prmt") == (12 if small else 0)  # a word's half as a float in one instruction
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
sys.path[:0] = [{folder!r}, {tests!r}]
from test_raycast import *
bank, zero = bank_of([soup(50, 5)], "cpu"), np.zeros(1, np.float32)
poses = np.zeros(1, np.int32), np.zeros((1, 3), np.float32), zero
lens, options = np.full(1, tan_half(90.0)), (np.float32(9.0), False)
expected = render(RaycastRenderer, bank, *poses, height=8, width=16, max_depth=9.0)
for kernel in (raycast.depth_cuda, raycast.few_depth_cuda):
    found = np.full((1, 8, 16), -1, np.float32)
    kernel[(1, 1, 1), 128](bank.bvh_view, *poses, zero, lens, *options, found)
    assert_close(found, expected)
print((found > 0).any() and (found == 0).any())
"""


def test_a_kernel_in_numbas_simulator():
    environment = {**os.environ, "NUMBA_ENABLE_CUDASIM": "1", "NUMBA_DISABLE_JIT": "1"}
    program = SIMULATED.format(folder=str(Path(__file__).parent), tests=str(Path(__file__).parents[1]))
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


# Triangles, pitch and culling of the ray caster against the reference, and agreement of both renderers

N = 24
SILHOUETTES = 2e-3
"""Fraction of a soup's pixels whose ray passes within rounding of an edge: triangles meet nowhere, edges are many."""
OTHER_TRIANGLE = 5e-3
"""Fraction of a house's pixels off edges that may name another of coinciding triangles, as where solids abut."""


def views_in(meshes, seed, n=N):
    """Scenes in turn, places anywhere in their boxes, any heading, any pitch: NumPy arrays."""
    rng, scene_index = np.random.default_rng(seed), np.arange(n) % len(meshes)
    low, high = (np.array([f(mesh.vertices, axis=0) for mesh in meshes])[scene_index] for f in (np.min, np.max))
    pitch = rng.uniform(-np.pi / 2, np.pi / 2, n)
    angles = rng.uniform(-9, 9, n), pitch
    return scene_index, *(array.astype(np.float32) for array in (rng.uniform(low, high), *angles))


def on(bank, scene_index, position, heading, pitch):
    """These views as a renderer takes them."""
    return *tensors(bank.device, scene_index, position, heading), torch.as_tensor(pitch, device=bank.device)


def seen_by(renderer, *views):
    """Depth and triangle as NumPy arrays that stay."""
    return [image.cpu().numpy().copy() for image in renderer.visibility(*on(renderer.bank, *views))]


@pytest.mark.parametrize("max_depth", [np.inf, 2.5])
@pytest.mark.parametrize("culling", [False, True])
@pytest.mark.parametrize("size", [(16, 16), (9, 21)])
def test_triangles_and_pitch_as_the_reference_sees_them(device, culling, size, max_depth):
    meshes = [soup(300, 0), soup(400, 2, size=0.8)]
    views, bank = views_in(meshes, seed=4), bank_of(meshes, device)
    options = {"height": size[0], "width": size[1], "hfov_deg": 80.0, "backface_culling": culling}
    options["max_depth"] = max_depth
    depth, triangle = seen_by(RaycastRenderer(bank, N, **options), *views)
    expected_depth, expected = [], []
    for scene, position, heading, pitch in zip(*views, strict=True):
        image, face = visibility_reference(meshes[scene], position, heading, pitch=pitch, **options)
        expected_depth.append(image)
        expected.append(np.where(face >= 0, face + int(bank.first_triangle[scene]), -1))
    assert_close(depth, np.array(expected_depth), silhouettes=SILHOUETTES)
    assert (triangle != expected).mean() <= SILHOUETTES
    assert triangle.dtype == np.int32 and triangle.min() == -1
    np.testing.assert_array_equal(triangle < 0, depth == 0)
    assert depth.max() < max_depth
    assert 0.05 < (depth > 0).mean() < 0.95  # both hits and holes were compared


def test_a_scenes_triangles_have_its_own_numbers(device):
    """The same mesh twice in a bank: the same views, under numbers that begin at `first_triangle`."""
    mesh = soup(500, 5)
    bank, (_, position, heading, pitch) = bank_of([mesh, mesh], device), views_in([mesh], seed=6)
    assert bank.first_triangle.tolist() == [0, 500]
    renderer = RaycastRenderer(bank, N, 16, 16)
    depth, triangle = seen_by(renderer, np.zeros(N), position, heading, pitch)
    other_depth, other = seen_by(renderer, np.ones(N), position, heading, pitch)
    np.testing.assert_array_equal(depth, other_depth)
    np.testing.assert_array_equal(np.where(triangle < 0, -1, triangle + 500), other)
    assert triangle.max() < 500 and len(np.unique(triangle)) > 100


def test_visibility_and_depth_alone_are_the_same_depth(device):
    houses = [make_house(3), make_house(7)]
    bank = bank_of(houses, device)
    renderer, views = RaycastRenderer(bank, N), on(bank, *views_in(houses, seed=2))
    alone = renderer.render(*views).clone()
    seen = renderer.visibility(*views)
    assert seen.depth is renderer.depth and torch.equal(seen.depth, alone)
    assert torch.equal(renderer.render(*views), alone)


def test_level_cameras_need_no_pitch(device):
    mesh = soup(300, 0)
    bank = bank_of([mesh], device)
    renderer, (*pose, pitch) = RaycastRenderer(bank, N, 16, 16), on(bank, *views_in([mesh], seed=3))
    tilted = [part.clone() for part in renderer.visibility(*pose, pitch)]
    level = [part.clone() for part in renderer.visibility(*pose)]
    assert not any(map(torch.equal, tilted, level))
    assert all(map(torch.equal, renderer.visibility(*pose, torch.zeros_like(pitch)), level))


@pytest.mark.parametrize(("pitch", "expected"), [(-np.pi / 2, 1.2), (np.pi / 2, 1.8)])
def test_straight_down_is_the_floor_and_up_the_ceiling(device, pitch, expected):
    """A room 3 m high, the camera 1.2 m above its floor: planar depth is the same in all pixels."""
    mesh = room((20.0, 3.0, 20.0))
    renderer = RaycastRenderer(bank_of([mesh], device), 1, 16, 16)
    depth, triangle = seen_by(renderer, [0], [[0, -0.3, 0]], [0.7], np.float32([pitch]))
    np.testing.assert_allclose(depth, expected, atol=1e-5)
    heights = mesh.vertices[mesh.faces[triangle]][..., 1]
    np.testing.assert_allclose(heights, -1.5 if pitch < 0 else 1.5)


def test_no_triangle_where_there_is_nothing_to_see(device):
    """Outside, in no scene, from nowhere, and beyond `max_depth`."""
    bank = bank_of([room()], device)
    poses = [0, 1, -1, 0, 0], [[0, 50, 0], [0, 0, 0], [0, 0, 0], [np.nan, 0, 0], [0, 0, 0]], [0.0] * 5
    pitch = np.float32([0, 0, 0, 0, np.nan])
    depth, triangle = seen_by(RaycastRenderer(bank, 5, 8, 8), *poses, pitch)
    assert (triangle == -1).all() and (depth == 0).all()
    depth, triangle = seen_by(RaycastRenderer(bank, 1, 8, 8, max_depth=1.0), [0], [[0, 0, 0]], [0.0], np.float32([0]))
    assert (triangle == -1).all() and (depth == 0).all()


@pytest.mark.parametrize("culling", [False, True])
def test_renderers_see_the_same_triangles(device, opengl, culling):
    houses = [make_house(3), make_house(7)]
    bank, views = bank_of(houses, device), views_in(houses, seed=1)
    images = [
        seen_by(kind(bank, N, 48, 64, 80.0, backface_culling=culling), *views)
        for kind in (RaycastRenderer, OpenGLRenderer)
    ]
    (depth, triangle), (other_depth, other) = images
    clear = ~near_edges(depth) & ~near_edges(other_depth)
    assert clear.mean() > 0.3
    np.testing.assert_allclose(depth[clear], other_depth[clear], rtol=1e-4, atol=1e-3)
    assert (triangle != other)[clear].mean() <= OTHER_TRIANGLE


@pytest.mark.cuda
def test_cpu_and_cuda_see_the_same_triangles():
    meshes = [soup(2000, 5), soup(500, 6)]
    views = views_in(meshes, seed=7)
    images = [seen_by(RaycastRenderer(bank_of(meshes, device), N), *views) for device in ("cpu", "cuda")]
    (depth, triangle), (other_depth, other) = images
    assert_close(depth, other_depth, silhouettes=SILHOUETTES)
    assert (triangle != other).mean() <= SILHOUETTES
