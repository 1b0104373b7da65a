"""Properties of all renderers."""

import copy
import logging
import pickle

import numpy as np
import pytest
import torch
import trimesh
from banks import DEPTH_ERROR, SILHOUETTES, assert_close, bank_of, render, room, soup, tensors
from render_reference import pixel_directions, render_reference
from worlds import as_mesh

from batchnav.data.scenes.load import load_scene
from batchnav.errors import ArgumentError, DeviceError
from batchnav.geometry.pose import tan_half
from batchnav.renderers import choose
from batchnav.renderers.choose import RENDERERS, make_renderer
from batchnav.renderers.opengl.renderer import OpenGLRenderer
from batchnav.renderers.raycast import RaycastRenderer
from batchnav.scene.bank import SceneBank
from batchnav.scene.mesh import load_mesh
from batchnav.types import TriangleMesh


@pytest.fixture(params=[RaycastRenderer, OpenGLRenderer])
def kind(request):
    if request.param is OpenGLRenderer:
        request.getfixturevalue("opengl")
    return request.param


@pytest.mark.parametrize("culling", [False, True])
@pytest.mark.parametrize("size", [(16, 16), (9, 21)])
def test_random_triangles_as_the_reference_sees_them(kind, device, culling, size):
    meshes = [soup(300, 0), soup(1, 1, size=3.0), soup(4, 2, size=3.0), soup(1000, 3, size=0.2)]
    rng = np.random.default_rng(4)
    scene_id, position = rng.integers(0, 4, 24), rng.uniform(-3, 3, (24, 3)).astype(np.float32)
    heading = rng.uniform(-7, 7, 24).astype(np.float32)
    options = {"height": size[0], "width": size[1], "hfov_deg": 80.0, "backface_culling": culling}
    depth = render(kind, bank_of(meshes, device), scene_id, position, heading, **options)
    expected = [
        render_reference(meshes[s], p, h, **options) for s, p, h in zip(scene_id, position, heading, strict=True)
    ]
    assert_close(depth, np.array(expected), silhouettes=2e-3)
    assert 0.05 < (depth > 0).mean() < 0.95  # both hits and holes were compared


@pytest.mark.plain
@pytest.mark.parametrize("culling", [False, True])
def test_inside_a_box_depth_has_a_closed_form(kind, device, culling):
    """Planar depth in an axis-aligned room: the nearest of three planes along each ray."""
    size, position, headings = np.array([6.0, 3.0, 8.0]), np.array([0.5, -0.3, 1.0]), np.float32([0, 0.4, -2.0, 9.1])
    depth = render(
        kind, bank_of([room(size)], device), [0] * 4, [position] * 4, headings, height=32, width=48,
        backface_culling=culling,
    )  # fmt: skip
    for image, heading in zip(depth, headings, strict=True):
        directions = pixel_directions(heading, 32, 48, 90.0)
        expected = ((np.sign(directions) * size / 2 - position) / directions).min(axis=-1)
        np.testing.assert_allclose(image, expected, atol=DEPTH_ERROR)


@pytest.mark.plain
def test_back_faces_are_seen_only_without_culling(kind, device):
    outwards = as_mesh(trimesh.creation.box((6.0, 3.0, 8.0)))
    bank = bank_of([outwards], device)
    assert (render(kind, bank, [0], [[0, 0, 0]], [0.3]) > 0).all()
    assert (render(kind, bank, [0], [[0, 0, 0]], [0.3], backface_culling=True) == 0).all()


@pytest.mark.parametrize(("distance", "seen"), [(0.0099, False), (0.0101, True), (0.5, True)])
def test_near_plane_is_planar(kind, device, distance, seen):
    wall = TriangleMesh(np.float32([[-9, -9, 0], [9, -9, 0], [0, 18, 0]]), np.int32([[0, 1, 2]]))
    depth = render(kind, bank_of([wall], device), [0], [[0, 0, distance]], [0.0], height=8, width=8)
    np.testing.assert_allclose(depth, distance if seen else 0.0, rtol=1e-4)


@pytest.mark.plain
def test_rays_that_miss_are_holes_and_max_depth_ends_them(kind, device):
    bank = bank_of([room((6.0, 3.0, 8.0))], device)
    assert (render(kind, bank, [0], [[0, 20, 0]], [0.0]) == 0).all()
    full = render(kind, bank, [0], [[0, 0, 0]], [0.5])
    cut = render(kind, bank, [0], [[0, 0, 0]], [0.5], max_depth=2.5)
    np.testing.assert_allclose(cut, np.where(full < 2.5, full, 0), rtol=1e-6)


@pytest.mark.plain
def test_an_unknown_scene_or_a_pose_that_is_not_finite_sees_nothing(kind, device):
    position = [[0, 0, 0]] * 4 + [[np.nan, 0, 0], [0, np.inf, 0]]
    depth = render(
        kind, bank_of([room()], device), [0, 1, -1, 0, 0, 0], position, [0, 0, 0, np.nan, 0, 0], height=8, width=8
    )
    assert (depth[0] > 0).all() and (depth[1:] == 0).all()


