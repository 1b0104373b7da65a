"""Branches against reachability without a polygon, and searches with and without branches."""

import numpy as np
import pytest
from handmade import four_tiles, hills, make_tile, rectangle

from batchnav.navmesh.build import Links, branches
from batchnav.navmesh.data import MIDDLE_ROW, records
from batchnav.navmesh.file import single_tile_file
from batchnav.navmesh.navmesh import NavMesh
from batchnav.navmesh.settings import NavMeshSettings


def links_of(pairs) -> Links:
    """Links both ways between pairs of polygons, those of a polygon together."""
    both = np.array(sorted({way for a, b in pairs for way in ((a, b), (b, a))}), np.int64).reshape(-1, 2)
    nothing = np.zeros(len(both), np.int64)
    return Links(both[:, 0], both[:, 1], nothing, nothing, np.zeros((len(both), 3)), np.zeros((len(both), 3)))


def reached(links: Links, start: int, without: int) -> set[int]:
    """Polygons that are reached from `start` when a polygon is taken away."""
    found, waiting = {start}, [start]
    while waiting:
        polygon = waiting.pop()
        for target in links.target[links.polygon == polygon].tolist():
            if target != without and target not in found:
                found.add(target)
                waiting.append(target)
    return found


@pytest.mark.parametrize("seed", range(30))
def test_branches_are_what_is_reachable_without_the_polygon(seed):
    rng = np.random.default_rng(seed)
    number = int(rng.integers(2, 30))
    pairs = rng.integers(0, number, (int(rng.integers(1, 2 * number)), 2)).tolist()
    links = links_of([(a, b) for a, b in pairs if a != b])
    numbers, found = branches(links, number)
    assert sorted(numbers.tolist()) == list(range(number))
    for (first, end), polygon, target in zip(found.tolist(), links.polygon, links.target, strict=True):
        inside = (first <= numbers) & (numbers < end) if first < end else (first <= numbers) | (numbers < end)
        there = reached(links, target, polygon)
        island = there | reached(links, polygon, -1)
        for other in island - {polygon}:
            assert inside[other] == (other in there)


def everywhere(navmesh: NavMesh) -> NavMesh:
    """The same navmesh, with all polygons in every branch: searches that leave nothing out."""
    other = NavMesh(navmesh.file)
    records(other.data.link_middle, MIDDLE_ROW)["branch"] = 0
    other._place(other.device)  # as kernels read it
    return other


def rooms() -> NavMesh:
    """A ring of squares round a hole, rooms of three squares in a row beside it: many ways are equally long."""
    places = [(x, z) for x in range(5) for z in range(5) if x in (0, 4) or z in (0, 4)]
    places += [(5 + i, z) for i in range(3) for z in (0, 2)] + [(-1 - i, 2) for i in range(3)] + [(1, 2), (2, 2)]
    outlines = [rectangle(float(x), float(z), x + 1.0, z + 1.0) for x, z in places]
    return NavMesh(single_tile_file(make_tile(outlines), NavMeshSettings()))


@pytest.mark.parametrize("between", ["anywhere", "middles", "hills"])
def test_searches_that_skip_branches_find_the_same_paths(between):
    navmesh = NavMesh(hills(9, seed=3)) if between == "hills" else rooms()
    whole = everywhere(navmesh)
    starts, goals = navmesh.sample(2000, seed=1), navmesh.sample(2000, seed=2)
    if between == "middles":  # where ways of equal length meet in the queue
        starts[:, [0, 2]], goals[:, [0, 2]] = (np.floor(p[:, [0, 2]]) + np.float32(0.5) for p in (starts, goals))
    same = navmesh.geodesic_distance(starts, goals), whole.geodesic_distance(starts, goals)
    np.testing.assert_array_equal(*same)
    for start, goal in zip(starts[:200], goals[:200], strict=True):
        np.testing.assert_array_equal(navmesh.shortest_path(start, goal), whole.shortest_path(start, goal))


@pytest.mark.parametrize("seed", range(6))
def test_one_way_and_parallel_links_between_polygons(seed):
    """Edges lead anywhere, as a file from a stranger may have it: back or not, twice, to the polygon itself."""
    rng = np.random.default_rng(seed)
    tile = make_tile([rectangle(float(x), float(z), x + 1.0, z + 1.0) for x in range(7) for z in range(7)])
    neighbours = tile.polygons["neighbours"]
    neighbours[:] = 0
    for polygon, other in rng.integers(0, len(neighbours), (60, 2)):
        neighbours[polygon, rng.integers(4)] = other + 1
        if rng.random() < 0.8:
            neighbours[other, rng.integers(4)] = polygon + 1
    navmesh = NavMesh(single_tile_file(tile, NavMeshSettings()))
    starts, goals = (rng.integers(0, 14, (1000, 3)).astype(np.float32) / 2 for _ in range(2))
    starts[:, 1] = goals[:, 1] = 0.0
    found = navmesh.geodesic_distance(starts, goals)
    assert 0.1 < np.isfinite(found).mean() < 1.0
    np.testing.assert_array_equal(found, everywhere(navmesh).geodesic_distance(starts, goals))


def test_of_several_tiles_all_polygons_are_in_every_branch():
    data = NavMesh(four_tiles()).data
    assert not records(data.link_middle, MIDDLE_ROW)["branch"].any() and not data.polygon_number.any()
