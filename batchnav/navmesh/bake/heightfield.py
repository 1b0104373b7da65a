"""Voxelisation: conversion of triangles to solid spans in the columns of a grid.

Each triangle is clipped to each cell that it covers; the height range of the clipped part becomes a span. Spans that
touch are merged. Floors are rounded up to the next cell height, so the walkable surface is the top of a span.
"""

from typing import NamedTuple

import numpy as np

from batchnav.errors import NavMeshError
from batchnav.navmesh.bake.growing import with_capacity
from batchnav.navmesh.settings import NavMeshSettings
from batchnav.runtime.kernels.decorators import cpu_function, lean_function
from batchnav.types import FAR

# Voxel grid of a bake: settings in cells, bounding box, and checks of the input before memory is allocated

MAX_COLUMNS = 2**25
"""Largest number of grid columns (cells seen from above); 290 x 290 m at Habitat's cell size."""
MAX_SIDE = 0xFFFE
"""Largest number of cells per side of the grid, since polygon corners have 16 bits."""


class Grid(NamedTuple):
    """Settings in cells, rounded in float32 as in Habitat's PathFinder::build, and the grid's box."""

    low: np.ndarray
    """f32 [3], the mesh's lower corner."""
    high: np.ndarray
    """f32 [3], the mesh's upper corner."""
    cell_size: np.float32
    """Metres."""
    cell_height: np.float32
    """Metres."""
    width: int
    """Cells along x."""
    depth: int
    """Cells along z."""
    walkable_height: int
    """Cell heights."""
    walkable_climb: int
    """Cell heights."""
    walkable_radius: int
    """Cells."""
    walkable_cosine: np.float32
    """A triangle is walkable if the y component of its normal is greater."""
    min_region_area: int
    """Cells."""
    merge_region_area: int
    """Cells."""
    max_edge_length: int
    """Cells; 0: no limit."""
    max_edge_error: np.float32
    """Cells."""
    vertices_per_polygon: int
    sample_distance: np.float32
    """Distance between height samples, metres; 0 for no samples."""
    sample_max_error: np.float32
    """Metres."""


def make_grid(vertices: np.ndarray, faces: np.ndarray, settings: NavMeshSettings) -> Grid:
    """Grid around the vertices that the faces use. NavMeshError where they are invalid or too large."""
    if vertices.ndim != 2 or vertices.shape[1] != 3 or faces.ndim != 2 or faces.shape[1] != 3:
        raise NavMeshError(f"mesh: found vertices {vertices.shape} and faces {faces.shape}, expected [V, 3] and [F, 3]")
    if len(faces) == 0:
        raise NavMeshError("mesh: found no triangles, expected a mesh with a floor")
    bad, low, high = _bounds(vertices, faces)
    if bad >= 0:
        face = faces[bad]
        if face.min() < 0 or face.max() >= len(vertices):
            raise NavMeshError(f"mesh: face {bad} is {face.tolist()}, expected vertices 0 to {len(vertices) - 1}")
        raise NavMeshError(f"mesh: face {bad} has a vertex that is not finite: {vertices[face].tolist()}")

    f32 = np.float32
    cell, height = f32(settings.cell_size), f32(settings.cell_height)
    with np.errstate(over="ignore"):
        extent = (high - low)[[0, 2]]
        sides = extent / cell + f32(0.5)
    if not (sides <= MAX_SIDE + 1).all() or float(sides[0]) * float(sides[1]) > MAX_COLUMNS:
        raise NavMeshError(
            f"mesh: found {extent[0]:.6g} x {extent[1]:.6g} m, which is {sides[0]:.0f} x {sides[1]:.0f} "
            f"cells of {cell:g} m; expected at most {MAX_SIDE} a side and {MAX_COLUMNS} in all: "
            "check the units or use a larger cell_size"
        )
    if min(int(sides[0]), int(sides[1])) < 1:
        raise NavMeshError(
            f"mesh: found {extent[0]:.6g} x {extent[1]:.6g} m seen from above, "
            f"expected at least one cell of {cell:g} m each way: check the units and the up axis"
        )
    farthest = float(np.abs([low, high]).max())
    if farthest > FAR:
        raise NavMeshError(
            f"mesh: found coordinates up to {farthest:.9g} m, which float32 stores in steps of "
            f"{np.spacing(f32(farthest)):.2g} m, expected up to {FAR:g} m: move the mesh to the origin "
            "(`load_mesh` and `load_scene` do that)"
        )
    return Grid(
        low=low,
        high=high,
        cell_size=cell,
        cell_height=height,
        width=int(sides[0]),
        depth=int(sides[1]),
        walkable_height=int(np.ceil(f32(settings.agent_height) / height)),
        walkable_climb=int(np.floor(f32(settings.agent_max_climb) / height)),
        walkable_radius=int(np.ceil(f32(settings.agent_radius) / cell)),
        walkable_cosine=np.cos(f32(settings.agent_max_slope) / f32(180.0) * f32(np.pi)),
        min_region_area=int(f32(settings.region_min_size) ** 2),
        merge_region_area=int(f32(settings.region_merge_size) ** 2),
        max_edge_length=int(f32(settings.edge_max_len) / cell),
        max_edge_error=f32(settings.edge_max_error),
        vertices_per_polygon=int(settings.verts_per_poly),
        sample_distance=f32(0.0) if settings.detail_sample_dist < 0.9 else cell * f32(settings.detail_sample_dist),
        sample_max_error=height * f32(settings.detail_sample_max_error),
    )


