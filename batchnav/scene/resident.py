"""ResidentSceneBank: a bank whose scenes can be replaced while others are in use, for scene streaming.

The bank allocates memory once, for K slots of given sizes (`SceneSize`), each of which holds one scene. `slots_of` fits
the sizes of the slots to those of all scenes. `envs/stream.py` decides which scenes are resident.
"""

from __future__ import annotations

import bisect
import itertools
import math
from collections.abc import Collection, Iterable, Sequence
from threading import Lock
from typing import NamedTuple

import numpy as np
import torch

from batchnav.errors import ArgumentError, ConfigError
from batchnav.navmesh.data import NAVMESH_COLUMNS, NavMeshData, moved
from batchnav.navmesh.heap import SearchScratch, search_scratch, search_size
from batchnav.runtime.device import resolve_device
from batchnav.scene.appearance import (
    COLUMNS as APPEARANCE_COLUMNS,
)
from batchnav.scene.appearance import (
    NO_ROWS,
    PALETTE_FIELDS,
    Appearance,
    appearance_fields,
    appearance_of,
    appearance_rows,
    split_fields,
    stored_fields,
    with_finish,
    with_palette,
)
from batchnav.scene.bank import MAX_TRIANGLES, BVHData, SceneBank
from batchnav.scene.bvh import NODE_WIDTH, TRIANGLE_WIDTH
from batchnav.scene.goal_data import (
    GOAL_COLUMNS,
    NO_GOALS,
    GoalData,
    category_keys,
    goal_numbers,
    goal_size,
    goals_of,
    moved_goals,
)
from batchnav.scene.material_sampling import MaterialLibrary, MaterialSampler
from batchnav.scene.scene import Scene, warn_of_no_ids
from batchnav.scene.small_nodes import LARGEST, fits, is_large, placed_nodes
from batchnav.scene.textures import MOST_TEXELS, Palette


