"""ProcTHOR houses as mesh files with surfaces, ready to be prepared."""

from __future__ import annotations

import dataclasses
import os
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from batchnav.data.procthor.houses import make_procthor_house, read_houses, read_sizes
from batchnav.data.scenes.source import SceneSource, mesh_source
from batchnav.errors import MeshError, few
from batchnav.scene.mesh import save_mesh

_LISTED = 5
"""Largest number of assets that a message names."""


class Missing(NamedTuple):
    """Houses that cannot be read, and objects of ProcTHOR houses that are left out, since their sizes are unknown."""

    assets: tuple[str, ...]
    """Ids of their assets, the most frequent first."""
    num_objects: int
    """Number of objects that are left out."""
    num_all: int
    """Number of all objects."""
    houses: tuple[str, ...] = ()
    """Why houses are left out, one text each."""
    num_houses: int = 0
    """Number of all houses."""

    def __str__(self) -> str:
        """A line for houses and one for objects; empty where nothing is left out."""
        return "\n".join(filter(None, (self._houses(), self._objects())))

    def _houses(self) -> str:
        if not self.houses:
            return ""
        return f"left out {len(self.houses)} of {self.num_houses} houses: {few(self.houses, _LISTED, '; ')}"

    def _objects(self) -> str:
        if not self.assets:
            return ""
        left_out = f"{self.num_objects} of {self.num_all} objects ({self.num_objects / self.num_all:.0%})"
        return f"left out {left_out}, unknown size: {few(self.assets, _LISTED)}"


def import_houses(path: Path, sizes: Path, out: Path) -> tuple[list[SceneSource], Missing]:
    """Write ProcTHOR houses as mesh files OUT/NAME_0000.ply ...

    Args:
        path: file of houses (see `read_houses`).
        sizes: file of asset sizes (see `read_sizes`).
        out: folder for the mesh files.

    Returns the scenes, and the objects of unknown size. Mesh files hold triangles only; surfaces are part of the
    returned sources, and of the prepared scenes made from them. A house that cannot be read is left out. MeshError
    where none can, and where there is no file of sizes.
    """
    if not os.path.isfile(sizes):
        raise MeshError(
            f"{sizes}: found no such file, expected the sizes of ProcTHOR's assets in metres, {{asset id: [x, y, z]}}; "
            "name the file with --sizes FILE"
        )
    known, unknown, sources = read_sizes(sizes), set(), []
    assets: Counter[str] = Counter()
    stem, houses, bad = path.name.partition(".")[0], read_houses(path), []
    for i, house in enumerate(houses):
        target = out / f"{stem}_{i:04d}.ply"
        try:
            mesh, without = make_procthor_house(house, known, f"house {i}")
        except MeshError as error:
            bad.append(str(error))
            continue
        save_mesh(mesh, target)
        unknown.update(without)
        assets.update(_assets(house.get("objects", [])))
        sources.append(dataclasses.replace(mesh_source(target), surface=mesh.surface))
    if not sources:
        raise MeshError(f"{path}: found no usable house of {len(houses)}: {few(bad, _LISTED, '; ')}")
    missing = tuple(asset for asset, _ in assets.most_common() if asset in unknown)
    left_out = sum(assets[asset] for asset in missing)
    return sources, Missing(missing, left_out, assets.total(), tuple(bad), len(houses))


def _assets(objects: list[dict]) -> Iterator[str]:
    """The asset of each object, and of the objects on it."""
    for item in objects:
        yield str(item["assetId"])
        yield from _assets(item.get("children", []))
