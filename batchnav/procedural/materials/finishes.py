"""Finishes: the materials that builders name, with random colours and textures for each.

Colours are sRGB, 0..1. Woods, wallpapers and paints follow real homes: mostly light and of low saturation, sometimes a
strong colour.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from batchnav.procedural.materials.patterns import Color, hsv
from batchnav.procedural.materials.textures import FIRST, LIBRARY, TEXTURE_FAMILIES, texture
from batchnav.procedural.random_draws import Draw

METRES, GRAIN, FIT = "metres", "grain", "fit"
"""Mapping of a texture to a solid: in metres from the object's origin; in metres with U along the longest side; or
stretched once over each side."""


class Finish(NamedTuple):
    """A colour and a texture, which are multiplied."""

    color: Color
    texture: int = -1
    """Row of the texture library; -1 for none."""
    mapping: str = METRES
    lit: bool = True
    """True where shading by the light applies; False for lamps and views from windows."""


class Palette(NamedTuple):
    """Finishes that recur in one house, as matching furniture does."""

    woods: tuple[Finish, ...]
    floors: tuple[Finish, ...]
    walls: tuple[Finish, ...]
    textiles: tuple[Color, ...]


_WOODS: tuple[Color, ...] = (
    (0.80, 0.65, 0.46), (0.84, 0.66, 0.45), (0.88, 0.73, 0.50), (0.78, 0.58, 0.36), (0.66, 0.47, 0.30),
    (0.60, 0.40, 0.26), (0.50, 0.30, 0.20), (0.42, 0.29, 0.21), (0.32, 0.22, 0.17), (0.60, 0.36, 0.24),
    (0.64, 0.58, 0.50), (0.84, 0.79, 0.72), (0.72, 0.62, 0.52), (0.24, 0.19, 0.17),
)  # fmt: skip
"""Oak, beech, pine, teak, walnut, mahogany, wenge, cherry, limed and greyed woods."""


def make_palette(draw: Draw) -> Palette:
    """A random palette: three woods, two floors, three walls, four colours of cloth."""
    woods = tuple(_natural_wood(draw) for _ in range(3))
    floors = tuple(_FLOORS[draw.pick((0, 0, 0, 1, 1, 2, 3))](draw) for _ in range(2))
    return Palette(woods, floors, tuple(_wall(draw) for _ in range(3)), tuple(_textile(draw) for _ in range(4)))


def _of(draw: Draw, family: str, color: Color, mapping: str = METRES) -> Finish:
    """A finish with a random texture of a family."""
    return Finish(color, FIRST[family] + draw.integer(0, TEXTURE_FAMILIES[family].size - 1), mapping)


def _tinted(draw: Draw, color: Color, by: float = 0.06) -> Color:
    """A random colour near another."""
    r, g, b = (min(1.0, max(0.0, channel * (1.0 + draw.uniform(-by, by)))) for channel in color)
    return r, g, b


def _natural_wood(draw: Draw) -> Finish:
    return _of(draw, "grain", _lighter(_tinted(draw, draw.pick(_WOODS))), GRAIN)


def _lighter(color: Color) -> Color:
    """The colour that gives `color` after multiplication with a wood texture, which is slightly dark."""
    r, g, b = (min(1.0, channel * 1.15) for channel in color)
    return r, g, b


def _paint(draw: Draw) -> Color:
    """Colour of a wall: white, off-white, a pastel, sometimes a strong colour."""
    kind = draw.uniform(0.0, 1.0)
    if kind < 0.4:
        return hsv(draw.uniform(0.05, 0.17), draw.uniform(0.0, 0.1), draw.uniform(0.88, 1.0))
    if kind < 0.75:
        return hsv(draw.uniform(0.0, 1.0), draw.uniform(0.03, 0.16), draw.uniform(0.78, 0.97))
    if kind < 0.92:
        return hsv(draw.uniform(0.0, 1.0), draw.uniform(0.12, 0.34), draw.uniform(0.55, 0.9))
    return hsv(draw.uniform(0.0, 1.0), draw.uniform(0.1, 0.45), draw.uniform(0.28, 0.5))


def _textile(draw: Draw) -> Color:
    """Colour of cloth: mostly grey, beige or brown."""
    if draw.chance(0.5):
        return hsv(draw.uniform(0.03, 0.15), draw.uniform(0.0, 0.35), draw.uniform(0.25, 0.95))
    return hsv(draw.uniform(0.0, 1.0), draw.uniform(0.1, 0.6), draw.uniform(0.25, 0.85))


def _wall(draw: Draw) -> Finish:
    """Finish of a wall: paint, wallpaper, rarely brick or boards."""
    kind = draw.uniform(0.0, 1.0)
    if kind < 0.62:
        return _of(draw, "plain", _paint(draw))
    if kind < 0.94:
        return _of(draw, "wallpaper", _paint(draw))
    return _of(draw, "grain", _lighter(_tinted(draw, draw.pick(_WOODS))))


_FLOORS = (
    lambda draw: _of(draw, "planks", _lighter(_tinted(draw, draw.pick(_WOODS[:-1])))),
    lambda draw: _of(draw, "tiles", hsv(draw.uniform(0.03, 0.15), draw.uniform(0.0, 0.35), draw.uniform(0.45, 0.98))),
    lambda draw: _of(draw, "carpet", _textile(draw)),
    lambda draw: _of(draw, "stone", hsv(draw.uniform(0.05, 0.14), draw.uniform(0.0, 0.2), draw.uniform(0.5, 0.98))),
)


def _room_wall(draw: Draw, palette: Palette) -> Finish:
    return draw.pick(palette.walls) if draw.chance(0.5) else _wall(draw)


def _floor(draw: Draw, palette: Palette) -> Finish:
    return palette.floors[0 if draw.chance(0.7) else 1]


def _ceiling(draw: Draw, palette: Palette) -> Finish:
    return _of(draw, "plain", hsv(draw.uniform(0.05, 0.15), draw.uniform(0.0, 0.05), draw.uniform(0.94, 1.0)))


def _trim(draw: Draw, palette: Palette) -> Finish:
    if draw.chance(0.3):
        return draw.pick(palette.woods)
    return Finish(hsv(draw.uniform(0.0, 0.2), draw.uniform(0.0, 0.08), draw.uniform(0.82, 1.0)))


def _door(draw: Draw, palette: Palette) -> Finish:
    if draw.chance(0.6):
        return draw.pick(palette.woods)
    return Finish(hsv(draw.uniform(0.0, 1.0), draw.uniform(0.0, 0.25), draw.uniform(0.6, 0.98)))


def _wood(draw: Draw, palette: Palette) -> Finish:
    """Finish of furniture: a wood of the palette, another wood, or paint."""
    kind = draw.uniform(0.0, 1.0)
    if kind < 0.55:
        return draw.pick(palette.woods)
    return _natural_wood(draw) if kind < 0.8 else _painted(draw)


def _painted(draw: Draw) -> Finish:
    if draw.chance(0.55):
        return _of(draw, "plain", hsv(draw.uniform(0.05, 0.15), draw.uniform(0.0, 0.08), draw.uniform(0.85, 1.0)))
    return _of(draw, "plain", hsv(draw.uniform(0.0, 1.0), draw.uniform(0.0, 0.5), draw.uniform(0.2, 0.9)))


def _front(draw: Draw, palette: Palette) -> Finish:
    """Finish of kitchen units and drawers."""
    return _painted(draw) if draw.chance(0.6) else _natural_wood(draw)


def _worktop(draw: Draw, palette: Palette) -> Finish:
    if draw.chance(0.35):
        return _natural_wood(draw)
    return _of(draw, "stone", hsv(draw.uniform(0.03, 0.15), draw.uniform(0.0, 0.15), draw.uniform(0.2, 0.95)))


def _splash(draw: Draw, palette: Palette) -> Finish:
    return _of(draw, "tiles", hsv(draw.uniform(0.0, 1.0), draw.uniform(0.0, 0.3), draw.uniform(0.6, 1.0)))


def _fabric(draw: Draw, palette: Palette) -> Finish:
    """Finish of sofas, chairs, cushions, coats: plain, in colours of the palette, or patterned."""
    kind = draw.uniform(0.0, 1.0)
    if kind < 0.7:
        return _of(draw, "weave", draw.pick(palette.textiles) if kind < 0.35 else _textile(draw))
    if kind < 0.85:  # leather
        return _of(draw, "plain", hsv(draw.uniform(0.02, 0.1), draw.uniform(0.1, 0.6), draw.uniform(0.15, 0.6)))
    return _of(draw, "cloth", (1.0, 1.0, 1.0))


def _linen(draw: Draw, palette: Palette) -> Finish:
    return _of(draw, "weave", hsv(draw.uniform(0.0, 1.0), draw.uniform(0.0, 0.15), draw.uniform(0.85, 1.0)))


def _blanket(draw: Draw, palette: Palette) -> Finish:
    return _of(draw, "cloth", (1.0, 1.0, 1.0)) if draw.chance(0.5) else _of(draw, "weave", _textile(draw))


def _curtain(draw: Draw, palette: Palette) -> Finish:
    if draw.chance(0.3):
        return _of(draw, "cloth", (1.0, 1.0, 1.0))
    return _of(draw, "weave", draw.pick(palette.textiles) if draw.chance(0.5) else _paint(draw))


def _rug(draw: Draw, palette: Palette) -> Finish:
    if draw.chance(0.65):
        return _of(draw, "rug", (1.0, 1.0, 1.0), FIT)
    return _of(draw, "carpet", _textile(draw))


def _appliance(draw: Draw, palette: Palette) -> Finish:
    kind = draw.uniform(0.0, 1.0)
    if kind < 0.5:
        return Finish(hsv(0.1, draw.uniform(0.0, 0.04), draw.uniform(0.88, 1.0)))
    if kind < 0.85:
        return _of(draw, "brushed", (0.74, 0.75, 0.77))
    return Finish(hsv(draw.uniform(0.0, 1.0), draw.uniform(0.2, 0.6), draw.uniform(0.3, 0.8)))


def _crockery(draw: Draw, palette: Palette) -> Finish:
    if draw.chance(0.4):
        return Finish(hsv(0.1, draw.uniform(0.0, 0.06), draw.uniform(0.85, 1.0)))
    return _of(draw, "plain", hsv(draw.uniform(0.0, 1.0), draw.uniform(0.1, 0.65), draw.uniform(0.3, 0.9)))


def _pot(draw: Draw, palette: Palette) -> Finish:
    if draw.chance(0.5):
        return _of(draw, "plain", _tinted(draw, (0.72, 0.42, 0.28), 0.12))
    return _crockery(draw, palette)


def _toy(draw: Draw, palette: Palette) -> Finish:
    return Finish(hsv(draw.uniform(0.0, 1.0), draw.uniform(0.5, 0.85), draw.uniform(0.5, 0.95)))


def _of_hue(low: float, high: float, saturation: tuple[float, float], value: tuple[float, float], family: str = ""):
    """A maker of finishes with a random colour in these ranges, on a texture of the family, if one is given."""

    def finish(draw: Draw, palette: Palette) -> Finish:
        color = hsv(draw.uniform(low, high), draw.uniform(*saturation), draw.uniform(*value))
        return _of(draw, family, color) if family else Finish(color)

    return finish


FINISHES: dict[str, Callable[[Draw, Palette], Finish]] = {
    "wall": _room_wall, "floor": _floor, "ceiling": _ceiling, "trim": _trim, "door": _door,
    "pane": lambda draw, palette: _of(draw, "outdoors", (1.0, 1.0, 1.0), FIT)._replace(lit=False),
    "wood": _wood, "front": _front, "worktop": _worktop, "tiles": _splash, "fabric": _fabric, "linen": _linen,
    "blanket": _blanket, "curtain": _curtain, "rug": _rug, "appliance": _appliance, "crockery": _crockery, "pot": _pot,
    "toy": _toy, "art": lambda draw, palette: _of(draw, "art", (1.0, 1.0, 1.0), FIT),
    "metal": _of_hue(0.55, 0.65, (0.0, 0.05), (0.68, 0.9), "brushed"),
    "steel": _of_hue(0.0, 1.0, (0.0, 0.1), (0.1, 0.55)),
    "black": _of_hue(0.0, 1.0, (0.0, 0.1), (0.06, 0.2)),
    "screen": _of_hue(0.5, 0.7, (0.0, 0.3), (0.04, 0.14)),
    "plastic": _of_hue(0.0, 0.2, (0.0, 0.06), (0.8, 1.0)),
    "ceramic": _of_hue(0.05, 0.2, (0.0, 0.06), (0.9, 1.0)),
    "enamel": _of_hue(0.05, 0.2, (0.0, 0.05), (0.86, 1.0)),
    "glass": _of_hue(0.45, 0.6, (0.03, 0.15), (0.75, 0.92)),
    "mirror": _of_hue(0.5, 0.6, (0.02, 0.08), (0.7, 0.85), "brushed"),
    "lamp": lambda draw, palette: Finish(hsv(0.13, draw.uniform(0.0, 0.12), 1.0), lit=False),
    "shade": lambda draw, palette: Finish(
        hsv(draw.uniform(0.03, 0.16), draw.uniform(0.05, 0.4), draw.uniform(0.85, 1.0)), lit=False
    ),
    "leaf": _of_hue(0.2, 0.38, (0.35, 0.75), (0.35, 0.75), "leaf"),
    "bark": _of_hue(0.05, 0.1, (0.3, 0.5), (0.25, 0.45), "grain"),
    "wicker": _of_hue(0.06, 0.12, (0.3, 0.55), (0.5, 0.9), "wicker"),
    "carton": _of_hue(0.07, 0.1, (0.3, 0.45), (0.6, 0.75), "plain"),
    "book": _of_hue(0.0, 1.0, (0.0, 0.7), (0.2, 0.95)),
    "bottle": _of_hue(0.0, 0.5, (0.2, 0.8), (0.15, 0.7)),
    "shoe": _of_hue(0.0, 1.0, (0.05, 0.5), (0.1, 0.8), "plain"),
    "fruit": _of_hue(-0.03, 0.28, (0.6, 0.9), (0.6, 0.95)),
}  # fmt: skip
"""Maker of a finish, by the value of `Solids.material`."""
ASSORTED = {"book": 32, "toy": 12, "fruit": 8}
"""Materials whose solids have individual finishes, with the number of finishes per house."""

NUM_KINDS = len(FINISHES) * (len(TEXTURE_FAMILIES) + 1)
"""Number of kinds of finishes: one for each material and each family of textures, or no texture."""
_WORDS, _FAMILIES = (
    {word: i for i, word in enumerate(FINISHES)},
    {family: i for i, family in enumerate(TEXTURE_FAMILIES, 1)},
)


def kind_of(word: str, finish: Finish) -> int:
    """The kind of a finish, or -1 for a material outside of `FINISHES`.

    Finishes of one kind are interchangeable: their textures have the same extent in metres.
    """
    if word not in _WORDS:
        return -1
    family = _FAMILIES[LIBRARY[finish.texture][0]] if finish.texture >= 0 else 0
    return _WORDS[word] * (len(TEXTURE_FAMILIES) + 1) + family


def without_texture(finish: Finish) -> Finish:
    """A finish with the mean colour of its texture in place of the texture."""
    r, g, b = (float(part * channel) for part, channel in zip(_mean(finish.texture), finish.color, strict=True))
    return finish._replace(color=(r, g, b), texture=-1)


@functools.cache
def _mean(row: int) -> np.ndarray:
    """f64 [3]: mean colour of a texture, 0..1."""
    return texture(row).pixels[:, :, :3].mean(axis=(0, 1)) / 255.0
