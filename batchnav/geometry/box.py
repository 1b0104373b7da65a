"""Ray against axis-aligned boxes: the slab test (Kay and Kajiya, SIGGRAPH 1986)."""

from batchnav.runtime.kernels.decorators import inline_function
from batchnav.runtime.kernels.intrinsics import float_bits, fma


@inline_function
def ray_boxes(centre_xy, half_xy, z, inverse, offset, near, far):
    """Ray parameters where two boxes are entered and left, clipped to [near, far]: entry 0, exit 0, entry 1, exit 1.

    Boxes 0 and 1 by their centres and half their sizes, as tuples of four float32: centre_xy and half_xy hold
    (x0, x1, y0, y1), z (centre z0, z1, half z0, z1). `inverse` (x, y, z) is 1 / direction, finite, and `offset`
    -origin / direction, so that the plane at x is met at x * inverse + offset; `near` is at least 0.

    The results are float32 as their bits in int32, which have the same order. Where entry > exit the box is missed, and
    the exit need not be the true one. All this is for a GPU, which multiplies and adds twice as often in a clock as it
    compares: from the half size it is known which of a slab's two planes is met first, and of integers it takes the
    greatest of three at once.
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
    # Of negative numbers the bits have the opposite order. But an entry below zero gives way to `near`, and whatever
    # exit below zero is taken, it lies before `near`.
    return max(max(max(ex, ey), ez), float_bits(near)), min(min(min(lx, ly), lz), float_bits(far))


@inline_function
def _slab(centre, half, inverse, offset):
    middle, reach = fma(centre, inverse, offset), abs(inverse)
    return float_bits(fma(-half, reach, middle)), float_bits(fma(half, reach, middle))


@inline_function
def ray_box(box, inverse_x, inverse_y, inverse_z, near, far):
    """Entry and exit of one box, given by its low (x, y, z) and high (x, y, z) relative to the ray's origin.

    In scalars, for loops over rays that are vectorised as a whole.
    """
    lx, ly, lz, hx, hy, hz = box
    ax, ay, az = lx * inverse_x, ly * inverse_y, lz * inverse_z
    bx, by, bz = hx * inverse_x, hy * inverse_y, hz * inverse_z
    entry = max(max(min(ax, bx), min(ay, by)), max(min(az, bz), near))
    leave = min(min(max(ax, bx), max(ay, by)), min(max(az, bz), far))
    return entry, leave
