"""Steps of few agents as a CUDA graph: launching their kernels takes longer than executing them.

A replayed step has the results of a plain step, in which the host launches each kernel. Environments with code of other
packages take plain steps, since a graph would leave out what that code does on the host.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import torch

from batchnav.runtime.conversion import JoinedResult
from batchnav.runtime.kernels.graphs import Graphs
from batchnav.sensors.frame import Frame

MAX_REPLAYED_ENVS = 256
"""Largest number of environments whose steps are replayed. With more, the GPU takes longer than the host, and a plain
step can sample episodes while the next one begins."""
PACKAGE = __name__.partition(".")[0]


def is_replayable(env: Any) -> bool:
    """True if a `NavEnv` replays its steps: on CUDA, with few agents and without code of other packages."""
    few = env.device.type == "cuda" and env.num_envs <= MAX_REPLAYED_ENVS
    return few and env.capturable and has_only_own_code(env)


def has_only_own_code(env: Any) -> bool:
    """True if environment, task, observation sources and renderers are classes of this package."""
    parts = env, env.task, *_parts(env.frame)
    return all(type(part).__module__.partition(".")[0] == PACKAGE for part in parts)


def _parts(frame: Frame) -> Iterator[Any]:
    """Sources and renderers of a frame and of the frames derived from it."""
    yield from (*frame.sources, *frame.renderers.values())
    for derived in frame.derived:
        yield from _parts(derived)


class StepReplay:
    """Steps of an environment that are recorded once and replayed from then on.

    Args:
        step: takes the actions, and returns live tensors in nested tuples and mappings. It must end with all work on
            torch's current stream (`Simulator.settle`).
        actions: tensor for the actions of a step.
    """

    def __init__(self, step: Callable[[torch.Tensor], Any], actions: torch.Tensor):
        self._actions = actions
        self.run = Graphs(actions.device, enabled=True).wrap(lambda: JoinedResult(step(actions)))
        """Takes a step with the actions of the last call; on the CPU nothing is recorded."""

    @property
    def is_possible(self) -> bool:
        """False during the recording of another graph, which then holds the step."""
        return self._actions.device.type == "cpu" or not torch.cuda.is_current_stream_capturing()

    def __call__(self, actions: torch.Tensor) -> JoinedResult:
        """Take a step with these actions, which have the shape, type and device of the tensor for actions."""
        self._actions.copy_(actions.detach())
        return self.run()
