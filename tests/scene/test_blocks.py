"""Textures in blocks: the format, its quality, mip levels, and which textures are kept so."""

import numpy as np
import pytest
import texture2ddecoder

from batchnav.bench.make_scans import photo
from batchnav.errors import MeshError
from batchnav.scene import blocks
from batchnav.scene.blocks import compress, decompress, pixels_of, with_blocks
from batchnav.scene.surface import check_surface
from batchnav.scene.textures import Palette, num_block_rows, num_levels
from batchnav.types import Blocks, Material, Surface, Texture

ROUNDING = 3
"""Bytes by which decoders differ: some expand colours to bytes before they mix them."""


def decoded(words, width, height):
    """Blocks u64 as an image, by another decoder; their first words are the finest level."""
    wide, high = -(-width // 4) * 4, -(-height // 4) * 4
    image = texture2ddecoder.decode_bc1(words.reshape(-1)[: wide * high // 16].tobytes(), wide, high)
    return np.frombuffer(image, np.uint8).reshape(high, wide, 4)[:height, :width, [2, 1, 0]].astype(int)


@pytest.mark.parametrize("size", [(64, 96), (37, 53), (1, 9), (3, 2)])
def test_the_format_is_bc1(size):
    picture = np.random.default_rng(3).integers(0, 256, (*size, 4), np.uint8)
    made = compress(picture)
    assert made.shape == (*size, 4) and made.words.shape == (num_block_rows(*size[::-1], num_levels(*size[::-1])), 8)
    found = decompress(made)
    assert found.shape == picture.shape and (found[..., 3] == 255).all()
    assert np.abs(found[..., :3] - decoded(made.words, *size[::-1])).max() <= ROUNDING
    first, second = made.words & 0xFFFF, (made.words >> 16) & 0xFFFF
    assert (first >= second).all(), "a block of three colours"


def test_photographs_are_close():
    """Means of 2x2 texels, as filtering reads them."""
    picture = photo(5, 256)
    difference = decoded(compress(picture).words, 256, 256) - picture[..., :3].astype(int)
    error = np.abs(difference.reshape(128, 2, 128, 2, 3).mean((1, 3)))
    assert error.mean() <= blocks.MEAN and (error.max(-1) <= blocks.LARGEST).mean() >= blocks.SHARE


def test_blocks_of_one_colour():
    grey = np.repeat(np.arange(256, dtype=np.uint8), 16).reshape(64, 4, 4, 4).swapaxes(1, 2).reshape(256, 16, 1)
    picture = np.concatenate([np.broadcast_to(grey, (256, 16, 3)), np.full((256, 16, 1), 255, np.uint8)], axis=2)
    assert np.abs(decompress(compress(picture)).astype(int) - picture).max() <= 2


def test_large_close_textures_are_kept_in_blocks():
    large, small = photo(1, 512), photo(1, 128)
    sharp = np.random.default_rng(0).integers(0, 256, (256, 256, 4), np.uint8)
    pictures = [Texture(large), Texture(small), Texture(sharp), Texture(large, ("clamp", "clamp"))]
    look = Surface(np.zeros(1, np.int32), (Material(),), tuple(pictures))
    found = with_blocks(look).textures
    assert [isinstance(texture.pixels, Blocks) for texture in found] == [True, False, False, True]
    assert found[0].pixels is found[3].pixels and found[3].wrap == ("clamp", "clamp") and found[2].pixels is sharp
    assert with_blocks(None) is None and with_blocks(look._replace(textures=found)).textures == found
    assert np.array_equal(pixels_of(found[0]), decompress(compress(large))) and pixels_of(found[2]) is sharp
    assert np.array_equal(compress(large).words, found[0].pixels.words)


def test_levels_of_blocks_begin_rows_of_the_palette():
    picture, palette = photo(2, 64), Palette(first_level=7, first_texel=100, first_block=40)
    made, small = compress(picture), Texture(picture[:4, :4].copy())
    for texture in (Texture(made), Texture(made, minify="linear"), small, Texture(made, magnify="nearest")):
        palette.add(Material(texture=0), (texture,))
    materials, levels, texels, words = palette.arrays()
    assert levels[:4].tolist() == [[40, 64, 64, 0], [72, 32, 32, 0], [80, 16, 16, 0], [82, 8, 8, 0]]
    assert levels[7].tolist() == [40 + len(made.words), 64, 64, 0] and levels[8].tolist() == [100, 4, 4, 0]
    assert len(words) == len(made.words) + 32 and len(texels) == 21 and len(materials) == 4
    np.testing.assert_array_equal(words[: len(made.words)], made.words)


@pytest.mark.parametrize("change", [{"width": 60}, {"height": 0}, {"words": np.zeros((3, 8), np.int64)}])
def test_blocks_of_another_size_are_refused(change):
    made = compress(photo(2, 64))._replace(**change)
    look = Surface(np.zeros(1, np.int32), (Material(),), (Texture(made),))
    with pytest.raises(MeshError, match=r"surface.textures\[0\].pixels: found blocks int64 .* texels, expected int64"):
        check_surface(look, 1, "a")
