"""Colour: textures against float64, uniform and vertex colours, slots, both renderers."""

import numba
import numpy as np
import pytest
import torch
from frames import bodies_at, make_frame, observe, room_scene
from numba import types as nb
from render_reference import pixel_directions

from batchnav.envs.nav import NavEnv
from batchnav.errors import ArgumentError
from batchnav.geometry.pose import camera_axes, pixel_ray, pixel_spacing, tan_half
from batchnav.scene import small_nodes
from batchnav.scene.appearance import COLOR_FIELDS
from batchnav.scene.bank import SceneBank
from batchnav.scene.blocks import compress, decompress
from batchnav.scene.resident import ResidentSceneBank, SceneSize
from batchnav.scene.textures import halved, num_block_rows, num_levels
from batchnav.sensors import rgb
from batchnav.sensors.camera import MAIN, CameraConfig
from batchnav.sensors.depth import DepthConfig
from batchnav.sensors.frame import GivenImages
from batchnav.sensors.rgb import RGBConfig, RGBSensor
from batchnav.sensors.sensor import Cameras
from batchnav.sensors.shade import LANES, as_byte, color_at
from batchnav.types import Material, Surface, Texture

RANDOM = np.random.default_rng(5)
CLOSE = 2
"""Tolerance in bytes: weights of texels have 8 bits, and each mip level is rounded."""
POSITIONS = [[0.6, 0.0, -1.1], [-2.2, 0.0, 2.9], [2.4, 0.0, 0.1], [0.1, 0.0, 3.7]]
HEADINGS = np.float32([0.3, 2.0, -2.0, 4.4])


def smooth(height, width):
    """An image whose neighbouring texels differ little, so that a small offset has a small effect."""
    rows, columns = np.indices((height, width))
    waves = [np.sin(2 * np.pi * (k * columns / width + rows / height)) for k in (1, 2, 3, 1)]
    return np.uint8(127.5 + 110 * np.stack(waves, -1))


def surface(**sampler):
    """UVs of the room's twelve triangles: linear on each, of every size, with one texture."""
    uv = RANDOM.uniform(-1.5, 2.5, (12, 3, 2)).astype(np.float32)
    uv[::3] *= 6.0
    uv[1::3] *= 0.1
    return Surface(np.zeros(12, np.int32), (Material(texture=0),), (Texture(smooth(96, 160), **sampler),), uv)


def painted(look):
    scene = room_scene()
    return scene._replace(mesh=scene.mesh._replace(surface=look))


@pytest.fixture(params=[False, True], ids=["whole", "small"])
def form(request, monkeypatch):
    """Patches and nodes of scenes below and above the size of large ones."""
    monkeypatch.setattr(small_nodes, "FROM_TRIANGLES", 1 if request.param else 10**9)


def views(bank, camera, scene=0, settings=None, names=("rgb",), renderer="raycast"):
    """Observations with the triangles and depths that they follow from."""
    bodies = bodies_at(POSITIONS, HEADINGS, bank.device, scene)
    frame, sensors = make_frame(bank, bodies, camera, names, settings, renderer)
    seen = observe(frame, sensors)
    depth, triangle = frame.renderers[MAIN, 1].visibility(*frame.cameras(MAIN).poses)
    return seen["rgb"].transpose(0, 2, 3, 1), depth.cpu().numpy(), triangle.cpu().numpy()


def uv_at(scene, triangle, eye, rays):
    """UVs f64 [..., 2] where rays meet the planes of triangles."""
    a, b, c = (scene.mesh.vertices[scene.mesh.faces[triangle][..., k]].astype(np.float64) for k in range(3))
    e, f = b - a, c - a
    normal = np.cross(e, f)
    t = (normal * (a - eye)).sum(-1) / (normal * rays).sum(-1)
    away = eye + t[..., None] * rays - a
    scale = (normal * normal).sum(-1)
    u, v = (np.cross(away, f) * normal).sum(-1) / scale, (np.cross(e, away) * normal).sum(-1) / scale
    corner = scene.mesh.surface.uv.astype(np.float64)[triangle]
    return (
        corner[..., 0, :]
        + u[..., None] * (corner[..., 1, :] - corner[..., 0, :])
        + v[..., None] * (corner[..., 2, :] - corner[..., 0, :])
    )


