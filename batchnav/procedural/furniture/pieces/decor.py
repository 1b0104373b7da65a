"""Lamps, plants, rugs, pictures, curtains, radiators, ceiling lights."""

from __future__ import annotations

import numpy as np

from batchnav.procedural.furniture.pieces.piece import Piece
from batchnav.procedural.random_stream import RandomStream
from batchnav.procedural.solids import Solids, circle, makes

_STEEP = 1.2
"""Slope of the hidden cones that close lamps above the ceiling: too steep for a navmesh to count as floor."""


@makes("lighting")
def floor_lamp(s: Solids, rng: RandomStream, w: float, d: float, h: float) -> None:
    """A standing lamp with a shade."""
    s.material, r = "steel", w / 2
    s.lathe(
        0, 0, [(0, 0), (0.8 * r, 0), (0.8 * r, 0.015), (0.03, 0.04), (0.013, 0.06), (0.013, h - 0.1), (0, h - 0.05)]
    )
    s.material = "shade"
    low, high, top = h - rng.uniform(0.22, 0.32), h, rng.uniform(0.5, 0.95) * r
    s.lathe(0, 0, [(r, low), (top, high), (top - 0.005, high), (r - 0.005, low)], loop=True)


@makes("plant")
def plant(s: Solids, rng: RandomStream, w: float, d: float, h: float) -> None:
    """A pot plant: arching blades, or a trunk with branches and leaves."""
    s.material = "pot"
    pot, r = min(0.4, 0.3 * h + 0.05), 0.3 * w
    outside = [(0, 0), (0.7 * r, 0), (0.95 * r, pot - 0.05), (1.08 * r, pot - 0.05), (1.08 * r, pot)]
    s.lathe(0, 0, [*outside, (0.92 * r, pot), (0.88 * r, pot - 0.03), (0, pot - 0.03)])
    s.material = "leaf"
    ring = circle(40)
    if rng.chance(0.5):
        n = rng.integer(12, 22) * (1 + s.detail) // 2
        at = ring[(rng.array(0, 40, n)).astype(int)]
        reach, rise = rng.array(0.35, 1.0, n) * w / 2, pot + rng.array(0.45, 1.0, n) * (h - pot)
        base = np.stack([at[:, 0] * 0.03, np.full(n, pot - 0.04), at[:, 1] * 0.03], axis=1)
        knee = np.stack([at[:, 0] * reach * 0.55, rise, at[:, 1] * reach * 0.55], axis=1)
        tip = np.stack([at[:, 0] * reach, rise - 0.35 * reach, at[:, 1] * reach], axis=1)
        s.leaves(base, knee, np.full(n, 0.05))
        s.leaves(knee, tip, np.full(n, 0.05))
        return
    s.material = "bark"
    s.rod((0, pot - 0.05, 0), (0.02, 0.75 * h, 0.01), 0.022, 0.012)
    for _ in range(rng.integer(4, 8)):
        at = ring[rng.integer(0, 39)]
        start = pot + (h - pot) * rng.uniform(0.25, 0.7)
        end = np.array([at[0] * 0.3 * w, min(h - 0.12, start + rng.uniform(0.1, 0.3)), at[1] * 0.3 * w])
        s.material = "bark"
        s.rod((0.01, start, 0.005), end, 0.009, 0.005)
        n = rng.integer(5, 9) * (1 + s.detail) // 2
        base = end + rng.array(-0.04, 0.04, n, 3)
        tip = base + rng.array(-1.0, 1.0, n, 3) * (0.16 * w + 0.04) + (0, 0.03, 0)
        s.material = "leaf"
        s.leaves(base, tip, rng.array(0.04, 0.08, n))


@makes("rug")
def rug(s: Solids, rng: RandomStream, w: float, d: float, h: float) -> None:
    """A thin rug, sometimes round."""
    s.material = "rug"
    if rng.chance(0.25):
        r = min(w, d) / 2
        s.lathe(0, 0, [(0, 0.001), (r, 0.001), (r, h), (0, h)])
    else:
        s.loft(0, 0, [(w / 2, d / 2, 0.03, 0.001), (w / 2, d / 2, 0.03, h)])


@makes("picture")
def picture(s: Solids, rng: RandomStream, w: float, d: float, h: float) -> None:
    """A framed picture or mirror, its back at z = 0."""
    s.material = "art"
    s.box((-w / 2 + 0.01, 0.01, 0), (w / 2 - 0.01, h - 0.01, 0.012))
    s.material, bar = "wood", rng.uniform(0.02, 0.05)
    for x in (-w / 2, w / 2 - bar):
        s.box((x, 0, 0), (x + bar, h, 0.028))
    for y in (0, h - bar):
        s.box((-w / 2 + bar, y, 0), (w / 2 - bar, y + bar, 0.026))


