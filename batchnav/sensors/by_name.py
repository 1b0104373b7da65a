"""Camera sensors by observation name: "depth" belongs to the main camera, "left_depth" to the camera "left"."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from batchnav.errors import ConfigError
from batchnav.sensors import SENSORS
from batchnav.sensors.camera import MAIN, CameraConfig
from batchnav.sensors.distortion import DistortedImage, Distortion
from batchnav.sensors.sensor import CameraSensor


def camera_sensors(
    names: Iterable[str], cameras: Mapping[str, CameraConfig], settings: Mapping[str, Any]
) -> dict[str, CameraSensor]:
    """The camera sensors among these names, ordered by name; other names are ignored.

    Args:
        names: "SENSOR" reads the main camera, "CAMERA_SENSOR" another one.
        cameras: configurations by name; `MAIN` is the main one.
        settings: configurations of sensors by the sensor's name in `SENSORS`, for sensors that have one.
    """
    offered = {camera_sensor_name(camera, kind): (camera, kind) for camera in cameras for kind in SENSORS}
    made: dict[str, CameraSensor] = {}
    for name in sorted({*names} & offered.keys()):
        camera, kind = offered[name]
        sensor = with_distortion(SENSORS[kind](cameras[camera], settings.get(kind)), cameras[camera])
        made[name] = sensor.of_camera(camera)
    return made


def with_distortion(sensor: CameraSensor, camera: CameraConfig) -> CameraSensor:
    """The sensor of a camera whose lens may distort its images."""
    if not camera.distortion:
        return sensor
    distortion = Distortion.of(camera.intrinsics, camera.height, camera.width, camera.distortion)
    return DistortedImage(sensor, distortion)


def camera_sensor_name(camera: str, kind: str) -> str:
    """Name of the observation of a camera's sensor."""
    return kind if camera == MAIN else f"{camera}_{kind}"


def check_names(names: Sequence[str], cameras: Mapping[str, CameraConfig], others: Iterable[str] = ()) -> None:
    """ConfigError for a name that is neither a camera sensor nor one of `others`."""
    offered = dict.fromkeys(camera_sensor_name(camera, kind) for camera in cameras for kind in SENSORS)
    for name in names:
        if name not in offered and name not in (others := tuple(others)):
            raise ConfigError(f"sensors: found {name!r}, expected some of {', '.join((*offered, *others))}")
