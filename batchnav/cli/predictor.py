"""Record maps and train the occupancy predictor: the program of `batchnav train anticipation`."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import torch
from rich.table import Table

from batchnav.agents.registry import REFERENCE_AGENTS, make_reference_agent
from batchnav.cli.console import check_options, show
from batchnav.data.scenes.load import load_scenes
from batchnav.envs.nav import NavEnv
from batchnav.errors import ArgumentError, CheckpointError
from batchnav.mapping.learn import recorded as batches
from batchnav.mapping.learn.recorded import RecordedMaps, record, rotation, split_scenes
from batchnav.mapping.learn.train import NEAR, Schedule, log_losses, path_errors, train
from batchnav.mapping.predictor import OccupancyNet, load_occupancy
from batchnav.runtime.console import announce, new_run, next_command, number_of, progress_bar
from batchnav.runtime.device import resolve_device
from batchnav.runtime.files import check_target
from batchnav.scene.bank import SceneBank
from batchnav.sim.simulator import on_navmesh

if TYPE_CHECKING:
    from batchnav.cli.train import AnticipationOptions

AGENT = "map_planner"
"""The agent whose maps are recorded."""
_MANY_CAMERAS: dict[str, Any] = {"camera_height_range": (0.3, 1.6), "hfov_range_deg": (55.0, 120.0)}
SETTINGS: tuple[dict[str, Any], ...] = tuple(
    {**cameras, "initial_scan": scans} for cameras in ({}, _MANY_CAMERAS) for scans in (False, True)
)
"""Environment settings, with an equal number of maps from each: default or varied cameras, with and without an initial
scan."""
PATH_RATE = 0.1
"""Learning rate on paths, relative to that on cells."""
ROTATION_DEG = 30.0
"""Rotation of the maps in the second row of each table, degrees."""


def main(options: AnticipationOptions) -> None:
    """Record maps, train on cells, then on paths, and print losses and path errors after each phase."""
    check_options(options)
    if not (options.steps or options.path_steps):
        raise ArgumentError("--steps and --path-steps are both 0; set one of them")
    model = load_occupancy(options.init_from) if options.init_from else None
    check_target(options.out, CheckpointError)
    device, generator = resolve_device(options.device), torch.Generator("cpu").manual_seed(options.seed)
    bank = SceneBank.pack(load_scenes(options.scenes, appearance=False), device)
    if bank.num_scenes < batches.HELD_OUT:
        found = number_of(bank.num_scenes, "scene")
        raise ArgumentError(f"scenes: found {found}, expected {batches.HELD_OUT} or more, of which one is held out")
    recorded = record_all(bank, options, generator)
    announce(f"{number_of(len(recorded.cells), 'map')} of {number_of(len(recorded.scene.unique()), 'scene')}")
    training, validation = split_scenes(recorded, generator)
    torch.manual_seed(options.seed)
    network: Any = model or OccupancyNet()
    network.to(device, memory_format=torch.channels_last)
    for steps, share, on_paths in ((options.steps, 1.0, False), (options.path_steps, PATH_RATE, True)):
        if steps:
            schedule = Schedule(steps, options.batch, share * options.learning_rate)
            train(network, recorded, training, schedule, generator, on_paths, options.out)
        print_measures(network, recorded, validation, options.batch)
    config = "pointnav_waypoint_h200" if device.type == "cuda" else "pointnav_waypoint_cpu"
    train_agent = "batchnav", "train", "--config", config, "--env.map.anticipation", options.out.absolute()
    show(next_command("train an agent with it", *train_agent, *new_run()))


def record_all(bank: SceneBank, options: AnticipationOptions, generator: torch.Generator) -> RecordedMaps:
    """`options.maps` maps, an equal part from each of SETTINGS."""
    counts = [options.maps // len(SETTINGS) + (k < options.maps % len(SETTINGS)) for k in range(len(SETTINGS))]
    parts: list[RecordedMaps] = []
    done, is_walkable = 0, functools.partial(on_navmesh, bank)
    with progress_bar("maps", options.maps) as advance:
        for k, (settings, count) in enumerate(zip(SETTINGS, counts, strict=True)):
            env = NavEnv(
                bank, options.num_envs, seed=options.seed * len(SETTINGS) + k,
                sensors=REFERENCE_AGENTS[AGENT].sensors, anticipation=options.init_from, copy=False, **settings,
            )  # fmt: skip
            agent = make_reference_agent(AGENT, env)
            parts += record(env, agent, is_walkable, count, generator, functools.partial(_advance, advance, done))
            done += count
    return RecordedMaps.join(parts)


def _advance(advance: Callable[[int], None], done: int, number: int) -> None:
    """Show progress: `number` maps of this environment after `done` maps of earlier ones."""
    advance(done + number)


def print_measures(model: OccupancyNet, recorded: RecordedMaps, rows: torch.Tensor, batch: int) -> None:
    """Print losses and path errors on maps of held-out scenes, unrotated and rotated.

    Args:
        model: the network.
        recorded: all recorded maps.
        rows: indices of the held-out maps, i64 [n].
        batch: number of maps evaluated at a time.
    """
    model.eval()
    cells = Table("log loss, held-out scenes (nats)", f"within {NEAR} cells of a known cell", "all unknown")
    paths = Table("path length, held-out scenes (metres)", "bias", "RMS error", "regret")
    for angle in (0.0, ROTATION_DEG):
        matrix, suffix = rotation(math.radians(angle)), f", rotated {angle:.0f} degrees" if angle else ""
        for name, nats in log_losses(model, recorded, rows, batch, matrix).items():
            cells.add_row(name + suffix, *(f"{value:.4f}" for value in nats))
        errors = path_errors(model, recorded, rows, batch, matrix)
        paths.add_row("network" + suffix, *(f"{value:.3f}" for value in errors))
    for table in (cells, paths):
        show(table)
