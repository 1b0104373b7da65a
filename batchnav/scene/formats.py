"""File formats of scenes that are not supported, and how to convert them."""

from __future__ import annotations

_POINTS = (
    "a point cloud, expected a mesh of triangles; mesh it first, for example with Poisson reconstruction in MeshLab, "
    "CloudCompare or Open3D (create_from_point_cloud_poisson), and save it as GLB or PLY"
)
_CONVERT = "; convert it to GLB, for example with Blender"
_KINDS = {
    **dict.fromkeys((".pcd", ".las", ".laz", ".e57", ".xyz", ".pts", ".ptx"), _POINTS),
    **dict.fromkeys(
        (".world", ".sdf"),
        "a world of Gazebo; import it with `batchnav data import FILE --models DIR --out DIR`, which writes a GLB file",
    ),
    **dict.fromkeys(
        (".fbx", ".usd", ".usda", ".usdc", ".usdz", ".blend", ".3ds", ".wrl", ".x3d", ".ifc", ".dxf", ".step"),
        f"a format that is not read{_CONVERT}",
    ),
}
"""What a file is, and how to make a mesh file of it, by suffix."""


def unsupported_format(suffix: str) -> str | None:
    """What a file of an unsupported format is, and how to make a mesh file of it; None for other suffixes."""
    return _KINDS.get(suffix.lower())


def point_cloud_error(num_points: int) -> str:
    """The error message for a mesh file that has points only."""
    return f"holds no triangles: its {num_points} points are {_POINTS}"
