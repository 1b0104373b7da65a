"""Command line of training: `batchnav train` and `train/pointnav.py`, also under torchrun."""

from __future__ import annotations

import argparse
import inspect
import os
import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Annotated

import torch
import tyro

from batchnav.config import check_range, load_config, ranges, validate
from batchnav.errors import ConfigError
from batchnav.runtime.bundled import find_config
from batchnav.runtime.command_line import parse_options
from batchnav.runtime.console import number_of
from batchnav.runtime.device import resolve_device
from batchnav.runtime.distributed import start_local_ranks
from batchnav.runtime.imports import import_modules, names_of
from batchnav.training.config import TrainingConfig
from batchnav.training.curves import find_wandb
from batchnav.training.environment import prepare
from batchnav.training.folder import CONFIG_NAME, RunFolder
from batchnav.training.loop import train
from batchnav.training.options import Options


@dataclass(frozen=True, kw_only=True)
class Command(Options):
    """The options of a command line, and the configuration that they select and change."""

    run: Annotated[TrainingConfig, tyro.conf.arg(name="")]
    """The configuration; every field of it is an option."""


def parse(arguments: Sequence[str]) -> Command:
    """The parsed command line. ConfigError for invalid options or configuration."""
    parser = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
    parser.add_argument("--config")
    parser.add_argument("--resume", action="store_true")
    parser.add_argument("--out", type=Path, default=Options.out)
    known = parser.parse_known_args(arguments)[0]
    if known.config == "":
        raise ConfigError("--config: found an empty name, expected a file or a bundled name; omit it for the default")
    if known.resume and known.config:
        raise ConfigError(f"--config: found {known.config} with --resume, expected the configuration of {known.out}")
    if known.resume and not (known.out / CONFIG_NAME).is_file():
        raise ConfigError(
            f"{known.out / CONFIG_NAME}: no such file, expected the folder of a run to continue; name it by --out, as "
            f"in --resume --out runs/mine"
        )
    name = str(known.out / CONFIG_NAME) if known.resume else known.config or default_config()
    default = load_config(find_config(name), TrainingConfig)
    default = replace(default, imports=names_of(default.imports))
    filled = Command(run=default, config=known.config or "")
    command: Command = parse_options(Command, "batchnav train", arguments, inspect.getdoc(Options), filled)
    import_modules(command.run.imports, "imports")
    validate(command.run)
    for option, (low, high) in ranges(Options).items():
        check_range(f"--{option.replace('_', '-')}", getattr(command, option), low, high)
    if wandb_names(command) is not None:
        find_wandb()  # raises before scenes are generated
    return command


def wandb_names(options: Options) -> dict[str, str] | None:
    """Project and name of the run in Weights & Biases, where they are given; None where no curves are sent."""
    given = {"project": options.wandb_project, "name": options.wandb_name}
    given = {key: value for key, value in given.items() if value}
    return given if options.wandb or given else None


def default_config() -> str:
    """Name of the default configuration for this machine."""
    return "pointnav_depth_h200" if torch.cuda.is_available() else "pointnav_waypoint_cpu"


def start(arguments: Sequence[str]) -> None:
    """Run `batchnav train`: in this process, with further local processes (CPU), or through torchrun (several GPUs)."""
    command = parse(arguments)  # raises once, before other processes start
    run, allow_changes = command.run, command.allow_changes or command.resume
    train_it = partial(train, run, command.out, command.profile, allow_changes, wandb_names(command))
    if torch.distributed.is_torchelastic_launched() or os.environ.get("WORLD_SIZE", "1") != "1":
        train_it()  # one process of a distributed run: `join` selects its device
        return
    _check_gpus(command.gpus, run.device)
    processes = run.processes_on(resolve_device(run.device))
    if command.gpus > 1 and processes > 1:
        raise ConfigError(
            f"--gpus: found {command.gpus} with processes {processes}, expected one of them to be 1; on the CPU, set "
            f"--processes alone"
        )
    if (command.gpus, processes, command.max_restarts) == (1, 1, 0):
        train_it()
        return
    RunFolder(command.out, run, allow_changes).close()  # raises before scenes are generated
    if command.gpus > 1 or command.max_restarts:
        os.execv(sys.executable, torchrun(max(command.gpus, processes), command.max_restarts, arguments))
    else:
        with start_local_ranks(processes, [sys.executable, "-m", "batchnav", "train", *arguments]):
            prepare(run)
            train_it()


def _check_gpus(gpus: int, device: str) -> None:
    """ConfigError for more processes with a GPU each than the machine has GPUs; "cpu" allows any number."""
    count = torch.cuda.device_count()
    if gpus > 1 and gpus > count and device != "cpu":
        instead = f"at most {count}" if count > 1 else "--gpus omitted"
        raise ConfigError(
            f"--gpus: found {gpus} on a machine with {number_of(count, 'GPU')}, expected {instead}; to train with "
            f"several processes on the CPU, use --device cpu --processes {gpus}"
        )


def torchrun(processes: int, max_restarts: int, arguments: Sequence[str]) -> list[str]:
    """The torchrun command that starts `processes` processes of `batchnav train` with these arguments."""
    return [
        sys.executable, "-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={processes}",
        f"--max-restarts={max_restarts}", "-m", "batchnav", "train", *arguments,
    ]  # fmt: skip
