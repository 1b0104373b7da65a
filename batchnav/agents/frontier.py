"""The walk to the frontier: always to the nearest place, by path, whose cell was not visited yet.

Yamauchi, "A frontier-based approach for autonomous exploration" (1997), for an agent that knows the map: a strong
greedy explorer, no upper bound. Places are points sampled on each scene's navmesh.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import torch
from numba import prange

from batchnav.agents.shortest_path import follow
from batchnav.envs.nav import NavEnv
from batchnav.geometry.point import keep_point, point_at, squared_distance
from batchnav.navmesh.geodesic import geodesic_distance
from batchnav.runtime.kernels.arrays import view
from batchnav.runtime.kernels.decorators import cpu_kernel, cuda, cuda_kernel, device_function
from batchnav.runtime.kernels.launch import launch
from batchnav.sim.bodies import LEFT, STOP
from batchnav.tasks.visited_cells import cell_of, start_frame, was_visited

POINTS = 512
"""Places in each scene."""
PATIENCE = np.int32(40)
"""Steps to a place, beside three times those of the path, until it is given up."""
ARRIVED = np.float32(0.15)
"""Metres."""


class Settings(NamedTuple):
    """What planning knows of `sim.bodies.Body`, and the cells' size."""

    forward_step: np.float32
    turn: np.float32
    sliding: bool
    cell_size: np.float32


class Plans(NamedTuple):
    """Where every agent is going."""

    target: torch.Tensor
    """f32 [N, 3]."""
    chosen: torch.Tensor
    """i32 [N]: which of the scene's places it is, -1: none."""
    steps_left: torch.Tensor
    """i32 [N]: then it is given up."""
    given_up: torch.Tensor
    """bool [N, POINTS]: places that could not be reached in this episode."""
    turns: torch.Tensor
    """i32 [N, 2]: as `follow` keeps them."""


@device_function
def _choose(i, nav, bodies, state, frame, points, scratch, row, plans_out):
    """The nearest place, by path, whose cell is new; none where all were visited."""
    position, scene, count = point_at(i, bodies.position), bodies.scene[i], _visited(i, bodies, state)
    best = np.float32(np.inf)
    plans_out.chosen[i] = np.int32(-1)
    for k in range(points.shape[1]):
        point = points[scene, k, 0], points[scene, k, 1], points[scene, k, 2]
        if plans_out.given_up[i, k] or squared_distance(position, point) >= best * best:
            continue
        if was_visited(i, cell_of(point, frame), count, state.cells):
            continue
        distance = geodesic_distance(nav, scene, position, point, scratch, row)
        if distance < best:
            best = distance
            plans_out.chosen[i] = np.int32(k)
            keep_point(i, point, plans_out.target)
    return best


@device_function
def _visited(i, bodies, state):
    """Cells visited in the running episode; the state is of the last step, which may be another episode's."""
    return np.int32(0) if bodies.steps[i] == 0 else np.int32(state.progress[i])


@device_function
def _explore(i, nav, bodies, state, points, settings, scratch, row, plans_out):
    """The next action."""
    frame = start_frame(point_at(i, bodies.start), bodies.start_heading[i], settings.cell_size)
    chosen = plans_out.chosen[i]
    if chosen >= 0:
        if plans_out.steps_left[i] == 0:
            plans_out.given_up[i, chosen] = True
        cell = cell_of(point_at(i, plans_out.target), frame)
        if plans_out.given_up[i, chosen] or was_visited(i, cell, _visited(i, bodies, state), state.cells):
            chosen = np.int32(-1)
    if chosen < 0:
        distance = _choose(i, nav, bodies, state, frame, points, scratch, row, plans_out)
        if plans_out.chosen[i] < 0:
            return STOP
        plans_out.steps_left[i] = PATIENCE + np.int32(np.float32(3.0) * distance / settings.forward_step)
        plans_out.turns[i, 0], plans_out.turns[i, 1] = 0, 0
    plans_out.steps_left[i] -= np.int32(1)
    action = follow(i, nav, bodies, plans_out.target, settings, ARRIVED, scratch, row, plans_out.turns)
    if action == STOP:  # there, and yet not in its cell
        plans_out.given_up[i, plans_out.chosen[i]] = True
        return LEFT
    return action


@cpu_kernel
def explore_cpu(nav, bodies, state, points, settings, chunks, scratch, plans_out, actions_out):
    """`_explore` of every agent."""
    n = actions_out.shape[0]
    for chunk in prange(chunks):
        row = np.int64(chunk)  # prange counts in unsigned integers, which would compile every callee anew
        for i in range(row * n // chunks, (row + 1) * n // chunks):
            actions_out[i] = _explore(i, nav, bodies, state, points, settings, scratch, row, plans_out)


@cuda_kernel
def explore_cuda(nav, bodies, state, points, settings, scratch, plans_out, actions_out):
    """`_explore` of every agent."""
    i = cuda.grid(1)
    if i < actions_out.shape[0]:
        actions_out[i] = _explore(i, nav, bodies, state, points, settings, scratch, i, plans_out)


class FrontierAgent:
    """Walks to the nearest place whose cell is new, and stops where none is left."""

    def __init__(self, env: NavEnv):
        sim, n, device = env.sim, env.num_envs, env.device
        places = np.stack([scene.navmesh.sample(POINTS) for scene in env.bank.scenes])
        self._places = torch.from_numpy(places).to(device)
        self._plans = Plans(
            target=torch.zeros(n, 3, device=device), chosen=torch.full((n,), -1, dtype=torch.int32, device=device),
            steps_left=torch.zeros(n, dtype=torch.int32, device=device),
            given_up=torch.zeros(n, POINTS, dtype=torch.bool, device=device),
            turns=torch.zeros(n, 2, dtype=torch.int32, device=device),
        )  # fmt: skip
        self._actions = torch.zeros(n, dtype=torch.int64, device=device)
        body, cell_size = sim.body, np.float32(env.task.config.cell_size)
        settings = Settings(body.forward_step, body.turn, body.sliding, cell_size)
        self._read = sim.bank.navmesh_view, view(sim.bodies), view(env.task.state), view(self._places), settings
        self._scratch, self._chunks = sim.search_scratch(n), sim.chunks
        self._written = view(self._plans), view(self._actions)

    def reset(self, num_envs: int) -> None:
        """Forget where everybody was going."""
        self._plans.chosen.fill_(-1)
        self._plans.given_up.fill_(False)

    def act(self, observations: dict[str, torch.Tensor], episode_start: torch.Tensor) -> torch.Tensor:
        """Actions i64 [N]; valid until the next call."""
        self._plans.chosen.masked_fill_(episode_start, -1)
        self._plans.given_up.masked_fill_(episode_start.unsqueeze(1), False)
        if self._actions.device.type == "cuda":
            launch(explore_cuda, len(self._actions), *self._read, self._scratch, *self._written)
        else:
            explore_cpu(*self._read, self._chunks, self._scratch, *self._written)
        return self._actions
