"""Losses of the occupancy predictor: log loss of unknown cells; error and regret of predicted path lengths."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch.nn import functional

from batchnav.mapping.costs import FREE_EDGE
from batchnav.mapping.learn.batches import Batch, cell_centres, make_batch, rotate_places, rotated_cells
from batchnav.mapping.learn.path_cost_gradient import PathEnds, path_costs
from batchnav.mapping.learn.recorded import BLOCKED_COST, RecordedMaps
from batchnav.mapping.predictor import WINDOW, OccupancyNet, odds

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
