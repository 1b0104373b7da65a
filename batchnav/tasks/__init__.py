"""Tasks: goal, reward and metrics of agents. A task is one file with a `batchnav.types.Task`, and one line here."""

from typing import Any

from batchnav.tasks.explore import Explore
from batchnav.tasks.flee import Flee
from batchnav.tasks.follow import Follow
from batchnav.tasks.imagenav import ImageNav
from batchnav.tasks.instance_imagenav import InstanceImageNav
from batchnav.tasks.objectnav import ObjectNav
from batchnav.tasks.pointnav import PointNav
from batchnav.tasks.sequence import Sequence
from batchnav.tasks.socialnav import SocialNav

TASKS: dict[str, Any] = {
    "pointnav": PointNav, "flee": Flee, "explore": Explore, "objectnav": ObjectNav, "imagenav": ImageNav,
    "instance_imagenav": InstanceImageNav, "socialnav": SocialNav, "follow": Follow, "sequence": Sequence,
}  # fmt: skip
"""Task classes by name. Constructor arguments: simulator, configuration, and fixed episodes or None. Add your own."""
