"""ImageNav episode files: Mezghani's lists, NRNS, ours; goal headings; generation in levels; playing them."""

import dataclasses
import math
import subprocess
import sys

import numpy as np
import pytest
import torch
from worlds import read_packed, write_box, write_packed

from batchnav.data.episodes import Episode, Goal, episode_table, rotation_of
from batchnav.data.formats import EpisodeDataset, load_episodes
from batchnav.data.goals.point import LEVELS, generate_imagenav
from batchnav.data.scenes.load import load_scene
from batchnav.envs.config import PRESETS, with_options
from batchnav.envs.observations import needed_appearance
from batchnav.errors import EpisodeError
from batchnav.evaluation.players import ReferencePlayer
from batchnav.evaluation.run import Evaluation

STATE = {"start_position": [1.0, 0.1, -2.0], "start_rotation": [0.0, 0.0, 0.0, 1.0]}
_ENV = {"PYTHONPATH": ":".join(sys.path)}
NRNS = {
    "scene_id": "gibson/Adrian.glb", "episode_id": "Adrian_7", **STATE, "length_shortest": 2.5,
    "goals": [{"position": [3.0, 0.1, -2.0], "rotation": [0.0, math.sin(0.4), 0.0, math.cos(0.4)]}],
}  # fmt: skip


@pytest.fixture(scope="module")
def house():
    return load_scene("house:3")


def test_files_of_nrns_state_the_goals_rotation(tmp_path):
    (episode,) = load_episodes(write_packed(tmp_path / "curved_easy.json.gz", {"episodes": [NRNS]}))
    assert episode.goal_heading == pytest.approx(0.8) and episode.info == {"geodesic_distance": 2.5}
    EpisodeDataset([episode]).save(tmp_path / "again.json.gz")
    assert list(load_episodes(tmp_path / "again.json.gz")) == [episode]
    table = episode_table([episode], ["gibson/Adrian.glb"], "cpu")
    assert table.goal_heading.tolist() == pytest.approx([0.8])


@pytest.mark.parametrize(
    ("rotation", "message"),
    [
        ([0.0, 1.0, 0.0, 1.0], "field 'rotation': found a quaternion of length 1.41"),
        ([1.0, 0.0, 0.0, 0.0], "field 'rotation': found \\[1.0, 0.0, 0.0, 0.0\\], expected"),
        ([0.0, 1.0], "field 'rotation': found \\[0.0, 1.0\\], expected 4 finite numbers"),
    ],
)
def test_bad_rotations_of_goals_are_refused(tmp_path, rotation, message):
    bad = NRNS | {"goals": [{"position": [3.0, 0.1, -2.0], "rotation": rotation}]}
    with pytest.raises(EpisodeError, match=message):
        load_episodes(write_packed(tmp_path / "bad.json.gz", {"episodes": [bad]}))


def test_a_list_alone_is_a_file_as_mezghani_publish_them(tmp_path):
    rows = [
        {"episode_id": k, "scene_id": "data/scene_datasets/gibson/Adrian.glb", **STATE, "info": {"difficulty": "easy"},
         "goals": [{"position": [3.0, 0.1, -2.0], "radius": None}], "shortest_paths": None, "start_room": None}
        for k in range(3)
    ]  # fmt: skip
    episodes = load_episodes(write_packed(tmp_path / "val.json.gz", rows))
    assert [episode.episode_id for episode in episodes] == ["0", "1", "2"]
    assert {episode.scene_id for episode in episodes} == {"gibson/Adrian.glb"}
    EpisodeDataset(episodes).save(tmp_path / "again.json.gz")
    assert list(load_episodes(tmp_path / "again.json.gz")) == list(episodes)
    keys = read_packed(tmp_path / "again.json.gz")["episodes"][0]["goals"][0]
    assert set(keys) == {"position", "radius"}  # Habitat's loader refuses further keys


@pytest.mark.shared
def test_the_published_excerpt_is_read(shared):
    episodes = load_episodes(shared / "scenes" / "habitat_episodes" / "imagenav_gibson_mezghani_excerpt.json.gz")
    assert len(episodes) == 100 and {episode.info["difficulty"] for episode in episodes} >= set(LEVELS)
    headings = np.array([episode.goal_heading for episode in episodes])
    counts, _ = np.histogram(headings, bins=4, range=(0.0, 2 * math.pi))
    assert counts.min() >= 12


