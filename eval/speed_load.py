"""Loading time: the package, a mesh file, a prepared scene, and a house from the cache, seconds.

Equivalent to `batchnav bench load`. `--help` lists the options; the code is `batchnav/bench/load.py`.
"""

import sys

from batchnav.cli import main

if __name__ == "__main__":
    main(["bench", "load", *sys.argv[1:]])