def wrap(index, size, mode):
    """Texel indices wrapped into the texture: OpenGL 4.6, table 8.20."""
    if mode == "repeat":
        return index % size
    if mode == "mirror":
        index = index % (2 * size)
        return np.where(index < size, index, 2 * size - 1 - index)
    return np.clip(index, 0, size - 1)


def read_level(picture, uv, linear, modes):
    """Texels [..., 4] at UVs: OpenGL 4.6, section 8.14.2."""
    size = np.array(picture.shape[1::-1])
    place = uv * size
    if not linear:
        x, y = (wrap(np.floor(place[..., k]).astype(int), size[k], modes[k]) for k in range(2))
        return picture[y, x].astype(float)
    low = np.floor(place - 0.5).astype(int)
    share = place - 0.5 - low
    x0, y0 = (wrap(low[..., k], size[k], modes[k]) for k in range(2))
    x1, y1 = (wrap(low[..., k] + 1, size[k], modes[k]) for k in range(2))
    fx, fy = share[..., :1], share[..., 1:]
    top = picture[y0, x0] * (1 - fx) + picture[y0, x1] * fx
    return top * (1 - fy) + (picture[y1, x0] * (1 - fx) + picture[y1, x1] * fx) * fy


def expected_colors(scene, camera, triangle, position, heading):
    """Expected colours f64 [H, W, 3] of one view, and log2 of the texels per pixel."""
    size = camera.height, camera.width, camera.hfov_deg
    eye, step = np.add(position, (0, camera.camera_height, 0)), 1e-4
    rays = pixel_directions(heading, *size)
    texture = scene.mesh.surface.textures[0]
    right, down = rays[:1, 1:2] - rays[:1, :1], rays[1:2, :1] - rays[:1, :1]
    here = uv_at(scene, triangle, eye, rays)
    scale = np.array(texture.pixels.shape[1::-1]) / step
    along = [(uv_at(scene, triangle, eye, rays + step * move) - here) * scale for move in (right, down)]
    detail = np.log2(np.maximum(*(np.linalg.norm(move, axis=-1) for move in along)))
    texels, _, between = texture.minify.partition("_mipmap_")
    pictures = [texture.pixels]
    while between and len(pictures) < num_levels(*texture.pixels.shape[1::-1]):
        pictures.append(halved(pictures[-1]))
    minified = np.array([read_level(p, here, texels == "linear", texture.wrap)[..., :3] for p in pictures])
    magnified = read_level(texture.pixels, here, texture.magnify == "linear", texture.wrap)[..., :3]
    level, grid = np.clip(detail, 0, len(pictures) - 1), np.indices(detail.shape)
    low = np.floor(level if between == "linear" else level + 0.5).astype(int).clip(0, len(pictures) - 1)
    high, share = np.minimum(low + 1, len(pictures) - 1), (level - low)[..., None] * (between == "linear")
    mixed = minified[low, *grid] * (1 - share) + minified[high, *grid] * share
    return np.where(detail[..., None] > 0, mixed, magnified), detail


@pytest.mark.parametrize("magnify", ["nearest", "linear"])
@pytest.mark.parametrize("minify", ["nearest", "linear", "linear_mipmap_nearest", "nearest_mipmap_linear",
                                    "linear_mipmap_linear"])  # fmt: skip
