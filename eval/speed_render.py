"""Rendering throughput, frames per second, of the renderers and of installed peers (Embree on the CPU, Warp on CUDA).

Equivalent to `batchnav bench render`. `--help` lists the options; the code is `batchnav/bench/render.py`.
"""

import sys

from batchnav.cli import main

if __name__ == "__main__":
    main(["bench", "render", *sys.argv[1:]])
