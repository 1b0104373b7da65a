"""Explore: visit as many cells as possible.

A task of Shacklett et al., "Large batch simulation for deep reinforcement learning" (ICLR 2021). Cells have sides of 1
m in the frame of the start, and a new cell gives a reward of 0.25, as in their release. The cell of the start does not
count. One difference from the release: an episode has 500 actions instead of 499.

The cell of a point is its coordinates in the start's frame, divided by the cell size and truncated towards zero, as in
the release of Shacklett et al. (2021). Cell 0 therefore extends from -1 to 1 cell sizes along every axis, twice as far
as other cells.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import torch

from batchnav.config import bounded
from batchnav.geometry.polygon import ZERO
from batchnav.geometry.pose import point_at
from batchnav.navmesh.data import polygon_size, polygon_vertex, scene_polygons
from batchnav.navmesh.locate import nearest_polygon
from batchnav.runtime.kernels.arrays import record_type, view
from batchnav.runtime.kernels.decorators import cuda, exact_cuda_kernel, inline_function, lean_function
from batchnav.runtime.kernels.launch import kernel
from batchnav.sim.simulator import NO_EPISODE, Simulator
from batchnav.tasks.config import TaskConfig
from batchnav.tasks.episode_sampling import EpisodeTable
from batchnav.tasks.goal_free import ProgressTask, progress_metrics, score_progress
from batchnav.types import Metric

WARP = 32
"""CUDA: threads that count the cells of one agent's next episode."""
COUNTING_WARPS = 512
"""CUDA: maximum number of agents whose cells are counted in parallel."""
MAX_STEPS = 20_000
"""Maximum of `max_steps`: memory is kept for one new cell per step."""
MAX_MARKS = 65536
"""Maximum number of cells in the bounding box of an island: more than 250 x 250 cells on one storey."""
_SIDE, _LEVELS = np.int32(2047), np.int32(127)
"""Largest cell coordinates, horizontal and vertical. Coordinates farther from the start are clamped to them."""
_TOUCH = np.float32(1e-3)
"""Tolerance, in cell sizes: cells that an island only touches count as reachable, since rounding may lead there."""


@dataclass(frozen=True)
class ExploreConfig(TaskConfig):
    """Configuration of the Explore task. Defaults: the release of Shacklett et al."""

    max_steps: int = bounded(500, 1, MAX_STEPS)
    """Steps after which an episode is truncated."""
    cell_size: float = bounded(1.0, 0.25, 100.0)
    """Side of a cell, metres."""
    cell_reward: float = bounded(0.25, -1e6, 1e6)
    """Reward of each new cell."""


class ExploreParameters(NamedTuple):
    """The numbers of `ExploreConfig` that kernels read."""

    cell_size: np.float32
    """Side of a cell, metres."""
    cell_reward: np.float32
    """Reward of each new cell."""


# Cells.


@inline_function
def start_frame(start, heading, size):
    """The frame of an episode's start: (start, sine of the heading, cosine of the heading, cells per metre)."""
    return start, np.float32(math.sin(heading)), np.float32(math.cos(heading)), np.float32(1.0) / size


@inline_function
def in_frame(point, frame):
    """A point in a start's frame, in cell sizes: to the right, up, backwards."""
    start, sine, cosine, scale = frame
    dx, dy, dz = point[0] - start[0], point[1] - start[1], point[2] - start[2]
    return (dx * cosine - dz * sine) * scale, dy * scale, (dx * sine + dz * cosine) * scale


@inline_function
def cut(value, limit):
    """The cell of a coordinate: truncated towards zero, and clamped to -limit to limit."""
    return min(max(np.int32(value), -limit), limit)


@inline_function
def cell_of(point, frame):
    """The cell of a point, encoded as one i32; 0 is the cell of the start."""
    x, y, z = in_frame(point, frame)
    return (cut(y, _LEVELS) << np.int32(24)) + (cut(x, _SIDE) << np.int32(12)) + cut(z, _SIDE)


@inline_function
def was_visited(i, cell, count, cells):
    """True if a cell is that of the start or among the first `count` entries of row i of cells i32 [N, M]."""
    found = cell == 0
    while not found and count > 0:  # newest first: an agent is mostly in a cell that it visited recently
        count -= np.int32(1)
        found = cells[i, count] == cell
    return found


@lean_function
def box_of_island(nav, scene, island, frame):
    """The bounding box of an island in cells: lowest x, y, z, and numbers of cells along x, y, z."""
    first, number = scene_polygons(nav, scene)
    big = np.int32(2**30)
    low_x, low_y, low_z, high_x, high_y, high_z = big, big, big, -big, -big, -big
    for polygon in range(first, first + number):
        if nav.polygon_island[polygon] == island:
            for k in range(polygon_size(nav, polygon)):
                x, y, z = in_frame(polygon_vertex(nav, polygon, k), frame)
                low_x, high_x = min(low_x, cut(x - _TOUCH, _SIDE)), max(high_x, cut(x + _TOUCH, _SIDE))
                low_y, high_y = min(low_y, cut(y - _TOUCH, _LEVELS)), max(high_y, cut(y + _TOUCH, _LEVELS))
                low_z, high_z = min(low_z, cut(z - _TOUCH, _SIDE)), max(high_z, cut(z + _TOUCH, _SIDE))
    one = np.int32(1)
    return low_x, low_y, low_z, high_x - low_x + one, high_y - low_y + one, high_z - low_z + one


