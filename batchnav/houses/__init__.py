"""Procedural houses: seeded, furnished, closed, or torn as scans are; training data with no licence question."""

from batchnav.config import HOUSE_SPLITS as SPLITS
from batchnav.houses.hall import make_hall
from batchnav.houses.house import BENCHMARK_HOUSE, make_house, make_plan
from batchnav.houses.scan import make_scan, tear

__all__ = ["BENCHMARK_HOUSE", "SPLITS", "make_hall", "make_house", "make_plan", "make_scan", "tear"]
