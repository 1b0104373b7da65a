"""What an evaluation plays in."""

import dataclasses
import json
import sys
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from networks import policy_config
from ranks import results_of
from squares import points_on_the_main_island, square_around
from worlds import episodes_on, write_episodes, write_floor

from batchnav.cli.evaluate import Options
from batchnav.cli.measure import default_folder
from batchnav.config import to_dict
from batchnav.data.episodes import rotation_of
from batchnav.data.formats import EpisodeDataset
from batchnav.data.formats.objectnav import FileGoal, ObjectNavEpisode, goals_key, header_of
from batchnav.data.goals.point import generate_episodes
from batchnav.data.scenes.load import load_all, load_scene
from batchnav.envs.config import PRESETS, NavConfig, config_of, with_options
from batchnav.envs.nav import NavEnv
from batchnav.envs.observations import space_of, specs_of
from batchnav.errors import ArgumentError, ConfigError, EpisodeError, NavMeshError
from batchnav.evaluation.play import evaluate
from batchnav.evaluation.players import PolicyPlayer, ReferencePlayer, environment_of, find_players
from batchnav.evaluation.run import Evaluation, non_default_settings
from batchnav.export.onnx_policy import deployment_config
from batchnav.habitat.agent import HabitatAgent
from batchnav.navmesh.navmesh import NavMesh
from batchnav.policy.actor_critic import ActorCritic
from batchnav.policy.agent import PolicyAgent
from batchnav.policy.weights import save_policy
from batchnav.report.evaluation import breakdowns, compared_by
from batchnav.runtime import console
from batchnav.runtime.distributed import Ranks
from batchnav.scene.mesh import load_mesh
from batchnav.sensors.camera import CameraConfig
from batchnav.sim.bodies import BodyConfig
from batchnav.tasks.objectnav import ObjectNav, ObjectNavConfig
from batchnav.tasks.pointnav import PointNavConfig


def test_more_processes_than_episodes_are_refused(tmp_path):
    """They would play some twice."""
    path = write_episodes(tmp_path / "mine.json.gz", [str(write_floor(tmp_path / "floor.ply"))])
    with pytest.raises(ArgumentError, match="found 3 episodes for 4 processes"):
        Evaluation(path, torch.device("cpu"), NavConfig(), ranks=SimpleNamespace(world_size=4))


def test_scenes_are_for_the_agents_body(tmp_path):
    floor, cpu = write_floor(tmp_path / "floor.ply"), torch.device("cpu")
    episodes, wide = write_episodes(tmp_path / "mine.json.gz", [str(floor)]), BodyConfig(agent_radius=0.3)
    areas = [
        Evaluation(episodes, cpu, NavConfig(body=body)).bank.scenes[0].navmesh.area for body in (BodyConfig(), wide)
    ]
    assert areas[1] < areas[0]
    NavMesh.bake(load_mesh(floor), BodyConfig().navmesh).save(tmp_path / "floor.navmesh")
    with pytest.raises(NavMeshError, match="baked for"):
        Evaluation(episodes, cpu, NavConfig(body=wide))


def test_progress_names_agent_steps_and_time_left(tmp_path, monkeypatch):
    lines: list[str] = []
    monkeypatch.setattr(console, "SECONDS_BETWEEN_LINES", 0.0)
    monkeypatch.setattr(console, "announce", lines.append)
    monkeypatch.setattr(console, "time", SimpleNamespace(monotonic=iter(2.0 ** np.arange(1000)).__next__))
    path = write_episodes(tmp_path / "mine.json.gz", [str(write_floor(tmp_path / "floor.ply"))])
    evaluation = Evaluation(path, torch.device("cpu"), NavConfig())
    for name in ("random", "greedy"):
        evaluation.play(ReferencePlayer(name, NavConfig(task=PointNavConfig(max_steps=30))))
    random, greedy = ([line for line in lines if name in line] for name in ("random", "greedy"))
    assert random[0] == "episodes of random: 0 of 3, step 1 of at most 30"  # the first step compiles kernels
    assert random[1].startswith("episodes of random: 0 of 3, step 17 of at most 30, at most ")
    assert greedy[-1] == "episodes of greedy: 3 of 3, step 17 of at most 30"


