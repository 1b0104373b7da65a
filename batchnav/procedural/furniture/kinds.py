"""Further constructions of the furniture that ObjectNav asks for: sofas, chairs, beds, plants, toilets, televisions.

Houses with "?kinds=more" choose among these and our first ones, so that an agent sees each category in several shapes
and not in one shape of several sizes.
"""

from __future__ import annotations

import functools
import itertools

import numpy as np

from batchnav.procedural.furniture import decor, kitchen, living
from batchnav.procedural.furniture.household import BOARDS, HOUSEHOLD
from batchnav.procedural.furniture.placement import Piece, Replacements
from batchnav.procedural.random_stream import RandomStream
from batchnav.procedural.solids import Solids, circle, makes


def _feet(s: Solids, w: float, d: float, h: float, r: float) -> None:
    """Four round feet at the corners."""
    for x in (-w / 2 + r, w / 2 - r):
        for z in (-d / 2 + r, d / 2 - r):
            s.rod((x, 0, z), (x, h, z), 0.7 * r, r)


# Sofas


@makes("sofa")
def chesterfield(s: Solids, rng: RandomStream, w: float, d: float, h: float) -> None:
    """A sofa whose rolled arms are as high as its back."""
    s.material, back = "fabric", -d / 2
    s.cushion((-w / 2 + 0.1, 0.08, back + 0.05), (w / 2 - 0.1, 0.3, d / 2 - 0.02), 0.03)
    s.cushion((-w / 2 + 0.16, 0.28, back + 0.18), (w / 2 - 0.16, 0.44, d / 2), 0.06)
    s.cushion((-w / 2 + 0.05, 0.08, back + 0.02), (w / 2 - 0.05, h - 0.1, back + 0.2), 0.06)
    s.rod((-w / 2 + 0.08, h - 0.1, back + 0.1), (w / 2 - 0.08, h - 0.1, back + 0.1), 0.1)
    for x in (-w / 2 + 0.1, w / 2 - 0.1):
        s.cushion((x - 0.08, 0.08, back + 0.05), (x + 0.08, h - 0.1, d / 2 - 0.02), 0.05)
        s.rod((x, h - 0.1, back + 0.05), (x, h - 0.1, d / 2 - 0.02), 0.1)
    s.material = "wood"
    _feet(s, w - 0.1, d - 0.1, 0.09, 0.035)


@makes("sofa")
def futon_sofa(s: Solids, rng: RandomStream, w: float, d: float, h: float) -> None:
    """Two flat mattresses on an open wooden frame."""
    s.material, back = "wood", -d / 2
    for x in (-w / 2, w / 2 - 0.06):
        s.box((x, 0, d / 2 - 0.12), (x + 0.06, 0.58, d / 2 - 0.06))
        s.box((x, 0, back + 0.08), (x + 0.06, 0.58, back + 0.14))
        s.box((x - 0.01, 0.58, back + 0.04), (x + 0.07, 0.62, d / 2 - 0.02))
    for i in range(5):
        z = back + 0.15 + i * (d - 0.32) / 4
        s.box((-w / 2 + 0.06, 0.24, z), (w / 2 - 0.06, 0.27, z + 0.06))
    s.material = "fabric"
    s.cushion((-w / 2 + 0.07, 0.27, back + 0.2), (w / 2 - 0.07, 0.42, d / 2), 0.05)
    s.cushion((-w / 2 + 0.07, 0.4, back + 0.16), (w / 2 - 0.07, h, back + 0.32), 0.05, (0.0, -0.14))


@makes("sofa")
def chaise_sofa(s: Solids, rng: RandomStream, w: float, d: float, h: float) -> None:
    """A corner sofa: one end reaches forward as a chaise longue."""
    s.material, back, side, seat = "fabric", -d / 2, rng.pick((-1, 1)), d - 0.65
    front = back + 0.95
    low, high = sorted((side * (w / 2), side * (w / 2 - 0.8)))
    s.cushion((-w / 2, 0.05, back), (w / 2, 0.42, front), 0.05)
    s.cushion((low, 0.05, back), (high, 0.42, d / 2), 0.05)
    s.cushion((-w / 2, 0.3, back), (w / 2, h, back + 0.22), 0.07)
    x = -side * w / 2
    s.cushion((min(x, x + side * 0.18), 0.05, back), (max(x, x + side * 0.18), 0.6, front), 0.06)
    x = side * w / 2
    s.cushion((min(x, x - side * 0.16), 0.3, back), (max(x, x - side * 0.16), 0.68, back + 0.5 * seat + 0.5), 0.06)
    for i in range(3):
        a = -w / 2 + 0.2 + i * (w - 0.4) / 3
        s.cushion((a, 0.4, back + 0.18), (a + (w - 0.46) / 3, h + 0.02, back + 0.4), 0.08, (0.0, -0.06))


@makes("sofa")
def settee(s: Solids, rng: RandomStream, w: float, d: float, h: float) -> None:
    """Thin cushions on a wooden frame with open arms and a back of spindles."""
    s.material, back = "wood", -d / 2
    for x in (-w / 2 + 0.03, w / 2 - 0.03):
        s.rod((x, 0, d / 2 - 0.06), (x, 0.6, d / 2 - 0.08), 0.022)
        s.rod((x, 0, back + 0.1), (x, h, back + 0.03), 0.024)
        s.box((x - 0.035, 0.6, back + 0.06), (x + 0.035, 0.63, d / 2 - 0.02))
    s.box((-w / 2 + 0.02, 0.3, back + 0.08), (w / 2 - 0.02, 0.35, d / 2 - 0.05))
    s.box((-w / 2 + 0.03, h - 0.05, back + 0.01), (w / 2 - 0.03, h, back + 0.05))
    for i in range(round(w / 0.14)):
        x = -w / 2 + 0.1 + i * (w - 0.2) / max(1, round(w / 0.14) - 1)
        s.rod((x, 0.35, back + 0.09), (x, h - 0.04, back + 0.03), 0.009)
    s.material = "fabric"
    for i in (0, 1):
        a = -w / 2 + 0.06 + i * (w - 0.1) / 2
        s.cushion((a, 0.35, back + 0.12), (a + (w - 0.14) / 2, 0.46, d / 2 - 0.04), 0.04)


