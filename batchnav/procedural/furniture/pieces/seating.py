"""Sofas, armchairs, chairs, stools."""

from __future__ import annotations

from batchnav.procedural.furniture.pieces.piece import Piece
from batchnav.procedural.random_stream import RandomStream
from batchnav.procedural.solids import Solids, circle, makes


def turned_leg(s: Solids, x: float, z: float, height: float, r: float) -> None:
    """A leg from the lathe, with rings and a taper."""
    h = height
    shape = [(0, 0), (0.6 * r, 0), (0.75 * r, 0.1 * h), (0.55 * r, 0.15 * h), (0.95 * r, 0.55 * h), (0.7 * r, 0.7 * h)]
    s.lathe(x, z, [*shape, (r, 0.76 * h), (0.75 * r, 0.82 * h), (r, 0.88 * h), (r, h), (0, h)])


def legs(s: Solids, rng: RandomStream, width: float, depth: float, height: float, r: float) -> None:
    """Four legs at the corners of a rectangle: square, turned, or splayed rods."""
    style = rng.integer(0, 2)
    for x in (-width / 2 + r, width / 2 - r):
        for z in (-depth / 2 + r, depth / 2 - r):
            if style == 0:
                s.box((x - r, 0, z - r), (x + r, height, z + r))
            elif style == 1:
                turned_leg(s, x, z, height, 1.1 * r)
            else:
                s.rod((x, 0, z), (0.88 * x, height, 0.88 * z), 0.6 * r, r)


def upholstered(s: Solids, rng: RandomStream, w: float, d: float, h: float) -> None:
    """A sofa with cushions; an armchair if narrow."""
    arm, seat, foot, soft = rng.uniform(0.12, 0.22), rng.uniform(0.38, 0.46), rng.uniform(0.05, 0.14), 0.05
    arm_top, back = rng.uniform(0.52, 0.64), rng.uniform(0.14, 0.2)
    left, right, front, rear = -w / 2 + arm, w / 2 - arm, d / 2, -d / 2
    s.material = "wood"
    legs(s, rng, w - 0.1, d - 0.1, foot, 0.025)
    s.material = "fabric"
    s.cushion((-w / 2 + 0.01, foot, rear + 0.01), (w / 2 - 0.01, seat - 0.12, front - 0.03), 0.03)
    for x0, x1 in ((-w / 2, left), (right, w / 2)):
        s.cushion((x0, foot, rear), (x1, arm_top, front), min(arm / 2, 0.09))
    s.cushion((left - 0.02, foot, rear), (right + 0.02, h - 0.04, rear + back), 0.06)
    count = max(1, round((right - left) / 0.68))
    step = (right - left) / count
    for i in range(count):
        x0, x1 = left + i * step + 0.004, left + (i + 1) * step - 0.004
        s.cushion((x0, seat - 0.13, rear + back - 0.02), (x1, seat, front + 0.0), soft)
        s.cushion((x0 + 0.01, seat - 0.02, rear + back - 0.03), (x1 - 0.01, h, rear + back + 0.12), 0.07, (0.0, -0.06))
    for _ in range(rng.integer(0, count)):
        pillow = Solids(s.detail)
        a = rng.uniform(0.18, 0.24)
        with pillow.object("cushion"):
            pillow.material = "fabric"
            pillow.cushion((-a, 0, -0.07), (a, 1.8 * a, 0.07), 0.068, (0.0, -0.12))
        inner = max(0.0, (right - left) / 2 - a)
        s.place(pillow, rng.uniform(-inner, inner), rear + back + 0.24, rng.integer(-8, 8), seat)


