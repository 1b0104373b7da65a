"""Mapper of agents that get several goals in an episode: it remembers where it saw objects of every category.

It keeps the evidence of all categories in the cells of the map. When the goal changes, that of its category gives the
goal cells of `search`, so that the agent goes straight to an object which it passed on the way to another one.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import torch

from batchnav.mapping.evidence import NEAR, count_view, end_view, holds_object, note_looked, note_seen
from batchnav.mapping.integrate import eye_of
from batchnav.mapping.search import GOAL_CELLS, KIND, LIKELY, NONE, STOP, place_seen
from batchnav.mapping.search_mapper import SearchMapper
from batchnav.mapping.state import CELLS
from batchnav.runtime.kernels.arrays import view
from batchnav.runtime.kernels.decorators import inline_function
from batchnav.runtime.kernels.launch import kernel
from batchnav.runtime.kernels.synchronization import atomic_add, sync_lanes
from batchnav.sensors.sensor import Cameras

BLOCK = 256
"""CUDA: threads per agent."""
_ZERO, _ONE, _UNSEEN = np.int32(0), np.int32(1), np.int32(-1)


class SeenObjects(NamedTuple):
    """What N agents remember of objects of C categories."""

    evidence: Any
    """i32 [N * C, CELLS]: evidence of each category in each cell. That of the current goal is in `GoalMap`."""
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
    """Where agent i has another goal: keep the evidence of the old one, and recall that of the new one.

    A new map begins without any. The lanes share the cells.
    """
    first = i * np.int64(seen_out.evidence.shape[0] // seen_out.goal.shape[0])
    begins, changes = state_out.episode[i] != agents.episode[i], goal_number[i] != seen_out.goal[i]
    old, new = seen_out.category[i], goal_category[i]
    if begins:
        for row in range(first, first + seen_out.evidence.shape[0] // seen_out.goal.shape[0]):
            for cell in range(lane, CELLS, lanes):
                seen_out.evidence[row, cell] = _ZERO
    elif changes:
        if lane == 0:
            goals_out.counters[i, GOAL_CELLS] = _ZERO
        sync_lanes()
        for k in range(lane, CELLS, lanes):
            cell, found = np.int32(k), _ZERO
            if old >= 0:
                seen_out.evidence[first + old, cell] = goals_out.evidence[i, cell]
            if new >= 0:
                found = seen_out.evidence[first + new, cell]
            goals_out.evidence[i, cell] = found
            if holds_object(found):
                atomic_add(goals_out.counters, i, GOAL_CELLS, _ONE)
    sync_lanes()
    if lane == 0:
        if changes and not begins:
            state_out.path_length[i] = _ZERO
            goals_out.counters[i, KIND], goals_out.counters[i, STOP] = NONE, _ZERO
        seen_out.goal[i], seen_out.category[i] = goal_number[i], new


@inline_function
def _category_shown(i, pixel, depth, numbers, parameters):
    """1 + number of a pixel's category, 0 for another pixel close by, -1 for other pixels."""
    width = np.int32(depth.shape[2])
    metres, number = depth[i, pixel // width, pixel % width], numbers[i, 0, pixel // width, pixel % width]
    if not (metres > np.float32(0.0) and metres < parameters.max_depth) or (number == _ZERO and metres >= NEAR):
        return _UNSEEN
    return np.int32(number)


@kernel(over="blocks", block=BLOCK)
def remember(lane, lanes, i, depth, numbers, goal_category, cameras, state, parameters, seen_out):
    """Update the evidence of all categories but the goal's by a view. The lanes share the pixels.

    `numbers`: i32 [N, 1, H, W], 1 + number of each pixel's category, 0 for none.
    """
    categories = np.int64(seen_out.evidence.shape[0] // seen_out.goal.shape[0])
    first, goal = i * categories, goal_category[i]
    eye, pixels = eye_of(i, cameras, depth.shape[2]), depth.shape[1] * depth.shape[2]
    for phase in range(3):
        for place in range(lane, pixels, lanes):
            pixel = np.int32(place)
            shown = _category_shown(i, pixel, depth, numbers, parameters)
            if shown == _UNSEEN:
                continue
            cell, _ = place_seen(i, pixel, depth, eye, cameras, state)
            is_near = depth[i, pixel // np.int32(depth.shape[2]), pixel % np.int32(depth.shape[2])] < NEAR
            for k in range(categories):
                is_shown = k + 1 == shown
                if cell < 0 or k == goal or not (is_shown or is_near):
                    continue
                row = first + k
                if phase == 0 and is_shown:
                    note_seen(row, cell, seen_out.evidence)
                elif phase == 0:
                    note_looked(row, cell, seen_out.evidence)
                elif phase == 1:
                    count_view(row, cell, seen_out.evidence)
                else:
                    end_view(row, cell, seen_out.evidence)
        sync_lanes()


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
        categories = len(self.seen.evidence) // len(self.seen.goal)
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
