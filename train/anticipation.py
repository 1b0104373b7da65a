"""Train the network that guesses what agents have not seen: the weights that `map.anticipation` names.

    python train/anticipation.py --out runs/occupancy.safetensors
    python train/anticipation.py --out runs/mine.safetensors --scenes my/scans house:0-1023
    python train/anticipation.py --out runs/mine.safetensors --scenes my/scans --init-from occupancy
    batchnav train --config pointnav_plan_houses_h200 --map.anticipation runs/mine.safetensors --out runs/mine

The reference agent `planner` walks in these scenes, with the usual camera and with many; now and then its map is kept,
and the truth, by the navmesh. The network of `batchnav/sensors/anticipation.py` learns to tell it, half of the time on
maps that were turned by some angle, since walls of scans and before robots run along no axis. Its log loss in every
tenth scene, which is held out, is printed: nats for an unseen cell near what was seen, and for all.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import torch
import tyro
from rich.console import Console
from rich.table import Table
from torch.nn import functional

from batchnav.data.scenes import load_scenes
from batchnav.envs.nav import NavEnv
from batchnav.errors import ArgumentError, BatchnavError, CheckpointError
from batchnav.evaluation.agents import SETTINGS_OF_AGENTS, make_reference_agent
from batchnav.runtime.announce import number_of, tell
from batchnav.runtime.checks import check_int, check_number
from batchnav.runtime.counting import counting
from batchnav.runtime.device import resolve_device
from batchnav.runtime.files import check_writable
from batchnav.scene.bank import SceneBank
from batchnav.sensors.anticipation import (
    WINDOW,
    OccupancyNet,
    Windows,
    load_occupancy,
    network_input,
    save_occupancy,
)
from batchnav.sensors.ground import SIDE
from batchnav.sim.places import on_navmesh

CAMERAS: tuple[dict[str, tuple[float, float]], ...] = (
    {}, {"camera_height_range": (0.3, 1.6), "hfov_range_deg": (55.0, 120.0)}
)  # fmt: skip
"""The usual camera, and many: of each as many maps."""
ONE_IN = 16
"""Steps of an agent of which one is recorded, at random."""
BEFORE = 128
"""Steps before the first one that is recorded, so that agents are in all parts of their episodes."""
HELD_OUT = 10
"""Scenes of which one is not trained in."""
FREE, BLOCKED, WALKABLE, RECORDED = 1, 2, 4, 8
"""Bits of a recorded cell: seen free, seen blocked; the truth; that it is one, as those off a turned window are not."""
NEAR_TRUTH = 1e-3
"""Metres between a walkable cell's middle and the navmesh, at most."""
DECAY, WARM_UP = 1e-3, 100
"""AdamW's weight decay, and the steps in which the rate rises."""
TURNED = 0.5
"""Of the steps of training, how many see maps turned by an angle; the others only mirror them and exchange axes."""
TURN_DEG = 30.0
"""The angle by which maps are turned that are measured on once more."""
OUTSIDE = 0.1
"""What a cell outside of the floor's bounds weighs in training."""
MEASURED = 2048
"""Maps of the scenes held out that are measured on, at most."""
NEAR = 5
"""Cells from a seen one that are near to it: a metre."""
NOTICE = 1000
"""Steps of training between two lines that say the loss."""


@dataclass(frozen=True)
class Options:
    """What to learn from, and how long."""

    out: Path
    """File of weights to write, .safetensors."""
    scenes: tuple[str, ...] = ("house:0-511",)
    """Scene ids, ranges as house:0-511, and folders, as `batchnav.load_scenes` takes them."""
    maps: int = 20_000
    """To record; one takes 16 KB."""
    num_envs: int = 256
    """Environments that record at a time."""
    steps: int = 3000
    """Of training."""
    batch: int = 32
    """Maps in a step of training."""
    learning_rate: float = 3e-3
    """Of AdamW, at its peak; it falls to nothing."""
    init_from: str = ""
    """Weights to begin with: a file that this program wrote, or "occupancy", those that come with batchnav. "": new
    ones."""
    seed: int = 0
    """Of the episodes, what is recorded of them, the first weights and the batches."""
    device: str = "auto"


class Recorded(NamedTuple):
    """M maps, and what is there."""

    cells: torch.Tensor
    """u8 [M, WINDOW, WINDOW]: bits FREE, BLOCKED, WALKABLE, RECORDED."""
    places: torch.Tensor
    """f32 [M, 3, 2]: as `sensors.anticipation.network_input` has them."""
    scene: torch.Tensor
    """i64 [M]: its number."""