@pytest.mark.parametrize("wrap", [("repeat", "repeat"), ("mirror", "clamp"), ("clamp", "mirror")])
def test_textures_are_filtered_as_in_opengl(device, wrap, minify, magnify):
    scene, camera = painted(surface(wrap=wrap, minify=minify, magnify=magnify)), CameraConfig(40, 56, hfov_deg=75.0)
    found, _, triangle = views(SceneBank.pack([scene], device, COLOR_FIELDS), camera)
    assert (triangle >= 0).all()
    good, kinds = [], []
    for image, numbers, position, heading in zip(found, triangle, POSITIONS, HEADINGS, strict=True):
        expected, detail = expected_colors(scene, camera, numbers, position, heading)
        good.append(np.abs(image - expected).max(-1) <= CLOSE)
        kinds.append(detail > 0)
    # Where texels or levels are not mixed, rounding chooses between two at places where they meet.
    assert np.mean(good) > (0.999 if minify == "linear_mipmap_linear" and magnify == "linear" else 0.99)
    assert 0.1 < np.mean(kinds) < 0.9, "both kinds are to be seen"


@pytest.mark.parametrize("wrap", ["repeat", "mirror", "clamp"])
def test_the_widest_texture(device, wrap):
    """Each of 16,384 texels is read at its centre, including the last."""
    number = np.arange(16384)
    pixels = np.stack([number & 255, number >> 8, 0 * number, 0 * number + 255], -1).astype(np.uint8)[None]
    texels = np.array([0, 1, 2, 255, 256, 4095, 8191, 8192, 12345, 16381, 16382, 16383])
    uv = np.stack([np.repeat((texels[:, None] + 0.5) / 16384, 3, 1), np.full((12, 3), 0.5)], -1).astype(np.float32)
    texture = Texture(pixels, wrap=(wrap, wrap))
    scene = painted(Surface(np.zeros(12, np.int32), (Material(texture=0),), (texture,), uv))
    found, _, triangle = views(SceneBank.pack([scene], device, COLOR_FIELDS), CameraConfig(24, 24))
    np.testing.assert_array_equal(found, pixels[0, texels[triangle], :3])


def test_nearest_mip_level(device):
    scene, camera = painted(surface()), CameraConfig(40, 40)
    only = painted(scene.mesh.surface._replace(textures=(surface(minify="linear_mipmap_nearest").textures[0],)))
    cheap = views(SceneBank.pack([scene], device, COLOR_FIELDS), camera, settings={"rgb": RGBConfig(trilinear=False)})
    found = views(SceneBank.pack([only], device, COLOR_FIELDS), camera)
    np.testing.assert_array_equal(cheap[0], found[0])


def test_a_factor_alone_and_with_a_texture(device):
    """Per channel; 0.5 becomes 128, as OpenGL rounds."""
    plain = Surface(np.arange(12, dtype=np.int32) % 2, (Material((0.5, 0.0, 1.0, 0.1)), Material((0.2, 0.7, 0.3, 1.0))))
    found, _, triangle = views(SceneBank.pack([painted(plain)], device, COLOR_FIELDS), CameraConfig(16, 16))
    np.testing.assert_array_equal(found, np.array([[128, 0, 255], [51, 179, 77]])[triangle % 2])
    grey = surface()._replace(textures=(Texture(np.full((4, 8, 4), 200, np.uint8)),))
    factor = grey._replace(materials=(Material((0.5, 0.25, 1.0, 1.0), 0),))
    found, _, _ = views(SceneBank.pack([painted(factor)], device, COLOR_FIELDS), CameraConfig(16, 16))
    assert (found == [100, 50, 200]).all()


