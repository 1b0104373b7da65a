"""Surfaces in mesh files: materials, textures, vertex colours, and invalid ones."""

import io
import os
import struct
import zlib

import numpy as np
import pytest
from files import CORNERS, PICTURE, UV, Gltf, by_corner, ktx2, picture
from PIL import Image

from batchnav.errors import ArgumentError, ConfigError
from batchnav.scene import images, textures
from batchnav.scene.appearance import COLOR_FIELDS, Appearance, appearance_rows, pack_appearance
from batchnav.scene.blocks import compress
from batchnav.scene.images import AppearanceConfig
from batchnav.scene.mesh import load_mesh
from batchnav.scene.textures import Palette, flags_of, halved, num_levels, num_texels
from batchnav.types import Material, Surface, Texture, TriangleMesh

BASISU = "KHR_texture_basisu"
FACTOR = (0.25, 0.5, 1.0, 0.75)


def surface(tmp_path, data, name="a.glb", **options):
    (tmp_path / name).write_bytes(data)
    return load_mesh(tmp_path / name, **options).surface


def test_factor_texture_and_sampler(tmp_path):
    gltf = Gltf(picture())
    gltf.base["baseColorFactor"] = FACTOR
    gltf.tree["textures"][0]["sampler"] = 0
    gltf.tree["samplers"] = [{"magFilter": 9728, "minFilter": 9985, "wrapS": 33071, "wrapT": 33648}]
    (tmp_path / "a.glb").write_bytes(gltf.data())
    mesh = load_mesh(tmp_path / "a.glb")
    found = mesh.surface
    assert found.materials == (Material(FACTOR, 0),) and found.material.tolist() == [0, 0]
    assert found.color is found.object_id is found.category is None
    np.testing.assert_array_equal(found.textures[0].pixels, PICTURE)
    assert found.textures[0][1:] == (("clamp", "mirror"), "nearest", "linear_mipmap_nearest")
    assert by_corner(mesh, found.uv) == {tuple(p): uv.tolist() for p, uv in zip(CORNERS, UV, strict=True)}


def test_defaults_and_specular_glossiness(tmp_path):
    extension = {"diffuseFactor": FACTOR, "diffuseTexture": {"index": 0}}
    gltf = Gltf(picture(), {"extensions": {"KHR_materials_pbrSpecularGlossiness": extension}})
    gltf.base.clear()
    found = surface(tmp_path, gltf.data())
    assert found.materials == (Material(FACTOR, 0),)
    assert found.textures[0][1:] == (("repeat", "repeat"), "linear", "linear_mipmap_linear")
    assert surface(tmp_path, Gltf().data()) is None, "nothing is said of it"


def test_a_textures_transform(tmp_path):
    """Scaled, turned, then moved: the specification's matrices."""
    gltf = Gltf(picture())
    transform = {"offset": [0.1, -0.2], "rotation": 0.7, "scale": [2.0, 3.0]}
    gltf.base["baseColorTexture"]["extensions"] = {"KHR_texture_transform": transform}
    (tmp_path / "a.glb").write_bytes(gltf.data())
    mesh, (c, s) = load_mesh(tmp_path / "a.glb"), (np.cos(0.7), np.sin(0.7))
    move, turn = np.array([[1, 0, 0.1], [0, 1, -0.2], [0, 0, 1]]), np.array([[c, s, 0], [-s, c, 0], [0, 0, 1]])
    expected = np.pad(UV, ((0, 0), (0, 1)), constant_values=1) @ (move @ turn @ np.diag([2, 3, 1])).T
    found = by_corner(mesh, mesh.surface.uv)
    for place, uv in zip(CORNERS, expected, strict=True):
        np.testing.assert_allclose(found[tuple(place)], uv[:2], atol=1e-6)


