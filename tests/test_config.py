"""Configuration files: accepted values, bases, presets, and errors that name the key."""

import dataclasses
import itertools
import pickle
from pathlib import Path

import numpy as np
import pytest

from batchnav.cartpole.program import CartPoleRun
from batchnav.config import (
    CHOICES,
    Registry,
    bounded,
    chosen_settings,
    from_dict,
    load_config,
    sectioned,
    to_dict,
    validate,
)
from batchnav.envs.config import PRESETS, NavConfig
from batchnav.errors import ConfigError
from batchnav.runtime.command_line import parse_options
from batchnav.sensors.camera import CameraConfig
from batchnav.sensors.rgb import RGBConfig
from batchnav.tasks.flee import FleeConfig
from batchnav.tasks.pointnav import PointNavConfig
from batchnav.training.config import TrainingConfig

ROOT = Path(__file__).parents[1]
CONFIGS, STUDIES = ROOT / "configs", ROOT / "eval" / "studies" / "configs"


def bomb(kind, letters="abcdefghij"):
    """YAML in which every line repeats the previous line ten times."""
    lines = []
    for before, letter in itertools.pairwise(letters):
        many = ", ".join([f"*{before}"] * 10)
        lines.append(f"{letter}: &{letter} " + (f"[{many}]" if kind is list else f"{{<<: [{many}]}}"))
    return "\n".join(lines)


@pytest.mark.parametrize("path", sorted([*CONFIGS.glob("*.yaml"), *STUDIES.glob("*.yaml")]), ids=lambda p: p.name)
def test_every_configuration_in_the_checkout_is_valid(path):
    load_config(path, CartPoleRun if path.name.startswith("cartpole") else TrainingConfig)


def test_at_most_twelve_bundled_configurations():
    paths = sorted(CONFIGS.glob("*.yaml"))
    assert len(paths) <= 12 and all(path.stem.count("_") >= 1 for path in paths)
    assert not any(load_config(path, TrainingConfig).init_from for path in paths if "cartpole" not in path.name)


def test_configuration_equals_itself_after_to_dict_and_from_dict():
    run = load_config(CONFIGS / "pointnav_depth_h200.yaml", TrainingConfig)
    assert from_dict(TrainingConfig, to_dict(run)) == run


@pytest.mark.parametrize(("name", "value"), [("samples", 2), ("samples", True), ("rgb_noise", "Gaussian")])
def test_invalid_choices_are_refused_in_python_too(name, value):
    with pytest.raises(ConfigError, match=f"{name}: found {value!r}, expected one of"):
        validate(TrainingConfig(env=NavConfig(rgb=RGBConfig(**{name: value}))))


def test_numpy_numbers_are_accepted():
    camera = from_dict(CameraConfig, {"height": np.int64(8), "hfov_deg": np.float32(70.0)})
    assert camera == CameraConfig(height=8, hfov_deg=70.0) and type(camera.height) is int
    with pytest.raises(ConfigError, match="height: found True, expected int"):
        from_dict(CameraConfig, {"height": True})


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
        ("env: {rgb: {samples: 2}}", ["rgb.samples", "found 2", "one of 1, 4"]),
        ("env: {rgb: {samples: true}}", ["rgb.samples", "found True", "one of 1, 4"]),
        ("ppo: 3", ["ppo", "3"]),
        ("scenes: {houses: 0}", ["scenes", "neither"]),
        ("scenes: {sources: one.glb}", ["sources", "list"]),
        ("env: {depth: {max_depth: -1}}", ["max_depth", "-1"]),
        ("scenes: {first_house: 100000}", ["first_house", "found 100000", "expected", "0 to 99999", "house:100015"]),
        ("scenes: {first_house: 99990, houses: 11}", ["first_house", "99990 to 100000", "0 to 99999"]),
        ("scenes: {first_house: 120000, houses: 1}", ["first_house", "120000"]),
        ("scenes: {resident_scenes: 1}", ["resident_scenes", "found 1"]),
        ("{scenes: {resident_scenes: 4}, renderer: opengl}", ["renderer", "opengl", "raycast"]),
        ("{scenes: {gigabytes: 4.0}, renderer: opengl}", ["renderer", "opengl", "raycast"]),
        ("scenes: {gigabytes: 4.0, episodes: val.json.gz}", ["gigabytes", "found 4.0", "episode"]),
        ("scenes: {gigabytes: -1.0}", ["gigabytes", "found -1"]),
        ("seed: -1", ["seed", "-1"]),
        ("- a list", ["mapping"]),
        ("a: [", ["YAML"]),
        ("ppo: {num_envs: 2026-01-01}", ["ppo.num_envs", "2026, 1, 1"]),
        ("seed: 2026-99-99", ["YAML", "month"]),
        ('seed: !!int ""', ["YAML"]),
        ('seed: !!int "-"', ["YAML"]),
        ('seed: !!float "_"', ["YAML"]),
        (r'device: "\UFFFFFFFF"', ["YAML"]),
        ("seed: !!float " + ":".join(["1"] * 200), ["YAML"]),
        ("seed: !!int abc", ["YAML", "abc"]),
        ("seed: !!float abc", ["YAML", "abc"]),
        ("seed: !!bool abc", ["YAML", "abc"]),
        ("seed: !!timestamp abc", ["YAML"]),
        ("device: !!binary é", ["YAML"]),
        ("device: !!python/object/apply:os.getcwd []", ["YAML", "python"]),
        ("seed: " + "9" * 5000, ["YAML", "digits"]),
        ("seed: 0x" + "f" * 5000, ["seed", "too long to be shown"]),
        ("ppo: {gamma: 0x" + "f" * 5000 + "}", ["ppo.gamma", "too long to be shown"]),
        ("ppo: {optimizer: " + "x" * 50_000 + "}", ["optimizer", "xxx...xxx"]),
        ("ppo: {? " + "x" * 50_000 + " : 1}", ["xxx...xxx", "unknown key"]),
        ('"two\\nlines": 1', ["two\\nlines", "unknown key"]),
        ("? [1, 2]\n: 3", ["YAML", "unhashable"]),
        ("1: 2", ["1: unknown key"]),
        ("device: " + "[" * 100_000, ["YAML", "32 levels"]),
        ("- " * 5000, ["YAML", "32 levels"]),
        ("device: &a [*a]", ["YAML", "aliases"]),
        ("a: &a [x]\n" + bomb(list), ["YAML", "aliases", "100,000"]),
        ("a: &a {x: 1}\n" + bomb(dict), ["YAML", "aliases", "100,000"]),
        ("#" * 2**20 + "\nseed: 1", ["too large", "1,048,576"]),
        ("seed: 1\nppo: {gamma: 0.9}\nseed: 2", ["line 3 gives the key 'seed' a second time"]),
        ("ppo:\n  gamma: 0.9\n  gamma: 0.9", ["line 3 gives the key 'gamma' a second time"]),
    ],
)
def test_errors_name_file_key_and_value(tmp_path, text, words):
    path = tmp_path / "bad.yaml"
    path.write_text(text)
    with pytest.raises(ConfigError) as error:
        load_config(path, TrainingConfig)
    message = str(error.value)
    assert all(word in message for word in [path.name, *words])
    assert "\n" not in message and len(message) < 500 + len(str(path))


