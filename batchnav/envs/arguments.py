"""Checks and conversions of the arguments of `NavEnv`."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any, Self

import torch
from gymnasium.vector import AutoresetMode

from batchnav.data.episodes import Episode, scene_rows
from batchnav.data.formats import EpisodeDataset
from batchnav.data.goals import GoalKind, kind_of
from batchnav.data.goals.view_points import check_scenes
from batchnav.data.people import people_in
from batchnav.data.play import check_episodes, check_kind, success_distance_of
from batchnav.data.scenes.load import scene_for_body
from batchnav.envs.config import NavConfig
from batchnav.envs.stream import SceneStream
from batchnav.errors import ArgumentError, ConfigError, few, shortened
from batchnav.navmesh.settings import NavMeshSettings
from batchnav.runtime.conversion import OUTPUTS
from batchnav.runtime.device import resolve_device
from batchnav.scene.bank import SceneBank
from batchnav.scene.material_sampling import MaterialLibrary
from batchnav.scene.scene import Scene
from batchnav.tasks import TASKS
from batchnav.tasks.episode_sampling import EpisodeTable
from batchnav.tasks.sequence import SequenceTable
from batchnav.world.standing import StandingBodies, on_floor
from batchnav.world.world import ScriptedBodies, Walker, World, check_people

_log = logging.getLogger(__name__)
Table = EpisodeTable | SequenceTable
"""Fixed episodes as tensors."""


def check_kinds(task, config, sensors, episodes) -> None:
    """ArgumentError or ConfigError for arguments of the wrong type or an unknown task."""
    if not isinstance(task, str) or task not in TASKS:
        raise ConfigError(f"task: found {task!r}, expected one of {', '.join(TASKS)}")
    listed = isinstance(sensors, Sequence) and not isinstance(sensors, str)
    names = listed and all(isinstance(name, str) for name in sensors)
    fixed = isinstance(episodes, Table) or (
        isinstance(episodes, Sequence) and len(episodes) > 0 and all(isinstance(each, Episode) for each in episodes)
    )
    for name, value, good, expected in (
        ("config", config, config is None or isinstance(config, (NavConfig, str)), "a NavConfig or a preset's name"),
        ("sensors", sensors, sensors is None or names, "a list of names"),
        ("episodes", episodes, episodes is None or fixed, "an EpisodeTable or the result of batchnav.load_episodes"),
    ):
        if not good:
            raise ArgumentError(f"{name}: found {shortened(value)}, expected {expected}")


def bank_of(
    scenes,
    num_envs: int,
    device: str | torch.device,
    appearance: frozenset[str],
    material_library: MaterialLibrary | None,
    goal_categories: tuple[str, ...] | None = None,
) -> SceneBank:
    """Scene bank of an environment, packed if necessary, with the appearance fields that its sources read.

    `goal_categories`: categories of the goals that its task needs, as in `SceneBank.pack`.

    ArgumentError for a bank on another device, without these fields or goals, or together with `material_library`.
    """
    if isinstance(scenes, SceneStream):
        return scenes.open(num_envs, resolve_device(device), appearance, material_library, goal_categories)
    if not isinstance(scenes, SceneBank):
        return SceneBank.pack(scenes, resolve_device(device), appearance, material_library, goal_categories)
    if goal_categories is not None and (scenes.goals is None or goal_categories not in ((), scenes.goal_categories)):
        found = ", ".join(scenes.goal_categories) or "none"
        raise ArgumentError(
            f"scenes: found a bank with goals of {found}, expected {', '.join(goal_categories) or 'some'}; pack it "
            "with goal_categories"
        )
    if material_library is not None:
        raise ArgumentError(
            "material_library: found one with a SceneBank; pass it to SceneBank.pack(..., material_library=...)"
        )
    if str(device) != "auto" and resolve_device(device) != scenes.device:
        raise ArgumentError(f"device: found {str(device)!r} with a bank on {scenes.device}, expected 'auto'")
    if missing := appearance - scenes.appearance_fields:
        what = f" of {', '.join(sorted(missing))}" if scenes.appearance_fields else ""
        raise ArgumentError(
            f"scenes: found a bank without appearance{what}, expected SceneBank.pack(..., appearance=True)"
        )
    return scenes.with_own_materials()  # so that no other environment sees them change


def for_bodies(scenes, settings: NavMeshSettings) -> Any:
    """The scenes with navmeshes for a body (`load.scene_for_body`). Banks, streams and other objects stay as is."""
    if isinstance(scenes, (SceneBank, SceneStream)) or not isinstance(scenes, (Scene, Iterable)):
        return scenes
    listed = [scenes] if isinstance(scenes, Scene) else list(scenes)
    return [scene_for_body(scene, settings) if isinstance(scene, Scene) else scene for scene in listed]


def with_goals_of_file(scenes, episodes, task: str, device: str | torch.device) -> Any:
    """The scenes with the goals of a dataset's file. Scenes of other episodes stay as is.

    EpisodeError for a dataset with goals of another kind than the task's. ArgumentError for a bank, whose scenes have
    goals already.
    """
    if not isinstance(episodes, EpisodeDataset):
        return scenes
    check_kind(episodes, task)
    kind = kind_of(task)
    if not episodes.goals and not kind.lacks_goals(episodes):
        return scenes
    if isinstance(scenes, SceneBank):
        raise ArgumentError(
            "scenes: found a SceneBank with the goals of a file, expected Scenes, which get these goals; with "
            "`episodes=data.episodes` the goals of the bank are used"
        )
    listed = check_scenes(scenes)
    if kind.lacks_goals(episodes):
        check_object_ids(listed, "view points of this file are made from object ids")
    return kind.with_goals_of(episodes, listed, device)


def check_object_ids(scenes: Sequence[Scene], why: str) -> None:
    """ArgumentError for a scene without a surface, which holds object ids, and for scenes that all have no ids."""
    surfaces = [(scene.semantic or scene).mesh.surface for scene in scenes]
    ids = [surface.object_id for surface in surfaces if surface is not None]
    has_ids = any(each is not None and each.any() for each in ids)
    for scene, surface in zip(scenes, surfaces, strict=True):
        if surface is None or not has_ids:
            raise ArgumentError(
                f"scenes: found {scene.name!r} without object ids, expected scenes with object ids and categories, "
                f"since {why}: procedural scenes, or scans with annotations (HM3D, Matterport3D, Gibson); scenes that "
                "are loaded with appearance=False have none"
            )


def with_missing_goals(scenes, config: NavConfig, device: str | torch.device) -> Any:
    """The scenes; those without the objects that the task needs as goals get them. Banks and streams stay as is."""
    kind = kind_of(config.task_name)
    if isinstance(scenes, (SceneBank, SceneStream)) or not isinstance(scenes, (Scene, Iterable)):
        return scenes  # packing refuses what are no scenes
    listed = [scenes] if isinstance(scenes, Scene) else list(scenes)
    if not all(isinstance(scene, Scene) for scene in listed):
        return listed  # packing refuses them
    if TASKS[config.task_name].goal_categories(config.task) is None:
        return listed
    missing = [scene for scene in listed if scene.goals is None]
    if kind.needs_ids:
        check_object_ids(missing, f"the goals of {config.task_name} are objects")
    found = kind.with_goals(listed, config.task, device)
    present = {goal.category for scene in found for goal in (scene.goals.objects if scene.goals else ())}
    absent = [name for name in TASKS[config.task_name].goal_categories(config.task) or () if name not in present]
    if missing and absent:
        _log.warning("categories without a goal in these scenes, so without episodes: %s", few(absent, 8))
    return found


def table_of(episodes: Table | Sequence[Episode] | None, bank: SceneBank, kind: GoalKind, config: Any) -> Table | None:
    """Fixed episodes as tensors. EpisodeError for an episode that cannot be played in the scenes of the bank.

    `kind`: kind of the task's goals; `config`: the task's configuration.
    """
    if episodes is None or isinstance(episodes, Table):
        return episodes
    scene_rows(episodes, bank.names)  # raises for an episode of another scene
    scenes = {scene.name: scene for scene in bank.scenes}
    return kind.table(check_episodes(episodes, scenes, kind.name, success_distance_of(config)), bank)


# Who is in the worlds besides their robots


def people_of(
    episodes: Table | Sequence[Episode] | None, bank: SceneBank, table: Table | None
) -> list[tuple[Walker, ...] | None] | None:
    """People of fixed episodes; None where none of them states its people. EpisodeError for people off the navmesh."""
    if episodes is None or isinstance(episodes, Table) or table is None:
        return None
    people = [people_in(episode) for episode in episodes]
    if all(each is None for each in people):
        return None
    check_people(bank, table.scene, people)
    return people


def standing_in(episodes: Any, task: Any, kind: GoalKind, world: Any, bank: SceneBank) -> StandingBodies | None:
    """The bodies that stand in fixed episodes; None where there are none, and for a table, which has none.

    ArgumentError in a world with people, scripted bodies or several robots.
    """
    if episodes is None or isinstance(episodes, Table) or not any(map(kind.standing, episodes)):
        return None
    if world is not None:
        raise ArgumentError(
            "people, scripted_bodies: found bodies with episodes whose goals stand as bodies, expected none of them"
        )
    scenes = [bank.scenes[row] for row in task.episodes.scene.tolist()]
    bodies = [on_floor(kind.standing(episode), scene.navmesh) for episode, scene in zip(episodes, scenes, strict=True)]
    return StandingBodies(bodies, task.state.table_index)


def world_maker(
    config: NavConfig, bank: SceneBank, people: Sequence[Any] | None, scripted: ScriptedBodies | None
) -> Callable[[Any], World] | None:
    """Argument `make_world` of `Simulator`; None where every robot is alone."""
    needed = TASKS[config.task_name].among_people
    if config.world.is_empty and scripted is None and people is None and not needed:
        return None
    return lambda sim: World(bank, sim.bodies, sim.sampling, config.body, config.world, people, scripted)


def check_shared(agents: int, num_envs: int, episodes: Any, stream: SceneStream | None) -> None:
    """ArgumentError where robots cannot share worlds: fixed episodes and streams give each robot a scene of its own."""
    if num_envs % agents:
        raise ArgumentError(f"num_envs: found {num_envs} with agents_per_world {agents}, expected a multiple of it")
    if episodes is not None or stream is not None:
        found = "fixed episodes" if episodes is not None else "a SceneStream"
        raise ArgumentError(f"agents_per_world: found {agents} with {found}, expected 1, or sampled episodes")


# Options of `NavEnv` that its configuration does not hold: how it renders, numbers and returns episodes


@dataclass(frozen=True)
class EnvOptions:
    """Keyword arguments of `NavEnv` that are not in its configuration. ArgumentError for a value of the wrong type."""

    final_observation: bool = False
    """Also return info["final_obs"], the last observation of an ended episode, valid where info["_final_obs"] is True;
    costs one more rendering per step."""
    renderer: str = "raycast"
    """"raycast", "opengl", or "auto" for the faster one on this machine."""
    first_env: int = 0
    """Index of the first environment among those of all processes of a run, so that each environment plays the same
    episodes as in a run of one process."""
    copy: bool = True
    """Return copies. If False, returned tensors belong to the environment and are valid until the next call, which
    saves memory bandwidth. Observations in tensors of the caller (`observe_into`) are never copied."""
    output: str = "torch"
    """"torch", or "numpy" for arrays on the host."""
    autoreset_mode: AutoresetMode | str = AutoresetMode.SAME_STEP
    """Gymnasium's mode. NEXT_STEP: the step after an episode's end begins the next episode and ignores the action.
    DISABLED: `reset(options={"reset_mask": ended})` begins it. The learner requires SAME_STEP."""
    material_library: MaterialLibrary | None = None
    """Materials that those of procedural houses are resampled from between rollouts, if a sensor observes colour
    (`batchnav.procedural.make_material_library()`); None: materials stay. A `SceneBank` has its own library; each
    environment of a bank randomises its own copy of the materials."""

    scripted_bodies: ScriptedBodies | None = None
    """Bodies that follow a script in every world, such as recorded pedestrians, or objects that stand; None: none."""

    def __post_init__(self):
        if not isinstance(self.scripted_bodies, ScriptedBodies | None):
            found = shortened(self.scripted_bodies)
            raise ArgumentError(f"scripted_bodies: found {found}, expected batchnav.ScriptedBodies")
        if not isinstance(self.renderer, str):
            raise ArgumentError(f"renderer: found {shortened(self.renderer)}, expected a name")
        if self.output not in OUTPUTS:
            raise ArgumentError(f"output: found {shortened(self.output)}, expected one of {', '.join(OUTPUTS)}")
        if not isinstance(self.material_library, MaterialLibrary | None):
            found = shortened(self.material_library)
            raise ArgumentError(f"material_library: found {found}, expected a MaterialLibrary")
        object.__setattr__(self, "autoreset_mode", _autoreset_mode(self.autoreset_mode))

    @classmethod
    def split(cls, arguments: Mapping[str, Any]) -> tuple[Self, dict[str, Any]]:
        """Keyword arguments of `NavEnv` as `EnvOptions`, and the other ones."""
        own = {name: value for name, value in arguments.items() if name in OPTION_NAMES}
        return cls(**own), {name: value for name, value in arguments.items() if name not in OPTION_NAMES}


OPTION_NAMES = frozenset(field.name for field in fields(EnvOptions))
"""Names of the fields of `EnvOptions`."""


def _autoreset_mode(mode: AutoresetMode | str) -> AutoresetMode:
    """An autoreset mode from the mode, its name or its value. ArgumentError for anything else."""
    for known in AutoresetMode:
        if mode in (known, known.name, known.value):
            return known
    names = ", ".join(known.name for known in AutoresetMode)
    raise ArgumentError(f"autoreset_mode: found {shortened(mode)}, expected one of {names}")
