"""Train a navigation agent: PointGoal, or the task that the configuration names. The loop: `batchnav/runs/training.py`.

    python train/pointnav.py --config configs/pointnav_cpu.yaml --out runs/mine
    python train/pointnav.py --config configs/pointnav_cpu.yaml --out runs/mine --ppo.num-envs 128 --seed 3
    torchrun --nproc-per-node 2 train/pointnav.py --config configs/pointnav_h200.yaml --out runs/two
    python train/pointnav.py --config configs/flee_cpu.yaml --out runs/flee

Every field of the configuration is an option (`--help` lists them). A run that was stopped, even killed, goes on from
its last save when the same command is given again; with `--allow-changes` another configuration may go on with it.
SIGTERM, Ctrl-C and SIGUSR1 save at the end of the running update and end the run with status 143, 130 and 0; a second
one ends it at once. `--profile` leaves a torch profiler's trace of two updates in the run's folder. Under torchrun each
process takes a GPU, and the number of environments and of slots for scenes is each one's (docs/several_gpus.md).
"""

from __future__ import annotations

import sys

from batchnav.runs.start import main, parse

__all__ = ["main", "parse"]

if __name__ == "__main__":
    main(sys.argv[1:], __doc__)
