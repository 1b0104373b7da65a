"""Teach a network to guess what an agent that maps has not seen: what `eval/without_map.py --guess` asks.

    python eval/guess.py record --out runs/guess/maps.npz
    python eval/guess.py train --maps runs/guess/maps.npz --out runs/guess/guess.safetensors
    python eval/without_map.py --guess runs/guess/guess.safetensors

Recording plays the agent of `eval/without_map.py` in training houses, and keeps its map now and then, and the truth.
Training fits the U-Net of `eval/unseen.py` to nine tenths of the houses, and prints its log loss in the others: nats
for an unseen cell, within so many metres of a seen one. Beside it stands that of other guesses: the share of unseen
cells that is blocked in the houses of training; that share by the distance to what is seen; the truth, in blocks.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
import tyro
from rich.console import Console
from rich.table import Table
from scipy import ndimage
from torch.nn import functional

from batchnav.data.episodes import Episode, episode_table
from batchnav.data.generate import generate_episodes
from batchnav.data.scenes import load_scenes, scene_ids
from batchnav.envs.nav import NavEnv
from batchnav.errors import ArgumentError, BatchnavError, EpisodeError
from batchnav.evaluation.play import evaluate
from batchnav.houses import SPLITS
from batchnav.runtime.announce import number_of, tell
from batchnav.runtime.counting import counting
from batchnav.runtime.device import resolve_device
from batchnav.runtime.files import replacing
from batchnav.scene.bank import SceneBank
from batchnav.scene.scene import Scene
from eval.free_space import CELL
from eval.unseen import BLOCK, CANVAS, UNet, in_blocks, network_input, save_guess, view_of
from eval.without_map import MapPlayer

ONE_IN = 12
"""Steps of an agent of which one is recorded, at random."""
HELD_OUT = 10
"""Houses of which one, the last, is not trained in."""
BATCH, CROP, INSIDE = 32, 96, 12
"""Maps in a step of training; blocks along a side of what is cut out of each; blocks from its edge to the agent."""
RATE, DECAY, WARM_UP = 3e-3, 1e-3, 100
"""AdamW's peak learning rate, which falls to nothing, its weight decay, and the steps in which the rate rises."""
OUTSIDE = 0.1
"""What a block outside of the floor's bounds weighs in training."""
MEASURED = 600
"""Maps that are measured on, at most, and by distance learned from."""
DISTANCES = np.array([0.3, 0.5, 0.7, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0, 9.0])
"""Metres between which unseen cells share a guess by distance."""
REACHES = (1.0, 2.0, 4.0, np.inf)
"""Metres for which losses are printed."""


@dataclass(frozen=True)
class Record:
    """Play in training houses, and keep maps."""

    out: Path
    """File of maps to write, .npz."""
    houses: tuple[str, ...] = ("house:0-659",)
    """Ids of training houses."""
    episodes: int = 5
    """In each house."""
    num_envs: int = 96
    """Environments at a time, at most one per episode."""


@dataclass(frozen=True)
class Train:
    """Fit the network to recorded maps."""

    maps: Path
    """What `record` wrote."""
    out: Path
    """File of weights to write, .safetensors."""
    steps: int = 5000
    device: str = "auto"


class Recorded(NamedTuple):
    """Maps on a canvas of CANVAS blocks, as `eval.unseen.View` has them, and what is there."""

    seen: np.ndarray
    """u8 [M, 2, CANVAS, CANVAS]: cells of a block that are known, and free or blocked."""
    places: np.ndarray
    """f32 [M, 3, 2]."""
    house: np.ndarray
    """i64 [M]: its seed."""
    floor: np.ndarray
    """i64 [M]: which of the floors it is a map of."""
    blocked: np.ndarray
    """u8 [F, CANVAS, CANVAS]: cells of a block that are blocked, on every floor."""


