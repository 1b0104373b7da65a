"""Train CartPole with PPO, until the mean return of 100 new episodes is 475.

    batchnav train cartpole                             # a few seconds on a CPU
    batchnav train cartpole --config cartpole_h200      # 65,536 environments on a GPU

The exit status is 1 if the run ends with a lower return.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass

from batchnav.errors import printable
from batchnav.runtime.command_line import parse_options
from batchnav.runtime.console import next_command


@dataclass(frozen=True)
class Options:
    """Options of `batchnav train cartpole`."""

    config: str = "cartpole_cpu"
    """Configuration: a YAML file, or a bundled name, cartpole_cpu or cartpole_h200."""


def command(arguments: Sequence[str]) -> None:
    """Run `batchnav train cartpole`."""
    options = parse_options(Options, "batchnav train cartpole", arguments, __doc__)
    from batchnav.cartpole.program import is_solved  # imports PyTorch, which `--help` does not need

    if not is_solved(options.config):
        sys.exit(
            f"error: {printable(options.config)}: CartPole is not solved; increase ppo.total_frames or change seed"
        )
    print(next_command("train a navigation agent", "batchnav", "train"))
