"""Bookshelves, cabinets, wardrobes, chests of drawers, television stands."""

from __future__ import annotations

from batchnav.procedural.furniture.pieces import clutter
from batchnav.procedural.furniture.pieces.piece import Piece
from batchnav.procedural.furniture.pieces.seating import legs
from batchnav.procedural.random_stream import RandomStream
from batchnav.procedural.solids import Solids, makes


@makes("shelving")
def bookshelf(s: Solids, rng: RandomStream, w: float, d: float, h: float) -> None:
    """Shelves with a back, filled with books and other things."""
    s.material, board, back = "wood", 0.022, -d / 2
    for x in (-w / 2, w / 2 - board):
        s.box((x, 0, back), (x + board, h, d / 2))
    s.box((-w / 2 + board, 0.03, back), (w / 2 - board, h, back + 0.012))
    levels = max(2, round((h - 0.08) / rng.uniform(0.3, 0.4)))
    gap = (h - 0.08 - board) / levels
    for i in range(levels + 1):
        y = 0.06 + i * gap
        s.box((-w / 2 + board, y, back + 0.012), (w / 2 - board, y + board, d / 2 - 0.005))
        if i == levels:
            break
        middle = rng.uniform(-0.3, 0.5) * w
        x0, x1, floor, room = -w / 2 + board, w / 2 - board, y + board, gap - board
        book_row = rng.chance(0.8)
        if book_row:
            clutter.book_row(s, rng, x0, middle, floor, back + 0.02, d / 2 - 0.03, room)
        if rng.chance(0.6):
            things = Solids(s.detail)
            thing = rng.pick((clutter.vase, clutter.bowl, clutter.book_stack, clutter.picture_frame, clutter.carton))
            thing(things, rng)
            top = things.arrays()[0].max(axis=0)
            if top[1] < room and top[2] < 0.45 * d and x1 - middle > 2.2 * top[0]:
                s.place(things, (middle + x1) / 2, 0.0, 0, floor)


def fronts(s: Solids, rng: RandomStream, w: float, y0: float, y1: float, z: float, drawers: int, doors: int) -> None:
    """Door and drawer fronts with handles on a cabinet's face at z, `w` wide between y0 and y1."""
    columns, body = max(1, doors), s.material
    step = w / columns
    for i in range(columns):
        x0, x1 = -w / 2 + i * step + 0.004, -w / 2 + (i + 1) * step - 0.004
        rows = max(1, drawers)
        rise = (y1 - y0) / rows
        for k in range(rows):
            low, high = y0 + k * rise + 0.004, y0 + (k + 1) * rise - 0.004
            s.material = body
            s.box((x0, low, z - 0.002), (x1, high, z + 0.018))
            s.material = "metal"
            if drawers:
                y, x = (low + high) / 2, (x0 + x1) / 2
                s.rod((x - 0.06, y, z + 0.035), (x + 0.06, y, z + 0.035), 0.007)
                s.box((x - 0.055, y - 0.004, z + 0.01), (x - 0.045, y + 0.004, z + 0.035))
                s.box((x + 0.045, y - 0.004, z + 0.01), (x + 0.055, y + 0.004, z + 0.035))
            else:
                x = x1 - 0.04 if i % 2 == 0 else x0 + 0.04
                y = (low + high) / 2
                s.rod((x, y - 0.08, z + 0.035), (x, y + 0.08, z + 0.035), 0.007)
                s.box((x - 0.004, y - 0.07, z + 0.01), (x + 0.004, y - 0.06, z + 0.035))
                s.box((x - 0.004, y + 0.06, z + 0.01), (x + 0.004, y + 0.07, z + 0.035))
    s.material = body


