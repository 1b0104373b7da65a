"""Recorded results of Recast/Detour with habitat-sim's calls on a few scenes, and Habitat's test data."""

import gzip
import json

import numpy as np
import pytest

from batchnav.navmesh.data import triangle_areas
from batchnav.navmesh.navmesh import NavMesh

STEP, DISTANCE = 1e-4, 1e-3
"""Metres and relative: what the recorded conditioning flags promise to be reproducible."""
HABITAT = 1e-5
"""Metres: Habitat's published test data."""
SAME_PIXELS = 5e-3
"""Share of a map's pixels."""
OURS = (
    "boxes", "empty10", "gaps", "house_r3_s3", "house_r4", "lcorridor", "ramp20", "stairs", "table", "twolevel",
    "tworooms", "wallroom",
)  # fmt: skip
OTHERS = ("aws_small_house", "hab_apartment_1", "recast_dungeon")


@pytest.fixture(scope="module", params=[*OURS, *(pytest.param(name, marks=pytest.mark.shared) for name in OTHERS)])
def scene(request, oracle):
    return NavMesh.load(oracle(f"{request.param}.navmesh")), np.load(oracle(f"{request.param}.npz"))


def share(error, tolerance):
    return np.mean(error <= tolerance)


def distance(a, b):
    both = np.isnan(a).any(1) & np.isnan(b).any(1)
    return np.where(both, 0.0, np.nan_to_num(np.linalg.norm(a - b, axis=1), nan=np.inf))


def test_area_and_islands(scene):
    navmesh, z = scene
    assert navmesh.area == pytest.approx(float(z["area_total"]), rel=1e-5)
    assert navmesh.num_polygons == int(z["num_polys"]) and navmesh.num_islands == len(z["island_radii"])
    np.testing.assert_allclose(navmesh.bounds, z["bounds"], atol=1e-6)
    stable = z["island_stable"] == 1
    island, radius = navmesh.island(z["island_in"])[stable], navmesh.island_radius(z["island_in"])[stable]
    expected = z["island_id"][stable]
    pairs = set(zip(island.tolist(), expected.tolist(), strict=True))
    assert len(pairs) == len({a for a, _ in pairs}) == len({b for _, b in pairs})  # labels may differ
    assert np.all((island == -1) == (expected == -1))
    np.testing.assert_allclose(radius, z["island_radius"][stable], rtol=1e-4)


def test_geodesic(scene):
    navmesh, z = scene
    stable = z["geo_stable"] == 1
    ours, theirs = navmesh.geodesic_distance(z["geo_start"], z["geo_goal"])[stable], z["geo_distance"][stable]
    np.testing.assert_array_equal(np.isinf(ours), np.isinf(theirs))
    found = np.isfinite(theirs)
    ours, theirs = ours[found], theirs[found]
    assert share(np.abs(ours - theirs) / np.maximum(theirs, DISTANCE), DISTANCE) >= 0.999


def test_path_corners(scene):
    navmesh, z = scene
    offsets = z["path_offsets"]
    for k in np.flatnonzero((z["geo_stable"] == 1) & np.isfinite(z["geo_distance"]))[:150]:
        expected = z["path_points"][offsets[k] : offsets[k + 1]]
        ours = navmesh.shortest_path(z["geo_start"][k], z["geo_goal"][k])
        length = np.linalg.norm(np.diff(ours, axis=0), axis=1).sum()
        assert length == pytest.approx(float(z["geo_distance"][k]), rel=DISTANCE, abs=1e-5)
        assert distance(ours[[0, -1]], expected[[0, -1]]).max() < STEP
        if len(ours) == len(expected):
            assert distance(ours, expected).max() < 1e-2  # corners on a straight line may move along it


@pytest.mark.parametrize(("sliding", "name"), [(True, "step_slide"), (False, "step_noslide_033")])
def test_try_step(scene, sliding, name):
    navmesh, z = scene
    ours, theirs, stable = navmesh.try_step(z["step_start"], z["step_end"], sliding), z[name], z[f"{name}_stable"]
    error = np.where(stable == 2, distance(ours, theirs), distance(ours[:, [0, 2]], theirs[:, [0, 2]]))[stable > 0]
    assert share(error, STEP) >= 0.999


def test_snap_navigable_clearance(scene):
    navmesh, z = scene
    assert share(distance(navmesh.snap(z["snap_in"]), z["snap_out"])[z["snap_stable"] == 1], STEP) >= 0.999
    same = navmesh.is_navigable(z["navigable_in"]) == z["navigable_out"].astype(bool)
    assert np.mean(same[z["navigable_stable"] == 1]) >= 0.999
    ours, theirs, stable = navmesh.distance_to_wall(z["clearance_in"]), z["clearance_out"], z["clearance_stable"] == 1
    np.testing.assert_array_equal(np.isinf(ours[stable]), np.isinf(theirs[stable]))
    error = np.abs(np.nan_to_num(ours, posinf=0) - np.nan_to_num(theirs, posinf=0))[stable]
    assert share(error, STEP) >= 0.999


