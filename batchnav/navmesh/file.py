"""Habitat's `.navmesh` files: a set ("MSET", version 1 or 2) of Detour tiles (version 7), little-endian.

Format: set header (40 bytes), bake settings (56 bytes, version 2 only), then per tile a reference and a size (8 bytes)
and its blocks. The parser trusts no value: it checks counts against the file size before it allocates memory, and
indices against their ranges. So the file size bounds memory (at most 15 times) and time (at most 10 us per byte, for
files with many tiny tiles).
"""

from __future__ import annotations

import dataclasses
import struct
from collections import Counter
from pathlib import Path
from typing import NamedTuple

import numpy as np

from batchnav.errors import NavMeshError, shortened
from batchnav.navmesh.data import BV_NODE, DETAIL, POLYGON, Tile
from batchnav.navmesh.settings import NavMeshSettings
from batchnav.runtime.files import as_path, read_regular, replacing

SET_MAGIC, TILE_MAGIC, TILE_VERSION = 0x4D534554, 0x444E4156, 7
SET_HEADER = struct.Struct("<3i3f2f2i")
SETTINGS = struct.Struct("<13f4s")
TILE_REF = struct.Struct("<Ii")
TILE_HEADER = struct.Struct("<15i10f")
LINK_BYTES = 12
EXTERNAL = 0x8000
"""Neighbour flag of a polygon edge on the tile's border; the low byte is the side: 0, 2, 4 or 6."""
FARTHEST = 1e6
"""Largest coordinate, metres; squares and sums of coordinates do not overflow."""
_ROUNDED = 2.0
"""Cells by which a box of the BV tree may miss its polygon."""
MAX_LAYERS = 32
"""Largest number of tiles at one place (x, y), Detour's limit."""


class NavMeshFile(NamedTuple):
    """Content of a `.navmesh` file."""

    tiles: list[Tile]
    settings: NavMeshSettings | None
    """Bake settings; None in files of version 1."""
    origin: tuple[float, float, float]
    tile_width: float
    tile_depth: float
    max_tiles: int
    max_polygons: int
    references: list[int]
    """Detour's tile references."""
    flag_bytes: bytes | None = None
    """Bytes of the four flags in the settings as in the file; in older files the last one is padding with any value."""


def single_tile_file(tile: Tile, settings: NavMeshSettings) -> NavMeshFile:
    """File content for one baked tile, as Detour initialises a navmesh of one tile."""
    polygon_bits = max(len(tile.polygons) - 1, 0).bit_length()
    size = (np.asarray(tile.high, np.float32) - np.asarray(tile.low, np.float32)).tolist()
    return NavMeshFile(
        [tile], settings, tuple(np.asarray(tile.low, np.float32).tolist()), size[0], size[2], 1, len(tile.polygons),
        [1 << polygon_bits],
    )  # fmt: skip


def read(path: str | Path) -> NavMeshFile:
    """Read and check a `.navmesh` file. NavMeshError names the file and the field."""
    return parse(read_regular(as_path(path), NavMeshError), str(path))


def write(path: str | Path, file: NavMeshFile) -> None:
    """Write a `.navmesh` file atomically."""
    with replacing(as_path(path), NavMeshError) as part:
        part.write_bytes(serialise(file))


