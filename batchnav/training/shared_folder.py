"""The folder of a run that several processes train: rank 0 has it, and reads and writes for all."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch

from batchnav.ppo.learner import OWN, Learner
from batchnav.runtime.distributed.ranks import Ranks
from batchnav.training.folder import RunFolder

log = logging.getLogger(__name__)

OTHERS = "others"
"""In a saved state: the parts that ranks 1, 2 ... have of their own."""


class SharedFolder:
    """A `RunFolder` on rank 0; every rank makes one and calls the same methods, but for those that say otherwise.

    The arguments are as of `RunFolder`. `open` is rank 0's folder, None elsewhere.
    """

    def __init__(self, ranks: Ranks, path: Path, config: Any, allow_changes: bool = False):
        self.ranks, self.path = ranks, path
        self.open = RunFolder(path, config, allow_changes) if ranks.is_rank_zero else None
        self.holds_state = False
        """Whether there is a state to go on from."""
        self._changes: list[str] = []

    def __enter__(self) -> SharedFolder:
        return self

    def __exit__(self, *_: object) -> None:
        if self.open:
            self.open.close()

    def resume(self, learner: Learner) -> None:
        """Go on from what was saved, if anything was.

        With as many ranks as saved it the run goes on exactly; with another number the weights, the optimiser and the
        count of frames do, in episodes that begin anew, as a warning and `config.yaml` say.
        """
        state = self.open.load() if self.open else None
        owns = [None] * self.ranks.world_size
        if state is not None:
            found = [{name: state.pop(name) for name in OWN if name in state}, *state.pop(OTHERS, [])]
            if len(found) == self.ranks.world_size:
                owns = found
            else:
                self._changes.append(f"ranks = {self.ranks.world_size}, was {len(found)}")
                log.warning(
                    "%s: number of processes: found %d in the saved state, %d now: weights, optimiser and frames go "
                    "on, environments begin anew", self.path, len(found), self.ranks.world_size,
                )  # fmt: skip
        state = self.ranks.broadcast(state)
        own = self.ranks.scatter(owns)
        self.holds_state = state is not None
        if state is not None:
            learner.load_state_dict({**state, **(own or {})}, anew=own is None)

    def begin(self, frames: int, metrics: Mapping[str, tuple[float, float]] | None = None) -> None:
        """`RunFolder.begin`."""
        if self.open:
            self.open.begin(frames, self._changes, metrics)

    def log(self, row: dict[str, Any]) -> None:
        """`RunFolder.log`, of rank 0's row."""
        if self.open:
            self.open.log(row)

    def save_due(self, every: float) -> bool:
        """`RunFolder.save_due`, which rank 0 alone decides."""
        return self.open is not None and self.open.save_due(every)

    def save(self, learner: Learner) -> None:
        """Keep the states of all ranks; done when it returns, on each of them."""
        state = learner.state_dict()
        own = None if self.ranks.is_rank_zero else _on_cpu({name: state[name] for name in OWN})
        others = self.ranks.gather(own)[1:]
        if self.open:
            self.open.save({**state, OTHERS: others} if others else state)
        self.ranks.barrier()
        self.holds_state = True


def _on_cpu(tree: Any) -> Any:
    """Nested dicts and lists with their tensors on the CPU: a CUDA tensor would come to the other process on this one's GPU."""
    if isinstance(tree, dict):
        return {name: _on_cpu(value) for name, value in tree.items()}
    if isinstance(tree, (list, tuple)):
        return [_on_cpu(value) for value in tree]
    return tree.cpu() if isinstance(tree, torch.Tensor) else tree
