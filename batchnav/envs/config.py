"""Configuration of navigation environments: body, cameras, sensors and task; presets of published variants."""

from __future__ import annotations

import dataclasses
import logging
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

from batchnav.config import CHOICES, KINDS, Sections, from_dict, sectioned, to_dict
from batchnav.data.formats.multion import CYLINDERS
from batchnav.data.goals.rules import LABELS
from batchnav.envs.observations import SOURCES, goal_images_of, observation_sources, specs_of
from batchnav.errors import ConfigError
from batchnav.runtime.imports import advice
from batchnav.sensors import SENSORS
from batchnav.sensors.by_name import camera_sensor_name
from batchnav.sensors.camera import MAIN, CameraConfig, load_camera_info
from batchnav.sensors.disturbances import DisturbanceConfig
from batchnav.sim.bodies import BodyConfig
from batchnav.tasks import TASKS
from batchnav.tasks.config import TaskConfig
from batchnav.tasks.follow import FollowConfig
from batchnav.tasks.imagenav import ImageNavConfig
from batchnav.tasks.instance_imagenav import InstanceImageNavConfig
from batchnav.tasks.objectnav import ObjectNavConfig
from batchnav.tasks.pointnav import PointNavConfig
from batchnav.tasks.sequence import SequenceConfig
from batchnav.tasks.socialnav import SocialNavConfig
from batchnav.world.config import WorldConfig

# Presets: sensors, and options that differ from the defaults, by name

_RGBD = ("rgb", "depth", "gps", "compass")
_ACTIONS = {
    "control": "v1", "turn_angle_deg": 30.0, "tilt_angle_deg": 30.0, "max_tilt_deg": 90.0, "sliding": False,
    "max_steps": 500,
}  # fmt: skip
"""Six actions, as in Habitat's ObjectNav."""
_LOCOBOT = _ACTIONS | {
    "agent_radius": 0.18, "agent_height": 0.88, "height": 480, "width": 640, "hfov_deg": 79.0, "camera_height": 0.88,
    "min_depth": 0.5, "max_depth": 5.0,
}  # fmt: skip
"""Robot and camera of the Habitat challenges 2020 to 2022."""
_STRETCH = _ACTIONS | {
    "agent_radius": 0.17, "agent_height": 1.41, "height": 640, "width": 360, "hfov_deg": 42.0, "camera_height": 1.31,
    "min_depth": 0.5, "max_depth": 5.0,
}  # fmt: skip

INSTANCE_IMAGENAV: dict[str, tuple[tuple[str, ...], dict[str, Any]]] = {
    "instance_imagenav_hm3d": (_RGBD, _STRETCH | {"max_steps": 1000}),
}
"""By name of the preset, for Instance ImageNav. "instance_imagenav_hm3d": Habitat challenge 2023, except that depth has
the field of view of colour."""

OBJECTNAV: dict[str, tuple[tuple[str, ...], dict[str, Any]]] = {
    "objectnav_houses": (("depth", "goal_mask", "gps", "compass"), {"turn_angle_deg": 30.0}),
    "objectnav_hm3d": (_RGBD, _LOCOBOT | {"categories": LABELS["hm3d"].categories}),
    "objectnav_mp3d": (_RGBD, _LOCOBOT | {"categories": LABELS["mp3d"].categories, "labels": "mp3d"}),
    "objectnav_hssd": (
        _RGBD,
        _LOCOBOT | {
            "height": 256, "width": 256, "categories": LABELS["hssd"].categories, "rules": "hssd", "labels": "hssd",
        },
    ),
    "ovon": (
        _RGBD, _STRETCH | {"success_distance": 0.25, "categories": (), "rules": "ovon", "labels": "all"}
    ),
    "objectnav_procthor": (
        _RGBD,
        _ACTIONS | {
            "agent_radius": 0.18, "agent_height": 0.9, "height": 224, "width": 224, "hfov_deg": 63.45,
            "camera_height": 0.9, "max_depth": 5.0, "slack_reward": -0.01, "success_reward": 10.0,
            "success_angle_deg": 63.45 / 2, "categories": LABELS["procthor"].categories, "rules": "procthor",
            "labels": "procthor",
        },
    ),
}  # fmt: skip
"""By name of the preset. "objectnav_houses": 64x64 depth and goal masks in procedural houses, four actions.
"objectnav_hm3d" and "objectnav_mp3d": Habitat challenges 2020 to 2022. "objectnav_hssd": Khanna et al., 2023. "ovon":
Yokoyama et al., 2024. "objectnav_procthor": Deitke et al., 2022; an object must be within 1 m, unoccluded and in the
image when the agent stops: view points by these rules, and a heading within half the field of view of the object."""


