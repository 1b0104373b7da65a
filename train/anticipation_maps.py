"""Maps that agents made, and the truth: what `train/anticipation.py` learns from.

The reference agent `map_planner_anticipation` walks, or `map_planner`, and now and then its map is kept, with where one
can walk by the navmesh, and how long the true ways to the goal are from where it might go on.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch.nn import functional

from batchnav.agents.registry import REFERENCE_AGENTS, make_reference_agent
from batchnav.envs.nav import NavEnv
from batchnav.mapping.integrate import BESIDE, CELLS, GROUND, OBSTACLE, SHARED, SIDE
from batchnav.mapping.learn.path_cost_gradient import Ends, Maps, way_times
from batchnav.mapping.predictor import Windows
from batchnav.mapping.shortest_path import SIDE_OF_FREE
from batchnav.runtime.console.progress import progress_bar
from batchnav.scene.bank import SceneBank
from batchnav.sim.positions import on_navmesh

_MANY_CAMERAS: dict[str, Any] = {"camera_height_range": (0.3, 1.6), "hfov_range_deg": (55.0, 120.0)}
HOW: tuple[dict[str, Any], ...] = tuple(
    {**cameras, "look_around": looks} for cameras in ({}, _MANY_CAMERAS) for looks in (False, True)
)
"""With the usual camera, and with many, of agents that look around first or do not: of each as many maps."""
KEPT, SHORTEST = 0.5, 2.0
"""An agent's step is recorded with a chance of so many metres by its episode's shortest way, which counts as so long at
least: of each episode about as many maps, however long it is, since a detour takes of SPL what it is of that way."""
BEFORE = 128
"""Steps before the first one that is recorded, so that agents are in all parts of their episodes."""
STANDS, SEEN, WALKABLE = 15, 16, 64
"""A recorded cell: what stands there in the lowest four bits, what was seen of its ground in two, the truth in one."""
AT_FEET = 1.5
"""Metres around an agent within which it may walk unseen ground: the usual camera looks over what is nearer."""
NEAR_TRUTH = 1e-3
"""Metres between a walkable cell's middle and the navmesh, at most."""
STARTS = 24
"""Cells of a map from which ways are measured: the agent's, and some where it may leave what it has seen."""
THROUGH_OBSTACLE = 245 * int(SIDE_OF_FREE)
"""A way that takes so long leads through an obstacle, and says nothing of what is not seen."""