@pytest.mark.parametrize("width", [3, 4])
@pytest.mark.parametrize("kind", ["f4", "u1", "u2"])
def test_vertex_colours_of_every_kind(tmp_path, kind, width):
    colors = np.array([[0, 51, 102, 255], [153, 204, 255, 0], [0, 0, 0, 51], [255, 255, 255, 255]]) / 255
    scale = {"f4": 1, "u1": 255, "u2": 65535}[kind]
    gltf = Gltf(COLOR_0=(colors[:, :width] * scale).astype(kind), TEXCOORD_0=None)
    (tmp_path / "a.glb").write_bytes(gltf.data())
    mesh = load_mesh(tmp_path / "a.glb")
    expected = np.round(255 * colors)
    if width == 3:
        expected[:, 3] = 255
    assert by_corner(mesh, mesh.surface.color) == {tuple(p): c.tolist() for p, c in zip(CORNERS, expected, strict=True)}
    assert mesh.surface.uv is None


def test_parts_with_and_without_textures(tmp_path):
    """A primitive without material or UVs beside one that has them, and a mirrored node."""
    gltf = Gltf(picture())
    bare = {"attributes": {"POSITION": gltf.primitive["attributes"]["POSITION"]}}
    gltf.tree["meshes"].append({"primitives": [{**bare, "indices": gltf.primitive["indices"]}]})
    gltf.tree["nodes"] = [{"mesh": 1}, {"mesh": 0, "scale": [-1, 1, 1], "translation": [9, 0, 0]}]
    gltf.tree["scenes"] = [{"nodes": [0, 1]}]
    (tmp_path / "a.glb").write_bytes(gltf.data())
    mesh = load_mesh(tmp_path / "a.glb")
    found = mesh.surface
    assert [found.materials[m].texture for m in found.material] == [-1, -1, 0, 0]
    assert (found.uv[:2] == 0).all()
    last = mesh._replace(faces=mesh.faces[2:])
    expected = {(9 - x, y, z): uv.tolist() for (x, y, z), uv in zip(CORNERS.tolist(), UV, strict=True)}
    assert by_corner(last, found.uv[2:]) == expected


def deep_grey():
    """A 16-bit grey PNG and its bytes."""
    values = np.uint16([[0, 128, 257], [30000, 65000, 65535]])
    data = io.BytesIO()
    Image.fromarray(values).save(data, "PNG")
    return data.getvalue(), np.floor(values / 257 + 0.5)


@pytest.mark.parametrize("transform", [None, {"texCoord": 1}])
def test_other_sets_of_uvs_are_named(tmp_path, transform):
    gltf = Gltf(picture(), TEXCOORD_1=UV[::-1].copy())
    gltf.base["baseColorTexture"] |= {"texCoord": 1} if transform is None else {
        "extensions": {"KHR_texture_transform": transform}
    }  # fmt: skip
    with pytest.warns(UserWarning, match="material 0's TEXCOORD_1 .TEXCOORD_0 is read"):
        found = surface(tmp_path, gltf.data())
    np.testing.assert_array_equal(found.uv, surface(tmp_path, Gltf(picture()).data()).uv)


@pytest.mark.parametrize("mode", ["1", "L", "LA", "P", "RGB", "RGBA"])
def test_images_of_every_kind(tmp_path, mode):
    data = picture(mode=mode)
    expected = np.array(Image.open(io.BytesIO(data)).convert("RGBA"))
    found = surface(tmp_path, Gltf(data).data()).textures[0].pixels
    np.testing.assert_array_equal(found, expected)
    if mode in "1LA":
        assert (found[..., 0] == found[..., 1]).all() and (found[..., 1] == found[..., 2]).all()


def test_sixteen_bits_and_one_texel(tmp_path):
    data, grey = deep_grey()
    found = surface(tmp_path, Gltf(data).data()).textures[0].pixels
    np.testing.assert_array_equal(found[..., 0], grey)
    dot = surface(tmp_path, Gltf(picture(PICTURE[:1, :1])).data())
    assert dot.textures[0].pixels.shape == (1, 1, 4)


