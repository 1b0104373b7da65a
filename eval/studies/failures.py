"""Failure analysis of a policy: success and SPL lost by outcome, distance, detour, rooms and collisions, with maps.

    python eval/studies/failures.py runs/mine/policy.safetensors --episodes assets/episodes/scan.json.gz \
        --out runs/failures

Each episode has one outcome. The first table has the SPL lost by each outcome: the sum of 1 - SPL over its episodes,
divided by the number of all episodes.

    timed out       stop was never called
    stuck           timed out, with collisions in more than half of the steps
    wrong stop      stop was called away from the goal
    detour          success, with a path at least 25% longer than the shortest
    arrived         success otherwise

The second table has success and SPL for thirds of the episodes: by geodesic distance, by its ratio to the Euclidean
distance, by collisions per step and, in procedural houses, by the number of rooms along the shortest path.

Writes results.json, and maps of the first failures with the agent's path and the shortest path.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import tyro
from PIL import Image
from rich.console import Console
from rich.table import Table

from batchnav.cli.console import run
from batchnav.config import bounded
from batchnav.data.episodes import Episode
from batchnav.envs.observations import needed_appearance
from batchnav.errors import ArgumentError, BatchnavError
from batchnav.evaluation.play import Recording
from batchnav.evaluation.players import PolicyPlayer
from batchnav.evaluation.run import Evaluation
from batchnav.procedural import make_plan
from batchnav.procedural.plans import CELL
from batchnav.runtime.device import resolve_device
from batchnav.runtime.files import replacing
from batchnav.scene.scene import Scene
from batchnav.view.topdown import TopDownMap
from batchnav.view.video import draw_episode

DETOUR = 1.25
"""Ratio of the path length to the shortest path from which a success counts as a detour."""
STUCK = 0.5
"""Share of steps with a collision above which a timed-out episode counts as stuck."""
OUTCOMES = ("timed out", "stuck", "wrong stop", "detour", "arrived")


@dataclass(frozen=True)
class Options:
    """Policy and episodes of the analysis."""

    checkpoint: tyro.conf.Positional[Path]
    """A trained policy."""
    episodes: Path
    """An episode file."""
    out: Path
    """Folder for results.json and the maps."""
    maps: int = bounded(6, 0, 100_000)
    """Maximum number of failures to plot."""
    device: str = "auto"
    """Device of policy and environments: cuda, cpu, or auto for a GPU if there is one."""
    num_envs: int = bounded(256, 1, 2**24)
    """Parallel environments, at most one per episode."""


def main(options: Options) -> None:
    """Play all episodes, print the tables, and write results.json and the maps."""
    device = resolve_device(options.device)
    player = PolicyPlayer(options.checkpoint, device)
    if player.config.task_name not in ("pointnav", "imagenav"):
        raise ArgumentError(
            f"{options.checkpoint}: found a policy of {player.config.task_name}, expected one of pointnav or imagenav; "
            f"the report of batchnav evaluate counts the failures of other tasks"
        )
    appearance = needed_appearance(player.config)
    evaluation = Evaluation(options.episodes, device, player.config, options.num_envs, appearance=appearance)
    played = evaluation.play(player).episodes
    scenes = {scene.name: scene for scene in evaluation.bank.scenes}
    outcome = outcomes(played, player.config.task.max_steps)
    found = {
        "episodes": len(evaluation.episodes), "success": float(played["success"].mean()),
        "spl": float(played["spl"].mean()), "outcomes": by_outcome(outcome, played["spl"]),
        "thirds": {
            name: thirds(values, played) for name, values in properties(evaluation.episodes, scenes, played).items()
        },
    }  # fmt: skip
    show(options.episodes.name, found)
    with replacing(options.out / "results.json", BatchnavError) as part:
        part.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
    failed = np.flatnonzero(played["success"] == 0)[: options.maps]
    for number, recording in zip(failed, evaluation.record(player, failed) if len(failed) else (), strict=True):
        image = episode_map(recording, evaluation.bank.scenes[recording.scene])
        image.save(options.out / f"{number}_{outcome[number].replace(' ', '_')}.png")


def outcomes(played: Mapping[str, np.ndarray], max_steps: int) -> np.ndarray:
    """Outcome of each episode, one of OUTCOMES."""
    arrived, timed_out = played["success"] > 0, played["steps"] >= max_steps
    stuck = played["collisions"] > STUCK * played["steps"]
    detour = played["path_length"] >= DETOUR * played["start_distance"]
    cases = [arrived & ~detour, arrived, timed_out & stuck, timed_out]
    return np.select(cases, ["arrived", "detour", "stuck", "timed out"], "wrong stop")


def by_outcome(outcome: np.ndarray, spl: np.ndarray) -> dict[str, dict[str, float]]:
    """Share of the episodes and SPL lost, for each outcome."""
    return {
        name: {
            "episodes": float((outcome == name).mean()),
            "spl_lost": float((1.0 - spl)[outcome == name].sum() / len(spl)),
        }
        for name in OUTCOMES
    }


def properties(
    episodes: list[Episode], scenes: Mapping[str, Scene], played: Mapping[str, np.ndarray]
) -> dict[str, np.ndarray]:
    """Properties of the M episodes by title, f64 [M] each."""
    starts = np.array([e.start_position for e in episodes], np.float32)
    goals = np.array([e.goals[0].position for e in episodes], np.float32)
    distance = played["start_distance"].astype(float)
    found = {
        "geodesic distance (m)": distance,
        "geodesic / straight": distance / np.linalg.norm(goals - starts, axis=1),
        "collisions a step": played["collisions"] / np.maximum(played["steps"], 1),
    }
    if all(e.scene_id.startswith("house:") for e in episodes):
        found["rooms crossed"] = np.array([
            rooms_crossed(e.scene_id, scenes[e.scene_id].navmesh.shortest_path(start, goal))
            for e, start, goal in zip(episodes, starts, goals, strict=True)
        ], float)  # fmt: skip
    return found


def rooms_crossed(scene_id: str, path: np.ndarray) -> int:
    """Number of times that a path f32 [K, 3] in a procedural house enters another room."""
    labels = make_plan(int(scene_id.removeprefix("house:")))[0].labels
    lengths = np.concatenate([[0.0], np.linalg.norm(np.diff(path, axis=0), axis=1).cumsum()])
    along = np.linspace(0.0, lengths[-1], max(2, int(lengths[-1] / CELL)))
    x, z = (np.interp(along, lengths, path[:, axis]) for axis in (0, 2))
    rooms = labels[(z / CELL).astype(int), (x / CELL).astype(int)]
    return int(np.count_nonzero(np.diff(rooms)))


def thirds(values: np.ndarray, played: Mapping[str, np.ndarray]) -> list[dict[str, float]]:
    """Range, success and SPL for the lowest, middle and highest third of the episodes by a property."""
    parts = np.array_split(np.argsort(values, kind="stable"), 3)
    return [
        {
            "from": float(values[part].min()),
            "to": float(values[part].max()),
            "success": float(played["success"][part].mean()),
            "spl": float(played["spl"][part].mean()),
        }
        for part in parts
    ]


def show(name: str, found: dict) -> None:
    """Print both tables."""
    console = Console()
    title = f"{name}: success {found['success']:.3f}, SPL {found['spl']:.3f}"
    table = Table("outcome", "episodes", "SPL lost", title=title)
    for outcome, values in found["outcomes"].items():
        table.add_row(outcome, f"{values['episodes']:.3f}", f"{values['spl_lost']:.3f}")
    console.print(table)
    table = Table("a third of the episodes", "from", "to", "success", "SPL")
    for name, parts in found["thirds"].items():
        for part in parts:
            ends, means = ([f"{part[key]:.3f}" for key in keys] for keys in (("from", "to"), ("success", "spl")))
            table.add_row(name, *ends, *means)
        table.add_section()
    console.print(table)


def episode_map(recording: Recording, scene: Scene) -> Image.Image:
    """Top-down map of an episode with the agent's path and the shortest path."""
    plan = TopDownMap(scene.navmesh, scene.mesh, float(recording.positions[0, 1]))
    shortest = scene.navmesh.shortest_path(recording.positions[0], recording.goal)
    draw_episode(plan, recording, shortest)
    return plan.image


if __name__ == "__main__":
    run(Options, main, __doc__)
