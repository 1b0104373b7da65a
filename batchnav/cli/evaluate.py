"""`batchnav evaluate`: the metrics of agents on fixed episodes, with 95% intervals over episodes and over scenes.

    batchnav evaluate runs/mine --report
    batchnav evaluate runs/mine runs/other pointnav_h200 greedy --split test
    batchnav evaluate shortest_path --task flee
    batchnav evaluate shortest_path --episodes data/datasets/pointnav/gibson/v1/val/val.json.gz
    torchrun --nproc-per-node 2 -m batchnav evaluate runs/mine      # each process plays a share of the episodes

Each agent plays every episode once. SPL uses the geodesic distance of the navmesh at the start, as in Habitat; episodes
whose file states another distance are listed. The command prints tables and writes `results.json` to --out
(`NAME/results.json` if there are several agents).
"""

from __future__ import annotations

import logging
from collections.abc import Sequence

from batchnav.cli.console import check_options
from batchnav.cli.options import EvaluateOptions as Options
from batchnav.errors import ArgumentError
from batchnav.runtime.command_line import parse_options


def main(options: Options) -> None:
    """Check the options, join other ranks if there are any, and evaluate."""
    check_options(options)
    if not options.agents:
        raise ArgumentError("agents: found none, expected policies (runs/mine) or reference agents (greedy)")
    from batchnav.cli.measure import measure  # imports PyTorch, which `--help` does not need
    from batchnav.runtime.distributed import join

    with join(options.device) as ranks:
        if not ranks.is_rank_zero:
            logging.getLogger("batchnav").setLevel(logging.ERROR)  # rank 0 logs for all
        measure(options, ranks)


def parse(arguments: Sequence[str]) -> Options:
    """The options of a command line."""
    return parse_options(Options, "batchnav evaluate", arguments, __doc__)


def command(arguments: Sequence[str]) -> None:
    """Run `batchnav evaluate`."""
    main(parse(arguments))
