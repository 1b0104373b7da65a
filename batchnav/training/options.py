"""Options of `batchnav train` that are not fields of its configuration."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from batchnav.config import bounded


@dataclass(frozen=True, kw_only=True)
class Options:
    """Train a navigation agent in PointGoal navigation or in the task of the configuration.

    A run that was stopped or killed continues from its last save if the same command is repeated. SIGTERM, Ctrl-C and
    SIGUSR1 save at the end of the current update and exit with status 143, 130 and 0; a second signal exits
    immediately, in single-process training.
    """

    config: str = ""
    """Configuration: a YAML file or a bundled name. Default: pointnav_depth_h200 (the paper's agent) with a GPU,
    else pointnav_waypoint_cpu (an agent with a map)."""
    out: Path = Path("runs/pointnav")
    """Folder of the run: weights, curves, resume state."""
    resume: bool = False
    """Continue the run in --out with its own configuration. Options given here change it from now on; config.yaml
    records the changes. Example: `--resume --out runs/mine --ppo.total-frames 5_000_000`."""
    wandb: bool = False
    """Also send the curves to Weights & Biases; needs the package wandb."""
    wandb_project: str = ""
    """Project of the run in Weights & Biases; implies --wandb. Default: its own setting (WANDB_PROJECT)."""
    wandb_name: str = ""
    """Name of the run in Weights & Biases; implies --wandb. Default: the name of the folder."""
    profile: bool = False
    """Write a torch profiler trace of two updates, trace.json, to the folder."""
    allow_changes: bool = False
    """Continue the folder's run with a different configuration; config.yaml records the changes."""
    gpus: int = bounded(1, 1, 1024)
    """Number of GPUs of this machine, with one process each, started by torchrun (with --device cpu: number of
    processes). Each process has the algorithm's num_envs environments and --scenes.resident-scenes scenes."""
    max_restarts: int = bounded(0, 0, 10**6)
    """Number of restarts of all processes from the last save after a process fails or is killed. 0: no restart."""
