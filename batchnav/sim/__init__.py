"""Bodies and their kinematics on navmeshes, the order of a step, and episode sampling. Independent of tasks."""
