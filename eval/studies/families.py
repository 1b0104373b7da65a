"""Evaluate trained policies on several scene families.

    python eval/studies/families.py assets/policies/pointnav_h200/policy.safetensors runs/mine/policy.safetensors
    python eval/studies/families.py runs/mine/policy.safetensors --episodes data/mine/val.json.gz --record

Each policy plays every episode once, with sampled actions as in `eval/pointnav.py`. Prints success and SPL with 95%
intervals over scenes, one table per episode file. The default files are the bundled ones, one per scene family. Option
--record appends rows to eval/results/pointnav.jsonl.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import tyro

from batchnav.cli.console import run
from batchnav.config import bounded
from batchnav.envs.observations import needed_appearance
from batchnav.evaluation.players import PolicyPlayer
from batchnav.evaluation.run import Evaluation, result_rows
from batchnav.procedural import EPISODE_FAMILIES
from batchnav.report.results import append_rows, print_agents
from batchnav.runtime.bundled import EPISODES
from batchnav.runtime.device import resolve_device
from batchnav.tasks.goal_task import METRIC_SPECS


@dataclass(frozen=True)
class Options:
    """Policies and episodes of the evaluation."""

    checkpoints: tyro.conf.Positional[tuple[Path, ...]]
    """Files of trained policies."""
    episodes: tuple[Path, ...] = tuple(EPISODES / f"{name}.json.gz" for name in EPISODE_FAMILIES)
    """Episode files, one per family."""
    device: str = "auto"
    """Device of policies and environments: cuda, cpu, or auto for a GPU if there is one."""
    num_envs: int = bounded(256, 1, 2**24)
    """Parallel environments, at most one per episode."""
    record: bool = False
    """Append result rows to eval/results/pointnav.jsonl."""


def main(options: Options) -> None:
    """Evaluate every policy on every file; print and record the results."""
    device = resolve_device(options.device)
    players = {"/".join(path.parts[-2:]): PolicyPlayer(path, device) for path in options.checkpoints}
    for path in options.episodes:
        played = {}
        for name, player in players.items():
            appearance = needed_appearance(player.config)
            evaluation = Evaluation(path, device, player.config, options.num_envs, appearance=appearance)
            played[name] = evaluation.play(player)
            if options.record:
                append_rows("pointnav", result_rows(evaluation, played[name]))
        print_agents(
            f"{', '.join(played)} on {path.name}", {name: each.overall for name, each in played.items()}, METRIC_SPECS
        )


if __name__ == "__main__":
    run(Options, main, __doc__)
