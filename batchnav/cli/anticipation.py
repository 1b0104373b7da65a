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

from batchnav.cli.options import AnticipationOptions as Options
from batchnav.runtime.command_line import parse_options


def command(arguments: Sequence[str]) -> None:
    """`batchnav train anticipation`."""
    options = parse_options(Options, "batchnav train anticipation", arguments, __doc__)
    from batchnav.cli.predictor import main  # imports PyTorch, which `--help` does not need

    main(options)
