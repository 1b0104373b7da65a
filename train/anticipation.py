"""Train the occupancy predictor: `batchnav train anticipation` from a checkout (`batchnav/cli/anticipation.py`).

python train/anticipation.py --out runs/mine.safetensors
"""

import sys

from batchnav.cli import main

if __name__ == "__main__":
    main(["train", "anticipation", *sys.argv[1:]])
