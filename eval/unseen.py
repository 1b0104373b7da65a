"""What the cells cost that an agent has not seen: the truth of those near what it saw, or a learned guess.

For `eval/without_map.py`. The guess is occupancy anticipation (Ramakrishnan, Al-Halah and Grauman, "Occupancy
anticipation for efficient exploration and navigation", ECCV 2020): a U-Net (Ronneberger, Fischer and Brox, "U-Net:
convolutional networks for biomedical image segmentation", MICCAI 2015) reads the map so far, and where goal, start and
agent are, and says how much of what is unseen is blocked. `eval/guess.py` trains it.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np
import safetensors.torch
import torch
from safetensors import SafetensorError
from scipy import ndimage
from torch import nn
from torch.nn import functional

from batchnav.errors import ArgumentError, BatchnavError
from batchnav.runtime.files import read_regular, replacing, safetensors_bytes
from eval.free_space import BLOCKED, CELL, MARGIN, Maps

BLOCK = 4
"""Cells along a side of a block, for which there is one guess: 0.2 m."""
CANVAS = 128
"""Blocks along a side of the largest canvas: 25.6 m."""
WIDTHS = (16, 32, 64, 96, 96)
"""Channels of the U-Net, from blocks to its coarsest level."""
MULTIPLE = 2 ** (len(WIDTHS) - 1)
"""Of blocks, along a side of every canvas."""
CHANNELS = 6
"""Shares that are seen free, seen blocked and unseen; spots at goal, start and agent."""
SPOT = 2.0
"""Blocks: a spot's standard deviation."""
EVERY = 4
"""Steps from one guess to the next at least."""
NEWS = 41
"""Cells that have to be seen in between."""
SLOPE, DEAREST = np.float32(3.0), np.float32(100.0)
"""Of `cost_of`: how fast costs rise, and how far."""


class Truth:
    """Unseen cells within so many metres of a seen one cost what they will when they are seen; others are free."""

    every, news = 1, 1

    def __init__(self, within: float):
        if not (math.isfinite(within) and within >= 0.0):
            raise ArgumentError(f"truth_within: found {within}, expected metres, 0 or more")
        self.name, self.within = f"truth {within:g}", within

    def costs(self, which: np.ndarray, maps: Maps, places: np.ndarray) -> Iterator[tuple[int, np.ndarray]]:
        """For each of these maps its number, and f32 [rows, columns]: what a metre of its unseen cells costs."""
        for i in which:
            rows, columns = maps.size[i]
            known, free = maps.known[i, :rows, :columns], maps.free[i, :rows, :columns]
            blocked = ~free & (ndimage.distance_transform_edt(~known) * CELL <= self.within)
            beside = ndimage.binary_dilation(blocked, np.ones((3, 3)))
            yield i, np.where(blocked, BLOCKED, np.where(beside, MARGIN, np.float32(1.0)))


