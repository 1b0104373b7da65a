"""`batchnav view`: a scene and its agents in the browser.

    batchnav view house:7
    batchnav view my/scan.glb --agents runs/mine runs/other
    batchnav view --episodes val --agents pointnav_h200 shortest_path
    batchnav view --task objectnav --episodes objectnav_val --agents map_searcher
    batchnav view house:7 --agents greedy --agent-radius 0.18 --env.body.turn-angle-deg 30

The command serves a page at http://127.0.0.1:8080 and needs no display. Over ssh, forward the port:
`ssh -L 8080:localhost:8080 MACHINE`. `docs/howto/viewer.md` describes the page and its keys.
"""

from __future__ import annotations

import importlib.util
import os
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import tyro

from batchnav.cli.changes import Changes, changed_environment, parse_with_changes
from batchnav.cli.console import part_of, show
from batchnav.cli.interrupts import STATUS
from batchnav.cli.names import check_agents, check_episodes, check_scenes
from batchnav.data.files import SCENES_DIR
from batchnav.errors import DeviceError
from batchnav.runtime.console import next_command
from batchnav.runtime.garbage_collection import collection_paused
from batchnav.runtime.imports import install_command

if TYPE_CHECKING:
    from batchnav.view.viewer.session import Session


@dataclass(frozen=True)
class Options(Changes):
    """Options of `batchnav view`."""

    scenes: tyro.conf.Positional[tuple[str, ...]] = ()
    """Scenes: house:7, house:0-3, mesh files, prepared scenes. With --episodes: show only episodes in these scenes."""
    agents: tuple[str, ...] = ()
    """Agents to show next to each other: policies (files, run folders, bundled names) and reference agents of the
    task. Default: none; you drive an agent with the keyboard."""
    task: str | None = None
    """Task of the agents. Default: that of the policies; pointnav for reference agents and yours without a policy."""
    preset: str | None = None
    """Environment of reference agents and yours, for example objectnav_mp3d. Default: the task's own."""
    episodes: str | None = None
    """Episode file, or the name of a bundled one, such as val, building or objectnav_val. Default: episodes are sampled
    in the scenes."""
    scenes_dir: Path = SCENES_DIR
    """Folder that contains the scenes of Habitat's episodes."""
    content_scenes: tuple[str, ...] = ()
    """Scenes whose episodes are shown, by id or by file name without suffix. Default: all scenes of the file."""
    skip_missing: tyro.conf.FlagCreatePairsOff[bool] = False
    """Leave out episodes in scenes whose files are missing, and print their number."""
    device: str = "auto"
    """Device: "cpu", "cuda", "cuda:1", or "auto" for a GPU if there is one."""
    renderer: Literal["raycast", "opengl", "auto"] = "raycast"
    """Renderer. "auto" times both on a few batches and takes the faster one."""
    deterministic: tyro.conf.FlagCreatePairsOff[bool] = False
    """Take the policy's most probable actions. Default: sample them, as Habitat's evaluation does."""
    host: str = "127.0.0.1"
    """Address of the server. 0.0.0.0 accepts connections from other machines that know the token in the printed
    address."""
    port: int = 8080
    """Port of the server. If it is in use, the next free port is taken."""


def command(arguments: Sequence[str]) -> None:
    """Run `batchnav view`."""
    options = parse(arguments)
    if importlib.util.find_spec("viser") is None:  # before the imports below, which take seconds
        raise DeviceError(f"viewer: found no viser, expected it: {install_command('viewer')}")
    check_agents(options.agents)
    check_episodes(options.episodes)
    if options.episodes is None:
        check_scenes(options.scenes, options.scenes_dir)
    with collection_paused():  # these modules import PyTorch
        from batchnav.view.viewer.app import Viewer
        from batchnav.view.viewer.guard import check_server

    check_server(options.host, options.port)  # before scenes are loaded, which takes a while
    viewer = Viewer(session_of(options), options.host, options.port)
    print(viewer.url, flush=True)
    try:
        viewer.run()
    except KeyboardInterrupt:
        print()  # the terminal shows ^C on this line
        show(next_step(options))
        if not viewer.stop():  # an agent is playing an episode, which may take minutes: nothing of it is kept
            sys.stdout.flush()
            os._exit(STATUS)
        sys.exit(STATUS)


def next_step(options: Options) -> str:
    """A line with a command that shows more of the same scenes: a trained agent, episodes, or the agents' metrics."""
    folder = () if options.scenes_dir == SCENES_DIR else ("--scenes-dir", options.scenes_dir)
    episodes = () if options.episodes is None else ("--episodes", options.episodes)
    task: tuple[str, ...] = () if options.task in (None, "pointnav") else ("--task", options.task)
    task += () if options.preset is None else ("--preset", options.preset)
    agent = "shortest_path" if task else "pointnav_waypoint_small"
    changed = *task, *options.words
    if not options.agents:
        words = ("view", *options.scenes, *episodes, *changed, *folder, "--agents", agent, *options.env)
        return next_command("watch an agent in them", "batchnav", *words)
    if episodes:
        words = ("evaluate", *options.agents, *episodes, *changed, *folder, "--report", *options.env)
        return next_command("measure the agents", "batchnav", *words)
    body = Changes(agent_radius=options.agent_radius, agent_height=options.agent_height).words
    words = ("data", "make-episodes", *options.scenes, *task, *body, "--out", "episodes.json.gz")
    return next_command("make episodes in them", "batchnav", *words)


def parse(arguments: Sequence[str]) -> Options:
    """The options of a command line."""
    return parse_with_changes(Options, "batchnav view", arguments, __doc__)


def session_of(options: Options) -> Session:
    """The viewer's session: scenes, episodes and agents."""
    from batchnav.evaluation.players import environment_of, find_players
    from batchnav.runtime.bundled import find_episodes
    from batchnav.runtime.device import resolve_device
    from batchnav.view.viewer.session import open_session

    device = resolve_device(options.device)
    players, config = {}, None
    if options.agents:
        players = find_players(options.agents, device, options.task, options.deterministic, preset=options.preset)
        for player in players.values():
            player.config = changed_environment(player.config, options)
    else:
        config = changed_environment(environment_of(options.task, options.preset), options)
    path = None if options.episodes is None else find_episodes(options.episodes)
    where = options.renderer, options.scenes_dir
    return open_session(options.scenes, path, players, device, *where, config, part_of(options))
