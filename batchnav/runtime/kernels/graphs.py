"""CUDA graphs: work that is always the same, recorded once and then started by the host in one go.

What is recorded are kernels with their arguments: addresses of tensors, and numbers. So the work must read and write
tensors that stay where they are, and whatever changes from call to call (a learning rate, a counter, which
environments) must lie in a tensor. It may not wait for the device, and may not draw from torch's generators.
"""

from __future__ import annotations

import gc
from collections.abc import Callable
from typing import TypeVar

import torch

from batchnav.runtime.garbage_collection import collection_paused

T = TypeVar("T")

WARM_UPS = 2
"""Calls that run as they are before the recording: kernels are compiled, libraries set up, workspaces allocated."""


class Graphs:
    """Records functions as CUDA graphs; where `enabled` is not set, or on the CPU, they just run.

        graphs = Graphs(device, enabled=True)
        step = graphs.wrap(step)

    All graphs of one object share a memory pool and take turns: they may not be replayed at the same time, and no
    tensor that one leaves in the pool is another's input.
    """

    def __init__(self, device: torch.device, enabled: bool):
        self.enabled = enabled and device.type == "cuda"
        if self.enabled:
            # Warm-up and recording on one stream: libraries and autograd keep what they set up by stream.
            self._stream = torch.cuda.Stream(device)
            self._pool = torch.cuda.graph_pool_handle()

    def wrap(self, work: Callable[[], T]) -> Callable[[], T]:
        """`work`, recorded at its call number WARM_UPS + 1 and replayed from then on.

        Every call does the work once. Replays return the tensors that the recording returned, with new contents.
        """
        return _Replayed(work, self._stream, self._pool) if self.enabled else work


class _Replayed:
    def __init__(self, work: Callable[[], T], stream: torch.cuda.Stream, pool):
        self._work, self._stream, self._pool = work, stream, pool
        self._calls, self._graph, self._result = 0, None, None

    def __call__(self):
        if self._calls < WARM_UPS:
            self._calls += 1
            return self._warm_up()
        if self._graph is None:
            self._record()
        self._graph.replay()
        return self._result

    def _record(self):
        graph = torch.cuda.CUDAGraph()
        # Freeing another graph would spoil the recording, and those that lie in cycles are freed by the collector.
        gc.collect()
        # "thread_local": another thread, loading scenes, may allocate meanwhile
        with collection_paused(), torch.cuda.graph(graph, self._pool, self._stream, capture_error_mode="thread_local"):
            self._result = self._work()
        self._graph = graph

    def _warm_up(self):
        current = torch.cuda.current_stream(self._stream.device)
        self._stream.wait_stream(current)
        with torch.cuda.stream(self._stream):
            result = self._work()
        current.wait_stream(self._stream)
        return result
