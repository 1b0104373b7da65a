"""Procedural houses: seeded, furnished, coloured, closed or torn as scans are: training data free of licences."""

from batchnav.procedural.corridor_floor import make_building
from batchnav.procedural.degrade import ScanDefects, make_scan, tear
from batchnav.procedural.house import BENCHMARK_HOUSE, make_house, make_plan
from batchnav.procedural.materials.swatches import make_swatches
from batchnav.procedural.materials.textures import with_pictures, without_pictures
from batchnav.procedural.open_plan import make_hall
from batchnav.procedural.room_block import make_block
from batchnav.procedural.splits import HOUSE_SPLITS as SPLITS

__all__ = [
    "BENCHMARK_HOUSE", "SPLITS", "ScanDefects", "make_block", "make_building", "make_hall", "make_house", "make_plan",
    "make_scan", "make_swatches", "tear", "with_pictures", "without_pictures",
]  # fmt: skip
