"""Gazebo's worlds (SDF) as scenes."""
