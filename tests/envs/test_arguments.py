"""Checks of `NavEnv`'s arguments, of the order of calls, and of loaded states."""

import copy
import dataclasses
import os
import pickle

import numpy as np
import pytest
import torch
from gymnasium.vector import AutoresetMode
from labelled import labelled_scene

from batchnav.cartpole.env import CartPoleEnv
from batchnav.data.episodes import episode_table
from batchnav.data.formats import EpisodeDataset, load_episodes
from batchnav.data.goals.point import generate_episodes
from batchnav.data.scenes.load import load_scene
from batchnav.envs.arguments import EnvOptions
from batchnav.envs.config import PRESETS, nav_config
from batchnav.envs.nav import NavEnv
from batchnav.errors import ArgumentError, CheckpointError, EpisodeError
from batchnav.runtime.kernels.graphs import Graphs
from batchnav.scene.bank import SceneBank
from batchnav.sensors.frame import write_observations
from batchnav.sim.bodies import BodyConfig
from batchnav.sim.simulator import Simulator
from batchnav.tasks.episode_sampling import EpisodeTable

N = 3


@pytest.fixture(scope="module")
def bank():
    return SceneBank.pack([load_scene("house:3"), load_scene("house:4")], "cpu")


def make(bank, **options):
    return NavEnv(**{"scenes": bank, "num_envs": N, "height": 16, "width": 16, **options})


@pytest.mark.parametrize(
    ("name", "value"),
    [
        *(("num_envs", value) for value in (True, 0, -1, 2.0, "4", None, 10**12)),
        *(("seed", value) for value in (True, -1, 1.5, "a", 2**63, 2**64)),
        *(("output", value) for value in (None, "jax")),
        *(("autoreset_mode", value) for value in (None, "SOMETIMES")),
        *(("scenes", value) for value in (None, 5, [], "house:3", ["house:3"], [None])),
        *(("height", value) for value in ("16", 16.0, -16, None)),
        *(("task", value) for value in (None, [], "pointnaf")),
        *(("sensors", value) for value in (5, "depth", [[]], ["dept"])),
        *(("config", value) for value in (5, {}, [])),
        *(("episodes", value) for value in (5, [])),
        *(("renderer", value) for value in (5, [], "ray")),
        *(("material_library", value) for value in (5, True, [])),
    ],
)
def test_arguments_of_the_wrong_kind_are_named(bank, name, value):
    with pytest.raises(ArgumentError, match=f"{name}.*found .*expected|preset: found"):
        make(bank, **{name: value})


def test_loaded_episodes_are_played_in_turn(bank, tmp_path):
    scene = bank.scenes[0]
    EpisodeDataset(generate_episodes(scene, 4, seed=2)).save(tmp_path / "few.json.gz")
    episodes = load_episodes(tmp_path / "few.json.gz")
    table = episode_table(episodes, bank.names, "cpu")
    seen, expected = (
        make(bank, num_envs=4, episodes=given).reset()[0]["pointgoal"].clone() for given in (episodes, table)
    )
    assert torch.equal(seen, expected)
    with pytest.raises(EpisodeError, match=r"'scene_id': found 'house:9', which .*the scenes: house:3, house:4"):
        make(bank, episodes=[dataclasses.replace(episodes[0], scene_id="house:9")])
    with pytest.raises(EpisodeError, match=r"'start_position'.*navmesh"):
        make(bank, episodes=[dataclasses.replace(episodes[0], start_position=(90.0, 0.0, 0.0))])
    with pytest.raises(ArgumentError, match=r"episodes: found .*few.json.gz', expected .*batchnav.load_episodes"):
        make(bank, episodes=str(tmp_path / "few.json.gz"))


@pytest.mark.parametrize(
    ("task", "name"), [("pointnav", "pointgoal"), ("objectnav", "objectgoal"), ("imagenav", "imagegoal")]
)
def test_observations_of_the_task_are_no_sensors(bank, task, name):
    with pytest.raises(ArgumentError, match=f"sensors: found '{name}', expected sensors alone: the task {task} adds"):
        make(bank, task=task, sensors=("depth", name))


