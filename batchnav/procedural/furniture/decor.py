"""Decor (lamps, plants, rugs, pictures, curtains, radiators, ceiling lights) and small objects."""

from __future__ import annotations

import numpy as np

from batchnav.procedural.furniture.placement import Piece
from batchnav.procedural.random_stream import RandomStream
from batchnav.procedural.solids import TURN, Solids, circle, makes

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


# Small objects: books, crockery, toys, boxes, shoes; on surfaces and on the floor


@makes("book")
def book_row(s: Solids, rng: RandomStream, x0: float, x1: float, y: float, z0: float, z1: float, room: float) -> None:
    """Upright books on a shelf board at height y, up to `room` tall, spines at z1."""
    count = max(1, int((x1 - x0) / 0.03 * rng.uniform(0.35, 1.0)))
    thick = rng.array(0.018, 0.045, count)
    right = np.cumsum(thick) + x0
    right = right[right < x1]
    if not len(right):
        return
    left = right - thick[: len(right)]
    high = y + rng.array(0.55, 0.92, len(right)) * min(room, 0.34)
    front = z1 - rng.array(0.0, 0.04, len(right))
    deep = np.maximum(front - rng.array(0.13, 0.22, len(right)), z0)
    low = np.stack([left, np.full_like(left, y), deep], axis=1)
    s.material = "book"
    s.boxes(low, np.stack([right - 0.001, high, front], axis=1))


@makes("book")
def book_stack(s: Solids, rng: RandomStream) -> None:
    """A pile of lying books."""
    y = 0.0
    for _ in range(rng.integer(2, 6)):
        one, thick = Solids(s.detail), rng.uniform(0.015, 0.045)
        one.material = "book"
        w, d = rng.uniform(0.07, 0.1), rng.uniform(0.1, 0.135)
        one.box((-w, 0, -d), (w, thick, d))
        s.place(one, 0.0, 0.0, rng.integer(-9, 9), y)
        y += thick


@makes("bowl")
def bowl(s: Solids, rng: RandomStream) -> None:
    """An open bowl, sometimes with fruit."""
    s.material = "crockery"
    r, h = rng.uniform(0.07, 0.14), rng.uniform(0.04, 0.09)
    outside = [(0, 0), (0.45 * r, 0), (0.75 * r, 0.3 * h), (0.95 * r, 0.7 * h), (r, h)]
    s.lathe(0, 0, [*outside, (0.94 * r, h), (0.7 * r, 0.4 * h), (0.4 * r, 0.15 * h), (0, 0.12 * h)])
    s.material = "fruit"
    for _ in range(rng.integer(0, 4)):
        x, z = rng.uniform(-0.4, 0.4) * r, rng.uniform(-0.4, 0.4) * r
        sphere(s, x, 0.6 * h, z, 0.035)


def sphere(s: Solids, x: float, y: float, z: float, r: float) -> None:
    """A ball about (x, y, z)."""
    arc = [(0, -1), (0.5, -0.866), (0.866, -0.5), (1, 0), (0.866, 0.5), (0.5, 0.866), (0, 1)]
    s.lathe(x, z, [(a * r, y + b * r) for a, b in arc])


@makes("vase")
def vase(s: Solids, rng: RandomStream) -> None:
    """A turned vase, sometimes with stems and leaves."""
    s.material = "crockery"
    r, h = rng.uniform(0.04, 0.09), rng.uniform(0.14, 0.32)
    belly, neck = rng.uniform(0.9, 1.4), rng.uniform(0.4, 0.8)
    outside = [(0, 0), (0.6 * r, 0), (0.9 * belly * r, 0.25 * h), (belly * r, 0.45 * h), (neck * r, 0.8 * h)]
    s.lathe(0, 0, [*outside, (r * (neck + 0.2), h), (r * (neck + 0.1), h), (0.8 * neck * r, 0.8 * h), (0, 0.5 * h)])
    if rng.chance(0.5):
        s.material = "leaf"
        n = rng.integer(5, 9)
        base = np.stack([rng.array(-0.01, 0.01, n), np.full(n, 0.85 * h), rng.array(-0.01, 0.01, n)], axis=1)
        tip = np.stack([rng.array(-0.12, 0.12, n), h + rng.array(0.1, 0.3, n), rng.array(-0.12, 0.12, n)], axis=1)
        s.leaves(base, tip, np.full(n, 0.035))


@makes("cup")
def cup(s: Solids, rng: RandomStream) -> None:
    """A mug with a handle."""
    s.material = "crockery"
    r, h = rng.uniform(0.032, 0.045), rng.uniform(0.07, 0.11)
    s.lathe(0, 0, [(0, 0), (0.9 * r, 0), (r, 0.2 * h), (r, h), (0.88 * r, h), (0.85 * r, 0.1 * h), (0, 0.1 * h)])
    s.box((0.9 * r, 0.3 * h, -0.006), (1.7 * r, 0.42 * h, 0.006))
    s.box((1.5 * r, 0.42 * h, -0.006), (1.7 * r, 0.75 * h, 0.006))
    s.box((0.9 * r, 0.75 * h, -0.006), (1.7 * r, 0.87 * h, 0.006))


@makes("bottle")
def bottle(s: Solids, rng: RandomStream) -> None:
    """A bottle or jar."""
    s.material = "bottle"
    r, h, neck = rng.uniform(0.03, 0.045), rng.uniform(0.16, 0.32), rng.uniform(0.3, 0.8)
    body = [(0, 0), (r, 0), (r, 0.6 * h), (neck * r, 0.78 * h), (neck * r, 0.96 * h), (neck * r + 0.004, h)]
    s.lathe(0, 0, [*body, (0, h)])


