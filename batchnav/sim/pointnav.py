"""The batched PointGoal simulator. The order of one step, on one page:

walk      the action moves or turns the agent; walls stop it or let it slide           (`_walk`)
end       stop was called, or the steps are used up                                    (`_advance`)
judge     geodesic distance to the goal, reward and metrics                            (`_judge`)
reset     where the episode ended: the next one, which was drawn ahead                 (`_begin`)
observe   the goal in the agent's frame, the camera's place                            (`_observe`)
draw      where an episode began: the one after it, sampled or from the table          (`_draw`)

On CUDA a step takes as long as the longest search of an agent, however many there are, and what agents see next asks
for neither reward nor metrics. So `judge` runs beside rendering, on a stream of its own, from notes that `advance`
leaves (`Walked`). And `draw` runs beside what follows the step (rendering, the policy, the next walk): an episode is a
pure function of seed, agent and number, so when it is drawn changes nothing.
"""

from __future__ import annotations

import math

import numpy as np
import torch
from numba import prange

from batchnav import device
from batchnav.config import PointNavConfig
from batchnav.device import cpu_kernel, cuda, exact_cuda_kernel, lean_function
from batchnav.errors import ArgumentError, EpisodeError
from batchnav.navmesh.geodesic import geodesic_distance
from batchnav.navmesh.walk import try_step
from batchnav.scene.bank import SceneBank
from batchnav.sim.episodes import MAX_CANDIDATES, STARTS_PER_GOAL, draw_scene, sample_goal, try_candidate
from batchnav.sim.measures import collided, goal_in_agent_frame, soft_spl, spl, step_reward
from batchnav.sim.state import (
    FORWARD,
    LEFT,
    METRICS,
    NUM_ACTIONS,
    RIGHT,
    STOP,
    AgentState,
    EpisodeTable,
    StepResult,
    Task,
    Upcoming,
    Walked,
)

CHUNKS_PER_THREAD = 8
"""CPU: agents are dealt to threads in this many pieces each, so that long searches even out."""
SEARCHERS = 16
"""CUDA: threads that try candidates for one agent's episode at a time; a power of two, at most a warp."""
BLOCK = 128
DRAWING_THREADS = 65536
"""CUDA: threads that draw episodes at a time, about as many as an H200 holds."""


@lean_function
def _walk(i, action, nav, task, state, scratch, row):
    """Apply an action: (squared length moved, squared length wanted). Turning moves nothing."""
    zero = np.float32(0.0)
    if action == LEFT or action == RIGHT:
        state.turns[i] += np.int32(1) if action == LEFT else np.int32(-1)
        state.heading[i] = state.start_heading[i] + np.float32(state.turns[i]) * task.turn
        return zero, zero
    if action != FORWARD:
        return zero, zero
    x, y, z = state.position[i, 0], state.position[i, 1], state.position[i, 2]
    heading = state.heading[i]
    end_x = x - task.forward_step * np.float32(math.sin(heading))
    end_z = z - task.forward_step * np.float32(math.cos(heading))
    nx, ny, nz = try_step(nav, state.scene[i], x, y, z, end_x, y, end_z, task.sliding, scratch, row)
    state.position[i, 0], state.position[i, 1], state.position[i, 2] = nx, ny, nz
    moved = (nx - x) * (nx - x) + (ny - y) * (ny - y) + (nz - z) * (nz - z)
    wanted = (end_x - x) * (end_x - x) + (end_z - z) * (end_z - z)
    return moved, wanted


