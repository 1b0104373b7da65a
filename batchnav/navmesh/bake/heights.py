"""Floor heights under a polygon, from a patch of the compact field around it."""

from typing import NamedTuple

import numpy as np

from batchnav.runtime.kernels.decorators import lean_function

UNSET = 0xFFFF
_INFINITE = np.float32(3.4e38)


class Patch(NamedTuple):
    """Floor heights of the cells around one polygon."""

    floor: np.ndarray
    """i32 [>= width * depth]: floor in cell heights, UNSET where unknown."""
    x: int
    """Column of the patch's first cell in the grid."""
    z: int
    """Row of the patch's first cell in the grid."""
    width: int
    """Cells along x."""
    depth: int
    """Cells along z."""
    inverse_cell: np.float32
    """Cells per metre."""
    cell_height: np.float32
    """Metres."""
    radius: int
    """Search radius around a cell without a floor, cells."""


@lean_function
def fill_patch(field, region, grid_width, ring, own_region, queue, patch_out):
    """Fill a patch with floors of the polygon's region, then with floors reachable from its rim.

    `ring` are the polygon's vertices, i32 [n, 3]; `queue` i32 [>= patch size + 1, 3] is scratch.
    """
    _clear(UNSET, patch_out)
    count = 0
    empty = True
    for z in range(patch_out.z, patch_out.z + patch_out.depth):
        for x in range(patch_out.x, patch_out.x + patch_out.width):
            column = x + z * grid_width
            for i in range(field.first[column], field.first[column + 1]):
                if region[i] == own_region:
                    patch_out.floor[x - patch_out.x + (z - patch_out.z) * patch_out.width] = field.floor[i]
                    empty = False
                    for direction in range(4):
                        k = field.neighbours[i, direction]
                        if k >= 0 and region[k] != own_region:
                            queue[count, 0], queue[count, 1], queue[count, 2] = x, z, i
                            count += 1
                            break
                    break
    if empty:
        _seed_at_centre(field, grid_width, ring, queue, patch_out)
        count = 1
    head = 0
    while head < count:
        x, z, i = queue[head, 0], queue[head, 1], queue[head, 2]
        head += 1
        for direction in range(4):
            k = field.neighbours[i, direction]
            nx = x + (direction == 2) - (direction == 0)
            nz = z + (direction == 1) - (direction == 3)
            at = _cell_of(patch_out, nx, nz)
            if k >= 0 and at >= 0 and patch_out.floor[at] == UNSET:
                patch_out.floor[at] = field.floor[k]
                queue[count, 0], queue[count, 1], queue[count, 2] = nx, nz, k
                count += 1


@lean_function
def _clear(value, patch_out):
    for k in range(patch_out.width * patch_out.depth):
        patch_out.floor[k] = value


@lean_function
def _cell_of(patch, x, z):
    """Index of a cell in the patch, -1 outside."""
    x -= patch.x
    z -= patch.z
    if x < 0 or z < 0 or x >= patch.width or z >= patch.depth:
        return -1
    return x + z * patch.width


@lean_function
def _seed_at_centre(field, grid_width, ring, queue, patch_out):
    """Seed a patch without cells of the polygon's region, at a cell near the polygon's centre.

    A depth-first search leads from a cell at a vertex to the centre and prefers straight steps. It writes the seed to
    the patch and to row 0 of `queue`.
    """
    x, z, i = _cell_near_vertex(field, grid_width, ring, patch_out)
    goal_x = goal_z = 0
    for k in range(len(ring)):
        goal_x += ring[k, 0]
        goal_z += ring[k, 2]
    goal_x //= len(ring)
    goal_z //= len(ring)
    _clear(0, patch_out)
    queue[0, 0], queue[0, 1], queue[0, 2] = x, z, i
    size = 1
    while size > 0:
        size -= 1
        x, z, i = queue[size, 0], queue[size, 1], queue[size, 2]
        if x == goal_x and z == goal_z:
            break
        if x == goal_x:
            straight = 1 if goal_z > z else 3
        else:
            straight = 2 if goal_x > x else 0
        for turn in range(4):  # push the straight direction (3) last, so that it is popped first
            direction = straight if turn == 3 else (3 if turn == straight else turn)
            k = field.neighbours[i, direction]
            nx = x + (direction == 2) - (direction == 0)
            nz = z + (direction == 1) - (direction == 3)
            at = _cell_of(patch_out, nx, nz)
            if k >= 0 and at >= 0 and patch_out.floor[at] == 0:
                patch_out.floor[at] = 1
                queue[size, 0], queue[size, 1], queue[size, 2] = nx, nz, k
                size += 1
    _clear(UNSET, patch_out)
    queue[0, 0], queue[0, 1], queue[0, 2] = x, z, i
    at = _cell_of(patch_out, x, z)
    if at >= 0:
        patch_out.floor[at] = field.floor[i]


@lean_function
def _cell_near_vertex(field, grid_width, ring, patch):
    """Cell at or around a vertex of the polygon with the nearest floor height: (x, z, cell)."""
    best_x, best_z, best, nearest = 0, 0, 0, UNSET
    for j in range(len(ring)):
        for turn in range(9):
            dx, dz = _around(turn)
            x, z = ring[j, 0] + dx, ring[j, 2] + dz
            if _cell_of(patch, x, z) < 0:
                continue
            column = x + z * grid_width
            for i in range(field.first[column], field.first[column + 1]):
                distance = abs(ring[j, 1] - field.floor[i])
                if distance < nearest:
                    best_x, best_z, best, nearest = x, z, i, distance
                if nearest == 0:
                    return best_x, best_z, best
    return best_x, best_z, best


@lean_function
def _around(turn):
    """Offset number `turn`: the cell itself, then the cells around it, starting at (-1, -1)."""
    if turn == 0:
        return 0, 0
    if turn <= 3:
        return turn - 2, -1
    if turn == 4:
        return 1, 0
    if turn <= 7:
        return 6 - turn, 1
    return -1, 0


@lean_function
def floor_at(patch, x, y, z):
    """Floor at a point, in cell heights. If unknown: the floor nearest to y (metres) in the nearest ring of cells.

    Rings reach up to the patch's radius.
    """
    ix = np.int64(np.floor(x * patch.inverse_cell + np.float32(0.01))) - patch.x
    iz = np.int64(np.floor(z * patch.inverse_cell + np.float32(0.01))) - patch.z
    ix = min(max(ix, 0), patch.width - 1)
    iz = min(max(iz, 0), patch.depth - 1)
    floor = patch.floor[ix + iz * patch.width]
    ring = np.int64(1)
    while floor == UNSET and ring <= patch.radius:
        floor = _nearest_in_ring(patch, ix, iz, ring, y)
        ring += 1
    return floor


@lean_function
def _nearest_in_ring(patch, ix, iz, ring, y):
    """Floor nearest to height y among the cells at distance `ring`, UNSET if none is known.

    The order of a spiral decides between equal distances.
    """
    best, nearest = np.int32(UNSET), _INFINITE
    dx, dz = ring, 1 - ring
    for k in range(8 * ring):
        x, z = ix + dx, iz + dz
        if x >= 0 and z >= 0 and x < patch.width and z < patch.depth:
            floor = patch.floor[x + z * patch.width]
            distance = abs(np.float32(floor) * patch.cell_height - y)
            if floor != UNSET and distance < nearest:
                best, nearest = floor, distance
        if k < 2 * ring - 1:
            dz += 1
        elif k < 4 * ring - 1:
            dx -= 1
        elif k < 6 * ring - 1:
            dz -= 1
        else:
            dx += 1
    return best