def parse(data: bytes, name: str) -> NavMeshFile:
    """Parse and check the bytes of a `.navmesh` file; errors begin with `name`."""
    reader = _Reader(data, name)
    magic, version, num_tiles, *rest = reader.take(SET_HEADER, "set header")
    reader.expect("magic", hex(magic & 0xFFFFFFFF), hex(SET_MAGIC))
    if version not in (1, 2):
        reader.fail("version", version, "1 or 2")
    if not 0 < num_tiles <= len(data) // (TILE_REF.size + TILE_HEADER.size):
        reader.fail("number of tiles", num_tiles, f"1 or more that fit {len(data)} bytes")
    origin, (width, depth), (max_tiles, max_polygons) = tuple(rest[:3]), rest[3:5], rest[5:]
    if not (np.isfinite(rest[:5]).all() and width > 0 and depth > 0 and max(map(abs, rest[:5])) <= FARTHEST):
        reader.fail("origin and tile size", rest[:5], f"finite values up to {FARTHEST:g}, sizes above 0")
    settings = flags = None
    if version == 2:
        *values, flags = reader.take(SETTINGS, "settings")
        if not np.isfinite(values).all():
            reader.fail("settings", values, "finite values")
        # Shortest decimals with the same float32: 0.05, not 0.05000000074505806.
        decimals = [float(str(np.float32(value))) for value in values]
        switches = *(flag != 0 for flag in flags[:3]), flags[3] == 1
        names = (field.name for field in dataclasses.fields(NavMeshSettings))
        settings = NavMeshSettings(**dict(zip(names, (*decimals, *switches), strict=True)))
    tiles, references = [], []
    for index in range(num_tiles):
        reference, size = reader.take(TILE_REF, f"tile {index} reference")
        if not TILE_HEADER.size <= size <= reader.left:
            reader.fail(f"tile {index} size", size, f"{TILE_HEADER.size} to the {reader.left} bytes that follow")
        tiles.append(_parse_tile(reader, index, reader.offset + size))
        references.append(reference)
    if reader.left:
        reader.fail("bytes after the last tile", reader.left, 0)
    places = {(tile.x, tile.y, tile.layer) for tile in tiles}
    if len(places) != num_tiles:
        reader.fail("tile coordinates", f"{num_tiles - len(places)} repeated", "each (x, y, layer) once")
    (x, y), layers = Counter((tile.x, tile.y) for tile in tiles).most_common(1)[0]
    if layers > MAX_LAYERS:
        reader.fail(f"tiles at ({x}, {y})", layers, f"at most {MAX_LAYERS}")
    return NavMeshFile(tiles, settings, origin, width, depth, max_tiles, max_polygons, references, flags)


def serialise(file: NavMeshFile) -> bytes:
    """Bytes of a `.navmesh` file, the inverse of `parse`."""
    version = 1 if file.settings is None else 2
    header = (SET_MAGIC, version, len(file.tiles), *file.origin, file.tile_width, file.tile_depth)
    parts = [SET_HEADER.pack(*header, file.max_tiles, file.max_polygons)]
    if file.settings is not None:
        values = list(vars(file.settings).values())
        parts.append(SETTINGS.pack(*values[:13], file.flag_bytes or bytes(values[13:])))
    for tile, reference in zip(file.tiles, file.references, strict=True):
        body = _serialise_tile(tile)
        parts += [TILE_REF.pack(reference, len(body)), body]
    return b"".join(parts)


