"""Social navigation: metrics by their formulas, reward terms, ends, episode files with people, reference agents."""

import dataclasses
import math

import numpy as np
import pytest
import torch

from batchnav.agents.registry import agent_config, make_reference_agent
from batchnav.data.episodes import Goal
from batchnav.data.formats import EpisodeDataset, load_episodes
from batchnav.data.people import people_in, with_people
from batchnav.envs.config import PRESETS
from batchnav.envs.nav import NavEnv
from batchnav.errors import ArgumentError, EpisodeError
from batchnav.runtime.bundled import find_episodes
from batchnav.sim.bodies import FORWARD, LEFT, RIGHT, STOP
from batchnav.world.config import WorldConfig
from batchnav.world.world import ScriptedBodies
from tests.tasks.rooms import make_room, metrics_of, starts, walker_episode

TOUCH = 0.1 + 0.3


@pytest.fixture(scope="module")
def room():
    return make_room(wall=False)


def make(room, rows=((3.0, 5.0, 0.0),), person=None, **options):
    """Robots at rows of (x, z, heading), with their goals 1 m ahead, and a person that stands at (x, z)."""
    table = starts(room, rows)
    ahead = [(x - math.sin(h), z - math.cos(h), h) for x, z, h in rows]
    table = table._replace(goal=starts(room, ahead).start)
    body = None
    if person is not None:
        body = ScriptedBodies(room.navmesh.snap(np.float32([[person[0], 0.0, person[1]]])))
    return NavEnv(
        [room], len(rows), "cpu", task="socialnav", episodes=table, sensors=(), scripted_bodies=body, **options
    )


def run(env, actions):
    """Rewards of the steps of the first robot, and the metrics after the last."""
    env.reset()
    rewards = []
    for action in actions:
        _, reward, *_, info = env.step(torch.full((env.num_envs,), action))
        rewards.append(float(reward[0]))
    return rewards, {name: float(value[0]) for name, value in info["episode"].items()}


def test_without_people_it_is_pointnav(room):
    rewards, metrics = run(make(room), [FORWARD] * 4 + [STOP])
    assert rewards == pytest.approx([0.24] * 4 + [2.49], abs=1e-4)
    assert metrics["success"] == metrics["spl"] == metrics["psc_10"] == metrics["psc_05"] == 1.0
    assert metrics["stl"] == pytest.approx(4 / 5, abs=1e-4)  # the fewest steps of 1 m, and the stop
    assert metrics["least_distance"] == 10.0 and metrics["human_collision"] == metrics["human_collisions"] == 0.0
    assert metrics["stalled"] == 1.0


def test_distances_to_people_are_measured_after_every_step(room):
    _, metrics = run(make(room, person=(3.0, 3.55)), [FORWARD] * 3)  # 1.45 m ahead: then 1.2, 0.95, 0.7
    assert metrics["psc_10"] == pytest.approx(1 / 3, abs=1e-4) and metrics["psc_05"] == 1.0
    assert metrics["least_distance"] == pytest.approx(0.7, abs=0.01)


def test_a_collision_is_counted_when_it_begins(room):
    env = make(room, person=(3.0, 4.0))
    rewards, metrics = run(env, [FORWARD] * 6)
    assert metrics["human_collision"] == metrics["human_collisions"] == 1.0 and metrics["collisions"] == 0.0
    assert metrics["least_distance"] == pytest.approx(TOUCH, abs=0.01)
    assert metrics["stalled"] == 3.0
    assert not env.sim.bodies.done[0] and len(rewards) == 6


@pytest.mark.parametrize(
    ("heading", "actions", "caused"),
    [(0.0, [FORWARD], 1.0), (0.0, [LEFT], 0.0), (math.pi, [FORWARD, LEFT, FORWARD, RIGHT], 0.0)],
)
def test_collisions_that_the_robot_causes_are_told_apart(room, heading, actions, caused):
    """A person walks to where the robot is: the robot walks towards it, turns, or walks away more slowly."""
    ahead = room.navmesh.snap(np.float32([[3.0, 0.0, 2.5], [3.0, 0.0, 5.5]]))
    body = ScriptedBodies(ahead[:, None], interval=3.0)
    table = starts(room, [(3.0, 4.0, heading)])
    options = {"sensors": (), "scripted_bodies": body, "human_collision_ends": "caused"}
    env = NavEnv([room], 1, "cpu", task="socialnav", episodes=table, **options)
    env.reset()
    for step in range(12):
        *_, terminated, _, info = env.step(torch.tensor([actions[step % len(actions)]]))
        metrics = {name: float(value[0]) for name, value in info["episode"].items()}
        if terminated[0]:
            break
    assert metrics["human_collision"] == 1.0 and metrics["robot_on_person"] == caused
    assert terminated[0] == bool(caused) and metrics["success"] == 0.0