@lean_function
def clear_marks(lane, lanes, number, row, marks_out):
    """Clear the first `number` marks of a row of u8 [rows, MAX_MARKS]. The lanes share the marks."""
    for k in range(lane, number, lanes):
        marks_out[row, k] = np.uint8(0)


@lean_function
def mark_island(lane, lanes, nav, scene, island, frame, box, row, marks_out):
    """Mark the cells of a box that an island's polygons overlap. Lanes share the polygons; several may write a cell."""
    first, number = scene_polygons(nav, scene)
    for polygon in range(first + lane, first + number, lanes):
        if nav.polygon_island[polygon] == island:
            _mark_polygon(nav, np.int32(polygon), frame, box, row, marks_out)


@lean_function
def count_marks(lane, lanes, number, marks, row):
    """Number of marked cells among every `lanes`-th cell from `lane` on."""
    count = 0
    for k in range(lane, number, lanes):
        count += np.int32(marks[row, k])
    return count


@inline_function
def _mark_polygon(nav, polygon, frame, box, row, marks_out):
    """Mark the cells that a polygon overlaps in plan view, on all levels between its lowest and highest vertex."""
    count = polygon_size(nav, polygon)
    x, y, z = in_frame(polygon_vertex(nav, polygon, 0), frame)
    low_x, high_x, low_y, high_y, low_z, high_z = x, x, y, y, z, z
    area, before_x, before_z = ZERO, x, z
    for k in range(1, count):
        x, y, z = in_frame(polygon_vertex(nav, polygon, k), frame)
        low_x, high_x, low_y, high_y = min(low_x, x), max(high_x, x), min(low_y, y), max(high_y, y)
        low_z, high_z = min(low_z, z), max(high_z, z)
        area += before_x * z - x * before_z
        before_x, before_z = x, z
    x, y, z = in_frame(polygon_vertex(nav, polygon, 0), frame)
    area += before_x * z - x * before_z
    first_x, first_y, first_z, wide, _, deep = box
    for cx in range(cut(low_x - _TOUCH, _SIDE), cut(high_x + _TOUCH, _SIDE) + 1):
        for cz in range(cut(low_z - _TOUCH, _SIDE), cut(high_z + _TOUCH, _SIDE) + 1):
            if _polygon_meets(nav, polygon, count, area, np.int32(cx), np.int32(cz), frame):
                for cy in range(cut(low_y - _TOUCH, _LEVELS), cut(high_y + _TOUCH, _LEVELS) + 1):
                    marks_out[row, ((cy - first_y) * deep + cz - first_z) * wide + cx - first_x] = np.uint8(1)


@inline_function
def _polygon_meets(nav, polygon, count, area, cx, cz, frame):
    """True if a cell overlaps a convex polygon whose box it overlaps: no edge has the whole cell on its outer side."""
    one = np.float32(1.0)
    left = (np.float32(cx) if cx > 0 else np.float32(cx) - one) - _TOUCH
    right = (np.float32(cx) if cx < 0 else np.float32(cx) + one) + _TOUCH
    back = (np.float32(cz) if cz > 0 else np.float32(cz) - one) - _TOUCH
    front = (np.float32(cz) if cz < 0 else np.float32(cz) + one) + _TOUCH
    sign = one if area > ZERO else -one
    ax, _, az = in_frame(polygon_vertex(nav, polygon, count - 1), frame)
    for k in range(count):
        bx, _, bz = in_frame(polygon_vertex(nav, polygon, k), frame)
        nx, nz = sign * (az - bz), sign * (bx - ax)  # points into the polygon
        inmost = nx * ((right if nx > ZERO else left) - ax) + nz * ((front if nz > ZERO else back) - az)
        if inmost < ZERO:
            return False
        ax, az = bx, bz
    return True


# One agent.


@kernel()
def score_one(i, transition, parameters, state_out, cells_out, metrics_out, reward_out):
    """Update visited cells, reward and metrics from the transition of a step."""
    progress = transition.progress[i]
    if transition.moved[i]:
        frame = start_frame(point_at(i, transition.start), transition.start_heading[i], parameters.cell_size)
        cell, count = cell_of(point_at(i, transition.position), frame), np.int32(progress)
        if count < cells_out.shape[1] and not was_visited(i, cell, count, cells_out):
            cells_out[i, count] = cell
            progress += np.float32(1.0)
    metrics_out.area[i] = progress * parameters.cell_size * parameters.cell_size
    reward = parameters.cell_reward * (progress - transition.progress[i])
    score_progress(i, transition, progress, reward, state_out, metrics_out, reward_out)


