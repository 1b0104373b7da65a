"""Further constructions of tables, lamps, shelves, chests, stools, wardrobes, sinks and bathtubs (`kinds.py`)."""

from __future__ import annotations

import functools
import itertools

from batchnav.procedural.furniture import decor, kitchen, living
from batchnav.procedural.furniture.placement import Build, Piece
from batchnav.procedural.random_stream import RandomStream
from batchnav.procedural.solids import Solids, makes

# Tables: boards for diners, in front of sofas and beside them


@makes("table")
def trestle_table(s: Solids, rng: RandomStream, w: float, d: float, h: float) -> None:
    """A board on two trestles."""
    s.material = "wood"
    s.box((-w / 2, h - 0.03, -d / 2), (w / 2, h, d / 2))
    for x in (-0.36 * w, 0.36 * w):
        for side in (-1, 1):
            s.rod((x, 0, side * 0.42 * d), (x, h - 0.03, side * 0.12 * d), 0.02)
        s.box((x - 0.02, 0.3 * h, -0.33 * d), (x + 0.02, 0.3 * h + 0.03, 0.33 * d))


@makes("table")
def column_table(s: Solids, rng: RandomStream, w: float, d: float, h: float) -> None:
    """A round or square board on a column with a cross of feet."""
    s.material, r = "wood", min(w, d) / 2
    if rng.chance(0.5):
        s.lathe(0, 0, [(0, h - 0.03), (r, h - 0.03), (r, h), (0, h)])
    else:
        s.loft(0, 0, [(w / 2, d / 2, 0.06, h - 0.03), (w / 2, d / 2, 0.06, h)])
    s.material = "steel"
    s.rod((0, 0.03, 0), (0, h - 0.03, 0), 0.035)
    s.box((-0.7 * r, 0, -0.03), (0.7 * r, 0.03, 0.03))
    s.box((-0.03, 0, -0.7 * r), (0.03, 0.03, 0.7 * r))


@makes("table")
def slab_table(s: Solids, rng: RandomStream, w: float, d: float, h: float) -> None:
    """A board that turns down to the floor at both ends."""
    s.material = "wood"
    s.box((-w / 2, h - 0.045, -d / 2), (w / 2, h, d / 2))
    for x in (-w / 2, w / 2 - 0.045):
        s.box((x, 0, -d / 2), (x + 0.045, h - 0.045, d / 2))


@makes("table")
def hairpin_table(s: Solids, rng: RandomStream, w: float, d: float, h: float) -> None:
    """A thick board on legs of bent rods."""
    s.material = "wood"
    s.loft(0, 0, [(w / 2, d / 2, 0.05, h - 0.04), (w / 2, d / 2, 0.05, h)])
    s.material = "black"
    for i, k in itertools.product((-1, 1), (-1, 1)):
        foot = (i * (w / 2 - 0.05), 0, k * (d / 2 - 0.05))
        s.rod(foot, (i * (w / 2 - 0.18), h - 0.03, k * (d / 2 - 0.05)), 0.008)
        s.rod(foot, (i * (w / 2 - 0.05), h - 0.03, k * (d / 2 - 0.16)), 0.008)


@makes("table")
def crossed_table(s: Solids, rng: RandomStream, w: float, d: float, h: float) -> None:
    """A glass board on crossed bars."""
    s.material = "glass"
    s.loft(0, 0, [(w / 2, d / 2, 0.04, h - 0.015), (w / 2, d / 2, 0.04, h)])
    s.material = rng.pick(("metal", "steel", "wood"))
    for z in (-0.36 * d, 0.36 * d):
        for side in (-1, 1):
            s.rod((side * 0.4 * w, 0, z), (-side * 0.4 * w, h - 0.015, z), 0.02)
    s.rod((0, h / 2, -0.36 * d), (0, h / 2, 0.36 * d), 0.015)


BOARDS: tuple[Build, ...] = (trestle_table, column_table, slab_table, hairpin_table, crossed_table)
"""Builders of tables, of any size."""


def _laid(board: Build, s: Solids, rng: RandomStream, w: float, d: float, h: float) -> None:
    """A low table with things on it."""
    board(s, rng, w, d, h)
    decor.scatter(s, rng, 0.8 * w, 0.8 * d, h, rng.integer(1, 4))


# Lamps that stand on the floor


@makes("lighting")
def arc_lamp(s: Solids, rng: RandomStream, w: float, d: float, h: float) -> None:
    """A lamp that hangs from a bent rod."""
    s.material, reach = "steel", w / 2 - 0.12
    s.lathe(-reach, 0, [(0, 0), (0.13, 0), (0.13, 0.03), (0, 0.03)])
    path = [
        (-reach, 0.03, 0),
        (-reach, 0.75 * h, 0),
        (-0.6 * reach, 0.94 * h, 0),
        (0, h, 0),
        (0.7 * reach, 0.93 * h, 0),
    ]
    path.append((reach, 0.84 * h, 0))
    for a, b in itertools.pairwise(path):
        s.rod(a, b, 0.012)
    s.material, top = "shade", 0.85 * h
    s.lathe(reach, 0, [(0.12, top - 0.14), (0.05, top), (0.045, top), (0.115, top - 0.14)], loop=True)


