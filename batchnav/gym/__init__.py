"""Our environments by Gymnasium's names: `gymnasium.make_vec("batchnav/PointNav-v0", scenes=["house:0-15"])`.

`import batchnav` makes the names known, whether Gymnasium is imported before or after it, and imports nothing for that.
"""

from __future__ import annotations

import importlib.abc
import importlib.machinery
import sys
from collections.abc import Sequence
from types import ModuleType

TASKS = {"PointNav": "pointnav", "Flee": "flee", "Explore": "explore"}
"""Names of environments, and of `batchnav.tasks.TASKS`."""
GYMNASIUM = "gymnasium"


def register() -> None:
    """Tell Gymnasium the names of our environments; a second time does nothing."""
    import gymnasium

    for name in (*TASKS, "CartPole"):
        if (identifier := f"batchnav/{name}-v0") not in gymnasium.registry:
            gymnasium.register(
                identifier, f"batchnav.gym.single:make_{'nav' if name in TASKS else 'cartpole'}",
                vector_entry_point=f"batchnav.gym.vector:make_{'nav' if name in TASKS else 'cartpole'}",
                kwargs={"task": TASKS[name]} if name in TASKS else {},
            )  # fmt: skip


def register_when_imported() -> None:
    """`register` now where Gymnasium is imported, else as soon as it is."""
    if GYMNASIUM in sys.modules:
        register()
    else:
        sys.meta_path.insert(0, _Finder())


class _Finder(importlib.abc.MetaPathFinder):
    """Finds Gymnasium as Python does, and has it registered in when it is loaded; looked for it may be before, too."""

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
