"""Furniture from a folder of mesh files `CATEGORY/*.glb`: reading it, and the places that its models take in a house.

Files are in metres, +Y up, with the front towards -Z; `sizes.yaml` in the folder says where they are not. A model takes
the places of our own pieces (`SLOTS`) by its category and its size: against walls, in front of sofas, around tables.
Models of other categories stand on tables and floors if they are small, else along walls.

Each placed model is an object of its own, with the name of its folder as its category. It keeps its materials and
textures, or gets finishes of ours; meshes without materials always do. Textures are limited to `LARGEST_TEXTURE` texels
a side; small triangles have one colour of their texture, since each textured triangle takes memory in a bank.
"""

from __future__ import annotations

import fnmatch
import functools
import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from batchnav.config import read_yaml
from batchnav.errors import MeshError, few, shortened
from batchnav.procedural.furniture import decor, kitchen, living
from batchnav.procedural.furniture.placement import Build, Piece, Range
from batchnav.procedural.materials.surface import MODEL, SMALL
from batchnav.procedural.random_stream import RandomStream
from batchnav.procedural.solids import TURN, Solids
from batchnav.runtime.files import content_hash
from batchnav.scene.blocks import pixels_of
from batchnav.scene.images import AppearanceConfig
from batchnav.scene.mesh import load_mesh
from batchnav.types import Material, Surface, Texture, TriangleMesh

log = logging.getLogger(__name__)

SIZES = "sizes.yaml"
"""File with the axes and sizes of models that are not in metres, +Y up, front -Z."""
MATERIALS = ("keep", "random")
"""Materials of the models: those of their files, or finishes of ours."""
MOST_TRIANGLES = 50_000
"""Triangles of a model above which a warning is given: a house holds dozens of models."""
LARGEST_TEXTURE = 256
"""Largest side of a model's texture, texels."""
_AXES = {sign + axis: (-1.0 if sign else 1.0) * np.eye(3)[i] for i, axis in enumerate("xyz") for sign in ("", "-")}
_VARIED = 0.06
"""Largest change of a model's size from house to house, as a share."""
_TINTS = 15
"""Steps of each channel of the colours of small triangles and of vertices."""
_LEVEL, _TOP_SHARE = 0.98, 0.5
"""Smallest cosine between a level triangle's normal and the vertical; smallest share of the footprint that a level top
covers."""


class Slot(NamedTuple):
    """A place that models of some categories and sizes take."""

    piece: Piece | None
    """Our own piece of this place; None for a place on tables."""
    categories: tuple[str, ...]
    """Names of folders, in words."""
    width: Range
    depth: Range
    height: Range
    """Plausible sizes, metres; models of other sizes are scaled."""
    finishes: tuple[str, ...] = ("wood", "front", "metal")
    """Materials of models that do not keep their own, of the part with the largest area first."""

    def scales(self, size: Sequence[float]) -> Range:
        """Smallest and largest scale at which a size is plausible; the first is larger where none is."""
        bounds = self.width, self.depth, self.height
        return max(b[0] / s for b, s in zip(bounds, size, strict=True)), min(
            b[1] / s for b, s in zip(bounds, size, strict=True)
        )


