"""OBJ files with MTL materials; time and memory are linear in the file size. `text_mesh.py` reads geometry only."""

from __future__ import annotations

import array
import math
import os

import numpy as np

from batchnav.errors import MeshError
from batchnav.scene.images import Images
from batchnav.scene.polygons import triangulate
from batchnav.scene.surface import PLAIN, corners_of, fractions, surface_of
from batchnav.scene.text_mesh import polygon_mesh, text_of
from batchnav.types import Material, Surface, Texture

_OPTIONS = {"-o": 3, "-s": 3, "-t": 3, "-mm": 2} | dict.fromkeys(
    ("-blendu", "-blendv", "-bm", "-boost", "-cc", "-clamp", "-imfchan", "-texres", "-type"), 1
)
"""Options of a texture and their largest numbers of values; fixed for options with one value."""
_NUMBERS = ("v", "vt", "f")
"""Keywords of lines with numbers, which comments may follow."""
_AS_THEY_ARE = ((1.0, 1.0), (0.0, 0.0))
"""Scale and offset of UVs: the identity."""
_MOST_WORDS = 8
"""Largest number of words in the name of a library."""


def read_obj_surface(data: bytes, images: Images) -> tuple[np.ndarray, np.ndarray, Surface | None]:
    """Vertices and faces as `text_mesh.read_obj`, and the surface: MTL's Kd times map_Kd times vertex colours.

    UVs are scaled by map_Kd's `-s` and shifted by its `-o`; UV (0, 0) is the bottom left of the image. Invalid parts
    are skipped and noted with `images`.
    """
    library = _Materials(images)
    points, corners, counts = array.array("d"), array.array("q"), array.array("q")
    colors, places, place_of, material_of = array.array("d"), array.array("d"), array.array("q"), array.array("q")
    material = library.row("")
    for number, line in enumerate(_lines(data), 1):
        try:
            word, *rest = line.split() or ("",)
            if "#" in line and word in _NUMBERS:  # names of materials and files may contain "#"
                rest = line.partition("#")[0].split()[1:]
            if word == "v":
                points.extend(map(float, rest[:3]))
                if len(rest) < 3:
                    raise ValueError(f"found {len(rest)} coordinates")
                colors.extend(map(float, rest[3:6]) if len(rest) >= 6 else (math.inf,) * 3)  # white
            elif word == "f":
                last, last_place = len(points) // 3, len(places) // 2
                for corner in rest:
                    vertex, _, others = corner.partition("/")
                    place, k = others.partition("/")[0], int(vertex)
                    corners.append(last + k if k < 0 else k - 1)
                    k = int(place) if place else 0
                    place_of.append(last_place + k if k < 0 else k - 1)
                counts.append(len(rest))
                material_of.append(material)
            elif word == "vt":
                places.extend((*map(float, rest[:2]), 0.0)[:2])
            elif word == "usemtl":
                material = library.row(line.split(None, 1)[1].strip() if rest else "")
            elif word == "mtllib":
                library.open(line.split(None, 1)[1].strip() if rest else "")
        except (ValueError, OverflowError) as error:
            raise MeshError(f"line {number}: {error}, expected OBJ") from error
    vertices, used, triangles, polygon = _by_corner(points, corners, counts)
    color = fractions(np.frombuffer(colors, np.float64).reshape(-1, 3), images.note)
    look = corners_of(np.frombuffer(corners, np.int64)[triangles], 0, None, None if (color >= 1.0).all() else color)
    row = np.frombuffer(material_of, np.int64)[polygon]
    uv = _uvs(places, np.frombuffer(place_of, np.int64)[triangles], library.placing()[row])
    look = look._replace(material=row.astype(np.int32), uv=uv)
    return vertices, used, surface_of([look], library.materials(), library.textures)


def _by_corner(points, corners, counts):
    """Mesh of `polygon_mesh`, corners i64 [F, 3] of its triangles in the file's numbering, and their polygons."""
    vertices, faces = polygon_mesh(points, corners, counts)  # checks the indices
    corner, count = np.frombuffer(corners, np.int64), np.frombuffer(counts, np.int64)
    with np.errstate(all="ignore"):
        triangles = triangulate(np.frombuffer(points, np.float64).reshape(-1, 3)[corner], np.arange(len(corner)), count)
    return vertices, faces, triangles, np.repeat(np.arange(len(count)), count)[triangles[:, 0]]


def _uvs(places, rows: np.ndarray, placing: np.ndarray) -> np.ndarray | None:
    """UVs f32 [F, 3, 2] from rows i64 [F, 3] of `places` with scale and offset f64 [F, 2, 2]; None without UVs."""
    uv = np.frombuffer(places, np.float64).reshape(-1, 2)
    if not len(uv):
        return None
    rows = np.where((rows >= 0) & (rows < len(uv)), rows, len(uv))  # corners without UVs are at (0, 0)
    with np.errstate(all="ignore"):  # non-finite UVs become (0, 0) later
        placed = np.concatenate([uv, [(0.0, 1.0)]])[rows] * placing[:, None, 0] + placing[:, None, 1]
        return (placed * (1.0, -1.0) + (0.0, 1.0)).astype(np.float32)


