"""Training loop, losses and validation measures of the occupancy predictor."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

import torch
from torch.nn import functional

from batchnav.mapping.costs import FREE_EDGE
from batchnav.mapping.learn.path_cost_gradient import PathEnds, path_costs
from batchnav.mapping.learn.recorded import (
    BLOCKED_COST,
    Batch,
    RecordedMaps,
    cell_centres,
    make_batch,
    rotate_places,
    rotated_cells,
    sample_rotation,
)
from batchnav.mapping.predictor import WINDOW, OccupancyNet, odds, save_occupancy
from batchnav.runtime.console import announce, progress_bar

# Losses of the occupancy predictor: log loss of unknown cells; error and regret of predicted path lengths

OUTSIDE_WEIGHT = 0.1
"""Weight of cells outside the bounding box of the walkable cells in the log loss."""
LINEAR_FROM = 2.0
"""Path length error above which the smooth L1 loss is linear, metres: some detours cannot be predicted."""
TEMPERATURE = 1.0
"""Temperature of the softmax over frontier cells, metres of predicted path length."""
MAX_REGRET = 20.0
"""Largest regret of a choice, metres."""


def predict_logits(model: OccupancyNet, batch: Batch) -> torch.Tensor:
    """Logits of a batch, f32 [B, WINDOW, WINDOW], computed in bfloat16."""
    with torch.autocast(batch.inputs.device.type, torch.bfloat16):
        logits: torch.Tensor = model(batch.inputs.contiguous(memory_format=torch.channels_last))
    return logits.float()


def occupancy_loss(model: OccupancyNet, maps: RecordedMaps, matrix: torch.Tensor) -> torch.Tensor:
    """Weighted binary cross-entropy of unknown cells, nats per cell."""
    batch = make_batch(maps, matrix)
    weight = torch.where(batch.inside, 1.0, OUTSIDE_WEIGHT).float() * batch.unknown
    logits = predict_logits(model, batch)
    loss = functional.binary_cross_entropy_with_logits(logits, batch.blocked, weight, reduction="sum")
    return loss / weight.sum()


class Paths(NamedTuple):
    """Paths to the goal from the starts of some maps: the agent's cell first, then frontier cells."""

    predicted: torch.Tensor
    """f32 [B, STARTS]: predicted path length to the goal, metres."""
    true: torch.Tensor
    """f32 [B, STARTS]: true path length to the goal, metres."""
    reach: torch.Tensor
    """f32 [B, STARTS]: path length from the agent to the start, metres."""
    valid: torch.Tensor
    """bool [B, STARTS]: True where a path exists; the lengths are 0 elsewhere."""


def predict_paths(model: OccupancyNet, maps: RecordedMaps, matrix: torch.Tensor) -> Paths:
    """Paths on these maps, with the costs that the network predicts from their rotated windows."""
    device = maps.cells.device
    rotated = odds(predict_logits(model, make_batch(maps, matrix)))
    columns, rows = rotate_places(matrix, cell_centres(matrix.device)).floor().long().to(device).unbind(2)
    within = (columns >= 0) & (columns < WINDOW) & (rows >= 0) & (rows < WINDOW)
    upright = rotated[:, rows.clamp(0, WINDOW - 1), columns.clamp(0, WINDOW - 1)] * within
    cells, _ = rotated_cells(maps, torch.eye(2, dtype=torch.float32, device="cpu"))
    predicted_cost = torch.zeros(maps.cells.shape, dtype=torch.float32, device=device).scatter(
        1, cells.flatten(1), upright.flatten(1)
    )
    costs = path_costs(maps.layers, PathEnds(maps.goal, maps.starts), predicted_cost)
    valid = (maps.starts >= 0) & (costs < BLOCKED_COST) & (maps.true_cost < BLOCKED_COST)
    metres = maps.size[:, None] / float(FREE_EDGE)
    predicted, true, reach = (torch.where(valid, cost * metres, 0.0) for cost in (costs, maps.true_cost, maps.reach))
    return Paths(predicted, true, reach, valid)


def path_loss(model: OccupancyNet, maps: RecordedMaps, matrix: torch.Tensor) -> torch.Tensor:
    """Smooth L1 error of path lengths plus expected regret of choosing a frontier cell, metres.

    The choice is a softmax over predicted path lengths, so the expected regret has a gradient.
    """
    paths = predict_paths(model, maps, matrix)
    error = functional.smooth_l1_loss(paths.predicted, paths.true, reduction="none", beta=LINEAR_FROM)
    chosen = torch.softmax(frontier_lengths(paths.reach + paths.predicted, paths.valid) / -TEMPERATURE, 1)
    several = paths.valid[:, 1:].sum(1) > 1
    expected = chosen * regret(paths)  # 0 where there is no choice
    return (error * paths.valid).sum() / paths.valid.sum().clamp(min=1) + expected.sum() / several.sum().clamp(min=1)


def frontier_lengths(metres: torch.Tensor, valid: torch.Tensor) -> torch.Tensor:
    """Path lengths through the frontier cells, f32 [B, STARTS - 1]; 10 km for invalid ones."""
    return torch.where(valid[:, 1:], metres[:, 1:], 1e4)


def regret(paths: Paths) -> torch.Tensor:
    """True path length through each frontier cell minus that through the best one, metres, f32 [B, STARTS - 1]."""
    true = frontier_lengths(paths.reach + paths.true, paths.valid)
    return (true - true.min(1, keepdim=True).values).clamp(max=MAX_REGRET) * paths.valid[:, 1:]


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
