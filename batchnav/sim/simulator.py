"""`Simulator`: the order of the parts of a step, and the CUDA streams that they run on. The task defines the parts.

(world)           people walk, where a world has them: `world/world.py`
advance           the action moves, turns or tilts the body; walls stop it or let it slide; episodes end
score             reward and metrics
begin_episodes    agents whose episode ended begin the next one, which was sampled ahead
(world)           worlds whose first agent began an episode get new people
sample_episodes   agents that began an episode: sample the one after it

On CUDA, scoring takes as long as the longest path search of any agent, and rendering needs neither reward nor metrics.
`score` therefore runs on a second stream, concurrently with rendering; it reads the transition that `advance` recorded.
`sample_episodes` runs on a third stream, concurrently with rendering, the policy and the next `advance`. An episode is
a pure function of seed, agent and episode number, so the time of sampling does not change it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

from batchnav.errors import ArgumentError, BatchnavError, NoEpisodesError, few
from batchnav.geometry.pose import point_at, store_point
from batchnav.navmesh.locate import nearest_polygon
from batchnav.runtime.checks import check_int, check_seed
from batchnav.runtime.device import wait_for
from batchnav.runtime.kernels.arrays import host_flag, view
from batchnav.runtime.kernels.launch import kernel
from batchnav.runtime.parallel import num_threads
from batchnav.scene.bank import SceneBank
from batchnav.sim.bodies import Bodies, Body, BodyConfig
from batchnav.sim.episodes import SamplingQueue, SamplingState
from batchnav.types import Task

MAX_ENVS = 2**24
"""Maximum of `num_envs`: a larger number gets an error that names the argument, instead of an out-of-memory error."""
MAX_NUMBER = 2**32
"""Maximum number of environments in all processes together: random counters have 32 bits for it."""
CHUNKS_PER_THREAD = 8
"""CPU: chunks of agents per thread. Several chunks balance the different durations of searches."""
BAD_ACTION, NO_EPISODE = 0, 1
"""Indices of `Simulator.error_flags`: 1 + number of an agent with an invalid action, 1 + row of a scene without
episodes; 0: no error."""


class Simulator:
    """N agents that play a task in the scenes of a bank. A step allocates nothing.

    Args:
        bank: the scenes, on the device of the simulation.
        num_envs: N.
        body: size and actions of the agents.
        make_task: makes the task (`batchnav.types.Task`) of this simulator; it may keep the simulator's tensors.
        seed: seed of the sampled episodes, from 0 to 2^63 - 1.
        first_env: number of this process's first environment among the environments of all processes.
        make_world: makes who is in the worlds besides their robots (`batchnav.world.world.World`), before the task;
            None: each robot is alone.

    ArgumentError where num_envs, seed or first_env is out of range.
    """

    def __init__(
        self,
        bank: SceneBank,
        num_envs: int,
        body: BodyConfig,
        make_task: Callable[[Simulator], Any],
        seed: int = 0,
        first_env: int = 0,
        make_world: Callable[[Simulator], Any] | None = None,
    ):
        num_envs, seed = check_int("num_envs", num_envs, 1, MAX_ENVS), check_seed(seed)
        check_int("first_env", first_env, 0, MAX_NUMBER - num_envs)
        self.bank, self.num_envs, self.device = bank, num_envs, bank.device
        self.bodies = Bodies.empty(num_envs, self.device)
        self.queue = SamplingQueue.empty(num_envs, self.device)
        self.sampling = SamplingState.of(seed, num_envs, bank.num_scenes, self.device, first_env)
        self.body_config, self.body = body, view(Body.of(body, self.sampling))
        self.world: Any = None if make_world is None else make_world(self)
        if self.world is not None:
            self.body = self.world.body_among_others(self.body)
        self._host_error_flags, self.error_flags = host_flag(self.device, 2)
        """i32 [2], see BAD_ACTION: the host's view and the kernels' view of the same memory."""
        self.chunks = min(num_envs, num_threads() * CHUNKS_PER_THREAD)
        """CPU: number of chunks that agents are divided into, each with its own scratch memory for searches."""
        self._scoring = self._sampling = False  # True while the other streams have work in progress
        if self.device.type == "cuda":
            self._score_stream, self._sample_stream = torch.cuda.Stream(self.device), torch.cuda.Stream(self.device)
        self.task: Task = make_task(self)

    def search_scratch(self, threads: int):
        """Scratch memory for path searches as a kernel argument: a row per thread on CUDA, per chunk on the CPU."""
        return view(self.bank.search_scratch(threads if self.device.type == "cuda" else self.chunks))

    def reset(self) -> None:
        """Begin an episode for every agent. NoEpisodesError for a scene without one. Waits for the device."""
        self.sample_all()
        self._begin(all_agents=True)
        self.settle()
        if self.device.type == "cuda":
            torch.cuda.synchronize(self.device)
        self.check()

    def check(self) -> None:
        """Raise errors that kernels flagged so far: ArgumentError or NoEpisodesError. Does not wait for the device."""
        agent, scene = int(self._host_error_flags[BAD_ACTION]) - 1, int(self._host_error_flags[NO_EPISODE]) - 1
        self._host_error_flags[:] = 0
        if agent >= 0:
            raise ArgumentError(
                f"actions: found an invalid one in environment {agent}, expected {self.body_config.valid_actions}"
            )
        if scene >= 0:
            raise self.no_episodes([self.bank.names[scene]])

    def no_episodes(self, names: Sequence[str]) -> NoEpisodesError:
        """The error for scenes without episodes, by name."""
        scenes = f"scene{'s' * (len(names) > 1)} {few([repr(name) for name in names], 20)}"
        return NoEpisodesError(f"{scenes}: {self.task.no_episode_message}", names)

    def check_scenes(self) -> None:
        """Sample an episode in each scene. NoEpisodesError names the scenes without one. Waits for the device."""
        if lacking := self.scenes_without_episodes(range(self.bank.num_scenes)):
            raise self.no_episodes([self.bank.names[scene] for scene in lacking])

    def scenes_without_episodes(self, scenes: Sequence[int]) -> list[int]:
        """Those of these scenes, rows of the bank, in which no episode can be sampled. Waits for the device.

        Agents sample one episode in each scene: sample their next episodes again afterwards.
        """
        self.settle()
        wait_for(self.device)
        flagged = int(self._host_error_flags[NO_EPISODE])  # kept for `check`
        ranges, lacking = self.sampling.scene_ranges.clone(), list[int]()
        for first in range(0, len(scenes), self.num_envs):
            rows = list(scenes[first : first + self.num_envs])
            self.sampling.scene_ranges[: len(rows), 0] = torch.tensor(rows, dtype=torch.int32, device="cpu").to(ranges)
            self.sampling.scene_ranges[: len(rows), 1] = 1
            lacking += [rows[agent] for agent in self._without_episodes(range(len(rows)))]
        self.sampling.scene_ranges.copy_(ranges)
        self._host_error_flags[NO_EPISODE] = flagged
        return lacking

    def _without_episodes(self, agents: range) -> list[int]:
        """Those of these agents that find no episode. The flag tells of one of them: halves are tried again."""
        self._host_error_flags[NO_EPISODE] = 0
        self._sample_for(torch.arange(agents.start, agents.stop, dtype=torch.int64, device="cpu"))
        wait_for(self.device)
        if self._host_error_flags[NO_EPISODE] == 0:
            return []
        if len(agents) == 1:
            return list(agents)
        half = len(agents) // 2
        return self._without_episodes(agents[:half]) + self._without_episodes(agents[half:])

    def sample_all(self) -> None:
        """Sample every agent's next episode again, after a change of the seed, the episode numbers or the scenes."""
        self._sample_for(torch.arange(self.num_envs, dtype=torch.int64, device="cpu"))

    def assign_scenes(self, agents: list[range], scenes: list[int]) -> None:
        """Assign one scene, a row of the bank, to each range of agents, from their next episode on."""
        self.settle()
        for group, scene in zip(agents, scenes, strict=True):
            self.sampling.scene_ranges[group.start : group.stop, 0] = scene
            self.sampling.scene_ranges[group.start : group.stop, 1] = 1
        self._sample_for(
            torch.cat([torch.arange(group.start, group.stop, dtype=torch.int64, device="cpu") for group in agents])
        )

    def advance(self, actions: torch.Tensor) -> None:
        """Move all bodies and flag ended episodes. Agents that are done keep their final pose until `reset_done`.

        Reward and metrics are valid after `finish`. Call `reset_done` before the next `advance`.

        Args:
            actions: i64 [N]: 0 stop, 1 forward, 2 left, 3 right; also 4 look up and 5 look down with control "v1"; or
                f32 [N, 2] with control "velocity": forward and to the left, -1 to 1. Invalid actions raise
                ArgumentError: at once on the CPU, in a later `check` on CUDA, where reading them would stall the GPU.
        """
        self.body_config.check_actions(actions, self.num_envs, self.device)
        actions = actions.contiguous()  # kernels are compiled for contiguous arrays
        if self.device.type == "cpu":
            self._move_people()
            self.task.advance(actions)
            self.task.score()
            return
        self.finish()
        self._move_people()
        self.task.advance(actions)
        self._score_stream.wait_stream(torch.cuda.current_stream(self.device))
        with torch.cuda.stream(self._score_stream):
            self.task.score()
        self._scoring = True

    def _move_people(self) -> None:
        if self.world is not None:
            self.world.advance()

    def reset_done(self) -> None:
        """Begin the next episode of agents that are done."""
        self._begin(all_agents=False)

    def step(self, actions: torch.Tensor) -> None:
        """`advance`, `reset_done` and `finish`. The next step overwrites reward, metrics and flags."""
        self.advance(actions)
        self.reset_done()
        self.finish()

    def finish(self) -> None:
        """Make torch's current stream wait for reward and metrics of the last step."""
        if self._scoring:
            torch.cuda.current_stream(self.device).wait_stream(self._score_stream)
            self._scoring = False

    def settle(self) -> None:
        """Make torch's current stream wait for the other streams. Every capture of a CUDA graph must end with this."""
        self.finish()
        self._await_sampling()

    def _await_sampling(self) -> None:
        """Make torch's current stream wait for the sampling of episodes."""
        if self._sampling:
            torch.cuda.current_stream(self.device).wait_stream(self._sample_stream)
            self._sampling = False

    def _begin(self, all_agents: bool) -> None:
        """Begin episodes, and sample the ones that follow them: on CUDA on a stream of their own."""
        self._await_sampling()
        self.task.begin_episodes(all_agents)
        if self.world is not None:
            self.world.begin(all_agents)
        if self.device.type == "cpu":
            self._sample()
            return
        self._sample_stream.wait_stream(torch.cuda.current_stream(self.device))
        with torch.cuda.stream(self._sample_stream):
            self._sample()
        self._sampling = True

    def _sample_for(self, agents: torch.Tensor) -> None:
        """Sample the next episode of these agents, i64, on torch's current stream."""
        self.settle()
        self.queue.put(agents)
        self._sample()

    def _sample(self) -> None:
        """Sample the queued agents' next episodes, and empty the queue."""
        self.task.sample_episodes()
        self.queue.count.zero_()


