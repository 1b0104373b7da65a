"""Helpers of the mapping tests: agents that follow a sensor, their maps, and path costs of the reference mapper."""

import math

import map_reference
import numpy as np
import torch

from batchnav.mapping.costs import FREE_EDGE
from batchnav.mapping.mapper import Schedule
from batchnav.mapping.shortest_path import SearchBuffers
from batchnav.mapping.state import (
    CELLS_PER_WORD,
    INTERPOLATED,
    SIDE,
    Agents,
    MapCameras,
    MappingParameters,
    MapState,
)
from batchnav.runtime.kernels.arrays import view
from batchnav.sim.bodies import FORWARD, LEFT, RIGHT

SENSORS = ("depth", "ego_map", "waypoint")
HALF_A_TURN = math.radians(5.0)


def towards(angle):
    """Actions i64 [N]: forward, or a turn towards the bearing `angle`, radians to the left."""
    return torch.where(angle.abs() <= HALF_A_TURN, FORWARD, torch.where(angle > 0, LEFT, RIGHT))


def follow_waypoints(env, steps):
    """All observations while the agents follow their waypoints for `steps` steps after a reset."""
    observation, _ = env.reset(seed=5)
    observed = [observation]
    for _ in range(steps):
        observation, *_ = env.step(towards(observation["waypoint"][:, 1]))
        observed.append(observation)
    return observed


def map_codes(env):
    """Codes of occupancy and exploration: u8 [N, SIDE, SIDE] each."""
    occupancy, explored = (part.view(-1, SIDE, SIDE).cpu().numpy() for part in env.mapper.map_state.layers)
    return occupancy, explored


def unpacked(quadrants):
    """Quadrants by cell, int [SIDE, SIDE], of the words i32 [CELLS / 8] of one map."""
    words = quadrants.cpu().numpy().astype(np.int64)[:, None]
    return ((words >> (4 * np.arange(CELLS_PER_WORD))) & 15).reshape(SIDE, SIDE)


def reference_layers(layers, i, quadrants=None):
    """Map i of `MapLayers` as the reference mapper stores it: one array per meaning.

    `quadrants`: i32 [N, CELLS / 8]; None: all zero.
    """
    names = "is_occupied", "has_obstacle", "is_explored", "is_traversed", "repeated_collisions", "is_inflated"
    occupied, obstacle, explored, traversed, repeated, inflated = (
        getattr(layers, name)[i].view(SIDE, SIDE).cpu().numpy() for name in names
    )
    interpolated = (layers.occupancy[i] == INTERPOLATED).view(SIDE, SIDE).cpu().numpy()
    quarters = np.zeros((SIDE, SIDE), int) if quadrants is None else unpacked(quadrants[i])
    counts = np.where(occupied, repeated, 0), np.where(occupied, 0, repeated)
    traversed = ~occupied & (obstacle | traversed)
    return map_reference.Layers(obstacle, explored, traversed, *counts, inflated, interpolated, quarters)


def start_maps(env, goals):
    """One `ReferenceMap` per agent, at the start of its episode. `goals`: x and z of each map's goal [N, 2], metres."""
    bodies, body = env.sim.bodies, map_reference.Body(*map(float, env.mapper._parameters[:5]))
    position, heading, goals = (values.cpu().numpy() for values in (bodies.position, bodies.heading, goals))
    return [map_reference.ReferenceMap(position[i], float(heading[i]), goals[i], body) for i in range(env.num_envs)]


def reference_camera(env, i):
    """The main camera of agent i as the reference mapper takes it."""
    cameras = env.frame.cameras("")
    values = (float(values[i]) for values in (cameras.heading, cameras.pitch, cameras.tan_half_hfov))
    return map_reference.Camera(cameras.position[i].cpu().numpy(), *values)


def kernel_arguments():
    """Arguments of the map kernels for one agent, by name, to compile the kernels for their types."""
    device, vector, scalar = torch.device("cpu"), torch.zeros(1, 3), torch.zeros(1)
    records = {
        "cameras": MapCameras(vector, scalar, scalar, scalar, vector),
        "agents": Agents(vector, scalar, scalar.int(), scalar.int(), torch.zeros(1, 2), vector),
        "parameters": MappingParameters(*[np.float32(0.0)] * 6),
        "schedule": Schedule.empty(1, device),
        "search": SearchBuffers.empty(1, device),
        "state": MapState.empty(1, device, with_predictor=True),
    }
    return {name: view(record) for name, record in records.items()}


def check_ptx(ptx):
    """The kernel of a search has atomic operations and barriers, and computes nothing in double precision."""
    assert all(word in ptx for word in ("global.min.s32", "atom.shared.or.b32", "atom.shared.add.u32", "bar.sync"))
    assert not any(
        "f64" in line.split("\t")[1] for line in ptx.splitlines() if line.startswith("\t") and "\t" in line[1:]
    )


def reference_costs(layers, i, goal, predicted=None, quadrants=None):
    """Layers, traversal costs and cost-to-go of map i by the reference mapper. `goal`: row and column."""
    own = reference_layers(layers, i, quadrants)
    costs = map_reference.traversal_costs(own, predicted)
    return own, costs, map_reference.cost_to_go(own, costs, goal)


def agent_and_goal(env, i):
    """Map coordinates of agent i and of its goal, in cells."""
    origin = env.mapper.map_state.origin_and_resolution[i].cpu().numpy()
    places = env.sim.bodies.position[i, [0, 2]], env.task.state.goal[i, [0, 2]]
    return [(place.cpu().numpy() - origin[:2]) / origin[2] for place in places]


def check_path_costs(env, distances, predicted=None):
    """Compare all path costs with the reference mapper, and return the number of paths longer than 2 m.

    Args:
        env: an environment with a mapper.
        distances: [N]: the waypoints' distances, metres.
        predicted: int [N, SIDE, SIDE]: predicted costs; None: none.
    """
    state, checked = env.mapper.map_state, 0
    for i in range(env.num_envs):
        (c, r), (goal_c, goal_r) = np.floor(agent_and_goal(env, i)).astype(int)
        costs = None if predicted is None else predicted[i]
        _, _, to_go = reference_costs(state.layers, i, (goal_r, goal_c), costs, state.quadrants)
        assert state.expected_cost[i] == to_go[r, c], "not the shortest path over the cells"
        size = state.origin_and_resolution[i, 2]
        length = to_go[r, c] / FREE_EDGE * size
        # A waypoint's distance is a straight line, up to 8% shorter than the path on the grid, plus or minus a cell at
        # either end.
        straight = length * math.cos(math.pi / 8) - 2 * size < distances[i] < length + 2 * size
        assert straight or state.layers.repeated_collisions[i].any() or (costs is not None and costs.any())
        checked += length > 2.0
    return checked


def reached_by(env, name, seed):
    """Fraction of the agents that come within 0.3 m of the goal in 199 steps by following a sensor."""
    observation, _ = env.reset(seed=seed)
    near = torch.zeros(env.num_envs, dtype=torch.bool)
    for _ in range(199):
        observation, *_ = env.step(towards(observation[name][:, 1]))
        near |= observation["pointgoal"][:, 0] < 0.3
    return near.float().mean().item()
