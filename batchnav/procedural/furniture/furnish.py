"""Furniture for each kind of room, in houses and in large buildings."""

from __future__ import annotations

from batchnav.procedural.furniture import decor, kitchen, living
from batchnav.procedural.furniture.placement import Arranger, Box, Piece
from batchnav.procedural.plans import CELL, Room
from batchnav.procedural.random_stream import RandomStream
from batchnav.procedural.solids import TURN, Solids, makes

# Rooms of large buildings: corridors, wards, classrooms, large offices, waiting areas, canteens

_LIGHTS = 5.0
"""Distance between ceiling lights, metres."""


def _corridor(rng: RandomStream, a: Arranger, room: Room) -> None:
    """Seats, beds, shelves and plants along walls, and sometimes a counter or a pillar in the middle."""
    pieces = rng.pick(
        (
            (BENCH, living.CONSOLE, decor.PLANT),
            (living.SINGLE_BED, living.CONSOLE, BENCH),
            (LOW_SHELF, living.COAT_RACK),
        )
    )
    for _ in range(int(room.area / rng.uniform(8, 25))):
        a.wall(rng, room, rng.pick(pieces))
    if rng.chance(0.3):
        a.centre(rng, room, rng.pick((COUNTER, PILLAR)), 0.7)


def _ward(rng: RandomStream, a: Arranger, room: Room) -> None:
    """Beds along the walls, curtains or partitions between them."""
    number = min(12, max(2, int(room.area / rng.uniform(6, 10))))
    screen = rng.pick((SCREEN_CURTAIN, PARTITION))
    for _ in range(number):
        bed = a.wall(rng, room, living.SINGLE_BED)
        if bed is None:
            break
        if rng.chance(0.5):
            a.wall(rng, room, living.NIGHTSTAND)
        if rng.chance(0.6):
            _add_screen(rng, a, room, bed, screen)
    for piece in (COUNTER, living.WARDROBE, kitchen.BASIN, living.DESK, living.CHAIR):
        if rng.chance(0.4):
            a.wall(rng, room, piece)
    for _ in range(int(room.area / 30)):
        a.centre(rng, room, screen, 0.5)


def _add_screen(rng: RandomStream, a: Arranger, room: Room, bed, screen: Piece) -> None:
    """Add a screen along one side of a bed, where it fits."""
    along_z = a.face_behind(bed).axis == 0
    x, z = (bed[0] + bed[2]) / 2, (bed[1] + bed[3]) / 2
    side = rng.pick((-1, 1))
    away = (bed[2] - bed[0] if along_z else bed[3] - bed[1]) / 2 + 0.35
    if along_z:
        a.at(rng, room, screen, x + side * away, z, 1)
    else:
        a.at(rng, room, screen, x, z + side * away, 0)


def _rows(
    rng: RandomStream, a: Arranger, room: Room, piece: Piece, spacing: tuple[float, float], seat: Piece | None
) -> None:
    """Add pieces in rows, all with the same orientation, most with a seat behind; `spacing` is in metres (x, z)."""
    x0, z0, x1, z1 = (v * CELL for v in room.rect)
    quarter = rng.integer(0, 3)
    step = spacing if quarter % 2 == 0 else spacing[::-1]
    back = ((0, -1), (-1, 0), (0, 1), (1, 0))[quarter]
    away = (piece.depth[1] + (seat.depth[1] if seat else 0.0)) / 2 + 0.05
    z = z0 + 1.3
    while z < z1 - 0.9:
        x = x0 + 1.3
        while x < x1 - 0.9:
            if rng.chance(0.9) and a.at(rng, room, piece, x, z, quarter) and seat and rng.chance(0.8):
                a.at(rng, room, seat, x + back[0] * away, z + back[1] * away, quarter)
            x += step[0]
        z += step[1]


def _classroom(rng: RandomStream, a: Arranger, room: Room) -> None:
    a.wall(rng, room, rng.pick((COUNTER, living.DESK)))
    _rows(rng, a, room, PUPILS_TABLE, (rng.uniform(1.6, 2.4), rng.uniform(1.6, 2.2)), living.CHAIR)
    for piece in (living.BOOKSHELF, LOW_SHELF, living.WARDROBE, decor.PLANT):
        if rng.chance(0.5):
            a.wall(rng, room, piece)


def _bureau(rng: RandomStream, a: Arranger, room: Room) -> None:
    """Desks for many, screens between them."""
    for _ in range(rng.integer(0, 1 + int(room.area / 18))):
        a.centre(rng, room, PARTITION, 0.6)
    if rng.chance(0.5):
        _rows(rng, a, room, THIN_TABLE, (rng.uniform(1.9, 2.8), rng.uniform(1.8, 2.6)), living.OFFICE_CHAIR)
    for _ in range(int(room.area / rng.uniform(7, 14))):
        a.wall(rng, room, rng.pick((living.DESK, living.DESK, living.BOOKSHELF, LOW_SHELF, living.CHEST)))
    if room.area > 40 and rng.chance(0.4):
        a.centre(rng, room, PILLAR, 0.7)


