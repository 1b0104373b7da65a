"""Frontier explorer: moves to the nearest point, by path, whose cell is not visited yet.

After Yamauchi, "A frontier-based approach for autonomous exploration" (CIRA 1997), for an agent that knows the navmesh:
a strong greedy explorer, not an upper bound. Candidates are points sampled on each scene's navmesh.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import torch

from batchnav.agents.shortest_path import PathFollower
from batchnav.envs.nav import NavEnv
from batchnav.geometry.pose import point_at, squared_distance, store_point
from batchnav.navmesh.geodesic import geodesic_distance
from batchnav.runtime.kernels.arrays import view
from batchnav.runtime.kernels.decorators import device_function
from batchnav.runtime.kernels.launch import kernel
from batchnav.sim.bodies import LEFT, STOP
from batchnav.tasks.explore import cell_of, start_frame, was_visited

POINTS = 512
"""Candidate points of each scene."""
PATIENCE = np.int32(40)
"""Steps allowed towards a candidate, in addition to three times the steps of its path."""
ARRIVED = 0.15
"""Distance at which a candidate counts as reached, metres."""


class FrontierSettings(NamedTuple):
    """Lengths that the choice of candidates depends on."""

    forward_step: np.float32
    """Step length of the body, metres."""
    cell_size: np.float32
    """Side of the task's cells, metres."""


class Targets(NamedTuple):
    """The current target of every agent."""

    position: torch.Tensor
    """f32 [N, 3], metres."""
    chosen: torch.Tensor
    """i32 [N]: index of the target among the scene's candidates; -1: none."""
    steps_left: torch.Tensor
    """i32 [N]: steps until the target counts as unreachable."""
    unreachable: torch.Tensor
    """bool [N, POINTS]: True where a candidate could not be reached in this episode."""
    plan: torch.Tensor
    """i32 [N, PLAN_COLUMNS]: turns and steps in progress, see `shortest_path.next_action`."""


@device_function
def _choose(i, nav, bodies, state, frame, points, scratch, row, targets_out):
    """Set the nearest candidate, by path, whose cell is unvisited; returns its distance, metres (-1 and inf: none)."""
    position, scene, count = point_at(i, bodies.position), bodies.scene[i], _visited(i, bodies, state)
    best = np.float32(np.inf)
    targets_out.chosen[i] = np.int32(-1)
    for k in range(points.shape[1]):
        point = points[scene, k, 0], points[scene, k, 1], points[scene, k, 2]
        if targets_out.unreachable[i, k] or squared_distance(position, point) >= best * best:  # no path is shorter
            continue
        if was_visited(i, cell_of(point, frame), count, state.cells):
            continue
        distance = geodesic_distance(nav, scene, position, point, scratch, row)
        if distance < best:
            best = distance
            targets_out.chosen[i] = np.int32(k)
            store_point(i, point, targets_out.position)
    return best


@device_function
def _visited(i, bodies, state):
    """Number of cells visited in the current episode; `state` is one step old and may belong to the last episode."""
    return np.int32(0) if bodies.steps[i] == 0 else np.int32(state.progress[i])


@kernel(fastmath=True)
@device_function
def update_target(i, nav, bodies, state, points, settings, scratch, row, targets_out):
    """Keep the target of agent i until its cell is visited or its steps are used up; then choose the next one."""
    frame = start_frame(point_at(i, bodies.start), bodies.start_heading[i], settings.cell_size)
    chosen = targets_out.chosen[i]
    if chosen >= 0:
        if targets_out.steps_left[i] == 0:
            targets_out.unreachable[i, chosen] = True
        cell = cell_of(point_at(i, targets_out.position), frame)
        if targets_out.unreachable[i, chosen] or was_visited(i, cell, _visited(i, bodies, state), state.cells):
            chosen = np.int32(-1)
    if chosen < 0:
        distance = _choose(i, nav, bodies, state, frame, points, scratch, row, targets_out)
        targets_out.plan[i, 0], targets_out.plan[i, 3] = 0, 0
        if targets_out.chosen[i] < 0:
            store_point(i, point_at(i, bodies.position), targets_out.position)
            return
        targets_out.steps_left[i] = PATIENCE + np.int32(np.float32(3.0) * distance / settings.forward_step)
    targets_out.steps_left[i] -= np.int32(1)


class FrontierAgent:
    """Moves to the nearest candidate whose cell is unvisited, and stops when there is none.

    Args:
        env: environment to act in, of a task with cells (Explore).
    """

    @torch.inference_mode(False)
    def __init__(self, env: NavEnv):
        sim, n, device = env.sim, env.num_envs, env.device
        candidates = np.stack([scene.navmesh.sample(POINTS) for scene in env.bank.scenes])
        self._candidates = torch.from_numpy(candidates).to(device)
        self._rows = torch.arange(n, dtype=torch.int64, device=device)
        scratch, position = sim.search_scratch(n), torch.zeros(n, 3, dtype=torch.float32, device=device)
        self._follower = PathFollower(env, position, ARRIVED, scratch)
        self._targets = Targets(
            position, torch.full((n,), -1, dtype=torch.int32, device=device),
            steps_left=torch.zeros(n, dtype=torch.int32, device=device),
            unreachable=torch.zeros(n, POINTS, dtype=torch.bool, device=device),
            plan=self._follower.plan,
        )  # fmt: skip
        settings = FrontierSettings(sim.body.forward_step, np.float32(env.task.config.cell_size))
        read = sim.bank.navmesh_view, view(sim.bodies), view(env.task.state), view(self._candidates), settings
        self.update_targets: Callable[[], Any] = update_target.bind(
            n, *read, scratch, view(self._targets), rows=sim.chunks
        )
        """Chooses the targets of the next actions."""

    def reset(self, num_envs: int) -> None:
        """Clear all targets."""
        self._targets.chosen.fill_(-1)
        self._targets.unreachable.fill_(False)

    def act(self, observations: dict[str, torch.Tensor], episode_start: torch.Tensor) -> torch.Tensor:
        """Actions i64 [N]; valid until the next call."""
        chosen, unreachable = self._targets.chosen, self._targets.unreachable
        chosen.masked_fill_(episode_start, -1)
        unreachable.masked_fill_(episode_start.unsqueeze(1), False)
        self.update_targets()
        self._follower.step()
        actions = self._follower.actions
        # A target that is reached while its cell stays unvisited is skipped from the next step on; the agent turns.
        arrived = (actions == STOP) & (chosen >= 0)
        unreachable[self._rows, chosen.clamp(min=0).long()] |= arrived
        return actions.masked_fill_(arrived, LEFT).masked_fill_(chosen < 0, STOP)
