"""The public names for type checkers and editors, which do not see what `__init__.py` imports on first use."""

from batchnav.cartpole.env import CartPoleEnv as CartPoleEnv
from batchnav.data.formats import EpisodeDataset as EpisodeDataset
from batchnav.data.formats import load_episodes as load_episodes
from batchnav.data.goals.view_points import with_goals as with_goals
from batchnav.data.scenes.datasets import load_dataset as load_dataset
from batchnav.data.scenes.load import load_scene as load_scene
from batchnav.data.scenes.load import load_scenes as load_scenes
from batchnav.envs.config import NavConfig as NavConfig
from batchnav.envs.nav import NavEnv as NavEnv
from batchnav.envs.nav import PointNavEnv as PointNavEnv
from batchnav.envs.stream import SceneStream as SceneStream
from batchnav.errors import BatchnavError as BatchnavError
from batchnav.navmesh.navmesh import NavMesh as NavMesh
from batchnav.navmesh.settings import NavMeshSettings as NavMeshSettings
from batchnav.policy.weights import load_policy as load_policy
from batchnav.procedural import make_house as make_house
from batchnav.renderers.opengl.renderer import OpenGLRenderer as OpenGLRenderer
from batchnav.renderers.raycast import RaycastRenderer as RaycastRenderer
from batchnav.scene.bank import SceneBank as SceneBank
from batchnav.scene.mesh import load_mesh as load_mesh
from batchnav.scene.scene import Scene as Scene
from batchnav.sensors.camera import load_camera_info as load_camera_info
from batchnav.sensors.scene_images import render as render
from batchnav.types import TriangleMesh as TriangleMesh
from batchnav.world.world import ScriptedBodies as ScriptedBodies

__version__: str
