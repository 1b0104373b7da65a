"""Floors of learning and of inference: time by operations and by bytes, per frame of the paper's network.

    python eval/studies/floors.py

Operations count against 989 TFLOP/s, the H200's peak for dense bfloat16, and bytes against 4.8 TB/s, its memory's peak.
Activations are bfloat16. Two counts of bytes:

    products    each matrix product and convolution reads its operands once and writes its result once; all else is
                free, as if it were part of the products
    apart       each operation of PyTorch reads and writes memory, as without fusion

A frame's part is the difference between two batches, so that weights do not count; the optimiser's reads and writes of
weights, moments and gradients count as those of a minibatch of 8,192 frames. The rollout's image is read once.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import torch
from gymnasium import spaces
from rich.table import Table
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.flop_counter import FlopCounterMode

from batchnav.cli.console import run
from batchnav.config import bounded, from_dict
from batchnav.policy import ActorCritic
from batchnav.policy.config import PolicyConfig
from batchnav.report.results import STYLE
from batchnav.runtime.console import terminal

OPERATIONS, BYTES = 989e12, 4.8e12
"""Peaks of an H200 per second: dense bfloat16 operations; bytes of memory."""
ACTIVATION = 2
"""Bytes of a bfloat16."""
OPTIMIZER = 28
"""Bytes of a step per weight: gradient, weight and two moments are read, the last three are written, in float32."""
PRODUCTS = ("addmm", "mm", "bmm", "baddbmm", "convolution", "convolution_backward")
"""Names of matrix products and convolutions."""
STEPS = 4
"""Steps of the counted sequences."""


@dataclass(frozen=True)
class Options:
    """Size of the network's images."""

    size: int = bounded(64, 16, 1024)
    """Height and width of the images, pixels."""
    base_width: int = bounded(64, 2, 512)
    """Channels of the encoder's first layers."""
    minibatch_frames: int = bounded(8192, 1, 2**31 - 1)
    """Frames of a minibatch."""


class Count(NamedTuple):
    """Counts of a pass, per frame."""

    operations: float
    products: float
    """Bytes of the products alone."""
    apart: float
    """Bytes of all operations."""


class Bytes(TorchDispatchMode):
    """Counts the numbers that operations read and write; views are free."""

    def __init__(self) -> None:
        super().__init__()
        self.products = self.apart = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        if not func.is_view and func is not torch.ops.aten._unsafe_view.default:
            parts = torch.utils._pytree.tree_leaves((args, kwargs, result))
            number = sum(part.numel() for part in parts if isinstance(part, torch.Tensor))
            self.apart += number
            self.products += number * (func.overloadpacket.__name__.rstrip("_") in PRODUCTS)
        return result


def main(options: Options) -> list[dict[str, float]]:
    """Print the floors; returns them, microseconds per frame."""
    policy = make_policy(options)
    weights = sum(parameter.numel() for parameter in policy.parameters())
    step = OPTIMIZER * weights / options.minibatch_frames
    rows = []
    for part, call, extra in ("learning", learn, step), ("inference", act, 0.0):
        small, large = (counted(policy, call, batch, options.size) for batch in (4, 8))
        frame = Count(
            *((b - a) / (4 * (STEPS if part == "learning" else 1)) for a, b in zip(small, large, strict=True))
        )
        times = frame.operations / OPERATIONS, (frame.products + extra) / BYTES, (frame.apart + extra) / BYTES
        rows.append({"part": part, **dict(zip(Count._fields, (1e6 * each for each in times), strict=True))})
        rows[-1] |= {"mega_operations": frame.operations / 1e6, "kilobytes": (frame.products + extra) / 1e3}
    table = Table(
        "part", "million operations", "kB of products", "floor by operations", "by bytes of products",
        "by bytes, operations apart", title="microseconds per frame on an H200", **STYLE,
    )  # fmt: skip
    for row in rows:
        figures = (f"{row[name]:.3f}" for name in Count._fields)
        table.add_row(str(row["part"]), f"{row['mega_operations']:.0f}", f"{row['kilobytes']:.0f}", *figures)
    table.caption = f"{weights:,} weights, images {options.size}x{options.size}, depth"
    terminal().print(table)
    return rows


def make_policy(options: Options) -> ActorCritic:
    """The paper's network for depth."""
    image = spaces.Box(0.0, 1.0, (1, options.size, options.size), np.float32)
    observations = spaces.Dict({"depth": image, "pointgoal": spaces.Box(-np.inf, np.inf, (2,), np.float32)})
    config = from_dict(PolicyConfig, {"se_resnet9": {"base_width": options.base_width}})
    return ActorCritic(observations, spaces.Discrete(4), config)


def counted(policy: ActorCritic, call: Callable, batch: int, size: int) -> Count:
    """Operations and bytes of a call with `batch` sequences."""
    arguments = inputs(policy, batch, size)
    with FlopCounterMode(display=False) as flops, Bytes() as moved:
        call(policy, *arguments)
    return Count(flops.get_total_flops(), ACTIVATION * moved.products, ACTIVATION * moved.apart)


def inputs(policy: ActorCritic, batch: int, size: int) -> tuple:
    """Observations of STEPS steps, actions, starts and the state before them."""
    shape, cpu = (STEPS, batch), torch.device("cpu")
    image = torch.rand(*shape, 1, size, size, dtype=torch.float32, device=cpu)
    obs = {"depth": image, "pointgoal": torch.rand(*shape, 2, dtype=torch.float32, device=cpu)}
    actions, starts = (torch.zeros(shape, dtype=kind, device=cpu) for kind in (torch.int64, torch.bool))
    return obs, actions, starts, policy.initial_state(batch, cpu)


def learn(policy: ActorCritic, obs: dict, actions: torch.Tensor, starts: torch.Tensor, state: Any) -> None:
    """Forward and backward pass over sequences."""
    policy.zero_grad()
    found = policy.evaluate(obs, actions, starts, state, actions)
    (found.log_prob.sum() + found.value.sum() + found.entropy.sum()).backward()


def act(policy: ActorCritic, obs: dict, actions: torch.Tensor, starts: torch.Tensor, state: Any) -> None:
    """Actions of one step."""
    with torch.no_grad():
        policy.act({name: value[0] for name, value in obs.items()}, actions[0], starts[0], state)


if __name__ == "__main__":
    run(Options, main, __doc__)