def test_goals_that_are_objects_need_their_ids(caplog):
    bare = load_scene("house:3", appearance=False)
    bare = bare._replace(mesh=bare.mesh._replace(surface=None))
    for task in ("objectnav", "instance_imagenav"):
        with pytest.raises(ArgumentError, match=f"'house:3' without object ids, .* since .* {task} are obj"):
            make([bare], task=task)
    room = labelled_scene([("chair", (1.0, 0.0, 1.0), (1.5, 1.0, 1.5))])
    make([room], task="objectnav", categories=("chair", "sofa"), device="cpu")
    assert "categories without a goal in these scenes, so without episodes: sofa" in caplog.text


def test_environments_are_neither_copied_nor_pickled(bank):
    env = make(bank)
    for copied in (copy.deepcopy, pickle.dumps):
        with pytest.raises(ArgumentError, match="NavEnv: cannot be copied or pickled"):
            copied(env)


def test_a_bank_keeps_its_device(bank, monkeypatch):
    assert make(bank, device="cpu").device == make(bank, device="auto").device == bank.device
    monkeypatch.setattr("batchnav.envs.arguments.resolve_device", torch.device)
    with pytest.raises(ArgumentError, match="device: found 'cuda:0' with a bank on cpu"):
        make(bank, device="cuda:0")


@pytest.mark.parametrize("mask", [None, "all", [[True], []], [1, 0, 1]])
def test_an_invalid_mask_is_named(bank, mask):
    env = make(bank)
    env.reset()
    with pytest.raises(ArgumentError, match="reset_mask: found"):
        env.reset(options={"reset_mask": mask})


def test_numpys_integers_are_integers(bank):
    env = make(bank, num_envs=np.int64(2), seed=np.uint8(7))
    assert type(env.num_envs) is int and env.reset(seed=np.int32(3))[0]["depth"].shape[0] == 2


@pytest.mark.parametrize("seed", [True, -1, 1.5, "a", 2**63, 2**64, [3], [4, 3], [3, None], [[3, 4]], [0.0, 1.0], []])
def test_an_invalid_seed_changes_nothing(bank, seed):
    env = make(bank, seed=4)
    env.reset()
    before = env.state_dict()
    with pytest.raises(ArgumentError, match="seed: found"):
        env.reset(seed=seed)
    assert all(torch.equal(value, before[name]) for name, value in env.state_dict().items())


def test_consecutive_seeds_are_those_that_gymnasium_makes_of_one(bank):
    """A seed per environment, as in Gymnasium's vector API; None for each environment continues the run."""
    env, other = make(bank, num_envs=2, seed=4), make(bank, num_envs=2, seed=4)
    for seed, same in (([7, 8], 7), (np.array([9, 10]), 9), ((5, 6), 5), ([None, None], None)):
        found, expected = env.reset(seed=seed)[0], other.reset(seed=same)[0]
        assert all(torch.equal(found[name], expected[name]) for name in expected)


@pytest.mark.parametrize("changed", [{"num_envs": 0}, {"seed": 2**64}, {"num_envs": -5}])
def test_a_simulator_checks_its_numbers_itself(bank, changed):
    with pytest.raises(ArgumentError, match="found"):
        Simulator(**{"bank": bank, "num_envs": N, "body": BodyConfig(), "make_task": None, "seed": 0, **changed})


@pytest.mark.parametrize("number", [0, -3, True, "2"])
def test_a_number_of_episodes_is_checked(number):
    with pytest.raises(ArgumentError, match="number: found"):
        generate_episodes(load_scene("house:3"), number)


def test_a_step_before_the_first_reset_is_refused(bank):
    env = make(bank)
    for call in (lambda: env.step(torch.ones(N, dtype=torch.int64)), env.observe, env.state_dict):
        with pytest.raises(ArgumentError, match="NavEnv: found no running episodes, expected a call of reset"):
            call()
    assert env.between_rollouts() == {}


def test_a_loaded_state_can_be_stepped_without_a_reset(bank):
    env, other = make(bank), make(bank, seed=9)
    env.reset()
    other.load_state_dict(env.state_dict())
    move = torch.ones(N, dtype=torch.int64)
    assert torch.equal(env.step(move)[0]["depth"], other.step(move)[0]["depth"])


