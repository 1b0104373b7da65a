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
from batchnav.procedural.random_draws import Draw
from batchnav.procedural.solids import Solids

_LIGHTS = 5.0
"""Metres between ceiling lights."""


def _corridor(draw: Draw, a: Arranger, room: Room) -> None:
    """Seats, beds, shelves and plants along walls, and sometimes a counter or a pillar in the middle."""
    pieces = draw.pick(
        (
            (BENCH, storage.CONSOLE, decor.PLANT),
            (beds.SINGLE_BED, storage.CONSOLE, BENCH),
            (LOW_SHELF, storage.COAT_RACK),
        )
    )
    for _ in range(int(room.area / draw.uniform(8, 25))):
        a.wall(draw, room, draw.pick(pieces))
    if draw.chance(0.3):
        a.centre(draw, room, draw.pick((COUNTER, PILLAR)), 0.7)


def _ward(draw: Draw, a: Arranger, room: Room) -> None:
    """Beds along the walls, curtains or partitions between them."""
    number = min(12, max(2, int(room.area / draw.uniform(6, 10))))
    screen = draw.pick((SCREEN_CURTAIN, PARTITION))
    for _ in range(number):
        bed = a.wall(draw, room, beds.SINGLE_BED)
        if bed is None:
            break
        if draw.chance(0.5):
            a.wall(draw, room, storage.NIGHTSTAND)
        if draw.chance(0.6):
            _beside(draw, a, room, bed, screen)
    for piece in (COUNTER, storage.WARDROBE, bathroom.BASIN, tables.DESK, seating.CHAIR):
        if draw.chance(0.4):
            a.wall(draw, room, piece)
    for _ in range(int(room.area / 30)):
        a.centre(draw, room, screen, 0.5)


def _beside(draw: Draw, a: Arranger, room: Room, bed, screen: Piece) -> None:
    """A screen along one side of a bed."""
    along_z = a.face_behind(bed).axis == 0
    x, z = (bed[0] + bed[2]) / 2, (bed[1] + bed[3]) / 2
    side = draw.pick((-1, 1))
    away = (bed[2] - bed[0] if along_z else bed[3] - bed[1]) / 2 + 0.35
    if along_z:
        a.at(draw, room, screen, x + side * away, z, 1)
    else:
        a.at(draw, room, screen, x, z + side * away, 0)


def _rows(draw: Draw, a: Arranger, room: Room, piece: Piece, spacing: tuple[float, float], seat: Piece | None) -> None:
    """Pieces in rows, all turned the same way, with a seat behind each."""
    x0, z0, x1, z1 = (v * CELL for v in room.rect)
    quarter = draw.integer(0, 3)
    step = spacing if quarter % 2 == 0 else spacing[::-1]
    back = ((0, -1), (-1, 0), (0, 1), (1, 0))[quarter]
    away = (piece.depth[1] + (seat.depth[1] if seat else 0.0)) / 2 + 0.05
    z = z0 + 1.3
    while z < z1 - 0.9:
        x = x0 + 1.3
        while x < x1 - 0.9:
            if draw.chance(0.9) and a.at(draw, room, piece, x, z, quarter) and seat and draw.chance(0.8):
                a.at(draw, room, seat, x + back[0] * away, z + back[1] * away, quarter)
            x += step[0]
        z += step[1]


def _classroom(draw: Draw, a: Arranger, room: Room) -> None:
    a.wall(draw, room, draw.pick((COUNTER, tables.DESK)))
    _rows(draw, a, room, PUPILS_TABLE, (draw.uniform(1.6, 2.4), draw.uniform(1.6, 2.2)), seating.CHAIR)
    for piece in (storage.BOOKSHELF, LOW_SHELF, storage.WARDROBE, decor.PLANT):
        if draw.chance(0.5):
            a.wall(draw, room, piece)


def _bureau(draw: Draw, a: Arranger, room: Room) -> None:
    """Desks for many, screens between them."""
    for _ in range(draw.integer(0, 1 + int(room.area / 18))):
        a.centre(draw, room, PARTITION, 0.6)
    if draw.chance(0.5):
        _rows(draw, a, room, THIN_TABLE, (draw.uniform(1.9, 2.8), draw.uniform(1.8, 2.6)), seating.OFFICE_CHAIR)
    for _ in range(int(room.area / draw.uniform(7, 14))):
        a.wall(draw, room, draw.pick((tables.DESK, tables.DESK, storage.BOOKSHELF, LOW_SHELF, storage.CHEST)))
    if room.area > 40 and draw.chance(0.4):
        a.centre(draw, room, PILLAR, 0.7)


def _waiting(draw: Draw, a: Arranger, room: Room) -> None:
    """A reception counter and seats."""
    for _ in range(draw.integer(1, 2)):
        a.centre(draw, room, COUNTER, 0.8)
    for _ in range(1 + int(room.area / draw.uniform(5, 10))):
        a.wall(draw, room, draw.pick((BENCH, BENCH, seating.SOFA, seating.ARMCHAIR, decor.PLANT)))
    if room.area > 25 and draw.chance(0.6):
        _rows(draw, a, room, BENCH, (draw.uniform(3.2, 4.0), draw.uniform(1.6, 2.4)), None)
    if draw.chance(0.4):
        a.centre(draw, room, PARTITION, 0.7)


def _canteen(draw: Draw, a: Arranger, room: Room) -> None:
    a.wall(draw, room, COUNTER)
    a.centre(draw, room, COUNTER, 0.9)
    seat = draw.pick((seating.STOOL, seating.CHAIR))
    _rows(draw, a, room, THIN_TABLE, (draw.uniform(2.4, 3.2), draw.uniform(2.0, 2.8)), seat)
    for piece in (TALL_SHELF, decor.PLANT, LOW_SHELF):
        a.wall(draw, room, piece)
    if room.area > 40 and draw.chance(0.5):
        a.centre(draw, room, PILLAR, 0.8)


PUBLIC = {
    "corridor": _corridor, "ward": _ward, "classroom": _classroom, "bureau": _bureau, "waiting": _waiting,
    "canteen": _canteen,
}  # fmt: skip
"""Function that furnishes a room, by kind of room."""


def litter(draw: Draw, a: Arranger, room: Room) -> None:
    """A few things on the floor."""
    for _ in range(draw.integer(0, int(room.area / 20))):
        a.loose(draw, room, draw.pick(clutter.ON_FLOORS), 0.22)


def light(draw: Draw, a: Arranger, room: Room) -> None:
    """Ceiling lights in rows."""
    one = Solids(a.solids.detail)
    decor.ceiling_light(one, draw, room.height)
    x0, z0, x1, z1 = (v * CELL for v in room.rect)
    columns, rows = max(1, round((x1 - x0) / _LIGHTS)), max(1, round((z1 - z0) / _LIGHTS))
    for i in range(columns):
        for k in range(rows):
            x, z = x0 + (x1 - x0) * (i + 0.5) / columns, z0 + (z1 - z0) * (k + 0.5) / rows
            if a.layout.labels[int(z / CELL), int(x / CELL)] == room.index:  # the rectangle may overlap others
                a.solids.place(one, x, z)
