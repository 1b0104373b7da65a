"""Surfaces on the host: invalid input, and selecting, reversing and merging triangles."""

import numpy as np
import pytest

from batchnav.errors import ArgumentError, MeshError
from batchnav.navmesh.navmesh import NavMesh
from batchnav.scene.bank import SceneBank
from batchnav.scene.bvh import build_bvh
from batchnav.scene.mesh import check_mesh
from batchnav.scene.scene import Scene
from batchnav.scene.surface import merge_surfaces, turned
from batchnav.types import Material, Surface, Texture, TriangleMesh

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