@cpu_function
def _bounds(vertices, faces):
    """Box of the used vertices, and the first face with an invalid index or coordinate, or -1."""
    low = np.full(3, np.inf, np.float32)
    high = np.full(3, -np.inf, np.float32)
    for f in range(len(faces)):
        for k in range(3):
            v = faces[f, k]
            if v < 0 or v >= len(vertices):
                return f, low, high
            for a in range(3):
                value = vertices[v, a]
                if not np.isfinite(value):
                    return f, low, high
                low[a] = min(low[a], value)
                high[a] = max(high[a], value)
    return -1, low, high


WALKABLE_AREA = 63
"""Area code of walkable spans; 0 is not walkable."""
MAX_SPAN_HEIGHT = (1 << 13) - 1
"""Largest height of a span, in cell heights."""
MAX_SPANS = 2**26
"""Largest number of spans (1 GiB)."""

_LOW, _HIGH, _AREA, _NEXT = 0, 1, 2, 3
_CORNERS = 12  # a triangle clipped by two lines in x and two in z has at most seven
_POLYGON = np.int64(3 * _CORNERS)


class SolidField(NamedTuple):
    """Solid spans by column, bottom to top within one; the column of cell (x, z) is x + z * width."""

    first: np.ndarray
    """i32 [width * depth + 1]: first span of each column."""
    low: np.ndarray
    """i32 [S], bottom in cell heights above the grid's floor."""
    high: np.ndarray
    """i32 [S], top."""
    area: np.ndarray
    """u8 [S], WALKABLE_AREA or 0."""


def voxelise(vertices: np.ndarray, faces: np.ndarray, grid: Grid) -> SolidField:
    """Solid spans of a mesh; f32 [V, 3], i32 [F, 3]."""
    head, pool = _rasterise(vertices, faces, grid)
    if len(pool) > MAX_SPANS:
        raise NavMeshError(f"mesh: found more than {MAX_SPANS} voxel spans, expected fewer; use a larger cell_size")
    return SolidField(*_flatten(head, pool))


