"""A ROS 2 node that drives a robot by a policy. Only `node` imports ROS; `core` has all decisions.

`docs/howto/ros2.md` describes parameters, topics and states.
"""