@makes("lighting")
def tripod_lamp(s: Solids, rng: RandomStream, w: float, d: float, h: float) -> None:
    """A wide shade on three legs."""
    s.material, top = "wood", h - 0.32
    for x, z in ((0.0, 0.95), (0.82, -0.5), (-0.82, -0.5)):
        s.rod((x * w / 2, 0, z * d / 2), (0.05 * x, top, 0.05 * z), 0.014)
    s.material, r = "shade", 0.48 * w
    s.lathe(0, 0, [(r, top), (0.85 * r, h), (0.84 * r, h), (0.98 * r, top)], loop=True)


@makes("lighting")
def torchiere(s: Solids, rng: RandomStream, w: float, d: float, h: float) -> None:
    """A rod with a bowl that shines upwards, sometimes with a reading light."""
    s.material, r = "steel", w / 2
    s.lathe(0, 0, [(0, 0), (0.7 * r, 0), (0.7 * r, 0.025), (0.014, 0.03), (0.014, h - 0.12), (0, h - 0.12)])
    s.material = "shade"
    s.lathe(0, 0, [(0, h - 0.13), (0.3 * r, h - 0.12), (r, h), (0.97 * r, h), (0.28 * r, h - 0.1), (0, h - 0.11)])
    if rng.chance(0.5):
        s.rod((0, 0.65 * h, 0), (0.6 * r, 0.72 * h, 0), 0.009)
        s.rod((0.6 * r, 0.73 * h, 0), (0.85 * r, 0.67 * h, 0), 0.02, 0.04)


@makes("lighting")
def paper_lamp(s: Solids, rng: RandomStream, w: float, d: float, h: float) -> None:
    """A tall column of paper, round or square."""
    s.material, r = "lamp", 0.42 * w
    if rng.chance(0.5):
        s.loft(0, 0, [(r, r, 0.01, 0.04), (r, r, 0.01, h)])
    else:
        s.lathe(
            0, 0, [(0, 0.04), (0.7 * r, 0.04), (r, 0.3 * h), (0.6 * r, 0.55 * h), (r, 0.8 * h), (0.7 * r, h), (0, h)]
        )
    s.material = "wood"
    s.box((-r, 0, -r), (r, 0.04, r))


@makes("lighting")
def globe_lamp(s: Solids, rng: RandomStream, w: float, d: float, h: float) -> None:
    """One to three globes on a rod."""
    s.material, count = "steel", rng.integer(1, 3)
    s.lathe(0, 0, [(0, 0), (0.35 * w, 0), (0.35 * w, 0.02), (0.012, 0.025), (0.012, h - 0.1), (0, h - 0.1)])
    for i in range(count):
        x, y = (0.0, h - 0.12) if i == 0 else ((1, -1)[i - 1] * 0.25 * w, h - 0.15 - 0.28 * i)
        s.material = "steel"
        s.rod((0, y, 0), (x, y + 0.001, 0.001), 0.008)
        s.material = "lamp"
        decor.sphere(s, x, y, 0.0, 0.12 if i == 0 else 0.1)


# Shelves


def _books(s: Solids, rng: RandomStream, w: float, d: float, y: float, room: float) -> None:
    """A row of books over a part of a board at height y."""
    if rng.chance(0.75):
        x = rng.uniform(-0.2, 0.5) * w
        decor.book_row(s, rng, -w / 2, x, y, -d / 2, d / 2 - 0.02, room)


@makes("shelving")
def ladder_shelf(s: Solids, rng: RandomStream, w: float, d: float, h: float) -> None:
    """Boards between two leaning rails, deeper towards the floor."""
    s.material, back = "wood", -d / 2
    for x in (-w / 2, w / 2 - 0.025):
        s.box((x, 0, d / 2 - 0.04), (x + 0.025, h, d / 2), (0.0, 0.04 - d))
        s.box((x, 0, back), (x + 0.025, h, back + 0.03))
    for i in range(4):
        y = 0.12 + i * (h - 0.3) / 3.5
        front = d / 2 - (d - 0.04) * y / h
        s.material = "wood"
        s.box((-w / 2, y, back), (w / 2, y + 0.02, front))
        if front - back > 0.18 and rng.chance(0.7):
            decor.book_row(s, rng, -w / 2 + 0.03, rng.uniform(-0.2, 0.4) * w, y + 0.02, back + 0.03, front - 0.02, 0.26)


@makes("shelving")
def cube_shelf(s: Solids, rng: RandomStream, w: float, d: float, h: float) -> None:
    """A grid of square cells, some with baskets."""
    columns, rows = max(2, round(w / 0.38)), max(2, round(h / 0.38))
    s.material, a, b = "wood", w / columns, h / rows
    for i in range(columns + 1):
        x = -w / 2 + i * (w - 0.02) / columns
        s.box((x, 0, -d / 2), (x + 0.02, h, d / 2))
    for k in range(rows + 1):
        y = k * (h - 0.02) / rows
        s.box((-w / 2, y, -d / 2), (w / 2, y + 0.02, d / 2))
    for i, k in itertools.product(range(columns), range(rows)):
        x, y, what = -w / 2 + (i + 0.5) * a, 0.02 + k * (h - 0.02) / rows, rng.uniform(0.0, 1.0)
        if what < 0.35:
            s.material = "wicker"
            s.box((x - 0.42 * a, y, -0.45 * d), (x + 0.42 * a, y + 0.75 * b, 0.46 * d))
        elif what < 0.7:
            decor.book_row(s, rng, x - 0.44 * a, x + 0.3 * a, y, -d / 2 + 0.02, d / 2 - 0.03, b - 0.06)


