"""The library of materials that `scene.material_sampling` samples from when it randomises the materials of houses."""

from __future__ import annotations

import functools

import numpy as np

from batchnav.procedural.materials.finishes import FINISHES, NUM_KINDS, Finish, kind_of, make_palette, without_texture
from batchnav.procedural.materials.textures import LIBRARY, texture
from batchnav.procedural.random_stream import RandomStream
from batchnav.scene.material_sampling import MaterialLibrary
from batchnav.types import Material

_SEED = 0x5A7C4
"""First part of the library's seed: its random numbers are independent of all others."""
SAMPLES, PALETTES = 1024, 128
"""Number of finishes sampled for each material name, and of house palettes that they use."""


@functools.cache
def make_material_library() -> MaterialLibrary:
    """`SAMPLES` finishes for each material name, distributed as in houses, sorted by kind; equal on every machine."""
    rng = RandomStream(_SEED)
    palettes = [make_palette(rng) for _ in range(PALETTES)]
    found: list[list[Finish]] = [[] for _ in range(NUM_KINDS)]
    for name, finish_of in FINISHES.items():
        for i in range(SAMPLES):
            finish = finish_of(rng, palettes[i % PALETTES])
            found[kind_of(name, finish)].append(finish)
    starts = np.cumsum([0, *map(len, found)]).astype(np.int32)
    materials = [material for kind in found for finish in kind for material in _both(finish)]
    return MaterialLibrary(tuple(materials), tuple(map(texture, range(len(LIBRARY)))), starts)


def _both(finish: Finish) -> tuple[Material, Material]:
    """A finish, and a material with its mean colour."""
    plain = finish if finish.texture < 0 else without_texture(finish)
    return Material((*finish.color, 1.0), finish.texture), Material((*plain.color, 1.0))