_SOFT, _CERAMIC = ("fabric", "wood", "metal"), ("ceramic", "metal", "plastic")
_TVS, _PLANTS = ("tv", "tv monitor", "television", "tv screen", "monitor"), ("plant", "potted plant", "flower")
_LAMPS = ("lamp", "lighting", "light")
TV = Slot(None, _TVS, (0.35, 1.7), (0.02, 0.5), (0.25, 1.2), ("screen", "black", "steel"))
"""Televisions, which stand on a low board."""
SLOTS = (
    Slot(living.SOFA, ("sofa", "couch", "loveseat", "settee"), (1.2, 3.4), (0.6, 2.4), (0.45, 1.3), _SOFT),
    Slot(living.CHAIR, ("chair", "dining chair", "kitchen chair"), (0.35, 0.66), (0.36, 0.75), (0.65, 1.25)),
    Slot(living.ARMCHAIR, ("armchair", "arm chair", "chair"), (0.6, 1.3), (0.6, 1.3), (0.5, 1.3), _SOFT),
    Slot(
        living.OFFICE_CHAIR, ("office chair", "desk chair", "swivel chair"), (0.4, 0.85), (0.4, 0.85), (0.7, 1.4), _SOFT
    ),
    Slot(living.POUFFE, ("stool", "ottoman", "pouffe", "footstool"), (0.25, 0.9), (0.25, 0.9), (0.25, 0.85), _SOFT),
    Slot(living.DOUBLE_BED, ("bed", "double bed"), (1.25, 2.4), (1.7, 2.6), (0.3, 2.2), ("blanket", "wood", "linen")),
    Slot(living.SINGLE_BED, ("bed", "single bed"), (0.7, 1.25), (1.5, 2.5), (0.3, 2.2), ("blanket", "wood", "linen")),
    Slot(living.DINING_SET, ("table", "dining table", "kitchen table"), (0.65, 2.6), (0.6, 1.5), (0.6, 0.9)),
    Slot(living.COFFEE_TABLE, ("coffee table", "table"), (0.4, 1.5), (0.35, 1.2), (0.2, 0.58)),
    Slot(living.SIDE_TABLE, ("side table", "end table", "table"), (0.25, 0.75), (0.25, 0.75), (0.35, 0.85)),
    Slot(living.DESK, ("desk", "writing desk", "computer desk"), (0.8, 2.2), (0.45, 1.1), (0.65, 1.6)),
    Slot(
        living.BOOKSHELF, ("bookshelf", "bookcase", "shelving", "shelf", "shelves"), (0.4, 2.6), (0.15, 0.7), (0.7, 2.4)
    ),
    Slot(living.WARDROBE, ("wardrobe", "closet", "armoire"), (0.6, 3.0), (0.4, 0.9), (1.5, 2.5)),
    Slot(
        living.CHEST, ("chest of drawers", "dresser", "cabinet", "sideboard", "commode"), (0.4, 2.4), (0.3, 0.75),
        (0.45, 1.5),
    ),
    Slot(living.CONSOLE, ("console", "cabinet"), (0.3, 1.4), (0.2, 0.5), (0.5, 1.3)),
    Slot(living.NIGHTSTAND, ("nightstand", "night stand", "bedside table"), (0.3, 0.75), (0.25, 0.6), (0.35, 0.85)),
    Slot(living.TV_STAND, ("tv stand", "tv cabinet", "tv bench"), (0.8, 2.6), (0.3, 0.8), (0.2, 0.85)),
    TV,
    Slot(living.COAT_RACK, ("coat rack",), (0.2, 1.3), (0.1, 0.7), (1.2, 2.1)),
    Slot(decor.FLOOR_LAMP, ("floor lamp", *_LAMPS), (0.15, 0.9), (0.15, 0.9), (0.9, 2.1), ("shade", "steel", "lamp")),
    Slot(None, ("table lamp", *_LAMPS), (0.05, 0.45), (0.05, 0.45), (0.1, 0.75), ("shade", "crockery", "steel")),
    Slot(decor.PLANT, _PLANTS, (0.15, 1.4), (0.15, 1.4), (0.45, 2.3), ("leaf", "pot", "bark")),
    Slot(None, _PLANTS, (0.05, 0.5), (0.05, 0.5), (0.08, 0.6), ("leaf", "pot", "bark")),
    Slot(decor.RUG, ("rug", "carpet"), (0.6, 3.5), (0.5, 2.6), (0.001, 0.06), ("rug",)),
    Slot(decor.PICTURE, ("picture", "painting", "poster"), (0.15, 1.8), (0.005, 0.12), (0.15, 1.2), ("art", "wood")),
    Slot(
        kitchen.REFRIGERATOR, ("refrigerator", "fridge", "freezer"), (0.45, 1.2), (0.45, 1.0), (0.8, 2.1),
        ("appliance", "metal", "black"),
    ),
    Slot(kitchen.TOILET, ("toilet",), (0.3, 0.7), (0.4, 0.9), (0.35, 1.2), _CERAMIC),
    Slot(kitchen.BASIN, ("sink", "washbasin", "basin", "vanity"), (0.3, 1.5), (0.28, 0.75), (0.5, 2.1), _CERAMIC),
    Slot(kitchen.SMALL_BASIN, ("sink", "washbasin", "basin"), (0.3, 0.8), (0.28, 0.6), (0.5, 1.2), _CERAMIC),
    Slot(kitchen.BATHTUB, ("bathtub", "bath tub", "bath"), (1.1, 2.3), (0.6, 1.7), (0.35, 1.1), _CERAMIC),
    Slot(kitchen.SHOWER, ("shower",), (0.6, 1.7), (0.6, 1.5), (1.6, 2.45), ("glass", "metal", "ceramic")),
    Slot(
        kitchen.WASHING_MACHINE, ("washing machine", "washer", "dryer", "dishwasher"), (0.4, 0.85), (0.4, 0.85),
        (0.6, 1.2), ("appliance", "black", "metal"),
    ),
)  # fmt: skip
"""Places of models. A model takes every place of its category that it fits as it is; else the nearest one, scaled."""
SMALL_THING = Slot(None, (), (0.02, 0.4), (0.02, 0.4), (0.01, 0.6), ("toy", "crockery", "metal"))
LARGE_THING = Slot(None, (), (0.1, 2.5), (0.1, 1.6), (0.1, 2.2))
"""Places of models of other categories: on tables and floors, and along walls."""


