"""Environments by name for Gymnasium: `gymnasium.make_vec("batchnav/PointNav-v0", scenes=["house:0-15"])`.

`import batchnav` registers the names, before or after `import gymnasium`, and imports no other package. Gymnasium 1.0
removed plugin entry points, so a finder on `sys.meta_path` registers the names as soon as Gymnasium is imported, and
then removes itself. Programs that import batchnav first need the finder: to register at once, batchnav would have to
import Gymnasium.

Gymnasium's own form needs neither `import batchnav` nor the finder, since Gymnasium imports the module that the name
begins with: `gymnasium.make_vec("batchnav.gym:batchnav/PointNav-v0")`.
"""

from __future__ import annotations

import importlib.abc
import importlib.machinery
import sys
from collections.abc import Sequence
from types import ModuleType

TASKS = {
    "PointNav": "pointnav", "Flee": "flee", "Explore": "explore", "ObjectNav": "objectnav", "ImageNav": "imagenav",
    "InstanceImageNav": "instance_imagenav",
    "SocialNav": "socialnav", "Follow": "follow", "Sequence": "sequence",
}  # fmt: skip
"""Names in `batchnav.tasks.TASKS`, by name of the environment."""
GYMNASIUM = "gymnasium"


def register() -> None:
    """Register all environments with Gymnasium. Further calls have no effect."""
    import gymnasium

    for name in (*TASKS, "CartPole"):
        if (identifier := f"batchnav/{name}-v0") not in gymnasium.registry:
            gymnasium.register(
                identifier, f"batchnav.gym.envs:make_single_{'nav' if name in TASKS else 'cartpole'}",
                vector_entry_point=f"batchnav.gym.envs:make_{'nav' if name in TASKS else 'cartpole'}",
                kwargs={"task": TASKS[name]} if name in TASKS else {},
            )  # fmt: skip


def register_when_imported() -> None:
    """Register now if Gymnasium is imported, else when it is imported."""
    if GYMNASIUM in sys.modules:
        register()
    else:
        sys.meta_path.insert(0, _Finder())


class _Finder(importlib.abc.MetaPathFinder):
    """Finds Gymnasium as Python does, with a loader that registers the environments."""

    def find_spec(
        self, name: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        if name != GYMNASIUM:
            return None
        spec = importlib.machinery.PathFinder.find_spec(name, path, target)
        if spec is not None and isinstance(spec.loader, importlib.machinery.SourceFileLoader):
            spec.loader = _Loader(spec.loader.name, spec.loader.path)
        return spec


class _Loader(importlib.machinery.SourceFileLoader):
    def exec_module(self, module: ModuleType) -> None:
        super().exec_module(module)
        sys.meta_path[:] = [finder for finder in sys.meta_path if not isinstance(finder, _Finder)]
        register()