@pytest.mark.parametrize(
    ("values", "found"),
    [
        (np.float32([[0.0, 0.25, 1.0]]), [0, 64, 255]),
        (np.int32([[0, 257, 65535]]), [0, 1, 255]),
        (np.float32([[0.0, 0.5, 255.0]]), "0 to 255, expected 0 to 1"),
        (np.float32([[-0.5, 0.5, 1.0]]), "-0.5 to 1, expected 0 to 1"),
        (np.float32([[0.0, np.nan, 1.0]]), "nan to nan, expected 0 to 1"),
        (np.int32([[0, 7, 2**20]]), r"0 to 1.04858e\+06, expected 0 to 65535"),
    ],
)
def test_grey_of_thirty_two_bits(tmp_path, values, found):
    data = Gltf(picture(values, "TIFF")).data()
    if isinstance(found, list):
        pixels = surface(tmp_path, data).textures[0].pixels
        np.testing.assert_array_equal(pixels[0, :, :3], np.repeat(np.reshape(found, (3, 1)), 3, axis=1))
    else:
        with pytest.warns(UserWarning, match=f"image 0 has grey values from {found}"):
            assert surface(tmp_path, data) is None


def claimed(width, height):
    """A PNG file that says that it is so large, and holds nothing."""
    header = struct.pack(">2I5B", width, height, 8, 6, 0, 0, 0)
    chunk = struct.pack(">I", 13) + b"IHDR" + header + struct.pack(">I", zlib.crc32(b"IHDR" + header))
    return b"\x89PNG\r\n\x1a\n" + chunk + struct.pack(">I", 0) + b"IEND" + struct.pack(">I", zlib.crc32(b"IEND"))


def uri(name):
    return lambda gltf: gltf.tree.update(images=[{"uri": name}])


@pytest.mark.parametrize(
    ("edit", "message"),
    [
        (lambda g: g.tree["bufferViews"][-1].update(byteLength=60), "image 0 cannot be decoded"),
        (lambda g: g.tree["bufferViews"][-1].update(byteLength=5), "image 0 is not an image of PNG"),
        (lambda g: g.tree["bufferViews"][-1].update(byteLength=10**6), "image 0 is truncated: a buffer view ends"),
        (uri("absent.png"), "image 0 .*No such file"),
        (uri("../../out.png"), "image 0 lies outside the mesh file's data root"),
        (uri("/etc/passwd"), "image 0 lies outside"),
        (uri("a%00b"), "image 0 is not a file name"),
        (uri("pipe"), "image 0 .*a pipe"),
        (uri("data:image/png;base64,AAAA"), "image 0 is not an image"),
        (lambda g: g.tree.update(images=[]), "index 0 of 0"),
        (lambda g: g.tree.update(textures=[]), "material 0's texture .*index 0 of 0"),
        (lambda g: g.tree["textures"][0].update(sampler=7), "material 0's texture .*index 7 of 0"),
        (
            lambda g: g.tree.update(textures=[{"extensions": {"EXT_texture_avif": {"source": 0}}}]),
            "EXT_texture_avif",
        ),
        (lambda g: g.base["baseColorTexture"].update(index="x"), "index x of 1"),
        (lambda g: g.base["baseColorTexture"].update(extensions={"KHR_texture_transform": {"scale": 2}}), "texture"),
    ],
)
def test_a_broken_texture_leaves_the_factor(tmp_path, edit, message):
    (tmp_path / "in").mkdir()
    (tmp_path / "out.png").write_bytes(picture())
    os.mkfifo(tmp_path / "in" / "pipe")
    gltf = Gltf(picture())
    gltf.base["baseColorFactor"] = FACTOR
    edit(gltf)
    with pytest.warns(UserWarning, match=message):
        found = surface(tmp_path / "in", gltf.data())
    assert found.materials == (Material(FACTOR),) and found.uv is None


@pytest.mark.parametrize(
    ("edit", "message"),
    [
        (lambda g: g.primitive.update(material=3), "material 3 .index 3 of 1"),
        (lambda g: g.primitive.update(material=-1), "material -1"),
        (lambda g: g.primitive.update(material="x"), "material x"),
        (lambda g: g.tree.update(materials=[7]), "material 0"),
        (lambda g: g.tree.update(materials={}), "material 0"),
        (lambda g: g.base.update(baseColorFactor=[1, 2]), "material 0's colour"),
        (lambda g: g.base.update(baseColorFactor=[1, 1, 1, float("nan")]), "material 0's colour"),
    ],
)
def test_a_broken_material_is_white(tmp_path, edit, message):
    gltf = Gltf(picture())
    gltf.base.pop("baseColorTexture")
    edit(gltf)
    with pytest.warns(UserWarning, match=message):
        assert surface(tmp_path, gltf.data()) is None


