"""Sequences of goals: closed forms of success, SPL and reward; switching; sampling; resuming."""

import dataclasses
import math

import numpy as np
import pytest
import torch
from object_rooms import CATEGORIES, corridor, furnished, imaged_room, object_room, with_objects
from rooms import metrics_of

from batchnav.agents.registry import make_reference_agent
from batchnav.data.episodes import Goal, rotation_of
from batchnav.data.formats import EpisodeDataset, load_episodes, multion
from batchnav.data.formats.instance_imagenav import InstanceEpisode
from batchnav.data.goals import GOALS
from batchnav.data.sequences import (
    CATEGORY,
    DESCRIPTION,
    INSTANCE,
    POINT,
    SequenceEpisode,
    Subtask,
    instance_name,
)
from batchnav.envs.nav import NavEnv
from batchnav.errors import ArgumentError, CheckpointError, ConfigError, EpisodeError
from batchnav.scene.bank import SceneBank
from batchnav.scene.goals import NO_IMAGES
from batchnav.sensors.body_surfaces import FIRST_INSTANCE
from batchnav.sim.bodies import FORWARD, LEFT, RIGHT, STOP

DEVICES = ["cpu", pytest.param("cuda", marks=pytest.mark.cuda)]
WEST = math.pi / 2
"""Heading along -x."""
CHAIR, BED = Subtask(CATEGORY, "chair"), Subtask(CATEGORY, "bed")


def episode(scene, x, z, heading, subtasks, places=()):
    """An episode that begins at (x, z)."""
    start, *goals = scene.navmesh.snap(np.array([(x, 0.0, z), *((u, 0.0, v) for u, v in places)], np.float32)).tolist()
    return SequenceEpisode(
        "0", scene.name, tuple(start), rotation_of(heading), tuple(Goal(tuple(goal)) for goal in goals),
        subtasks=tuple(subtasks),
    )  # fmt: skip


def two_goals():
    """A corridor along x with a chair at 3 m and a bed at 9 m."""
    return with_objects(corridor(), ("chair", 1, [(3.0, 0.5)]), ("bed", 2, [(9.0, 0.5)]))


def make(scene, episodes, device="cpu", **options):
    options = {"categories": CATEGORIES, "sensors": (), "turn_angle_deg": 90.0, **options}
    return NavEnv([scene], len(episodes), device, task="sequence", episodes=episodes, **options)


def run(env, actions):
    """Step one agent with each action; the last info, and whether the episode ended."""
    for action in actions:
        _, _, terminated, truncated, info = env.step(torch.full((env.num_envs,), action, device=env.device))
    return info["episode"], bool(terminated[0]), bool(truncated[0])


@pytest.mark.parametrize("device", DEVICES)
def test_true_goal_is_the_nearest_view_point_of_the_subtask(device):
    scene = two_goals()
    env = make(scene, [episode(scene, 0.5, 0.5, -WEST, [CHAIR, BED])], device, sensors=("true_goal",))
    observation, _ = env.reset()
    for _ in range(4):
        away = (env.task.goal_position - env.sim.bodies.position)[0].cpu()
        distance, bearing = observation["true_goal"][0].cpu().tolist()
        assert distance == pytest.approx(math.hypot(away[0], away[2]), abs=1e-5) and distance > 0.5
        assert away[0] > 0.0 and abs(bearing) < 0.5  # ahead, along x
        observation, *_ = env.step(torch.tensor([FORWARD], device=device))


