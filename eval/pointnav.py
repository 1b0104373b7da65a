"""Measure navigation agents on fixed episodes: `batchnav evaluate`, from the checkout.

    python eval/pointnav.py --checkpoint runs/mine/policy.safetensors --split val --report
    python eval/pointnav.py --agent greedy --split test
    torchrun --nproc-per-node 2 eval/pointnav.py --checkpoint runs/mine/policy.safetensors      # share out the episodes

`--help` lists the options; the code is `batchnav/cli/evaluate.py`.
"""

import sys

from batchnav.cli import main

if __name__ == "__main__":
    main(["evaluate", *sys.argv[1:]])
