"""PointGoal navigation: go to a point that the goal sensor tells, and stop there. Habitat's `habitat_pointnav_v1`.

In this order: settings, what is known of every agent, the functions for one agent, the task, and its kernels.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

import numpy as np
import torch
from numba import prange

from batchnav.config import in_range
from batchnav.geometry.point import keep_point, point_at
from batchnav.navmesh.geodesic import geodesic_distance
from batchnav.runtime.arrays import view
from batchnav.runtime.kernels import cpu_function, cpu_kernel, cuda, exact_cuda_kernel, lean_function
from batchnav.runtime.launch import BoundKernel
from batchnav.sim.bodies import NUM_ACTIONS, STOP, Starts, begin, end, keep_start, walk
from batchnav.sim.episodes import draw_scene
from batchnav.sim.simulator import BAD_ACTION, NO_EPISODE, Simulator
from batchnav.tasks.measures import goal_in_agent_frame, soft_spl, spl, step_reward
from batchnav.tasks.pairs import MAX_CANDIDATES, STARTS_PER_GOAL, EpisodeTable, sample_goal, try_candidate
from batchnav.types import Spec

SEARCHERS = 16
"""CUDA: threads that try candidates for one agent's episode at a time; a power of two, at most a warp."""
BLOCK = 128
DRAWING_THREADS = 65536
"""CUDA: threads that draw episodes at a time, about as many as an H200 holds."""


@dataclass(frozen=True)
class PointNavConfig:
    """The PointGoal task. Defaults: Habitat's `habitat_pointnav_v1`."""

    max_steps: int = 500
    success_distance: float = 0.2
    """Success: stop was called and the geodesic distance to the goal is below this, in metres."""
    slack_reward: float = -0.01
    success_reward: float = 2.5
    """Times SPL, at a successful stop."""
    closest_goal: float = 1.0
    furthest_goal: float = 30.0
    """Sampled episodes have a geodesic distance in [closest_goal, furthest_goal] metres."""
    min_detour_ratio: float = 1.1
    """Sampled episodes of a lower geodesic over Euclidean distance are mostly rejected (Habitat's rule)."""

    def validate(self) -> None:
        """ConfigError where a value is out of range."""
        in_range(self, "max_steps", 1, 2**31 - 1)
        in_range(self, "success_distance", 1e-3, 100.0)
        in_range(self, "slack_reward", -1e6, 1e6)
        in_range(self, "success_reward", -1e6, 1e6)
        in_range(self, "closest_goal", 0.0, 1e3)
        in_range(self, "furthest_goal", self.closest_goal + 1e-3, 1e4)
        in_range(self, "min_detour_ratio", 1.0, 10.0)


class Settings(NamedTuple):
    """The numbers of `PointNavConfig` that kernels need."""

    max_steps: np.int32
    success_distance: np.float32
    slack_reward: np.float32
    success_reward: np.float32
    closest_goal: np.float32
    furthest_goal: np.float32
    min_detour_ratio: np.float32

    @classmethod
    def of(cls, config: PointNavConfig) -> Settings:
        """The settings that a configuration describes."""
        values = {name: np.float32(getattr(config, name)) for name in cls._fields}
        return cls(**values | {"max_steps": np.int32(config.max_steps)})


class Metrics(NamedTuple):
    """f32 [N] each; a name's trailing underscore is Python's, and not part of the metric's name."""

    success: torch.Tensor
    spl: torch.Tensor
    soft_spl: torch.Tensor
    distance_to_goal: torch.Tensor
    collisions: torch.Tensor
    path_length: torch.Tensor
    steps: torch.Tensor
    return_: torch.Tensor


METRICS = tuple(name.rstrip("_") for name in Metrics._fields)
"""What is said of an episode, by name."""


class Goals(NamedTuple):
    """What every agent is to do, and how far it is."""

    goal: torch.Tensor
    """f32 [N, 3]."""
    start_distance: torch.Tensor
    """f32 [N]: geodesic distance to the goal at the start, which SPL uses."""
    distance: torch.Tensor
    """f32 [N]: geodesic distance to the goal now."""
    episode_return: torch.Tensor
    """f32 [N]."""
    table_index: torch.Tensor
    """i32 [N]: row of the episode table, -1 where the episode was sampled or the table is used up."""

    @classmethod
    def empty(cls, n: int, device: torch.device) -> Goals:
        """Of `n` agents before their first episode."""
        f32 = {"dtype": torch.float32, "device": device}
        numbers = (torch.zeros(n, **f32) for _ in range(3))
        return cls(torch.zeros(n, 3, **f32), *numbers, torch.full((n,), -1, dtype=torch.int32, device=device))


