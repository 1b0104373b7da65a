"""Parts of the OpenGL renderer that need no OpenGL: clusters of triangles, and the layout of images."""

import numpy as np
import pytest
from banks import room

from batchnav.errors import DeviceError
from batchnav.procedural import make_house
from batchnav.renderers.opengl.layout import (
    MAX_TRIANGLES,
    Limits,
    arrange,
    buffer_sizes,
    build_clusters,
    check_memory,
    check_triangles,
)

LIMITS = Limits(texture_size=16384, layers=2048, groups=65535, block=2**27, texels=2**27)


def test_clusters_hold_every_triangle_once():
    meshes = [make_house(3), room()]
    clusters = build_clusters(meshes)
    first, count = clusters.boxes.view(np.uint32)[:, 3], clusters.boxes.view(np.uint32)[:, 7]
    (large, number), (small, one) = clusters.ranges
    assert (large, small, one) == (0, number, 1)
    assert count.max() <= MAX_TRIANGLES and count[:number].min() >= MAX_TRIANGLES // 2
    np.testing.assert_array_equal(first, np.concatenate([[0], np.cumsum(count)[:-1]]))
    corners = clusters.corners[:, :, :3]
    split = np.cumsum([len(mesh.faces) for mesh in meshes])
    for mesh, part in zip(meshes, np.split(corners, split[:-1]), strict=True):
        mine, theirs = (np.unique(c.reshape(-1, 9), axis=0) for c in (part, mesh.vertices[mesh.faces]))
        np.testing.assert_array_equal(mine, theirs)
    number = clusters.corners.view(np.int32)[:, :, 3]
    faces = np.concatenate([mesh.vertices[mesh.faces] for mesh in meshes])
    np.testing.assert_array_equal(corners, faces[number[:, 0]])
    assert (number == number[:, :1]).all() and len(np.unique(number[:, 0])) == len(faces)
    low, high = (clusters.boxes[np.repeat(np.arange(len(count)), count), None, c : c + 3] for c in (0, 4))
    assert (corners >= low).all() and (corners <= high).all()


@pytest.mark.parametrize(
    ("num_agents", "size", "expected"),
    [(1, 64, (1, 1, 1)), (5, 64, (4, 2, 1)), (4096, 64, (4, 4, 256)), (100, 6000, (2, 2, 25)), (3, 16384, (1, 1, 3))],
)
def test_agents_are_tiles_in_layers(num_agents, size, expected):
    assert arrange(num_agents, size, size, 100, LIMITS)[:3] == expected


def test_what_exceeds_the_limits_is_an_error():
    with pytest.raises(DeviceError, match="found 40000 agents, expected at most 32768 of 64 x 64"):
        arrange(40000, 64, 64, 100, LIMITS)
    with pytest.raises(DeviceError, match="found images of 20000 x 20000, expected sides of at most 16384"):
        arrange(1, 20000, 20000, 100, LIMITS)
    clusters, image = build_clusters([room()]), (16384, 64, 64, 1)
    sizes = buffer_sizes(*image, arrange(*image, LIMITS))
    with pytest.raises(DeviceError, match=r"a buffer \(depth\) of 256 MiB, expected at most 128 MiB on a card"):
        check_memory(sizes, 0, LIMITS, None, "16384 agents", "a card")
    with pytest.raises(DeviceError, match="found 12 triangles in all scenes, expected at most 10 on a card"):
        check_triangles(clusters, LIMITS._replace(texels=30), "a card")
    check_triangles(clusters, LIMITS._replace(texels=36), "a card")
    limits, needed = LIMITS._replace(block=2**31), sum(sizes.values()) + 2**20
    check_memory(sizes, 2**20, limits, needed, "16384 agents", "a card")
    with pytest.raises(DeviceError, match=r"16384 agents need [\d,]+ MiB, found [\d,]+ MiB free on a card"):
        check_memory(sizes, 2**20, limits, needed - 1, "16384 agents", "a card")
