"""Intersection of rays with upright solids: capsules, spheres, cylinders and boxes; surface normals of moving bodies.

Rays are relative to the centre of the solid's foot: +Y up, metres. A ray meets a convex solid in an interval of its
parameter. Discriminants use the ray's distance from the axis or the centre (a cross product), which keeps its precision
far from the solid, unlike the usual b^2 - ac (Haines, Guenther and Akenine-Moeller, "Precision Improvements for Ray/
Sphere Intersection", Ray Tracing Gems, 2019).
"""

import math

import numpy as np

from batchnav.geometry.pose import forward, inverse_direction
from batchnav.runtime.kernels.decorators import inline_function
from batchnav.types import BOX, PERSON

HEAD_RADIUS = 0.12
"""Radius of a person's head, metres."""
MISSED = np.float32(3.4e38)
"""Ray parameter of a miss."""
_HEAD, _BOX, _PERSON = np.float32(HEAD_RADIUS), np.int32(BOX), np.int32(PERSON)
_ZERO, _HALF, _ONE, _TWO = np.float32(0.0), np.float32(0.5), np.float32(1.0), np.float32(2.0)
_VERTICAL = np.float32(1e-12)
"""Squared horizontal part of a direction below which a ray is vertical."""
_ROOT_TWO = np.float32(math.sqrt(2.0))


@inline_function
def ray_sphere(origin, direction, level, radius):
    """Ray parameters of entry and exit of a sphere around (0, level, 0); entry > exit for a miss."""
    (ox, oy, oz), (dx, dy, dz) = origin, direction
    oy -= level
    a = dx * dx + dy * dy + dz * dz
    cx, cy, cz = oy * dz - oz * dy, oz * dx - ox * dz, ox * dy - oy * dx
    discriminant = a * radius * radius - (cx * cx + cy * cy + cz * cz)
    if not discriminant > _ZERO:
        return MISSED, -MISSED
    middle, half = -(ox * dx + oy * dy + oz * dz), math.sqrt(discriminant)
    return (middle - half) / a, (middle + half) / a


@inline_function
def _slab(start, direction, low, high):
    """Ray parameters between which a coordinate of a ray is within low and high."""
    inverse = inverse_direction(direction)
    a, b = (low - start) * inverse, (high - start) * inverse
    return min(a, b), max(a, b)


@inline_function
def ray_cylinder(origin, direction, low, high, radius):
    """Ray parameters of entry and exit of an upright cylinder from level `low` to `high`; entry > exit for a miss."""
    (ox, oy, oz), (dx, dy, dz) = origin, direction
    enter, leave = _slab(oy, dy, low, high)
    a = dx * dx + dz * dz
    if a < _VERTICAL:
        if ox * ox + oz * oz > radius * radius:
            return MISSED, -MISSED
        return enter, leave
    cross = ox * dz - oz * dx
    discriminant = a * radius * radius - cross * cross
    if not discriminant > _ZERO:
        return MISSED, -MISSED
    middle, half = -(ox * dx + oz * dz), math.sqrt(discriminant)
    return max(enter, (middle - half) / a), min(leave, (middle + half) / a)


@inline_function
def ray_capsule(origin, direction, top, radius):
    """Ray parameters of entry and exit of an upright capsule from level 0 to `top`; entry > exit for a miss.

    A capsule lower than two radii is a sphere.
    """
    upper = max(radius, top - radius)
    enter, leave = ray_sphere(origin, direction, radius, radius)
    enter1, leave1 = ray_sphere(origin, direction, upper, radius)
    enter2, leave2 = ray_cylinder(origin, direction, radius, upper, radius)
    enter, leave = min(enter, enter1), max(leave, leave1)  # the parts of a convex solid: their intervals join
    if enter2 < leave2:
        enter, leave = min(enter, enter2), max(leave, leave2)
    return enter, leave


@inline_function
def ray_upright_box(origin, direction, heading, half_side, height):
    """Ray parameters of entry and exit of a square box turned by `heading`; entry > exit for a miss."""
    (ox, oy, oz), (dx, dy, dz) = origin, direction
    fx, fz = forward(heading)
    enter, leave = _slab(oy, dy, _ZERO, height)
    enter1, leave1 = _slab(ox * fx + oz * fz, dx * fx + dz * fz, -half_side, half_side)
    enter2, leave2 = _slab(oz * fx - ox * fz, dz * fx - dx * fz, -half_side, half_side)
    return max(enter, max(enter1, enter2)), min(leave, min(leave1, leave2))


@inline_function
def _first(enter, leave, near, backface_culling):
    """Ray parameter of the first surface from `near` on: the front, or the back from within; MISSED for none."""
    if enter > leave:
        return MISSED
    if enter >= near:
        return enter
    return leave if leave >= near and not backface_culling else MISSED


@inline_function
def ray_body(solid, origin, direction, near, backface_culling):
    """Ray parameter of the first surface of a moving body from `near` on; MISSED for none.

    Args:
        solid: shape, heading, radius and height (`batchnav.types.MovingBodies`).
        origin: origin of the ray relative to the body's foot.
        direction: direction of the ray.
        near: least ray parameter.
        backface_culling: ignore surfaces seen from within the body.
    """
    shape, heading, radius, height = solid
    if shape == _BOX:
        enter, leave = ray_upright_box(origin, direction, heading, radius, height)
        return _first(enter, leave, near, backface_culling)
    if shape != _PERSON:
        enter, leave = ray_cylinder(origin, direction, _ZERO, height, radius)
        return _first(enter, leave, near, backface_culling)
    enter, leave = ray_capsule(origin, direction, height - _TWO * _HEAD, radius)
    found = _first(enter, leave, near, backface_culling)
    enter, leave = ray_sphere(origin, direction, height - _HEAD, _HEAD)
    return min(found, _first(enter, leave, near, backface_culling))


@inline_function
def reach_of(shape, radius):
    """Greatest horizontal distance of a body's surface from its axis, metres."""
    if shape == _BOX:
        return _ROOT_TWO * radius
    return max(radius, _HEAD) if shape == _PERSON else radius


@inline_function
def is_head(shape, level, height):
    """True where a point of a person's surface, at `level` above the foot, belongs to the head."""
    return shape == _PERSON and level > height - _TWO * _HEAD


@inline_function
def body_normal(solid, point):
    """Outward unit normal (x, y, z) at a point of a body's surface; `solid` as in `ray_body`, `point` as its origin."""
    shape, heading, radius, height = solid
    x, y, z = point
    if shape == _PERSON:
        centre = height - _HEAD
        if not is_head(shape, y, height):
            centre = min(max(y, radius), max(radius, height - _TWO * _HEAD - radius))
        y -= centre
    else:
        up = abs(y - _HALF * height) - _HALF * height  # signed distances from the faces: the largest is the visible one
        sign = _ONE if y > _HALF * height else -_ONE
        if shape == _BOX:
            fx, fz = forward(heading)
            ahead, right = x * fx + z * fz, z * fx - x * fz
            if up >= max(abs(ahead), abs(right)) - radius:
                return _ZERO, sign, _ZERO
            if abs(ahead) >= abs(right):
                sign = _ONE if ahead > _ZERO else -_ONE
                return sign * fx, _ZERO, sign * fz
            sign = _ONE if right > _ZERO else -_ONE
            return -sign * fz, _ZERO, sign * fx
        if up >= math.sqrt(x * x + z * z) - radius:
            return _ZERO, sign, _ZERO
        y = _ZERO
    scale = _ONE / max(np.float32(math.sqrt(x * x + y * y + z * z)), _VERTICAL)
    return x * scale, y * scale, z * scale
