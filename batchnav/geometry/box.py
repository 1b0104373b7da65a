"""Ray against axis-aligned box: the slab test (Kay and Kajiya, SIGGRAPH 1986)."""

from batchnav.device import device_function, fma


@device_function
def ray_box(low_x, high_x, low_y, high_y, low_z, high_z, inv_x, inv_y, inv_z, off_x, off_y, off_z, near, far):
    """Ray parameters of entry and exit, clipped to [near, far]; the ray misses where entry > exit.

    `inv` is 1 / direction (finite), `off` is -origin / direction: a plane at x is met at x * inv_x + off_x.
    """
    x0, x1 = fma(low_x, inv_x, off_x), fma(high_x, inv_x, off_x)
    y0, y1 = fma(low_y, inv_y, off_y), fma(high_y, inv_y, off_y)
    z0, z1 = fma(low_z, inv_z, off_z), fma(high_z, inv_z, off_z)
    entry = max(max(min(x0, x1), min(y0, y1)), max(min(z0, z1), near))
    leave = min(min(max(x0, x1), max(y0, y1)), min(max(z0, z1), far))
    return entry, leave
