"""Sensors: observations from camera images, the appearance of surfaces and the pose of bodies.

A camera sensor is a subclass of `sensors.sensor.CameraSensor` and a line in `SENSORS`; `batchnav.NavEnv(sensors=...)`
accepts its name. A `sensors.frame.Frame` is the input of all sensors in one step.
"""

from batchnav.config import Registry
from batchnav.sensors.depth import DepthSensor
from batchnav.sensors.goal_mask import GoalMaskSensor
from batchnav.sensors.normals import NormalSensor
from batchnav.sensors.rgb import RGBSensor
from batchnav.sensors.semantic import InstanceSensor, SemanticSensor

SENSORS = Registry({
    "depth": DepthSensor, "normals": NormalSensor, "rgb": RGBSensor, "semantic": SemanticSensor,
    "instance": InstanceSensor, "goal_mask": GoalMaskSensor,
})  # fmt: skip
"""Camera sensors by name. Each is made from a `CameraConfig` and its settings, an instance of its frozen dataclass
`Config`, or None for a sensor without one. The section of its name in `NavConfig` holds them."""