_ZER = {"turn_angle_deg": 30.0, "reward": "zer", "slack_reward": -0.01, "success_reward": 10.0}
"""Turns and reward of "Zero Experience Required"."""
_NEAR = {"closest_goal": 1.5, "furthest_goal": 10.0, "min_detour_ratio": 1.0}
"""Sampled episodes as in NRNS, and in the first three levels of Mezghani et al., 2021: straight paths are kept."""

IMAGENAV: dict[str, tuple[tuple[str, ...], dict[str, Any]]] = {
    "imagenav_houses": (("rgb",), _ZER | _NEAR | {"max_steps": 500}),
    "imagenav_gibson": (("rgb",), {"height": 256, "width": 256}),
    "imagenav_zer": (("rgb",), _ZER | _NEAR | {"height": 128, "width": 128, "sliding": False, "furthest_goal": 15.0}),
    "imagenav_nrns": (
        ("rgb", "depth"),
        _NEAR | {"height": 480, "width": 640, "hfov_deg": 120.0, "turn_angle_deg": 15.0, "max_steps": 500},
    ),
}
"""By name of the preset. "imagenav_houses": 64x64 images in procedural houses. "imagenav_gibson": Habitat's
`ddppo_imagenav_gibson`. "imagenav_zer": Al-Halah et al., 2022. "imagenav_nrns": Hahn et al., 2021, whose
success is measured by Euclidean distance."""


SOCIALNAV: dict[str, tuple[tuple[str, ...], dict[str, Any]]] = {
    "socialnav_houses": (
        ("depth",), {
            "people": (1, 6), "human_collision_ends": "caused", "human_collision_penalty": 0.5,
            "human_distance_penalty": 0.05,
        },
    ),
    "socialnav_falcon": (
        ("depth",),
        {
            "agent_radius": 0.25, "agent_height": 1.41, "height": 256, "width": 256, "people": (1, 6),
            "at_last_waypoint": "stand", "human_collision_ends": "any", "progress_reward": 1.5, "success_reward": 10.0,
            "human_distance_penalty": 0.1, "human_collision_penalty": 1.0, "collision_penalty": 0.03,
            "path_penalty": 0.05,
        },
    ),
}  # fmt: skip
"""By name of the preset. "socialnav_houses": 64x64 depth among people in procedural houses. "socialnav_falcon": body,
camera, people and end of an episode as in Falcon (Gong et al., 2025); the weights of its reward's terms are ours."""

FOLLOW: dict[str, tuple[tuple[str, ...], dict[str, Any]]] = {
    "follow_houses": (("depth",), {"people": (1, 1), "person_speed": (0.5, 0.8), "human_collision_ends": "caused"}),
}
"""By name of the preset. "follow_houses": find and follow one person in procedural houses, with 64x64 depth. The person
is slower than the robot, which loses time when it turns."""


