"""Measure a navigation agent on fixed episodes: its task's metrics, with 95% intervals over episodes and scenes.

    python eval/pointnav.py --checkpoint runs/mine/policy.safetensors --split val --report
    python eval/pointnav.py --agent greedy --split test
    python eval/pointnav.py --task flee --agent oracle
    python eval/pointnav.py --agent oracle --episodes data/datasets/pointnav/gibson/v1/val/val.json.gz
    torchrun --nproc-per-node 2 eval/pointnav.py --checkpoint runs/mine/policy.safetensors      # share out the episodes

Every episode is played once. SPL uses the geodesic distance that the navmesh gives at the start, as in Habitat;
episodes whose file states another are listed. Prints tables and writes `results.json` into --out. With --report also a
page with learning curves, maps, videos and the reference agents, with --record rows of eval/results/TASK.jsonl.
"""

from __future__ import annotations

import logging
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import tyro
from rich.console import Console

from batchnav.data.source import SCENES_DIR
from batchnav.envs.config import nav_config
from batchnav.envs.nav import needed_appearance
from batchnav.errors import ArgumentError, BatchnavError
from batchnav.evaluation.run import Evaluation, PolicyPlayer, ReferencePlayer
from batchnav.runs.results import append_rows
from batchnav.runtime.distributed import Ranks, join
from batchnav.tasks import TASKS
from batchnav.view.report import write_report
from batchnav.view.terminal import print_agents, print_scenes

EPISODES = Path(__file__).resolve().parents[1] / "assets" / "episodes"
MAX_LISTED = 20
"""Episodes printed whose file states another distance; all are in results.json."""


@dataclass(frozen=True)
class Options:
    """What to measure."""

    checkpoint: Path | None = None
    """A trained policy; its file says which task it was trained for."""
    agent: str | None = None
    """Or a reference agent of the task: random, forward, greedy, oracle, frontier."""
    task: str = "pointnav"
    """What a reference agent is to do; a policy's file says what it was trained for."""
    split: Literal["val", "test", "hall", "scan"] = "val"
    """Which of the fixed episode files; halls and scans are of PointNav."""
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
    record: bool = False
    """Append the figures to eval/results/TASK.jsonl."""


def main(options: Options) -> None:
    if (options.checkpoint is None) == (options.agent is None):
        raise ArgumentError("options: found both or neither of --checkpoint and --agent, expected one of them")
    if options.num_envs < 1 or options.recordings < 0:
        raise ArgumentError("options: expected --num-envs >= 1 and --recordings >= 0")
    with join(options.device) as ranks:
        measure(options, ranks)


def measure(options: Options, ranks: Ranks) -> None:
    """Play, on all ranks; rank 0 prints and writes."""
    device, console = ranks.device, Console()
    if options.checkpoint is not None:
        player = PolicyPlayer(options.checkpoint, device, options.sample, options.seed)
        out = options.checkpoint.parent / f"eval_{options.split}"
    else:
        player = ReferencePlayer(options.agent, nav_config(None, {}, options.task))
        out = Path("runs") / options.agent
    task = TASKS[player.config.task_name]
    if options.agent is not None and options.agent not in task.reference_agents:
        raise ArgumentError(f"agent: found {options.agent!r}, expected one of {', '.join(task.reference_agents)}")
    path, out = options.episodes or EPISODES / task.episode_file.format(split=options.split), options.out or out
    evaluation = Evaluation(
        path, device, player.config.body, options.num_envs, options.renderer, options.scenes_dir, ranks,
        needed_appearance(player.config),
    )  # fmt: skip
    played = [evaluation.play(player)]
    if options.report:
        others = [ReferencePlayer(name, player.config) for name in task.reference_agents if name != player.name]
        played += [evaluation.play(other) for other in others]
    if not ranks.first:
        return

    evaluation.write_results(out / "results.json", played[0])
    print_scenes(f"{player.name} agent by scene", played[0].scenes, task.metric_specs)
    for line in played[0].mismatches[:MAX_LISTED]:
        console.print(line, markup=False, highlight=False)
    if len(played[0].mismatches) > MAX_LISTED:
        console.print(f"... and {len(played[0].mismatches) - MAX_LISTED} more such episodes, see results.json")
    print_agents(f"{player.name} agent on {path.name}", {player.name: played[0].overall}, task.metric_specs)
    if options.report:
        overall = {each.player.name: each.overall for each in played}
        print_agents(f"agents on {path.name}", overall, task.metric_specs)
        console.print(f"report: {report(options, evaluation, played, out)}", soft_wrap=True)
    if options.record:
        append_rows(player.config.task_name, [row for each in played for row in evaluation.result_rows(each)])


def report(options: Options, evaluation: Evaluation, played: list, out: Path) -> Path:
    """Write the page; its path."""
    player = played[0].player
    task = TASKS[player.config.task_name]
    curves = options.checkpoint.parent / "metrics.jsonl" if options.checkpoint else None
    return write_report(
        out, f"{task.title}: {player.name} agent on {evaluation.path.name}", evaluation.facts(player),
        {each.player.name: each.overall for each in played}, played[0].scenes,
        evaluation.film(player, evaluation.spread(options.recordings)), evaluation.bank.scenes, task.metric_specs,
        curves if curves and curves.is_file() else None,
    )  # fmt: skip


if __name__ == "__main__":
    logging.basicConfig(format="%(message)s")
    logging.getLogger("batchnav").setLevel(logging.INFO)  # which renderer was taken, and why
    try:
        main(tyro.cli(Options, description=__doc__))
    except BatchnavError as error:
        sys.exit(f"error: {error}")
