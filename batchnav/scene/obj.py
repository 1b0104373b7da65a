"""OBJ files with MTL materials. Time and memory are linear in the file size."""

from __future__ import annotations

import array
import math
import os
from itertools import groupby
from operator import itemgetter

import numpy as np

from batchnav.errors import MeshError
from batchnav.scene.images import Images
from batchnav.scene.polygons import triangulate
from batchnav.scene.surface import PLAIN, corners_of, fractions, surface_of
from batchnav.scene.text_mesh import Columns, coordinates, parsed, polygon_mesh, read_lines, text_of
from batchnav.types import Material, Surface, Texture

_OPTIONS = {"-o": 3, "-s": 3, "-t": 3, "-mm": 2} | dict.fromkeys(
    ("-blendu", "-blendv", "-bm", "-boost", "-cc", "-clamp", "-imfchan", "-texres", "-type"), 1
)
"""Options of a texture and their largest numbers of values; fixed for options with one value."""
_IDENTITY = ((1.0, 1.0), (0.0, 0.0))
"""Scale and offset that leave UVs unchanged."""
_MOST_WORDS = 8
"""Largest number of words in the name of a library."""


def read_obj(data: bytes, images: Images | None = None) -> tuple[np.ndarray, np.ndarray, Surface | None]:
    """Vertices f64 [V, 3] that faces use, faces i64 [F, 3] of all groups, and with `images` the surface.

    Indices count vertices from 1, or backwards from the latest vertex if negative. The surface is MTL's Kd times map_Kd
    times vertex colours. UVs are scaled by map_Kd's `-s` and shifted by its `-o`; UV (0, 0) is the bottom left of the
    image. Invalid parts of the surface are skipped and noted with `images`. MeshError names the line.
    """
    points, corners, counts = array.array("d"), array.array("q"), array.array("q")
    colors, uvs, uv_of, material_of = array.array("d"), array.array("d"), array.array("q"), array.array("q")
    library = None if images is None else _Materials(images)
    material = library.row("") if library else 0

    # Each reader raises before it appends anything.
    def vertices(columns: Columns, count: int) -> None:
        found = coordinates(columns, count)
        if library:
            has_color = len(columns) >= 6
            color = parsed(columns[3:6], count, float, np.float64) if has_color else np.full((count, 3), math.inf)
            colors.frombytes(color.tobytes())  # white where infinite
        points.frombytes(found.tobytes())

    def uv_points(columns: Columns, count: int) -> None:
        found = np.zeros((count, 2))
        found[:, : len(columns[:2])] = parsed(columns[:2], count, float, np.float64)
        uvs.frombytes(found.tobytes())

    def faces(columns: Columns, count: int) -> None:
        uv = np.zeros((count, len(columns)), np.int64)
        if any("/" in word for column in columns for word in column):
            if library:
                ids = [[word.partition("/")[2].partition("/")[0] or "0" for word in column] for column in columns]
                uv = parsed(ids, count, int, np.int64)
            columns = [[word.partition("/")[0] for word in column] for column in columns]
        found = parsed(columns, count, int, np.int64)
        corners.frombytes(np.where(found < 0, found + len(points) // 3, found - 1).tobytes())
        counts.extend([len(columns)] * count)
        if library:
            uv_of.frombytes(np.where(uv < 0, uv + len(uvs) // 2, uv - 1).tobytes())
            material_of.extend([material] * count)

    readers = {"v": vertices, "f": faces} | ({"vt": uv_points} if library else {})
    number = 1
    for start, run in groupby(map(str.lstrip, _lines(data)), itemgetter(slice(2))):  # "v ", "vn", "f " ...
        some, word = list(run), start.rstrip()
        if word in readers:
            read_lines(readers[word], word, some, range(number, number + len(some)), "OBJ")
        elif library and word in ("us", "mt"):
            for line in some:
                keyword, rest = (*line.strip().split(None, 1), "", "")[:2]
                if keyword == "usemtl":
                    material = library.row(rest)
                elif keyword == "mtllib":
                    library.open(rest)
        number += len(some)
    if library is None or images is None:
        return *polygon_mesh(points, corners, counts), None
    positions, used, triangles, polygon = _by_corner(points, corners, counts)
    color = fractions(np.frombuffer(colors, np.float64).reshape(-1, 3), images.note)
    look = corners_of(np.frombuffer(corners, np.int64)[triangles], 0, None, None if (color >= 1.0).all() else color)
    row = np.frombuffer(material_of, np.int64)[polygon]
    corner_uv = _corner_uvs(uvs, np.frombuffer(uv_of, np.int64)[triangles], library.uv_transforms()[row])
    look = look._replace(material=row.astype(np.int32), uv=corner_uv)
    return positions, used, surface_of([look], library.materials(), library.textures)


def _by_corner(points, corners, counts):
    """Triangulation in the file's numbering, which `polygon_mesh` does not keep.

    Returns vertices and faces of `polygon_mesh`; triangles i64 [F, 3] as positions in `corners`; polygon i64 [F] of
    each triangle.
    """
    vertices, faces = polygon_mesh(points, corners, counts)  # checks the indices
    corner, count = np.frombuffer(corners, np.int64), np.frombuffer(counts, np.int64)
    with np.errstate(all="ignore"):
        triangles = triangulate(np.frombuffer(points, np.float64).reshape(-1, 3)[corner], np.arange(len(corner)), count)
    return vertices, faces, triangles, np.repeat(np.arange(len(count)), count)[triangles[:, 0]]


def _corner_uvs(uvs: array.array, rows: np.ndarray, transform: np.ndarray) -> np.ndarray | None:
    """UVs f32 [F, 3, 2] from rows i64 [F, 3] of `uvs` with scale and offset f64 [F, 2, 2]; None without UVs."""
    uv = np.frombuffer(uvs, np.float64).reshape(-1, 2)
    if not len(uv):
        return None
    rows = np.where((rows >= 0) & (rows < len(uv)), rows, len(uv))  # corners without UVs are at (0, 0)
    with np.errstate(all="ignore"):  # non-finite UVs become (0, 0) later
        moved = np.concatenate([uv, [(0.0, 1.0)]])[rows] * transform[:, None, 0] + transform[:, None, 1]
        return (moved * (1.0, -1.0) + (0.0, 1.0)).astype(np.float32)


class _Materials:
    """Materials of an OBJ file's libraries, by name."""

    def __init__(self, images: Images):
        self._images, self._known = images, {"": PLAIN}
        self._rows: dict[str, int] = {}
        self._uv_transforms: dict[str, np.ndarray] = {}
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

    def uv_transforms(self) -> np.ndarray:
        """Scale and offset of UVs for each material's texture, f64 [M, 2, 2]."""
        return np.array([self._uv_transforms.get(name, _IDENTITY) for name in self._rows])

    def open(self, names: str) -> None:
        """Read one or several library files, whose names may contain spaces."""
        self._has_library = True
        for name in self._split(names.replace("\\ ", " ").replace("\\", "/").strip('"')):
            try:
                self._read(self._images.file(name), os.path.dirname(name))
            except (MeshError, OSError, ValueError) as error:
                self._images.note(f"library {name[:40]!r} ({error})")

    def _split(self, names: str) -> list[str]:
        """File names in a text, whose names may contain spaces.

        At each word, the longest name of an existing file; otherwise the word. The text itself if no file exists.
        """
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
        """Read the materials of an MTL file in `folder`, relative to the mesh file."""
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
                self._uv_transforms[name] = _uv_transform(options)

    def _texture(self, name: str, folder: str, options: dict[str, list[str]]) -> int:
        """Row of a texture, whose file is in the folder of the library or of the mesh file; -1 if it is invalid."""
        if os.path.isfile(self._images.path.parent / folder / name):
            name = os.path.join(folder, name)
        pixels = self._images.read(name, f"image {name[:60]!r}", lambda: self._images.file(name))
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


def _uv_transform(options: dict[str, list[str]]) -> np.ndarray:
    """Scale and offset f64 [2, 2] from `-s` and `-o`; missing values are 1 and 0."""
    transform = np.array(_IDENTITY)
    for row, option in zip(transform, ("-s", "-o"), strict=True):
        values = [float(word) for word in options.get(option, [])[:2]]
        row[: len(values)] = values
    return transform


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
    """Lines of a file; a backslash at the end of a line continues it."""
    return text_of(data).replace("\\\n", " ").split("\n")
