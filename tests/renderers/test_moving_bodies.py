"""Moving bodies in images: depth and surface ids of people, cylinders and boxes over those of the scene."""

import numpy as np
import pytest
import torch
import trimesh
from banks import bank_of, room, soup, tensors
from moving_bodies import crowd, made
from numba import typeof
from numba import types as nb
from parity import near_edges
from render_reference import pixel_directions

from batchnav.errors import ArgumentError
from batchnav.geometry.solids import HEAD_RADIUS
from batchnav.renderers.bodies import MOST_BODIES, DrawingOptions, SeenBodies, draw_bodies
from batchnav.renderers.opengl.renderer import OpenGLRenderer
from batchnav.renderers.raycast import RaycastRenderer
from batchnav.runtime.kernels.arrays import view
from batchnav.types import BOX, CYLINDER, PERSON, MovingBodies

SIDES = 256
"""Sides of the meshes that approximate round bodies: their faces lie up to 0.05 mm inside the exact surface."""
MESH_ERROR = 2e-3
"""Depth difference of a fine mesh, metres: on surfaces seen at a slant 0.05 mm become a millimetre."""
OUTLINE = 4e-3
"""Fraction of pixels whose ray passes within a mesh's error of an outline."""
HFOV = 80.0


def mesh_of(bodies, world, k):
    """A fine mesh of one body."""
    shape, radius, height = (float(getattr(bodies, name)[world, k]) for name in ("shape", "radius", "height"))
    if shape == PERSON:
        top = height - 2 * HEAD_RADIUS
        body = trimesh.creation.capsule(max(top - 2 * radius, 0.0), radius, count=[SIDES, SIDES])
        body.apply_translation([0, 0, -body.bounds[0, 2]])
        head = trimesh.creation.uv_sphere(HEAD_RADIUS, count=[SIDES, SIDES])
        head.apply_translation([0, 0, height - HEAD_RADIUS])
        mesh = trimesh.util.concatenate([body, head])
    elif shape == CYLINDER:
        mesh = trimesh.creation.cylinder(radius, height, sections=SIDES)
        mesh.apply_translation([0, 0, height / 2])
    else:
        mesh = trimesh.creation.box([2 * radius, 2 * radius, height])
        mesh.apply_translation([0, 0, height / 2])
    mesh.apply_transform(trimesh.transformations.rotation_matrix(-np.pi / 2, [1, 0, 0]))  # +Z up to +Y up
    mesh.apply_transform(trimesh.transformations.rotation_matrix(float(bodies.heading[world, k]), [0, 1, 0]))
    mesh.apply_translation(bodies.position[world, k].cpu().numpy())
    return mesh


def looks(n, seed):
    """Cameras in the room, some of them tilted: scene, position, heading, pitch as tensors on the CPU."""
    rng = np.random.default_rng(seed)
    position = rng.uniform(-3, 3, (n, 3)) * [1, 0.3, 1]
    pitch = torch.as_tensor(np.where(np.arange(n) % 2, rng.uniform(-1.5, 1.5, n), 0.0).astype(np.float32))
    return *tensors("cpu", np.zeros(n), position, rng.uniform(-4, 4, n)), pitch


def seen_by(renderer, poses):
    return [image.cpu().numpy().copy() for image in renderer.visibility(*(pose.to(renderer.device) for pose in poses))]


@pytest.fixture
def embree():
    scene = pytest.importorskip("embreex.rtcore_scene").EmbreeScene
    return scene, pytest.importorskip("embreex.mesh_construction").TriangleMesh


CAMERAS = (
    ((48, 64), None),
    ((33, 17), None),
    ((48, 64), [[35.0, 0.0, 22.0], [0.0, 50.0, 30.0], [0.0, 0.0, 1.0]]),
)
"""Sizes and intrinsics."""


@pytest.mark.slow
def test_embree_sees_fine_meshes_of_the_bodies_at_the_same_depth(device, embree):
    n, scene = 12, room((8, 3, 8))
    bodies, poses = crowd(n, 5, seed=1), looks(n, seed=2)
    images = []
    for size, lens in CAMERAS:
        renderer = RaycastRenderer(bank_of([scene], device), n, *size, HFOV, intrinsics=lens)
        renderer.show_bodies(MovingBodies(*(column.to(device) for column in bodies)))
        images.append(seen_by(renderer, poses))
    wrong, other = ([[] for _ in CAMERAS] for _ in range(2))
    for i in range(n):
        meshes = [mesh_of(bodies, i, k) for k in range(int(bodies.count[i]))]
        corners = [scene.vertices[scene.faces], *(mesh.triangles.astype(np.float32) for mesh in meshes)]
        tree = embree[0]()
        embree[1](tree, np.ascontiguousarray(np.concatenate(corners)))
        _, position, heading, pitch = (pose[i].numpy() for pose in poses)
        for camera, ((size, lens), (depth, surface)) in enumerate(zip(CAMERAS, images, strict=True)):
            rays = pixel_directions(float(heading), *size, HFOV, float(pitch), lens and np.array(lens))
            rays = rays.reshape(-1, 3).astype(np.float32)
            origins = np.repeat(position[None], len(rays), 0)
            expected = tree.run(origins, rays, query="DISTANCE").reshape(size)
            face = tree.run(origins, rays).reshape(size)
            owner = np.searchsorted(np.cumsum([len(part) for part in corners]), face, side="right")
            wrong[camera].append(np.abs(depth[i] - expected) > MESH_ERROR)
            other[camera].append(np.where(owner > 0, -1 - owner, 0) != np.minimum(surface[i], 0))
    for camera, (_, surface) in enumerate(images):
        assert np.mean(wrong[camera]) <= OUTLINE and np.mean(other[camera]) <= OUTLINE, CAMERAS[camera]
        assert 0.05 < (surface <= -2).mean() < 0.8 and len(np.unique(surface[surface < 0])) >= 3
        assert (surface != -1).all()  # the room is closed