def test_a_closed_environment_is_refused(bank):
    env = make(bank)
    env.reset()
    state = env.state_dict()
    env.close()
    env.close()  # a second call has no effect
    calls = [
        env.reset, lambda: env.step(torch.ones(N, dtype=torch.int64)), env.observe, lambda: env.observe_into(None),
        env.settle, env.observe_again, env.between_rollouts, env.state_dict, lambda: env.load_state_dict(state),
    ]  # fmt: skip
    for call in calls:
        with pytest.raises(ArgumentError, match="NavEnv: found a closed environment"):
            call()


@pytest.mark.parametrize(
    ("name", "value"),
    [
        *(("scene", value) for value in (-1, 2, 10**6)),
        *(("position", value) for value in (float("nan"), float("inf"), 3e38, 1e9, 50.0, -7.0)),
        *((name, value) for name in ("heading", "start_heading", "goal") for value in (float("nan"), -float("inf"))),
        *((name, value) for name in ("heading", "start_heading", "goal", "start", "tilt") for value in (1e30, -1e30)),
        *(("episode", value) for value in (-2, -(2**31))),
        *(("steps", value) for value in (-1, -(2**31))),
        ("collisions", -1),
        ("path_length", -0.5),
        *(("table_index", value) for value in (-2, 2, 2**31 - 1)),
    ],
)
def test_a_tampered_state_is_refused_and_changes_nothing(bank, name, value):
    episodes = bank_episodes(bank)
    env = make(bank, episodes=episodes)
    env.reset()
    state = env.state_dict()
    bad = state[name].clone()
    bad[1] = value
    with pytest.raises(CheckpointError, match=f"environment state '{name}'.*found"):
        env.load_state_dict({**state, name: bad})
    assert all(torch.equal(value, state[name]) for name, value in env.state_dict().items())
    env.step(torch.ones(N, dtype=torch.int64))


@pytest.mark.parametrize("name", ["heading", "goal", "goal_heading"])
@pytest.mark.parametrize("value", [1e30, float("inf"), float("nan")])
def test_numbers_of_a_table_out_of_range_are_refused(bank, name, value):
    table = bank_episodes(bank)._replace(goal_heading=torch.zeros(2))
    getattr(table, name)[1] = value
    with pytest.raises(EpisodeError, match=rf"episodes.{name}\[1\]: found .*, expected numbers from -1e\+06 to 1e\+06"):
        make(bank, episodes=table)


ODD = {
    "meta": lambda tensor: torch.empty_like(tensor, device="meta"), "sparse": lambda tensor: tensor.to_sparse(),
    "quantized": lambda tensor: torch._empty_affine_quantized(tensor.shape, scale=0.1, zero_point=0, dtype=torch.qint8),
}  # fmt: skip
"""Tensors whose values cannot be read as those of others are."""


@pytest.mark.parametrize("kind", ODD)
def test_odd_tensors_are_refused(bank, kind):
    odd = ODD[kind]
    env = make(bank)
    env.reset()
    state = env.state_dict()
    with pytest.raises(ArgumentError, match="actions: found torch"):
        env.step(odd(torch.ones(N, dtype=torch.int64)))
    with pytest.raises(ArgumentError, match="reset_mask: found torch"):
        env.reset(options={"reset_mask": odd(torch.ones(N, dtype=torch.bool))})
    for name in ("position", "scene", "done"):
        with pytest.raises(CheckpointError, match=f"environment state '{name}': found torch.* expected torch"):
            env.load_state_dict({**state, name: odd(state[name])})
    assert all(torch.equal(value, state[name]) for name, value in env.state_dict().items())
    carts = CartPoleEnv(2)
    carts.reset()
    with pytest.raises(ArgumentError, match="actions: found torch"):
        carts.step(odd(torch.ones(2, dtype=torch.int64)))
    with pytest.raises(CheckpointError, match="state: found torch"):
        carts.load_state_dict({**carts.state_dict(), "state": odd(carts.state_dict()["state"])})


@pytest.mark.parametrize("options", [5, "reset_mask", ["reset_mask"], torch.ones(2), {5: 1}])
def test_other_options_of_reset_are_refused(bank, options):
    env = make(bank)
    for each in (env, CartPoleEnv(2)):
        with pytest.raises(ArgumentError, match=r"options: found .*, expected"):
            each.reset(options=options)


