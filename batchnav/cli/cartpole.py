"""`batchnav train cartpole`: train CartPole with PPO. The program is `batchnav/cartpole/program.py`.

batchnav train cartpole                             # a few seconds on a CPU
batchnav train cartpole --config cartpole_h200      # 65,536 environments on a GPU
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence


def command(arguments: Sequence[str]) -> None:
    """Run `batchnav train cartpole`. Exit status 1 if CartPole is not solved."""
    parser = argparse.ArgumentParser(prog="batchnav train cartpole", description="Train CartPole with PPO.")
    parser.add_argument(
        "--config", default="cartpole_cpu", help="configuration: a YAML file or a bundled name (default: cartpole_cpu)"
    )
    options = parser.parse_args(arguments)
    from batchnav.cartpole.program import is_solved  # imports PyTorch, which `--help` does not need

    sys.exit(not is_solved(options.config))
