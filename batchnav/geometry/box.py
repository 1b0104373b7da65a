"""Intersection of rays with axis-aligned boxes: the slab test (Kay and Kajiya, SIGGRAPH 1986)."""

from batchnav.runtime.kernels.decorators import inline_function
from batchnav.runtime.kernels.intrinsics import float_bits, fma


@inline_function
def ray_boxes(centre_xy, half_xy, z, inverse, offset, near, far):
    """Ray parameters of entry and exit for two boxes, clipped to [near, far]: entry 0, exit 0, entry 1, exit 1.

    Args:
        centre_xy: centres (x0, x1, y0, y1) of boxes 0 and 1, float32.
        half_xy: half sizes (x0, x1, y0, y1).
        z: centres and half sizes (centre z0, z1, half z0, z1).
        inverse: 1 / direction (x, y, z), finite.
        offset: -origin / direction; the ray meets the plane at x at parameter x * inverse + offset.
        near: least parameter, at least 0.
        far: greatest parameter.

    Results are the bits of float32 in int32, which have the same order. The ray misses a box where entry > exit; then
    the exit may be wrong. This form suits GPUs, which execute multiply-adds at twice the rate of comparisons: the half
    size determines which plane of a slab comes first, and an integer maximum of three values is one instruction.
    """
    (x0, x1, y0, y1), (wide0, wide1, high0, high1), (z0, z1, deep0, deep1) = centre_xy, half_xy, z
    entry0, leave0 = _meet((x0, y0, z0), (wide0, high0, deep0), inverse, offset, near, far)
    entry1, leave1 = _meet((x1, y1, z1), (wide1, high1, deep1), inverse, offset, near, far)
    return entry0, leave0, entry1, leave1


@inline_function
def _meet(centre, half, inverse, offset, near, far):
    ex, lx = _slab(centre[0], half[0], inverse[0], offset[0])
    ey, ly = _slab(centre[1], half[1], inverse[1], offset[1])
    ez, lz = _slab(centre[2], half[2], inverse[2], offset[2])
    # The bits of negative numbers have the opposite order. This is harmless: `near` replaces a negative entry, and any
    # negative exit lies before `near`.
    return max(max(max(ex, ey), ez), float_bits(near)), min(min(min(lx, ly), lz), float_bits(far))


@inline_function
def _slab(centre, half, inverse, offset):
    middle, reach = fma(centre, inverse, offset), abs(inverse)
    return float_bits(fma(-half, reach, middle)), float_bits(fma(half, reach, middle))


@inline_function
def ray_box(box, inverse_x, inverse_y, inverse_z, near, far):
    """Ray parameters of entry and exit for one box: low (x, y, z), high (x, y, z) relative to the ray's origin.

    Scalar form, for loops over rays that LLVM vectorises.
    """
    lx, ly, lz, hx, hy, hz = box
    ax, ay, az = lx * inverse_x, ly * inverse_y, lz * inverse_z
    bx, by, bz = hx * inverse_x, hy * inverse_y, hz * inverse_z
    entry = max(max(min(ax, bx), min(ay, by)), max(min(az, bz), near))
    leave = min(min(max(ax, bx), max(ay, by)), min(max(az, bz), far))
    return entry, leave
