"""The surface of a house: object, material and texture coordinates of each triangle.

Input is the record of `Solids`. The surface has its own random stream, so triangles do not depend on it. Sensors show
unlit colours, so colours contain the shading: a surface is darker the more it faces away from a light above and to one
side, in `LIGHT_STEPS` steps; each step is a material of its own.

Small triangles, of which round solids have many, have the mean colour of their texture in place of the texture: a
textured triangle takes 64 more bytes in a bank. On houses 0 to 63, 21% of the triangles are textured; the textured
triangles of 1,024 houses take 0.65 GB.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple, Protocol

import numpy as np

from batchnav.procedural.materials.finishes import (
    ASSORTED,
    FINISHES,
    FIT,
    GRAIN,
    NUM_KINDS,
    Finish,
    kind_of,
    make_palette,
    without_texture,
)
from batchnav.procedural.materials.textures import LIBRARY, METRES, texture
from batchnav.procedural.random_stream import RandomStream
from batchnav.procedural.solids import TURN, Group, Run, turned
from batchnav.scene.material_sampling import MaterialLibrary
from batchnav.types import LIGHT_STEPS, Material, Surface, Texture

CATEGORIES = (
    "", "basket", "baseboard", "bathtub", "bed", "book", "bottle", "bowl", "box", "cabinet", "ceiling", "chair",
    "chest_of_drawers", "clothes", "coat_rack", "column", "counter", "cup", "curtain", "curtain_rod", "cushion", "desk",
    "door", "doorframe", "floor", "laptop", "lighting", "mirror", "nightstand", "oven", "picture", "plant", "plate",
    "radiator", "refrigerator", "rug", "shelving", "shoes", "shower", "sink", "sofa", "stairs", "stool", "stove",
    "table", "toilet", "toy", "tv_monitor", "vase", "wall", "wardrobe", "washing_machine", "window",
)  # fmt: skip
"""Category names of every procedural scene, by category id; names of Matterport3D (mpcat40) where it has one."""
_COLOUR = 0xC0103
"""First part of the seeds of colours: their random numbers are independent of the house's."""
MODEL = "@"
"""First letter of the material names of models from files; the number of the model follows."""
Shape = tuple[np.ndarray, np.ndarray, np.ndarray]
"""Vertices f64 [V, 3], faces i32 [F, 3], and bool [F]: True for faces that are kept."""
_MIDDLE, _ABOVE, _ASIDE = 0.88, 0.08, 0.1
"""Light level of neutral surfaces, and the ranges that the light from above and from the side add or subtract."""
SMALL = 1e-3
"""Area below which a triangle has no texture, square metres (3 cm x 3 cm)."""


class _Object(NamedTuple):
    """One object (a piece of furniture, a wall, a floor ...) and the frame that it was built in."""

    number: int
    """Object id, from 1 on."""
    category: int
    look: int
    """Number that objects with the same materials share."""
    x: float
    z: float
    turn: int
    y: float


class _Runs(NamedTuple):
    """All runs in order (`solids.Run`), each with its object."""

    runs: list[Run]
    objects: list[_Object]
    """The object of each run."""


class Models(Protocol):
    """Models from files (`furniture.models.Furniture`), which stand in the record under `MODEL` names."""

    @property
    def textures(self) -> tuple[Texture, ...]:
        """Textures of all models."""

    @property
    def categories(self) -> tuple[str, ...]:
        """Categories of all models."""

    @property
    def looks(self) -> Sequence[Surface | None]:
        """Look of each model, with rows of `textures`; None where the model is built of our finishes."""


def house_surface(seed: int, record: Sequence[Run | Group], shape: Shape, models: Models | None = None) -> Surface:
    """Surface of the house of a seed, from the record and the triangles of its solids; `models`: those in the record.

    Materials of models are shaded as all others are, and never randomised.
    """
    rng = RandomStream((_COLOUR, seed))
    palette = make_palette(rng)
    names = CATEGORIES if models is None else tuple(dict.fromkeys((*CATEGORIES, *models.categories)))

    def finish(name: str) -> Finish:
        return Finish((1.0, 1.0, 1.0)) if name.startswith(MODEL) else FINISHES[name](rng, palette)

    surface = make_surface(rng, finish, record, shape, names)
    return surface if models is None else _with_models(surface, _flatten(record, names).runs, shape[2], models)


