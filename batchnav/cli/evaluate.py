"""`batchnav evaluate`: agents on fixed episodes, their task's metrics with 95% intervals over episodes and scenes.

    batchnav evaluate runs/mine --report
    batchnav evaluate runs/mine runs/other pointnav_h200 greedy --split test
    batchnav evaluate shortest_path --task flee
    batchnav evaluate shortest_path --episodes data/datasets/pointnav/gibson/v1/val/val.json.gz
    torchrun --nproc-per-node 2 -m batchnav evaluate runs/mine      # share out the episodes

Every episode is played once by each agent. SPL uses the geodesic distance that the navmesh gives at the start, as in
Habitat; episodes whose file states another are listed. Prints tables and writes `results.json` into --out, or
`NAME/results.json` for each of several. With --report also a page with learning curves and all episodes, beside the
reference agents, with --record rows of eval/results/TASK.jsonl.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import tyro
from rich.console import Console

from batchnav.agents.registry import REFERENCE_AGENTS, agent_name
from batchnav.config import to_dict
from batchnav.data.sources.scene_source import SCENES_DIR
from batchnav.envs.config import nav_config, with_camera
from batchnav.envs.observations import needed_appearance
from batchnav.errors import ArgumentError, BatchnavError
from batchnav.evaluation.players import Player, PolicyPlayer, ReferencePlayer, policy_name
from batchnav.evaluation.results import result_rows, write_results
from batchnav.evaluation.run import Evaluation, Played
from batchnav.report.evaluation import write_report
from batchnav.report.results import append_rows
from batchnav.report.terminal import print_agents, print_scenes
from batchnav.runtime.distributed.join import join
from batchnav.runtime.distributed.ranks import Ranks
from batchnav.runtime.files.atomic import check_writable
from batchnav.runtime.files.bundled import ASSETS, find_policy, find_split
from batchnav.runtime.kernels.precompile import SHORTEST_PATH_KERNELS, precompile
from batchnav.tasks import TASKS
from batchnav.view.topdown import TopDownMap
from batchnav.view.video import save_gif, save_mp4, video_frames

FILMED, VIDEO_MAP_SIZE = 6, 360
"""Episodes that are shown in videos, and the longer side of their maps in pixels."""
MAX_LISTED = 20
"""Episodes printed whose file states another distance; all are in results.json."""


@dataclass(frozen=True)
class Options:
    """What to measure."""

    agents: tyro.conf.Positional[tuple[str, ...]] = ()
    """Policies: files, folders of runs, or names of those that come with batchnav (pointnav_h200). A file says which
    task it was trained for. Or reference agents of the task: random, forward, greedy, map_planner,
    map_planner_anticipation, shortest_path, frontier."""
    checkpoint: Path | None = None
    """A policy, as the first of the agents."""
    agent: str | None = None
    """A reference agent, as the first of the agents."""
    task: str = "pointnav"
    """What a reference agent is to do; a policy's file says what it was trained for."""
    split: str = "val"
    """Name of a fixed episode file: val, test (procedural houses); of PointNav alone hall, building, block, scan (the
    other scene families), and wide_val and wide_test for bodies as wide as the Habitat challenges' (radius 0.18 m)."""
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
    camera_height: float | None = None
    """Metres above the floor: another height of the main camera than the policies trained with."""
    hfov_deg: float | None = None
    """Its field of view, likewise."""
    out: Path | None = None
    """Folder for results.json and the report; by default beside the only policy; else in runs."""
    report: bool = False
    """Also write the report: one page, index.html."""
    recordings: int = 24
    """Episodes whose pictures are in the report, failures before others."""
    videos: Literal["none", "gif", "mp4"] = "none"
    """Also write videos of six episodes of the first agent, spread evenly over the file: GIF, or MP4 (PyAV)."""
    record: bool = False
    """Append the figures to eval/results/TASK.jsonl."""


def main(options: Options) -> None:
    """Play, print and write."""
    for name, value, least in (("num-envs", options.num_envs, 1), ("recordings", options.recordings, 0)):
        if value < least:
            raise ArgumentError(f"--{name}: found {value}, expected {least} or more")
    words = [str(word) for word in (options.checkpoint, options.agent, *options.agents) if word is not None]
    if not words:
        raise ArgumentError("options: found no agent, expected policies, as runs/mine, or reference agents, as greedy")
    with join(options.device) as ranks:
        measure(options, words, ranks)