@makes("shelving")
def wire_rack(s: Solids, rng: RandomStream, w: float, d: float, h: float) -> None:
    """Wire shelves on four posts, open on all sides, with boxes."""
    s.material = "metal"
    for i, k in itertools.product((-1, 1), (-1, 1)):
        s.rod((i * (w / 2 - 0.015), 0, k * (d / 2 - 0.015)), (i * (w / 2 - 0.015), h, k * (d / 2 - 0.015)), 0.013)
    for n in range(4):
        y = 0.12 + n * (h - 0.16) / 3
        s.material = "metal"
        for z in (-d / 2 + 0.015, 0.0, d / 2 - 0.015):
            s.rod((-w / 2 + 0.01, y, z), (w / 2 - 0.01, y, z), 0.008)
        for i in range(6):
            x = -w / 2 + 0.02 + i * (w - 0.04) / 5
            s.rod((x, y, -d / 2 + 0.01), (x, y + 0.001, d / 2 - 0.01), 0.006)
        if n < 3 and rng.chance(0.8):
            s.material, x = "carton", rng.uniform(-0.2, 0.2) * w
            s.box((x - 0.2 * w, y + 0.01, -0.35 * d), (x + 0.2 * w, y + rng.uniform(0.12, 0.26), 0.35 * d))


@makes("shelving")
def etagere(s: Solids, rng: RandomStream, w: float, d: float, h: float) -> None:
    """Thin boards that stand apart, alternating from side to side, without a back."""
    s.material, levels = "wood", max(4, round(h / 0.36))
    for k in range(levels + 1):
        y = k * (h - 0.03) / levels
        s.box((-w / 2, y, -d / 2), (w / 2, y + 0.03, d / 2))
        if k < levels:
            x = (-0.48, 0.3)[k % 2] * w
            s.box((x, y + 0.03, -d / 2), (x + 0.18 * w, y + (h - 0.03) / levels, -d / 2 + 0.8 * d))
            s.material = "wood"
    for k in range(levels):
        _books(s, rng, 0.5 * w, d, k * (h - 0.03) / levels + 0.03, (h - 0.03) / levels - 0.05)


@makes("shelving")
def glazed_bookcase(s: Solids, rng: RandomStream, w: float, d: float, h: float) -> None:
    """Shelves above doors, with a cornice."""
    s.material, low, back = "wood", 0.36 * h, -d / 2
    s.box((-w / 2, 0.05, back), (w / 2, low, d / 2 - 0.045))
    living.fronts(s, rng, w - 0.02, 0.06, low - 0.01, d / 2 - 0.045, 0, max(2, round(w / 0.45)))
    s.material = "wood"
    for x in (-w / 2, -0.01, w / 2 - 0.02):
        s.box((x, low, back), (x + 0.02, h - 0.06, 0.3 * d))
    s.box((-w / 2, low, back), (w / 2, h - 0.06, back + 0.015))
    s.box((-w / 2 - 0.01, h - 0.06, back), (w / 2 + 0.01, h, 0.34 * d))
    for k in range(3):
        y = low + k * (h - 0.06 - low) / 3
        s.material = "wood"
        s.box((-w / 2, y, back), (w / 2, y + 0.02, 0.28 * d))
        decor.book_row(s, rng, -w / 2 + 0.03, rng.uniform(-0.1, 0.45) * w, y + 0.02, back + 0.02, 0.26 * d, 0.3)


# Chests, stools, wardrobes


@makes("chest_of_drawers")
def tallboy(s: Solids, rng: RandomStream, w: float, d: float, h: float) -> None:
    """A narrow tall chest with many drawers on short legs."""
    s.material, face = "wood", d / 2 - 0.045
    living.legs(s, rng, w, d - 0.06, 0.12, 0.025)
    s.box((-w / 2, 0.12, -d / 2), (w / 2, h, face))
    living.fronts(s, rng, w - 0.02, 0.13, h - 0.02, face, rng.integer(5, 6), 1)
    decor.scatter(s, rng, w - 0.1, d - 0.15, h, rng.integer(0, 2))


@makes("chest_of_drawers")
def sideboard(s: Solids, rng: RandomStream, w: float, d: float, h: float) -> None:
    """A long low body on thin splayed legs: drawers in the middle, doors beside them."""
    s.material, face, low = "wood", d / 2 - 0.045, 0.28 * h
    for i, k in itertools.product((-1, 1), (-1, 1)):
        s.rod((i * (w / 2 - 0.06), 0, k * (d / 2 - 0.06)), (i * (w / 2 - 0.14), low, k * (d / 2 - 0.12)), 0.012, 0.02)
    s.box((-w / 2, low, -d / 2), (w / 2, h, face))
    for x, drawers in ((-w / 3, 0), (0.0, 3), (w / 3, 0)):
        one = Solids(s.detail)
        one.material = "wood"
        living.fronts(one, rng, w / 3 - 0.02, low + 0.02, h - 0.02, face, drawers, 1)
        s.place(one, x, 0.0)
    decor.scatter(s, rng, w - 0.1, d - 0.15, h, rng.integer(1, 3))