def test_vertex_colours_are_interpolated_and_multiply(device):
    color = RANDOM.integers(0, 256, (12, 3, 4), np.uint8)
    scene = painted(Surface(np.zeros(12, np.int32), (Material((1.0, 0.5, 1.0, 1.0)),), color=color))
    camera = CameraConfig(24, 32)
    found, _, triangle = views(SceneBank.pack([scene], device, COLOR_FIELDS), camera)
    both = painted(surface()._replace(color=color, textures=(Texture(np.full((2, 2, 4), 51, np.uint8)),)))
    darker, _, _ = views(SceneBank.pack([both], device, COLOR_FIELDS), camera)
    for image, dark, numbers, position, heading in zip(found, darker, triangle, POSITIONS, HEADINGS, strict=True):
        rays, eye = pixel_directions(heading, 24, 32, 90.0), np.add(position, (0, camera.camera_height, 0))
        expected = np.zeros((24, 32, 3))
        for k in range(3):  # a channel at a time, as if it were U
            uv = np.stack([color[..., k], color[..., k]], -1).astype(np.float32)
            as_uv = painted(scene.mesh.surface._replace(uv=uv))
            expected[..., k] = uv_at(as_uv, numbers, eye, rays)[..., 0]
        assert np.abs(image - expected * (1, 0.5, 1)).max() < 0.51
        assert np.abs(dark - expected * 0.2).max() < 0.51


@numba.njit(error_model="numpy")
def each_alone(depth, triangle, position, heading, paint, tan_half_hfov, rgb_out):
    """The work of each thread of the CUDA kernel, in sequence."""
    (n, height, width), up = triangle.shape, np.float32(0.0)
    spacing = pixel_spacing(np.int32(width), tan_half_hfov)
    for i in range(n):
        axes, place = camera_axes(heading[i], up), (position[i, 0], position[i, 1], position[i, 2])
        for row in range(height):
            for column in range(width):
                ray = pixel_ray(np.int32(row), np.int32(column), axes, np.int32(height), np.int32(width), tan_half_hfov)
                color = color_at(
                    triangle[i, row, column], depth[i, row, column], ray, place, axes, spacing, paint, True
                )
                for channel in range(3):
                    rgb_out[i, row, column, channel] = as_byte(color[channel])


def in_blocks(look):
    """The surface with its textures in blocks, and with the images that these stand for."""
    packed = [texture._replace(pixels=compress(texture.pixels)) for texture in look.textures]
    plain = [texture._replace(pixels=decompress(texture.pixels)) for texture in packed]
    return look._replace(textures=tuple(packed)), look._replace(textures=tuple(plain))


@pytest.mark.parametrize("magnify", ["nearest", "linear"])
@pytest.mark.parametrize("minify", ["nearest", "linear"])
def test_blocks_are_read_as_the_image_that_they_stand_for(device, minify, magnify):
    packed, plain = in_blocks(surface(wrap=("mirror", "repeat"), minify=minify, magnify=magnify))
    camera = CameraConfig(40, 56, hfov_deg=75.0)
    found, expected = (
        views(SceneBank.pack([painted(look)], device, COLOR_FIELDS), camera)[0].astype(int) for look in (packed, plain)
    )
    assert np.abs(found - expected).max() <= 1 and found.std() > 10  # decoded texels are rounded to bytes first


@pytest.mark.parametrize("minify", ["linear_mipmap_nearest", "linear_mipmap_linear"])
def test_mip_levels_of_blocks(device, minify):
    """Every level has a colour of its own."""
    scene, camera = painted(surface(minify=minify)), CameraConfig(40, 2 * LANES)
    made, first = compress(scene.mesh.surface.textures[0].pixels), 0
    for level in range(num_levels(made.width, made.height)):
        rows, color = (
            num_block_rows(made.width >> level, max(1, made.height >> level), 1),
            level << 11 | level << 6 | level,
        )
        made.words[first : first + rows], first = color | color << 16, first + rows
    look = scene.mesh.surface._replace(textures=(Texture(made, minify=minify),))
    found, _, triangle = views(SceneBank.pack([painted(look)], device, COLOR_FIELDS), camera)
    good, levels = [], []
    for image, numbers, position, heading in zip(found, triangle, POSITIONS, HEADINGS, strict=True):
        _, detail = expected_colors(scene, camera, numbers, position, heading)
        level = np.clip(detail, 0, num_levels(made.width, made.height) - 1)
        levels.append(np.floor(level + 0.5) if minify == "linear_mipmap_nearest" else level)
        good.append(np.abs(image - (255 / 31 * levels[-1])[..., None]).max(-1) <= CLOSE)
    assert np.mean(good) > 0.99 and np.ptp(levels) > 4


