"""Top-down maps: floor plan, navigable area, paths, goals, and the map that an agent built."""

from __future__ import annotations

import io
import zlib
from collections.abc import Sequence

import numpy as np
import torch
from PIL import Image, ImageDraw, ImageFont

from batchnav.errors import ArgumentError
from batchnav.evaluation.play import AgentMap, present
from batchnav.mapping.state import SIDE, MapLayers
from batchnav.navmesh.data import surface
from batchnav.navmesh.islands import main_island
from batchnav.navmesh.navmesh import NavMesh
from batchnav.renderers.bodies import SeenBodies
from batchnav.types import TriangleMesh

BLUE, ORANGE, GREEN, PURPLE = (0, 114, 178), (213, 94, 0), (0, 158, 115), (204, 121, 167)
"""Colours of the palette of Okabe and Ito, which is safe for colour-blind readers."""
AMBER = (230, 159, 0)
"""Colour of view points, of the same palette."""
PAPER, INK = (255, 255, 255), (45, 45, 45)
FLOOR, OTHER_ISLAND = (219, 234, 245), (250, 232, 200)
"""Colours of the main island and of other islands."""
LOWEST, HIGHEST = np.array([196, 196, 196]), np.array([150, 150, 150])
"""Colours of the lowest and the highest furniture."""

OVERSAMPLING = 3
"""Antialiasing: maps are drawn larger by this factor, then downscaled."""
FOOT = 22
"""Rows of pixels for the scale bar below the plan."""
FLOOR_BAND = 1.2
"""Maximum vertical distance of a navigable polygon from its storey's height, metres."""
WALL_CUT = 1.5
"""Height of the horizontal cut through walls, metres above the navmesh."""
FURNITURE_BAND = (0.1, 2.1)
"""Height range in which upward faces count as furniture, metres above the navmesh (0.2 m above the floor at most)."""