def _waiting(rng: RandomStream, a: Arranger, room: Room) -> None:
    """A reception counter and seats."""
    for _ in range(rng.integer(1, 2)):
        a.centre(rng, room, COUNTER, 0.8)
    for _ in range(1 + int(room.area / rng.uniform(5, 10))):
        a.wall(rng, room, rng.pick((BENCH, BENCH, living.SOFA, living.ARMCHAIR, decor.PLANT)))
    if room.area > 25 and rng.chance(0.6):
        _rows(rng, a, room, BENCH, (rng.uniform(3.2, 4.0), rng.uniform(1.6, 2.4)), None)
    if rng.chance(0.4):
        a.centre(rng, room, PARTITION, 0.7)


def _canteen(rng: RandomStream, a: Arranger, room: Room) -> None:
    a.wall(rng, room, COUNTER)
    a.centre(rng, room, COUNTER, 0.9)
    seat = rng.pick((living.STOOL, living.CHAIR))
    _rows(rng, a, room, THIN_TABLE, (rng.uniform(2.4, 3.2), rng.uniform(2.0, 2.8)), seat)
    for piece in (TALL_SHELF, decor.PLANT, LOW_SHELF):
        a.wall(rng, room, piece)
    if room.area > 40 and rng.chance(0.5):
        a.centre(rng, room, PILLAR, 0.8)


PUBLIC = {
    "corridor": _corridor, "ward": _ward, "classroom": _classroom, "bureau": _bureau, "waiting": _waiting,
    "canteen": _canteen,
}  # fmt: skip
"""Function that furnishes a room of a large building, by kind of room."""


def litter(rng: RandomStream, a: Arranger, room: Room) -> None:
    """Add small objects on the floor: up to one per 20 m2."""
    for _ in range(rng.integer(0, int(room.area / 20))):
        a.on_floor(rng, room, rng.pick(decor.ON_FLOORS), 0.22)


def light(rng: RandomStream, a: Arranger, room: Room) -> None:
    """Add ceiling lights in rows."""
    one = Solids(a.solids.detail)
    decor.ceiling_light(one, rng, room.height)
    x0, z0, x1, z1 = (v * CELL for v in room.rect)
    columns, rows = max(1, round((x1 - x0) / _LIGHTS)), max(1, round((z1 - z0) / _LIGHTS))
    for i in range(columns):
        for k in range(rows):
            x, z = x0 + (x1 - x0) * (i + 0.5) / columns, z0 + (z1 - z0) * (k + 0.5) / rows
            if a.layout.labels[int(z / CELL), int(x / CELL)] == room.index:  # the rectangle may overlap others
                a.solids.place(one, x, z)


def furnish(rng: RandomStream, arranger: Arranger) -> None:
    """Furnish every room: large pieces, small pieces, windows, walls, floor, ceiling, in this order."""
    for room in arranger.layout.rooms:
        is_public = room.kind in PUBLIC
        (PUBLIC if is_public else _FURNISH)[room.kind](rng, arranger, room)
        for piece in arranger.furniture.further(rng, room.area) if arranger.furniture and room.kind != "bath" else ():
            arranger.wall(rng, room, piece)
        _dress_windows(rng, arranger, room)
        _hang_pictures(rng, arranger, room)
        if is_public:
            litter(rng, arranger, room)
            light(rng, arranger, room)
            continue
        for _ in range(rng.integer(0, int(room.area / 4.5)) if room.kind != "bath" else rng.integer(0, 1)):
            arranger.on_floor(rng, room, rng.pick((*decor.ON_FLOORS, *arranger.solids.things)), 0.22)
        _light(rng, arranger, room)


def _living(rng: RandomStream, a: Arranger, room: Room) -> None:
    sofa = a.wall(rng, room, living.SOFA)
    if sofa:
        if rng.chance(0.6):
            _add_rug(rng, a, sofa)
        a.in_front_of(rng, sofa, living.COFFEE_TABLE, rng.uniform(0.4, 0.5))
    a.wall(rng, room, living.TV_STAND)
    if room.area > 22:
        a.centre(rng, room, living.DINING_SET, 0.45)
    for _ in range(rng.integer(0, 1 + int(room.area / 14))):
        a.wall(rng, room, living.ARMCHAIR)
    for piece in (living.BOOKSHELF, decor.FLOOR_LAMP, decor.PLANT, living.CHEST, living.BOOKSHELF):
        if rng.chance(0.65):
            a.wall(rng, room, piece)
    if room.area > 20:
        for piece in (living.SOFA, decor.PLANT, living.SIDE_TABLE, living.POUFFE, living.BOOKSHELF):
            if rng.chance(0.5):
                a.wall(rng, room, piece)