SEQUENCES: dict[str, tuple[tuple[str, ...], dict[str, Any]]] = {
    "sequence_houses": (("depth", "goal_mask", "gps", "compass"), {"turn_angle_deg": 30.0}),
    "sequence_goat": (
        ("rgb", "gps", "compass"),
        _STRETCH | {
            "max_steps": 5000, "max_subtask_steps": 5000, "goals": ("category", "instance", "description"),
            "categories": (), "rules": "ovon", "labels": "all",
        },
    ),
    "sequence_multion": (
        _RGBD,
        {
            "agent_radius": 0.1, "agent_height": 0.88, "height": 256, "width": 256, "hfov_deg": 79.0,
            "camera_height": 0.88, "turn_angle_deg": 30.0, "sliding": False, "goals": ("cylinder",),
            "categories": CYLINDERS, "success_distance": 1.5, "wrong_stop": "end", "max_steps": 2500,
            "max_subtask_steps": 2500,
        },
    ),
}  # fmt: skip
"""By name of the preset. "sequence_houses": 64x64 depth and goal masks in procedural houses. "sequence_goat":
GOAT-Bench, where stop is its `subtask_stop`; the benchmark limits the steps of all subtasks together.
"sequence_multion": MultiON, where stop is its FOUND."""


log = logging.getLogger(__name__)


def task_kinds() -> dict[str, type]:
    """Configuration classes of all tasks, by name of the task."""
    return {name: task.Config for name, task in TASKS.items()}


@sectioned
@dataclass(frozen=True)
class NavConfig(Sections):
    """Configuration of a `NavEnv`. Defaults: PointNav with 64x64 depth, as the agents of Shacklett et al. 2021.

    Settings of sensors are in the sections of their names, such as `depth: {max_depth: 5.0}`; those of "ego_map" and
    "waypoint" are in `map`.
    """

    body: BodyConfig = field(default_factory=BodyConfig)
    """Size of the body, and its actions."""
    camera: CameraConfig = field(default_factory=CameraConfig)
    """The main camera. Its sensors have no prefix."""
    cameras: dict[str, CameraConfig] = field(default_factory=dict)
    """Further cameras by name. Their sensors have the name as prefix: "left_depth"."""
    sensors: tuple[str, ...] = field(default=("depth",), metadata={CHOICES: (SENSORS, SOURCES)})
    """Observations by name: sensors of the main camera (depth, rgb, semantic, instance, normals, goal_mask) and of
    other cameras (left_depth), the map's (ego_map, waypoint), the pose (gps, compass, heading), ranges around the agent
    (lidar, depth360), the field of view of Instance ImageNav's goal image (goal_hfov), the embedding of a goal's name
    or description (goal_embedding), and the goal's place as a label for training (true_goal). The task adds its goal
    observations. The order has no effect."""
    world: WorldConfig = field(default_factory=WorldConfig)
    """Who is in an environment's world: people, and one robot or several."""
    disturbances: DisturbanceConfig = field(default_factory=DisturbanceConfig)
    """Odometry that drifts and late observations, for training policies that tolerate them."""
    task: TaskConfig = field(default_factory=PointNavConfig, metadata={KINDS: task_kinds})
    """Configuration of a task of `batchnav.tasks.TASKS`. Files name the task: `{name: pointnav}`."""

    def validate(self) -> None:
        """ConfigError for parts that contradict each other. Each part validates itself."""
        for name in self.cameras:
            if not name.isidentifier():
                raise ConfigError(f"cameras: found a camera named {name!r}, expected letters, digits and underscores")
        for source in SOURCES.values():
            if hasattr(source, "check"):
                source.check(self)
        if self.disturbances.has_drift and not self.reads_pose:
            raise ConfigError(
                f"disturbances: found drift with sensors {', '.join(self.sensors) or 'none'}, expected one that reads "
                "the pose, such as gps, compass or waypoint, or a task with a goal relative to the pose"
            )

    @property
    def has_map(self) -> bool:
        """True where a sensor reads the agent's own map."""
        return any(source.requires.map for source in observation_sources(self).values())

    @property
    def reads_pose(self) -> bool:
        """True where an observation depends on the pose that odometry estimates."""
        return any(source.requires.pose or source.requires.map for source in observation_sources(self).values())

    def disturbance_memory(self, num_envs: int) -> int:
        """Bytes that the disturbances of this many environments need."""
        aligned = self.camera.height * self.camera.width if self.map.localisation else 0
        return self.disturbances.memory(specs_of(self), num_envs, aligned)

    @property
    def also_in_use(self) -> set[str]:
        """Sections, besides those of the names in `sensors`, that a sensor or the task's images of the goal read."""
        kinds = {camera_sensor_name(camera, kind): kind for camera in self.all_cameras for kind in SENSORS}
        names = [kinds[name] for name in self.sensors if name in kinds] + list(goal_images_of(self).values())
        found = {section for name in names if (section := SENSORS.section(name)) is not None}
        sources = [SOURCES[name] for name in self.sensors if hasattr(SOURCES.get(name), "reads")]
        return found.union(*(source.reads(self) for source in sources))

    @property
    def task_name(self) -> str:
        """Name of the configured task in `batchnav.tasks.TASKS`. ConfigError for a task that is not registered."""
        for name, kind in task_kinds().items():
            if type(self.task) is kind:
                return name
        found = type(self.task).__name__
        raise ConfigError(f"task: found {found}, expected settings of one of {', '.join(TASKS)}; add the task to TASKS")

    @property
    def all_cameras(self) -> dict[str, CameraConfig]:
        """All cameras by name, the main one as `MAIN`."""
        return {MAIN: self.camera, **self.cameras}

    @property
    def for_evaluation(self) -> Self:
        """The configuration for evaluation.

        Ranges of cameras, changes of their colours, disturbances and several robots in a world are for training only.
        """
        world = dataclasses.replace(self.world, agents_per_world=1)
        fixed = {name: camera.fixed for name, camera in self.cameras.items()}
        plain: dict[str, Any] = {"rgb": self.rgb.fixed, "disturbances": DisturbanceConfig()}
        return dataclasses.replace(self, camera=self.camera.fixed, cameras=fixed, world=world, **plain)

    @property
    def sensor_settings(self) -> dict[str, Any]:
        """Configurations of cameras' sensors, by name of the sensor."""
        return {kind: getattr(self, section) for kind in SENSORS if (section := SENSORS.section(kind)) is not None}