def bank_episodes(bank):
    """A table of two episodes."""
    episodes = generate_episodes(bank.scenes[0], 2)
    return EpisodeTable(
        scene=torch.zeros(2, dtype=torch.int32),
        start=torch.tensor([e.start_position for e in episodes]),
        heading=torch.tensor([e.heading for e in episodes]),
        goal=torch.tensor([e.goals[0].position for e in episodes]),
    )


def test_every_state_of_a_run_can_be_loaded(bank):
    env, draw = make(bank, num_envs=64), torch.Generator().manual_seed(0)
    env.reset()
    for _ in range(60):
        env.step(torch.randint(1, 4, (64,), generator=draw))
        env.load_state_dict(env.state_dict())


@pytest.mark.parametrize(
    ("change", "found"),
    [
        ({"rgb": torch.zeros(N, 3, 16, 15, dtype=torch.uint8)}, r"'rgb'\]: found torch.uint8 \[3, 3, 16, 15\]"),
        ({"rgb": torch.zeros(N, 3, 16, 16)}, r"'rgb'\]: found torch.float32 .*, expected torch.uint8 \[3, 3, 16, 16\]"),
        ({"depth": torch.zeros(N + 1, 1, 16, 16)}, r"'depth'\]: found torch.float32 \[4, 1, 16, 16\]"),
        ({"depth": torch.zeros(N, 1, 16, 32)[..., ::2]}, r"'depth'\]: found strides \[512, 512, 32, 2\], .*contiguous"),
        ({"depth": torch.zeros(N, 1, 16, 16, device="meta")}, r"'depth'\]: found .* on meta, expected .* on cpu"),
        ({"depth": np.zeros((N, 1, 16, 16), np.float32)}, r"'depth'\]: found ndarray, expected a torch tensor"),
        ({"gps": torch.zeros(N, 2, dtype=torch.float64)}, r"'gps'\]: found torch.float64"),
        ({"pointgoal": torch.zeros(N, 3)}, r"'pointgoal'\]: found torch.float32 \[3, 3\]"),
    ],
)
def test_observation_tensors_are_checked(change, found):
    bank = SceneBank.pack([load_scene("house:3", appearance=True)], "cpu", appearance=True)
    env = make(bank, sensors=("depth", "rgb", "gps"))
    env.reset()
    good = {name: value.clone() for name, value in env.last_observation.items()}
    with pytest.raises(ArgumentError, match=rf"observations\[{found}"):
        env.observe_into(good | change)
    if not {"gps", "pointgoal"} & change.keys():
        with pytest.raises(ArgumentError, match=rf"observations\[{found}"):
            write_observations(env.frame, env.sources, good | change)
    env.observe_into(good | {"added": change})  # observations that a wrapper adds are ignored
    assert env.step(torch.ones(N, dtype=torch.int64))[0]["rgb"] is good["rgb"]
    with pytest.raises(ArgumentError, match="observations: found Tensor, expected tensors by name"):
        env.observe_into(torch.zeros(3))


def test_maps_that_exceed_the_memory_are_refused_before_they_are_made(bank, monkeypatch):
    """A map takes about 104 kB, so 16,384 agents need 1.7 GB; the machine here has 1.1 GB."""
    pages = {"SC_PAGE_SIZE": 4096, "SC_PHYS_PAGES": 2**18}
    monkeypatch.setattr(os, "sysconf", lambda name: pages[name])
    with pytest.raises(ArgumentError, match=r"num_envs, sensors: found 1\.7 GB in all, expected less than the 1\.1 GB"):
        make(bank, num_envs=16384, sensors=("ego_map",))
    assert make(bank, num_envs=64, sensors=("ego_map",)).mapper is not None


# Options of `NavEnv` that are not part of its configuration


def test_keyword_arguments_are_split():
    options, others = EnvOptions.split({"copy": False, "height": 8, "autoreset_mode": "NEXT_STEP"})
    assert options == EnvOptions(copy=False, autoreset_mode=AutoresetMode.NEXT_STEP)
    assert others == {"height": 8}


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"renderer": 1}, "renderer: found 1, expected a name"),
        ({"output": "jax"}, "output: found 'jax', expected one of torch, numpy"),
        ({"autoreset_mode": "never"}, "autoreset_mode: found 'never', expected one of NEXT_STEP, SAME_STEP, DISABLED"),
        ({"material_library": 3}, "material_library: found 3, expected a MaterialLibrary"),
    ],
)
def test_a_wrong_value_is_named(options, message):
    with pytest.raises(ArgumentError, match=message):
        EnvOptions(**options)


