"""`batchnav evaluate`: the metrics of agents on fixed episodes, with 95% intervals over episodes and over scenes.

    batchnav evaluate runs/mine --report
    batchnav evaluate runs/mine runs/other pointnav_h200 greedy --split test
    batchnav evaluate shortest_path --task flee
    batchnav evaluate shortest_path --episodes data/datasets/pointnav/gibson/v1/val/val.json.gz
    torchrun --nproc-per-node 2 -m batchnav evaluate runs/mine      # each process plays a share of the episodes

Each agent plays every episode once. SPL uses the geodesic distance of the navmesh at the start, as in Habitat; episodes
whose file states another distance are listed. The command prints tables and writes `results.json` to --out
(`NAME/results.json` if there are several agents).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import torch
import tyro

from batchnav.agents.registry import REFERENCE_AGENTS, agent_name
from batchnav.cli.console import AGENT, show, with_current_names
from batchnav.config import to_dict
from batchnav.data.sources.scene_source import SCENES_DIR
from batchnav.envs.config import nav_config, with_camera
from batchnav.envs.observations import needed_appearance
from batchnav.errors import ArgumentError, BatchnavError
from batchnav.evaluation.players import Player, PolicyPlayer, ReferencePlayer, policy_name
from batchnav.evaluation.results import result_rows, write_results
from batchnav.evaluation.run import Evaluation, Played
from batchnav.export.ros_map import agent_map, describe
from batchnav.mapping.observations import MAP_SPECS
from batchnav.report.evaluation import write_report
from batchnav.report.results import append_rows
from batchnav.report.terminal import print_agents, print_scenes
from batchnav.runtime.checks import check_int, check_seed
from batchnav.runtime.distributed.join import join
from batchnav.runtime.distributed.ranks import Ranks
from batchnav.runtime.files.atomic import check_writable
from batchnav.runtime.files.bundled import bundled_name, find_policy, find_split
from batchnav.runtime.kernels.precompile import SHORTEST_PATH_KERNELS, precompile
from batchnav.scene.ros_map import write_map
from batchnav.tasks import TASKS
from batchnav.view.topdown import TopDownMap
from batchnav.view.video import save_gif, save_mp4, video_frames

NUM_VIDEOS, VIDEO_MAP_SIZE = 6, 360
"""Number of episodes shown in videos, and the longer side of their maps, pixels."""
MAX_LISTED = 20
"""Number of printed episodes whose file states another distance; results.json has all of them."""
RENAMED = {
    "--recordings": "--report-episodes", "--record": "--append-results", "--no-record": "--no-append-results",
    "--checkpoint": AGENT, "--agent": AGENT,
}  # fmt: skip
"""Current names of options by former name."""


@dataclass(frozen=True)
class Options:
    """Options of `batchnav evaluate`."""

    agents: tyro.conf.Positional[tuple[str, ...]] = ()
    """Agents to evaluate: policies (files, run folders, bundled names such as pointnav_h200) and reference agents of
    the task (random, forward, greedy, map_planner, map_planner_anticipation, shortest_path, frontier)."""
    task: str = "pointnav"
    """Task of reference agents that are evaluated without a policy; a policy's file names its task."""
    split: str = "val"
    """Name of a fixed episode file: val, test (procedural houses). PointNav only: hall, building, block, scan (other
    scene families), and wide_val, wide_test (bodies of radius 0.18 m, as in the Habitat challenges)."""
    episodes: Path | None = None
    """Episode file to use instead of --split: your own, or Habitat's with its folder `content`."""
    scenes_dir: Path = SCENES_DIR
    """Folder that contains the scenes of Habitat's episodes."""
    device: str = "auto"
    """Device: "cpu", "cuda", "cuda:1", or "auto" for a GPU if there is one."""
    renderer: Literal["raycast", "opengl", "auto"] = "raycast"
    """Renderer. "auto" times both on a few batches and takes the faster one."""
    num_envs: int = 256
    """Number of environments, at most one per episode."""
    sample: bool = True
    """Sample the policy's actions, as Habitat's evaluation does. --no-sample takes the most probable actions."""
    seed: int = 0
    """Seed for action sampling."""
    camera_height: float | None = None
    """Height of the main camera above the floor, metres. Default: the height in training."""
    hfov_deg: float | None = None
    """Horizontal field of view of the main camera, degrees. Default: the field of view in training."""
    out: Path | None = None
    """Folder for results.json and the report. Default: a subfolder of the policy's folder, or of runs."""
    report: bool = False
    """Write the report index.html: learning curves, all episodes, and a comparison with reference agents."""
    report_episodes: int = 24
    """Number of episodes with recorded images in the report, failures first."""
    videos: Literal["none", "gif", "mp4"] = "none"
    """File format of videos of the first agent in six episodes. mp4 needs PyAV. none: no videos."""
    maps: bool = False
    """Write the map that the first agent built in six episodes, as ROS maps. For agents with a sensor that reads a
    map."""
    append_results: bool = False
    """Append result rows to eval/results/TASK.jsonl."""