def _dining(rng: RandomStream, a: Arranger, room: Room) -> None:
    a.centre(rng, room, living.DINING_SET, 0.4)
    for piece in (living.CHEST, living.BOOKSHELF, decor.PLANT, decor.FLOOR_LAMP, living.ARMCHAIR, living.CHAIR):
        if rng.chance(0.6):
            a.wall(rng, room, piece)


def _kitchen(rng: RandomStream, a: Arranger, room: Room) -> None:
    for width in (3.6, 3.0, 2.4, 1.8):
        if a.wall(rng, room, kitchen.COUNTER, width) or a.wall(rng, room, kitchen.LOW_COUNTER, min(width, 2.6)):
            break
    a.wall(rng, room, kitchen.REFRIGERATOR)
    if room.area > 9:
        a.centre(rng, room, rng.pick((living.DINING_SET, living.DINING_SET, kitchen.ISLAND)), 0.4)
    a.wall(rng, room, kitchen.LOW_COUNTER)
    for piece in (living.BOOKSHELF, living.CHEST, decor.PLANT, living.CHAIR):
        if rng.chance(0.45):
            a.wall(rng, room, piece)


def _bedroom(rng: RandomStream, a: Arranger, room: Room) -> None:
    double = room.area > 8.5 and rng.chance(0.75)
    bed = a.wall(rng, room, living.DOUBLE_BED) if double else None
    bed = bed or a.wall(rng, room, living.SINGLE_BED)
    if bed:
        _add_nightstands(rng, a, bed)
        if rng.chance(0.4):
            _add_rug(rng, a, bed)
    a.wall(rng, room, living.WARDROBE)
    if not double and room.area > 11:
        a.wall(rng, room, living.SINGLE_BED)
    for piece in (living.CHEST, living.DESK, living.ARMCHAIR, living.BOOKSHELF, decor.PLANT, decor.FLOOR_LAMP):
        if rng.chance(0.45 if room.area < 14 else 0.65):
            a.wall(rng, room, piece)


def _office(rng: RandomStream, a: Arranger, room: Room) -> None:
    a.wall(rng, room, living.DESK)
    for piece in (living.BOOKSHELF, living.BOOKSHELF, living.DESK, living.CHEST, decor.PLANT, decor.FLOOR_LAMP):
        if rng.chance(0.6):
            a.wall(rng, room, piece)
    if room.area > 10 and rng.chance(0.6):
        a.wall(rng, room, rng.pick((living.SOFA, living.ARMCHAIR, living.SINGLE_BED)))
    if room.area > 14 and rng.chance(0.5):
        a.centre(rng, room, living.DINING_SET, 0.4)


def _bath(rng: RandomStream, a: Arranger, room: Room) -> None:
    tub = rng.chance(0.6) and a.wall(rng, room, kitchen.BATHTUB)
    a.wall(rng, room, kitchen.TOILET)
    a.wall(rng, room, kitchen.BASIN) or a.wall(rng, room, kitchen.SMALL_BASIN)
    if not tub or room.area > 8:
        a.wall(rng, room, kitchen.SHOWER)
    for piece in (kitchen.WASHING_MACHINE, living.CONSOLE, decor.PLANT):
        if rng.chance(0.5):
            a.wall(rng, room, piece)


def _hall(rng: RandomStream, a: Arranger, room: Room) -> None:
    for _ in range(1 + int(room.area / 7)):
        a.wall(rng, room, rng.pick((living.COAT_RACK, living.CONSOLE, living.BOOKSHELF, decor.PLANT)))


def _storage(rng: RandomStream, a: Arranger, room: Room) -> None:
    a.wall(rng, room, rng.pick((kitchen.WASHING_MACHINE, living.WARDROBE)))
    for piece in (living.BOOKSHELF, living.CHEST, living.BOOKSHELF, living.COAT_RACK):
        if rng.chance(0.7):
            a.wall(rng, room, piece)


_FURNISH = {
    "living": _living, "dining": _dining, "kitchen": _kitchen, "bedroom": _bedroom, "office": _office, "bath": _bath,
    "hall": _hall, "storage": _storage,
}  # fmt: skip
"""Function that furnishes a room of a house, by kind of room."""