@makes("sofa")
def block_sofa(s: Solids, rng: RandomStream, w: float, d: float, h: float) -> None:
    """Low modules without arms, some without a back."""
    s.material, back, count = "fabric", -d / 2, max(2, round(w / 0.8))
    open_end = rng.integer(0, 2)
    for i in range(count):
        a, b = -w / 2 + w * i / count + 0.01, -w / 2 + w * (i + 1) / count - 0.01
        s.cushion((a, 0.03, back), (b, 0.38, d / 2), 0.04)
        if count < 3 or i != (0, count - 1, -1)[open_end]:
            s.cushion((a, 0.36, back), (b, 0.92 * h, back + 0.28), 0.06)


@makes("sofa")
def tub_sofa(s: Solids, rng: RandomStream, w: float, d: float, h: float) -> None:
    """A two-seater with one curved wall around its back and sides."""
    s.material, unit, steps = "fabric", circle(40), 16
    for i in range(steps):
        k = (round(19 - i * 18 / (steps - 1)) + 20) % 40
        x, z = unit[k, 0] * (w / 2 - 0.11), unit[k, 1] * (d - 0.18) + d / 2 - 0.08
        top = h - 0.22 * (abs(i - (steps - 1) / 2) / (steps / 2)) ** 2
        s.rod((x, 0.0, z), (x, top, z), 0.11)
    s.cushion((-w / 2 + 0.16, 0.1, -d / 2 + 0.12), (w / 2 - 0.16, 0.45, d / 2), 0.07)


# Chairs


@makes("chair")
def windsor_chair(s: Solids, rng: RandomStream, w: float, d: float, h: float) -> None:
    """A round seat on splayed legs, with a hoop of spindles."""
    s.material, seat, back = "wood", 0.45, -d / 2 + 0.05
    s.lathe(0, 0.02, [(0, seat - 0.04), (0.2, seat - 0.04), (0.21, seat - 0.01), (0.19, seat), (0, seat)])
    for i in (-1, 1):
        for k in (-1, 1):
            s.rod((i * w / 2 * 0.95, 0, k * d / 2 * 0.9), (i * 0.12, seat - 0.03, k * 0.12), 0.012, 0.02)
    unit, last = circle(40), None
    for i in range(11):
        k = (20 - 2 * i) % 40
        a, up = unit[k, 0], abs(unit[k, 1])
        point = (a * 0.2, seat + 0.12 + (h - seat - 0.12) * up, back - 0.05 * up)
        if last:
            s.rod(last, point, 0.012)
        if i % 2 and 0 < i < 10:
            s.rod((0.8 * a * 0.2, seat - 0.01, back + 0.07), point, 0.007)
        last = point
    for x in (-0.2, 0.2):
        s.rod((x * 0.85, seat - 0.01, back + 0.07), (x, seat + 0.12, back), 0.012)


@makes("chair")
def shell_chair(s: Solids, rng: RandomStream, w: float, d: float, h: float) -> None:
    """A moulded shell on four splayed rods or a column."""
    s.material, seat = "plastic", 0.44
    s.cushion((-w / 2, seat - 0.02, -d / 2 + 0.06), (w / 2, seat + 0.03, d / 2), 0.024)
    s.cushion((-w / 2 + 0.01, seat, -d / 2 + 0.1), (w / 2 - 0.01, h, -d / 2 + 0.14), 0.019, (0.0, -0.09))
    for x in (-w / 2 + 0.02, w / 2 - 0.02):
        s.cushion((x - 0.015, seat, -d / 2 + 0.08), (x + 0.015, seat + 0.14, d / 2 - 0.14), 0.014)
    s.material = "steel"
    if rng.chance(0.5):
        for x in (-1, 1):
            for z in (-1, 1):
                s.rod((x * w / 2, 0, z * (d / 2 - 0.02)), (x * 0.1, seat - 0.01, z * 0.1), 0.012)
    else:
        s.lathe(0, 0, [(0, 0), (0.22, 0), (0.2, 0.02), (0.03, 0.08), (0.025, seat - 0.01), (0, seat - 0.01)])


@makes("chair")
def cantilever_chair(s: Solids, rng: RandomStream, w: float, d: float, h: float) -> None:
    """A seat and a back on one bent tube, without rear legs."""
    s.material, seat = "steel", 0.46
    front, back = d / 2 - 0.02, -d / 2 + 0.02
    for x in (-w / 2 + 0.02, w / 2 - 0.02):
        path = [(x, 0.02, back), (x, 0.02, front), (x, seat - 0.02, front), (x, seat - 0.02, back + 0.06), (x, h, back)]
        for a, b in itertools.pairwise(path):
            s.rod(a, b, 0.013)
    s.rod((-w / 2 + 0.02, 0.02, back), (w / 2 - 0.02, 0.02, back), 0.013)
    s.material = "fabric"
    s.cushion((-w / 2 + 0.01, seat - 0.02, back + 0.08), (w / 2 - 0.01, seat + 0.02, front), 0.018)
    s.cushion((-w / 2 + 0.01, h - 0.26, back - 0.01), (w / 2 - 0.01, h, back + 0.03), 0.018)