def main(options: Options) -> None:
    for name, least in (("maps", 2), ("num_envs", 1), ("steps", 1), ("batch", 2)):
        check_int(name, getattr(options, name), least, 2**31 - 1)
    check_number("learning_rate", options.learning_rate, 0.0, 1.0)
    model = load_occupancy(options.init_from) if options.init_from else None
    check_writable(options.out.parent, CheckpointError)
    if options.out.is_dir():
        raise CheckpointError(f"{options.out}: found a folder, expected a file, or a place for one")
    device, generator = resolve_device(options.device), torch.Generator().manual_seed(options.seed)
    bank = SceneBank.pack(load_scenes(options.scenes, appearance=False), device)
    if bank.num_scenes < HELD_OUT:
        found = number_of(bank.num_scenes, "scene")
        raise ArgumentError(f"scenes: found {found}, expected {HELD_OUT} or more: of so many one is held out")
    recorded = record(bank, options.maps, options.num_envs, generator, options.seed)
    tell(f"{number_of(len(recorded.cells), 'map')} of {number_of(len(recorded.scene.unique()), 'scene')}")
    learned, held_out = split(recorded, generator)
    torch.manual_seed(options.seed)
    model = (model or OccupancyNet()).to(device, memory_format=torch.channels_last)
    train(model, recorded, learned, options.steps, options.batch, generator, options.learning_rate)
    save_occupancy(options.out, model)
    show(
        log_losses(model, recorded, held_out, options.batch)
        | log_losses(model, recorded, held_out, options.batch, math.radians(TURN_DEG))
    )


def record(bank: SceneBank, maps: int, num_envs: int, generator: torch.Generator, seed: int = 0) -> Recorded:
    """So many maps from these scenes."""
    shares = [maps // len(CAMERAS) + (k < maps % len(CAMERAS)) for k in range(len(CAMERAS))]
    with counting("maps", maps) as counted:
        parts, done = [], 0
        for k, (cameras, share) in enumerate(zip(CAMERAS, shares, strict=True)):
            settings = SETTINGS_OF_AGENTS["planner"]
            env = NavEnv(
                bank, num_envs, seed=seed * len(CAMERAS) + k, sensors=settings["sensors"], copy=False, **cameras
            )
            parts += walk(env, share, generator, lambda count, done=done: counted(done + count))
            done += share
    return Recorded(*map(torch.cat, zip(*parts, strict=True)))


def walk(env: NavEnv, maps: int, generator: torch.Generator, show: Callable[[int], None]) -> list[Recorded]:
    """So many maps, from the steps of one environment."""
    agent, parts, count, step = make_reference_agent("planner", env), [], 0, 0
    observation, _ = env.reset()
    starts = torch.ones(env.num_envs, dtype=torch.bool, device=env.device)
    agent.reset(env.num_envs)
    while count < maps:
        observation, _, terminated, truncated, _ = env.step(agent.act(observation, starts))
        starts, step = terminated | truncated, step + 1
        if step < BEFORE:
            continue
        kept = (torch.rand(env.num_envs, generator=generator) < 1 / ONE_IN).nonzero()[:, 0][: maps - count]
        if len(kept):
            parts.append(keep(env, kept.to(env.device)))
            count += len(kept)
            show(count)
    return parts


def keep(env: NavEnv, rows: torch.Tensor) -> Recorded:
    """The maps of these agents."""
    known, bodies = env.mapper.known, env.sim.bodies
    windows = Windows(rows, known, bodies, env.task.observations["pointgoal"])
    free, blocked = windows.seen(known)
    scene, frame = bodies.scene[rows], known.frame[rows][:, None, None]
    columns, lines = windows.cells % SIDE, windows.cells // SIDE
    x, z = (frame[..., k] + (cell + 0.5) * frame[..., 2] for k, cell in enumerate((columns, lines)))
    y = bodies.position[rows][:, 1, None, None].expand_as(x)
    each = scene[:, None].expand(-1, WINDOW * WINDOW).reshape(-1).contiguous()
    walkable = on_navmesh(env.bank, each, torch.stack([x, y, z], -1).view(-1, 3), NEAR_TRUTH).view_as(free)
    cells = FREE * free.byte() + BLOCKED * blocked.byte() + WALKABLE * walkable.byte() + RECORDED
    return Recorded(cells, windows.places, scene.long())


# Training.


class Batch(NamedTuple):
    """Some maps, as the network reads them, turned over at random."""

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


def batch_of(
    recorded: Recorded, rows: torch.Tensor, turns: tuple[bool, bool, bool] = (False, False, False), angle: float = 0.0
) -> Batch:
    """These maps; `turns`: whether they are mirrored along X, along Z, and have both axes exchanged.

    `angle`: radians by which they are turned then.
    """
    rows = rows.to(recorded.cells.device)
    cells, places = recorded.cells[rows], recorded.places[rows]
    for axis in range(2):
        if turns[axis]:
            cells, places = cells.flip(2 - axis), places.clone()
            places[..., axis] = WINDOW - places[..., axis]
    if turns[2]:
        cells, places = cells.transpose(1, 2), places.flip(2)
    if angle:
        cells, places = turned(cells, places, angle)
    free, blocked, walkable, known = ((cells & bit) > 0 for bit in (FREE, BLOCKED, WALKABLE, RECORDED))
    inside = between(walkable.any(2))[:, :, None] & between(walkable.any(1))[:, None, :]
    return Batch(network_input(free, blocked, places), known & ~(free | blocked), (~walkable).float(), inside)


def turned(cells: torch.Tensor, places: torch.Tensor, angle: float) -> tuple[torch.Tensor, torch.Tensor]:
    """Maps and places on them, turned about the window's middle, from X to Z; a cell has what its middle lies on."""
    cos, sin, half = math.cos(angle), math.sin(angle), WINDOW / 2
    middles = torch.arange(WINDOW, device=cells.device) + 0.5 - half
    columns = (cos * middles[None, :] + sin * middles[:, None] + half).floor().long()
    rows = (cos * middles[:, None] - sin * middles[None, :] + half).floor().long()
    within = (columns >= 0) & (columns < WINDOW) & (rows >= 0) & (rows < WINDOW)
    cells = cells[:, rows.clamp(0, WINDOW - 1), columns.clamp(0, WINDOW - 1)] * within
    x, z = (places - half).unbind(2)
    return cells, torch.stack([cos * x - sin * z, cos * z + sin * x], 2) + half


def between(marked: torch.Tensor) -> torch.Tensor:
    """Bool [B, W]: from the first marked one to the last, and one beside each."""
    first, last = (values.cummax(1).values for values in (marked.byte(), marked.byte().flip(1)))
    inside = (first * last.flip(1))[:, None].float()
    return functional.max_pool1d(inside, 3, 1, 1)[:, 0] > 0


def train(
    model: OccupancyNet,
    recorded: Recorded,
    rows: torch.Tensor,
    steps: int,
    batch: int,
    generator: torch.Generator,
    learning_rate: float,
) -> list[float]:
    """Fit a model on its device to maps with these numbers: the mean loss of every NOTICE steps."""
    device, losses = next(model.parameters()).device, []
    optimizer = torch.optim.AdamW(model.parameters(), lr=learning_rate, weight_decay=DECAY)
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda k: min(1, (k + 1) / WARM_UP) * (1 - k / steps))
    total = torch.zeros((), device=device)
    model.train()
    with counting("steps of training", steps) as counted:
        for step in range(1, steps + 1):
            drawn = rows[torch.randint(len(rows), (batch,), generator=generator)]
            x, z, both = (torch.rand(3, generator=generator) < 0.5).tolist()
            turn, share = torch.rand(2, generator=generator).tolist()
            maps = batch_of(recorded, drawn, (x, z, both), share * math.pi / 2 if turn < TURNED else 0.0)
            with torch.autocast(device.type, torch.bfloat16):
                logits = model(maps.inputs.contiguous(memory_format=torch.channels_last))
            weight = torch.where(maps.inside, 1.0, OUTSIDE) * maps.unseen
            loss = functional.binary_cross_entropy_with_logits(logits.float(), maps.blocked, weight, reduction="sum")
            loss = loss / weight.sum()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            schedule.step()
            total += loss.detach()
            counted(step)
            if step % NOTICE == 0 or step == steps:
                losses.append(total.item() / ((step - 1) % NOTICE + 1))
                total.zero_()
                tell(f"step {step}: loss {losses[-1]:.4f}")
    return losses


