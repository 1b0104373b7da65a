"""Registry of observation sources by name: sensors of cameras, maps, poses and ranges, and the task's observations.

A source (`batchnav.observation.ObservationSource`) declares its output, inputs and state. The environment, rollouts,
memory prediction, evaluation and reports read the declarations and name no source.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from gymnasium import spaces

from batchnav.config import Registry
from batchnav.data.goals.embedding import GOAL_EMBEDDING, GoalEmbeddingSensor
from batchnav.errors import ConfigError
from batchnav.mapping.config import MapConfig
from batchnav.mapping.observations import MAP_SPECS, WAYPOINT, MapObservation
from batchnav.observation import ObservationSource, Spec
from batchnav.sensors.by_name import camera_sensors, check_names
from batchnav.sensors.camera import MAIN, CameraConfig
from batchnav.sensors.frame import appearance_needed
from batchnav.sensors.goal_image import GOAL_HFOV, GoalCameraImage, GoalHfov, GoalImage
from batchnav.sensors.goal_mask import GoalCategorySensor, GoalMaskSensor
from batchnav.sensors.pose import POSE_SENSORS, TRUE_GOAL, TrueGoal
from batchnav.sensors.scan import LIDAR, SCAN_SENSORS, lidar_sensor
from batchnav.tasks import TASKS

if TYPE_CHECKING:
    from batchnav.envs.config import NavConfig


@dataclass(frozen=True)
class MapSensor:
    """Maker of a sensor of the agents' own map, "ego_map" or "waypoint"; both share the section `map`."""

    name: str

    Config: ClassVar = MapConfig
    section: ClassVar = "map"

    def __call__(self, config: NavConfig) -> ObservationSource:
        """The sensor of an environment."""
        names = frozenset(config.sensors) & MAP_SPECS.keys()
        mask: GoalCategorySensor | GoalMaskSensor | None = None
        if self._searches(config):
            changes = TASKS[config.task_name].changes_goals
            mask = GoalCategorySensor(config.camera) if changes else GoalMaskSensor(config.camera, config.goal_mask)
        lidar = lidar_sensor(config.lidar) if config.map.map_sensor == LIDAR else None
        bodies = not config.world.is_empty
        return MapObservation(self.name, names, config.depth, config.map, config.body, mask, lidar, bodies)

    @staticmethod
    def reads(config: NavConfig) -> tuple[str, ...]:
        """Further sections that it reads."""
        return (config.map.map_sensor, *((GoalMaskSensor.name,) if MapSensor._searches(config) else ()))

    @staticmethod
    def _searches(config: NavConfig) -> bool:
        """True where the map shows goals that the agent has seen."""
        return TASKS[config.task_name].goal_categories(config.task) is not None

    def check(self, config: NavConfig) -> None:
        """ConfigError for settings of the map that no sensor reads."""
        readers_of = {"anticipation": MAP_SPECS, "localisation": MAP_SPECS, "initial_scan": (WAYPOINT,)}
        for name, readers in readers_of.items():
            value = getattr(config.map, name)
            if value and not set(readers) & set(config.sensors):
                found = f"map.{name}: found {value!r} with sensors {', '.join(config.sensors)}"
                raise ConfigError(f"{found}, expected {' or '.join(readers)} among them")
        if self.name in config.sensors and not config.goal_mask.is_exact and TASKS[config.task_name].changes_goals:
            raise ConfigError(
                f"goal_mask: found noise or a detector with {self.name} and the task {config.task_name}, expected the "
                "true mask: its maps remember the objects of all categories"
            )
        if config.map.localisation and (config.map.map_sensor == LIDAR or self._searches(config)):
            found = f"map_sensor {config.map.map_sensor} and the task {config.task_name}"
            raise ConfigError(f"map.localisation: found true with {found}, expected depth, and goals that are points")
        if config.map.map_sensor == LIDAR and self.name in config.sensors:
            if config.map.initial_scan:
                raise ConfigError(
                    "map.initial_scan: found true with map_sensor lidar, expected false: it sees all around"
                )
            if self._searches(config):
                raise ConfigError(
                    f"map.map_sensor: found lidar with the task {config.task_name}, expected depth: its maps show "
                    "goals that the camera sees"
                )


