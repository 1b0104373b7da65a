"""Beds."""

from __future__ import annotations

from batchnav.procedural.furniture.pieces.piece import Piece
from batchnav.procedural.furniture.pieces.seating import legs
from batchnav.procedural.random_stream import RandomStream
from batchnav.procedural.solids import Solids, makes


@makes("bed")
def bed(s: Solids, rng: RandomStream, w: float, d: float, h: float) -> None:
    """A bed, head to the wall, with headboard, mattress, pillows and a blanket."""
    base, top = rng.uniform(0.24, 0.34), rng.uniform(0.48, 0.58)
    head, foot = -d / 2, d / 2
    s.material = "wood"
    legs(s, rng, w - 0.06, d - 0.1, base - 0.12, 0.035)
    for x in (-w / 2, w / 2 - 0.03):
        s.box((x, base - 0.13, head + 0.04), (x + 0.03, base + 0.04, foot - 0.03))
    s.box((-w / 2, base - 0.13, foot - 0.03), (w / 2, base + rng.pick((0.05, 0.05, 0.3)), foot))
    s.box((-w / 2 + 0.03, base - 0.06, head + 0.05), (w / 2 - 0.03, base - 0.02, foot - 0.03))
    style = rng.integer(0, 2)
    if style == 0:
        s.material = "fabric"
        s.cushion((-w / 2 - 0.02, base - 0.1, head), (w / 2 + 0.02, h, head + 0.07), 0.034)
    elif style == 1:
        s.box((-w / 2, 0, head), (w / 2, h, head + 0.04))
    else:
        for x in (-w / 2 + 0.03, w / 2 - 0.03):
            s.lathe(x, head + 0.035, [(0, 0), (0.03, 0), (0.03, h), (0.04, h + 0.03), (0, h + 0.07)])
        for i in range(9):
            x = ((i + 0.5) / 9 - 0.5) * (w - 0.06)
            s.rod((x, base, head + 0.035), (x, h - 0.05, head + 0.035), 0.012)
        s.box((-w / 2 + 0.03, h - 0.09, head + 0.02), (w / 2 - 0.03, h - 0.03, head + 0.05))
    s.material = "linen"
    s.cushion((-w / 2 + 0.02, base - 0.02, head + 0.07), (w / 2 - 0.02, top, foot - 0.04), 0.06)
    count = 2 if w > 1.25 else 1
    for i in range(count):
        x = ((i + 0.5) / count - 0.5) * (w - 0.1)
        a = min(0.34, (w - 0.1) / count / 2 - 0.02)
        with s.object("cushion", "pillow"):
            s.material = "linen"
            s.cushion((x - a, top - 0.02, head + 0.12), (x + a, top + 0.11, head + 0.52), 0.064, (0.0, -0.03))
    fold = head + rng.uniform(0.55, 0.9)
    s.material = "blanket"
    s.cushion((-w / 2 - 0.015, base + 0.02, fold), (w / 2 + 0.015, top + 0.045, foot - 0.02), 0.07)
    s.material = "linen"
    s.cushion((-w / 2 - 0.02, top - 0.01, fold - 0.06), (w / 2 + 0.02, top + 0.075, fold + 0.26), 0.045)
    if rng.chance(0.5):
        z = foot - rng.uniform(0.35, 0.5)
        s.material = "fabric"
        s.cushion((-w / 2 - 0.025, base + 0.05, z - 0.25), (w / 2 + 0.025, top + 0.07, z + 0.25), 0.06)


DOUBLE_BED = Piece(bed, (1.4, 1.85), (2.05, 2.2), (0.85, 1.25))
SINGLE_BED = Piece(bed, (0.9, 1.1), (2.0, 2.15), (0.75, 1.1))
