"""The run folder of a distributed run: rank 0 reads and writes it for all ranks."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from batchnav.errors import CheckpointError, few
from batchnav.learning.learner import PER_RANK, Learner
from batchnav.runtime.distributed import Ranks
from batchnav.training.folder import CONFIG_NAME, OTHERS, RunFolder

log = logging.getLogger(__name__)


class SharedFolder:
    """A `RunFolder` that all ranks of a run share. All ranks call the same methods in the same order.

    Args:
        ranks: the processes that train together.
        path: the folder.
        config: dataclass of the run's configuration.
        allow_changes: continue a run that had another configuration.

    Attributes:
        open: the `RunFolder` on rank 0; None on other ranks.
    """

    def __init__(self, ranks: Ranks, path: Path, config: Any, allow_changes: bool = False):
        self.ranks, self.path = ranks, path
        self.open = RunFolder(path, config, allow_changes) if ranks.is_rank_zero else None
        self.holds_state = False
        """True where the folder holds resume state."""
        self._changes: list[str] = []

    def __enter__(self) -> SharedFolder:
        return self

    def __exit__(self, *_: object) -> None:
        if self.open:
            self.open.close()

    def resume(self, learner: Learner) -> None:
        """Load the saved state, if there is one, into the learner.

        The run continues exactly if the number of ranks is unchanged. Otherwise weights, optimiser and frame count are
        restored and environments start new episodes; a warning and `config.yaml` record this.

        CheckpointError for a state that does not fit, with the settings that changed since it was saved.
        """
        state = self.open.load() if self.open else None
        owns = [None] * self.ranks.world_size
        if state is not None:
            found = [{name: state.pop(name) for name in PER_RANK if name in state}, *state.pop(OTHERS, [])]
            if len(found) == self.ranks.world_size:
                owns = found
            else:
                self._changes.append(f"ranks = {self.ranks.world_size}, was {len(found)}")
                log.warning(
                    "%s: found the state of %d processes, expected %d; weights, optimiser and frame count are restored "
                    "and environments start new episodes", self.path, len(found), self.ranks.world_size,
                )  # fmt: skip
        state, changes = self.ranks.broadcast((state, self.open.changes if self.open else []))
        own = self.ranks.scatter(owns)
        self.holds_state = state is not None
        if state is None:
            return
        try:
            learner.load_state_dict({**state, **(own or {})}, new_episodes=own is None)
        except CheckpointError as error:
            changed = f"; changed settings: {few(changes, separator='; ')}" if changes else ""
            raise CheckpointError(
                f"{self.path}: {error}{changed}; continue with the settings of {CONFIG_NAME}, or choose another --out"
            ) from error

    def begin(self, frames: int, metrics: Mapping[str, tuple[float, float]] | None = None) -> None:
        """Open the curves on rank 0 (`RunFolder.begin`)."""
        if self.open:
            self.open.begin(frames, self._changes, metrics)

    def log(self, row: dict[str, Any]) -> None:
        """Append rank 0's row to the curves (`RunFolder.log`)."""
        if self.open:
            self.open.log(row)

    def save_due(self, every: float) -> bool:
        """True on rank 0 if a save is due (`RunFolder.save_due`); False on other ranks."""
        return self.open is not None and self.open.save_due(every)

    def save(self, learner: Learner) -> None:
        """Write the resume state of all ranks (`RunFolder.save`). Every rank returns when the state is copied."""
        state = learner.state_dict()
        own = None if self.ranks.is_rank_zero else {name: state[name] for name in PER_RANK}
        others = self.ranks.gather(own)[1:]
        if self.open:
            self.open.save({**state, OTHERS: others} if others else state)
        self.ranks.barrier()
        self.holds_state = True
