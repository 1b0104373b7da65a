"""The texture library that all procedural scenes share, so that each texture is in memory once.

332 textures of 128 x 128 texels take 21.8 MB, or 29.0 MB with mip levels, for any number of houses; a house uses about
65 textures.
"""

from __future__ import annotations

import colorsys
from collections.abc import Callable, Sequence
from functools import cache
from typing import NamedTuple

import numpy as np

from batchnav.procedural.random_stream import RandomStream
from batchnav.scene.blocks import pixels_of
from batchnav.types import Surface, Texture

# Small repeating images from random numbers: wood, tiles, plaster, cloth, stone.
#
# A pattern is f64 [SIDE, SIDE, 3] in 0..1 (sRGB bytes / 255), rows from the top; opposite edges match. Most are
# light and nearly grey, so that one pattern serves materials of many colours (`finishes.py`). Noise is value noise on a
# lattice (after Perlin, "An Image Synthesizer", SIGGRAPH 1985). Only additions and products are used: they give equal
# results on every machine.

SIDE = 128
"""Texels per side."""
_LINE = (np.arange(SIDE) + 0.5) / SIDE
U, V = np.meshgrid(_LINE, _LINE)
"""f64 [SIDE, SIDE]: to the right and downwards, 0..1."""
Color = tuple[float, float, float]
"""Red, green and blue, 0..1."""