@pytest.mark.parametrize("name", ["TEXCOORD_0", "COLOR_0"])
def test_broken_columns_are_left_out(tmp_path, name):
    gltf = Gltf(picture(), COLOR_0=np.zeros((4, 3), np.float32))
    gltf.tree["accessors"][gltf.primitive["attributes"][name]]["type"] = "MAT2"
    with pytest.warns(UserWarning, match=f"attribute {name}"):
        found = surface(tmp_path, gltf.data())
    assert (found.uv == 0).all() if name == "TEXCOORD_0" else found.color is None


def test_places_that_are_none(tmp_path):
    uv = UV.copy()
    uv[0], uv[1, 0], uv[2] = np.nan, np.inf, 1e9
    found = surface(tmp_path, Gltf(picture(), TEXCOORD_0=uv).data()).uv
    assert np.isfinite(found).all() and set(np.unique(found)) == {0.0, 1.0}


def test_images_beside_the_file_and_with_a_wrong_type(tmp_path):
    gltf = Gltf(picture())
    (tmp_path / "a b.dat").write_bytes(picture(PICTURE[..., :3], "JPEG"))
    gltf.tree["images"] = [{"uri": "a%20b.dat", "mimeType": "image/png"}]
    expected = np.array(Image.open(tmp_path / "a b.dat"))
    np.testing.assert_array_equal(surface(tmp_path, gltf.data()).textures[0].pixels[..., :3], expected)


def test_one_image_of_two_textures_is_one_array(tmp_path):
    gltf = Gltf(picture())
    gltf.tree["samplers"] = [{"wrapS": 33071}]
    gltf.tree["textures"].append({"source": 0, "sampler": 0})
    gltf.tree["materials"].append({"pbrMetallicRoughness": {"baseColorTexture": {"index": 1}}})
    gltf.tree["meshes"][0]["primitives"].append({**gltf.primitive, "material": 1})
    first, second = surface(tmp_path, gltf.data()).textures
    assert first.pixels is second.pixels and first.wrap != second.wrap


def test_large_textures_are_read_smaller(tmp_path):
    large = np.kron(PICTURE, np.ones((8, 8, 1), np.uint8))
    with pytest.warns(UserWarning, match="larger than largest_texture 10 .*image 0 of 80 x 48"):
        found = surface(tmp_path, Gltf(picture(large)).data(), appearance=AppearanceConfig(10))
    np.testing.assert_array_equal(found.textures[0].pixels, PICTURE)
    with pytest.warns(UserWarning, match="80 x 48"):
        found = surface(tmp_path, Gltf(picture(large[..., :3], "JPEG")).data(), appearance=AppearanceConfig(16))
    assert found.textures[0].pixels.shape == (6, 10, 4)
    with pytest.warns(UserWarning, match="has 100000 x 100000 pixels, expected at most"):
        surface(tmp_path, Gltf(claimed(100_000, 100_000)).data())
    with pytest.raises(ConfigError, match="largest_texture"):
        surface(tmp_path, Gltf(picture()).data(), appearance=AppearanceConfig(0))
    with pytest.raises(ArgumentError, match="appearance"):
        surface(tmp_path, Gltf(picture()).data(), appearance=512)


