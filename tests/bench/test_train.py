"""The training benchmark with tiny sizes: its values are consistent, and it writes its figure."""

import dataclasses

import numpy as np
import pytest
import torch
from networks import policy_config
from worlds import write_floor

from batchnav.bench import scans
from batchnav.bench import train as speed_train
from batchnav.bench.env import main as main_env
from batchnav.bench.make_scans import cut_edges, scan_of
from batchnav.bench.options import EnvOptions, ScansOptions
from batchnav.bench.render import Options, main
from batchnav.bench.scans import main as main_scans
from batchnav.bench.sim import Options as SimOptions
from batchnav.bench.sim import main as main_sim
from batchnav.data.scenes.load import load_scenes
from batchnav.errors import ArgumentError, DivergenceError
from batchnav.procedural import make_house
from batchnav.runtime.distributed import Ranks

N, STEPS = 8, 4
ALONE = Ranks(torch.device("cpu"))
OPTIONS = speed_train.Options(
    device="cpu", policies=("tiny",), sizes=(16,), num_envs=(N,), houses=1, rollout_steps=STEPS, minibatch_frames=16,
    updates=1, compile=False,
)  # fmt: skip


@pytest.fixture(autouse=True)
def tiny(monkeypatch):
    small = policy_config(base_width=4, visual_size=8, hidden_size=16, layers=1, embedding_size=8)
    monkeypatch.setitem(speed_train.POLICIES, "tiny", small)


def test_figures_and_picture(tmp_path):
    whole, policy = speed_train.main(OPTIONS)
    assert (whole["params"]["part"], policy["params"]["part"]) == ("whole", "policy")
    assert whole["params"]["minibatches"] == N * STEPS // 16
    assert 0.0 < whole["p5"] <= whole["value"] <= whole["p95"] and whole["repeats"] == OPTIONS.updates
    parts = whole["microseconds_per_frame"]
    assert set(parts) == set(speed_train.PARTS)
    assert sum(parts.values()) == pytest.approx(1e6 / whole["value"], rel=1e-6)  # seconds of one update
    assert whole["share_of_policy_only"] == pytest.approx(whole["value"] / policy["value"], rel=1e-6)
    speed_train.plot([whole], tmp_path / "train.webp")
    assert (tmp_path / "train.webp").stat().st_size > 1000


def test_a_pretrained_encoder_is_measured_alone():
    options = dataclasses.replace(OPTIONS, policies=("timm:test_resnet",), sizes=(32,))
    whole, policy = speed_train.main(options)
    assert whole["share_of_encoder"] == pytest.approx(whole["value"] / whole["encoder_frames_per_second"], rel=1e-6)
    assert "share_of_encoder" not in policy
    with pytest.raises(ArgumentError, match="all or none with a pretrained encoder"):
        speed_train.main(dataclasses.replace(options, policies=("tiny", "timm:test_resnet")))


def test_the_policy_alone_sees_the_observations_that_were_recorded():
    env = speed_train.environments(OPTIONS, ALONE)(N, 16)
    learner = speed_train.make_learner(env, speed_train.make_policy(env, "tiny", OPTIONS), OPTIONS, ALONE)
    learner.update(1.0)
    seen = learner.rollout.obs["depth"].clone()
    learner.replace_env(speed_train.Still(learner.env))
    learner.update(1.0)
    assert torch.equal(learner.rollout.obs["depth"][1:], seen[1:])
    assert seen.any()


def test_every_number_of_environments_begins_with_the_first_weights(monkeypatch):
    seen = []

    def measure(learner, name, options):
        seen.append(learner.policy.critic.weight.detach().clone())
        learner.update(0.5)
        assert not torch.equal(learner.policy.critic.weight, seen[0])
        return []

    monkeypatch.setattr(speed_train, "measure", measure)
    speed_train.main(dataclasses.replace(OPTIONS, num_envs=(N, 2 * N)))
    assert len(seen) == 2 and torch.equal(*seen)


def test_what_diverged_is_not_measured(monkeypatch):
    make_policy = speed_train.make_policy

    def diverged(*arguments):
        policy = make_policy(*arguments)
        torch.nn.init.constant_(policy.critic.bias, torch.nan)
        return policy

    monkeypatch.setattr(speed_train, "make_policy", diverged)
    with pytest.raises(DivergenceError, match="update 1 has the loss nan"):
        speed_train.main(OPTIONS)


# The simulator benchmark


def test_fewer_steps_than_a_repeat_has_at_least(run, tmp_path):
    scene = write_floor(tmp_path / "floor.glb")
    small = ("--device", "cpu", "--num-envs", "4", "--steps", "2", "--repeats", "1", "--actions", "moving")
    assert "steps/s" in run("bench", "sim", "--scenes", scene, *small)


# Benchmarks of rendering, simulator and environment run with sensors and without


def test_frames_per_second_of_what_agents_see(capsys):
    main(Options(
        device="cpu", num_agents=(2,), sizes=(8,), scenes=("house:0",), renderers=("raycast",),
        sensors=("depth", "rgb+depth", "semantic+depth"), repeats=1, peers=False,
    ))  # fmt: skip
    printed = capsys.readouterr().out
    assert all(word in printed for word in ("raycast", "rgb+depth", "semantic+depth", "frames/s"))