class TopDownMap:
    """A plan seen from above: +X to the right, +Z downwards, so that heading 0 (-Z) points up.

    Args:
        navmesh: navigable area, with its islands.
        mesh: source of walls and furniture; None: navigable area only.
        height: y of the storey, metres; default: the height of the main island (`navmesh.islands.main_island`).
        size: longer side in pixels.
        margin: metres around the navigable area.

    ArgumentError for a size out of range or a height without navigable area.
    """

    def __init__(
        self,
        navmesh: NavMesh,
        mesh: TriangleMesh | None = None,
        height: float | None = None,
        size: int = 640,
        margin: float = 0.4,
    ):
        if not 16 <= size <= 8192:
            raise ArgumentError(f"size: found {size}, expected 16 to 8192 pixels")
        triangles, islands = navigable_triangles(navmesh)
        main = main_island(navmesh.data).number if height is None else _largest(triangles, islands, height)
        if height is None:
            height = float(np.median(triangles[islands == main, :, 1]))
        storey = (np.abs(triangles[:, :, 1].mean(1) - height) <= FLOOR_BAND) & (islands >= 0)
        triangles, islands = triangles[storey], islands[storey]
        # The main island sets the extent; other islands, such as roofs and table tops, are cut off at its edges.
        ends = triangles[islands == main][:, :, [0, 2]].reshape(-1, 2)
        self.low = ends.min(0) - margin
        extent = ends.max(0) + margin - self.low
        self.pixels_per_metre = size / float(extent.max())
        width, height_px = (max(1, round(float(v) * self.pixels_per_metre)) for v in extent)
        self.size = (width, height_px + FOOT)
        self._image = Image.new("RGB", (self.size[0] * OVERSAMPLING, self.size[1] * OVERSAMPLING), PAPER)
        self._draw = ImageDraw.Draw(self._image)
        for other, colour in ((True, OTHER_ISLAND), (False, FLOOR)):
            for corners in self._flat(triangles[(islands != main) == other]):
                # The outline closes hairline gaps between neighbouring polygons.
                self._draw.polygon(corners, fill=colour, outline=colour)
        if mesh is not None:
            self._draw_mesh(mesh, height)

    @property
    def image(self) -> Image.Image:
        """A copy of the picture drawn up to now."""
        return self._image.reduce(OVERSAMPLING)

    def _repr_png_(self) -> bytes:
        """PNG bytes for notebooks."""
        buffer = io.BytesIO()
        self.image.save(buffer, format="png")
        return buffer.getvalue()

    def copy(self) -> TopDownMap:
        """An independent copy to draw on."""
        twin = object.__new__(TopDownMap)
        twin.low, twin.pixels_per_metre, twin.size = self.low, self.pixels_per_metre, self.size
        twin._image = self._image.copy()
        twin._draw = ImageDraw.Draw(twin._image)
        return twin

    def to_pixels(self, points: np.ndarray) -> np.ndarray:
        """World points f32 [..., 3] -> pixel coordinates [..., 2] (column, row) of `image`, not rounded."""
        return (np.asarray(points, np.float64)[..., [0, 2]] - self.low) * self.pixels_per_metre

    def draw_path(self, points: np.ndarray, colour: tuple = BLUE, width: float = 2.5, dash: float = 0.0) -> None:
        """Draw a line through points [K, 3]; `dash` is the length of dashes in pixels, 0 for a solid line."""
        corners = self.to_pixels(points)
        for part in _dashes(corners, dash) if dash > 0.0 else [corners]:
            ends = [tuple(p) for p in part * OVERSAMPLING]
            if len(ends) > 1:
                self._draw.line(ends, fill=colour, width=round(width * OVERSAMPLING), joint="curve")

    def draw_start(self, point: np.ndarray, heading: float | None = None, colour: tuple = GREEN) -> None:
        """Draw a disc, or an arrowhead if a heading (radians) is given."""
        x, y = self.to_pixels(point) * OVERSAMPLING
        r = 7.0 * OVERSAMPLING
        if heading is None:
            self._draw.ellipse(
                [x - 0.8 * r, y - 0.8 * r, x + 0.8 * r, y + 0.8 * r], fill=colour, outline=PAPER, width=2
            )
            return
        # Forward is (-sin h, -cos h) on the picture, its right (cos h, -sin h).
        forward, right = np.array([-np.sin(heading), -np.cos(heading)]), np.array([np.cos(heading), -np.sin(heading)])
        shape = [1.3 * forward, -0.9 * forward + 0.9 * right, -0.45 * forward, -0.9 * forward - 0.9 * right]
        corners = [(x + r * dx, y + r * dy) for dx, dy in shape]
        self._draw.polygon(corners, fill=colour)
        self._draw.line([*corners, corners[0]], fill=PAPER, width=OVERSAMPLING)

    def draw_goal(self, point: np.ndarray, radius: float = 0.2) -> None:
        """Draw a goal: a dot in a ring with the success radius in metres, at least 7 pixels."""
        x, y = self.to_pixels(point) * OVERSAMPLING
        ring = max(radius * self.pixels_per_metre, 7.0) * OVERSAMPLING
        dot = 3.0 * OVERSAMPLING
        self._draw.ellipse([x - ring, y - ring, x + ring, y + ring], fill=PAPER, outline=ORANGE, width=2 * OVERSAMPLING)
        self._draw.ellipse([x - dot, y - dot, x + dot, y + dot], fill=ORANGE)

    def draw_bodies(self, seen: SeenBodies, step: int) -> None:
        """Draw people and other moving bodies at a step, as discs, with their paths up to it.

        `seen`: arrays [S, ...] of the steps of an episode.
        """
        for k in present(seen, step):
            self.draw_path(seen.position[: step + 1, k], PURPLE, width=1.5)
            (x, y), metres = self.to_pixels(seen.position[step, k]) * OVERSAMPLING, float(seen.radius[step, k])
            r = max(metres * self.pixels_per_metre, 2.0) * OVERSAMPLING
            self._draw.ellipse([x - r, y - r, x + r, y + r], fill=PURPLE, outline=PAPER, width=OVERSAMPLING)

    def draw_view_points(self, points: np.ndarray) -> None:
        """Draw places f32 [K, 3] as small dots."""
        r = OVERSAMPLING
        for x, y in self.to_pixels(points) * OVERSAMPLING:
            self._draw.ellipse([x - r, y - r, x + r, y + r], fill=AMBER)

    def draw_object(self, point: np.ndarray) -> None:
        """Draw a square around the centre of an object."""
        (x, y), r = self.to_pixels(point) * OVERSAMPLING, 6.0 * OVERSAMPLING
        self._draw.rectangle([x - r, y - r, x + r, y + r], outline=ORANGE, width=2 * OVERSAMPLING)

    def draw_picture(self, picture: Image.Image, column: float, row: float, side: float) -> None:
        """Draw a square RGBA picture over the plan; its corner and its side are in pixels of `image`."""
        size = max(1, round(side * OVERSAMPLING))
        large = picture.resize((size, size), Image.Resampling.NEAREST)
        self._image.paste(large, (round(column * OVERSAMPLING), round(row * OVERSAMPLING)), large)

    def draw_scale_bar(self) -> None:
        """Draw a scale bar of a round number of metres at the lower left."""
        fitting = [m for m in (0.5, 1, 2, 5, 10, 20, 50, 100) if m * self.pixels_per_metre <= 0.3 * self.size[0]]
        metres = fitting[-1] if fitting else 0.5
        x, y = 10 * OVERSAMPLING, (self.size[1] - 10) * OVERSAMPLING
        end = x + metres * self.pixels_per_metre * OVERSAMPLING
        self._draw.line([x, y, end, y], fill=INK, width=2 * OVERSAMPLING)
        font = ImageFont.load_default(11 * OVERSAMPLING)
        self._draw.text((x, y - 4 * OVERSAMPLING), f"{metres:g} m", fill=INK, font=font, anchor="lb")

    def _flat(self, points: np.ndarray) -> list[list[float]]:
        """World points f32 [M, K, 3] -> M lists x0, y0, x1, y1 ... on the drawing."""
        return (self.to_pixels(points) * OVERSAMPLING).reshape(len(points), 2 * points.shape[1]).tolist()

    def _draw_mesh(self, mesh: TriangleMesh, height: float) -> None:
        """Draw furniture as its upward faces, low ones first, then the cut through the walls."""
        corners = mesh.vertices[mesh.faces].astype(np.float32)
        normal = np.cross(corners[:, 1] - corners[:, 0], corners[:, 2] - corners[:, 0])
        level = corners[:, :, 1].mean(1) - height
        flat = normal[:, 1] > 0.3 * np.linalg.norm(normal, axis=1)
        things = flat & (level > FURNITURE_BAND[0]) & (level < FURNITURE_BAND[1])
        order = np.flatnonzero(things)[np.argsort(level[things], kind="stable")]
        share = (level[order, None] - FURNITURE_BAND[0]) / (FURNITURE_BAND[1] - FURNITURE_BAND[0])
        shades = (LOWEST + share * (HIGHEST - LOWEST)).astype(int).tolist()
        for points, shade in zip(self._flat(corners[order]), shades, strict=True):
            self._draw.polygon(points, fill=tuple(shade))
        for points in self._flat(slice_mesh(corners, height + WALL_CUT)):
            self._draw.line(points, fill=INK, width=OVERSAMPLING)


