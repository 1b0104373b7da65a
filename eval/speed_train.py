"""Training frames per second from end to end, where their time goes, and what the policy alone would allow.

The same as `batchnav bench train`, whose options `--help` lists; the code is `batchnav/bench/train.py`.
"""

import sys

from batchnav.cli import main

if __name__ == "__main__":
    main(["bench", "train", *sys.argv[1:]])