@makes("wardrobe")
def wardrobe(s: Solids, rng: RandomStream, w: float, d: float, h: float) -> None:
    """A tall cupboard with doors."""
    face = d / 2 - 0.045
    s.material = "wood"
    s.box((-w / 2, 0.0, -d / 2), (w / 2, 0.08, face - 0.03))
    s.box((-w / 2, 0.08, -d / 2), (w / 2, h, face))
    split = 0.08 + (h - 0.1) * 0.25 if rng.chance(0.4) else 0.08
    doors = max(2, round(w / 0.5))
    if split > 0.1:
        fronts(s, rng, w, 0.08, split, face, 1, max(1, doors // 2))
    fronts(s, rng, w, split, h - 0.02, face, 0, doors)
    s.material = "wood"
    s.box((-w / 2 - 0.01, h, -d / 2), (w / 2 + 0.01, h + 0.03, d / 2 - 0.02))
    if rng.chance(0.4):
        box = Solids(s.detail)
        clutter.carton(box, rng)
        s.place(box, rng.uniform(-0.2, 0.2) * w, -0.05, rng.integer(-6, 6), h + 0.03)


def chest(s: Solids, rng: RandomStream, w: float, d: float, h: float) -> None:
    """A chest of drawers, sideboard or shoe cabinet with things on top."""
    s.material = "wood"
    face, foot = d / 2 - 0.045, rng.uniform(0.06, 0.15)
    legs(s, rng, w - 0.04, d - 0.08, foot, 0.02)
    s.box((-w / 2, foot, -d / 2), (w / 2, h - 0.025, face))
    s.box((-w / 2 - 0.01, h - 0.025, -d / 2), (w / 2 + 0.01, h, d / 2 - 0.02))
    columns = max(1, round(w / 0.55))
    drawers = rng.pick((0, 2, 3, 4)) if h > 0.6 else rng.pick((0, 1, 2))
    fronts(s, rng, w - 0.01, foot + 0.01, h - 0.03, face, drawers, columns)
    clutter.scatter(s, rng, w - 0.1, d - 0.15, h, rng.integer(1, 4))


@makes("nightstand")
def nightstand(s: Solids, rng: RandomStream, w: float, d: float, h: float) -> None:
    """A bedside table with a drawer, a lamp and a book."""
    s.material, face = "wood", d / 2 - 0.045
    legs(s, rng, w, d - 0.09, h - 0.2, 0.018)
    s.box((-w / 2, h - 0.2, -d / 2), (w / 2, h, face))
    fronts(s, rng, w - 0.01, h - 0.19, h - 0.01, face, 1, 1)
    s.material = "wood"
    s.box((-w / 2 + 0.01, 0.12, -d / 2 + 0.01), (w / 2 - 0.01, 0.135, face - 0.01))
    table_lamp(s, rng, 0.0, -0.04, h)


@makes("lighting")
def table_lamp(s: Solids, rng: RandomStream, x: float, z: float, y: float) -> None:
    """A small lamp with a shade, standing at height y."""
    s.material = "crockery"
    foot, rise, r = rng.uniform(0.05, 0.07), rng.uniform(0.16, 0.26), rng.uniform(0.09, 0.13)
    body = [(0, 0), (foot, 0), (foot, 0.015), (0.02, 0.03), (0.04, 0.4 * rise), (0.012, 0.7 * rise), (0.01, rise)]
    s.lathe(x, z, [(a, y + b) for a, b in [*body, (0, rise + 0.05)]])
    s.material = "shade"
    low, high = y + rise - 0.02, y + rise + 0.15
    s.lathe(x, z, [(r, low), (0.65 * r, high), (0.65 * r - 0.004, high), (r - 0.004, low)], loop=True)


@makes("cabinet")
def tv_stand(s: Solids, rng: RandomStream, w: float, d: float, h: float) -> None:
    """A low board with a television on it."""
    s.material, chest_face = "wood", d / 2 - 0.045
    s.box((-w / 2, 0.06, -d / 2), (w / 2, h, chest_face))
    s.box((-w / 2 + 0.04, 0.0, -d / 2 + 0.04), (w / 2 - 0.04, 0.06, chest_face - 0.04))
    fronts(s, rng, w - 0.01, 0.07, h - 0.01, chest_face, rng.integer(0, 1), max(2, round(w / 0.5)))
    a = min(0.46 * w, rng.uniform(0.42, 0.68))
    with s.object("tv_monitor"):
        s.material = "screen"
        s.box((-a, h + 0.06, -0.02), (a, h + 0.06 + 1.14 * a, 0.015))
        s.material = "black"
        s.box((-0.9 * a, h + 0.12, -0.06), (0.9 * a, h + 0.7 * a, -0.019))
        s.box((-0.04, h, -0.04), (0.04, h + 0.2, -0.02))
        s.loft(0, 0, [(0.22, 0.1, 0.05, h), (0.22, 0.1, 0.05, h + 0.012)])


@makes("coat_rack")
def coat_rack(s: Solids, rng: RandomStream, w: float, d: float, h: float) -> None:
    """A board with hooks and hanging coats above a shoe shelf."""
    s.material, back = "wood", -d / 2
    s.box((-w / 2, h - 0.25, back), (w / 2, h - 0.1, back + 0.02))
    for y in (0.12, 0.3):
        for i in range(4):
            s.box((-w / 2, y, back + i * d / 4 + 0.005), (w / 2, y + 0.015, back + (i + 1) * d / 4 - 0.015))
    for x in (-w / 2, w / 2 - 0.025):
        s.box((x, 0, back), (x + 0.025, 0.36, d / 2))
    hooks = max(2, int(w / 0.18))
    for i in range(hooks):
        x = ((i + 0.5) / hooks - 0.5) * w
        s.material = "steel"
        s.rod((x, h - 0.18, back + 0.02), (x, h - 0.15, back + 0.09), 0.008)
        if rng.chance(0.55):
            a, low = rng.uniform(0.07, 0.09), h - 0.2 - rng.uniform(0.5, 0.85)
            rings = [(a, 0.05, 0.04, low), (0.8 * a, 0.045, 0.035, h - 0.45), (0.9 * a, 0.04, 0.03, h - 0.28)]
            with s.object("clothes"):
                s.material = "fabric"
                s.loft(x, back + 0.08, [*rings, (0.03, 0.02, 0.015, h - 0.16)])
    for i in range(2):
        pair = Solids(s.detail)
        clutter.shoes(pair, rng)
        s.place(pair, (i - 0.5) * 0.4 * w, 0.0, 0, 0.135)


BOOKSHELF = Piece(bookshelf, (0.6, 1.3), (0.26, 0.36), (1.2, 2.15), front=0.5)
WARDROBE = Piece(wardrobe, (0.9, 2.2), (0.56, 0.66), (1.85, 2.2), front=0.6)
CHEST = Piece(makes("chest_of_drawers")(chest), (0.7, 1.5), (0.4, 0.52), (0.7, 1.1), front=0.5)
CONSOLE = Piece(makes("cabinet")(chest), (0.6, 1.0), (0.26, 0.34), (0.7, 0.9), front=0.6)
NIGHTSTAND = Piece(nightstand, (0.38, 0.5), (0.36, 0.44), (0.45, 0.6))
TV_STAND = Piece(tv_stand, (1.1, 1.9), (0.38, 0.48), (0.4, 0.55), front=0.6)
COAT_RACK = Piece(coat_rack, (0.6, 1.1), (0.26, 0.32), (1.7, 1.85), front=0.6)
