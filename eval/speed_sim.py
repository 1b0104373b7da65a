"""Simulator steps per second without rendering: random actions, Detour's geodesic distances in the step.

The same as `batchnav bench sim`, whose options `--help` lists; the code is `batchnav/bench/sim.py`.
"""

import sys

from batchnav.cli import main

if __name__ == "__main__":
    main(["bench", "sim", *sys.argv[1:]])
