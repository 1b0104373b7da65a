"""Furniture for each kind of room in a house."""

from __future__ import annotations

from batchnav.procedural.furniture.furnish_public import PUBLIC, light, litter
from batchnav.procedural.furniture.pieces import bathroom, beds, clutter, decor, kitchen, seating, storage, tables
from batchnav.procedural.furniture.placement import Arranger, Box
from batchnav.procedural.plans.layout import CELL, Room
from batchnav.procedural.random_draws import Draw
from batchnav.procedural.solids import TURN, Solids


def furnish(draw: Draw, arranger: Arranger) -> None:
    """Furnish every room: large pieces, small pieces, windows, walls, floor, ceiling, in this order."""
    for room in arranger.layout.rooms:
        is_public = room.kind in PUBLIC
        (PUBLIC if is_public else _FURNISH)[room.kind](draw, arranger, room)
        _dress_windows(draw, arranger, room)
        _hang_pictures(draw, arranger, room)
        if is_public:
            litter(draw, arranger, room)
            light(draw, arranger, room)
            continue
        for _ in range(draw.integer(0, int(room.area / 4.5)) if room.kind != "bath" else draw.integer(0, 1)):
            arranger.loose(draw, room, draw.pick(clutter.ON_FLOORS), 0.22)
        _light(draw, arranger, room)


def _living(draw: Draw, a: Arranger, room: Room) -> None:
    sofa = a.wall(draw, room, seating.SOFA)
    if sofa:
        if draw.chance(0.6):
            _lay_rug(draw, a, sofa)
        a.before(draw, sofa, tables.COFFEE_TABLE, draw.uniform(0.4, 0.5))
    a.wall(draw, room, storage.TV_STAND)
    if room.area > 22:
        a.centre(draw, room, tables.DINING_SET, 0.45)
    for _ in range(draw.integer(0, 1 + int(room.area / 14))):
        a.wall(draw, room, seating.ARMCHAIR)
    for piece in (storage.BOOKSHELF, decor.FLOOR_LAMP, decor.PLANT, storage.CHEST, storage.BOOKSHELF):
        if draw.chance(0.65):
            a.wall(draw, room, piece)
    if room.area > 20:
        for piece in (seating.SOFA, decor.PLANT, tables.SIDE_TABLE, seating.POUFFE, storage.BOOKSHELF):
            if draw.chance(0.5):
                a.wall(draw, room, piece)


def _dining(draw: Draw, a: Arranger, room: Room) -> None:
    a.centre(draw, room, tables.DINING_SET, 0.4)
    for piece in (storage.CHEST, storage.BOOKSHELF, decor.PLANT, decor.FLOOR_LAMP, seating.ARMCHAIR, seating.CHAIR):
        if draw.chance(0.6):
            a.wall(draw, room, piece)


def _kitchen(draw: Draw, a: Arranger, room: Room) -> None:
    for width in (3.6, 3.0, 2.4, 1.8):
        if a.wall(draw, room, kitchen.COUNTER, width) or a.wall(draw, room, kitchen.LOW_COUNTER, min(width, 2.6)):
            break
    a.wall(draw, room, kitchen.REFRIGERATOR)
    if room.area > 9:
        a.centre(draw, room, draw.pick((tables.DINING_SET, tables.DINING_SET, kitchen.ISLAND)), 0.4)
    a.wall(draw, room, kitchen.LOW_COUNTER)
    for piece in (storage.BOOKSHELF, storage.CHEST, decor.PLANT, seating.CHAIR):
        if draw.chance(0.45):
            a.wall(draw, room, piece)


def _bedroom(draw: Draw, a: Arranger, room: Room) -> None:
    double = room.area > 8.5 and draw.chance(0.75)
    bed = a.wall(draw, room, beds.DOUBLE_BED) if double else None
    bed = bed or a.wall(draw, room, beds.SINGLE_BED)
    if bed:
        _beside(draw, a, bed)
        if draw.chance(0.4):
            _lay_rug(draw, a, bed)
    a.wall(draw, room, storage.WARDROBE)
    if not double and room.area > 11:
        a.wall(draw, room, beds.SINGLE_BED)
    for piece in (storage.CHEST, tables.DESK, seating.ARMCHAIR, storage.BOOKSHELF, decor.PLANT, decor.FLOOR_LAMP):
        if draw.chance(0.45 if room.area < 14 else 0.65):
            a.wall(draw, room, piece)


def _office(draw: Draw, a: Arranger, room: Room) -> None:
    a.wall(draw, room, tables.DESK)
    for piece in (storage.BOOKSHELF, storage.BOOKSHELF, tables.DESK, storage.CHEST, decor.PLANT, decor.FLOOR_LAMP):
        if draw.chance(0.6):
            a.wall(draw, room, piece)
    if room.area > 10 and draw.chance(0.6):
        a.wall(draw, room, draw.pick((seating.SOFA, seating.ARMCHAIR, beds.SINGLE_BED)))
    if room.area > 14 and draw.chance(0.5):
        a.centre(draw, room, tables.DINING_SET, 0.4)


def _bath(draw: Draw, a: Arranger, room: Room) -> None:
    tub = draw.chance(0.6) and a.wall(draw, room, bathroom.BATHTUB)
    a.wall(draw, room, bathroom.TOILET)
    a.wall(draw, room, bathroom.BASIN) or a.wall(draw, room, bathroom.SMALL_BASIN)
    if not tub or room.area > 8:
        a.wall(draw, room, bathroom.SHOWER)
    for piece in (bathroom.WASHING_MACHINE, storage.CONSOLE, decor.PLANT):
        if draw.chance(0.5):
            a.wall(draw, room, piece)