@makes("chest_of_drawers")
def trunk(s: Solids, rng: RandomStream, w: float, d: float, h: float) -> None:
    """A blanket chest with a domed lid and bands of metal."""
    s.material, low = "wood", 0.68 * h
    s.box((-w / 2, 0.03, -d / 2), (w / 2, low, d / 2))
    for k in range(4):
        y, half = low + k * (h - low) / 4, d / 2 - 0.03 * k * k / 2
        s.box((-w / 2, y, -half), (w / 2, y + (h - low) / 4, half))
    s.material = "steel"
    for x in (-0.32 * w, 0.28 * w):
        s.box((x, 0.02, d / 2), (x + 0.04, low, d / 2 + 0.008))
    s.box((-0.04, low - 0.08, d / 2), (0.04, low + 0.03, d / 2 + 0.015))


@makes("chest_of_drawers")
def glass_cabinet(s: Solids, rng: RandomStream, w: float, d: float, h: float) -> None:
    """A frame with panes, and crockery on its boards."""
    s.material = "wood"
    for i, k in itertools.product((-1, 1), (-1, 1)):
        x, z = i * (w / 2 - 0.02), k * (d / 2 - 0.02)
        s.box((x - 0.02, 0, z - 0.02), (x + 0.02, h, z + 0.02))
    for y in (0.08, 0.5 * h, h - 0.03):
        s.box((-w / 2, y, -d / 2), (w / 2, y + 0.025, d / 2))
    s.box((-w / 2, 0.08, -d / 2), (w / 2, h, -d / 2 + 0.012))
    for y in (0.105, 0.5 * h + 0.025):
        decor.scatter(s, rng, 0.9 * w, 0.25, y, rng.integer(1, 3), (decor.bowl, decor.vase, decor.cup))
    s.material = "glass"
    for x in (-w / 2 + 0.005, w / 2 - 0.01):
        s.box((x, 0.1, -d / 2 + 0.04), (x + 0.005, h - 0.03, d / 2 - 0.04))


@makes("chest_of_drawers")
def open_cabinet(s: Solids, rng: RandomStream, w: float, d: float, h: float) -> None:
    """Drawers on one side, an open board on the other."""
    s.material, face = "wood", d / 2 - 0.045
    s.box((-w / 2, h - 0.03, -d / 2), (w / 2, h, face))
    s.box((-w / 2, 0.04, -d / 2), (w / 2, 0.07, face))
    s.box((w / 2 - 0.025, 0, -d / 2), (w / 2, h - 0.03, face))
    s.box((0, 0.4 * h, -d / 2), (w / 2, 0.4 * h + 0.02, face))
    s.box((-w / 2, 0, -d / 2), (0.0, h - 0.03, face))
    one = Solids(s.detail)
    one.material = "front"
    living.fronts(one, rng, w / 2 - 0.02, 0.08, h - 0.04, face, 3, 1)
    s.place(one, -w / 4, 0.0)


@makes("stool")
def milking_stool(s: Solids, rng: RandomStream, w: float, d: float, h: float) -> None:
    """A thick round seat on three splayed legs."""
    s.material, r = "wood", min(w, d) / 2
    for x, z in ((0.0, 0.95), (0.82, -0.5), (-0.82, -0.5)):
        s.rod((x * r, 0, z * r), (0.5 * x * r, h - 0.04, 0.5 * z * r), 0.014, 0.02)
    s.lathe(0, 0, [(0, h - 0.05), (0.9 * r, h - 0.05), (0.95 * r, h), (0, h)])


@makes("stool")
def folding_stool(s: Solids, rng: RandomStream, w: float, d: float, h: float) -> None:
    """Cloth between crossed legs."""
    s.material = "wood"
    for z in (-d / 2 + 0.02, d / 2 - 0.02):
        for side in (-1, 1):
            s.rod((side * (w / 2 - 0.02), 0, z), (-side * (w / 2 - 0.02), h - 0.02, z), 0.014)
    s.material = "fabric"
    s.box((-w / 2 + 0.01, h - 0.03, -d / 2), (w / 2 - 0.01, h - 0.01, d / 2))


@makes("stool")
def cube_stool(s: Solids, rng: RandomStream, w: float, d: float, h: float) -> None:
    """A padded cube."""
    s.material = rng.pick(("fabric", "wicker"))
    s.cushion((-w / 2, 0.01, -d / 2), (w / 2, h - 0.05, d / 2), 0.03)
    s.material = "fabric"
    s.cushion((-w / 2, h - 0.07, -d / 2), (w / 2, h, d / 2), 0.03)


@makes("stool")
def step_stool(s: Solids, rng: RandomStream, w: float, d: float, h: float) -> None:
    """A stool with a step in front."""
    s.material = "wood"
    for x in (-w / 2, w / 2 - 0.025):
        s.box((x, 0, -d / 2), (x + 0.025, h - 0.03, 0.0))
        s.box((x, 0, 0.0), (x + 0.025, h / 2 - 0.02, d / 2))
    s.box((-w / 2, h - 0.03, -d / 2), (w / 2, h, 0.03))
    s.box((-w / 2, h / 2 - 0.02, 0.0), (w / 2, h / 2, d / 2))