def noise(rng: RandomStream, rows: int, columns: int) -> np.ndarray:
    """f64 [SIDE, SIDE] in 0..1: random values on a periodic lattice, smoothly interpolated."""
    lattice = rng.array(0.0, 1.0, rows, columns)

    def between(count: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        at = _LINE * count
        low = at.astype(np.int64)
        part = at - low
        return low % count, (low + 1) % count, part * part * (3.0 - 2.0 * part)

    (top, bottom, down), (left, right, across) = between(rows), between(columns)
    across = across[None, :]
    upper = lattice[top][:, left] * (1.0 - across) + lattice[top][:, right] * across
    lower = lattice[bottom][:, left] * (1.0 - across) + lattice[bottom][:, right] * across
    return upper * (1.0 - down[:, None]) + lower * down[:, None]


def fractal(rng: RandomStream, rows: int, columns: int, octaves: int = 4) -> np.ndarray:
    """f64 [SIDE, SIDE] in 0..1: weighted mean of noise; each octave doubles the lattice and halves the weight."""
    total, weights = np.zeros((SIDE, SIDE)), 0.0
    for i in range(octaves):
        total += noise(rng, min(rows << i, SIDE), min(columns << i, SIDE)) * 0.5**i
        weights += 0.5**i
    return total / weights


def smooth(x: np.ndarray, low: float, high: float) -> np.ndarray:
    """Smoothstep: 0 below `low`, 1 above `high`."""
    t = np.clip((x - low) / (high - low), 0.0, 1.0)
    return t * t * (3.0 - 2.0 * t)


def wave(x: np.ndarray) -> np.ndarray:
    """Smooth periodic function: 0 at integers, 1 half-way between."""
    return smooth(1.0 - np.abs(2.0 * (x - np.floor(x)) - 1.0), 0.0, 1.0)


def hsv(hue: float, saturation: float, value: float) -> Color:
    """Red, green and blue from hue (any number, modulo 1), saturation and value, 0..1."""
    return colorsys.hsv_to_rgb(hue % 1.0, saturation, value)


def grey(tone: np.ndarray) -> np.ndarray:
    """A grey pattern from one channel f64 [SIDE, SIDE]."""
    return np.repeat(tone[:, :, None], 3, axis=2)


def mix(share: np.ndarray, below: Color | np.ndarray, above: Color | np.ndarray) -> np.ndarray:
    """`below` where the share is 0, `above` where it is 1."""
    return np.asarray(below) * (1.0 - share[:, :, None]) + np.asarray(above) * share[:, :, None]


def plain(rng: RandomStream) -> np.ndarray:
    """Plaster, paint, enamel: nearly uniform."""
    return grey(1.0 - rng.uniform(0.02, 0.07) * fractal(rng, 8, 8, 5))


def grain(rng: RandomStream) -> np.ndarray:
    """Wood, its grain along U."""
    rows = rng.pick((12, 16, 24, 32))
    streaks, fine = fractal(rng, rows, rng.integer(1, 3), 3), noise(rng, SIDE, 6)
    rings = wave(V * rng.integer(3, 7) + rng.uniform(0.3, 0.9) * fractal(rng, 3, 2, 3))
    tone = 0.5 * streaks + 0.3 * rings + 0.2 * fine
    return grey(1.0 - rng.uniform(0.15, 0.4) * tone)


def planks(rng: RandomStream) -> np.ndarray:
    """A floor of boards along U, or parquet."""
    wood = grain(rng)[:, :, 0]
    if rng.chance(0.25):
        return grey(_parquet(rng, wood))
    count, each = rng.pick((4, 6, 8, 8, 10)), rng.pick((1, 1, 2))
    row = np.floor(V * count).astype(np.int64)
    along = U * each + rng.array(0.0, each, count)[row]
    board = np.floor(along).astype(np.int64) % each
    tone = rng.array(rng.uniform(0.72, 0.9), 1.0, count, each)[row, board]
    shift = (rng.array(0.0, SIDE, count, each)[row, board]).astype(np.int64)
    places = np.arange(SIDE)
    wood = wood[(places[:, None] + shift) % SIDE, (places[None, :] + 3 * shift) % SIDE]
    gap = ((V * count) % 1.0 < 1.5 * count / SIDE) | (along % 1.0 < 1.5 * each / SIDE)
    return grey(np.where(gap, rng.uniform(0.45, 0.7), 1.0) * tone * wood)


def _parquet(rng: RandomStream, wood: np.ndarray) -> np.ndarray:
    """Squares of short boards, alternately rotated."""
    squares, strips = rng.pick((2, 4)), rng.pick((3, 4))
    turned = (np.floor(U * squares) + np.floor(V * squares)) % 2 == 1
    across = np.where(turned, U, V) * squares * strips
    number = np.floor(across).astype(np.int64) + squares * strips * turned
    tone = rng.array(0.78, 1.0, 2 * squares * strips)[number]
    gap = across % 1.0 < 1.2 * squares * strips / SIDE
    return np.where(gap, 0.7, 1.0) * tone * np.where(turned, wood.T, wood)


def tiles(rng: RandomStream) -> np.ndarray:
    """Tiles with joints: even, speckled or veined, sometimes of two tones, sometimes laid as bricks."""
    rows, columns = rng.pick(((2, 2), (3, 3), (4, 4), (4, 4), (8, 8), (8, 4), (16, 16)))
    row = np.floor(V * rows).astype(np.int64)
    along = U * columns + (0.5 * (row % 2) if rows != columns else 0.0)
    column = np.floor(along).astype(np.int64) % columns
    tone = rng.array(rng.uniform(0.82, 0.98), 1.0, rows, columns)[row, column]
    if rows == columns and rows % 2 == 0 and rng.chance(0.3):
        tone = tone * np.where((row + column) % 2 == 1, rng.uniform(0.4, 0.85), 1.0)
    body = 1.0 - rng.uniform(0.0, 0.2) * fractal(rng, *rng.pick(((4, 4), (16, 16))), 4)
    width = rng.uniform(0.9, 2.2) / SIDE
    joint = ((V * rows) % 1.0 < width * rows) | (along % 1.0 < width * columns)
    return grey(np.where(joint, rng.uniform(0.45, 0.95), tone * body))


def wallpaper(rng: RandomStream) -> np.ndarray:
    """Stripes, dots, diamonds, leaves or mottles of little contrast, sometimes of another hue."""
    kind, n = rng.integer(0, 5), rng.pick((2, 3, 4, 6))
    if kind == 0:
        share = smooth(wave(U * n), rng.uniform(0.2, 0.5), rng.uniform(0.55, 0.8))
    elif kind == 1:
        u, v = U * n + 0.5 * np.floor(V * n), V * n
        away = (u % 1.0 - 0.5) ** 2 + (v % 1.0 - 0.5) ** 2
        share = 1.0 - smooth(away, *rng.pick(((0.02, 0.04), (0.05, 0.08))))
    elif kind == 2:
        share = smooth(wave((U + V) * n) * wave((U - V) * n), 0.1, 0.3)
    elif kind == 3:
        share = smooth(_mirrored(fractal(rng, 6, 6, 3)), 0.47, 0.55)
    elif kind == 4:
        share = 0.6 * smooth(fractal(rng, 8, 8, 4), 0.2, 0.8)
    else:
        share = smooth(wave(U * 2 * n), 0.9, 0.97) + (1 - smooth(wave(V * n), 0.03, 0.1)) * 0.5
    other = hsv(rng.uniform(0.0, 1.0), rng.uniform(0.0, 0.25), rng.uniform(0.6, 0.95))
    paper = 1.0 - 0.03 * noise(rng, 64, 64)
    return mix(np.clip(share, 0.0, 1.0) * rng.uniform(0.3, 0.8), (1.0, 1.0, 1.0), other) * paper[:, :, None]


def _mirrored(picture: np.ndarray) -> np.ndarray:
    """An image with mirror symmetry in both directions."""
    half = (picture + picture[:, ::-1]) / 2
    return (half + np.roll(half, SIDE // 2, axis=0)) / 2


def weave(rng: RandomStream) -> np.ndarray:
    """Plain cloth."""
    n = rng.pick((16, 32, 32))
    threads = np.where((np.floor(U * n) + np.floor(V * n)) % 2 == 0, wave(V * n), wave(U * n))
    tone = 1.0 - rng.uniform(0.08, 0.25) * (1.0 - threads) - rng.uniform(0.02, 0.15) * noise(rng, SIDE, SIDE)
    return grey(np.clip(tone - 0.08 * fractal(rng, 4, 4, 3), 0.0, 1.0))


def cloth(rng: RandomStream) -> np.ndarray:
    """Cloth with stripes, checks, dots, zigzags or flowers, of two or three colours."""
    kind, n = rng.integer(0, 4), rng.pick((2, 4, 4, 8))
    if kind == 0:
        share, third = smooth(wave(V * n), 0.35, 0.5), smooth(wave(V * n * 2), 0.8, 0.9)
    elif kind == 1:
        bars = smooth(wave(U * n), 0.45, 0.55) + smooth(wave(V * n), 0.45, 0.55)
        share, third = bars / 2, smooth(wave(U * n), 0.93, 0.97)
    elif kind == 2:
        u, v = U * n + 0.5 * np.floor(V * n), V * n
        share = 1.0 - smooth((u % 1.0 - 0.5) ** 2 + (v % 1.0 - 0.5) ** 2, 0.04, 0.07)
        third = np.zeros_like(share)
    elif kind == 3:
        bands = V * n + 0.25 * wave(U * n)
        share, third = smooth(wave(bands), 0.4, 0.5), smooth(wave(bands + 0.25), 0.85, 0.9)
    else:
        share = smooth(fractal(rng, 8, 8, 2), 0.52, 0.58)
        third = smooth(fractal(rng, 8, 8, 2), 0.6, 0.66)
    hue = rng.uniform(0.0, 1.0)
    ground = hsv(hue, rng.uniform(0.0, 0.35), rng.uniform(0.4, 0.98))
    second = hsv(hue + rng.uniform(-0.1, 0.1), rng.uniform(0.1, 0.5), rng.uniform(0.3, 0.95))
    accent = hsv(rng.uniform(0.0, 1.0), rng.uniform(0.1, 0.5), rng.uniform(0.3, 0.9))
    return mix(third, mix(share, ground, second), accent) * weave(rng)


def carpet(rng: RandomStream) -> np.ndarray:
    """The pile of a carpet."""
    pile = 0.6 * noise(rng, SIDE, SIDE) + 0.4 * fractal(rng, 8, 8, 4)
    return grey(1.0 - rng.uniform(0.15, 0.35) * pile)


def rug(rng: RandomStream) -> np.ndarray:
    """A whole rug with borders, a field and a centre, symmetric. It does not repeat."""
    edge = np.minimum(np.minimum(U, 1.0 - U), np.minimum(V, 1.0 - V))
    hue, dark = rng.uniform(0.0, 1.0), rng.chance(0.5)
    colors = [
        np.array(hsv(hue + rng.uniform(-0.2, 0.2), rng.uniform(0.1, 0.5), rng.uniform(0.25, 0.6) + 0.3 * light))
        for light in (dark, not dark, dark, not dark)
    ]
    away = np.abs(U - 0.5) + np.abs(V - 0.5) if rng.chance(0.5) else 2.2 * ((U - 0.5) ** 2 + (V - 0.5) ** 2)
    field = mix(smooth(wave(away * rng.integer(2, 7)), 0.4, 0.5), colors[0], colors[1])
    if rng.chance(0.5):
        n = rng.integer(3, 8)
        field = mix(smooth(wave(U * n) * wave(V * n), 0.3, 0.4), field, colors[2])
    width = rng.uniform(0.05, 0.12)
    bands = mix(smooth(wave(edge / width), 0.4, 0.6), colors[2], colors[3])
    whole = np.where((edge < 2 * width)[:, :, None], bands, field)
    return whole * (1.0 - 0.25 * noise(rng, SIDE, SIDE))[:, :, None]


def stone(rng: RandomStream) -> np.ndarray:
    """Marble with veins, or granite with grains."""
    if rng.chance(0.5):
        turbulence = fractal(rng, 3, 3, 5)
        veins = 1.0 - np.abs(2.0 * turbulence - 1.0)
        tone = 1.0 - rng.uniform(0.1, 0.3) * smooth(veins, 0.8, 1.0) - 0.1 * turbulence
    else:
        tone = 1.0 - rng.uniform(0.1, 0.35) * smooth(fractal(rng, 48, 48, 2), 0.3, 0.8)
    return grey(tone)


def brushed(rng: RandomStream) -> np.ndarray:
    """Metal brushed along U."""
    return grey(1.0 - 0.18 * noise(rng, SIDE, 2) - 0.1 * fractal(rng, 4, 4, 2))


def leaf(rng: RandomStream) -> np.ndarray:
    """Leaves: mottled, with ribs."""
    ribs = smooth(wave(U * rng.integer(4, 10) + V), 0.85, 1.0)
    return grey(1.0 - 0.35 * fractal(rng, 6, 6, 3) + 0.1 * ribs - 0.1)


def wicker(rng: RandomStream) -> np.ndarray:
    """Basket work."""
    n = rng.pick((8, 12))
    odd = np.floor(U * n) % 2
    strands = wave(V * n + 0.5 * odd) * (0.5 + 0.5 * wave(U * n))
    return grey(0.45 + 0.5 * strands + 0.05 * noise(rng, SIDE, SIDE))


def art(rng: RandomStream) -> np.ndarray:
    """A whole picture in its mount: a landscape, blots, or blocks of colour. It does not repeat."""
    hue, kind = rng.uniform(0.0, 1.0), rng.integer(0, 2)

    def color() -> Color:
        return hsv(hue + rng.uniform(-0.3, 0.3), rng.uniform(0.1, 0.8), rng.uniform(0.25, 0.95))

    picture = mix(V, color(), color())
    if kind == 0:
        for level in sorted(rng.array(0.3, 0.9, rng.integer(2, 4)).tolist()):
            hills = level + 0.35 * (fractal(rng, 1, rng.integer(2, 5), 5) - 0.5)
            picture = mix(smooth(V, 0.0, 1.0) * (hills < V) * 0.3 + 0.7 * (hills < V), picture, color())
    elif kind == 1:
        for _ in range(rng.integer(2, 5)):
            n = rng.integer(2, 6)
            picture = mix(smooth(fractal(rng, n, n, 3), 0.52, 0.6), picture, color())
    else:
        for _ in range(rng.integer(3, 9)):
            x, y, w, h = rng.uniform(0, 1), rng.uniform(0, 1), rng.uniform(0.05, 0.4), rng.uniform(0.05, 0.4)
            picture = mix(((np.abs(U - x) < w) & (np.abs(V - y) < h)).astype(float), picture, color())
    mount = rng.pick((0.0, 0.0, 0.08, 0.14))
    edge = np.minimum(np.minimum(U, 1.0 - U), np.minimum(V, 1.0 - V))
    return mix((edge < mount).astype(float), picture, (0.93, 0.92, 0.89))


def outdoors(rng: RandomStream) -> np.ndarray:
    """The view from a window: sky, far trees or houses, ground. It does not repeat."""
    sky = mix(smooth(V, 0.0, 0.7), hsv(0.58, rng.uniform(0.1, 0.45), 0.98), (0.97, 0.97, 0.96))
    sky = mix(0.6 * smooth(fractal(rng, 3, 2, 4), 0.45, 0.7), sky, (1.0, 1.0, 1.0))
    horizon = rng.uniform(0.5, 0.75)
    green = hsv(rng.uniform(0.2, 0.36), rng.uniform(0.2, 0.5), rng.uniform(0.35, 0.7))
    if rng.chance(0.6):
        top = horizon - 0.3 * fractal(rng, 1, 6, 4)
        far = np.asarray(green) * (0.6 + 0.6 * fractal(rng, 16, 16, 3))[:, :, None]
    else:
        top = horizon - rng.array(0.0, 0.4, 8)[(U * 8).astype(np.int64)]
        wall = hsv(rng.uniform(0.0, 0.12), rng.uniform(0.05, 0.4), rng.uniform(0.5, 0.85))
        holes = (wave(U * 24) > 0.5) & (wave(V * 14) > 0.5)
        far = mix(0.5 * holes, wall, (0.3, 0.35, 0.4))
    ground = np.asarray(green) * (0.8 + 0.3 * fractal(rng, 8, 8, 3))[:, :, None]
    far = mix((horizon < V).astype(float), far, ground)
    return np.clip(mix((top < V).astype(float), sky, far), 0.0, 1.0)


# The texture library

_TEXTURES = 0x7E87
"""First part of the seeds of textures: their random numbers are independent of all others."""


class TextureFamily(NamedTuple):
    """Textures of one kind."""

    pattern: Callable[[RandomStream], np.ndarray]
    """Function that samples a pattern."""
    size: int
    """Number of textures."""
    metres: tuple[float, float]
    """Extent of one texture along U and V, metres; unused for textures that cover a whole side."""


TEXTURE_FAMILIES = {
    "plain": TextureFamily(plain, 12, (1.0, 1.0)),
    "grain": TextureFamily(grain, 28, (1.2, 0.4)),
    "planks": TextureFamily(planks, 40, (1.5, 1.0)),
    "tiles": TextureFamily(tiles, 40, (1.2, 1.2)),
    "wallpaper": TextureFamily(wallpaper, 40, (0.6, 0.6)),
    "weave": TextureFamily(weave, 16, (0.25, 0.25)),
    "cloth": TextureFamily(cloth, 40, (0.5, 0.5)),
    "carpet": TextureFamily(carpet, 12, (0.6, 0.6)),
    "rug": TextureFamily(rug, 24, (1.0, 1.0)),
    "stone": TextureFamily(stone, 16, (0.8, 0.8)),
    "brushed": TextureFamily(brushed, 4, (0.4, 0.4)),
    "leaf": TextureFamily(leaf, 8, (0.1, 0.1)),
    "wicker": TextureFamily(wicker, 4, (0.25, 0.25)),
    "art": TextureFamily(art, 32, (1.0, 1.0)),
    "outdoors": TextureFamily(outdoors, 16, (1.0, 1.0)),
}
LIBRARY = tuple((family, i) for family, row in TEXTURE_FAMILIES.items() for i in range(row.size))
"""Family and number of each texture."""
FIRST = {family: LIBRARY.index((family, 0)) for family in TEXTURE_FAMILIES}
"""Row of the library where each family begins."""
METRES = np.array([TEXTURE_FAMILIES[family].metres for family, _ in LIBRARY])
"""f64 [L, 2]: extent of each texture, metres."""


@cache
def texture(row: int) -> Texture:
    """A texture of the library: the same object on every call, with equal bytes on every machine."""
    family, number = LIBRARY[row]
    picture = TEXTURE_FAMILIES[family].pattern(RandomStream((_TEXTURES, FIRST[family], number)))
    pixels = np.full((SIDE, SIDE, 4), 255, np.uint8)
    pixels[:, :, :3] = np.round(np.clip(picture, 0.0, 1.0) * 255.0)
    _ROWS[id(pixels)] = row
    return Texture(pixels)


_ROWS: dict[int, int] = {}
"""Row of the library by `id` of the pixels; `texture` keeps the pixels alive."""


def replace_textures(surface: Surface, further: Sequence[Texture] = ()) -> Surface:
    """The surface with every texture replaced by one texel that encodes its row; this keeps files small.

    `further`: textures that scenes share beside those of the library.
    """
    others = {id(found.pixels): row for row, found in enumerate(further)}
    keys = (id(found.pixels) for found in surface.textures)
    rows = ((others[key], 1) if key in others else (_ROWS[key], 0) for key in keys)
    texels = (np.array([[[row & 255, row >> 8, is_other, 255]]], np.uint8) for row, is_other in rows)
    return surface._replace(textures=tuple(map(Texture, texels)))


def restore_textures(surface: Surface, further: Sequence[Texture] = ()) -> Surface:
    """Inverse of `replace_textures`: textures of the library, or of `further`, which all scenes share."""
    texels = (pixels_of(found)[0, 0].tolist() for found in surface.textures)
    rows = ((low | high << 8, is_other) for low, high, is_other, _ in texels)
    return surface._replace(textures=tuple(further[row] if is_other else texture(row) for row, is_other in rows))