@pytest.mark.parametrize(
    "calls, expected",
    [
        ([(0, 0, 0)], "maps: 0 of 12"),
        ([(1, 0, 0)], "maps: 1 of 12"),  # the time until the first call includes compilation
        ([(1, 0, 0), (4, 0, 0)], "maps: 4 of 12, about 27 s left"),  # 3 in 10 s
        ([(1, 0, 0), (6, 0, 0), (9, 0, 0)], "maps: 9 of 12, about 8 s left"),  # 8 in 20 s
        ([(1, 0, 0), (12, 0, 0)], "maps: 12 of 12"),
        ([(0, 1, 500)], "maps: 0 of 12, step 1 of at most 500"),
        ([(0, 1, 500), (11, 101, 500)], "maps: 11 of 12, step 101 of at most 500, at most 40 s left"),
    ],
)
def test_lines_of_progress(calls, expected, monkeypatch):
    """The calls come after 40, 50 and 60 s."""
    lines: list[str] = []
    monkeypatch.setattr(console, "SECONDS_BETWEEN_LINES", 0.0)
    monkeypatch.setattr(console, "announce", lines.append)
    seconds = iter([0.0, 40.0, 50.0, 60.0])
    monkeypatch.setattr(console, "time", SimpleNamespace(monotonic=lambda: next(seconds)))
    with console.progress_bar("maps", 12) as show:
        for done, step, most_steps in calls:
            show(done, step, most_steps)
    assert lines[-1] == expected


def test_lines_of_progress_become_rarer(monkeypatch):
    """A line every 5 s at first, later one for each tenth of the elapsed time."""
    lines: list[str] = []
    seconds = iter(range(-1, 1000))
    monkeypatch.setattr(console, "announce", lines.append)
    monkeypatch.setattr(console, "time", SimpleNamespace(monotonic=lambda: float(next(seconds))))
    with console.progress_bar("maps", 1000) as show:
        for done in range(500):
            show(done)
    numbers = [int(line.split()[1]) for line in lines]
    assert numbers[:3] == [4, 9, 14] and 25 <= len(lines) <= 40
    assert numbers[-1] - numbers[-2] == pytest.approx(0.1 * numbers[-1], rel=0.1)


def test_rows_name_what_is_not_as_usual():
    assert non_default_settings(NavConfig()) == {}
    assert non_default_settings(NavConfig(sensors=("rgb", "depth"))) == {"sensors": "rgb+depth"}
    found = non_default_settings(PRESETS["challenge_2020"])
    assert found.items() >= {"agent_radius": 0.18, "actuation_noise": 0.5, "gps_compass": False}.items()
    assert found.items() >= {"camera_height": 0.88, "hfov_deg": 70.0}.items()
    assert not {"forward_step", "max_steps", "height", "width"} & found.keys()


# Episodes shared out over processes: the figures of one, in the file's order


def play(ranks, path):
    evaluation = Evaluation(path, ranks.device, NavConfig(), ranks=ranks)
    return evaluation.play(ReferencePlayer("greedy", NavConfig())).episodes


@pytest.fixture
def episodes(tmp_path):
    path = tmp_path / "some.json.gz"
    EpisodeDataset(generate_episodes(load_scene("house:0"), 7)).save(path)
    return path


def test_each_rank_plays_its_share_and_knows_all_results(tmp_path, episodes):
    expected = play(Ranks(torch.device("cpu")), episodes)
    assert len(expected["spl"]) == 7
    for found in results_of(play, 2, tmp_path / "log", episodes):
        for name, values in expected.items():
            np.testing.assert_array_equal(found[name], values, err_msg=name)


# Reference agents play in the environment of a preset; policies keep that of their training

CPU = torch.device("cpu")


@pytest.mark.parametrize("task", [None, "objectnav"])
def test_agents_have_the_presets_environment(task):
    players = find_players(("random", "shortest_path"), CPU, task, preset="objectnav_mp3d")
    assert len(players) == 2
    assert all(player.config == PRESETS["objectnav_mp3d"] for player in players.values())


def test_without_a_preset_the_task_has_its_defaults():
    assert environment_of(None) == NavConfig()
    assert environment_of("objectnav").task_name == "objectnav"


@pytest.mark.parametrize(
    ("task", "preset", "message"),
    [
        (None, "objectnav_mp", "preset: found 'objectnav_mp', expected one of .*objectnav_mp3d"),
        ("pointnav", "ovon", "config: found ObjectNavConfig, expected PointNavConfig"),
    ],
)
def test_a_preset_must_exist_and_have_the_task(task, preset, message):
    with pytest.raises(ConfigError, match=message):
        environment_of(task, preset)


