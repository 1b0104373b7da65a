"""Play agents on an episode file, print their results, and write results, report and videos: `batchnav evaluate`."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from batchnav.agents.registry import REFERENCE_AGENTS
from batchnav.cli.changes import changed_environment
from batchnav.cli.console import part_of, show
from batchnav.cli.interrupts import interrupted_with
from batchnav.config import to_dict
from batchnav.envs.config import changed_settings, settings_text
from batchnav.envs.observations import needed_appearance
from batchnav.errors import ArgumentError, BatchnavError, few
from batchnav.evaluation.intervals import Summary
from batchnav.evaluation.players import (
    DEFAULT_TASK,
    Player,
    PolicyPlayer,
    ReferencePlayer,
    find_players,
    policy_name,
)  # fmt: skip
from batchnav.evaluation.robustness import CONDITIONS, DisturbedPlayer
from batchnav.evaluation.run import Evaluation, Played, predicted_mask_table, result_rows, write_results
from batchnav.export.ros2.bag import write_bag
from batchnav.export.ros_map import agent_map, describe
from batchnav.mapping.observations import MAP_SPECS
from batchnav.report.evaluation import write_report
from batchnav.report.paper import group_seeds, plot_curves, write_table
from batchnav.report.results import append_rows, print_agents, print_masks, print_scenes
from batchnav.report.robustness import PICTURE, UNDISTURBED, write_robustness
from batchnav.runtime.bundled import bundled_name, find_episodes, find_policy, find_split
from batchnav.runtime.console import next_command
from batchnav.runtime.distributed import Ranks
from batchnav.runtime.files import check_writable, replacing
from batchnav.runtime.kernels.precompile import SHORTEST_PATH_KERNELS, precompile
from batchnav.scene.ros_map import write_map
from batchnav.tasks import TASKS
from batchnav.view.topdown import TopDownMap
from batchnav.view.video import find_av, save_gif, save_mp4, video_frames

if TYPE_CHECKING:
    from batchnav.cli.evaluate import Options

NUM_VIDEOS, VIDEO_MAP_SIZE = 6, 360
"""Number of episodes shown in videos, and the longer side of their maps, pixels."""
SHARED_WITH_VIEWER = "preset", "scenes_dir", "content_scenes", "skip_missing", "device", "renderer", "deterministic"
"""Options that `batchnav view` has too, beside those of `Changes`."""
IN_FOLDER = {
    "camera_height": "{:g}m", "hfov_deg": "{:g}deg", "agent_radius": "radius_{:g}m", "agent_height": "tall_{:g}m",
    "depth_noise": "depth_noise_{:g}", "actuation_noise": "actuation_noise_{:g}",
}  # fmt: skip
"""What the options of `Changes.given` add to the name of the results' folder."""
_LONGEST = 80
"""Most characters that `--env` options add to the name of the results' folder."""
MAX_LISTED = 20
"""Number of printed episodes whose file states another distance; results.json has all of them."""


def measure(options: Options, ranks: Ranks) -> None:
    """Check all agents, then play the episodes on all ranks. Rank 0 prints and writes.

    The results of an agent are written as soon as it has played, so an error in a later one does not discard them.
    """
    if options.videos == "mp4":
        find_av("--videos mp4")  # raises before the episodes are played
    players = find_players(
        options.agents, ranks.device, options.task, options.deterministic, options.seed, options.preset
    )
    for player in players.values():
        before = player.config
        player.config = changed_environment(before, options)
        player.changes = changed_settings(before, player.config)
    first = next(iter(players.values()))
    out = options.out or default_folder(options, first.config.task_name)
    if options.maps and not first.config.has_map:
        sensors = ", ".join(first.config.sensors) or "none"
        raise ArgumentError(
            f"--maps: found {first.name} with the sensors {sensors}, expected an agent with {' or '.join(MAP_SPECS)}"
        )
    if options.plot:
        group_seeds(run_folders(players))
    if ranks.is_rank_zero:
        check_writable(out, BatchnavError)  # raises before the episodes are played
    task = TASKS[first.config.task_name]
    # The report compares with fast agents only; agents that need images take as long as policies.
    quick = [name for name in task.reference_agents if not REFERENCE_AGENTS[name].needs_images]
    others = [name for name in quick if options.report and name not in players]
    compared = players | {name: ReferencePlayer(name, first.config, first.changes) for name in others}
    if ranks.is_rank_zero and "shortest_path" in compared:
        precompile(SHORTEST_PATH_KERNELS, env_config=to_dict(first.config), device=ranks.device)
    if options.episodes:
        path = find_episodes(options.episodes)
    else:
        path = find_split(options.split, task.episode_file, (each.episode_file for each in TASKS.values()))
    fields = frozenset().union(*(needed_appearance(player.config) for player in players.values()))
    evaluation = Evaluation(
        path,
        ranks.device,
        first.config,
        options.num_envs,
        options.renderer,
        options.scenes_dir,
        ranks,
        fields,
        part_of(options),
    )
    for player in compared.values():
        evaluation.check(player)
    played: dict[str, Played] = {}
    written: dict[str, Path] = {}
    with interrupted_with(lambda: written_results(written, list(players))):
        for name, player in compared.items():
            played[name] = evaluation.play(player)
            if ranks.is_rank_zero and name in players:
                file = (out if len(players) == 1 else out / name) / "results.json"
                write_results(file, evaluation, played[name])
                written[name] = file
                print_results(name, played[name], path.name)
                show(f"results: {file}")
        disturbed = disturb(evaluation, played[first.name], out) if options.robustness else {}
        if ranks.is_rank_zero:
            write_comparison(options, evaluation, played, disturbed, out)