def _with_models(surface: Surface, runs: list[Run], kept: np.ndarray, models: Models) -> Surface:
    """The surface with the materials, textures and texture coordinates of models on their triangles."""
    assert surface.uv is not None and surface.finish is not None
    light, place = surface.finish[surface.material, 2].astype(np.int64), np.cumsum(kept) - 1
    material, uv, materials = surface.material.copy(), surface.uv.copy(), list(surface.materials)
    textures, rows, known = list(surface.textures), dict[int, int](), dict[tuple[str, int], int]()
    stop = 0
    for name, count, _ in runs:
        start, stop = stop, stop + count
        if not name.startswith(MODEL):
            continue
        look = models.looks[int(name.removeprefix(MODEL))]
        assert look is not None
        here = kept[start:stop]
        at = place[start:stop][here]
        pairs, inverse = np.unique(look.material[here] * (LIGHT_STEPS + 1) + light[at], return_inverse=True)
        for pair in pairs.tolist():
            if (name, pair) not in known:
                known[name, pair] = len(materials)
                of, level = divmod(pair, LIGHT_STEPS + 1)
                (red, green, blue, _), row = look.materials[of]
                if row >= 0 and row not in rows:
                    rows[row] = len(textures)
                    textures.append(models.textures[row])
                r, g, b = (round(level / LIGHT_STEPS * channel, 4) for channel in (red, green, blue))
                materials.append(Material((r, g, b, 1.0), rows.get(row, -1)))
        material[at] = np.array([known[name, pair] for pair in pairs.tolist()], np.int32)[inverse.reshape(-1)]
        if look.uv is not None:
            uv[at] = look.uv[here]
    fixed = np.zeros((len(materials) - len(surface.materials), 4), np.int32)
    fixed[:, 1] = -1
    return surface._replace(
        material=material, materials=tuple(materials), textures=tuple(textures), uv=uv,
        finish=np.concatenate([surface.finish, fixed]),
    )  # fmt: skip


def make_surface(
    rng: RandomStream,
    finish: Callable[[str], Finish],
    record: Sequence[Run | Group],
    shape: Shape,
    categories: Sequence[str],
) -> Surface:
    """The surface of triangles that were added to `Solids`.

    Args:
        rng: random stream for the direction of light and for individual finishes.
        finish: samples the finish of a material name; called once for each look of objects.
        record: record of the solids.
        shape: triangles of the solids.
        categories: names of categories; the first is "".
    """
    (vertices, faces, kept), flat = shape, _flatten(record, categories)
    light_from = rng.array(-1.0, 1.0, 2)
    finishes, names, finish_of = _choose(rng, finish, flat)
    counts = np.array([count for _, count, _ in flat.runs])
    corners = vertices[faces]
    normal = np.cross(corners[:, 1] - corners[:, 0], corners[:, 2] - corners[:, 0])
    length = np.linalg.norm(normal, axis=1)
    normal /= np.maximum(length, 1e-30)[:, None]
    num_whole = len(finishes)
    finishes, finish_of, whole = _without_small(finishes, finish_of, length / 2)
    side = light_from / max(float(np.abs(light_from).max()), 0.1)
    light = _MIDDLE + _ABOVE * normal[:, 1] + _ASIDE * (normal[:, 0] * side[0] + normal[:, 2] * side[1]) / 2
    level = np.where(
        np.array([finish.lit for finish in finishes])[finish_of],
        np.round(light * LIGHT_STEPS).astype(np.int64),
        LIGHT_STEPS,
    )
    shades = finish_of * (LIGHT_STEPS + 1) + np.minimum(level, LIGHT_STEPS)
    pairs, material = np.unique(shades, return_inverse=True)
    chosen, lights = np.divmod(pairs, LIGHT_STEPS + 1)
    rows = sorted({finishes[i].texture for i in chosen.tolist()} - {-1})
    materials = tuple(
        _material(finishes[i], light / LIGHT_STEPS, rows)
        for i, light in zip(chosen.tolist(), lights.tolist(), strict=True)
    )
    numbers_and_kinds = _kinds(finishes[:num_whole], names)[whole[chosen]]
    shade_of = np.column_stack([numbers_and_kinds, lights, chosen >= num_whole]).astype(np.int32)
    numbers, category = (
        np.repeat(np.array([getattr(owner, field) for owner in flat.objects], np.int32), counts)
        for field in ("number", "category")
    )
    uv = _unwrap(corners, normal, flat, counts, finishes, finish_of)
    return Surface(
        material.reshape(-1)[kept].astype(np.int32), materials, tuple(map(texture, rows)), uv[kept], None,
        numbers[kept], category[kept], tuple(categories), shade_of,
    )  # fmt: skip