def with_options(config: NavConfig, options: Mapping[str, Any]) -> NavConfig:
    """A configuration with fields of its parts replaced: `height=24` of the main camera, `max_steps=50` of the task.

    ConfigError for an unknown name, or a value of the wrong type or range.
    """
    parts_of: dict[str, list[str]] = {}
    for part in ("body", "camera", "world", "disturbances", *SENSORS.sections | SOURCES.sections, "task"):
        for f in dataclasses.fields(getattr(config, part)):
            parts_of.setdefault(f.name, []).append(part)
    changes: dict[str, dict[str, Any]] = {}
    for name, value in options.items():
        if name not in parts_of:
            raise ConfigError(f"option {name!r} is unknown, expected one of {', '.join(sorted(parts_of))}")
        if len(parts_of[name]) > 1:
            raise ConfigError(f"option {name!r}: found in {', '.join(parts_of[name])}; set it in a NavConfig")
        changes.setdefault(parts_of[name][0], {})[name] = value
    parts = {}
    for part, values in changes.items():
        old = getattr(config, part)
        kept = {f.name: getattr(old, f.name) for f in dataclasses.fields(old)}
        parts[part] = from_dict(type(old), {**kept, **values})
    return dataclasses.replace(config, **parts)


_LENS = "hfov_deg", "hfov_range_deg", "fx", "fy", "cx", "cy", "distortion"
"""Fields of a camera's lens."""


