"""Train the occupancy predictor: weights that predict the costs of unexplored cells, for `map.anticipation`.

    batchnav train anticipation --out runs/mine.safetensors
    batchnav train anticipation --out runs/mine.safetensors --scenes my/scans house:0-1023
    batchnav train anticipation --out runs/mine.safetensors --scenes my/scans --init-from occupancy --steps 0
    batchnav train --config pointnav_waypoint_h200 --env.map.anticipation runs/mine.safetensors --out runs/mine

The command records maps of the map planner in the scenes. Training has two phases:

1. Cells: the network learns the odds that an unknown cell is blocked.
2. Paths: the odds are traversal costs. The path from each frontier cell to the goal should have its true length, and
   the frontier cell with the shortest path should be the best choice.

Every tenth scene is held out. Tables show losses and path errors on its maps, unrotated and rotated by 30 degrees.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from batchnav.config import bounded
from batchnav.runtime.command_line import parse_options


@dataclass(frozen=True)
class Options:
    """Options of `batchnav train anticipation`."""

    out: Path
    """Weights file to write, .safetensors."""
    scenes: tuple[str, ...] = ("house:0-511",)
    """Scene ids, ranges such as house:0-511, and folders, as `batchnav.load_scenes` takes them."""
    maps: int = bounded(20_000, 2, 2**31 - 1)
    """Number of maps to record; each takes 37 KB."""
    num_envs: int = bounded(256, 1, 2**31 - 1)
    """Number of environments while recording."""
    steps: int = bounded(3000, 0, 2**31 - 1)
    """Number of training steps on cells; 0: none."""
    path_steps: int = bounded(1500, 0, 2**31 - 1)
    """Number of training steps on paths, after those on cells; 0: none."""
    batch: int = bounded(32, 2, 2**31 - 1)
    """Number of maps in a training step."""
    learning_rate: float = bounded(3e-3, 0.0, 1.0)
    """Peak learning rate of AdamW on cells, which falls linearly to 0. The rate on paths is a tenth of it."""
    init_from: str = ""
    """Initial weights: a file that this command wrote, or "occupancy", the bundled weights. The recorded map planner
    uses them too. "": random weights; the map planner counts unknown cells as free."""
    seed: int = bounded(0, 0, 2**48)
    """Seed of episodes, recorded steps, initial weights and batches."""
    device: str = "auto"
    """Device: "cpu", "cuda", "cuda:1", or "auto" for a GPU if there is one."""


def command(arguments: Sequence[str]) -> None:
    """`batchnav train anticipation`."""
    options = parse_options(Options, "batchnav train anticipation", arguments, __doc__)
    from batchnav.cli.predictor import main  # imports PyTorch, which `--help` does not need

    main(options)