def test_a_person_a_cylinder_and_a_box_ahead(device):
    """Closed forms: the nearest point of each shape, in the middle of the image."""
    shapes = [PERSON, CYLINDER, BOX, BOX]
    turned = [0.0, 0.0, 0.0, np.pi / 4]
    bodies = made(
        device, position=np.tile(np.float32([[[0, -0.85, -3]]]), (4, 1, 1)), heading=np.array(turned)[:, None],
        shape=np.array(shapes)[:, None], radius=0.4,
    )  # fmt: skip
    renderer = RaycastRenderer(bank_of([room((40, 20, 40))], device), 4, 65, 65, 60.0)
    renderer.show_bodies(bodies)
    depth = renderer.render(*tensors(device, np.zeros(4), np.zeros((4, 3)), np.zeros(4))).cpu().numpy()
    np.testing.assert_allclose(depth[:, 32, 32], [2.6, 2.6, 2.6, 3 - 0.4 * 2**0.5], atol=1e-5)
    head = depth[0, :32, 32][(depth[0, :32, 32] < 5)][0]  # the topmost pixel of the person sees the head's upper half
    assert 3 - HEAD_RADIUS < head < 3


def test_bodies_do_not_change_an_empty_world(device):
    """A count of 0, bodies behind the camera and bodies beyond the walls: images equal bit for bit."""
    n, mesh = 6, soup(500, 3)
    bank, poses = bank_of([mesh], device), [pose.to(device) for pose in looks(n, 4)]
    renderer = RaycastRenderer(bank, n, 32, 32)
    plain = [image.clone() for image in renderer.visibility(*poses)]
    position = poses[1].cpu().numpy()[:, None].copy()
    for bodies in (made(device, position=position, count=0), made(device, position=position + np.array([0, 50, 0]))):
        renderer.show_bodies(bodies)
        assert all(map(torch.equal, renderer.visibility(*poses), plain))
        assert torch.equal(renderer.render(*poses), plain[0])
    renderer.show_bodies(made(device, position=position, radius=1.0))
    assert not torch.equal(renderer.render(*poses), plain[0])
    renderer.show_bodies(None)
    assert all(map(torch.equal, renderer.visibility(*poses), plain))


def test_a_camera_inside_a_body_sees_its_inner_side_or_through_it(device):
    bank = bank_of([room((10, 3, 10))], device)
    bodies = made(device, position=[[[0, -1.5, 0]]], shape=CYLINDER, radius=0.5, height=3.0)
    pose = tensors(device, [0], [[0.1, 0, 0]], [0.0])
    for culling, expected in ((False, (0.25 - 0.01) ** 0.5), (True, 5.0)):
        renderer = RaycastRenderer(bank, 1, 33, 33, backface_culling=culling)
        renderer.show_bodies(bodies)
        assert float(renderer.render(*pose)[0, 16, 16]) == pytest.approx(expected, abs=1e-5)


def test_near_plane_and_max_depth_cut_bodies(device):
    bank = bank_of([room((10, 3, 10))], device)
    bodies = made(device, position=[[[0, -1.5, -1.0]]], shape=BOX, radius=0.5, height=3.0)
    renderer = RaycastRenderer(bank, 1, 17, 17, max_depth=0.4)
    renderer.show_bodies(bodies)
    assert (renderer.render(*tensors(device, [0], [[0, 0, 0]], [0.0])) == 0).all()  # 0.5 m away
    near = renderer.render(*tensors(device, [0], [[0, 0, -0.2]], [0.0]))
    torch.testing.assert_close(near[0, 8, 8].cpu(), torch.tensor(0.3))
    inner = renderer.render(*tensors(device, [0], [[0, 0, -0.495]], [0.0]))  # the front is nearer than the near plane
    assert (inner == 0).all()  # and the back beyond max_depth


