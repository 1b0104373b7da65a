"""Material randomisation: new colours and textures for the surfaces of procedural houses, while the bank is in use.

A policy that sees colour can memorise houses by the colours of their walls. A *finish* is a colour and texture that
surfaces of a house share, such as the paint of a room, a floor, or the fabric of a sofa. Randomisation replaces each
finish by another one of the same kind: surfaces that shared a finish still do, and lighter or darker shades of a finish
become shades of its replacement. Textures of one kind cover the same size in metres, so texture coordinates do not
change. Scenes without finishes (scans and other files) do not change.

The materials of a house are a function of the seed and of the number of randomisations so far; there is no other state.
One launch rewrites the rows of materials in place.
"""

from __future__ import annotations

import copy
import zlib
from typing import NamedTuple

import numpy as np
import torch

from batchnav.runtime.kernels.arrays import view
from batchnav.runtime.kernels.decorators import inline_function
from batchnav.runtime.kernels.intrinsics import load4, store4
from batchnav.runtime.kernels.launch import kernel
from batchnav.runtime.kernels.rng import uniform4
from batchnav.types import LIGHT_STEPS, Material, Texture

PERIOD = 16
"""Number of calls between two changes of a house; houses change at different calls. Agents in the house see the change
within an episode, so changes must be rare."""
FINISH_WIDTH = 4
"""Columns of a material's row: checksum of the house's `Surface.finish`, number and kind of the finish, shade. Shade is
2 * light + 1 for the mean colour of the finish's texture, else 2 * light."""
FIXED = (0, 0, -1, 0)
"""Row of a material that is not randomised."""
_STREAM = np.uint32(0x46000000)
"""Offset of the random numbers' counter, which separates them from those of episodes."""
_FIRST, _SECOND = np.int32(0), np.int32(4)
"""First columns of the two groups of four in a material's row."""
_LIGHT, _PERIOD = np.float32(1.0 / LIGHT_STEPS), np.uint32(PERIOD)


class MaterialLibrary(NamedTuple):
    """Finishes to choose from, grouped by kind."""

    materials: tuple[Material, ...]
    """Two per finish: the finish, and the mean colour of its texture."""
    textures: tuple[Texture, ...]
    starts: np.ndarray
    """i32 [kinds + 1]: first finish of each kind."""


def finish_rows(finish: np.ndarray) -> list[tuple[int, int, int, int]]:
    """Rows (see `FINISH_WIDTH`) of a house's materials from its `Surface.finish`; equal in every bank and process."""
    house = np.array(zlib.crc32(np.ascontiguousarray(finish).data), np.uint32).view(np.int32)
    number, kind, light, is_mean = finish.T
    rows = np.column_stack([np.broadcast_to(house, number.shape), number, kind, 2 * light + is_mean])
    rows[kind < 0] = FIXED
    return list(map(tuple, rows.tolist()))


class MaterialSampler:
    """Randomises the materials of a bank.

    Args:
        finish: i32 [M, 4], `Appearance.finish` of the bank.
        materials: f32 [M or more, 8], `Appearance.materials` of the bank.
        library: finishes to choose from.
        first: row of `materials` where the library's materials begin.
    """

    def __init__(self, finish: torch.Tensor, materials: torch.Tensor, library: MaterialLibrary, first: int):
        self._finish, self._materials, self._first = finish, materials, np.int32(first)
        self._starts = torch.from_numpy(library.starts).to(finish.device)
        self.count = torch.zeros(1, dtype=torch.int32, device=finish.device)
        """Number of the randomisation whose materials the bank holds, i32 [1]."""

    def with_materials(self, materials: torch.Tensor) -> MaterialSampler:
        """A sampler that writes to `materials`, another copy of the bank's materials."""
        other = copy.copy(self)
        other._materials, other.count = materials, self.count.clone()
        return other

    def sample(self, seed: torch.Tensor, count: int, every_house: bool = True) -> None:
        """Write the materials of randomisation number `count`; `seed` is i64 [1], on the device.

        With `every_house` off it writes only the houses that change at this call; the others must hold the materials of
        call `count - 1`.
        """
        arguments = view(self._finish), view(self._starts), view(seed), np.int64(count), every_house, self._first
        sample_material(len(self._finish), *arguments, view(self._materials))
        self.count.fill_(count)


@kernel(index="np.int32", fastmath=True)
@inline_function
def sample_material(row, finish, starts, seed, count, every_house, first, materials_out):
    """Write row `row` of the materials: the finish that its house has at this call, with the row's shade."""
    house, number, kind, shade = load4(finish, row, _FIRST)
    if kind < 0 or kind >= len(starts) - 1 or starts[kind + 1] == starts[kind]:
        return
    key = np.uint32(house)
    calls = np.uint32(np.uint32(count) + key % _PERIOD)
    time = np.uint32(calls // _PERIOD)
    if not every_house and calls % _PERIOD != 0:
        return
    u, _, _, _ = uniform4(seed[0], key, time, np.uint32(_STREAM + np.uint32(number)))
    size = np.int32(starts[kind + 1] - starts[kind])
    chosen = np.int32(starts[kind] + min(np.int32(u * np.float32(size)), np.int32(size - np.int32(1))))
    source = np.int32(first + np.int32(2) * chosen + (shade & np.int32(1)))
    light = np.float32(shade >> np.int32(1)) * _LIGHT
    red, green, blue, level = load4(materials_out, source, _FIRST)
    width, height, flags, last = load4(materials_out, source, _SECOND)
    store4(materials_out, row, _FIRST, (light * red, light * green, light * blue, level))
    store4(materials_out, row, _SECOND, (width, height, flags, last))
