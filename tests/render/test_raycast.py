from pathlib import Path

import numpy as np
import pytest
import torch
import trimesh
from banks import bank_of, tensors
from numba import njit
from numba import types as nb

import batchnav.render.raycast as raycast
from batchnav.device import to_device, view
from batchnav.errors import ArgumentError
from batchnav.geometry.camera import pixel_ray, tan_half
from batchnav.geometry.pose import forward
from batchnav.render.raycast import RaycastRenderer
from batchnav.render.reference import pixel_directions, render_reference
from batchnav.scene.bank import BVHData
from batchnav.scene.bvh import MAX_LEVELS
from batchnav.scene.mesh import load_mesh
from batchnav.types import TriangleMesh

ASSETS = Path(__file__).resolve().parents[2] / "assets/scenes"
DEPTH_ERROR = 1e-4  # metres: float32 against float64, surfaces met at a slant included
SILHOUETTES = 1e-3  # fraction of pixels whose ray passes within rounding of an edge and may see what is behind


def soup(count, seed, size=0.5):
    rng = np.random.default_rng(seed)
    corners = rng.uniform(-4, 4, (count, 1, 3)) + rng.normal(0, size, (count, 3, 3))
    return TriangleMesh(corners.reshape(-1, 3).astype(np.float32), np.arange(3 * count, dtype=np.int32).reshape(-1, 3))


def as_mesh(shape: trimesh.Trimesh) -> TriangleMesh:
    return TriangleMesh(np.asarray(shape.vertices, np.float32), np.asarray(shape.faces, np.int32))


def room(size=(6.0, 3.0, 8.0)) -> TriangleMesh:
    """A closed box around the origin; its faces look inwards."""
    shape = trimesh.creation.box(size)
    shape.invert()
    return as_mesh(shape)


def render(bank, device, scene_id, position, heading, **options):
    renderer = RaycastRenderer(bank, len(heading), **options)
    return renderer.render(*tensors(device, scene_id, position, heading)).cpu().numpy().copy()


def assert_close(depth, expected, silhouettes=SILHOUETTES):
    wrong = np.abs(depth - expected) > DEPTH_ERROR
    assert wrong.mean() <= silhouettes, f"{wrong.sum()} pixels differ by up to {np.abs(depth - expected).max()}"


@pytest.mark.parametrize("culling", [False, True])
@pytest.mark.parametrize("size", [(16, 16), (9, 21)])
def test_random_triangles_as_the_reference_sees_them(device, culling, size):
    meshes = [soup(300, 0), soup(1, 1, size=3.0), soup(4, 2, size=3.0), soup(1000, 3, size=0.2)]
    rng = np.random.default_rng(4)
    scene_id, position = rng.integers(0, 4, 24), rng.uniform(-3, 3, (24, 3)).astype(np.float32)
    heading = rng.uniform(-7, 7, 24).astype(np.float32)
    options = {"height": size[0], "width": size[1], "hfov_deg": 80.0, "backface_culling": culling}
    depth = render(bank_of(meshes, device), device, scene_id, position, heading, **options)
    expected = [
        render_reference(meshes[s], p, h, **options) for s, p, h in zip(scene_id, position, heading, strict=True)
    ]
    assert_close(depth, np.array(expected), silhouettes=2e-3)
    assert 0.05 < (depth > 0).mean() < 0.95  # both hits and holes were compared


@pytest.mark.parametrize("culling", [False, True])
def test_inside_a_box_depth_has_a_closed_form(device, culling):
    """Planar depth in an axis-aligned room: the nearest of three planes along each ray."""
    size, position, headings = np.array([6.0, 3.0, 8.0]), np.array([0.5, -0.3, 1.0]), np.float32([0, 0.4, -2.0, 9.1])
    depth = render(
        bank_of([room(size)], device), device, [0] * 4, [position] * 4, headings, height=32, width=48,
        backface_culling=culling,
    )  # fmt: skip
    for image, heading in zip(depth, headings, strict=True):
        directions = pixel_directions(heading, 32, 48, 90.0)
        expected = ((np.sign(directions) * size / 2 - position) / directions).min(axis=-1)
        np.testing.assert_allclose(image, expected, atol=DEPTH_ERROR)