@pytest.mark.parametrize("size", [(16, 16), (9, 21)])
def test_every_camera_may_have_its_own_field_of_view(kind, device, size):
    """Each sees what it sees in a renderer of that field of view."""
    rng, fields = np.random.default_rng(7), (40.0, 90.0, 125.0)
    bank, position, heading = bank_of([soup(400, 0)], device), rng.uniform(-3, 3, (12, 3)), rng.uniform(-3, 3, 12)
    sides = {"height": size[0], "width": size[1]}
    poses, pitch = tensors(device, [0] * 12, position, heading), torch.linspace(-1, 1, 12, device=device)
    lens = torch.tensor([tan_half(field) for field in fields * 4], device=device)
    renderer = kind(bank, 12, hfov_deg=70.0, **sides)
    depth, triangle = (part.cpu().numpy().copy() for part in renderer.visibility(*poses, pitch, lens))
    np.testing.assert_array_equal(renderer.render(*poses, pitch, lens).cpu().numpy(), depth)
    for k, field in enumerate(fields):
        alone = kind(bank, 12, hfov_deg=field, **sides).visibility(*poses, pitch)
        np.testing.assert_array_equal(depth[k::3], alone.depth.cpu().numpy()[k::3])
        np.testing.assert_array_equal(triangle[k::3], alone.triangle.cpu().numpy()[k::3])
    for nothing in (0.0, -1.0, np.nan):
        assert (renderer.render(*poses, pitch, torch.full_like(lens, nothing)) == 0).all()
    with pytest.raises(ArgumentError, match=r"tan_half_hfov: found .*\[11\].*expected.*\[12\]"):
        renderer.render(*poses, pitch, lens[1:])


@pytest.mark.parametrize("centre", [0.0, 40.0])
def test_no_ray_slips_between_triangles(kind, device, centre):
    """A closed surface of many triangles, seen from inside: a crack would be a hole."""
    sphere = trimesh.creation.icosphere(subdivisions=5, radius=3.0)
    noise = np.random.default_rng(0).normal(0, 0.01, sphere.vertices.shape)
    mesh = TriangleMesh((sphere.vertices + noise + centre).astype(np.float32), np.asarray(sphere.faces, np.int32))
    rng = np.random.default_rng(1)
    position = centre + rng.uniform(-1.2, 1.2, (48, 3))
    depth = render(kind, bank_of([mesh], device), [0] * 48, position, rng.uniform(-4, 4, 48), height=128, width=128)
    assert (depth > 0).all(), f"{(depth == 0).sum()} holes in {depth.size} rays"


@pytest.mark.parametrize("grid", [3, 10])
def test_no_ray_slips_through_corners_that_it_aims_at(kind, device, grid):
    """Rays through the vertices and along the edges of a wall's grid."""
    ticks = np.linspace(-1, 1, grid + 1)
    x, y = np.meshgrid(ticks, ticks)
    vertices = np.stack([x.ravel(), y.ravel(), np.full(x.size, -1.0)], axis=1).astype(np.float32)
    first = (np.arange(grid)[:, None] * (grid + 1) + np.arange(grid)).ravel()
    right, up, across = first + 1, first + grid + 1, first + grid + 2
    faces = np.concatenate([np.stack([first, right, across], 1), np.stack([first, across, up], 1)])
    wall = TriangleMesh(vertices, faces.astype(np.int32))
    depth = render(kind, bank_of([wall], device), [0], [[0, 0, 0]], [0.0], height=5 * grid, width=5 * grid)
    np.testing.assert_allclose(depth, 1.0, atol=1e-6)


@pytest.mark.parametrize("size", [64, 128])
@pytest.mark.parametrize(
    ("name", "file"),
    [("aws_small_house", "scenes/aws_small_house/aws_small_house.glb"), ("van_gogh", "oracle/van_gogh_rebake.glb")],
)
def test_habitat_sims_images(kind, device, shared, name, file, size):
    """OpenGL's rasteriser with back-face culling; its depth buffer resolves 1e-4 of the depth."""
    truth = np.load(shared / f"oracle/depth/{name}_depth{size}.npz")
    position = truth["position"] + np.float32([0, truth["sensor_height"], 0])
    options = {"height": size, "width": size, "hfov_deg": float(truth["hfov"]), "backface_culling": True}
    depth = render(kind, bank_of([load_mesh(shared / file)], device), [0] * 5, position, truth["yaw"], **options)
    wrong = np.abs(depth - truth["depth"]) > 1e-3 + 1e-4 * truth["depth"]
    assert wrong.mean() < SILHOUETTES


