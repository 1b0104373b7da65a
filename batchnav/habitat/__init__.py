"""Policies in Habitat: the agent interface of habitat-lab, and episodes played in habitat-sim for comparison."""

from batchnav.habitat.agent import HabitatAgent

__all__ = ["HabitatAgent"]
