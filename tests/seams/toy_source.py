"""A source of scenes from outside the package: "floor:WIDTHxDEPTH" is a floor without walls, one registration."""

import numpy as np

from batchnav.data.scenes.ids import SCENE_SOURCES
from batchnav.scene.scene import make_scene
from batchnav.types import TriangleMesh

FACES = np.array([(0, 2, 1), (0, 3, 2)], np.int32)


def floor(width, depth):
    """A rectangle around the origin, looking up."""
    x, z = width / 2, depth / 2
    corners = [(-x, 0, -z), (x, 0, -z), (x, 0, z), (-x, 0, z)]
    return TriangleMesh(np.array(corners, np.float32), FACES)


def load(name, settings, appearance):
    """The scene of an id."""
    width, depth = map(float, name.partition(":")[2].split("x"))
    return make_scene(name, floor(width, depth), settings=settings)


SCENE_SOURCES["floor:"] = load
