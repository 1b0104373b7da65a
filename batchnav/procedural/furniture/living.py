"""Seats, beds, tables and storage."""

from __future__ import annotations

from batchnav.procedural.furniture import decor
from batchnav.procedural.furniture.placement import Build, Piece
from batchnav.procedural.random_stream import RandomStream
from batchnav.procedural.solids import TURN, Solids, circle, makes


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


# Beds


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


# Bookshelves, cabinets, wardrobes, chests of drawers, television stands


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
            decor.book_row(s, rng, x0, middle, floor, back + 0.02, d / 2 - 0.03, room)
        if rng.chance(0.6):
            things = Solids(s.detail)
            thing = rng.pick((decor.vase, decor.bowl, decor.book_stack, decor.picture_frame, decor.carton))
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
        decor.carton(box, rng)
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
    decor.scatter(s, rng, w - 0.1, d - 0.15, h, rng.integer(1, 4))


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


def tv_board(s: Solids, rng: RandomStream, w: float, d: float, h: float) -> None:
    """A low board for a television."""
    s.material, chest_face = "wood", d / 2 - 0.045
    s.box((-w / 2, 0.06, -d / 2), (w / 2, h, chest_face))
    s.box((-w / 2 + 0.04, 0.0, -d / 2 + 0.04), (w / 2 - 0.04, 0.06, chest_face - 0.04))
    fronts(s, rng, w - 0.01, 0.07, h - 0.01, chest_face, rng.integer(0, 1), max(2, round(w / 0.5)))


@makes("tv_monitor")
def television(s: Solids, rng: RandomStream, w: float, d: float, h: float) -> None:
    """A television at height h, on a board of width w."""
    a = min(0.46 * w, rng.uniform(0.42, 0.68))
    s.material = "screen"
    s.box((-a, h + 0.06, -0.02), (a, h + 0.06 + 1.14 * a, 0.015))
    s.material = "black"
    s.box((-0.9 * a, h + 0.12, -0.06), (0.9 * a, h + 0.7 * a, -0.019))
    s.box((-0.04, h, -0.04), (0.04, h + 0.2, -0.02))
    s.loft(0, 0, [(0.22, 0.1, 0.05, h), (0.22, 0.1, 0.05, h + 0.012)])


@makes("cabinet")
def tv_stand(
    s: Solids,
    rng: RandomStream,
    w: float,
    d: float,
    h: float,
    board: Build = tv_board,
    screen: Build = television,
) -> None:
    """A low board with a television on it."""
    board(s, rng, w, d, h)
    screen(s, rng, w, d, h)


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
        decor.shoes(pair, rng)
        s.place(pair, (i - 0.5) * 0.4 * w, 0.0, 0, 0.135)


BOOKSHELF = Piece(bookshelf, (0.6, 1.3), (0.26, 0.36), (1.2, 2.15), front=0.5)
WARDROBE = Piece(wardrobe, (0.9, 2.2), (0.56, 0.66), (1.85, 2.2), front=0.6)
CHEST = Piece(makes("chest_of_drawers")(chest), (0.7, 1.5), (0.4, 0.52), (0.7, 1.1), front=0.5)
CONSOLE = Piece(makes("cabinet")(chest), (0.6, 1.0), (0.26, 0.34), (0.7, 0.9), front=0.6)
NIGHTSTAND = Piece(nightstand, (0.38, 0.5), (0.36, 0.44), (0.45, 0.6))
TV_STAND = Piece(tv_stand, (1.1, 1.9), (0.38, 0.48), (0.4, 0.55), front=0.6)
COAT_RACK = Piece(coat_rack, (0.6, 1.1), (0.26, 0.32), (1.7, 1.85), front=0.6)


# Dining tables with chairs, coffee tables, desks, side tables

CHAIR_OUT = 0.3
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


def dining_set(
    s: Solids, rng: RandomStream, w: float, d: float, h: float, board: Build | None = None, seat: Piece = CHAIR
) -> None:
    """A dining table laid for some, with chairs pushed in; width and depth include the chairs.

    `board` builds the table in place of our own, without what lies on it.
    """
    tw, td = w - 2 * CHAIR_OUT, d - 2 * CHAIR_OUT
    (makes("table")(table) if board is None else board)(s, rng, tw, td, h)
    cw, cd, ch = seat.size(rng)
    one = Solids(s.detail)
    seat.build(one, rng, cw, cd, ch)
    setting = Solids(s.detail)
    decor.plate_setting(setting, rng)
    seats = max(1, int(tw / max(0.58, cw + 0.04)))
    laid = rng.chance(0.4) and board is None
    away = CHAIR_OUT - cd / 2 - 0.04
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
    if board is None:
        decor.scatter(s, rng, 0.7 * tw, 0.3 * td, h, rng.integer(1, 3))


@makes("table")
def coffee_table(s: Solids, rng: RandomStream, w: float, d: float, h: float) -> None:
    """A low table with things on it, sometimes with a lower board."""
    table(s, rng, w, d, h)
    if rng.chance(0.4):
        s.material = "wood"
        s.box((-0.42 * w, 0.12, -0.4 * d), (0.42 * w, 0.14, 0.4 * d))
    decor.scatter(s, rng, 0.85 * w, 0.85 * d, h, rng.integer(1, 5))


@makes("desk")
def desk(s: Solids, rng: RandomStream, w: float, d: float, h: float, seat: Piece = OFFICE_CHAIR) -> None:
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
        decor.laptop(one, rng)
    else:
        _computer(one, rng.uniform(0.25, 0.36))
    s.place(one, -side * 0.1, back + 0.24, 0, h)
    decor.scatter(s, rng, 0.9 * w, 0.2, h, 2)
    chair = Solids(s.detail)
    seat.build(chair, rng, *seat.size(rng))
    s.place(chair, -side * 0.12, front + chair_depth - 0.34, TURN // 2 + rng.integer(-25, 25))


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
    decor.scatter(s, rng, 0.5 * w, 0.5 * d, h, 1, (decor.vase, decor.bowl, decor.book_stack))


DINING_SET = Piece(dining_set, (1.4, 2.4), (1.35, 1.6), (0.72, 0.77))
COFFEE_TABLE = Piece(coffee_table, (0.7, 1.2), (0.45, 0.7), (0.36, 0.48))
DESK = Piece(desk, (1.1, 1.6), (1.0, 1.15), (0.71, 0.76), front=0.25)
SIDE_TABLE = Piece(side_table, (0.4, 0.55), (0.4, 0.5), (0.45, 0.62))
