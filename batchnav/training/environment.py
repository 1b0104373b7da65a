"""Environments of a training run: sampled episodes in training scenes, or fixed episodes of a file."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

import torch

from batchnav.config import to_dict
from batchnav.data.config import ScenesConfig
from batchnav.data.episodes.episode import Episode
from batchnav.data.episodes.playing import order_episodes
from batchnav.data.played_file import PlayedFile, load_played, playable, played_table
from batchnav.data.scene_ref import has_random_materials, scene_ids
from batchnav.data.scenes import GoalRules, find_scenes, find_with_goals, measure_scenes
from batchnav.envs.nav import NavEnv
from batchnav.envs.observations import goal_categories_of
from batchnav.envs.stream import SceneStream
from batchnav.errors import ConfigError
from batchnav.procedural import make_material_library
from batchnav.runtime.device import resolve_device
from batchnav.runtime.distributed import Ranks
from batchnav.runtime.kernels.precompile import ENVIRONMENT_KERNELS, SCENE_KERNELS, precompile
from batchnav.scene.material_sampling import MaterialLibrary
from batchnav.scene.resident import SceneSize, num_resident_scenes
from batchnav.scene.scene import Scene
from batchnav.training.config import TrainingConfig


def make_environment(config: TrainingConfig, ranks: Ranks) -> NavEnv:
    """The training environment of one rank.

    Each rank has its share of the scenes, in which it samples episodes; with `scenes.episodes` it has its share of the
    episodes instead.
    """
    num_envs = config.learner_of(ranks).num_envs
    if ranks.is_rank_zero and ranks.device.type == "cpu":
        precompile(ENVIRONMENT_KERNELS, SCENE_KERNELS, env_config=to_dict(config.env))
    if config.scenes.episodes:
        file = load_played(config.scenes.episodes, goal_categories_of(config.env))
        episodes = order_episodes(file.episodes, shuffle=True, grouped=False, seed=config.seed)
        material_library = material_library_for(config.scenes, [episode.scene for episode in episodes])
        return fixed_episodes(file, ranks.shard(episodes), config, ranks.device, num_envs, material_library)
    all_names = scene_ids(config.scenes.names)
    material_library, names = material_library_for(config.scenes, all_names), ranks.shard(all_names)
    return NavEnv(
        training_scenes(config, names), num_envs, ranks.device, config.seed, first_env=ranks.rank * num_envs,
        material_library=material_library, **_options(config),
    )  # fmt: skip


def training_scenes(config: TrainingConfig, names: Sequence[str]) -> SceneStream | list[Scene]:
    """The scenes of one rank: all of them in memory, or a stream if they exceed `resident_scenes` or `gigabytes`."""
    settings, appearance, scenes = config.env.body.navmesh, config.appearance, config.scenes
    goals = None if goal_categories_of(config.env) is None else goal_rules(config.env.task)
    if scenes.resident_scenes or scenes.gigabytes:
        capacities = [
            scene.with_appearance(config.appearance_fields)
            for scene in measure_scenes(names, settings=settings, appearance=appearance, goals=goals)
        ]
        resident = num_resident_scenes(capacities, scenes.resident_scenes, scenes.gigabytes)
        if resident:
            load = partial(find_with_goals, goals=goals, settings=settings, appearance=appearance)
            return SceneStream(names, load, SceneSize.largest(capacities), resident, config.seed)
    return find_scenes(names, settings=settings, appearance=appearance)


def goal_rules(task: Any) -> GoalRules:
    """Rules and labels by which goals of an `ObjectNavConfig` are made."""
    return GoalRules(task.rules, task.labels)


def fixed_episodes(
    file: PlayedFile,
    episodes: list[Episode],
    config: TrainingConfig,
    device: torch.device,
    num_envs: int,
    material_library: MaterialLibrary | None = None,
) -> NavEnv:
    """An environment that plays these episodes of a file in turn. `material_library`: as in `NavEnv`."""
    scenes = file.scenes(episodes, settings=config.env.body.navmesh, appearance=config.appearance)
    with file.named():
        episodes = playable(episodes, {scene.name: scene for scene in scenes})
        table = played_table(episodes, scenes, goal_categories_of(config.env), device)
    return NavEnv(scenes, num_envs, device, episodes=table, material_library=material_library, **_options(config))


def material_library_for(scenes: ScenesConfig, names: Sequence[str]) -> MaterialLibrary | None:
    """Materials to resample from; None without `randomize_materials`. ConfigError if no named scene can have any."""
    if not scenes.randomize_materials:
        return None
    if not any(map(has_random_materials, names)):
        raise ConfigError(
            f"scenes.randomize_materials: found true with {len(names)} scenes from files, expected procedural houses"
        )
    return make_material_library()


def prepare(config: TrainingConfig) -> None:
    """Generate the scenes and compile the environment's kernels, so that all ranks find them in the cache."""
    env = make_environment(config, Ranks(resolve_device(config.device)))
    env.reset()
    env.step(config.env.body.empty_actions(env.num_envs, env.device))
    env.close()


def _options(config: TrainingConfig) -> dict[str, Any]:
    """Keyword arguments that training and validation environments of a run share."""
    return {
        "task": config.env.task_name,
        "config": config.env,
        "renderer": config.renderer,
        "final_observation": config.learner.reads_final_obs,
        "copy": False,
    }
