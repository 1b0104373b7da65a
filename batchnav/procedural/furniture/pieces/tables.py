"""Dining tables with chairs, coffee tables, desks, side tables."""

from __future__ import annotations

from batchnav.procedural.furniture.pieces import clutter
from batchnav.procedural.furniture.pieces.piece import Piece
from batchnav.procedural.furniture.pieces.seating import CHAIR, OFFICE_CHAIR, legs
from batchnav.procedural.random_stream import RandomStream
from batchnav.procedural.solids import TURN, Solids, makes

_CHAIR_OUT = 0.3
"""Distance by which a dining chair protrudes from the table, metres."""


def table(s: Solids, rng: RandomStream, w: float, d: float, h: float) -> None:
    """A table with an apron, open below; round tables have a central foot."""
    s.material, thick = "wood", rng.uniform(0.025, 0.045)
    if abs(w - d) < 0.12 and rng.chance(0.6):
        r = min(w, d) / 2
        s.lathe(0, 0, [(0, h - thick), (0.97 * r, h - thick), (r, h - thick / 2), (0.97 * r, h), (0, h)])
        foot = [(0, 0), (0.5 * r, 0), (0.48 * r, 0.03), (0.12, 0.08), (0.05, 0.16), (0.045, 0.6 * h)]
        s.lathe(0, 0, [*foot, (0.1, h - thick - 0.02), (0, h - thick - 0.02)])
        s.lathe(0, 0, [(0, h - thick - 0.03), (0.6 * r, h - thick - 0.03), (0.6 * r, h - thick), (0, h - thick)])
        return
    s.loft(0, 0, [(w / 2, d / 2, 0.03, h - thick), (w / 2, d / 2, 0.03, h)])
    r, inset = rng.uniform(0.025, 0.04), 0.06
    legs(s, rng, w - inset, d - inset, h - thick, r)
    x, z, low = (w - inset) / 2 - r, (d - inset) / 2 - r, h - thick - min(0.09, 0.2 * h)
    for side in (-1, 1):
        s.box((-0.9 * x, low, side * 0.9 * z - 0.01), (0.9 * x, h - thick, side * 0.9 * z + 0.01))
        s.box((side * 0.9 * x - 0.01, low, -0.9 * z), (side * 0.9 * x + 0.01, h - thick, 0.9 * z))


