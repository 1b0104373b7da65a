"""Statistics of an update, kept on the device until they are read."""

from __future__ import annotations

import math
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch

NUM_FINITE = "num_finite"
"""Key of `UpdateStats.num_finite` in the result of `read`."""
SUMS = ("episode/count", "between_rollouts/scenes_loaded")
"""Keys that are summed over ranks. For other keys of `between_rollouts/` and for `seconds/` the maximum counts."""


class EpisodeSums:
    """Sums of the metrics of finished episodes, info["episode"], per environment, on the device."""

    def __init__(self, num_envs: int, device: torch.device):
        self.count = torch.zeros(num_envs, dtype=torch.float32, device=device)
        self.names: tuple[str, ...] = ()
        self.sums = torch.zeros(0, num_envs, dtype=torch.float32, device=device)

    def add(self, info: Mapping[str, Any]) -> None:
        """Add the episodes that ended in a step; the first info with "episode" determines the metrics."""
        if "episode" not in info:
            return
        if not self.names:
            self.names = tuple(info["episode"])
            self.sums = self.count.new_zeros(len(self.names), len(self.count))
        ended = info["_episode"]
        self.count += ended
        values = torch.stack([info["episode"][name] for name in self.names])
        self.sums += torch.where(ended, values, 0.0)  # not a product: masked values may be NaN

    def take(self) -> dict[str, torch.Tensor]:
        """Means by name over the episodes since the last call (NaN without episodes), and their "count"."""
        count = self.count.sum(dtype=torch.float64)
        means = self.sums.sum(1, dtype=torch.float64) / count
        self.count.zero_()
        self.sums.zero_()
        return {"count": count, **dict(zip(self.names, means.unbind(), strict=True))}


class Timer:
    """Seconds between marks, by CUDA events on a GPU (kernels run asynchronously), else by the host's clock."""

    def __init__(self, device: torch.device):
        self._device, self._cuda = device, device.type == "cuda"
        self._marks: list[Any] = []
        self.mark()

    def mark(self) -> None:
        """Set a mark; the constructor sets the first one."""
        if self._cuda:
            event = torch.cuda.Event(enable_timing=True)
            event.record(torch.cuda.current_stream(self._device))
            self._marks.append(event)
        else:
            self._marks.append(time.perf_counter())

    def seconds(self) -> list[float]:
        """Seconds from each mark to the next. On CUDA this waits for the last mark."""
        if self._cuda:
            self._marks[-1].synchronize()
            return [a.elapsed_time(b) * 1e-3 for a, b in zip(self._marks, self._marks[1:], strict=False)]
        return [b - a for a, b in zip(self._marks, self._marks[1:], strict=False)]


@dataclass(frozen=True)
class UpdateStats:
    """Statistics of one update. Tensors are scalars on the device; `read` fetches all of them at once."""

    frames: int
    """Environment steps since the start of the run."""
    learning_rate: float
    """Learning rate of the update."""
    losses: dict[str, torch.Tensor]
    """Scalars of the algorithm by name: means over the update's minibatches of "loss", of its parts and of "grad_norm",
    the gradient norm before clipping, and values of the whole rollout."""
    reward: torch.Tensor
    """Mean reward per step."""
    episodes: dict[str, torch.Tensor]
    """Mean metrics of the episodes that ended in this update, by name, and their "count"."""
    between_rollouts: dict[str, float]
    """Values that `VecEnv.between_rollouts` returned before the rollout."""
    timer: Timer
    """Marks before the rollout, between rollout and learning, and after learning."""
    num_finite: torch.Tensor | None = None
    """Number of minibatches before the first with a loss or gradient that is not finite on this rank; None for a single
    rank."""

    def read(self) -> dict[str, float]:
        """All statistics as numbers by name ("loss/...", "episode/...", "seconds/..."), with one synchronisation."""
        tensors = {
            **{f"loss/{name}": value for name, value in self.losses.items()},
            "reward": self.reward,
            **{f"episode/{name}": value for name, value in self.episodes.items()},
            **({} if self.num_finite is None else {NUM_FINITE: self.num_finite}),
        }
        values = torch.stack([value.double() for value in tensors.values()]).tolist()
        collect, learn = self.timer.seconds()
        return {
            "frames": self.frames,
            "learning_rate": self.learning_rate,
            **dict(zip(tensors, values, strict=True)),
            **{f"between_rollouts/{name}": value for name, value in self.between_rollouts.items()},
            "seconds/collect": collect,
            "seconds/learn": learn,
        }


def merged(ranks: Sequence[dict[str, float]]) -> dict[str, float]:
    """Statistics of one update of several ranks as one row: means over all environments and episodes, or SUMS.

    A key that some ranks lack is merged over the ranks that have it.
    """
    if len(ranks) == 1:
        return {name: value for name, value in ranks[0].items() if name != NUM_FINITE}
    found = {}
    for name in dict.fromkeys(name for row in ranks for name in row if name != NUM_FINITE):
        rows = [row for row in ranks if name in row]
        values = [row[name] for row in rows]
        if name in SUMS:
            found[name] = sum(values)
        elif name.startswith("episode/"):
            weighted = [(row[name], row["episode/count"]) for row in rows if row["episode/count"]]
            count = sum(weight for _, weight in weighted)
            found[name] = sum(value * weight for value, weight in weighted) / count if count else math.nan
        elif name.startswith(("between_rollouts/", "seconds/")):
            found[name] = max(values)
        else:
            found[name] = values[0] if len(set(values)) == 1 else sum(values) / len(values)
    return found
