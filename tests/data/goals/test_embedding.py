"""Files of goal embeddings, and the observation "goal_embedding"."""

import gzip
import json
import pickle

import numpy as np
import pytest
import torch
from safetensors.numpy import save_file

from batchnav.data.goals.embedding import GoalEmbedding, read_embeddings
from batchnav.data.sequences import instance_name
from batchnav.envs.nav import NavEnv
from batchnav.errors import ConfigError
from batchnav.scene.goals import SceneGoals
from batchnav.sim.bodies import STOP
from tests.pages import ROOT, blocks
from tests.tasks.object_rooms import corridor, object_goal, object_room, table

BED, CHAIR = np.float32([0.0, 1.0, -2.5]), np.float32([0.25, -1.0, 3.0])


def save(path, **arrays):
    save_file(arrays, path)
    return path


@pytest.fixture
def path(tmp_path):
    return save(tmp_path / "a.safetensors", bed=BED, chair=CHAIR)


def test_both_formats_hold_the_same(path, tmp_path):
    np.save(tmp_path / "a.npy", np.stack([BED, CHAIR]))
    (tmp_path / "a.txt").write_text("bed\nchair\n")
    for each in (path, tmp_path / "a.npy"):
        names, values = read_embeddings(each)
        assert names == ("bed", "chair") and values.dtype == np.float32
        np.testing.assert_array_equal(values, [BED, CHAIR])


BAD_TENSORS = {
    "two lengths": ({"a": BED, "b": BED[:2]}, r"'b': found float32 \[2\], expected f32 \[D\]"),
    "two dimensions": ({"a": BED[None]}, r"'a': found float32 \[1, 3\], expected f32 \[D\]"),
    "another type": ({"a": BED.astype(np.float64)}, r"'a': found float64 \[3\]"),
    "nothing": ({}, "found no embedding, expected at least one"),
    "no numbers": ({"a": BED[:0]}, r"'a': found float32 \[0\]"),
    "NaN": ({"a": BED, "b": BED * np.float32(np.nan)}, "'b': found NaN or infinity, expected finite numbers"),
}


@pytest.mark.parametrize("case", BAD_TENSORS)
def test_broken_arrays_are_named(case, tmp_path):
    arrays, message = BAD_TENSORS[case]
    path = save(tmp_path / "a.safetensors", **arrays)
    with pytest.raises(ConfigError, match=message) as caught:
        read_embeddings(path)
    assert str(path) in str(caught.value)


def test_broken_files_are_named(path, tmp_path):
    rows = np.stack([BED, CHAIR])
    for name, values, lines, message in (
        ("names", rows, "bed\n", r"an array \[2, 3\] and 1 names in names.txt, expected f32 \[G, D\] and G names"),
        ("flat", rows[0], "a\nb\nc\n", r"an array \[3\] and 3 names"),
        ("twice", rows, "bed\nbed\n", "found the name 'bed' 2 times, expected different names"),
        ("unnamed", rows, "bed\n\n", "found the name '' 1 times"),
        ("half", rows.astype(np.float16), "a\nb\n", r"'a': found float16 \[3\]"),
        ("objects", np.array([["a"], ["b"]], object), "a\nb\n", "cannot be read as a .npy file"),
    ):
        np.save(tmp_path / f"{name}.npy", values)
        (tmp_path / f"{name}.txt").write_text(lines)
        with pytest.raises(ConfigError, match=message):
            read_embeddings(tmp_path / f"{name}.npy")
    np.save(tmp_path / "alone.npy", rows)
    with pytest.raises(ConfigError, match=r"alone.txt: cannot be read"):
        read_embeddings(tmp_path / "alone.npy")
    (tmp_path / "a.pkl").write_bytes(b"\x80\x04")
    with pytest.raises(ConfigError, match=r"found a file \*.pkl, expected .safetensors, or .npy with names in .txt"):
        read_embeddings(tmp_path / "a.pkl")
    path.write_bytes(path.read_bytes()[:-4])
    with pytest.raises(ConfigError, match="not a whole safetensors file"):
        read_embeddings(path)


def make(scene, path, **options):
    options = {"task": "objectnav", "sensors": ("goal_embedding",), "categories": ("chair", "bed")} | options
    return NavEnv([scene], 3, "cpu", embeddings=str(path), **options)


