"""Figure of a navmesh from above: islands, clearance and a shortest path; axes in metres."""

from __future__ import annotations

import io

import numpy as np
from matplotlib.figure import Figure

from batchnav.errors import ArgumentError
from batchnav.navmesh.islands import island_areas, main_island
from batchnav.navmesh.navmesh import NavMesh
from batchnav.view.topdown import FLOOR_BAND, navigable_triangles

CLEARANCE = 2.0
"""Upper end of the clearance colour scale, metres; Habitat's default search radius."""
CELLS = 400
"""Number of grid points along the longer side."""
MAX_NAMED = 6
"""Maximum number of islands in the legend, by decreasing area."""


class Drawing(Figure):
    """A Matplotlib figure that notebooks display without pyplot."""

    def _repr_png_(self) -> bytes:
        buffer = io.BytesIO()
        self.savefig(buffer, format="png")
        return buffer.getvalue()


def draw_navmesh(
    navmesh: NavMesh, start: np.ndarray | None = None, goal: np.ndarray | None = None, height: float | None = None
) -> Drawing:
    """Draw one storey: clearance as colour, islands as outlines, the shortest path as a line.

    Args:
        navmesh: on the CPU.
        start: f32 [3], metres: start of the path; default: a long path is chosen.
        goal: f32 [3], metres.
        height: y of the storey; default: the height of the main island (`navmesh.islands.main_island`).

    Raises ArgumentError for a navmesh without walkable polygons, or if only one of start and goal is given.
    """
    if (start is None) != (goal is None):
        raise ArgumentError("start, goal: found one of them, expected both or neither")
    triangles, islands = navigable_triangles(navmesh)
    areas = island_areas(navmesh.data)
    if not len(areas):
        raise ArgumentError("navmesh: found no walkable polygon, expected at least one")
    if height is None:
        height = float(np.median(triangles[islands == main_island(navmesh.data).number, :, 1]))
    points, island, clearance = _grid(navmesh, triangles, height)
    figure = Drawing(figsize=(9, 7), layout="constrained")
    axes = figure.add_subplot()
    x, z = points[0, :, 0], points[:, 0, 2]
    shown = axes.pcolormesh(x, z, np.ma.masked_where(island < 0, clearance), vmin=0, vmax=CLEARANCE, cmap="viridis")
    figure.colorbar(shown, label="clearance (m)", shrink=0.7)
    colours = ("tab:blue", "tab:orange", "tab:red", "tab:purple", "tab:brown", "tab:pink")
    for k, colour in zip(np.argsort(-areas)[:MAX_NAMED], colours, strict=False):
        if (island == k).any():
            axes.contour(x, z, island == k, levels=[0.5], colors=colour, linewidths=1.2)
            radius = navmesh.data.island_radius[k]
            axes.plot([], [], color=colour, label=f"island {k}: {areas[k]:.1f} m², radius {radius:.1f} m")
    ends = (start, goal) if start is not None and goal is not None else _far_apart(navmesh)
    path = navmesh.shortest_path(*ends)
    if len(path):
        length = np.linalg.norm(np.diff(path, axis=0), axis=1).sum()
        axes.plot(path[:, 0], path[:, 2], color="white", linewidth=3.5)
        axes.plot(path[:, 0], path[:, 2], color="black", linewidth=1.8, label=f"path: {length:.2f} m")
        axes.plot(*path[0, [0, 2]], "o", color="tab:green", markeredgecolor="white")
        axes.plot(*path[-1, [0, 2]], "*", color="tab:red", markeredgecolor="white", markersize=12)
    axes.set_aspect("equal")
    axes.invert_yaxis()  # heading 0 looks along -Z: upwards
    axes.set(xlabel="x (m)", ylabel="z (m)", title=f"storey at y = {height:.2f} m")
    axes.legend(loc="upper left", bbox_to_anchor=(0.0, -0.1), ncols=2, frameon=False)
    return figure


def _grid(navmesh: NavMesh, triangles: np.ndarray, height: float) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Grid points f32 [R, C, 3], their islands i32 [R, C] (-1 off the storey) and clearance f32 [R, C], metres."""
    low, high = triangles.reshape(-1, 3).min(0), triangles.reshape(-1, 3).max(0)
    step = max(high[0] - low[0], high[2] - low[2]) / CELLS
    x, z = (np.arange(low[k] - step, high[k] + 2 * step, step) for k in (0, 2))
    points = np.stack(np.broadcast_arrays(x[None, :], height, z[:, None]), axis=2).astype(np.float32)
    flat = points.reshape(-1, 3)
    on_mesh = navmesh.is_navigable(flat, FLOOR_BAND)
    island, clearance = np.full(len(flat), -1, np.int32), np.zeros(len(flat), np.float32)
    island[on_mesh] = navmesh.island(flat[on_mesh])
    clearance[on_mesh] = navmesh.distance_to_wall(flat[on_mesh], CLEARANCE)
    return points, island.reshape(points.shape[:2]), clearance.reshape(points.shape[:2])


def _far_apart(navmesh: NavMesh) -> tuple[np.ndarray, np.ndarray]:
    """The two points with the longest shortest path among 256 sampled pairs."""
    points = navmesh.sample(512)
    distance = navmesh.geodesic_distance(points[:256], points[256:])
    best = int(np.where(np.isfinite(distance), distance, -1.0).argmax())
    return points[best], points[256 + best]
