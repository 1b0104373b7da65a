"""A trace of a few updates by torch's profiler, to be read in Perfetto or chrome://tracing."""

from __future__ import annotations

from pathlib import Path

import torch

SKIPPED, TRACED = 5, 2
"""Updates before the trace (kernels compile, graphs are recorded), and in it."""


def tracing(path: Path) -> torch.profiler.profile:
    """A profiler, to be told of each update by `step`, that writes `path` after SKIPPED + TRACED of them."""
    return torch.profiler.profile(
        schedule=torch.profiler.schedule(skip_first=SKIPPED - 1, wait=0, warmup=1, active=TRACED, repeat=1),
        on_trace_ready=lambda profiler: profiler.export_chrome_trace(str(path)),
    )
