"""Observations by name, whether they have one or not."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from gymnasium import spaces

from batchnav.errors import ArgumentError
from batchnav.types import Observation

PLAIN = "observation"
"""The name of an observation that is no dict."""


def by_name(observation: Any) -> Observation:
    """Tensors or arrays by name."""
    return dict(observation) if isinstance(observation, Mapping) else {PLAIN: observation}


def boxes_of(space: spaces.Space) -> dict[str, spaces.Box]:
    """The Boxes of the observations by name; ArgumentError for a space that has others."""
    found = dict(space.spaces) if isinstance(space, spaces.Dict) else {PLAIN: space}
    boxes = {name: box for name, box in found.items() if isinstance(box, spaces.Box)}
    for name in found.keys() - boxes.keys():
        raise ArgumentError(f"env: found {found[name]} for observation {name!r}, expected a Box")
    return boxes