@makes("stool")
def padded_bench(s: Solids, rng: RandomStream, w: float, d: float, h: float) -> None:
    """A cushion on a low frame with four legs."""
    s.material = "wood"
    living.legs(s, rng, w, d, h - 0.12, 0.025)
    s.box((-w / 2, h - 0.14, -d / 2), (w / 2, h - 0.09, d / 2))
    s.material = "fabric"
    s.cushion((-w / 2, h - 0.1, -d / 2), (w / 2, h, d / 2), 0.04)


@makes("wardrobe")
def armoire(s: Solids, rng: RandomStream, w: float, d: float, h: float) -> None:
    """A wardrobe with two doors, drawers below, feet and a cornice."""
    s.material, face = "wood", d / 2 - 0.06
    living.legs(s, rng, w - 0.04, d - 0.1, 0.14, 0.035)
    s.box((-w / 2 + 0.02, 0.14, -d / 2), (w / 2 - 0.02, h - 0.08, face))
    s.loft(0, -0.02, [(w / 2 - 0.03, d / 2 - 0.04, 0.02, h - 0.08), (w / 2, d / 2 - 0.02, 0.02, h)])
    living.fronts(s, rng, w - 0.06, 0.16, 0.42, face, 1, 2)
    s.material = "wood"
    living.fronts(s, rng, w - 0.06, 0.44, h - 0.1, face, 0, 2)


@makes("wardrobe")
def open_wardrobe(s: Solids, rng: RandomStream, w: float, d: float, h: float) -> None:
    """A frame of tubes with hanging clothes and a shelf for shoes."""
    s.material = rng.pick(("steel", "black", "wood"))
    for x in (-w / 2 + 0.03, w / 2 - 0.03):
        for z in (-d / 2 + 0.03, d / 2 - 0.03):
            s.rod((x, 0, z), (x, h - 0.02, 0.3 * z), 0.016)
    s.rod((-w / 2 + 0.03, h - 0.03, 0), (w / 2 - 0.03, h - 0.03, 0), 0.016)
    s.box((-w / 2 + 0.03, 0.16, -d / 2 + 0.03), (w / 2 - 0.03, 0.18, d / 2 - 0.03))
    for i in range(max(4, round(w / 0.12))):
        x = -w / 2 + 0.12 + i * (w - 0.24) / max(3, round(w / 0.12) - 1)
        low = h - rng.uniform(0.75, 1.3)
        with s.object("clothes"):
            s.material = "fabric"
            s.loft(x, 0, [(0.035, 0.2, 0.03, low), (0.03, 0.18, 0.03, h - 0.25), (0.012, 0.04, 0.01, h - 0.06)])


@makes("wardrobe")
def sliding_wardrobe(s: Solids, rng: RandomStream, w: float, d: float, h: float) -> None:
    """A wardrobe with two sliding panels, one of them a mirror."""
    s.material, face = "front", d / 2 - 0.05
    s.box((-w / 2, 0, -d / 2), (w / 2, h, face))
    s.box((-w / 2, 0.04, face), (0.03, h - 0.04, face + 0.02))
    s.material = "mirror"
    s.box((-0.03, 0.04, face + 0.02), (w / 2, h - 0.04, face + 0.04))
    s.material = "metal"
    for y in (0.0, h - 0.04):
        s.box((-w / 2, y, face), (w / 2, y + 0.04, face + 0.05))


@makes("wardrobe")
def curtained_wardrobe(s: Solids, rng: RandomStream, w: float, d: float, h: float) -> None:
    """A closet with a curtain for a door."""
    s.material = "wood"
    for x in (-w / 2, w / 2 - 0.025):
        s.box((x, 0, -d / 2), (x + 0.025, h, d / 2 - 0.05))
    for y in (0.04, h - 0.03):
        s.box((-w / 2, y, -d / 2), (w / 2, y + 0.03, d / 2 - 0.05))
    s.box((-w / 2, 0, -d / 2), (w / 2, h, -d / 2 + 0.012))
    s.material, folds = "curtain", round(w / 0.09)
    for i in range(folds):
        x = -w / 2 + (i + 0.5) * w / folds
        s.rod((x, 0.07, d / 2 - 0.06), (x, h - 0.05, d / 2 - 0.06), 0.45 * w / folds)


@makes("wardrobe")
def combined_wardrobe(s: Solids, rng: RandomStream, w: float, d: float, h: float) -> None:
    """A tall door beside drawers with open boards above."""
    s.material, face, x = "wood", d / 2 - 0.05, -0.05 * w
    s.box((-w / 2, 0, -d / 2), (x, h, face))
    s.box((x, 0, -d / 2), (w / 2, 0.42 * h, face))
    s.box((w / 2 - 0.025, 0.42 * h, -d / 2), (w / 2, h, face))
    s.box((x, 0.42 * h, -d / 2), (w / 2, h, -d / 2 + 0.012))
    for y in (0.62 * h, 0.81 * h, h - 0.025):
        s.box((x, y, -d / 2), (w / 2, y + 0.025, face))
    for middle, width, low, high, drawers in (
        ((x - w / 2) / 2, x + w / 2, 0.04, h - 0.02, 0), ((x + w / 2) / 2, w / 2 - x, 0.04, 0.42 * h, 3),
    ):  # fmt: skip
        one = Solids(s.detail)
        one.material = "front"
        living.fronts(one, rng, width - 0.02, low, high, face, drawers, 1)
        s.place(one, middle, 0.0)