def main(options: Options) -> None:
    """Check the options, join other ranks if there are any, and evaluate."""
    counts = (("num-envs", options.num_envs, 1), ("report-episodes", options.report_episodes, 0))
    for name, value, least in counts:
        check_int(f"--{name}", value, least, 2**24)
    check_seed(options.seed)
    if not options.agents:
        raise ArgumentError("agents: found none, expected policies (runs/mine) or reference agents (greedy)")
    with join(options.device) as ranks:
        measure(options, ranks)


def measure(options: Options, ranks: Ranks) -> None:
    """Play the episodes on all ranks; rank 0 prints and writes the results."""
    players = find_players(options.agents, ranks.device, options.task, options.sample, options.seed)
    for player in players.values():
        player.config = with_camera(player.config, options.camera_height, options.hfov_deg)
    first, out = next(iter(players.values())), options.out or default_folder(options)
    if options.maps and MAP_SPECS.keys().isdisjoint(first.config.sensors):
        sensors = ", ".join(first.config.sensors) or "none"
        raise ArgumentError(
            f"--maps: found {first.name} with the sensors {sensors}, expected an agent with {' or '.join(MAP_SPECS)}"
        )
    if ranks.is_rank_zero:
        check_writable(out, BatchnavError)  # raises before the episodes are played
    task = TASKS[first.config.task_name]
    # The report compares with fast agents only; agents that need images take as long as policies.
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
        print_results(name, found, path.name)
        show(f"results: {results}")
    if len(compared) > 1:
        overall = {name: found.overall for name, found in compared.items()}
        print_agents(f"agents on {path.name}", overall, task.metric_specs)
    if options.report:
        show(f"report: {write_report(out, evaluation, compared, options.report_episodes)}")
    if options.maps:
        write_maps(evaluation, first, out / "maps")
    if options.videos != "none":
        write_videos(evaluation, first, out / "videos", options.videos)
    if options.append_results:
        append_rows(
            first.config.task_name, [row for found in compared.values() for row in result_rows(evaluation, found)]
        )


def write_videos(evaluation: Evaluation, player: Player, folder: Path, kind: str) -> None:
    """Write videos of a few episodes: the agent's observations and its path on a map. `kind`: gif or mp4."""
    rows = evaluation.evenly_spaced(NUM_VIDEOS)
    for row, recording in zip(rows, evaluation.record(player, rows), strict=True):
        scene = evaluation.bank.scenes[recording.scene]
        shortest = None
        if recording.goal is not None:
            shortest = scene.navmesh.shortest_path(recording.positions[0], recording.goal)
        topdown = TopDownMap(scene.navmesh, scene.mesh, float(recording.positions[0, 1]), VIDEO_MAP_SIZE)
        path = folder / f"episode_{row:04d}.{kind}"
        {"gif": save_gif, "mp4": save_mp4}[kind](video_frames(topdown, recording, shortest), path)
    show(f"videos: {folder}")


