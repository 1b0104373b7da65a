import dataclasses
import gzip
import json
import math
import os
import time
import types
from collections import Counter

import numpy as np
import pytest
import torch
from worlds import write_episodes

from batchnav.data.episodes import Episode, Goal, episode_table, heading_of, order_episodes, rotation_of, scene_name
from batchnav.data.formats import EpisodeDataset, load_episodes
from batchnav.data.formats.pointnav import scenes_played
from batchnav.data.goals.point import generate_episodes
from batchnav.data.play import check_episodes
from batchnav.data.scenes.load import load_scene
from batchnav.envs.nav import NavEnv
from batchnav.errors import EpisodeError
from batchnav.scene.bank import SceneBank

IN_PLACE = types.SimpleNamespace(origin=(0.0, 0.0, 0.0))
"""A mesh that was not recentred."""


def example(**changes) -> dict:
    """One valid episode as JSON; a value of `...` takes the key out."""
    episode = {
        "episode_id": "0",
        "scene_id": "house:1",
        "start_position": [1.0, 0.1, -2.0],
        "start_rotation": [0.0, math.sin(0.4), 0.0, math.cos(0.4)],
        "info": {"geodesic_distance": 5.0},
        "goals": [{"position": [3.0, 0.1, 1.0], "radius": 0.2}],
    } | changes
    return {key: value for key, value in episode.items() if value is not ...}


def write(path, data) -> str:
    path.write_bytes(gzip.compress((data if isinstance(data, str) else json.dumps(data)).encode()))
    return path


@pytest.mark.parametrize("heading", [0.0, 0.3, -0.3, 3.0, -3.0, math.pi / 2])
def test_heading_survives_the_quaternion(heading):
    rotation = rotation_of(heading)
    assert heading_of(rotation) == pytest.approx(heading, abs=1e-12)
    # q and -q are the same rotation.
    assert heading_of([-v for v in rotation]) == pytest.approx(heading, abs=1e-12)


def test_a_quarter_turn_to_the_left_looks_along_minus_x():
    # The quaternion of +90 degrees about +Y takes forward, (0, 0, -1), to (-1, 0, 0), which is heading +pi/2.
    assert heading_of([0.0, math.sqrt(0.5), 0.0, math.sqrt(0.5)]) == pytest.approx(math.pi / 2)


def test_round_trip(tmp_path):
    episodes = [
        Episode(
            "0", "house:1", (1.0, 0.1, -2.5), rotation_of(0.7), (Goal((3.0, 0.1, 1.0), 0.2),), {"difficulty": "easy"}
        ),
        Episode("1", "house:2", (0.1, 0.2, 0.3), rotation_of(-2.0), (Goal((1.5, 0.1, 1.0)),), {}),
    ]
    EpisodeDataset(episodes).save(tmp_path / "a" / "val.json.gz")
    assert list(load_episodes(tmp_path / "a" / "val.json.gz")) == episodes
    EpisodeDataset(episodes).save(tmp_path / "b.json.gz")
    assert (tmp_path / "b.json.gz").read_bytes() == (tmp_path / "a" / "val.json.gz").read_bytes()
    assert sorted(p.name for p in tmp_path.iterdir()) == ["a", "b.json.gz"]


def test_saved_episodes_have_the_keys_of_habitats_class(tmp_path):
    EpisodeDataset([Episode("0", "s", (0.0, 0.0, 0.0), rotation_of(0.0), (Goal((1.0, 0.0, 0.0), 0.2),))]).save(
        tmp_path / "e.gz"
    )
    (saved,) = json.loads(gzip.decompress((tmp_path / "e.gz").read_bytes()))["episodes"]
    assert set(saved) == {
        "episode_id", "scene_id", "scene_dataset_config", "additional_obj_config_paths", "start_position",
        "start_rotation", "info", "goals", "start_room", "shortest_paths",
    }  # fmt: skip


