"""Background processes that compile kernels before they are needed.

Each process runs programs of upper layers on a tiny scene. The compile lock (`runtime/kernels/compile_lock.py`) makes
this process wait only for the kernel that it needs.
"""

from __future__ import annotations

import atexit
import hashlib
import json
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
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
import json, pathlib, runpy, sys
sys.path, programs = json.loads(sys.argv.pop(1)), json.loads(sys.argv.pop(1))
for program, done in programs.items():
    runpy.run_module(program, run_name="__main__", alter_sys=True)
    pathlib.Path(done).touch()
"""
"""Code of a background process: the programs read `sys.argv[1]` and `[2]`, configuration and device, and each leaves a
file. It imports from the `sys.path` of this process, not from the current folder."""
_started: dict[str, subprocess.Popen] = {}
"""Background processes by program."""


def precompile(*programs: str, env_config: Mapping[str, Any] | None = None, device: torch.device | None = None) -> None:
    """Compile the kernels of programs in background processes.

    Runs each program once per process, and once for a task and its sensors as long as the cache is kept. The background
    processes use all cores but one; on two cores the programs run one after another.

    Args:
        *programs: ENVIRONMENT_KERNELS, SCENE_KERNELS, SHORTEST_PATH_KERNELS. The kernels of scenes are for the CPU.
        env_config: `config.to_dict` of an `envs.config.NavConfig`; None: the default, PointNav with depth.
        device: where the environment will step; None: not known, which on a machine with a GPU leaves out all but
            SCENE_KERNELS.
    """
    if device is None and not torch.cuda.is_available():
        device = torch.device("cpu")
    wanted = {name: _done(name, env_config, device) for name in programs if name not in _started}
    new = {name: str(path) for name, path in wanted.items() if path is not None and not path.exists()}
    names, processes = list(new), min(len(new), num_threads() - 1) if sys.executable else 0
    if processes and device is not None and device.type == "cuda":
        # First here, so that a GPU which only one process may use belongs to this one.
        torch.empty(1, dtype=torch.uint8, device=device)
    for k in range(processes):
        own = {name: new[name] for name in names[k::processes]}
        arguments = [json.dumps([*map(str, sys.path)]), json.dumps(own), json.dumps(env_config or {}), str(device)]
        try:
            process = subprocess.Popen(
                [sys.executable, "-P", "-c", _RUN, *arguments], env={**os.environ, "NUMBA_NUM_THREADS": "1"},
                stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
            )  # fmt: skip
        except OSError:  # no process or memory left: this process compiles when needed
            return
        _started.update(dict.fromkeys(own, process))
        atexit.register(process.kill)


def _done(program: str, env_config: Mapping[str, Any] | None, device: torch.device | None) -> Path | None:
    """The file that a program leaves in the cache for this task, these sensors and this device; None: not to be run."""
    if config.DISABLE_JIT:  # type: ignore[attr-defined]
        return None
    key: list[Any] = []
    if program != SCENE_KERNELS:
        if device is None:
            return None
        key = [device.type, env_config and (env_config["task"]["name"], env_config["sensors"])]
    name = hashlib.sha256(json.dumps(key).encode()).hexdigest()[:16]
    return versioned_cache_folder("kernels", program) / f"{name}.done"
