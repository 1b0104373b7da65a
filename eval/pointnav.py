"""Evaluate navigation agents on fixed episodes: `batchnav evaluate` from the checkout.

    python eval/pointnav.py runs/mine --split val --report
    python eval/pointnav.py greedy --split test
    torchrun --nproc-per-node 2 eval/pointnav.py runs/mine      # split the episodes over two GPUs

`--help` lists the options; the code is `batchnav/cli/evaluate.py`.
"""

import sys

from batchnav.cli import main

if __name__ == "__main__":
    main(["evaluate", *sys.argv[1:]])
