"""A process beside this one that compiles what will be needed next."""

from __future__ import annotations

import atexit
import json
import os
import subprocess
import sys
from collections.abc import Mapping
from typing import Any

import torch
from numba import config

from batchnav.runtime.announce import tell
from batchnav.runtime.cache import made_by
from batchnav.runtime.device import num_threads

PROGRAM = "batchnav.envs.ahead"
"""It stands above this room, and is a program of its own."""
_RUN = """
import json, runpy, sys
sys.path = json.loads(sys.argv.pop(1))
runpy.run_module(sys.argv.pop(1), run_name="__main__", alter_sys=True)
"""
"""Imports what this process would, not what lies in the current folder."""
LONGEST = 600.0
"""Seconds that it is waited for; then this process compiles by itself."""
_started: list[subprocess.Popen] = []


def compile_ahead(env: Mapping[str, Any] | None = None) -> None:
    """Have the CPU's kernels of an environment compiled by another process, while this one makes its scenes.

    Once in a process, where there is a second core, no GPU that would play instead, and no such kernel in the cache.

    Args:
        env: an `envs.config.NavConfig` as `config.to_dict` gives it; None: the defaults, which are PointNav with depth.
    """
    task = env["task"]["name"] if env else "pointnav"
    folder = made_by("kernels", f"batchnav.tasks.{task}")
    idle = config.DISABLE_JIT or num_threads() < 2 or torch.cuda.is_available()  # type: ignore[attr-defined]
    if _started or idle or not sys.executable or any(folder.rglob("*.nbi")):
        return
    try:
        process = subprocess.Popen(
            [sys.executable, "-P", "-c", _RUN, json.dumps([*map(str, sys.path)]), PROGRAM, json.dumps(env or {})],
            env={**os.environ, "NUMBA_NUM_THREADS": "1"},
            stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        )  # fmt: skip
    except OSError:  # no more processes, or no memory for one: this one compiles when it gets there
        return
    _started.append(process)
    atexit.register(process.kill)


def wait_for_compilation() -> None:
    """Wait until that process is done, if there is one, for its kernels are needed now; after LONGEST end it."""
    if _started and _started[0].poll() is None:
        tell("waiting for the environment's kernels, which another process compiles")
        try:
            _started[0].wait(LONGEST)
        except subprocess.TimeoutExpired:
            _started[0].kill()