class Recorded(NamedTuple):
    """M maps, and what is there."""

    cells: torch.Tensor
    """u8 [M, CELLS]: as STANDS, SEEN and WALKABLE say."""
    places: torch.Tensor
    """f32 [M, 3, 2]: as `sensors.anticipation.network_input` has them."""
    low: torch.Tensor
    """i64 [M, 2]: column and row of the window's first cell on the map."""
    size: torch.Tensor
    """f32 [M]: metres of a cell's sides."""
    goal: torch.Tensor
    """i32 [M]: the goal's cell, -1 where it is off the map."""
    starts: torch.Tensor
    """i32 [M, STARTS]: cells; the agent's is the first. -1: there are no more."""
    reach: torch.Tensor
    """f32 [M, STARTS]: the time from the agent to there, over what it has seen."""
    left: torch.Tensor
    """f32 [M, STARTS]: the true time from there to the goal, as `sensors.search` counts it."""
    scene: torch.Tensor
    """i64 [M]: its number."""

    @property
    def stands(self) -> torch.Tensor:
        """u8 [M, CELLS]: as in `Known`, up to fifteen."""
        return self.cells & STANDS

    @property
    def ground(self) -> torch.Tensor:
        """u8 [M, CELLS]: likewise."""
        return (self.cells // SEEN) & 3

    @property
    def walkable(self) -> torch.Tensor:
        """bool [M, CELLS]."""
        return (self.cells & WALKABLE) > 0

    def of(self, rows: torch.Tensor) -> Recorded:
        """These maps."""
        rows = rows.to(self.cells.device)
        return Recorded(*(values[rows] for values in self))


def record(
    bank: SceneBank, maps: int, num_envs: int, generator: torch.Generator, seed: int = 0, anticipation: str = ""
) -> Recorded:
    """So many maps from these scenes, of agents that guess by these weights, or take the unseen for free."""
    shares = [maps // len(HOW) + (k < maps % len(HOW)) for k in range(len(HOW))]
    with progress_bar("maps", maps) as counted:
        parts, done = [], 0
        for k, (settings, share) in enumerate(zip(HOW, shares, strict=True)):
            env = NavEnv(
                bank, num_envs, seed=seed * len(HOW) + k, sensors=REFERENCE_AGENTS["map_planner"].sensors,
                anticipation=anticipation, copy=False, **settings,
            )  # fmt: skip
            parts += walk(env, share, generator, lambda count, done=done: counted(done + count))
            done += share
    return Recorded(*map(torch.cat, zip(*parts, strict=True)))


def walk(env: NavEnv, maps: int, generator: torch.Generator, show: Callable[[int], None]) -> list[Recorded]:
    """So many maps, from the steps of one environment; of those who look around there are none before they have."""
    agent, parts, count, step = make_reference_agent("map_planner", env), [], 0, 0
    observation, _ = env.reset()
    starts = torch.ones(env.num_envs, dtype=torch.bool, device=env.device)
    agent.reset(env.num_envs)
    while count < maps:
        observation, _, terminated, truncated, _ = env.step(agent.act(observation, starts))
        starts, step = terminated | truncated, step + 1
        if step < BEFORE:
            continue
        chance = chance_to_record(env.task.episode_info["start_distance"].cpu())
        drawn = torch.rand(env.num_envs, generator=generator) < chance
        kept = (drawn & (env.mapper.known.around == 0).cpu()).nonzero()[:, 0][: maps - count]
        if len(kept):
            parts.append(keep(env, kept.to(env.device), generator))
            count += len(kept)
            show(count)
    return parts


def chance_to_record(distance: torch.Tensor) -> torch.Tensor:
    """Of a step in episodes whose shortest ways have so many metres: f32 [N]."""
    return KEPT / distance.clamp(min=SHORTEST)


def keep(env: NavEnv, rows: torch.Tensor, generator: torch.Generator) -> Recorded:
    """The maps of these agents."""
    known, bodies = env.mapper.known, env.sim.bodies
    windows = Windows(rows, known, bodies, env.task.observations["pointgoal"])
    stands, ground = known.stands[rows].clamp(max=STANDS), known.ground[rows]
    walkable = truth(env, rows)
    low = torch.stack([windows.cells[:, 0, 0] % SIDE, windows.cells[:, 0, 0] // SIDE], 1)
    on_map = (windows.places + low[:, None]).floor().long()
    inside = ((on_map >= 0) & (on_map < SIDE)).all(2)
    goal, _, agent = torch.where(inside, on_map[..., 1] * SIDE + on_map[..., 0], -1).int().T.contiguous()
    entered = ground.masked_fill((ground == 0) & at_feet(agent, known.frame[rows, 2]), GROUND)
    reach = times_over_seen(Maps(stands, entered), agent)
    starts = leaving(Maps(stands, ground), (entered == 0) & (stands < SHARED), reach, generator)
    starts = torch.cat([agent[:, None], starts], 1)
    left = way_times(true_maps(stands, ground, walkable), Ends(goal, starts), torch.zeros_like(reach))
    reach = torch.where(starts >= 0, reach.gather(1, starts.clamp(min=0).long()), 0.0)
    cells = stands + SEEN * ground + WALKABLE * walkable.byte()
    return Recorded(
        cells, windows.places, low, known.frame[rows, 2], goal, starts, reach, left, bodies.scene[rows].long()
    )


def truth(env: NavEnv, rows: torch.Tensor) -> torch.Tensor:
    """Whether one can walk on the cells of these agents' maps: bool [B, CELLS]."""
    bodies, frame = env.sim.bodies, env.mapper.known.frame[rows][:, None]
    cells = torch.arange(CELLS, device=rows.device)
    x, z = (frame[..., k] + (cell + 0.5) * frame[..., 2] for k, cell in enumerate((cells % SIDE, cells // SIDE)))
    y = bodies.position[rows][:, 1, None].expand_as(x)
    each = bodies.scene[rows][:, None].expand(-1, CELLS).reshape(-1).contiguous()
    return on_navmesh(env.bank, each, torch.stack([x, y, z], -1).view(-1, 3), NEAR_TRUTH).view_as(x)


def at_feet(agent: torch.Tensor, size: torch.Tensor) -> torch.Tensor:
    """The cells around these agents' cells i32 [B], on maps with cells of these sides f32 [B]: bool [B, CELLS]."""
    cells = torch.arange(CELLS, device=agent.device)
    across, along = cells % SIDE - agent[:, None] % SIDE, cells // SIDE - agent[:, None] // SIDE
    return (across**2 + along**2).sqrt() * size[:, None] <= AT_FEET


def around(marked: torch.Tensor) -> torch.Tensor:
    """Bool [B, CELLS]: these cells, and those around them."""
    return functional.max_pool2d(marked.float().view(-1, 1, SIDE, SIDE), 3, 1, 1).view_as(marked) > 0


def true_maps(stands: torch.Tensor, ground: torch.Tensor, walkable: torch.Tensor) -> Maps:
    """Maps on which nothing is unseen any more; what was seen stays as it was seen."""
    unseen = (ground == 0) & (stands < OBSTACLE)
    stands = torch.where(unseen & ~walkable, OBSTACLE, stands)
    stands = torch.where((stands == 0) & around(stands >= OBSTACLE), BESIDE, stands)
    return Maps(stands, torch.full_like(ground, GROUND))


def times_over_seen(maps: Maps, agent: torch.Tensor) -> torch.Tensor:
    """The times from the agents' cells i32 [B] to all cells, over ground that was seen: f32 [B, CELLS]."""
    stands = torch.where(maps.ground == 0, OBSTACLE, maps.stands)
    everywhere = torch.arange(CELLS, dtype=torch.int32, device=agent.device).expand(len(agent), -1).contiguous()
    nothing = torch.zeros(stands.shape, device=agent.device)
    return way_times(Maps(stands, torch.full_like(maps.ground, GROUND)), Ends(agent, everywhere), nothing)


def leaving(maps: Maps, unseen: torch.Tensor, reach: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
    """Some of the seen cells that border on unseen ones, which the agents can reach: i32 [B, STARTS - 1], -1: none."""
    border = (maps.ground > 0) & (maps.stands < SHARED) & around(unseen) & (reach < THROUGH_OBSTACLE)
    drawn = torch.rand(border.shape, generator=generator).to(border.device) * border
    value, cell = drawn.topk(STARTS - 1)
    return torch.where(value > 0, cell, -1).int()