@makes("shelving")
def wall_shelf(s: Solids, rng: RandomStream, w: float, d: float, h: float) -> None:
    """A board on brackets with books, its back at z = 0."""
    s.material = "wood"
    s.box((-w / 2, 0, 0), (w / 2, 0.022, d))
    s.material = "steel"
    for x in (-0.35 * w, 0.35 * w):
        s.box((x - 0.01, -0.12, 0), (x + 0.01, 0, 0.02))
        s.box((x - 0.01, -0.02, 0.02), (x + 0.01, 0, 0.8 * d))
    n = max(2, int(w / 0.045))
    thick, x = rng.array(0.02, 0.04, n), -w / 2 + 0.03
    with s.object("book"):
        s.material = "book"
        for t in thick.tolist():
            if x + t > w / 2 - 0.03:
                break
            if rng.chance(0.75):
                high, deep = 0.022 + rng.uniform(0.6, 1.0) * h, rng.uniform(0.6, 0.95) * d
                s.box((x, 0.022, 0.01), (x + t - 0.001, high, deep))
            x += t


@makes("curtain")
def curtain(s: Solids, rng: RandomStream, w: float, d: float, h: float) -> None:
    """A gathered curtain."""
    s.material = "curtain"
    folds = max(3, round(w / 0.06))
    low, r = rng.uniform(0.02, 0.08), w / folds * 0.62
    for i in range(folds):
        x = ((i + 0.5) / folds - 0.5) * (w - r)
        s.rod((x, low, 0.012 * (-1) ** i), (x, h, 0.012 * (-1) ** i), r, 0.9 * r)


@makes("curtain_rod")
def rail(s: Solids, rng: RandomStream, w: float, d: float, h: float) -> None:
    """A curtain rail at height h, on a wall at z = 0."""
    s.material = "steel"
    s.rod((-w / 2, h, 0.05), (w / 2, h, 0.05), 0.011)
    for x in (-w / 2, w / 2):
        s.box((x - 0.02, h - 0.02, 0.0), (x + 0.02, h + 0.02, 0.08))


@makes("radiator")
def radiator(s: Solids, rng: RandomStream, w: float, d: float, h: float) -> None:
    """A column radiator."""
    s.material = "enamel"
    count = max(4, round(w / 0.07))
    x = ((np.arange(count) + 0.5) / count - 0.5) * (w - 0.02)
    low = np.stack([x - 0.024, np.full(count, 0.12), np.full(count, -d / 2 + 0.02)], axis=1)
    high = np.stack([x + 0.024, np.full(count, h), np.full(count, d / 2 - 0.01)], axis=1)
    s.boxes(low, high)
    for y in (0.17, h - 0.05):
        s.box((-w / 2 + 0.01, y - 0.02, -0.02), (w / 2 - 0.01, y + 0.02, 0.01))
    s.rod((w / 2 - 0.02, 0.15, 0), (w / 2 - 0.02, 0, 0), 0.012)


@makes("lighting")
def pendant(s: Solids, rng: RandomStream, ceiling: float, drop: float) -> None:
    """A hanging lamp, its lowest point `drop` below the ceiling."""
    s.material = "steel"
    r, low = rng.uniform(0.12, 0.24), ceiling - drop
    s.lathe(0, 0, [(0, ceiling - 0.03), (0.05, ceiling - 0.03), (0.05, ceiling), (0, ceiling + _STEEP * 0.05)])
    rise = rng.uniform(0.1, 0.2)
    s.rod((0, ceiling - 0.02, 0), (0, low + rise - 0.01, 0), 0.006)
    s.material = "shade"
    if rng.chance(0.5):
        shade = [(r, low), (0.9 * r, low + 0.5 * rise), (0.3 * r, low + rise), (0.3 * r - 0.005, low + rise - 0.005)]
        s.lathe(0, 0, [*shade, (0.9 * r - 0.006, low + 0.5 * rise - 0.005), (r - 0.005, low)], loop=True)
        s.material = "lamp"
        s.lathe(0, 0, [(0, low + 0.02), (0.03, low + 0.04), (0.03, low + rise), (0, low + rise)])
    else:
        arc = [(0, -1), (0.5, -0.866), (0.866, -0.5), (1, 0), (0.866, 0.5), (0.5, 0.866), (0, 1)]
        s.lathe(0, 0, [(a * 0.5 * rise, low + 0.5 * rise * (1 + b)) for a, b in arc])


@makes("lighting")
def ceiling_light(s: Solids, rng: RandomStream, ceiling: float) -> None:
    """A flat light under the ceiling."""
    s.material = "lamp"
    r, h = rng.uniform(0.12, 0.22), rng.uniform(0.06, 0.1)
    s.lathe(
        0,
        0,
        [
            (0, ceiling - h),
            (0.6 * r, ceiling - 0.95 * h),
            (r, ceiling - 0.5 * h),
            (r, ceiling),
            (0, ceiling + _STEEP * r),
        ],
    )


FLOOR_LAMP = Piece(floor_lamp, (0.32, 0.45), (0.32, 0.45), (1.4, 1.75))
PLANT = Piece(plant, (0.4, 0.8), (0.4, 0.8), (0.5, 1.7))
RUG = Piece(rug, (1.2, 2.4), (0.9, 1.7), (0.012, 0.02))
PICTURE = Piece(picture, (0.3, 1.0), (0.03, 0.03), (0.3, 0.7))
WALL_SHELF = Piece(wall_shelf, (0.5, 1.1), (0.18, 0.24), (0.2, 0.28))
CURTAIN = Piece(curtain, (0.27, 0.27), (0.1, 0.1), (2.0, 2.3))
RADIATOR = Piece(radiator, (0.5, 1.2), (0.1, 0.1), (0.5, 0.62))
