"""ProcTHOR houses as mesh files with surfaces, ready to be prepared."""

from __future__ import annotations

import dataclasses
from pathlib import Path

from batchnav.data.procthor.houses import make_procthor_house, read_houses, read_sizes
from batchnav.data.sources.scene_source import SceneSource, mesh_source
from batchnav.scene.mesh import save_mesh


def import_houses(path: Path, sizes: Path, out: Path) -> tuple[list[SceneSource], set[str]]:
    """Write ProcTHOR houses as mesh files OUT/NAME_0000.ply ...

    Returns the scenes, and the ids of assets of unknown size. Mesh files hold triangles only; surfaces are part of the
    returned sources, and of the prepared scenes made from them.
    """
    known, unknown, sources = read_sizes(sizes), set(), []
    stem = path.name.partition(".")[0]
    for i, house in enumerate(read_houses(path)):
        target = out / f"{stem}_{i:04d}.ply"
        mesh, without = make_procthor_house(house, known, f"{path}: house {i}")
        out.mkdir(parents=True, exist_ok=True)
        save_mesh(mesh, target)
        unknown.update(without)
        sources.append(dataclasses.replace(mesh_source(target), surface=mesh.surface))
    return sources, unknown
