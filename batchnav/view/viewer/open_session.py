"""Opening a session of the viewer: scenes, episodes and agents."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch

from batchnav.data.episodes.generate import generate_episodes
from batchnav.data.folders import SCENES_DIR
from batchnav.data.objectnav.goal_kinds import OBJECT_GOALS
from batchnav.data.played_file import load_played, playable
from batchnav.data.scene_ref import scene_ids
from batchnav.data.scenes import find_scenes
from batchnav.envs.config import NavConfig, nav_config
from batchnav.envs.observations import goal_categories_of, needed_appearance
from batchnav.errors import ArgumentError
from batchnav.evaluation.players import Player
from batchnav.scene.bank import SceneBank
from batchnav.scene.scene import Scene
from batchnav.tasks import TASKS
from batchnav.view.viewer.session import Session

SAMPLED_EPISODES = 20
"""Number of sampled episodes per scene when no episode file is given."""


def open_session(
    scenes: tuple[str, ...],
    episodes: Path | None,
    players: Mapping[str, Player],
    device: torch.device,
    renderer: str = "raycast",
    scenes_dir: Path = SCENES_DIR,
    config: NavConfig | None = None,
) -> Session:
    """Load a session: scenes by id, with episodes from a file or sampled as by Habitat's generator.

    Args:
        scenes: scene ids (`data.scenes.find_scene`); with `episodes` they select episodes of the file; empty: all.
        episodes: an episode file.
        players: agents of one task and body, by name; without agents the viewer shows depth and colour.
        device: device that agents run on.
        renderer: renderer for agents with image sensors.
        scenes_dir: folder that the scene ids of Habitat's episodes are relative to.
        config: environment of the user's agent where there are no players; None: PointNav's.

    ArgumentError if there is no episode to show, EpisodeError for an episode that cannot be played.
    """
    config = next((player.config for player in players.values()), config or nav_config(None, {}))
    if not players:
        config = dataclasses.replace(config, sensors=("depth", "rgb"))
    categories, ids = goal_categories_of(config), scene_ids(scenes)
    if episodes is not None:
        file = load_played(episodes, categories)
        found = [e for e in file.episodes if not ids or e.scene_id in ids]
        if not found:
            raise ArgumentError(f"{episodes}: found no episode in {', '.join(ids)}, expected scenes of this file")
        loaded = file.scenes(found, scenes_dir, config.body.navmesh)
        with file.named():
            found = playable(found, {scene.name: scene for scene in loaded})
    elif ids:
        loaded, found = sampled(find_scenes(ids, scenes_dir, config.body.navmesh), config, device)
    else:
        raise ArgumentError(
            "view: found neither scenes nor --episodes, expected scene ids (such as house:7) or an episode file"
        )
    fields = frozenset().union(*(needed_appearance(c) for c in (config, *(p.config for p in players.values()))))
    bank = SceneBank.pack(loaded, device, fields, goal_categories=categories)
    return Session(bank, found, players, config, renderer)


def sampled(scenes: list[Scene], config: NavConfig, device: torch.device) -> tuple[list[Scene], list[Any]]:
    """The scenes with the goals that the task needs, and episodes in them.

    Goals that are places have the task's distances from the start; for tasks without goals they have PointNav's.
    """
    kind = TASKS[config.task_name].goal_kind
    task: Any = config.task
    if kind in OBJECT_GOALS:
        objects = OBJECT_GOALS[kind]
        scenes = objects.with_goals(scenes, task.rules, task.labels, device)
        return scenes, objects.generate(scenes, SAMPLED_EPISODES, 0, task.rules, task.labels).episodes
    goals = task if kind else None
    return scenes, [e for scene in scenes for e in generate_episodes(scene, SAMPLED_EPISODES, 0, goals, "indoor")]
