"""Furniture for rooms of large buildings: corridors, wards, classrooms, large offices, waiting areas, canteens."""

from __future__ import annotations

from batchnav.procedural.furniture.pieces import bathroom, beds, clutter, decor, seating, storage, tables
from batchnav.procedural.furniture.pieces.piece import Piece
from batchnav.procedural.furniture.pieces.public import (
    BENCH,
    COUNTER,
    LOW_SHELF,
    PARTITION,
    PILLAR,
    PUPILS_TABLE,
    SCREEN_CURTAIN,
    TALL_SHELF,
    THIN_TABLE,
)  # fmt: skip
from batchnav.procedural.furniture.placement import Arranger
from batchnav.procedural.plans.layout import CELL, Room
from batchnav.procedural.random_stream import RandomStream
from batchnav.procedural.solids import Solids

_LIGHTS = 5.0
"""Distance between ceiling lights, metres."""


def _corridor(rng: RandomStream, a: Arranger, room: Room) -> None:
    """Seats, beds, shelves and plants along walls, and sometimes a counter or a pillar in the middle."""
    pieces = rng.pick(
        (
            (BENCH, storage.CONSOLE, decor.PLANT),
            (beds.SINGLE_BED, storage.CONSOLE, BENCH),
            (LOW_SHELF, storage.COAT_RACK),
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
        bed = a.wall(rng, room, beds.SINGLE_BED)
        if bed is None:
            break
        if rng.chance(0.5):
            a.wall(rng, room, storage.NIGHTSTAND)
        if rng.chance(0.6):
            _add_screen(rng, a, room, bed, screen)
    for piece in (COUNTER, storage.WARDROBE, bathroom.BASIN, tables.DESK, seating.CHAIR):
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
    a.wall(rng, room, rng.pick((COUNTER, tables.DESK)))
    _rows(rng, a, room, PUPILS_TABLE, (rng.uniform(1.6, 2.4), rng.uniform(1.6, 2.2)), seating.CHAIR)
    for piece in (storage.BOOKSHELF, LOW_SHELF, storage.WARDROBE, decor.PLANT):
        if rng.chance(0.5):
            a.wall(rng, room, piece)


def _bureau(rng: RandomStream, a: Arranger, room: Room) -> None:
    """Desks for many, screens between them."""
    for _ in range(rng.integer(0, 1 + int(room.area / 18))):
        a.centre(rng, room, PARTITION, 0.6)
    if rng.chance(0.5):
        _rows(rng, a, room, THIN_TABLE, (rng.uniform(1.9, 2.8), rng.uniform(1.8, 2.6)), seating.OFFICE_CHAIR)
    for _ in range(int(room.area / rng.uniform(7, 14))):
        a.wall(rng, room, rng.pick((tables.DESK, tables.DESK, storage.BOOKSHELF, LOW_SHELF, storage.CHEST)))
    if room.area > 40 and rng.chance(0.4):
        a.centre(rng, room, PILLAR, 0.7)


def _waiting(rng: RandomStream, a: Arranger, room: Room) -> None:
    """A reception counter and seats."""
    for _ in range(rng.integer(1, 2)):
        a.centre(rng, room, COUNTER, 0.8)
    for _ in range(1 + int(room.area / rng.uniform(5, 10))):
        a.wall(rng, room, rng.pick((BENCH, BENCH, seating.SOFA, seating.ARMCHAIR, decor.PLANT)))
    if room.area > 25 and rng.chance(0.6):
        _rows(rng, a, room, BENCH, (rng.uniform(3.2, 4.0), rng.uniform(1.6, 2.4)), None)
    if rng.chance(0.4):
        a.centre(rng, room, PARTITION, 0.7)


def _canteen(rng: RandomStream, a: Arranger, room: Room) -> None:
    a.wall(rng, room, COUNTER)
    a.centre(rng, room, COUNTER, 0.9)
    seat = rng.pick((seating.STOOL, seating.CHAIR))
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
        a.on_floor(rng, room, rng.pick(clutter.ON_FLOORS), 0.22)


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
