"""What an evaluation plays in."""

from types import SimpleNamespace

import numpy as np
import pytest
import torch
from ranks import results_of
from worlds import write_episodes, write_floor

from batchnav.cli.evaluate import Options
from batchnav.cli.measure import default_folder
from batchnav.data.formats import EpisodeDataset
from batchnav.data.goals.point import generate_episodes
from batchnav.data.scenes.load import load_scene
from batchnav.envs.config import PRESETS, NavConfig
from batchnav.errors import ArgumentError, ConfigError, NavMeshError
from batchnav.evaluation.players import ReferencePlayer, environment_of, find_players
from batchnav.evaluation.run import Evaluation, non_default_settings
from batchnav.navmesh.navmesh import NavMesh
from batchnav.runtime import console
from batchnav.runtime.distributed import Ranks
from batchnav.scene.mesh import load_mesh
from batchnav.sim.bodies import BodyConfig
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
    assert random[1].startswith("episodes of random: 1 of 3, step 17 of at most 30, at most ")
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