@makes("chair")
def folding_chair(s: Solids, rng: RandomStream, w: float, d: float, h: float) -> None:
    """Crossed legs, a thin seat, a bar for a back."""
    s.material = rng.pick(("steel", "wood", "plastic"))
    for x in (-w / 2 + 0.015, w / 2 - 0.015):
        s.rod((x, 0, d / 2 - 0.02), (x, h, -d / 2 + 0.02), 0.013)
        s.rod((0.9 * x, 0, -d / 2 + 0.02), (0.9 * x, 0.46, d / 2 - 0.06), 0.013)
    for y, z in ((0.08, -d / 2 + 0.06), (0.06, d / 2 - 0.06)):
        s.rod((-w / 2 + 0.02, y, z), (w / 2 - 0.02, y, z), 0.01)
    s.box((-w / 2 + 0.03, 0.44, -d / 2 + 0.12), (w / 2 - 0.03, 0.465, d / 2 - 0.03))
    s.box((-w / 2, h - 0.2, -d / 2 + 0.05), (w / 2, h, -d / 2 + 0.07), (0.0, -0.05))


@makes("chair")
def carver_chair(s: Solids, rng: RandomStream, w: float, d: float, h: float) -> None:
    """A dining chair with armrests and an upholstered back."""
    s.material, seat, back = "wood", 0.46, -d / 2
    for x in (-w / 2 + 0.02, w / 2 - 0.02):
        s.box((x - 0.02, 0, d / 2 - 0.05), (x + 0.02, 0.66, d / 2 - 0.01))
        s.box((x - 0.02, 0, back + 0.03), (x + 0.02, h, back + 0.07), (0.0, -0.03))
        s.box((x - 0.025, 0.66, back + 0.02), (x + 0.025, 0.69, d / 2))
    s.box((-w / 2 + 0.02, seat - 0.08, back + 0.03), (w / 2 - 0.02, seat - 0.03, d / 2 - 0.02))
    s.material = "fabric"
    s.cushion((-w / 2 + 0.03, seat - 0.04, back + 0.05), (w / 2 - 0.03, seat + 0.04, d / 2 - 0.01), 0.03)
    s.cushion((-w / 2 + 0.04, seat + 0.14, back + 0.02), (w / 2 - 0.04, h, back + 0.08), 0.028, (0.0, -0.02))


@makes("chair")
def wing_chair(s: Solids, rng: RandomStream, w: float, d: float, h: float) -> None:
    """A high-backed armchair with wings beside the head."""
    s.material, back = "fabric", -d / 2
    s.cushion((-w / 2 + 0.06, 0.14, back + 0.1), (w / 2 - 0.06, 0.46, d / 2), 0.05)
    s.cushion((-w / 2 + 0.06, 0.14, back), (w / 2 - 0.06, h, back + 0.18), 0.07)
    for x in (-w / 2 + 0.06, w / 2 - 0.06):
        s.cushion((x - 0.06, 0.14, back + 0.05), (x + 0.06, 0.62, d / 2 - 0.03), 0.055)
        s.cushion((x - 0.05, 0.58, back + 0.02), (x + 0.05, h - 0.05, back + 0.36), 0.045)
    s.material = "wood"
    _feet(s, w - 0.06, d - 0.06, 0.15, 0.025)


@makes("chair")
def rocking_chair(s: Solids, rng: RandomStream, w: float, d: float, h: float) -> None:
    """A chair with armrests on two runners."""
    s.material, back = "wood", -d / 2
    for x in (-w / 2 + 0.03, w / 2 - 0.03):
        bend = [(x, 0.1, back), (x, 0.03, back / 2), (x, 0.02, 0.0), (x, 0.03, -back / 2), (x, 0.1, -back)]
        for a, b in itertools.pairwise(bend):
            s.rod(a, b, 0.018)
        s.rod((x, 0.03, -back / 2), (x, 0.64, -back / 2 + 0.02), 0.016)
        s.rod((x, 0.03, back / 2), (x, h, back + 0.08), 0.018)
        s.box((x - 0.035, 0.63, back / 2 - 0.02), (x + 0.035, 0.66, -back / 2 + 0.06))
    s.box((-w / 2 + 0.03, 0.4, back / 2 - 0.02), (w / 2 - 0.03, 0.43, -back / 2 + 0.06))
    for i in range(6):
        x = -w / 2 + 0.08 + i * (w - 0.16) / 5
        s.rod((x, 0.42, back / 2), (x, h - 0.04, back + 0.09), 0.01)
    s.box((-w / 2 + 0.02, h - 0.08, back + 0.06), (w / 2 - 0.02, h, back + 0.1))


