"""Agents that go where a sensor points, what is on their maps, and another search for the ways over those."""

import heapq
import math

import numpy as np
import torch

from batchnav.mapping.integrate import OBSTACLE, SHARED, SIDE, WALKED
from batchnav.mapping.shortest_path import PARTS
from batchnav.sim.bodies import FORWARD, LEFT, RIGHT

SENSORS = ("depth", "ego_map", "waypoint")
HALF_A_TURN = math.radians(5.0)


def towards(angle):
    """Forward, or a turn towards where something lies: i64 [N] of radians to the left."""
    return torch.where(angle.abs() <= HALF_A_TURN, FORWARD, torch.where(angle > 0, LEFT, RIGHT))


def walk(env, steps):
    """The last observation after following the plan for some steps, and all of "waypoint" and "ego_map" on the way."""
    observation, _ = env.reset(seed=5)
    told = [observation]
    for _ in range(steps):
        observation, *_ = env.step(towards(observation["waypoint"][:, 1]))
        told.append(observation)
    return told


def cells(env):
    """What stands in the cells and what ground they have: u8 [N, SIDE, SIDE]."""
    known = env.mapper.known
    stands, ground = (part.view(-1, SIDE, SIDE).cpu().numpy() for part in (known.stands, known.ground))
    return stands, ground


def dijkstra(stands, seen, goal, added=0):
    """Times to the goal's cell over a map, a cell at a time: weights as `sensors.search` states them."""
    stands = stands.astype(int)
    toll = np.where(stands >= OBSTACLE, 1000 * PARTS * (stands - OBSTACLE + 1), PARTS * (stands + 2) + added)
    times = np.full(toll.shape, np.inf)
    times[goal] = 0
    heap = [(0, goal)]
    while heap:
        time, (r, c) = heapq.heappop(heap)
        if time > times[r, c]:
            continue
        for dr in (-1, 0, 1):
            for dc in (-1, 0, 1):
                nr, nc = r + dr, c + dc
                if (dr or dc) and 0 <= nr < SIDE and 0 <= nc < SIDE:
                    # what was never seen beside something that stands lies behind that
                    hidden = (stands[r, c] > 1 and not seen[nr, nc]) or (stands[nr, nc] > 1 and not seen[r, c])
                    dearest = toll[nr, nc] + 2000 * PARTS * hidden
                    # a diagonal costs what the dearer of the two beside it does
                    dearest = max(dearest, toll[r, nc], toll[nr, c]) if dr and dc else dearest
                    new = time + (7 if dr and dc else 5) * (toll[r, c] + dearest)
                    if new < times[nr, nc]:
                        times[nr, nc] = new
                        heapq.heappush(heap, (new, (nr, nc)))
    return times


def check_lengths(env, told, added=0):
    """How many ways of more than two metres are, to the last digit, as long as another search finds them."""
    frame, bodies = env.mapper.known.frame.numpy(), env.sim.bodies
    stands, ground = cells(env)
    stops = np.maximum(ground.astype(int) - WALKED, 0) * (stands == SHARED)  # each as dear as ten free cells
    added, seen = added + 10 * 2 * PARTS * stops, ground > 0
    checked = 0
    for i in range(env.num_envs):
        places = [(bodies.position[i, [0, 2]].numpy() - frame[i, :2]) / frame[i, 2]]
        places.append((env.task.state.goal[i, [0, 2]].numpy() - frame[i, :2]) / frame[i, 2])
        (c, r), (goal_c, goal_r) = np.floor(places).astype(int)
        time = dijkstra(stands[i], seen[i], (goal_r, goal_c), added[i])[r, c]
        assert env.mapper.known.expected[i] == time, "not the shortest way over the cells"
        length = time / (20 * PARTS) * frame[i, 2]
        # What is told goes straight over what cells take in steps: up to 8% shorter, and within a cell at either end.
        assert length * math.cos(math.pi / 8) - 2 * frame[i, 2] < told[i] < length + 2 * frame[i, 2] or added[i].any()
        checked += length > 2.0
    return checked


def reached_by(env, name, seed):
    """The share of the agents that come near the goal within 199 steps, by going where a sensor points."""
    observation, _ = env.reset(seed=seed)
    near = torch.zeros(env.num_envs, dtype=torch.bool)
    for _ in range(199):
        observation, *_ = env.step(towards(observation[name][:, 1]))
        near |= observation["pointgoal"][:, 0] < 0.3
    return near.float().mean().item()
