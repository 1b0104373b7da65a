"""Files for other programs: ROS maps, scenes with named objects, the body's URDF."""
