"""Furniture for each kind of room in a house."""

from __future__ import annotations

from batchnav.procedural.furniture.furnish_public import PUBLIC, light, litter
from batchnav.procedural.furniture.pieces import bathroom, beds, clutter, decor, kitchen, seating, storage, tables
from batchnav.procedural.furniture.placement import Arranger, Box
from batchnav.procedural.plans.layout import CELL, Room
from batchnav.procedural.random_stream import RandomStream
from batchnav.procedural.solids import TURN, Solids


def furnish(rng: RandomStream, arranger: Arranger) -> None:
    """Furnish every room: large pieces, small pieces, windows, walls, floor, ceiling, in this order."""
    for room in arranger.layout.rooms:
        is_public = room.kind in PUBLIC
        (PUBLIC if is_public else _FURNISH)[room.kind](rng, arranger, room)
        _dress_windows(rng, arranger, room)
        _hang_pictures(rng, arranger, room)
        if is_public:
            litter(rng, arranger, room)
            light(rng, arranger, room)
            continue
        for _ in range(rng.integer(0, int(room.area / 4.5)) if room.kind != "bath" else rng.integer(0, 1)):
            arranger.on_floor(rng, room, rng.pick(clutter.ON_FLOORS), 0.22)
        _light(rng, arranger, room)


def _living(rng: RandomStream, a: Arranger, room: Room) -> None:
    sofa = a.wall(rng, room, seating.SOFA)
    if sofa:
        if rng.chance(0.6):
            _add_rug(rng, a, sofa)
        a.in_front_of(rng, sofa, tables.COFFEE_TABLE, rng.uniform(0.4, 0.5))
    a.wall(rng, room, storage.TV_STAND)
    if room.area > 22:
        a.centre(rng, room, tables.DINING_SET, 0.45)
    for _ in range(rng.integer(0, 1 + int(room.area / 14))):
        a.wall(rng, room, seating.ARMCHAIR)
    for piece in (storage.BOOKSHELF, decor.FLOOR_LAMP, decor.PLANT, storage.CHEST, storage.BOOKSHELF):
        if rng.chance(0.65):
            a.wall(rng, room, piece)
    if room.area > 20:
        for piece in (seating.SOFA, decor.PLANT, tables.SIDE_TABLE, seating.POUFFE, storage.BOOKSHELF):
            if rng.chance(0.5):
                a.wall(rng, room, piece)


def _dining(rng: RandomStream, a: Arranger, room: Room) -> None:
    a.centre(rng, room, tables.DINING_SET, 0.4)
    for piece in (storage.CHEST, storage.BOOKSHELF, decor.PLANT, decor.FLOOR_LAMP, seating.ARMCHAIR, seating.CHAIR):
        if rng.chance(0.6):
            a.wall(rng, room, piece)


def _kitchen(rng: RandomStream, a: Arranger, room: Room) -> None:
    for width in (3.6, 3.0, 2.4, 1.8):
        if a.wall(rng, room, kitchen.COUNTER, width) or a.wall(rng, room, kitchen.LOW_COUNTER, min(width, 2.6)):
            break
    a.wall(rng, room, kitchen.REFRIGERATOR)
    if room.area > 9:
        a.centre(rng, room, rng.pick((tables.DINING_SET, tables.DINING_SET, kitchen.ISLAND)), 0.4)
    a.wall(rng, room, kitchen.LOW_COUNTER)
    for piece in (storage.BOOKSHELF, storage.CHEST, decor.PLANT, seating.CHAIR):
        if rng.chance(0.45):
            a.wall(rng, room, piece)


def _bedroom(rng: RandomStream, a: Arranger, room: Room) -> None:
    double = room.area > 8.5 and rng.chance(0.75)
    bed = a.wall(rng, room, beds.DOUBLE_BED) if double else None
    bed = bed or a.wall(rng, room, beds.SINGLE_BED)
    if bed:
        _add_nightstands(rng, a, bed)
        if rng.chance(0.4):
            _add_rug(rng, a, bed)
    a.wall(rng, room, storage.WARDROBE)
    if not double and room.area > 11:
        a.wall(rng, room, beds.SINGLE_BED)
    for piece in (storage.CHEST, tables.DESK, seating.ARMCHAIR, storage.BOOKSHELF, decor.PLANT, decor.FLOOR_LAMP):
        if rng.chance(0.45 if room.area < 14 else 0.65):
            a.wall(rng, room, piece)


def _office(rng: RandomStream, a: Arranger, room: Room) -> None:
    a.wall(rng, room, tables.DESK)
    for piece in (storage.BOOKSHELF, storage.BOOKSHELF, tables.DESK, storage.CHEST, decor.PLANT, decor.FLOOR_LAMP):
        if rng.chance(0.6):
            a.wall(rng, room, piece)
    if room.area > 10 and rng.chance(0.6):
        a.wall(rng, room, rng.pick((seating.SOFA, seating.ARMCHAIR, beds.SINGLE_BED)))
    if room.area > 14 and rng.chance(0.5):
        a.centre(rng, room, tables.DINING_SET, 0.4)


def _bath(rng: RandomStream, a: Arranger, room: Room) -> None:
    tub = rng.chance(0.6) and a.wall(rng, room, bathroom.BATHTUB)
    a.wall(rng, room, bathroom.TOILET)
    a.wall(rng, room, bathroom.BASIN) or a.wall(rng, room, bathroom.SMALL_BASIN)
    if not tub or room.area > 8:
        a.wall(rng, room, bathroom.SHOWER)
    for piece in (bathroom.WASHING_MACHINE, storage.CONSOLE, decor.PLANT):
        if rng.chance(0.5):
            a.wall(rng, room, piece)


def _hall(rng: RandomStream, a: Arranger, room: Room) -> None:
    for _ in range(1 + int(room.area / 7)):
        a.wall(rng, room, rng.pick((storage.COAT_RACK, storage.CONSOLE, storage.BOOKSHELF, decor.PLANT)))


def _storage(rng: RandomStream, a: Arranger, room: Room) -> None:
    a.wall(rng, room, rng.pick((bathroom.WASHING_MACHINE, storage.WARDROBE)))
    for piece in (storage.BOOKSHELF, storage.CHEST, storage.BOOKSHELF, storage.COAT_RACK):
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
    for side in (0, 1):
        size = storage.NIGHTSTAND.size(rng)
        start = high + 0.04 if side else low - 0.04 - size[0]
        if rng.chance(0.85) and face.start < start and start + size[0] < face.stop:
            a.at_face(rng, face, start, storage.NIGHTSTAND, size)


def _add_rug(rng: RandomStream, a: Arranger, box: Box) -> None:
    """Add a rug that lies partly under the furniture at `box`, shifted towards the room, where it fits."""
    face = a.face_behind(box)
    w, d, h = decor.RUG.size(rng)
    cx, cz = (box[0] + box[2]) / 2, (box[1] + box[3]) / 2
    x, z = (cx, cz + face.side * 0.9) if face.axis == 0 else (cx + face.side * 0.9, cz)
    if face.axis == 1:
        w, d = d, w
    if a.inside(face.room, (x - w / 2, z - d / 2, x + w / 2, z + d / 2)):
        one = Solids(a.solids.detail)
        decor.rug(one, rng, w, d, h)
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
