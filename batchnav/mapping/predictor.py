"""What nobody has seen yet, guessed: occupancy anticipation for the maps of `mapping/integrate.py`.

After Ramakrishnan, Al-Halah and Grauman, "Occupancy anticipation for efficient exploration and navigation" (ECCV 2020):
a U-Net (Ronneberger, Fischer and Brox, "U-Net: convolutional networks for biomedical image segmentation", MICCAI 2015)
reads the map so far, and where goal, start and agent are, and gives odds for every cell: that it is blocked, to begin
with. To the search in `mapping/shortest_path.py` an unseen cell is as dear as they are high, so `train/anticipation.py` then
trains them to be such that the ways that agents follow are as long as they will turn out to be, in the mean.
"""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import safetensors.torch
import torch
from safetensors import SafetensorError
from torch import nn
from torch.nn import functional
from torch.nn.utils.fusion import fuse_conv_bn_eval

from batchnav.errors import CheckpointError
from batchnav.mapping.integrate import EVERY, OBSTACLE, SIDE, Known
from batchnav.mapping.shortest_path import PARTS
from batchnav.runtime.files.atomic import read_regular, replacing, safetensors_bytes
from batchnav.runtime.files.bundled import check_bundled, find_anticipation

WINDOW = 128
"""Cells along the sides of the square around the agent that is guessed: 25.6 m, where cells are not larger."""
_ONE_TURN = 1.01
"""Turns that who looks around is yet to make when its guess is made, at most, so that its first plan has it; and
rounding."""
_SPARE = 1.125
"""CUDA: room for so many times the guesses of an average step. Where more are due, those wait that waited least."""
_FEW = 256
"""CUDA: room for so many guesses a step, or one for each agent where they are fewer, so that none of those waits."""
_BATCH = 64
"""CPU: maps that the network reads at a time."""
_PLANES, _SPOT = 6, 2.0
"""What the network reads: seen free, seen blocked, unseen, and spots at goal, start and agent, of so many cells'
standard deviation."""
_WIDTHS = (32, 64, 96, 128, 128)
"""Channels, from squares of 2 x 2 cells to its coarsest level."""
MOST_ADDED = 60 * PARTS
"""The most that is added to a cell's toll in parts: thirty times what free ground has."""


@dataclass(frozen=True)
class MapConfig:
    """How the sensors "ego_map" and "waypoint" come by what they tell. Defaults: what nobody has seen is free."""

    anticipation: str = ""
    """Weights that guess what unseen cells cost, which makes the plan avoid what is likely blocked: a file that
    `train/anticipation.py` wrote, or the name of one that comes with batchnav, "occupancy". "": none. A policy's file
    keeps what is said here, not the weights."""
    look_around: bool = False
    """Whether "waypoint" points to the left at the start of an episode, until the main camera has seen all that is around.
    Turns make no way longer, and a guess is better for it."""

    def validate(self) -> None:
        """ConfigError where there is no such file."""
        if self.anticipation:
            find_anticipation(self.anticipation)


class Placed(Protocol):
    """Of the simulator's bodies, what a guess depends on."""

    @property
    def position(self) -> torch.Tensor:
        """f32 [N, 3]."""
        ...

    @property
    def heading(self) -> torch.Tensor:
        """f32 [N]."""
        ...

    @property
    def episode(self) -> torch.Tensor:
        """i32 [N]: counts each one's episodes."""
        ...

    @property
    def steps(self) -> torch.Tensor:
        """i32 [N]: in its episode, so far."""
        ...