class Guess:
    """Unseen cells that a U-Net takes for blocked rather than free are dearer, the more so the surer it is."""

    name, every, news = "guess", EVERY, NEWS

    def __init__(self, model: UNet):
        self.model = model.eval()

    @torch.no_grad()
    def costs(self, which: np.ndarray, maps: Maps, places: np.ndarray) -> Iterator[tuple[int, np.ndarray]]:
        """As `Truth.costs`, with `places` as `MapAgent` has them."""
        roomy = (maps.size[which].max(1) // BLOCK // MULTIPLE + 2) * MULTIPLE  # a margin of half a MULTIPLE around
        sizes = np.minimum(roomy, CANVAS)
        for size in np.unique(sizes):
            group = which[sizes == size]
            views = [view_of(i, maps, places[i], size) for i in group]
            seen = torch.from_numpy(np.stack([view.seen for view in views]))
            spots = torch.from_numpy(np.stack([view.places for view in views]))
            chance = torch.sigmoid(self.model(network_input(seen, spots)))
            fine = functional.interpolate(chance, scale_factor=BLOCK, mode="bilinear")[:, 0].numpy()
            for i, view, cost in zip(group, views, cost_of(fine), strict=True):
                # What is not on the canvas costs what the canvas's edge does.
                r, c = (
                    np.clip(np.arange(n) - low * BLOCK, 0, size * BLOCK - 1)
                    for n, low in zip(maps.size[i], view.low, strict=True)
                )
                yield i, cost[np.ix_(r, c)]


def cost_of(chance: np.ndarray) -> np.ndarray:
    """What a metre costs with this chance to be blocked, f32: 1 where that is less likely than not."""
    with np.errstate(divide="ignore"):
        return np.minimum(1 + SLOPE * np.maximum(chance - np.float32(0.5), 0) / (1 - chance), DEAREST)


class View(NamedTuple):
    """A map in blocks, on a canvas that has its middle, or, where it is larger, the agent."""

    seen: np.ndarray
    """u8 [2, S, S]: how many cells of a block are known, and free or blocked."""
    places: np.ndarray
    """f32 [3, 2]: rows and columns, in blocks of the canvas, of goal, start and agent."""
    low: np.ndarray
    """i64 [2]: row and column of the canvas's first block among those of the map."""


def view_of(i: int, maps: Maps, places: np.ndarray, size: int) -> View:
    """Map i, with its `places` f64 [3, 2] in cells, on a canvas of so many blocks."""
    blocks = maps.size[i] // BLOCK
    around = np.clip(places[2].astype(int) // BLOCK - size // 2, 0, np.maximum(blocks - size, 0))
    low = np.where(blocks <= size, -((size - blocks) // 2), around)
    rows, columns = maps.size[i]
    known, free = maps.known[i, :rows, :columns], maps.free[i, :rows, :columns]
    seen = np.stack([in_blocks(cells, low, size, False) for cells in (known & free, known & ~free)])
    return View(seen, (places / BLOCK - low).astype(np.float32), low)


def in_blocks(cells: np.ndarray, low: np.ndarray, size: int, outside: bool) -> np.ndarray:
    """How many cells of bool [rows, columns] are set in each block of a canvas, u8 [size, size]; `outside` of them."""
    canvas = np.full((size * BLOCK, size * BLOCK), outside)
    first = -low * BLOCK  # of the cells, on the canvas
    begin, end = np.maximum(first, 0), np.minimum(first + cells.shape, size * BLOCK)
    (top, left), (bottom, right) = begin - first, end - first
    canvas[begin[0] : end[0], begin[1] : end[1]] = cells[top:bottom, left:right]
    counts = canvas.reshape(size, BLOCK, size * BLOCK).sum(1, dtype=np.uint8)
    return counts.reshape(size, size, BLOCK).sum(2, dtype=np.uint8)


def network_input(seen: torch.Tensor, places: torch.Tensor) -> torch.Tensor:
    """The U-Net's f32 [B, CHANNELS, S, S], from B views' `seen` u8 [B, 2, S, S] and `places` f32 [B, 3, 2]."""
    shares = seen.float() / BLOCK**2
    middles = torch.arange(seen.shape[-1], device=seen.device) + 0.5
    squares = (middles - places[..., None]) ** 2  # [B, 3, 2, S]
    spots = torch.exp(-(squares[:, :, 0, :, None] + squares[:, :, 1, None, :]) / (2 * SPOT**2))
    return torch.cat([shares, 1 - shares.sum(1, keepdim=True), spots], 1)


class UNet(nn.Module):
    """From f32 [B, CHANNELS, S, S] to logits f32 [B, 1, S, S]: of a block's unseen cells, the share that is blocked."""

    def __init__(self) -> None:
        super().__init__()
        pairs = list(itertools.pairwise(WIDTHS))
        self.down = nn.ModuleList([two_layers(CHANNELS, WIDTHS[0]), *(two_layers(a, b) for a, b in pairs)])
        self.up = nn.ModuleList([two_layers(b + a, a) for a, b in pairs])
        self.out = nn.Conv2d(WIDTHS[0], 1, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Down, and up beside what each level had."""
        levels = [self.down[0](x)]
        for layers in self.down[1:]:
            levels.append(layers(functional.max_pool2d(levels[-1], 2)))
        x = levels.pop()
        for layers in reversed(self.up):
            x = layers(torch.cat([functional.interpolate(x, scale_factor=2, mode="nearest"), levels.pop()], 1))
        return self.out(x)


def two_layers(inputs: int, outputs: int) -> nn.Sequential:
    """Convolutions of 3x3, each with batch normalisation and a ReLU."""
    layers: list[nn.Module] = []
    for channels in (inputs, outputs):
        layers += [
            nn.Conv2d(channels, outputs, 3, padding=1, bias=False),
            nn.BatchNorm2d(outputs),
            nn.ReLU(inplace=True),
        ]
    return nn.Sequential(*layers)


def save_guess(path: Path, model: UNet) -> None:
    """Write weights, whole or not at all."""
    with replacing(path, BatchnavError) as part:
        part.write_bytes(safetensors_bytes({name: value.cpu() for name, value in model.state_dict().items()}, {}))


def load_guess(path: Path) -> UNet:
    """The U-Net of a file that `save_guess` wrote. ArgumentError where it is none."""
    model = UNet()
    try:
        model.load_state_dict(safetensors.torch.load(read_regular(path, ArgumentError)))
    except (SafetensorError, RuntimeError) as error:
        raise ArgumentError(f"{path}: found something else, expected weights that eval/guess.py wrote") from error
    return model