def test_back_faces_are_seen_only_without_culling(device):
    outwards = as_mesh(trimesh.creation.box((6.0, 3.0, 8.0)))
    bank = bank_of([outwards], device)
    assert (render(bank, device, [0], [[0, 0, 0]], [0.3]) > 0).all()
    assert (render(bank, device, [0], [[0, 0, 0]], [0.3], backface_culling=True) == 0).all()


@pytest.mark.parametrize(("distance", "seen"), [(0.0099, False), (0.0101, True), (0.5, True)])
def test_near_plane_is_planar(device, distance, seen):
    wall = TriangleMesh(np.float32([[-9, -9, 0], [9, -9, 0], [0, 18, 0]]), np.int32([[0, 1, 2]]))
    depth = render(bank_of([wall], device), device, [0], [[0, 0, distance]], [0.0], height=8, width=8)
    np.testing.assert_allclose(depth, distance if seen else 0.0, rtol=1e-4)


def test_rays_that_miss_are_holes_and_max_depth_ends_them(device):
    bank = bank_of([room((6.0, 3.0, 8.0))], device)
    assert (render(bank, device, [0], [[0, 20, 0]], [0.0]) == 0).all()
    full = render(bank, device, [0], [[0, 0, 0]], [0.5])
    cut = render(bank, device, [0], [[0, 0, 0]], [0.5], max_depth=2.5)
    np.testing.assert_array_equal(cut, np.where(full < 2.5, full, 0))


def test_an_unknown_scene_or_a_pose_that_is_not_finite_sees_nothing(device):
    position = [[0, 0, 0]] * 4 + [[np.nan, 0, 0], [0, np.inf, 0]]
    depth = render(
        bank_of([room()], device), device, [0, 1, -1, 0, 0, 0], position, [0, 0, 0, np.nan, 0, 0], height=8, width=8
    )
    assert (depth[0] > 0).all() and (depth[1:] == 0).all()


@pytest.mark.parametrize("centre", [0.0, 40.0])
def test_no_ray_slips_between_triangles(device, centre):
    """A closed surface of many triangles, seen from inside: a crack would be a hole."""
    sphere = trimesh.creation.icosphere(subdivisions=5, radius=3.0)
    noise = np.random.default_rng(0).normal(0, 0.01, sphere.vertices.shape)
    mesh = TriangleMesh((sphere.vertices + noise + centre).astype(np.float32), np.asarray(sphere.faces, np.int32))
    rng = np.random.default_rng(1)
    position = centre + rng.uniform(-1.2, 1.2, (48, 3))
    depth = render(bank_of([mesh], device), device, [0] * 48, position, rng.uniform(-4, 4, 48), height=128, width=128)
    assert (depth > 0).all(), f"{(depth == 0).sum()} holes in {depth.size} rays"


@pytest.mark.parametrize("grid", [3, 10])
def test_no_ray_slips_through_corners_that_it_aims_at(device, grid):
    """Rays through the vertices and along the edges of a wall's grid."""
    ticks = np.linspace(-1, 1, grid + 1)
    x, y = np.meshgrid(ticks, ticks)
    vertices = np.stack([x.ravel(), y.ravel(), np.full(x.size, -1.0)], axis=1).astype(np.float32)
    first = (np.arange(grid)[:, None] * (grid + 1) + np.arange(grid)).ravel()
    right, up, across = first + 1, first + grid + 1, first + grid + 2
    faces = np.concatenate([np.stack([first, right, across], 1), np.stack([first, across, up], 1)])
    wall = TriangleMesh(vertices, faces.astype(np.int32))
    depth = render(bank_of([wall], device), device, [0], [[0, 0, 0]], [0.0], height=5 * grid, width=5 * grid)
    np.testing.assert_allclose(depth, 1.0, atol=1e-6)