def written_results(written: Mapping[str, Path], names: Sequence[str]) -> str:
    """The files with the results of some agents, and the names of the others; empty where no results were written."""
    if not written:
        return ""
    missing = few([name for name in names if name not in written])
    return f"results are in {few(list(map(str, written.values())))}{missing and f'; no results of {missing}'}"


def disturb(evaluation: Evaluation, played: Played, out: Path) -> dict[str, Summary]:
    """Play an agent again under each condition that applies to it; rank 0 writes the table and the picture.

    Returns:
        Means and intervals by condition; the first is `UNDISTURBED`.
    """
    player = played.player
    used = [condition for condition in CONDITIONS if condition.applies(player.env_config)]
    found = {UNDISTURBED: played.overall}
    for condition in used:
        found[condition.name] = evaluation.play(DisturbedPlayer(player, condition)).overall
    if evaluation.ranks.is_rank_zero:
        title = f"{player.name} on {evaluation.path.name}{in_brackets(player.changes)}"
        write_robustness(title, found, TASKS[player.config.task_name].metric_specs, out)
        if left_out := [condition.name for condition in CONDITIONS if condition not in used]:
            show(f"not measured, since they do not apply to this agent: {', '.join(left_out)}")
        show(f"robustness: {out / PICTURE}")
    return found


def robustness_rows(evaluation: Evaluation, played: Played, disturbed: Mapping[str, Summary]) -> list[dict[str, Any]]:
    """Rows for eval/results/robustness.jsonl: the headline metrics of an agent under each condition."""
    return [
        {**row, "benchmark": "robustness", "params": {**row["params"], "condition": condition}}
        for condition, overall in disturbed.items()
        for row in result_rows(evaluation, played._replace(overall=overall))
    ]


def write_comparison(
    options: Options, evaluation: Evaluation, played: Mapping[str, Played], disturbed: Mapping[str, Summary], out: Path
) -> None:
    """Print the table of all agents; write report, videos and result rows where the options ask for them."""
    first = next(iter(played.values())).player
    if len(played) > 1:
        overall = {name: found.overall for name, found in played.items()}
        title = f"agents on {evaluation.path.name}{in_brackets(changes_of(played))}"
        print_agents(title, overall, TASKS[first.config.task_name].metric_specs)
    for_paper(options, played, out)
    if options.report:
        show(f"report: {write_report(out, evaluation, played, options.report_episodes, disturbed)}")
    if options.maps:
        write_maps(evaluation, first, out / "maps")
    if options.bag is not None:
        (recording,) = evaluation.record(first, np.array([0]))
        write_bag(recording, first.config, options.bag)
        show(f"bag: {options.bag}")
    if options.videos != "none":
        write_videos(evaluation, first, out / "videos", options.videos)
    if options.append_results:
        rows = [row for found in played.values() for row in result_rows(evaluation, found)]
        append_rows(first.config.task_name, rows)
        if disturbed:
            append_rows("robustness", robustness_rows(evaluation, played[first.name], disturbed))
    for line in next_steps(options, first.config.task_name):
        show(line)


