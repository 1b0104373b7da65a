"""What a kind of furniture is: the ranges of its size, the room it needs in front, and the function that builds it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from batchnav.procedural.random_draws import Draw
from batchnav.procedural.solids import Solids

Build = Callable[[Solids, Draw, float, float, float], None]
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
    """Free floor needed before it."""

    def size(self, draw: Draw) -> tuple[float, float, float]:
        """Width, depth and height in whole centimetres."""
        width, depth, height = (round(draw.uniform(*r), 2) for r in (self.width, self.depth, self.height))
        return width, depth, height