def test_textures_of_both_kinds_share_a_row_of_pixels(device):
    look, camera = surface(), CameraConfig(32, 2 * LANES)
    packed, plain = (each.textures[0]._replace(minify="linear") for each in in_blocks(look))
    both = look._replace(
        materials=(Material(texture=0), Material(texture=1)), textures=(look.textures[0], packed),
        material=np.arange(12, dtype=np.int32) % 2,
    )  # fmt: skip
    found, expected = (
        views(SceneBank.pack([painted(each)], device, COLOR_FIELDS), camera)
        for each in (both, both._replace(textures=(look.textures[0], plain)))
    )
    error, of_blocks = np.abs(found[0].astype(int) - expected[0]), found[2] % 2 == 1
    assert 0.1 < of_blocks.mean() < 0.9 and error.max() <= 1 and (error[~of_blocks] == 0).all()


@pytest.mark.parametrize("blocks", [False, True])
@pytest.mark.parametrize("tinted", [False, True])
@pytest.mark.usefixtures("form")
def test_single_pixels_equal_lanes_of_pixels(tinted, blocks):
    """Textured and uniform triangles in rows of two groups of pixels and one pixel more."""
    color = RANDOM.integers(0, 256, (12, 3, 4), np.uint8) if tinted else None
    look = surface()._replace(
        materials=(Material((0.9, 0.5, 0.3, 1.0), 0), Material((0.2, 0.7, 0.3, 1.0))), color=color
    )
    look = in_blocks(look)[0] if blocks else look
    scene = painted(look._replace(material=np.arange(12, dtype=np.int32) % 2))
    bank, camera = SceneBank.pack([scene], "cpu", COLOR_FIELDS), CameraConfig(5, 2 * LANES + 1)
    found, depth, triangle = views(bank, camera)
    assert set(np.unique(triangle % 2)) == {0, 1}
    paint = rgb.paint_of(bank.appearance)
    eyes, expected = np.float32(POSITIONS) + np.float32([0, camera.camera_height, 0]), np.empty_like(found)
    each_alone(depth, triangle, eyes, HEADINGS, paint, tan_half(camera.hfov_deg), expected)
    assert np.abs(found.astype(int) - expected).max() <= 1  # products and sums are rounded in another order


def test_holes_are_black_and_surfaces_without_colour_white(device, caplog):
    bank = SceneBank.pack([room_scene()], device, COLOR_FIELDS)
    assert "rendered white: room" in caplog.text
    found, _, _ = views(bank, CameraConfig(8, 8))
    assert (found == 255).all()
    bodies = bodies_at([[0, 50, 0]], [0.0], device)
    assert (observe(*make_frame(bank, bodies, CameraConfig(8, 8), ["rgb"]))["rgb"] == 0).all()


@pytest.mark.usefixtures("form")
def test_a_slot_renders_as_its_scene(device):
    color = RANDOM.integers(0, 256, (12, 3, 4), np.uint8)
    other = in_blocks(surface(minify="linear")._replace(color=color))[0]
    scenes = [painted(in_blocks(surface())[0]), painted(other), room_scene()]
    bank = ResidentSceneBank([SceneSize.largest(map(SceneSize.of, scenes))] * 3, device, COLOR_FIELDS)
    camera = CameraConfig(16, 16)
    for slot, scene in ((1, scenes[0]), (2, scenes[1]), (0, scenes[2]), (1, scenes[1]), (2, scenes[0])):
        bank.replace(slot, scene)
        packed = SceneBank.pack([scene], device, COLOR_FIELDS)
        np.testing.assert_array_equal(views(bank, camera, slot)[0], views(packed, camera)[0])


