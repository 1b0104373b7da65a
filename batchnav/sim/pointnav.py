"""The batched PointGoal simulator. The order of one step, on one page (functions of `step.py`):

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

import numpy as np
import torch

from batchnav.config import PointNavConfig
from batchnav.errors import ArgumentError, EpisodeError
from batchnav.runtime.arrays import check_tensor, view
from batchnav.runtime.device import num_threads
from batchnav.runtime.launch import BoundKernel
from batchnav.scene.bank import SceneBank
from batchnav.sim.state import (
    METRICS,
    NUM_ACTIONS,
    AgentState,
    EpisodeTable,
    StepResult,
    Task,
    Upcoming,
    Walked,
)
from batchnav.sim.step import (
    SEARCHERS,
    advance_cpu,
    advance_cuda,
    begin_cuda,
    draw_cpu,
    draw_cuda,
    judge_cuda,
    reset_cpu,
)

CHUNKS_PER_THREAD = 8
"""CPU: agents are dealt to threads in this many pieces each, so that long searches even out."""
BLOCK = 128
DRAWING_THREADS = 65536
"""CUDA: threads that draw episodes at a time, about as many as an H200 holds."""


class PointNavSim:
    """N agents in the scenes of a bank. `state` and `result` are its tensors; nothing is allocated in `step`.

    What may change between two steps (`seed` i64 [1], `scene_ranges` i32 [N, 2]: the first scene that an agent draws
    from, and their number) lies in tensors too, so that a CUDA graph of a step stays true.

    Args:
        bank: the scenes, on the device where the simulation runs.
        num_envs: N.
        config: the task.
        seed: of the sampled episodes; 64 bits.
        episodes: fixed episodes to play instead: agent i plays rows i, i + N, i + 2N ... of the table. EpisodeError
            where a row names no scene of the bank, or a number in it is not finite.
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
        self.episodes.check(bank.num_scenes, self.device)
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
        self._views, self._walked = tuple(map(view, tensors)), view(self.walked)
        self._scratch, self._drawing_scratch = view(self.scratch), view(self.drawing_scratch)
        self._judging = self._drawing = False  # beside torch's current stream
        if self.device.type == "cuda":
            self._judge_stream, self._draw_stream = torch.cuda.Stream(self.device), torch.cuda.Stream(self.device)
            self._bind()

    def _bind(self) -> None:
        """Lay out the launches: actions are all that changes from step to step."""
        state, upcoming, result, *origin = self._views
        nav, walked, scratch, n = self.bank.navmesh_view, self._walked, self._scratch, self.num_envs
        actions = view(torch.zeros(n, dtype=torch.int64, device=self.device))
        self._advance = BoundKernel(advance_cuda, n, actions, nav, self.task, state, walked, scratch, result)
        self._judge = BoundKernel(judge_cuda, n, nav, self.task, walked, state, scratch, result)
        self._begin = {
            everyone: BoundKernel(begin_cuda, n, everyone, self.task, upcoming, state, result)
            for everyone in (False, True)
        }
        drawing = nav, self.task, *origin, state, self._drawing_scratch, upcoming, result
        self._draw = BoundKernel(draw_cuda, drawing_threads(n), *drawing, block=BLOCK)

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
        """Let torch's current stream wait for reward and metrics of the last step.

        And for the distances of running episodes; of one that has ended the last distance is in the metrics alone.
        """
        if self._judging:
            torch.cuda.current_stream().wait_stream(self._judge_stream)
            self._judging = False

    def advance(self, actions: torch.Tensor) -> None:
        """Walk and end; the agents whose episode ended stay where it ended until `reset_done`.

        Reward and metrics are there after `finish`; `reset_done` must come before the next `advance`.

        Args:
            actions: i64 [N], 0 stop, 1 forward, 2 left, 3 right. Out of range: ArgumentError; on CUDA, where looking
                would stall the pipeline, at the next `check`.
        """
        check_tensor("actions", actions, (self.num_envs,), torch.int64, self.device)
        if self.device.type == "cuda":
            self.finish()
            actions = actions.contiguous()
            self._advance.change(0, actions.data_ptr())
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
            advance_cpu(array, nav, self.task, state, self._walked, scratch, self.chunks, result)

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
            reset_cpu(everyone, nav, self.task, *origin, state, self._scratch, self.chunks, upcoming, result)
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
            draw_cpu(nav, self.task, *origin, state, self._drawing_scratch, self.chunks, upcoming, result)
        self.upcoming.queued.zero_()


def scratch_rows(num_envs: int, where: torch.device) -> tuple[int, int]:
    """How many searches run at a time: of steps, and of episodes beside them.

    On CUDA one per thread; on the CPU one per piece of work, and drawing comes in turn, so it has none of its own.
    """
    if where.type == "cuda":
        return num_envs, drawing_threads(num_envs)
    return min(num_envs, num_threads() * CHUNKS_PER_THREAD), 0


def drawing_threads(num_envs: int) -> int:
    """CUDA threads that draw episodes: whole blocks, since those of a last one would search too."""
    return -(-min(num_envs * SEARCHERS, DRAWING_THREADS) // BLOCK) * BLOCK


def _no_episodes(where: torch.device) -> EpisodeTable:
    f32, i32 = {"dtype": torch.float32, "device": where}, {"dtype": torch.int32, "device": where}
    return EpisodeTable(
        torch.zeros(0, **i32), torch.zeros(0, 3, **f32), torch.zeros(0, **f32), torch.zeros(0, 3, **f32)
    )