class _Reader:
    """Reads structures and arrays from bytes and raises errors."""

    def __init__(self, data: bytes, name: str):
        self.data, self.name, self.offset = data, name, 0

    @property
    def left(self) -> int:
        return len(self.data) - self.offset

    def fail(self, field: str, found, expected) -> None:
        raise NavMeshError(f"{self.name}: {field}: found {found}, expected {expected}")

    def expect(self, field: str, found, expected) -> None:
        if found != expected:
            self.fail(field, found, expected)

    def take(self, structure: struct.Struct, field: str) -> tuple:
        if self.left < structure.size:
            self.fail(field, f"{self.left} bytes", f"{structure.size} (the file is truncated)")
        self.offset += structure.size
        return structure.unpack_from(self.data, self.offset - structure.size)

    def array(self, count: int, dtype: np.dtype, shape: tuple, end: int, field: str) -> np.ndarray:
        """`count` rows, checked against the end of the tile before the allocation."""
        size = count * dtype.itemsize * int(np.prod(shape, dtype=np.int64))
        if count < 0 or self.offset + size > end:
            self.fail(field, count, f"0 to as many as fit the tile's last {end - self.offset} bytes")
        items = np.frombuffer(self.data, dtype, size // dtype.itemsize, self.offset)
        self.offset += size
        return items.reshape((count, *shape)).copy()


def _parse_tile(reader: _Reader, index: int, end: int) -> Tile:
    """Parse and check the header and blocks of a tile."""
    where = f"tile {index} "
    header = reader.take(TILE_HEADER, where + "header")
    magic, version, x, y, layer, user_id = header[:6]
    num_polygons, num_vertices, max_links, num_details, num_detail_vertices, num_triangles, num_nodes = header[6:13]
    reader.expect(where + "magic", hex(magic & 0xFFFFFFFF), hex(TILE_MAGIC))
    reader.expect(where + "version", version, TILE_VERSION)
    reader.expect(where + "off-mesh connections", header[13], 0)
    reader.expect(where + "off-mesh base", header[14], num_polygons)
    reader.expect(where + "number of detail meshes", num_details, num_polygons)
    f4, u1 = np.dtype("<f4"), np.dtype("u1")
    vertices = reader.array(num_vertices, f4, (3,), end, where + "number of vertices")
    polygons = reader.array(num_polygons, POLYGON, (), end, where + "number of polygons")
    links = reader.array(max_links, u1, (LINK_BYTES,), end, where + "number of links")
    details = reader.array(num_details, DETAIL, (), end, where + "number of detail meshes")
    detail_vertices = reader.array(num_detail_vertices, f4, (3,), end, where + "number of detail vertices")
    triangles = reader.array(num_triangles, u1, (4,), end, where + "number of detail triangles")
    nodes = reader.array(num_nodes, BV_NODE, (), end, where + "number of BV nodes")
    reader.expect(where + "size", f"{end - reader.offset} bytes too many", "0 bytes too many")
    low, high = (np.array(corner, np.float32) for corner in (header[18:21], header[21:24]))
    height, radius, climb = header[15:18]
    tile = Tile(
        vertices, polygons, details, detail_vertices, triangles, nodes, low, high, height, radius, climb, header[24],
        max_links, x, y, layer, user_id, links,
    )  # fmt: skip
    check_tile(tile, f"{reader.name}: tile {index}")
    return tile


def check_tile(tile: Tile, name: str) -> None:
    """NavMeshError where a tile has an index out of range or a value that is not finite; kernels do not check."""

    def require(ok, values, field: str, expected: str) -> None:
        """`ok` and `values` have a row per item of the field; the message shows the first row that is not ok."""
        if not np.all(ok):
            bad = int(np.argmin(np.reshape(ok, (len(ok), -1)).all(1)))
            found = shortened(np.asarray(values)[bad].tolist())
            raise NavMeshError(f"{name}: {field} {bad}: found {found}, expected {expected}")

    num_polygons, num_vertices = len(tile.polygons), len(tile.vertices)
    scalars = [tile.walkable_height, tile.walkable_radius, tile.walkable_climb, tile.bv_quant]
    header, corners = [*tile.low, *tile.high, *scalars], [*tile.low, *tile.high]
    near = f"finite coordinates up to {FARTHEST:g} m"
    require(np.abs(tile.vertices) <= FARTHEST, tile.vertices, "vertex", near)
    require(np.abs(tile.detail_vertices) <= FARTHEST, tile.detail_vertices, "detail vertex", near)
    require(np.isfinite(header), header, "header value", "a finite value")
    require(np.abs(scalars) <= FARTHEST, scalars, "header value", f"up to {FARTHEST:g}")
    spans = np.stack([tile.low, tile.high], axis=1)
    require(spans[:, 0] <= spans[:, 1], spans, "bounds, axis", "low <= high")
    require([0 < tile.bv_quant < 1e6], [tile.bv_quant], "bv_quant", "above 0 (a tile with a BV tree)")
    require(np.abs(corners) < FARTHEST, corners, "bounds, axis", "within 1000 km of the origin")
    count = tile.polygons["num_vertices"].astype(np.int64)
    require((count >= 3) & (count <= 6), count, "polygon", "3 to 6 vertices")
    kind = tile.polygons["area_and_type"] >> 6
    require(kind == 0, kind, "polygon", "type 0, a ground polygon")
    used, vertices = np.arange(6) < count[:, None], tile.polygons["vertices"]
    require(~used | (vertices < num_vertices), vertices, "polygon", f"vertex indices below {num_vertices}")
    neighbours = tile.polygons["neighbours"].astype(np.int64)
    internal = used & (neighbours & EXTERNAL == 0)
    require(~internal | (neighbours <= num_polygons), neighbours, "polygon", f"neighbours up to {num_polygons}")
    _check_neighbours(tile, count, np.where(internal, neighbours, 0), require)
    side = neighbours & 0xFF
    require(~(used & ~internal) | ((side <= 6) & (side % 2 == 0)), side, "polygon", "border sides 0, 2, 4 or 6")
    _check_details(tile, count, require)
    node = tile.bv_nodes["index"].astype(np.int64)
    require([num_polygons == 0 or len(node) > 0], [len(node)], "BV tree", "at least one node")
    after = np.arange(len(node)) - node
    leads = np.where(node < 0, after <= len(node), node < num_polygons)
    require(leads, node, "BV node", "a polygon, or a skip within the tree")
    _check_boxes(tile, used, require)


def _check_neighbours(tile: Tile, count: np.ndarray, neighbours: np.ndarray, require) -> None:
    """Check that polygons are neighbours of each other along an edge of the same two vertices.

    A neighbour that does not lead back is a way without return: paths that other tools find would have no end.
    """
    polygon, edge = np.nonzero(neighbours)
    other, vertices = neighbours[polygon, edge] - 1, tile.polygons["vertices"].astype(np.int64)
    start, end = vertices[polygon, edge], vertices[polygon, np.where(edge + 1 < count[polygon], edge + 1, 0)]
    back = np.stack([other, polygon, end, start], axis=1)
    here = np.stack([polygon, other, start, end], axis=1)
    both, found = np.unique(np.concatenate([here, back]), axis=0, return_inverse=True)
    present = np.zeros(len(both), bool)
    present[found[: len(here)]] = True
    ok = np.ones(len(count), bool)
    ok[polygon[~present[found[len(here) :]]]] = False
    require(ok, neighbours, "polygon", "neighbours that are its neighbours along the same edge")


def _check_boxes(tile: Tile, used: np.ndarray, require) -> None:
    """Check that queries find each polygon: its box and those above it contain it. `used`: bool [P, 6], its vertices.

    Detour rounds boxes down, and those of heights from the detail mesh, which are not checked.
    """
    nodes, number = tile.bv_nodes, len(tile.polygons)
    above, open_rows = np.full(len(nodes), -1), list[tuple[int, int]]()
    for row, index in enumerate(nodes["index"].tolist()):
        while open_rows and open_rows[-1][0] <= row:
            open_rows.pop()
        above[row] = open_rows[-1][1] if open_rows else -1
        if index < 0:
            open_rows.append((row - index, row))
    low, high = nodes["low"].astype(np.int64), nodes["high"].astype(np.int64)
    inside = ((low >= low[above]) & (high <= high[above])) | (above < 0)[:, None]
    require(inside, low, "BV node", "a box within that of the node above")
    leaf = np.flatnonzero(nodes["index"] >= 0)
    polygon = nodes["index"][leaf]
    vertices = tile.vertices[np.where(used, tile.polygons["vertices"], 0)]
    cells = ((vertices.astype(np.float64) - tile.low) * tile.bv_quant)[polygon]
    fits = (low[leaf, None] - _ROUNDED <= cells) & (cells <= high[leaf, None] + _ROUNDED)
    found = np.zeros(number, bool)
    found[polygon[(fits[:, :, [0, 2]].all(2) | ~used[polygon]).all(1)]] = True
    require(found, np.arange(number), "polygon", "a box of the BV tree that contains it")


def _check_details(tile: Tile, count: np.ndarray, require) -> None:
    """Check that detail meshes are within the tile and their triangles within the detail meshes."""
    base, extra = tile.details["vertex_base"].astype(np.int64), tile.details["num_vertices"].astype(np.int64)
    first, number = tile.details["triangle_base"].astype(np.int64), tile.details["num_triangles"].astype(np.int64)
    num_vertices, num_triangles = len(tile.detail_vertices), len(tile.detail_triangles)
    last = base + extra
    require((extra == 0) | (last <= num_vertices), last, "detail mesh", f"at most {num_vertices} vertices")
    last = first + number
    require(last <= num_triangles, last, "detail mesh", f"at most {num_triangles} triangles")
    # Shared triangles would let a small file need much memory.
    total = number.sum()
    require([total <= num_triangles], [total], "detail meshes", f"at most {num_triangles} triangles in all")
    owner = np.repeat(np.arange(len(number)), number)
    offset = np.arange(len(owner)) - np.repeat(np.cumsum(number) - number, number)
    corners = tile.detail_triangles[first[owner] + offset, :3]
    require(
        corners < (count + extra)[owner][:, None], corners, "detail triangle", "corners of its polygon's detail mesh"
    )


def _serialise_tile(tile: Tile) -> bytes:
    num_polygons = len(tile.polygons)
    links = tile.links if tile.links is not None else np.zeros((tile.max_links, LINK_BYTES), np.uint8)
    header = TILE_HEADER.pack(
        TILE_MAGIC, TILE_VERSION, tile.x, tile.y, tile.layer, tile.user_id, num_polygons, len(tile.vertices),
        tile.max_links, len(tile.details), len(tile.detail_vertices), len(tile.detail_triangles), len(tile.bv_nodes),
        0, num_polygons, tile.walkable_height, tile.walkable_radius, tile.walkable_climb, *tile.low, *tile.high,
        tile.bv_quant,
    )  # fmt: skip
    blocks = (
        (tile.vertices, "<f4"), (tile.polygons, POLYGON), (links, "u1"), (tile.details, DETAIL),
        (tile.detail_vertices, "<f4"), (tile.detail_triangles, "u1"), (tile.bv_nodes, BV_NODE),
    )  # fmt: skip
    return header + b"".join(np.ascontiguousarray(block, dtype).tobytes() for block, dtype in blocks)
