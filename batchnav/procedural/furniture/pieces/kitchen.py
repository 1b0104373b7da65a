"""Kitchen counters with sink and hob, refrigerators, islands."""

from __future__ import annotations

from batchnav.procedural.furniture.pieces import clutter
from batchnav.procedural.furniture.pieces.piece import Piece
from batchnav.procedural.furniture.pieces.seating import STOOL
from batchnav.procedural.furniture.pieces.storage import fronts
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
            clutter.scatter(one, rng, step - 0.1, d - 0.25, _TOP, rng.integer(0, 3), _KITCHEN_THINGS)
        s.place(one, x, 0.0)
    s.material = "tiles"
    if h > 1.6:
        _wall_units(s, rng, units, step, hob, back, h)
    else:
        s.box((-w / 2, _TOP, back), (w / 2, _TOP + 0.05, back + 0.015))


_KITCHEN_THINGS = (clutter.bowl, clutter.cup, clutter.bottle, clutter.bottle, clutter.vase)


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
                clutter.scatter(things, rng, step - 0.1, 0.2, y + 0.02, 2, (clutter.cup, clutter.bowl))
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
    clutter.scatter(things, rng, w - 0.2, 0.6, _TOP, rng.integer(1, 4), _KITCHEN_THINGS)
    s.place(things, 0.0, back + 0.4)


COUNTER = Piece(counter, (1.8, 3.6), (0.62, 0.64), (2.05, 2.15), front=0.75)
LOW_COUNTER = Piece(counter, (1.2, 2.4), (0.62, 0.64), (0.95, 0.95), front=0.75)
REFRIGERATOR = Piece(refrigerator, (0.6, 0.7), (0.66, 0.74), (1.55, 1.95), front=0.6)
ISLAND = Piece(island, (1.2, 1.9), (1.1, 1.1), (0.9, 0.9))
