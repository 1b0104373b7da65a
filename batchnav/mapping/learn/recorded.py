"""Recorded maps: maps that agents built, with ground truth: walkable cells and true path costs.

Maps are recorded from an environment and an agent that the caller makes. True path costs come from the navmesh.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch.nn import functional

from batchnav.errors import ArgumentError
from batchnav.mapping.costs import FREE_EDGE
from batchnav.mapping.learn.path_cost_gradient import PathEnds, path_costs
from batchnav.mapping.predictor import WINDOW, Windows, network_input
from batchnav.mapping.state import CELLS, EXPLORED, INFLATED, OCCUPIED, SIDE, MapLayers

RECORD_RATE, MIN_DISTANCE = 0.5, 2.0
"""A step is recorded with probability RECORD_RATE / d, where d is the start distance of its episode in metres, at least
MIN_DISTANCE. Every episode thus gives about the same number of maps, whatever its length, as SPL weighs a detour
relative to the path length."""
WARM_UP_STEPS = 128
"""Steps before the first recorded one, after which the agents are in different phases of their episodes."""
OCCUPANCY_BITS, EXPLORED_BIT, WALKABLE_BIT = 15, 16, 64
"""Layout of a recorded cell: the occupancy code in bits 0 to 3, the exploration code in bits 4 and 5, and in bit 6
whether the cell is walkable."""
FOOTPRINT = 1.5
"""Radius around an agent within which unexplored cells count as explored, metres. The default camera does not see
the ground there."""
WALKABLE_DISTANCE = 1e-3
"""Largest distance of a walkable cell's centre from the navmesh, metres."""
STARTS = 24
"""Number of cells per map from which paths are measured: the agent's cell and frontier cells."""
BLOCKED_COST = 245 * int(FREE_EDGE)
"""Path costs from here on belong to paths through an obstacle, which carry no information about unexplored cells."""