# Sinks and bathtubs


def _bowl(s: Solids, x: float, z: float, a: float, b: float, y: float, h: float) -> None:
    """A wash-basin's bowl on a surface at height y."""
    s.material = "ceramic"
    outer = [(0.7 * a, 0.7 * b, 0.08, y), (a, b, 0.12, y + h)]
    s.loft(x, z, [*outer, (0.92 * a, 0.9 * b, 0.11, y + h), (0.6 * a, 0.6 * b, 0.08, y + 0.02)])


@makes("sink")
def washstand(s: Solids, rng: RandomStream, w: float, d: float, h: float) -> None:
    """A bowl on a table with a towel bar."""
    s.material, top = "wood", 0.74
    living.legs(s, rng, w, d, top - 0.04, 0.022)
    s.box((-w / 2, top - 0.04, -d / 2), (w / 2, top, d / 2))
    s.box((-w / 2 + 0.03, 0.2, -d / 2 + 0.03), (w / 2 - 0.03, 0.22, d / 2 - 0.03))
    _bowl(s, 0, 0.02, min(0.22, 0.42 * w), 0.36 * d, top, 0.14)
    kitchen.tap(s, 0.0, -d / 2 + 0.04, top, 0.24)


@makes("sink")
def trough_sink(s: Solids, rng: RandomStream, w: float, d: float, h: float) -> None:
    """A rectangular trough on two brackets with its trap below."""
    s.material, top, b = "ceramic", 0.86, d / 2
    walls = [(-w / 2, -w / 2 + 0.04, -b, b), (w / 2 - 0.04, w / 2, -b, b)]
    walls += [(-w / 2, w / 2, -b, -b + 0.08), (-w / 2, w / 2, b - 0.04, b)]
    s.box((-w / 2, top - 0.2, -b), (w / 2, top - 0.14, b))
    for x0, x1, z0, z1 in walls:
        s.box((x0, top - 0.14, z0), (x1, top, z1))
    s.material = "metal"
    s.rod((0, top - 0.45, 0), (0, top - 0.2, 0), 0.025)
    s.rod((0, top - 0.44, 0), (0, top - 0.44, -b), 0.02)
    for x in (-0.42 * w, 0.42 * w):
        s.box((x - 0.015, 0, b - 0.05), (x + 0.015, top - 0.2, b - 0.02))
    kitchen.tap(s, 0.0, -b + 0.03, top, 0.12)


@makes("sink")
def column_sink(s: Solids, rng: RandomStream, w: float, d: float, h: float) -> None:
    """A basin and its foot in one tapered column."""
    s.material, r, top = "ceramic", min(w, d) / 2, 0.86
    outside = [(0, 0), (0.62 * r, 0), (0.55 * r, 0.4), (0.95 * r, top - 0.02), (r, top)]
    s.lathe(0, 0, [*outside, (0.88 * r, top), (0.5 * r, top - 0.14), (0, top - 0.16)])
    kitchen.tap(s, 0.0, -0.8 * r, top - 0.02, 0.2)


@makes("sink")
def slab_sink(s: Solids, rng: RandomStream, w: float, d: float, h: float) -> None:
    """A thick slab on the wall with a bowl on it, a drawer below, and a mirror."""
    s.material = "wood"
    s.box((-w / 2, 0.7, -d / 2), (w / 2, 0.78, d / 2))
    s.material = "front"
    s.box((-w / 2 + 0.02, 0.42, -d / 2), (w / 2 - 0.02, 0.7, d / 2 - 0.06))
    s.box((-w / 2 + 0.02, 0.0, -d / 2), (-w / 2 + 0.06, 0.42, -d / 2 + 0.1))
    s.box((w / 2 - 0.06, 0.0, -d / 2), (w / 2 - 0.02, 0.42, -d / 2 + 0.1))
    _bowl(s, 0, 0.02, min(0.2, 0.4 * w), 0.34 * d, 0.78, 0.13)
    kitchen.tap(s, 0.0, -d / 2 + 0.04, 0.78, 0.22)
    if h > 1.5:
        s.material = "mirror"
        s.rod((0, 1.45, -d / 2), (0, 1.45, -d / 2 + 0.02), min(0.32, 0.45 * w))


@makes("sink")
def sink_with_shelf(s: Solids, rng: RandomStream, w: float, d: float, h: float) -> None:
    """A basin in a metal frame with towels on its lower board."""
    s.material = "metal"
    for i, k in itertools.product((-1, 1), (-1, 1)):
        s.rod((i * (w / 2 - 0.03), 0, k * (d / 2 - 0.03)), (i * (w / 2 - 0.03), 0.8, k * (d / 2 - 0.03)), 0.012)
    s.box((-w / 2 + 0.02, 0.25, -d / 2 + 0.02), (w / 2 - 0.02, 0.265, d / 2 - 0.02))
    s.material = "linen"
    for i in range(3):
        s.cushion((-0.3 * w, 0.265 + 0.06 * i, -0.3 * d), (0.3 * w, 0.325 + 0.06 * i, 0.3 * d), 0.02)
    s.material = "ceramic"
    outer = [(w / 2 - 0.03, d / 2 - 0.03, 0.05, 0.72), (w / 2, d / 2, 0.06, 0.85)]
    s.loft(0, 0, [*outer, (w / 2 - 0.04, d / 2 - 0.06, 0.08, 0.85), (w / 2 - 0.1, d / 2 - 0.1, 0.08, 0.75)])
    kitchen.tap(s, 0.0, -d / 2 + 0.03, 0.84, 0.12)


