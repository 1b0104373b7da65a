"""Finishes: random colours and textures for each material name that furniture and walls use (`Solids.material`).

Colours are sRGB, 0..1. Woods, wallpapers and paints follow real homes: mostly light and of low saturation, sometimes a
strong colour.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from batchnav.procedural.materials.textures import FIRST, LIBRARY, TEXTURE_FAMILIES, Color, hsv, texture
from batchnav.procedural.random_stream import RandomStream
from batchnav.scene.blocks import pixels_of

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


def make_palette(rng: RandomStream) -> Palette:
    """A random palette: three woods, two floors, three walls, four colours of cloth."""
    woods = tuple(_natural_wood(rng) for _ in range(3))
    floors = tuple(_FLOORS[rng.pick((0, 0, 0, 1, 1, 2, 3))](rng) for _ in range(2))
    return Palette(woods, floors, tuple(_wall(rng) for _ in range(3)), tuple(_textile(rng) for _ in range(4)))


def _of(rng: RandomStream, family: str, color: Color, mapping: str = METRES) -> Finish:
    """A finish with a random texture of a family."""
    return Finish(color, FIRST[family] + rng.integer(0, TEXTURE_FAMILIES[family].size - 1), mapping)


def _tinted(rng: RandomStream, color: Color, by: float = 0.06) -> Color:
    """A random colour near another."""
    r, g, b = (min(1.0, max(0.0, channel * (1.0 + rng.uniform(-by, by)))) for channel in color)
    return r, g, b


def _natural_wood(rng: RandomStream) -> Finish:
    return _of(rng, "grain", _lighter(_tinted(rng, rng.pick(_WOODS))), GRAIN)


def _lighter(color: Color) -> Color:
    """The colour that gives `color` after multiplication with a wood texture, which is slightly dark."""
    r, g, b = (min(1.0, channel * 1.15) for channel in color)
    return r, g, b


def _paint(rng: RandomStream) -> Color:
    """Colour of a wall: white, off-white, a pastel, sometimes a strong colour."""
    kind = rng.uniform(0.0, 1.0)
    if kind < 0.4:
        return hsv(rng.uniform(0.05, 0.17), rng.uniform(0.0, 0.1), rng.uniform(0.88, 1.0))
    if kind < 0.75:
        return hsv(rng.uniform(0.0, 1.0), rng.uniform(0.03, 0.16), rng.uniform(0.78, 0.97))
    if kind < 0.92:
        return hsv(rng.uniform(0.0, 1.0), rng.uniform(0.12, 0.34), rng.uniform(0.55, 0.9))
    return hsv(rng.uniform(0.0, 1.0), rng.uniform(0.1, 0.45), rng.uniform(0.28, 0.5))


def _textile(rng: RandomStream) -> Color:
    """Colour of cloth: mostly grey, beige or brown."""
    if rng.chance(0.5):
        return hsv(rng.uniform(0.03, 0.15), rng.uniform(0.0, 0.35), rng.uniform(0.25, 0.95))
    return hsv(rng.uniform(0.0, 1.0), rng.uniform(0.1, 0.6), rng.uniform(0.25, 0.85))


def _wall(rng: RandomStream) -> Finish:
    """Finish of a wall: paint, wallpaper, rarely brick or boards."""
    kind = rng.uniform(0.0, 1.0)
    if kind < 0.62:
        return _of(rng, "plain", _paint(rng))
    if kind < 0.94:
        return _of(rng, "wallpaper", _paint(rng))
    return _of(rng, "grain", _lighter(_tinted(rng, rng.pick(_WOODS))))


_FLOORS = (
    lambda rng: _of(rng, "planks", _lighter(_tinted(rng, rng.pick(_WOODS[:-1])))),
    lambda rng: _of(rng, "tiles", hsv(rng.uniform(0.03, 0.15), rng.uniform(0.0, 0.35), rng.uniform(0.45, 0.98))),
    lambda rng: _of(rng, "carpet", _textile(rng)),
    lambda rng: _of(rng, "stone", hsv(rng.uniform(0.05, 0.14), rng.uniform(0.0, 0.2), rng.uniform(0.5, 0.98))),
)


def _room_wall(rng: RandomStream, palette: Palette) -> Finish:
    return rng.pick(palette.walls) if rng.chance(0.5) else _wall(rng)


def _floor(rng: RandomStream, palette: Palette) -> Finish:
    return palette.floors[0 if rng.chance(0.7) else 1]


def _ceiling(rng: RandomStream, palette: Palette) -> Finish:
    return _of(rng, "plain", hsv(rng.uniform(0.05, 0.15), rng.uniform(0.0, 0.05), rng.uniform(0.94, 1.0)))


def _trim(rng: RandomStream, palette: Palette) -> Finish:
    if rng.chance(0.3):
        return rng.pick(palette.woods)
    return Finish(hsv(rng.uniform(0.0, 0.2), rng.uniform(0.0, 0.08), rng.uniform(0.82, 1.0)))


def _door(rng: RandomStream, palette: Palette) -> Finish:
    if rng.chance(0.6):
        return rng.pick(palette.woods)
    return Finish(hsv(rng.uniform(0.0, 1.0), rng.uniform(0.0, 0.25), rng.uniform(0.6, 0.98)))


def _wood(rng: RandomStream, palette: Palette) -> Finish:
    """Finish of furniture: a wood of the palette, another wood, or paint."""
    kind = rng.uniform(0.0, 1.0)
    if kind < 0.55:
        return rng.pick(palette.woods)
    return _natural_wood(rng) if kind < 0.8 else _painted(rng)


def _painted(rng: RandomStream) -> Finish:
    if rng.chance(0.55):
        return _of(rng, "plain", hsv(rng.uniform(0.05, 0.15), rng.uniform(0.0, 0.08), rng.uniform(0.85, 1.0)))
    return _of(rng, "plain", hsv(rng.uniform(0.0, 1.0), rng.uniform(0.0, 0.5), rng.uniform(0.2, 0.9)))


def _front(rng: RandomStream, palette: Palette) -> Finish:
    """Finish of kitchen units and drawers."""
    return _painted(rng) if rng.chance(0.6) else _natural_wood(rng)


def _worktop(rng: RandomStream, palette: Palette) -> Finish:
    if rng.chance(0.35):
        return _natural_wood(rng)
    return _of(rng, "stone", hsv(rng.uniform(0.03, 0.15), rng.uniform(0.0, 0.15), rng.uniform(0.2, 0.95)))


def _splash(rng: RandomStream, palette: Palette) -> Finish:
    return _of(rng, "tiles", hsv(rng.uniform(0.0, 1.0), rng.uniform(0.0, 0.3), rng.uniform(0.6, 1.0)))


def _fabric(rng: RandomStream, palette: Palette) -> Finish:
    """Finish of sofas, chairs, cushions, coats: plain, in colours of the palette, or patterned."""
    kind = rng.uniform(0.0, 1.0)
    if kind < 0.7:
        return _of(rng, "weave", rng.pick(palette.textiles) if kind < 0.35 else _textile(rng))
    if kind < 0.85:  # leather
        return _of(rng, "plain", hsv(rng.uniform(0.02, 0.1), rng.uniform(0.1, 0.6), rng.uniform(0.15, 0.6)))
    return _of(rng, "cloth", (1.0, 1.0, 1.0))


def _linen(rng: RandomStream, palette: Palette) -> Finish:
    return _of(rng, "weave", hsv(rng.uniform(0.0, 1.0), rng.uniform(0.0, 0.15), rng.uniform(0.85, 1.0)))


def _blanket(rng: RandomStream, palette: Palette) -> Finish:
    return _of(rng, "cloth", (1.0, 1.0, 1.0)) if rng.chance(0.5) else _of(rng, "weave", _textile(rng))


def _curtain(rng: RandomStream, palette: Palette) -> Finish:
    if rng.chance(0.3):
        return _of(rng, "cloth", (1.0, 1.0, 1.0))
    return _of(rng, "weave", rng.pick(palette.textiles) if rng.chance(0.5) else _paint(rng))


def _rug(rng: RandomStream, palette: Palette) -> Finish:
    if rng.chance(0.65):
        return _of(rng, "rug", (1.0, 1.0, 1.0), FIT)
    return _of(rng, "carpet", _textile(rng))


def _appliance(rng: RandomStream, palette: Palette) -> Finish:
    kind = rng.uniform(0.0, 1.0)
    if kind < 0.5:
        return Finish(hsv(0.1, rng.uniform(0.0, 0.04), rng.uniform(0.88, 1.0)))
    if kind < 0.85:
        return _of(rng, "brushed", (0.74, 0.75, 0.77))
    return Finish(hsv(rng.uniform(0.0, 1.0), rng.uniform(0.2, 0.6), rng.uniform(0.3, 0.8)))


def _crockery(rng: RandomStream, palette: Palette) -> Finish:
    if rng.chance(0.4):
        return Finish(hsv(0.1, rng.uniform(0.0, 0.06), rng.uniform(0.85, 1.0)))
    return _of(rng, "plain", hsv(rng.uniform(0.0, 1.0), rng.uniform(0.1, 0.65), rng.uniform(0.3, 0.9)))


def _pot(rng: RandomStream, palette: Palette) -> Finish:
    if rng.chance(0.5):
        return _of(rng, "plain", _tinted(rng, (0.72, 0.42, 0.28), 0.12))
    return _crockery(rng, palette)


def _toy(rng: RandomStream, palette: Palette) -> Finish:
    return Finish(hsv(rng.uniform(0.0, 1.0), rng.uniform(0.5, 0.85), rng.uniform(0.5, 0.95)))


def _of_hue(low: float, high: float, saturation: tuple[float, float], value: tuple[float, float], family: str = ""):
    """A function that samples finishes: a random colour in these ranges (0..1), and a texture if a family is given."""

    def finish(rng: RandomStream, palette: Palette) -> Finish:
        color = hsv(rng.uniform(low, high), rng.uniform(*saturation), rng.uniform(*value))
        return _of(rng, family, color) if family else Finish(color)

    return finish


FINISHES: dict[str, Callable[[RandomStream, Palette], Finish]] = {
    "wall": _room_wall, "floor": _floor, "ceiling": _ceiling, "trim": _trim, "door": _door,
    "pane": lambda rng, palette: _of(rng, "outdoors", (1.0, 1.0, 1.0), FIT)._replace(lit=False),
    "wood": _wood, "front": _front, "worktop": _worktop, "tiles": _splash, "fabric": _fabric, "linen": _linen,
    "blanket": _blanket, "curtain": _curtain, "rug": _rug, "appliance": _appliance, "crockery": _crockery, "pot": _pot,
    "toy": _toy, "art": lambda rng, palette: _of(rng, "art", (1.0, 1.0, 1.0), FIT),
    "metal": _of_hue(0.55, 0.65, (0.0, 0.05), (0.68, 0.9), "brushed"),
    "steel": _of_hue(0.0, 1.0, (0.0, 0.1), (0.1, 0.55)),
    "black": _of_hue(0.0, 1.0, (0.0, 0.1), (0.06, 0.2)),
    "screen": _of_hue(0.5, 0.7, (0.0, 0.3), (0.04, 0.14)),
    "plastic": _of_hue(0.0, 0.2, (0.0, 0.06), (0.8, 1.0)),
    "ceramic": _of_hue(0.05, 0.2, (0.0, 0.06), (0.9, 1.0)),
    "enamel": _of_hue(0.05, 0.2, (0.0, 0.05), (0.86, 1.0)),
    "glass": _of_hue(0.45, 0.6, (0.03, 0.15), (0.75, 0.92)),
    "mirror": _of_hue(0.5, 0.6, (0.02, 0.08), (0.7, 0.85), "brushed"),
    "lamp": lambda rng, palette: Finish(hsv(0.13, rng.uniform(0.0, 0.12), 1.0), lit=False),
    "shade": lambda rng, palette: Finish(
        hsv(rng.uniform(0.03, 0.16), rng.uniform(0.05, 0.4), rng.uniform(0.85, 1.0)), lit=False
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
"""Function that samples a finish, by material name (the value of `Solids.material`)."""
ASSORTED = {"book": 32, "toy": 12, "fruit": 8}
"""Materials whose solids have individual finishes, with the number of finishes per house."""

NUM_KINDS = len(FINISHES) * (len(TEXTURE_FAMILIES) + 1)
"""Number of kinds of finishes: one for each material and each family of textures, or no texture."""
_NAMES = tuple(FINISHES)
_MATERIALS, _FAMILIES = (
    {name: i for i, name in enumerate(FINISHES)},
    {family: i for i, family in enumerate(TEXTURE_FAMILIES, 1)},
)


def kind_of(material: str, finish: Finish) -> int:
    """Kind of a finish of a material: 0 to NUM_KINDS - 1, or -1 for a material that `FINISHES` lacks.

    Finishes of one kind are interchangeable: their textures have the same extent in metres.
    """
    if material not in _MATERIALS:
        return -1
    family = _FAMILIES[LIBRARY[finish.texture][0]] if finish.texture >= 0 else 0
    return _MATERIALS[material] * (len(TEXTURE_FAMILIES) + 1) + family


def name_of(kind: int) -> str:
    """The material of a kind of finishes; `kind` is not negative."""
    return _NAMES[kind // (len(TEXTURE_FAMILIES) + 1)]


def family_of(kind: int) -> str:
    """The family of textures of a kind of finishes; "" for none. `kind` is not negative."""
    return ("", *TEXTURE_FAMILIES)[kind % (len(TEXTURE_FAMILIES) + 1)]


def without_texture(finish: Finish) -> Finish:
    """A finish with the mean colour of its texture in place of the texture."""
    r, g, b = (float(part * channel) for part, channel in zip(_mean(finish.texture), finish.color, strict=True))
    return finish._replace(color=(r, g, b), texture=-1)


@functools.cache
def _mean(row: int) -> np.ndarray:
    """f64 [3]: mean colour of a texture, 0..1."""
    return pixels_of(texture(row))[:, :, :3].mean(axis=(0, 1)) / 255.0
