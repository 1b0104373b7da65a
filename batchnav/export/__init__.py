"""Files for other programs: ROS maps, scenes with named objects, URDF, ONNX; and the mapper of a robot."""

from batchnav.export.onnx_policy import export_policy
from batchnav.export.robot_mapper import RobotMapper

__all__ = ["RobotMapper", "export_policy"]