class Model(NamedTuple):
    """One mesh file, which stands on y = 0, centred in x and z, and faces +Z, as our own pieces do."""

    name: str
    """CATEGORY/FILE, without suffix."""
    category: str
    vertices: np.ndarray
    """f64 [V, 3], metres."""
    faces: np.ndarray
    """i32 [F, 3]."""
    look: Surface | None
    """Materials and texture coordinates; textures are rows of `Furniture.textures`. None: the file has none."""
    size: tuple[float, float, float]
    """Width, depth and height, metres."""
    low: float
    """Height of the lowest point in the file, metres."""
    top: float
    """Height of the level top that covers most of the footprint, metres; 0 for none."""


class Fit(NamedTuple):
    """A model in a place."""

    number: int
    """Row of `Furniture.models`."""
    slot: Slot
    scale: Range
    """Range of its scale."""


def words_of(category: str) -> str:
    """A folder's name in words, in lower case."""
    return " ".join(category.replace("_", " ").replace("-", " ").lower().split())


def slots_of(category: str) -> list[Slot]:
    """The places of a category, by its name; none for a category that no place asks for."""
    return [slot for slot in SLOTS if words_of(category) in slot.categories]


def fits_of(model: Model, number: int = 0) -> list[Fit]:
    """The places that a model takes: all that it fits as it is; where there is none, the one that scales it least."""
    slots = slots_of(model.category) or [SMALL_THING, LARGE_THING]
    found = [(slot, *slot.scales(model.size)) for slot in slots]
    as_is = [each for each in found if each[1] <= 1.0 <= each[2]]
    if slots[0] is SMALL_THING and as_is:
        as_is = as_is[:1]  # large things are no smaller ones
    if not as_is:
        as_is = [min(found, key=lambda each: (each[1] > each[2], abs(np.log(_nearest(*each[1:])))))]
    return [Fit(number, slot, _varied(low, high)) for slot, low, high in as_is]


def _nearest(low: float, high: float) -> float:
    """The plausible scale that is nearest to 1; `high` where none is plausible."""
    return min(max(1.0, low), high)


def _varied(low: float, high: float) -> Range:
    middle = _nearest(low, high)
    return max(min(low, high), middle * (1.0 - _VARIED)), min(high, middle * (1.0 + _VARIED))


