"""Procedural houses: seeded, furnished, coloured, closed or torn as scans are: training data free of licences."""

from batchnav.config import HOUSE_SPLITS as SPLITS
from batchnav.houses.house import BENCHMARK_HOUSE, make_house
from batchnav.houses.scan import tear
from batchnav.houses.textures import with_pictures, without_pictures

__all__ = ["BENCHMARK_HOUSE", "SPLITS", "make_house", "tear", "with_pictures", "without_pictures"]