def test_small_patches_show_what_whole_ones_do(device, monkeypatch):
    """Up to the rounding of weights; triangles with vertex colours and those of many texels keep whole patches."""
    color, camera = np.full((12, 3, 4), 255, np.uint8), CameraConfig(40, 2 * LANES + 1)
    color[:3] = RANDOM.integers(0, 256, (3, 3, 4), np.uint8)
    for look, least in ((surface(), 10), (surface()._replace(color=color), 7), (surface(wrap=("clamp", "mirror")), 10)):
        found = []
        for large in (10**9, 1):
            monkeypatch.setattr(small_nodes, "FROM_TRIANGLES", large)
            bank = SceneBank.pack([painted(look)], device, COLOR_FIELDS)
            found.append((*views(bank, camera), len(bank.appearance.small_patches)))
            rows = SceneSize.of(bank.scenes[0]).with_appearance(COLOR_FIELDS).appearance
            assert list(map(len, bank.appearance)) == list(rows)
        (whole, *seen, none), (small, *same, count) = found
        assert all(map(np.array_equal, seen, same)) and none == 0 and least <= count <= 12
        assert np.abs(whole.astype(int) - small).max() <= 1 and (whole == small).mean() > 0.95
    wide = painted(surface()._replace(textures=(Texture(np.tile(smooth(96, 160), (40, 100, 1))),)))
    assert len(SceneBank.pack([wide], device, COLOR_FIELDS).appearance.small_patches) < 12


def test_scenes_share_a_bank(device):
    other = in_blocks(surface()._replace(materials=(Material((0, 1, 1, 1), 0),)))[0]
    scenes = [painted(surface()), room_scene(), painted(other)]
    bank, camera = SceneBank.pack(scenes, device, COLOR_FIELDS), CameraConfig(16, 16)
    for k, scene in enumerate(scenes):
        alone = SceneBank.pack([scene], device, COLOR_FIELDS)
        np.testing.assert_array_equal(views(bank, camera, k)[0], views(alone, camera)[0])


@pytest.mark.usefixtures("opengl")
def test_renderers_give_equal_colours():
    scene, camera = painted(surface()), CameraConfig(64, 64)
    bank = SceneBank.pack([scene], "cpu", COLOR_FIELDS)
    cast, _, first = views(bank, camera)
    drawn, _, second = views(bank, camera, renderer="opengl")
    same = first == second
    assert same.mean() > 0.99
    assert (np.abs(cast[same].astype(int) - drawn[same]).max(-1) <= CLOSE).mean() > 0.999


@pytest.mark.parametrize("broken", [1e30, -1e30, 3e5, 0.0])
def test_extreme_gradients_stay_in_range(device, broken):
    """Texels are read within their texture for any patch: all colours are from the image."""
    grey = surface()._replace(textures=(Texture(np.full((5, 3, 4), 77, np.uint8)),))
    bank = SceneBank.pack([painted(grey)], device, COLOR_FIELDS)
    bank.appearance.patches[:, 3:12].fill_(broken)
    bank.appearance.patches[:, 11].view(torch.int32).fill_(-1)
    assert (views(bank, CameraConfig(16, 16))[0] == 77).all()