def with_camera(
    config: NavConfig,
    camera_height: float | None,
    hfov_deg: float | None,
    camera_info: str | Path | None = None,
) -> NavConfig:
    """A configuration with another height (metres) or lens of the main camera; None: unchanged.

    The lens is a field of view (degrees), or a calibration file of `load_camera_info`, resized to the camera's image.
    ConfigError for both.
    """
    changes: dict[str, Any] = {} if camera_height is None else {"camera_height": camera_height}
    if hfov_deg is not None and camera_info is not None:
        raise ConfigError(f"hfov_deg: found {hfov_deg:g} with the camera {camera_info}, expected one of the two")
    if hfov_deg is not None:
        changes |= {"fx": None, "fy": None, "cx": None, "cy": None, "distortion": (), "hfov_deg": hfov_deg}
    if camera_info is not None:
        kept = {name: value for name, value in vars(config.camera).items() if name not in _LENS}
        lens = vars(load_camera_info(camera_info, **kept))
        changes |= {name: lens[name] for name in _LENS}
    return with_options(config, changes)


def changed_settings(before: NavConfig, after: NavConfig) -> dict[str, Any]:
    """Values of `after` that differ from those of `before`, by their path, as "body.agent_radius"."""

    def walk(old: Any, new: Any, path: str) -> Iterator[tuple[str, Any]]:
        for name, value in new.items():
            known = old.get(name) if isinstance(old, dict) else None
            if isinstance(value, dict) and value:
                yield from walk(known, value, f"{path}{name}.")
            elif value != known:
                yield f"{path}{name}", value

    return dict(walk(to_dict(before), to_dict(after), ""))


def settings_text(changes: Mapping[str, Any]) -> str:
    """Changed settings as text: "body.agent_radius 0.3, depth.depth_noise 1.0"."""
    return ", ".join(f"{name} {value}" for name, value in changes.items())


def with_body(config: NavConfig, agent_radius: float | None, agent_height: float | None) -> NavConfig:
    """A configuration with another radius or height of the body, metres; None: unchanged."""
    changes = {"agent_radius": agent_radius, "agent_height": agent_height}
    return with_options(config, {name: value for name, value in changes.items() if value is not None})


_CHALLENGE = {
    "height": 360, "width": 640, "hfov_deg": 70.0, "camera_height": 0.88, "min_depth": 0.1, "turn_angle_deg": 30.0,
    "sliding": False, "agent_radius": 0.18, "agent_height": 0.88, "success_distance": 0.36,
}  # fmt: skip
"""Common settings of the Habitat challenges 2020 and 2021, without noise."""
_CHALLENGE_NOISY = _CHALLENGE | {
    "gps_compass": False, "actuation_noise": 0.5, "robot": "LoCoBot", "controller": "Proportional", "depth_noise": 1.0,
    "rgb_noise": "gaussian", "noise_intensity": 0.1,
}  # fmt: skip
"""Settings of the Habitat challenges 2020 and 2021: with noise, without GPS and compass."""

PRESETS: dict[str, NavConfig] = {
    "habitat_pointnav_v1": with_options(NavConfig(), {"height": 256, "width": 256}),
    "bps_depth64": NavConfig(),
    "challenge_2020_noiseless": with_options(NavConfig(), _CHALLENGE),
    "challenge_2020": with_options(NavConfig(sensors=("rgb", "depth")), _CHALLENGE_NOISY),
    "challenge_2021": with_options(NavConfig(sensors=("rgb", "depth")), _CHALLENGE_NOISY | {"camera_pitch_deg": -20.0}),
    **{
        name: with_options(NavConfig(sensors=sensors, task=kind()), options)
        for kind, presets in (
            (ObjectNavConfig, OBJECTNAV), (ImageNavConfig, IMAGENAV), (InstanceImageNavConfig, INSTANCE_IMAGENAV),
            (SocialNavConfig, SOCIALNAV), (FollowConfig, FOLLOW), (SequenceConfig, SEQUENCES),
        )
        for name, (sensors, options) in presets.items()
    },
}  # fmt: skip
"""Published variants by name. "challenge_2020_noiseless" has GPS and compass; the challenge with noise and with GPS and
compass is `NavEnv(config="challenge_2020", gps_compass=True)`. Depth noise uses a synthetic distortion table
(`sensors/noise.py`). ObjectNav's: `envs/config.py`; ImageNav's: `envs/config.py`."""


