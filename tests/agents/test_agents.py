"""The reference agents in a room that one can draw: 6 x 6 m, a wall from its north edge to 1.5 m before its south edge.

      x=0        3        6
z=0    +---------#--------+
       |         #        |
       |    S    #    G   |
       |         #        |
z=4.5  |                  |
z=6    +------------------+
"""

import math

import numpy as np
import pytest
import torch
from worlds import boxes

from batchnav.agents.registry import agent_config, make_reference_agent
from batchnav.agents.shortest_path import ShortestPathAgent
from batchnav.agents.simple import ForwardAgent, GreedyAgent, RandomAgent
from batchnav.envs.config import PRESETS
from batchnav.envs.nav import NavEnv, PointNavEnv
from batchnav.errors import ArgumentError, ConfigError
from batchnav.evaluation.play import evaluate, record
from batchnav.scene.scene import make_scene
from batchnav.sim.bodies import FORWARD, LEFT, RIGHT, STOP
from batchnav.tasks.episode_sampling import EpisodeTable
from batchnav.tasks.goal_task import METRICS
from batchnav.types import TriangleMesh
from tests.tasks.rooms import make_room

SOUTH_EAST, EAST, SOUTH = -3 * math.pi / 4, -math.pi / 2, math.pi


@pytest.fixture(scope="module")
def room():
    return make_room(wall=True)


def make_env(room, episodes, num_envs=None, **options):
    """An environment that plays (start x, z, heading, goal x, z)."""
    y = float(room.navmesh.snap(np.array([[1.0, 0.0, 5.0]], np.float32))[0, 1])
    table = EpisodeTable(
        torch.zeros(len(episodes), dtype=torch.int32),
        torch.tensor([(e[0], y, e[1]) for e in episodes]),
        torch.tensor([float(e[2]) for e in episodes]),
        torch.tensor([(e[3], y, e[4]) for e in episodes]),
    )
    options = {"height": 4, "width": 4} | options
    return PointNavEnv([room], num_envs or len(episodes), device="cpu", episodes=table, **options)


def test_the_sensor_agents_choose_what_the_sensor_says(room):
    env = make_env(room, [(1.0, 5.0, 0.0, 2.0, 5.0)])
    angles = torch.tensor([0.0, 0.08, 0.09, -0.08, -0.09, 3.0, -3.0, 1.0])
    distances = torch.tensor([1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 0.19])
    observations = {"pointgoal": torch.stack([distances, angles], dim=1)}
    start = torch.zeros(8, dtype=torch.bool)
    # Half a turn is 5 degrees = 0.0873 rad.
    greedy = GreedyAgent(env).act(observations, start)
    assert greedy.tolist() == [FORWARD, FORWARD, LEFT, FORWARD, RIGHT, LEFT, RIGHT, STOP]
    assert ForwardAgent(env).act(observations, start).tolist() == [FORWARD] * 7 + [STOP]
    assert greedy.dtype == torch.int64


def test_random_agent_is_fair_and_repeats(room):
    env = make_env(room, [(1.0, 5.0, 0.0, 2.0, 5.0)])
    agent, far = RandomAgent(env, seed=3), {"pointgoal": torch.full((3000, 2), 1.0)}
    agent.reset(3000)
    first = agent.act(far, torch.zeros(3000, dtype=torch.bool))
    counts = torch.bincount(first, minlength=4).tolist()
    # 1000 of each expected; five standard deviations are 129.
    assert counts[STOP] == 0 and all(abs(count - 1000) < 129 for count in counts[1:])
    agent.reset(3000)
    assert torch.equal(first, agent.act(far, torch.zeros(3000, dtype=torch.bool)))


def test_only_the_shortest_path_follower_gets_around_the_wall(room):
    """The greedy agent steers straight at the goal behind the wall and collides with the wall."""
    episodes = [(1.5, 2.0, EAST, 4.5, 2.0), (1.5, 2.0, SOUTH, 4.5, 2.0), (4.5, 1.0, 0.3, 1.0, 1.0)]
    env = make_env(room, episodes)
    found = evaluate(ShortestPathAgent(env), env, len(episodes))
    assert found["success"].tolist() == [1.0] * 3
    # The heading is quantised to 10 degrees, which lengthens the path by 1 - cos 5 degrees at the most; corners add.
    assert found["spl"].min() > 0.9
    greedy = evaluate(GreedyAgent(env), env, len(episodes))
    assert greedy["success"].tolist() == [0.0] * 3
    assert greedy["steps"].tolist() == [500.0] * 3


