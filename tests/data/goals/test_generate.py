import math

import numpy as np
import pytest
from worlds import write_floor

from batchnav.data.formats import EpisodeDataset, load_episodes
from batchnav.data.goals.point import generate_episodes
from batchnav.data.play import check_episodes
from batchnav.data.scenes.source import mesh_source
from batchnav.errors import EpisodeError


@pytest.fixture(scope="module")
def scene(tmp_path_factory):
    return mesh_source(write_floor(tmp_path_factory.mktemp("generate") / "floor.ply")).load()


def test_habitats_rules(scene, tmp_path):
    episodes = generate_episodes(scene, 40)
    check_episodes(episodes, {scene.name: scene})
    distance = np.array([e.info["geodesic_distance"] for e in episodes])
    assert distance.min() >= 1.0 and distance.max() <= 30.0
    assert all(e.goals[0].radius == 0.2 and e.scene_id == scene.name for e in episodes)
    assert len({e.episode_id for e in episodes}) == 40
    straight = [math.dist(e.start_position, e.goals[0].position) for e in episodes]
    assert (distance >= np.array(straight) - 1e-3).all()
    EpisodeDataset(episodes).save(tmp_path / "e.json.gz")
    assert list(load_episodes(tmp_path / "e.json.gz")) == episodes


def test_same_seed_same_episodes(scene):
    assert generate_episodes(scene, 5, seed=3) == generate_episodes(scene, 5, seed=3)
    assert generate_episodes(scene, 5, seed=3) != generate_episodes(scene, 5, seed=4)


def test_a_scene_without_room(tmp_path):
    import trimesh

    trimesh.creation.box((1.6, 0.2, 1.6)).export(tmp_path / "small.ply")
    with pytest.raises(EpisodeError, match=r"small\.ply"):
        generate_episodes(mesh_source(tmp_path / "small.ply").load(), 3)
