"""Train the network that guesses what agents have not seen: the weights that `map.anticipation` names.

    python train/anticipation.py --out runs/tolls.safetensors
    python train/anticipation.py --out runs/mine.safetensors --scenes my/scans house:0-1023
    python train/anticipation.py --out runs/mine.safetensors --scenes my/scans --init-from occupancy --steps 0
    batchnav train --config pointnav_waypoint_houses_h200 --env.map.anticipation runs/mine.safetensors --out runs/mine

An agent that maps what it sees walks in these scenes (`train/anticipation_maps.py`). First the network of
`batchnav/mapping/predictor.py` learns by cells: the odds that each is blocked. Then by ways: with its odds as tolls,
the way from where the agent may leave what it has seen is to be as long as it truly is, and the one that is shortest
there is to be the shortest. Half of the maps are turned by some angle, since walls of scans and before robots run along
no axis. In every tenth scene, which is held out, what it has learned is measured.
"""

from __future__ import annotations

import math
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import torch
import tyro
from rich.console import Console
from rich.table import Table
from torch.nn import functional

from batchnav.data.scenes import load_scenes
from batchnav.errors import ArgumentError, BatchnavError, CheckpointError
from batchnav.mapping.integrate import OBSTACLE, SIDE
from batchnav.mapping.learn.path_cost_gradient import Ends, Maps, way_times
from batchnav.mapping.predictor import (
    WINDOW,
    OccupancyNet,
    load_occupancy,
    network_input,
    odds,
    save_occupancy,
)
from batchnav.mapping.shortest_path import SIDE_OF_FREE
from batchnav.runtime.checks import check_int, check_number
from batchnav.runtime.console.announce import announce, number_of
from batchnav.runtime.console.progress import progress_bar
from batchnav.runtime.device import resolve_device
from batchnav.runtime.files.atomic import check_writable
from batchnav.scene.bank import SceneBank
from train.anticipation_maps import THROUGH_OBSTACLE, Recorded, record

HELD_OUT = 10
"""Scenes of which one is not trained in."""
DECAY, WARM_UP = 1e-3, 100
"""AdamW's weight decay, and the steps in which the rate rises."""
LARGEST_NORM = 1.0
"""To which gradients are clipped."""
TURNED = 0.5
"""Of the steps of training, how many see maps turned by an angle; the others only mirror them and exchange axes."""
TURN_DEG = 30.0
"""The angle by which maps are turned that are measured on once more."""
OUTSIDE = 0.1
"""What a cell outside of the floor's bounds weighs in training."""
FROM_CELLS = 0.1
"""The rate of learning by ways, as a share of that by cells, from which it goes on."""
LINEAR = 2.0
"""Metres of error of a way's length from which on the loss is linear: some ways are far longer than one can guess."""
TEMPERATURE = 1.0
"""Metres: of two ways one that is guessed to be so much longer is chosen 1/e times as often."""
LONGER = 20.0
"""Metres that a choice costs at most, likewise."""
MEASURED = 2048
"""Maps of the scenes held out that are measured on, at most."""
NEAR = 5
"""Cells from a seen one that are near to it: a metre."""
NOTICE = 500
"""Steps of training between two lines that say the loss, when the weights are written too."""


@dataclass(frozen=True)
class Options:
    """What to learn from, and how long."""

    out: Path
    """File of weights to write, .safetensors."""
    scenes: tuple[str, ...] = ("house:0-511",)
    """Scene ids, ranges as house:0-511, and folders, as `batchnav.load_scenes` takes them."""
    maps: int = 20_000
    """To record; one takes 37 KB."""
    num_envs: int = 256
    """Environments that record at a time."""
    steps: int = 3000
    """Of training by cells."""
    way_steps: int = 1500
    """Of training by ways, after them."""
    batch: int = 32
    """Maps in a step of training."""
    learning_rate: float = 3e-3
    """Of AdamW by cells, at its peak; it falls to nothing. By ways a tenth of it."""
    init_from: str = ""
    """Weights to begin with, and to record with: a file that this program wrote, or "occupancy", those that come with
    batchnav. "": new ones, and agents that take the unseen for free."""
    seed: int = 0
    """Of the episodes, what is recorded of them, the first weights and the batches."""
    device: str = "auto"