class Notes(NamedTuple):
    """What a step leaves for judging it: the running episode as it was before the next one may have begun."""

    moved: torch.Tensor
    """bool [N]: the agent is elsewhere, so that its distance has to be found anew."""
    scene: torch.Tensor
    """i32 [N]."""
    position: torch.Tensor
    """f32 [N, 3]: after the step."""
    goals: Goals
    """Before the step."""

    @classmethod
    def empty(cls, n: int, device: torch.device) -> Notes:
        """Of `n` agents that have not moved."""
        moved, scene = torch.zeros(n, dtype=torch.bool, device=device), torch.zeros(n, dtype=torch.int32, device=device)
        return cls(moved, scene, torch.zeros(n, 3, device=device), Goals.empty(n, device))


class Upcoming(NamedTuple):
    """Every agent's next episode, drawn while the running one lasts, so that no step waits for the search."""

    starts: Starts
    goal: torch.Tensor
    """f32 [N, 3]."""
    distance: torch.Tensor
    """f32 [N]: geodesic, from start to goal."""
    table_index: torch.Tensor
    """i32 [N]: row of the episode table, -1 where there is none."""


class Results(NamedTuple):
    """What one step gives back, for every agent."""

    reward: torch.Tensor
    """f32 [N]."""
    pointgoal: torch.Tensor
    """f32 [N, 2]: (rho in metres, -phi in radians): distance in the plane and angle to the left of the goal."""
    finished_index: torch.Tensor
    """i32 [N]: row of the episode table of the episode that the metrics speak of, -1 where there is none."""
    metrics: Metrics


# One agent.


@lean_function
def advance_one(i, action, nav, body, settings, goals, scratch, row, bodies_out, ends_out, notes_out, results_out):
    """Walk, end, and leave the notes for `judge_one`."""
    scene = bodies_out.scene[i]
    notes_out.moved[i] = walk(i, action, nav, body, scratch, row, bodies_out)
    notes_out.scene[i], before = scene, notes_out.goals
    keep_point(i, point_at(i, bodies_out.position), notes_out.position)
    keep_point(i, point_at(i, goals.goal), before.goal)
    before.start_distance[i], before.distance[i] = goals.start_distance[i], goals.distance[i]
    before.episode_return[i] = goals.episode_return[i]
    end(i, action == STOP, settings.max_steps, bodies_out, ends_out)
    results_out.finished_index[i] = goals.table_index[i]
    results_out.metrics.collisions[i] = np.float32(bodies_out.collisions[i])
    results_out.metrics.path_length[i] = bodies_out.path_length[i]
    results_out.metrics.steps[i] = np.float32(bodies_out.steps[i])
    observe_one(i, bodies_out, goals, results_out)


@lean_function
def judge_one(i, nav, settings, ends, notes, scratch, row, goals_out, results_out):
    """Geodesic distance, reward and metrics of a step, from its notes."""
    before, metrics_out = notes.goals, results_out.metrics
    distance = before.distance[i]
    if notes.moved[i]:
        place, goal = point_at(i, notes.position), point_at(i, before.goal)
        distance = geodesic_distance(nav, notes.scene[i], place, goal, scratch, row)
    start_distance, path_length = before.start_distance[i], metrics_out.path_length[i]
    success = ends.terminated[i] and distance < settings.success_distance
    efficiency = spl(success, start_distance, path_length)
    reward = step_reward(settings.slack_reward, before.distance[i], distance, settings.success_reward, efficiency)
    episode_return = before.episode_return[i] + reward
    if not ends.done[i]:
        goals_out.distance[i], goals_out.episode_return[i] = distance, episode_return
    results_out.reward[i] = reward
    metrics_out.success[i] = np.float32(1.0) if success else np.float32(0.0)
    metrics_out.spl[i] = efficiency
    metrics_out.soft_spl[i] = soft_spl(distance, start_distance, path_length)
    metrics_out.distance_to_goal[i] = distance
    metrics_out.return_[i] = episode_return


