"""Seconds to load what is there: the package, a mesh file, a prepared scene, a house from the cache.

The same as `batchnav bench load`, whose options `--help` lists; the code is `batchnav/bench/load.py`.
"""

import sys

from batchnav.cli import main

if __name__ == "__main__":
    main(["bench", "load", *sys.argv[1:]])
