"""End-to-end training throughput, frames per second, its breakdown by stage, and the policy-only bound.

Equivalent to `batchnav bench train`. `--help` lists the options; the code is `batchnav/bench/train.py`.
"""

import sys

from batchnav.cli import main

if __name__ == "__main__":
    main(["bench", "train", *sys.argv[1:]])
