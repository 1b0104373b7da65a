"""Parts that all tasks share: device functions of a step, and binding of kernels to a simulator's tensors."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import torch

from batchnav.geometry.point import keep_point, point_at
from batchnav.navmesh.heap import SEARCH_BLOCK
from batchnav.runtime.kernels.arrays import view
from batchnav.runtime.kernels.decorators import inline_function
from batchnav.runtime.kernels.launch import BoundKernel
from batchnav.sim.bodies import calls_stop, end_episode, step_body
from batchnav.sim.simulator import Simulator

KernelPair = tuple[Any, Any]
"""A kernel's CPU form and its CUDA form."""
MAX_FLOAT = float(np.finfo(np.float32).max)
"""Largest finite float32."""
FINITE = -MAX_FLOAT, MAX_FLOAT
"""Valid range of a saved tensor in which every finite number is valid."""


@inline_function
def advance_body(i, actions, nav, body, max_steps, scratch, row, bodies_out, transition_out):
    """Move the body, flag the end of its episode, and record the step in the fields that all transitions have."""
    transition_out.scene[i] = bodies_out.scene[i]
    transition_out.moved[i] = step_body(i, actions, nav, body, scratch, row, bodies_out)
    end_episode(i, calls_stop(i, actions, body), max_steps, bodies_out)
    keep_point(i, point_at(i, bodies_out.position), transition_out.position)
    transition_out.path_length[i], transition_out.collisions[i] = bodies_out.path_length[i], bodies_out.collisions[i]
    transition_out.steps[i] = bodies_out.steps[i]


@inline_function
def record_step_metrics(i, transition, episode_return, metrics_out):
    """Write the metrics that all tasks have: collisions, path length, steps and return."""
    metrics_out.collisions[i] = np.float32(transition.collisions[i])
    metrics_out.path_length[i] = transition.path_length[i]
    metrics_out.steps[i] = np.float32(transition.steps[i])
    metrics_out.return_[i] = episode_return


def bind(
    sim: Simulator,
    kernels: KernelPair,
    read: tuple[Any, ...],
    written: tuple[Any, ...],
    scratch: Any = None,
    *,
    chunks: int = 0,
    threads: int = 0,
    block: int = 128,
) -> Callable[[], Any]:
    """A function without arguments that runs a kernel on the simulator's device; its arguments are prepared once.

    Args:
        sim: the simulator.
        kernels: CPU form, called as (*read, chunks, scratch, *written), and CUDA form, (*read, scratch, *written).
        read: arguments that the kernel reads.
        written: arguments that the kernel writes.
        scratch: memory for path searches; None: the kernel takes neither chunks nor scratch.
        chunks: CPU: number of chunks that agents are divided into; 0: `sim.chunks`.
        threads: CUDA: number of threads; 0: one per agent.
        block: CUDA: threads per block.
    """
    on_cpu, on_cuda = kernels
    search: tuple[Any, ...] = () if scratch is None else (scratch,)
    if sim.device.type == "cpu":
        search = (chunks or sim.chunks, *search) if search else ()
        return partial(on_cpu, *read, *search, *written)
    return BoundKernel(on_cuda, threads or sim.num_envs, *read, *search, *written, block=block)


def bind_advance(
    sim: Simulator, kernels: KernelPair, read: tuple[Any, ...], written: tuple[Any, ...], scratch: Any
) -> Callable[[torch.Tensor], None]:
    """`Task.advance`: a function of the actions; the other kernel arguments are prepared once.

    The kernels take the actions first. The CUDA form also takes `sim.error_flags` last, for invalid actions; on the CPU
    actions are checked before the call.
    """
    on_cpu, on_cuda = kernels
    if sim.device.type == "cpu":
        return lambda actions: on_cpu(actions.numpy(), *read, sim.chunks, scratch, *written)
    actions = view(sim.body_config.empty_actions(sim.num_envs, sim.device))
    advance_all = BoundKernel(
        on_cuda, sim.num_envs, actions, *read, scratch, *written, sim.error_flags, block=SEARCH_BLOCK
    )

    def advance(actions: torch.Tensor) -> None:
        advance_all.change(0, actions.data_ptr())
        advance_all()

    return advance


def bind_begin(
    sim: Simulator, kernels: KernelPair, next_episode: Any, written: tuple[Any, ...], read: tuple[Any, ...] = ()
) -> Callable[[bool], Any]:
    """`Task.begin_episodes`: a function of `all_agents`; the other kernel arguments are prepared once."""
    on_cpu, on_cuda = kernels
    written = *read, *written
    if sim.device.type == "cpu":
        return lambda all_agents: on_cpu(all_agents, next_episode, *written)
    on_due, on_all = (
        BoundKernel(on_cuda, sim.num_envs, all_agents, next_episode, *written) for all_agents in (False, True)
    )
    return lambda all_agents: on_all() if all_agents else on_due()
