"""The order of one step, on one page. What a step does is the task's; when it is done, and beside what, is said here.

advance   the action moves, turns or tilts the body; walls stop it or let it slide; is the episode at its end?
score     reward and metrics
begin     where the episode has ended: the next one, which was drawn ahead
draw      where an episode began: the one after it

On CUDA a step takes as long as the longest search of an agent, however many there are, and what agents see next asks
for neither reward nor metrics. So `score` runs beside rendering, on a stream of its own, from the transition that `advance`
leaves. And `draw` runs beside what follows the step (rendering, the policy, the next walk): an episode is a pure
function of seed, agent and number, so when it is drawn changes nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from batchnav.errors import ArgumentError, EpisodeError
from batchnav.runtime.checks import check_int, check_seed
from batchnav.runtime.kernels.arrays import host_flag, view
from batchnav.runtime.threads import num_threads
from batchnav.scene.bank import SceneBank
from batchnav.sim.bodies import Bodies, Body, BodyConfig
from batchnav.sim.episodes import SamplingQueue, SamplingState
from batchnav.types import Task

MAX_ENVS = 2**24
"""Far more than pay; more would end in a message about memory that names no argument."""
MAX_NUMBER = 2**32
"""Environments of all processes together: random numbers count them in 32 bits."""
CHUNKS_PER_THREAD = 8
"""CPU: agents are dealt to threads in this many pieces each, so that long searches even out."""
BAD_ACTION, NO_EPISODE = 0, 1
"""What kernels note in `Simulator.error_flags`: 1 + an agent given an unknown action, 1 + a scene without episodes."""


class Simulator:
    """N agents in the scenes of a bank, doing a task. Nothing is allocated in a step.

    Args:
        bank: the scenes, on the device where the simulation runs.
        num_envs: N.
        body: how agents walk.
        make_task: gives the task for this simulator, whose tensors it may keep and fill (`batchnav.types.Task`).
        seed: of the sampled episodes, from 0 to 2^63 - 1.
        first_env: where several processes share a run, the number of this one's first environment among all.

    ArgumentError for an N, a seed or a first_env that is out of range.
    """

    def __init__(
        self,
        bank: SceneBank,
        num_envs: int,
        body: BodyConfig,
        make_task: Callable[[Simulator], Any],
        seed: int = 0,
        first_env: int = 0,
    ):
        num_envs, seed = check_int("num_envs", num_envs, 1, MAX_ENVS), check_seed(seed)
        check_int("first_env", first_env, 0, MAX_NUMBER - num_envs)
        self.bank, self.num_envs, self.device = bank, num_envs, bank.device
        self.bodies = Bodies.empty(num_envs, self.device)
        self.queue = SamplingQueue.empty(num_envs, self.device)
        self.sampling = SamplingState.of(seed, num_envs, bank.num_scenes, self.device, first_env)
        self.body_config, self.body = body, view(Body.of(body, self.sampling))
        self._host_error_flags, self.error_flags = host_flag(self.device, 2)
        """What kernels found wrong, as the host and as they see it."""
        self.chunks = min(num_envs, num_threads() * CHUNKS_PER_THREAD)
        """CPU: pieces of work, each with memory of its own for a search."""
        self._scoring = self._sampling = False  # beside torch's current stream
        if self.device.type == "cuda":
            self._score_stream, self._sample_stream = torch.cuda.Stream(self.device), torch.cuda.Stream(self.device)
        self.task: Task = make_task(self)

    def search_scratch(self, threads: int):
        """Memory for searches as kernels take it: on CUDA one for each of so many threads, on the CPU one a chunk."""
        return view(self.bank.search_scratch(threads if self.device.type == "cuda" else self.chunks))

    def reset(self) -> None:
        """Begin an episode for every agent. EpisodeError where a scene has none to offer (waits for the device)."""
        self.sample_all()
        self._begin(everyone=True)
        self.settle()
        if self.device.type == "cuda":
            torch.cuda.synchronize(self.device)
        self.check()

    def check(self) -> None:
        """Raise what kernels noted, without waiting for those under way: ArgumentError or EpisodeError."""
        agent, scene = int(self._host_error_flags[BAD_ACTION]) - 1, int(self._host_error_flags[NO_EPISODE]) - 1
        self._host_error_flags[:] = 0
        if agent >= 0:
            raise ArgumentError(
                f"actions: found one out of range for environment {agent}, expected {self.body_config.valid_actions}"
            )
        if scene >= 0:
            raise EpisodeError(f"scene {self.bank.names[scene]!r}: {self.task.no_episode_message}")

    def check_scenes(self) -> None:
        """EpisodeError where a scene of the bank has no episode to offer; draws one in each (waits for the device)."""
        ranges = self.sampling.scene_ranges.clone()
        self.sampling.scene_ranges[:, 1] = 1
        for first in range(0, self.bank.num_scenes, self.num_envs):
            count = min(self.num_envs, self.bank.num_scenes - first)
            self.sampling.scene_ranges[:count, 0] = torch.arange(first, first + count)
            self._sample_for(torch.arange(count))
        self.sampling.scene_ranges.copy_(ranges)
        if self.device.type == "cuda":
            torch.cuda.synchronize(self.device)
        self.check()

    def sample_all(self) -> None:
        """Draw every agent's next episode anew: what it depends on has changed (seed, episode numbers, scenes)."""
        self._sample_for(torch.arange(self.num_envs))

    def assign_scenes(self, agents: list[range], scenes: list[int]) -> None:
        """Have ranges of agents draw their episodes from one scene each, from their next episode on."""
        self.settle()
        for some, scene in zip(agents, scenes, strict=True):
            self.sampling.scene_ranges[some.start : some.stop, 0] = scene
            self.sampling.scene_ranges[some.start : some.stop, 1] = 1
        self._sample_for(torch.cat([torch.arange(some.start, some.stop) for some in agents]))

    def advance(self, actions: torch.Tensor) -> None:
        """Walk and end; the agents whose episode ended stay where it ended until `reset_done`.

        Reward and metrics are there after `finish`; `reset_done` must come before the next `advance`.

        Args:
            actions: i64 [N], 0 stop, 1 forward, 2 left, 3 right, and, where the body's control is "v1", 4 look up, 5
                look down; or, where it is "velocity", f32 [N, 2], forward and to the left, -1 to 1. Unknown ones:
                ArgumentError; on CUDA, where looking would stall the pipeline, at a later `check`.
        """
        self.body_config.check_actions(actions, self.num_envs, self.device)
        actions = actions.contiguous()  # kernels are compiled for rows without gaps
        if self.device.type == "cpu":
            self.task.advance(actions)
            self.task.score()
            return
        self.finish()
        self.task.advance(actions)
        self._score_stream.wait_stream(torch.cuda.current_stream(self.device))
        with torch.cuda.stream(self._score_stream):
            self.task.score()
        self._scoring = True

    def reset_done(self) -> None:
        """Begin the next episode of the agents whose last one has ended."""
        self._begin(everyone=False)

    def step(self, actions: torch.Tensor) -> None:
        """`advance`, `reset_done`, `finish`: reward, metrics and ends are overwritten by the next step."""
        self.advance(actions)
        self.reset_done()
        self.finish()

    def finish(self) -> None:
        """Let torch's current stream wait for reward and metrics of the last step."""
        if self._scoring:
            torch.cuda.current_stream(self.device).wait_stream(self._score_stream)
            self._scoring = False

    def settle(self) -> None:
        """Let torch's current stream wait for what runs beside it. Work that is recorded must end so."""
        self.finish()
        self._await_sampling()

    def _await_sampling(self) -> None:
        if self._sampling:
            torch.cuda.current_stream(self.device).wait_stream(self._sample_stream)
            self._sampling = False

    def _begin(self, everyone: bool) -> None:
        """Begin episodes, and draw those that follow: on CUDA beside what comes next on torch's current stream."""
        self._await_sampling()
        self.task.begin_episodes(everyone)
        if self.device.type == "cpu":
            self._sample()
            return
        self._sample_stream.wait_stream(torch.cuda.current_stream(self.device))
        with torch.cuda.stream(self._sample_stream):
            self._sample()
        self._sampling = True

    def _sample_for(self, agents: torch.Tensor) -> None:
        """Draw the next episode of these agents, i64, on torch's current stream."""
        self.settle()
        self.queue.put(agents)
        self._sample()

    def _sample(self) -> None:
        """Draw the waiting agents' next episodes, which empties the queue."""
        self.task.sample_episodes()
        self.queue.count.zero_()
