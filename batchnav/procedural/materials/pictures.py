"""Pictures of a user's folder as materials of procedural scenes (scene ids with "?materials=FOLDER").

    FOLDER/wall/*.jpg    FOLDER/floor/*.png    FOLDER/ceiling/*    FOLDER/furniture/*    FOLDER/*.jpg for all of them

Each finish of a scene, such as the paint of a room or the fabric of a sofa, becomes a random picture of its group. A
picture is tiled with every second tile mirrored, so that it has no seams; `sizes.yaml` gives widths of pictures.
Pictures are limited to `LARGEST` texels a side. `scenes.randomize_materials` does not change them.
"""

from __future__ import annotations

import fnmatch
import functools
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from batchnav.config import read_yaml
from batchnav.errors import MeshError, few, shortened
from batchnav.procedural.materials.finishes import family_of, name_of
from batchnav.procedural.materials.surface import SMALL
from batchnav.procedural.materials.textures import METRES, TEXTURE_FAMILIES
from batchnav.procedural.random_stream import RandomStream
from batchnav.runtime.files import content_hash, read_regular
from batchnav.scene.blocks import pixels_of
from batchnav.scene.images import open_image, rgba
from batchnav.scene.textures import halved
from batchnav.types import LIGHT_STEPS, Material, Texture, TriangleMesh

SUFFIXES = (".jpg", ".jpeg", ".png", ".webp", ".bmp", ".tif", ".tiff", ".tga")
SIZES = "sizes.yaml"
"""File with widths of pictures, metres, by name or pattern."""
GROUPS = {
    "wall": ("wall",), "floor": ("floor",), "ceiling": ("ceiling",),
    "furniture": ("wood", "front", "worktop", "fabric", "linen", "blanket", "curtain", "door", "wicker"),
}  # fmt: skip
"""Names of the folder's folders, each with the materials that its pictures replace."""
LARGEST = 256
"""Largest side of a picture, texels."""
WIDTH = 1.0
"""Width of a picture that `sizes.yaml` does not name, metres."""
_PICTURES = 0x91C7
"""First part of the seeds of pictures: their random numbers are independent of all others."""
_KEPT = (0, -1, 0, 0)
"""Row of `Surface.finish` of a material that is not randomised."""
_WHOLE = ("rug", "art", "outdoors")
"""Families of textures that cover a whole side: they stay."""


class Pictures(NamedTuple):
    """The pictures of a folder."""

    textures: tuple[Texture, ...]
    metres: tuple[tuple[float, float], ...]
    """Width and height of each picture, metres."""
    rows: dict[str, tuple[int, ...]]
    """Pictures of each material."""


def picture_files(folder: Path) -> list[Path]:
    """The pictures of a folder, sorted. MeshError where there are none, or where a folder in it is no group."""
    if not folder.is_dir():
        raise MeshError(
            f"materials {folder}: found no such folder, expected keep or random, or a folder with pictures in "
            f"{', '.join(GROUPS)}"
        )
    others = [each.name for each in sorted(folder.iterdir()) if each.is_dir() and each.name not in GROUPS]
    if others := [name for name in others if not name.startswith(".")]:
        raise MeshError(f"materials {folder}: found folders {few(others)}, expected some of {', '.join(GROUPS)}")
    found = [*folder.glob("*"), *folder.glob("*/*")]
    files = [file for file in found if file.suffix.lower() in SUFFIXES and not file.name.startswith(".")]
    if not files:
        raise MeshError(
            f"materials {folder}: found no pictures, expected {', '.join(SUFFIXES)} in it or in its folders "
            f"{', '.join(GROUPS)}"
        )
    return sorted(files)


def pictures_content(folder: Path) -> str:
    """A hash of the names and the content of a folder's pictures and of its `sizes.yaml`."""
    return content_hash(folder, [*picture_files(folder), *filter(Path.is_file, [folder / SIZES])])


def read_pictures(folder: str | Path) -> Pictures:
    """The pictures of a folder, read once for each content. MeshError names the folder or the file that is wrong."""
    folder = Path(folder).absolute()
    return _read(folder, pictures_content(folder))


@functools.lru_cache(maxsize=4)
def _read(folder: Path, content: str) -> Pictures:
    files = picture_files(folder)
    names = [file.relative_to(folder).with_suffix("").as_posix() for file in files]
    widths = _read_sizes(folder, names)
    textures, metres, rows = [], [], dict[str, list[int]]()
    for number, (file, name) in enumerate(zip(files, names, strict=True)):
        pixels = _pixels(file)
        width = next((value for pattern, value in widths.items() if fnmatch.fnmatchcase(name, pattern)), WIDTH)
        textures.append(Texture(pixels, ("mirror", "mirror")))
        metres.append((width, width * pixels.shape[0] / pixels.shape[1]))
        for group in GROUPS if file.parent == folder else (file.parent.name,):
            for material in GROUPS[group]:
                rows.setdefault(material, []).append(number)
    return Pictures(tuple(textures), tuple(metres), {material: tuple(found) for material, found in rows.items()})


