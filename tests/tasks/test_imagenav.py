"""ImageNav: the goal's image, closed forms of rewards and success, sampling, resuming; CPU against CUDA."""

import math

import numpy as np
import pytest
import torch
from rooms import make_room, metrics_of, play, starts

from batchnav.data.scenes.load import load_scenes
from batchnav.envs.config import PRESETS
from batchnav.envs.nav import NavEnv
from batchnav.errors import CheckpointError, ConfigError
from batchnav.scene.bank import SceneBank
from batchnav.scene.scene import Scene
from batchnav.sim.bodies import FORWARD, LEFT, STOP
from batchnav.tasks.formulas import angle_to_go
from batchnav.tasks.imagenav import REWARDS

N = 8
DEVICES = ["cpu", pytest.param("cuda", marks=pytest.mark.cuda)]
EAST, NORTH = -math.pi / 2, 0.0
"""Headings along +x and -z."""
SMALL = {"height": 16, "width": 16}


@pytest.fixture(scope="module")
def house():
    return load_scenes(["house:0"], appearance=True)[0]


@pytest.fixture(scope="module")
def room():
    return make_room(wall=False)


@pytest.fixture(scope="module")
def walled():
    return make_room(wall=True)


def make(scene, n=N, device="cpu", **options):
    """An environment without sensors, apart from the image of the goal."""
    bank = SceneBank.pack([scene] if isinstance(scene, Scene) else scene, device, appearance=True)
    return NavEnv(bank, n, **{"task": "imagenav", "sensors": (), **SMALL, **options})


def episodes(scene, rows, device="cpu"):
    """Episodes of (start x, start z, start heading, goal x, goal z, goal heading)."""
    table = starts(scene, [row[:3] for row in rows], device)
    goals = starts(scene, [row[3:] for row in rows], device)
    return table._replace(goal=goals.start, goal_heading=goals.heading)


def spread(n):
    """Random actions without stop, i64 [n]."""
    return torch.randint(FORWARD, LEFT + 2, (n,), generator=torch.Generator().manual_seed(n))


def walk(env, steps=40):
    """Random steps without stops: sum of rewards f32 [N]."""
    total, generator = torch.zeros(env.num_envs, device=env.device), torch.Generator().manual_seed(3)
    for _ in range(steps):
        action = torch.randint(FORWARD, LEFT + 2, (env.num_envs,), generator=generator)
        total += env.step(action.to(env.device))[1]
    return total


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("renderer", ["raycast", "opengl"])
def test_the_image_of_the_goal_is_what_an_agent_sees_there(house, device, renderer, request):
    """Bit for bit, and constant within an episode."""
    if renderer == "opengl":
        request.getfixturevalue("opengl")
    env = make(house, device=device, renderer=renderer, sensors=("rgb",), max_steps=6)
    seen, _ = env.reset(seed=4)
    first = seen["imagegoal"].clone()
    assert first.shape == (N, 3, 16, 16) and first.dtype == torch.uint8
    assert not torch.equal(first, seen["rgb"]) and first.float().std() > 1.0
    for _ in range(5):
        later, *_ = env.step(torch.full((N,), FORWARD, device=env.device))
        assert torch.equal(later["imagegoal"], first)
    bodies = env.sim.bodies
    bodies.position.copy_(env.task.goal_position)
    bodies.heading.copy_(env.task.goal_heading)
    there = env.observe()
    assert torch.equal(there["rgb"], first) and torch.equal(there["imagegoal"], first)
    following, *_ = env.step(torch.full((N,), FORWARD, device=env.device))  # the time limit: new episodes
    assert not torch.equal(following["imagegoal"], first)


def test_of_all_views_the_goals_is_the_nearest_to_its_image(house):
    """Views on a grid of 0.5 m and 10 degrees, by the squared difference of pixels."""
    env = make(house, 1, sensors=("rgb",), height=32, width=32)
    observation, _ = env.reset(seed=1)
    goal, (x, y, z) = observation["imagegoal"][0].float(), env.task.goal_position[0].tolist()
    bodies, heading = env.sim.bodies, float(env.task.goal_heading[0])
    grid = [(x + 0.5 * i, y, z + 0.5 * j) for i in range(-2, 3) for j in range(-2, 3)]
    navigable = house.navmesh.is_navigable(np.array(grid, np.float32))
    on_mesh = [point for point, good in zip(grid, navigable, strict=True) if good]
    assert len(on_mesh) >= 6
    differences = {}
    for point in on_mesh:
        for k in range(36):
            bodies.position.copy_(torch.tensor([point]))
            bodies.heading.fill_(heading + math.radians(10.0 * k))
            differences[(point, k)] = float((env.observe()["rgb"][0].float() - goal).square().sum())
    best = min(differences, key=differences.get)
    assert best == ((x, y, z), 0) and differences[best] < 0.2 * sorted(differences.values())[1]


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("reward", REWARDS)
def test_rewards_telescope(room, reward, device):
    """The sum of rewards is the decrease of distance plus angle to go, slack, and the reward of success."""
    env = make(room, 32, device, reward=reward, slack_reward=-0.01)
    env.reset()
    weight = REWARDS[reward][2]

    def potential():
        state = env.task.state
        return (state.distance + weight * state.angle).clone()

    before = potential()
    total = walk(env)
    torch.testing.assert_close(total, before - potential() - 0.4, atol=1e-4, rtol=0.0)
    _, last, *_, info = env.step(torch.full((32,), STOP, device=env.device))
    success, facing, _ = REWARDS[reward]
    bonus = 2.5 * (success * info["episode"]["success"] + facing * info["episode"]["angle_success"])
    torch.testing.assert_close(last, bonus - 0.01, atol=1e-5, rtol=0.0)
    torch.testing.assert_close(info["episode"]["return"], total + last, atol=1e-5, rtol=0.0)


