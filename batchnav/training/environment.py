"""Environments of a training run: sampled episodes in training scenes, or fixed episodes of a file."""

from __future__ import annotations

import contextlib
import gc
import importlib
import itertools
import logging
import threading
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any

import torch

from batchnav.config import to_dict
from batchnav.data.config import ScenesConfig
from batchnav.data.episodes import order_episodes
from batchnav.data.files import SCENES_DIR
from batchnav.data.formats import EpisodeDataset, load_episodes
from batchnav.data.goals import kind_of
from batchnav.data.play import part_to_play
from batchnav.data.scenes.ids import has_random_materials, scene_ids
from batchnav.data.scenes.load import load_all, load_scene, map_scenes
from batchnav.envs.nav import NavEnv
from batchnav.envs.stream import SceneStream
from batchnav.errors import ConfigError, NoEpisodesError
from batchnav.procedural import make_material_library
from batchnav.runtime.device import resolve_device
from batchnav.runtime.distributed import Ranks
from batchnav.runtime.kernels.precompile import (
    ENVIRONMENT_KERNELS,
    SCENE_KERNELS,
    SHORTEST_PATH_KERNELS,
    precompile,
)
from batchnav.scene.material_sampling import MaterialLibrary
from batchnav.scene.resident import SceneSize, num_resident_scenes
from batchnav.scene.scene import Scene
from batchnav.training.config import TrainingConfig

log = logging.getLogger(__name__)
GOALS_AT_ONCE = 64
"""Number of streamed scenes that are in memory at a time while their goals are made."""


def make_environment(config: TrainingConfig, ranks: Ranks) -> NavEnv:
    """The training environment of one rank.

    Each rank has its share of the scenes, in which it samples episodes; with `scenes.episodes` it has its share of the
    episodes instead. Scenes in which the task finds no episode are left out, with a warning. NoEpisodesError where no
    scene of the rank has one.
    """
    num_envs = config.learner_of(ranks).num_envs
    if ranks.is_rank_zero:
        experts = (SHORTEST_PATH_KERNELS,) if config.expert == "shortest_path" else ()
        programs = ENVIRONMENT_KERNELS, SCENE_KERNELS, *experts
        precompile(*programs, env_config=to_dict(config.env), device=ranks.device)
    if config.scenes.episodes:
        scenes = config.scenes
        dataset = load_episodes(scenes.episodes)
        dataset = part_to_play(dataset, SCENES_DIR, scenes.content_scenes, scenes.skip_missing)
        episodes = order_episodes(dataset.episodes, shuffle=True, grouped=False, seed=config.seed)
        material_library = material_library_for(config.scenes, [episode.scene for episode in episodes])
        mine = dataset.with_episodes(ranks.shard(episodes))
        return fixed_episodes(mine, config, ranks.device, num_envs, material_library)
    all_names = scene_ids(config.scenes.names)
    material_library, names = material_library_for(config.scenes, all_names), ranks.shard(all_names)
    found = training_scenes(config, names, ranks.device)
    while True:
        try:
            env = NavEnv(
                found, num_envs, ranks.device, config.seed, first_env=ranks.rank * num_envs,
                material_library=material_library, **_options(config),
            )  # fmt: skip
        except NoEpisodesError as error:
            if isinstance(found, SceneStream) or {*error.scenes} >= {scene.name for scene in found}:
                raise
            found = [scene for scene in found if scene.name not in error.scenes]
            log.warning("left out of training: %s", error)
        else:
            return env
        gc.collect()  # memory of the environment that was refused


def training_scenes(config: TrainingConfig, names: Sequence[str], device: torch.device) -> SceneStream | list[Scene]:
    """The scenes of one rank: all of them in memory, or a stream if they exceed `resident_scenes` or `gigabytes`."""
    settings, appearance, scenes = config.env.body.navmesh, config.appearance, config.scenes
    goals = partial(with_goals_of_task, config.env.task_name, config.env.task)
    if scenes.resident_scenes or scenes.gigabytes:
        if device.type == "cuda":
            cache_goals(config, names, device)
        sizes = [
            scene.with_appearance(config.appearance_fields)
            for scene in map_scenes(partial(_size, goals), names, settings, appearance)
        ]
        resident = num_resident_scenes(sizes, scenes.resident_scenes, scenes.gigabytes)
        if resident:
            load = partial(_load_with, goals, settings, appearance)
            return SceneStream(names, load, sizes, resident, config.seed)
    compiler = "torch._inductor.compile_fx" if config.compile else "torch._dynamo"  # optimisers import the latter
    with imported_meanwhile(compiler):
        return load_all(names, settings, appearance)


@contextlib.contextmanager
def imported_meanwhile(module: str) -> Iterator[None]:
    """Context beside which a thread imports a module: while other processes make scenes, this one has time."""
    thread = threading.Thread(target=importlib.import_module, args=[module])
    thread.start()
    try:
        yield
    finally:
        thread.join()


def cache_goals(config: TrainingConfig, names: Sequence[str], device: torch.device) -> None:
    """Make the goals of streamed scenes on a device, some scenes at a time; the stream finds them in the cache."""
    kind, settings = kind_of(config.env.task_name), config.env.body.navmesh
    bounds = {0, 1, *range(1 + GOALS_AT_ONCE, len(names), GOALS_AT_ONCE), len(names)}
    for begin, end in itertools.pairwise(sorted(bounds)):
        scenes = kind.with_goals(load_all(names[begin:end], settings, config.appearance), config.env.task, device)
        if begin == 0 and scenes[0].goals is None:  # the task has no goals of this kind
            return


def with_goals_of_task(task: str, config: Any, scene: Scene) -> Scene:
    """The scene with the goals that a task needs: made on the CPU once, then read from the cache."""
    return kind_of(task).with_goals([scene], config, "cpu")[0]


def _size(goals: Callable[[Scene], Scene], scene: Scene) -> SceneSize:
    return SceneSize.of(goals(scene))


def _load_with(goals: Callable[[Scene], Scene], settings: Any, appearance: Any, name: str) -> Scene:
    return goals(load_scene(name, settings, appearance, scenes_dir=SCENES_DIR))


def fixed_episodes(
    dataset: EpisodeDataset,
    config: TrainingConfig,
    device: torch.device,
    num_envs: int,
    material_library: MaterialLibrary | None = None,
) -> NavEnv:
    """An environment that plays the episodes of a dataset in turn. `material_library`: as in `NavEnv`."""
    return NavEnv.from_episodes(
        dataset, num_envs, device, appearance=config.appearance, material_library=material_library, **_options(config)
    )


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