def test_pixels_are_counted_before_they_are_decoded(tmp_path, monkeypatch):
    """Images of a file share a number of pixels that grows with its bytes; equal images are decoded once."""
    monkeypatch.setattr(images, "FREE_PIXELS", 300_000)
    blank = picture(np.zeros((500, 500, 4), np.uint8))
    with pytest.warns(UserWarning, match=r"image 0 has 1000 x 1000 pixels, expected at most [0-9,]{7}: the images of"):
        surface(tmp_path, Gltf(picture(np.zeros((1000, 1000), np.uint8))).data())
    gltf = Gltf(blank)
    for i, tail in enumerate((b"", b"\0", b"\0\0"), start=1):  # a decoder does not read what follows an image
        gltf.tree["images"].append({"bufferView": gltf._view(blank + tail)})
        gltf.tree["textures"].append({"source": i})
        gltf.tree["materials"].append({"pbrMetallicRoughness": {"baseColorTexture": {"index": i}}})
        gltf.tree["meshes"][0]["primitives"].append({**gltf.primitive, "material": i})
    monkeypatch.setattr(images, "PIXELS_PER_BYTE", 20)
    with pytest.warns(UserWarning, match="image [23] has 500 x 500 pixels"):
        found = surface(tmp_path, gltf.data())
    first, second = found.textures[:2]
    assert first.pixels is second.pixels and len(found.textures) < 4


@pytest.mark.parametrize("mode", ["1", "L", "LA", "P", "RGB", "RGBA", "I;16"])
def test_parts_of_an_image_join(monkeypatch, mode):
    """An image is converted in parts; the pixels are those of the whole."""
    whole = Image.fromarray(np.random.default_rng(2).integers(0, 256, (37, 20, 4), np.uint8))
    whole = Image.fromarray(np.arange(740, dtype=np.uint16).reshape(37, 20) * 88) if mode == "I;16" else whole
    image = whole if mode == "I;16" else whole.convert("RGB").convert(mode) if mode == "P" else whole.convert(mode)
    expected = images.rgba(image)
    if mode != "I;16":
        np.testing.assert_array_equal(expected, np.asarray(image.convert("RGBA")))
    monkeypatch.setattr(images, "_STRIP", 60)
    np.testing.assert_array_equal(images.rgba(image), expected)


def with_basisu(data, fallback=None):
    """A square whose texture is a KTX 2 file, with a plain one beside it for those who cannot read that."""
    gltf = Gltf(data)
    gltf.tree |= {"extensionsUsed": [BASISU], "extensionsRequired": [] if fallback else [BASISU]}
    gltf.tree["textures"] = [{"extensions": {BASISU: {"source": 0}}}]
    if fallback:
        gltf.tree["images"].append({"bufferView": gltf._view(fallback)})
        gltf.tree["textures"][0]["source"] = 1
    return gltf.data()


def test_basis_universal(tmp_path):
    colors = np.random.default_rng(5).integers(0, 256, (3, 5, 4), np.uint8)
    expected = np.kron(colors, np.ones((4, 4, 1), np.uint8))
    found = surface(tmp_path, with_basisu(ktx2(colors, width=18, height=11))).textures[0].pixels
    np.testing.assert_array_equal(found, expected[:11, :18])
    with pytest.warns(UserWarning, match=r"larger than largest_texture 8 .*image 0 of 16 x 16"):
        levels = np.random.default_rng(6).integers(0, 256, (4, 4, 4), np.uint8)
        data = with_basisu(ktx2(levels, levels=2))
        found = surface(tmp_path, data, appearance=AppearanceConfig(8)).textures[0].pixels
    np.testing.assert_array_equal(found, np.kron(levels[::2, ::2], np.ones((4, 4, 1), np.uint8)))
    with pytest.warns(UserWarning, match="image 0 cannot be decoded"):
        assert surface(tmp_path, with_basisu(ktx2(colors, width=2**17, height=2**17))) is None
    with pytest.warns(UserWarning, match="image 0 cannot be decoded"):
        assert surface(tmp_path, with_basisu(ktx2(colors)[:-40])) is None


def test_without_its_decoder_basis_universal_is_named(tmp_path, monkeypatch):
    monkeypatch.setattr(images.importlib.util, "find_spec", lambda name: None)
    data = ktx2(np.zeros((1, 1, 4), np.uint8))
    with pytest.warns(UserWarning, match=r"image 0 is a KTX 2 file \(KHR_texture_basisu\), which needs the package"):
        assert surface(tmp_path, with_basisu(data)) is None
    with pytest.warns(UserWarning, match="needs the package opengl_basisu"):
        found = surface(tmp_path, with_basisu(data, fallback=picture())).textures[0].pixels
    np.testing.assert_array_equal(found, PICTURE)


