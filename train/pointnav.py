"""Train a navigation agent: PointGoal, or the task that the configuration names. The loop: `batchnav/runs/training.py`.

    python train/pointnav.py --config configs/pointnav_cpu.yaml --out runs/mine
    python train/pointnav.py --config configs/pointnav_cpu.yaml --out runs/mine --ppo.num-envs 128 --seed 3
    python train/pointnav.py --config configs/flee_cpu.yaml --out runs/flee

Every field of the configuration is an option (`--help` lists them). A run that was stopped, even killed, goes on from
its last save when the same command is given again; with `--allow-changes` another configuration may go on with it.
SIGTERM, Ctrl-C and SIGUSR1 save at the end of the running update and end the run with status 143, 130 and 0; a second
one ends it at once. `--profile` leaves a torch profiler's trace of two updates in the run's folder.
"""

from __future__ import annotations

import argparse
import logging
import sys
from pathlib import Path
from typing import NamedTuple

import tyro

from batchnav.config import load_config, validate
from batchnav.errors import BatchnavError
from batchnav.runs.config import PointNavRun
from batchnav.runs.training import train


class Command(NamedTuple):
    """What the command line asks for: the arguments of `train`."""

    run: PointNavRun
    out: Path
    profile: bool
    allow_changes: bool


def parse(arguments: list[str]) -> Command:
    """The configuration file with the command line's overrides, the run's folder, and what else to do."""
    parser = argparse.ArgumentParser(add_help=False)
    parser.add_argument("--config", type=Path)
    parser.add_argument("--out", type=Path, default=Path("runs/pointnav"))
    parser.add_argument("--profile", action="store_true")
    parser.add_argument("--allow-changes", action="store_true")
    known, overrides = parser.parse_known_args(arguments)
    default = load_config(known.config, PointNavRun) if known.config else PointNavRun()
    run = tyro.cli(PointNavRun, default=default, args=overrides, description=__doc__)
    validate(run)
    return Command(run, known.out, known.profile, known.allow_changes)


if __name__ == "__main__":
    logging.basicConfig(format="%(message)s")
    logging.getLogger("batchnav").setLevel(logging.INFO)  # which renderer was taken, and why
    try:
        train(*parse(sys.argv[1:]))
    except BatchnavError as error:
        sys.exit(f"error: {error}")
