"""Mesh files of the size of real scans: a procedural house in small triangles, with noise and photo-like textures.

Triangles are cut at the middle of their long edges, so that neighbours keep common vertices. Equal arguments give equal
files. They lie in the cache folder, which keeps `MOST_BYTES` of them.
"""

from __future__ import annotations

import functools
import math
from pathlib import Path

import numpy as np
from PIL import Image

from batchnav.export.glb import save_glb
from batchnav.navmesh.navmesh import NavMesh
from batchnav.procedural import make_house
from batchnav.runtime.cache import keep_newest, versioned_cache_folder
from batchnav.runtime.parallel import in_parallel
from batchnav.types import Material, Surface, Texture, TriangleMesh

MOST_BYTES = 4_000_000_000
"""Largest size of the files in the cache folder; the oldest are deleted first."""
NOISE = 0.004
"""Standard deviation of the positions of vertices, metres."""
SPREAD = 0.6
"""Sizes of several scans lie between 1 - SPREAD and 1 + SPREAD of their mean."""
QUALITY = 85
"""Quality of JPEG files."""
_METRES_PER_TEXTURE = 20.0
"""Side of the square that a texture covers."""
_OCTAVE, _CHROMA, _CONTRAST = 0.55, 0.3, 60.0
"""Amplitude of the next octave; of colour relative to brightness; of the first octave, bytes."""
_TRIALS = 3
"""Number of edge lengths that are tried to meet a number of triangles."""


def make_scans(count: int, triangles: float, textures: int, side: int) -> list[Path]:
    """The paths of `count` scans with `triangles` triangles on average, each with a navmesh file in its folder.

    Args:
        count: number of scans.
        triangles: mean number of triangles; a house has about 70,000 at least.
        textures: number of textures of a scan.
        side: sides of a texture, texels.
    """
    folder = versioned_cache_folder("bench", __name__)
    shares = 1.0 + SPREAD * np.linspace(-1.0, 1.0, count) if count > 1 else np.ones(1)
    files = [
        (seed, round(share * triangles), folder / f"scan_{seed}_{round(share * triangles)}_{textures}x{side}.glb")
        for seed, share in enumerate(shares.tolist())
    ]
    new = [file for file in files if not (file[2].is_file() and file[2].with_suffix(".navmesh").is_file())]
    for _ in in_parallel(functools.partial(_make, textures=textures, side=side), new, "scans"):
        pass
    keep_newest(folder.parent, MOST_BYTES, [path for *_, path in files])
    return [path for *_, path in files]


def _make(file: tuple[int, int, Path], textures: int, side: int) -> None:
    seed, triangles, path = file
    house = make_house(seed, True)
    NavMesh.bake(house).save(path.with_suffix(".navmesh"))
    save_glb(scan_of(house, seed, triangles, textures, side), path, jpeg_quality=QUALITY)


def scan_of(house: TriangleMesh, seed: int, triangles: int, textures: int, side: int) -> TriangleMesh:
    """The scan of a house, with its object ids and categories; arguments as in `make_scans`."""
    assert house.surface is not None and house.surface.object_id is not None and house.surface.category is not None
    vertices, inverse = np.unique(np.round(house.vertices[house.faces].reshape(-1, 3), 5), axis=0, return_inverse=True)
    faces = inverse.reshape(-1, 3)
    area = np.linalg.norm(np.cross(*(vertices[faces[:, k]] - vertices[faces[:, 0]] for k in (1, 2))), axis=1).sum() / 2
    largest = 2.0 * math.sqrt(area / triangles)
    for _ in range(_TRIALS):
        places, cut, parent = cut_edges(vertices.astype(np.float64), faces, largest)
        largest *= math.sqrt(len(cut) / triangles)
    corners = places[cut]
    normal = np.abs(np.cross(corners[:, 1] - corners[:, 0], corners[:, 2] - corners[:, 0]))
    across, along = np.array([(2, 1), (0, 2), (0, 1)])[normal.argmax(1)].T
    rows = np.arange(len(cut))[:, None], np.arange(3)
    uv = np.stack([corners[*rows, across[:, None]], corners[*rows, along[:, None]]], axis=2) / _METRES_PER_TEXTURE
    noise = NOISE * np.random.default_rng(seed).standard_normal(places.shape)
    surface = Surface(
        np.asarray(house.surface.object_id)[parent] % textures, tuple(Material(texture=k) for k in range(textures)),
        tuple(Texture(photo(seed * textures + k, side)) for k in range(textures)), uv.astype(np.float32),
        object_id=house.surface.object_id[parent], category=house.surface.category[parent],
        categories=house.surface.categories,
    )  # fmt: skip
    return TriangleMesh((places + noise).astype(np.float32), cut.astype(np.int32), surface=surface)


