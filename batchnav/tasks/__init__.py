"""Tasks: what agents are to do, one file each. A task is a class of `batchnav.types.Task`, and a line here."""

from batchnav.tasks.pointnav import PointNav

TASKS = {"pointnav": PointNav}
"""By name; each is made from a simulator, its settings, and fixed episodes or None."""