BAD_EPISODES = {
    "episode is not an object": (7, "found int"),
    "no id": (example(episode_id=...), "'episode_id'"),
    "no scene": (example(scene_id=""), "'scene_id'"),
    "no start": (example(start_position=...), "'start_position'"),
    "start of two numbers": (example(start_position=[1.0, 2.0]), "'start_position'"),
    "start is NaN": (example(start_position=[1.0, math.nan, 2.0]), "'start_position'"),
    "start is infinite": (example(start_position=[1.0, math.inf, 2.0]), "'start_position'"),
    "start beyond float32": (example(start_position=[1.0, 1e39, 2.0]), "'start_position'"),
    "start holds text": (example(start_position=[1.0, "2", 2.0]), "'start_position'"),
    "rotation of three numbers": (example(start_rotation=[0.0, 0.0, 1.0]), "'start_rotation'"),
    "rotation not of unit length": (example(start_rotation=[0.0, 0.0, 0.0, 0.5]), "unit quaternion"),
    "rotation about x": (example(start_rotation=[1.0, 0.0, 0.0, 0.0]), r"about \+Y"),
    "no goals": (example(goals=[]), "'goals'"),
    "goals missing": (example(goals=...), "'goals'"),
    "goal without a position": (example(goals=[{"radius": 0.2}]), r"'goals\[0\]'.*'position'"),
    "goal at NaN": (example(goals=[{"position": [0.0, 0.0, math.nan]}]), "'position'"),
    "negative radius": (example(goals=[{"position": [0.0, 0.0, 0.0], "radius": -1.0}]), "'radius'"),
    "info is a list": (example(info=[1]), "'info'"),
    "ObjectNav": (example(object_category="chair"), "ObjectNav, expected those of PointNav .* first episode"),
    "InstanceImageNav": (
        example(object_category="chair", goal_image_id=3), "InstanceImageNav, expected those of PointNav .* first"),
    "ObjectNav goal": (example(goals=[{"position": [0, 0, 0], "object_id": 1}]), "ObjectNav, expected those of PointN"),
    "an instruction": (example(instruction={"text": "go"}), "expected those of PointNav"),
    "rearrangement": (example(rigid_objs=[]), "rearrangement, expected those of .*; add a format of your own"),
    "a sequence": (example(tasks=[["chair", "object", None]]), "'tasks': found episodes of GOAT-Bench"),
    "objects in turn": (example(object_index=0), "'object_index': found episodes of MultiON"),
}  # fmt: skip


@pytest.mark.parametrize("case", BAD_EPISODES)
def test_a_bad_episode_is_named(case, tmp_path):
    episode, message = BAD_EPISODES[case]
    path = write(tmp_path / "bad.json.gz", {"episodes": [example(), episode]})
    with pytest.raises(EpisodeError, match=message) as caught:
        load_episodes(path)
    assert str(path) in str(caught.value)
    assert "episode 1" in str(caught.value)


