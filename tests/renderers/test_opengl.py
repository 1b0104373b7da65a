"""The OpenGL renderer against the ray caster; without a GPU on Mesa's llvmpipe."""

import subprocess
import sys
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from banks import bank_of, render, room, tensors
from parity import assert_alike, assert_parity, assert_right, differing, truth

from batchnav.errors import DeviceError
from batchnav.procedural import BENCHMARK_HOUSE, make_house
from batchnav.renderers.opengl import gl, layout
from batchnav.renderers.opengl.gl import EGLDevice, cuda_match
from batchnav.renderers.opengl.layout import (
    MAX_TRIANGLES,
    Limits,
    arrange,
    buffer_sizes,
    build_clusters,
    check_memory,
    check_triangles,
)
from batchnav.renderers.opengl.renderer import OpenGLRenderer
from batchnav.renderers.raycast import RaycastRenderer
from batchnav.scene.mesh import load_mesh

VIEWS = 160
pytestmark = pytest.mark.usefixtures("opengl")


def poses(bank, n, seed):
    """Scenes in turn, places anywhere in their boxes (inside furniture too), any heading."""
    rng, scene_index = np.random.default_rng(seed), np.arange(n) % bank.num_scenes
    bounds = [[f(scene.mesh.vertices, axis=0) for scene in bank.scenes] for f in (np.min, np.max)]
    low, high = (np.array(bound)[scene_index] for bound in bounds)
    return scene_index, rng.uniform(low, high).astype(np.float32), rng.uniform(-9, 9, n).astype(np.float32)


def both(bank, views, **options):
    return [render(kind, bank, *views, **options) for kind in (OpenGLRenderer, RaycastRenderer)]


@pytest.fixture(scope="module")
def meshes():
    return [*map(make_house, (BENCHMARK_HOUSE, 3, 7)), room()]


@pytest.fixture(scope="module")
def bank(meshes):
    return bank_of(meshes, "cpu")


@pytest.mark.parametrize(
    ("size", "hfov", "culling"),
    [((64, 64), 90.0, False), ((64, 64), 90.0, True), ((48, 80), 60.0, False), ((128, 128), 90.0, False)],
)
def test_houses_look_as_the_ray_caster_sees_them(bank, meshes, size, hfov, culling):
    """Where the two differ, brute force in float64 says who is right: neither is wrong by more than its nature."""
    options = {"height": size[0], "width": size[1], "hfov_deg": hfov, "backface_culling": culling}
    views = poses(bank, VIEWS, seed=1)
    depth, expected = both(bank, views, **options)
    assert_alike(depth, expected)
    pixels = np.argwhere(differing(depth, expected))
    found = assert_right(depth, expected, truth(pixels, meshes, views, hfov, culling, size), pixels)
    assert found["rasteriser"] + found["ray caster"] > 0, "views in which nothing is near an edge test nothing"