@dataclass(frozen=True)
class Furniture:
    """The models of a folder, and the places that they take."""

    models: tuple[Model, ...]
    textures: tuple[Texture, ...] = ()
    """Textures of all models."""
    materials: str = "keep"
    """One of `MATERIALS`."""
    _fits: dict[Piece | Slot, list[Fit]] = field(default_factory=dict, init=False)
    """Models of each place: by our own piece, or by the slot of those that have none."""

    def __post_init__(self) -> None:
        for number, model in enumerate(self.models):
            for fit in fits_of(model, number):
                self._fits.setdefault(fit.slot.piece or _named(fit.slot), []).append(fit)

    @property
    def categories(self) -> tuple[str, ...]:
        """Categories of the models."""
        return tuple(dict.fromkeys(model.category for model in self.models))

    @property
    def looks(self) -> list[Surface | None]:
        """Look of each model."""
        return [model.look for model in self.models]

    @functools.cached_property
    def things(self) -> tuple[Callable[[Solids, RandomStream], None], ...]:
        """Builders of the small models, which stand on tables and floors."""
        return tuple(functools.partial(self._add_thing, fit) for fit in self._fits.get(SMALL_THING, ()))

    def further(self, rng: RandomStream, area: float) -> list[Piece]:
        """Large models of other categories, for the walls of a room of an area in square metres."""
        fits = self._fits.get(LARGE_THING)
        return [self.piece(rng, rng.pick(fits)) for _ in range(rng.integer(0, 1 + int(area / 12)))] if fits else []

    def in_place_of(self, rng: RandomStream, piece: Piece) -> Piece:
        """A model that takes the place of our own piece; the piece itself where no model does."""
        if piece in (living.DINING_SET, living.TV_STAND, living.DESK):
            return _SETS[piece](self, rng)
        fits = self._fits.get(piece)
        return self.piece(rng, rng.pick(fits), piece.front) if fits else piece

    def piece(self, rng: RandomStream, fit: Fit, front: float = 0.5) -> Piece:
        """A model as a piece of furniture, of a random size within the bounds of its place."""
        scale = rng.uniform(*fit.scale)
        w, d, h = (max(round(scale * side, 2), 0.01) for side in self.models[fit.number].size)
        return Piece(functools.partial(self._add, fit), (w, w), (d, d), (h, h), front)

    def _any(self, rng: RandomStream, place: Piece | Slot) -> Piece | None:
        fits = self._fits.get(place)
        return self.piece(rng, rng.pick(fits)) if fits else None

    def _add(self, fit: Fit, s: Solids, rng: RandomStream, w: float, d: float, h: float) -> None:
        """Build a model of the given size, with things on its level top."""
        model = self.models[fit.number]
        stretched = np.array((w, h, d)) / np.array(model.size)[[0, 2, 1]]
        shift = (0.0, 0.0, d / 2) if fit.slot.piece is decor.PICTURE else (0.0, 0.0, 0.0)  # its back is at z = 0
        with s.object(model.category):
            self._add_triangles(s, fit, model.vertices * stretched + shift)
        if model.top > 0.0 and fit.slot.piece in _HOLDS:
            decor.scatter(s, rng, 0.8 * w, 0.8 * d, model.top * stretched[1], rng.integer(0, 3))

    def _add_thing(self, fit: Fit, s: Solids, rng: RandomStream) -> None:
        model = self.models[fit.number]
        with s.object(model.category):
            self._add_triangles(s, fit, model.vertices * rng.uniform(*fit.scale))

    def _add_triangles(self, s: Solids, fit: Fit, vertices: np.ndarray) -> None:
        """Add the triangles of a model: with its own look, or a finish of ours for each of its materials."""
        model = self.models[fit.number]
        if self.materials == "keep" and model.look is not None:
            s.material = f"{MODEL}{fit.number}"
            s.add(vertices, model.faces)
            return
        parts = _parts(model)
        for part, name in zip(parts, (*fit.slot.finishes, *[fit.slot.finishes[-1]] * len(parts)), strict=False):
            s.material = name
            s.add(vertices, model.faces[part])


_HOLDS = (
    living.DINING_SET, living.COFFEE_TABLE, living.SIDE_TABLE, living.DESK, living.CHEST, living.CONSOLE,
    living.NIGHTSTAND,
)  # fmt: skip
"""Places of furniture that things stand on."""


def _named(slot: Slot) -> Slot:
    """The slot that stands for all places on tables and floors; others stand for themselves."""
    return slot if slot in (TV, LARGE_THING) else SMALL_THING


