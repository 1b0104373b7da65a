"""Measure a PointGoal agent on fixed episodes: success, SPL and the rest, each with its 95% interval.

    python eval/pointnav.py --checkpoint runs/mine/policy.safetensors --split val --report
    python eval/pointnav.py --agent greedy --split test
    python eval/pointnav.py --agent oracle --episodes data/datasets/pointnav/gibson/v1/val/val.json.gz

Every episode is played once. SPL uses the geodesic distance that the navmesh gives at the start, as in Habitat;
episodes whose file states another are listed. Prints a table; writes `results.json` into --out; appends the overall
figures to eval/results/pointnav.jsonl. With --report also a page with learning curves, maps, videos and the reference
agents.
"""

from __future__ import annotations

import dataclasses
import json
import logging
import math
import os
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np
import torch
import tyro
from rich.console import Console
from rich.table import Table

from batchnav.config import PointNavConfig, from_dict
from batchnav.data.episodes import Episode, check_episodes, episode_table, load_episodes
from batchnav.data.scenes import find_played
from batchnav.data.source import SCENES_DIR
from batchnav.data.validate import distance_mismatches
from batchnav.envs import evaluate as playing
from batchnav.envs.pointnav import PointNavEnv
from batchnav.errors import ArgumentError, BatchnavError
from batchnav.evaluation.agents import REFERENCE_AGENTS
from batchnav.evaluation.play import Interval
from batchnav.policy.weights import load_policy
from batchnav.runs.results import machine, record
from batchnav.runtime.device import resolve_device
from batchnav.scene.bank import SceneBank
from batchnav.sim.state import METRICS
from batchnav.view.report import SHOWN, format_interval, write_report

EPISODES = Path(__file__).resolve().parents[1] / "assets" / "episodes"
RECORDED = ("success", "spl", "soft_spl")
MAX_LISTED = 20
"""Episodes printed whose file states another distance; all are in results.json."""
BLIND_IMAGE = 4
"""Image side for agents that do not look."""

TABLE_WIDTH = 150
"""Characters that a table needs, whatever a pipe or log says."""

Summary = dict[str, Interval]


@dataclass(frozen=True)
class Options:
    """What to measure."""

    checkpoint: Path | None = None
    """A trained policy; its file says which task it was trained for."""
    agent: Literal["random", "forward", "greedy", "oracle"] | None = None
    """Or a reference agent."""
    split: Literal["val", "test", "aws_small_house"] = "val"
    """Which of the fixed episode files."""
    episodes: Path | None = None
    """Or an episode file of one's own, or of Habitat's (with its folder `content`)."""
    scenes_dir: Path = SCENES_DIR
    """Folder below which the scenes of Habitat's episodes lie."""
    device: str = "auto"
    renderer: Literal["raycast", "opengl", "auto"] = "raycast"
    num_envs: int = 256
    """Environments at a time, at most one per episode."""
    sample: bool = True
    """Draw the policy's actions, as Habitat's evaluation does; --no-sample takes the most probable ones."""
    seed: int = 0
    """Of drawn actions."""
    out: Path | None = None
    """Folder for results.json and the report; by default beside the checkpoint, or runs/AGENT."""
    report: bool = False
    """Also write the report: index.html, curves, maps, videos."""
    recordings: int = 6
    """Episodes to draw in the report, spread evenly over the file."""
    record: bool = True
    """Append the figures to eval/results/pointnav.jsonl."""


class PolicyAgent:
    """A trained policy with its way of choosing actions."""

    def __init__(self, checkpoint: Path, device: torch.device, sample: bool, seed: int):
        self.policy, self.sample, self.seed = load_policy(checkpoint, device), sample, seed
        self.info = self.policy.info
        self.name = "blind" if self.policy.network.config.blind else "learned"

    def reset(self, num_envs: int) -> None:
        """Forget everything."""
        self.policy.reset(num_envs, self.seed)

    def act(self, observations: dict[str, torch.Tensor], episode_start: torch.Tensor) -> torch.Tensor:
        """Actions i64 [N]."""
        return self.policy.act(observations, episode_start, deterministic=not self.sample)