def test_small_aliases_and_merges_are_read(tmp_path):
    path = tmp_path / "good.yaml"
    path.write_text("ppo: {num_envs: &n 8, minibatches: *n}\npolicy: {<<: {hidden_size: 9}, visual_size: 7}")
    run = load_config(path, TrainingConfig)
    assert (run.ppo.minibatches, run.policy.hidden_size, run.policy.visual_size) == (8, 9, 7)


def test_binary_files_are_refused(tmp_path):
    path = tmp_path / "bad.yaml"
    for data in (b"seed: \xff", b"seed: 1\x00", b"\xff\xfes\x00"):
        path.write_bytes(data)
        with pytest.raises(ConfigError, match=r"bad\.yaml: is not YAML"):
            load_config(path, TrainingConfig)


def test_houses_of_other_splits_are_allowed_as_sources():
    config = from_dict(TrainingConfig, {"scenes": {"houses": 1, "first_house": 99_999, "sources": ["house:100003"]}})
    assert config.scenes.names == ["house:99999", "house:100003"]
    from_dict(TrainingConfig, {"scenes": {"houses": 0, "first_house": 100_000, "sources": ["house:110000"]}})


def test_error_names_a_missing_file(tmp_path):
    with pytest.raises(ConfigError, match="nowhere"):
        load_config(tmp_path / "nowhere.yaml", TrainingConfig)


def test_configuration_inherits_from_its_base(tmp_path):
    (tmp_path / "first.yaml").write_text("ppo: {num_envs: 8, gamma: 0.9}\nenv: {sensors: [depth, rgb]}\nseed: 3")
    (tmp_path / "second.yaml").write_text("base: first\nppo: {num_envs: 16}\nenv: {camera: {height: 32}}")
    path = tmp_path / "third.yaml"
    path.write_text("base: second.yaml\nenv: {sensors: [rgb]}")
    run = load_config(path, TrainingConfig)
    assert (run.ppo.num_envs, run.ppo.gamma, run.seed) == (16, 0.9, 3)
    assert run.env.sensors == ("rgb",) and run.env.camera.height == 32
    path.write_text("base: pointnav_depth_cpu\nseed: 5")
    expected = load_config(CONFIGS / "pointnav_depth_cpu.yaml", TrainingConfig)
    assert load_config(path, TrainingConfig) == dataclasses.replace(expected, seed=5)


def test_another_task_replaces_the_settings_of_the_base(tmp_path):
    (tmp_path / "first.yaml").write_text("env: {task: {name: pointnav, success_distance: 0.5}}")
    path = tmp_path / "second.yaml"
    path.write_text("base: first\nenv: {task: {name: flee}}")
    assert load_config(path, TrainingConfig).env.task == FleeConfig()
    path.write_text("base: first\nenv: {task: {max_steps: 7}}")
    assert load_config(path, TrainingConfig).env.task == PointNavConfig(success_distance=0.5, max_steps=7)


