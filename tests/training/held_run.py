"""`held_run.py FILE FRAMES ARGUMENTS`: `train/pointnav.py` that waits after FRAMES frames while FILE exists."""

import runpy
import sys
import time
from pathlib import Path

from batchnav.training.folder import RunFolder


def hold(file, frames):
    """Make runs wait after the row of `frames` frames while `file` exists."""
    log = RunFolder.log

    def log_and_wait(self, row):
        log(self, row)
        while row["frames"] == frames and file.exists():
            time.sleep(0.01)

    RunFolder.log = log_and_wait


if __name__ == "__main__":
    hold(Path(sys.argv[1]), int(sys.argv[2]))
    program = Path(__file__).resolve().parents[2] / "train" / "pointnav.py"
    sys.argv = [str(program), *sys.argv[3:]]
    runpy.run_path(str(program), run_name="__main__")
