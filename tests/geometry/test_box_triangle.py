import numpy as np
import pytest
from numba import njit

from batchnav.geometry.pose import camera_axes, inverse_direction, pixel_ray, pixel_spacing
from batchnav.geometry.triangle import (
    ray_box,
    ray_boxes,
    ray_four_triangles,
    ray_triangles,
    triangle_on_screen,
    triangle_planes,
)
from batchnav.runtime.kernels.intrinsics import bits_float

f = np.float32
FAR = f(1e30)
HIT_ERROR = 1e-6  # a few roundings at depth 1 to 5
PLACE_ERROR = 5e-6  # of coordinates up to 5 over slow directions


@njit
def _boxes(boxes, inverse, offset, near, far):
    (x0, wide0, y0, high0, z0, deep0), (x1, wide1, y1, high1, z1, deep1) = boxes
    centre_xy, half_xy, z = (x0, x1, y0, y1), (wide0, wide1, high0, high1), (z0, z1, deep0, deep1)
    entry0, leave0, entry1, leave1 = ray_boxes(centre_xy, half_xy, z, inverse, offset, near, far)
    return bits_float(entry0), bits_float(leave0), bits_float(entry1), bits_float(leave1)


@njit
def _box(box, inverse, near, far):
    return ray_box(box, *inverse, near, far)


def middles(box):
    """Centre and half the size on each axis of a box (low x, high x, low y ...), float32."""
    pairs = zip(box[::2], box[1::2], strict=True)
    return tuple(f(value) for low, high in pairs for value in ((low + high) / 2, (high - low) / 2))


def box_hit(box, origin, direction, near=0.0, far=1e30):
    """Entry and exit, the same whether the box is the first or the second of the pair; of a hit as `ray_box` has it."""
    inverse = tuple(f(inverse_direction(f(d))) for d in direction)
    offset = tuple(-f(o) * i for o, i in zip(origin, inverse, strict=True))
    pair = middles(box), middles((70, 71, 80, 81, 90, 91))
    as_first = _boxes(pair, inverse, offset, f(near), f(far))[:2]
    assert as_first == _boxes(pair[::-1], inverse, offset, f(near), f(far))[2:]
    around = tuple(f(box[2 * k + side] - origin[k]) for side in range(2) for k in range(3))
    entry, leave = _box(around, inverse, f(near), f(far))
    assert (entry <= leave) == (as_first[0] <= as_first[1])
    assert entry > leave or (entry, leave) == pytest.approx(as_first, rel=HIT_ERROR, abs=PLACE_ERROR)
    return as_first


@pytest.mark.parametrize(
    ("origin", "direction", "expected"),
    [
        ((0, 0, 5), (0, 0, -1), (4, 6)),  # from outside, along an axis
        ((0, 0, 0), (0, 0, -1), (0, 1)),  # from inside: enters at near
        ((0, 0, 5), (0.1, 0.1, -1), (4, 6)),
        ((-1, 0, 5), (0, 0, -1), (4, 6)),  # parallel to a face, on it
    ],
)
def test_ray_enters_and_leaves_the_box(origin, direction, expected):
    assert box_hit((-1, 1, -1, 1, -1, 1), origin, direction) == pytest.approx(expected, rel=HIT_ERROR)


@pytest.mark.parametrize(
    ("origin", "direction", "far"),
    [((0, 0, 5), (0, 0, 1), 1e30), ((3, 0, 5), (0, 0, -1), 1e30), ((0, 0, 5), (0, 0, -1), 3.9)],
)
def test_ray_misses_the_box_behind_beside_and_beyond_far(origin, direction, far):
    entry, leave = box_hit((-1, 1, -1, 1, -1, 1), origin, direction, far=far)
    assert entry > leave


