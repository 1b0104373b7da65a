"""Houses torn as scans are: the same each time, with holes, and walked in as before."""

import numpy as np
import pytest

from batchnav.data.scene_ref import scene_ids
from batchnav.data.scenes import find_scene
from batchnav.procedural import degrade, make_house
from batchnav.procedural.degrade import LARGEST_EDGE, outside
from batchnav.scene.mesh import check_mesh

SEED = 5


def area(corners):
    return np.linalg.norm(np.cross(corners[:, 1] - corners[:, 0], corners[:, 2] - corners[:, 0]), axis=1).sum() / 2


def test_a_scan_is_the_same_each_time_and_lacks_some_of_the_surface():
    house = make_house(SEED)
    scan, again, other = degrade(house, SEED), degrade(house, SEED), degrade(house, SEED + 1)
    assert scan.vertices.tobytes() == again.vertices.tobytes() and scan.faces.tobytes() == again.faces.tobytes()
    assert scan.vertices.tobytes() != other.vertices.tobytes()
    assert check_mesh(scan, "scan").num_dropped <= 0.001 * len(scan.faces)
    surface = [area(mesh.vertices[mesh.faces].astype(float)) for mesh in (house, scan)]
    assert 0.3 < surface[1] / surface[0] < 1.0
    assert len(scan.faces) < 12 * len(house.faces)


@pytest.mark.parametrize("radius", [0.1, 0.5, 1.0])
def test_a_ball_is_cut_out_of_a_wall(radius):
    wall = np.array([[[-2, -2, 0], [2, -2, 0], [2, 2, 0]], [[-2, -2, 0], [2, 2, 0], [-2, 2, 0]]], float)
    left = outside(wall, np.zeros((1, 3)), np.array([radius]))
    # The border is as coarse as the triangles there.
    border = 2 * np.pi * radius * LARGEST_EDGE / 2
    assert area(left) == pytest.approx(16 - np.pi * radius**2, abs=border)
    assert np.linalg.norm(left.mean(1), axis=1).min() > radius
    beside = outside(wall, np.array([[0.0, 0.0, 5.0]]), np.array([radius]))
    assert np.array_equal(beside, wall)


def test_one_walks_in_the_house_and_sees_the_scan():
    house, scan = find_scene(f"house:{SEED}"), find_scene(f"scan:{SEED}")
    assert scan.name == f"scan:{SEED}" and scan.navmesh.area == house.navmesh.area
    assert scan.mesh.vertices.shape != house.mesh.vertices.shape
    assert scene_ids([f"scan:{SEED}-{SEED + 1}"]) == [f"scan:{SEED}", f"scan:{SEED + 1}"]
