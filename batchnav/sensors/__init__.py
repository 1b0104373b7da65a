"""Sensors: visibility and what the bank knows of surfaces, as the tensors that agents observe.

A sensor is a class with the members of `sensors.sensor.Sensor`, and a line here; `batchnav.NavEnv(sensors=...)` takes
its name.
"""

from batchnav.sensors.depth import DepthSensor
from batchnav.sensors.normals import NormalSensor
from batchnav.sensors.rgb import RGBSensor
from batchnav.sensors.semantic import InstanceSensor, SemanticSensor

SENSORS = {
    "depth": DepthSensor, "normals": NormalSensor, "rgb": RGBSensor, "semantic": SemanticSensor,
    "instance": InstanceSensor,
}  # fmt: skip
"""By name; each is made from its camera and its own settings, or None."""
