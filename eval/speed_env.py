"""Frames per second of `NavEnv.step`, for a few agents and for many.

Equivalent to `batchnav bench env`. `--help` lists the options; the code is `batchnav/bench/env.py`.
"""

import sys

from batchnav.cli import main

if __name__ == "__main__":
    main(["bench", "env", *sys.argv[1:]])