@lean_function
def begin_one(i, upcoming, bodies_out, goals_out):
    """Begin the episode that was drawn ahead."""
    begin(i, upcoming.starts, bodies_out)
    goals_out.table_index[i] = upcoming.table_index[i]
    keep_point(i, point_at(i, upcoming.goal), goals_out.goal)
    goals_out.start_distance[i], goals_out.distance[i] = upcoming.distance[i], upcoming.distance[i]
    goals_out.episode_return[i] = np.float32(0.0)


@lean_function
def observe_one(i, bodies, goals, results_out):
    """The goal in the agent's frame."""
    rho, minus_phi = goal_in_agent_frame(point_at(i, bodies.position), bodies.heading[i], point_at(i, goals.goal))
    results_out.pointgoal[i, 0], results_out.pointgoal[i, 1] = rho, minus_phi


@lean_function
def keep_episode(i, scene, heading, start, goal, distance, table_index, upcoming_out):
    """Write down the agent's next episode."""
    keep_start(i, scene, start, heading, upcoming_out.starts)
    keep_point(i, goal, upcoming_out.goal)
    upcoming_out.distance[i], upcoming_out.table_index[i] = distance, table_index


@lean_function
def draw_from_table(i, episode, nav, table, num_agents, scratch, row, upcoming_out):
    """The agent's next episode is the table's next for it; beyond its end it begins again, which evaluation ignores."""
    rows = table.scene.shape[0]
    index = np.int64(i) + np.int64(episode) * np.int64(num_agents)
    table_index = np.int32(index) if index < rows else np.int32(-1)
    index %= rows
    start, goal = point_at(index, table.start), point_at(index, table.goal)
    distance = geodesic_distance(nav, table.scene[index], start, goal, scratch, row)
    keep_episode(i, table.scene[index], table.heading[index], start, goal, distance, table_index, upcoming_out)


@lean_function
def limits_of(settings):
    """What `try_candidate` holds a candidate to."""
    return settings.closest_goal, settings.furthest_goal, settings.min_detour_ratio


@lean_function
def draw_one(i, nav, settings, origin, table, bodies, scratch, row, upcoming_out, noted_out):
    """Draw the agent's next episode: the table's next for this agent, or the first candidate that makes one."""
    episode = bodies.episode[i] + np.int32(1)
    if table.scene.shape[0] > 0:
        draw_from_table(i, episode, nav, table, bodies.scene.shape[0], scratch, row, upcoming_out)
        return
    seed, limits = origin.seed[0], limits_of(settings)
    scene, heading = draw_scene(i, episode, origin)
    island, goal = sample_goal(i, episode, 0, nav, scene, seed)
    for candidate in range(MAX_CANDIDATES):
        if candidate > 0 and candidate % STARTS_PER_GOAL == 0:
            island, goal = sample_goal(i, episode, candidate, nav, scene, seed)
        found, start, distance = try_candidate(
            i, episode, candidate, nav, scene, seed, island, goal, limits, scratch, row
        )
        if found:
            keep_episode(i, scene, heading, start, goal, distance, np.int32(-1), upcoming_out)
            return
    noted_out[NO_EPISODE] = scene + np.int32(1)