def test_the_wrong_renderer_is_named(bank, meshes):
    """A picture that is off by a fifth of a pixel is not taken for a right one, whichever of the two it is."""
    views = poses(bank, 8, seed=2)
    _, expected = both(bank, views)
    scene_index, position, heading = views
    moved, _ = both(bank, (scene_index, position, heading + np.float32(np.radians(0.3))))
    pixels = np.argwhere(differing(moved, expected))
    pixels = pixels[:: len(pixels) // 50]
    exact = truth(pixels, meshes, views)
    for pictures in ((moved, expected), (expected, moved)):
        with pytest.raises(AssertionError, match="off its grid"):
            assert_right(*pictures, exact, pixels)


@pytest.mark.parametrize("name", ["aws_hospital/aws_hospital", "quest_rooms/office_large"])
def test_scans_and_large_scenes_look_as_the_ray_caster_sees_them(shared, name):
    bank = bank_of([load_mesh(shared / f"scenes/{name}.glb")], "cpu")
    assert_parity(*both(bank, poses(bank, 96, seed=2)))


@pytest.mark.parametrize("off", ["frustum_culling", "occlusion_culling", "pixel_culling"])
def test_culling_changes_nothing(bank, off):
    views = poses(bank, 40, seed=5)
    culled, all_drawn = (render(OpenGLRenderer, bank, *views, **options) for options in ({}, {off: False}))
    np.testing.assert_array_equal(culled, all_drawn)


def test_moving_turning_and_jumping_with_occlusion_culling(bank):
    """Each frame is culled by what the frame before saw; nothing may be missing, not even after a jump."""
    n, rng = 24, np.random.default_rng(6)
    renderer, plain = OpenGLRenderer(bank, n), OpenGLRenderer(bank, n, occlusion_culling=False)
    scene_index, position, heading = poses(bank, n, seed=7)
    for step in range(12):
        heading = heading + np.float32(np.radians(10)) * rng.integers(-1, 2, n).astype(np.float32)
        position = position + rng.normal(0, 0.1, (n, 3)).astype(np.float32)
        if step == 6:
            scene_index, position, heading = (array[::-1].copy() for array in (scene_index, position, heading))
        arguments = tensors("cpu", scene_index, position, heading)
        assert torch.equal(renderer.render(*arguments), plain.render(*arguments)), f"step {step}"


@pytest.mark.parametrize(("pairs", "round_size"), [(3000, 2**17), (2**25, 50)])
def test_slices_of_agents_and_rounds_of_pairs_change_nothing(bank, monkeypatch, pairs, round_size):
    views = poses(bank, 20, seed=9)
    expected = render(OpenGLRenderer, bank, *views)
    monkeypatch.setattr(layout, "MAX_PAIRS", pairs)
    monkeypatch.setattr(layout, "MAX_ROUND", round_size)
    np.testing.assert_array_equal(render(OpenGLRenderer, bank, *views), expected)


def test_the_texture_array_holds_the_same_pictures(bank):
    n, size = 19, 16
    renderer = OpenGLRenderer(bank, n, size, size)
    depth = renderer.render(*tensors("cpu", *poses(bank, n, seed=10))).numpy()
    texture, (columns, rows) = renderer.texture_array, renderer.tiles
    with renderer.context:
        layers = np.frombuffer(texture.read(), np.float32).reshape(texture.layers, rows, size, columns, size)
    tiles = layers.transpose(0, 1, 3, 2, 4).reshape(-1, size, size)
    np.testing.assert_array_equal(tiles[:n], depth)


def test_renderers_do_not_disturb_each_other(bank):
    views = tensors("cpu", *poses(bank, 8, seed=11))
    renderer, other = OpenGLRenderer(bank, 8), OpenGLRenderer(bank, 8, 32, 32)
    first = renderer.render(*views).clone()
    other.render(*views)
    other.release()
    assert torch.equal(renderer.render(*views), first)


def test_insufficient_memory_is_an_error_before_allocation(bank, monkeypatch):
    monkeypatch.setattr(gl.GLContext, "free_memory", lambda self: 2**20)
    with pytest.raises(DeviceError, match=r"8 agents of 64 x 64 need \d+ MiB, found 1 MiB free on .*fewer agents"):
        OpenGLRenderer(bank, 8)


def test_a_software_renderer_has_the_memory_of_the_machine():
    """Also where Mesa lists the extension of GPUs, by which it reports 0."""
    context = SimpleNamespace(is_software=True, mgl=SimpleNamespace(extensions={"GL_NVX_gpu_memory_info"}))
    assert gl.GLContext.free_memory(context) > 2**20


def test_a_lost_context_is_an_error(bank):
    renderer = OpenGLRenderer(bank, 1)
    renderer.release()
    with pytest.raises(DeviceError, match="lost or was released"):
        renderer.render(*tensors("cpu", [0], [[0, 0, 0]], [0.0]))


def test_without_egl_the_packages_are_named(bank, monkeypatch):
    def no_library(name):
        raise OSError(f"{name}: cannot open shared object file")

    monkeypatch.setattr(gl.ctypes, "CDLL", no_library)
    with pytest.raises(DeviceError, match="apt-get install libegl1 libgl1-mesa-dri libgles2 libopengl0"):
        OpenGLRenderer(bank, 1)


def test_an_old_driver_is_an_error(bank, monkeypatch):
    monkeypatch.setattr(gl, "VERSION", 990)
    with pytest.raises(DeviceError, match=r"no EGL device with a 4\.5 context \(device 0: "):
        OpenGLRenderer(bank, 1)


@pytest.mark.cuda
@pytest.mark.parametrize("frame", [OpenGLRenderer.render, lambda *views: OpenGLRenderer.visibility(*views).depth])
def test_on_cuda_nothing_is_copied_to_the_host(bank, frame):
    bank, n = bank_of([scene.mesh for scene in bank.scenes], "cuda"), 64
    views = poses(bank, n, seed=12)
    renderer, arguments = OpenGLRenderer(bank, n), tensors(bank.device, *views)
    frame(renderer, *arguments)
    torch.cuda.synchronize()
    activities = [torch.profiler.ProfilerActivity.CPU, torch.profiler.ProfilerActivity.CUDA]
    with torch.profiler.profile(activities=activities) as profile:
        depth = frame(renderer, *arguments)
        torch.cuda.synchronize()
    names = [event.name for event in profile.events()]
    assert any("DtoD" in name for name in names), "the copies to and from OpenGL were not seen"
    assert not [name for name in names if "DtoH" in name or "HtoD" in name]
    assert_parity(depth.cpu().numpy(), render(RaycastRenderer, bank, *views))


# Matching of EGL devices and CUDA devices

UUID = "0123456789abcdef0123456789abcdef"
DASHED = "01234567-89ab-cdef-0123-456789abcdef"


@pytest.mark.parametrize(
    ("devices", "visible", "index"),
    [
        ([EGLDevice(0, "", "", -1), EGLDevice(1, "", UUID, -1)], "", 1),
        ([EGLDevice(0, "", "", 1), EGLDevice(1, "", "", 0)], "", 1),
        ([EGLDevice(0, "", "", 1), EGLDevice(1, "", "", 0)], "1,0", 0),
        ([EGLDevice(0, "", "", 1), EGLDevice(1, "", "", 0)], "GPU-01234567", 1),
        ([EGLDevice(0, "", "", -1)], "", None),
    ],
)
def test_an_egl_device_is_known_by_uuid_or_ordinal(monkeypatch, devices, visible, index):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda i: SimpleNamespace(uuid=DASHED))
    match = cuda_match(0, devices)
    assert match is None if index is None else match.index == index


