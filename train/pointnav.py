"""Train a navigation agent: `batchnav train` from a checkout. The loop is in `batchnav/training/loop.py`.

    python train/pointnav.py --config configs/pointnav_depth_cpu.yaml --out runs/mine
    python train/pointnav.py --config configs/pointnav_depth_cpu.yaml --out runs/mine --ppo.num-envs 128 --seed 3
    torchrun --nproc-per-node 2 train/pointnav.py --config configs/pointnav_depth_h200.yaml --out runs/two

`--help` lists the options, including every field of the configuration. Under torchrun each process uses one GPU
(docs/howto/several_gpus.md).
"""

import sys

from batchnav.cli import main

if __name__ == "__main__":
    main(["train", *sys.argv[1:]])
