"""Depth renderers: ray casting on the CPU and the GPU, and the brute-force reference that specifies them."""

import importlib
import sys
import types
from typing import Any


class _Room(types.ModuleType):
    """A module that is called as the function of the public face that has its name."""

    def __call__(self, *args: Any, **options: Any) -> Any:
        """`batchnav.sensors.picture.render`: what cameras in a scene see, as NumPy arrays by sensor."""
        return importlib.import_module("batchnav.sensors.picture").render(*args, **options)


render = sys.modules[__name__]
render.__class__ = _Room
