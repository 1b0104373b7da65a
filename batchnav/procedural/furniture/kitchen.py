"""Kitchens (counters with sink and hob, refrigerators, islands) and bathrooms."""

from __future__ import annotations

from batchnav.procedural.furniture import decor
from batchnav.procedural.furniture.living import STOOL, fronts
from batchnav.procedural.furniture.placement import Piece
from batchnav.procedural.random_stream import RandomStream
from batchnav.procedural.solids import TURN, Solids, makes

_TOP = 0.9
"""Height of a worktop."""
_UNIT = 0.6
"""Width of a kitchen unit."""


@makes("counter")
def counter(s: Solids, rng: RandomStream, w: float, d: float, h: float) -> None:
    """A row of units under a worktop with sink and hob; with wall cupboards and a hood where h reaches over it."""
    back, face = -d / 2, d / 2 - 0.045
    units = max(2, round(w / _UNIT))
    step = w / units
    sink = rng.integer(0, units - 1)
    hob = rng.pick([i for i in range(units) if i != sink])
    s.material = "front"
    s.box((-w / 2, 0, back), (w / 2, 0.1, face - 0.05))
    s.box((-w / 2, 0.1, back), (w / 2, _TOP - 0.25, face))
    for i in range(units):
        x0, x = -w / 2 + i * step, -w / 2 + (i + 0.5) * step
        one = Solids(s.detail)
        one.material = "front"
        if i == hob:
            _oven(one, step, face)
            _hob(one, rng, d)
        elif i == sink:
            fronts(one, rng, step, 0.11, _TOP - 0.05, face, 0, 1)
            _sink(one, step, d)
        else:
            fronts(one, rng, step, 0.11, _TOP - 0.05, face, rng.pick((0, 0, 3)), 1)
        if i != sink:
            s.material = "front"
            s.box((x0, _TOP - 0.25, back), (x0 + step, _TOP - 0.04, face))
            s.material = "worktop"
            s.box((x0, _TOP - 0.04, back), (x0 + step, _TOP, d / 2))
        if i not in (sink, hob):
            decor.scatter(one, rng, step - 0.1, d - 0.25, _TOP, rng.integer(0, 3), _KITCHEN_THINGS)
        s.place(one, x, 0.0)
    s.material = "tiles"
    if h > 1.6:
        _wall_units(s, rng, units, step, hob, back, h)
    else:
        s.box((-w / 2, _TOP, back), (w / 2, _TOP + 0.05, back + 0.015))


_KITCHEN_THINGS = (decor.bowl, decor.cup, decor.bottle, decor.bottle, decor.vase)


def _sink(s: Solids, w: float, d: float) -> None:
    """Basin, tap and the worktop around it, for one unit."""
    s.material = "worktop"
    a, b, back = 0.2, 0.17, -d / 2
    s.box((-w / 2, _TOP - 0.04, back), (-a, _TOP, d / 2))
    s.box((a, _TOP - 0.04, back), (w / 2, _TOP, d / 2))
    s.box((-a, _TOP - 0.04, back), (a, _TOP, -b))
    s.box((-a, _TOP - 0.04, b), (a, _TOP, d / 2))
    s.material = "front"
    s.box((-w / 2, _TOP - 0.25, d / 2 - 0.06), (w / 2, _TOP - 0.04, d / 2 - 0.045))
    rim = [(a - 0.01, b - 0.01, 0.05, _TOP - 0.2), (a + 0.005, b + 0.005, 0.05, _TOP - 0.02)]
    edge = [(a + 0.02, b + 0.02, 0.06, _TOP + 0.001), (a + 0.02, b + 0.02, 0.06, _TOP + 0.008)]
    inside = [(a - 0.01, b - 0.01, 0.05, _TOP + 0.008), (a - 0.03, b - 0.03, 0.05, _TOP - 0.18)]
    with s.object("sink"):
        s.material = "metal"
        s.loft(0, 0, [*rim, *edge, *inside])
        tap(s, 0.0, -b - 0.05, _TOP, 0.25)


