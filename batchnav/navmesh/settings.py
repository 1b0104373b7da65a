"""Bake settings, with the names and defaults of Habitat's `NavMeshSettings`."""

from dataclasses import dataclass, fields

import numpy as np

from batchnav.errors import ConfigError


@dataclass(frozen=True)
class NavMeshSettings:
    """Bake settings, in the order of the settings block of a `.navmesh` file."""

    cell_size: float = 0.05
    """Width of a voxel, metres."""
    cell_height: float = 0.2
    """Height of a voxel, metres."""
    agent_height: float = 1.5
    """Height that must be free above the floor, metres; rounded up to whole voxels."""
    agent_radius: float = 0.1
    """Distance that the walkable area keeps from walls, metres; rounded up to whole voxels."""
    agent_max_climb: float = 0.2
    """Height of a step that an agent can climb, metres; rounded down to whole voxels."""
    agent_max_slope: float = 45.0
    """Steepest slope that is walkable, degrees."""
    region_min_size: float = 20.0
    """Side of a square, voxels: separate walkable areas that are smaller are removed."""
    region_merge_size: float = 20.0
    """Side of a square, voxels: regions that are smaller are merged with neighbours where possible."""
    edge_max_len: float = 12.0
    """Longest polygon edge along a wall, metres; 0: no limit."""
    edge_max_error: float = 1.3
    """Largest deviation of an outline from the walkable voxels, voxels."""
    verts_per_poly: float = 6.0
    """Largest number of vertices of a polygon, 3 to 6."""
    detail_sample_dist: float = 6.0
    """Distance between height samples, voxels; below 0.9: no samples."""
    detail_sample_max_error: float = 1.0
    """Largest height difference between the detail mesh and the floor, voxel heights."""
    filter_low_hanging_obstacles: bool = True
    """Make obstacles walkable that an agent can climb, such as kerbs."""
    filter_ledge_spans: bool = True
    """Remove the floor next to drops of more than `agent_max_climb`."""
    filter_walkable_low_height_spans: bool = True
    """Remove the floor below ceilings lower than `agent_height`."""
    include_static_objects: bool = False
    """Habitat's setting, stored in files; has no effect on baking."""

    @property
    def effective_radius(self) -> float:
        """Distance that baking keeps from walls: `agent_radius` rounded up to whole cells, metres."""
        return float(np.ceil(np.float32(self.agent_radius) / np.float32(self.cell_size))) * self.cell_size

    @property
    def radius_note(self) -> str:
        """What `agent_radius` amounts to, where it is no whole number of cells; empty where it is."""
        if abs(self.effective_radius - self.agent_radius) < 1e-3 * self.cell_size:
            return ""
        return (
            f"agent_radius {self.agent_radius:g} acts as {self.effective_radius:.6g} m: baking keeps whole cells of "
            f"{self.cell_size:g} m from walls"
        )

    def validate(self) -> None:
        """ConfigError where a value is out of range. The constructor does not call it, so that any file can be read."""
        for field in fields(self)[:13]:
            value = getattr(self, field.name)
            if not isinstance(value, (int, float)) or not 0 <= value < 1e6:
                raise ConfigError(f"NavMeshSettings.{field.name}: found {value!r}, expected a number >= 0")
        for name in ("cell_size", "cell_height", "agent_height"):
            if getattr(self, name) <= 0:
                raise ConfigError(f"NavMeshSettings.{name}: found {getattr(self, name)}, expected more than 0")
        if not 3 <= self.verts_per_poly <= 6:
            raise ConfigError(f"NavMeshSettings.verts_per_poly: found {self.verts_per_poly}, expected 3 to 6")
        if self.agent_max_slope >= 90:
            raise ConfigError(f"NavMeshSettings.agent_max_slope: found {self.agent_max_slope}, expected below 90")