def _add_nightstands(rng: RandomStream, a: Arranger, bed: Box) -> None:
    """Add nightstands at the sides of a bed's head, where they fit."""
    face = a.face_behind(bed)
    low, high = (bed[0], bed[2]) if face.axis == 0 else (bed[1], bed[3])
    nightstand = a.chosen(rng, living.NIGHTSTAND)
    for side in (0, 1):
        size = nightstand.size(rng)
        start = high + 0.04 if side else low - 0.04 - size[0]
        if rng.chance(0.85) and face.start < start and start + size[0] < face.stop:
            a.at_face(rng, face, start, nightstand, size)


def _add_rug(rng: RandomStream, a: Arranger, box: Box) -> None:
    """Add a rug that lies partly under the furniture at `box`, shifted towards the room, where it fits."""
    face = a.face_behind(box)
    rug = a.chosen(rng, decor.RUG)
    w, d, h = rug.size(rng)
    cx, cz = (box[0] + box[2]) / 2, (box[1] + box[3]) / 2
    x, z = (cx, cz + face.side * 0.9) if face.axis == 0 else (cx + face.side * 0.9, cz)
    if face.axis == 1:
        w, d = d, w
    if a.inside(face.room, (x - w / 2, z - d / 2, x + w / 2, z + d / 2)):
        one = Solids(a.solids.detail)
        rug.build(one, rng, w, d, h)
        a.solids.place(one, x, z)


def _dress_windows(rng: RandomStream, a: Arranger, room: Room) -> None:
    """Add radiators below windows, and curtains at their sides."""
    for face in a.faces[room.index]:
        for hole in a.holes[face]:
            if not hole.is_window:
                continue
            width = hole.stop - hole.start
            if hole.bottom > 0.6 and rng.chance(0.5):
                size = (round(0.8 * min(width, 1.4), 2), 0.1, min(0.62, hole.bottom - 0.1))
                a.at_face(rng, face, hole.start + (width - size[0]) / 2, decor.RADIATOR, size)
            if room.kind in ("living", "bedroom", "dining", "office") and rng.chance(0.6):
                top = min(hole.top + 0.1, room.height - 0.05)
                hung = [
                    a.at_face(rng, face, start, decor.CURTAIN, (0.27, 0.1, top))
                    for start in (hole.start - 0.36, hole.stop + 0.09)
                    if face.start < start and start + 0.27 < face.stop
                ]
                if any(hung):
                    _hang(rng, a, face, (hole.start + hole.stop) / 2, decor.rail, (width + 0.75, 0.09, top))


def _hang(rng: RandomStream, a: Arranger, face, middle: float, build, size, y: float = 0.0) -> None:
    """Mount an object on a wall."""
    one = Solids(a.solids.detail)
    build(one, rng, *size)
    turn = (0 if face.axis == 0 else TURN // 4) + (0 if face.side > 0 else TURN // 2)
    x, z = (middle, face.plane) if face.axis == 0 else (face.plane, middle)
    a.solids.place(one, x, z, turn, y)


def _hang_pictures(rng: RandomStream, a: Arranger, room: Room) -> None:
    """Add pictures and shelves where a wall is free at eye height."""
    for face in a.faces[room.index]:
        length = face.stop - face.start
        for _ in range(int(length / 1.6)):
            if length < 0.8 or not rng.chance(0.6):
                continue
            shelf = room.kind not in ("hall", "bath") and rng.chance(0.25)
            piece, y = (decor.WALL_SHELF, 1.5) if shelf else (decor.PICTURE, rng.uniform(1.25, 1.5))
            piece = a.chosen(rng, piece)
            w, d, h = piece.size(rng)
            if w > length - 0.2:
                continue
            start = round(rng.uniform(face.start + 0.1, face.stop - 0.1 - w), 2)
            taken = [(o.start - 0.12, o.stop + 0.12) for o in a.holes[face]]
            taken += [(s - 0.05, t + 0.05) for s, t, top in a.used[face] if top > y - 0.15]
            if all(start + w < s or t < start for s, t in taken):
                _hang(rng, a, face, start + w / 2, piece.build, (w, d, h), y)
                a.used[face].append((start, start + w, 2.2))


def _light(rng: RandomStream, a: Arranger, room: Room) -> None:
    """Add a hanging lamp or a ceiling light in the middle of the room."""
    x, z = (room.rect[0] + room.rect[2]) / 2 * CELL, (room.rect[1] + room.rect[3]) / 2 * CELL
    one, height = Solids(a.solids.detail), room.height
    if room.kind in ("hall", "bath", "storage") or rng.chance(0.35):
        decor.ceiling_light(one, rng, height)
    else:
        decor.pendant(one, rng, height, min(rng.uniform(0.35, 0.7), height - 1.9))
    a.solids.place(one, x, z)


# Pieces of shops, offices and open-plan rooms: shelves with goods, counters, pillars, podiums, tables on thin legs


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
    decor.scatter(s, rng, w - 0.1, d - 0.1, h, rng.integer(0, 4))


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