def test_a_texture_that_nothing_uses_is_not_decoded(tmp_path, monkeypatch):
    opened = []
    monkeypatch.setattr(images, "open_image", lambda data: opened.append(data))
    gltf = Gltf(picture())
    gltf.primitive.pop("material")
    assert surface(tmp_path, gltf.data()) is None
    assert surface(tmp_path, Gltf(picture()).data(), appearance=False) is None
    assert not opened


@pytest.mark.parametrize(
    ("values", "found", "named"),
    [("255 128 0", [255, 128, 0], False), ("1 0 1", [255, 0, 255], False), ("1.2 0.2 0", [255, 51, 0], True),
     ("300 128 0", [255, 255, 0], True), ("1.0001 0.2 0", [255, 51, 0], False)],
)  # fmt: skip
def test_colours_of_floats_beyond_one(tmp_path, recwarn, values, found, named):
    """Whole numbers are bytes, what else is above 1 is named; a vertex without colour stays white."""
    header = "ply\nformat ascii 1.0\nelement vertex 3\nproperty float x\nproperty float y\nproperty float z\n"
    header += "property float red\nproperty float green\nproperty float blue\n"
    header += "element face 1\nproperty list uchar int vertex_indices\nend_header\n"
    places = "0 0 0", "1 0 0", "0 1 0"
    (tmp_path / "a.ply").write_text(header + "".join(f"{place} {values}\n" for place in places) + "3 0 1 2\n")
    (tmp_path / "a.obj").write_text("v 0 0 0\n" + "".join(f"v {p} {values}\n" for p in places[1:]) + "f 1 2 3\n")
    assert load_mesh(tmp_path / "a.ply").surface.color[0, :, :3].tolist() == [found] * 3
    assert load_mesh(tmp_path / "a.obj").surface.color[0, :, :3].tolist() == [[255] * 3, found, found]
    assert ["colours above 1" in str(w.message) for w in recwarn.list] == [True, True] * named


def test_obj_with_vertex_colours(tmp_path):
    (tmp_path / "a.obj").write_text("v 0 0 0 1 0 0\nv 1 0 0 0 0.2 0\nv 0 1 0 0 0 1\nf 1 2 3\n")
    assert load_mesh(tmp_path / "a.obj").surface.color.tolist() == [
        [[255, 0, 0, 255], [0, 51, 0, 255], [0, 0, 255, 255]]
    ]


@pytest.mark.parametrize(("kind", "values"), [("uchar", "255 51 0"), ("float", "1 0.2 0"), ("ushort", "65535 13107 0")])
@pytest.mark.parametrize("names", ["red green blue", "diffuse_red diffuse_green diffuse_blue", "r g b"])
def test_ply_with_vertex_colours(tmp_path, names, kind, values):
    header = "ply\nformat ascii 1.0\nelement vertex 4\nproperty float x\nproperty float y\nproperty float z\n"
    header += "".join(f"property {kind} {name}\n" for name in names.split())
    header += "element face 1\nproperty list uchar int vertex_indices\nend_header\n"
    body = "".join(f"{x} {y} 0 {values}\n" for x, y in ((0, 0), (1, 0), (1, 1), (0, 1)))
    (tmp_path / "a.ply").write_text(header + body + "4 0 1 2 3\n")
    found = load_mesh(tmp_path / "a.ply").surface
    assert found.color.shape == (2, 3, 4) and (found.color == [255, 51, 0, 255]).all()
    assert load_mesh(tmp_path / "a.ply", appearance=False).surface is None


