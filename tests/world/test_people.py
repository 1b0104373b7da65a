"""People, scripted bodies and several robots in an environment."""

import numba
import numpy as np
import pytest
import torch

from batchnav.data.scenes.load import load_scene
from batchnav.envs.nav import NavEnv
from batchnav.errors import ArgumentError, CheckpointError, ConfigError
from batchnav.sim.bodies import FORWARD, LEFT, RIGHT
from batchnav.sim.episodes import SamplingState
from batchnav.types import BOX, CYLINDER
from batchnav.world.people import START_GAP
from batchnav.world.world import ScriptedBodies
from tests.tasks.rooms import make_room, starts

N = 6
RADII = 0.3 + 0.1
"""A person and a robot, metres."""


@pytest.fixture(scope="module")
def house():
    return load_scene("house:3")


def make(scene, n=N, **options):
    return NavEnv([scene], n, "cpu", **{"sensors": (), "people": (3, 6), **options})


def walk(env, steps, actions=None):
    """Play random turns and steps; yields after each."""
    generator = torch.Generator().manual_seed(0)
    for _ in range(steps):
        drawn = torch.randint(FORWARD, RIGHT + 1, (env.num_envs,), generator=generator)
        env.step(drawn if actions is None else torch.full_like(drawn, actions))
        yield env.sim.world


def places(world):
    """Places of all people that exist, f32 [P, 3]."""
    bodies = world.bodies
    there = torch.arange(bodies.position.shape[1]) < bodies.count[:, None]
    return bodies.position[there].numpy()


def snapshot(env):
    return {name: value.clone() for name, value in env.state_dict().items()}


@pytest.mark.parametrize("scene_id", ["house:3", "house:11", "hall:0"])
@pytest.mark.parametrize("at_last", ["new_goals", "turn_back", "stand"])
def test_nobody_leaves_the_navmesh_and_all_walk(scene_id, at_last):
    scene = load_scene(scene_id)
    env = make(scene, at_last_waypoint=at_last)
    env.reset()
    before, walked = places(env.sim.world), 0.0
    for world in walk(env, 200):
        assert scene.navmesh.is_navigable(places(world)).all()
        walked = max(walked, float(world.bodies.velocity.norm(dim=-1).max()))
    assert 0.8 < walked <= 1.25 * 1.2 + 0.5  # a step up or down a slope may be longer
    assert len(before) >= 3 * N


def test_nobody_starts_within_another_body(house):
    env = make(house, people=(6, 6))
    for seed in range(3):
        env.reset(seed=seed)
        bodies, robots = env.sim.world.bodies, env.sim.bodies.position
        for w in range(N):
            some = bodies.position[w, : int(bodies.count[w])]
            apart = torch.cdist(some, some) + 10.0 * torch.eye(len(some))
            assert apart.min() >= 0.6 + START_GAP - 1e-4
            assert torch.cdist(some, robots[w][None]).min() >= RADII + START_GAP - 1e-4


def test_numbers_of_people_are_in_their_range_and_drawn_with_the_episode(house):
    env = make(house, 64, people=(1, 4), max_steps=1)
    env.reset()
    found = []
    for world in walk(env, 3):
        found.append(world.bodies.count.clone())
    assert set(torch.cat(found).tolist()) == {1, 2, 3, 4}
    assert not torch.equal(found[0], found[1])


def test_a_seed_fixes_everything_for_any_number_of_threads(house):
    ends = []
    for threads in (1, 2):
        numba.set_num_threads(threads)
        env = make(house, seed=5)
        env.reset()
        for _ in walk(env, 60):
            pass
        ends.append(snapshot(env))
    for name, value in ends[0].items():
        assert torch.equal(value, ends[1][name]), name


def test_people_of_an_environment_do_not_depend_on_its_size(house):
    few, many = make(house, 2), make(house, 6)
    few.reset()
    many.reset()
    assert torch.equal(few.sim.world.bodies.position, many.sim.world.bodies.position[:2])


def test_a_loaded_state_continues_exactly(house):
    env, other = make(house, reacts_to_robot=0.5), make(house, reacts_to_robot=0.5, seed=9)
    env.reset()
    other.reset()
    for _ in walk(env, 30):
        pass
    other.load_state_dict(snapshot(env))
    for _ in zip(walk(env, 40), walk(other, 40), strict=True):
        pass
    for name, value in env.state_dict().items():
        assert torch.equal(value, other.state_dict()[name]), name


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("people_count", 99, "people_count"), ("people_leg", 5, "people_leg"), ("people_corner", -1, "people_corner"),
        ("people_position", float("nan"), "NaN"), ("people_position", 500.0, "expected a point on the navmesh"),
        ("people_path", float("inf"), "people_path"),
    ],
)  # fmt: skip
def test_states_with_invalid_people_are_refused(house, name, value, message):
    env = make(house)
    env.reset()
    state = snapshot(env)
    state[name][0] = value
    with pytest.raises(CheckpointError, match=message):
        env.load_state_dict(state)