@lean_function
def _advance(i, action, nav, task, state, walked, result, scratch, row):
    """Walk, count, end, and leave the notes for `_judge`."""
    walked.distance[i], walked.episode_return[i] = state.distance[i], state.episode_return[i]
    moved, wanted = _walk(i, action, nav, task, state, scratch, row)
    if moved > np.float32(0.0):
        state.path_length[i] += np.float32(math.sqrt(moved))
    if collided(moved, wanted):
        state.collisions[i] += np.int32(1)
    state.steps[i] += np.int32(1)
    walked.moved[i] = moved > np.float32(0.0)
    walked.scene[i], walked.start_distance[i] = state.scene[i], state.start_distance[i]
    for axis in range(3):
        walked.position[i, axis], walked.goal[i, axis] = state.position[i, axis], state.goal[i, axis]
    result.terminated[i] = action == STOP
    result.truncated[i] = action != STOP and state.steps[i] >= task.max_steps
    result.done[i] = result.terminated[i] or result.truncated[i]
    result.finished_index[i] = state.table_index[i]
    result.metrics[4, i] = np.float32(state.collisions[i])
    result.metrics[5, i] = state.path_length[i]
    result.metrics[6, i] = np.float32(state.steps[i])


@lean_function
def _judge(i, nav, task, walked, state, result, scratch, row):
    """Geodesic distance, reward and metrics of a step, from its notes: the next episode may have begun meanwhile."""
    before = walked.distance[i]
    distance = before
    if walked.moved[i]:
        distance = geodesic_distance(
            nav, walked.scene[i],
            walked.position[i, 0], walked.position[i, 1], walked.position[i, 2],
            walked.goal[i, 0], walked.goal[i, 1], walked.goal[i, 2], scratch, row,
        )  # fmt: skip
    start_distance, path_length = walked.start_distance[i], result.metrics[5, i]
    success = result.terminated[i] and distance < task.success_distance
    efficiency = spl(success, start_distance, path_length)
    reward = step_reward(task.slack_reward, before, distance, task.success_reward, efficiency)
    episode_return = walked.episode_return[i] + reward
    if not result.done[i]:
        state.distance[i], state.episode_return[i] = distance, episode_return
    result.reward[i] = reward
    result.metrics[0, i] = np.float32(1.0) if success else np.float32(0.0)
    result.metrics[1, i] = efficiency
    result.metrics[2, i] = soft_spl(distance, start_distance, path_length)
    result.metrics[3, i] = distance
    result.metrics[7, i] = episode_return


@lean_function
def _draw_from_table(i, episode, nav, table, state, upcoming, scratch, row):
    """The agent's next episode is the table's next for it."""
    # Agent i plays rows i, i + N, i + 2N ...; beyond the table's end it begins again, which evaluation ignores.
    rows, n = table.scene.shape[0], state.scene.shape[0]
    index = np.int64(i) + np.int64(episode) * np.int64(n)
    upcoming.table_index[i] = np.int32(index) if index < rows else np.int32(-1)
    index %= rows
    scene = table.scene[index]
    sx, sy, sz = table.start[index, 0], table.start[index, 1], table.start[index, 2]
    gx, gy, gz = table.goal[index, 0], table.goal[index, 1], table.goal[index, 2]
    distance = geodesic_distance(nav, scene, sx, sy, sz, gx, gy, gz, scratch, row)
    _keep(i, scene, table.heading[index], sx, sy, sz, gx, gy, gz, distance, upcoming)


@lean_function
def _keep(i, scene, heading, sx, sy, sz, gx, gy, gz, distance, upcoming):
    upcoming.scene[i], upcoming.heading[i], upcoming.distance[i] = scene, heading, distance
    upcoming.start[i, 0], upcoming.start[i, 1], upcoming.start[i, 2] = sx, sy, sz
    upcoming.goal[i, 0], upcoming.goal[i, 1], upcoming.goal[i, 2] = gx, gy, gz


@lean_function
def _draw(i, nav, task, seed, scene_ranges, table, state, upcoming, result, scratch, row):
    """Draw the agent's next episode: the table's next for this agent, or the first candidate that makes one."""
    episode = state.episode[i] + np.int32(1)
    if table.scene.shape[0] > 0:
        _draw_from_table(i, episode, nav, table, state, upcoming, scratch, row)
        return
    scene, heading = draw_scene(seed[0], i, episode, scene_ranges[i, 0], scene_ranges[i, 1])
    island, gx, gy, gz = sample_goal(nav, scene, seed[0], i, episode, 0)
    for candidate in range(MAX_CANDIDATES):
        if candidate > 0 and candidate % STARTS_PER_GOAL == 0:
            island, gx, gy, gz = sample_goal(nav, scene, seed[0], i, episode, candidate)
        found, x, y, z, distance = try_candidate(
            nav, task, scene, seed[0], i, episode, candidate, island, gx, gy, gz, scratch, row
        )
        if found:
            _keep(i, scene, heading, x, y, z, gx, gy, gz, distance, upcoming)
            return
    result.flags[1] = scene + np.int32(1)


