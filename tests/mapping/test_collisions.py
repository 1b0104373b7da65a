"""What stops agents, what they walked over, and how plans lead by both."""

import itertools
import math

import numpy as np
import pytest
import torch
from walks import SENSORS, cells, check_path_costs, reached_by, walk

from batchnav.data.scenes import find_scene
from batchnav.envs.nav import NavEnv
from batchnav.mapping.state import EXPLORED, MAX_TRAVERSED, OCCUPIED, SIDE, TRAVERSED, TRAVERSED_OBSTACLE
from batchnav.sim.bodies import FORWARD, LEFT


@pytest.fixture(scope="module")
def house():
    return find_scene("house:3")


def test_what_stops_an_agent_is_on_its_map(house):
    """Agents that see nothing know what they ran into, and nothing else; so they find their way by touch alone."""
    env = NavEnv([house], 32, "cpu", sensors=SENSORS, max_depth=0.05, max_steps=200)
    walk(env, 40)
    before = cells(env)[0].copy()
    collisions, found = env.sim.bodies.collisions.numpy(), (before >= TRAVERSED_OBSTACLE).sum((1, 2))
    assert (found <= collisions).all() and np.mean(found > 0) > 0.8  # who slides along is not stopped
    for _ in range(3):  # who looks again has not run into anything again, nor has who turns
        env.observe()
        env.step([LEFT] * 32)
    assert (cells(env)[0] == before).all()
    assert reached_by(env, "waypoint", 2) > reached_by(env, "pointgoal", 2) + 0.2


def test_what_stops_an_agent_again_becomes_dearer(house):
    """Who pushes on is stopped by the same cells, whose tolls another search knows too."""
    env = NavEnv([house], 32, "cpu", sensors=SENSORS, max_depth=0.05)
    env.reset(seed=5)
    for _ in range(40):
        told = env.step([FORWARD] * 32)[0]["waypoint"][:, 0].numpy()
    stands, _ = cells(env)
    check_path_costs(env, told)
    assert (stands.max((1, 2)) > OCCUPIED + 10).mean() > 0.8
    firm = (stands > OCCUPIED + 5).sum((1, 2))  # the nearer of two as well, where that is not the agent's own cell
    assert (firm >= 2).mean() > 0.4
    for _ in range(220):
        env.step([FORWARD] * 32)
    assert 190 < cells(env)[0].max() <= 200


def test_what_stops_an_agent_where_it_walked_becomes_dearer(house):
    """Walked ground does not become an obstacle, but dearer, up to a bound; another search knows its toll too."""
    env = NavEnv([house], 32, "cpu", sensors=SENSORS, max_depth=0.05)
    env.reset(seed=5)
    env.mapper.map_state.explored.fill_(TRAVERSED)
    for _ in range(40):
        told = env.step([FORWARD] * 32)[0]["waypoint"][:, 0].numpy()
    stands, ground = cells(env)
    assert stands.max() == TRAVERSED_OBSTACLE and ((ground > TRAVERSED + 5).sum((1, 2)) > 0).mean() > 0.8
    check_path_costs(env, told)
    for _ in range(60):
        env.step([FORWARD] * 32)
    an_obstacle = 1000 // (10 * 2)  # stops that are as dear
    assert 30 < cells(env)[1].max() <= MAX_TRAVERSED < TRAVERSED + an_obstacle


def test_a_line_is_not_straight_where_walked_ground_stopped_the_agent(house):
    """A wall that was walked over is crossed straight, until it stops the agent."""
    wall = dict.fromkeys(RING, TRAVERSED_OBSTACLE)
    turned = []
    for stopped in (0, 1):
        env, plan, goal = in_a_clearing(house, wall, TRAVERSED + stopped)
        turned.append((plan[:, 1] - goal[:, 1]).abs())
        assert env.mapper.map_state.occupancy.max() == TRAVERSED_OBSTACLE
    assert (turned[0] < 1e-6).any() and (turned[1] >= turned[0] - 1e-6).all() and (turned[1] > turned[0] + 0.05).any()


def test_the_way_that_an_agent_came_has_no_gaps(house):
    """A step is longer than a cell: what lies between two places is walked too, from an episode's first place on."""
    env = NavEnv([house], 8, "cpu", sensors=SENSORS, max_steps=50, forward_step=0.5)
    walk(env, 60)  # into the second episode
    places = [env.sim.bodies.position[:, [0, 2]].clone()]
    for _ in range(30):
        env.step([FORWARD] * 8)
        places.append(env.sim.bodies.position[:, [0, 2]].clone())
    state = env.mapper.map_state
    for before, after in itertools.pairwise(places):
        for place in (before + share * (after - before) for share in (0.0, 1 / 3, 2 / 3, 1.0)):
            u, v = ((place - state.origin_and_resolution[:, :2]) / state.origin_and_resolution[:, 2:]).int().unbind(1)
            assert (state.explored[torch.arange(8), v * SIDE + u] >= TRAVERSED).all()
    walked = (state.explored >= TRAVERSED).sum(1)
    assert (walked <= 3 * 41 + 1).all(), "the last episode's place is on the map"