def navigable_triangles(navmesh: NavMesh) -> tuple[np.ndarray, np.ndarray]:
    """Triangles of the navmesh: corners f32 [R, 3, 3] and island i32 [R], -1 for polygons that are not walkable."""
    corners, polygon = surface(navmesh.data)
    return corners, navmesh.data.polygon_island[polygon]


def slice_mesh(corners: np.ndarray, height: float) -> np.ndarray:
    """Segments f32 [S, 2, 3] in which triangles f32 [F, 3, 3] cross the plane y = height."""
    above = corners[:, :, 1] > height
    crossing = np.flatnonzero(above.any(1) & ~above.all(1))
    segments = np.zeros((len(crossing), 2, 3), np.float32)
    found = np.zeros(len(crossing), int)
    for j in range(3):
        a, b = corners[crossing, j], corners[crossing, (j + 1) % 3]
        cut = np.flatnonzero(above[crossing, j] != above[crossing, (j + 1) % 3])
        share = (height - a[cut, 1]) / (b[cut, 1] - a[cut, 1])
        segments[cut, found[cut]] = a[cut] + share[:, None] * (b[cut] - a[cut])
        found[cut] += 1
    return segments


def _largest(triangles: np.ndarray, islands: np.ndarray, height: float) -> int:
    """The largest island among those near the height."""
    edges = triangles[:, 1:] - triangles[:, :1]
    area = np.linalg.norm(np.cross(edges[:, 0], edges[:, 1]), axis=1)
    usable = (islands >= 0) & (np.abs(triangles[:, :, 1].mean(1) - height) <= FLOOR_BAND)
    if not usable.any():
        raise ArgumentError(f"height: found {height}, expected a height with navigable area")
    return int(np.bincount(islands[usable], area[usable]).argmax())