@lean_function
def _begin(i, upcoming, state):
    """Begin the episode that was drawn ahead."""
    state.episode[i] += np.int32(1)
    state.table_index[i] = upcoming.table_index[i]
    state.scene[i] = upcoming.scene[i]
    for axis in range(3):
        state.position[i, axis] = upcoming.start[i, axis]
        state.goal[i, axis] = upcoming.goal[i, axis]
    heading, distance = upcoming.heading[i], upcoming.distance[i]
    state.start_heading[i], state.heading[i], state.turns[i] = heading, heading, np.int32(0)
    state.start_distance[i], state.distance[i] = distance, distance
    state.path_length[i], state.episode_return[i] = np.float32(0.0), np.float32(0.0)
    state.collisions[i], state.steps[i] = np.int32(0), np.int32(0)


@lean_function
def _observe(i, task, state, result):
    """The goal in the agent's frame and the camera's place."""
    x, y, z = state.position[i, 0], state.position[i, 1], state.position[i, 2]
    rho, minus_phi = goal_in_agent_frame(x, z, state.heading[i], state.goal[i, 0], state.goal[i, 2])
    result.pointgoal[i, 0], result.pointgoal[i, 1] = rho, minus_phi
    result.camera[i, 0], result.camera[i, 1], result.camera[i, 2] = x, y + task.camera_height, z


