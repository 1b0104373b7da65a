"""Tiles of ids: equal to the nearest texel of the whole texture, for all wrap modes; checks; merging."""

import numpy as np
import pytest

from batchnav.errors import ArgumentError, MeshError
from batchnav.navmesh.navmesh import NavMesh
from batchnav.scene import id_tiles
from batchnav.scene.bank import SceneBank
from batchnav.scene.bvh import build_bvh
from batchnav.scene.id_tiles import FIELDS, TileMaker, wrapped_texels
from batchnav.scene.mesh import check_mesh
from batchnav.scene.scene import Scene
from batchnav.scene.surface import check_surface, faces_of, merge_surfaces, turned
from batchnav.types import Material, Surface, Texture, TriangleMesh

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


# Surfaces on the host: invalid input, and selecting, reversing and merging triangles

SQUARE = np.float32([[-2, 0, -2], [2, 0, -2], [2, 0, 2], [-2, 0, 2]])
PIXELS = np.arange(16, dtype=np.uint8).reshape(2, 2, 4)
RED = Material((1.0, 0.0, 0.0, 1.0))


def square(surface=None, faces=((0, 2, 1), (0, 3, 2))):
    return TriangleMesh(SQUARE, np.int32(faces), surface=surface)


def painted(**fields):
    """Two triangles, of which the second has the texture."""
    uv = np.arange(12, dtype=np.float32).reshape(2, 3, 2)
    surface = Surface(np.int32([0, 1]), (RED, Material(texture=0)), (Texture(PIXELS),), uv)
    return surface._replace(**fields)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"material": np.int32([0])}, r"surface.material: found int32 \[1\], expected int32 \[2\]"),
        ({"material": np.float32([0, 1])}, "surface.material: found float32"),
        ({"material": np.int32([0, 2])}, "surface.material: found row 2, expected 0 to 1"),
        ({"material": np.int32([-1, 0])}, "surface.material: found row -1"),
        ({"uv": None}, "surface.uv: found None"),
        ({"uv": np.zeros((2, 3), np.float32)}, "surface.uv: found"),
        ({"color": np.zeros((2, 3, 4), np.float32)}, "surface.color: found float32"),
        ({"category": np.int32([0, 1])}, "surface.category: found row 1, expected 0 to -1"),
        ({"materials": (RED, Material(texture=1))}, r"surface.materials\[1\].texture: found 1, expected -1 to 0"),
        ({"materials": (Material((1.0, np.nan, 0.0, 1.0)), RED)}, r"surface.materials\[0\].color: found"),
        ({"textures": (Texture(PIXELS[..., :3]),)}, r"surface.textures\[0\].pixels: found uint8 \[2, 2, 3\]"),
        ({"textures": (Texture(PIXELS, ("repeat", "border")),)}, "found 'border', expected one of repeat"),
        ({"textures": (Texture(PIXELS, minify="cubic"),)}, "found 'cubic', expected one of nearest"),
    ],
)
def test_what_kernels_could_not_read_is_refused(fields, message):
    with pytest.raises(MeshError, match=message):
        check_mesh(square(painted(**fields)), "room")


def test_a_dropped_triangle_takes_its_surface_along():
    mesh = check_mesh(square(painted(), faces=((0, 0, 1), (0, 3, 2))), "room")
    assert mesh.num_dropped == 1 and mesh.surface.material.tolist() == [1]
    np.testing.assert_array_equal(mesh.surface.uv, painted().uv[1:])


def test_a_place_that_is_none_becomes_a_textures_corner():
    uv = painted().uv.copy()
    uv[0, 0], uv[0, 1], uv[1, 2] = np.nan, np.inf, 1e9
    found = check_mesh(square(painted(uv=uv)), "room").surface.uv
    assert (found[0, :2] == 0).all() and (found[1, 2] == 0).all()
    np.testing.assert_array_equal(found[1, :2], uv[1, :2])


def test_put_together():
    """Textures of one array, equal materials and categories of one name are one."""
    first = painted(category=np.int32([0, 1]), categories=("", "chair"))
    second = painted(object_id=np.int32([7, 8]), category=np.int32([1, 2]), categories=("", "bed", "chair"))
    merged = merge_surfaces([square(first), square(), square(turned(second))])
    assert len(merged.textures) == 1 and merged.categories == ("", "chair", "bed")
    assert [merged.materials[m] for m in merged.material] == [
        *first.materials,
        Material(),
        Material(),
        *first.materials,
    ]
    assert merged.category.tolist() == [0, 1, 0, 0, 2, 1] and merged.object_id.tolist() == [0, 0, 0, 0, 7, 8]
    np.testing.assert_array_equal(merged.uv[[0, 1, 4, 5]], np.concatenate([first.uv, first.uv[:, ::-1]]))
    assert merge_surfaces([square(), square()]) is None


def test_a_bank_keeps_what_is_asked_for():
    mesh = check_mesh(square(painted(object_id=np.int32([5, 6]), category=np.int32([1, 0]), categories=("", "x"))), "m")
    scene = Scene("m", mesh, NavMesh.bake(mesh), build_bvh(mesh))
    plain = scene._replace(mesh=square())
    look = SceneBank.pack([scene, plain], appearance=("object_id", "category")).appearance
    assert look.object_id.tolist() == [5, 6, 0, 0] and look.category.tolist() == [1, 0, 0, 0]
    assert not len(look.normal)
    assert len(SceneBank.pack([scene, plain], appearance=True).appearance.normal) == 4
    assert SceneBank.pack([scene], appearance=()).appearance is None
    with pytest.raises(ArgumentError, match="appearance: found"):
        SceneBank.pack([scene], appearance=("colour",))