def _dashes(corners: np.ndarray, length: float) -> Sequence[np.ndarray]:
    """A polyline [K, 2] cut into dashes; gaps are two thirds of a dash."""
    walked = np.append(0.0, np.cumsum(np.linalg.norm(np.diff(corners, axis=0), axis=1)))
    parts = []
    for begin in np.arange(0.0, walked[-1], length * 5 / 3):
        inner = walked[(walked > begin) & (walked < begin + length)]
        at = np.concatenate([[begin], inner, [min(begin + length, walked[-1])]])
        parts.append(np.stack([np.interp(at, walked, corners[:, k]) for k in (0, 1)], axis=1))
    return parts


# The map that an agent built, to lay over a floor plan; and maps in little memory, one for each step

EXPLORED, OCCUPIED, GOAL = (0, 114, 178, 70), (60, 30, 90, 150), (255, 213, 0, 220)
"""Colours (RGBA) of explored cells, of occupied cells, and of cells in which the agent saw its goal."""


def map_picture(built: AgentMap) -> Image.Image:
    """RGBA image of the map, a pixel per cell: +X to the right, +Z downwards; unknown cells are transparent."""
    pixels = np.zeros((SIDE * SIDE, 4), np.uint8)
    pixels[built.layers.is_explored.cpu().numpy()] = EXPLORED
    pixels[built.layers.is_occupied.cpu().numpy()] = OCCUPIED
    if built.goal_cells is not None:
        pixels[built.goal_cells.cpu().numpy()] = GOAL
    return Image.fromarray(pixels.reshape(SIDE, SIDE, 4), "RGBA")


def map_place(plan: TopDownMap, built: AgentMap) -> tuple[float, float, float]:
    """Column and row of the map's corner on a floor plan, and its side, pixels."""
    x, z, resolution = built.origin_and_resolution.double().tolist()
    column, row = plan.to_pixels(np.array([x, 0.0, z])).tolist()
    return column, row, SIDE * resolution * plan.pixels_per_metre


PackedMap = tuple[bytes | None, ...]
"""The tensors of an `AgentMap`, compressed: occupancy, explored, origin and resolution, and goal cells or None."""
_TYPES = np.uint8, np.uint8, np.float32, np.bool_
_FASTEST = 1
"""Level of compression: a map is mostly zeros."""


def packed_map(built: AgentMap) -> PackedMap:
    """A map in about a hundredth of its memory."""
    parts = (*built.layers, built.origin_and_resolution, built.goal_cells)
    return tuple(None if part is None else zlib.compress(part.cpu().numpy().tobytes(), _FASTEST) for part in parts)


def unpacked_map(packed: PackedMap) -> AgentMap:
    """The map of `packed_map`, on the CPU."""
    occupancy, explored, place, goal_cells = (
        None if part is None else torch.from_numpy(np.frombuffer(zlib.decompress(part), kind).copy())
        for part, kind in zip(packed, _TYPES, strict=True)
    )
    assert occupancy is not None and explored is not None and place is not None
    return AgentMap(MapLayers(occupancy, explored), place, goal_cells)