class _Materials:
    """Materials of an OBJ file's libraries, by name."""

    def __init__(self, images: Images):
        self._images, self._known = images, {"": PLAIN}
        self._rows: dict[str, int] = {}
        self._placing: dict[str, np.ndarray] = {}
        self._has_library = False
        self.textures: list[Texture] = []

    def row(self, name: str) -> int:
        """Row of a material."""
        return self._rows.setdefault(name, len(self._rows))

    def materials(self) -> list[Material]:
        """Materials that faces use; white if no library defines them."""
        for name in self._rows:
            if self._has_library and name not in self._known:
                self._images.note(f"material {name[:40]!r} (in no library)")
        return [self._known.get(name, PLAIN) for name in self._rows]

    def placing(self) -> np.ndarray:
        """Scale and offset of UVs for each material's texture, f64 [M, 2, 2]."""
        return np.array([self._placing.get(name, _AS_THEY_ARE) for name in self._rows])

    def open(self, names: str) -> None:
        """Read one or several library files, whose names may contain spaces."""
        self._has_library = True
        for name in self._apart(names.replace("\\ ", " ").replace("\\", "/").strip('"')):
            try:
                self._read(self._images.beside(name), os.path.dirname(name))
            except (MeshError, OSError, ValueError) as error:
                self._images.note(f"library {name[:40]!r} ({error})")

    def _apart(self, names: str) -> list[str]:
        """Names of existing files in a text, longest first, and other words; the text itself if no file exists."""
        folder = self._images.path.parent
        if os.path.isfile(folder / names):
            return [names]
        words, first, found, read = names.split(), 0, [], False
        while first < len(words):
            texts = [" ".join(words[first : first + n]) for n in range(_MOST_WORDS, 0, -1)]
            name = next((text for text in texts if os.path.isfile(folder / text)), None)
            read |= name is not None
            found.append(name or words[first])
            first += len(found[-1].split())
        return found if read else [names]

    def _read(self, data: bytes, folder: str) -> None:
        name = ""
        for line in _lines(data):
            word, rest = (*line.strip().split(None, 1), "", "")[:2]
            if word.lower() == "newmtl":
                name = rest
                self._known[name] = PLAIN
            elif word.lower() == "kd":
                self._known[name] = self._known[name]._replace(color=_color(rest, self._images))
            elif word.lower() == "map_kd":
                file, options = _options(rest)
                self._known[name] = self._known[name]._replace(texture=self._texture(file, folder, options))
                self._placing[name] = _placing(options)

    def _texture(self, name: str, folder: str, options: dict[str, list[str]]) -> int:
        """Row of a texture next to its library or to the mesh file; -1 if it is invalid."""
        if os.path.isfile(self._images.path.parent / folder / name):
            name = os.path.join(folder, name)
        pixels = self._images.read(name, f"image {name[:60]!r}", lambda: self._images.beside(name))
        if pixels is None:
            return -1
        wrap = "clamp" if options.get("-clamp") == ["on"] else "repeat"
        self.textures.append(Texture(pixels, (wrap, wrap)))
        return len(self.textures) - 1


def _options(text: str) -> tuple[str, dict[str, list[str]]]:
    """File name of a texture, and the values of the options before it."""
    words, found = text.split(), {}
    number = len(words)
    while words and words[0] in _OPTIONS:
        option, *words = words
        count, values = _OPTIONS[option], 0
        while values < min(count, len(words)) and (count == 1 or _is_number(words[values])):
            values += 1
        found[option], words = words[:values], words[values:]
    name = text.split(None, number - len(words))[-1] if words else ""
    return name.strip('"').replace("\\", "/"), found


def _placing(options: dict[str, list[str]]) -> np.ndarray:
    """Scale and offset f64 [2, 2] from `-s` and `-o`; missing values are 1 and 0."""
    placing = np.array(_AS_THEY_ARE)
    for row, option in zip(placing, ("-s", "-o"), strict=True):
        values = [float(word) for word in options.get(option, [])[:2]]
        row[: len(values)] = values
    return placing


def _color(text: str, images: Images) -> tuple[float, float, float, float]:
    """Kd: one number, or red, green and blue."""
    try:
        values = [float(word) for word in text.split()[:3]]
        red, green, blue = values if len(values) == 3 else values * 3
        if not all(map(math.isfinite, (red, green, blue))):
            raise ValueError("not finite")
        if max(red, green, blue) > 1.0:
            images.note(f"values above 1 in Kd {text[:40]!r}")
    except ValueError:
        images.note(f"Kd {text[:40]!r}")
        return PLAIN.color
    red, green, blue = (min(max(value, 0.0), 1.0) for value in (red, green, blue))
    return red, green, blue, 1.0


def _is_number(word: str) -> bool:
    try:
        float(word)
    except ValueError:
        return False
    return True


def _lines(data: bytes) -> list[str]:
    return text_of(data).replace("\\\n", " ").split("\n")