@pytest.mark.slow
@pytest.mark.parametrize("device", DEVICES)
def test_subtasks_are_measured_from_where_the_one_before_ended(device):
    """From 5 m: the chair is 2 m to the west, the bed 6 m to the east of the chair. The second way has 2 m too much."""
    scene = two_goals()
    env = make(scene, [episode(scene, 5.0, 0.5, WEST, (CHAIR, BED))], device)
    observation, _ = env.reset()
    assert observation["objectgoal"].tolist() == [0] and float(env.task.state.start_distance[0]) == pytest.approx(2.0)
    run(env, [FORWARD] * 8)
    observation, reward, terminated, *_ = env.step(torch.tensor([STOP], device=env.device))
    assert float(reward[0]) == pytest.approx(5.0 - 0.001, abs=1e-5) and not terminated[0]
    assert observation["objectgoal"].tolist() == [1] and env.task.goal_category.tolist() == [1]
    assert float(env.task.state.start_distance[0]) == pytest.approx(6.0, abs=1e-3)
    assert float(env.task.state.distance[0]) == pytest.approx(6.0, abs=1e-3)
    metrics, *ended = run(env, [FORWARD] * 4 + [LEFT, LEFT] + [FORWARD] * 28 + [STOP])
    assert ended == [True, False]
    assert float(metrics["success"]) == 1.0 and float(metrics["subtask_success"]) == 1.0
    assert float(metrics["subtask_spl"]) == pytest.approx((1.0 + 6.0 / 8.0) / 2, abs=1e-3)
    assert float(metrics["spl"]) == pytest.approx(8.0 / 10.0, abs=1e-3)
    assert float(metrics["ppl"]) == pytest.approx(8.0 / 10.0, abs=1e-3)
    assert float(metrics["return"]) == pytest.approx(10.0 + 2.0 + 6.0 - 0.001 * 44, abs=1e-2)
    details = {name: float(value[0]) for name, value in env.task.episode_details.items()}
    assert details["success_1"] == details["success_2"] == 1.0
    assert details["spl_2"] == pytest.approx(0.75, abs=1e-3) and details["steps_1"] == 9.0


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("wrong_stop", ["continue", "end"])
def test_a_wrong_stop_goes_on_or_ends_the_episode(wrong_stop, device):
    scene = two_goals()
    env = make(scene, [episode(scene, 8.0, 0.5, -WEST, (CHAIR, BED))], device, wrong_stop=wrong_stop)
    env.reset()
    metrics, *ended = run(env, [STOP])
    if wrong_stop == "end":
        assert ended == [True, False] and float(metrics["ppl"]) == 0.0
        return
    assert ended == [False, False] and env.task.state.category.tolist() == [1]
    metrics, *ended = run(env, [FORWARD] * 4 + [STOP])
    assert ended == [True, False]
    assert float(metrics["success"]) == 0.0 and float(metrics["subtask_success"]) == 0.5
    assert float(metrics["subtask_spl"]) == pytest.approx(0.5, abs=1e-3) and float(metrics["spl"]) == 0.0


def test_multion_ends_at_a_wrong_found_and_weighs_progress_by_path():
    """Places at 3, 9 and 6 m of a corridor; the agent finds the first without a detour, then calls out in between."""
    scene = corridor()
    start = episode(scene, 5.0, 0.5, WEST, (Subtask(POINT, "red"),) * 3, [(3.0, 0.5), (9.0, 0.5), (6.0, 0.5)])
    options = {
        "goals": ("point", "cylinder"), "categories": ("blue", "red"), "wrong_stop": "end", "success_distance": 1.5,
    }  # fmt: skip
    env = make(scene, [start], **options)
    observation, _ = env.reset()
    assert observation["objectgoal"].tolist() == [1]
    assert observation["pointgoal"][0].tolist() == pytest.approx([2.0, 0.0], abs=1e-3)
    run(env, [FORWARD] * 4 + [STOP])
    assert float(env.task.state.start_distance[0]) == pytest.approx(5.0, abs=1e-3)
    metrics, *ended = run(env, [LEFT, LEFT] + [FORWARD] * 4 + [STOP])
    assert ended == [True, False] and float(metrics["subtask_success"]) == pytest.approx(1 / 3)
    assert float(metrics["ppl"]) == pytest.approx(1 / 3)
    env.reset()
    metrics, *ended = run(env, [FORWARD] * 4 + [STOP, LEFT, LEFT] + [FORWARD] * 16 + [STOP, LEFT, LEFT, FORWARD])
    assert not any(ended) and float(env.task.state.tours[0, 0]) == pytest.approx(2.0 + 6.0 + 3.0, abs=1e-3)
    metrics, *ended = run(env, [FORWARD, FORWARD, STOP])
    assert ended == [True, False] and float(metrics["success"]) == 1.0
    assert float(metrics["spl"]) == pytest.approx(1.0)


