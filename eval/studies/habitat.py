"""Play an episode file in habitat-sim and in batchnav with the same policy, and report the first differences.

    python eval/studies/habitat.py pointnav_h200 --episodes assets/episodes/val.json.gz --count 20
    python eval/studies/habitat.py runs/mine --episodes data/datasets/pointnav/gibson/v1/val/val.json.gz

habitat-sim uses its own renderer and navmesh: the navmesh next to Habitat's scene files, or one that it bakes from
batchnav's scenes. It must be installed, built from source for this Python. The policy takes its most probable actions.
Prints a comparison, and writes it with every episode to --out. docs/get_started/from_habitat.md explains the
differences.
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import tyro
from rich.console import Console
from rich.table import Table

from batchnav.cli.console import run
from batchnav.config import bounded
from batchnav.data.episodes import Episode, group_by_scene
from batchnav.data.files import SCENES_DIR
from batchnav.data.formats import load_episodes
from batchnav.data.play import load_played_scenes
from batchnav.errors import ArgumentError, BatchnavError
from batchnav.habitat import HabitatAgent
from batchnav.habitat.simulator import Comparison, check_comparable, side_by_side
from batchnav.runtime.device import resolve_device
from batchnav.runtime.files import replacing

COMPARED = ("success", "spl", "steps", "collisions", "path_length", "distance_to_goal")
"""Metrics in the table."""


@dataclass(frozen=True)
class Options:
    """Policy and episodes of the comparison."""

    policy: tyro.conf.Positional[str]
    """A trained policy: a file, a run's folder, or the name of a bundled policy."""
    episodes: Path
    """An episode file, of batchnav or Habitat."""
    scenes_dir: Path = SCENES_DIR
    """Folder that holds the scenes of Habitat's episodes."""
    count: int = bounded(0, 0, 2**31 - 1)
    """Number of episodes to play, the first ones of the file; 0: all."""
    device: str = "cpu"
    """Device of batchnav's simulator and of the policy in both simulators."""
    out: Path = Path("runs/habitat.json")
    """File for the comparison, JSON."""


def main(options: Options) -> None:
    """Play the episodes, print and write the comparison."""
    if options.count < 0:
        raise ArgumentError(f"count: found {options.count}, expected 0 or more")
    console, agent = Console(), HabitatAgent(options.policy, resolve_device(options.device), deterministic=True)
    check_comparable(agent.config)
    episodes = load_episodes(options.episodes)[: options.count or None]
    scenes = {
        scene.name: scene
        for scene in load_played_scenes(episodes, options.scenes_dir, agent.config.body.navmesh, appearance=False)
    }
    played: list[tuple[Episode, Comparison]] = []
    with tempfile.TemporaryDirectory() as folder:
        for name, some in group_by_scene(episodes).items():
            pairs = side_by_side(scenes[name], some, agent, options.scenes_dir, Path(folder))
            for episode, pair in zip(some, pairs, strict=True):
                played.append((episode, pair))
                console.print(f"{len(played)} of {len(episodes)}: {line(episode, pair)}", highlight=False, markup=False)
    pairs = [pair for _, pair in played]
    console.print(table(pairs))
    same = sum(pair.same_actions for pair in pairs)
    console.print(f"{len(pairs)} episodes: {same_outcome(pairs)} with the same success, {same} with the same actions")
    write(options.out, options, played)
    console.print(f"wrote {options.out}", soft_wrap=True)


def line(episode: Episode, pair: Comparison) -> str:
    """Line of output for an episode: the first difference of each quantity, earliest first."""
    found = sorted(pair.first_differences.items(), key=lambda item: item[1].step)
    differences = "; ".join(f"{name} differs from step {first.step} ({first.amount})" for name, first in found)
    return f"episode {episode.episode_id} of {episode.scene_id}: {differences or 'no difference'}"


def same_outcome(pairs: Sequence[Comparison]) -> int:
    """Number of episodes with the same success in both simulators."""
    return sum(pair.batchnav.metrics["success"] == pair.habitat.metrics["success"] for pair in pairs)


def means(pairs: Sequence[Comparison]) -> Mapping[str, tuple[float, float]]:
    """Mean of each metric in batchnav and in habitat-sim."""
    return {
        name: (
            float(np.mean([pair.batchnav.metrics[name] for pair in pairs])),
            float(np.mean([pair.habitat.metrics[name] for pair in pairs])),
        )
        for name in COMPARED
    }


def table(pairs: Sequence[Comparison]) -> Table:
    """Table of each metric: its mean in both simulators, and its largest difference in one episode."""
    made = Table(title=f"{len(pairs)} episodes")
    for column in ("", "batchnav", "habitat-sim", "largest difference"):
        made.add_column(column, justify="right" if column else "left")
    for name, (ours, theirs) in means(pairs).items():
        largest = max(abs(pair.batchnav.metrics[name] - pair.habitat.metrics[name]) for pair in pairs)
        made.add_row(name.replace("_", " "), f"{ours:.4f}", f"{theirs:.4f}", f"{largest:.4f}")
    return made


def write(path: Path, options: Options, played: Sequence[tuple[Episode, Comparison]]) -> None:
    """Write the comparison as JSON, atomically."""
    pairs = [pair for _, pair in played]
    data = {
        "policy": options.policy, "episodes_file": str(options.episodes), "episodes": len(pairs),
        "same_outcome": same_outcome(pairs), "same_actions": sum(pair.same_actions for pair in pairs),
        "batchnav": {name: ours for name, (ours, _) in means(pairs).items()},
        "habitat": {name: theirs for name, (_, theirs) in means(pairs).items()},
        "largest": {name: max(pair.largest[name] for pair in pairs) for name in pairs[0].largest},
        "per_episode": [
            {
                "episode_id": episode.episode_id, "scene_id": episode.scene_id, "largest": pair.largest,
                "first": {
                    name: {"step": first.step, "by": first.amount} for name, first in pair.first_differences.items()
                },
                **{
                    name: {**run.metrics, "actions": "".join(str(step.action) for step in run.steps)}
                    for name, run in (("batchnav", pair.batchnav), ("habitat", pair.habitat))
                },
            }
            for episode, pair in played
        ],
    }  # fmt: skip
    with replacing(path, BatchnavError) as part:
        part.write_text(json.dumps(data, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    run(Options, main, __doc__)