def tap(s: Solids, x: float, z: float, y: float, h: float) -> None:
    """A tap standing at (x, y, z), its spout towards +Z."""
    s.material = "metal"
    s.lathe(x, z, [(0, y), (0.025, y), (0.02, y + 0.03), (0.012, y + 0.04), (0.012, y + h), (0, y + h)])
    s.rod((x, y + h, z), (x, y + h - 0.02, z + 0.13), 0.011)
    s.rod((x, y + h - 0.02, z + 0.125), (x, y + h - 0.06, z + 0.128), 0.01)
    s.rod((x, y + 0.05, z), (x + 0.06, y + 0.07, z), 0.008)


@makes("stove")
def _hob(s: Solids, rng: RandomStream, d: float) -> None:
    """Four rings, some with a pot."""
    s.material = "black"
    s.loft(0, 0, [(0.28, 0.25, 0.02, _TOP), (0.28, 0.25, 0.02, _TOP + 0.01)])
    for x in (-0.13, 0.13):
        for z in (-0.12, 0.12):
            r = rng.uniform(0.07, 0.095)
            s.material, y = "steel", _TOP + 0.01
            s.lathe(x, z, [(0, y), (r, y), (r, y + 0.012), (0.6 * r, y + 0.012), (0, y + 0.006)])
            if rng.chance(0.25):
                s.material = "metal"
                y, k = y + 0.012, rng.uniform(0.09, 0.16)
                lid = [(1.05 * r, y + k), (0.5 * r, y + k + 0.02), (0.02, y + k + 0.025), (0.02, y + k + 0.05)]
                s.lathe(x, z, [(0, y), (0.97 * r, y), (r, y + 0.02), (r, y + k), *lid, (0, y + k + 0.05)])
                s.rod((x - r - 0.04, y + 0.7 * k, z), (x + r + 0.04, y + 0.7 * k, z), 0.009)


@makes("oven")
def _oven(s: Solids, w: float, face: float) -> None:
    """An oven's door, window frame, handle and knobs."""
    s.material, a = "appliance", w / 2 - 0.01
    s.box((-a, 0.12, face - 0.002), (a, 0.7, face + 0.02))
    s.box((-a, 0.71, face - 0.002), (a, _TOP - 0.05, face + 0.02))
    s.material = "steel"
    s.box((-0.7 * a, 0.24, face + 0.015), (0.7 * a, 0.26, face + 0.028))
    s.box((-0.7 * a, 0.54, face + 0.015), (0.7 * a, 0.56, face + 0.028))
    s.rod((-0.8 * a, 0.65, face + 0.05), (0.8 * a, 0.65, face + 0.05), 0.01)
    for x in (-0.78 * a, 0.78 * a):
        s.box((x - 0.008, 0.643, face + 0.01), (x + 0.008, 0.657, face + 0.05))
    for i in range(5):
        x = (i - 2) * 0.3 * a
        s.rod((x, 0.78, face + 0.015), (x, 0.78, face + 0.045), 0.02, 0.016)


def _wall_units(s: Solids, rng: RandomStream, units: int, step: float, hob: int, back: float, h: float) -> None:
    """Wall cupboards, with a hood over the hob; a tiled splash board behind."""
    low, deep, w = 1.42, 0.34, units * step
    s.box((-w / 2, _TOP, back), (w / 2, low, back + 0.01))
    s.material = "front"
    for i in range(units):
        x = -w / 2 + (i + 0.5) * step
        one = Solids(s.detail)
        one.material = "front"
        if i == hob:
            one.material = "metal"
            one.loft(0, back + 0.25, [(0.29, 0.24, 0.01, 1.55), (0.29, 0.24, 0.01, 1.6), (0.13, 0.13, 0.01, 1.8)])
            one.box((-0.12, 1.79, back + 0.01), (0.12, h, back + 0.25))
        elif rng.chance(0.85):
            one.box((-step / 2, low, back), (step / 2, h, back + deep))
            fronts(one, rng, step, low, h, back + deep, 0, 1)
        else:
            for y in (low + 0.02, (low + h) / 2):
                one.box((-step / 2, y, back + 0.01), (step / 2, y + 0.02, back + 0.24))
                things = Solids(s.detail)
                decor.scatter(things, rng, step - 0.1, 0.2, y + 0.02, 2, (decor.cup, decor.bowl))
                one.place(things, 0.0, back + 0.14)
        s.place(one, x, 0.0)


