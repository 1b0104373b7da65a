"""Tiles of ids: equal to the nearest texel of the whole texture, for all wrap modes; checks; merging."""

import numpy as np
import pytest

from batchnav.errors import MeshError
from batchnav.scene import id_tiles
from batchnav.scene.id_tiles import FIELDS, TileMaker, wrapped_texels
from batchnav.scene.surface import check_surface, faces_of, merge_surfaces, turned
from batchnav.types import Material, Surface, TriangleMesh

HEIGHT, WIDTH = 11, 16


def tiled(rng, wrap=("repeat", "repeat"), num_faces=60):
    """Random triangles on a random texture of ids: surface, UVs, texture, and table of ids."""
    ids = np.kron(rng.integers(0, 4, (HEIGHT, WIDTH // 4)), np.ones((1, 4), int)).astype(np.int32)
    corner = rng.uniform(-2, 2, (num_faces, 1, 2))
    uv = corner + rng.uniform(-0.3, 0.3, (num_faces, 3, 2)) * rng.choice([0.05, 1, 4], (num_faces, 1, 1))
    table = np.array([(0, 0), (7, 1), (8, 2), (9, 2)], np.int32)
    maker = TileMaker(num_faces, "test")
    maker.add(np.arange(num_faces), uv, ids, wrap)
    tiles = dict(zip(FIELDS, maker.made(table), strict=True))
    category = np.zeros(num_faces, np.int32)
    surface = Surface(
        category, (Material(),), object_id=category, category=category, categories=("", "a", "b"), **tiles
    )
    return surface, uv, ids, table


def read(surface, face, within):
    """Ids of points on a triangle with a tile; `within`: barycentric coordinates [n, 3]."""
    first, width, height = surface.tiles[surface.tile[face]]
    x, y = np.floor(within @ surface.tile_uv[face].astype(np.float64)).astype(int).T
    assert x.min() >= 0 and y.min() >= 0 and x.max() < width and y.max() < height
    return surface.tile_ids[first + y * width + x]


@pytest.mark.parametrize("u", ["repeat", "mirror", "clamp"])
@pytest.mark.parametrize("v", ["repeat", "mirror", "clamp"])
def test_a_tile_is_a_part_of_the_texture(u, v):
    rng = np.random.default_rng(1)
    surface, uv, ids, table = tiled(rng, (u, v))
    kinds = set()
    for face in range(len(uv)):
        within = rng.dirichlet(np.ones(3), 50)
        x, y = np.floor(within @ uv[face] * [WIDTH, HEIGHT] + 1e-9).astype(int).T
        expected = table[ids[wrapped_texels(y, HEIGHT, v), wrapped_texels(x, WIDTH, u)]]
        kinds.add(surface.tile[face] >= 0)
        if surface.tile[face] >= 0:
            found = read(surface, face, within)
            assert (found == expected).all(1).mean() >= 0.98  # float32 at the borders of texels
        else:
            assert (expected == expected[0]).all()
    assert kinds == {True, False}


def test_triangles_of_one_id_have_no_tile():
    maker = TileMaker(2, "test")
    maker.add(
        np.arange(2),
        np.random.default_rng(0).uniform(0, 0.49, (2, 3, 2)),
        np.eye(2, dtype=np.int32)[:, :1],
        ("clamp", "clamp"),
    )
    assert maker.made(np.zeros((2, 2), np.int32)) is None


def test_tiles_are_bounded(monkeypatch, caplog):
    monkeypatch.setattr(id_tiles, "MOST_TEXELS", 200)
    surface, *_ = tiled(np.random.default_rng(1))
    assert len(surface.tile_ids) <= 200 and "triangles cover more than 200 texels of ids" in caplog.text


def test_selection_order_of_corners_and_merging_keep_ids():
    rng = np.random.default_rng(2)
    surface, *_ = tiled(rng)
    faces = np.flatnonzero(surface.tile >= 0)[::-1][:7]
    within = rng.dirichlet(np.ones(3), 20)
    chosen, back = faces_of(surface, faces), turned(surface)
    other = Surface(np.zeros(3, np.int32), (Material(),), category=np.ones(3, np.int32), categories=("", "z"))
    corners = np.zeros((1, 3), np.float32)
    meshes = [
        TriangleMesh(corners, np.zeros((len(s.material), 3), np.int32), surface=s) for s in (other, surface, surface)
    ]
    merged = merge_surfaces(meshes)
    names, own = np.array(merged.categories), np.array(surface.categories)
    check_surface(merged, 3 + 2 * len(surface.material), "merged")
    for i, face in enumerate(faces):
        ids = read(surface, face, within)
        np.testing.assert_array_equal(read(chosen, i, within), ids)
        np.testing.assert_array_equal(read(back, face, within[:, ::-1]), ids)
        for first in (3, 3 + len(surface.material)):
            found = read(merged, first + face, within)
            np.testing.assert_array_equal(found[:, 0], ids[:, 0])
            np.testing.assert_array_equal(names[found[:, 1]], own[ids[:, 1]])
    assert merge_surfaces(meshes[:1]).tile is None


@pytest.mark.parametrize(
    ("field", "change"),
    [
        ("tile", lambda a: a + 1000), ("tile", lambda a: a - 5), ("tiles", lambda a: a * 1000), ("tiles", lambda a: -a),
        ("tile_uv", lambda a: a * np.nan), ("tile_uv", lambda a: a[:1]), ("tile_ids", lambda a: a - 9),
        ("tile_ids", lambda a: a + 9), ("tiles", lambda a: a[:, :2]),
        ("tile", lambda a: None), ("tile_ids", lambda a: None), ("tiles", lambda a: a.astype(np.float32)),
    ],
)  # fmt: skip
def test_broken_tiles_are_refused(field, change):
    surface, *_ = tiled(np.random.default_rng(2))
    broken = surface._replace(**{field: change(getattr(surface, field))})
    with pytest.raises(MeshError, match=rf"name: surface\.{field}"):
        check_surface(broken, len(surface.material), "name")
