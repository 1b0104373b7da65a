"""Background processes that compile kernels before they are needed.

Each process runs programs of upper layers on a tiny scene. The compile lock (`runtime/kernels/compile_lock.py`) makes
this process wait only for the kernel that it needs.
"""

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

from batchnav.runtime.cache import versioned_cache_folder
from batchnav.runtime.parallel import num_threads

ENVIRONMENT_KERNELS, SCENE_KERNELS, SHORTEST_PATH_KERNELS = (
    "batchnav.envs.precompile",
    "batchnav.scene.precompile",
    "batchnav.agents.precompile",
)
"""Modules to run: the step of an environment; the later part of building a scene; the step of the shortest-path
follower."""
_RUN = """
import json, runpy, sys
sys.path, programs = json.loads(sys.argv.pop(1)), json.loads(sys.argv.pop(1))
for program in programs:
    runpy.run_module(program, run_name="__main__", alter_sys=True)
"""
"""Code of a background process. It imports from the `sys.path` of this process, not from the current folder."""
_started: dict[str, subprocess.Popen] = {}
"""Background processes by program."""


def precompile(*programs: str, env_config: Mapping[str, Any] | None = None) -> None:
    """Compile the CPU kernels of programs in background processes.

    Runs each program once per process, and only if the cache has none of its kernels. With a GPU only SCENE_KERNELS
    runs. The background processes use all cores but one; on two cores the programs run one after another.

    Args:
        *programs: ENVIRONMENT_KERNELS, SCENE_KERNELS, SHORTEST_PATH_KERNELS.
        env_config: `config.to_dict` of an `envs.config.NavConfig`; None: the default, PointNav with depth.
    """
    new = [name for name in programs if name not in _started and _is_needed(name, env_config)]
    processes = min(len(new), num_threads() - 1) if sys.executable else 0
    for k in range(processes):
        own = new[k::processes]
        arguments = [json.dumps([*map(str, sys.path)]), json.dumps(own), json.dumps(env_config or {})]
        try:
            process = subprocess.Popen(
                [sys.executable, "-P", "-c", _RUN, *arguments], env={**os.environ, "NUMBA_NUM_THREADS": "1"},
                stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
            )  # fmt: skip
        except OSError:  # no process or memory left: this process compiles when needed
            return
        _started.update(dict.fromkeys(own, process))
        atexit.register(process.kill)


def _is_needed(program: str, env_config: Mapping[str, Any] | None) -> bool:
    """True if the program will run on the CPU and the cache has none of its kernels."""
    if config.DISABLE_JIT or (program != SCENE_KERNELS and torch.cuda.is_available()):  # type: ignore[attr-defined]
        return False
    task = env_config["task"]["name"] if env_config else "pointnav"
    modules = {
        ENVIRONMENT_KERNELS: f"batchnav.tasks.{task}",
        SCENE_KERNELS: "batchnav.scene.bvh",
        SHORTEST_PATH_KERNELS: "batchnav.agents.shortest_path",
    }
    return not any(versioned_cache_folder("kernels", modules[program]).rglob("*.nbi"))