def test_habitat_sims_published_image(kind, device, shared):
    """The depth buffer that habitat-sim's own tests compare with (GfxBatchHbaoTest.cpp, perspective case)."""
    import OpenEXR

    folder = shared / "scenes" / "van-gogh-room"
    buffer = OpenEXR.File(str(folder / "gt" / "van-gogh-room.depth.exr")).channels()["Z"].pixels.astype(np.float64)
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
    depth = render(kind, bank_of([mesh], device), [0], np.zeros((1, 3)), np.zeros(1), **options)
    assert (np.abs(depth[0] - truth) > 1e-3).mean() < 1e-3


BAD_OPTIONS = [
    ({"num_agents": 0}, "num_agents"), ({"num_agents": 2.0}, "num_agents"), ({"height": 0}, "height"),
    ({"width": 10**6}, "width"), ({"hfov_deg": 180.0}, "hfov_deg"), ({"hfov_deg": float("nan")}, "hfov_deg"),
    ({"max_depth": 0.0}, "max_depth"), ({"max_depth": float("nan")}, "max_depth"), ({"hfov_deg": "wide"}, "hfov_deg"),
    ({"bank": None}, "bank"), ({"num_agents": 10**6, "height": 8192, "width": 8192}, "num_agents, height, width"),
    ({"num_agents": np.int32(10**6), "height": np.int32(8192), "width": np.int32(8192)}, "num_agents, height, width"),
]  # fmt: skip


@pytest.mark.parametrize(("options", "name"), BAD_OPTIONS)
def test_bad_options_are_named(kind, options, name):
    with pytest.raises(ArgumentError, match=f"{name}: found"):
        kind(**{"bank": bank_of([room()], "cpu"), "num_agents": 2, **options})


def test_renderers_cannot_be_copied_or_pickled(kind):
    renderer = kind(bank_of([room()], "cpu"), 2)
    for copied in (copy.copy, copy.deepcopy, pickle.dumps):
        with pytest.raises(ArgumentError, match=f"{kind.__name__}: cannot be copied or pickled"):
            copied(renderer)


def test_poses_that_ask_for_a_gradient_are_poses(kind):
    scene_id, position, heading = tensors("cpu", [0, 0], np.zeros((2, 3)), [0, 0])
    renderer = kind(bank_of([room()], "cpu"), 2)
    expected = renderer.render(scene_id, position, heading).clone()
    seen = renderer.render(scene_id, position.requires_grad_(), heading.requires_grad_())
    assert not seen.requires_grad and (seen == expected).all()


def test_bad_arguments_are_named(kind):
    renderer = kind(bank_of([room()], "cpu"), 2)
    scene_id, position, heading = tensors("cpu", [0, 0], np.zeros((2, 3)), [0, 0])
    for name, arguments in {
        "scene_index": (scene_id.long(), position, heading),
        "position": (scene_id, position[:1], heading),
        "heading": (scene_id, position, heading.double()),
    }.items():
        with pytest.raises(ArgumentError, match=f"{name}: found"):
            renderer.render(*arguments)


# Renderers by name, and the choice of `auto`


@pytest.fixture(scope="module")
def bank():
    return SceneBank.pack([load_scene("house:3"), load_scene("house:4")], "cpu")


@pytest.mark.parametrize("best", ["raycast", "opengl"])
def test_auto_takes_the_faster_renderer_and_says_why(bank, opengl, monkeypatch, caplog, best):
    monkeypatch.setattr(
        choose, "_seconds", lambda renderer, views: 2.0 if isinstance(renderer, RENDERERS[best]) else 6.0
    )
    caplog.set_level(logging.INFO, "batchnav")
    renderer = make_renderer("auto", bank, 6, height=8, width=8)
    assert isinstance(renderer, RENDERERS[best])
    other = next(name for name in RENDERERS if name != best)
    assert f"renderer: {best}" in caplog.text and f"{best} 3 frames/s" in caplog.text and f"{other} 1 " in caplog.text


def test_auto_renders_what_it_times(bank, opengl):
    assert make_renderer("auto", bank, 6, height=8, width=8).depth.shape == (6, 8, 8)


def test_auto_without_opengl_casts_rays_and_says_what_is_missing(bank, monkeypatch, caplog):
    def missing(*arguments, **options):
        raise DeviceError("OpenGL: found no libEGL")

    monkeypatch.setitem(RENDERERS, "opengl", missing)
    caplog.set_level(logging.INFO, "batchnav")
    assert isinstance(make_renderer("auto", bank, 2, height=8, width=8), RENDERERS["raycast"])
    assert "opengl: not available (OpenGL: found no libEGL)" in caplog.text


def test_an_unknown_renderer_is_named():
    with pytest.raises(ArgumentError, match="renderer: found 'vulkan', expected one of raycast, opengl, auto"):
        make_renderer("vulkan", bank_of([room()], "cpu"), 1)
