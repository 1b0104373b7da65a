"""`NavMesh`: the walkable surface of a scene in Habitat's file format, with batched queries."""

from __future__ import annotations

import logging
from collections.abc import Collection
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch

from batchnav.errors import ArgumentError
from batchnav.navmesh import batch
from batchnav.navmesh import file as navmesh_file
from batchnav.navmesh.build import build
from batchnav.navmesh.data import NavMeshData, triangle_areas
from batchnav.navmesh.heap import MAX_PATH, search_bytes, search_scratch, search_size
from batchnav.navmesh.islands import island_areas, moved, with_islands
from batchnav.navmesh.settings import NavMeshSettings
from batchnav.runtime.checks import check_int, check_kind, check_number, check_seed
from batchnav.runtime.console import number_of
from batchnav.runtime.device import resolve_device
from batchnav.runtime.kernels.arrays import floats, to_device, view
from batchnav.runtime.kernels.launch import Kernel
from batchnav.runtime.parallel import num_threads
from batchnav.types import FAR, TriangleMesh

log = logging.getLogger(__name__)

_CUDA_ROWS = 65536
"""Largest number of concurrent searches on a CUDA device: about the threads that an H200 holds at 101 to 108 registers
per thread. In larger batches each thread runs several searches."""
_CUDA_SCRATCH = 2**30
"""Limit of the scratch memory on a CUDA device, bytes; it reduces concurrency in scenes of thousands of polygons."""
_LOCATE = np.float32(1e-2)
"""Horizontal tolerance of `is_navigable`, metres (habitat-sim)."""
_MAX_PIXELS = 2**26
"""Largest number of pixels of a top-down view."""
_FAR = 1e6
"""Largest length argument, metres."""

Array = Any
"""np.ndarray for a navmesh on the CPU, torch.Tensor on a CUDA device."""