@pytest.mark.parametrize("device", DEVICES)
def test_agents_keep_their_angle_while_others_begin_episodes(house, device):
    """On CUDA scoring writes the angle to go at the same time as episodes of other agents begin."""
    goals = {"closest_goal": 0.3, "furthest_goal": 1.5, "min_detour_ratio": 1.0}
    n = 4096 if device == "cuda" else 64
    env = make(house, n, device, reward="zer", max_steps=50, turn_angle_deg=30.0, **goals)
    env.reset(seed=1)
    near = 0
    for step in range(100):
        action = torch.randint(FORWARD, LEFT + 2, (n,), generator=torch.Generator().manual_seed(step))
        _, _, terminated, truncated, _ = env.step(action.to(env.device))
        metrics, is_running = env.task.metrics, ~(terminated | truncated)
        is_near = metrics["distance_to_goal"] <= 1.0
        expected = torch.where(is_near, metrics["angle_to_goal"], math.pi)
        assert torch.equal(env.task.state.angle[is_running], expected[is_running])
        near += int((is_near & is_running).sum())
    assert near > 10 * n  # elsewhere the angle is constant


@pytest.mark.parametrize("device", DEVICES)
def test_turning_towards_the_goals_heading_is_rewarded_near_the_goal(room, device):
    """0.5 m away, a turn of 30 degrees towards the heading earns pi / 6; 2 m away nothing; entry earns pi - angle."""
    rows = [(x, 3.0, EAST, 3.0, 3.0, NORTH) for x in (3.5, 5.0, 1.9)]
    options = {"turn_angle_deg": 30.0, "reward": "zer", "slack_reward": 0.0, "max_steps": 50}
    env = make(room, 3, device, episodes=episodes(room, rows, device), **options)
    env.reset()
    assert env.task.state.angle.tolist() == pytest.approx([math.pi / 2, math.pi, math.pi], abs=1e-5)
    _, reward, *_ = env.step(torch.tensor([LEFT, LEFT, FORWARD], device=env.device))
    assert reward.tolist() == pytest.approx([math.pi / 6, 0.0, 0.25 + math.pi / 2], abs=1e-4)
    assert env.task.metrics["angle_to_goal"].tolist() == pytest.approx(
        [math.pi / 3, math.pi / 3, math.pi / 2], abs=1e-4
    )


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize(
    ("reward", "amount", "expected"),
    [("habitat", 2.5, (2.5, 2.5)), ("zer", 10.0, (10.0, 5.0)), ("vc1", 2.5, (5.0, 2.5))],
)
def test_reward_of_a_success_with_and_without_the_heading(room, reward, amount, expected, device):
    """Two stops 0.5 m away, 20 and 30 degrees off the goal's heading."""
    rows = [(3.5, 3.0, math.radians(angle), 3.0, 3.0, NORTH) for angle in (20.0, 30.0)]
    options = {"reward": reward, "slack_reward": -0.01, "success_reward": amount}
    env = make(room, 2, device, episodes=episodes(room, rows, device), **options)
    env.reset()
    *_, info = env.step(torch.full((2,), STOP, device=env.device))
    assert info["episode"]["return"].tolist() == pytest.approx([value - 0.01 for value in expected], abs=1e-5)
    assert info["episode"]["success"].tolist() == [1.0, 1.0] and info["episode"]["angle_success"].tolist() == [1.0, 0.0]