@lean_function
def surroundings(i, nav, next_episode, cell_size):
    """Island, start frame and bounding box of cells of the next episode, for counting its reachable cells."""
    scene, start = next_episode.scene[i], point_at(i, next_episode.position)
    polygon, _ = nearest_polygon(nav, scene, start)
    island = nav.polygon_island[max(polygon, np.int32(0))]
    frame = start_frame(start, next_episode.heading[i], cell_size)
    return island, frame, box_of_island(nav, scene, island, frame)


@exact_cuda_kernel
def count_cuda(queued, nav, cell_size, marks_out, next_out, errors_out):
    """CUDA form of `count_one`: the threads of a warp share an agent's polygons and cells."""
    lane, row = cuda.threadIdx.x, cuda.blockIdx.x
    for place in range(row, queued.count[0], cuda.gridDim.x):
        i = np.int64(queued.agents[place])
        island, frame, box = surroundings(i, nav, next_out, cell_size)
        number = np.int64(box[3]) * np.int64(box[4]) * np.int64(box[5])
        if number > MAX_MARKS:
            errors_out[NO_EPISODE] = next_out.scene[i] + np.int32(1)
            continue
        clear_marks(lane, WARP, number, row, marks_out)
        if lane == 0:
            next_out.reachable[i] = np.float32(-1.0)  # the start's own cell
        cuda.syncwarp()
        mark_island(lane, WARP, nav, next_out.scene[i], island, frame, box, row, marks_out)
        cuda.syncwarp()
        cuda.atomic.add(next_out.reachable, i, np.float32(count_marks(lane, WARP, number, marks_out, row)))
        cuda.syncwarp()


@kernel(over="queue", block=WARP, cuda_form=count_cuda)
def count_one(i, nav, cell_size, row, marks_out, next_out, errors_out):
    """Count the cells that are reachable from an agent's next start, without the start's cell."""
    island, frame, box = surroundings(i, nav, next_out, cell_size)
    number = np.int64(box[3]) * np.int64(box[4]) * np.int64(box[5])
    if number > MAX_MARKS:
        errors_out[NO_EPISODE] = next_out.scene[i] + np.int32(1)
        return
    clear_marks(0, 1, number, row, marks_out)
    mark_island(0, 1, nav, next_out.scene[i], island, frame, box, row, marks_out)
    next_out.reachable[i] = np.float32(count_marks(0, 1, number, marks_out, row) - 1)


# The task.


class Explore(ProgressTask):
    """The Explore task. Arguments as in `ProgressTask`.

    Progress is the number of visited cells. A cell is reachable if the island of the start overlaps it in plan view.
    """

    Config = ExploreConfig
    title = "Explore"
    reference_agents = ("random", "forward", "frontier")
    metric_specs = (
        *progress_metrics(Metric("cells", headline=True), Metric("share_of_reachable", high=1.0, headline=True)),
        Metric("area"),  # square metres
    )

    def __init__(self, sim: Simulator, config: ExploreConfig, episodes: EpisodeTable | None = None):
        super().__init__(sim, config, episodes)
        self.no_episode_message += f", with at most {MAX_MARKS:,} cells of {config.cell_size:g} m in the box around it"
        self.cells = self.own[0]
        """i32 [N, max_steps]: the first `progress` entries of a row are the visited cells."""
        self.state = ExploreState(**self.running._asdict(), cells=self.cells)
        self.ranges |= {"progress": (0.0, float(config.max_steps)), "cells": (-(2**31), 2**31 - 1)}

    @classmethod
    def arrays(cls, n: int, device: torch.device, config: Any) -> tuple[Any, ...]:
        """All tensors of `n` agents; the last two are the visited cells, and marks for counting reachable cells."""
        cells = torch.zeros(n, config.max_steps, dtype=torch.int32, device=device)
        rows = min(n, COUNTING_WARPS)
        marks = torch.zeros(rows, MAX_MARKS, dtype=torch.uint8, device=device)
        return *super().arrays(n, device, config), cells, marks

    def score(self) -> None:
        """Compute reward and metrics from the transition."""
        self._score()

    def sample_episodes(self) -> None:
        """Sample the queued agents' next starts, and count the cells that are reachable from them."""
        self.sample_starts()
        self._count()

    def _bind(self) -> None:
        """Bind the kernels to their arguments."""
        super()._bind()
        sim, n, config, (cells, marks) = self.sim, self.sim.num_envs, self.config, map(view, self.own)
        parameters = ExploreParameters(np.float32(config.cell_size), np.float32(config.cell_reward))
        written = view(self.running), cells, view(self.metric_tensors), view(self.reward)
        self._score: Callable[[], None] = score_one.bind(n, view(self.transition), parameters, *written)
        rows, read = min(n, COUNTING_WARPS), (sim.bank.navmesh_view, parameters.cell_size)
        self._count: Callable[[], None] = count_one.bind(
            view(sim.queue), *read, marks, view(self.next_episode), sim.error_flags,
            rows=min(rows, sim.chunks), threads=rows * WARP,
        )  # fmt: skip


ExploreState = record_type("ExploreState", (*Explore.State._fields, "cells"), __name__)
"""The state to resume from: the running episode, and the visited cells."""