@makes("refrigerator")
def refrigerator(s: Solids, rng: RandomStream, w: float, d: float, h: float) -> None:
    """A refrigerator with freezer door and handles."""
    s.material = "appliance"
    face, split = d / 2 - 0.07, rng.pick((0.4, 0.65)) * h
    s.box((-w / 2, 0.03, -d / 2), (w / 2, h, face))
    for x in (-w / 2 + 0.05, w / 2 - 0.05):
        s.lathe(x, face - 0.06, [(0, 0), (0.02, 0), (0.02, 0.04), (0, 0.04)])
    for low, high in ((0.06, split), (split + 0.008, h)):
        s.material = "appliance"
        s.cushion((-w / 2, low, face - 0.005), (w / 2, high, face + 0.045), 0.02)
        s.material, middle = "metal", (low + high) / 2
        s.rod((w / 2 - 0.05, middle - 0.15, face + 0.065), (w / 2 - 0.05, middle + 0.15, face + 0.065), 0.009)
        for y in (middle - 0.13, middle + 0.13):
            s.box((w / 2 - 0.056, y - 0.008, face + 0.03), (w / 2 - 0.044, y + 0.008, face + 0.065))


@makes("counter")
def island(s: Solids, rng: RandomStream, w: float, d: float, h: float) -> None:
    """A free-standing counter with stools on one side."""
    s.material, body = "front", 0.6
    back = -d / 2
    s.box((-w / 2 + 0.02, 0, back + 0.06), (w / 2 - 0.02, 0.1, back + body - 0.03))
    s.box((-w / 2, 0.1, back + 0.045), (w / 2, _TOP - 0.04, back + body))
    s.material = "worktop"
    s.loft(0, back + (body + 0.25) / 2, [(w / 2 + 0.02, (body + 0.25) / 2, 0.03, y) for y in (_TOP - 0.04, _TOP)])
    cupboard = Solids(s.detail)
    cupboard.material = "front"
    fronts(cupboard, rng, w - 0.02, 0.12, _TOP - 0.06, 0.0, rng.pick((0, 3)), max(2, round(w / 0.55)))
    s.place(cupboard, 0.0, back + 0.045, TURN // 2)
    one = Solids(s.detail)
    STOOL.build(one, rng, *STOOL.size(rng))
    count = max(1, int(w / 0.55))
    for i in range(count):
        s.place(one, ((i + 0.5) / count - 0.5) * w, back + body + 0.22 + rng.uniform(0, 0.05), rng.integer(-15, 15))
    things = Solids(s.detail)
    decor.scatter(things, rng, w - 0.2, 0.6, _TOP, rng.integer(1, 4), _KITCHEN_THINGS)
    s.place(things, 0.0, back + 0.4)


COUNTER = Piece(counter, (1.8, 3.6), (0.62, 0.64), (2.05, 2.15), front=0.75)
LOW_COUNTER = Piece(counter, (1.2, 2.4), (0.62, 0.64), (0.95, 0.95), front=0.75)
REFRIGERATOR = Piece(refrigerator, (0.6, 0.7), (0.66, 0.74), (1.55, 1.95), front=0.6)
ISLAND = Piece(island, (1.2, 1.9), (1.1, 1.1), (0.9, 0.9))


# Bathroom fixtures: toilets, basins, bathtubs, showers, washing machines


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
        decor.bottle(one, rng)
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
        decor.scatter(s, rng, w - 0.1, d - 0.2, h, 2, (decor.bottle, decor.carton))


TOILET = Piece(toilet, (0.44, 0.44), (0.68, 0.7), (0.74, 0.82), front=0.5)
BASIN = Piece(basin, (0.5, 0.95), (0.42, 0.5), (1.75, 1.95), front=0.55)
SMALL_BASIN = Piece(basin, (0.42, 0.5), (0.36, 0.42), (1.1, 1.1), front=0.5)
BATHTUB = Piece(bathtub, (1.5, 1.75), (0.7, 0.8), (0.52, 0.62), front=0.45)
SHOWER = Piece(shower, (0.8, 1.0), (0.8, 0.95), (1.95, 2.05), front=0.5)
WASHING_MACHINE = Piece(washing_machine, (0.6, 0.6), (0.55, 0.64), (0.84, 0.88), front=0.6)
