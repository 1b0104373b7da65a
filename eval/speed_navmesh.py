"""Navmesh queries per second, and baking time in seconds.

Equivalent to `batchnav bench navmesh`. `--help` lists the options; the code is `batchnav/bench/navmesh.py`.
"""

import sys

from batchnav.cli import main

if __name__ == "__main__":
    main(["bench", "navmesh", *sys.argv[1:]])
