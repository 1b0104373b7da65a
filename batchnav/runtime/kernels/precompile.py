"""Processes beside this one that compile what will be needed next.

Each is a program that stands above this room and plays on something small. `runtime.once` lets this process wait for
no more than the kernel that it needs.
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

from batchnav.runtime.files.cache import versioned_cache_folder
from batchnav.runtime.threads import num_threads

ENVIRONMENT_KERNELS, SCENE_KERNELS, SHORTEST_PATH_KERNELS = (
    "batchnav.envs.precompile",
    "batchnav.scene.precompile",
    "batchnav.agents.precompile",
)
"""Programs: a step of an environment; the second half of what makes a scene; the oracle's step."""
_RUN = """
import json, runpy, sys
sys.path, programs = json.loads(sys.argv.pop(1)), json.loads(sys.argv.pop(1))
for program in programs:
    runpy.run_module(program, run_name="__main__", alter_sys=True)
"""
"""Imports what this process would, not what lies in the current folder."""
_started: dict[str, subprocess.Popen] = {}
"""By program."""


def precompile(*programs: str, env_config: Mapping[str, Any] | None = None) -> None:
    """Have the CPU's kernels of programs compiled by other processes, while this one does what comes before.

    Each once in a process, where the cache has none of its kernels; what plays not where there is a GPU that would do
    so instead. They share the cores beside this process's: on two cores they come one after the other.

    Args:
        programs: of ENVIRONMENT_KERNELS, SCENE_KERNELS and SHORTEST_PATH_KERNELS.
        env_config: an `envs.config.NavConfig` as `config.to_dict` gives it; None: the defaults, which are PointNav
            with depth.
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
        except OSError:  # no more processes, or no memory for one: this one compiles when it gets there
            return
        _started.update(dict.fromkeys(own, process))
        atexit.register(process.kill)


def _is_needed(program: str, env_config: Mapping[str, Any] | None) -> bool:
    """Whether nothing of it is in the cache, and it will run on the CPU."""
    if config.DISABLE_JIT or (program != SCENE_KERNELS and torch.cuda.is_available()):  # type: ignore[attr-defined]
        return False
    task = env_config["task"]["name"] if env_config else "pointnav"
    modules = {
        ENVIRONMENT_KERNELS: f"batchnav.tasks.{task}",
        SCENE_KERNELS: "batchnav.scene.bvh",
        SHORTEST_PATH_KERNELS: "batchnav.agents.shortest_path",
    }
    return not any(versioned_cache_folder("kernels", modules[program]).rglob("*.nbi"))