class PointNav:
    """The task of the N agents of a simulator: a `batchnav.types.Task`.

    Args:
        sim: whose bodies walk.
        config: the settings.
        episodes: fixed episodes to play instead of sampled ones. EpisodeError where kernels could not play them.
    """

    specs = (Spec("pointgoal", (2,), torch.float32, -np.inf, np.inf, torch.float32),)

    def __init__(self, sim: Simulator, config: PointNavConfig, episodes: EpisodeTable | None = None):
        n, device = sim.num_envs, sim.device
        self.config, self.sim = config, sim
        self.episodes = EpisodeTable.empty(device) if episodes is None else episodes
        self.episodes.check(sim.bank.num_scenes, device)
        self.no_episode = (
            f"no episode found in {MAX_CANDIDATES} tries, expected an island of radius >= 1.5 m with points "
            f"{config.closest_goal:g} to {config.furthest_goal:g} m apart"
        )
        self.state, notes = Goals.empty(n, device), Notes.empty(n, device)
        distance, table_index = torch.zeros(n, device=device), torch.full((n,), -1, dtype=torch.int32, device=device)
        upcoming = Upcoming(sim.starts, torch.zeros(n, 3, device=device), distance, table_index)
        metrics = Metrics(*torch.zeros(len(Metrics._fields), n, device=device))
        pointgoal = torch.zeros(n, 2, device=device)
        self.results = Results(torch.zeros(n, device=device), pointgoal, torch.full_like(table_index, -1), metrics)
        self.reward, self.observations = self.results.reward, {"pointgoal": pointgoal}
        self.metrics = dict(zip(METRICS, metrics, strict=True))
        self._bind(view(notes), view(upcoming))

    def _bind(self, notes: Notes, upcoming: Upcoming) -> None:
        """Lay out the launches: actions are all that changes from step to step."""
        sim, n = self.sim, self.sim.num_envs
        nav, body, settings, noted = sim.bank.navmesh_view, sim.body, Settings.of(self.config), sim.noted
        bodies, ends, queue, origin = map(view, (sim.bodies, sim.ends, sim.queue, sim.origin))
        goals, results, table = map(view, (self.state, self.results, self.episodes))
        scratch = sim.search_scratch(n)
        # On CUDA episodes are drawn beside the next step, and both search.
        drawing = sim.search_scratch(drawing_threads(n)) if sim.device.type == "cuda" else scratch
        walking, drawn = (bodies, ends, notes, results), (upcoming, noted)
        if sim.device.type == "cpu":
            chunks = sim.chunks
            self.advance = lambda actions: advance_cpu(
                actions.numpy(), nav, body, settings, goals, scratch, chunks, *walking
            )
            self.judge = partial(judge_cpu, nav, settings, ends, notes, scratch, chunks, goals, results)
            self.begin = lambda everyone: begin_cpu(everyone, ends, upcoming, bodies, goals, queue, results)
            self.draw = partial(draw_cpu, nav, settings, origin, table, bodies, queue, drawing, chunks, *drawn)
            return
        actions = view(torch.zeros(n, dtype=torch.int64, device=sim.device))
        walk_all = BoundKernel(advance_cuda, n, actions, nav, body, settings, goals, scratch, *walking, noted)

        def advance(actions: torch.Tensor) -> None:
            walk_all.change(0, actions.data_ptr())
            walk_all()

        self.advance = advance
        self.judge = BoundKernel(judge_cuda, n, nav, settings, ends, notes, scratch, goals, results)
        begins = [
            BoundKernel(begin_cuda, n, everyone, ends, upcoming, bodies, goals, queue, results)
            for everyone in (False, True)
        ]
        self.begin = lambda everyone: begins[everyone]()
        self.draw = BoundKernel(
            draw_cuda, drawing_threads(n), nav, settings, origin, table, bodies, queue, drawing, *drawn, block=BLOCK
        )


