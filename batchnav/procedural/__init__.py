"""Procedural scenes: seeded, furnished, coloured, free of licences; houses and the other scene families.

`families.py` lists the families. A maker goes from a floor plan (`plans/`) to walls, floors and ceilings (`shell/`),
furniture (`furniture/`) and colours (`materials/`); `degrade.py` adds a scanner's defects.
"""

import warnings
from typing import Any

from batchnav.procedural.corridor_floor import make_building
from batchnav.procedural.degrade import ScanDefects, make_scan, tear
from batchnav.procedural.families import EPISODE_FAMILIES, FAMILIES, SceneFamily
from batchnav.procedural.house import BENCHMARK_HOUSE, make_house, make_plan
from batchnav.procedural.materials.material_library import make_material_library
from batchnav.procedural.materials.textures import with_pictures, without_pictures
from batchnav.procedural.open_plan import make_hall
from batchnav.procedural.room_block import make_block
from batchnav.procedural.splits import SPLITS

__all__ = [
    "BENCHMARK_HOUSE", "EPISODE_FAMILIES", "FAMILIES", "SPLITS", "ScanDefects", "SceneFamily", "make_block",
    "make_building", "make_hall", "make_house", "make_material_library", "make_plan", "make_scan", "tear",
    "with_pictures", "without_pictures",
]  # fmt: skip


def __getattr__(name: str) -> Any:
    """A function by its former name, with a FutureWarning."""
    if name != "make_swatches":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    warnings.warn("make_swatches is now called make_material_library", FutureWarning, stacklevel=2)
    return make_material_library
