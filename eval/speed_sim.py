"""Simulator steps per second without rendering, with random actions and Detour's geodesic distances.

Equivalent to `batchnav bench sim`. `--help` lists the options; the code is `batchnav/bench/sim.py`.
"""

import sys

from batchnav.cli import main

if __name__ == "__main__":
    main(["bench", "sim", *sys.argv[1:]])