def test_a_collision_can_end_the_episode_without_success(room):
    env = make(room, person=(3.0, 4.35), human_collision_ends="any")
    env.reset()
    step = env.step(torch.tensor([FORWARD]))
    assert step[2].tolist() == [True] and step[3].tolist() == [False]
    assert step[4]["episode"]["success"].tolist() == [0.0] and step[4]["episode"]["human_collision"].tolist() == [1.0]


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({"progress_reward": 1.5}, 1.5 * 0.25), ({"human_distance_penalty": 2.0}, 0.25 - 2.0 * math.exp(-0.45)),
        ({"human_distance_penalty": 2.0, "human_distance_scale": 0.5}, 0.25 - 2.0 * math.exp(-0.9)),
        ({"human_collision_penalty": 3.0}, 0.25),
    ],
)  # fmt: skip
def test_terms_of_the_reward(room, options, expected):
    rewards, _ = run(make(room, person=(3.0, 4.3), slack_reward=0.0, **options), [FORWARD])
    assert rewards[0] == pytest.approx(expected, abs=2e-3)


def test_a_collision_with_a_person_costs_its_penalty_once(room):
    rewards, _ = run(make(room, person=(3.0, 4.5), slack_reward=0.0, human_collision_penalty=3.0), [FORWARD] * 3)
    assert rewards == pytest.approx([0.1 - 3.0, 0.0, 0.0], abs=5e-3)


def test_standing_on_the_path_of_a_person_costs_its_penalty(room):
    episode = walker_episode(room, (3.0, 2.0), [(3.0, 5.5), (3.0, 1.0)])
    env = NavEnv([room], 1, "cpu", task="socialnav", episodes=[episode], sensors=(), path_penalty=1.0, slack_reward=0.0)
    env.reset()
    found = [float(env.step(torch.tensor([LEFT]))[1][0]) for _ in range(14)]
    assert found[0] == 0.0 and min(found) < -1.0  # far away, then a step from the robot
    assert all(value <= 0.0 for value in found)


def test_people_of_a_file_walk_to_its_waypoints_and_stand(room, tmp_path):
    EpisodeDataset([walker_episode(room, (1.0, 1.0), [(2.5, 1.0), (2.5, 3.0)])]).save(tmp_path / "e.json.gz")
    (episode,) = dataset = load_episodes(tmp_path / "e.json.gz")
    assert dataset.kind == "point" and len(people_in(episode)) == 1
    env = NavEnv([room], 1, "cpu", task="socialnav", episodes=dataset, sensors=(), at_last_waypoint="stand")
    env.reset()
    passed = 9.0
    for _ in range(80):
        env.step(torch.tensor([LEFT]))
        x, _, z = env.sim.world.bodies.position[0, 0].tolist()
        passed = min(passed, math.hypot(x - 2.5, z - 1.0))
    assert passed < 0.3 and math.hypot(x - 2.5, z - 3.0) < 0.3
    assert env.sim.world.bodies.velocity[0, 0].norm() == 0.0


def test_people_play_from_a_bank_too(room):
    from batchnav.scene.bank import SceneBank

    data = EpisodeDataset([walker_episode(room, (1.0, 1.0), [(2.5, 1.0)])])
    env = NavEnv.from_episodes(data, 1, "cpu", task="socialnav", scenes=SceneBank.pack([room], "cpu"), sensors=())
    env.reset()
    assert env.sim.world.bodies.count.tolist() == [1]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"human_num": 99}, "human_num"), ({"human_num": "two"}, "human_num"), ({"human_num": 2}, "human_1_waypoint_1"),
        ({"human_0_waypoint_1_position": [0.0, 1.0]}, "three numbers"),
        ({"human_0_start_position": [500.0, 0.0, 0.0]}, "expected a point on the navmesh"),
    ],
)  # fmt: skip
def test_people_that_cannot_be_played_are_named(room, change, message):
    episode = walker_episode(room, (1.0, 1.0), [(2.5, 1.0)])
    episode = dataclasses.replace(episode, info=episode.info | change)
    with pytest.raises(EpisodeError, match=message):
        NavEnv([room], 1, "cpu", task="socialnav", episodes=[episode], sensors=())


