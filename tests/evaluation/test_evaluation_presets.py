"""Reference agents play in the environment of a preset; policies keep that of their training."""

import pytest
import torch

from batchnav.cli.evaluate import Options
from batchnav.cli.measure import default_folder
from batchnav.envs.config import PRESETS, NavConfig
from batchnav.errors import ArgumentError, ConfigError
from batchnav.evaluation.players import environment_of, find_players

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