@makes("chair")
def barrel_chair(s: Solids, rng: RandomStream, w: float, d: float, h: float) -> None:
    """A round armchair: a curved wall around a round seat."""
    s.material, unit, r = "fabric", circle(40), min(w, d) / 2 - 0.07
    for i in range(13):
        k = (20 + 20 * i // 12) % 40
        x, z = unit[k, 0] * r, -abs(unit[k, 1]) * r
        s.rod((x, 0.0, z), (x, h - 0.12 * abs(i - 6) / 6, z), 0.075)
    for side in (-1, 1):
        s.rod((side * r, 0.0, 0.12), (side * r, h - 0.2, 0.12), 0.075)
    s.lathe(0, 0.03, [(0, 0.02), (r, 0.02), (r, 0.4), (0.9 * r, 0.45), (0, 0.45)])


@makes("chair")
def executive_chair(s: Solids, rng: RandomStream, w: float, d: float, h: float) -> None:
    """A swivel chair with a high padded back and armrests."""
    s.material, ring = "black", circle(20)
    for i in range(0, 20, 4):
        s.rod((0, 0.1, 0), (0.3 * ring[i, 0], 0.04, 0.3 * ring[i, 1]), 0.03, 0.02)
    s.lathe(0, 0, [(0, 0.05), (0.03, 0.05), (0.03, 0.42), (0, 0.42)])
    s.cushion((-0.27, 0.42, -0.25), (0.27, 0.54, 0.28), 0.055)
    s.cushion((-0.26, 0.5, -0.3), (0.26, h, -0.16), 0.065, (0.0, -0.04))
    for x in (-0.3, 0.3):
        s.box((x - 0.02, 0.45, -0.1), (x + 0.02, 0.68, -0.05))
        s.cushion((x - 0.045, 0.67, -0.22), (x + 0.045, 0.72, 0.16), 0.024)


# Beds


def _bedding(s: Solids, w: float, head: float, foot: float, base: float, thick: float) -> None:
    """A mattress, pillows and a blanket."""
    top = base + thick
    s.material = "linen"
    s.cushion((-w / 2 + 0.02, base, head), (w / 2 - 0.02, top, foot), 0.06)
    count = 2 if w > 1.25 else 1
    for i in range(count):
        x, a = ((i + 0.5) / count - 0.5) * (w - 0.1), min(0.34, (w - 0.1) / count / 2 - 0.02)
        s.cushion((x - a, top - 0.02, head + 0.05), (x + a, top + 0.1, head + 0.45), 0.05)
    s.material = "blanket"
    s.cushion((-w / 2, base + 0.05, head + 0.65), (w / 2, top + 0.04, foot), 0.05)


@makes("bed")
def four_poster(s: Solids, rng: RandomStream, w: float, d: float, h: float) -> None:
    """A bed with posts that carry a frame above it."""
    s.material, top = "wood", 1.95
    for x in (-w / 2 + 0.04, w / 2 - 0.04):
        for z in (-d / 2 + 0.04, d / 2 - 0.04):
            s.box((x - 0.04, 0, z - 0.04), (x + 0.04, top, z + 0.04))
        s.box((x - 0.02, 0.25, -d / 2), (x + 0.02, 0.42, d / 2))
        s.box((x - 0.03, top - 0.06, -d / 2), (x + 0.03, top, d / 2))
    for z in (-d / 2 + 0.04, d / 2 - 0.04):
        s.box((-w / 2, top - 0.06, z - 0.03), (w / 2, top, z + 0.03))
    s.box((-w / 2 + 0.06, 0.25, -d / 2 + 0.02), (w / 2 - 0.06, 1.05, -d / 2 + 0.06))
    _bedding(s, w - 0.12, -d / 2 + 0.08, d / 2 - 0.08, 0.36, 0.22)


@makes("bed")
def metal_bed(s: Solids, rng: RandomStream, w: float, d: float, h: float) -> None:
    """A bed between two railings of bars."""
    s.material = rng.pick(("steel", "enamel", "metal"))
    for z, top in ((-d / 2 + 0.03, h), (d / 2 - 0.03, 0.75 * h)):
        for x in (-w / 2 + 0.03, w / 2 - 0.03):
            s.rod((x, 0, z), (x, top, z), 0.022)
        for y in (top - 0.02, 0.4):
            s.rod((-w / 2 + 0.03, y, z), (w / 2 - 0.03, y, z), 0.018)
        for i in range(1, 8):
            x = -w / 2 + w * i / 8
            s.rod((x, 0.4, z), (x, top - 0.02, z), 0.009)
    for x in (-w / 2 + 0.04, w / 2 - 0.04):
        s.box((x - 0.015, 0.3, -d / 2 + 0.03), (x + 0.015, 0.36, d / 2 - 0.03))
    _bedding(s, w - 0.08, -d / 2 + 0.06, d / 2 - 0.06, 0.36, 0.2)


@makes("bed")
def divan(s: Solids, rng: RandomStream, w: float, d: float, h: float) -> None:
    """A thick mattress on a closed box, without a headboard."""
    s.material = "fabric"
    s.cushion((-w / 2, 0.03, -d / 2), (w / 2, 0.34, d / 2), 0.03)
    _bedding(s, w, -d / 2 + 0.01, d / 2 - 0.01, 0.34, 0.26)


@makes("bed")
def bunk_bed(s: Solids, rng: RandomStream, w: float, d: float, h: float) -> None:
    """Two beds, one above the other, with a ladder."""
    s.material, top = "wood", 1.65
    for x in (-w / 2 + 0.035, w / 2 - 0.035):
        for z in (-d / 2 + 0.035, d / 2 - 0.035):
            s.box((x - 0.035, 0, z - 0.035), (x + 0.035, top, z + 0.035))
        for y in (0.22, 1.12, 1.42):
            s.box((x - 0.015, y, -d / 2), (x + 0.015, y + 0.12, d / 2))
    for z in (-d / 2 + 0.02, d / 2 - 0.02):
        for y in (0.5, 1.42):
            s.box((-w / 2, y, z - 0.015), (w / 2, y + 0.1, z + 0.015))
    x = rng.pick((-1, 1)) * (w / 2 - 0.02)
    for y in (0.3, 0.58, 0.86, 1.14):
        s.rod((x, y, d / 2 - 0.5), (x, y, d / 2 - 0.1), 0.018)
    s.rod((x, 0, d / 2 - 0.5), (x, top - 0.1, d / 2 - 0.5), 0.02)
    _bedding(s, w - 0.1, -d / 2 + 0.05, d / 2 - 0.05, 0.28, 0.16)
    _bedding(s, w - 0.1, -d / 2 + 0.05, d / 2 - 0.05, 1.18, 0.16)


@makes("bed")
def sleigh_bed(s: Solids, rng: RandomStream, w: float, d: float, h: float) -> None:
    """A bed whose head and foot curve outwards."""
    s.material = "wood"
    for side, top in ((-1, h), (1, 0.68 * h)):
        z = side * (d / 2 - 0.17)
        for i in range(5):
            y, out = 0.02 + (top - 0.02) * i / 5, side * 0.1 * (i / 4) ** 2
            s.box((-w / 2, y, z + out - 0.025), (w / 2, y + (top - 0.02) / 5, z + out + 0.025), (0.0, side * 0.02))
        s.rod((-w / 2, top, z + side * 0.11), (w / 2, top, z + side * 0.11), 0.045)
    for x in (-w / 2, w / 2 - 0.04):
        s.box((x, 0.12, -d / 2 + 0.14), (x + 0.04, 0.38, d / 2 - 0.14))
    _bedding(s, w - 0.06, -d / 2 + 0.2, d / 2 - 0.2, 0.3, 0.26)


@makes("bed")
def platform_bed(s: Solids, rng: RandomStream, w: float, d: float, h: float) -> None:
    """A low wide platform with a mattress that leaves a rim."""
    s.material = "wood"
    s.box((-w / 2, 0.1, -d / 2), (w / 2, 0.18, d / 2))
    s.box((-w / 2 + 0.15, 0, -d / 2 + 0.15), (w / 2 - 0.15, 0.1, d / 2 - 0.15))
    s.box((-w / 2, 0.1, -d / 2), (w / 2, 0.55, -d / 2 + 0.06))
    _bedding(s, w - 0.2, -d / 2 + 0.08, d / 2 - 0.1, 0.18, 0.2)


# Plants


def _pot(s: Solids, rng: RandomStream, r: float, h: float) -> None:
    """A pot, round or square, or a planter on legs."""
    s.material, style = "pot", rng.integer(0, 2)
    if style == 0:
        s.lathe(0, 0, [(0, 0), (0.7 * r, 0), (r, h), (0.88 * r, h), (0.8 * r, h - 0.04), (0, h - 0.04)])
    elif style == 1:
        s.loft(
            0,
            0,
            [
                (0.8 * r, 0.8 * r, 0.02, 0),
                (r, r, 0.02, h),
                (0.85 * r, 0.85 * r, 0.02, h),
                (0.8 * r, 0.8 * r, 0.02, h - 0.04),
            ],
        )
    else:
        s.lathe(0, 0, [(0, 0.3 * h), (r, 0.3 * h), (r, h), (0.88 * r, h), (0.86 * r, h - 0.04), (0, h - 0.04)])
        s.material = "wood"
        for x, z in ((-1, -1), (-1, 1), (1, -1), (1, 1)):
            s.rod((0.75 * r * x, 0, 0.75 * r * z), (0.65 * r * x, 0.35 * h, 0.65 * r * z), 0.012)


@makes("plant")
def cactus(s: Solids, rng: RandomStream, w: float, d: float, h: float) -> None:
    """A column with arms that bend upwards."""
    pot = 0.22 * h
    _pot(s, rng, 0.32 * w, pot)
    s.material, r = "leaf", 0.13 * w
    s.lathe(0, 0, [(0, pot - 0.05), (0.8 * r, pot - 0.05), (r, 0.6 * h), (0.9 * r, 0.95 * h), (0.5 * r, h), (0, h)])
    for side in (-1, 1)[: rng.integer(1, 2)]:
        y, x = rng.uniform(0.42, 0.6) * h, side * 0.32 * w
        s.rod((0, y, 0), (x, y + 0.04, 0), 0.6 * r)
        s.rod((x, y, 0), (x, y + rng.uniform(0.15, 0.28) * h, 0), 0.6 * r, 0.5 * r)


@makes("plant")
def palm(s: Solids, rng: RandomStream, w: float, d: float, h: float) -> None:
    """A bare trunk with long fronds that hang from its top."""
    pot, crown = 0.2 * h, 0.68 * h
    _pot(s, rng, 0.22 * w, pot)
    s.material = "bark"
    s.rod((0, pot - 0.05, 0), (0.03, crown, 0.02), 0.03, 0.02)
    s.material, n, ring = "leaf", rng.integer(9, 13), circle(40)
    at = ring[rng.array(0, 40, n).astype(int)]
    rise = rng.array(0.5, 1.0, n)
    base = np.tile((0.03, crown - 0.01, 0.02), (n, 1))
    knee = np.stack([at[:, 0] * 0.28 * w, crown + rise * (h - crown), at[:, 1] * 0.28 * w], axis=1)
    tip = np.stack([at[:, 0] * w / 2, crown + (rise - 0.75) * (h - crown), at[:, 1] * w / 2], axis=1)
    s.leaves(base, knee, np.full(n, 0.07))
    s.leaves(knee, tip, np.full(n, 0.08))


@makes("plant")
def snake_plant(s: Solids, rng: RandomStream, w: float, d: float, h: float) -> None:
    """Stiff blades that stand upright."""
    pot = 0.3 * h
    _pot(s, rng, 0.3 * w, pot)
    s.material, n = "leaf", rng.integer(8, 14)
    base = np.stack([rng.array(-0.14, 0.14, n) * w, np.full(n, pot - 0.05), rng.array(-0.14, 0.14, n) * w], axis=1)
    tip = base * (2.2, 1.0, 2.2)
    tip[:, 1] = pot + rng.array(0.5, 1.0, n) * (h - pot)
    s.leaves(base, tip, np.full(n, 0.075), 0.01)


@makes("plant")
def topiary(s: Solids, rng: RandomStream, w: float, d: float, h: float) -> None:
    """One to three clipped balls on a stem."""
    pot, count = 0.2 * h, rng.integer(1, 3)
    _pot(s, rng, 0.3 * w, pot)
    s.material = "bark"
    s.rod((0, pot - 0.05, 0), (0, 0.9 * h, 0), 0.018)
    s.material, low = "leaf", pot + 0.12 * h
    for i in range(count):
        r = min((h - low) / count / 2, 0.46 * w) * (1.0 - 0.15 * i)
        decor.sphere(s, 0.0, low + (h - low) * (i + 0.5) / count, 0.0, r)


@makes("plant")
def rubber_plant(s: Solids, rng: RandomStream, w: float, d: float, h: float) -> None:
    """Several stems with large leaves along all of them."""
    pot = 0.25 * h
    _pot(s, rng, 0.28 * w, pot)
    ring = circle(40)
    for _ in range(rng.integer(2, 3)):
        x, z, top = rng.uniform(-0.2, 0.2) * w, rng.uniform(-0.2, 0.2) * w, rng.uniform(0.75, 0.95) * h
        s.material = "bark"
        s.rod((0.2 * x, pot - 0.05, 0.2 * z), (x, top, z), 0.012, 0.006)
        s.material, n = "leaf", rng.integer(7, 10)
        share = (np.arange(n) + 1.0) / n
        stem = np.array((0.2 * x, pot, 0.2 * z)) + share[:, None] * (np.array((x, top, z)) - (0.2 * x, pot, 0.2 * z))
        at = ring[rng.array(0, 40, n).astype(int)]
        tip = stem + np.stack([at[:, 0] * 0.25 * w, np.full(n, 0.06), at[:, 1] * 0.25 * w], axis=1)
        s.leaves(stem, tip, np.full(n, 0.12))


@makes("plant")
def bush(s: Solids, rng: RandomStream, w: float, d: float, h: float) -> None:
    """A dense round shrub that hides most of its pot."""
    pot = 0.3 * h
    _pot(s, rng, 0.34 * w, pot)
    s.material, n = "leaf", 60 * (1 + s.detail) // 2
    away = rng.array(-1.0, 1.0, n, 3)
    away /= np.maximum(np.abs(away).max(1), 0.2)[:, None]
    middle = np.array((0.0, pot + 0.5 * (h - pot), 0.0))
    half = np.array((0.4 * w, 0.42 * (h - pot), 0.4 * w))
    decor.sphere(s, 0.0, float(middle[1]), 0.0, float(min(half)) * 0.8)
    s.leaves(middle + away * half * 0.5, middle + away * half * rng.array(0.8, 1.0, n, 1), np.full(n, 0.07))


# Toilets


def _seat(s: Solids, z: float, open_lid: bool, back: float) -> None:
    """A seat at the height of 0.41 m, with its lid shut or up against the cistern."""
    s.material = "plastic"
    s.loft(0, z, [(0.185, 0.24, 0.17, 0.4), (0.185, 0.24, 0.17, 0.425)])
    if open_lid:
        s.cushion((-0.18, 0.42, back), (0.18, 0.82, back + 0.03), 0.014, (0.0, -0.02))


@makes("toilet")
def skirted_toilet(s: Solids, rng: RandomStream, w: float, d: float, h: float) -> None:
    """A toilet in one piece, closed down to the floor, with a low cistern."""
    s.material, back = "ceramic", -d / 2
    s.loft(0, 0.02, [(0.17, d / 2 - 0.04, 0.1, 0), (0.18, d / 2 - 0.02, 0.14, 0.4)])
    s.cushion((-0.19, 0.36, back), (0.19, h - 0.08, back + 0.17), 0.05)
    _seat(s, back + 0.42, rng.chance(0.4), back + 0.17)


@makes("toilet")
def wall_hung_toilet(s: Solids, rng: RandomStream, w: float, d: float, h: float) -> None:
    """A bowl that hangs on a low wall which hides the cistern."""
    s.material, back = "trim", -d / 2
    s.box((-w / 2, 0, back), (w / 2, 1.05, back + 0.16))
    s.material = "metal"
    s.box((-0.12, 0.85, back + 0.16), (0.12, 1.0, back + 0.17))
    s.material, z = "ceramic", back + 0.16 + 0.25
    s.loft(0, z, [(0.1, 0.18, 0.09, 0.12), (0.17, 0.24, 0.15, 0.26), (0.185, 0.25, 0.17, 0.4)])
    _seat(s, z, rng.chance(0.3), back + 0.17)


@makes("toilet")
def high_cistern_toilet(s: Solids, rng: RandomStream, w: float, d: float, h: float) -> None:
    """A bowl on a foot, with a pipe to a cistern high on the wall."""
    s.material, back = "ceramic", -d / 2
    z = back + 0.38
    s.loft(0, z, [(0.12, 0.18, 0.1, 0), (0.09, 0.14, 0.08, 0.15), (0.18, 0.24, 0.16, 0.38), (0.185, 0.25, 0.17, 0.4)])
    s.cushion((-0.24, 1.55, back), (0.24, 1.88, back + 0.2), 0.03)
    s.material = "metal"
    s.rod((0, 0.35, back + 0.1), (0, 1.56, back + 0.1), 0.02)
    s.rod((0.2, 1.0, back + 0.12), (0.2, 1.58, back + 0.12), 0.005)
    _seat(s, z, rng.chance(0.5), back + 0.13)


@makes("toilet")
def square_toilet(s: Solids, rng: RandomStream, w: float, d: float, h: float) -> None:
    """A toilet of straight boxes."""
    s.material, back = "ceramic", -d / 2
    s.box((-0.18, 0, back + 0.1), (0.18, 0.4, d / 2))
    s.box((-0.19, 0.38, back), (0.19, h, back + 0.16))
    s.box((-0.2, h, back), (0.2, h + 0.03, back + 0.17))
    s.material = "plastic"
    s.box((-0.185, 0.4, back + 0.18), (0.185, 0.435, d / 2 + 0.005))
    s.material = "metal"
    s.box((-0.05, h + 0.03, back + 0.06), (0.05, h + 0.04, back + 0.11))


@makes("toilet")
def valve_toilet(s: Solids, rng: RandomStream, w: float, d: float, h: float) -> None:
    """A bowl without a cistern, with a flush valve on a pipe, as in public buildings."""
    s.material, back = "ceramic", -d / 2
    z = back + 0.36
    s.loft(0, z, [(0.14, 0.24, 0.12, 0), (0.11, 0.2, 0.1, 0.12), (0.18, 0.26, 0.16, 0.36), (0.19, 0.27, 0.18, 0.4)])
    s.material = "metal"
    s.rod((0, 0.36, back + 0.06), (0, h, back + 0.06), 0.018)
    s.rod((-0.02, h - 0.04, back + 0.06), (0.12, h - 0.04, back + 0.06), 0.03, 0.018)
    _seat(s, z, rng.chance(0.3), back + 0.1)


# Televisions, on a board of width w and height h


@makes("tv_monitor")
def tube_tv(s: Solids, rng: RandomStream, w: float, d: float, h: float) -> None:
    """A deep set with a picture tube."""
    s.material, a = "black", min(0.4 * w, rng.uniform(0.28, 0.4))
    s.cushion((-a, h, -0.06), (a, h + 1.55 * a, 0.2), 0.03)
    s.loft(0, -0.1, [(0.6 * a, 0.14, 0.05, h + 0.06), (0.6 * a, 0.14, 0.05, h + 1.2 * a)])
    s.material = "screen"
    s.cushion((-0.84 * a, h + 0.32 * a, 0.19), (0.84 * a, h + 1.42 * a, 0.225), 0.03)


@makes("tv_monitor")
def footed_tv(s: Solids, rng: RandomStream, w: float, d: float, h: float) -> None:
    """A wide screen on two feet near its ends."""
    s.material, a = "screen", min(0.48 * w, rng.uniform(0.5, 0.75))
    s.box((-a, h + 0.07, -0.02), (a, h + 0.07 + 1.13 * a, 0.012))
    s.material = "black"
    s.box((-0.6 * a, h + 0.12, -0.05), (0.6 * a, h + 0.55 * a, -0.019))
    for x in (-0.75 * a, 0.75 * a):
        s.rod((x, h + 0.1, 0), (x - 0.02, h + 0.01, 0.13), 0.01)
        s.rod((x, h + 0.1, 0), (x - 0.02, h + 0.01, -0.13), 0.01)


@makes("tv_monitor")
def curved_tv(s: Solids, rng: RandomStream, w: float, d: float, h: float) -> None:
    """A screen that bends towards the viewer."""
    a, n = min(0.46 * w, rng.uniform(0.45, 0.7)), 9
    for i in range(n):
        x0, x1 = -a + 2 * a * i / n, -a + 2 * a * (i + 1) / n
        z = 0.09 * ((x0 + x1) / (2 * a)) ** 2 - 0.04
        s.material = "screen"
        s.box((x0, h + 0.08, z), (x1 + 0.002, h + 0.08 + 1.1 * a, z + 0.02))
    s.material = "black"
    s.box((-0.03, h + 0.01, -0.07), (0.03, h + 0.3, -0.041))
    s.box((-0.35 * a, h, -0.12), (0.35 * a, h + 0.015, 0.06))


@makes("tv_monitor")
def wall_tv(s: Solids, rng: RandomStream, w: float, d: float, h: float) -> None:
    """A flat screen on an arm from the wall, above the board, with a sound bar below it."""
    s.material, a, low = "screen", min(0.5 * w, rng.uniform(0.5, 0.8)), h + rng.uniform(0.25, 0.45)
    z = -d / 2 + 0.05
    s.box((-a, low, z), (a, low + 1.13 * a, z + 0.03))
    s.material = "black"
    s.box((-0.15, low + 0.3 * a, -d / 2), (0.15, low + 0.8 * a, z + 0.001))
    s.cushion((-0.6 * a, h, -0.08), (0.6 * a, h + 0.07, 0.02), 0.02)


@makes("tv_monitor")
def set_with_speakers(s: Solids, rng: RandomStream, w: float, d: float, h: float) -> None:
    """A screen between two loudspeakers."""
    s.material, a = "screen", min(0.34 * w, rng.uniform(0.32, 0.5))
    s.box((-a, h + 0.05, -0.03), (a, h + 0.05 + 1.2 * a, 0.02))
    s.material = "black"
    s.loft(0, 0, [(0.16, 0.1, 0.05, h), (0.16, 0.1, 0.05, h + 0.015)])
    s.box((-0.05, h, -0.05), (0.05, h + 0.3, -0.029))
    s.material = "wood"
    for x in (-a - 0.1, a + 0.1):
        s.box((x - 0.075, h, -0.1), (x + 0.075, h + 0.36, 0.08))


TELEVISIONS = (living.television, tube_tv, footed_tv, curved_tv, wall_tv, set_with_speakers)
"""Builders of televisions on a board."""
KINDS: dict[Piece, tuple[Piece, ...]] = HOUSEHOLD | {
    living.SOFA: (
        living.SOFA,
        Piece(chesterfield, (1.6, 2.4), (0.85, 1.0), (0.7, 0.82), front=0.6),
        Piece(futon_sofa, (1.6, 2.1), (0.85, 1.0), (0.75, 0.9), front=0.6),
        Piece(chaise_sofa, (2.1, 2.9), (1.45, 1.7), (0.72, 0.85), front=0.5),
        Piece(settee, (1.3, 1.9), (0.7, 0.8), (0.8, 0.98), front=0.6),
        Piece(block_sofa, (1.6, 2.8), (0.85, 1.0), (0.68, 0.8), front=0.6),
        Piece(tub_sofa, (1.35, 1.7), (0.75, 0.9), (0.72, 0.85), front=0.6),
    ),
    living.CHAIR: (
        living.CHAIR,
        Piece(windsor_chair, (0.42, 0.48), (0.44, 0.5), (0.9, 1.08), front=0.3),
        Piece(shell_chair, (0.44, 0.5), (0.46, 0.54), (0.78, 0.88), front=0.3),
        Piece(cantilever_chair, (0.44, 0.5), (0.48, 0.56), (0.8, 0.92), front=0.3),
        Piece(folding_chair, (0.4, 0.46), (0.44, 0.52), (0.78, 0.86), front=0.3),
        Piece(carver_chair, (0.52, 0.6), (0.5, 0.58), (0.85, 1.05), front=0.3),
    ),
    living.ARMCHAIR: (
        living.ARMCHAIR,
        Piece(wing_chair, (0.7, 0.82), (0.75, 0.85), (1.0, 1.2), front=0.5),
        Piece(rocking_chair, (0.56, 0.64), (0.85, 1.0), (1.0, 1.15), front=0.5),
        Piece(barrel_chair, (0.74, 0.86), (0.74, 0.86), (0.68, 0.8), front=0.5),
    ),
    living.OFFICE_CHAIR: (living.OFFICE_CHAIR, Piece(executive_chair, (0.66, 0.7), (0.64, 0.68), (1.1, 1.28))),
    living.DOUBLE_BED: (
        living.DOUBLE_BED,
        Piece(four_poster, (1.5, 1.9), (2.1, 2.25), (2.0, 2.0)),
        Piece(metal_bed, (1.4, 1.85), (2.05, 2.15), (0.95, 1.25)),
        Piece(divan, (1.4, 1.85), (2.0, 2.1), (0.7, 0.7)),
        Piece(sleigh_bed, (1.5, 1.85), (2.25, 2.4), (0.95, 1.2)),
        Piece(platform_bed, (1.6, 2.0), (2.1, 2.3), (0.55, 0.55)),
    ),
    living.SINGLE_BED: (
        living.SINGLE_BED,
        Piece(metal_bed, (0.9, 1.1), (2.0, 2.1), (0.9, 1.15)),
        Piece(divan, (0.9, 1.1), (2.0, 2.1), (0.7, 0.7)),
        Piece(bunk_bed, (0.95, 1.1), (2.05, 2.15), (1.65, 1.65)),
        Piece(sleigh_bed, (0.95, 1.1), (2.2, 2.3), (0.85, 1.05)),
        Piece(platform_bed, (1.1, 1.3), (2.1, 2.2), (0.55, 0.55)),
    ),
    decor.PLANT: (
        decor.PLANT,
        *(
            Piece(build, (0.4, 0.75), (0.4, 0.75), (0.6, 1.8))
            for build in (cactus, palm, snake_plant, topiary, rubber_plant, bush)
        ),
    ),
    kitchen.TOILET: (
        kitchen.TOILET,
        Piece(skirted_toilet, (0.44, 0.44), (0.66, 0.72), (0.72, 0.82), front=0.5),
        Piece(wall_hung_toilet, (0.5, 0.7), (0.66, 0.7), (1.05, 1.05), front=0.5),
        Piece(high_cistern_toilet, (0.48, 0.48), (0.66, 0.72), (1.88, 1.88), front=0.5),
        Piece(square_toilet, (0.44, 0.44), (0.62, 0.7), (0.76, 0.86), front=0.5),
        Piece(valve_toilet, (0.44, 0.44), (0.66, 0.7), (0.62, 0.8), front=0.5),
    ),
}
"""Constructions of each of our pieces, which are equally frequent."""


class MoreKinds:
    """Chooses among the constructions of each piece; models of a user's folder come first.

    Args:
        furniture: models that take places of our own pieces; None for none.
    """

    def __init__(self, furniture: Replacements | None = None) -> None:
        self._furniture = furniture

    def in_place_of(self, rng: RandomStream, piece: Piece) -> Piece:
        """A construction of the piece; the piece itself where there is one alone."""
        found = piece if self._furniture is None else self._furniture.in_place_of(rng, piece)
        if found is not piece:
            return found
        if piece is living.DINING_SET:
            board, seat = rng.pick((None, *BOARDS)), rng.pick(KINDS[living.CHAIR])
            build = functools.partial(living.dining_set, board=board, seat=seat)
            return Piece(build, piece.width, piece.depth, piece.height)
        if piece is living.DESK:
            build = functools.partial(living.desk, seat=rng.pick(KINDS[living.OFFICE_CHAIR]))
            return Piece(build, piece.width, piece.depth, piece.height, piece.front)
        if piece is living.TV_STAND:
            build = functools.partial(living.tv_stand, screen=rng.pick(TELEVISIONS))
            return Piece(build, piece.width, piece.depth, piece.height, piece.front)
        return rng.pick(KINDS[piece]) if piece in KINDS else piece

    def further(self, rng: RandomStream, area: float) -> list[Piece]:
        """Models of other categories, for the walls of a room of an area in square metres."""
        return [] if self._furniture is None else self._furniture.further(rng, area)
