"""Tasks: what agents are to do, one file each. A task is a class of `batchnav.types.Task`, and a line here."""

from typing import Any

from batchnav.tasks.explore import Explore
from batchnav.tasks.flee import Flee
from batchnav.tasks.pointnav import PointNav

TASKS: dict[str, Any] = {"pointnav": PointNav, "flee": Flee, "explore": Explore}
"""By name; each is made from a simulator, its settings, and fixed episodes or None. One's own may be added."""