def test_steps_of_a_subtask_and_of_the_episode_are_limited():
    scene = two_goals()
    start = episode(scene, 8.0, 0.5, -WEST, (CHAIR, BED, CHAIR))
    env = make(scene, [start], max_subtask_steps=3, max_steps=7)
    env.reset()
    _, *ended = run(env, [RIGHT] * 2)
    assert env.task.state.category.tolist() == [0]
    run(env, [RIGHT])
    assert env.task.state.category.tolist() == [1]
    run(env, [RIGHT] * 3)
    assert env.task.state.category.tolist() == [0] and not any(ended)
    metrics, *ended = run(env, [RIGHT])
    assert ended == [False, True] and float(metrics["subtask_success"]) == 0.0
    assert float(metrics["subtasks"]) == 3.0 and float(env.task.episode_info["start_distance"][0]) > 4.0


def test_in_any_order_the_nearest_goal_is_next_and_every_goal_counts():
    scene = two_goals()
    env = make(scene, [episode(scene, 7.0, 0.5, -WEST, (CHAIR, BED))], order="any")
    env.reset()
    assert env.task.state.category.tolist() == [1], "the bed is 2 m away, the chair 4 m"
    metrics, *ended = run(env, [LEFT, LEFT] + [FORWARD] * 16 + [STOP])
    assert not any(ended) and float(env.task.episode_details["spl_1"][0]) == pytest.approx(1.0)
    assert env.task.state.category.tolist() == [1]
    metrics, *ended = run(env, [LEFT, LEFT] + [FORWARD] * 24 + [STOP])
    assert ended == [True, False] and float(metrics["success"]) == 1.0
    assert float(metrics["spl"]) == pytest.approx(1.0, abs=1e-3)


@pytest.mark.parametrize("device", DEVICES)
def test_sampled_sequences_ask_for_every_category_once(device):
    env = NavEnv([object_room()], 16, device, task="sequence", categories=CATEGORIES, sensors=(), subtasks=(2, 2))
    env.reset()
    first = env.task.state.category.clone()
    assert (env.task.state.counts[:, 0] == 2).all() and len(first.unique()) == 2
    env.step(torch.full((16,), STOP, device=env.device))
    assert torch.equal(env.task.state.category, 1 - first)


@pytest.mark.parametrize("name", ["forward", "random"])
def test_agents_without_a_map_walk_where_goals_are_objects(name):
    """The goal sensor is 0 for an object: that is no arrival."""
    options = {"categories": CATEGORIES, "sensors": (), "subtasks": (2, 2), "goals": ("point", "category")}
    env = NavEnv([object_room()], 16, "cpu", task="sequence", **options)
    agent, (observation, _) = make_reference_agent(name, env), env.reset()
    agent.reset(16)
    assert (observation["pointgoal"] == 0).all()
    assert (agent.act(observation, torch.ones(16, dtype=torch.bool)) != STOP).all()


@pytest.mark.parametrize("device", DEVICES)
def test_the_shortest_path_follower_finds_all_goals(device):
    env = NavEnv(
        [object_room()], 16, device, task="sequence", categories=CATEGORIES, sensors=(), subtasks=(2, 2), seed=3
    )
    success, spl = metrics_of("shortest_path", env, 150, ("success", "subtask_spl")).T
    assert len(spl) >= 16 and spl.mean() >= 0.9 and success.all()


def test_resuming_continues_in_the_same_subtask():
    env = NavEnv([object_room()], 4, "cpu", task="sequence", categories=CATEGORIES, sensors=(), subtasks=(2, 2))
    env.reset()
    run(env, [FORWARD, STOP, FORWARD])
    state = env.state_dict()
    after = [env.step(torch.full((4,), action)) for action in (LEFT, FORWARD, STOP)][-1]
    other = NavEnv([object_room()], 4, "cpu", task="sequence", categories=CATEGORIES, sensors=(), subtasks=(2, 2))
    other.load_state_dict(state)
    again = [other.step(torch.full((4,), action)) for action in (LEFT, FORWARD, STOP)][-1]
    assert torch.equal(after[1], again[1]) and torch.equal(after[0]["objectgoal"], again[0]["objectgoal"])
    state["order"][0, 1] = 2
    with pytest.raises(CheckpointError, match=r"'order'\[0\]: found \[-?\d+, 2, "):
        other.load_state_dict(state)


