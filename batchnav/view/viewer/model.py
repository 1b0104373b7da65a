"""A scene's mesh as GLB for the browser, with colours, cut off at a height so that rooms are visible from above."""

from __future__ import annotations

import numpy as np
import trimesh
from PIL import Image

from batchnav.types import Surface, TriangleMesh

PLAIN = np.array([205, 203, 198, 255], np.uint8)
"""Colour of a mesh without appearance, RGBA."""


def to_glb(mesh: TriangleMesh, top: float) -> bytes:
    """GLB of the triangles that reach below y = `top` (metres), which removes ceilings and roofs and keeps walls.

    Untextured triangles become one mesh with vertex colours; textured ones become one mesh per material.
    """
    corners = mesh.vertices[mesh.faces]
    kept = corners[:, :, 1].min(axis=1) < top
    faces, surface = np.flatnonzero(kept), mesh.surface
    scene = trimesh.Scene()
    if surface is None:
        scene.add_geometry(_coloured(corners[faces], np.broadcast_to(PLAIN, (len(faces), 3, 4))))
        return scene.export(file_type="glb")
    textured = np.array([material.texture >= 0 for material in surface.materials]) & (surface.uv is not None)
    plain = faces[~textured[surface.material[faces]]]
    if len(plain):
        scene.add_geometry(_coloured(corners[plain], corner_colours(surface, plain)))
    for number in np.unique(surface.material[faces]):
        if textured[number]:
            scene.add_geometry(_textured(corners, surface, faces[surface.material[faces] == number], int(number)))
    return scene.export(file_type="glb")


def corner_colours(surface: Surface, faces: np.ndarray) -> np.ndarray:
    """Vertex colours u8 [F, 3, 4] (sRGB) of some triangles, without textures."""
    factors = np.array([material.color for material in surface.materials], np.float32)[surface.material[faces]]
    colours = 255.0 if surface.color is None else surface.color[faces].astype(np.float32)
    return np.broadcast_to(np.round(factors[:, None] * colours), (len(faces), 3, 4)).astype(np.uint8)


def _coloured(corners: np.ndarray, colours: np.ndarray) -> trimesh.Trimesh:
    """Triangles f32 [F, 3, 3] with colours u8 [F, 3, 4] at their corners."""
    made = _triangles(corners)
    made.visual = trimesh.visual.ColorVisuals(made, vertex_colors=_linear(colours.reshape(-1, 4)))
    return made


def _textured(corners: np.ndarray, surface: Surface, faces: np.ndarray, number: int) -> trimesh.Trimesh:
    """The triangles of one material with its texture."""
    material = surface.materials[number]
    assert surface.uv is not None
    made = _triangles(corners[faces])
    uv = surface.uv[faces].reshape(-1, 2).astype(np.float64)
    uv[:, 1] = 1.0 - uv[:, 1]  # trimesh has v = 0 at the bottom
    factor = _linear(np.round(255.0 * np.array(material.color)).clip(0, 255).astype(np.uint8)[None])[0]
    look = trimesh.visual.material.PBRMaterial(
        baseColorTexture=Image.fromarray(surface.textures[material.texture].pixels[..., :3]),
        baseColorFactor=factor, metallicFactor=0.0, roughnessFactor=1.0, doubleSided=True,
    )  # fmt: skip
    made.visual = trimesh.visual.TextureVisuals(uv=uv, material=look)
    return made


def _triangles(corners: np.ndarray) -> trimesh.Trimesh:
    """A mesh whose triangles share no vertices."""
    return trimesh.Trimesh(corners.reshape(-1, 3), np.arange(3 * len(corners)).reshape(-1, 3), process=False)


def _linear(colours: np.ndarray) -> np.ndarray:
    """sRGB colours u8 [..., 4] in linear form, as glTF stores vertex colours and factors."""
    share = colours.astype(np.float32) / 255.0
    rgb = np.where(share <= 0.04045, share / 12.92, ((share + 0.055) / 1.055) ** 2.4)
    return np.round(255.0 * np.concatenate([rgb[..., :3], share[..., 3:]], axis=-1)).astype(np.uint8)


def scene_path(name: str) -> str:
    """A name as part of a path in viser's scene tree: characters other than letters and digits become underscores."""
    return "".join(c if c.isalnum() else "_" for c in name)
