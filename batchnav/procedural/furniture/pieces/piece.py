"""A kind of furniture: ranges of its size, free floor in front of it, and the function that builds it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from batchnav.procedural.random_stream import RandomStream
from batchnav.procedural.solids import Solids

Build = Callable[[Solids, RandomStream, float, float, float], None]
"""build(solids, draw, width, depth, height): append one piece, centred, standing on y = 0, facing +Z."""
Range = tuple[float, float]


@dataclass(frozen=True)
class Piece:
    """A kind of furniture; sizes in metres."""

    build: Build
    width: Range
    depth: Range
    height: Range
    front: float = 0.0
    """Depth of free floor in front, metres."""

    def size(self, rng: RandomStream) -> tuple[float, float, float]:
        """Random width, depth and height, metres, in whole centimetres."""
        width, depth, height = (round(rng.uniform(*r), 2) for r in (self.width, self.depth, self.height))
        return width, depth, height
