"""Bodies and their kinematics on navmeshes, the order of a step, and the sampling of episodes. Independent of tasks."""
