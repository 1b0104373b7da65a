"""batchnav: train PointGoal navigation agents by batch simulation on one GPU.

The public names below are imported when they are first used, so that `import batchnav` costs next to nothing.
"""

import importlib
import os

from batchnav.gym import register_when_imported

# Read by OpenMP when torch loads it: waiting threads sleep instead of spinning. On cores that
# another program uses too, spinning can bring training nearly to a halt (eval/log).
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")

__version__ = "0.5.0"
register_when_imported()

_PUBLIC = {
    "BatchnavError": "batchnav.errors",
    "TriangleMesh": "batchnav.types",
    "NavMesh": "batchnav.navmesh.navmesh",
    "NavMeshSettings": "batchnav.navmesh.settings",
    "load_mesh": "batchnav.scene.mesh",
    "Scene": "batchnav.scene.scene",
    "load_scene": "batchnav.data.scenes.load",
    "load_scenes": "batchnav.data.scenes.load",
    "make_house": "batchnav.procedural",
    "SceneBank": "batchnav.scene.bank",
    "RaycastRenderer": "batchnav.renderers.raycast",
    "OpenGLRenderer": "batchnav.renderers.opengl.renderer",
    "render": "batchnav.sensors.scene_images",
    "NavConfig": "batchnav.envs.config",
    "ScriptedBodies": "batchnav.world.world",
    "NavEnv": "batchnav.envs.nav",
    "PointNavEnv": "batchnav.envs.nav",
    "SceneStream": "batchnav.envs.stream",
    "CartPoleEnv": "batchnav.cartpole.env",
    "load_dataset": "batchnav.data.scenes.datasets",
    "load_episodes": "batchnav.data.formats.dataset",
    "EpisodeDataset": "batchnav.data.formats.dataset",
    "load_policy": "batchnav.policy.weights",
    "load_camera_info": "batchnav.sensors.camera",
    "with_goals": "batchnav.data.goals.view_points",
}
__all__ = sorted(_PUBLIC)


def __getattr__(name: str):
    if name not in _PUBLIC:
        raise AttributeError(f"module 'batchnav' has no attribute {name!r}")
    value = getattr(importlib.import_module(_PUBLIC[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *_PUBLIC})