@cpu_function
def _rasterise(vertices, faces, grid):
    """Linked lists of spans per column: first span (-1 none), and rows of low, high, area, next."""
    head = np.full(grid.width * grid.depth, -1, np.int32)
    pool = np.empty((len(head) + 1024, 4), np.int32)
    used, free = np.int64(0), np.int64(-1)
    inverse_height = np.float32(1.0) / grid.cell_height
    inverse_cell = np.float32(1.0) / grid.cell_size
    tall = grid.high[1] - grid.low[1]
    clip = np.empty(4 * _POLYGON, np.float32)
    for f in range(len(faces)):
        area, far, z0, z1 = _load_triangle(f, vertices, faces, grid, inverse_cell, clip)
        rest, spare, row, piece = np.int64(0), _POLYGON, 2 * _POLYGON, 3 * _POLYGON
        num_rest = np.int64(3)
        for z in range(z0, z1 + 1):
            line = grid.low[2] + np.float32(z) * grid.cell_size + grid.cell_size
            if far < line:
                rest, row, num_row, num_rest = row, rest, num_rest, np.int64(0)
            else:
                num_row, num_rest = _divide(rest, num_rest, row, spare, line, 2, clip)
                rest, spare = spare, rest
            if num_row < 3 or z < 0:
                continue
            left, right = _range(clip, row, num_row, 0)
            x0 = np.int64((left - grid.low[0]) * inverse_cell)
            x1 = np.int64((right - grid.low[0]) * inverse_cell)
            if x1 < 0 or x0 >= grid.width:
                continue
            x0 = min(max(x0, -1), grid.width - 1)
            x1 = min(max(x1, 0), grid.width - 1)
            for x in range(x0, x1 + 1):
                line = grid.low[0] + np.float32(x) * grid.cell_size + grid.cell_size
                if right < line:
                    piece, row, num_piece, num_row = row, piece, num_row, np.int64(0)
                else:
                    num_piece, num_row = _divide(row, num_row, piece, spare, line, 0, clip)
                    row, spare = spare, row
                if num_piece < 3 or x < 0:
                    continue
                bottom, top = _range(clip, piece, num_piece, 1)
                bottom = max(bottom - grid.low[1], np.float32(0.0))
                top = min(top - grid.low[1], tall)
                low = min(max(np.int64(np.floor(bottom * inverse_height)), 0), MAX_SPAN_HEIGHT)
                high = min(max(np.int64(np.ceil(top * inverse_height)), low + 1), MAX_SPAN_HEIGHT)
                if used == len(pool):
                    if used >= MAX_SPANS:
                        return head, np.empty((MAX_SPANS + 1, 4), np.int32)
                    pool = with_capacity(pool, used, 1)
                used, free = _add_span(x + z * grid.width, low, high, area, used, free, grid.walkable_climb, head, pool)
    return head, pool


@lean_function
def _load_triangle(f, vertices, faces, grid, inverse_cell, clip_out):
    """Write a triangle's corners to `clip_out`; returns area code, largest z, and first and last row of cells."""
    for k in range(3):
        for a in range(3):
            clip_out[3 * k + a] = vertices[faces[f, k], a]
    ux, uy, uz = clip_out[3] - clip_out[0], clip_out[4] - clip_out[1], clip_out[5] - clip_out[2]
    vx, vy, vz = clip_out[6] - clip_out[0], clip_out[7] - clip_out[1], clip_out[8] - clip_out[2]
    nx, ny, nz = uy * vz - uz * vy, uz * vx - ux * vz, ux * vy - uy * vx
    up = ny * (np.float32(1.0) / np.sqrt(nx * nx + ny * ny + nz * nz))
    area = WALKABLE_AREA if up > grid.walkable_cosine else 0
    near, far = _range(clip_out, np.int64(0), np.int64(3), 2)
    z0 = np.int64((near - grid.low[2]) * inverse_cell)
    z1 = np.int64((far - grid.low[2]) * inverse_cell)
    return area, far, min(max(z0, -1), grid.depth - 1), min(max(z1, 0), grid.depth - 1)


@lean_function
def _range(clip, polygon, count, axis):
    """Smallest and largest coordinate of a polygon's corners."""
    low = high = clip[polygon + axis]
    for k in range(1, count):
        value = clip[polygon + 3 * k + axis]
        low = min(low, value)
        high = max(high, value)
    return low, high


