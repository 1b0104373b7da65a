"""A cache folder without space: the run goes on, and one warning says so."""

import os
import subprocess
import sys

PROGRAM = """
import resource
import batchnav
from batchnav.runtime.kernels.decorators import cpu_kernel
import numpy as np
from numba import prange

from batchnav.cartpole import plain  # reads what the cache has of other modules

resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))  # every write ends in an OSError, as on a full disk


@cpu_kernel
def double(values, out):
    for i in prange(len(values)):
        out[i] = 2 * values[i]


values = np.arange(3)
double(values, values)
double(values.astype(np.int32), values.astype(np.int32))
print(values.tolist())
print(batchnav.load_scene("house:0").navmesh.num_polygons > 0)
mesh = batchnav.load_scene("house:0").mesh
from batchnav.scene.scene import bake_cached
print(bake_cached(mesh, "mesh", batchnav.NavMeshSettings()).num_polygons > 0)
"""


def test_a_full_disk_costs_a_warning(tmp_path):
    folder = tmp_path / "program"
    folder.mkdir()
    (folder / "program.py").write_text(PROGRAM)
    cache = tmp_path / "cache"
    kernels = os.environ.get("BATCHNAV_CACHE")
    if kernels:  # compiled kernels of the package are reused, houses are not
        cache.mkdir(mode=0o700)
        os.symlink(os.path.join(kernels, "kernels"), cache / "kernels")
    environment = {**os.environ, "BATCHNAV_CACHE": str(cache)}
    command = [sys.executable, str(folder / "program.py")]
    done = subprocess.run(command, capture_output=True, text=True, env=environment, check=False)
    assert done.stdout.split() == ["[0,", "2,", "4]", "True", "True"], done.stderr
    assert "cannot be written (File too large)" in done.stderr and "Traceback" not in done.stderr