def main(options: Options) -> None:
    for name, least in (("maps", 2), ("num_envs", 1), ("steps", 0), ("way_steps", 0), ("batch", 2)):
        check_int(name, getattr(options, name), least, 2**31 - 1)
    check_number("learning_rate", options.learning_rate, 0.0, 1.0)
    if not (options.steps or options.way_steps):
        raise ArgumentError("steps, way_steps: found 0 and 0, expected more of one: there would be nothing to write")
    model = load_occupancy(options.init_from) if options.init_from else None
    check_writable(options.out.parent, CheckpointError)
    if options.out.is_dir():
        raise CheckpointError(f"{options.out}: found a folder, expected a file, or a place for one")
    device, generator = resolve_device(options.device), torch.Generator().manual_seed(options.seed)
    bank = SceneBank.pack(load_scenes(options.scenes, appearance=False), device)
    if bank.num_scenes < HELD_OUT:
        found = number_of(bank.num_scenes, "scene")
        raise ArgumentError(f"scenes: found {found}, expected {HELD_OUT} or more: of so many one is held out")
    recorded = record(bank, options.maps, options.num_envs, generator, options.seed, options.init_from)
    announce(f"{number_of(len(recorded.cells), 'map')} of {number_of(len(recorded.scene.unique()), 'scene')}")
    learned, held_out = split(recorded, generator)
    torch.manual_seed(options.seed)
    model = (model or OccupancyNet()).to(device, memory_format=torch.channels_last)
    for steps, rate, by_ways in ((options.steps, 1.0, False), (options.way_steps, FROM_CELLS, True)):
        if steps:
            rate *= options.learning_rate
            train(model, recorded, learned, steps, options.batch, generator, rate, by_ways, options.out)
        show(model, recorded, held_out, options.batch)


# Training.


class Batch(NamedTuple):
    """Some maps, as the network reads them, turned in some way."""

    inputs: torch.Tensor
    """f32 [B, 6, WINDOW, WINDOW]."""
    unseen: torch.Tensor
    """bool [B, WINDOW, WINDOW]: what is to be guessed, where the truth was recorded."""
    blocked: torch.Tensor
    """f32 [B, WINDOW, WINDOW]: 1 where the navmesh is not."""
    inside: torch.Tensor
    """bool [B, WINDOW, WINDOW]: whether a cell is within the floor's bounds, as far as the window reaches."""


def split(recorded: Recorded, generator: torch.Generator) -> tuple[torch.Tensor, torch.Tensor]:
    """Numbers of the maps to train with, and of some to measure on. ArgumentError where there are none of either."""
    held_out = (recorded.scene % HELD_OUT == HELD_OUT - 1).cpu()
    learned, measured = (~held_out).nonzero()[:, 0], held_out.nonzero()[:, 0]
    if not (len(learned) and len(measured)):
        found = f"{len(learned)} and {len(measured)}"
        raise ArgumentError(
            f"maps: found {found} of scenes to learn from and of scenes held out, expected more of both"
        )
    return learned, measured[torch.randperm(len(measured), generator=generator)[:MEASURED]]


def turn_by(angle: float, mirrored: bool = False) -> torch.Tensor:
    """The matrix f32 [2, 2] of a turn of columns and rows by an angle in radians, after they were mirrored."""
    cos, sin = math.cos(angle), math.sin(angle)
    return torch.tensor([[cos, -sin], [sin, cos]]) @ torch.diag(torch.tensor([-1.0 if mirrored else 1.0, 1.0]))


def draw_turn(generator: torch.Generator) -> torch.Tensor:
    """One of eight turns that lose nothing, or one by any angle."""
    which, share, mirrored, quarters = torch.rand(4, generator=generator).tolist()
    angle = share * 2 * math.pi if which < TURNED else math.pi / 2 * int(4 * quarters)
    return turn_by(angle, mirrored < 0.5)


def places_after(turn: torch.Tensor, places: torch.Tensor) -> torch.Tensor:
    """Where places on the window f32 [..., 2], columns and rows, are after a turn about its middle."""
    return (places - WINDOW / 2) @ turn.T.to(places.device) + WINDOW / 2


def middles(device: torch.device) -> torch.Tensor:
    """Of the window's cells: f32 [WINDOW, WINDOW, 2]."""
    each = torch.arange(WINDOW, device=device) + 0.5
    return torch.stack(torch.meshgrid(each, each, indexing="xy"), 2)


