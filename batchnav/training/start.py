"""Starting a training run from a command line: `batchnav train`, `train/pointnav.py`, or torchrun with either."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Annotated, NamedTuple

import torch
import tyro

from batchnav.config import load_config, validate
from batchnav.errors import ConfigError
from batchnav.renamed_keys import current_options
from batchnav.runtime.device import resolve_device
from batchnav.runtime.distributed.local_ranks import start_local_ranks
from batchnav.runtime.files.bundled import find_config
from batchnav.training.config import TrainingConfig
from batchnav.training.environment import prepare
from batchnav.training.folder import CONFIG_NAME, RunFolder
from batchnav.training.loop import train
from batchnav.training.wandb import find_wandb


class Command(NamedTuple):
    """Train a navigation agent: PointGoal, or the task that the configuration names.

    A run that was stopped, even killed, goes on from its last save when the same command is given again. SIGTERM,
    Ctrl-C and SIGUSR1 save at the end of the running update and end the run with status 143, 130 and 0; a second one
    ends it at once, where one process trains.
    """

    run: Annotated[TrainingConfig, tyro.conf.arg(name="")]
    config: str = ""
    """A configuration: a file, or the name of one that comes with batchnav. By default pointnav_h200 where there is a
    GPU, else pointnav_depth_cpu. Every field of it is an option."""
    out: Path = Path("runs/pointnav")
    """The run's folder."""
    resume: bool = False
    """Go on with the run in the folder, as it is configured there; settings given here are changed from now on, which
    is recorded: `--resume --out runs/mine --ppo.total-frames 5_000_000`."""
    wandb: bool = False
    """Send the curves to Weights & Biases too, where that is installed."""
    profile: bool = False
    """Leave a torch profiler's trace of two updates in the folder."""
    allow_changes: bool = False
    """Go on with another configuration than the folder's run had; it is recorded."""
    gpus: int = 1
    """Train on so many GPUs of this machine, a process each (with --device cpu: in so many processes), by torchrun. The
    number of environments and of slots for scenes is each one's."""
    max_restarts: int = 0
    """Start all processes again, up to so many times, from the last save, where one was killed or failed."""


def parse(arguments: Sequence[str]) -> Command:
    """The configuration with the command line's overrides, the run's folder, and what else to do."""
    arguments = current_options(TrainingConfig, arguments)
    parser = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
    parser.add_argument("--config", default="")
    parser.add_argument("--resume", action="store_true")
    parser.add_argument("--out", type=Path, default=Command._field_defaults["out"])
    known = parser.parse_known_args(arguments)[0]
    if known.resume and known.config:
        raise ConfigError(f"--config: found {known.config} with --resume, expected the configuration of {known.out}")
    if known.resume and not (known.out / CONFIG_NAME).is_file():
        raise ConfigError(f"{known.out / CONFIG_NAME}: no such file, expected the folder of a run to go on with")
    name = str(known.out / CONFIG_NAME) if known.resume else known.config or default_config()
    default = load_config(find_config(name), TrainingConfig, warn=not known.resume)
    command = tyro.cli(Command, default=Command(default, known.config), args=list(arguments), prog="batchnav train")
    validate(command.run)
    for name, value, least in (("gpus", command.gpus, 1), ("max-restarts", command.max_restarts, 0)):
        if value < least:
            raise ConfigError(f"--{name}: found {value}, expected {least} or more")
    if command.wandb:
        find_wandb()  # before anything is made
    return command


def default_config() -> str:
    """The name of the configuration for this machine."""
    return "pointnav_depth_h200" if torch.cuda.is_available() else "pointnav_depth_cpu"


def start(arguments: Sequence[str]) -> None:
    """`batchnav train`: in this process, with others beside it, or in place of it torchrun with as many as `--gpus`."""
    arguments = current_options(TrainingConfig, arguments)
    command = parse(arguments)  # what is wrong with it is said once
    run, allow_changes = command.run, command.allow_changes or command.resume
    train_it = partial(train, run, command.out, command.profile, allow_changes, command.wandb)
    if torch.distributed.is_torchelastic_launched() or os.environ.get("WORLD_SIZE", "1") != "1":
        train_it()  # one of several that were started: `join` finds its device
        return
    processes = run.processes_on(resolve_device(run.device))
    if command.gpus > 1 and processes > 1:
        raise ConfigError(f"--gpus: found {command.gpus} with processes {processes}, expected 1 of the two")
    if (command.gpus, processes, command.max_restarts) == (1, 1, 0):
        train_it()
        return
    RunFolder(command.out, run, allow_changes).close()  # what is wrong with it is said before anything is made
    if command.gpus > 1 or command.max_restarts:
        os.execv(sys.executable, torchrun(max(command.gpus, processes), command.max_restarts, arguments))
    else:
        with start_local_ranks(processes, [sys.executable, "-m", "batchnav", "train", *arguments]):
            prepare(run)
            train_it()


def torchrun(processes: int, max_restarts: int, arguments: Sequence[str]) -> list[str]:
    """The command line that starts so many processes of `batchnav train` on this machine, each with these arguments."""
    return [
        sys.executable, "-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={processes}",
        f"--max-restarts={max_restarts}", "-m", "batchnav", "train", *arguments,
    ]  # fmt: skip