def _material(finish: Finish, light: float, rows: list[int]) -> Material:
    r, g, b = (round(light * channel, 4) for channel in finish.color)
    return Material((r, g, b, 1.0), rows.index(finish.texture) if finish.texture >= 0 else -1)


def _flatten(record: Sequence[Run | Group], categories: Sequence[str]) -> _Runs:
    """All runs of a record, each with its object in world coordinates."""
    rows = {name: row for row, name in enumerate(categories)}
    numbers: dict[object, int] = {}
    looks: dict[object, int] = {}
    outside = _Object(0, 0, 0, 0.0, 0.0, 0, 0.0)

    def walk(record: Sequence[Run | Group], owner: _Object, place: tuple) -> Iterator[tuple[Run, _Object]]:
        for entry in record:
            if not isinstance(entry, Group):
                yield entry, owner
                continue
            x, z, turn, y = place
            dx, dz = turned(entry.x, entry.z, turn)
            there = (x + dx, z + dz, (turn + entry.turn) % TURN, y + entry.y)
            inner = owner
            if entry.category:
                # A record that is placed twice gives two objects of one look.
                number = numbers.setdefault(entry.key or len(numbers), len(numbers) + 1)
                look = looks.setdefault(entry.look or id(entry.record), len(looks) + 1)
                inner = _Object(number, rows[entry.category], look, *there)
            yield from walk(entry.record, inner, there)

    runs, objects = zip(*walk(record, outside, (0.0, 0.0, 0, 0.0)), strict=True)
    return _Runs(list(runs), list(objects))


def _kinds(finishes: list[Finish], names: list[str]) -> np.ndarray:
    """i64 [n, 2]: for each finish of a house a number, which equal finishes share, and its kind."""
    first: dict[Finish, int] = {}
    numbers = [first.setdefault(finish, i) for i, finish in enumerate(finishes)]
    return np.array([(i, kind_of(names[i], finishes[i])) for i in numbers], np.int64)