@pytest.mark.parametrize("renderer", ["raycast", "opengl"])
def test_four_samples_average_an_image_of_twice_the_size(renderer, device, request):
    """Rounded means of 2 x 2 pixels; other sensors of the camera keep their size."""
    if renderer == "opengl":
        request.getfixturevalue("opengl")
    color = RANDOM.integers(0, 256, (12, 3, 4), np.uint8)
    bank = SceneBank.pack([painted(surface()._replace(color=color))], device, COLOR_FIELDS)
    fine = views(bank, CameraConfig(24, 40), renderer=renderer)[0].astype(int)
    bodies, names = bodies_at(POSITIONS, HEADINGS, bank.device), ["rgb", "depth"]
    settings = {"rgb": RGBConfig(samples=4), "depth": DepthConfig()}
    seen = observe(*make_frame(bank, bodies, CameraConfig(12, 20), names, settings, renderer))
    mean = (fine.reshape(4, 12, 2, 20, 2, 3).sum((2, 4)) + 2) // 4
    np.testing.assert_array_equal(seen["rgb"].transpose(0, 2, 3, 1), mean)
    plain = observe(*make_frame(bank, bodies, CameraConfig(12, 20), names, settings | {"rgb": RGBConfig()}, renderer))
    np.testing.assert_array_equal(seen["depth"], plain["depth"])
    assert (seen["rgb"] != plain["rgb"]).any()


@pytest.mark.parametrize("samples", [1, 4])
def test_images_of_another_size_are_refused(samples):
    """The sensor checks sizes, since kernels check nothing."""
    bank, camera = SceneBank.pack([painted(surface())], appearance=COLOR_FIELDS), CameraConfig(8, 8)
    sensor, out = RGBSensor(camera, RGBConfig(samples=samples)), torch.zeros(2, 3, 8, 8, dtype=torch.uint8)
    sight = Cameras.level(torch.zeros(2, dtype=torch.int32), torch.zeros(2, 3), torch.zeros(2))
    drawn = torch.zeros(2, 12, 12)
    with pytest.raises(
        ArgumentError, match=r"depth and triangles: found \[2, 12, 12\] and .*expected \[2, (8, 8|16, 16)\]"
    ):
        sensor.write(GivenImages(drawn, drawn.int(), sight, bank.appearance), out)


def test_in_an_environment():
    scene = painted(surface())
    env = NavEnv([scene], 2, "cpu", sensors=("rgb", "depth"), height=12, width=16, camera_height=1.0)
    seen = env.reset(seed=0)[0]["rgb"]
    assert seen.shape == (2, 3, 12, 16) and seen.dtype == torch.uint8 and seen.float().std() > 10
    assert env.bank.appearance_fields == set(COLOR_FIELDS) and not len(env.bank.appearance.normal)
    box = env.single_observation_space["rgb"]
    assert box.dtype == "uint8" and box.shape == (3, 12, 16) and box.high.max() == 255
    with pytest.raises(ArgumentError, match="without appearance of blocks, levels, materials, paint, patches, small_"):
        NavEnv(SceneBank.pack([scene], appearance=("normal",)), 2, sensors=("rgb",))
    spec = RGBSensor(CameraConfig(6, 9)).spec
    assert {spec.stored_on(torch.device(kind)) for kind in ("cpu", "cuda")} == {torch.uint8}


@pytest.mark.parametrize("small", [1, 2], ids=["whole", "small"])
def test_cuda_kernel_has_no_float64(compile_ptx, small):
    images, ids = nb.Array(nb.float32, 3, "C"), nb.Array(nb.int32, 3, "C")
    ints, rows, angles = nb.Array(nb.int32, 1, "C"), nb.Array(nb.float32, 2, "C"), nb.Array(nb.float32, 1, "C")
    blocks = nb.Array(nb.int64, 2, "C")
    levels, patches = nb.Array(nb.int32, 2, "C"), nb.Array(nb.int32, small, "C")
    paint = nb.NamedTuple((ints, rows, rows, levels, ints, blocks, patches), rgb.Paint)
    out = nb.Array(nb.uint8, 4, "C")
    ptx = compile_ptx(rgb._rgb_cuda, images, ids, rows, angles, angles, angles, paint, nb.boolean, out)
    assert ".f64" not in ptx and "div.rn" not in ptx
    assert ptx.count(".v4.") >= 4 + 4 + 3
    assert ".f64" not in compile_ptx(rgb.average, nb.uint8[:, :, ::1], nb.uint8[:, :, ::1])
