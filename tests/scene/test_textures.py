"""Mip levels, and materials and textures of many scenes in flat arrays."""

import numpy as np
import pytest

from batchnav.errors import ArgumentError
from batchnav.scene import textures
from batchnav.scene.appearance import COLOR_FIELDS, Appearance, appearance_rows, pack_appearance
from batchnav.scene.textures import Palette, flags_of, halved, num_levels, num_texels
from batchnav.types import Material, Surface, Texture, TriangleMesh

RANDOM = np.random.default_rng(1)


def random_picture(height, width):
    return RANDOM.integers(0, 256, (height, width, 4), np.uint8)


def test_half_of_even_sides_is_the_mean_of_four():
    picture = random_picture(6, 8)
    expected = picture.reshape(3, 2, 4, 2, 4).mean(axis=(1, 3))
    np.testing.assert_array_equal(halved(picture), np.floor(expected + 0.5))


@pytest.mark.parametrize("size", [(5, 7), (1, 9), (3, 1), (37, 53)])
def test_half_of_odd_sides_is_read_linearly_at_the_texels_centres(size):
    picture = random_picture(*size)
    height, width = (max(1, side // 2) for side in size)
    rows, columns = np.arange(size[0]), np.arange(size[1])
    y = (np.arange(height) + 0.5) * size[0] / height - 0.5
    x = (np.arange(width) + 0.5) * size[1] / width - 0.5
    along = np.stack([[np.interp(x, columns, row) for row in picture[..., k]] for k in range(4)], -1)
    both = np.stack([[np.interp(y, rows, column) for column in along[..., k].T] for k in range(4)], -1).swapaxes(0, 1)
    found = halved(picture)
    assert found.shape == (height, width, 4)
    assert np.abs(found - both).max() <= 0.5 + 1e-6


def test_levels_go_down_to_one_texel():
    picture = random_picture(5, 12)
    palette = Palette(first_material=3, first_level=7, first_texel=100)
    assert palette.add(Material(texture=0), (Texture(picture),)) == 3
    materials, levels, texels = palette.arrays()
    assert levels.tolist() == [[100, 12, 5, 0], [160, 6, 2, 0], [172, 3, 1, 0], [175, 1, 1, 0]]
    assert len(texels) == 76 == num_texels(12, 5, num_levels(12, 5))
    np.testing.assert_array_equal(texels[:60].view(np.uint8).reshape(5, 12, 4), picture)
    np.testing.assert_array_equal(texels[60:72].view(np.uint8).reshape(2, 6, 4), halved(picture))
    assert materials[0].view(np.int32)[textures.FIRST_LEVEL] == 7 and materials[0, 7] == 3.0
    assert materials[0, :3].tolist() == [1, 1, 1] and materials[0, 4:6].tolist() == [12, 5]


def test_what_is_equal_is_stored_once():
    picture, palette = random_picture(4, 4), Palette()
    same, flat = (Texture(picture.copy(), magnify=kind) for kind in ("linear", "nearest"))
    unmipped = Texture(picture, minify="linear")
    rows = [palette.add(Material(texture=0), (texture,)) for texture in (Texture(picture), same, flat, unmipped)]
    rows.append(palette.add(Material((0.5, 0.0, 0.0, 1.0)), ()))
    rows.append(palette.add(Material((0.5, 0.0, 0.0, 0.5)), ()))  # alpha is not shown
    materials, levels, texels = palette.arrays()
    assert rows == [0, 0, 1, 2, 3, 3] and len(materials) == 4
    assert len(levels) == 3 + 1 and len(texels) == 21 + 16
    turned = Texture(picture.reshape(2, 8, 4))  # the same bytes are another picture
    assert palette.add(Material(texture=0), (turned,)) == 4 and len(palette.arrays()[2]) == 21 + 16 + 23


def test_flags():
    kinds = {flags_of(Texture(random_picture(1, 1), wrap, magnify, minify))
             for wrap in (("repeat", "clamp"), ("clamp", "repeat"), ("mirror", "mirror"))
             for magnify in ("nearest", "linear")
             for minify in ("nearest_mipmap_nearest", "linear_mipmap_nearest", "nearest_mipmap_linear",
                            "linear_mipmap_linear")}  # fmt: skip
    assert len(kinds) == 24


def test_too_many_texels_are_refused(monkeypatch):
    monkeypatch.setattr(textures, "MOST_TEXELS", 20)
    with pytest.raises(ArgumentError, match="found more than 20 texels"):
        Palette().add(Material(texture=0), (Texture(random_picture(4, 4)),))


def meshes():
    """Of two triangles each: without a surface, with a texture, with colours, with both."""
    corners = np.float32([[-2, 0, -2], [2, 0, -2], [2, 0, 2], [-2, 0, 2]])
    plain = TriangleMesh(corners, np.int32([[0, 2, 1], [0, 3, 2]]))
    uv, color = RANDOM.random((2, 3, 2), np.float32), RANDOM.integers(0, 256, (2, 3, 4), np.uint8)
    textured = Surface(np.int32([0, 1]), (Material(), Material(texture=0)), (Texture(random_picture(4, 4)),), uv)
    tinted = Surface(np.int32([0, 0]), (Material(),), color=color)
    both = textured._replace(color=color, material=np.int32([1, 1]))
    return [plain, *(plain._replace(surface=surface) for surface in (textured, tinted, both))]


def test_a_triangle_takes_no_more_than_it_has():
    packed = pack_appearance(meshes(), COLOR_FIELDS, {"": 0})
    assert (packed.paint < 0).tolist() == [True, True, True, False, False, False, False, False]
    assert len(packed.patches) == 1 + 2 + 2 * 2 and len(packed.normal) == 0
    assert len(packed.materials) == 2 and len(packed.levels) == 3
    white = pack_appearance(meshes()[:1], COLOR_FIELDS, {"": 0})
    assert [len(array) for array in white] == [0, 0, 0, 0, 2, 0, 1, 0, 0, 0, 0, 0]


def test_rows_are_known_before_they_are_made():
    for mesh in meshes():
        made, rows = pack_appearance([mesh], Appearance._fields, {"": 0}), appearance_rows(mesh)
        assert [len(array) for array in made] == list(rows)