def test_own_body_and_other_worlds_are_not_seen(device):
    bank = bank_of([room((10, 3, 10))], device)
    position = np.tile(np.float32([[0, -1.5, -1], [0, -1.5, -2]]), (2, 1, 1))
    bodies = made(device, position=position, count=[2, 0])
    renderer = RaycastRenderer(bank, 3, 9, 9)
    world, own = torch.tensor([[0, 0, 1], [-1, 0, -1]], dtype=torch.int32, device=device)
    renderer.show_bodies(bodies, world=world, own=own)
    places = np.full((3, 3), [0, -0.5, 0])
    depth, surface = renderer.visibility(*tensors(device, [0] * 3, places, [0.0] * 3))
    assert surface[:, 4, 4].tolist()[:2] == [-2, -3] and int(surface[2, 4, 4]) >= 0
    torch.testing.assert_close(depth[:, 4, 4].cpu(), torch.tensor([0.7, 1.7, 5.0]))


def test_no_body_from_an_invalid_pose(device):
    bank = bank_of([room()], device)
    renderer = RaycastRenderer(bank, 4, 9, 9)
    renderer.show_bodies(made(device, position=np.full((4, 1, 3), [0, -1.5, -1])))
    position = [[0, 0, 0], [0, 0, 0], [np.nan, 0, 0], [0, 0, 0]]
    depth, surface = renderer.visibility(*tensors(device, [-1, 1, 0, 0], position, [0, 0, 0, np.inf]))
    assert (depth == 0).all() and (surface == -1).all()


def test_openglrenderer_draws_the_same_bodies(device, opengl):
    n = 12
    bank, poses = bank_of([room((8, 3, 8))], device), looks(n, seed=5)
    images = []
    for kind in (RaycastRenderer, OpenGLRenderer):
        renderer = kind(bank, n, 48, 48)
        renderer.show_bodies(crowd(n, 5, 6, device))
        images.append(seen_by(renderer, poses))
    (depth, surface), (other_depth, other) = images
    clear = ~near_edges(depth) & ~near_edges(other_depth)
    np.testing.assert_allclose(depth[clear], other_depth[clear], rtol=1e-4, atol=1e-3)
    assert (np.minimum(surface, 0) == np.minimum(other, 0)).mean() > 0.999 and (surface < -1).any()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"radius": torch.zeros(3, 2, dtype=torch.float64)}, "bodies.radius: found torch.float64"),
        ({"position": torch.zeros(3, 2, 2)}, r"bodies.position: found torch.float32 \[3, 2, 2\]"),
        ({"count": torch.zeros(2, dtype=torch.int32)}, "bodies.count"),
        ({"heading": torch.zeros(2, 3).T}, "bodies.heading: found strides"),
    ],
)
def test_bodies_of_another_form_are_refused(change, message):
    renderer = RaycastRenderer(bank_of([room()], "cpu"), 3)
    with pytest.raises(ArgumentError, match=message):
        renderer.show_bodies(made(position=np.zeros((3, 2, 3)))._replace(**change))


def test_worlds_and_numbers_of_bodies_are_checked():
    renderer = RaycastRenderer(bank_of([room()], "cpu"), 3)
    with pytest.raises(ArgumentError, match="world: found 0 to 2, expected 0 to 1"):
        renderer.show_bodies(made(position=np.zeros((2, 1, 3))))
    with pytest.raises(ArgumentError, match=f"expected at most {MOST_BODIES}"):
        renderer.show_bodies(made(position=np.zeros((3, MOST_BODIES + 1, 3))))
    with pytest.raises(ArgumentError, match="bodies: found str"):
        renderer.show_bodies("people")


def test_kernel_compiles_for_the_gpu_without_float64(compile_ptx):
    seen = SeenBodies.of(made(position=np.zeros((1, 1, 3))), 1, torch.device("cpu"))
    options = DrawingOptions(np.int32(1), np.float32(0.01), np.float32(9.0), False)
    floats, ints = [nb.Array(nb.float32, n, "C") for n in range(4)], [nb.Array(nb.int32, n, "C") for n in range(4)]
    poses = ints[1], floats[2], floats[1], floats[1], floats[1]
    ptx = compile_ptx(draw_bodies, *poses, typeof(view(seen)), typeof(options), floats[3], ints[3])
    assert ".f64" not in ptx and ".local" not in ptx


@pytest.mark.cuda
def test_cpu_and_cuda_draw_the_same_bodies():
    n, poses, images = 12, looks(12, seed=5), []
    for device in ("cpu", "cuda"):
        renderer = RaycastRenderer(bank_of([room((8, 3, 8))], device), n, 48, 48)
        renderer.show_bodies(crowd(n, 5, 6, device))
        images.append(seen_by(renderer, poses))
    (depth, surface), (other_depth, other) = images
    assert (np.abs(depth - other_depth) > 1e-4).mean() < 2e-3 and (surface < -1).any()
    assert (np.minimum(surface, 0) == np.minimum(other, 0)).mean() > 0.998
