"""Intersection of rays with triangles stored as three planes (Havel and Herout, IEEE TVCG 16(3), 2010).

Plane 0 contains the triangle; planes 1 and 2 give the barycentric coordinates of a point. A hit takes 15 multiply-adds
and one division. Float32 rounding displaces a hit point by a few millionths of the coordinates. Therefore
`triangle_planes` extends each triangle by `slack` metres on each side, so that no ray passes between two triangles that
share an edge. This adds no cost to the intersection test.
"""

import math

import numpy as np

from batchnav.runtime.kernels.decorators import device_function, inline_function
from batchnav.runtime.kernels.intrinsics import float_bits, fma, load4

PLANE, PLANE_U, PLANE_V = np.int32(0), np.int32(4), np.int32(8)
"""First columns of the three planes (x, y, z, d) in a triangle's row of 12 float32."""


@device_function
def triangle_planes(a, b, c, slack):
    """Three planes (x, y, z, d) of triangle abc, counter-clockwise seen from its front; float64 in and out.

    A point P of plane 0 is in the extended triangle if u = plane1(P) >= 0, v = plane2(P) >= 0 and u + v <= 1.
    """
    (ax, ay, az), (bx, by, bz), (cx, cy, cz) = a, b, c
    ex, ey, ez = bx - ax, by - ay, bz - az
    fx, fy, fz = cx - ax, cy - ay, cz - az
    nx, ny, nz = ey * fz - ez * fy, ez * fx - ex * fz, ex * fy - ey * fx
    area = math.sqrt(nx * nx + ny * ny + nz * nz)  # twice the area of the triangle
    nx, ny, nz = nx / area, ny / area, nz / area
    gx, gy, gz = (fy * nz - fz * ny) / area, (fz * nx - fx * nz) / area, (fx * ny - fy * nx) / area  # gradient of u
    hx, hy, hz = (ny * ez - nz * ey) / area, (nz * ex - nx * ez) / area, (nx * ey - ny * ex) / area  # gradient of v
    edge_u = math.sqrt(fx * fx + fy * fy + fz * fz)
    edge_v = math.sqrt(ex * ex + ey * ey + ez * ez)
    edge_w = math.sqrt((fx - ex) ** 2 + (fy - ey) ** 2 + (fz - ez) ** 2)
    slack = min(slack, area / (edge_u + edge_v + edge_w))  # at most doubles the size of a thin triangle
    grow_u, grow_v, grow_w = slack * edge_u / area, slack * edge_v / area, slack * edge_w / area
    scale = 1.0 / (1.0 + grow_u + grow_v + grow_w)
    return (
        (nx, ny, nz, -(nx * ax + ny * ay + nz * az)),
        (gx * scale, gy * scale, gz * scale, (grow_u - (gx * ax + gy * ay + gz * az)) * scale),
        (hx * scale, hy * scale, hz * scale, (grow_v - (hx * ax + hy * ay + hz * az)) * scale),
    )


@device_function
def ray_triangles(first, second, triangles, origin, direction, near, far, backface_culling):
    """Ray parameter and index of the nearer hit with two triangles within [near, far); `far` and -1 if both are missed.

    `first` and `second` may be equal; `triangles` is f32 [F, 12]. Two triangles are tested together so that the loads
    of both planes overlap.
    """
    t0, is_met0 = _meet_plane(first, triangles, origin, direction, near, far, backface_culling)
    t1, is_met1 = _meet_plane(second, triangles, origin, direction, near, far, backface_culling)
    hit = np.int32(-1)
    if is_met0 and _is_within(first, triangles, origin, direction, t0):
        far, hit = t0, first
    if is_met1 and t1 < far and _is_within(second, triangles, origin, direction, t1):
        far, hit = t1, second
    return far, hit


@device_function
def ray_four_triangles(first, last, triangles, origin, direction, near, far, backface_culling):
    """Ray parameter and index of the nearest hit with triangles `first` to `last` (up to four); else `far` and -1.

    It takes more work and registers than `ray_triangles` but has a lower latency, which matters with few rays.
    """
    a, b = first, min(np.int32(first + np.int32(1)), last)
    c, d = min(np.int32(first + np.int32(2)), last), last
    t_a, is_met_a = _meet_plane(a, triangles, origin, direction, near, far, backface_culling)
    t_b, is_met_b = _meet_plane(b, triangles, origin, direction, near, far, backface_culling)
    t_c, is_met_c = _meet_plane(c, triangles, origin, direction, near, far, backface_culling)
    t_d, is_met_d = _meet_plane(d, triangles, origin, direction, near, far, backface_culling)
    hit = np.int32(-1)
    if is_met_a or is_met_b or is_met_c or is_met_d:
        is_in_a = _is_within(a, triangles, origin, direction, t_a)
        is_in_b = _is_within(b, triangles, origin, direction, t_b)
        is_in_c = _is_within(c, triangles, origin, direction, t_c)
        is_in_d = _is_within(d, triangles, origin, direction, t_d)
        if is_met_a and is_in_a:
            far, hit = t_a, a
        if is_met_b and is_in_b and t_b < far:
            far, hit = t_b, b
        if is_met_c and is_in_c and t_c < far:
            far, hit = t_c, c
        if is_met_d and is_in_d and t_d < far:
            far, hit = t_d, d
    return far, hit


