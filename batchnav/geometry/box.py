"""Ray against axis-aligned boxes: the slab test (Kay and Kajiya, SIGGRAPH 1986)."""

from batchnav.device import fma4, inline_function, max4, min4


@inline_function
def ray_boxes(low_xy, high_xy, z, inverse_xy, inverse_z, offset_xy, offset_z, near, far):
    """Ray parameters of entry and exit of two boxes, clipped to [near, far]; a box is missed where entry > exit.

    Tuples of four float32. Boxes 0 and 1: low_xy and high_xy hold (x0, x1, y0, y1), z (low z0, z1, high z0, z1).
    `inverse` is 1 / direction (finite), as (x, x, y, y) and (z, z, z, z); `offset` is -origin / direction likewise, so
    that the plane at x is met at x * inverse + offset. Returns entry 0, exit 0, entry 1, exit 1.
    """
    t_low, t_high = fma4(low_xy, inverse_xy, offset_xy), fma4(high_xy, inverse_xy, offset_xy)
    t_z = fma4(z, inverse_z, offset_z)
    t_other_z = (t_z[2], t_z[3], t_z[0], t_z[1])
    first, last = min4(t_low, t_high), max4(t_low, t_high)
    entry = max4(first, (first[2], first[3], first[0], first[1]))
    leave = min4(last, (last[2], last[3], last[0], last[1]))
    entry = max4(entry, max4(min4(t_z, t_other_z), (near, near, near, near)))
    leave = min4(leave, min4(max4(t_z, t_other_z), (far, far, far, far)))
    return entry[0], leave[0], entry[1], leave[1]


@inline_function
def ray_box(box, inverse_x, inverse_y, inverse_z, near, far):
    """`ray_boxes` for one box, low (x, y, z) and high (x, y, z) relative to the ray's origin. Returns entry and exit.

    In scalars, for loops over rays that are vectorised as a whole.
    """
    lx, ly, lz, hx, hy, hz = box
    ax, ay, az = lx * inverse_x, ly * inverse_y, lz * inverse_z
    bx, by, bz = hx * inverse_x, hy * inverse_y, hz * inverse_z
    entry = max(max(min(ax, bx), min(ay, by)), max(min(az, bz), near))
    leave = min(min(max(ax, bx), max(ay, by)), min(max(az, bz), far))
    return entry, leave