def write_maps(evaluation: Evaluation, player: Player, folder: Path) -> None:
    """Write the maps that an agent built in a few episodes, as ROS maps in the frames of their scenes."""
    rows = evaluation.evenly_spaced(NUM_VIDEOS)
    for row, recording in zip(rows, evaluation.record(player, rows), strict=True):
        if recording.agent_map is not None:
            grid = agent_map(recording.agent_map)
            what = f"Map of {player.name} in episode {row} in {evaluation.names[recording.scene]}."
            write_map(grid, folder / f"episode_{row:04d}.yaml", describe(grid, what))
    show(f"maps: {folder}")


def find_players(
    words: Sequence[str], device: torch.device, task_name: str, sample: bool = True, seed: int = 0
) -> dict[str, Player]:
    """The agents by their names in tables. Policies come first, since they determine the task.

    Args:
        words: policies (files, run folders, bundled names) and names of reference agents.
        device: device of the policies.
        task_name: task of the reference agents where there is no policy.
        sample: sample the policies' actions; False: take the most probable ones.
        seed: seed for action sampling.

    Raises:
        ArgumentError: the agents have different tasks or bodies, or a reference agent cannot play the task.
    """
    reference = [word for word in words if agent_name(word) in REFERENCE_AGENTS and not Path(word).exists()]
    policies = [PolicyPlayer(find_policy(word), device, sample, seed) for word in words if word not in reference]
    players: dict[str, Player] = {player.name: player for player in policies}
    if len(players) < len(policies):
        raise ArgumentError(f"agents: found {', '.join(words)}, expected policies in folders of different names")
    config = policies[0].config if policies else nav_config(None, {}, task_name)
    task = TASKS[config.task_name]
    for name, player in players.items():
        if (player.config.task, player.config.body) != (config.task, config.body):
            raise ArgumentError(
                f"{name}: found another task or body than that of {next(iter(players))}, expected equal ones; evaluate "
                f"them separately"
            )
    for name in map(agent_name, reference):
        if name not in task.reference_agents:
            raise ArgumentError(f"agent: found {name!r}, expected one of {', '.join(task.reference_agents)}")
        players[name] = ReferencePlayer(name, config)
    return players


def default_folder(options: Options) -> Path:
    """Folder for results: in the folder of a single policy; in `runs` for bundled policies and for several agents."""
    words = options.agents
    played = options.split if options.episodes is None else options.episodes.name.partition(".")[0]
    played += "" if options.camera_height is None else f"_{options.camera_height:g}m"
    played += "" if options.hfov_deg is None else f"_{options.hfov_deg:g}deg"
    if len(words) > 1:
        return Path("runs") / f"compared_{played}"
    folder = Path("runs") / agent_name(words[0])
    if agent_name(words[0]) not in REFERENCE_AGENTS:
        policy = find_policy(words[0])
        folder = Path("runs") / policy_name(policy) if bundled_name(policy) else policy.parent
    return folder / f"eval_{played}"


def print_results(name: str, played: Played, episodes: str) -> None:
    """Print the tables of an agent, and the episodes whose file states another distance."""
    metrics = TASKS[played.player.config.task_name].metric_specs
    print_scenes(f"{name} agent by scene", played.scenes, metrics)
    for line in played.mismatches[:MAX_LISTED]:
        show(line)
    if len(played.mismatches) > MAX_LISTED:
        show(f"... and {len(played.mismatches) - MAX_LISTED} more such episodes, see results.json")
    print_agents(f"{name} agent on {episodes}", {name: played.overall}, metrics)


def parse(arguments: Sequence[str]) -> Options:
    """The options of a command line. Options of the previous version are accepted with a FutureWarning."""
    arguments = with_current_names(arguments, RENAMED)
    return tyro.cli(Options, prog="batchnav evaluate", description=__doc__, args=arguments)


def command(arguments: Sequence[str]) -> None:
    """Run `batchnav evaluate`."""
    main(parse(arguments))