def test_episodes_get_people(room):
    plain = [
        dataclasses.replace(walker_episode(room, (1.0, 1.0), [(2.5, 1.0)]), info={}, episode_id=str(k))
        for k in range(6)
    ]
    config = WorldConfig(people=(1, 3))
    some = with_people(plain, room, config, seed=4)
    assert some == with_people(plain, room, config, seed=4) != with_people(plain, room, config, seed=5)
    assert {len(people_in(episode)) for episode in some} <= {1, 2, 3}
    for episode in some:
        for person in people_in(episode):
            assert room.navmesh.is_navigable(np.float32([person.start, *person.waypoints])).all()
            assert len(person.waypoints) == 2


@pytest.mark.parametrize(
    ("name", "counts"),
    [
        *((f"socialnav_{split}", {1, 2, 3, 4, 5, 6}) for split in ("val", "test", "building", "hall")),
        ("follow_val", {1}),
    ],
)
def test_robots_and_people_of_bundled_files(name, counts):
    episodes = load_episodes(find_episodes(name))
    assert len(episodes) == 200 and {len(people_in(episode)) for episode in episodes} == counts
    assert len({episode.scene_id for episode in episodes}) == 20


@pytest.mark.parametrize("name", ["shortest_path", "orca", "wait_and_go", "predictive"])
def test_reference_agents_arrive(room, name):
    config = agent_config(name, PRESETS["socialnav_houses"])
    rules = {"closest_goal": 2.0, "min_detour_ratio": 1.0, "human_collision_ends": "never"}
    env = NavEnv([room], 16, "cpu", task="socialnav", config=config, people=(1, 2), **rules)
    ended = metrics_of(name, env, 150)
    assert len(ended) >= 16 and ended.mean() > 0.9


def test_the_predictive_agent_steps_aside(room):
    """A person walks the whole room towards the robot, whose goal is behind the person."""
    episode = walker_episode(room, (3.0, 1.0), [(3.0, 5.5)], robot=(3.0, 5.0))
    episode = dataclasses.replace(episode, goals=(Goal(tuple(room.navmesh.snap(np.float32([[3.0, 0.0, 1.0]]))[0])),))
    touched = {}
    for name in ("shortest_path", "predictive"):
        config = agent_config(name, PRESETS["socialnav_houses"])
        options = {"human_collision_ends": "never", "at_last_waypoint": "stand"}
        env = NavEnv([room], 1, "cpu", task="socialnav", config=config, episodes=[episode], **options)
        agent = make_reference_agent(name, env)
        observation, _ = env.reset()
        agent.reset(1)
        ended = torch.ones(1, dtype=torch.bool)
        for _ in range(120):
            observation, _, ended, _, info = env.step(agent.act(observation, ended))
            if ended[0]:
                break
        assert info["episode"]["success"].tolist() == [1.0]
        touched[name] = float(info["episode"]["human_collision"][0])
    assert touched == {"shortest_path": 1.0, "predictive": 0.0}


def test_several_robots_share_people(room):
    env = NavEnv(
        [room], 4, "cpu", task="socialnav", people=(2, 2), agents_per_world=2, sensors=("depth",), height=8, width=8
    )
    observation, _ = env.reset()
    assert env.sim.world.drawn.count.tolist() == [4, 4] and env.sim.world.bodies.count.tolist() == [2, 2]
    for _ in range(5):
        observation, *_ = env.step(torch.full((4,), FORWARD))
    assert torch.isfinite(observation["depth"]).all()
    drawn = env.sim.world.drawn.position[:, :2].reshape(4, 3)
    assert torch.equal(drawn, env.sim.bodies.position)
    with pytest.raises(ArgumentError, match="agents_per_world"):
        NavEnv([room], 4, "cpu", task="socialnav", agents_per_world=3)