FURNITURE = [
    ((2.9, 0.0, 0.0), (3.1, 2.5, 4.5)), ((5.0, 0.0, 2.0), (6.2, 0.7, 2.8)), ((1.0, 0.0, 5.5), (1.4, 0.5, 5.9)),
    ((1.9, 0.0, 5.5), (2.3, 0.5, 5.9)), ((4.0, 0.0, 6.0), (4.05, 2.0, 8.0)), ((6.5, 0.0, 4.5), (8.0, 0.9, 4.6)),
]  # fmt: skip
"""A wall, a table, two stools, a screen and a counter in a room of 8 x 8 m."""
OUTER_WALLS = [
    ((-0.1, 0.0, -0.1), (0.0, 2.5, 8.1)), ((8.0, 0.0, -0.1), (8.1, 2.5, 8.1)),
    ((0.0, 0.0, -0.1), (8.0, 2.5, 0.0)), ((0.0, 0.0, 8.0), (8.0, 2.5, 8.1)),
]  # fmt: skip
"""Walls around the room. Without them, the void beyond the floor looks free to an agent that maps what it sees."""


def starts_in(room, count, turn_deg, seed):
    """Starts, of which half look exactly between two headings to the goal, and a quarter lie within 0.4 m of it."""
    rng, navmesh = np.random.default_rng(seed), room.navmesh
    starts, goals = navmesh.sample(2 * count, seed=seed), navmesh.sample(2 * count, seed=seed + 1)
    bearing, apart = rng.uniform(0, 2 * math.pi, 2 * count), rng.uniform(0, 0.4, 2 * count)
    near = starts + np.stack([apart * np.sin(bearing), 0 * apart, apart * np.cos(bearing)], axis=1).astype(np.float32)
    goals = np.where(rng.random((2 * count, 1)) < 0.25, navmesh.snap(near), goals)
    reachable = np.flatnonzero(np.isfinite(navmesh.geodesic_distance(starts, goals)))[:count]
    starts, goals = starts[reachable], goals[reachable]
    tie = np.arctan2(*-(goals - starts)[:, [0, 2]].T) + math.radians(turn_deg) * (rng.integers(0, 99, count) + 0.5)
    heading = np.where(rng.random(count) < 0.5, tie, rng.uniform(0, 2 * math.pi, count))
    numbers = (starts, np.angle(np.exp(1j * heading)), goals)
    scene = torch.zeros(count, dtype=torch.int32)
    return EpisodeTable(scene, *(torch.from_numpy(np.asarray(each, np.float32)) for each in numbers))


BODIES = [(turn, step) for turn in (5.0, 10.0, 15.0, 30.0) for step in (0.1, 0.25, 0.5)]


def play_all(agent, furniture, count, bodies, **options):
    """Metrics of an agent in a room from `count` starts for each body."""
    room, found = make_scene("room", boxes(((0.0, -0.2, 0.0), (8.0, 0.0, 8.0)), *furniture)), []
    for turn, step in bodies:
        episodes = starts_in(room, count, turn, int(turn + 10 * step))
        own = {"turn_angle_deg": turn, "forward_step": step, "success_distance": 0.5 * step + 0.05} | options
        config = agent_config(agent, PointNavEnv([room], 1, "cpu", sensors=()).config)
        env = PointNavEnv([room], count, "cpu", episodes=episodes, config=config, **own)
        found.append(evaluate(make_reference_agent(agent, env), env, count))
    return {name: np.concatenate([each[name] for each in found]) for name in found[0]}


@pytest.mark.parametrize("furniture", [[], FURNITURE], ids=["empty", "furnished"])
def test_the_shortest_path_follower_arrives_from_every_start(furniture):
    """5,040 starts in each room; success within half a step and 5 cm, the most that a step straight at it can miss."""
    found = play_all("shortest_path", furniture, 420, BODIES)
    assert found["success"].all() and found["spl"].mean() > 0.95


@pytest.mark.parametrize("agent", ["greedy", "map_planner"])
def test_agents_that_steer_by_a_bearing_arrive_in_an_empty_room(agent):
    found = play_all(agent, [], 40 if agent == "map_planner" else 400, [(10.0, 0.25), (30.0, 0.5)], height=16, width=16)
    assert found["success"].all() and found["spl"].mean() > 0.95


