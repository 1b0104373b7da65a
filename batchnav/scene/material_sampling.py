"""MaterialSampler of houses, drawn anew: other colours and textures on the same surfaces, while the bank is in use.

A house that always looks the same is known by its walls, and an agent that sees colour learns it by heart. Here each
finish of a house (the paint of a room, a floor, a sofa's cloth) takes the place of another of its kind, as houses have
them: equal ones stay equal, and shades of one stay its shades. Textures are of one family, which cover as many metres,
so no triangle's place in its texture changes. What has no finishes, as scans and other files, stays as it is.

What a house looks like follows from the seed and the number of times that finishes were drawn: there is no other
state, and one launch writes the rows of materials, which stay where they are.
"""

from __future__ import annotations

import copy
import zlib
from typing import NamedTuple

import numpy as np
import torch
from numba import prange

from batchnav.runtime.kernels.arrays import view
from batchnav.runtime.kernels.decorators import cpu_kernel, cuda, cuda_kernel, inline_function
from batchnav.runtime.kernels.intrinsics import load4, store4
from batchnav.runtime.kernels.launch import launch
from batchnav.runtime.kernels.rng import uniform4
from batchnav.types import LIGHT_STEPS, Material, Texture

PERIOD = 16
"""A house looks the same for so many calls in a row; houses change at different ones. Agents that are in the house then
see it change, within an episode: so it is to be seldom."""
FINISH_WIDTH = 4
"""Columns of a material's row: its house (a check sum of its `Surface.finish`), then as there, but for the last two,
which are one: 2 x light + 1 for the mean colour."""
STAYS = (0, 0, -1, 0)
"""The row of materials that stay as they are."""
_STREAM = np.uint32(0x46000000)
"""Begins the numbers of draws, so that they are not those of episodes."""
_FIRST, _SECOND = np.int32(0), np.int32(4)
_LIGHT, _PERIOD = np.float32(1.0 / LIGHT_STEPS), np.uint32(PERIOD)


class MaterialLibrary(NamedTuple):
    """MaterialSampler to choose from, by kind."""

    materials: tuple[Material, ...]
    """Two of each finish: itself, and the mean colour of its texture."""
    textures: tuple[Texture, ...]
    starts: np.ndarray
    """i32 [kinds + 1]: the first finish of each kind."""


def finish_rows(finish: np.ndarray) -> list[tuple[int, int, int, int]]:
    """The rows of a house's materials, whose `Surface.finish` is given; the same in every bank and process."""
    house = np.array(zlib.crc32(np.ascontiguousarray(finish).data), np.uint32).view(np.int32)
    number, kind, light, is_mean = finish.T
    rows = np.column_stack([np.broadcast_to(house, number.shape), number, kind, 2 * light + is_mean])
    rows[kind < 0] = STAYS
    return list(map(tuple, rows.tolist()))


class MaterialSampler:
    """The finishes of a bank's houses.

    Args:
        finish: i32 [M, 4], of the bank's `Appearance`.
        materials: f32 [M or more, 8], likewise.
        swatches: what they are drawn from.
        first: the row of `materials` where those of the swatches begin.
    """

    def __init__(self, finish: torch.Tensor, materials: torch.Tensor, swatches: MaterialLibrary, first: int):
        self._finish, self._materials, self._first = finish, materials, np.int32(first)
        self._starts = torch.from_numpy(swatches.starts).to(finish.device)

    def of(self, materials: torch.Tensor) -> MaterialSampler:
        """The same finishes, of a copy of the materials."""
        other = copy.copy(self)
        other._materials = materials
        return other

    def sample(self, seed: torch.Tensor, count: int, every_house: bool = True) -> None:
        """Write the materials as they are the `count`th time; `seed` is i64 [1], on the device.

        Without `every_house`, of those alone that change then: the others were written by the call before.
        """
        arguments = view(self._finish), view(self._starts), view(seed), np.int64(count), every_house, self._first
        if self._materials.is_cuda:
            launch(_sample_cuda, len(self._finish), *arguments, view(self._materials))
        else:
            _sample_cpu(*arguments, view(self._materials))


@inline_function
def _sample(row, finish, starts, seed, count, every_house, first, materials_out):
    """Write one material."""
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
    swatch = np.int32(first + np.int32(2) * chosen + (shade & np.int32(1)))
    light = np.float32(shade >> np.int32(1)) * _LIGHT
    red, green, blue, level = load4(materials_out, swatch, _FIRST)
    width, height, flags, last = load4(materials_out, swatch, _SECOND)
    store4(materials_out, row, _FIRST, (light * red, light * green, light * blue, level))
    store4(materials_out, row, _SECOND, (width, height, flags, last))


@cpu_kernel
def _sample_cpu(finish, starts, seed, count, every_house, first, materials_out):
    for row in prange(len(finish)):
        _sample(np.int32(row), finish, starts, seed, count, every_house, first, materials_out)


@cuda_kernel
def _sample_cuda(finish, starts, seed, count, every_house, first, materials_out):
    row = np.int32(cuda.grid(1))
    if row < len(finish):
        _sample(row, finish, starts, seed, count, every_house, first, materials_out)