def test_bad_files_are_named(tmp_path):
    good = gzip.compress(json.dumps({"episodes": [example()] * 50}).encode())
    cases = {
        "absent": (None, "cannot be read"),
        "empty": (b"", "empty file"),
        "plain": (json.dumps({"episodes": [example()]}).encode(), "no gzip header"),
        "truncated": (good[: len(good) // 2], "cut short"),
        "damaged": (good[:40] + bytes(40) + good[80:], "damaged|cut short"),
        "not JSON": (gzip.compress(b"hello"), "does not hold JSON"),
        "half JSON": (gzip.compress(b'{"episodes": [{"episode_id": "0"'), "does not hold JSON"),
        "not text": (gzip.compress(b"\xff\xfe\x00"), "damaged"),
        "a list": (gzip.compress(b"[]"), "no list 'episodes'"),
        "no episodes": (gzip.compress(b'{"episodes": []}'), "content"),
        "ObjectNav": (gzip.compress(b'{"episodes": [], "goals_by_category": {}}'), "found no episodes"),
    }
    for name, (data, message) in cases.items():
        path = tmp_path / f"{name}.json.gz"
        if data is not None:
            path.write_bytes(data)
        with pytest.raises(EpisodeError, match=message) as caught:
            load_episodes(path)
        assert str(path) in str(caught.value)


def test_unwritable_folder_leaves_nothing(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(EpisodeError, match="cannot be written"):
        EpisodeDataset([Episode("0", "s", (0.0, 0.0, 0.0), rotation_of(0.0), (Goal((1.0, 0.0, 0.0)),))]).save(
            tmp_path / "file" / "x"
        )


def test_published_files(shared):
    folder = shared / "scenes" / "habitat_episodes"
    v1 = load_episodes(folder / "pointgoal_gibson.val_mini.json.gz")
    assert len(v1) == 30
    assert v1[0].scene_id.endswith("gibson/Greigsville.glb")
    assert v1[0].goals[0].radius is None
    assert v1[0].info["difficulty"] == "easy"
    assert len(load_episodes(folder / "pointgoal_gibson_v2/val_mini/content/Pablo.json.gz")) == 71
    split = load_episodes(folder / "pointgoal_gibson_v2/val_mini/val_mini.json.gz")
    assert list(Counter(e.scene_id for e in split).items()) == [
        ("gibson/Greigsville.glb", 71),
        ("gibson/Pablo.glb", 71),
    ]
    assert len(load_episodes(folder / "pointgoal_gibson_v2/val_mini/val_mini.json.gz", ["Pablo"])) == 71
    assert load_episodes(folder / "objectnav_mp3d.val_mini.json.gz").kind == "category"


def test_published_episodes_on_their_navmesh(shared):
    from batchnav.navmesh.navmesh import NavMesh

    scenes = shared / "scenes"
    episodes = load_episodes(scenes / "van-gogh-room" / "gt" / "habitat_test_scenes_3_episodes.json.gz")
    navmeshes = {
        "skokloster": scenes / "habitat_navmeshes" / "habitat-test-scenes" / "skokloster-castle.navmesh",
        "van-gogh": scenes / "van-gogh-room" / "van-gogh-room.navmesh",
    }
    for word, path in navmeshes.items():
        mine = [e for e in episodes if word in e.scene_id]
        if mine:
            check_episodes(mine, {mine[0].scene_id: types.SimpleNamespace(navmesh=NavMesh.load(path), mesh=IN_PLACE)})


def test_table():
    episodes = [
        Episode("0", "b", (1.0, 2.0, 3.0), rotation_of(0.5), (Goal((4.0, 5.0, 6.0)),)),
        Episode("1", "a", (7.0, 8.0, 9.0), rotation_of(-0.5), (Goal((1.0, 1.0, 1.0)),)),
    ]
    table = episode_table(episodes, ["a", "b"], "cpu")
    assert table.scene.tolist() == [1, 0] and table.scene.dtype == torch.int32
    assert table.start.tolist() == [[1.0, 2.0, 3.0], [7.0, 8.0, 9.0]]
    assert table.heading.tolist() == pytest.approx([0.5, -0.5])
    assert table.goal.tolist() == [[4.0, 5.0, 6.0], [1.0, 1.0, 1.0]]
    with pytest.raises(EpisodeError, match="'1' of scene 'a'"):
        episode_table(episodes, ["b"], "cpu")
    two = Episode("7", "a", (0.0, 0.0, 0.0), rotation_of(0.0), (Goal((0.0, 0.0, 0.0)),) * 2)
    with pytest.raises(EpisodeError, match=r"'7' of scene 'a'.*found 2"):
        episode_table([two], ["a"], "cpu")
    with pytest.raises(EpisodeError, match="found none"):
        episode_table([], ["a"], "cpu")


class TwoIslands:
    """A stand-in navmesh: the plane y = 0 without the strip |x| < 1, whose two sides are islands."""

    def snap(self, points):
        points = np.array(points, np.float32)
        points[:, 1] = 0.0
        inside = np.abs(points[:, 0]) < 1.0
        points[inside, 0] = np.where(points[inside, 0] < 0.0, -1.0, 1.0)
        return points

    def island(self, points):
        return (np.asarray(points)[:, 0] > 0.0).astype(np.int32)

    def geodesic_distance(self, starts, goals):
        length = np.linalg.norm(np.asarray(starts) - np.asarray(goals), axis=1).astype(np.float32)
        return np.where(self.island(starts) == self.island(goals), length, np.float32(np.inf))


def test_check_finds_what_cannot_be_played():
    def episode(start, goal):
        return Episode("42", "s", start, rotation_of(0.0), (Goal(goal),))

    scenes = {"s": types.SimpleNamespace(navmesh=TwoIslands(), mesh=IN_PLACE)}
    good = episode((2.0, 0.0, 0.0), (5.0, 0.0, 0.0))
    check_episodes([good], scenes)
    cases = [
        (episode((2.0, 0.0, 0.0), (-2.0, 0.0, 0.0)), "island 0 .*expected the start's island 1"),
        (episode((0.2, 0.0, 0.0), (2.0, 0.0, 0.0)), "'start_position'.*expected a point on the navmesh"),
        (episode((2.0, 0.0, 0.0), (2.0, 3.0, 0.0)), r"goals\[0\].position.*expected a point on the navmesh"),
    ]
    cases.append((dataclasses.replace(good, goals=good.goals * 2), "'goals': found 2, expected 1"))
    for bad, message in cases:
        with pytest.raises(EpisodeError, match=message) as caught:
            check_episodes([good, bad], scenes)
        assert "'42' of scene 's'" in str(caught.value)
    with pytest.raises(EpisodeError, match="not loaded"):
        check_episodes([good], {})


def test_what_json_cannot_hold_is_refused(tmp_path):
    episode = Episode("0", "s", (0.0, 0.0, 0.0), rotation_of(0.0), (Goal((1.0, 0.0, 0.0)),), {"geodesic": math.nan})
    with pytest.raises(EpisodeError, match="JSON cannot"):
        EpisodeDataset([episode]).save(tmp_path / "e.json.gz")
    assert not list(tmp_path.iterdir())


def some(*scene_ids) -> list[Episode]:
    """An episode in each of the scenes, numbered."""
    return [
        Episode(str(i), scene_id, (0.0, 0.0, 0.0), rotation_of(0.0), (Goal((1.0, 0.0, 0.0)),))
        for i, scene_id in enumerate(scene_ids)
    ]


def test_scene_by_scene(tmp_path):
    episodes = some("gibson/Adrian.glb", "gibson/Ribera.glb", "gibson/Adrian.glb")
    top = tmp_path / "val" / "val.json.gz"
    EpisodeDataset(episodes).save(top, content=True)
    files = sorted(str(file.relative_to(tmp_path)) for file in tmp_path.rglob("*.gz"))
    assert files == ["val/content/Adrian.json.gz", "val/content/Ribera.json.gz", "val/val.json.gz"]
    assert json.loads(gzip.decompress(top.read_bytes())) == {"episodes": []}
    assert [e.episode_id for e in load_episodes(top)] == ["0", "2", "1"]
    assert [e.episode_id for e in load_episodes(top, ["Ribera"])] == ["1"]
    assert scenes_played(top) == {"Adrian", "Ribera"}
    with pytest.raises(EpisodeError, match=r"Nowhere\.json\.gz: content_scenes: found no such file"):
        load_episodes(top, ["Nowhere"])
    with pytest.raises(EpisodeError, match="the same file name"):
        EpisodeDataset(some("a/x.glb", "b/x.glb")).save(top, content=True)


def test_a_file_may_say_where_its_scenes_are(tmp_path):
    EpisodeDataset(some("gibson/Adrian.glb")).save(tmp_path / "elsewhere" / "Adrian.json.gz")
    place = "{data_path}/elsewhere/{scene}.json.gz"
    top = write(tmp_path / "val.json.gz", {"episodes": [], "content_scenes_path": place})
    assert len(load_episodes(top)) == 1
    (tmp_path / "elsewhere" / "Adrian.json.gz").rename(tmp_path / "elsewhere" / "**Adrian[1].json.gz")
    write(top, {"episodes": [], "content_scenes_path": place.replace("{scene}", "**{scene}[1]")})
    assert len(load_episodes(top)) == 1  # stars are letters of a name
    for bad in (3, "{data_path}/content.json.gz"):
        write(top, {"episodes": [], "content_scenes_path": bad})
        with pytest.raises(EpisodeError, match="'content_scenes_path'"):
            load_episodes(top)


def test_scenes_of_one_file(tmp_path):
    EpisodeDataset(some("gibson/Adrian.glb", "gibson/Ribera.glb")).save(tmp_path / "all.json.gz")
    assert [e.episode_id for e in load_episodes(tmp_path / "all.json.gz", ["Ribera"])] == ["1"]


def test_names_of_scenes():
    assert scene_name("hm3d/val/00800-TEEsavR23oF/TEEsavR23oF.basis.glb") == "TEEsavR23oF"
    assert scene_name("data/mine/scan.scene") == "scan"
    assert scene_name("house:7") == "house_7"


def test_habitats_prefix_of_scene_ids_is_dropped(tmp_path):
    path = write(tmp_path / "e.json.gz", {"episodes": [example(scene_id="data/scene_datasets/gibson/Adrian.glb")]})
    assert load_episodes(path)[0].scene_id == "gibson/Adrian.glb"


def test_what_is_not_used_is_kept(tmp_path):
    more = {
        "scene_dataset_config": "data/hssd.scene_dataset_config.json", "start_room": "3",
        "shortest_paths": [[{"position": [0, 0, 0], "rotation": [0, 0, 0, 1], "action": 1}]],
    }  # fmt: skip
    (episode,) = load_episodes(write(tmp_path / "a.json.gz", {"episodes": [example(**more)]}))
    assert episode.scene == "data/hssd.scene_dataset_config.json:house:1"
    EpisodeDataset([episode]).save(tmp_path / "b.json.gz")
    (saved,) = json.loads(gzip.decompress((tmp_path / "b.json.gz").read_bytes()))["episodes"]
    assert {key: saved[key] for key in more} == more
    with pytest.raises(EpisodeError, match="'scene_dataset_config'"):
        load_episodes(write(tmp_path / "c.json.gz", {"episodes": [example(scene_dataset_config=3)]}))


def test_order():
    episodes = some("a", "b", "a", "c", "b")

    def numbers(**options):
        return "".join(e.episode_id for e in order_episodes(episodes, **options))

    assert numbers() == "02143"
    assert numbers(grouped=False) == "01234"
    assert numbers(rounds=2) == "0214302143"
    assert len(set(numbers(num_episode_sample=3))) == 3
    shuffled = numbers(shuffle=True, seed=1)
    assert shuffled == numbers(shuffle=True, seed=1) != numbers(shuffle=True, seed=2)
    scenes = [episodes[int(i)].scene_id for i in shuffled]
    assert len([k for k in range(5) if k == 0 or scenes[k] != scenes[k - 1]]) == 3  # each scene in one run
    twice = numbers(shuffle=True, grouped=False, rounds=2)
    assert sorted(twice[:5]) == sorted(twice[5:]) and twice[:5] != twice[5:]
    with pytest.raises(EpisodeError, match="at most 5"):
        numbers(num_episode_sample=6)


def test_many_members_unpack_in_linear_time(tmp_path):
    """As `cat a.gz b.gz` makes them, empty ones too, with zeros between them."""
    EpisodeDataset(some("gibson/Adrian.glb")).save(tmp_path / "a.json.gz")
    data = (tmp_path / "a.json.gz").read_bytes()
    text = gzip.decompress(data)
    halves = gzip.compress(text[:50]) + b"\0" * 7 + gzip.compress(text[50:]) + b"\0"
    (tmp_path / "a.json.gz").write_bytes(gzip.compress(b"") * 50_000 + halves)
    begin = time.process_time()
    assert len(load_episodes(tmp_path / "a.json.gz")) == 1
    assert time.process_time() - begin < 2.0  # measured: 0.2 s; it grew with the square
    (tmp_path / "a.json.gz").write_bytes(halves[:-12])
    with pytest.raises(EpisodeError, match="cut short"):
        load_episodes(tmp_path / "a.json.gz")


def test_a_pipe_is_not_waited_for(tmp_path):
    os.mkfifo(tmp_path / "a.json.gz")
    with pytest.raises(EpisodeError, match="a pipe"):
        load_episodes(tmp_path / "a.json.gz")


def test_a_bomb_is_refused(tmp_path):
    path = tmp_path / "bomb.json.gz"
    path.write_bytes(gzip.compress(bytes(200 * 2**20), compresslevel=9))
    with pytest.raises(EpisodeError, match="unpacks to more than"):
        load_episodes(path)


def test_a_goals_radius_is_kept_and_does_not_decide(tmp_path):
    """Habitat's PointNav succeeds within the task's distance, whatever radius a goal has."""
    scene = load_scene("house:3")
    (episode,) = generate_episodes(scene, 1)
    env_of = {}
    for radius in (1e-3, 50.0):
        goal = Goal(episode.goals[0].position, radius)
        EpisodeDataset([dataclasses.replace(episode, goals=(goal,))]).save(tmp_path / "a.json.gz")
        (read,) = load_episodes(tmp_path / "a.json.gz")
        assert read.goals[0].radius == radius
        bank = SceneBank.pack([scene])
        env = NavEnv(bank, 1, episodes=episode_table([read], [scene.name], "cpu"), sensors=())
        env.reset()
        stopped_at_once = env.step(torch.zeros(1, dtype=torch.int64))[-1]["episode"]["success"].item()
        env.reset(seed=0)
        env.sim.bodies.position.copy_(env.task.state.goal)
        env.task.state.distance.fill_(0.19)
        env_of[radius] = stopped_at_once, env.step(torch.zeros(1, dtype=torch.int64))[-1]["episode"]["success"].item()
    assert set(env_of.values()) == {(0.0, 1.0)}


def test_a_split_is_not_written_next_to_files_that_it_would_read(tmp_path):
    write_episodes(tmp_path / "val.json.gz", ["a.glb", "b.glb"], content=True)
    with pytest.raises(EpisodeError, match=r"found b.json.gz in .*, whose episodes would be added"):
        write_episodes(tmp_path / "val.json.gz", ["a.glb"], content=True)
    with pytest.raises(EpisodeError, match=r"found a.json.gz, b.json.gz in .*, whose episodes would be added"):
        write_episodes(tmp_path / "val.json.gz", ["a.glb"])
    write_episodes(tmp_path / "val.json.gz", ["a.glb", "b.glb", "c.glb"], content=True)
    assert len(load_episodes(tmp_path / "val.json.gz")) == 9
