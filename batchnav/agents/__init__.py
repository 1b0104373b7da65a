"""Agents that act in an environment: reference agents, map planners, experts. `registry` lists them by name."""

from pathlib import Path

from batchnav.errors import CheckpointError
from batchnav.runtime.bundled import find_policy

REFERENCE_NAMES = (
    "random", "forward", "greedy", "map_planner", "map_planner_anticipation", "map_searcher",
    "map_searcher_forgetful", "shortest_path", "orca", "wait_and_go", "predictive", "follower", "frontier",
)  # fmt: skip
"""Names in `registry.REFERENCE_AGENTS`, known without the import of PyTorch and numba."""


def find_weights(word: str) -> Path | None:
    """The weights of a policy by file, run folder or bundled name; None for a reference agent.

    A file or folder of an agent's name is a policy. CheckpointError where the word is neither.
    """
    if word in REFERENCE_NAMES and not Path(word).exists():
        return None
    try:
        return find_policy(word)
    except CheckpointError as error:
        raise CheckpointError(f"{error}; reference agents: {', '.join(REFERENCE_NAMES)}") from error
