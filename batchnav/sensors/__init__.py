"""Sensors: visibility and what the bank knows of surfaces, as the tensors that agents observe.

A sensor is a class with the members of `sensors.sensor.Sensor`, and a line here; `batchnav.NavEnv(sensors=...)` takes
its name.
"""

from batchnav.sensors.depth import DepthSensor
from batchnav.sensors.normals import NormalSensor
from batchnav.sensors.rgb import RGBSensor

SENSORS = {"depth": DepthSensor, "normals": NormalSensor, "rgb": RGBSensor}
"""By name; each is made from its camera and its own settings, or None."""
