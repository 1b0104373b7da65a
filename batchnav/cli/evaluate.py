"""`batchnav evaluate`: the metrics of agents on fixed episodes, with 95% intervals over episodes and over scenes.

    batchnav evaluate runs/mine --report
    batchnav evaluate runs/mine runs/other pointnav_h200 greedy --split test
    batchnav evaluate shortest_path --task flee
    batchnav evaluate shortest_path --episodes data/datasets/pointnav/gibson/v1/val/val.json.gz
    torchrun --nproc-per-node 2 -m batchnav evaluate runs/mine      # each process plays a share of the episodes

Each agent plays every episode once, in the environment of its training, or of its task. `--agent-radius` and others
change it. `--env.KEY VALUE` after the agents changes any key of training's section `env`, which `batchnav train
--help-all` lists: `batchnav evaluate greedy --env.body.turn-angle-deg 30`. Tables, report and results.json say what
was changed.

SPL uses the geodesic distance of the navmesh at the start, as in Habitat; episodes whose file states another distance
are listed. The command prints tables and writes `results.json` to --out
(`NAME/results.json` if there are several agents).
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import tyro

from batchnav.cli.changes import Changes, parse_with_changes
from batchnav.cli.console import check_options
from batchnav.cli.names import check_agents, check_episodes, check_given
from batchnav.config import bounded
from batchnav.data.files import SCENES_DIR
from batchnav.runtime.garbage_collection import collection_paused


@dataclass(frozen=True)
class Options(Changes):
    """Options of `batchnav evaluate`."""

    agents: tyro.conf.Positional[tuple[str, ...]] = ()
    """Agents to evaluate: policies (files, run folders, bundled names such as pointnav_h200) and reference agents of
    the task (random, forward, greedy, map_planner, map_planner_anticipation, map_searcher, map_searcher_forgetful,
    shortest_path, frontier, orca, wait_and_go, predictive, follower)."""
    task: str | None = None
    """Task of the agents. Default: that of the policies; pointnav for reference agents without a policy."""
    preset: str | None = None
    """Environment of reference agents, for example objectnav_mp3d for Habitat's ObjectNav episodes in Matterport3D.
    Default: the task's own. Policies play in the environment of their training."""
    split: str = "val"
    """Name of a fixed episode file of the task: val, test (procedural houses; some tasks have val alone). PointNav,
    ObjectNav and socialnav: building (corridor floors). PointNav and socialnav: hall (open-plan rooms). ObjectNav:
    procthor (ProcTHOR houses). PointNav: block, scan, course (other scene families), and wide_val, wide_test (bodies
    of radius 0.18 m, as in the Habitat challenges)."""
    episodes: Path | None = None
    """Episode file to use instead of --split: your own, Habitat's with its folder `content`, or the name of a bundled
    one."""
    scenes_dir: Path = SCENES_DIR
    """Folder that contains the scenes of Habitat's episodes."""
    content_scenes: tuple[str, ...] = ()
    """Scenes whose episodes are played, by id or by file name without suffix. Default: all scenes of the file."""
    skip_missing: tyro.conf.FlagCreatePairsOff[bool] = False
    """Leave out episodes in scenes whose files are missing, and print their number."""
    device: str = "auto"
    """Device: "cpu", "cuda", "cuda:1", or "auto" for a GPU if there is one."""
    renderer: Literal["raycast", "opengl", "auto"] = "raycast"
    """Renderer. "auto" times both on a few batches and takes the faster one."""
    num_envs: int = bounded(256, 1, 2**24)
    """Number of environments, at most one per episode."""
    deterministic: tyro.conf.FlagCreatePairsOff[bool] = False
    """Take the policy's most probable actions. Default: sample them, as Habitat's evaluation does."""
    seed: int = bounded(0, 0, 2**62)
    """Seed for action sampling."""
    out: Path | None = None
    """Folder for results.json and the report. Default: a subfolder of the policy's folder, or of runs."""
    report: bool = False
    """Write the report index.html: learning curves, all episodes, and a comparison with reference agents."""
    report_episodes: int = bounded(24, 0, 2**24)
    """Number of episodes with recorded images in the report, failures first."""
    table: Literal["none", "latex", "csv", "markdown"] = "none"
    """Print a table of all agents for a paper, and write it to --out: table.tex, table.csv or table.md. LaTeX and
    Markdown: headline metrics with 95% intervals. csv: all metrics, also with intervals over scenes."""
    plot: bool = False
    """Plot the learning curves of the agents, which are run folders, to --out: curves.pdf and curves.png. Runs whose
    configurations differ in the seed only are one curve, with its 95% interval over seeds."""
    videos: Literal["none", "gif", "mp4"] = "none"
    """File format of videos of the first agent in six episodes. mp4 needs PyAV. none: no videos."""
    maps: bool = False
    """Write the map that the first agent built in six episodes, as ROS maps. For agents with a sensor that reads a
    map."""
    robustness: bool = False
    """Also play under disturbances: odometry that drifts, latency, camera noise and errors, slip, people. Writes
    the table robustness.json and the picture robustness.webp of the first agent."""
    bag: Path | None = None
    """Write the first agent's drive in the first episode as a bag of ROS 2 (.mcap). Needs the extra `ros2`."""
    append_results: bool = False
    """Append result rows to eval/results/TASK.jsonl, and those of --robustness to eval/results/robustness.jsonl."""


def main(options: Options) -> None:
    """Check the options, join other ranks if there are any, and evaluate."""
    check_options(options)
    check_given("agents", options.agents, "policies (runs/mine) or reference agents (greedy)")
    check_agents(options.agents)
    check_episodes(options.episodes)
    with collection_paused():  # these modules import PyTorch
        from batchnav.cli.measure import measure
        from batchnav.runtime.distributed import join

    with join(options.device) as ranks:
        if not ranks.is_rank_zero:
            logging.getLogger("batchnav").setLevel(logging.ERROR)  # rank 0 logs for all
        measure(options, ranks)


def parse(arguments: Sequence[str]) -> Options:
    """The options of a command line."""
    return parse_with_changes(Options, "batchnav evaluate", arguments, __doc__)


def command(arguments: Sequence[str]) -> None:
    """Run `batchnav evaluate`."""
    main(parse(arguments))