class RecordedMaps(NamedTuple):
    """M maps and their ground truth."""

    cells: torch.Tensor
    """u8 [M, CELLS]: occupancy, exploration and walkability, see OCCUPANCY_BITS."""
    places: torch.Tensor
    """f32 [M, 3, 2]: goal, start and agent, as `predictor.network_input` takes them."""
    low: torch.Tensor
    """i64 [M, 2]: column and row of the window's first cell on the map."""
    size: torch.Tensor
    """f32 [M]: side of a cell, metres."""
    goal: torch.Tensor
    """i32 [M]: the goal's cell, -1 where it is off the map."""
    starts: torch.Tensor
    """i32 [M, STARTS]: the agent's cell, then frontier cells; -1: no more."""
    reach: torch.Tensor
    """f32 [M, STARTS]: path cost from the agent to each start, over explored cells."""
    true_cost: torch.Tensor
    """f32 [M, STARTS]: path cost from each start to the goal on the true map."""
    scene: torch.Tensor
    """i64 [M]: index of the scene."""

    @property
    def layers(self) -> MapLayers:
        """Both layers u8 [M, CELLS], with occupancy codes clipped to 15 and exploration codes to 3."""
        return MapLayers(self.cells & OCCUPANCY_BITS, (self.cells // EXPLORED_BIT) & 3)

    @property
    def walkable(self) -> torch.Tensor:
        """bool [M, CELLS]: True where the navmesh covers a cell's centre."""
        return (self.cells & WALKABLE_BIT) > 0

    def select(self, rows: torch.Tensor) -> RecordedMaps:
        """The maps with these indices."""
        rows = rows.to(self.cells.device)
        return RecordedMaps(*(values[rows] for values in self))

    @classmethod
    def join(cls, parts: list[RecordedMaps]) -> RecordedMaps:
        """All maps of several recordings."""
        return cls(*map(torch.cat, zip(*parts, strict=True)))


IsWalkable = Callable[[torch.Tensor, torch.Tensor, float], torch.Tensor]
"""Scene indices i32 [P], points f32 [P, 3] and a distance in metres -> bool [P]: True near the navmesh."""


def record(
    env: Any,
    agent: Any,
    is_walkable: IsWalkable,
    count: int,
    generator: torch.Generator,
    progress: Callable[[int], None],
) -> list[RecordedMaps]:
    """Record `count` maps while an agent plays. No map is recorded during an initial scan.

    Args:
        env: a `NavEnv` with a mapper.
        agent: an agent for this environment.
        is_walkable: navmesh query of the environment's scenes.
        count: number of maps.
        generator: random numbers that select steps and frontier cells.
        progress: called with the number of maps so far.
    """
    parts: list[RecordedMaps] = []
    recorded, step = 0, 0
    observation, _ = env.reset()
    starts = torch.ones(env.num_envs, dtype=torch.bool, device=env.device)
    agent.reset(env.num_envs)
    while recorded < count:
        observation, _, terminated, truncated, _ = env.step(agent.act(observation, starts))
        starts, step = terminated | truncated, step + 1
        if step < WARM_UP_STEPS:
            continue
        probability = record_probability(env.task.episode_info["start_distance"].cpu())
        chosen = torch.rand(env.num_envs, generator=generator, dtype=torch.float32, device="cpu") < probability
        scanned = (env.mapper.map_state.remaining_scan == 0).cpu()
        rows = (chosen & scanned).nonzero()[:, 0][: count - recorded]
        if len(rows):
            parts.append(snapshot(env, is_walkable, rows.to(env.device), generator))
            recorded += len(rows)
            progress(recorded)
    return parts


def record_probability(distance: torch.Tensor) -> torch.Tensor:
    """Probability of recording a step, f32 [N], by the start distances of the episodes, metres."""
    return RECORD_RATE / distance.clamp(min=MIN_DISTANCE)


def snapshot(env: Any, is_walkable: IsWalkable, rows: torch.Tensor, generator: torch.Generator) -> RecordedMaps:
    """The current maps of the agents `rows` i64 [B], with their ground truth."""
    state, bodies = env.mapper.map_state, env.sim.bodies
    windows = Windows(rows, state, bodies, env.task.observations["pointgoal"])
    layers = MapLayers(state.occupancy[rows].clamp(max=OCCUPANCY_BITS), state.explored[rows])
    size, walkable = state.origin_and_resolution[rows, 2], walkable_cells(env, is_walkable, rows)
    low = torch.stack([windows.cells[:, 0, 0] % SIDE, windows.cells[:, 0, 0] // SIDE], 1)
    on_map = (windows.places + low[:, None]).floor().long()
    inside = ((on_map >= 0) & (on_map < SIDE)).all(2)
    goal, _, agent = torch.where(inside, on_map[..., 1] * SIDE + on_map[..., 0], -1).int().T.contiguous()
    entered = layers._replace(
        explored=layers.explored.masked_fill(~layers.is_explored & in_footprint(agent, size), EXPLORED)
    )
    reach = costs_over_explored(entered, agent)
    starts = frontier_cells(layers, ~entered.is_explored & ~layers.has_obstacle, reach, generator)
    starts = torch.cat([agent[:, None], starts], 1)
    true_cost = path_costs(true_layers(layers, walkable), PathEnds(goal, starts), torch.zeros_like(reach))
    reach = torch.where(starts >= 0, reach.gather(1, starts.clamp(min=0).long()), 0.0)
    cells = layers.occupancy + EXPLORED_BIT * layers.explored + WALKABLE_BIT * walkable.byte()
    return RecordedMaps(
        cells, windows.places, low, size, goal, starts, reach, true_cost, bodies.scene[rows].long()
    )  # fmt: skip


def walkable_cells(env: Any, is_walkable: IsWalkable, rows: torch.Tensor) -> torch.Tensor:
    """bool [B, CELLS]: True where the navmesh covers a cell's centre, at the height of the agents `rows` i64 [B]."""
    bodies, origin = env.sim.bodies, env.mapper.map_state.origin_and_resolution[rows][:, None]
    cells = torch.arange(CELLS, dtype=torch.int64, device=rows.device)
    x, z = (
        origin[..., k] + (cell.float() + 0.5) * origin[..., 2] for k, cell in enumerate((cells % SIDE, cells // SIDE))
    )
    y = bodies.position[rows][:, 1, None].expand_as(x)
    each = bodies.scene[rows][:, None].expand(-1, CELLS).reshape(-1).contiguous()
    return is_walkable(each, torch.stack([x, y, z], -1).view(-1, 3), WALKABLE_DISTANCE).view_as(x)


def in_footprint(agent: torch.Tensor, size: torch.Tensor) -> torch.Tensor:
    """bool [B, CELLS]: True within FOOTPRINT of the agents' cells i32 [B]. `size`: f32 [B], sides of cells, metres."""
    cells = torch.arange(CELLS, dtype=torch.int64, device=agent.device)
    across, along = cells % SIDE - agent[:, None] % SIDE, cells // SIDE - agent[:, None] // SIDE
    return (across**2 + along**2).float().sqrt() * size[:, None] <= FOOTPRINT


def dilated(marked: torch.Tensor) -> torch.Tensor:
    """bool [B, CELLS]: the marked cells and their eight neighbours."""
    return functional.max_pool2d(marked.float().view(-1, 1, SIDE, SIDE), 3, 1, 1).view_as(marked) > 0


def true_layers(layers: MapLayers, walkable: torch.Tensor) -> MapLayers:
    """Fully explored maps: unknown cells become obstacles unless they are walkable; known cells stay."""
    occupancy = torch.where(~layers.is_known & ~walkable, OCCUPIED, layers.occupancy)
    occupied = MapLayers(occupancy, layers.explored).is_occupied
    occupancy = torch.where((occupancy == 0) & dilated(occupied), INFLATED, occupancy)
    return MapLayers(occupancy, torch.full_like(layers.explored, EXPLORED))


def costs_over_explored(layers: MapLayers, agent: torch.Tensor) -> torch.Tensor:
    """f32 [B, CELLS]: path costs from the agents' cells i32 [B] to all cells, with unexplored cells as obstacles."""
    occupancy = torch.where(layers.is_explored, layers.occupancy, OCCUPIED)
    everywhere = torch.arange(CELLS, dtype=torch.int32, device=agent.device).expand(len(agent), -1).contiguous()
    no_prediction = torch.zeros(occupancy.shape, dtype=torch.float32, device=agent.device)
    explored = MapLayers(occupancy, torch.full_like(layers.explored, EXPLORED))
    return path_costs(explored, PathEnds(agent, everywhere), no_prediction)


def frontier_cells(
    layers: MapLayers, unexplored: torch.Tensor, reach: torch.Tensor, generator: torch.Generator
) -> torch.Tensor:
    """i32 [B, STARTS - 1]: random reachable explored cells next to unexplored ones; -1: no more."""
    border = layers.is_explored & ~layers.has_obstacle & dilated(unexplored) & (reach < BLOCKED_COST)
    sampled = (
        torch.rand(border.shape, generator=generator, dtype=torch.float32, device="cpu").to(border.device) * border
    )
    value, cell = sampled.topk(STARTS - 1)
    return torch.where(value > 0, cell, -1).int()


# Training batches of the occupancy predictor: recorded maps as network inputs and targets, rotated and mirrored

HELD_OUT = 10
"""One of this many scenes is held out for validation."""
MAX_VALIDATION_MAPS = 2048
"""Maximum number of validation maps."""
ROTATED = 0.5
"""Fraction of the training steps whose maps are rotated by an arbitrary angle; the others rotate by quarter turns."""


class Batch(NamedTuple):
    """B maps as network inputs and targets, all rotated alike."""

    inputs: torch.Tensor
    """f32 [B, 6, WINDOW, WINDOW]: planes of `predictor.network_input`."""
    unknown: torch.Tensor
    """bool [B, WINDOW, WINDOW]: True where the network must predict a cell: on the map and unknown."""
    blocked: torch.Tensor
    """f32 [B, WINDOW, WINDOW]: target; 1 where a cell is not walkable."""
    inside: torch.Tensor
    """bool [B, WINDOW, WINDOW]: True where a cell is within the bounding box of the walkable cells in the window."""


def split_scenes(recorded: RecordedMaps, generator: torch.Generator) -> tuple[torch.Tensor, torch.Tensor]:
    """Indices of the training maps and of the validation maps, by scene. ArgumentError where either is empty."""
    held_out = (recorded.scene % HELD_OUT == HELD_OUT - 1).cpu()
    training, validation = (~held_out).nonzero()[:, 0], held_out.nonzero()[:, 0]
    if not (len(training) and len(validation)):
        found = f"{len(training)} maps of training scenes and {len(validation)} of held-out scenes"
        raise ArgumentError(f"maps: found {found}, expected at least one of each; pass more maps")
    return training, validation[
        torch.randperm(len(validation), generator=generator, dtype=torch.int64, device="cpu")[:MAX_VALIDATION_MAPS]
    ]


def rotation(angle: float, mirrored: bool = False) -> torch.Tensor:
    """Matrix f32 [2, 2] that first mirrors columns if `mirrored`, then rotates (column, row) by an angle, radians."""
    cos, sin = math.cos(angle), math.sin(angle)
    turn = torch.tensor([[cos, -sin], [sin, cos]], dtype=torch.float32, device="cpu")
    return turn @ torch.tensor([[-1.0 if mirrored else 1.0, 0.0], [0.0, 1.0]], dtype=torch.float32, device="cpu")


def sample_rotation(generator: torch.Generator) -> torch.Tensor:
    """A random rotation f32 [2, 2]: one of the eight symmetries of the grid, or one by an arbitrary angle.

    Arbitrary angles are needed since walls in scans and on a robot's map are not parallel to the map's axes.
    """
    which, share, mirrored, quarters = torch.rand(4, generator=generator, dtype=torch.float32, device="cpu").tolist()
    angle = share * 2 * math.pi if which < ROTATED else math.pi / 2 * int(4 * quarters)
    return rotation(angle, mirrored < 0.5)


def rotate_places(matrix: torch.Tensor, places: torch.Tensor) -> torch.Tensor:
    """Places f32 [..., 2] (column, row) of the window after a rotation about its centre."""
    return (places - WINDOW / 2) @ matrix.T.to(places.device) + WINDOW / 2


def cell_centres(device: torch.device) -> torch.Tensor:
    """Centres of the window's cells, f32 [WINDOW, WINDOW, 2] (column, row)."""
    each = torch.arange(WINDOW, dtype=torch.float32, device=device) + 0.5
    return torch.stack(torch.meshgrid(each, each, indexing="xy"), 2)


def rotated_cells(recorded: RecordedMaps, matrix: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Map cells under the cells of a rotated window, i64 [B, WINDOW, WINDOW], and a mask, True on the map."""
    at = rotate_places(matrix.T, cell_centres(matrix.device)).floor().long().to(recorded.low.device)
    columns, rows = (recorded.low[:, None, None] + at).unbind(3)
    on_map = (columns >= 0) & (columns < SIDE) & (rows >= 0) & (rows < SIDE)
    return (rows * SIDE + columns) * on_map, on_map


def make_batch(recorded: RecordedMaps, matrix: torch.Tensor | None = None) -> Batch:
    """The batch of these maps, rotated by a matrix; None: unrotated."""
    matrix = torch.eye(2, dtype=torch.float32, device="cpu") if matrix is None else matrix
    cells, on_map = rotated_cells(recorded, matrix)
    occupancy, explored, walkable = (
        values.gather(1, cells.flatten(1)).view_as(cells) for values in (*recorded.layers, recorded.walkable)
    )
    layers = MapLayers(occupancy, explored)
    blocked = layers.is_occupied & on_map
    free, walkable = layers.is_explored & ~blocked & on_map, walkable & on_map
    inside = span(walkable.any(2))[:, :, None] & span(walkable.any(1))[:, None, :]
    inputs = network_input(free, blocked, rotate_places(matrix, recorded.places))
    return Batch(inputs, on_map & ~(free | blocked), (~walkable).float(), inside)


def span(marked: torch.Tensor) -> torch.Tensor:
    """bool [B, W]: True from the first marked entry to the last, and in one entry on either side."""
    first, last = (values.cummax(1).values for values in (marked.byte(), marked.byte().flip(1)))
    inside = (first * last.flip(1))[:, None].float()
    return functional.max_pool1d(inside, 3, 1, 1)[:, 0] > 0