def turned(recorded: Recorded, turn: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """The cells of each map that a turned window's cells lie on, i64 [B, WINDOW, WINDOW], and where there are any."""
    at = places_after(turn.T, middles(turn.device)).floor().long().to(recorded.low.device)
    columns, rows = (recorded.low[:, None, None] + at).unbind(3)
    on_map = (columns >= 0) & (columns < SIDE) & (rows >= 0) & (rows < SIDE)
    return (rows * SIDE + columns) * on_map, on_map


def batch_of(recorded: Recorded, turn: torch.Tensor | None = None) -> Batch:
    """These maps, turned."""
    turn = torch.eye(2) if turn is None else turn
    cells, on_map = turned(recorded, turn)
    stands, ground, walkable = (
        values.gather(1, cells.flatten(1)).view_as(cells)
        for values in (recorded.stands, recorded.ground, recorded.walkable)
    )
    blocked = (stands >= OBSTACLE) & on_map
    free, walkable = (ground > 0) & ~blocked & on_map, walkable & on_map
    inside = between(walkable.any(2))[:, :, None] & between(walkable.any(1))[:, None, :]
    inputs = network_input(free, blocked, places_after(turn, recorded.places))
    return Batch(inputs, on_map & ~(free | blocked), (~walkable).float(), inside)


def between(marked: torch.Tensor) -> torch.Tensor:
    """Bool [B, W]: from the first marked one to the last, and one beside each."""
    first, last = (values.cummax(1).values for values in (marked.byte(), marked.byte().flip(1)))
    inside = (first * last.flip(1))[:, None].float()
    return functional.max_pool1d(inside, 3, 1, 1)[:, 0] > 0


def logits_of(model: OccupancyNet, maps: Batch) -> torch.Tensor:
    """What the network says of them: f32 [B, WINDOW, WINDOW]."""
    with torch.autocast(maps.inputs.device.type, torch.bfloat16):
        logits: torch.Tensor = model(maps.inputs.contiguous(memory_format=torch.channels_last))
    return logits.float()


def loss_by_cells(model: OccupancyNet, maps: Recorded, turn: torch.Tensor) -> torch.Tensor:
    """The log loss of unseen cells."""
    batch = batch_of(maps, turn)
    weight = torch.where(batch.inside, 1.0, OUTSIDE) * batch.unseen
    logits = logits_of(model, batch)
    loss = functional.binary_cross_entropy_with_logits(logits, batch.blocked, weight, reduction="sum")
    return loss / weight.sum()


class Ways(NamedTuple):
    """From cells where agents may leave what they have seen, and from where they are, which comes first."""

    guessed: torch.Tensor
    """f32 [B, STARTS]: metres to the goal, as it is guessed."""
    true: torch.Tensor
    """f32 [B, STARTS]: as it is."""
    reach: torch.Tensor
    """f32 [B, STARTS]: from the agent to there."""
    good: torch.Tensor
    """bool [B, STARTS]: whether there are such ways."""


def ways_of(model: OccupancyNet, maps: Recorded, turn: torch.Tensor) -> Ways:
    """The ways over these maps with what the network guesses on them as they are turned."""
    device = maps.cells.device
    turned_odds = odds(logits_of(model, batch_of(maps, turn)))
    columns, rows = places_after(turn, middles(turn.device)).floor().long().to(device).unbind(2)
    within = (columns >= 0) & (columns < WINDOW) & (rows >= 0) & (rows < WINDOW)
    guessed = turned_odds[:, rows.clamp(0, WINDOW - 1), columns.clamp(0, WINDOW - 1)] * within
    cells, _ = turned(maps, torch.eye(2))
    added = torch.zeros(maps.cells.shape, device=device).scatter(1, cells.flatten(1), guessed.flatten(1))
    time = way_times(Maps(maps.stands, maps.ground), Ends(maps.goal, maps.starts), added)
    good = (maps.starts >= 0) & (time < THROUGH_OBSTACLE) & (maps.left < THROUGH_OBSTACLE)
    metres = maps.size[:, None] / float(SIDE_OF_FREE)
    return Ways(*(torch.where(good, value * metres, 0.0) for value in (time, maps.left, maps.reach)), good)


def loss_by_ways(model: OccupancyNet, maps: Recorded, turn: torch.Tensor) -> torch.Tensor:
    """By how much lengths differ, and how much longer the ways are that an agent chooses by them.

    It chooses by chance, the shorter ones oftener: the mean of what it loses has a gradient then.
    """
    ways = ways_of(model, maps, turn)
    error = functional.smooth_l1_loss(ways.guessed, ways.true, reduction="none", beta=LINEAR)
    chosen = torch.softmax(choices(ways.reach + ways.guessed, ways.good) / -TEMPERATURE, 1)
    several = ways.good[:, 1:].sum(1) > 1
    lost = chosen * lost_by(ways)  # nothing where there is no choice
    return (error * ways.good).sum() / ways.good.sum().clamp(min=1) + lost.sum() / several.sum().clamp(min=1)


def choices(metres: torch.Tensor, good: torch.Tensor) -> torch.Tensor:
    """Of each map those of the cells at which the agent may leave what it has seen; the others are far: f32 [B, K]."""
    return torch.where(good[:, 1:], metres[:, 1:], 1e4)


def lost_by(ways: Ways) -> torch.Tensor:
    """How much longer the true way by each of those cells is than by the best of them: metres, f32 [B, K]."""
    true = choices(ways.reach + ways.true, ways.good)
    return (true - true.min(1, keepdim=True).values).clamp(max=LONGER) * ways.good[:, 1:]


def train(
    model: OccupancyNet,
    recorded: Recorded,
    rows: torch.Tensor,
    steps: int,
    batch: int,
    generator: torch.Generator,
    learning_rate: float,
    by_ways: bool = False,
    out: Path | None = None,
) -> list[float]:
    """Fit a model on its device to maps with these numbers: the mean loss of every NOTICE steps.

    Its weights are written as often, where there is a file for them.
    """
    losses: list[float] = []
    optimizer = torch.optim.AdamW(model.parameters(), lr=learning_rate, weight_decay=DECAY)
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda k: min(1, (k + 1) / WARM_UP) * (1 - k / steps))
    total = torch.zeros((), device=recorded.cells.device)
    loss_of, name = (loss_by_ways, "ways") if by_ways else (loss_by_cells, "cells")
    model.train(not by_ways)  # by ways it goes on with the means and variances that agents will have
    with progress_bar(f"steps of training by {name}", steps) as counted:
        for step in range(1, steps + 1):
            maps = recorded.of(rows[torch.randint(len(rows), (batch,), generator=generator)])
            loss = loss_of(model, maps, draw_turn(generator))
            optimizer.zero_grad()
            loss.backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), LARGEST_NORM)
            optimizer.step()
            schedule.step()
            total += loss.detach()
            counted(step)
            if step % NOTICE == 0 or step == steps:
                losses.append(total.item() / ((step - 1) % NOTICE + 1))
                total.zero_()
                announce(f"step {step}: loss by {name} {losses[-1]:.4f}")
                if out is not None:
                    save_occupancy(out, model)
    return losses