def test_the_map_planner_arrives_in_a_furnished_room():
    """From one of the starts with large steps, the next waypoint lies half a step off on the way to and fro."""
    found = play_all("map_planner", FURNITURE + OUTER_WALLS, 120, [(30.0, 0.5)], height=16, width=16)
    fine = play_all("map_planner", FURNITURE + OUTER_WALLS, 60, [(5.0, 0.1)], height=16, width=16)
    assert found["success"].all() and found["steps"].max() < 150 and found["spl"].mean() > 0.9
    assert fine["success"].all() and fine["spl"].mean() > 0.95


@pytest.mark.parametrize("agent", ["shortest_path", "greedy"])
def test_agents_arrive_at_a_goal_that_a_step_passes_over(agent):
    """The goal lies half a step ahead, and the agent succeeds within 0.1 m: it steps aside and comes back."""
    found = play_all(agent, [], 200, [(10.0, 0.25), (5.0, 0.25)], success_distance=0.1)
    assert found["success"].all() and found["steps"].max() < 250


@pytest.mark.parametrize("agent", ["shortest_path", "greedy"])
def test_an_agent_that_cannot_get_nearer_stops(agent):
    """With steps of 0.5 m and turns of 30 degrees, few places lie within 1 cm of a place that the agent can reach."""
    found = play_all(agent, [], 100, [(30.0, 0.5)], success_distance=0.01)
    assert found["steps"].max() < 200 and found["distance_to_goal"].max() < 0.5


def test_straight_ahead_all_but_random_arrive(room):
    env = make_env(room, [(1.0, 5.2, EAST, 4.0, 5.2)])
    for name in ("forward", "greedy", "shortest_path"):
        result = evaluate(make_reference_agent(name, env), env, 1)
        assert result["success"].tolist() == [1.0], name
        # Twelve steps of 0.25 m, or one less: the last may end within 0.2 m.
        assert result["steps"][0] in (12.0, 13.0), name
        assert result["start_distance"][0] == pytest.approx(3.0, abs=1e-4)


class Counter:
    """Goes forward, and stops after as many steps as the goal lies quarter-metres ahead; notes the episodes' starts."""

    def reset(self, num_envs):
        self.starts = torch.zeros(num_envs, dtype=torch.int64)

    def act(self, observations, episode_start):
        self.starts += episode_start
        return torch.where(observations["pointgoal"][:, 0] < 0.2, STOP, FORWARD)


@pytest.mark.parametrize("num_envs", [1, 3, 7])
def test_every_episode_counts_once(room, num_envs):
    """Seven episodes of different lengths, played in any number of environments, give the same seven rows."""
    episodes = [(1.0, 5.2, EAST, 1.5 + 0.5 * k, 5.2) for k in range(7)]
    env = make_env(room, episodes, num_envs)
    agent = Counter()
    result = evaluate(agent, env, 7)
    assert result["start_distance"] == pytest.approx([0.5 + 0.5 * k for k in range(7)], abs=1e-4)
    assert result["steps"].tolist() == [3.0 + 2.0 * k for k in range(7)] or result["success"].all()
    assert all(len(result[name]) == 7 and np.isfinite(result[name]).all() for name in METRICS)
    assert result["scene"].tolist() == [0] * 7
    told: list[int] = []
    again = evaluate(agent, env, 7, progress=lambda ended, step, most_steps: told.append(ended))
    assert all(np.array_equal(result[name], again[name]) for name in result)
    assert told == sorted(told) and told[0] == 0 and told[-1] == 7


def test_rows_are_those_of_the_table(room):
    """What evaluate counts as episode k is the table's row k."""
    episodes = [(1.0 + 0.1 * k, 5.2, EAST, 4.0, 5.2) for k in range(5)]
    env = make_env(room, episodes, 2)
    seen = {}
    real_step = env.step

    def step(actions):
        out = real_step(actions)
        for i in np.flatnonzero(out[4]["_episode"].numpy()):
            row = int(env.task.transition.table_index[i])
            if row >= 0:
                assert row not in seen
                seen[row] = float(out[4]["episode"]["path_length"][i])
        return out

    env.step = step
    result = evaluate(Counter(), env, 5)
    assert [seen[k] for k in range(5)] == result["path_length"].tolist()


