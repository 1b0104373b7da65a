"""Triangles and pitch of the OpenGL renderer against the reference; without a GPU on Mesa's llvmpipe."""

import numpy as np
import pytest
import torch
from banks import assert_close, bank_of, room, soup, tensors
from render_reference import pixel_directions, visibility_reference

from batchnav.errors import ArgumentError
from batchnav.procedural import make_house
from batchnav.renderers.opengl import layout
from batchnav.renderers.opengl.renderer import OpenGLRenderer

CLEAR_OF_PLANES = 0.05
"""Cosine between ray and plane below which rounding moves where they meet."""
OTHER_TRIANGLE = 2e-3
"""Fraction of pixels whose ray passes within rounding of an edge and may name the triangle beside it."""
pytestmark = pytest.mark.usefixtures("opengl")


def poses(meshes, n, seed):
    """Scenes in turn, places anywhere in their boxes, any heading, any pitch: NumPy arrays."""
    rng, scene_index = np.random.default_rng(seed), np.arange(n) % len(meshes)
    low, high = (np.array([f(mesh.vertices, axis=0) for mesh in meshes])[scene_index] for f in (np.min, np.max))
    position, heading = rng.uniform(low, high), rng.uniform(-9, 9, n)
    pitch = rng.uniform(-np.pi / 2, np.pi / 2, n)
    return scene_index, *(array.astype(np.float32) for array in (position, heading, pitch))


def arguments(device, scene_index, position, heading, pitch):
    return *tensors(device, scene_index, position, heading), torch.as_tensor(pitch, device=device)


def plane_depth(meshes, triangle, position, heading, pitch, hfov):
    """Where each pixel's ray meets the plane of its triangle, f64 [H, W], and the cosine between ray and normal.

    Meaningless where the triangle is -1.
    """
    corners = np.concatenate([mesh.vertices[mesh.faces] for mesh in meshes])[triangle].astype(np.float64)
    normal = np.cross(corners[:, :, 1] - corners[:, :, 0], corners[:, :, 2] - corners[:, :, 0])
    rays = pixel_directions(heading, *triangle.shape, hfov, pitch)
    towards = (rays * normal).sum(-1)
    cosine = np.abs(towards) / (np.linalg.norm(rays, axis=-1) * np.linalg.norm(normal, axis=-1))
    return ((corners[:, :, 0] - position) * normal).sum(-1) / towards, cosine


@pytest.fixture(scope="module")
def houses():
    return [make_house(3), make_house(7), room()]


@pytest.mark.parametrize("culling", [False, True])
@pytest.mark.parametrize("size", [(16, 16), (9, 21)])
def test_triangles_and_pitch_as_the_reference_sees_them(device, culling, size):
    meshes = [soup(300, 0), soup(40, 2, size=1.0), soup(1000, 3, size=0.2)]
    views = poses(meshes, 24, seed=4)
    options = {"height": size[0], "width": size[1], "hfov_deg": 80.0, "backface_culling": culling}
    bank = bank_of(meshes, device)
    renderer = OpenGLRenderer(bank, 24, **options)
    depth, triangle = (t.cpu().numpy().copy() for t in renderer.visibility(*arguments(bank.device, *views)))
    first = np.cumsum([0, *(len(mesh.faces) for mesh in meshes)])
    expected_depth, expected = [], []
    for scene, position, heading, pitch in zip(*views, strict=True):
        image, face = visibility_reference(meshes[scene], position, heading, pitch=pitch, **options)
        expected_depth.append(image)
        expected.append(np.where(face >= 0, face + first[scene], -1))
    assert_close(depth, np.array(expected_depth), silhouettes=2e-3)
    assert (triangle != expected).mean() <= OTHER_TRIANGLE
    np.testing.assert_array_equal(triangle < 0, depth == 0)
    assert triangle.dtype == np.int32 and triangle.min() == -1
    assert 0.05 < (depth > 0).mean() < 0.95  # both hits and holes were compared
    seen = [triangle[views[0] == scene].max() for scene in range(len(meshes))]
    assert (first[:-1] <= seen).all() and (seen < first[1:]).all()  # every scene was seen under its own numbers


def test_the_triangles_plane_is_as_far_as_the_depth_says(device, houses):
    """In houses of several clusters; agents look up and down, each into its own scene."""
    views, bank = poses(houses, 48, seed=1), bank_of(houses, device)
    renderer = OpenGLRenderer(bank, 48, hfov_deg=70.0)
    images = [t.cpu().numpy() for t in renderer.visibility(*arguments(bank.device, *views))]
    first = np.cumsum([0, *(len(mesh.faces) for mesh in houses)])
    compared = 0
    for depth, triangle, scene, *pose in zip(*images, *views, strict=True):
        seen = triangle >= 0
        assert (triangle[seen] >= first[scene]).all() and (triangle[seen] < first[scene + 1]).all()
        expected, cosine = plane_depth(houses, triangle, *pose, 70.0)
        sure = seen & (cosine > CLEAR_OF_PLANES)
        np.testing.assert_allclose(depth[sure], expected[sure], rtol=1e-4, atol=1e-4)
        compared += sure.sum()
    assert compared > 0.5 * images[0].size


def test_visibility_and_depth_alone_are_the_same_depth(device, houses):
    """In turn too, since either is culled by what the other saw."""
    views, bank = poses(houses, 20, seed=2), bank_of(houses, device)
    renderer, views = OpenGLRenderer(bank, 20), arguments(bank.device, *views)
    alone = renderer.render(*views).clone()
    seen = renderer.visibility(*views)
    assert torch.equal(seen.depth, alone) and seen.depth is renderer.depth
    turned = (views[0], views[1], views[2] + 0.5, views[3])
    renderer.render(*turned)
    assert torch.equal(renderer.visibility(*views).depth, alone)
    assert torch.equal(renderer.render(*views), alone)