def drawing_threads(num_envs: int) -> int:
    """CUDA threads that draw episodes: whole blocks, since those of a last one would search too."""
    return -(-min(num_envs * SEARCHERS, DRAWING_THREADS) // BLOCK) * BLOCK


# All agents: on the CPU in chunks, each with a row of memory to search in; on CUDA one per thread.


@cpu_kernel
def advance_cpu(actions, nav, body, settings, goals, scratch, chunks, bodies_out, ends_out, notes_out, results_out):
    """`advance_one` of every agent."""
    n = actions.shape[0]
    for chunk in prange(chunks):
        row = np.int64(chunk)  # prange counts in unsigned integers, which would compile every callee anew
        for i in range(row * n // chunks, (row + 1) * n // chunks):
            advance_one(
                i, actions[i], nav, body, settings, goals, scratch, row, bodies_out, ends_out, notes_out, results_out
            )


@cpu_kernel
def judge_cpu(nav, settings, ends, notes, scratch, chunks, goals_out, results_out):
    """`judge_one` of every agent."""
    n = ends.done.shape[0]
    for chunk in prange(chunks):
        row = np.int64(chunk)
        for i in range(row * n // chunks, (row + 1) * n // chunks):
            judge_one(i, nav, settings, ends, notes, scratch, row, goals_out, results_out)


@cpu_function
def begin_cpu(everyone, ends, upcoming, bodies_out, goals_out, queue_out, results_out):
    """Begin the episodes that are due, and queue their agents for drawing. In one thread: there is little to do."""
    for i in range(ends.done.shape[0]):
        if everyone or ends.done[i]:
            begin_one(i, upcoming, bodies_out, goals_out)
            observe_one(i, bodies_out, goals_out, results_out)
            queue_out.agents[queue_out.count[0]] = i
            queue_out.count[0] += 1


@cpu_kernel
def draw_cpu(nav, settings, origin, table, bodies, queue, scratch, chunks, upcoming_out, noted_out):
    """`draw_one` of the queued agents."""
    n = np.int64(queue.count[0])
    for chunk in prange(chunks):
        row = np.int64(chunk)
        for k in range(row * n // chunks, (row + 1) * n // chunks):
            i = np.int64(queue.agents[k])
            draw_one(i, nav, settings, origin, table, bodies, scratch, row, upcoming_out, noted_out)


@exact_cuda_kernel
def advance_cuda(actions, nav, body, settings, goals, scratch, bodies_out, ends_out, notes_out, results_out, noted_out):
    """`advance_one` of every agent."""
    i = cuda.grid(1)
    if i < actions.shape[0]:
        action = actions[i]
        if action < 0 or action >= NUM_ACTIONS:
            noted_out[BAD_ACTION] = np.int32(i + 1)  # several may write; any of them will do
        advance_one(i, action, nav, body, settings, goals, scratch, i, bodies_out, ends_out, notes_out, results_out)


@exact_cuda_kernel
def judge_cuda(nav, settings, ends, notes, scratch, goals_out, results_out):
    """`judge_one` of every agent."""
    i = cuda.grid(1)
    if i < ends.done.shape[0]:
        judge_one(i, nav, settings, ends, notes, scratch, i, goals_out, results_out)


@exact_cuda_kernel
def begin_cuda(everyone, ends, upcoming, bodies_out, goals_out, queue_out, results_out):
    """Begin the episodes that are due, and queue their agents for drawing."""
    i = cuda.grid(1)
    if i < ends.done.shape[0] and (everyone or ends.done[i]):
        begin_one(i, upcoming, bodies_out, goals_out)
        queue_out.agents[cuda.atomic.add(queue_out.count, 0, 1)] = i
        observe_one(i, bodies_out, goals_out, results_out)


@exact_cuda_kernel
def draw_cuda(nav, settings, origin, table, bodies, queue, scratch, upcoming_out, noted_out):
    """`draw_one` of the queued agents; SEARCHERS neighbouring threads try an agent's candidates side by side."""
    thread = cuda.grid(1)
    searcher = thread % SEARCHERS
    shift = cuda.laneid // SEARCHERS * SEARCHERS
    group = ((1 << SEARCHERS) - 1) << shift
    seed, limits = origin.seed[0], limits_of(settings)
    for k in range(thread // SEARCHERS, queue.count[0], cuda.gridsize(1) // SEARCHERS):
        i = np.int64(queue.agents[k])
        episode = bodies.episode[i] + np.int32(1)
        if table.scene.shape[0] > 0:
            if searcher == 0:
                draw_from_table(i, episode, nav, table, bodies.scene.shape[0], scratch, thread, upcoming_out)
            continue
        scene, heading = draw_scene(i, episode, origin)
        hits, first = 0, 0
        while hits == 0 and first < MAX_CANDIDATES:
            candidate = first + searcher
            island, goal = sample_goal(i, episode, candidate, nav, scene, seed)
            found, start, distance = try_candidate(
                i, episode, candidate, nav, scene, seed, island, goal, limits, scratch, thread
            )
            hits = (cuda.ballot_sync(group, found and candidate < MAX_CANDIDATES) & group) >> shift
            if hits & ((2 << searcher) - 1) == 1 << searcher:  # found, and by none before
                keep_episode(i, scene, heading, start, goal, distance, np.int32(-1), upcoming_out)
            first += SEARCHERS
        if hits == 0 and searcher == 0:
            noted_out[NO_EPISODE] = scene + np.int32(1)