def test_sequences_of_steps(scene):
    """Recorded actions replayed step by step from each recorded position."""
    navmesh, z = scene
    forward = z["walk_actions"] == 1
    starts, heading = z["walk_positions"][:, :-1][forward], z["walk_headings"][:, :-1][forward].astype(np.float64)
    ahead = np.stack([-np.sin(heading), np.zeros_like(heading), -np.cos(heading)], 1)
    ends = (starts.astype(np.float64) + 0.25 * ahead).astype(np.float32)
    error = distance(navmesh.try_step(starts, ends)[:, [0, 2]], z["walk_positions"][:, 1:][forward][:, [0, 2]])
    assert share(error, STEP) >= 0.995  # not flagged for conditioning step by step


@pytest.fixture(scope="module")
def van_gogh(shared):
    folder = shared / "scenes" / "van-gogh-room"
    return NavMesh.load(folder / "van-gogh-room.navmesh"), folder / "gt"


def test_habitats_areas(van_gogh):
    navmesh, _ = van_gogh
    assert navmesh.num_polygons == 10 and navmesh.area == pytest.approx(9.177721, abs=2e-6)
    areas = triangle_areas(navmesh.data)
    islands = sorted(areas[navmesh.data.polygon_island == k].sum() for k in range(navmesh.num_islands))
    np.testing.assert_allclose(islands, [1.87272, 7.30500], atol=1e-5)


def test_habitats_area_of_skokloster_castle(shared):
    navmesh = NavMesh.load(next((shared / "scenes" / "habitat_navmeshes").rglob("skokloster-castle.navmesh")))
    assert navmesh.area == pytest.approx(226.65674, abs=1e-5)


def test_habitats_geodesics(van_gogh):
    navmesh, folder = van_gogh
    golden = json.loads((folder / "test-sim-geodesic-distance-test-golden.json").read_text())
    for case in golden["single_end"]:
        assert navmesh.geodesic_distance(case["start"], case["end"]) == pytest.approx(case["expected"], abs=1e-6)
    for case in golden["multi_end"]:
        assert navmesh.geodesic_distance(case["start"], case["ends"]) == pytest.approx(case["expected"], abs=1e-6)


def test_habitats_trajectory(van_gogh):
    navmesh, folder = van_gogh
    data = json.loads((folder / "habitat-sim_trajectory_data.json").read_text())
    positions, rotations = np.float32(data["positions"]), np.array(data["rotations"])
    heading = 2 * np.arctan2(rotations[:, 1], rotations[:, 3])
    ahead = np.stack([-np.sin(heading), 0 * heading, -np.cos(heading)], 1)
    walked = [positions[0]]
    for step, action in zip(ahead, data["actions"][:-1], strict=False):
        here = walked[-1]
        walked.append(navmesh.try_step(here, here + 0.25 * step) if action == "move_forward" else here)
    np.testing.assert_allclose(walked, positions, atol=HABITAT)
    known = np.array([d is not None for d in data["distances_to_obstacles"]])
    expected = np.float32([d for d in data["distances_to_obstacles"] if d is not None])
    np.testing.assert_allclose(navmesh.distance_to_wall(positions)[known], expected, atol=HABITAT)


@pytest.mark.parametrize(
    ("name", "height", "shape", "navigable"),
    [
        ("van-gogh-room", 0.0, (35, 67), 759),
        ("van-gogh-room", 1.0, (35, 67), 195),
        ("skokloster-castle", 0.0, (246, 183), 22496),
    ],
)
def test_topdown_view(shared, name, height, shape, navigable):
    """Pixels of 0.1 m that are navigable when Detour is asked as habitat-sim's PathFinder asks it."""
    view = NavMesh.load(next((shared / "scenes").rglob(f"{name}.navmesh"))).topdown_view(0.1, height)
    assert view.shape == shape and abs(int(view.sum()) - navigable) <= SAME_PIXELS * view.size


def test_published_episodes(van_gogh, shared):
    navmesh, folder = van_gogh
    castle = NavMesh.load(next((shared / "scenes" / "habitat_navmeshes").rglob("skokloster-castle.navmesh")))
    for episode in json.loads(gzip.decompress((folder / "habitat_test_scenes_3_episodes.json.gz").read_bytes()))[
        "episodes"
    ]:
        where = navmesh if "van-gogh" in episode["scene_id"] else castle
        goals = [goal["position"] for goal in episode["goals"]]
        expected = episode["info"]["geodesic_distance"]
        assert where.geodesic_distance(episode["start_position"], goals) == pytest.approx(expected, abs=1e-6)