@pytest.mark.parametrize("seed", range(4))
def test_boxes_by_their_middles_are_hit_as_by_their_planes(seed):
    """Rays from within, beside and behind; those that graze a box are left to rounding."""
    rng = np.random.default_rng(seed)
    hits = 0
    for _ in range(500):
        low, size = rng.uniform(-4, 4, 3), rng.uniform(0.01, 3, 3)
        origin = rng.uniform(-4, 4, 3)
        direction = low + size * rng.uniform(-0.5, 1.5, 3) - origin
        first, last = (low - origin) / direction, (low + size - origin) / direction
        entry, leave = max(*np.minimum(first, last), 0.01), min(*np.maximum(first, last), 1.2)
        if abs(entry - leave) > 1e-3:
            box = np.stack([low, low + size], axis=1).ravel()
            found = box_hit(tuple(box), tuple(origin), tuple(direction), near=0.01, far=1.2)
            assert (found[0] <= found[1]) == (entry <= leave)
            assert entry > leave or found == pytest.approx((entry, leave), rel=1e-4)
            hits += entry <= leave
    assert 100 < hits < 400


def triangle_hit(corners, origin, direction, near=0.01, far=FAR, culling=False, slack=0.0):
    planes = triangle_planes(*map(tuple, np.float64(corners)), slack)
    row = np.array(planes, f).reshape(1, 12)
    ray = tuple(map(f, origin)), tuple(map(f, direction))
    t, hit = ray_triangles(np.int32(0), np.int32(0), row, *ray, f(near), f(far), culling)
    assert hit == (0 if t < f(far) else -1)
    return t


FRONT = [(-1, -1, 0), (1, -1, 0), (0, 1, 0)]  # counter-clockwise seen from +Z


@pytest.mark.parametrize("first, second", [(0, 1), (1, 0), (2, 1), (1, 2), (1, 1)])
def test_of_two_triangles_the_nearer_one_is_hit(first, second):
    """Triangle 1 is nearer than 0, and 2 is missed."""
    corners = [np.float64(FRONT) + offset for offset in ((0, 0, 0), (0, 0, 1), (5, 0, 2))]
    rows = np.float32([triangle_planes(*map(tuple, c), 0.0) for c in corners]).reshape(3, 12)
    ray = (f(0), f(0), f(3)), (f(0), f(0), f(-1))
    indices = np.int32(first), np.int32(second)
    assert ray_triangles(*indices, rows, *ray, f(0.01), FAR, False) == (pytest.approx(2.0), 1)
    assert ray_triangles(*indices, rows, *ray, f(0.01), f(1.9), False) == (f(1.9), -1)
    assert ray_triangles(*indices, rows, *ray, f(2.1), FAR, False) == (
        (pytest.approx(3.0), 0) if 0 in indices else (FAR, -1)
    )


@pytest.mark.parametrize("count", [1, 2, 3, 4])
def test_four_triangles_at_once_are_hit_as_two_by_two(count):
    """Parallel triangles in a random order, two of them equal, of which some are missed."""
    rng, hits = np.random.default_rng(count), 0
    for _ in range(60):
        offsets = rng.uniform(-1, 1, (4, 3))
        offsets[1] = offsets[rng.integers(4)]
        rows = np.float32([triangle_planes(*map(tuple, FRONT + offset), 0.0) for offset in offsets]).reshape(4, 12)
        ray, last = ((f(0), f(0), f(3)), (f(0), f(0), f(-1))), np.int32(count - 1)
        expected = FAR, -1
        for first in range(0, count, 2):
            second = min(np.int32(first + 1), last)
            t, hit = ray_triangles(np.int32(first), second, rows, *ray, f(0.01), expected[0], False)
            expected = (t, hit) if hit >= 0 else expected
        assert ray_four_triangles(np.int32(0), last, rows, *ray, f(0.01), FAR, False) == expected
        hits += expected[1] >= 0
    assert hits > 10


def test_hit_is_where_the_plane_is():
    assert triangle_hit(FRONT, (0, 0, 3), (0, 0, -1)) == pytest.approx(3.0, rel=HIT_ERROR)
    assert triangle_hit(FRONT, (0, 0, 3), (0.1, 0.1, -1)) == pytest.approx(3.0, rel=HIT_ERROR)


