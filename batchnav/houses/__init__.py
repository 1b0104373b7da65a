"""Procedural houses: seeded, furnished, closed; training data with no licence question."""

from batchnav.houses.house import SPLITS, make_house

__all__ = ["SPLITS", "make_house"]