def _tub(s: Solids, w: float, d: float, low: float, h: float, corner: float, taper: float) -> None:
    """A tub with a hollow, from height `low`; `taper` is by how much it is narrower below."""
    s.material, a, b = "ceramic", w / 2, d / 2
    outer = [(a - taper, b - taper, 0.8 * corner, low), (a - 0.02, b - 0.02, corner, h - 0.04), (a, b, corner, h)]
    inner = [(a - 0.07, b - 0.07, 0.9 * corner, h), (a - 0.1 - taper, b - 0.1 - 0.6 * taper, 0.7 * corner, low + 0.1)]
    s.loft(0, 0, [*outer, *inner])


@makes("bathtub")
def clawfoot_tub(s: Solids, rng: RandomStream, w: float, d: float, h: float) -> None:
    """An oval tub on four feet with a free-standing tap."""
    _tub(s, w, d, 0.14, h, 0.34, 0.12)
    s.material = "metal"
    for i, k in itertools.product((-1, 1), (-1, 1)):
        s.rod((i * 0.33 * w, 0, k * 0.34 * d), (i * 0.3 * w, 0.2, k * 0.26 * d), 0.02, 0.04)
    s.rod((-0.2 * w, 0, -d / 2 + 0.02), (-0.2 * w, h + 0.18, -d / 2 + 0.02), 0.014)
    s.rod((-0.2 * w, h + 0.17, -d / 2 + 0.02), (-0.2 * w, h + 0.15, -d / 2 + 0.18), 0.014)


@makes("bathtub")
def oval_tub(s: Solids, rng: RandomStream, w: float, d: float, h: float) -> None:
    """A smooth oval tub that stands on the floor."""
    _tub(s, w, d, 0.0, h, 0.36, 0.08)
    kitchen.tap(s, 0.0, -d / 2 + 0.03, h - 0.02, 0.14)


@makes("bathtub")
def panelled_tub(s: Solids, rng: RandomStream, w: float, d: float, h: float) -> None:
    """A tub set into a wooden box with a wide rim."""
    _tub(s, w - 0.16, d - 0.16, 0.1, h, 0.16, 0.03)
    s.material = "wood"
    s.box((-w / 2, 0, d / 2 - 0.02), (w / 2, h - 0.02, d / 2))
    for x in (-w / 2, w / 2 - 0.02):
        s.box((x, 0, -d / 2), (x + 0.02, h - 0.02, d / 2))
    for z0, z1 in ((-d / 2, -d / 2 + 0.09), (d / 2 - 0.09, d / 2)):
        s.box((-w / 2, h - 0.03, z0), (w / 2, h, z1))
    for x0, x1 in ((-w / 2, -w / 2 + 0.09), (w / 2 - 0.09, w / 2)):
        s.box((x0, h - 0.03, -d / 2), (x1, h, d / 2))
    kitchen.tap(s, -0.3 * w, -d / 2 + 0.03, h, 0.12)


@makes("bathtub")
def slipper_tub(s: Solids, rng: RandomStream, w: float, d: float, h: float) -> None:
    """A tub with one end raised for the head."""
    _tub(s, w, d, 0.0, 0.82 * h, 0.34, 0.06)
    s.material, side = "ceramic", rng.pick((-1, 1))
    for i in range(5):
        x = side * (w / 2 - 0.06 - 0.07 * i)
        half = (0.24, 0.31, 0.35, 0.37, 0.37)[i] * d / 0.8
        for z in (-half, half):
            s.box((x - 0.036, 0.7 * h, z - 0.03), (x + 0.036, (1.12 - 0.06 * i) * h, z + 0.03))
    x = side * (w / 2 - 0.05)
    s.box((x - 0.035, 0.7 * h, -0.24 * d / 0.8), (x + 0.035, 1.14 * h, 0.24 * d / 0.8))


@makes("bathtub")
def shower_tub(s: Solids, rng: RandomStream, w: float, d: float, top: float) -> None:
    """A built-in tub with a pane and a shower above one end."""
    s.material, a, b, h = "ceramic", w / 2, d / 2, 0.55
    outer = [(a, b, 0.01, 0.0), (a, b, 0.01, h)]
    s.loft(0, 0, [*outer, (a - 0.07, b - 0.07, 0.12, h), (a - 0.16, b - 0.13, 0.1, 0.14)])
    s.material, side = "glass", rng.pick((-1, 1))
    low, high = sorted((side * a, side * 0.1 * w))
    s.box((low, h, b - 0.03), (high, top - 0.05, b - 0.022))
    s.material = "metal"
    s.rod((side * (a - 0.02), h, 0), (side * (a - 0.02), top, 0), 0.011)
    s.rod((side * (a - 0.02), top, 0), (side * (a - 0.3), top - 0.02, 0), 0.011)
    head = [(0, top - 0.06), (0.09, top - 0.06), (0.08, top - 0.04), (0, top - 0.03)]
    s.lathe(side * (a - 0.3), 0, head)