class OccupancyNet(nn.Module):
    """From f32 [B, 6, WINDOW, WINDOW] to logits f32 [B, WINDOW, WINDOW], whose `odds` are what cells cost."""

    def __init__(self) -> None:
        super().__init__()
        pairs = list(itertools.pairwise(_WIDTHS))
        self.down = nn.ModuleList([_two_layers(4 * _PLANES, _WIDTHS[0]), *(_two_layers(a, b) for a, b in pairs)])
        self.up = nn.ModuleList([_two_layers(b + a, a) for a, b in pairs])
        self.out = nn.Conv2d(_WIDTHS[0], 4, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Down, and up beside what each level had."""
        levels = [self.down[0](functional.pixel_unshuffle(x, 2))]
        for layers in self.down[1:]:
            levels.append(layers(functional.max_pool2d(levels[-1], 2)))
        x = levels.pop()
        for layers in reversed(self.up):
            x = layers(torch.cat([functional.interpolate(x, scale_factor=2, mode="nearest"), levels.pop()], 1))
        return functional.pixel_shuffle(self.out(x), 2)[:, 0]


def _two_layers(inputs: int, outputs: int) -> nn.Sequential:
    """Convolutions of 3x3, each with batch normalisation and a ReLU."""
    layers: list[nn.Module] = []
    for channels in (inputs, outputs):
        layers += [nn.Conv2d(channels, outputs, 3, padding=1, bias=False), nn.BatchNorm2d(outputs), nn.ReLU(True)]
    return nn.Sequential(*layers)


def network_input(free: torch.Tensor, blocked: torch.Tensor, places: torch.Tensor) -> torch.Tensor:
    """The network's f32 [B, 6, WINDOW, WINDOW].

    Args:
        free: bool [B, WINDOW, WINDOW]: what was seen to be so.
        blocked: likewise.
        places: f32 [B, 3, 2]: columns and rows, in cells of the window, of goal, start and agent.
    """
    middles = torch.arange(WINDOW, device=free.device) + 0.5
    squares = (middles - places[..., None]) ** 2  # [B, 3, 2, WINDOW]
    spots = torch.exp(-(squares[:, :, 1, :, None] + squares[:, :, 0, None, :]) / (2 * _SPOT**2))
    return torch.cat([torch.stack([free, blocked, ~(free | blocked)], 1).float(), spots], 1)


def _fused(layers: nn.Module) -> nn.Sequential:
    """The same with fewer passes: the normalisation is part of the convolution."""
    parts: list[Any] = list(layers.children())
    fused = [(fuse_conv_bn_eval(parts[k], parts[k + 1]), parts[k + 2]) for k in range(0, len(parts), 3)]
    return nn.Sequential(*(layer for pair in fused for layer in pair))


class Windows:
    """The squares of WINDOW x WINDOW cells around where some agents were when they looked last, on their maps.

    Args:
        rows: i64 [B]: which agents.
        known: their maps.
        bodies: where they are, now.
        goal: f32 [N, 2]: what the goal sensor tells them, now.
    """

    def __init__(self, rows: torch.Tensor, known: Known, bodies: Placed, goal: torch.Tensor):
        frame, looked, goal = known.frame[rows], known.pose[rows][:, :2], goal[rows]
        angle = bodies.heading[rows] + goal[:, 1]
        away = goal[:, :1] * torch.stack([-torch.sin(angle), -torch.cos(angle)], 1)
        goal_at = bodies.position[rows][:, ::2] + away
        agent, there = ((place - frame[:, :2]) / frame[:, 2:] for place in (looked, goal_at))
        places = torch.stack([there, SIDE - there, agent], 1)  # a map has its middle between start and goal
        low = (agent.floor().long() - WINDOW // 2).clamp(0, SIDE - WINDOW)
        self.places = places - low[:, None]
        """f32 [B, 3, 2]: columns and rows, in cells of the window, of goal, start and agent."""
        along = low[:, :, None] + torch.arange(WINDOW, device=rows.device)
        self.cells = along[:, 1, :, None] * SIDE + along[:, 0, None, :]
        """i64 [B, WINDOW, WINDOW]: their numbers on the map."""
        self._rows = rows[:, None, None]

    def of(self, values: torch.Tensor) -> torch.Tensor:
        """[B, WINDOW, WINDOW] of [N, CELLS]."""
        return values[self._rows, self.cells]

    def put(self, values: torch.Tensor, out: torch.Tensor) -> None:
        """Write [B, WINDOW, WINDOW] into [N, CELLS]."""
        out[self._rows, self.cells] = values

    def seen(self, known: Known) -> tuple[torch.Tensor, torch.Tensor]:
        """Which cells were seen to be free, and which blocked: bool [B, WINDOW, WINDOW]."""
        blocked = self.of(known.stands) >= OBSTACLE
        return (self.of(known.ground) > 0) & ~blocked, blocked


class Anticipation:
    """Guesses what N agents have not seen, of each at its first step and every EVERY steps after it.

    Who looks around has its first guess when it has looked.

    Where a map has not changed since the last guess, that stays: from another place the network guesses otherwise, and
    agents would go to and fro between two ways for ever.

    On CUDA some wait, up to about as many steps more, where more than 256 begin their episodes at once.

    Args:
        weights: as `MapConfig.anticipation`.
        n: N.
        device: of the maps.
        turn: radians that an agent turns in a step, at most.
    """

    def __init__(self, weights: str, n: int, device: torch.device, turn: float):
        model = load_occupancy(weights).eval()
        model.down, model.up = (nn.ModuleList(map(_fused, parts)) for parts in (model.down, model.up))
        self._dtype = torch.bfloat16 if device.type == "cuda" else torch.float32
        placed: Any = model.requires_grad_(False).to(device, self._dtype)
        self._model = placed.to(memory_format=torch.channels_last)
        self._room, self._added, self._turn = _room_for(n), self._added_tolls, turn
        if device.type == "cuda" and self._room > _FEW:  # half a minute's work, which thousands are worth
            self._added = torch.compile(self._added_tolls, dynamic=False)

    @torch.no_grad()
    def guess(self, known: Known, bodies: Placed, goal: torch.Tensor) -> None:
        """Write `known.anticipated` where that is due, of maps as they were a step ago; in new episodes there is none.

        However often one asks in a step, it is done once.
        """
        has_looked = known.around <= _ONE_TURN * self._turn
        changed = (known.episode == bodies.episode) & (known.news > 0) & has_looked
        ago = torch.where(changed, bodies.steps - known.guessed, 0)
        if ago.is_cuda:
            rows = torch.argsort(ago, descending=True, stable=True)[: self._room]
            self._guess_for(rows, ago[rows] >= EVERY, known, bodies, goal)
            return
        for rows in (ago >= EVERY).nonzero()[:, 0].split(_BATCH):
            if len(rows):
                self._guess_for(rows, ago[rows] >= EVERY, known, bodies, goal)

    def _guess_for(
        self, rows: torch.Tensor, due: torch.Tensor, known: Known, bodies: Placed, goal: torch.Tensor
    ) -> None:
        """For these agents, where it is due."""
        windows = Windows(rows, known, bodies, goal)
        new, old = self._added(*windows.seen(known), windows.places), windows.of(known.anticipated)
        windows.put(torch.where(due[:, None, None], new, old), known.anticipated)
        known.news[rows] = torch.where(due, 0, known.news[rows])
        known.guessed[rows] = torch.where(due, bodies.steps[rows], known.guessed[rows])

    def _added_tolls(self, free: torch.Tensor, blocked: torch.Tensor, places: torch.Tensor) -> torch.Tensor:
        """By the network, of what `network_input` takes: u8 [B, WINDOW, WINDOW]."""
        inputs = network_input(free, blocked, places).to(self._dtype, memory_format=torch.channels_last)
        return odds(self._model(inputs).float()).round().to(torch.uint8)


def _room_for(n: int) -> int:
    """CUDA: for how many of N agents there is room in a step."""
    return min(n, max(_FEW, round(_SPARE * n / EVERY)))


def memory_needed(n: int, device: torch.device) -> int:
    """About how many bytes guesses for N agents take: six times the finest level's channels and the window's planes."""
    maps, number = (_room_for(n), 2) if device.type == "cuda" else (min(n, _BATCH), 4)
    return maps * WINDOW**2 * (6 * _WIDTHS[0] // 4 * number + 2 * _PLANES * 4)


def odds(logits: torch.Tensor) -> torch.Tensor:
    """What is added to the tolls of unseen cells, in parts before they are rounded: e to this power, up to a bound."""
    return MOST_ADDED * torch.sigmoid(logits - math.log(MOST_ADDED / PARTS))


def save_occupancy(path: Path, model: OccupancyNet) -> None:
    """Write weights, whole or not at all; numbers in bfloat16. CheckpointError where that cannot be."""
    weights = {
        name: value.to("cpu", torch.bfloat16 if value.is_floating_point() else value.dtype).contiguous()
        for name, value in model.state_dict().items()
    }
    with replacing(path, CheckpointError) as part:
        part.write_bytes(safetensors_bytes(weights, {}))


def load_occupancy(weights: str | Path) -> OccupancyNet:
    """The network of a file that `save_occupancy` wrote, or of one that comes with batchnav.

    ConfigError where there is no such file, CheckpointError where it is another.
    """
    path, model = find_anticipation(weights), OccupancyNet()
    check_bundled(path, CheckpointError)
    expected = "expected weights that train/anticipation.py wrote"
    try:
        found = safetensors.torch.load(read_regular(path, CheckpointError))
    except (SafetensorError, KeyError, ValueError) as error:
        raise CheckpointError(f"{path}: found something else ({error}), {expected}") from error
    wanted = model.state_dict()
    if other := found.keys() ^ wanted.keys():
        raise CheckpointError(f"{path}: found or missed {min(other)!r}, {expected}")
    for name, value in wanted.items():
        given = found[name]
        if given.shape != value.shape or given.is_floating_point() != value.is_floating_point():
            raise CheckpointError(f"{path}: {name}: found {given.dtype} {list(given.shape)}, {expected}")
        if not given.isfinite().all():
            raise CheckpointError(f"{path}: {name}: found values that are not finite, {expected}")
    model.load_state_dict(found)
    return model