@makes("plate")
def plate_setting(s: Solids, rng: RandomStream) -> None:
    """A plate, a glass, knife and fork; the diner sits towards +Z."""
    s.material = "crockery"
    s.lathe(0, 0, [(0, 0), (0.08, 0), (0.125, 0.018), (0.122, 0.022), (0.08, 0.008), (0, 0.008)])
    s.material = "metal"
    s.box((0.15, 0, -0.09), (0.165, 0.004, 0.09))
    s.box((-0.165, 0, -0.09), (-0.15, 0.004, 0.09))
    s.material, r = "glass", 0.032
    s.lathe(0.14, -0.17, [(0, 0), (r, 0), (r * 1.1, 0.12), (r, 0.12), (r * 0.9, 0.01), (0, 0.01)])


@makes("box")
def carton(s: Solids, rng: RandomStream) -> None:
    """A box; an open one shows its flaps."""
    s.material = "carton"
    w, d, h = rng.uniform(0.08, 0.22), rng.uniform(0.08, 0.16), rng.uniform(0.06, 0.22)
    s.box((-w, 0, -d), (w, h, d))
    if rng.chance(0.5):
        s.box((-w, h, d - 0.01), (w, h + 0.1, d), lean=(0.0, 0.08))
        s.box((-w, h, -d), (w, h + 0.1, 0.01 - d), lean=(0.0, -0.08))


@makes("toy")
def ball(s: Solids, rng: RandomStream) -> None:
    """A ball on the floor."""
    s.material = "toy"
    r = rng.uniform(0.05, 0.13)
    sphere(s, 0.0, r, 0.0, r)


@makes("toy")
def blocks(s: Solids, rng: RandomStream) -> None:
    """Toy blocks at random positions around the first one."""
    for i in range(rng.integer(3, 7)):
        one, a = Solids(s.detail), rng.uniform(0.02, 0.035)
        one.material = "toy"
        one.box((-a, 0, -a), (a, 2 * a, a))
        s.place(
            one, rng.uniform(-0.12, 0.12) if i else 0.0, rng.uniform(-0.12, 0.12) if i else 0.0, rng.integer(0, TURN)
        )


@makes("shoes")
def shoes(s: Solids, rng: RandomStream) -> None:
    """A pair of shoes."""
    for side in (-0.07, 0.07):
        one = Solids(s.detail)
        one.material = "shoe"
        one.loft(0, 0, [(0.045, 0.14, 0.04, 0.0), (0.045, 0.14, 0.04, 0.03), (0.04, 0.125, 0.035, 0.06)])
        one.loft(0, -0.06, [(0.04, 0.075, 0.035, 0.055), (0.035, 0.05, 0.03, 0.11)])
        s.place(one, side, rng.uniform(-0.03, 0.03), rng.integer(-8, 8))


@makes("basket")
def basket(s: Solids, rng: RandomStream) -> None:
    """A laundry or waste-paper basket with something in it."""
    s.material = "wicker"
    r, h = rng.uniform(0.13, 0.22), rng.uniform(0.25, 0.45)
    outside = [(0, 0), (0.75 * r, 0), (0.88 * r, 0.5 * h), (r, h), (1.04 * r, h), (1.04 * r, h + 0.02)]
    s.lathe(0, 0, [*outside, (0.94 * r, h + 0.02), (0.82 * r, 0.5 * h), (0.7 * r, 0.02), (0, 0.02)])
    s.material = "fabric"
    for _ in range(rng.integer(0, 3)):
        sphere(s, rng.uniform(-0.3, 0.3) * r, rng.uniform(0.5, 0.9) * h, rng.uniform(-0.3, 0.3) * r, 0.4 * r)


@makes("picture")
def picture_frame(s: Solids, rng: RandomStream) -> None:
    """A small leaning frame."""
    s.material = "art"
    w, h = rng.uniform(0.05, 0.09), rng.uniform(0.12, 0.22)
    s.box((-w, 0, 0), (w, h, 0.012), lean=(0.0, -0.04))
    s.material = "wood"
    s.box((-0.01, 0, -0.08), (0.01, 0.6 * h, -0.07), lean=(0.0, 0.05))


@makes("laptop")
def laptop(s: Solids, rng: RandomStream) -> None:
    """An open laptop computer."""
    s.material = "metal"
    s.box((-0.16, 0, -0.11), (0.16, 0.018, 0.11))
    s.material = "screen"
    s.box((-0.16, 0.018, -0.125), (0.16, 0.22, -0.115), lean=(0.0, -0.06))


ON_SURFACES = (book_stack, bowl, vase, cup, cup, bottle, carton, picture_frame)
ON_FLOORS = (book_stack, carton, carton, ball, blocks, shoes, basket, vase)


def scatter(s: Solids, rng: RandomStream, width: float, depth: float, y: float, count: int, things=ON_SURFACES) -> None:
    """Add up to `count` small objects on a level rectangle centred at the origin, at most one per 0.3 m square."""
    nx, nz = max(1, int(width / 0.3)), max(1, int(depth / 0.3))
    fields = rng.shuffled([(i, k) for i in range(nx) for k in range(nz)])
    for i, k in fields[: min(count, len(fields))]:
        thing = Solids(s.detail)
        rng.pick((*things, *s.things))(thing, rng)
        x = ((i + 0.5) / nx - 0.5) * width + rng.uniform(-0.02, 0.02)
        z = ((k + 0.5) / nz - 0.5) * depth + rng.uniform(-0.02, 0.02)
        s.place(thing, x, z, rng.integer(-20, 20), y)