# Check that positions from files and saved states are on the navmesh of their scene

MAX_SNAP_DISTANCE = 0.1
"""Largest horizontal distance of a position from the navmesh, metres: baking moves edges by up to two cells."""
MAX_SNAP_HEIGHT = 0.5
"""Largest vertical distance of a position from the navmesh, metres: Habitat's `is_navigable`."""


def check_positions(
    name: str, bank: SceneBank, scene: torch.Tensor, position: torch.Tensor, error: type[BatchnavError]
) -> None:
    """Raise `error` where a position is not on the navmesh. Waits for the device.

    Args:
        name: name of the positions in the error message.
        bank: the scenes.
        scene: i32 [N]: rows of the bank, in range.
        position: f32 [N, 3], metres.
        error: class of the exception.
    """
    scene, position = scene.to(bank.device).contiguous(), position.to(bank.device).contiguous()
    good = on_navmesh(bank, scene, position, MAX_SNAP_DISTANCE)
    if not good.all():
        i = int((~good).nonzero()[0])
        found, there = position[i].tolist(), bank.names[int(scene[i])]
        raise error(f"{name}[{i}]: found {found}, expected a point on the navmesh of scene {there!r}")


def on_navmesh(bank: SceneBank, scene: torch.Tensor, position: torch.Tensor, distance: float) -> torch.Tensor:
    """bool [N]: True where positions f32 [N, 3] are within `distance` metres, horizontally, of their scene's navmesh.

    The vertical distance is at most MAX_SNAP_HEIGHT. `scene`: i32 [N], rows of the bank, in range. Both tensors must be
    contiguous and on the bank's device.
    """
    nearest = torch.empty_like(position)
    snap(len(scene), bank.navmesh_view, *map(view, (scene, position, nearest)))
    gap = nearest - position  # NaN where no polygon is near
    return (gap[:, [0, 2]].norm(dim=1) <= distance) & (gap[:, 1].abs() <= MAX_SNAP_HEIGHT)


@kernel()
def snap(i, nav, scene, position, nearest_out):
    """Write the point of its scene's navmesh that is nearest to a position; NaN where no polygon is near."""
    _, nearest = nearest_polygon(nav, scene[i], point_at(i, position))
    store_point(i, nearest, nearest_out)