def _hall(draw: Draw, a: Arranger, room: Room) -> None:
    for _ in range(1 + int(room.area / 7)):
        a.wall(draw, room, draw.pick((storage.COAT_RACK, storage.CONSOLE, storage.BOOKSHELF, decor.PLANT)))


def _storage(draw: Draw, a: Arranger, room: Room) -> None:
    a.wall(draw, room, draw.pick((bathroom.WASHING_MACHINE, storage.WARDROBE)))
    for piece in (storage.BOOKSHELF, storage.CHEST, storage.BOOKSHELF, storage.COAT_RACK):
        if draw.chance(0.7):
            a.wall(draw, room, piece)


_FURNISH = {
    "living": _living, "dining": _dining, "kitchen": _kitchen, "bedroom": _bedroom, "office": _office, "bath": _bath,
    "hall": _hall, "storage": _storage,
}  # fmt: skip


def _beside(draw: Draw, a: Arranger, bed: Box) -> None:
    """Nightstands on both sides of a bed's head, where they fit."""
    face = a.face_behind(bed)
    low, high = (bed[0], bed[2]) if face.axis == 0 else (bed[1], bed[3])
    for side in (0, 1):
        size = storage.NIGHTSTAND.size(draw)
        start = high + 0.04 if side else low - 0.04 - size[0]
        if draw.chance(0.85) and face.start < start and start + size[0] < face.stop:
            a.at_face(draw, face, start, storage.NIGHTSTAND, size)


def _lay_rug(draw: Draw, a: Arranger, box: Box) -> None:
    """A rug partly under furniture, towards the room."""
    face = a.face_behind(box)
    w, d, h = decor.RUG.size(draw)
    cx, cz = (box[0] + box[2]) / 2, (box[1] + box[3]) / 2
    x, z = (cx, cz + face.side * 0.9) if face.axis == 0 else (cx + face.side * 0.9, cz)
    if face.axis == 1:
        w, d = d, w
    if a.inside(face.room, (x - w / 2, z - d / 2, x + w / 2, z + d / 2)):
        one = Solids(a.solids.detail)
        decor.rug(one, draw, w, d, h)
        a.solids.place(one, x, z)


def _dress_windows(draw: Draw, a: Arranger, room: Room) -> None:
    """Add radiators below windows, and curtains at their sides."""
    for face in a.faces[room.index]:
        for hole in a.holes[face]:
            if not hole.is_window:
                continue
            width = hole.stop - hole.start
            if hole.bottom > 0.6 and draw.chance(0.5):
                size = (round(0.8 * min(width, 1.4), 2), 0.1, min(0.62, hole.bottom - 0.1))
                a.at_face(draw, face, hole.start + (width - size[0]) / 2, decor.RADIATOR, size)
            if room.kind in ("living", "bedroom", "dining", "office") and draw.chance(0.6):
                top = min(hole.top + 0.1, room.height - 0.05)
                hung = [
                    a.at_face(draw, face, start, decor.CURTAIN, (0.27, 0.1, top))
                    for start in (hole.start - 0.36, hole.stop + 0.09)
                    if face.start < start and start + 0.27 < face.stop
                ]
                if any(hung):
                    _hang(draw, a, face, (hole.start + hole.stop) / 2, decor.rail, (width + 0.75, 0.09, top))


def _hang(draw: Draw, a: Arranger, face, middle: float, build, size, y: float = 0.0) -> None:
    """Mount an object on a wall."""
    one = Solids(a.solids.detail)
    build(one, draw, *size)
    turn = (0 if face.axis == 0 else TURN // 4) + (0 if face.side > 0 else TURN // 2)
    x, z = (middle, face.plane) if face.axis == 0 else (face.plane, middle)
    a.solids.place(one, x, z, turn, y)


def _hang_pictures(draw: Draw, a: Arranger, room: Room) -> None:
    """Pictures and shelves where a wall is free at eye height."""
    for face in a.faces[room.index]:
        length = face.stop - face.start
        for _ in range(int(length / 1.6)):
            if length < 0.8 or not draw.chance(0.6):
                continue
            shelf = room.kind not in ("hall", "bath") and draw.chance(0.25)
            piece, y = (decor.WALL_SHELF, 1.5) if shelf else (decor.PICTURE, draw.uniform(1.25, 1.5))
            w, d, h = piece.size(draw)
            if w > length - 0.2:
                continue
            start = round(draw.uniform(face.start + 0.1, face.stop - 0.1 - w), 2)
            taken = [(o.start - 0.12, o.stop + 0.12) for o in a.holes[face]]
            taken += [(s - 0.05, t + 0.05) for s, t, top in a.used[face] if top > y - 0.15]
            if all(start + w < s or t < start for s, t in taken):
                _hang(draw, a, face, start + w / 2, piece.build, (w, d, h), y)
                a.used[face].append((start, start + w, 2.2))


def _light(draw: Draw, a: Arranger, room: Room) -> None:
    """A hanging lamp or a ceiling light in the middle of the room."""
    x, z = (room.rect[0] + room.rect[2]) / 2 * CELL, (room.rect[1] + room.rect[3]) / 2 * CELL
    one, height = Solids(a.solids.detail), room.height
    if room.kind in ("hall", "bath", "storage") or draw.chance(0.35):
        decor.ceiling_light(one, draw, height)
    else:
        decor.pendant(one, draw, height, min(draw.uniform(0.35, 0.7), height - 1.9))
    a.solids.place(one, x, z)
