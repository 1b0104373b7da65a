"""Furniture of shops, offices and halls: shelves with goods, counters, pillars, podiums, tables on thin legs."""

from __future__ import annotations

from batchnav.procedural.furniture.pieces import clutter
from batchnav.procedural.furniture.pieces.piece import Piece
from batchnav.procedural.random_stream import RandomStream
from batchnav.procedural.solids import Solids, makes


def _goods(s: Solids, rng: RandomStream, w: float, d: float, y: float, room: float) -> None:
    """A row of boxes on a board, with gaps."""
    x, s.material = -w / 2 + 0.02, "book"  # each box has its own colour
    while x < w / 2 - 0.1:
        width, tall = rng.uniform(0.08, 0.4), rng.uniform(0.3, 1.0) * room
        if rng.chance(0.8):
            s.box((x, y, -rng.uniform(0.6, 1.0) * d / 2), (min(x + width, w / 2), y + tall, 0.45 * d))
        x += width + 0.01


@makes("shelving")
def _shelf(s: Solids, rng: RandomStream, w: float, d: float, h: float) -> None:
    """An open shelf with goods, seen from both sides."""
    s.material = "wood"
    for x in (-w / 2, w / 2 - 0.03):
        s.box((x, 0, -d / 2), (x + 0.03, h, d / 2))
    if rng.chance(0.7):
        s.box((-w / 2, 0, -0.01), (w / 2, h, 0.01))
    levels = rng.integer(2, 4)
    for i in range(levels):
        y = 0.08 + i * (h - 0.1) / levels
        s.material = "wood"
        s.box((-w / 2, y - 0.02, -d / 2), (w / 2, y, d / 2))
        _goods(s, rng, w - 0.06, d, y, (h - 0.1) / levels - 0.04)


@makes("counter")
def _counter(s: Solids, rng: RandomStream, w: float, d: float, h: float) -> None:
    """A counter: a closed front under a top that stands out."""
    s.material = "front"
    s.box((-w / 2 + 0.03, 0, -d / 2 + 0.05), (w / 2 - 0.03, h - 0.04, d / 2 - 0.05))
    s.material = "worktop"
    s.box((-w / 2, h - 0.04, -d / 2), (w / 2, h, d / 2))
    clutter.scatter(s, rng, w - 0.1, d - 0.1, h, rng.integer(0, 4))


@makes("column")
def _pillar(s: Solids, rng: RandomStream, w: float, d: float, h: float) -> None:
    """A pillar, square or round."""
    s.material = "wall"
    if rng.chance(0.5):
        s.box((-w / 2, 0, -w / 2), (w / 2, h, w / 2))
    else:
        s.lathe(0, 0, [(0, 0), (w / 2, 0), (w / 2, h), (0, h)])


@makes("stairs")
def _podium(s: Solids, rng: RandomStream, w: float, d: float, h: float) -> None:
    """A low step that agents can climb."""
    s.material = "wood"
    s.box((-w / 2, 0, -d / 2), (w / 2, h, d / 2))


@makes("table")
def _legs(s: Solids, rng: RandomStream, w: float, d: float, h: float) -> None:
    """A board on four thin legs."""
    s.material = "metal"
    for x in (-w / 2 + 0.03, w / 2 - 0.03):
        for z in (-d / 2 + 0.03, d / 2 - 0.03):
            s.rod((x, 0, z), (x, h - 0.02, z), 0.015)
    s.material = "wood"
    s.box((-w / 2, h - 0.025, -d / 2), (w / 2, h, d / 2))


LOW_SHELF = Piece(_shelf, (0.9, 3.0), (0.4, 0.9), (0.76, 1.15))
TALL_SHELF = Piece(_shelf, (0.9, 3.0), (0.4, 0.9), (1.4, 2.1))
COUNTER = Piece(_counter, (0.9, 3.5), (0.5, 0.8), (0.85, 1.12))
THIN_TABLE = Piece(_legs, (0.7, 1.8), (0.6, 0.9), (0.7, 1.1))
PILLAR = Piece(_pillar, (0.25, 0.6), (0.25, 0.6), (2.2, 2.2))
PODIUM = Piece(_podium, (1.2, 3.0), (1.2, 3.0), (0.06, 0.18))


@makes("curtain")
def _curtain(s: Solids, rng: RandomStream, w: float, d: float, h: float) -> None:
    """A curtain on a rail between two posts, a little above the floor."""
    s.material = "metal"
    for x in (-w / 2 + 0.02, w / 2 - 0.02):
        s.rod((x, 0, 0), (x, h, 0), 0.02)
    s.rod((-w / 2, h, 0), (w / 2, h, 0), 0.015)
    s.material = "curtain"
    s.box((-w / 2 + 0.03, 0.15, -0.015), (w / 2 - 0.03, h - 0.03, 0.015))


@makes("wall")
def _partition(s: Solids, rng: RandomStream, w: float, d: float, h: float) -> None:
    """A light wall on two feet that stops below the ceiling."""
    s.material = "fabric"
    s.box((-w / 2, 0.05, -0.03), (w / 2, h, 0.03))
    s.material = "metal"
    for x in (-w / 2 + 0.05, w / 2 - 0.05):
        s.box((x - 0.03, 0, -d / 2), (x + 0.03, 0.05, d / 2))


@makes("chair")
def _bench(s: Solids, rng: RandomStream, w: float, d: float, h: float) -> None:
    """Seats in a row on one beam."""
    s.material = "metal"
    s.box((-w / 2, 0.36, -0.03), (w / 2, 0.4, 0.03))
    for x in (-w / 2 + 0.2, w / 2 - 0.2):
        s.box((x - 0.02, 0, -0.02), (x + 0.02, 0.38, 0.02))
        s.box((x - 0.02, 0, -d / 2 + 0.02), (x + 0.02, 0.03, d / 2 - 0.02))
    s.material = "plastic"
    seats = max(2, int(w / 0.55))
    for i in range(seats):
        low, high = -w / 2 + w * i / seats + 0.02, -w / 2 + w * (i + 1) / seats - 0.02
        s.box((low, 0.4, -d / 2 + 0.05), (high, 0.44, d / 2))
        s.box((low, 0.44, -d / 2), (high, h, -d / 2 + 0.04))


SCREEN_CURTAIN = Piece(_curtain, (1.2, 2.2), (0.1, 0.1), (1.7, 2.0))
PARTITION = Piece(_partition, (1.2, 2.4), (0.4, 0.4), (1.1, 1.8))
BENCH = Piece(_bench, (1.2, 2.6), (0.55, 0.6), (0.8, 0.95), front=0.6)
PUPILS_TABLE = Piece(_legs, (0.65, 1.4), (0.5, 0.6), (0.68, 0.76))