def _parts(model: Model) -> list[np.ndarray]:
    """Triangles of each material of a model, that of the largest area first."""
    if model.look is None:
        return [np.arange(len(model.faces))]
    a, b, c = (model.vertices[model.faces[:, i]] for i in range(3))
    area = np.linalg.norm(np.cross(b - a, c - a), axis=1)
    total = np.bincount(model.look.material, area)
    order = np.argsort(-total, kind="stable")
    return [found for k in order.tolist() if len(found := np.flatnonzero(model.look.material == k))]


# Furniture that stands together: chairs around tables, televisions on boards, chairs in front of desks


def _dining_set(furniture: Furniture, rng: RandomStream) -> Piece:
    """A table with chairs, of which some are models."""
    own = living.DINING_SET
    table, chair = furniture._any(rng, own), furniture._any(rng, living.CHAIR)
    if table is None and chair is None:
        return own
    seat = living.CHAIR if chair is None else chair
    if table is None:
        return Piece(functools.partial(living.dining_set, seat=seat), own.width, own.depth, own.height)
    w, d, h = (side[0] for side in (table.width, table.depth, table.height))
    w, d = w + 2 * living.CHAIR_OUT, d + 2 * living.CHAIR_OUT
    return Piece(functools.partial(living.dining_set, board=table.build, seat=seat), (w, w), (d, d), (h, h))


def _tv_stand(furniture: Furniture, rng: RandomStream) -> Piece:
    """A board with a television on it, of which one or both are models."""
    own = living.TV_STAND
    board, tv = furniture._any(rng, own), furniture._any(rng, TV)
    if board is None and tv is None:
        return own
    base = own if board is None else board
    screen: Build = living.television
    if tv is not None:
        screen = functools.partial(_on_board, tv)
    build = functools.partial(living.tv_stand, board=living.tv_board if board is None else board.build, screen=screen)
    width = base.width if tv is None else (max(base.width[0], tv.width[0]), max(base.width[1], tv.width[0]))
    return Piece(build, width if board is None else base.width, base.depth, base.height, own.front)


def _on_board(tv: Piece, s: Solids, rng: RandomStream, w: float, d: float, h: float) -> None:
    """A model of a television on a board of width w and height h, no wider than the board."""
    width, depth, height = tv.size(rng)
    scale = min(1.0, 1.1 * w / width)
    one = Solids(s.detail)
    tv.build(one, rng, scale * width, scale * depth, scale * height)
    s.place(one, 0.0, 0.0, 0, h)


def _desk(furniture: Furniture, rng: RandomStream) -> Piece:
    """A desk with a chair in front, of which one or both are models."""
    own = living.DESK
    table, seat = furniture._any(rng, own), furniture._any(rng, living.OFFICE_CHAIR)
    if table is None and seat is None:
        return own
    chair = living.OFFICE_CHAIR if seat is None else seat
    if table is None:
        return Piece(functools.partial(living.desk, seat=chair), own.width, own.depth, own.height, own.front)
    d = table.depth[0] + _SEAT_DEPTH
    return Piece(functools.partial(_with_seat, table, chair), table.width, (d, d), table.height, own.front)


_SEAT_DEPTH = 0.45
"""Depth in front of a desk that its chair takes, metres."""


