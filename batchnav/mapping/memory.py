"""Mapper of agents that get several goals in an episode: it remembers where it saw objects of every category.

It counts the pixels of all categories in the cells of the map. When the goal changes, the counts of its category become
the goal cells of `search`, so that the agent goes straight to an object which it passed on the way to another one.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import torch

from batchnav.mapping.integrate import eye_of, pixel_point
from batchnav.mapping.search import GOAL_CELLS, HITS, KIND, LIKELY, NONE, STOP
from batchnav.mapping.search_mapper import SearchMapper
from batchnav.mapping.state import CELLS, cell_of
from batchnav.runtime.kernels.arrays import view
from batchnav.runtime.kernels.launch import kernel
from batchnav.runtime.kernels.synchronization import atomic_add, sync_lanes
from batchnav.sensors.sensor import Cameras

BLOCK = 256
"""CUDA: threads per agent."""
_ZERO, _ONE = np.int32(0), np.int32(1)


class SeenObjects(NamedTuple):
    """What N agents remember of objects of C categories."""

    hits: Any
    """i32 [N * C, CELLS]: pixels of each category seen in each cell. Those of the current goal are in `GoalMap`."""
    goal: Any
    """i32 [N]: number of the goal at the last update."""
    category: Any
    """i64 [N]: category of this goal; -1 for none."""

    @classmethod
    def empty(cls, n: int, categories: int, device: torch.device) -> SeenObjects:
        """State of `n` agents before their first episode."""
        return cls(
            torch.zeros(n * categories, CELLS, dtype=torch.int32, device=device),
            torch.full((n,), -1, dtype=torch.int32, device=device),
            torch.full((n,), -1, dtype=torch.int64, device=device),
        )


@kernel(over="blocks", block=BLOCK)
def recall(lane, lanes, i, agents, goal_number, goal_category, seen_out, state_out, goals_out):
    """Where agent i has another goal: keep the pixels of the old one, and recall those of the new one.

    A new map begins without any. The lanes share the cells.
    """
    first = i * np.int64(seen_out.hits.shape[0] // seen_out.goal.shape[0])
    begins, changes = state_out.episode[i] != agents.episode[i], goal_number[i] != seen_out.goal[i]
    old, new = seen_out.category[i], goal_category[i]
    if begins:
        for row in range(first, first + seen_out.hits.shape[0] // seen_out.goal.shape[0]):
            for cell in range(lane, CELLS, lanes):
                seen_out.hits[row, cell] = _ZERO
    elif changes:
        if lane == 0:
            goals_out.counters[i, GOAL_CELLS] = _ZERO
        sync_lanes()
        for k in range(lane, CELLS, lanes):
            cell, found = np.int32(k), _ZERO
            if old >= 0:
                seen_out.hits[first + old, cell] = goals_out.hits[i, cell]
            if new >= 0:
                found = seen_out.hits[first + new, cell]
            goals_out.hits[i, cell] = found
            if found >= HITS:
                atomic_add(goals_out.counters, i, GOAL_CELLS, _ONE)
    sync_lanes()
    if lane == 0:
        if changes and not begins:
            state_out.path_length[i] = _ZERO
            goals_out.counters[i, KIND], goals_out.counters[i, STOP] = NONE, _ZERO
        seen_out.goal[i], seen_out.category[i] = goal_number[i], new


@kernel(over="blocks", block=BLOCK)
def remember(lane, lanes, i, depth, numbers, goal_category, cameras, state, parameters, seen_out):
    """Count the pixels of all categories but the goal's in each cell. The lanes share the pixels.

    `numbers`: i32 [N, 1, H, W], 1 + number of each pixel's category, 0 for none.
    """
    _, height, width = depth.shape
    first = i * np.int64(seen_out.hits.shape[0] // seen_out.goal.shape[0])
    eye, x, z = eye_of(i, cameras, width), cameras.position[i, 0], cameras.position[i, 2]
    place, w = np.int32(lane), np.int32(width)
    for _ in range(lane, height * width, lanes):
        line, column = place // w, place % w
        place += np.int32(lanes)
        metres, number = depth[i, line, column], numbers[i, 0, line, column]
        if number == 0 or number == goal_category[i] + 1:
            continue
        if not (metres > np.float32(0.0) and metres < parameters.max_depth):
            continue
        _, dx, dz = pixel_point(i, line, column, depth, eye, parameters)
        cell = cell_of(i, x + dx, z + dz, state.origin_and_resolution)
        if cell >= 0:
            atomic_add(seen_out.hits, first + np.int64(number) - 1, cell, _ONE)


class MemoryMapper(SearchMapper):
    """Maps and waypoints of N agents that search for one object after another.

    Args:
        goal_number: i32 [N]: a number that changes with the goal; a live tensor.
        goal_category: i64 [N]: category of the goal, -1 for none; a live tensor.
        categories: number of categories.
        *args, **options: as in `SearchMapper`.
    """

    def __init__(
        self,
        goal_number: torch.Tensor,
        goal_category: torch.Tensor,
        categories: int,
        *args: Any,
        **options: Any,
    ):
        super().__init__(*args, **options)
        n, device = len(goal_number), goal_number.device
        self.seen = SeenObjects.empty(n, categories, device)
        self._category = goal_category
        read = self._agents, view(goal_number), view(goal_category)
        self._recall: Callable[[], None] = recall.bind(
            n, *read, view(self.seen), view(self.map_state), view(self.goal_map)
        )
        self._remembering: tuple[Cameras, Callable[..., None]] | None = None

    @property
    def state(self) -> dict[str, torch.Tensor]:
        """Live tensors to save for resuming, by name."""
        return super().state | {f"map_seen_{name}": tensor for name, tensor in self.seen._asdict().items()}

    @property
    def ranges(self) -> dict[str, tuple[float, float]]:
        """Lowest and highest valid values of the tensors of `state` whose range is limited."""
        categories = len(self.seen.hits) // len(self.seen.goal)
        return super().ranges | {"map_seen_category": (-1, categories - 1)}

    def forget(self, agents: torch.Tensor) -> None:
        """Begin new maps for these agents, bool [N], at the next update."""
        self.map_state.episode.masked_fill_(agents, -1)

    def search_objects(self, depth: torch.Tensor, numbers: torch.Tensor, cameras: Cameras) -> None:
        """Integrate depth f32 [N, H, W], metres, and categories i32 [N, 1, H, W], and plan. Call once an observation.

        `numbers`: 1 + number of each pixel's category, 0 for none.
        """
        self._recall()
        mask = (numbers[:, 0] == (self._category + 1).view(-1, 1, 1)) & (numbers[:, 0] > 0)
        self.search(depth, mask.view(torch.uint8).mul_(int(LIKELY)), cameras)
        if self._remembering is None or self._remembering[0] is not cameras:
            read = view(self._category), self._poses(cameras), view(self.map_state), self._parameters
            run = remember.bind(len(depth), view(depth), view(numbers), *read, view(self.seen), live=(0, 1))
            self._remembering = cameras, run
        self._remembering[1](depth, numbers)
