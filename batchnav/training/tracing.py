"""Profiler trace of two updates, readable by Perfetto and chrome://tracing."""

from __future__ import annotations

from pathlib import Path

import torch

SKIPPED, TRACED = 5, 2
"""Number of updates before the trace (kernels compile, graphs are captured), and in the trace."""


def tracing(path: Path) -> torch.profiler.profile:
    """A profiler that writes `path` after SKIPPED + TRACED updates; call its `step` after each update."""
    return torch.profiler.profile(
        schedule=torch.profiler.schedule(skip_first=SKIPPED - 1, wait=0, warmup=1, active=TRACED, repeat=1),
        on_trace_ready=lambda profiler: profiler.export_chrome_trace(str(path)),
    )