def test_bad_settings_and_episodes_are_refused():
    scene = two_goals()
    with pytest.raises(ConfigError, match=r"goals: found .*'sound'.*, expected one or more of point"):
        NavEnv([scene], 1, "cpu", task="sequence", goals=("sound",))
    with pytest.raises(ConfigError, match=r"subtasks: found \[3, 2\]"):
        NavEnv([scene], 1, "cpu", task="sequence", subtasks=(3, 2))
    with pytest.raises(EpisodeError, match="found none with goals 'point', expected a file"):
        NavEnv([scene], 1, "cpu", task="sequence", goals=("point",))
    with pytest.raises(EpisodeError, match="subtask 1: found no view point of 'sofa'"):
        make(scene, [episode(scene, 5.0, 0.5, WEST, (CHAIR, Subtask(CATEGORY, "sofa")))])
    bank = SceneBank.pack([scene], "cpu", goal_categories=("chair",))
    with pytest.raises(EpisodeError, match="found 'bed', expected one of the task's goals: chair"):
        GOALS["sequence"].table([episode(scene, 5.0, 0.5, WEST, (CHAIR, BED))], bank)


@pytest.mark.parametrize("device", DEVICES)
def test_multions_cylinders_stand_where_the_file_says(device, tmp_path):
    """They are 0.1 m wide to each side and 0.75 m tall, and stop nobody; agents know their goal by its colour alone."""
    scene = corridor()
    red, cyan = Subtask(POINT, "cylinder_red"), Subtask(POINT, "cylinder_cyan")
    start = episode(scene, 5.0, 0.5, WEST, (red, cyan), [(3.0, 0.5), (9.0, 0.5)])
    other = episode(scene, 5.0, 0.5, WEST, (cyan,), [(2.5, 0.5)])
    path = tmp_path / "a.json.gz"
    EpisodeDataset([start, other], "sequence", header=multion.HEADER, format="multion").save(path)
    options = {"config": "sequence_multion", "sensors": ("rgb", "depth"), "height": 65, "width": 65, "min_depth": 0.0}
    env = NavEnv([scene], 1, device, task="sequence", episodes=load_episodes(path), max_depth=5.0, **options)
    observation, _ = env.reset()
    assert set(observation) == {"rgb", "depth", "objectgoal"} and observation["objectgoal"].tolist() == [0]
    # The camera is 0.88 m above the floor and looks over the cylinder, whose foot is 2 m away; rows go down.
    column = observation["rgb"][0, :, :, 32].cpu().numpy()
    rows = np.flatnonzero((column[0] > 150) & (column[1] < 20) & (column[2] < 20))
    pixel = math.tan(math.radians(79.0 / 2)) / 32.5
    assert rows[0] == pytest.approx(32 + 0.13 / 1.9 / pixel, abs=1.5) and rows[-1] > 32 + 0.8 / 2.0 / pixel
    depth = observation["depth"][0, 0, rows[len(rows) // 2], 32].item() * 5.0
    assert depth == pytest.approx(1.9, abs=0.01)
    assert observation["depth"][0, 0, 32, 32].item() == 0.0, "the corridor is open, and nothing stands above 0.75 m"
    run(env, [FORWARD] * 13)
    assert env.sim.bodies.position[0, 0].item() == pytest.approx(1.75, abs=1e-3), "it walked through the cylinder"
    assert int(env.sim.bodies.collisions[0]) == 0
    observation, _, terminated, *_ = env.step(torch.tensor([STOP], device=env.device))
    assert not terminated[0] and observation["objectgoal"].tolist() == [7]
    observation, _, terminated, *_ = env.step(torch.tensor([STOP], device=env.device))
    assert terminated[0], "a wrong FOUND ends the episode"
    column = observation["rgb"][0, :, :, 32].cpu().numpy()
    assert ((column[0] < 20) & (column[1] > 150) & (column[2] > 150)).any(), "the next episode has a cyan cylinder"
    with pytest.raises(ArgumentError, match="people, scripted_bodies: found bodies with episodes whose goals stand"):
        NavEnv([scene], 1, task="sequence", episodes=load_episodes(path), people=(1, 1), **options)


@pytest.mark.parametrize("renderer", ["raycast", "opengl"])
def test_multions_cylinders_have_a_category_and_stand_on_the_floor(request, renderer):
    """The file's goal is 0.3 m above the floor. The palette decides the colour, the name the category."""
    if renderer == "opengl":
        request.getfixturevalue("opengl")
    scene = furnished()
    cyan = episode(scene, 5.0, 3.0, WEST, (Subtask(POINT, "cylinder_cyan"),), [(3.0, 3.0)])
    x, y, z = cyan.goals[0].position
    cyan = dataclasses.replace(cyan, goals=(Goal((x, y + 0.3, z)),))
    options = {"config": "sequence_multion", "sensors": ("semantic", "instance"), "height": 65, "width": 65}
    options |= {"agent_height": 1.5}  # the room's navmesh is for this body
    env = NavEnv([scene], 1, "cpu", task="sequence", episodes=[cyan], renderer=renderer, **options)
    observation, _ = env.reset()
    column, number = observation["semantic"][0, 0, :, 32].numpy(), env.bank.categories.index("cylinder_cyan")
    rows = np.flatnonzero(column == number)
    assert number > 0 and (column[rows[0] : rows[-1] + 1] == number).all()
    assert (observation["instance"][0, 0, rows, 32] == FIRST_INSTANCE).all()
    # The camera is 0.88 m above the floor; the top is 0.75 m above it, 2 m away, and the image shows no foot.
    pixel = math.tan(math.radians(79.0 / 2)) / 32.5
    assert rows[0] == pytest.approx(32 + 0.13 / 1.9 / pixel, abs=1.5)


@pytest.mark.parametrize("device", DEVICES)
def test_the_image_of_a_goal_follows_the_subtasks(device):
    """An object's image is that of Instance ImageNav; categories and descriptions have a black one."""
    scene = imaged_room()
    named = [goal._replace(category=instance_name(goal.object_id)) for goal in scene.goals.objects]
    plural = [
        goal._replace(category=name, images=NO_IMAGES)
        for goal, name in zip(scene.goals.objects, CATEGORIES, strict=True)
    ]
    options = {"sensors": (), "goal_height": 24, "goal_width": 24, "device": device}
    plain = InstanceEpisode("0", scene.name, episode(scene, 3.0, 3.0, 0.0, ()).start_position, rotation_of(0.0))
    asked = [
        dataclasses.replace(plain, goal_object_id=thing, goal_image_id=image)
        for thing, image in (("1", 1), ("2", 0), ("1", 0))
    ]
    theirs = NavEnv([scene], 3, task="instance_imagenav", episodes=asked, **options)
    images = theirs.reset()[0]["imagegoal"].cpu().numpy()
    scene = scene._replace(goals=scene.goals._replace(objects=(*named, *plural)))
    subtasks = (
        Subtask(INSTANCE, "chair", "1", 1), Subtask(CATEGORY, "chair"), Subtask(INSTANCE, "bed", "2"),
        Subtask(DESCRIPTION, "chair", "1"), Subtask(INSTANCE, "chair", "1", 0),
    )  # fmt: skip
    goals = ("category", "instance", "description")
    env = NavEnv([scene], 1, task="sequence", episodes=[episode(scene, 3.0, 3.0, 0.0, subtasks)], goals=goals,
                 categories=(), **options)  # fmt: skip
    seen = [env.reset()[0]["imagegoal"][0].cpu().numpy()]
    for _ in subtasks[1:]:
        seen.append(env.step(torch.tensor([STOP], device=env.device))[0]["imagegoal"][0].cpu().numpy())
    for k, expected in enumerate((images[0], 0 * images[0], images[1], 0 * images[0], images[2])):
        np.testing.assert_array_equal(seen[k], expected)
    assert images.any((1, 2, 3)).all() and (images[0] != images[2]).any()