@pytest.mark.parametrize("vertices", [False, True])
def test_ply_with_faces_colours(tmp_path, vertices):
    """Polygons of different sizes, which are cut in another order; the vertices' colours come first."""
    of = "".join(f"property uchar {name}\n" for name in ("red", "green", "blue"))
    header = "ply\nformat ascii 1.0\nelement vertex 5\nproperty float x\nproperty float y\nproperty float z\n"
    header += (of if vertices else "") + f"element face 2\nproperty list uchar int vertex_indices\n{of}end_header\n"
    places = ((0, 0), (1, 0), (1, 1), (0, 1), (3, 0))
    body = "".join(f"{x} {y} 0{' 7 8 9' if vertices else ''}\n" for x, y in places)
    (tmp_path / "a.ply").write_text(header + body + "4 0 1 2 3 255 0 0\n3 1 4 2 0 0 255\n")
    mesh = load_mesh(tmp_path / "a.ply")
    square = mesh.vertices[mesh.faces][..., 0].max(1) == 1.0
    expected = np.where(square[:, None], [255, 0, 0, 255], [0, 0, 255, 255])
    if vertices:
        expected = np.broadcast_to([7, 8, 9, 255], (3, 4))
    np.testing.assert_array_equal(mesh.surface.color, np.repeat(expected[:, None], 3, axis=1))
    assert square.tolist().count(True) == 2


def test_a_plys_texture_is_named(tmp_path):
    header = "ply\nformat ascii 1.0\ncomment TextureFile wall.png\nelement vertex 3\nproperty float x\n"
    header += "property float y\nproperty float z\nproperty float s\nproperty float t\n"
    header += "element face 1\nproperty list uchar int vertex_indices\nend_header\n"
    (tmp_path / "a.ply").write_text(header + "0 0 0 0 0\n1 0 0 1 0\n0 1 0 0 1\n3 0 1 2\n")
    with pytest.warns(UserWarning, match="a PLY file's texture .save it as GLB"):
        assert load_mesh(tmp_path / "a.ply").surface is None


def test_colours_that_are_no_numbers(tmp_path, recwarn):
    (tmp_path / "a.obj").write_text("v 0 0 0 inf 0 0\nv 1 0 0 -inf 0.2 0\nv 0 1 0 nan 0 1\nf 1 2 3\n")
    found = load_mesh(tmp_path / "a.obj").surface.color
    assert found.tolist() == [[[255, 0, 0, 255], [0, 51, 0, 255], [0, 0, 255, 255]]] and not recwarn.list


# Mip levels, and materials and textures of many scenes in flat arrays

RANDOM = np.random.default_rng(1)


def random_picture(height, width):
    return RANDOM.integers(0, 256, (height, width, 4), np.uint8)


def test_half_of_even_sides_is_the_mean_of_four():
    picture = random_picture(6, 8)
    expected = picture.reshape(3, 2, 4, 2, 4).mean(axis=(1, 3))
    np.testing.assert_array_equal(halved(picture), np.floor(expected + 0.5))