def test_level_cameras_need_no_pitch(device, houses):
    views, bank = poses(houses, 12, seed=3), bank_of(houses, device)
    scene_index, position, heading, pitch = arguments(bank.device, *views)
    renderer = OpenGLRenderer(bank, 12)
    tilted = renderer.render(scene_index, position, heading, pitch).clone()
    level = renderer.render(scene_index, position, heading).clone()
    assert torch.equal(renderer.render(scene_index, position, heading, torch.zeros_like(pitch)), level)
    assert not torch.equal(tilted, level)


@pytest.mark.parametrize(("pitch", "expected"), [(-np.pi / 2, 1.2), (np.pi / 2, 1.8)])
def test_straight_down_is_the_floor_and_up_the_ceiling(device, pitch, expected):
    """A room 3 m high, the camera 1.2 m above its floor: planar depth is the same in all pixels."""
    bank = bank_of([room((20.0, 3.0, 20.0))], device)
    views = arguments(bank.device, [0], np.float32([[0, -0.3, 0]]), np.float32([0.7]), np.float32([pitch]))
    depth = OpenGLRenderer(bank, 1, 16, 16).render(*views).cpu().numpy()
    np.testing.assert_allclose(depth, expected, atol=1e-5)


@pytest.mark.parametrize("off", ["frustum_culling", "occlusion_culling", "pixel_culling"])
def test_culling_changes_nothing_under_a_pitch(houses, off):
    """Nor does it while agents walk, turn, nod and jump. Of coinciding triangles either may be named."""
    n, rng, bank = 24, np.random.default_rng(6), bank_of(houses, "cpu")
    renderer, plain = OpenGLRenderer(bank, n), OpenGLRenderer(bank, n, **{off: False})
    scene_index, position, heading, pitch = poses(houses, n, seed=7)
    for step in range(8):
        heading = heading + np.float32(np.radians(10)) * rng.integers(-1, 2, n).astype(np.float32)
        pitch = np.clip(pitch + np.float32(np.radians(30)) * rng.integers(-1, 2, n), -1.5, 1.5).astype(np.float32)
        position = position + rng.normal(0, 0.1, (n, 3)).astype(np.float32)
        if step == 4:
            scene_index, position, heading = (array[::-1].copy() for array in (scene_index, position, heading))
        views = arguments("cpu", scene_index, position, heading, pitch)
        (depth, triangle), (expected, other) = renderer.visibility(*views), plain.visibility(*views)
        assert torch.equal(depth, expected), f"step {step}"
        for i in range(n):
            between, cosine = plane_depth(houses, other[i].numpy(), position[i], heading[i], pitch[i], 90.0)
            differs = (triangle[i] != other[i]).numpy() & (cosine > CLEAR_OF_PLANES)
            np.testing.assert_allclose(depth[i].numpy()[differs], between[differs], rtol=1e-4, atol=1e-4)
        assert (triangle != other).float().mean() < OTHER_TRIANGLE


def test_a_still_camera_finds_what_it_saw_under_its_pitch(houses):
    """Nothing is left for the second frame's second pass; for that the last camera's pitch has to count."""
    bank, views = bank_of(houses, "cpu"), poses(houses, 24, seed=10)
    renderer = OpenGLRenderer(bank, 24)
    for _ in range(2):
        renderer.render(*arguments("cpu", *views))
    with renderer.context:
        commands = np.frombuffer(renderer._buffers["commands"].read(), np.uint32)
    assert commands[-1] == 0  # pairs


@pytest.mark.parametrize(("pairs", "round_size"), [(1000, 2**17), (2**25, 50)])
def test_slices_of_agents_and_rounds_of_pairs_change_no_triangle(monkeypatch, pairs, round_size):
    meshes = [soup(2000, 5, size=0.3), soup(500, 6)]
    bank, views = bank_of(meshes, "cpu"), arguments("cpu", *poses(meshes, 20, seed=9))
    expected = OpenGLRenderer(bank, 20).visibility(*views)
    monkeypatch.setattr(layout, "MAX_PAIRS", pairs)
    monkeypatch.setattr(layout, "MAX_ROUND", round_size)
    depth, triangle = OpenGLRenderer(bank, 20).visibility(*views)
    assert torch.equal(depth, expected.depth) and torch.equal(triangle, expected.triangle)


def test_what_sees_nothing_sees_no_triangle(device):
    """Scenes that are not in the bank, poses that are not finite, and what the frame before left behind."""
    bank = bank_of([room()], device)
    position, heading = np.zeros((5, 3), np.float32), np.zeros(5, np.float32)
    renderer = OpenGLRenderer(bank, 5, 8, 8)
    everything = renderer.visibility(*arguments(bank.device, [0] * 5, position, heading, heading))
    assert (everything.triangle >= 0).all()
    pitch = np.float32([0, 0, 0, np.nan, np.inf])
    depth, triangle = renderer.visibility(*arguments(bank.device, [0, 1, -1, 0, 0], position, heading, pitch))
    assert (triangle[0] >= 0).all() and (triangle[1:] == -1).all() and (depth[1:] == 0).all()


def test_a_bad_pitch_is_named():
    renderer = OpenGLRenderer(bank_of([room()], "cpu"), 2)
    views = tensors("cpu", [0, 0], np.zeros((2, 3)), [0, 0])
    for draw in (renderer.render, renderer.visibility):
        with pytest.raises(ArgumentError, match="pitch: found"):
            draw(*views, torch.zeros(3))
