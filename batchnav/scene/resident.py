"""ResidentSceneBank: a bank whose scenes can be replaced while the others are in use. Memory is set aside once."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from threading import Lock
from typing import NamedTuple

import numpy as np
import torch

from batchnav.errors import ArgumentError, ConfigError
from batchnav.navmesh.data import NAVMESH_COLUMNS, NavMeshData, SearchScratch, moved, search_scratch, search_size
from batchnav.runtime.device import resolve_device
from batchnav.scene.appearance import (
    COLUMNS as APPEARANCE_COLUMNS,
)
from batchnav.scene.appearance import (
    PALETTE_FIELDS,
    Appearance,
    appearance_fields,
    appearance_of,
    appearance_rows,
    with_finish,
    with_palette,
)
from batchnav.scene.bank import MAX_TRIANGLES, BVHData, SceneBank
from batchnav.scene.bvh import NODE_WIDTH, TRIANGLE_WIDTH, moved_nodes
from batchnav.scene.material_sampling import MaterialLibrary, MaterialSampler
from batchnav.scene.scene import Scene
from batchnav.scene.textures import MOST_TEXELS, Palette


class SceneSize(NamedTuple):
    """How many rows of each array a scene may have."""

    bvh: BVHData[int]
    navmesh: NavMeshData[int]
    appearance: Appearance[int]
    search_size: int

    @classmethod
    def of(cls, scene: Scene) -> SceneSize:
        """What one scene takes."""
        bvh, navmesh = BVHData(len(scene.bvh.nodes), *2 * (len(scene.bvh.triangles),), 1), scene.navmesh.data
        return cls(bvh, NavMeshData(*map(len, navmesh)), appearance_rows(scene.mesh), search_size(navmesh))

    def with_appearance(self, fields: Collection[str]) -> SceneSize:
        """Of a scene in a bank that keeps these fields of `Appearance` only."""
        kept = {name: rows for name, rows in self.appearance._asdict().items() if name in fields}
        if "finish" in kept:  # equal materials have a row each then
            kept["materials"] = kept["finish"]
        return self._replace(appearance=_NO_APPEARANCE._replace(**kept))

    @property
    def num_bytes(self) -> int:
        """Bytes of a slot."""
        rows = (*self.bvh, *self.navmesh, *self.appearance)
        columns = (*_BVH_COLUMNS, *NAVMESH_COLUMNS, *APPEARANCE_COLUMNS)
        return sum(n * (width or 1) * dtype.itemsize for n, (width, dtype) in zip(rows, columns, strict=True))

    @classmethod
    def largest(cls, capacities: Iterable[SceneSize]) -> SceneSize:
        """Room for any one of several scenes."""
        bvhs, navmeshes, looks, sizes = zip(*capacities, strict=True)
        navmesh = NavMeshData(*map(max, zip(*navmeshes, strict=True)))
        # What is numbered by polygon begins at the same row; the row after the last polygon's is in use too.
        rows = navmesh.link_start
        navmesh = navmesh._replace(polygons=rows, polygon_number=rows, polygon_island=rows, cumulative_area=rows)
        most = (kind(*map(max, zip(*rows, strict=True))) for kind, rows in ((BVHData, bvhs), (Appearance, looks)))
        bvh, look = most
        return cls(bvh, navmesh, look, max(sizes))


def num_resident_scenes(capacities: Sequence[SceneSize], slots: int, gigabytes: float) -> int:
    """How many slots the scenes take turns in: 0 where all stay in memory, as `ScenesConfig` has it.

    ConfigError where two slots, the fewest, would take more than `gigabytes`.
    """
    total, slot = sum(scene.num_bytes for scene in capacities), SceneSize.largest(capacities).num_bytes
    if gigabytes and total > 1e9 * gigabytes:
        fit = int(1e9 * gigabytes / slot)
        if fit < 2:
            raise ConfigError(
                f"gigabytes: found {gigabytes:g}, expected at least {2e-9 * slot:.3g}: two slots for the largest scene"
            )
        slots = min(slots, fit) if slots else fit
    return slots if slots < len(capacities) else 0


class ResidentSceneBank(SceneBank):
    """K slots of equal size, empty at first; `put` fills one. What is in no agent's scene may be replaced at any time.

    Args:
        capacity: of a slot (`SceneSize.largest`).
        slots: K.
        device: where the scenes are.
        appearance: what sensors beyond depth read, as in `SceneBank.pack`.
        swatches: what finishes are drawn anew from, likewise.
    """

    def __init__(
        self,
        capacity: SceneSize,
        slots: int,
        device: str | torch.device = "cpu",
        appearance: bool | Collection[str] = False,
        swatches: MaterialLibrary | None = None,
    ):
        device = resolve_device(device)
        if slots * capacity.bvh.triangles >= MAX_TRIANGLES:
            raise ArgumentError(
                f"slots: found {slots} of {capacity.bvh.triangles} triangles each, expected fewer than {MAX_TRIANGLES}"
            )
        bvh = _arrays(BVHData, capacity.bvh, _BVH_COLUMNS, slots, device)
        bvh.roots.copy_(torch.arange(slots) * capacity.bvh.nodes)
        navmesh = _arrays(NavMeshData, capacity.navmesh, NAVMESH_COLUMNS, slots, device)
        triangles, fields, sampler = capacity.bvh.triangles, appearance_fields(appearance), None
        if swatches is not None:
            fields = with_finish(fields)
        capacity = capacity.with_appearance(fields)
        if slots * capacity.appearance.texels >= MOST_TEXELS:
            raise ArgumentError(
                f"slots: found {slots} of {capacity.appearance.texels} texels each, expected fewer than {MOST_TEXELS}"
            )
        look = None
        if swatches is not None:
            look, sampler = _with_swatches(capacity.appearance, slots, device, swatches)
        elif fields:
            look = _arrays(Appearance, capacity.appearance, APPEARANCE_COLUMNS, slots, device)
        super().__init__(
            (), bvh, navmesh, range(0, slots * triangles, triangles), look, device, fields, material_sampler=sampler
        )
        self.capacity, self.num_scenes = capacity, slots
        self.names = [""] * slots
        """Of the scenes in the slots; empty where there is none."""
        self._stream = self._staged = None
        self._writing = Lock()
        """Held by what writes materials: slots that are filled, and finishes that are drawn."""
        if device.type == "cuda":
            # Pinned memory and a stream of its own: the copy runs beside the simulation.
            self._stream = torch.cuda.Stream(device)
            parts = [
                (BVHData, capacity.bvh, _BVH_COLUMNS), (NavMeshData, capacity.navmesh, NAVMESH_COLUMNS),
                (Appearance, capacity.appearance, APPEARANCE_COLUMNS),
            ]  # fmt: skip
            staged = [_arrays(*part, 1, torch.device("cpu")) for part in parts]
            self._staged = [array.pin_memory() if len(array) else array for part in staged for array in part]

    def search_scratch(self, rows: int) -> SearchScratch:
        """Memory for `rows` path searches at a time in any scene that fits."""
        return search_scratch(self.capacity.search_size, rows, self.device)

    def randomize_materials(self, seed: torch.Tensor, count: int, every_house: bool = True) -> None:
        """As any bank, of every house, as some are new; waits for the device, so that no slot is filled meanwhile."""
        if self.material_sampler is None:
            return
        with self._writing:
            super().randomize_materials(seed, count)
            if self.device.type == "cuda":
                torch.cuda.current_stream(self.device).synchronize()

    def put(self, slot: int, scene: Scene) -> None:
        """Copy a scene into a slot; it is there when this returns. Any one thread may do so while others use the bank.

        ArgumentError where the scene does not fit.
        """
        bvh, navmesh = self.capacity.bvh, self.capacity.navmesh
        first_bvh = BVHData(*(slot * n for n in bvh))
        first_navmesh = NavMeshData(*(slot * n for n in navmesh))
        nodes = moved_nodes(scene.bvh.nodes, first_bvh.nodes, first_bvh.triangles)
        root = np.array([first_bvh.nodes], np.int32)
        numbers = scene.bvh.order + np.int32(first_bvh.triangles)
        arrays = (nodes, scene.bvh.triangles, numbers, root, *moved(scene.navmesh.data, first_navmesh))
        names, most, firsts = (*BVHData._fields, *NavMeshData._fields), (*bvh, *navmesh), (*first_bvh, *first_navmesh)
        targets = (*self.bvh, *self.navmesh)
        if self.appearance is not None:
            first_look = Appearance(*(slot * n for n in self.capacity.appearance))
            arrays += tuple(_look(scene, self.appearance_fields, self._categories, first_look))
            names, most = names + Appearance._fields, most + tuple(self.capacity.appearance)
            firsts, targets = firsts + tuple(first_look), targets + tuple(self.appearance)
        for name, array, room in zip(names, arrays, most, strict=True):
            if len(array) > room:
                raise ArgumentError(
                    f"scene {scene.name!r}: found {len(array)} {name}, expected at most {room} in a slot"
                )
        places = zip(targets, firsts, arrays, strict=True)
        slices = [target[first : first + len(array)] for target, first, array in places]
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
        self.names[slot] = scene.name


_FLOAT, _INT = torch.float32, torch.int32
_BVH_COLUMNS = BVHData((NODE_WIDTH, _FLOAT), (TRIANGLE_WIDTH, _FLOAT), (None, _INT), (None, _INT))
"""Columns (None: one dimension) and type of each array."""
_NO_APPEARANCE = Appearance(*[0] * len(Appearance._fields))


def _look(scene: Scene, fields: frozenset[str], categories: dict[str, int], first: Appearance) -> Appearance:
    """A scene's appearance where its rows begin at rows `first` of larger arrays."""
    palette = Palette(first.materials, first.levels, first.texels)
    look = appearance_of(scene.mesh, fields, categories, palette, first.patches)
    return with_palette(look, palette, fields)