@pytest.mark.parametrize("size", [(5, 7), (1, 9), (3, 1), (37, 53)])
def test_half_of_odd_sides_is_read_linearly_at_the_texels_centres(size):
    picture = random_picture(*size)
    height, width = (max(1, side // 2) for side in size)
    rows, columns = np.arange(size[0]), np.arange(size[1])
    y = (np.arange(height) + 0.5) * size[0] / height - 0.5
    x = (np.arange(width) + 0.5) * size[1] / width - 0.5
    along = np.stack([[np.interp(x, columns, row) for row in picture[..., k]] for k in range(4)], -1)
    both = np.stack([[np.interp(y, rows, column) for column in along[..., k].T] for k in range(4)], -1).swapaxes(0, 1)
    found = halved(picture)
    assert found.shape == (height, width, 4)
    assert np.abs(found - both).max() <= 0.5 + 1e-6


def test_levels_go_down_to_one_texel():
    picture = random_picture(5, 12)
    palette = Palette(first_material=3, first_level=7, first_texel=100)
    assert palette.add(Material(texture=0), (Texture(picture),)) == 3
    materials, levels, texels, _ = palette.arrays()
    assert levels.tolist() == [[100, 12, 5, 0], [160, 6, 2, 0], [172, 3, 1, 0], [175, 1, 1, 0]]
    assert len(texels) == 76 == num_texels(12, 5, num_levels(12, 5))
    np.testing.assert_array_equal(texels[:60].view(np.uint8).reshape(5, 12, 4), picture)
    np.testing.assert_array_equal(texels[60:72].view(np.uint8).reshape(2, 6, 4), halved(picture))
    assert materials[0].view(np.int32)[textures.FIRST_LEVEL] == 7 and materials[0, 7] == 3.0
    assert materials[0, :3].tolist() == [1, 1, 1] and materials[0, 4:6].tolist() == [12, 5]


def test_what_is_equal_is_stored_once():
    picture, palette = random_picture(4, 4), Palette()
    same, flat = (Texture(picture.copy(), magnify=kind) for kind in ("linear", "nearest"))
    unmipped = Texture(picture, minify="linear")
    rows = [palette.add(Material(texture=0), (texture,)) for texture in (Texture(picture), same, flat, unmipped)]
    rows.append(palette.add(Material((0.5, 0.0, 0.0, 1.0)), ()))
    rows.append(palette.add(Material((0.5, 0.0, 0.0, 0.5)), ()))  # alpha is not shown
    materials, levels, texels, _ = palette.arrays()
    assert rows == [0, 0, 1, 2, 3, 3] and len(materials) == 4
    assert len(levels) == 3 + 1 and len(texels) == 21 + 16
    turned = Texture(picture.reshape(2, 8, 4))  # the same bytes are another picture
    assert palette.add(Material(texture=0), (turned,)) == 4 and len(palette.arrays()[2]) == 21 + 16 + 23


def test_flags():
    kinds = {flags_of(Texture(random_picture(1, 1), wrap, magnify, minify))
             for wrap in (("repeat", "clamp"), ("clamp", "repeat"), ("mirror", "mirror"))
             for magnify in ("nearest", "linear")
             for minify in ("nearest_mipmap_nearest", "linear_mipmap_nearest", "nearest_mipmap_linear",
                            "linear_mipmap_linear")}  # fmt: skip
    assert len(kinds) == 24


def test_too_many_texels_are_refused(monkeypatch):
    monkeypatch.setattr(textures, "MOST_TEXELS", 20)
    with pytest.raises(ArgumentError, match="found more than 20 texels"):
        Palette().add(Material(texture=0), (Texture(random_picture(4, 4)),))


def meshes():
    """Of two triangles each: without a surface, with a texture, with colours, with both."""
    corners = np.float32([[-2, 0, -2], [2, 0, -2], [2, 0, 2], [-2, 0, 2]])
    plain = TriangleMesh(corners, np.int32([[0, 2, 1], [0, 3, 2]]))
    uv, color = RANDOM.random((2, 3, 2), np.float32), RANDOM.integers(0, 256, (2, 3, 4), np.uint8)
    textured = Surface(np.int32([0, 1]), (Material(), Material(texture=0)), (Texture(random_picture(4, 4)),), uv)
    tinted = Surface(np.int32([0, 0]), (Material(),), color=color)
    both = textured._replace(color=color, material=np.int32([1, 1]))
    blocks = textured._replace(textures=(Texture(compress(random_picture(40, 24))),))
    return [plain, *(plain._replace(surface=surface) for surface in (textured, tinted, both, blocks))]


def test_a_triangle_takes_no_more_than_it_has():
    packed = pack_appearance(meshes()[:4], COLOR_FIELDS, {"": 0})
    assert (packed.paint < 0).tolist() == [True, True, True, False, False, False, False, False]
    assert len(packed.patches) == 1 + 2 + 2 * 2 and len(packed.normal) == 0
    assert len(packed.materials) == 2 and len(packed.levels) == 3
    white = pack_appearance(meshes()[:1], COLOR_FIELDS, {"": 0})
    assert [len(array) for array in white] == [0, 0, 0, 0, 2, 0, 1, 0, 0, 0, 0, 0, 0, 0]


def test_rows_are_known_before_they_are_made():
    for mesh in meshes():
        made, rows = pack_appearance([mesh], Appearance._fields, {"": 0}), appearance_rows(mesh)
        assert [len(array) for array in made] == list(rows)