class Evaluation:
    """One set of episodes, in a bank that all agents share."""

    def __init__(self, path: Path, task: PointNavConfig, device: torch.device, options: Options):
        self.episodes, self.task, self.num_envs = load_episodes(path), task, options.num_envs
        self.renderer = options.renderer
        scenes = find_played(self.episodes, options.scenes_dir)
        self.names = [scene.name for scene in scenes]
        check_episodes(self.episodes, dict(zip(self.names, scenes, strict=True)))
        self.bank = SceneBank.pack(scenes, device)

    def environment(self, episodes: list[Episode], sees: bool) -> PointNavEnv:
        """An environment that plays these episodes; small images where the agent does not look at them."""
        task = self.task if sees else dataclasses.replace(self.task, height=BLIND_IMAGE, width=BLIND_IMAGE)
        table = episode_table(episodes, self.names, self.bank.device)
        n = min(self.num_envs, len(episodes))
        return PointNavEnv(self.bank, n, config=task, episodes=table, renderer=self.renderer if sees else "raycast")

    def play(self, name: str, policy: PolicyAgent | None) -> dict[str, np.ndarray]:
        """All episodes once; per-episode metrics."""
        env = self.environment(self.episodes, sees=policy is not None)
        return playing.evaluate(policy or REFERENCE_AGENTS[name](env), env, len(self.episodes))

    def film(self, name: str, policy: PolicyAgent | None, count: int) -> list[playing.Recording]:
        """Recordings of episodes spread evenly over the file."""
        rows = np.unique(np.linspace(0, len(self.episodes) - 1, count).round().astype(int))
        env = self.environment([self.episodes[i] for i in rows], sees=True)
        return playing.record(policy or REFERENCE_AGENTS[name](env), env)

    def by_scene(self, results: dict[str, np.ndarray]) -> dict[str, Summary]:
        """Summary of each scene's episodes."""
        return {
            name: playing.summarise({metric: results[metric][results["scene"] == k] for metric in METRICS})
            for k, name in enumerate(self.names)
        }


def main(options: Options) -> None:
    if (options.checkpoint is None) == (options.agent is None):
        raise ArgumentError("options: found both or neither of --checkpoint and --agent, expected one of them")
    if options.num_envs < 1 or options.recordings < 0:
        raise ArgumentError("options: expected --num-envs >= 1 and --recordings >= 0")
    device = resolve_device(options.device)
    policy, task = None, PointNavConfig()
    if options.checkpoint is not None:
        policy = PolicyAgent(options.checkpoint, device, options.sample, options.seed)
        task = from_dict(PointNavConfig, policy.info.get("task", {}))
    path = options.episodes or EPISODES / f"{options.split}.json.gz"
    evaluation = Evaluation(path, task, device, options)
    name = options.agent or policy.name
    results = evaluation.play(name, policy)
    summaries, scenes = {name: playing.summarise(results)}, evaluation.by_scene(results)
    show(f"{name} agent on {path.name}", {"all": summaries[name], **scenes})
    mismatches = distance_mismatches(evaluation.episodes, results["start_distance"])
    for line in mismatches[:MAX_LISTED]:
        Console().print(line, markup=False, highlight=False)
    if len(mismatches) > MAX_LISTED:
        Console().print(f"... and {len(mismatches) - MAX_LISTED} more such episodes, see results.json")

    out = options.out or (options.checkpoint.parent / f"eval_{options.split}" if policy else Path("runs") / name)
    write_json(out / "results.json", name, path, results, summaries[name], scenes, mismatches, evaluation)
    if options.report:
        for other in REFERENCE_AGENTS:
            if other != name:
                summaries[other] = playing.summarise(evaluation.play(other, None))
        show(f"agents on {path.name}", summaries)
        films = evaluation.film(name, policy, options.recordings)
        metrics_file = options.checkpoint.parent / "metrics.jsonl" if policy else None
        page = write_report(
            out, f"PointGoal: {name} agent on {path.name}", describe(evaluation, policy), summaries, scenes, films,
            evaluation.bank.scenes, metrics_file if metrics_file and metrics_file.is_file() else None,
            task.success_distance,
        )  # fmt: skip
        Console().print(f"report: {page}")
    if options.record:
        params = {"split": path.name.removesuffix(".json.gz"), "episodes": len(evaluation.episodes)}
        trained = {"checkpoint": str(options.checkpoint), "sample": options.sample, "renderer": options.renderer}
        trained |= {name: policy.info.get(name) if policy else None for name in ("frames", "seed")}
        rows = []
        for agent, summary in summaries.items():
            mine = {"agent": agent, **params, **(trained if policy and agent == name else {})}
            rows += [result_row(metric, summary[metric], mine, device) for metric in RECORDED]
        record("pointnav", rows)


