"""Frames per second of the renderers, and of their peers where those are installed (Embree on the CPU, Warp on CUDA).

The same as `batchnav bench render`, whose options `--help` lists; the code is `batchnav/bench/render.py`.
"""

import sys

from batchnav.cli import main

if __name__ == "__main__":
    main(["bench", "render", *sys.argv[1:]])
