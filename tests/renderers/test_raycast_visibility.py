"""Triangles, pitch and culling of the ray caster against the reference, and agreement of both renderers."""

import numpy as np
import pytest
import torch
from banks import assert_close, bank_of, room, soup, tensors
from parity import near_edges
from render_reference import visibility_reference

from batchnav.procedural import make_house
from batchnav.renderers.opengl.renderer import OpenGLRenderer
from batchnav.renderers.raycast import RaycastRenderer

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