@cpu_kernel
def _advance_cpu(actions, nav, task, state, walked, scratch, chunks, result):
    n = actions.shape[0]
    for chunk in prange(chunks):
        row = np.int64(chunk)  # prange counts in unsigned integers, which would compile every callee anew
        for i in range(row * n // chunks, (row + 1) * n // chunks):
            _advance(i, actions[i], nav, task, state, walked, result, scratch, row)
            _judge(i, nav, task, walked, state, result, scratch, row)
            _observe(i, task, state, result)


@cpu_kernel
def _reset_cpu(everyone, nav, task, seed, scene_ranges, table, state, scratch, chunks, upcoming, result):
    n = result.done.shape[0]
    for chunk in prange(chunks):
        row = np.int64(chunk)  # prange counts in unsigned integers, which would compile every callee anew
        for i in range(row * n // chunks, (row + 1) * n // chunks):
            if everyone or result.done[i]:
                _begin(i, upcoming, state)
                _observe(i, task, state, result)
                _draw(i, nav, task, seed, scene_ranges, table, state, upcoming, result, scratch, row)


@cpu_kernel
def _draw_cpu(nav, task, seed, scene_ranges, table, state, scratch, chunks, upcoming, result):
    n = np.int64(upcoming.queued[0])
    for chunk in prange(chunks):
        row = np.int64(chunk)  # prange counts in unsigned integers, which would compile every callee anew
        for k in range(row * n // chunks, (row + 1) * n // chunks):
            i = np.int64(upcoming.queue[k])
            _draw(i, nav, task, seed, scene_ranges, table, state, upcoming, result, scratch, row)


@exact_cuda_kernel
def _advance_cuda(actions, nav, task, state, walked, scratch, result):
    i = cuda.grid(1)
    if i < actions.shape[0]:
        action = actions[i]
        if action < 0 or action >= NUM_ACTIONS:
            cuda.atomic.add(result.flags, 0, 1)
        _advance(i, action, nav, task, state, walked, result, scratch, i)
        _observe(i, task, state, result)


@exact_cuda_kernel
def _judge_cuda(nav, task, walked, state, scratch, result):
    i = cuda.grid(1)
    if i < result.done.shape[0]:
        _judge(i, nav, task, walked, state, result, scratch, i)


@exact_cuda_kernel
def _begin_cuda(everyone, task, upcoming, state, result):
    i = cuda.grid(1)
    if i < result.done.shape[0] and (everyone or result.done[i]):
        _begin(i, upcoming, state)
        upcoming.queue[cuda.atomic.add(upcoming.queued, 0, 1)] = i
        _observe(i, task, state, result)


@exact_cuda_kernel
def _draw_cuda(nav, task, seed, scene_ranges, table, state, scratch, upcoming, result):
    """`_draw` of the queued agents; SEARCHERS neighbouring threads try an agent's candidates side by side.

    Most candidates are refused, and a thread that tried them in turn would keep its whole warp waiting.
    """
    thread = cuda.grid(1)
    searcher = thread % SEARCHERS
    shift = cuda.laneid // SEARCHERS * SEARCHERS
    group = ((1 << SEARCHERS) - 1) << shift
    for k in range(thread // SEARCHERS, upcoming.queued[0], cuda.gridsize(1) // SEARCHERS):
        i = np.int64(upcoming.queue[k])
        episode = state.episode[i] + np.int32(1)
        if table.scene.shape[0] > 0:
            if searcher == 0:
                _draw_from_table(i, episode, nav, table, state, upcoming, scratch, thread)
            continue
        scene, heading = draw_scene(seed[0], i, episode, scene_ranges[i, 0], scene_ranges[i, 1])
        hits, first = 0, 0
        while hits == 0 and first < MAX_CANDIDATES:
            candidate = first + searcher
            island, gx, gy, gz = sample_goal(nav, scene, seed[0], i, episode, candidate)
            found, x, y, z, distance = try_candidate(
                nav, task, scene, seed[0], i, episode, candidate, island, gx, gy, gz, scratch, thread
            )
            hits = (cuda.ballot_sync(group, found and candidate < MAX_CANDIDATES) & group) >> shift
            if hits & ((2 << searcher) - 1) == 1 << searcher:  # found, and by none before
                _keep(i, scene, heading, x, y, z, gx, gy, gz, distance, upcoming)
            first += SEARCHERS
        if hits == 0 and searcher == 0:
            result.flags[1] = scene + np.int32(1)


class PointNavSim:
    """N agents in the scenes of a bank. `state` and `result` are its tensors; nothing is allocated in `step`.

    What may change between two steps (`seed` i64 [1], `scene_ranges` i32 [N, 2]: the first scene that an agent draws
    from, and their number) lies in tensors too, so that a CUDA graph of a step stays true.

    Args:
        bank: the scenes, on the device where the simulation runs.
        num_envs: N.
        config: the task.
        seed: of the sampled episodes; 64 bits.
        episodes: fixed episodes to play instead: agent i plays rows i, i + N, i + 2N ... of the table.
    """

    def __init__(
        self,
        bank: SceneBank,
        num_envs: int,
        config: PointNavConfig,
        seed: int = 0,
        episodes: EpisodeTable | None = None,
    ):
        self.bank, self.config, self.num_envs, self.device = bank, config, num_envs, bank.device
        self.task = Task.of(config)
        self.seed = torch.full((1,), seed, dtype=torch.int64, device=self.device)
        self.state = AgentState.empty(num_envs, self.device)
        self.walked = Walked.empty(num_envs, self.device)
        self.upcoming = Upcoming.empty(num_envs, self.device)
        self.result = StepResult.empty(num_envs, self.device)
        self.episodes = episodes if episodes is not None else _no_episodes(self.device)
        self.chunks, drawing = scratch_rows(num_envs, self.device)
        self.scratch = bank.search_scratch(self.chunks)
        # Drawn beside the next step on CUDA: both search at a time.
        self.drawing_scratch = bank.search_scratch(drawing) if drawing else self.scratch
        # Agent i draws from its own share of the scenes: one scene for a block of agents where there are fewer scenes
        # than agents (its memory is read together), else a range of scenes for each agent.
        shares = np.arange(num_envs + 1, dtype=np.int64) * bank.num_scenes // num_envs
        ranges = np.stack([shares[:-1], np.maximum(1, np.diff(shares))], axis=1).astype(np.int32)
        self.scene_ranges = torch.from_numpy(ranges).to(self.device)
        tensors = (self.state, self.upcoming, self.result, self.seed, self.scene_ranges, self.episodes)
        self._views, self._walked = tuple(map(device.view, tensors)), device.view(self.walked)
        self._scratch, self._drawing_scratch = device.view(self.scratch), device.view(self.drawing_scratch)
        self._judging = self._drawing = False  # beside torch's current stream
        if self.device.type == "cuda":
            self._judge_stream, self._draw_stream = torch.cuda.Stream(self.device), torch.cuda.Stream(self.device)
            self._bind()

    def _bind(self) -> None:
        """Lay out the launches: actions are all that changes from step to step."""
        state, upcoming, result, *origin = self._views
        nav, walked, scratch, n = self.bank.navmesh_view, self._walked, self._scratch, self.num_envs
        actions = device.view(torch.zeros(n, dtype=torch.int64, device=self.device))
        self._advance = device.BoundKernel(_advance_cuda, n, actions, nav, self.task, state, walked, scratch, result)
        self._judge = device.BoundKernel(_judge_cuda, n, nav, self.task, walked, state, scratch, result)
        self._begin = {
            everyone: device.BoundKernel(_begin_cuda, n, everyone, self.task, upcoming, state, result)
            for everyone in (False, True)
        }
        drawing = nav, self.task, *origin, state, self._drawing_scratch, upcoming, result
        self._draw = device.BoundKernel(_draw_cuda, drawing_threads(n), *drawing, block=BLOCK)

    def reset(self) -> None:
        """Begin an episode for every agent. EpisodeError where a scene has none to offer (waits for the device)."""
        self.draw_all()
        self._run_reset(everyone=True)
        self.check_episodes()

    def check_episodes(self) -> None:
        """EpisodeError where a scene had no episode to offer (waits for the device)."""
        self.settle()
        failed = int(self.result.flags[1])
        if failed:
            raise EpisodeError(
                f"scene {self.bank.names[failed - 1]!r}: no episode found in 1000 tries, expected an island of radius "
                f">= 1.5 m with points {self.config.closest_goal:g} to {self.config.furthest_goal:g} m apart"
            )

    def draw_all(self) -> None:
        """Draw every agent's next episode anew: what it depends on has changed (seed, episode numbers, scenes)."""
        self._draw_of(torch.arange(self.num_envs))

    def send(self, agents: list[range], scenes: list[int]) -> None:
        """Have ranges of agents draw their episodes from one scene each, from their next episode on."""
        self.settle()
        for some, scene in zip(agents, scenes, strict=True):
            self.scene_ranges[some.start : some.stop, 0] = scene
            self.scene_ranges[some.start : some.stop, 1] = 1
        self._draw_of(torch.cat([torch.arange(some.start, some.stop) for some in agents]))

    def _draw_of(self, agents: torch.Tensor) -> None:
        """Draw the next episode of these agents, i64, on torch's current stream."""
        self.settle()
        self.upcoming.queue[: len(agents)] = agents.to(self.device, torch.int32)
        self.upcoming.queued.fill_(len(agents))
        self._run_draw()

    def settle(self) -> None:
        """Let torch's current stream wait for what runs beside it. Work that is recorded must end so."""
        self.finish()
        self._await_drawing()

    def _await_drawing(self) -> None:
        if self._drawing:
            torch.cuda.current_stream().wait_stream(self._draw_stream)
            self._drawing = False

    def finish(self) -> None:
        """Let torch's current stream wait for reward and metrics of the last step, and the agents' distances."""
        if self._judging:
            torch.cuda.current_stream().wait_stream(self._judge_stream)
            self._judging = False

    def advance(self, actions: torch.Tensor) -> None:
        """Walk and end; the agents whose episode ended stay where it ended until `reset_done`.

        Reward and metrics are there after `finish`.

        Args:
            actions: i64 [N], 0 stop, 1 forward, 2 left, 3 right. Out of range: ArgumentError; on CUDA, where looking
                would stall the pipeline, at the next `check`.
        """
        device.check_tensor("actions", actions, (self.num_envs,), torch.int64, self.device)
        if self.device.type == "cuda":
            self.finish()
            actions = actions.contiguous()
            self._advance.repoint(0, actions.data_ptr())
            self._advance()
            self._judge_stream.wait_stream(torch.cuda.current_stream())
            with torch.cuda.stream(self._judge_stream):
                self._judge()
            self._judging = True
        else:
            state, _, result, *_ = self._views
            nav, scratch, array = self.bank.navmesh_view, self._scratch, actions.numpy()
            if array.min() < 0 or array.max() >= NUM_ACTIONS:
                bad = array[(array < 0) | (array >= NUM_ACTIONS)][0]
                raise ArgumentError(f"actions: found {bad}, expected 0 (stop), 1 (forward), 2 (left) or 3 (right)")
            _advance_cpu(array, nav, self.task, state, self._walked, scratch, self.chunks, result)

    def reset_done(self) -> None:
        """Begin the next episode of the agents whose last one has ended."""
        self._run_reset(everyone=False)

    def step(self, actions: torch.Tensor) -> StepResult:
        """`advance`, `reset_done`, `finish`. The result's tensors are overwritten by the next step."""
        self.advance(actions)
        self.reset_done()
        self.finish()
        return self.result

    def check(self) -> None:
        """ArgumentError where an action out of range was seen on the device (waits for it)."""
        bad = int(self.result.flags[0])
        if bad:
            self.result.flags[0] = 0
            raise ArgumentError(
                f"actions: found {bad} out of range, expected 0 (stop), 1 (forward), 2 (left), 3 (right)"
            )

    def metrics(self) -> dict[str, torch.Tensor]:
        """f32 [N] by name (METRICS): of the episodes just ended where `result.done`, else of those running."""
        return dict(zip(METRICS, self.result.metrics, strict=True))

    def _run_reset(self, everyone: bool) -> None:
        """Begin episodes, and draw those that follow: on CUDA beside what comes next on torch's current stream."""
        if self.device.type == "cpu":
            state, upcoming, result, *origin = self._views
            nav = self.bank.navmesh_view
            _reset_cpu(everyone, nav, self.task, *origin, state, self._scratch, self.chunks, upcoming, result)
            return
        self._await_drawing()
        self._begin[everyone]()
        self._draw_stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(self._draw_stream):
            self._run_draw()
        self._drawing = True

    def _run_draw(self) -> None:
        """Draw the queued agents' next episodes, which empties the queue."""
        if self.device.type == "cuda":
            self._draw()
        else:
            state, upcoming, result, *origin = self._views
            nav = self.bank.navmesh_view
            _draw_cpu(nav, self.task, *origin, state, self._drawing_scratch, self.chunks, upcoming, result)
        self.upcoming.queued.zero_()


def scratch_rows(num_envs: int, where: torch.device) -> tuple[int, int]:
    """How many searches run at a time: of steps, and of episodes beside them.

    On CUDA one per thread; on the CPU one per piece of work, and drawing comes in turn, so it has none of its own.
    """
    if where.type == "cuda":
        return num_envs, drawing_threads(num_envs)
    return min(num_envs, device.num_threads() * CHUNKS_PER_THREAD), 0


def drawing_threads(num_envs: int) -> int:
    """CUDA threads that draw episodes: whole blocks, since those of a last one would search too."""
    return -(-min(num_envs * SEARCHERS, DRAWING_THREADS) // BLOCK) * BLOCK


def _no_episodes(where: torch.device) -> EpisodeTable:
    f32, i32 = {"dtype": torch.float32, "device": where}, {"dtype": torch.int32, "device": where}
    return EpisodeTable(
        torch.zeros(0, **i32), torch.zeros(0, 3, **f32), torch.zeros(0, **f32), torch.zeros(0, 3, **f32)
    )