def test_long_chains_and_long_names_of_bases_are_refused(tmp_path):
    for k in range(1500):
        (tmp_path / f"c{k}.yaml").write_text(f"base: c{k + 1}")
    with pytest.raises(ConfigError, match=r"c32\.yaml: base: found more than 32 files"):
        load_config(tmp_path / "c0.yaml", TrainingConfig)
    (tmp_path / "long.yaml").write_text("base: " + "x" * 5000)
    with pytest.raises(ConfigError, match=r"long\.yaml: base: .*expected a shorter path") as error:
        load_config(tmp_path / "long.yaml", TrainingConfig)
    assert len(str(error.value)) < 500 + len(str(tmp_path))


def test_errors_for_missing_and_circular_bases_name_the_chain(tmp_path):
    for name, base in (("a", "b"), ("b", "c"), ("c", "a"), ("d", "nowhere"), ("e", "[1]"), ("f", "f")):
        (tmp_path / f"{name}.yaml").write_text(f"base: {base}")
    for name, words in (
        ("a", r"c\.yaml: base: found a cycle, a\.yaml -> b\.yaml -> c\.yaml -> a\.yaml, expected a chain that ends"),
        ("d", r"d\.yaml: base: nowhere: no such file.*pointnav_depth_cpu.*\(read through d\.yaml\)"),
        ("e", r"e\.yaml: base: found \[1\], expected the name or the path of a configuration"),
        ("f", r"found a cycle, f\.yaml -> f\.yaml"),
    ):
        with pytest.raises(ConfigError, match=words):
            load_config(tmp_path / f"{name}.yaml", TrainingConfig)


def test_preset_sets_defaults_of_the_environment():
    run = from_dict(TrainingConfig, {"env": {"preset": "challenge_2021", "camera": {"height": 36}}})
    assert run.env.camera == dataclasses.replace(PRESETS["challenge_2021"].camera, height=36)
    assert run.env.body == PRESETS["challenge_2021"].body
    with pytest.raises(ConfigError, match=r"env\.preset: found 'x', expected one of habitat_pointnav_v1"):
        from_dict(TrainingConfig, {"env": {"preset": "x"}})


PARTS = Registry()
"""Parts of `Assembly`, by name."""


class Wheel:
    """A part with settings."""

    @dataclasses.dataclass(frozen=True)
    class Config:
        spokes: int = bounded(8, 1, 64)


class Seat:
    """A part without settings."""


@sectioned
@dataclasses.dataclass(frozen=True)
class Assembly:
    """A configuration that chooses one part."""

    part: str = dataclasses.field(default="seat", metadata={CHOICES: (PARTS,)})
    size: int = bounded(1, 1, 9)


@dataclasses.dataclass(frozen=True)
class Whole:
    inner: Assembly = dataclasses.field(default_factory=Assembly)


@pytest.fixture
def parts(monkeypatch):
    monkeypatch.setitem(PARTS, "seat", Seat)
    monkeypatch.setitem(PARTS, "wheel", Wheel)
    return PARTS


def test_a_part_that_is_registered_later_has_a_section(monkeypatch):
    before = Assembly()
    monkeypatch.setitem(PARTS, "wheel", Wheel)
    values = {"part": "wheel", "wheel": {"spokes": 3}}
    found = from_dict(Whole, {"inner": values}).inner
    assert found == Assembly("wheel", wheel=Wheel.Config(3)) and chosen_settings(found, "part") == (Wheel.Config(3),)
    assert to_dict(found) == values | {"size": 1} and pickle.loads(pickle.dumps(found)) == found
    assert dataclasses.replace(before, part="wheel") == Assembly("wheel")
    assert parse_options(Whole, "p", ["--inner.wheel.spokes", "5"]).inner.wheel.spokes == 5
    monkeypatch.undo()
    with pytest.raises(ConfigError, match=r"inner\.wheel: unknown key"):
        from_dict(Whole, {"inner": values})


def test_only_sections_in_use_are_written(parts):
    config = Assembly("seat", wheel=Wheel.Config(3))
    assert to_dict(config) == {"part": "seat", "size": 1} and chosen_settings(config, "part") == ()
    with pytest.raises(ConfigError, match="part: found 'x', expected one of seat, wheel"):
        chosen_settings(Assembly("x"), "part")


def test_ranges_of_fields_are_checked_in_files_and_after_the_command_line(parts):
    with pytest.raises(ConfigError, match=r"^inner\.wheel\.spokes: found 65, expected 1 to 64"):
        from_dict(Whole, {"inner": {"wheel": {"spokes": 65}}})
    with pytest.raises(ConfigError, match=r"^inner\.size: found 0, expected 1 to 9"):
        validate(Whole(Assembly(size=0)))


def test_a_part_with_the_name_of_a_key_is_refused():
    with pytest.raises(ConfigError, match="size: found a part of this name, expected another: Assembly has such a key"):
        PARTS["size"] = Wheel
    assert "size" not in PARTS