def test_misses_beside_behind_nearer_than_near_and_not_before_far():
    assert triangle_hit(FRONT, (1, 1, 3), (0, 0, -1)) == FAR
    assert triangle_hit(FRONT, (0, 0, 3), (0, 0, 1)) == FAR
    assert triangle_hit(FRONT, (0, 0, 3), (1, 0, 0)) == FAR  # parallel to the plane
    assert triangle_hit(FRONT, (0, 0, 0.005), (0, 0, -1)) == FAR
    assert triangle_hit(FRONT, (0, 0, 3), (0, 0, -1), far=3.0) == 3.0


def test_both_sides_are_seen_unless_back_faces_are_culled():
    assert triangle_hit(FRONT, (0, 0, -2), (0, 0, 1)) == pytest.approx(2.0)
    assert triangle_hit(FRONT, (0, 0, -2), (0, 0, 1), culling=True) == FAR
    assert triangle_hit(FRONT, (0, 0, 2), (0, 0, -1), culling=True) == pytest.approx(2.0)


def test_barycentric_planes_grow_by_the_slack_on_every_side():
    slack = 1e-3
    for inward, outside in (((0, 1), (0, -1)), ((-1, -0.5), (1, 0)), ((1, -0.5), (-1, 0))):
        normal = -np.array(inward) / np.linalg.norm(inward)
        edge = np.array([0, -1]) if outside == (0, -1) else np.array([0.5 * outside[0], 0.0])
        for distance, hit in ((-1e-4, True), (0.9 * slack, True), (1.1 * slack, False)):
            x, y = edge + distance * normal
            assert (triangle_hit(FRONT, (x, y, 1), (0, 0, -1), slack=slack) < FAR) == hit


@pytest.mark.parametrize("seed", range(8))
def test_what_is_linear_over_the_image_gives_each_rays_hit(seed):
    """Pixels of a 16 x 24 image against `ray_triangles`, from the front or the back."""
    rng = np.random.default_rng(seed)
    heading, tan_half, size = f(rng.uniform(-3, 3)), f(1.2), (np.int32(16), np.int32(24))
    axes = tuple(tuple(map(f, axis)) for axis in camera_axes(heading, f(0.3 * (seed % 3))))
    corners = 2 * np.array(axes[2]) + rng.normal(0, 1, (3, 3))
    row, origin = np.array(triangle_planes(*map(tuple, corners), 0.0), f).reshape(1, 12), (f(0), f(0), f(0))
    pixels = [(np.int32(r), np.int32(c)) for r in range(size[0]) for c in range(size[1])]
    rays = [tuple(map(f, pixel_ray(*pixel, axes, *size, tan_half))) for pixel in pixels]
    spacing = f(pixel_spacing(size[1], tan_half))
    side, *linear = triangle_on_screen(np.int32(0), row, origin, rays[0], axes, spacing)
    assert np.sign(side) == -np.sign(np.dot(np.cross(corners[1] - corners[0], corners[2] - corners[0]), corners[0]))
    for (r, c), ray in zip(pixels, rays, strict=True):
        w, u, v = (value + c * by_column + r * by_row for value, by_column, by_row in linear)
        t, _ = ray_triangles(np.int32(0), np.int32(0), row, origin, ray, f(0), FAR, False)
        if min(abs(u), abs(v), abs(w - u - v)) > 1e-5:  # not on an edge, where rounding decides
            assert (w > 0 and u >= 0 and v >= 0 and u + v <= w) == (t < FAR)
        if t < FAR:
            assert 1 / w == pytest.approx(t, rel=1e-4)


def test_a_sliver_does_not_grow_without_bound():
    length, height, slack = 1.0, 1e-5, 1e-3
    sliver = [(0, 0, 0), (length, 0, 0), (0, height, 0)]
    assert triangle_hit(sliver, (0.3, height / 2, 1), (0, 0, -1), slack=slack) < FAR
    assert triangle_hit(sliver, (2.1, 0, 1), (0, 0, -1), slack=slack) == FAR
