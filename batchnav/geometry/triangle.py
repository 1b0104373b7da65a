"""Ray against triangle, with the triangle as three planes (Havel and Herout, IEEE TVCG 16(3), 2010).

Plane 0 is the triangle's own; planes 1 and 2 give the barycentric coordinates of a point. The hit costs 15
multiply-adds and one division. Float32 rounding moves a computed hit point by a few millionths of the coordinates'
size; a triangle is therefore grown by `slack` metres on each side when its planes are made (in float64), so that no
ray slips between two triangles that share an edge. Growing costs nothing in the test itself.
"""

import math

import numpy as np

from batchnav.device import device_function, fma, load4


@device_function
def triangle_planes(ax, ay, az, bx, by, bz, cx, cy, cz, slack):
    """Three planes (x, y, z, d) of triangle abc, counter-clockwise seen from its front; float64 in and out.

    A point P of plane 0 lies in the grown triangle where u = plane1(P) >= 0, v = plane2(P) >= 0 and u + v <= 1.
    """
    ex, ey, ez = bx - ax, by - ay, bz - az
    fx, fy, fz = cx - ax, cy - ay, cz - az
    nx, ny, nz = ey * fz - ez * fy, ez * fx - ex * fz, ex * fy - ey * fx
    area = math.sqrt(nx * nx + ny * ny + nz * nz)  # twice the triangle's
    nx, ny, nz = nx / area, ny / area, nz / area
    gx, gy, gz = (fy * nz - fz * ny) / area, (fz * nx - fx * nz) / area, (fx * ny - fy * nx) / area  # gradient of u
    hx, hy, hz = (ny * ez - nz * ey) / area, (nz * ex - nx * ez) / area, (nx * ey - ny * ex) / area  # gradient of v
    edge_u = math.sqrt(fx * fx + fy * fy + fz * fz)
    edge_v = math.sqrt(ex * ex + ey * ey + ez * ez)
    edge_w = math.sqrt((fx - ex) ** 2 + (fy - ey) ** 2 + (fz - ez) ** 2)
    slack = min(slack, area / (edge_u + edge_v + edge_w))  # a sliver at most doubles its size
    grow_u, grow_v, grow_w = slack * edge_u / area, slack * edge_v / area, slack * edge_w / area
    scale = 1.0 / (1.0 + grow_u + grow_v + grow_w)
    return (
        (nx, ny, nz, -(nx * ax + ny * ay + nz * az)),
        (gx * scale, gy * scale, gz * scale, (grow_u - (gx * ax + gy * ay + gz * az)) * scale),
        (hx * scale, hy * scale, hz * scale, (grow_v - (hx * ax + hy * ay + hz * az)) * scale),
    )


@device_function
def ray_triangle(triangles, index, ox, oy, oz, dx, dy, dz, near, far, backface_culling):
    """Ray parameter of the hit with triangle `index` within [near, far), else `far`. `triangles` is f32 [F, 12]."""
    nx, ny, nz, nd = load4(triangles, index, np.int32(0))
    facing = fma(nx, dx, fma(ny, dy, nz * dz))
    t = -fma(nx, ox, fma(ny, oy, fma(nz, oz, nd))) / facing
    if not (t >= near and t < far) or (backface_culling and facing >= np.float32(0.0)):
        return far
    px, py, pz = fma(t, dx, ox), fma(t, dy, oy), fma(t, dz, oz)
    gx, gy, gz, gd = load4(triangles, index, np.int32(4))
    u = fma(gx, px, fma(gy, py, fma(gz, pz, gd)))
    hx, hy, hz, hd = load4(triangles, index, np.int32(8))
    v = fma(hx, px, fma(hy, py, fma(hz, pz, hd)))
    if u >= np.float32(0.0) and v >= np.float32(0.0) and u + v <= np.float32(1.0):
        return t
    return far
