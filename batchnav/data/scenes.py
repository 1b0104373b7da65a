"""What a scene id means: a procedural house by seed, a scene that comes with the project, or a file."""

from __future__ import annotations

import multiprocessing
import sys
from collections.abc import Iterable
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

from rich.progress import Progress

from batchnav.device import num_threads
from batchnav.errors import MeshError
from batchnav.scene.houses import make_house
from batchnav.scene.scene import Scene, load_scene, make_scene

HOUSE = "house:"
"""Begins the id of a procedural house; its seed follows."""
BUNDLED = Path(__file__).resolve().parents[2] / "assets" / "scenes"
"""The scenes in a checkout of the project: NAME/NAME.glb."""

SCENES_PER_WORKER = 8
"""A process takes seconds to start, a house half a second to make: fewer than this do not pay for one."""


def find_scene(scene_id: str) -> Scene:
    """The scene of an id, named so: "house:SEED", a bundled scene's name, or the path of a mesh file.

    Raises MeshError where it is none of these.
    """
    if scene_id.startswith(HOUSE):
        seed = scene_id.removeprefix(HOUSE)
        if not (seed.isascii() and seed.isdigit()):
            raise MeshError(f"scene {scene_id!r}: found seed {seed!r}, expected a whole number, as in 'house:7'")
        return make_scene(scene_id, make_house(int(seed)))
    bundled = {path.stem: path for path in sorted(BUNDLED.glob("*/*.glb"))}
    path = bundled.get(scene_id, Path(scene_id))
    if not path.is_file():
        raise MeshError(
            f"scene {scene_id!r}: found no such file, expected 'house:SEED', "
            f"{''.join(f'{name!r}, ' for name in bundled)}or the path of a mesh file"
        )
    return load_scene(path)._replace(name=scene_id)


def find_scenes(scene_ids: Iterable[str]) -> list[Scene]:
    """`find_scene` for each id, many of them in parallel processes, with progress."""
    ids = list(scene_ids)
    workers = min(num_threads(), len(ids) // SCENES_PER_WORKER)
    scenes = []
    with Progress(transient=True, disable=not sys.stderr.isatty()) as progress:
        task = progress.add_task("scenes", total=len(ids))

        def take(found: Iterable[Scene]) -> None:
            for scene in found:
                scenes.append(scene)
                progress.advance(task)

        take(map(find_scene, ids[:1]))  # compiles what is not compiled yet, once, for all processes
        if workers < 2:
            take(map(find_scene, ids[1:]))
            return scenes
        # Spawned, not forked: a process that has started CUDA or threads cannot be forked safely.
        with ProcessPoolExecutor(workers, mp_context=multiprocessing.get_context("spawn")) as pool:
            take(pool.map(find_scene, ids[1:]))
    return scenes