def _with_swatches(
    rows: Appearance[int], slots: int, device: torch.device, swatches: MaterialLibrary
) -> tuple[Appearance[torch.Tensor], MaterialSampler]:
    """Zeroed arrays for `slots` times `rows`, with those of swatches behind them."""
    slot_rows = {name: slots * n for name, n in rows._asdict().items()}
    palette = Palette(*(slot_rows[name] for name in PALETTE_FIELDS))
    first = palette.add_swatches(swatches)
    behind = dict(zip(PALETTE_FIELDS, palette.arrays(), strict=True))
    all_rows = [n + len(behind.get(name, ())) for name, n in slot_rows.items()]
    look = _arrays(Appearance, all_rows, APPEARANCE_COLUMNS, 1, device)
    for name, array in behind.items():
        getattr(look, name)[slot_rows[name] :] = torch.from_numpy(array)
    return look, MaterialSampler(look.finish, look.materials, swatches, first)


def _arrays(kind, rows, columns, slots: int, device: torch.device):
    """Zeroed tensors for `slots` times `rows`, as the NamedTuple `kind`."""
    shapes = [
        (slots * n,) if width is None else (slots * n, width) for n, (width, _) in zip(rows, columns, strict=True)
    ]
    types = [dtype for _, dtype in columns]
    return kind(*(torch.zeros(s, dtype=t, device=device) for s, t in zip(shapes, types, strict=True)))
