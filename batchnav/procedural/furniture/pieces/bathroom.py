"""Bathroom fixtures: toilets, basins, bathtubs, showers, washing machines."""

from __future__ import annotations

from batchnav.procedural.furniture.pieces import clutter
from batchnav.procedural.furniture.pieces.kitchen import tap
from batchnav.procedural.furniture.pieces.piece import Piece
from batchnav.procedural.furniture.pieces.storage import fronts
from batchnav.procedural.random_stream import RandomStream
from batchnav.procedural.solids import Solids, makes


@makes("toilet")
def toilet(s: Solids, rng: RandomStream, w: float, d: float, h: float) -> None:
    """A toilet with its cistern, seat and lid."""
    s.material, back = "ceramic", -d / 2
    s.cushion((-0.2, 0.4, back), (0.2, h, back + 0.18), 0.03)
    s.box((-0.21, h - 0.02, back), (0.21, h + 0.015, back + 0.19))
    s.lathe(0.0, back + 0.09, [(0, h + 0.01), (0.025, h + 0.01), (0.025, h + 0.025), (0, h + 0.025)])
    z = back + 0.18 + 0.24
    s.loft(
        0, z - 0.03, [(0.1, 0.2, 0.09, 0), (0.09, 0.19, 0.08, 0.08), (0.1, 0.2, 0.09, 0.2), (0.17, 0.24, 0.16, 0.38)]
    )
    bowl = [
        (0.1, 0.15, 0.09, 0.24),
        (0.18, 0.25, 0.17, 0.36),
        (0.185, 0.255, 0.18, 0.4),
        (0.13, 0.19, 0.12, 0.4),
        (0.08, 0.11, 0.07, 0.28),
    ]
    s.loft(0, z, bowl)
    s.material = "plastic"
    if rng.chance(0.6):
        s.loft(0, z, [(0.19, 0.255, 0.18, 0.4), (0.19, 0.255, 0.18, 0.425), (0.17, 0.24, 0.16, 0.435)])
    else:
        s.cushion((-0.18, 0.41, back + 0.185), (0.18, 0.82, back + 0.215), 0.014, (0.0, -0.02))
    s.material = "ceramic"
    s.box((-0.16, 0.36, back + 0.12), (0.16, 0.41, back + 0.24))


@makes("sink")
def basin(s: Solids, rng: RandomStream, w: float, d: float, h: float) -> None:
    """A wash-basin on a cabinet or a pedestal, with tap, and a mirror above where h reaches over it."""
    top, back, a, b = 0.84, -d / 2, w / 2, d / 2
    if rng.chance(0.6):
        s.material = "front"
        s.box((-a + 0.02, 0.12, back), (a - 0.02, top - 0.14, b - 0.06))
        fronts(s, rng, w - 0.05, 0.13, top - 0.15, b - 0.06, rng.pick((0, 2)), max(1, round(w / 0.45)))
        for x in (-a + 0.06, a - 0.06):
            for z in (back + 0.05, b - 0.1):
                s.lathe(x, z, [(0, 0), (0.015, 0), (0.02, 0.12), (0, 0.12)])
    else:
        s.material = "ceramic"
        s.lathe(0, 0, [(0, 0), (0.14, 0), (0.11, 0.05), (0.08, 0.4), (0.12, top - 0.13), (0, top - 0.13)])
    s.material = "ceramic"
    outer = [(a - 0.05, b - 0.05, 0.1, top - 0.15), (a, b, 0.12, top - 0.04), (a, b, 0.12, top)]
    s.loft(0, 0, [*outer, (a - 0.06, b - 0.09, 0.12, top - 0.005), (a - 0.12, b - 0.14, 0.1, top - 0.11)])
    tap(s, 0.0, back + 0.05, top - 0.01, 0.14)
    if h < 1.5:
        return
    _mirror(s, w, h, back)


@makes("mirror")
def _mirror(s: Solids, w: float, h: float, back: float) -> None:
    """A mirror with bars at its sides and a lamp above it."""
    s.material = "mirror"
    s.box((-0.45 * w, 1.15, back), (0.45 * w, h, back + 0.02))
    s.material = "metal"
    for x in (-0.45 * w, 0.45 * w - 0.02):
        s.box((x, 1.15, back + 0.01), (x + 0.02, h, back + 0.03))
    s.material = "lamp"
    s.rod((-0.2, h + 0.04, back + 0.05), (0.2, h + 0.04, back + 0.05), 0.025)
    s.box((-0.03, h + 0.02, back), (0.03, h + 0.06, back + 0.05))