@njit(error_model="numpy")
def _ray_by_ray(bvh, scene, position, heading, tan_half_hfov, far, backface_culling, depth_out):
    """One view by `closest_hit`, as the CUDA kernel calls it."""
    height, width = depth_out.shape
    stack = np.empty(MAX_LEVELS, np.int32)
    x, y, z = position
    fx, fz = forward(heading)
    for row in range(height):
        for column in range(width):
            dx, dy, dz = pixel_ray(
                np.int32(row), np.int32(column), np.int32(height), np.int32(width), tan_half_hfov, fx, fz
            )
            root = bvh.roots[scene]
            depth = raycast.closest_hit(bvh, root, x, y, z, dx, dy, dz, far, backface_culling, stack)
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
    house = load_mesh(ASSETS / "aws_small_house/aws_small_house.glb")
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
    depth = render(bank, "cpu", scene_id, position, heading, max_depth=max_depth, **options)
    expected, far = np.empty_like(depth), np.float32(min(max_depth, 3e38))
    for i in range(n):
        _ray_by_ray(bank.bvh_view, scene_id[i], position[i], heading[i], tan_half(hfov), far, culling, expected[i])
    assert_close(depth, expected)
    assert 0.05 < (depth > 0).mean() < 0.98  # both hits and holes were compared


def test_embree_sees_the_same_house(device, shared):
    mesh_construction = pytest.importorskip("embreex.mesh_construction")
    from embreex.rtcore_scene import EmbreeScene

    mesh = load_mesh(shared / "scenes/aws_small_house/aws_small_house.glb")
    walks = np.load(shared / "oracle/aws_small_house.npz")["walk_positions"].reshape(-1, 3)
    rng = np.random.default_rng(0)
    position = (walks[rng.integers(0, len(walks), 16)] + [0, 1.25, 0]).astype(np.float32)
    heading = rng.uniform(-np.pi, np.pi, 16).astype(np.float32)
    depth = render(bank_of([mesh], device), device, [0] * 16, position, heading)
    tree = EmbreeScene()
    mesh_construction.TriangleMesh(tree, mesh.vertices[mesh.faces])
    for image, p, h in zip(depth, position, heading, strict=True):
        rays = pixel_directions(h, 64, 64, 90.0).reshape(-1, 3).astype(np.float32)
        expected = tree.run(np.repeat(p[None], len(rays), 0), rays, query="DISTANCE").reshape(64, 64)
        assert_close(image, np.where(expected < 1e5, expected, 0))


@pytest.mark.parametrize("size", [64, 128])
@pytest.mark.parametrize(
    ("name", "file"),
    [("aws_small_house", "scenes/aws_small_house/aws_small_house.glb"), ("van_gogh", "oracle/van_gogh_rebake.glb")],
)
def test_habitat_sims_images(device, shared, name, file, size):
    """OpenGL's rasteriser with back-face culling; its depth buffer resolves 1e-4 of the depth."""
    truth = np.load(shared / f"oracle/depth/{name}_depth{size}.npz")
    position = truth["position"] + np.float32([0, truth["sensor_height"], 0])
    options = {"height": size, "width": size, "hfov_deg": float(truth["hfov"]), "backface_culling": True}
    depth = render(bank_of([load_mesh(shared / file)], device), device, [0] * 5, position, truth["yaw"], **options)
    wrong = np.abs(depth - truth["depth"]) > 1e-3 + 1e-4 * truth["depth"]
    assert wrong.mean() < SILHOUETTES