def test_agents_observe_the_embedding_of_their_goal(path):
    room = object_room()
    env = make(room, path, episodes=table(room, [(1.5, 1.0, 0.0, 0), (4.0, 1.0, 0.0, 1), (1.5, 1.5, 0.0, 0)]))
    assert env.single_observation_space["goal_embedding"].shape == (3,)
    observation, _ = env.reset()
    np.testing.assert_array_equal(observation["goal_embedding"], [CHAIR, BED, CHAIR])
    observation, *_ = env.step(torch.full((3,), STOP))
    expected = np.where(observation["objectgoal"][:, None] == 0, CHAIR, BED)
    np.testing.assert_array_equal(observation["goal_embedding"], expected)


def test_missing_embeddings_are_named(path, tmp_path):
    only = save(tmp_path / "b.safetensors", bed=BED)
    with pytest.raises(ConfigError, match=r"b.safetensors: found 1 embeddings, none of chair, expected one of each of"):
        make(object_room(), only)
    with pytest.raises(ConfigError, match=r"goal_embedding.embeddings: found none with this sensor, expected a file"):
        make(object_room(), "")
    with pytest.raises(ConfigError, match=r"found 'goal_embedding' with the task pointnav, expected .* leave the"):
        NavEnv([object_room()], 1, sensors=("goal_embedding",), embeddings=str(path))


def test_an_object_has_the_embedding_of_its_scene(tmp_path, caplog):
    """Objects of two scenes may have one id; categories mean the same everywhere, and places have zeros."""
    path = save(tmp_path / "a.safetensors", chair=CHAIR, west_1=BED, east_1=BED * 2)
    scenes = []
    for name in ("west", "east"):
        scene = corridor()._replace(name=f"hm3d/{name}.basis.glb")
        chair = object_goal(scene, "chair", 1, [(3.0, 0.5)])
        other = object_goal(scene, "chair", 2, [(8.0, 0.5)])._replace(category=instance_name(2))
        single = chair._replace(category=instance_name(1))
        scenes.append(scene._replace(goals=SceneGoals("test", (single, other, chair))))
    names = ("chair", instance_name(1), instance_name(2))
    env = NavEnv(scenes, 4, "cpu", task="objectnav", sensors=(), categories=names)
    env.reset()
    source = GoalEmbedding(str(path))
    source.bind(env.frame)
    assert "no embeddings of east_2, west_2, whose rows are 0" in caplog.text
    goal, scene = torch.tensor([0, 1, 2, -1]), torch.tensor([0, 1, 0, 0], dtype=torch.int32)
    env.task.state.category.copy_(goal), env.sim.bodies.scene.copy_(scene)
    out = torch.full((4, 3), 7.0)
    source.write(env.frame, out)
    np.testing.assert_array_equal(out, [CHAIR, BED * 2, BED * 0, BED * 0])
    env.sim.bodies.scene.copy_(1 - scene)
    source.write(env.frame, out)
    np.testing.assert_array_equal(out[:2], [CHAIR, BED])


class Code:
    """An object whose pickle runs code when it is opened."""

    def __reduce__(self):
        return print, ("ran",)


def test_the_pages_program_converts_pickles_of_arrays_alone(tmp_path, monkeypatch):
    """Programs of the page run outside of batchnav, which opens no pickle."""
    monkeypatch.chdir(tmp_path)
    (program,) = (block.text for block in blocks(ROOT / "docs/howto/goal_embeddings.md") if "Unpickler" in block.text)
    cache = tmp_path / "data/goat-assets/goal_cache"
    texts = {"a brown chair": CHAIR[None].astype(np.float64), "not asked for": BED}
    for name, content in (("ovon/category_name", {"bed": BED}), ("language_nav/val_seen_instruction", texts)):
        path = cache / f"{name}_clip_embeddings.pkl"
        path.parent.mkdir(parents=True)
        path.write_bytes(pickle.dumps(content))
    goals = {"abc.basis.glb_chair": [{"object_id": "chair_12", "lang_desc": "A brown chair"},
                                     {"object_id": "chair_13", "lang_desc": None}]}  # fmt: skip
    part = tmp_path / "data/datasets/goat_bench/hm3d/v1/val_seen/content/abc.json.gz"
    part.parent.mkdir(parents=True)
    part.write_bytes(gzip.compress(json.dumps({"goals": goals, "episodes": []}).encode()))
    exec(compile(program, "page", "exec"), {"__name__": "page"})
    names, values = read_embeddings(tmp_path / "goat_val_seen.safetensors")
    assert names == ("abc_12", "bed")
    np.testing.assert_array_equal(values, [CHAIR, BED])
    path.write_bytes(pickle.dumps({"a": Code()}))
    with pytest.raises(pickle.UnpicklingError, match="print, expected NumPy arrays alone"):
        exec(compile(program, "page", "exec"), {"__name__": "page"})