@makes("chair")
def chair(s: Solids, rng: RandomStream, w: float, d: float, h: float) -> None:
    """A dining chair: slats, rails or a closed back, sometimes padded; the diner faces +Z."""
    seat, r = rng.uniform(0.43, 0.47), rng.uniform(0.016, 0.022)
    s.material = "wood"
    x, front, rear = w / 2 - r, d / 2 - r, -d / 2 + r
    turned = rng.chance(0.5)
    for side in (-x, x):
        if turned:
            turned_leg(s, side, front, seat - 0.02, r * 1.2)
        else:
            s.box((side - r, 0, front - r), (side + r, seat - 0.02, front + r))
        s.box((side - r, 0, rear - r + 0.03), (side + r, seat, rear + r + 0.03), (0.0, 0.0))
        s.box((side - r, seat, rear - r + 0.03), (side + r, h, rear + r + 0.03), (0.0, -0.06))
        s.box((side - 0.6 * r, 0.18, rear), (side + 0.6 * r, 0.205, front))
    s.box((-x, 0.24, rear + 0.02), (x, 0.26, rear + 0.04))
    if rng.chance(0.5):
        s.material = "fabric"
        s.cushion((-w / 2, seat - 0.03, -d / 2 + 0.04), (w / 2, seat + 0.03, d / 2), 0.028)
    else:
        s.loft(0, 0.02, [(w / 2, d / 2 - 0.02, 0.05, seat - 0.025), (w / 2, d / 2 - 0.02, 0.05, seat)])
    s.material = "wood"
    style, z = rng.integer(0, 2), rear + 0.03
    rise = h - seat

    def lean(y: float) -> float:
        return z - 0.06 * (y - seat) / rise

    if style == 0:
        for i in range(5):
            u = -x + 2 * x * (i + 1) / 6
            s.box((u - 0.012, seat, z - 0.007), (u + 0.012, h - 0.05, z + 0.007), (0.0, -0.06 * (rise - 0.05) / rise))
    elif style == 1:
        for y in (seat + 0.3 * rise, seat + 0.6 * rise):
            s.box((-x, y, lean(y) - 0.008), (x, y + 0.05, lean(y) + 0.008))
    else:
        s.material = "fabric"
        s.cushion((-x, seat + 0.08, lean(seat) - 0.015), (x, h - 0.05, lean(seat) + 0.02), 0.016, (0.0, -0.05))
    s.material = "wood"
    s.box((-x, h - 0.06, lean(h) - 0.01), (x, h, lean(h) + 0.012))


@makes("chair")
def office_chair(s: Solids, rng: RandomStream, w: float, d: float, h: float) -> None:
    """A swivel chair on a five-armed base with castors."""
    s.material, ring = "steel", circle(20)
    for i in range(0, 20, 4):
        x, z = 0.27 * ring[i, 0], 0.27 * ring[i, 1]
        s.rod((0, 0.11, 0), (x, 0.07, z), 0.022, 0.015)
        s.rod((x - 0.02, 0.028, z), (x + 0.02, 0.028, z), 0.028)
    s.lathe(0, 0, [(0, 0.06), (0.035, 0.06), (0.03, 0.2), (0.02, 0.2), (0.02, 0.4), (0, 0.4)])
    s.material = "fabric"
    s.cushion((-0.24, 0.4, -0.22), (0.24, 0.49, 0.25), 0.045)
    s.material = "steel"
    s.box((-0.03, 0.42, -0.27), (0.03, 0.62, -0.25))
    s.material = "fabric"
    s.cushion((-0.22, 0.56, -0.28), (0.22, h, -0.2), 0.038, (0.0, -0.06))
    s.material = "black"
    if rng.chance(0.6):
        for x in (-0.27, 0.27):
            s.box((x - 0.02, 0.42, -0.05), (x + 0.02, 0.66, 0.0))
            s.cushion((x - 0.035, 0.65, -0.13), (x + 0.035, 0.68, 0.14), 0.014)
            s.box((min(x, 0.8 * x), 0.42, -0.04), (max(x, 0.8 * x), 0.45, -0.01))


@makes("stool")
def stool(s: Solids, rng: RandomStream, w: float, d: float, h: float) -> None:
    """A bar stool."""
    s.material, r = "wood", min(w, d) / 2
    for x in (-0.8 * r, 0.8 * r):
        for z in (-0.8 * r, 0.8 * r):
            s.rod((x, 0, z), (0.6 * x, h - 0.03, 0.6 * z), 0.014)
        s.rod((0.93 * x, 0.25, -0.72 * r), (0.93 * x, 0.25, 0.72 * r), 0.009)
    s.material = "fabric"
    s.lathe(0, 0, [(0, h - 0.05), (0.9 * r, h - 0.05), (r, h - 0.03), (0.95 * r, h), (0, h)])


@makes("stool")
def pouffe(s: Solids, rng: RandomStream, w: float, d: float, h: float) -> None:
    """A soft round footstool."""
    s.material, r = "fabric", min(w, d) / 2
    s.lathe(0, 0, [(0, 0), (0.9 * r, 0), (r, 0.3 * h), (r, 0.7 * h), (0.88 * r, 0.95 * h), (0.4 * r, h), (0, h)])


SOFA = Piece(makes("sofa")(upholstered), (1.55, 2.4), (0.85, 1.0), (0.72, 0.9), front=0.6)
ARMCHAIR = Piece(makes("chair")(upholstered), (0.8, 1.0), (0.8, 0.95), (0.75, 0.95), front=0.5)
CHAIR = Piece(chair, (0.4, 0.46), (0.42, 0.48), (0.82, 1.0), front=0.3)
OFFICE_CHAIR = Piece(office_chair, (0.6, 0.6), (0.6, 0.6), (0.9, 1.1))
STOOL = Piece(stool, (0.34, 0.4), (0.34, 0.4), (0.6, 0.75))
POUFFE = Piece(pouffe, (0.4, 0.6), (0.4, 0.6), (0.35, 0.45))
