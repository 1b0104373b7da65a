"""Configuration files: what is read, and what is refused by name."""

from pathlib import Path

import pytest

from batchnav.config import CartPoleRun, PointNavRun, from_dict, load_config, to_dict
from batchnav.errors import ConfigError

CONFIGS = Path(__file__).parents[1] / "configs"


@pytest.mark.parametrize("path", sorted(CONFIGS.glob("*.yaml")), ids=lambda p: p.name)
def test_every_configuration_in_the_checkout_is_valid(path):
    load_config(path, CartPoleRun if path.name.startswith("cartpole") else PointNavRun)


def test_a_configuration_survives_the_round_trip():
    run = load_config(CONFIGS / "pointnav_h200.yaml", PointNavRun)
    assert from_dict(PointNavRun, to_dict(run)) == run


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("ppo: {num_env: 4}", ["ppo.num_env", "num_envs"]),
        ("ppo: {num_envs: many}", ["ppo.num_envs", "many"]),
        ("ppo: {num_envs: 2.5}", ["ppo.num_envs", "2.5"]),
        ("ppo: {num_envs: true}", ["ppo.num_envs", "True"]),
        ("ppo: {num_envs: 5, minibatches: 2}", ["minibatches", "divisor"]),
        ("ppo: {learning_rate: 1e-3}", ["learning_rate", "1.0e-3"]),
        ("ppo: {gamma: .nan}", ["gamma", "nan"]),
        ("ppo: {optimizer: sgd}", ["optimizer", "sgd", "lamb"]),
        ("ppo: 3", ["ppo", "3"]),
        ("scenes: {houses: 0}", ["scenes", "neither"]),
        ("scenes: {files: one.glb}", ["files", "list"]),
        ("task: {max_depth: -1}", ["max_depth", "-1"]),
        ("scenes: {first_house: 100000}", ["first_house", "found 100000", "expected", "0 to 99999", "house:100015"]),
        ("scenes: {first_house: 99990, houses: 11}", ["first_house", "99990 to 100000", "0 to 99999"]),
        ("scenes: {first_house: 120000, houses: 1}", ["first_house", "120000"]),
        ("scenes: {slots: 1}", ["slots", "found 1"]),
        ("{scenes: {slots: 4}, renderer: opengl}", ["renderer", "opengl", "raycast"]),
        ("{scenes: {gigabytes: 4.0}, renderer: opengl}", ["renderer", "opengl", "raycast"]),
        ("scenes: {gigabytes: 4.0, episodes: val.json.gz}", ["gigabytes", "found 4.0", "episode"]),
        ("scenes: {gigabytes: -1.0}", ["gigabytes", "found -1"]),
        ("seed: -1", ["seed", "-1"]),
        ("- a list", ["mapping"]),
        ("a: [", ["YAML"]),
    ],
)
def test_bad_configurations_are_named(tmp_path, text, words):
    path = tmp_path / "bad.yaml"
    path.write_text(text)
    with pytest.raises(ConfigError) as error:
        load_config(path, PointNavRun)
    assert all(word in str(error.value) for word in [path.name, *words])


def test_houses_of_other_splits_go_by_name():
    config = from_dict(PointNavRun, {"scenes": {"houses": 1, "first_house": 99_999, "files": ["house:100003"]}})
    assert config.scenes.names == ["house:99999", "house:100003"]
    from_dict(PointNavRun, {"scenes": {"houses": 0, "first_house": 100_000, "files": ["house:110000"]}})


def test_a_missing_file_is_named(tmp_path):
    with pytest.raises(ConfigError, match="nowhere"):
        load_config(tmp_path / "nowhere.yaml", PointNavRun)
