"""Train the occupancy predictor: `batchnav train anticipation` from a checkout.

python train/anticipation.py --out runs/mine.safetensors

The program is in `batchnav/cli/anticipation.py`.
"""

import sys

from batchnav.cli import main

if __name__ == "__main__":
    main(["train", "anticipation", *sys.argv[1:]])
