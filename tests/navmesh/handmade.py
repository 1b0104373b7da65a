"""Small tiles made in code, with results that can be computed by hand."""

import numpy as np

from batchnav.navmesh.data import BV_NODE, DETAIL, POLYGON, Tile
from batchnav.navmesh.file import NavMeshFile, single_tile_file
from batchnav.navmesh.settings import NavMeshSettings

CELL = 0.05
MAX_LINKS_PER_EDGE = 2


def rectangle(x0, z0, x1, z1, y=0.0):
    """Corners in Detour's winding."""
    return [(x0, y, z0), (x0, y, z1), (x1, y, z1), (x1, y, z0)]


def make_tile(outlines, flags=None, border=None, climb=0.2, low=None, high=None, x=0, y=0):
    """A tile of convex polygons; those that share an edge are neighbours. `border(a, b)` -> an edge's side, or None."""
    vertices, index = [], {}
    for outline in outlines:
        for corner in outline:
            index.setdefault(corner, len(index))
    vertices = np.array(list(index), np.float32)
    polygons, details = np.zeros(len(outlines), POLYGON), np.zeros(len(outlines), DETAIL)
    edges, triangles = {}, []
    for p, outline in enumerate(outlines):
        for e, a in enumerate(outline):
            edges[a, outline[(e + 1) % len(outline)]] = p
    for p, outline in enumerate(outlines):
        n = len(outline)
        polygons[p]["num_vertices"], polygons[p]["flags"] = n, 1 if flags is None else flags[p]
        polygons[p]["vertices"][:n] = [index[corner] for corner in outline]
        for e, a in enumerate(outline):
            b = outline[(e + 1) % n]
            side = border(a, b) if border else None
            polygons[p]["neighbours"][e] = edges.get((b, a), -1) + 1 if side is None else 0x8000 | side
        details[p]["triangle_base"], details[p]["num_triangles"] = len(triangles), n - 2
        for i in range(1, n - 1):
            boundary = (i == 1) | (1 << 2) | ((i == n - 2) << 4)
            triangles.append((0, i, i + 1, boundary))
    low = vertices.min(0) if low is None else np.array(low, np.float32)
    high = vertices.max(0) + np.float32([0, 1.6, 0]) if high is None else np.array(high, np.float32)
    nodes = np.zeros(len(outlines) + 1, BV_NODE)  # leaves only, then the empty node that Recast leaves at the end
    for p, outline in enumerate(outlines):
        corners = np.array(outline, np.float32)
        nodes[p]["low"], nodes[p]["high"] = (corners.min(0) - low) / CELL, (corners.max(0) - low) / CELL
        nodes[p]["index"] = p
    return Tile(
        vertices, polygons, details, np.zeros((0, 3), np.float32), np.array(triangles, np.uint8), nodes, low, high,
        1.5, 0.1, climb, 1 / CELL, len(edges) * MAX_LINKS_PER_EDGE, x, y,
    )  # fmt: skip


def two_rooms() -> NavMeshFile:
    """Rooms of 4 x 4 m and 3.8 x 4 m, a door 1 m wide in a wall 0.2 m thick; a table 0.8 m high in the first."""
    first = [(0.0, 0.0, 0.0), (0.0, 0.0, 4.0), (4.0, 0.0, 4.0), (4.0, 0.0, 2.5), (4.0, 0.0, 1.5), (4.0, 0.0, 0.0)]
    second = [(4.2, 0.0, 0.0), (4.2, 0.0, 1.5), (4.2, 0.0, 2.5), (4.2, 0.0, 4.0), (8.0, 0.0, 4.0), (8.0, 0.0, 0.0)]
    door = rectangle(4.0, 1.5, 4.2, 2.5)
    table = rectangle(1.0, 1.0, 2.0, 2.0, 0.8)
    return single_tile_file(make_tile([first, door, second, table]), NavMeshSettings())


def four_tiles() -> NavMeshFile:
    """A floor of 8 x 8 m in four tiles of 4 x 4 m, each of four quads, so that corners meet across borders."""
    tiles = []
    for row in range(2):
        for column in range(2):
            x, z = 4.0 * column, 4.0 * row
            outlines = [rectangle(x + i, z + k, x + i + 2, z + k + 2) for k in (0.0, 2.0) for i in (0.0, 2.0)]

            def border(a, b, column=column, row=row):
                if a[0] == b[0] == 4.0:
                    return 0 if column == 0 else 4
                if a[2] == b[2] == 4.0:
                    return 2 if row == 0 else 6
                return None

            tiles.append(make_tile(
                outlines, None, border, low=(x, 0, z), high=(x + 4, 1.6, z + 4), x=column, y=row,
            ))  # fmt: skip
    return NavMeshFile(tiles, NavMeshSettings(), (0.0, 0.0, 0.0), 4.0, 4.0, 4, 16, [k << 4 | 1 << 6 for k in range(4)])


def hills(count: int, seed: int) -> NavMeshFile:
    """A floor of count x count quads of uneven size and height."""
    rng = np.random.default_rng(seed)
    xs, zs = (np.concatenate([[0.0], np.cumsum(rng.uniform(0.3, 1.2, count))]) for _ in range(2))
    height = rng.uniform(0.0, 0.6, (count + 1, count + 1))

    def corner(i, k):
        return float(np.float32(xs[i])), float(np.float32(height[i, k])), float(np.float32(zs[k]))

    outlines = [
        [corner(i, k), corner(i, k + 1), corner(i + 1, k + 1), corner(i + 1, k)]
        for i in range(count)
        for k in range(count)
        if rng.random() > 0.15
    ]
    return single_tile_file(make_tile(outlines), NavMeshSettings())