@lean_function
def _copy(source, target, clip_out):
    clip_out[target] = clip_out[source]
    clip_out[target + 1] = clip_out[source + 1]
    clip_out[target + 2] = clip_out[source + 2]


@lean_function
def _divide(polygon, count, below, above, line, axis, clip_out):
    """Cut a convex polygon at `line` across `axis` into parts below and above; returns their numbers of corners.

    Polygons are offsets into `clip_out`. Corners on the line go to both parts.
    """
    num_below = num_above = 0
    b = polygon + 3 * (count - 1)
    db = line - clip_out[b + axis]
    for k in range(count):
        a = polygon + 3 * k
        da = line - clip_out[a + axis]
        if (da >= 0) != (db >= 0):
            s = db / (db - da)
            cut = below + 3 * num_below
            clip_out[cut] = clip_out[b] + (clip_out[a] - clip_out[b]) * s
            clip_out[cut + 1] = clip_out[b + 1] + (clip_out[a + 1] - clip_out[b + 1]) * s
            clip_out[cut + 2] = clip_out[b + 2] + (clip_out[a + 2] - clip_out[b + 2]) * s
            _copy(cut, above + 3 * num_above, clip_out)
            num_below += 1
            num_above += 1
            if da > 0:
                _copy(a, below + 3 * num_below, clip_out)
                num_below += 1
            elif da < 0:
                _copy(a, above + 3 * num_above, clip_out)
                num_above += 1
        else:
            if da >= 0:
                _copy(a, below + 3 * num_below, clip_out)
                num_below += 1
            if da <= 0:
                _copy(a, above + 3 * num_above, clip_out)
                num_above += 1
        b, db = a, da
    return num_below, num_above


@lean_function
def _add_span(column, low, high, area, used, free, merge_threshold, head_out, pool_out):
    """Insert a span into a column's list and merge spans that touch. Returns the pool's used count and free list.

    A merged span is walkable if one of its parts is, whose top is within `merge_threshold` of the new top.
    """
    previous = -1
    current = head_out[column]
    while current >= 0 and pool_out[current, _LOW] <= high:
        following = pool_out[current, _NEXT]
        if pool_out[current, _HIGH] < low:
            previous = current
        elif pool_out[current, _LOW] <= low and pool_out[current, _HIGH] >= high:
            pool_out[current, _AREA] = max(area, pool_out[current, _AREA])
            return used, free
        else:
            low = min(low, pool_out[current, _LOW])
            high = max(high, pool_out[current, _HIGH])
            if high - pool_out[current, _HIGH] <= merge_threshold:
                area = max(area, pool_out[current, _AREA])
            if previous >= 0:
                pool_out[previous, _NEXT] = following
            else:
                head_out[column] = following
            pool_out[current, _NEXT] = free
            free = current
        current = following
    if free >= 0:
        span = free
        free = pool_out[span, _NEXT]
    else:
        span = used
        used += 1
    pool_out[span, _LOW] = low
    pool_out[span, _HIGH] = high
    pool_out[span, _AREA] = area
    pool_out[span, _NEXT] = current
    if previous >= 0:
        pool_out[previous, _NEXT] = span
    else:
        head_out[column] = span
    return used, free


@cpu_function
def _flatten(head, pool):
    """The linked lists as arrays in column order."""
    first = np.empty(len(head) + 1, np.int32)
    count = 0
    for column in range(len(head)):
        first[column] = count
        span = head[column]
        while span >= 0:
            count += 1
            span = pool[span, _NEXT]
    first[len(head)] = count
    low, high, area = np.empty(count, np.int32), np.empty(count, np.int32), np.empty(count, np.uint8)
    for column in range(len(head)):
        i = first[column]
        span = head[column]
        while span >= 0:
            low[i], high[i], area[i] = pool[span, _LOW], pool[span, _HIGH], pool[span, _AREA]
            i += 1
            span = pool[span, _NEXT]
    return first, low, high, area
