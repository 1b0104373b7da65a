"""Bake settings, with the names and defaults of Habitat's `NavMeshSettings`."""

from dataclasses import dataclass, fields

from batchnav.errors import ConfigError


@dataclass(frozen=True)
class NavMeshSettings:
    """Bake settings in metres and degrees, in the order of the settings block of a `.navmesh` file."""

    cell_size: float = 0.05
    cell_height: float = 0.2
    agent_height: float = 1.5
    agent_radius: float = 0.1
    agent_max_climb: float = 0.2
    agent_max_slope: float = 45.0
    region_min_size: float = 20.0
    region_merge_size: float = 20.0
    edge_max_len: float = 12.0
    edge_max_error: float = 1.3
    verts_per_poly: float = 6.0
    detail_sample_dist: float = 6.0
    detail_sample_max_error: float = 1.0
    filter_low_hanging_obstacles: bool = True
    filter_ledge_spans: bool = True
    filter_walkable_low_height_spans: bool = True
    include_static_objects: bool = False

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