class SceneSize(NamedTuple):
    """Size of a scene: number of rows of each array."""

    bvh: BVHData[int]
    navmesh: NavMeshData[int]
    appearance: Appearance[int]
    search_size: int
    """Number of nodes of a path search, see `navmesh/data.py`."""
    semantic: SceneSize | None = None
    """Size of `Scene.semantic`, the mesh with the ids; None where ids have no mesh of their own."""
    goals: GoalData[int] = NO_GOALS
    """Size of ObjectNav's goals."""
    fits_grid: bool = False
    """Whether a bank with this scene may have small nodes (`scene.small_nodes.fits`)."""
    large: bool = False
    """Whether the scene, or another in its bank, is large (`scene.small_nodes.is_large`)."""

    @property
    def has_small_nodes(self) -> bool:
        """Whether a bank of scenes of this size has small nodes."""
        return self.fits_grid and self.large

    @property
    def bvh_rows(self) -> BVHData[int]:
        """Number of rows in a bank of scenes of this size: small nodes have a row for the grid."""
        return self.bvh._replace(nodes=self.bvh.nodes + self.has_small_nodes)

    @classmethod
    def of(cls, scene: Scene) -> SceneSize:
        """Size of one scene."""
        bvh, navmesh = BVHData(len(scene.bvh.nodes), *2 * (len(scene.bvh.triangles),), 1), scene.navmesh.data
        semantic = None if scene.semantic is None else cls.of(scene.semantic)
        goals = NO_GOALS if scene.goals is None else goal_size(scene.navmesh, scene.goals)
        look, searched = appearance_rows(scene.mesh), search_size(navmesh)
        large = is_large(bvh.triangles)
        return cls(bvh, NavMeshData(*map(len, navmesh)), look, searched, semantic, goals, fits(scene.bvh), large)

    def with_appearance(self, fields: Collection[str]) -> SceneSize:
        """Size in a bank that holds only these fields of `Appearance`."""
        fields, semantic = stored_fields(fields), None
        if self.semantic is not None:
            fields, of_ids = split_fields(fields)
            semantic = self.semantic.with_appearance(of_ids) if of_ids else None
        kept = {name: rows for name, rows in self.appearance._asdict().items() if name in fields}
        if "finish" in kept:  # then equal materials with different finishes have separate rows
            kept["materials"] = kept["finish"]
        return self._replace(appearance=NO_ROWS._replace(**kept), semantic=semantic)

    @property
    def num_bytes(self) -> int:
        """Memory of one scene on the device, bytes."""
        rows = (*self.bvh_rows, *self.navmesh, *self.appearance, *self.goals)
        columns = (*bvh_columns(self.has_small_nodes), *NAVMESH_COLUMNS, *APPEARANCE_COLUMNS, *GOAL_COLUMNS)
        own = sum(
            n * math.prod(_row_shape(width)) * dtype.itemsize for n, (width, dtype) in zip(rows, columns, strict=True)
        )
        return own + (self.semantic.num_bytes if self.semantic else 0)

    @classmethod
    def largest(cls, sizes: Iterable[SceneSize]) -> SceneSize:
        """Size that fits any one of several scenes."""
        sizes = tuple(sizes)
        semantic = None
        if any(size.semantic for size in sizes):  # then the scenes of a bank all have a mesh for ids
            semantic = cls.largest(size.semantic or size for size in sizes)
        bvhs, navmeshes, looks, searches, _, goals, fit, large = zip(*sizes, strict=True)
        navmesh = NavMeshData(*map(max, zip(*navmeshes, strict=True)))
        # Arrays indexed by polygon share their first row; `link_start` has one row more than there are polygons.
        rows = navmesh.link_start
        navmesh = navmesh._replace(polygons=rows, polygon_number=rows, polygon_island=rows, cumulative_area=rows)
        bvh = BVHData(*map(max, zip(*bvhs, strict=True)))
        look, goal_rows = Appearance(*map(max, zip(*looks, strict=True))), GoalData(*map(max, zip(*goals, strict=True)))
        return cls(bvh, navmesh, look, max(searches), semantic, goal_rows, all(fit), any(large))

    def beside(self, largest: SceneSize) -> SceneSize:
        """Size of a slot for this scene beside others, all of which fit `largest`: with their kind of nodes and ids."""
        semantic = largest.semantic and (self.semantic or self).beside(largest.semantic)
        return SceneSize.largest([self])._replace(semantic=semantic, fits_grid=largest.fits_grid, large=largest.large)


def rooms_of(sizes: Sequence[SceneSize]) -> tuple[list[int], list[SceneSize]]:
    """The numbers of scenes in the order of their bytes, the largest first; and sizes of slots for them.

    The slot at a place in this order fits the scene there and all after it.
    """
    largest = SceneSize.largest(sizes)
    alone = [size.beside(largest) for size in sizes]
    order = sorted(range(len(sizes)), key=[-size.num_bytes for size in alone].__getitem__)
    growing = itertools.accumulate((alone[k] for k in reversed(order)), lambda *pair: SceneSize.largest(pair))
    return order, list(growing)[::-1]


