import dataclasses
import math

import numpy as np
import pytest
from worlds import write_floor

from batchnav.data.formats import EpisodeDataset, load_episodes
from batchnav.data.formats.objectnav import TASK_IDS
from batchnav.data.goals import GOALS
from batchnav.data.goals.category import category_episodes, generate_objectnav, nearest_view_points
from batchnav.data.goals.point import generate_episodes
from batchnav.data.goals.rules import RULES, EpisodeRules
from batchnav.data.goals.view_points import with_goals
from batchnav.data.play import check_episodes
from batchnav.data.scenes.load import load_scene
from batchnav.data.scenes.source import mesh_source
from batchnav.errors import EpisodeError
from batchnav.tasks.objectnav import HM3D
from tests.labelled import labelled_scene


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


# Generated ObjectNav episodes: rules, equal episodes for equal seeds, independence of categories


@pytest.fixture(scope="module")
def house():
    return with_goals([load_scene("house:2")], device="cpu")[0]


@pytest.fixture(scope="module")
def dataset(house):
    return generate_objectnav([house], 40, seed=3)


def test_episodes_obey_the_rules(house, dataset):
    """As in the official files: distances in the limits, to the nearest view point, start at the height of one."""
    goals, navmesh = house.goals, house.navmesh
    rules = EpisodeRules()
    assert len(dataset.episodes) == 40 and [e.episode_id for e in dataset.episodes] == [str(i) for i in range(40)]
    assert list(dataset.header[TASK_IDS].items()) == list(zip(HM3D, range(6), strict=True))
    counts = [sum(e.object_category == name for e in dataset.episodes) for name in goals.categories]
    assert max(counts) - min(counts) <= 1
    ratios = []
    for episode in dataset.episodes:
        points, start = goals.view_points(episode.object_category), np.array(episode.start_position)
        lengths = navmesh.geodesic_distance(np.tile(start, (len(points), 1)), points)
        nearest, info = points[lengths.argmin()], episode.info
        assert info["geodesic_distance"] == pytest.approx(lengths.min(), abs=1e-5)
        assert info["euclidean_distance"] == pytest.approx(math.dist(start, nearest), abs=1e-5)
        owner = next(goal for goal in goals.objects if goal.object_id == info["closest_goal_object_id"])
        assert owner.category == episode.object_category and (owner.view_points == nearest).all(1).any()
        assert rules.closest <= info["geodesic_distance"] <= rules.furthest
        assert np.abs(points[:, 1] - start[1]).min() <= rules.max_height
        assert navmesh.island_radius(start) >= rules.min_island_radius
        ratios.append(info["geodesic_distance"] / info["euclidean_distance"])
    assert np.mean(np.array(ratios) < 1.05) < 0.2  # at most 20 (1.05 - 0.98)^2 = 0.1 of the straight ones are kept
    headings = np.array([episode.heading for episode in dataset.episodes])
    assert np.abs(np.exp(1j * headings).mean()) < 0.4


def test_starts_are_spread_over_the_house(house, dataset):
    starts = np.array([episode.start_position for episode in dataset.episodes])
    cells = {tuple(cell) for cell in np.floor(starts[:, [0, 2]]).astype(int).tolist()}
    assert len(cells) >= 15


def test_equal_seeds_give_equal_episodes_and_files(house, dataset, tmp_path):
    again = generate_objectnav([house], 40, seed=3)
    assert again.episodes == dataset.episodes
    assert generate_objectnav([house], 40, seed=4).episodes != dataset.episodes
    for name, some in (("a", dataset), ("b", again)):
        some.save(tmp_path / name / "val.json.gz")
    contents = [(tmp_path / name / "content" / "house_2.json.gz").read_bytes() for name in "ab"]
    assert contents[0] == contents[1]
    read = load_episodes(tmp_path / "a" / "val.json.gz")
    assert read.episodes == dataset.episodes
    found = GOALS[read.kind].scene_goals(read, "house:2")
    for one, other in zip(found.objects, house.goals.objects, strict=True):
        assert one[:4] == other[:4]
        np.testing.assert_array_equal(one.view_points, other.view_points)


def test_a_category_does_not_depend_on_the_others(house):
    category = house.goals.categories[0]
    alone = house._replace(goals=house.goals._replace(
        objects=tuple(goal for goal in house.goals.objects if goal.category == category)))  # fmt: skip
    both = [category_episodes(scene, category, seed=5) for scene in (house, alone)]
    assert [next(both[0]) for _ in range(5)] == [next(both[1]) for _ in range(5)]


def test_permuting_object_ids_permutes_nothing_else(house):
    numbers = [goal.object_id for goal in house.goals.objects]
    new = dict(zip(numbers, reversed(numbers), strict=True))
    objects = sorted((goal._replace(object_id=new[goal.object_id]) for goal in house.goals.objects), key=lambda g: g[1])
    other = generate_objectnav([house._replace(goals=house.goals._replace(objects=tuple(objects)))], 20, seed=3)
    for one, two in zip(generate_objectnav([house], 20, seed=3).episodes, other.episodes, strict=True):
        info = {**one.info, "closest_goal_object_id": new[one.info["closest_goal_object_id"]]}
        assert dataclasses.replace(one, info=info) == two


def test_the_nearest_view_point_is_found_without_all_searches(house):
    points = house.goals.view_points("chair").astype(np.float64)[::5]
    starts = house.navmesh.sample(12, seed=9).astype(np.float64)
    found = nearest_view_points(house.navmesh, starts, points)
    for start, distance, row in zip(starts, found.distance, found.row, strict=True):
        lengths = house.navmesh.geodesic_distance(np.tile(start, (len(points), 1)), points)
        assert distance == lengths.min() and lengths[row] == lengths.min()


def test_ovon_keeps_no_straight_path():
    scenes = [load_scene("house:2")]
    rules = RULES["ovon"]
    (scene,) = with_goals(scenes, rules, "hm3d", device="cpu")
    episodes = generate_objectnav([scene], 12, rules=rules, labels="hm3d").episodes
    assert all(e.info["geodesic_distance"] >= 1.05 * e.info["euclidean_distance"] for e in episodes)


def test_scenes_without_goals_or_episodes_are_named():
    with pytest.raises(EpisodeError, match="scene 'boxes': found no goals, expected a scene of `with_goals`"):
        generate_objectnav([labelled_scene([])], 1)
    with pytest.raises(EpisodeError, match="found no episodes in 1 scene,"):
        generate_objectnav(with_goals([labelled_scene([])], device="cpu"), 1)
    near = labelled_scene([("chair", (-0.2, 0, -0.2), (0.2, 0.8, 0.2))], floor=3.4)  # nothing is 1 m from a view point
    with pytest.raises(EpisodeError, match="found no episodes in 1 scene,"):
        generate_objectnav(with_goals([near], device="cpu"), 1)
