"""Navmesh queries per second, and the seconds that baking takes.

The same as `batchnav bench navmesh`, whose options `--help` lists; the code is `batchnav/bench/navmesh.py`.
"""

import sys

from batchnav.cli import main

if __name__ == "__main__":
    main(["bench", "navmesh", *sys.argv[1:]])
