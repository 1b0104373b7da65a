"""Procedural scenes: furnished and coloured scenes from seeds, free of third-party licences.

`families.py` lists the families. A maker goes from a floor plan (`plans/`) to walls, floors and ceilings (`shell/`),
furniture (`furniture/`) and materials (`materials/`); `degrade.py` adds the defects of scanned meshes.
"""

from batchnav.procedural.corridor_floor import make_building
from batchnav.procedural.course import COURSE_KINDS, course_kind, make_course
from batchnav.procedural.degrade import ScanDefects, degrade, make_scan
from batchnav.procedural.families import EPISODE_FAMILIES, FAMILIES, SceneFamily
from batchnav.procedural.house import BENCHMARK_HOUSE, make_house, make_plan
from batchnav.procedural.materials.material_library import make_material_library
from batchnav.procedural.materials.textures import replace_textures, restore_textures
from batchnav.procedural.open_plan import make_hall
from batchnav.procedural.room_block import make_block
from batchnav.procedural.splits import SPLITS

__all__ = [
    "BENCHMARK_HOUSE",
    "COURSE_KINDS",
    "EPISODE_FAMILIES",
    "FAMILIES",
    "SPLITS",
    "ScanDefects",
    "SceneFamily",
    "course_kind",
    "degrade",
    "make_block",
    "make_building",
    "make_course",
    "make_hall",
    "make_house",
    "make_material_library",
    "make_plan",
    "make_scan",
    "replace_textures",
    "restore_textures",
]  # fmt: skip
