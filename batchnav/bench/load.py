"""Load times: seconds to import the package and to load a mesh file, a prepared scene and a cached house.

    batchnav bench load
    batchnav bench load --scenes my/scan.glb

Each scene is written as a mesh file (GLB) and as a prepared scene, then both are read from the system's file cache. The
package is imported in a new process after PyTorch, whose import does not count.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from batchnav.bench.options import LoadOptions as Options
from batchnav.data.scenes.ids import scene_ids
from batchnav.data.scenes.load import load_scene
from batchnav.data.scenes.prepared import load_prepared, save_prepared
from batchnav.report.results import record, row
from batchnav.scene.mesh import load_mesh, save_mesh

IMPORT = "import time, torch; start = time.perf_counter(); import batchnav; print(time.perf_counter() - start)"


def main(options: Options) -> None:
    """Measure and print; append the results to the file with `record`."""
    rows = [row("load", "seconds", [imported() for _ in range(options.repeats)], {"what": "import batchnav"}, "cpu")]
    for name in scene_ids(options.scenes):
        scene = load_scene(name, appearance=False)
        params = {"scene": Path(name).stem, "triangles": len(scene.mesh.faces)}
        with tempfile.TemporaryDirectory() as folder:
            mesh, prepared = Path(folder) / "a.glb", Path(folder) / "a.scene"
            save_mesh(scene.mesh, mesh)
            save_prepared(scene, prepared)
            runs = {
                "mesh file": lambda mesh=mesh: load_mesh(mesh, appearance=False),
                "prepared scene": lambda prepared=prepared: load_prepared(prepared),
                "find_scene": lambda name=name: load_scene(name, appearance=False),
            }
            for what, call in runs.items():
                seconds = [timed(call) for _ in range(1 + options.repeats)][1:]
                rows.append(row("load", "seconds", seconds, {"what": what, **params}, "cpu"))
    record("load", rows, append=options.record)


def imported() -> float:
    """Duration of `import batchnav` in a new process, seconds."""
    return float(subprocess.run([sys.executable, "-c", IMPORT], capture_output=True, text=True, check=True).stdout)


def timed(call: Callable[[], object]) -> float:
    """Duration of a call, seconds."""
    start = time.perf_counter()
    call()
    return time.perf_counter() - start
