"""The cameras of a body, what is drawn for them, and the sensors that read it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch

from batchnav.errors import ConfigError
from batchnav.mapping.mapper import MAP_SPECS
from batchnav.renderers.choose import make_renderer
from batchnav.scene.bank import SceneBank
from batchnav.sensors import SENSORS
from batchnav.sensors.camera import CameraConfig, Carriers, MountedCamera, Seeds
from batchnav.sensors.pose import POSE_SENSORS, PoseSensor
from batchnav.sensors.sensor import Sensor, Views, check_observation
from batchnav.types import Observation, Spec

MAIN = ""
"""The name of the camera whose sensors go by their own names."""


def make_sensors(
    names: Sequence[str], cameras: Mapping[str, CameraConfig], settings: Mapping[str, Any]
) -> dict[str, dict[str, Sensor]]:
    """The cameras' sensors asked for, by camera and by the name of the observation; ConfigError for an unknown name.

    Args:
        names: "SENSOR" reads the main camera, "CAMERA_SENSOR" another; those of POSE_SENSORS read none, and
            those of MAP_SPECS are made where there are agents.
        cameras: by name; MAIN is the main one.
        settings: of the sensors that have some, by sensor.
    """
    made: dict[str, dict[str, Sensor]] = {}
    offered = {f"{camera}_{sensor}" if camera else sensor: (camera, sensor) for camera in cameras for sensor in SENSORS}
    for name in dict.fromkeys(names):
        if name in POSE_SENSORS or name in MAP_SPECS:
            continue
        if name not in offered:
            raise ConfigError(
                f"sensors: found {name!r}, expected some of {', '.join((*offered, *POSE_SENSORS, *MAP_SPECS))}"
            )
        camera, sensor = offered[name]
        made.setdefault(camera, {})[name] = SENSORS[sensor](cameras[camera], settings.get(sensor))
    return made


def make_pose_sensors(names: Sequence[str]) -> dict[str, PoseSensor]:
    """The sensors asked for that read a body's pose, by name."""
    return {name: POSE_SENSORS[name]() for name in dict.fromkeys(names) if name in POSE_SENSORS}


def appearance_needed(sensors: Mapping[str, Mapping[str, Sensor]]) -> frozenset[str]:
    """Fields of `Appearance` that the sensors of `make_sensors` read."""
    return frozenset(
        field for of_camera in sensors.values() for sensor in of_camera.values() for field in sensor.needs_appearance
    )


def sensor_specs(sensors: Mapping[str, Mapping[str, Sensor]]) -> tuple[Spec, ...]:
    """What the sensors of `make_sensors` give, under the names of their observations."""
    return tuple(
        sensor.spec._replace(name=name) for of_camera in sensors.values() for name, sensor in of_camera.items()
    )


def by_drawing(sensors: Mapping[str, Mapping[str, Sensor]]) -> dict[str, tuple[str, int, dict[str, Sensor]]]:
    """What is to be drawn for the sensors of `make_sensors`: by its name the camera, the scale, and who reads it.

    The name is the camera's, with the scale behind it where that is not 1.
    """
    drawings: dict[str, tuple[str, int, dict[str, Sensor]]] = {}
    for camera, of_camera in sensors.items():
        for name, sensor in of_camera.items():
            key = camera if sensor.scale == 1 else f"{camera} x{sensor.scale}"
            drawings.setdefault(key, (camera, sensor.scale, {}))[2][name] = sensor
    return drawings


class Rig:
    """The cameras and sensors of N bodies. A camera is drawn once for all sensors of a scale, and only if one reads it.

    Args:
        bank: with appearance where a sensor needs it.
        bodies: that carry the cameras.
        cameras: by name.
        sensors: of `make_sensors`.
        renderer: "raycast", "opengl" or "auto".
        seeds: what noise is drawn from; sensors with noise refuse to read without.
    """

    def __init__(
        self,
        bank: SceneBank,
        bodies: Carriers,
        cameras: Mapping[str, CameraConfig],
        sensors: Mapping[str, Mapping[str, Sensor]],
        renderer: str = "raycast",
        seeds: Seeds | None = None,
    ):
        self.sensors, self.appearance, self._device = sensors, bank.appearance, bank.device
        self.specs = sensor_specs(sensors)
        self.mounts = {
            name: MountedCamera(bodies, camera, number, seeds)
            for number, (name, camera) in enumerate(cameras.items())
            if name in sensors
        }
        self._drawings, self._num_bodies = by_drawing(sensors), len(bodies.heading)
        self.renderers = {
            key: make_renderer(
                renderer, bank, self._num_bodies, height=scale * cameras[name].height,
                width=scale * cameras[name].width, hfov_deg=cameras[name].hfov_deg,
                backface_culling=cameras[name].backface_culling,
                max_depth=max(sensor.max_depth for sensor in readers.values()),
            )
            for key, (name, scale, readers) in self._drawings.items()
        }  # fmt: skip

    @property
    def capturable(self) -> bool:
        """Whether a CUDA graph can hold an observation."""
        return all(renderer.capturable for renderer in self.renderers.values())

    def observe(self, out: Observation) -> None:
        """Fill those tensors of `out` that are sensors', by name; what is not there is not drawn.

        ArgumentError where one is not as `check_observation` says.
        """
        check_observation(out, self.specs, self._num_bodies, self._device)
        for key, (camera, _, readers) in self._drawings.items():
            wanted = {name: sensor for name, sensor in readers.items() if name in out}
            if not wanted:
                continue
            triangle: torch.Tensor | None = None
            views = self.look_from(camera)
            if any(sensor.needs_triangles for sensor in wanted.values()):
                depth, triangle = self.renderers[key].visibility(*views.pose)
            else:
                depth = self.renderers[key].render(*views.pose)
            for name, sensor in wanted.items():
                sensor.write(depth, triangle, views, self.appearance, out[name])

    def look_from(self, camera: str = MAIN) -> Views:
        """Where a camera is now."""
        self.mounts[camera].move()
        return self.mounts[camera].views