def _with_seat(table: Piece, chair: Piece, s: Solids, rng: RandomStream, w: float, d: float, h: float) -> None:
    """A model of a desk at the back of its place, and a chair in front that faces it."""
    depth = d - _SEAT_DEPTH
    one, seat = Solids(s.detail), Solids(s.detail)
    one.things = s.things
    table.build(one, rng, w, depth, h)
    s.place(one, 0.0, (depth - d) / 2)
    chair.build(seat, rng, *chair.size(rng))
    s.place(seat, 0.0, d / 2 - 0.34, TURN // 2 + rng.integer(-25, 25))


_SETS: dict[Piece, Callable[[Furniture, RandomStream], Piece]] = {
    living.DINING_SET: _dining_set, living.TV_STAND: _tv_stand, living.DESK: _desk,
}  # fmt: skip


# Reading a folder


class _Axes(NamedTuple):
    """An entry of `sizes.yaml`."""

    up: str = "y"
    front: str = "-z"
    scale: float = 1.0
    width: float = 0.0
    depth: float = 0.0
    height: float = 0.0
    """Sizes of the model, metres, of which one may be given; 0 for those of the file."""


def model_files(folder: Path) -> list[Path]:
    """The mesh files of a furniture folder, sorted. MeshError where there are none."""
    if not folder.is_dir():
        raise MeshError(f"furniture {folder}: found no such folder, expected one with meshes CATEGORY/*.glb")
    files = [file for file in folder.glob("*/*.glb") if not any(part.startswith(".") for part in file.parts[-2:])]
    if not files:
        raise MeshError(f"furniture {folder}: found no meshes, expected CATEGORY/*.glb, such as sofa/one.glb")
    return sorted(files)


def content_of(folder: Path) -> str:
    """A hash of the names and the content of a folder's mesh files and of its `sizes.yaml`."""
    return content_hash(folder, [*model_files(folder), *filter(Path.is_file, [folder / SIZES])])


def read_furniture(folder: str | Path, materials: str = "keep") -> Furniture:
    """The models of a furniture folder, read once for each content.

    MeshError names the folder or the file: missing, no mesh, invalid `sizes.yaml`.
    """
    folder = Path(folder).absolute()
    return _furniture(folder, content_of(folder), materials)


@functools.lru_cache(maxsize=4)
def _furniture(folder: Path, content: str, materials: str) -> Furniture:
    return Furniture(*_read(folder, content), materials)


@functools.lru_cache(maxsize=4)
def _read(folder: Path, content: str) -> tuple[tuple[Model, ...], tuple[Texture, ...]]:
    sizes = _read_sizes(folder)
    models, textures = [], list[Texture]()
    for file in model_files(folder):
        name = f"{file.parent.name}/{file.stem}"
        mesh = load_mesh(file, appearance=AppearanceConfig(largest_texture=LARGEST_TEXTURE))
        models.append(_model(name, file.parent.name, mesh, _axes_of(name, sizes, folder), textures))
        if len(mesh.faces) > MOST_TRIANGLES:
            log.warning(
                "%s: found %d triangles, expected at most %d: houses with it take much memory", file, len(mesh.faces),
                MOST_TRIANGLES,
            )  # fmt: skip
    return tuple(models), tuple(textures)


def _read_sizes(folder: Path) -> dict[str, dict[str, Any]]:
    file = folder / SIZES
    if not file.is_file():
        return {}
    table = read_yaml(file) or {}
    if not isinstance(table, dict) or not all(isinstance(row, dict) for row in table.values()):
        raise MeshError(f"{file}: found {shortened(table)}, expected lines such as 'sofa/one: {{height: 0.8}}'")
    names = {f"{each.parent.name}/{each.stem}" for each in model_files(folder)}
    for pattern, row in table.items():
        if not fnmatch.filter(names, str(pattern)):
            raise MeshError(f"{file}: {shortened(pattern)}: found no such model, expected one of {few(sorted(names))}")
        for key, value in row.items():
            is_axis, is_number = key in ("up", "front"), isinstance(value, (int, float)) and not isinstance(value, bool)
            good = (isinstance(value, str) and value in _AXES) if is_axis else is_number and 1e-6 < value < 1e6
            if key not in _Axes._fields or not good:
                raise MeshError(
                    f"{file}: {shortened(pattern)}: found {shortened(key)}: {shortened(value)}, expected up and front "
                    f"as {', '.join(_AXES)}, and scale, width, depth or height as a number above 0"
                )
    return table


def _axes_of(name: str, sizes: dict[str, dict[str, Any]], folder: Path) -> _Axes:
    """The entry of a model: of all patterns that match its name, later ones count more."""
    axes = _Axes()
    for pattern, row in sizes.items():
        if fnmatch.fnmatchcase(name, str(pattern)):
            axes = axes._replace(**row)
    if abs(_AXES[axes.up] @ _AXES[axes.front]) > 0.5:
        raise MeshError(
            f"{folder / SIZES}: {name}: found up: {axes.up} and front: {axes.front}, expected axes at a right angle"
        )
    return axes


def _model(name: str, category: str, mesh: TriangleMesh, axes: _Axes, textures: list[Texture]) -> Model:
    """A mesh as a model; its textures are appended to `textures`."""
    up, front = _AXES[axes.up], _AXES[axes.front]
    rotation = np.array([-np.cross(front, up), up, front])  # our pieces face +Z
    vertices = mesh.vertices.astype(np.float64) @ rotation.T
    used = vertices[mesh.faces].reshape(-1, 3)
    low, high = used.min(0), used.max(0)
    sides = np.maximum((high - low)[[0, 2, 1]], 1e-4)
    given = [(value, side) for value, side in zip(axes[3:], sides.tolist(), strict=True) if value > 0.0]
    scale = axes.scale if not given else given[0][0] / given[0][1]
    middle = np.array([(low[0] + high[0]) / 2, low[1], (low[2] + high[2]) / 2])
    vertices = (vertices - middle) * scale
    faces = np.ascontiguousarray(mesh.faces, np.int32)
    width, depth, height = (scale * sides).tolist()
    area, normal = _areas(vertices, faces)
    look = None if mesh.surface is None else _look(mesh.surface, area, textures)
    top = _level_top(vertices, faces, area, normal, (width, depth))
    return Model(name, category, vertices, faces, look, (width, depth, height), float(low[1] * scale), top)


def _areas(vertices: np.ndarray, faces: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """f64 [F]: area of each triangle; f64 [F]: the vertical part of its unit normal."""
    a, b, c = (vertices[faces[:, i]] for i in range(3))
    normal = np.cross(b - a, c - a)
    length = np.maximum(np.linalg.norm(normal, axis=1), 1e-30)
    return length / 2, normal[:, 1] / length


def _level_top(
    vertices: np.ndarray, faces: np.ndarray, area: np.ndarray, normal: np.ndarray, footprint: tuple[float, float]
) -> float:
    """Height of the highest level surface that covers most of the footprint; 0 where something stands above it."""
    level = np.flatnonzero(normal > _LEVEL)
    if not len(level):
        return 0.0
    height = vertices[faces[level]][:, :, 1].mean(1)
    order = np.argsort(-height, kind="stable")
    height, covered = height[order], np.cumsum(area[level][order])
    top = float(height[0])
    share = float(covered[np.searchsorted(-height, 0.03 - top, side="right") - 1]) / (footprint[0] * footprint[1])
    return top if share >= _TOP_SHARE and top > 0.97 * float(vertices[:, 1].max()) else 0.0


def _look(surface: Surface, area: np.ndarray, textures: list[Texture]) -> Surface:
    """The materials of a model, without textures on small triangles, and with vertex colours as materials."""
    color = np.array([material.color[:3] for material in surface.materials])[surface.material]
    texture = np.array([material.texture for material in surface.materials])[surface.material]
    varied = np.zeros(len(color), bool)
    if surface.color is not None:
        tint = surface.color[:, :, :3].mean(1) / 255.0
        varied = (tint < 1.0).any(1)
        color = color * tint
    for row, image in enumerate(surface.textures):
        pixels = pixels_of(image)
        height, width = pixels.shape[:2]
        plain = (texture == row) & ((area < SMALL) | (height * width == 1))
        if plain.any() and surface.uv is not None:
            u, v = (surface.uv[plain].mean(1).astype(np.float64) % 1.0).T
            at = (v * height).astype(int).clip(max=height - 1), (u * width).astype(int).clip(max=width - 1)
            color[plain] *= pixels[at][:, :3] / 255.0
            varied |= plain
        texture[plain] = -1
    color[varied] = np.round(color[varied] * _TINTS) / _TINTS
    rows, material = np.unique(np.column_stack([color, texture]), axis=0, return_inverse=True)
    kept = sorted({int(row) for row in rows[:, 3]} - {-1})
    first = len(textures)
    textures += [surface.textures[row] for row in kept]
    materials = tuple(
        Material((r, g, b, 1.0), -1 if t < 0 else first + kept.index(int(t))) for r, g, b, t in rows.tolist()
    )
    return Surface(material.reshape(-1).astype(np.int32), materials, uv=surface.uv if kept else None)
