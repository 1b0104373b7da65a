"""Training loop and validation measures of the occupancy predictor."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

import torch
from torch.nn import functional

from batchnav.mapping.learn.batches import make_batch, sample_rotation
from batchnav.mapping.learn.losses import (
    frontier_lengths,
    occupancy_loss,
    path_loss,
    predict_logits,
    predict_paths,
    regret,
)
from batchnav.mapping.learn.recorded import RecordedMaps
from batchnav.mapping.predictor import OccupancyNet, save_occupancy
from batchnav.runtime.console import announce, progress_bar

WEIGHT_DECAY, WARM_UP = 1e-3, 100
"""Weight decay of AdamW; number of steps over which the learning rate rises linearly."""
MAX_GRADIENT_NORM = 1.0
"""Maximum gradient norm; larger gradients are scaled down."""
NEAR = 5
"""Unknown cells up to this many cells from a known one count as near in the measures: 1 m."""
REPORT_INTERVAL = 500
"""Steps between two reports of the mean loss; each report also saves the weights."""


class Schedule(NamedTuple):
    """Length, batch size and learning rate of one training phase."""

    steps: int
    batch: int
    """Maps per step."""
    learning_rate: float
    """Peak rate; after WARM_UP steps it falls linearly to 0."""


def train(
    model: OccupancyNet,
    recorded: RecordedMaps,
    rows: torch.Tensor,
    schedule: Schedule,
    generator: torch.Generator,
    on_paths: bool = False,
    out: Path | None = None,
) -> list[float]:
    """Fit a model, on its device, to the maps with these indices. Returns the mean loss of each report interval.

    Args:
        model: the network.
        recorded: maps on the model's device.
        rows: i64: indices of the training maps.
        schedule: steps, batch size and learning rate.
        generator: random numbers that select maps and rotations.
        on_paths: True for `path_loss`, False for `occupancy_loss`.
        out: file that every report saves the weights to; None: no file.
    """
    losses: list[float] = []
    steps = schedule.steps
    optimizer = torch.optim.AdamW(model.parameters(), lr=schedule.learning_rate, weight_decay=WEIGHT_DECAY)
    rate = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda k: min(1, (k + 1) / WARM_UP) * (1 - k / steps))
    total = torch.zeros((), dtype=torch.float32, device=recorded.cells.device)
    loss_of, name = (path_loss, "path loss") if on_paths else (occupancy_loss, "occupancy loss")
    model.train(not on_paths)  # the path loss uses the fixed batch normalisation of inference
    with progress_bar(f"training steps, {name}", steps) as advance:
        for step in range(1, steps + 1):
            maps = recorded.select(
                rows[torch.randint(len(rows), (schedule.batch,), generator=generator, dtype=torch.int64, device="cpu")]
            )
            loss = loss_of(model, maps, sample_rotation(generator))
            optimizer.zero_grad()
            loss.backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), MAX_GRADIENT_NORM)
            optimizer.step()
            rate.step()
            total += loss.detach()
            advance(step)
            if step % REPORT_INTERVAL == 0 or step == steps:
                losses.append(total.item() / ((step - 1) % REPORT_INTERVAL + 1))
                total.zero_()
                announce(f"step {step}: {name} {losses[-1]:.4f}")
                if out is not None:
                    save_occupancy(out, model)
    return losses


@torch.no_grad()
def log_losses(
    model: OccupancyNet, recorded: RecordedMaps, rows: torch.Tensor, batch: int, matrix: torch.Tensor
) -> dict[str, tuple[float, float]]:
    """Log loss of unknown cells within the bounds of walkable cells, nats: (up to NEAR cells from known ones, all).

    Keys: "network", and "blocked fraction" for a constant prediction.
    """
    sums, counts, blocked = (
        torch.zeros(2, dtype=torch.float64, device="cpu"),
        torch.zeros(2, dtype=torch.float32, device="cpu"),
        torch.zeros(2, dtype=torch.float32, device="cpu"),
    )
    for part in rows.split(batch):
        maps = make_batch(recorded.select(part), matrix)
        nats = functional.binary_cross_entropy_with_logits(predict_logits(model, maps), maps.blocked, reduction="none")
        known = maps.inputs[:, :2].sum(1, keepdim=True)
        near = functional.max_pool2d(known, 2 * NEAR + 1, 1, NEAR)[:, 0] > 0
        measured = maps.inside & maps.unknown
        for k, where in enumerate((measured & near, measured)):
            sums[k] += nats[where].double().sum().cpu()
            counts[k] += where.sum().cpu()
            blocked[k] += maps.blocked[where].sum().cpu()
    share = (blocked / counts).clamp(1e-6, 1 - 1e-6)
    constant = -(share * share.log() + (1 - share) * (1 - share).log())
    near_nats, all_nats = (sums / counts).tolist()
    return {"network": (near_nats, all_nats), "blocked fraction": (float(constant[0]), float(constant[1]))}


@torch.no_grad()
def path_errors(
    model: OccupancyNet, recorded: RecordedMaps, rows: torch.Tensor, batch: int, matrix: torch.Tensor
) -> tuple[float, float, float]:
    """Bias and RMS error of predicted path lengths, and mean regret of the predicted best frontier cell; metres."""
    errors, regrets = [], []
    for part in rows.split(batch):
        paths = predict_paths(model, recorded.select(part), matrix)
        errors.append((paths.predicted - paths.true)[paths.valid])
        best = frontier_lengths(paths.reach + paths.predicted, paths.valid).argmin(1, keepdim=True)
        regrets.append(regret(paths).gather(1, best)[paths.valid[:, 1:].sum(1) > 1])
    error = torch.cat(errors)
    return float(error.mean()), float(error.square().mean().sqrt()), float(torch.cat(regrets).mean())