def test_who_stands_in_a_walls_cells_does_not_plan_through_it(house):
    """A wall of one cell, from one side of which the ground was seen, and agents that walk in its cells."""
    env = NavEnv([house], 8, "cpu", sensors=SENSORS, max_depth=0.05)
    env.reset(seed=5)
    state = env.mapper.map_state
    places = [env.sim.bodies.position[:, [0, 2]], env.task.state.goal[:, [0, 2]]]
    here, there = (
        ((place - state.origin_and_resolution[:, :2]) / state.origin_and_resolution[:, 2:]).int() for place in places
    )
    crossing = (there[:, 1] - here[:, 1]).abs() > 2
    stands, ground = (part.view(-1, SIDE, SIDE) for part in (state.occupancy, state.explored))
    for i in range(8):  # along a row; the goal is on its far side
        u, v = here[i].tolist()
        near = v - 4 if there[i, 1] > v else v + 1
        stands[i, v, u - 20 : u + 21] = OCCUPIED
        ground[i, v, u - 20 : u + 21] = EXPLORED
        ground[i, near : near + 4, u - 20 : u + 21] = EXPLORED
    told = env.step([LEFT] * 8)[0]
    around = 0.9 * 20 * state.origin_and_resolution[:, 2]
    assert crossing.sum() >= 3
    assert (told["waypoint"][crossing, 0] > around[crossing]).all()
    assert (state.expected_cost[crossing] < 5_000).all(), "the way leads through an obstacle"


def in_a_clearing(house, stands, ground=EXPLORED):
    """Eight agents on ground that is empty but for `stands`, by rows and columns from their cells; and what is told."""
    env = NavEnv([house], 8, "cpu", sensors=SENSORS, max_depth=0.05)
    env.reset(seed=5)
    state = env.mapper.map_state
    state.explored.fill_(ground)
    for i in range(8):
        x, z = env.sim.bodies.position[i, [0, 2]].tolist()
        left, top, size = state.origin_and_resolution[i].tolist()
        u, v = int((x - left) / size), int((z - top) / size)
        for (r, c), value in stands.items():
            state.occupancy[i].view(SIDE, SIDE)[v + r, u + c] = value
    obstacles = (state.occupancy >= OCCUPIED).view(8, 1, SIDE, SIDE).float()
    beside = torch.nn.functional.max_pool2d(obstacles, 3, 1, 1).flatten(1).byte()
    state.occupancy.copy_(torch.maximum(state.occupancy, beside))
    told = env.step([LEFT] * 8)[0]
    return env, told["waypoint"], told["pointgoal"]


RING = [place for place in itertools.product(range(-3, 4), repeat=2) if max(map(abs, place)) == 3]


def test_a_way_through_an_obstacle_leads_straight_to_it(house):
    """Who is shut in is told where the obstacle is that it is to try, not the cell before that."""
    env, plan, _ = in_a_clearing(house, dict.fromkeys(RING, OCCUPIED))
    bodies, state = env.sim.bodies, env.mapper.map_state
    assert (plan[:, 0] > 40.0).all(), "the way does not lead through an obstacle"
    for i in range(8):
        way = state.path[i, : int(state.path_length[i])].long()
        first = way[(state.occupancy[i, way] >= OCCUPIED).nonzero()[0, 0]]
        middle = (torch.stack([first % SIDE, first // SIDE]) + 0.5) * state.origin_and_resolution[
            i, 2
        ] + state.origin_and_resolution[i, :2]
        dx, dz = (middle - bodies.position[i, [0, 2]]).tolist()
        angle = math.atan2(-dx, -dz) - float(bodies.heading[i])
        assert abs(math.remainder(angle - float(plan[i, 1]), 2 * math.pi)) < 1e-3


def test_a_line_is_not_straight_beside_what_stopped_the_agent_again(house):
    """Between posts with gaps of three cells there are straight lines; beside firm ones there are none."""
    posts = [(r, c) for r in (-4, -2, 2, 4) for c in (-4, -2, 2, 4)]
    straight = [in_a_clearing(house, dict.fromkeys(posts, value))[1:] for value in (OCCUPIED, OCCUPIED + 1)]
    turned = [(plan[:, 1] - goal[:, 1]).abs() for plan, goal in straight]
    assert (turned[1] >= turned[0] - 1e-6).all() and (turned[1] > turned[0] + 0.05).any()