# Presets of the Habitat challenges: every number, and that they run with all their noise

HARD = ("challenge_2020", "challenge_2021")


@pytest.mark.parametrize("name", HARD)
def test_challenges_are_as_published(name):
    config = PRESETS[name]
    body, camera = config.body, config.camera
    assert (body.agent_radius, body.agent_height, body.forward_step, body.turn_angle_deg) == (0.18, 0.88, 0.25, 30.0)
    assert (body.sliding, body.actuation_noise, body.robot, body.controller) == (False, 0.5, "LoCoBot", "Proportional")
    assert (camera.height, camera.width, camera.hfov_deg, camera.camera_height) == (360, 640, 70.0, 0.88)
    assert camera.camera_pitch_deg == (0.0 if name == "challenge_2020" else -20.0)
    assert config.sensors == ("rgb", "depth")
    assert (config.depth.min_depth, config.depth.max_depth, config.depth.depth_noise) == (0.1, 10.0, 1.0)
    assert (config.rgb.rgb_noise, config.rgb.noise_intensity) == ("gaussian", 0.1)
    assert (config.rgb.noise_mean, config.rgb.noise_sigma) == (0.0, 1.0)
    assert (config.task.success_distance, config.task.max_steps, config.task.gps_compass) == (0.36, 500, False)


def test_the_noiseless_preset_is_2020_without_noise():
    options = {"actuation_noise": 0.0, "depth_noise": 0.0, "rgb_noise": "none", "gps_compass": True}
    quiet, noiseless = nav_config("challenge_2020", options), PRESETS["challenge_2020_noiseless"]
    assert quiet.camera == noiseless.camera and quiet.task == noiseless.task and quiet.depth == noiseless.depth
    assert (quiet.body.agent_radius, quiet.body.turn_angle_deg) == (0.18, 30.0)
    assert noiseless.body.actuation_noise == 0.0 and noiseless.rgb.rgb_noise == "none"


SMALL = {"height": 36, "width": 64, "agent_radius": 0.1, "agent_height": 1.5}


@pytest.mark.parametrize("device", ["cpu", pytest.param("cuda", marks=pytest.mark.cuda)])
@pytest.mark.parametrize("name", HARD)
def test_presets_run_with_noise(name, device):
    bank = SceneBank.pack([load_scene("house:3")], device, appearance=True)
    runs = []
    for _ in range(2):
        env = NavEnv(bank, 2, config=name, seed=4, **SMALL)
        first = {key: value.clone() for key, value in env.reset()[0].items()}
        seen = [first]
        for _ in range(3):
            seen.append({key: value.clone() for key, value in env.step(torch.tensor([1, 2], device=device))[0].items()})
        assert torch.equal(seen[3]["pointgoal"], first["pointgoal"])  # no GPS, no compass
        assert len(first["rgb"].unique()) > 100 and len(first["depth"][0].unique()) > 10
        assert env.sim.bodies.path_length.min() > 0.0
        runs.append(seen)
    for a, b in zip(*runs, strict=True):
        assert all(torch.equal(a[key], b[key]) for key in a)


@pytest.mark.cuda
def test_replayed_graphs_sample_new_noise():
    bank = SceneBank.pack([load_scene("house:3")], "cuda", appearance=True)
    sensors = ("rgb", "depth", "gps", "compass", "heading")
    envs = [NavEnv(bank, 8, config="challenge_2020", sensors=sensors, seed=4, **SMALL) for _ in range(2)]
    turn = torch.full((8,), 2, device="cuda")

    def step(env):
        observation = env.step(turn)[0]
        env.settle()
        return observation

    for env in envs:
        env.reset()
    replayed, before = Graphs(torch.device("cuda"), enabled=True).wrap(lambda: step(envs[0])), None
    for _ in range(6):
        found, expected = replayed(), step(envs[1])
        assert all(torch.equal(found[name], expected[name]) for name in expected)
        assert before is None or not torch.equal(found["depth"], before)
        before = found["depth"].clone()
