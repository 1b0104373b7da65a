"""Simple rooms for closed forms: an empty floor, and one with a wall from its north edge to 1.5 m from its south edge.

      x=0        3        6
z=0    +---------#--------+
       |         #        |
z=4.5  |                  |
z=6    +------------------+
"""

import math

import numpy as np
import torch
from worlds import boxes

from batchnav.agents.registry import make_reference_agent
from batchnav.data.episodes import Episode, Goal
from batchnav.scene.scene import make_scene
from batchnav.tasks.episode_sampling import EpisodeTable
from batchnav.view.topdown import navigable_triangles


def make_room(wall, bed=False):
    """The scene of a room, with or without the wall, and a bed of 3 x 2.4 m on whose top agents could walk."""
    parts = [((0.0, -0.2, 0.0), (6.0, 0.0, 6.0))]
    if wall:
        parts.append(((2.9, 0.0, 0.0), (3.1, 2.5, 4.5)))
    if bed:
        parts.append(((0.2, 0.0, 0.2), (3.2, 0.5, 2.6)))
    return make_scene("room", boxes(*parts))


def extent(scene):
    """Lowest and highest corner of the navmesh, f32 [3] each, metres."""
    corners, _ = navigable_triangles(scene.navmesh)
    return corners.reshape(-1, 3).min(0), corners.reshape(-1, 3).max(0)


def starts(scene, rows, device="cpu"):
    """Table of episodes that begin at `rows` of (x, z, heading), metres and radians."""
    points = scene.navmesh.snap(np.array([(x, 0.0, z) for x, z, _ in rows], np.float32))
    point = torch.from_numpy(points).to(device)
    heading = torch.tensor([float(h) for *_, h in rows], device=device)
    return EpisodeTable(torch.zeros(len(rows), dtype=torch.int32, device=device), point, heading, point)


def metrics_of(name, env, steps, metrics=("success",)):
    """Metrics of the episodes that end within some steps of a reference agent, f64 [E, len(metrics)]."""
    agent, (observation, _) = make_reference_agent(name, env), env.reset()
    agent.reset(env.num_envs)
    started, ended = torch.ones(env.num_envs, dtype=torch.bool, device=env.device), []
    for _ in range(steps):
        observation, _, terminated, truncated, info = env.step(agent.act(observation, started))
        started = terminated | truncated
        ended += torch.stack([info["episode"][metric][started] for metric in metrics], 1).tolist()
    return np.array(ended)


def play(env, actions):
    """Step all agents with the same S actions: rewards f32 [S, N], and the metrics after the last step."""
    rewards = []
    for action in actions:
        _, reward, _, _, info = env.step(torch.full((env.num_envs,), action, device=env.device))
        rewards.append(reward.clone())
    return torch.stack(rewards).cpu(), {name: value.clone().cpu() for name, value in info["episode"].items()}


def walker_episode(room, person, waypoints, robot=(3.0, 4.5), heading=0.0):
    """An episode with one person, in the form of Social-HM3D's files. Places are (x, z), metres."""
    at = lambda x, z: room.navmesh.snap(np.float32([[x, 0.0, z]]))[0].tolist()  # noqa: E731
    info = {"geodesic_distance": 3.0, "human_num": 1, "human_0_start_position": at(*person)}
    info |= {f"human_0_waypoint_{w}_position": at(*point) for w, point in enumerate(waypoints, 1)}
    goal = Goal(tuple(at(0.8, 0.8)))
    rotation = 0.0, math.sin(heading / 2), 0.0, math.cos(heading / 2)
    return Episode("0", "room", tuple(at(*robot)), rotation, (goal,), info)