class NavMesh:
    """A navmesh whose queries agree with habitat-sim's PathFinder (Detour): steps to 1e-4 m, distances to 1e-3 m.

    Points are in metres, +Y up: f32 or f64 [N, 3], or [3] for a single point and a single result. A point is off the
    mesh if it is not finite, or farther from the mesh than `snap` searches. For such points `snap` returns NaN,
    `is_navigable` False, `geodesic_distance` and `distance_to_wall` inf, `island` -1, and `try_step` the start.

    On the CPU arguments and results are NumPy arrays; `to("cuda")` returns the same navmesh for torch tensors on the
    GPU. A `NavMesh` has one scratch memory, so it must not be used by several Python threads at once.
    """

    def __init__(self, file: navmesh_file.NavMeshFile, device: str | torch.device = "cpu"):
        self.file = file
        self.data: NavMeshData[np.ndarray] = build(file)
        """Rows for kernels, as NumPy arrays; `navmesh.data.pack` concatenates those of several navmeshes."""
        self._place(resolve_device(device))

    @torch.inference_mode(False)
    def _place(self, device: torch.device) -> None:
        """Copy the rows to a device and make the kernel arguments."""
        self.device = device
        self._tensors = to_device(self.data, device)
        self._nav = view(self._tensors)
        self._search_size = search_size(self.data)
        self._scratch: dict[Any, Any] = {}
        self._parts: dict[int, NavMesh] = {}

    @classmethod
    def load(cls, path: str | Path) -> NavMesh:
        """Read a `.navmesh` file of Habitat (version 1 or 2). NavMeshError where it is invalid."""
        navmesh = cls(navmesh_file.read(path))
        if (farthest := float(np.abs(navmesh.bounds).max())) > FAR:
            log.warning(
                "%s: has coordinates up to %.9g m, where float32 is too coarse for paths, expected up to %g m; "
                "loading it with its mesh shifts both", path, farthest, FAR,
            )  # fmt: skip
        return navmesh

    @classmethod
    def bake(cls, mesh: TriangleMesh, settings: NavMeshSettings | None = None) -> NavMesh:
        """Bake a navmesh from triangles. NavMeshError where the mesh has no walkable surface."""
        from batchnav.navmesh.bake import bake_tile

        check_kind("mesh", mesh, TriangleMesh)
        settings = NavMeshSettings() if settings is None else settings
        check_kind("settings", settings, NavMeshSettings)
        return cls(navmesh_file.single_tile_file(bake_tile(mesh.vertices, mesh.faces, settings), settings))

    def save(self, path: str | Path) -> None:
        """Write a `.navmesh` file for Habitat; a loaded file is reproduced byte for byte."""
        navmesh_file.write(path, self.file)

    def to(self, device: str | torch.device) -> NavMesh:
        """The same navmesh on another device."""
        other = object.__new__(NavMesh)
        other.file, other.data = self.file, self.data
        other._place(resolve_device(device))
        return other

    def keep(self, islands: Collection[int]) -> NavMesh:
        """The navmesh with these islands only, numbered from 0 in the same order; the others are not walkable.

        Scenes with such a navmesh have episodes on these islands only. ArgumentError for an unknown island.
        """
        for island in islands:
            check_int("islands", island, 0, self.num_islands - 1)
        if len(set(islands)) == self.num_islands:
            return self
        return NavMesh(with_islands(self.file, self.data.polygon_island, islands), self.device)

    def moved(self, offset: Array) -> NavMesh:
        """The navmesh moved by `offset` [3], metres."""
        return NavMesh(moved(self.file, np.asarray(offset, np.float64)), self.device)

    def __getstate__(self) -> tuple[navmesh_file.NavMeshFile, NavMeshData[np.ndarray], torch.device]:
        """State for copies and pickles, without the kernel arguments, which `__setstate__` makes again."""
        return self.file, self.data, self.device

    def __setstate__(self, state: tuple[navmesh_file.NavMeshFile, NavMeshData[np.ndarray], torch.device]) -> None:
        self.file, self.data, device = state
        self._place(device)

    def __repr__(self) -> str:
        """One line with area and number of polygons."""
        return f"NavMesh({self.area:.1f} m², {number_of(self.num_polygons, 'polygon')})"

    @property
    def settings(self) -> NavMeshSettings | None:
        """Bake settings; None for files of version 1, which do not contain them."""
        return self.file.settings

    @property
    def area(self) -> float:
        """Walkable area in square metres, summed over the detail triangles."""
        return float(triangle_areas(self.data)[self.data.polygon_island >= 0].sum())

    @property
    def num_polygons(self) -> int:
        """Number of polygons in all tiles."""
        return len(self.data.polygons)

    @property
    def num_islands(self) -> int:
        """Number of islands (connected components)."""
        return len(self.data.island_radius)

    @property
    def bounds(self) -> np.ndarray:
        """f32 [2, 3]: lowest and highest corner of the tiles, from the file."""
        return np.stack([
            np.min([tile.low for tile in self.file.tiles], 0), np.max([tile.high for tile in self.file.tiles], 0)
        ]).astype(np.float32)  # fmt: skip

    def snap(self, points: Array, island: int | Literal["largest"] | None = None) -> Array:
        """Nearest point on the mesh, f32 [N, 3]; NaN where none is within about 2 m (4 m in height).

        `island`: number of the island to snap to, or "largest"; None: any.
        """
        if island is not None:
            return self._part(island).snap(points)
        points, single = self._points("points", points)
        return self._answer(self._locate(points)[1], single)

    def is_navigable(self, points: Array, max_y_delta: float = 0.5) -> Array:
        """bool [N]: True if a point is on the mesh, to 0.01 m horizontally and `max_y_delta` metres vertically."""
        max_y_delta = check_number("max_y_delta", max_y_delta, 0.0, _FAR)
        points, single = self._points("points", points)
        polygon, snapped = self._locate(points)
        delta = snapped - points
        flat = torch.sqrt(delta[:, 0] * delta[:, 0] + delta[:, 2] * delta[:, 2])
        return self._answer((polygon >= 0) & (delta[:, 1].abs() <= max_y_delta) & (flat <= _LOCATE), single)

    def geodesic_distance(self, starts: Array, goals: Array) -> Array:
        """Length in metres of Habitat's path from starts [N, 3] to goals [N, 3], f32 [N]; inf where there is no path.

        Of goals [N, G, 3] (or [G, 3] for a single start), the nearest one counts.
        """
        starts, single = self._points("starts", starts)
        goals = self._goals(goals, len(starts), single)
        return self._answer(self._paths(starts, goals, 0)[0], single)

    def shortest_path(self, start: Array, goal: Array) -> Array:
        """Corners of the path from start [3] to goal [3], with both ends, f32 [K, 3]; K = 0 where there is no path."""
        start, goal = self._single("start", start), self._single("goal", goal)
        _, corners, scratch = self._paths(start, goal[:, None], MAX_PATH)
        return self._answer(scratch.corners[: int(corners[0]), :3].clone(), False)

    def try_step(self, starts: Array, ends: Array, sliding: bool = True) -> Array:
        """Positions f32 [N, 3] that agents reach when they move straight from `starts` to `ends`: Habitat's `try_step`.

        Agents slide along walls, or stop at them if `sliding` is False (as in habitat-sim up to 0.3.3).
        """
        starts, single = self._points("starts", starts)
        ends, _ = self._points("ends", ends)
        if ends.shape != starts.shape:
            raise ArgumentError(f"ends: found {len(ends)} points, expected {len(starts)} as in starts")
        out, rows = torch.empty_like(starts), self._rows(len(starts))
        scratch = self._memory(rows, 0)[1]
        self._run(batch.step, len(starts), rows, starts, ends, bool(sliding), scratch, out)
        return self._answer(out, single)

    def distance_to_wall(self, points: Array, max_distance: float = 2.0) -> Array:
        """Horizontal distance to the nearest wall, f32 [N] metres, at most `max_distance`; inf off the mesh."""
        max_distance = check_number("max_distance", max_distance, 0.0, _FAR)
        points, single = self._points("points", points)
        out, rows = torch.empty_like(points[:, 0]), self._rows(len(points))
        scratch = self._memory(rows, 0)[1]
        self._run(batch.clearance, len(points), rows, points, np.float32(max_distance), scratch, out)
        return self._answer(out, single)

    def island(self, points: Array) -> Array:
        """Island (connected component) of a point, i32 [N]; -1 off the mesh."""
        points, single = self._points("points", points)
        polygon = self._locate(points)[0].long()
        found = self._tensors.polygon_island[polygon.clamp(min=0)]
        return self._answer(torch.where(polygon >= 0, found, -1), single)

    def island_radius(self, points: Array) -> Array:
        """Radius in metres of the island of a point, f32 [N]; 0 off the mesh."""
        points, single = self._points("points", points)
        polygon = self._locate(points)[0].long()
        found = self._tensors.polygon_island[polygon.clamp(min=0)].long()
        return self._answer(torch.where(polygon >= 0, self._tensors.island_radius[found], 0.0), single)

    def topdown_view(self, meters_per_pixel: float, height: float, eps: float = 0.5) -> Array:
        """Habitat's top-down map of a storey, bool [rows, columns]: `is_navigable` at y = height to within eps metres.

        Pixel (row j, column i) is the point x = low + i * meters_per_pixel, z = low + j * meters_per_pixel, where low
        is the lower corner of `bounds`. ArgumentError where there would be no pixel or too many.
        """
        pitch = np.float32(check_number("meters_per_pixel", meters_per_pixel, 1e-3, _FAR))
        height, eps = check_number("height", height, -1e6, _FAR), check_number("eps", eps, 0.0, _FAR)
        low, high = self.bounds[:, [0, 2]]
        columns, rows = np.floor((high - low) / pitch)
        if not (columns >= 1 and rows >= 1 and rows * columns <= _MAX_PIXELS):
            raise ArgumentError(
                f"meters_per_pixel: found {meters_per_pixel!r}, which gives {rows:.0f} x {columns:.0f} pixels, "
                f"expected 1 to {_MAX_PIXELS} pixels"
            )
        columns, rows = int(columns), int(rows)
        # Coordinates are accumulated as in Habitat, since rounding matters at edges.
        x = np.cumsum(np.r_[low[0], np.full(columns - 1, pitch)], dtype=np.float32)
        z = np.cumsum(np.r_[low[1], np.full(rows - 1, pitch)], dtype=np.float32)
        points = np.stack(np.broadcast_arrays(x, np.float32(height), z[:, None]), axis=2).reshape(-1, 3)
        return self.is_navigable(points, eps).reshape(rows, columns)

    def sample(self, n: int, seed: int = 0, island: int | Literal["largest"] | None = None) -> Array:
        """Random points f32 [n, 3], uniform over the walkable area as seen from above; one seed gives the same points.

        `island`: number of the island to sample on, or "largest"; None: all islands.
        """
        if island is not None:
            return self._part(island).sample(n, seed)
        n, seed = check_int("n", n, 0, 2**31 - 1), check_seed(seed)
        if not len(self.data.island_radius):
            raise ArgumentError("sample: found a navmesh without a walkable polygon, expected one to sample points on")
        out = torch.empty((n, 3), dtype=torch.float32, device=self.device)
        self._run(batch.sample, n, 0, seed, out)
        return self._answer(out, False)

    def _part(self, island: int | str) -> NavMesh:
        """The navmesh of one island, cached."""
        if island == "largest":
            areas = island_areas(self.data)
            island = int(areas.argmax()) if len(areas) else 0
        elif isinstance(island, str):
            raise ArgumentError(f"island: found {island!r}, expected a number or 'largest'")
        number = check_int("island", island, 0, self.num_islands - 1)
        if number not in self._parts:
            self._parts[number] = self.keep([number])
        return self._parts[number]

    def _locate(self, points: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Nearest polygon i32 [N] (-1: none) and nearest point on the mesh f32 [N, 3] (NaN: none)."""
        polygon = torch.empty(len(points), dtype=torch.int32, device=self.device)
        snapped = torch.empty_like(points)
        self._run(batch.locate, len(points), 0, points, polygon, snapped)
        return polygon, snapped

    def _paths(self, starts: torch.Tensor, goals: torch.Tensor, max_corners: int):
        """Distance f32 [N] to the nearest goal, corners of its path i32 [N], and the scratch memory that holds them."""
        rows = self._rows(len(starts))
        memory, scratch = self._memory(rows, max_corners)
        distance = torch.empty_like(starts[:, 0])
        corners = torch.empty(len(starts), dtype=torch.int32, device=self.device)
        self._run(batch.path, len(starts), rows, starts, goals, scratch, distance, corners)
        return distance, corners, memory

    def _rows(self, count: int) -> int:
        """Number of concurrent searches (rows of scratch memory) for `count` points."""
        if self.device.type == "cpu":
            return min(count, num_threads())
        return min(count, _CUDA_ROWS, max(_CUDA_SCRATCH // search_bytes(self._search_size), 1))

    def _memory(self, rows: int, max_corners: int):
        """Scratch memory with at least `rows` rows, cached between calls: as tensors and as kernel arguments."""
        kept = self._scratch.get(max_corners)
        if kept is None or kept[0] < rows:
            memory = search_scratch(self._search_size, rows, self.device, max_corners)
            kept = self._scratch[max_corners] = (rows, memory, view(memory))
        return kept[1:]

    def _run(self, kernel: Kernel, count: int, rows: int, *args: Any) -> None:
        """Run the kernel of a query for `count` points, with this number of scratch rows."""
        if count:
            kernel(count, self._nav, *map(view, args), rows=rows)

    def _points(self, name: str, value: Array) -> tuple[torch.Tensor, bool]:
        """Points as f32 [N, 3] on the device, and True if the argument is a single point."""
        points = floats(name, value, self.device)
        single = points.ndim == 1
        points = points[None] if single else points
        if points.ndim != 2 or points.shape[1] != 3:
            raise ArgumentError(f"{name}: found shape {list(np.shape(value))}, expected [N, 3] or [3]")
        return points, single

    def _single(self, name: str, value: Array) -> torch.Tensor:
        points, single = self._points(name, value)
        if not single:
            raise ArgumentError(f"{name}: found shape {list(np.shape(value))}, expected [3]")
        return points

    def _goals(self, value: Array, count: int, single: bool) -> torch.Tensor:
        """Goals as f32 [N, G, 3]."""
        goals = floats("goals", value, self.device)
        if single:
            goals = goals[None]
        goals = goals[:, None] if goals.ndim == 2 else goals
        if goals.ndim != 3 or goals.shape[2] != 3 or len(goals) != count or goals.shape[1] == 0:
            expected = "[3] or [G, 3]" if single else f"[{count}, 3] or [{count}, G, 3]"
            raise ArgumentError(f"goals: found shape {list(np.shape(value))}, expected {expected}")
        return goals.contiguous()

    def _answer(self, value: torch.Tensor, single: bool) -> Array:
        """A result as NumPy (CPU) or torch (CUDA), without its first dimension for a single point."""
        value = value[0] if single else value
        if self.device.type != "cpu":
            return value
        return value.numpy()[()] if value.ndim == 0 else value.numpy()