SOURCES = Registry({
    **{name: MapSensor(name) for name in MAP_SPECS},
    **{name: lambda config, sensor=sensor: sensor() for name, sensor in POSE_SENSORS.items()},
    GOAL_HFOV: lambda config: GoalHfov(),
    TRUE_GOAL: lambda config: TrueGoal(),
    **SCAN_SENSORS,
    GOAL_EMBEDDING: GoalEmbeddingSensor(),
})  # fmt: skip
"""Sensors without a camera, by name: functions of a `NavConfig` that return an `ObservationSource`. Camera sensors are
in `batchnav.sensors.SENSORS`. A sensor with settings of its own has an attribute `Config`, their frozen dataclass, and
reads them from the section of its name: `config.NAME`."""


def observation_sources(config: NavConfig) -> dict[str, ObservationSource]:
    """The sources of an environment of this configuration, by name of the observation.

    Order: camera sensors by name, sensors of `SOURCES` in its order, the task's images of the goal, the task's other
    observations. Policies read observations in this order, which does not depend on the order of `config.sensors`.
    ConfigError for an unknown name.
    """
    cameras, settings, task = config.all_cameras, config.sensor_settings, TASKS[config.task_name]
    given = {source.spec.name: source for source in task.sources(config.task)}
    images = goal_images_of(config)
    for name in config.sensors:
        if name in given or name in images:
            raise ConfigError(
                f"sensors: found {name!r}, expected sensors alone: the task {config.task_name} adds this observation"
            )
    check_names(config.sensors, cameras, SOURCES)
    sources: dict[str, ObservationSource] = dict(camera_sensors(config.sensors, cameras, settings))
    sources |= {name: make(config) for name, make in SOURCES.items() if name in config.sensors}
    for name, kind in images.items():
        if (size := task.goal_image_size(config.task)) is None:
            (sensor,) = camera_sensors((kind,), cameras, settings).values()
            sources[name] = GoalImage(name, sensor)
            continue
        height, width = size
        camera = CameraConfig(height, width, backface_culling=config.camera.backface_culling)
        (sensor,) = camera_sensors((kind,), {MAIN: camera}, settings).values()
        sources[name] = GoalCameraImage(name, sensor, camera)
    return sources | given


def goal_images_of(config: NavConfig) -> Mapping[str, str]:
    """Images of the goal that agents of this configuration observe (`Task.goal_images`)."""
    return TASKS[config.task_name].goal_images(config.task)


def image_sources(config: NavConfig) -> dict[str, ObservationSource]:
    """The sources that depend on camera images alone: they observe from any pose, without an agent or an episode."""
    return {
        name: source
        for name, source in observation_sources(config).items()
        if source.requires.camera is not None and not (source.requires.map or source.requires.goal)
    }


def specs_of(config: NavConfig) -> tuple[Spec, ...]:
    """Specs of the observations of an environment of this configuration, in order."""
    return tuple(source.spec for source in observation_sources(config).values())


def space_of(specs: Iterable[Spec]) -> spaces.Dict:
    """The observation space of one environment, in the order of the specs (Gymnasium sorts plain dicts)."""
    return spaces.Dict([(spec.name, spec.box) for spec in specs])


def needed_appearance(config: NavConfig) -> frozenset[str]:
    """Fields of `scene.appearance.Appearance` that the sources and the goals of this configuration read."""
    of_goals = frozenset() if goal_categories_of(config) is None else frozenset({"goal"})
    return appearance_needed(observation_sources(config).values()) | of_goals


def goal_categories_of(config: NavConfig) -> tuple[str, ...] | None:
    """Categories of the goals that the scenes of this configuration must have; None: the task needs none."""
    return TASKS[config.task_name].goal_categories(config.task)