def test_policies_refuse_a_preset():
    with pytest.raises(ArgumentError, match="preset: found ovon with the policy objectnav_rgbd_small, expected"):
        find_players(("random", "objectnav_rgbd_small"), CPU, preset="ovon")


def test_results_of_each_preset_have_a_folder():
    options = Options(agents=("random",), preset="ovon", split="mini")
    assert default_folder(options, "objectnav").name == "eval_objectnav_mini_ovon"


# Policies with another camera than in training: a warning, or an error where the network cannot read its images

ONE = NavConfig(camera=CameraConfig(16, 16), cameras={"left": CameraConfig(16, 16)})
MANY = replace(
    ONE, camera=replace(ONE.camera, camera_height_range=(0.3, 1.6), hfov_range_deg=(55.0, 120.0), camera_pitch_deg=5.0)
)
NETWORK = policy_config(encoder="simple_cnn", visual_size=8, hidden_size=8, layers=0)
END = "; results may be worse than with the camera of training"


def policy(trained):
    torch.manual_seed(0)
    return ActorCritic(space_of(specs_of(trained)), trained.body.action_space, NETWORK)


@pytest.mark.parametrize(
    "make", [deployment_config, lambda agent, *camera: HabitatAgent(agent, "cpu", False, 0, *camera)]
)
@pytest.mark.parametrize(
    ("trained", "camera", "found"),
    [
        (ONE, (None, None), []),
        (ONE, (1.25, 90.0), []),
        (ONE, (0.88, 79.0), ["camera_height 0.88, trained with 1.25; hfov_deg 79, trained with 90"]),
        (MANY, (0.3, 120.0), []),
        (MANY, (1.7, None), ["camera_height 1.7, trained with 0.3 to 1.6"]),
        (MANY, (None, 50.0), ["hfov_deg 50, trained with 55 to 120"]),
    ],
)
def test_a_camera_outside_of_training_is_named(make, trained, camera, found, caplog):
    make(PolicyAgent(policy(trained), {"env": to_dict(trained)}), *camera)
    assert caplog.messages == [f"policy: found {text}{END}" for text in found]


def test_any_camera_of_an_environment_counts_once(tmp_path, caplog):
    """Height, field of view and tilt of all cameras. An image of another size is an error."""
    save_policy(policy(MANY), tmp_path / "mine.safetensors", {"env": to_dict(MANY)})
    player = PolicyPlayer(tmp_path / "mine.safetensors", torch.device("cpu"))
    (scene,) = load_all([str(write_floor(tmp_path / "floor.ply"))])

    def played(config):
        env = NavEnv([scene], 1, "cpu", config=config)
        for _ in range(2):  # as evaluation, videos and maps do
            agent = player.make_agent(env)
        evaluate(agent, env, 1)

    short = with_options(config_of(player.info), {"max_steps": 2})
    played(short)
    assert not caplog.messages
    tilted = replace(short, cameras={"left": CameraConfig(16, 16, hfov_deg=60.0)})
    played(with_options(tilted, {"camera_pitch_deg": -20.0, "camera_height": 0.2}))
    assert caplog.messages == [
        "mine: found camera_height 0.2, trained with 0.3 to 1.6; camera_pitch_deg -20, trained with 5; "
        f"left camera: hfov_deg 60, trained with 90{END}"
    ]
    with pytest.raises(ArgumentError, match=r"'depth'\]: found shape \[1, 1, 16, 24\], expected \[1, 1, 16, 16\]"):
        played(with_options(short, {"width": 24}))


# ObjectNav from episode files: every episode is played with the file's goals; the report has a row a category

SCENE, CATEGORIES = "house:3", ("chair", "bed")
CONFIG = with_options(NavConfig(sensors=(), task=ObjectNavConfig()), {"categories": CATEGORIES})


@pytest.fixture(scope="module")
def dataset():
    """Ten episodes with a chair and two beds, whose view points are squares around sampled points of a house."""
    navmesh = load_scene(SCENE, appearance=False).navmesh
    points = points_on_the_main_island(navmesh, 200).astype(np.float64)
    places = [square_around(navmesh, point).astype(np.float64) for point in points[:3]]
    goals = {"chair": [(1, places[0])], "bed": [(2, places[1]), (3, places[2])]}
    rotation = np.tile(rotation_of(0.0), (len(places[0]), 1))

    def file_goal(category, number, places):
        count, name = len(places), f"{category}_{number}"
        return FileGoal((0.0, 0.5, 0.0), number, category, name, places, rotation[:count], np.ones(count))

    found = {goals_key(SCENE, name): [file_goal(name, *goal) for goal in some] for name, some in goals.items()}
    episodes = [
        ObjectNavEpisode(str(k), SCENE, tuple(points[50 + k]), rotation_of(0.3 * k), object_category=CATEGORIES[k % 2])
        for k in range(10)
    ]
    return EpisodeDataset(
        episodes, "category", found, header_of({"chair": 0, "bed": 1}, {"chair": 3, "bed": 11}), "objectnav"
    )


