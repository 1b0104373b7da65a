"""Compile the kernels of an environment in advance: python -m batchnav.envs.precompile '{"sensors": ["rgb"]}' cpu

The arguments are a `NavConfig` in JSON, and "cpu" or "cuda". The program steps once in an empty room of 10 m x 10 m
with a precomputed navmesh and BVH, so that it compiles no kernels of scene processing. `runtime.kernels.precompile`
runs it in a process of its own while houses are generated.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence

import numpy as np

from batchnav.config import from_dict
from batchnav.envs.config import NavConfig
from batchnav.envs.nav import NavEnv
from batchnav.envs.observations import goal_categories_of
from batchnav.navmesh import file as navmesh_file
from batchnav.navmesh.data import BV_NODE, DETAIL, POLYGON, WALKABLE, Tile
from batchnav.navmesh.navmesh import NavMesh
from batchnav.navmesh.settings import NavMeshSettings
from batchnav.scene.bvh import BVH, LINKS, NODE_WIDTH, TRIANGLE_WIDTH
from batchnav.scene.goals import ObjectGoal, SceneGoals
from batchnav.scene.scene import Scene
from batchnav.types import TriangleMesh

SIDE = 10.0
"""Side of the room, metres."""


def main(config: NavConfig, device: str) -> None:
    """Step an environment in the room once."""
    room = empty_room(config.body.navmesh)
    if (categories := goal_categories_of(config)) is not None:
        room = room._replace(goals=goals_in(room, categories or ("object",)))
    env = NavEnv([room], num_envs=1, device=device, task=config.task_name, config=config)
    env.reset()
    env.step(config.body.empty_actions(1, env.device))


def goals_in(room: Scene, categories: Sequence[str]) -> SceneGoals:
    """An object of each category in a corner of the room."""
    camera = np.array([(1.0, 1.0, 1.0, 0.0, 0.0, 1.0)], np.float32)
    place, zero = room.navmesh.snap(np.array([[1.0, 0.0, 1.0]], np.float32)), np.zeros(1, np.float32)
    return SceneGoals(
        "precompile",
        tuple(ObjectGoal(name, k, name, (1.0,) * 3, place, zero, zero, camera) for k, name in enumerate(categories)),
    )


def empty_room(settings: NavMeshSettings) -> Scene:
    """A floor that no ray hits, without walls, and the navmesh that baking would give: one polygon of two triangles."""
    low, high = settings.agent_radius, SIDE - settings.agent_radius
    corners = np.array([(low, 0, low), (low, 0, high), (high, 0, high), (high, 0, low)], np.float32)
    polygon, detail = np.zeros(1, POLYGON), np.zeros(1, DETAIL)
    polygon["vertices"][0, :4], polygon["num_vertices"], polygon["flags"] = range(4), 4, WALKABLE
    detail["num_triangles"] = 2
    leaf = np.zeros(1, BV_NODE)
    leaf["high"] = np.uint16(SIDE / settings.cell_size)
    tile = Tile(
        corners, polygon, detail, np.zeros((0, 3), np.float32), np.array([(3, 0, 2, 17), (0, 1, 2, 5)], np.uint8),
        leaf, np.zeros(3, np.float32), np.array([SIDE, settings.agent_height, SIDE], np.float32),
        settings.agent_height, settings.agent_radius, settings.agent_max_climb, 1 / settings.cell_size, 4,
    )  # fmt: skip
    ground = np.array([(0, 0, 0), (0, 0, SIDE), (SIDE, 0, SIDE), (SIDE, 0, 0)], np.float32)
    mesh = TriangleMesh(ground, np.array([(0, 1, 2), (0, 2, 3)], np.int32))
    node, planes = np.zeros((1, NODE_WIDTH), np.float32), np.zeros((2, TRIANGLE_WIDTH), np.float32)
    node.view(np.int32)[0, LINKS : LINKS + 2] = ~np.int32(0)  # both children: empty leaves of one triangle
    tree = BVH(node, planes, np.arange(2, dtype=np.int32))
    return Scene("empty room", mesh, NavMesh(navmesh_file.single_tile_file(tile, settings)), tree)


if __name__ == "__main__":
    main(from_dict(NavConfig, json.loads(sys.argv[1])), sys.argv[2])
