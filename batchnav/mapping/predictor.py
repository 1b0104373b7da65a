"""Occupancy anticipation: predicted costs of unexplored cells.

After Ramakrishnan, Al-Halah and Grauman, "Occupancy anticipation for efficient exploration and navigation" (ECCV 2020).
A U-Net (`sensors/unet.py`) reads the map and the places of goal, start and agent, and predicts for every cell the odds
that it is blocked. The odds are added to the traversal costs of unexplored cells. `learn` trains the network: first on
the odds, then on the costs of the resulting paths.
"""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any, Protocol

import torch
from torch.nn import functional

from batchnav.mapping.costs import COST_UNITS
from batchnav.mapping.state import PREDICTION_INTERVAL, SIDE, MapLayers, MapState
from batchnav.runtime.bundled import find_anticipation
from batchnav.runtime.device import compiled
from batchnav.runtime.weights import read_weights, save_weights
from batchnav.sensors.unet import UNet, folded, set_weights

WINDOW = 128
"""Cells along a side of the predicted window around the agent: 25.6 m at the finest resolution."""
_CHANGED_AT = 2
"""Addition to the step of a map's last change in `MapState.dirty`."""
_ONE_TURN = 1.01
"""The first prediction is made when the remaining scan is at most one turn of a step, with 1% for rounding. The first
path after the scan then uses a prediction."""
_SPARE = 1.125
"""CUDA: predictions per step, relative to the average. Further agents wait; those that are due longest come first."""
_MIN_CAPACITY = 256
"""CUDA: smallest number of predictions per step, if there are that many agents."""
_BATCH = 64
"""CPU: maps per forward pass."""
_PLANES, _SPOT = 6, 2.0
"""Number of input planes: free, blocked, unknown, and Gaussians at goal, start and agent; and the standard deviation of
the Gaussians, cells."""
_WIDTHS = (32, 64, 96, 128, 128)
"""Channels per level, from a resolution of 2x2 cells to the coarsest."""
MAX_PREDICTED_COST = 60 * COST_UNITS
"""Largest predicted cost of a cell: thirty times the cost of a free one."""


class TrackedBodies(Protocol):
    """Fields of the simulator's bodies that a prediction depends on."""

    @property
    def position(self) -> torch.Tensor:
        """f32 [N, 3], metres."""
        ...

    @property
    def heading(self) -> torch.Tensor:
        """f32 [N], radians."""
        ...

    @property
    def episode(self) -> torch.Tensor:
        """i32 [N]: number of the running episode."""
        ...

    @property
    def steps(self) -> torch.Tensor:
        """i32 [N]: steps taken in the running episode."""
        ...


class OccupancyNet(UNet):
    """U-Net from f32 [B, 6, WINDOW, WINDOW] to logits f32 [B, WINDOW, WINDOW]; `odds` turns them into costs."""

    def __init__(self) -> None:
        super().__init__(_PLANES, 4, _WIDTHS)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Logits of all cells."""
        return functional.pixel_shuffle(super().forward(x), 2)[:, 0]


def network_input(free: torch.Tensor, blocked: torch.Tensor, places: torch.Tensor) -> torch.Tensor:
    """Input planes of the network, f32 [B, 6, WINDOW, WINDOW].

    Args:
        free: bool [B, WINDOW, WINDOW]: cells known to be free.
        blocked: bool [B, WINDOW, WINDOW]: cells known to be occupied.
        places: f32 [B, 3, 2]: columns and rows of goal, start and agent, in cells of the window.
    """
    centres = torch.arange(WINDOW, dtype=torch.float32, device=free.device) + 0.5
    squares = (centres - places[..., None]) ** 2  # [B, 3, 2, WINDOW]
    spots = torch.exp(-(squares[:, :, 1, :, None] + squares[:, :, 0, None, :]) / (2 * _SPOT**2))
    return torch.cat([torch.stack([free, blocked, ~(free | blocked)], 1).float(), spots], 1)


class Windows:
    """Windows of WINDOW x WINDOW cells on the maps of some agents, around each agent's position at the previous step.

    Args:
        rows: i64 [B]: the agents.
        state: the maps of all N agents.
        bodies: current poses of all agents.
        goal: f32 [N, 2]: current distance, metres, and bearing, radians, of the goals.
    """

    def __init__(self, rows: torch.Tensor, state: MapState, bodies: TrackedBodies, goal: torch.Tensor):
        origin, previous, goal = state.origin_and_resolution[rows], state.pose[rows][:, :2], goal[rows]
        angle = bodies.heading[rows] + goal[:, 1]
        offset = goal[:, :1] * torch.stack([-torch.sin(angle), -torch.cos(angle)], 1)
        goal_position = bodies.position[rows][:, ::2] + offset
        agent, there = ((place - origin[:, :2]) / origin[:, 2:] for place in (previous, goal_position))
        places = torch.stack([there, SIDE - there, agent], 1)  # maps are centred between start and goal
        low = (agent.floor().long() - WINDOW // 2).clamp(0, SIDE - WINDOW)
        self.places = places - low[:, None]
        """f32 [B, 3, 2]: columns and rows of goal, start and agent, in cells of the window."""
        along = low[:, :, None] + torch.arange(WINDOW, dtype=torch.int64, device=rows.device)
        self.cells = along[:, 1, :, None] * SIDE + along[:, 0, None, :]
        """i64 [B, WINDOW, WINDOW]: indices of the window's cells on the map."""
        self._rows = rows[:, None, None]

    def read(self, values: torch.Tensor) -> torch.Tensor:
        """Values [N, CELLS] in the windows: [B, WINDOW, WINDOW]."""
        return values[self._rows, self.cells]

    def write(self, values: torch.Tensor, out: torch.Tensor) -> None:
        """Write values [B, WINDOW, WINDOW] to [N, CELLS]."""
        out[self._rows, self.cells] = values

    def known_cells(self, state: MapState) -> tuple[torch.Tensor, torch.Tensor]:
        """Cells known to be free, and cells known to be occupied: bool [B, WINDOW, WINDOW] each."""
        layers = MapLayers(self.read(state.occupancy), self.read(state.explored))
        blocked = layers.is_occupied
        return layers.is_explored & ~blocked, blocked