@pytest.mark.parametrize("device", DEVICES)
def test_success_is_within_distance_and_angle(room, device):
    """A stop at 0.99 m and one at 1.01 m; with a success angle of 25 degrees, 24 and 26 degrees off."""
    rows = [
        (3.0 + away, 3.0, math.radians(angle), 3.0, 3.0, NORTH)
        for away, angle in ((0.99, 90.0), (1.01, 0.0), (0.5, 24.0), (0.5, 26.0))
    ]
    for limit, expected in ((180.0, [1.0, 0.0, 1.0, 1.0]), (25.0, [0.0, 0.0, 1.0, 0.0])):
        table = episodes(room, rows, device)
        env = make(room, 4, device, episodes=table, success_angle_deg=limit)
        env.reset()
        *_, info = env.step(torch.full((4,), STOP, device=env.device))
        assert info["episode"]["success"].tolist() == expected


def test_the_angle_counts_within_one_metre():
    near, far, angle, radius = map(np.float32, (1.0, 1.0001, 0.5, 1.0))
    assert angle_to_go(near, angle, radius) == angle and angle_to_go(far, angle, radius) == np.float32(math.pi)


@pytest.mark.parametrize("device", DEVICES)
def test_the_shortest_path_follower_succeeds(room, device):
    env = make(room, 16, device, turn_angle_deg=30.0, max_steps=200)
    ended = metrics_of("shortest_path", env, 120)
    assert len(ended) >= 32 and ended.all()


def test_headings_of_goals_are_uniform_and_independent_of_the_number_of_agents(walled):
    """Sampled headings cover the circle; start and goal are PointNav's."""
    env, point = make(walled, 512, seed=3), NavEnv([walled], 512, "cpu", seed=3, sensors=())
    env.reset()
    point.reset()
    headings = env.task.goal_heading.numpy()
    assert headings.min() >= 0.0 and headings.max() < 2 * math.pi + 1e-6
    counts, _ = np.histogram(headings, bins=8, range=(0.0, 2 * math.pi))
    assert abs(counts - 64).max() < 4 * math.sqrt(64)
    assert torch.equal(env.sim.bodies.position, point.sim.bodies.position)
    assert torch.equal(env.task.goal_position, point.task.state.goal)
    assert abs(np.corrcoef(np.cos(headings), np.cos(env.sim.bodies.heading.numpy()))[0, 1]) < 0.2
    few = make(walled, 4, seed=3)
    few.reset()
    assert torch.equal(few.task.goal_heading, env.task.goal_heading[:4])


def test_a_run_resumes(room):
    env, again = (make(room, seed=seed, sensors=("rgb",), reward="zer", max_steps=30) for seed in (1, 2))
    env.reset()
    again.reset()
    play(env, (FORWARD, LEFT, FORWARD))
    state = env.state_dict()
    assert "angle" in state and "goal_heading" in state
    again.load_state_dict(state)
    for _ in range(40):
        action = spread(N)
        (seen, reward, *_), (expected, wanted, *_) = again.step(action), env.step(action)
        assert torch.equal(reward, wanted) and all(torch.equal(seen[name], expected[name]) for name in seen)
    with pytest.raises(CheckpointError, match="angle"):
        again.load_state_dict(state | {"angle": state["angle"] + 10.0})


@pytest.mark.cuda
def test_cuda_runs_as_the_cpu_does(room):
    runs = {}
    for device in ("cpu", "cuda"):
        env = make(room, 64, device, reward="zer", max_steps=20)
        env.reset()
        runs[device] = walk(env, 60).cpu(), env.task.goal_heading.cpu(), env.task.state.angle.cpu()
    for found, expected in zip(runs["cuda"], runs["cpu"], strict=True):
        close = torch.isclose(found, expected, atol=1e-3).float().mean()
        assert close > 0.95  # an agent at a wall may slide otherwise


def test_bad_settings_are_refused(room):
    with pytest.raises(ConfigError, match="reward: found 'ours', expected one of habitat, zer, vc1"):
        make(room, reward="ours")
    with pytest.raises(ConfigError, match="success_angle_deg: found 200"):
        make(room, success_angle_deg=200.0)


def test_presets_are_as_published():
    gibson, zer, nrns = (PRESETS[f"imagenav_{name}"] for name in ("gibson", "zer", "nrns"))
    assert (gibson.body.turn_angle_deg, gibson.camera.height, gibson.task.max_steps) == (10.0, 256, 1000)
    assert (gibson.task.reward, gibson.task.slack_reward, gibson.task.success_reward) == ("habitat", -0.001, 2.5)
    assert (zer.body.turn_angle_deg, zer.camera.width, zer.body.sliding) == (30.0, 128, False)
    assert (zer.task.reward, zer.task.slack_reward, zer.task.success_reward) == ("zer", -0.01, 10.0)
    assert (nrns.body.turn_angle_deg, nrns.camera.hfov_deg, nrns.task.max_steps) == (15.0, 120.0, 500)
    assert all(config.task.success_distance == 1.0 and "rgb" in config.sensors for config in (gibson, zer, nrns))