@device_function
def _meet_plane(index, triangles, origin, direction, near, far, backface_culling):
    """Ray parameter of the intersection with a triangle's plane; True if it is in [near, far) and not culled."""
    (ox, oy, oz), (dx, dy, dz) = origin, direction
    nx, ny, nz, nd = load4(triangles, index, PLANE)
    facing = fma(nx, dx, fma(ny, dy, nz * dz))
    t = -fma(nx, ox, fma(ny, oy, fma(nz, oz, nd))) * (np.float32(1.0) / facing)  # cheaper than a division on GPUs
    return t, t >= near and t < far and not (backface_culling and facing >= np.float32(0.0))


@device_function
def _is_within(index, triangles, origin, direction, t):
    """True if the ray's point at parameter t, in a triangle's plane, is in the triangle."""
    (ox, oy, oz), (dx, dy, dz) = origin, direction
    px, py, pz = fma(t, dx, ox), fma(t, dy, oy), fma(t, dz, oz)
    gx, gy, gz, gd = load4(triangles, index, PLANE_U)
    u = fma(gx, px, fma(gy, py, fma(gz, pz, gd)))
    hx, hy, hz, hd = load4(triangles, index, PLANE_V)
    v = fma(hx, px, fma(hy, py, fma(hz, pz, hd)))
    return u >= np.float32(0.0) and v >= np.float32(0.0) and u + v <= np.float32(1.0)


@device_function
def triangle_on_screen(index, triangles, origin, first_ray, axes, spacing):
    """Projection of triangle `index` for a camera at `origin`: quantities that are linear in pixel coordinates.

    For a pixel's ray with direction d let t be the planar depth of the intersection with the plane, and u and v the
    barycentric coordinates there. With the signed distance s = plane0(o), 1 / t = -(n . d) / s and
    u / t = plane1(o) / t + gradient1 . d are linear in the pixel. A ray hits if 1 / t > 0, u / t >= 0, v / t >= 0 and
    u / t + v / t <= 1 / t. No ray hits if s is 0.

    Args:
        index: row of `triangles`.
        triangles: f32 [F, 12].
        origin: position of the camera.
        first_ray: `pixel_ray` of the first pixel.
        axes: `pose.camera_axes` of the camera.
        spacing: result of `pixel_spacing`.

    Returns s (positive: the front is visible), then 1 / t, u / t and v / t. Each of these is a tuple: value on
    `first_ray`, difference per column, difference per row.
    """
    nx, ny, nz, nd = load4(triangles, index, PLANE)
    gx, gy, gz, gd = load4(triangles, index, PLANE_U)
    hx, hy, hz, hd = load4(triangles, index, PLANE_V)
    (ox, oy, oz), (ax, ay, az) = origin, first_ray
    s = fma(nx, ox, fma(ny, oy, fma(nz, oz, nd)))
    u = fma(gx, ox, fma(gy, oy, fma(gz, oz, gd)))
    v = fma(hx, ox, fma(hy, oy, fma(hz, oz, hd)))
    scale = np.float32(-1.0) / s
    (right_x, _, right_z), (up_x, up_y, up_z), _ = axes
    cx, cz = right_x * spacing, right_z * spacing  # one column to the right
    rx, ry, rz = -up_x * spacing, -up_y * spacing, -up_z * spacing  # one row down
    w0 = scale * fma(nx, ax, fma(ny, ay, nz * az))
    w_column, w_row = scale * fma(nx, cx, nz * cz), scale * fma(nx, rx, fma(nz, rz, ny * ry))
    u0, v0 = fma(u, w0, fma(gx, ax, fma(gy, ay, gz * az))), fma(v, w0, fma(hx, ax, fma(hy, ay, hz * az)))
    u_column, v_column = fma(u, w_column, fma(gx, cx, gz * cz)), fma(v, w_column, fma(hx, cx, hz * cz))
    u_row = fma(u, w_row, fma(gx, rx, fma(gz, rz, gy * ry)))
    v_row = fma(v, w_row, fma(hx, rx, fma(hz, rz, hy * ry)))
    return s, (w0, w_column, w_row), (u0, u_column, u_row), (v0, v_column, v_row)


# Intersection of rays with axis-aligned boxes: the slab test (Kay and Kajiya, SIGGRAPH 1986)


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
