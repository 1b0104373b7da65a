"""`batchnav view`: a scene and agents in it, in the browser.

    batchnav view house:7
    batchnav view my/scan.glb --policy runs/mine runs/other
    batchnav view --episodes val --policy pointnav_h200 shortest_path

Serves a page at http://127.0.0.1:8080: over ssh, forward the port (`ssh -L 8080:localhost:8080 machine`). No display is
needed. `docs/viewer.md` says what is shown, and what the keys do.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import tyro

from batchnav.cli.evaluate import Options as EvaluateOptions
from batchnav.cli.evaluate import find_players
from batchnav.data.sources.scene_source import SCENES_DIR
from batchnav.runtime.device import resolve_device
from batchnav.runtime.distributed.ranks import Ranks
from batchnav.runtime.files.bundled import find_episodes
from batchnav.view.viewer.app import Viewer, open_session
from batchnav.view.viewer.session import Session


@dataclass(frozen=True)
class Options:
    """What to look at."""

    scenes: tyro.conf.Positional[tuple[str, ...]] = ()
    """Scenes: house:7, house:0-3, mesh files, prepared scenes. With --episodes only episodes in these."""
    policy: tuple[str, ...] = ()
    """Agents, side by side: policies (files, folders of runs, names of those that come with batchnav) or reference
    agents of PointNav. Without any, one drives."""
    episodes: str | None = None
    """An episode file, or the name of one that comes with batchnav, as val, test, hall, building, block or scan. By
    default episodes are drawn in the scenes."""
    scenes_dir: Path = SCENES_DIR
    """Folder below which the scenes of Habitat's episodes lie."""
    device: str = "auto"
    renderer: Literal["raycast", "opengl", "auto"] = "raycast"
    sample: bool = True
    """Draw the policy's actions; --no-sample takes the most probable ones."""
    host: str = "127.0.0.1"
    """Address to listen at; 0.0.0.0 lets other machines in."""
    port: int = 8080
    """The next free one is taken where it is in use."""


def command(arguments: Sequence[str]) -> None:
    """`batchnav view ...`."""
    options = tyro.cli(Options, prog="batchnav view", description=__doc__, args=list(arguments))
    viewer = Viewer(session_of(options), options.host, options.port)
    print(f"http://{options.host}:{viewer.server.get_port()}", flush=True)
    viewer.run()


def session_of(options: Options) -> Session:
    """What the viewer shows."""
    device = resolve_device(options.device)
    asked = EvaluateOptions(sample=options.sample)
    players = find_players(asked, options.policy, Ranks(device)) if options.policy else {}
    path = None if options.episodes is None else find_episodes(options.episodes)
    return open_session(options.scenes, path, players, device, options.renderer, options.scenes_dir)