# Measuring.


@torch.no_grad()
def log_losses(
    model: OccupancyNet, recorded: Recorded, rows: torch.Tensor, batch: int, angle: float = 0.0
) -> dict[str, tuple[float, float]]:
    """Nats for an unseen cell within the floor's bounds, within a metre of a seen one and of all, by who guesses.

    `angle`: radians by which maps are turned.
    """
    sums, counts, blocked = torch.zeros(2, dtype=torch.float64), torch.zeros(2), torch.zeros(2)
    model.eval()
    for part in rows.split(batch):
        maps = batch_of(recorded, part, angle=angle)
        logits = model(maps.inputs.contiguous(memory_format=torch.channels_last))
        nats = functional.binary_cross_entropy_with_logits(logits, maps.blocked, reduction="none")
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
    which = f", at {math.degrees(angle):.0f} degrees" if angle else ""
    return {
        f"the network{which}": (near, everywhere),
        f"the share that is blocked{which}": (float(constant[0]), float(constant[1])),
    }


def show(losses: dict[str, tuple[float, float]]) -> None:
    table = Table("log loss in scenes held out", f"within {NEAR} cells of seen ones", "all unseen")
    for name, values in losses.items():
        table.add_row(name, *(f"{value:.4f}" for value in values))
    Console().print(table)


if __name__ == "__main__":
    try:
        main(tyro.cli(Options, description=__doc__))
    except BatchnavError as error:
        sys.exit(f"error: {error}")