def cut_edges(vertices: np.ndarray, faces: np.ndarray, largest: float) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Vertices f64 [V, 3] and faces i64 [F, 3] without edges longer than `largest`, and the origin of each face.

    Every longer edge is halved until none is left; a triangle becomes two, three or four, by its number of such edges.
    """
    parent, done = np.arange(len(faces)), list[tuple[np.ndarray, np.ndarray]]()
    while len(faces):
        edges = np.sort(np.stack([faces, np.roll(faces, -1, axis=1)], axis=2), axis=2)  # [F, 3, 2]
        is_long = np.linalg.norm(vertices[edges[..., 0]] - vertices[edges[..., 1]], axis=2) > largest
        number = is_long.sum(1)
        done.append((faces[number == 0], parent[number == 0]))  # no neighbour halves an edge of these
        faces, parent, edges, is_long, number = (x[number > 0] for x in (faces, parent, edges, is_long, number))
        keys, halves = np.unique(edges[is_long] @ np.array([len(vertices), 1]), return_inverse=True)
        middle = np.full(faces.shape, -1)
        middle[is_long] = len(vertices) + halves
        vertices = np.concatenate([vertices, (vertices[keys // len(vertices)] + vertices[keys % len(vertices)]) / 2.0])
        # the first edge is long where one is; the last is not where two are
        turns = np.where(number == 1, is_long.argmax(1), np.where(number == 2, (is_long.argmin(1) + 1) % 3, 0))
        order = (np.arange(3) + turns[:, None]) % 3
        corner, half = np.take_along_axis(faces, order, 1), np.take_along_axis(middle, order, 1)
        (a, b, c), (ab, bc, ca) = corner.T, half.T
        parts = {
            1: [(a, ab, c), (ab, b, c)],
            2: [(ab, b, bc), (a, ab, bc), (a, bc, c)],
            3: [(a, ab, ca), (ab, b, bc), (ca, bc, c), (ab, bc, ca)],
        }
        made = [
            (np.stack([column[number == k] for column in part], axis=1), parent[number == k])
            for k, some in parts.items() for part in some
        ]  # fmt: skip
        faces, parent = (np.concatenate(each) for each in zip(*made, strict=True))
    cut, parent = (np.concatenate(each) for each in zip(*done, strict=True))
    return vertices, cut, parent


def photo(seed: int, side: int) -> np.ndarray:
    """An image u8 [side, side, 4] with the spectrum of photographs: octaves of noise, mostly of brightness."""
    rng, total = np.random.default_rng((side, seed)), np.full((side, side, 3), 128.0, np.float32)
    cells, amplitude = 4, _CONTRAST
    while cells <= max(4, side // 2):  # lenses blur the finest detail
        grey = rng.standard_normal((cells, cells), np.float32)
        for channel in range(3):
            grid = amplitude * (grey + _CHROMA * rng.standard_normal((cells, cells), np.float32))
            total[..., channel] += np.asarray(Image.fromarray(grid).resize((side, side), Image.Resampling.BICUBIC))
        cells, amplitude = 2 * cells, amplitude * _OCTAVE
    return np.dstack([np.clip(total, 0.0, 255.0).astype(np.uint8), np.full((side, side), 255, np.uint8)])