def _choose(
    rng: RandomStream, finish: Callable[[str], Finish], flat: _Runs
) -> tuple[list[Finish], list[str], np.ndarray]:
    """The finishes of a house, the material of each, and i64 [F]: the finish of each triangle."""
    finishes: list[Finish] = []
    names: list[str] = []
    known: dict[tuple[int, str], int] = {}
    assorted: dict[str, int] = {}
    of_triangle = []
    for (name, count, each), owner in zip(flat.runs, flat.objects, strict=True):
        if name in ASSORTED:
            if name not in assorted:
                assorted[name] = len(finishes)
                finishes += [finish(name) for _ in range(ASSORTED[name])]
                names += ASSORTED[name] * [name]
            chosen = assorted[name] + rng.array(0.0, ASSORTED[name], count // each).astype(np.int64)
            of_triangle.append(np.repeat(chosen, each))
            continue
        if (owner.look, name) not in known:
            known[owner.look, name] = len(finishes)
            finishes.append(finish(name))
            names.append(name)
        of_triangle.append(np.full(count, known[owner.look, name]))
    return finishes, names, np.concatenate(of_triangle)


def _without_small(
    finishes: list[Finish], finish_of: np.ndarray, area: np.ndarray
) -> tuple[list[Finish], np.ndarray, np.ndarray]:
    """Finishes and their indices, with the mean colour of the texture for small triangles; FIT textures stay.

    Returns the finishes with mean-colour finishes appended, i64 [F] the finish of each triangle, and i64 [n] the
    original finish of each finish.
    """
    textured = np.array([finish.texture >= 0 and finish.mapping != FIT for finish in finishes])
    small = textured[finish_of] & (area < SMALL)
    used, places = np.unique(finish_of[small], return_inverse=True)
    finish_of = finish_of.copy()
    finish_of[small] = len(finishes) + places
    of_which = np.concatenate([np.arange(len(finishes)), used])
    return finishes + [without_texture(finishes[i]) for i in used.tolist()], finish_of, of_which


def _unwrap(corners, normal, flat: _Runs, counts, finishes: list[Finish], finish_of: np.ndarray) -> np.ndarray:
    """f32 [F, 3, 2]: texture coordinates by projection along the object's axis that the triangle faces most; V down."""
    frames = np.array([owner[3:] for owner in flat.objects])[np.repeat(np.arange(len(counts)), counts)]
    cos, sin = turned(1.0, 0.0, -frames[:, 2].astype(np.int64))
    local = np.empty_like(corners)
    x, z = corners[:, :, 0] - frames[:, None, 0], corners[:, :, 2] - frames[:, None, 1]
    local[:, :, 0] = x * cos[:, None] - z * sin[:, None]
    local[:, :, 1] = corners[:, :, 1] - frames[:, None, 3]
    local[:, :, 2] = x * sin[:, None] + z * cos[:, None]
    along = np.stack([normal[:, 0] * cos - normal[:, 2] * sin, normal[:, 1], normal[:, 0] * sin + normal[:, 2] * cos])
    facing = np.abs(along).argmax(0)
    starts = np.cumsum(counts) - counts
    low = np.repeat(np.minimum.reduceat(local.min(1), starts), counts, axis=0)
    size = np.repeat(np.maximum.reduceat(local.max(1), starts), counts, axis=0) - low
    right, down = np.array([2, 0, 0])[facing], np.array([1, 2, 1])[facing]
    mapping = np.array([finish.mapping for finish in finishes])[finish_of]
    rows = np.arange(len(facing))
    swap = (mapping == GRAIN) & (size[rows, down] > size[rows, right])
    right, down = np.where(swap, down, right), np.where(swap, right, down)
    metres = METRES[np.array([finish.texture for finish in finishes])[finish_of]]
    whole = mapping == FIT
    uv = np.empty((len(facing), 3, 2))
    for k, axis in enumerate((right, down)):
        at = local[rows[:, None], np.arange(3)[None], axis[:, None]]
        share = (at - low[rows, axis][:, None]) / np.maximum(size[rows, axis], 1e-9)[:, None]
        upside_down = axis == 1  # +Y is up, and V grows downwards
        value = np.where(whole[:, None], share, at / metres[:, k, None])
        uv[:, :, k] = np.where(upside_down[:, None], np.where(whole[:, None], 1.0 - value, -value), value)
    uv -= np.where(whole[:, None], 0.0, np.floor(uv.min(1)))[:, None]  # small values keep their precision
    return uv.astype(np.float32)


# The library of materials that `scene.material_sampling` samples from when it randomises the materials of houses

_SEED = 0x5A7C4
"""First part of the library's seed: its random numbers are independent of all others."""
SAMPLES, PALETTES = 1024, 128
"""Number of finishes sampled for each material name, and of house palettes that they use."""


@functools.cache
def make_material_library() -> MaterialLibrary:
    """`SAMPLES` finishes for each material name, distributed as in houses, sorted by kind; equal on every machine."""
    rng = RandomStream(_SEED)
    palettes = [make_palette(rng) for _ in range(PALETTES)]
    found: list[list[Finish]] = [[] for _ in range(NUM_KINDS)]
    for name, finish_of in FINISHES.items():
        for i in range(SAMPLES):
            finish = finish_of(rng, palettes[i % PALETTES])
            found[kind_of(name, finish)].append(finish)
    starts = np.cumsum([0, *map(len, found)]).astype(np.int32)
    materials = [material for kind in found for finish in kind for material in _both(finish)]
    return MaterialLibrary(tuple(materials), tuple(map(texture, range(len(LIBRARY)))), starts)


def _both(finish: Finish) -> tuple[Material, Material]:
    """A finish, and a material with its mean colour."""
    plain = finish if finish.texture < 0 else without_texture(finish)
    return Material((*finish.color, 1.0), finish.texture), Material((*plain.color, 1.0))