@pytest.mark.parametrize("slides", [False, True])
def test_a_standing_body_stops_a_robot(slides):
    room = make_room(wall=False)
    body = ScriptedBodies(room.navmesh.snap(np.float32([[3.0, 0.0, 3.0]])), shape="cylinder")
    table = starts(room, [(3.0, 3.93, 0.0)])
    env = make(room, 1, people=(0, 0), episodes=table, scripted_bodies=body, slide_along_people=slides)
    env.reset()
    world = env.sim.world
    assert world.bodies.count.tolist() == [1] and world.bodies.shape.tolist() == [[CYLINDER]]
    start = env.sim.bodies.position.clone()
    for _ in walk(env, 6, FORWARD):
        assert ((env.sim.bodies.position - world.bodies.position[:, 0]).norm(dim=1) >= RADII).all()
    assert env.sim.bodies.collisions.tolist() == [0]  # those with walls
    moved = (env.sim.bodies.position - start).norm()
    assert abs(float(moved) - 0.53) < 0.01  # straight at the middle there is no way along
    for _ in walk(env, 4, LEFT):
        pass
    for _ in walk(env, 4, FORWARD):
        assert ((env.sim.bodies.position - world.bodies.position[:, 0]).norm(dim=1) >= RADII).all()
    assert ((env.sim.bodies.position - start).norm() > moved + 0.05) == slides


def test_scripted_bodies_move_by_time_and_appear_when_their_script_says(house):
    first, last = house.navmesh.sample(2, seed=1)
    nowhere = np.full(3, np.nan)
    script = np.stack([np.stack([first, nowhere]), np.stack([last, nowhere]), np.stack([last, first])])
    env = make(house, 2, people=(0, 0), scripted_bodies=ScriptedBodies(script, interval=1.0, shape="box"))
    env.reset()
    for step, world in enumerate(walk(env, 10), 1):
        share = min(step * 0.25, 1.0)
        expected = first + share * (last - first)
        assert np.allclose(world.bodies.position[:, 0], expected, atol=1e-5)
        assert (world.bodies.shape == BOX).all()
        assert (world.bodies.position[:, 1, 1] < -100.0).all() == (step < 8)
    assert np.allclose(world.bodies.position[:, 1], first, atol=1e-5)


def test_people_react_to_robots_as_much_as_they_are_told():
    room, touching = make_room(wall=False), []
    for share in (0.0, 1.0):
        env, near = make(room, 24, people=(3, 3), reacts_to_robot=share, max_steps=10_000), 0
        env.reset()
        for world in walk(env, 150, LEFT):
            apart = (world.bodies.position - env.sim.bodies.position[:, None])[..., [0, 2]].norm(dim=-1)
            near += int((apart < RADII - 0.05).sum())
        touching.append(near)
    assert touching[0] > 20 and touching[1] < touching[0] / 10, touching


def test_robots_of_a_world_never_overlap_and_share_a_scene(house):
    env = make(house, 8, people=(0, 0), agents_per_world=4, max_steps=10_000)
    env.reset()
    scenes = env.sim.bodies.scene.reshape(2, 4)
    assert (scenes == scenes[:, :1]).all()
    apart = torch.cdist(env.sim.bodies.position[:4], env.sim.bodies.position[:4]) + 10.0 * torch.eye(4)
    least = min(float(apart.min()), 0.2)
    for _ in walk(env, 150):
        robots = env.sim.bodies.position.reshape(2, 4, 3)
        apart = torch.cdist(robots, robots) + 10.0 * torch.eye(4)
        assert apart.min() >= least - 1e-4


def test_neither_of_two_robots_that_meet_has_the_right_of_way(house):
    env = make(house, 2, people=(0, 0), agents_per_world=2)
    env.reset()
    state = snapshot(env)
    middle, half_pi = state["position"][0].clone(), torch.pi / 2
    for row, (side, heading) in enumerate(((-0.5, -half_pi), (0.5, half_pi))):
        place = middle + torch.tensor([side, 0.0, 0.0])
        state["position"][row] = torch.from_numpy(house.navmesh.snap(place[None].numpy())[0])
        for name in ("heading", "start_heading"):
            state[name][row] = heading
    state["turns"].zero_()
    env.load_state_dict(state)
    for _ in walk(env, 5, FORWARD):
        pass
    left, right = env.sim.bodies.position
    assert abs(float(right[0] - left[0]) - 0.2) < 0.01
    assert abs(float((left[0] + right[0]) / 2 - (state["position"][0, 0] + state["position"][1, 0]) / 2)) < 1e-3


def test_neighbours_of_one_world_have_one_scene():
    sampling = SamplingState.of(0, 12, 5, torch.device("cpu"))
    sampling.share_scenes(4, 5)
    assert sampling.scene_ranges[:, 0].tolist() == [0] * 4 + [1] * 4 + [3] * 4


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"people": (3, 1)}, ConfigError, r"people: found \[3, 1\]"), ({"people": (0, 9)}, ConfigError, "people"),
        ({"person_speed": (1.0,)}, ConfigError, "person_speed"), ({"agents_per_world": 4}, ArgumentError, "num_envs"),
        ({"scripted_bodies": np.zeros((1, 3))}, ArgumentError, "scripted_bodies"),
        ({"people": (0, 8), "scripted_bodies": ScriptedBodies(np.zeros((1, 3)))}, ArgumentError, "at most 8"),
    ],
)  # fmt: skip
def test_invalid_worlds_are_refused(house, options, error, message):
    with pytest.raises(error, match=message):
        make(house, **options)


@pytest.mark.parametrize(
    "arguments", [(np.zeros((2, 9, 3)),), (np.full((1, 3), np.inf),), (np.zeros((1, 3)), 0.0), (np.zeros(3),)]
)
def test_invalid_scripts_are_refused(arguments):
    with pytest.raises(ArgumentError):
        ScriptedBodies(*arguments)