def test_a_gpu_without_egl_is_an_error(monkeypatch):
    monkeypatch.setattr(gl, "egl_devices", lambda: [EGLDevice(0, "Mesa on the CPU", "", -1)])
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda i: SimpleNamespace(uuid=DASHED))
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda device: "NVIDIA H200")
    with pytest.raises(
        DeviceError, match="found Mesa on the CPU among EGL's devices, expected NVIDIA H200; install the driver's EGL"
    ):
        gl.open_context(torch.device("cuda", 0))


OPTIMISER_AFTER_OPENGL = """
import torch
from batchnav.renderers.opengl.gl import open_context

context = open_context(torch.device("cpu"))
weight = torch.nn.Parameter(torch.ones(2))
optimiser = torch.optim.SGD([weight], lr=0.5)
weight.sum().backward()
optimiser.step()
print(weight.tolist())
"""


def test_training_goes_on_after_a_context_is_open(opengl):
    """In a new process: a crash ends it. PyTorch's CUDA builds import Triton when an optimiser is made."""
    done = subprocess.run([sys.executable, "-c", OPTIMISER_AFTER_OPENGL], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert done.stdout == "[0.5, 0.5]\n"


# Parts of the OpenGL renderer that need no OpenGL: clusters of triangles, and the layout of images

LIMITS = Limits(texture_size=16384, layers=2048, groups=65535, block=2**27, texels=2**27)


def test_clusters_hold_every_triangle_once():
    meshes = [make_house(3), room()]
    clusters = build_clusters(meshes)
    first, count = clusters.boxes.view(np.uint32)[:, 3], clusters.boxes.view(np.uint32)[:, 7]
    (large, number), (small, one) = clusters.ranges
    assert (large, small, one) == (0, number, 1)
    assert count.max() <= MAX_TRIANGLES and count[:number].min() >= MAX_TRIANGLES // 2
    np.testing.assert_array_equal(first, np.concatenate([[0], np.cumsum(count)[:-1]]))
    corners = clusters.corners[:, :, :3]
    split = np.cumsum([len(mesh.faces) for mesh in meshes])
    for mesh, part in zip(meshes, np.split(corners, split[:-1]), strict=True):
        mine, theirs = (np.unique(c.reshape(-1, 9), axis=0) for c in (part, mesh.vertices[mesh.faces]))
        np.testing.assert_array_equal(mine, theirs)
    number = clusters.corners.view(np.int32)[:, :, 3]
    faces = np.concatenate([mesh.vertices[mesh.faces] for mesh in meshes])
    np.testing.assert_array_equal(corners, faces[number[:, 0]])
    assert (number == number[:, :1]).all() and len(np.unique(number[:, 0])) == len(faces)
    low, high = (clusters.boxes[np.repeat(np.arange(len(count)), count), None, c : c + 3] for c in (0, 4))
    assert (corners >= low).all() and (corners <= high).all()


@pytest.mark.parametrize(
    ("num_agents", "size", "expected"),
    [(1, 64, (1, 1, 1)), (5, 64, (4, 2, 1)), (4096, 64, (4, 4, 256)), (100, 6000, (2, 2, 25)), (3, 16384, (1, 1, 3))],
)
def test_agents_are_tiles_in_layers(num_agents, size, expected):
    assert arrange(num_agents, size, size, 100, LIMITS)[:3] == expected


def test_what_exceeds_the_limits_is_an_error():
    with pytest.raises(DeviceError, match="found 40000 agents, expected at most 32768 of 64 x 64"):
        arrange(40000, 64, 64, 100, LIMITS)
    with pytest.raises(DeviceError, match="found images of 20000 x 20000, expected sides of at most 16384"):
        arrange(1, 20000, 20000, 100, LIMITS)
    clusters, image = build_clusters([room()]), (16384, 64, 64, 1)
    sizes = buffer_sizes(*image, arrange(*image, LIMITS))
    with pytest.raises(DeviceError, match=r"a buffer \(depth\) of 256 MiB, expected at most 128 MiB on a card"):
        check_memory(sizes, 0, LIMITS, None, "16384 agents", "a card")
    with pytest.raises(DeviceError, match="found 12 triangles in all scenes, expected at most 10 on a card"):
        check_triangles(clusters, LIMITS._replace(texels=30), "a card")
    check_triangles(clusters, LIMITS._replace(texels=36), "a card")
    limits, needed = LIMITS._replace(block=2**31), sum(sizes.values()) + 2**20
    check_memory(sizes, 2**20, limits, needed, "16384 agents", "a card")
    with pytest.raises(DeviceError, match=r"16384 agents need [\d,]+ MiB, found [\d,]+ MiB free on a card"):
        check_memory(sizes, 2**20, limits, needed - 1, "16384 agents", "a card")