def dining_set(s: Solids, rng: RandomStream, w: float, d: float, h: float) -> None:
    """A dining table laid for some, with chairs pushed in; width and depth include the chairs."""
    tw, td = w - 2 * _CHAIR_OUT, d - 2 * _CHAIR_OUT
    with s.object("table"):
        table(s, rng, tw, td, h)
    cw, cd, ch = CHAIR.size(rng)
    one = Solids(s.detail)
    CHAIR.build(one, rng, cw, cd, ch)
    setting = Solids(s.detail)
    clutter.plate_setting(setting, rng)
    seats = max(1, int(tw / 0.58))
    laid = rng.chance(0.4)
    away = _CHAIR_OUT - cd / 2 - 0.04
    for i in range(seats):
        x = ((i + 0.5) / seats - 0.5) * tw
        for side in (-1, 1):
            if not rng.chance(0.92):
                continue
            pushed = rng.uniform(0.0, 0.1)
            s.place(one, x, side * (td / 2 + away - pushed), (TURN // 2 if side > 0 else 0) + rng.integer(-5, 5))
            if laid and td > 0.75:
                s.place(setting, x, side * (td / 2 - 0.18), 0 if side > 0 else TURN // 2, h)
    if tw > 1.3:
        for side in (-1, 1):
            s.place(one, side * (tw / 2 + away), 0.0, TURN // 4 * (-1 if side > 0 else 1) + rng.integer(-4, 4))
    clutter.scatter(s, rng, 0.7 * tw, 0.3 * td, h, rng.integer(1, 3))


@makes("table")
def coffee_table(s: Solids, rng: RandomStream, w: float, d: float, h: float) -> None:
    """A low table with things on it, sometimes with a lower board."""
    table(s, rng, w, d, h)
    if rng.chance(0.4):
        s.material = "wood"
        s.box((-0.42 * w, 0.12, -0.4 * d), (0.42 * w, 0.14, 0.4 * d))
    clutter.scatter(s, rng, 0.85 * w, 0.85 * d, h, rng.integer(1, 5))


@makes("desk")
def desk(s: Solids, rng: RandomStream, w: float, d: float, h: float) -> None:
    """A desk with drawers, a screen or laptop, a lamp, and an office chair in front."""
    s.material = "wood"
    top, chair_depth = d - 0.45, 0.45
    back, front = -d / 2, -d / 2 + top
    s.box((-w / 2, h - 0.03, back), (w / 2, h, front))
    side = rng.pick((-1, 1))
    x0, x1 = sorted((side * (w / 2 - 0.02), side * (w / 2 - 0.42)))
    s.box((x0, 0.06, back + 0.03), (x1, h - 0.03, front - 0.03))
    for i in range(3):
        y = 0.09 + i * (h - 0.14) / 3
        s.material = "front"
        s.box((x0 + 0.01, y, front - 0.035), (x1 - 0.01, y + (h - 0.14) / 3 - 0.015, front - 0.015))
        s.material = "metal"
        s.rod(((x0 + x1) / 2 - 0.05, y + 0.1, front - 0.005), ((x0 + x1) / 2 + 0.05, y + 0.1, front - 0.005), 0.006)
    s.material = "steel"
    for z in (back + 0.04, front - 0.04):
        s.rod((-side * (w / 2 - 0.04), 0, z), (-side * (w / 2 - 0.04), h - 0.03, z), 0.02)
    s.material = "wood"
    s.box((-0.45 * w, 0.35, back + 0.02), (0.45 * w, h - 0.03, back + 0.035))
    one = Solids(s.detail)
    if rng.chance(0.5):
        clutter.laptop(one, rng)
    else:
        _computer(one, rng.uniform(0.25, 0.36))
    s.place(one, -side * 0.1, back + 0.24, 0, h)
    clutter.scatter(s, rng, 0.9 * w, 0.2, h, 2)
    seat = Solids(s.detail)
    OFFICE_CHAIR.build(seat, rng, *OFFICE_CHAIR.size(rng))
    s.place(seat, -side * 0.12, front + chair_depth - 0.34, TURN // 2 + rng.integer(-25, 25))


@makes("tv_monitor")
def _computer(s: Solids, a: float) -> None:
    """A screen on its foot, 2a wide, and a keyboard."""
    s.material = "screen"
    s.box((-a, 0.1, -0.02), (a, 0.1 + 1.15 * a, 0.015))
    s.material = "black"
    s.box((-0.025, 0.01, -0.04), (0.025, 0.25, -0.018))
    s.loft(0, -0.03, [(0.12, 0.09, 0.05, 0), (0.12, 0.09, 0.05, 0.012)])
    s.box((-0.2, 0, 0.12), (0.2, 0.02, 0.25))


def side_table(s: Solids, rng: RandomStream, w: float, d: float, h: float) -> None:
    """A small round or square table with a lamp or a vase."""
    with s.object("table"):
        table(s, rng, w, d, h)
    clutter.scatter(s, rng, 0.5 * w, 0.5 * d, h, 1, (clutter.vase, clutter.bowl, clutter.book_stack))


DINING_SET = Piece(dining_set, (1.4, 2.4), (1.35, 1.6), (0.72, 0.77))
COFFEE_TABLE = Piece(coffee_table, (0.7, 1.2), (0.45, 0.7), (0.36, 0.48))
DESK = Piece(desk, (1.1, 1.6), (1.0, 1.15), (0.71, 0.76), front=0.25)
SIDE_TABLE = Piece(side_table, (0.4, 0.55), (0.4, 0.5), (0.45, 0.62))