def measure(options: Options, words: Sequence[str], ranks: Ranks) -> None:
    """Play, on all ranks; rank 0 prints and writes."""
    players = find_players(options, words, ranks)
    first, out = next(iter(players.values())), options.out or default_folder(options, words)
    if ranks.is_rank_zero:
        check_writable(out, BatchnavError)  # before anything is played
    task = TASKS[first.config.task_name]
    # Agents that need images take as long as policies.
    quick = [name for name in task.reference_agents if not REFERENCE_AGENTS[name].needs_images]
    others = [name for name in quick if options.report and name not in players]
    if ranks.is_rank_zero and ranks.device.type == "cpu" and "shortest_path" in (*players, *others):
        precompile(SHORTEST_PATH_KERNELS, env_config=to_dict(first.config))
    path = options.episodes or find_split(options.split, task.episode_file)
    fields = frozenset().union(*(needed_appearance(player.config) for player in players.values()))
    evaluation = Evaluation(
        path, ranks.device, first.config.body, options.num_envs, options.renderer, options.scenes_dir, ranks, fields
    )
    played = {name: evaluation.play(player) for name, player in players.items()}
    compared = played | {name: evaluation.play(ReferencePlayer(name, first.config)) for name in others}
    if not ranks.is_rank_zero:
        return

    for name, found in played.items():
        results = out / ("" if len(played) == 1 else name) / "results.json"
        write_results(results, evaluation, found)
        print_played(name, found, path.name)
        Console().print(f"results: {results}", soft_wrap=True)
    if len(compared) > 1:
        overall = {name: found.overall for name, found in compared.items()}
        print_agents(f"agents on {path.name}", overall, task.metric_specs)
    if options.report:
        Console().print(f"report: {write_report(out, evaluation, compared, options.recordings)}", soft_wrap=True)
    if options.videos != "none":
        film(evaluation, first, out / "videos", options.videos)
    if options.record:
        append_rows(
            first.config.task_name, [row for found in compared.values() for row in result_rows(evaluation, found)]
        )


def film(evaluation: Evaluation, player: Player, folder: Path, kind: str) -> None:
    """Write a few episodes as videos: what the agent saw, beside its map."""
    rows = evaluation.evenly_spaced(FILMED)
    for row, recording in zip(rows, evaluation.record(player, rows), strict=True):
        scene = evaluation.bank.scenes[recording.scene]
        shortest = None
        if recording.goal is not None:
            shortest = scene.navmesh.shortest_path(recording.positions[0], recording.goal)
        plan = TopDownMap(scene.navmesh, scene.mesh, float(recording.positions[0, 1]), VIDEO_MAP_SIZE)
        path = folder / f"episode_{row:04d}.{kind}"
        {"gif": save_gif, "mp4": save_mp4}[kind](video_frames(plan, recording, shortest), path)
    Console().print(f"videos: {folder}", soft_wrap=True)


def find_players(options: Options, words: Sequence[str], ranks: Ranks) -> dict[str, Player]:
    """The agents by the names that tables give them, the policies first: they say what the task is.

    ArgumentError where they do not go together, or a reference agent does not know the task.
    """
    reference = [word for word in words if agent_name(word) in REFERENCE_AGENTS and not Path(word).exists()]
    policies = [
        PolicyPlayer(find_policy(word), ranks.device, options.sample, options.seed)
        for word in words
        if word not in reference
    ]
    players: dict[str, Player] = {player.name: player for player in policies}
    if len(players) < len(policies):
        raise ArgumentError(f"agents: found {', '.join(words)}, expected policies in folders of different names")
    config = policies[0].config if policies else nav_config(None, {}, options.task)
    task = TASKS[config.task_name]
    for name, player in players.items():
        if (player.config.task, player.config.body) != (config.task, config.body):
            raise ArgumentError(f"{name}: found another task or body than {next(iter(players))}'s, expected the same")
    for name in map(agent_name, reference):
        if name not in task.reference_agents:
            raise ArgumentError(f"agent: found {name!r}, expected one of {', '.join(task.reference_agents)}")
        players[name] = ReferencePlayer(name, config)
    for player in players.values():
        player.config = with_camera(player.config, options.camera_height, options.hfov_deg)
    return players


def default_folder(options: Options, words: Sequence[str]) -> Path:
    """Where results go: below the only policy's folder, or below `runs` for what comes with batchnav or is compared."""
    played = options.split if options.episodes is None else options.episodes.name.partition(".")[0]
    played += "" if options.camera_height is None else f"_{options.camera_height:g}m"
    played += "" if options.hfov_deg is None else f"_{options.hfov_deg:g}deg"
    if len(words) > 1:
        return Path("runs") / f"compared_{played}"
    folder = Path("runs") / agent_name(words[0])
    if agent_name(words[0]) not in REFERENCE_AGENTS:
        policy = find_policy(words[0])
        bundled = policy.resolve().is_relative_to(ASSETS)
        folder = Path("runs") / policy_name(policy) if bundled else policy.parent
    return folder / f"eval_{played}"


def print_played(name: str, played: Played, episodes: str) -> None:
    """Tables of an agent, and the episodes whose file states another distance."""
    console, metrics = Console(), TASKS[played.player.config.task_name].metric_specs
    print_scenes(f"{name} agent by scene", played.scenes, metrics)
    for line in played.mismatches[:MAX_LISTED]:
        console.print(line, markup=False, highlight=False)
    if len(played.mismatches) > MAX_LISTED:
        console.print(f"... and {len(played.mismatches) - MAX_LISTED} more such episodes, see results.json")
    print_agents(f"{name} agent on {episodes}", {name: played.overall}, metrics)


def command(arguments: Sequence[str]) -> None:
    """`batchnav evaluate ...`."""
    main(tyro.cli(Options, prog="batchnav evaluate", description=__doc__, args=list(arguments)))