class OccupancyPredictor:
    """Predicts costs of unexplored cells for N agents: at the first step, then every PREDICTION_INTERVAL steps.

    The first prediction after an initial scan is made at the end of the scan. A prediction stays while the map does not
    change: the network's output varies with the agent's position, and agents would oscillate between two paths.

    On CUDA, a first prediction can come up to about PREDICTION_INTERVAL steps late where more than 256 agents begin an
    episode at once.

    Args:
        weights: a file, or the name of bundled weights, as in `MapConfig.anticipation`.
        n: number of agents, N.
        device: device of the maps.
        turn: largest rotation of one step, radians.
    """

    def __init__(self, weights: str, n: int, device: torch.device, turn: float):
        model = folded(load_occupancy(weights))
        self._dtype = torch.bfloat16 if device.type == "cuda" else torch.float32
        placed: Any = model.to(device, self._dtype)
        self._model = placed.to(memory_format=torch.channels_last)
        self._capacity, self._costs, self._turn = _capacity(n), self._predicted_costs, turn
        if device.type == "cuda" and self._capacity > _MIN_CAPACITY:  # compiling takes 30 s, which pays for thousands
            self._costs = compiled(self._predicted_costs)

    @torch.no_grad()
    def predict(self, state: MapState, bodies: TrackedBodies, goal: torch.Tensor) -> None:
        """Update `state.predicted_cost` of the agents that are due, from maps of the previous step.

        Further calls in one step change nothing. New episodes have no prediction before their second step.
        """
        scanned = state.remaining_scan <= _ONE_TURN * self._turn
        earlier = (state.dirty > 0) & (state.dirty < bodies.steps + _CHANGED_AT)
        changed = (state.episode == bodies.episode) & earlier & scanned
        age = torch.where(changed, bodies.steps - state.predicted_at, 0)
        if age.is_cuda:
            rows = torch.argsort(age, descending=True, stable=True)[: self._capacity]
            self._predict_for(rows, age[rows] >= PREDICTION_INTERVAL, state, bodies, goal)
            return
        for rows in (age >= PREDICTION_INTERVAL).nonzero()[:, 0].split(_BATCH):
            if len(rows):
                self._predict_for(rows, age[rows] >= PREDICTION_INTERVAL, state, bodies, goal)

    def date_changes(self, state: MapState, bodies: TrackedBodies) -> None:
        """Date the changes of an update of the maps, which no further prediction in this step may see."""
        state.dirty.copy_(torch.where(state.dirty == 1, bodies.steps + _CHANGED_AT, state.dirty))

    def _predict_for(
        self, rows: torch.Tensor, due: torch.Tensor, state: MapState, bodies: TrackedBodies, goal: torch.Tensor
    ) -> None:
        """Update predictions of the agents `rows` i64 [B] where `due`, bool [B], is True."""
        windows = Windows(rows, state, bodies, goal)
        new, old = self._costs(*windows.known_cells(state), windows.places), windows.read(state.predicted_cost)
        windows.write(torch.where(due[:, None, None], new, old), state.predicted_cost)
        state.dirty[rows] = torch.where(due, 0, state.dirty[rows])
        state.predicted_at[rows] = torch.where(due, bodies.steps[rows], state.predicted_at[rows])

    def _predicted_costs(self, free: torch.Tensor, blocked: torch.Tensor, places: torch.Tensor) -> torch.Tensor:
        """Predicted costs u8 [B, WINDOW, WINDOW]; arguments as those of `network_input`."""
        inputs = network_input(free, blocked, places).to(self._dtype, memory_format=torch.channels_last)
        return odds(self._model(inputs).float()).round().to(torch.uint8)


def _capacity(n: int) -> int:
    """CUDA: predictions per step for N agents."""
    return min(n, max(_MIN_CAPACITY, round(_SPARE * n / PREDICTION_INTERVAL)))


def memory_needed(n: int, device: torch.device) -> int:
    """Estimated bytes of predictions for N agents: six times the finest level's channels and the input planes."""
    maps, size = (_capacity(n), 2) if device.type == "cuda" else (min(n, _BATCH), 4)
    return maps * WINDOW**2 * (6 * _WIDTHS[0] // 4 * size + 2 * _PLANES * 4)


def odds(logits: torch.Tensor) -> torch.Tensor:
    """Predicted costs before rounding: the odds exp(logits), in cost units, saturating at MAX_PREDICTED_COST."""
    return MAX_PREDICTED_COST * torch.sigmoid(logits - math.log(MAX_PREDICTED_COST / COST_UNITS))


def save_occupancy(path: Path, model: OccupancyNet) -> None:
    """Write weights in bfloat16, atomically. CheckpointError where that fails."""
    save_weights(path, model, {})


def load_occupancy(weights: str | Path) -> OccupancyNet:
    """The network with the weights of a file that `save_occupancy` wrote, or with bundled weights by name.

    ConfigError for a missing file, CheckpointError for a file that is no occupancy network.
    """
    path, model = find_anticipation(weights), OccupancyNet()
    found, _ = read_weights(path, None, "expected weights that `batchnav train anticipation` wrote")
    set_weights(model, found, path)
    return model