@makes("bathtub")
def bathtub(s: Solids, rng: RandomStream, w: float, d: float, h: float) -> None:
    """A bathtub with panelled sides and a tap at one end."""
    s.material = "ceramic"
    a, b = w / 2, d / 2
    outer = [
        (a - 0.01, b - 0.01, 0.03, 0),
        (a - 0.01, b - 0.01, 0.03, h - 0.04),
        (a, b, 0.04, h - 0.04),
        (a, b, 0.04, h),
    ]
    inner = [(a - 0.08, b - 0.07, 0.2, h), (a - 0.11, b - 0.09, 0.2, h - 0.1), (a - 0.2, b - 0.14, 0.15, 0.14)]
    s.loft(0, 0, [*outer, *inner])
    tap(s, -0.3 * w, -b + 0.035, h, 0.12)
    if rng.chance(0.5):
        s.material = "metal"
        s.rod((0.3 * w, h, -b + 0.03), (0.3 * w, h + 1.3, -b + 0.03), 0.011)
        s.lathe(0.3 * w, -b + 0.12, [(0, h + 1.24), (0.07, h + 1.24), (0.06, h + 1.26), (0, h + 1.28)])
        s.rod((0.3 * w, h + 1.29, -b + 0.02), (0.3 * w, h + 1.27, -b + 0.13), 0.01)
    for _ in range(rng.integer(0, 3)):
        one = Solids(s.detail)
        clutter.bottle(one, rng)
        s.place(one, rng.uniform(-0.45, 0.45) * w, b - 0.035, 0, h)


@makes("shower")
def shower(s: Solids, rng: RandomStream, w: float, d: float, h: float) -> None:
    """A closed shower cabinet: tray, panes with posts, shower head."""
    s.material = "ceramic"
    a, b = w / 2, d / 2
    s.loft(
        0, 0, [(a, b, 0.05, 0), (a, b, 0.05, 0.14), (a - 0.06, b - 0.06, 0.05, 0.14), (a - 0.08, b - 0.08, 0.05, 0.1)]
    )
    s.material = "metal"
    for x in (-a, a - 0.03):
        for z in (-b, b - 0.03):
            s.box((x, 0.14, z), (x + 0.03, h, z + 0.03))
    s.box((-a, h - 0.03, b - 0.03), (a, h, b))
    for x in (-a, a - 0.03):
        s.box((x, h - 0.03, -b + 0.03), (x + 0.03, h, b - 0.03))
    s.material = "glass"
    for x in (-a + 0.01, a - 0.02):
        s.box((x, 0.14, -b + 0.03), (x + 0.01, h - 0.03, b - 0.03))
    s.box((-a + 0.03, 0.14, b - 0.02), (0.02, h - 0.03, b - 0.012))
    s.box((-0.02, 0.14, b - 0.01), (a - 0.03, h - 0.03, b - 0.002))
    s.material = "metal"
    s.rod((0.06, 0.9, b + 0.02), (0.06, 1.2, b + 0.02), 0.009)


@makes("washing_machine")
def washing_machine(s: Solids, rng: RandomStream, w: float, d: float, h: float) -> None:
    """A washing machine with its round door and knobs."""
    s.material, face = "enamel", d / 2 - 0.04
    s.cushion((-w / 2, 0.01, -d / 2), (w / 2, h, face), 0.015)
    y, r = 0.45 * h, 0.17
    s.material = "metal"
    s.rod((0, y, face - 0.01), (0, y, face + 0.02), r)
    s.material = "black"
    s.rod((0, y, face + 0.015), (0, y, face + 0.035), 0.75 * r, 0.6 * r)
    s.rod((0.18, 0.89 * h, face - 0.01), (0.18, 0.89 * h, face + 0.03), 0.03)
    s.box((-0.27, 0.85 * h, face - 0.01), (-0.1, 0.94 * h, face + 0.01))
    if rng.chance(0.6):
        clutter.scatter(s, rng, w - 0.1, d - 0.2, h, 2, (clutter.bottle, clutter.carton))


TOILET = Piece(toilet, (0.44, 0.44), (0.68, 0.7), (0.74, 0.82), front=0.5)
BASIN = Piece(basin, (0.5, 0.95), (0.42, 0.5), (1.75, 1.95), front=0.55)
SMALL_BASIN = Piece(basin, (0.42, 0.5), (0.36, 0.42), (1.1, 1.1), front=0.5)
BATHTUB = Piece(bathtub, (1.5, 1.75), (0.7, 0.8), (0.52, 0.62), front=0.45)
SHOWER = Piece(shower, (0.8, 1.0), (0.8, 0.95), (1.95, 2.05), front=0.5)
WASHING_MACHINE = Piece(washing_machine, (0.6, 0.6), (0.55, 0.64), (0.84, 0.88), front=0.6)