def test_sampled_episodes_are_those_of_the_seed(room):
    env = PointNavEnv([room], 4, device="cpu", height=4, width=4, max_steps=40)
    agent = GreedyAgent(env)
    first, other, again = (
        evaluate(agent, env, 10, seed=1),
        evaluate(agent, env, 10, seed=2),
        evaluate(agent, env, 10, seed=1),
    )
    assert np.array_equal(first["start_distance"], again["start_distance"])
    assert np.array_equal(first["spl"], again["spl"])
    assert not np.array_equal(first["start_distance"], other["start_distance"])


@pytest.mark.parametrize("number", [0, -1, 3])
def test_too_many_episodes_are_refused(room, number):
    env = make_env(room, [(1.0, 5.2, EAST, 4.0, 5.2)] * 2)
    with pytest.raises(ArgumentError, match=f"num_episodes: found {number}"):
        evaluate(Counter(), env, number)


def test_recording(room):
    env = make_env(room, [(1.0, 5.2, EAST, 3.0, 5.2), (1.5, 2.0, EAST, 4.5, 2.0)], height=8, width=8)
    straight, around = record(ShortestPathAgent(env), env)
    assert straight.positions.shape == (len(straight.actions), 3)
    assert straight.images["depth"].values.shape == (len(straight.actions), 1, 8, 8)
    assert straight.actions[-1] == STOP and straight.metrics["success"] == 1.0
    assert straight.metrics["steps"] == len(straight.actions) < len(around.actions)
    # A quarter of a metre to the east at each step.
    assert np.diff(straight.positions[:, 0]) == pytest.approx(0.25, abs=1e-3)
    assert around.goal[[0, 2]] == pytest.approx([4.5, 2.0])
    walked = np.linalg.norm(np.diff(around.positions, axis=0), axis=1).sum()
    assert walked == pytest.approx(around.metrics["path_length"], rel=1e-4)


def test_the_shortest_path_follower_compiles_for_the_gpu(room, compile_ptx):
    from numba import typeof

    from batchnav.agents.shortest_path import follow

    env = make_env(room, [(1.0, 5.2, EAST, 4.0, 5.2)])
    _, _, *arguments = ShortestPathAgent(env).follower.step.args
    assert ".entry" in compile_ptx(follow, *map(typeof, arguments))


def test_the_frontier_explorer_compiles_for_the_gpu(room, compile_ptx):
    from numba import typeof

    from batchnav.agents.frontier import FrontierAgent, update_target

    env = NavEnv([room], 2, "cpu", task="explore", sensors=(), seed=0)
    _, _, *arguments = FrontierAgent(env).update_targets.args
    assert ".entry" in compile_ptx(update_target, *map(typeof, arguments))


@pytest.mark.cuda
def test_the_shortest_path_follower_arrives_on_the_gpu(room):
    episodes = [(1.5, 2.0, EAST, 4.5, 2.0), (1.5, 2.0, SOUTH, 4.5, 2.0), (4.5, 1.0, 0.3, 1.0, 1.0)]
    cpu = make_env(room, episodes)
    table = EpisodeTable(*(value.cuda() for value in cpu.task.episodes))
    env = PointNavEnv([room], 3, device="cuda", episodes=table, height=4, width=4)
    result = evaluate(ShortestPathAgent(env), env, 3)
    assert result["success"].tolist() == [1.0] * 3
    assert result["spl"].min() > 0.9


def test_velocity_control_gives_the_episodes_of_discrete_actions(room):
    """Habitat's highest speeds are its steps and turns, a second each."""
    episodes = [(1.0, 3.0, SOUTH, 5.0, 3.0), (1.0, 5.0, EAST, 2.0, 5.0)]
    for name in ("shortest_path", "greedy", "forward", "random"):
        found = []
        for control in ("v0", "velocity"):
            env = make_env(room, episodes, control=control, max_steps=100)
            found.append(evaluate(make_reference_agent(name, env), env, 2))
        for metric, values in found[0].items():
            np.testing.assert_allclose(found[1][metric], values, atol=1e-3, err_msg=f"{name}: {metric}")


