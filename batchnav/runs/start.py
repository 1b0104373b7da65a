"""Starting a training run from a command line: `batchnav train`, `train/pointnav.py`, or torchrun with either."""

from __future__ import annotations

import argparse
import logging
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import tyro

from batchnav.config import load_config, validate
from batchnav.errors import BatchnavError, ConfigError
from batchnav.runs.config import PointNavRun
from batchnav.runs.training import train


class Command(NamedTuple):
    """What a command line asks for: the arguments of `train`."""

    run: PointNavRun
    out: Path
    profile: bool
    allow_changes: bool


def parse(arguments: Sequence[str], description: str | None = None) -> Command:
    """The configuration file with the command line's overrides, the run's folder, and what else to do."""
    parser = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
    parser.add_argument("--config", type=Path)
    parser.add_argument("--out", type=Path, default=Path("runs/pointnav"))
    parser.add_argument("--profile", action="store_true")
    parser.add_argument("--allow-changes", action="store_true")
    known, overrides = parser.parse_known_args(arguments)
    default = load_config(known.config, PointNavRun) if known.config else PointNavRun()
    run = tyro.cli(PointNavRun, default=default, args=overrides, description=description)
    validate(run)
    return Command(run, known.out, known.profile, known.allow_changes)


def main(arguments: Sequence[str], description: str | None = None) -> None:
    """Train as the command line says. SystemExit where that fails, with one line, or a signal asks for it."""
    logging.basicConfig(format="%(message)s")
    logging.getLogger("batchnav").setLevel(logging.INFO)  # which renderer was taken, and why
    try:
        train(*parse(arguments, description))
    except BatchnavError as error:
        sys.exit(f"error: {error}")


DESCRIPTION = """Train a PointGoal agent.

--config FILE: a configuration; every field of it is an option. --out FOLDER: where the run is kept, and goes on from
when the same command is given again. --profile: leave a trace of two updates there. --allow-changes: go on with another
configuration. --gpus N: train on N GPUs of this machine, a process each (with --device cpu: in N processes), started by
torchrun; --max-restarts R: start them all again, up to R times, from the last save, where one was killed or failed."""


def start(arguments: Sequence[str]) -> None:
    """`batchnav train`: in this process, or in place of it torchrun with as many as `--gpus` says."""
    parser = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
    parser.add_argument("--gpus", type=int, default=1)
    parser.add_argument("--max-restarts", type=int, default=0)
    known, rest = parser.parse_known_args(arguments)
    for name, value, least in (("gpus", known.gpus, 1), ("max-restarts", known.max_restarts, 0)):
        if value < least:
            raise ConfigError(f"--{name}: found {value}, expected {least} or more")
    if known.gpus == 1 and known.max_restarts == 0:
        main(rest, DESCRIPTION)
        return
    if not {"-h", "--help"} & set(rest):
        parse(rest)  # what is wrong with it is said once
    os.execv(sys.executable, torchrun(known.gpus, known.max_restarts, rest))


def torchrun(processes: int, max_restarts: int, arguments: Sequence[str]) -> list[str]:
    """The command line that starts so many processes of this program on this machine."""
    return [
        sys.executable, "-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={processes}",
        f"--max-restarts={max_restarts}", "-m", __name__, *arguments,
    ]  # fmt: skip


if __name__ == "__main__":
    main(sys.argv[1:], DESCRIPTION)
