"""Optimal reciprocal collision avoidance: the velocity of one body among others.

Van den Berg, Guy, Lin, Manocha: "Reciprocal n-body collision avoidance" (ISRR 2011). Each other body forbids a
half-plane of velocities; among the others, the velocity nearest to the preferred one is found by a linear programme in
two dimensions. Where none is left, the velocity is chosen that enters the half-planes least.

A half-plane is a row (nx, nz, b) of `planes`: velocities v with n . v >= b are free. Vectors are pairs (x, z).
"""

from __future__ import annotations

import math

import numpy as np

from batchnav.runtime.kernels.decorators import device_function, inline_function, lean_function

NEIGHBOURS = 8
"""Largest number of half-planes of a body."""
PLANE_ROWS = 2 * NEIGHBOURS
"""Rows of scratch memory of a body: its half-planes, and those of the programme that enters them least."""
HORIZON = np.float32(2.0)
"""Seconds for which a velocity must be free of collisions with moving bodies."""
_ZERO, _ONE, _EPSILON = np.float32(0.0), np.float32(1.0), np.float32(1e-5)


@device_function
def avoidance_plane(px, pz, vx, vz, reach, horizon, step_time):
    """The nearest velocity outside the velocity obstacle of another body: (nx, nz, ux, uz).

    `n` is the obstacle's outward normal there and `u` leads there from the relative velocity.

    Args:
        px: relative position of the other body, metres.
        pz: as `px`.
        vx: own velocity relative to the other's, m/s.
        vz: as `vx`.
        reach: sum of both radii, metres.
        horizon: seconds to look ahead.
        step_time: seconds in which bodies that overlap must part.
    """
    squared = px * px + pz * pz
    overlap = squared <= reach * reach
    ahead = step_time if overlap else horizon
    wx, wz = vx - px / ahead, vz - pz / ahead  # from the centre of the disc that truncates the cone
    length = np.float32(math.sqrt(wx * wx + wz * wz))
    along = wx * px + wz * pz
    if overlap or (along < _ZERO and along * along > reach * reach * length * length):
        if length <= _EPSILON:  # the centre itself: away from the other body
            apart = np.float32(math.sqrt(squared))
            if apart <= _EPSILON:
                return _ONE, _ZERO, reach / ahead, _ZERO
            nx, nz = -px / apart, -pz / apart
        else:
            nx, nz = wx / length, wz / length
        out = reach / ahead - length
        return nx, nz, out * nx, out * nz
    leg = np.float32(math.sqrt(squared - reach * reach))
    side = _ONE if px * wz - pz * wx > _ZERO else -_ONE  # the cone's left or right leg is nearer
    nx, nz = (-reach * px - side * leg * pz) / squared, (-reach * pz + side * leg * px) / squared
    out = -(vx * nx + vz * nz)
    return nx, nz, out * nx, out * nz


@lean_function
def _solve(row, first, count, limit, wx, wz, directed, planes):
    """Number of half-planes that were met, and the velocity.

    The velocity within `limit` that is nearest to (wx, wz) or, if `directed`, farthest in this direction. The first
    half-plane that cannot be met ends the search: the velocity then meets those before it.
    """
    length = np.float32(math.sqrt(wx * wx + wz * wz))
    scale = limit / length if length > _ZERO and (directed or length > limit) else _ONE
    vx, vz = wx * scale, wz * scale
    for i in range(count):
        nx, nz, b = planes[row, first + i, 0], planes[row, first + i, 1], planes[row, first + i, 2]
        if nx * vx + nz * vz >= b:
            continue
        free = limit * limit - b * b
        if free < _ZERO:
            return i, vx, vz
        high = np.float32(math.sqrt(free))
        low = -high
        for j in range(i):  # the part of the half-plane's edge that the earlier ones leave
            mx, mz, c = planes[row, first + j, 0], planes[row, first + j, 1], planes[row, first + j, 2]
            slope = nx * mz - nz * mx
            need = c - b * (nx * mx + nz * mz)
            if abs(slope) <= _EPSILON:
                if need > _ZERO:
                    return i, vx, vz
            elif slope > _ZERO:
                low = max(low, need / slope)
            else:
                high = min(high, need / slope)
        if low > high:
            return i, vx, vz
        along = nx * wz - nz * wx
        if directed:
            s = high if along > _ZERO else low
        else:
            s = min(max(along, low), high)
        vx, vz = b * nx - s * nz, b * nz + s * nx
    return count, vx, vz


@lean_function
def best_velocity(row, count, limit, preferred, planes_out):
    """The velocity (x, z) within `limit` m/s that is nearest to the preferred one and in all half-planes.

    Where there is none, the one whose greatest depth outside a half-plane is least.

    Args:
        row: row of `planes_out`.
        count: number of half-planes.
        limit: greatest speed, m/s.
        preferred: preferred velocity, m/s.
        planes_out: f32 [rows, PLANE_ROWS, 4]: the half-planes; the rest is scratch memory.
    """
    met, vx, vz = _solve(row, 0, count, limit, preferred[0], preferred[1], False, planes_out)
    depth = _ZERO
    for i in range(met, count):
        nx, nz, b = planes_out[row, i, 0], planes_out[row, i, 1], planes_out[row, i, 2]
        if b - (nx * vx + nz * vz) <= depth:
            continue
        used = _bisectors(row, i, nx, nz, b, planes_out)
        solved, ux, uz = _solve(row, NEIGHBOURS, used, limit, nx, nz, True, planes_out)
        if solved == used:  # else rounding: the velocity stays
            vx, vz = ux, uz
        depth = b - (nx * vx + nz * vz)
    return vx, vz


@inline_function
def _bisectors(row, i, nx, nz, b, planes_out):
    """Number of half-planes in which half-plane i is entered at least as deep as an earlier one; it writes them."""
    used = 0
    for j in range(i):
        mx, mz = planes_out[row, j, 0] - nx, planes_out[row, j, 1] - nz
        length = np.float32(math.sqrt(mx * mx + mz * mz))
        if length > _EPSILON:  # else they are parallel: the deeper one stays the deeper one
            at = NEIGHBOURS + used
            planes_out[row, at, 0], planes_out[row, at, 1] = mx / length, mz / length
            planes_out[row, at, 2] = (planes_out[row, j, 2] - b) / length
            used += 1
    return used


@inline_function
def add_plane(row, count, velocity, plane, share, planes_out):
    """Number of half-planes after adding one of `avoidance_plane`, of which this body takes on a share."""
    if count >= NEIGHBOURS:
        return count
    nx, nz, ux, uz = plane
    planes_out[row, count, 0], planes_out[row, count, 1] = nx, nz
    planes_out[row, count, 2] = nx * (velocity[0] + share * ux) + nz * (velocity[1] + share * uz)
    return count + 1