def main(options: Record | Train) -> None:
    if isinstance(options, Record):
        recorded = record(training_houses(options.houses), options.episodes, options.num_envs)
        with replacing(options.out, BatchnavError) as part, part.open("wb") as file:
            np.savez_compressed(file, **recorded._asdict())
        print(f"{number_of(len(recorded.seen), 'map')} of {number_of(len(recorded.blocked), 'floor')}")
        return
    if options.steps < 1:
        raise ArgumentError(f"steps: found {options.steps}, expected 1 or more")
    recorded, device = load_recorded(options.maps), resolve_device(options.device)
    torch.manual_seed(0)
    model, rng = UNet().to(device), np.random.default_rng(0)
    trained, held_out = split(recorded)
    train(model, recorded, trained, options.steps, rng)
    save_guess(options.out, model)
    shares = blocked_shares(recorded, some(trained, rng))
    show(log_losses(model, recorded, some(held_out, rng), shares))


# Recording.


def training_houses(names: tuple[str, ...]) -> list[Scene]:
    """The houses of these ids. ArgumentError where one is no training house."""
    for name in scene_ids(names):
        seed = name.removeprefix("house:")
        if seed == name or not seed.isdecimal() or int(seed) not in SPLITS["train"]:
            raise ArgumentError(f"houses: found {name}, expected ids from house:0 to house:{SPLITS['train'][-1]}")
    return load_scenes(names, appearance=False)


def record(houses: list[Scene], episodes: int, num_envs: int) -> Recorded:
    """Maps from so many episodes in each of these houses."""
    drawn: list[Episode] = []
    for house in houses:
        try:
            drawn += generate_episodes(house, episodes)
        except EpisodeError as error:
            tell(f"left out: {error}")
    if not drawn:
        raise ArgumentError("houses: found none with room for an episode, expected one")
    player, bank = MapPlayer(), SceneBank.pack(houses)
    table = episode_table(drawn, [house.name for house in houses], bank.device)
    env = NavEnv(bank, min(num_envs, len(drawn)), config=player.config, episodes=table, copy=False)
    recorder = Recorder(env, player)
    with counting("episodes", len(drawn)) as counted:
        evaluate(recorder, env, len(drawn), show=counted)
    return recorder.recorded()


class Recorder:
    """The agent, which keeps its map now and then."""

    def __init__(self, env: NavEnv, player: MapPlayer):
        self._env, self._agent, self._rng = env, player.enter(env), np.random.default_rng(0)
        self._rows: list[tuple[np.ndarray, np.ndarray, int, int]] = []
        self._floors: dict[bytes, int] = {}

    def reset(self, num_envs: int) -> None:
        """Forget everything but what was recorded."""
        self._agent.reset(num_envs)

    def act(self, observations: dict[str, torch.Tensor], episode_start: torch.Tensor) -> torch.Tensor:
        """The agent's actions i64 [N]."""
        actions = self._agent.act(observations, episode_start)
        playing = self._env.task.state.table_index.numpy() >= 0
        for i in np.flatnonzero(playing & (self._rng.random(len(playing)) < 1 / ONE_IN)):
            self._keep(i)
        return actions

    def _keep(self, i: int) -> None:
        maps, (rows, columns) = self._agent.maps, self._agent.maps.size[i]
        view = view_of(i, maps, self._agent.places[i], CANVAS)
        blocked = in_blocks(~maps.free[i, :rows, :columns], view.low, CANVAS, outside=True)
        floor = self._floors.setdefault(blocked.tobytes(), len(self._floors))
        house = self._env.bank.scenes[int(self._env.sim.bodies.scene[i])].name
        self._rows.append((view.seen, view.places, int(house.removeprefix("house:")), floor))

    def recorded(self) -> Recorded:
        """All that was recorded."""
        seen, places, house, floor = map(np.array, zip(*self._rows, strict=True))
        blocked = np.frombuffer(b"".join(self._floors), np.uint8).reshape(-1, CANVAS, CANVAS)
        return Recorded(seen, places, house, floor, blocked)