def places_of(num_scenes: int, num_slots: int) -> list[tuple[int, int]]:
    """Slots, the largest first: the first place in the order of `rooms_of` of their scenes, and that after the last.

    The places are divided evenly; a scene on a border has two slots.
    """
    return [(j * num_scenes // num_slots, -(-(j + 1) * num_scenes // num_slots)) for j in range(num_slots)]


def slots_of(sizes: Sequence[SceneSize], num_slots: int) -> list[SceneSize]:
    """Sizes of slots for scenes of which `num_slots` are resident, the largest first."""
    _, rooms = rooms_of(sizes)
    return [rooms[first] for first, _ in places_of(len(sizes), num_slots)]


def num_resident_scenes(sizes: Sequence[SceneSize], requested: int, gigabytes: float) -> int:
    """Number of resident scenes for a memory budget; 0 where all scenes fit and none needs to be replaced.

    Args:
        sizes: sizes of all scenes.
        requested: largest number of resident scenes; 0: no limit.
        gigabytes: memory budget in units of 1e9 bytes; 0: no limit.

    Raises ConfigError where two resident scenes, the fewest possible, exceed the budget.
    """
    if gigabytes and sum(scene.num_bytes for scene in sizes) > 1e9 * gigabytes:
        rooms = np.array([room.num_bytes for room in rooms_of(sizes)[1]])

        def needed(number: int) -> int:
            return int(rooms[[first for first, _ in places_of(len(sizes), number)]].sum())

        fit = 1 + bisect.bisect_right(range(2, len(sizes)), 1e9 * gigabytes, key=needed)
        if fit < 2:
            least = 1e-9 * needed(2)
            raise ConfigError(f"gigabytes: found {gigabytes:g}, expected at least {least:.3g} for two resident scenes")
        requested = min(requested, fit) if requested else fit
    return requested if requested < len(sizes) else 0


class ResidentSceneBank(SceneBank):
    """Memory for K resident scenes, empty at first; `replace` loads one. A scene without agents may always be replaced.

    Args:
        slots: size of each slot, the memory for one scene (`SceneSize.largest`, `slots_of`); K of them.
        device: torch device, or "auto".
        appearance: see `SceneBank.pack`.
        material_library: see `SceneBank.pack`.
        goal_categories: see `SceneBank.pack`; names are required.
    """

    def __init__(
        self,
        slots: Sequence[SceneSize],
        device: str | torch.device = "cpu",
        appearance: bool | Collection[str] = False,
        material_library: MaterialLibrary | None = None,
        goal_categories: Sequence[str] | None = None,
    ):
        device, fields, sampler = resolve_device(device), appearance_fields(appearance), None
        if material_library is not None:
            fields = with_finish(fields)
        split = any(slot.semantic for slot in slots)
        own, of_ids = split_fields(fields) if split else (fields, frozenset())
        names = tuple(goal_categories or ())
        largest = SceneSize.largest(slots)
        slots = [slot.beside(largest).with_appearance(fields) for slot in slots]
        slots = [slot._replace(goals=slot.goals._replace(rows=len(names))) for slot in slots]
        self._slots, self._starts = slots, _starts_of(slots)
        self._largest, rows, is_small = SceneSize.largest(slots), self._starts[-1], largest.has_small_nodes
        for name, number, below in (
            ("triangles", rows.bvh.triangles, MAX_TRIANGLES), ("texels", rows.appearance.texels, MOST_TEXELS),
        ):  # fmt: skip
            if number >= below:
                raise ArgumentError(
                    f"resident scenes: found slots for {number} {name} in all, expected fewer than {below}"
                )
        bvh = _arrays(BVHData, rows.bvh, bvh_columns(is_small), device)
        starts = torch.tensor([start.bvh.nodes for start in self._starts[:-1]], dtype=torch.int32, device="cpu")
        bvh.roots.copy_(starts + is_small)
        navmesh = _arrays(NavMeshData, rows.navmesh, NAVMESH_COLUMNS, device)
        look = goals = None
        if material_library is not None:
            look, sampler = _with_library(rows.appearance, device, material_library)
        elif own:
            look = _arrays(Appearance, rows.appearance, APPEARANCE_COLUMNS, device)
        if goal_categories is not None:
            goals = _arrays(GoalData, rows.goals, GOAL_COLUMNS, device)
            goals = goals._replace(keys=torch.from_numpy(category_keys(names)).to(device))
        first_triangle = [start.bvh.triangles for start in self._starts[:-1]]
        super().__init__(
            (), bvh, navmesh, first_triangle, look, device, fields, None, sampler, None, goals, names
        )  # fmt: skip
        self.num_scenes, self._own_fields = len(slots), own
        of_semantic = [slot.semantic for slot in slots if slot.semantic is not None]
        if of_semantic:
            self.semantic = ResidentSceneBank(of_semantic, device, of_ids)
            self.semantic._categories, self.semantic.goal_categories = self._categories, names
        self._warns_of_no_ids = appearance is not True
        self._names = [""] * len(slots)
        self.names = self._names
        """Names of the resident scenes; empty where none is loaded."""
        self._stream: torch.cuda.Stream | None = None
        self._staged: list[torch.Tensor] = []
        self._writing = Lock()
        """Guards materials, which both `replace` and `randomize_materials` write."""
        if device.type == "cuda":
            # Pinned memory and a separate stream, so that the copy overlaps with the simulation.
            self._stream, self._staged = torch.cuda.Stream(device), self._pinned()

    def _pinned(self) -> list[torch.Tensor]:
        """Pinned memory on the CPU for all arrays of one scene."""
        size = self._largest
        parts = [
            (BVHData, size.bvh_rows, bvh_columns(size.has_small_nodes)), (NavMeshData, size.navmesh, NAVMESH_COLUMNS),
            *([(GoalData, size.goals, GOAL_COLUMNS)] if self.goals else []),
            (Appearance, size.appearance, APPEARANCE_COLUMNS),
        ]  # fmt: skip
        arrays = [_arrays(*part, torch.device("cpu")) for part in parts]
        return [array.pin_memory() if len(array) else array for part in arrays for array in part]

    def search_scratch(self, rows: int) -> SearchScratch:
        """Scratch memory for `rows` concurrent path searches in any scene that fits."""
        return search_scratch(self._largest.search_size, rows, self.device)

    def randomize_materials(self, seed: torch.Tensor, count: int, every_house: bool = True) -> None:
        """Randomise the materials of every house, since houses are replaced. Waits for the device."""
        if self.material_sampler is None:
            return
        with self._writing:
            super().randomize_materials(seed, count)
            if self.device.type == "cuda":
                torch.cuda.current_stream(self.device).synchronize()

    def replace(self, scene_index: int, scene: Scene) -> None:
        """Load a scene in place of another and wait until it is copied. One thread may do so while others use the bank.

        ArgumentError where the scene does not fit.
        """
        if self._warns_of_no_ids:
            warn_of_no_ids([scene], self.appearance_fields)
        if isinstance(self.semantic, ResidentSceneBank):
            self.semantic.replace(scene_index, (scene.semantic or scene)._replace(goals=scene.goals))
        size, first, fields = (
            self._slots[scene_index],
            self._starts[scene_index],
            (*BVHData._fields, *NavMeshData._fields),
        )
        is_small = size.has_small_nodes
        if is_small and not fits(scene.bvh):
            raise ArgumentError(f"scene {scene.name!r}: found an extent beyond {LARGEST:g} m, expected less")
        nodes = placed_nodes(scene.bvh.nodes, first.bvh.nodes, first.bvh.triangles, is_small)
        root = np.array([first.bvh.nodes + is_small], np.int32)
        numbers = scene.bvh.order + np.int32(first.bvh.triangles)
        arrays = [nodes, scene.bvh.triangles, numbers, root, *moved(scene.navmesh.data, first.navmesh)]
        names, limits, firsts = list(fields), [*size.bvh_rows, *size.navmesh], [*first.bvh, *first.navmesh]
        targets = [*self.bvh, *self.navmesh]
        if self.goals is not None:
            goals = goals_of(scene, self.goal_categories)
            arrays += moved_goals(goals._replace(keys=goals.keys[:0]), first.goals)  # keys are those of all scenes
            names, limits, firsts = [*names, *GoalData._fields], [*limits, *size.goals], [*firsts, *first.goals]
            targets += self.goals
        if self.appearance is not None:
            (of_goals,) = goal_numbers([scene], self.goal_categories)
            arrays += _look(scene, self._own_fields, self._categories, first.appearance, of_goals)
            names, limits = [*names, *Appearance._fields], [*limits, *size.appearance]
            firsts, targets = [*firsts, *first.appearance], [*targets, *self.appearance]
        for name, array, limit in zip(names, arrays, limits, strict=True):
            if len(array) > limit:
                raise ArgumentError(f"scene {scene.name!r}: found {len(array)} {name}, expected at most {limit}")
        places = zip(targets, firsts, arrays, strict=True)
        slices = [target[begin : begin + len(array)] for target, begin, array in places]
        with self._writing:
            if self._stream is None:
                for target, array in zip(slices, arrays, strict=True):
                    target.numpy()[:] = array
            else:
                with torch.cuda.stream(self._stream):
                    for target, staged, array in zip(slices, self._staged, arrays, strict=False):  # appearance is last
                        staged.numpy()[: len(array)] = array
                        target.copy_(staged[: len(array)], non_blocking=True)
                self._stream.synchronize()
        self._names[scene_index] = scene.name


_FLOAT, _INT = torch.float32, torch.int32


def bvh_columns(is_small: bool) -> BVHData:
    """Number of columns (None: one-dimensional; or shape of a row) and dtype of each array of a bank."""
    nodes = ((2, 4), _INT) if is_small else (NODE_WIDTH, _FLOAT)
    return BVHData(nodes, (TRIANGLE_WIDTH, _FLOAT), (None, _INT), (None, _INT))


def _row_shape(width: int | tuple[int, ...] | None) -> tuple[int, ...]:
    """Shape of an array's row, from its number of columns."""
    return () if width is None else width if isinstance(width, tuple) else (width,)


def _look(
    scene: Scene, fields: frozenset[str], categories: dict[str, int], first: Appearance, goals: dict[int, int]
) -> Appearance:
    """A scene's appearance for a bank in whose arrays its rows begin at `first`."""
    palette = Palette(first.materials, first.levels, first.texels, first.blocks)
    look = appearance_of(scene.mesh, fields, categories, palette, first, goals)
    return with_palette(look, palette, fields)


def _with_library(
    rows: Appearance[int], device: torch.device, library: MaterialLibrary
) -> tuple[Appearance[torch.Tensor], MaterialSampler]:
    """Zeroed arrays of these rows, followed by the rows of a material library."""
    scene_rows = rows._asdict()
    palette = Palette(*(scene_rows[name] for name in PALETTE_FIELDS))
    first = palette.add_library(library)
    appended = dict(zip(PALETTE_FIELDS, palette.arrays(), strict=True))
    all_rows = [n + len(appended.get(name, ())) for name, n in scene_rows.items()]
    look = _arrays(Appearance, all_rows, APPEARANCE_COLUMNS, device)
    for name, array in appended.items():
        getattr(look, name)[scene_rows[name] :] = torch.from_numpy(array)
    return look, MaterialSampler(look.finish, look.materials, library, first)


def _starts_of(slots: Sequence[SceneSize]) -> list[SceneSize]:
    """First rows of each slot in the arrays of a bank, and after them the number of rows of all slots."""
    parts = [[slot.bvh_rows, slot.navmesh, slot.appearance, slot.goals] for slot in slots]
    starts = []
    for rows in zip(*parts, strict=True):
        sums = np.cumsum([[0] * len(rows[0]), *rows], axis=0).tolist()
        starts.append([type(rows[0])(*row) for row in sums])
    return [SceneSize(bvh, navmesh, look, 0, None, goals) for bvh, navmesh, look, goals in zip(*starts, strict=True)]


def _arrays(kind, rows, columns, device: torch.device):
    """Zeroed tensors of these rows, as the NamedTuple `kind`."""
    shapes = [(n, *_row_shape(width)) for n, (width, _) in zip(rows, columns, strict=True)]
    types = [dtype for _, dtype in columns]
    return kind(*(torch.zeros(s, dtype=t, device=device) for s, t in zip(shapes, types, strict=True)))