def test_steps_per_second(capsys):
    main_sim(SimOptions(scenes=("house:0",), device="cpu", num_envs=(4,), tasks=("pointnav", "explore")))
    printed = capsys.readouterr().out
    assert "pointnav" in printed and "explore" in printed


def test_frames_per_second_of_an_environment(capsys):
    options = EnvOptions(("house:0",), "cpu", (1, 3), ("depth", "rgb+gps"), (8,), seconds=0.01, repeats=2)
    main_env(options)
    printed = capsys.readouterr().out
    assert all(f"{n} {kind} 8x8: " in printed for n in options.num_envs for kind in options.sensors)
    assert "frames/s" in printed


def test_scans_of_real_size(capsys, monkeypatch):
    """Every figure is there for a small scan, and for a house with one object."""

    def houses(names):
        (house,) = load_scenes(names)
        surface, ids = house.mesh.surface, house.mesh.surface.object_id
        surface = surface._replace(object_id=np.where(ids == ids.max(), ids, 0).astype(np.int32))
        return [house._replace(mesh=house.mesh._replace(surface=surface))]

    monkeypatch.setattr(scans, "load_all", houses)
    options = ScansOptions(
        1, 2e4, "1x256", "cpu", 4, ("depth", "rgb+depth"), (16,), "tiny", 1, 1, seconds=0.01, repeats=1, updates=1
    )
    rows = main_scans(options)
    found = {row["params"]["what"]: row["value"] for row in rows}
    assert set(found) == {
        "load a mesh file, first time", "load a mesh file, second time", "mesh file", "prepared scene",
        "prepared / mesh file", "train: depth 16x16", "view points of 1 objects",
        "view points of 1 houses",
        *(f"device memory: {kind}" for kind in options.sensors),
        *(f"{what}: {kind} 16x16" for what in ("make an environment", "step") for kind in options.sensors),
    }  # fmt: skip
    assert min(found.values()) > 0.0 and found["device memory: depth"] < found["device memory: rgb+depth"]
    assert all(name in capsys.readouterr().out for name in ("load a mesh file, second time",))


def test_streaming_of_scans(capsys):
    options = ScansOptions(1, 2e4, "1x256", "cpu", 4, sizes=(16,), policy="tiny", updates=2, stream="3/5")
    found = {row["params"]["what"]: row["value"] for row in main_scans(options)}
    assert set(found) == {
        "load a prepared scan, depth", "train: 3 scans that stay", "train: streamed scans",
        "train: streamed / scans that stay", "memory after half of the updates", "memory after all updates",
    }  # fmt: skip
    assert min(found.values()) > 0.0 and "train: streamed / scans that stay" in capsys.readouterr().out


@pytest.mark.parametrize("stream", ["64", "1/4", "4/4", "2/3"])
def test_numbers_of_streamed_scans_are_checked(stream):
    with pytest.raises(ArgumentError, match=r"stream: found '.*', expected the numbers of resident scans"):
        main_scans(ScansOptions(count=4, stream=stream))


def test_scans_are_seeded_houses_in_small_triangles():
    house = make_house(1, True)
    first, again = (scan_of(house, 1, 300_000, 2, 64) for _ in range(2))
    assert all(map(np.array_equal, first[:2], again[:2])) and 180_000 < len(first.faces) < 420_000
    assert np.array_equal(first.surface.textures[1].pixels, again.surface.textures[1].pixels)
    assert set(first.surface.category) == set(house.surface.category)
    corners = first.vertices[first.faces]
    edges = np.linalg.norm(corners - np.roll(corners, 1, axis=1), axis=2)
    assert edges.max() < 0.5 and np.abs(np.ptp(first.vertices, axis=0) - np.ptp(house.vertices, axis=0)).max() < 0.1


def test_cut_triangles_keep_area_and_neighbours():
    vertices, faces = np.array([[0, 0, 0], [3, 0, 0], [0, 2, 0], [3, 2, 0.0]]), np.array([[0, 1, 2], [1, 3, 2]])
    places, cut, parent = cut_edges(vertices, faces, 0.4)
    a, b, c = (places[cut[:, k]] for k in range(3))
    area = np.cross(b - a, c - a)[:, 2] / 2.0
    assert (area > 0.0).all() and np.bincount(parent, area) == pytest.approx([3.0, 3.0])
    edges = np.sort(np.stack([cut, np.roll(cut, -1, axis=1)], axis=2), axis=2).reshape(-1, 2)
    _, counts = np.unique(edges, axis=0, return_counts=True)
    assert set(counts) == {1, 2} and np.linalg.norm(np.diff(places[edges], axis=1), axis=2).max() <= 0.4


@pytest.mark.parametrize("textures", ["4", "0x256", "4x65536", "4 x 256"])
def test_numbers_of_textures_are_checked(textures):
    with pytest.raises(ArgumentError, match=r"textures: found '.*', expected their number and side, such as 4x4096"):
        main_scans(ScansOptions(textures=textures))