def result_row(metric: str, interval: Interval, params: dict, device: torch.device) -> dict:
    """A row of eval/results/pointnav.jsonl."""
    return {
        "benchmark": "pointnav", "metric": metric, "value": interval.mean, "low": interval.low, "high": interval.high,
        "params": params, "machine": machine(device),
    }  # fmt: skip


def describe(evaluation: Evaluation, policy: PolicyAgent | None) -> dict[str, str]:
    """Facts for the report's head."""
    task = evaluation.task
    facts = {
        "episodes": f"{len(evaluation.episodes)} in {len(evaluation.names)} scenes",
        "task": f"depth {task.width}x{task.height} over {task.hfov_deg:g}°, turns of {task.turn_angle_deg:g}°, "
        f"steps of {task.forward_step:g} m, success within {task.success_distance:g} m, at most {task.max_steps} steps",
    }
    if policy is not None and "frames" in policy.info:
        facts["trained for"] = f"{policy.info['frames']:,} frames"
    return facts


def show(title: str, rows: dict[str, Summary]) -> None:
    """Print means with intervals, one row per agent or scene."""
    table = Table(title=title)
    table.add_column("")
    for metric in SHOWN:
        table.add_column(metric.replace("_", " "), justify="right", no_wrap=True)
    for name, summary in rows.items():
        table.add_row(name, *(" ".join(format_interval(summary[metric])) for metric in SHOWN))
    Console(width=max(Console().width, TABLE_WIDTH)).print(table)


def write_json(path, name, episodes_file, results, overall, scenes, mismatches, evaluation: Evaluation) -> None:
    """All figures and every episode's, atomically; what is not finite becomes null."""

    def number(value):
        return float(value) if math.isfinite(value) else None

    def plain(summary: Summary) -> dict:
        return {m: {k: number(v) for k, v in interval._asdict().items()} for m, interval in summary.items()}

    per_episode = [
        {"episode_id": e.episode_id, "scene_id": e.scene_id, **{m: number(results[m][i]) for m in METRICS}}
        for i, e in enumerate(evaluation.episodes)
    ]
    data = {
        "agent": name, "episodes_file": str(episodes_file), "task": dataclasses.asdict(evaluation.task),
        "overall": plain(overall), "scenes": {scene: plain(s) for scene, s in scenes.items()},
        "distance_mismatches": mismatches, "episodes": per_episode,
    }  # fmt: skip
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_name(f".{path.name}.{os.getpid()}.part")
    part.write_text(json.dumps(data, indent=1, allow_nan=False) + "\n", encoding="utf-8")
    os.replace(part, path)


if __name__ == "__main__":
    logging.basicConfig(format="%(message)s")
    logging.getLogger("batchnav").setLevel(logging.INFO)  # which renderer was taken, and why
    try:
        main(tyro.cli(Options, description=__doc__))
    except BatchnavError as error:
        sys.exit(f"error: {error}")