def test_habitat_sims_published_image(device, shared):
    """The depth buffer that habitat-sim's own tests compare with (GfxBatchHbaoTest.cpp, perspective case)."""
    openexr = pytest.importorskip("OpenEXR")
    folder = shared / "scenes" / "van-gogh-room"
    buffer = openexr.File(str(folder / "gt" / "van-gogh-room.depth.exr")).channels()["Z"].pixels.astype(np.float64)
    near, far = 0.1, 100.0
    truth = np.where(buffer < 1.0, near * far / (far - buffer * (far - near)), 0.0)
    turn = trimesh.transformations.rotation_matrix
    camera_from_mesh = trimesh.transformations.concatenate_matrices(
        trimesh.transformations.translation_matrix([0.0, -1.0, -7.5]),
        turn(np.radians(-80.0), [1, 0, 0]),
        turn(np.radians(-90.0), [0, 0, 1]),
    )
    # The camera looks down, which agents do not: the room is turned in front of it instead.
    mesh = load_mesh(folder / "van-gogh-room.mesh.ply")
    mesh = mesh._replace(vertices=trimesh.transform_points(mesh.vertices, camera_from_mesh).astype(np.float32))
    options = {"height": 240, "width": 320, "hfov_deg": 45.0, "backface_culling": True}
    depth = render(bank_of([mesh], device), device, [0], np.zeros((1, 3)), np.zeros(1), **options)
    assert (np.abs(depth[0] - truth) > 1e-3).mean() < 1e-3


BAD_OPTIONS = [
    ({"num_agents": 0}, "num_agents"), ({"num_agents": 2.0}, "num_agents"), ({"height": 0}, "height"),
    ({"width": 10**6}, "width"), ({"hfov_deg": 180.0}, "hfov_deg"), ({"hfov_deg": float("nan")}, "hfov_deg"),
    ({"max_depth": 0.0}, "max_depth"), ({"max_depth": float("nan")}, "max_depth"),
]  # fmt: skip


@pytest.mark.parametrize(("options", "name"), BAD_OPTIONS)
def test_bad_options_are_named(options, name):
    with pytest.raises(ArgumentError, match=f"{name}: found"):
        RaycastRenderer(bank_of([room()], "cpu"), **{"num_agents": 2, **options})


def test_bad_arguments_are_named():
    renderer = RaycastRenderer(bank_of([room()], "cpu"), 2)
    scene_id, position, heading = tensors("cpu", [0, 0], np.zeros((2, 3)), [0, 0])
    for name, arguments in {
        "scene_id": (scene_id.long(), position, heading),
        "position": (scene_id, position[:1], heading),
        "heading": (scene_id, position, heading.double()),
    }.items():
        with pytest.raises(ArgumentError, match=f"{name}: found"):
            renderer.render(*arguments)


def test_cuda_kernel_has_vector_loads_and_no_float64(compile_ptx):
    floats = [nb.Array(nb.float32, n, "C") for n in range(4)]
    ints = nb.Array(nb.int32, 1, "C")
    bvh = nb.NamedTuple((floats[2], floats[2], ints), BVHData)
    scalars = (nb.float32, nb.float32, nb.boolean)
    ptx = compile_ptx(raycast._render_cuda, bvh, ints, floats[2], floats[1], *scalars, floats[3])
    assert ".f64" not in ptx
    assert ptx.count("ld.global.v4") + ptx.count("ld.global.nc.v4") >= 4 + 3
    assert ptx.count(".local .align") == 1  # the stack, and nothing that spilled into memory


@pytest.mark.cuda
def test_cpu_and_cuda_see_the_same():
    mesh, rng = soup(2000, 5), np.random.default_rng(6)
    position, heading = rng.uniform(-3, 3, (64, 3)), rng.uniform(-3, 3, 64)
    images = [render(bank_of([mesh], d), d, [0] * 64, position, heading) for d in ("cpu", "cuda")]
    assert_close(*images)


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
    bvh = to_device(BVHData(np.zeros((1, 16), np.float32), np.zeros((1, 12), np.float32), np.zeros(1, np.int32)), "cpu")
    view(bvh).nodes[0, 3] = 7
    assert bvh.nodes[0, 3] == 7
