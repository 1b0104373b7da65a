"""Procedural houses: seeded, furnished, coloured, closed or torn as scans are: training data free of licences."""

from batchnav.config import HOUSE_SPLITS as SPLITS
from batchnav.houses.block import make_block
from batchnav.houses.building import make_building
from batchnav.houses.hall import make_hall
from batchnav.houses.house import BENCHMARK_HOUSE, make_house, make_plan
from batchnav.houses.scan import ScanDefects, make_scan, tear
from batchnav.houses.swatches import make_swatches
from batchnav.houses.textures import with_pictures, without_pictures

__all__ = [
    "BENCHMARK_HOUSE", "SPLITS", "ScanDefects", "make_block", "make_building", "make_hall", "make_house", "make_plan",
    "make_scan", "make_swatches", "tear", "with_pictures", "without_pictures",
]  # fmt: skip