# Measuring.


@torch.no_grad()
def log_losses(
    model: OccupancyNet, recorded: Recorded, rows: torch.Tensor, batch: int, turn: torch.Tensor
) -> dict[str, tuple[float, float]]:
    """Nats for an unseen cell within the floor's bounds, within a metre of a seen one and of all, by who guesses."""
    sums, counts, blocked = torch.zeros(2, dtype=torch.float64), torch.zeros(2), torch.zeros(2)
    for part in rows.split(batch):
        maps = batch_of(recorded.of(part), turn)
        nats = functional.binary_cross_entropy_with_logits(logits_of(model, maps), maps.blocked, reduction="none")
        seen = maps.inputs[:, :2].sum(1, keepdim=True)
        close = functional.max_pool2d(seen, 2 * NEAR + 1, 1, NEAR)[:, 0] > 0
        unseen = maps.inside & maps.unseen
        for k, where in enumerate((unseen & close, unseen)):
            sums[k] += nats[where].double().sum().cpu()
            counts[k] += where.sum().cpu()
            blocked[k] += maps.blocked[where].sum().cpu()
    share = (blocked / counts).clamp(1e-6, 1 - 1e-6)
    constant = -(share * share.log() + (1 - share) * (1 - share).log())
    near, everywhere = (sums / counts).tolist()
    return {"the network": (near, everywhere), "the share that is blocked": (float(constant[0]), float(constant[1]))}


@torch.no_grad()
def way_errors(
    model: OccupancyNet, recorded: Recorded, rows: torch.Tensor, batch: int, turn: torch.Tensor
) -> tuple[float, float, float]:
    """Metres by which ways are guessed too long, the root of the mean square of that, and what the choice loses."""
    errors, lost = [], []
    for part in rows.split(batch):
        ways = ways_of(model, recorded.of(part), turn)
        errors.append((ways.guessed - ways.true)[ways.good])
        best = choices(ways.reach + ways.guessed, ways.good).argmin(1, keepdim=True)
        lost.append(lost_by(ways).gather(1, best)[ways.good[:, 1:].sum(1) > 1])
    error = torch.cat(errors)
    return float(error.mean()), float(error.square().mean().sqrt()), float(torch.cat(lost).mean())


def show(model: OccupancyNet, recorded: Recorded, rows: torch.Tensor, batch: int) -> None:
    """Print tables of both, of maps as they are and turned."""
    model.eval()
    cells = Table("log loss in scenes held out", f"within {NEAR} cells of seen ones", "all unseen")
    ways = Table("ways in scenes held out, metres", "guessed too long by", "error", "lost by choosing")
    for angle in (0.0, TURN_DEG):
        turn, which = turn_by(math.radians(angle)), f", at {angle:.0f} degrees" if angle else ""
        for name, nats in log_losses(model, recorded, rows, batch, turn).items():
            cells.add_row(name + which, *(f"{value:.4f}" for value in nats))
        ways.add_row(
            "the network" + which, *(f"{value:.3f}" for value in way_errors(model, recorded, rows, batch, turn))
        )
    for table in (cells, ways):
        Console().print(table)


if __name__ == "__main__":
    try:
        main(tyro.cli(Options, description=__doc__))
    except BatchnavError as error:
        sys.exit(f"error: {error}")