ABOUT = {
    "habitat_pointnav_v1": "Habitat's PointNav (Savva et al., 2019)",
    "bps_depth64": "Shacklett et al., 2021",
    "challenge_2020_noiseless": "Habitat challenge 2020, without noise",
    "challenge_2020": "Habitat challenge 2020",
    "challenge_2021": "Habitat challenge 2021",
    "objectnav_houses": "ObjectNav in procedural houses",
    "objectnav_hm3d": "Habitat challenge 2022, HM3D",
    "objectnav_mp3d": "Habitat challenges 2020 and 2021, Matterport3D",
    "objectnav_hssd": "HSSD (Khanna et al., 2023)",
    "ovon": "HM3D-OVON (Yokoyama et al., 2024)",
    "objectnav_procthor": "ProcTHOR-10k (Deitke et al., 2022)",
    "imagenav_houses": "ImageNav in procedural houses",
    "imagenav_gibson": "Habitat's ImageNav, Gibson",
    "imagenav_zer": "Al-Halah et al., 2022",
    "imagenav_nrns": "Hahn et al., 2021, which measures Euclidean distance",
    "instance_imagenav_hm3d": "Habitat challenge 2023, HM3D (Krantz et al., 2022)",
    "socialnav_houses": "Social navigation in procedural houses",
    "socialnav_falcon": "Social-HM3D (Falcon)",
    "follow_houses": "Find and follow a person (Habitat 3.0's social navigation) in procedural houses",
    "sequence_houses": "Goals in sequence in procedural houses",
    "sequence_goat": "GOAT-Bench (Khanna et al., 2024)",
    "sequence_multion": "MultiON (Wani et al., 2020)",
}
"""Benchmark or publication of a preset, by name of the preset."""


def nav_config(config: NavConfig | str | None, options: Mapping[str, Any], task: str = "pointnav") -> NavConfig:
    """A configuration with options: from a configuration, the name of a preset, or the defaults of a task (None).

    ConfigError for an unknown preset or task, or a configuration of another task.
    """
    if task not in TASKS:
        raise ConfigError(f"task: found {task!r}, expected one of {', '.join(TASKS)}")
    kind = TASKS[task].Config
    if isinstance(config, str):
        if config not in PRESETS:
            raise ConfigError(f"preset: found {config!r}, expected one of {', '.join(PRESETS)}")
        config = PRESETS[config]
    config = config or NavConfig(task=kind())
    if not isinstance(config.task, kind):
        found = type(config.task).__name__
        raise ConfigError(f"config: found {found}, expected {kind.__name__} for the task {task!r}")
    return with_options(config, options)


def config_of(info: Mapping[str, Any]) -> NavConfig:
    """Configuration for evaluating a policy: that of its training, `for_evaluation`. See `trained_config`."""
    return trained_config(info).for_evaluation


def trained_config(info: Mapping[str, Any]) -> NavConfig:
    """Configuration of a policy's training, from the `info` of its file; the defaults where it holds none.

    ConfigError for invalid content.
    """
    try:
        return from_dict(NavConfig, info.get("env", {}))
    except ConfigError as error:
        raise ConfigError(f"{error}{advice(info)}") from error


def warn_other_cameras(name: str, info: Mapping[str, Any], config: NavConfig) -> None:
    """Log a warning for heights, fields of view and pitches of cameras that a policy was not trained with.

    Args:
        name: name of the policy in the message.
        info: of the policy's file, as in `trained_config`.
        config: environment in which the policy acts.
    """
    trained = trained_config(info).all_cameras
    found = [
        f"{camera} camera: {text}" if camera else text
        for camera, used in config.all_cameras.items()
        if camera in trained
        for text in used.beyond(trained[camera])
    ]
    if found:
        log.warning("%s: found %s; results may be worse than with the camera of training", name, "; ".join(found))