def evaluation(dataset, path, config=CONFIG):
    dataset.save(path, content=False)
    return Evaluation(path, torch.device("cpu"), config)


def test_episodes_of_a_file_are_played_with_its_goals(dataset, tmp_path):
    found = evaluation(dataset, tmp_path / "val.json.gz")
    played = found.play(ReferencePlayer("shortest_path", CONFIG))
    assert played.episodes["success"].tolist() == [1.0] * 10 and played.episodes["category"].tolist() == [0.0, 1.0] * 5
    navmesh, goals = found.bank.scenes[0].navmesh, found.bank.scenes[0].goals
    assert [goal.object_id for goal in goals.objects] == [1, 2, 3] and goals.rules == "file"
    for episode, distance in zip(found.episodes, played.episodes["start_distance"], strict=True):
        points = goals.view_points(episode.object_category)
        starts = np.repeat(np.array([episode.start_position], np.float32), len(points), axis=0)
        assert distance == pytest.approx(navmesh.geodesic_distance(starts, points).min(), abs=1e-4)
    tables = breakdowns(found, [played], compared_by(ObjectNav.metric_specs))
    assert [(part.label, part.num_episodes) for part in tables["goal category"]] == [("chair", 5), ("bed", 5)]
    assert len(tables["geodesic distance to the goal"]) == 4


def test_goals_of_child_categories_count(dataset, tmp_path):
    children = {"chair": ("bed",), "bed": None}
    both = [dataclasses.replace(e, children_object_categories=children[e.object_category]) for e in dataset.episodes]
    found = evaluation(dataclasses.replace(dataset, episodes=both), tmp_path / "val.json.gz")
    goals = found.bank.scenes[0].goals
    assert sorted(goal.object_id for goal in goals.objects if goal.category == "chair") == [1, 2, 3]


def test_categories_that_the_task_lacks_are_refused(dataset, tmp_path):
    with pytest.raises(
        EpisodeError, match=r"val.json.gz: .*object_category.*found 'bed', expected one of the task's: chair; presets"
    ):
        other = with_options(CONFIG, {"categories": ("chair",)})
        evaluation(dataset, tmp_path / "val.json.gz", other).play(ReferencePlayer("shortest_path", other))


def test_missing_scenes_are_counted_and_left_out(tmp_path, caplog, run):
    """A file of three scenes, of which one is missing; names of scenes choose others."""
    file, out = tmp_path / "mine.json.gz", tmp_path / "out"
    EpisodeDataset([episode for name in "abc" for episode in episodes_on(f"{name}.ply", 2)]).save(file)
    evaluate = "evaluate", "greedy", "--episodes", file, "--device", "cpu", "--scenes-dir", tmp_path, "--out", out
    with pytest.raises(SystemExit, match=r"3 of 3 scenes are missing$"):  # no others to play
        run(*evaluate, "--skip-missing")
    for name in ("a", "b"):
        write_floor(tmp_path / f"{name}.ply")
    with pytest.raises(SystemExit, match=r"c\.ply.*; 1 of 3 scenes are missing: --skip-missing plays the others"):
        run(*evaluate)
    run(*evaluate, "--skip-missing")
    assert "left out 2 of 6 episodes in 1 of 3 scenes whose files are missing: c.ply" in caplog.text
    assert len(json.loads((tmp_path / "out/results.json").read_text())["episodes"]) == 4
    run(*evaluate, "--content-scenes", "a")
    assert len(json.loads((tmp_path / "out/results.json").read_text())["episodes"]) == 2
    with pytest.raises(SystemExit, match="content_scenes: found d, expected scenes of the file: a, b, c"):
        run(*evaluate, "--content-scenes", "d")


def test_packages_are_asked_for_before_episodes_are_played(monkeypatch, run):
    monkeypatch.setitem(sys.modules, "av", None)
    monkeypatch.setattr(Evaluation, "__init__", None)
    with pytest.raises(SystemExit, match="--videos mp4: found no PyAV, expected it: pip install"):
        run("evaluate", "greedy", "--videos", "mp4", "--device", "cpu")