@pytest.mark.parametrize("velocity", [{"lin_vel_range": [0.1, 0.25]}, {"ang_vel_range_deg": [-20.0, 10.0]}])
def test_velocity_ranges_without_discrete_actions_are_refused(room, velocity):
    env = make_env(room, [(1.0, 3.0, SOUTH, 5.0, 3.0)], control="velocity", velocity=velocity)
    with pytest.raises(ConfigError, match=r"body\.velocity: found .* m/s and .* deg/s, expected 0 m/s and a forward"):
        make_reference_agent("shortest_path", env)


@pytest.fixture(scope="module")
def ramp():
    """A floor of 8 x 4 m that falls by 0.3 m for each metre along x."""
    corners = np.array([(x, -0.3 * x, z) for x, z in ((0, 0), (0, 4), (8, 4), (8, 0))], np.float32)
    return make_scene("ramp", TriangleMesh(corners, np.array([(0, 1, 2), (0, 2, 3)], np.int32)))


def downhill(ramp):
    """Episodes whose goal, after whole steps, is 0.195 m away in the plane and 0.204 m in space: one more step."""
    starts = np.array([(1.0 + 0.3 * k, -0.3, 0.5 + 0.3 * k) for k in range(9)], np.float32)
    goals = starts + np.array([(1.195 + 0.25 * k, -0.36, 0.0) for k in range(9)], np.float32)
    starts, goals = ramp.navmesh.snap(starts), ramp.navmesh.snap(goals)
    heading, scene = np.full(9, EAST, np.float32), torch.zeros(9, dtype=torch.int32)
    return EpisodeTable(scene, *map(torch.from_numpy, (starts, heading, goals)))


@pytest.mark.parametrize("agent", ["forward", "greedy", "map_planner", "shortest_path"])
def test_agents_on_a_slope_stop_where_success_counts(agent, ramp):
    config = agent_config(agent, PointNavEnv([ramp], 1, "cpu", sensors=()).config)
    env = PointNavEnv([ramp], 9, "cpu", episodes=downhill(ramp), config=config)
    found = evaluate(make_reference_agent(agent, env), env, 9)
    assert found["success"].all() and (found["distance_to_goal"] < 0.1).all()


@pytest.mark.slow
@pytest.mark.parametrize("agent", ["orca", "wait_and_go", "predictive"])
def test_agents_among_people_on_a_slope_stop_where_success_counts(agent, ramp):
    """The agents start one step and 0.195 m in the plane before their goals; people may stand in the way."""
    table, config = downhill(ramp), agent_config(agent, PRESETS["socialnav_houses"])
    rules = {"human_collision_ends": "never", "success_distance": 0.2, "max_steps": 200}
    env = NavEnv([ramp], 9, "cpu", task="socialnav", config=config, episodes=table, people=(1, 1), **rules)
    found = evaluate(make_reference_agent(agent, env), env, 9)
    assert found["success"].all() and (found["distance_to_goal"] < 0.2).all()


@pytest.mark.parametrize("agent", ["greedy", "map_planner", "shortest_path"])
@pytest.mark.parametrize("above", [-0.06, 0.06])
def test_goals_of_another_height_than_the_floor(agent, above, room):
    """A step before the goal is 0.196 m away in the plane and 0.205 m in space, along the path too."""
    table = make_env(room, [(0.5, 5.0 + 0.1 * k, EAST, 1.696 + 0.25 * k, 5.0 + 0.1 * k) for k in range(5)])
    episodes = table.task.episodes
    episodes.goal[:, 1] += above
    config = agent_config(agent, table.config)
    env = PointNavEnv([room], 5, "cpu", episodes=episodes, config=config)
    found = evaluate(make_reference_agent(agent, env), env, 5)
    assert found["success"].all() and (found["distance_to_goal"] < 0.1).all()


def test_the_distance_of_a_waypoint_in_sight_is_that_in_space(ramp):
    sensors = {"sensors": ("depth", "waypoint"), "height": 16, "width": 16}
    env = PointNavEnv([ramp], 8, "cpu", min_detour_ratio=1.0, **sensors)
    observation, _ = env.reset(seed=3)
    space = np.linalg.norm((env.task.goal_position - env.sim.bodies.position).numpy(), axis=1)
    in_sight = np.abs((observation["waypoint"] - observation["pointgoal"])[:, 1].numpy()) < 1e-6
    assert in_sight.sum() > 4
    assert observation["waypoint"][:, 0].numpy()[in_sight] == pytest.approx(space[in_sight], abs=1e-5)
    assert np.abs(space - observation["pointgoal"][:, 0].numpy()).max() > 0.05