def load_recorded(path: Path) -> Recorded:
    """What `record` wrote. ArgumentError where it is something else."""
    try:
        with np.load(path, allow_pickle=False) as file:
            return Recorded(**file)
    except (OSError, ValueError, TypeError, EOFError) as error:
        raise ArgumentError(f"{path}: found something else, expected maps that eval/guess.py recorded") from error


# Training.


def split(recorded: Recorded) -> tuple[np.ndarray, np.ndarray]:
    """Maps to train with, and those of the last houses, to measure on."""
    houses = np.unique(recorded.house)
    if len(houses) < 2:
        raise ArgumentError(f"maps: found those of {number_of(len(houses), 'house')}, expected 2 or more")
    held_out = recorded.house >= houses[-max(1, len(houses) // HELD_OUT)]
    return np.flatnonzero(~held_out), np.flatnonzero(held_out)


def some(rows: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """MEASURED of them at most."""
    return rng.choice(rows, min(MEASURED, len(rows)), replace=False)


class Batch(NamedTuple):
    """Some maps, cut out and turned."""

    inputs: torch.Tensor
    """f32 [B, CHANNELS, S, S]: the network's."""
    share: torch.Tensor
    """f32 [B, S, S]: of a block's unseen cells, how many are blocked."""
    unseen: torch.Tensor
    """f32 [B, S, S]: of a block's cells, how many are unseen."""
    inside: torch.Tensor
    """bool [B, S, S]: whether a block is within the floor's bounds, or just outside."""


def batch_of(recorded: Recorded, rows: np.ndarray, device: torch.device, rng: np.random.Generator | None) -> Batch:
    """These maps, whole, or, with `rng`, cut out around the agent and mirrored at random."""
    size, first = CANVAS, np.zeros((len(rows), 2), int)
    if rng is not None:
        size, agents = CROP, recorded.places[rows, 2]
        low, high = (np.clip(end, 0, CANVAS - CROP).astype(int) for end in (agents - CROP + INSIDE, agents - INSIDE))
        first = rng.integers(low, high + 1)
    places = recorded.places[rows] - first[:, None].astype(np.float32)
    planes = np.empty((len(rows), 4, size, size), np.uint8)
    for plane, row, (r, c) in zip(planes, rows, first, strict=True):
        blocked = recorded.blocked[recorded.floor[row]]
        parts = [*recorded.seen[row], blocked, bounds_of(blocked)]
        plane[:] = [part[r : r + size, c : c + size] for part in parts]
    if rng is not None:
        for axis in np.flatnonzero(rng.random(2) < 0.5):
            planes, places[..., axis] = np.flip(planes, 2 + axis), size - places[..., axis]
        if rng.random() < 0.5:
            planes, places = planes.swapaxes(2, 3), places[..., ::-1]
    cells = torch.from_numpy(np.ascontiguousarray(planes)).to(device)
    inputs = network_input(cells[:, :2], torch.from_numpy(np.ascontiguousarray(places)).to(device))
    unseen = BLOCK**2 - cells[:, 0] - cells[:, 1]
    share = (cells[:, 2] - cells[:, 1]) / unseen.clamp(min=1)
    return Batch(inputs, share, unseen / BLOCK**2, cells[:, 3] > 0)


def bounds_of(blocked: np.ndarray) -> np.ndarray:
    """Where a floor u8 [S, S] is, and a block around it: bool [S, S]."""
    inside = np.zeros(blocked.shape, bool)
    r, c = np.nonzero(blocked < BLOCK**2)
    inside[max(r.min() - 1, 0) : r.max() + 2, max(c.min() - 1, 0) : c.max() + 2] = True
    return inside


def train(model: UNet, recorded: Recorded, rows: np.ndarray, steps: int, rng: np.random.Generator) -> list[float]:
    """Fit a model on its device to maps with these numbers: the loss at every step."""
    device, losses = next(model.parameters()).device, []
    optimizer = torch.optim.AdamW(model.parameters(), lr=RATE, weight_decay=DECAY)
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda k: min(1, (k + 1) / WARM_UP) * (1 - k / steps))
    model.train()
    with counting("steps of training", steps) as counted:
        for step in range(1, steps + 1):
            batch = batch_of(recorded, rng.choice(rows, BATCH), device, rng)
            with torch.autocast(device.type, torch.bfloat16):
                logits = model(batch.inputs)[:, 0]
            weight = batch.unseen * torch.where(batch.inside, 1.0, OUTSIDE)
            loss = functional.binary_cross_entropy_with_logits(logits.float(), batch.share, weight, reduction="sum")
            loss = loss / weight.sum()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            schedule.step()
            losses.append(loss.item())
            counted(step)
            if step % 500 == 0:
                tell(f"step {step}: loss {np.mean(losses[-500:]):.3f}")
    return losses


# Measuring.


def distances(batch: Batch) -> np.ndarray:
    """Metres from each block to one that was seen in half, f64 [B, S, S]."""
    unseen = batch.unseen.cpu().numpy() > 0.5
    return np.stack([ndimage.distance_transform_edt(one) for one in unseen]) * BLOCK * CELL


def blocked_shares(recorded: Recorded, rows: np.ndarray) -> tuple[np.ndarray, float]:
    """Of the unseen cells within bounds the share that is blocked: f64 [10 + 1] between DISTANCES, and of all."""
    blocked, unseen = (np.zeros(len(DISTANCES) + 1) for _ in range(2))
    for part in parts_of(rows):
        batch = batch_of(recorded, part, torch.device("cpu"), None)
        weight, where = (batch.unseen * batch.inside).numpy(), np.digitize(distances(batch), DISTANCES)
        unseen += np.bincount(where.ravel(), weight.ravel(), len(unseen))
        blocked += np.bincount(where.ravel(), (weight * batch.share.numpy()).ravel(), len(unseen))
    return blocked / np.maximum(unseen, 1e-9), float(blocked.sum() / unseen.sum())


@torch.no_grad()
def log_losses(
    model: UNet, recorded: Recorded, rows: np.ndarray, shares: tuple[np.ndarray, float]
) -> dict[str, np.ndarray]:
    """Nats for an unseen cell within bounds, by guess: f64 [4], for each of REACHES. `shares` are `blocked_shares`."""
    device, sums, weights = next(model.parameters()).device, {}, np.zeros(len(REACHES))
    by_distance, constant = shares
    model.eval()
    for part in parts_of(rows):
        batch = batch_of(recorded, part, device, None)
        metres, share = distances(batch), batch.share.cpu().numpy().astype(float)
        guesses = {
            "constant": np.full_like(share, constant),
            "by distance": by_distance[np.digitize(metres, DISTANCES)],
            "network": torch.sigmoid(model(batch.inputs)[:, 0]).cpu().numpy().astype(float),
            "truth": share,
        }
        inside = (batch.unseen * batch.inside).cpu().numpy()
        near = [inside * (metres <= reach) for reach in REACHES]
        weights += [weight.sum() for weight in near]
        for name, guess in guesses.items():
            guess = guess.clip(1e-4, 1 - 1e-4)
            nats = -share * np.log(guess) - (1 - share) * np.log(1 - guess)
            sums[name] = sums.get(name, 0.0) + np.array([(weight * nats).sum() for weight in near])
    return {name: total / np.maximum(weights, 1e-9) for name, total in sums.items()}


def parts_of(rows: np.ndarray) -> list[np.ndarray]:
    """Maps' numbers, BATCH at a time."""
    return [rows[begin : begin + BATCH] for begin in range(0, len(rows), BATCH)]


def show(losses: dict[str, np.ndarray]) -> None:
    table = Table("held-out log loss within", *(f"{r:g} m" if np.isfinite(r) else "all" for r in REACHES))
    for name, values in losses.items():
        table.add_row(name, *(f"{value:.3f}" for value in values))
    Console().print(table)


if __name__ == "__main__":
    try:
        main(tyro.cli(Record | Train, description=__doc__))
    except BatchnavError as error:
        sys.exit(f"error: {error}")