def for_paper(options: Options, played: Mapping[str, Played], out: Path) -> None:
    """Print and write the table, and write the plot, where the options ask for them."""
    metrics = TASKS[next(iter(played.values())).player.config.task_name].metric_specs
    if options.table != "none":
        overall = {name: each.overall for name, each in played.items()}
        file, text = write_table(out, options.table, overall, metrics, settings_text(changes_of(played)))
        for line in text.splitlines():
            show(line)
        show(f"table: {file}")
    if options.plot:
        figure = plot_curves(group_seeds(run_folders({name: each.player for name, each in played.items()})), metrics)
        for suffix in (".pdf", ".png"):
            with replacing(out / f"curves{suffix}", BatchnavError) as part:
                figure.savefig(part, format=suffix[1:], dpi=200)
        show(f"curves: {out / 'curves.pdf'}, {out / 'curves.png'}")


def run_folders(players: Mapping[str, Player]) -> list[Path]:
    """Folders of the policies among the players. ArgumentError where there is none."""
    folders = [player.checkpoint.parent for player in players.values() if isinstance(player, PolicyPlayer)]
    if not folders:
        raise ArgumentError(f"--plot: found {few(list(players))}, expected run folders of batchnav train")
    return folders


def changes_of(played: Mapping[str, Played]) -> dict[str, Any]:
    """Settings that the options changed for any of the agents."""
    return {name: value for each in played.values() for name, value in each.player.changes.items()}


def in_brackets(changes: Mapping[str, Any]) -> str:
    """Changed settings as the end of a title; empty without any."""
    return f" ({settings_text(changes)})" if changes else ""


def next_steps(options: Options, task: str) -> list[str]:
    """Lines with commands that show what the agents did: a report, and the viewer."""
    episodes = ("--split", options.split) if options.episodes is None else ("--episodes", options.episodes)
    lines = []
    if not options.report:
        again = *chosen(options, *SHARED_WITH_VIEWER, "num_envs", "seed", "out"), *options.words
        evaluate = "batchnav", "evaluate", *options.agents, "--task", task, *episodes, *again, "--report", *options.env
        lines.append(next_command("write a report", *evaluate))
    file = TASKS[task].episode_file.format(split=options.split).removesuffix(".json.gz")
    shown, its_task = options.episodes or file, () if task == "pointnav" else ("--task", task)
    again = *chosen(options, *SHARED_WITH_VIEWER), *options.words
    view = "batchnav", "view", "--episodes", shown, *its_task, *again, "--agents", *options.agents, *options.env
    lines.append(next_command("watch them in the browser", *view))
    return lines


def chosen(options: Options, *names: str) -> list[object]:
    """Words of a command line that set those of the named options whose values are not their defaults."""
    words: list[object] = []
    for name in names:
        value, option = getattr(options, name), name.replace("_", "-")
        if value != getattr(type(options), name):
            values = () if value is True else value if isinstance(value, tuple) else (value,)
            words += [f"--{option}", *values]
    return words


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


def default_folder(options: Options, task: str = DEFAULT_TASK) -> Path:
    """Folder for results: in the folder of a single policy; in `runs` for bundled policies and for several agents.

    Folders of agents that play several tasks have the name of the task, apart from PointNav.
    """
    words = options.agents
    played = options.split if options.episodes is None else options.episodes.name.partition(".")[0]
    played += "" if options.preset is None else f"_{options.preset}"
    played += "".join(f"_{IN_FOLDER[name].format(value)}" for name, value in options.given.items())
    played += re.sub(r"[^\w.]+", "_", " ".join(("", *options.env)).replace("--env.", ""))[:_LONGEST].rstrip("_")
    played += "" if options.camera_info is None else f"_{options.camera_info.stem}"
    played_as = played if task == DEFAULT_TASK else f"{task}_{played}"
    if len(words) > 1:
        return Path("runs") / f"compared_{played_as}"
    if words[0] in REFERENCE_AGENTS:
        return Path("runs") / words[0] / f"eval_{played_as}"
    policy = find_policy(words[0])
    return (Path("runs") / policy_name(policy) if bundled_name(policy) else policy.parent) / f"eval_{played}"


def print_results(name: str, played: Played, episodes: str) -> None:
    """Print the tables of an agent, and the episodes whose file states another distance."""
    metrics = TASKS[played.player.config.task_name].metric_specs
    print_scenes(f"{name} agent by scene", played.scenes, metrics)
    for line in played.mismatches[:MAX_LISTED]:
        show(line)
    if len(played.mismatches) > MAX_LISTED:
        show(f"... and {len(played.mismatches) - MAX_LISTED} more such episodes, see results.json")
    print_agents(f"{name} agent on {episodes}{in_brackets(played.player.changes)}", {name: played.overall}, metrics)
    print_masks(predicted_mask_table(played))
