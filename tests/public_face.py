"""User program with every name of the public interface: `make lint` checks it with strict mypy, and a test runs it.

`assert_type` states the types that a type checker must know, except for Any.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, assert_type

import gymnasium
import numpy as np
import torch

import batchnav
from batchnav.data.scenes.datasets import Dataset
from batchnav.navmesh.settings import NavMeshSettings
from batchnav.policy.agent import PolicyAgent
from batchnav.types import Visibility


def read_scenes(mesh_file: Path) -> list[batchnav.Scene]:
    """Load meshes and scenes, by path and by name."""
    mesh = batchnav.load_mesh(mesh_file)
    assert_type(mesh, batchnav.TriangleMesh)
    assert_type(batchnav.make_house(5), batchnav.TriangleMesh)
    assert_type(mesh.vertices, np.ndarray[tuple[Any, ...], np.dtype[Any]])
    scene = batchnav.load_scene(mesh_file)
    assert_type(scene, batchnav.Scene)
    scenes = batchnav.load_scenes(["house:3", str(mesh_file)])
    assert_type(scenes, list[batchnav.Scene])
    return [scene, *scenes]


def walk(mesh: batchnav.TriangleMesh, file: Path) -> float:
    """Call every navmesh query on the CPU, with NumPy arrays."""
    settings = batchnav.NavMeshSettings(agent_radius=0.1, agent_height=1.5)
    baked = batchnav.NavMesh.bake(mesh, settings)
    assert_type(baked, batchnav.NavMesh)
    baked.save(file)
    navmesh = batchnav.NavMesh.load(str(file))
    assert_type(navmesh.to("cpu"), batchnav.NavMesh)
    assert_type(navmesh.settings, NavMeshSettings | None)
    assert_type(navmesh.area, float)
    assert_type(navmesh.num_polygons, int)
    assert_type(navmesh.num_islands, int)
    assert_type(navmesh.bounds, np.ndarray[tuple[Any, ...], np.dtype[Any]])
    points: np.ndarray[Any, np.dtype[np.float32]] = navmesh.sample(4, seed=7)
    ends = navmesh.try_step(points, points + np.float32(0.1), sliding=True)
    assert navmesh.is_navigable(navmesh.snap(ends), max_y_delta=0.5).all()
    assert navmesh.distance_to_wall(points, max_distance=2.0).shape == navmesh.island(points).shape == (4,)
    assert navmesh.island_radius(points).min() > 0 and navmesh.topdown_view(0.5, float(points[0, 1])).any()
    distance = navmesh.geodesic_distance(points, points[::-1].copy())
    assert navmesh.shortest_path(points[0], points[0]).shape[1] == 3
    return float(distance.min())


def look(scenes: list[batchnav.Scene]) -> None:
    """Render pictures, and use a renderer with a scene bank."""
    views = batchnav.render(scenes[0], [0.0, 1.25, 0.0], 0.0, sensors=("depth",), height=16, width=24)
    assert_type(views, dict[str, np.ndarray[tuple[Any, ...], np.dtype[Any]]])
    bank = batchnav.SceneBank.pack(scenes, device="cpu", appearance=False)
    assert_type(bank, batchnav.SceneBank)
    index, position, heading = torch.zeros(2, dtype=torch.int32), torch.zeros(2, 3), torch.zeros(2)
    renderer = batchnav.RaycastRenderer(bank, num_agents=2, height=16, width=16, hfov_deg=90.0)
    assert_type(renderer.render(index, position, heading), torch.Tensor)
    assert_type(renderer.visibility(index, position, heading), Visibility)
    depth, triangle = renderer.visibility(index, position, heading)
    assert_type(depth, torch.Tensor)
    assert_type(triangle, torch.Tensor)


def rasterise(scenes: list[batchnav.Scene]) -> None:
    """Use the OpenGL renderer."""
    bank = batchnav.SceneBank.pack(scenes)
    index, position, heading = torch.zeros(2, dtype=torch.int32), torch.zeros(2, 3), torch.zeros(2)
    renderer = batchnav.OpenGLRenderer(bank, num_agents=2, height=16, width=16)
    assert_type(renderer.render(index, position, heading), torch.Tensor)
    assert_type(renderer.visibility(index, position, heading), Visibility)


def play(scenes: list[batchnav.Scene]) -> None:
    """Step environments, one of them with a policy."""
    env = batchnav.PointNavEnv(scenes[1:2], num_envs=2, device="cpu", seed=0, sensors=("depth",), max_steps=3)
    assert_type(env.num_envs, int)
    assert_type(env.device, torch.device)
    assert_type(env.config, batchnav.NavConfig)
    policy = batchnav.load_policy("pointnav_h200", device=env.device)
    assert_type(policy, PolicyAgent)
    policy.reset(num_envs=env.num_envs)
    observation, info = env.reset(seed=1)
    assert_type(info, dict[str, Any])
    ended: torch.Tensor | None = None
    for _ in range(4):
        action = policy.act(observation, ended)
        assert_type(action, torch.Tensor)
        observation, _, terminated, truncated, info = env.step(action)
        ended = terminated | truncated
    state = env.state_dict()
    assert_type(state, dict[str, torch.Tensor])
    env.load_state_dict(state)
    env.close()
    flee = batchnav.NavEnv(scenes[1:2], task="flee", num_envs=2, device="cpu", sensors=["depth", "semantic"])
    flee.reset(options=None)
    carts = batchnav.CartPoleEnv(num_envs=2, device="cpu", seed=0)
    start, _ = carts.reset(seed=0)
    assert_type(start, torch.Tensor)
    start, _, terminated, _, _ = carts.step(torch.zeros(2, dtype=torch.int64))
    assert_type(terminated, torch.Tensor)
    made = gymnasium.make_vec("batchnav/CartPole-v0", num_envs=2)
    made.close()


def search(folder: Path, copies: Path) -> None:
    """Read and write episode files of all tasks; play ObjectNav episodes with the goals of their file."""
    points = batchnav.load_episodes(folder / "val.json.gz")
    assert_type(points, batchnav.EpisodeDataset)
    points.save(copies / "points" / "val.json.gz")
    objects = batchnav.load_episodes(folder / "objectnav_val.json.gz", content_scenes=["house_100000"])
    objects.save(copies / "objects" / "val.json.gz", content=False)
    assert batchnav.load_episodes(copies / "objects" / "val.json.gz") == objects
    instances = batchnav.load_episodes(folder / "instance_imagenav_val.json.gz")
    instances[:3].save(copies / "instances" / "val.json.gz")
    assert len(batchnav.load_episodes(copies / "instances" / "val.json.gz")) == 3
    made = batchnav.NavEnv.from_episodes(objects[:2], num_envs=2, device="cpu", sensors=("gps",))
    assert_type(made, batchnav.NavEnv)
    scenes = batchnav.load_scenes(["house:100000"])
    env = batchnav.NavEnv(scenes, num_envs=2, device="cpu", task="objectnav", sensors=("gps",), episodes=objects)
    env.reset()


def read_data(dataset: Path, file: Path) -> tuple[Dataset, batchnav.EpisodeDataset]:
    """Load a dataset in Habitat's layout, and episodes."""
    return batchnav.load_dataset(dataset, split="val"), batchnav.load_episodes(file)