_LOW, _SIDE, _LAMP = ((0.8, 1.2), (0.5, 0.75), (0.34, 0.46)), ((0.42, 0.55),) * 2, (0.36, 0.5)
_BATH = (1.5, 1.75), (0.7, 0.82), (0.52, 0.62)
HOUSEHOLD: dict[Piece, tuple[Piece, ...]] = {
    living.COFFEE_TABLE: (
        living.COFFEE_TABLE, *(Piece(functools.partial(_laid, board), *_LOW) for board in BOARDS)
    ),
    living.SIDE_TABLE: (
        living.SIDE_TABLE, *(Piece(functools.partial(_laid, board), *_SIDE, (0.45, 0.62)) for board in BOARDS)
    ),
    decor.FLOOR_LAMP: (
        decor.FLOOR_LAMP,
        Piece(arc_lamp, (0.9, 1.3), (0.3, 0.34), (1.6, 1.85)),
        Piece(tripod_lamp, _LAMP, _LAMP, (1.35, 1.6)),
        Piece(torchiere, (0.3, 0.42), (0.3, 0.42), (1.6, 1.85)),
        Piece(paper_lamp, (0.26, 0.4), (0.26, 0.4), (0.9, 1.4)),
        Piece(globe_lamp, (0.42, 0.5), (0.36, 0.4), (1.3, 1.7)),
    ),
    living.BOOKSHELF: (
        living.BOOKSHELF,
        Piece(ladder_shelf, (0.6, 0.9), (0.36, 0.46), (1.6, 1.95), front=0.5),
        Piece(cube_shelf, (0.76, 1.5), (0.36, 0.4), (0.76, 1.9), front=0.5),
        Piece(wire_rack, (0.75, 1.2), (0.36, 0.46), (1.5, 1.85), front=0.5),
        Piece(etagere, (0.6, 1.1), (0.28, 0.34), (1.4, 1.9), front=0.5),
        Piece(glazed_bookcase, (0.9, 1.4), (0.38, 0.46), (1.8, 2.1), front=0.5),
    ),
    living.CHEST: (
        living.CHEST,
        Piece(tallboy, (0.5, 0.7), (0.4, 0.5), (1.15, 1.4), front=0.5),
        Piece(sideboard, (1.3, 1.9), (0.4, 0.5), (0.7, 0.85), front=0.5),
        Piece(trunk, (0.8, 1.2), (0.45, 0.55), (0.5, 0.62), front=0.5),
        Piece(glass_cabinet, (0.7, 1.1), (0.36, 0.45), (1.2, 1.7), front=0.5),
        Piece(open_cabinet, (0.9, 1.4), (0.4, 0.5), (0.7, 0.95), front=0.5),
    ),
    living.POUFFE: (
        living.POUFFE,
        Piece(milking_stool, (0.34, 0.4), (0.34, 0.4), (0.4, 0.5)),
        Piece(folding_stool, (0.4, 0.5), (0.36, 0.42), (0.4, 0.46)),
        Piece(cube_stool, (0.38, 0.5), (0.38, 0.5), (0.38, 0.46)),
        Piece(step_stool, (0.38, 0.46), (0.4, 0.5), (0.42, 0.5)),
        Piece(padded_bench, (0.6, 1.0), (0.36, 0.44), (0.4, 0.48)),
    ),
    living.WARDROBE: (
        living.WARDROBE,
        Piece(armoire, (0.95, 1.4), (0.56, 0.66), (1.8, 2.1), front=0.6),
        Piece(open_wardrobe, (0.9, 1.4), (0.5, 0.6), (1.6, 1.85), front=0.6),
        Piece(sliding_wardrobe, (1.4, 2.2), (0.6, 0.68), (1.95, 2.2), front=0.6),
        Piece(curtained_wardrobe, (0.9, 1.5), (0.55, 0.62), (1.75, 2.0), front=0.6),
        Piece(combined_wardrobe, (1.2, 1.8), (0.55, 0.62), (1.85, 2.1), front=0.6),
    ),
    kitchen.BASIN: (
        kitchen.BASIN,
        Piece(washstand, (0.55, 0.9), (0.45, 0.5), (0.98, 0.98), front=0.55),
        Piece(trough_sink, (0.6, 1.0), (0.42, 0.5), (0.98, 0.98), front=0.55),
        Piece(column_sink, (0.44, 0.52), (0.44, 0.52), (1.04, 1.04), front=0.55),
        Piece(slab_sink, (0.6, 1.0), (0.44, 0.52), (1.78, 1.78), front=0.55),
        Piece(sink_with_shelf, (0.55, 0.85), (0.44, 0.52), (0.98, 0.98), front=0.55),
    ),
    kitchen.BATHTUB: (
        kitchen.BATHTUB,
        *(Piece(build, *_BATH, front=0.45) for build in (clawfoot_tub, oval_tub, panelled_tub, slipper_tub)),
        Piece(shower_tub, (1.5, 1.75), (0.7, 0.8), (2.0, 2.0), front=0.45),
    ),
}  # fmt: skip
"""Constructions of each of our pieces."""