def _pixels(file: Path) -> np.ndarray:
    """An opaque picture, RGBA u8 [h, w, 4]. MeshError names the file that is none."""
    try:
        image = open_image(read_regular(file, MeshError))
        image.draft(None, (LARGEST, LARGEST))  # decodes a JPEG at a reduced size
        pixels = rgba(image)
    except MemoryError:
        raise
    except MeshError as error:
        raise MeshError(f"{file}: {error}" if str(file) not in str(error) else str(error)) from error
    except Exception as error:  # any exception of the decoder on an invalid file
        raise MeshError(f"{file}: cannot be decoded ({type(error).__name__}: {error}), expected a picture") from error
    while max(pixels.shape[:2]) > LARGEST:
        pixels = halved(pixels)
    pixels = pixels.copy()
    pixels[:, :, 3] = 255
    return pixels


def _read_sizes(folder: Path, names: list[str]) -> dict[str, float]:
    """Widths of pictures by pattern, the last one of the file first."""
    file = folder / SIZES
    table: Any = (read_yaml(file) or {}) if file.is_file() else {}
    if not isinstance(table, dict):
        raise MeshError(f"{file}: found {shortened(table)}, expected lines such as 'floor/oak: 1.5'")
    for pattern, width in table.items():
        if not fnmatch.filter(names, str(pattern)):
            raise MeshError(f"{file}: {shortened(pattern)}: found no such picture, expected one of {few(names)}")
        if isinstance(width, bool) or not isinstance(width, (int, float)) or not 0.01 <= width <= 100.0:
            raise MeshError(
                f"{file}: {shortened(pattern)}: found {shortened(width)}, expected a width from 0.01 to 100 metres"
            )
    return {str(pattern): float(width) for pattern, width in reversed(table.items())}


def with_pictures(mesh: TriangleMesh, seed: int, pictures: Pictures) -> TriangleMesh:
    """The mesh with pictures on the finishes that have some. Meshes without finishes do not change."""
    surface = mesh.surface
    if surface is None or surface.finish is None or surface.uv is None:
        return mesh
    chosen = _choose(RandomStream((_PICTURES, seed)), surface.finish, pictures)
    corners = mesh.vertices[mesh.faces]
    area = np.linalg.norm(np.cross(corners[:, 1] - corners[:, 0], corners[:, 2] - corners[:, 0]), axis=1) / 2
    material, materials, finish = surface.material.copy(), list(surface.materials), surface.finish.copy()
    first, scale = len(surface.textures), np.ones((len(materials), 2))
    for row in np.flatnonzero(chosen >= 0).tolist():
        number = int(chosen[row])
        _, kind, level, is_mean = surface.finish[row].tolist()
        light = level / LIGHT_STEPS
        plain = Material((*(round(light * part, 4) for part in _mean(pictures, number)), 1.0))
        materials[row] = plain if is_mean else Material((light, light, light, 1.0), first + number)
        finish[row] = _KEPT
        family = family_of(kind)
        scale[row] = np.array(TEXTURE_FAMILIES[family].metres if family else METRES[-1]) / pictures.metres[number]
        small = np.flatnonzero((surface.material == row) & (area < SMALL) & (not family and not is_mean))
        if len(small):
            material[small] = len(materials)
            materials.append(plain)
    fixed = np.tile(np.array([_KEPT], np.int32), (len(materials) - len(finish), 1))
    uv = (surface.uv * scale[surface.material][:, None]).astype(np.float32)
    changed = surface._replace(
        material=material, materials=tuple(materials), textures=(*surface.textures, *pictures.textures), uv=uv,
        finish=np.concatenate([finish, fixed]),
    )  # fmt: skip
    return mesh._replace(surface=changed)


def _choose(rng: RandomStream, finish: np.ndarray, pictures: Pictures) -> np.ndarray:
    """i64 [M]: picture of each material, -1 for none; materials of one finish have the same."""
    chosen = np.full(len(finish), -1)
    for number in np.unique(finish[finish[:, 1] >= 0, 0]).tolist():
        rows = (finish[:, 0] == number) & (finish[:, 1] >= 0)
        kind = int(finish[rows][0, 1])
        if (found := pictures.rows.get(name_of(kind))) and family_of(kind) not in _WHOLE:
            chosen[rows] = rng.pick(found)
    return chosen


def _mean(pictures: Pictures, number: int) -> list[float]:
    """Mean colour of a picture, 0..1."""
    return (pixels_of(pictures.textures[number])[:, :, :3].mean(axis=(0, 1)) / 255.0).tolist()
