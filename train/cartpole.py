"""Train CartPole: `batchnav train cartpole` from a checkout. The program is `batchnav/cartpole/program.py`.

python train/cartpole.py                                        # a few seconds on a CPU
python train/cartpole.py --config configs/cartpole_h200.yaml    # 65,536 environments on a GPU
"""

import sys

from batchnav.cli import main

if __name__ == "__main__":
    main(["train", "cartpole", *sys.argv[1:]])
