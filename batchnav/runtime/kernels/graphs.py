"""CUDA graphs: a fixed sequence of kernels, recorded once and replayed with one launch.

A graph records kernels with their arguments: tensor addresses and numbers. The recorded function must therefore use
tensors at fixed addresses, and values that change between calls (a learning rate, a counter, indices of environments)
must be in tensors. It must not synchronise with the device or use torch's random generators.
"""

from __future__ import annotations

import gc
from collections.abc import Callable
from typing import TypeVar

import torch

from batchnav.runtime.garbage_collection import collection_paused

T = TypeVar("T")

WARM_UPS = 2
"""Number of calls before the recording; they compile kernels, initialise libraries and allocate workspaces."""


class Graphs:
    """Records functions as CUDA graphs. On the CPU, or with `enabled` off, functions run unchanged.

        graphs = Graphs(device, enabled=True)
        step = graphs.wrap(step)

    All graphs of one object share a memory pool. They must not be replayed concurrently, and a tensor that one graph
    allocates in the pool must not be the input of another.
    """

    def __init__(self, device: torch.device, enabled: bool):
        self.enabled = enabled and device.type == "cuda"
        if self.enabled:
            # Warm-up and recording use one stream, since libraries and autograd keep state per stream.
            self._stream = torch.cuda.Stream(device)
            self._pool = torch.cuda.graph_pool_handle()

    def wrap(self, work: Callable[[], T]) -> Callable[[], T]:
        """A function that records `work` at call number WARM_UPS + 1 and replays it from then on.

        Each call does the work once. A replay returns the tensors of the recording, with new contents.
        """
        return _Replayed(work, self._stream, self._pool) if self.enabled else work


class _Replayed:
    """A function with its graph: warm-up calls, then a recording, then replays."""

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
        # Freeing another graph during the recording would invalidate it; the collector frees graphs in cycles.
        gc.collect()
        # "thread_local": a thread that loads scenes may allocate meanwhile
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