def test_headings_follow_from_scene_and_id_in_every_process():
    """They do not depend on Python's hash seed, on the folder of the scene, or on the start."""
    episode = Episode("7", "gibson/Adrian.glb", (0.0, 0.0, 0.0), rotation_of(1.0), (Goal((1.0, 0.0, 0.0)),))
    moved = dataclasses.replace(episode, scene_id="mine/Adrian.glb", start_position=(5.0, 0.0, 0.0))
    assert 0.0 <= episode.goal_heading < 2 * math.pi and moved.goal_heading == episode.goal_heading
    others = [dataclasses.replace(episode, episode_id=str(k)).goal_heading for k in range(400)]
    counts, _ = np.histogram(others, bins=8, range=(0.0, 2 * math.pi))
    assert abs(counts - 50).max() < 4 * math.sqrt(50)
    code = (
        "from batchnav.data.episodes import *; "
        "print(Episode('7', 'Adrian', (0, 0, 0), (0, 0, 0, 1), (Goal((1, 0, 0)),)).goal_heading)"
    )
    found = {
        float(subprocess.run([sys.executable, "-c", code], env={"PYTHONHASHSEED": seed, **_ENV}, capture_output=True,
                             text=True, check=True).stdout)
        for seed in ("1", "2")
    }  # fmt: skip
    assert found == {episode.goal_heading}


def test_episodes_are_made_in_levels_of_distance(house):
    episodes = generate_imagenav(house, 30, seed=1)
    assert len(episodes) == 30 and [episode.episode_id for episode in episodes] == [str(k) for k in range(30)]
    assert [episode.info["difficulty"] for episode in episodes[:6]] == ["easy", "medium", "hard"] * 2
    for episode in episodes:
        closest, furthest = LEVELS[episode.info["difficulty"]]
        assert closest <= episode.info["geodesic_distance"] <= furthest
        found = house.navmesh.geodesic_distance([episode.start_position], [episode.goals[0].position])
        assert float(found[0]) == pytest.approx(episode.info["geodesic_distance"], abs=1e-4)
    assert generate_imagenav(house, 30, seed=1) == episodes
    assert len(generate_imagenav(house, 4)) == 4


def test_every_episode_has_a_goal_of_its_own(house):
    """Levels do not share goals, with any seed."""
    for seed in (0, 2**63 - 1):
        episodes = generate_imagenav(house, 30, seed)
        assert len({episode.goals[0].position for episode in episodes}) == 30
        assert len({episode.start_position for episode in episodes}) == 30


def test_a_scene_too_small_for_a_level_has_the_others(tmp_path):
    scene = load_scene(write_box(tmp_path / "floor.ply", (0.0, -0.2, 0.0), (3.6, 0.0, 3.6)))
    levels = {episode.info["difficulty"] for episode in generate_imagenav(scene, 6)}
    assert "easy" in levels and "hard" not in levels


def test_episodes_are_played_with_the_headings_of_the_file(house, tmp_path):
    """The shortest-path follower succeeds in all; goals are the file's poses."""
    path = tmp_path / "imagenav.json.gz"
    episodes = generate_imagenav(house, 12)
    EpisodeDataset(episodes).save(path)
    assert list(load_episodes(path)) == episodes
    config = with_options(PRESETS["imagenav_houses"], {"height": 16, "width": 16})
    players = ReferencePlayer("shortest_path", config), ReferencePlayer("random", config)
    found = Evaluation(path, torch.device("cpu"), config, num_envs=5, appearance=needed_appearance(config))
    env = found._environment(range(len(found.episodes)), players[0].env_config)
    env.reset()
    assert env.task.goal_heading.tolist() == pytest.approx([e.goal_heading for e in episodes[: env.num_envs]], abs=1e-6)
    walked, random = (found.play(player) for player in players)
    assert walked.episodes["success"].tolist() == [1.0] * 12 and walked.mismatches == []
    assert random.episodes["success"].mean() < 0.7
