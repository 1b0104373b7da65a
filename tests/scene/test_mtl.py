"""OBJ with MTL libraries: variants of programs, several files, texture placement, and invalid files."""

import re

import numpy as np
import pytest
from files import CORNERS, PICTURE, UV, by_corner, picture

from batchnav.scene.mesh import load_mesh
from batchnav.types import Material

OBJ = """mtllib a b.mtl
v 0 1 0
v 1 1 0
v 1 0 0
v 0 0 0
vt 0 1
vt 1 1
vt 1 0
vt 0 0
usemtl wood
f 1/1 4/4 3/3 2/-3
usemtl red
f 1 4 3
"""
MTL = """newmtl wood
Kd 0.5 0.25 1
map_Kd -clamp on -s 1 1 1 pic ture.png
newmtl red
Kd 1 0 2.5
"""


def test_obj_with_materials(tmp_path):
    (tmp_path / "a b.mtl").write_text(MTL)
    (tmp_path / "pic ture.png").write_bytes(picture())
    (tmp_path / "a.obj").write_text(OBJ)
    with pytest.warns(UserWarning, match="values above 1 in Kd '1 0 2.5'"):
        mesh = load_mesh(tmp_path / "a.obj")
    found = mesh.surface
    kinds = [found.materials[m] for m in found.material]
    assert kinds == [Material((0.5, 0.25, 1.0, 1.0), 0)] * 2 + [Material((1.0, 0.0, 1.0, 1.0))] or (
        kinds == [Material((1.0, 0.0, 1.0, 1.0))] + [Material((0.5, 0.25, 1.0, 1.0), 0)] * 2
    )
    textured = np.array([kind.texture == 0 for kind in kinds])
    part = mesh._replace(faces=mesh.faces[textured])
    expected = {tuple(p): uv.tolist() for p, uv in zip(CORNERS, UV, strict=True)}
    assert by_corner(part, found.uv[textured]) == expected
    np.testing.assert_array_equal(found.textures[0].pixels, PICTURE)
    assert found.textures[0].wrap == ("clamp", "clamp")
    plain = load_mesh(tmp_path / "a.obj", appearance=False)
    np.testing.assert_array_equal(plain.faces, mesh.faces)
    np.testing.assert_array_equal(plain.vertices, mesh.vertices)


def test_libraries_of_other_programs(tmp_path):
    """Tabs, spaces within names, keywords in small letters, options of all kinds."""
    wood = "newmtl\twood\nKd\t1 1 1\n\tmap_kd -cc on -bm 1 -s\t2 2 2 two  words.png\n"
    (tmp_path / "a b.mtl").write_text(f"{wood}Newmtl red\nkd 1 0 0")
    (tmp_path / "two  words.png").write_bytes(picture())
    (tmp_path / "a.obj").write_text(OBJ)
    found = load_mesh(tmp_path / "a.obj").surface
    assert {found.materials[m] for m in found.material} == {Material(texture=0), Material((1.0, 0.0, 0.0, 1.0))}
    np.testing.assert_array_equal(found.textures[0].pixels, PICTURE)


@pytest.mark.parametrize(
    ("options", "place"),
    [
        ("-s 2 3 1 -o 0.5 0.25 0", lambda u, v: (2 * u + 0.5, 3 * v + 0.25)), ("-s 4", lambda u, v: (4 * u, v)),
        ("-o -1", lambda u, v: (u - 1, v)), ("-o inf 0 0", lambda u, v: (0, v)),
    ],
)  # fmt: skip
def test_a_texture_placed_by_its_library(tmp_path, recwarn, options, place):
    """`-s` multiplies UVs and `-o` moves them, as Blender writes them and three.js reads them."""
    (tmp_path / "a b.mtl").write_text(f"newmtl wood\nmap_Kd {options} p.png\nnewmtl red\nmap_Kd p.png\n")
    (tmp_path / "p.png").write_bytes(picture())
    corners, quads = "v 0 0 0\nv 1 0 0\nv 0 1 0\nvt 0.1 0.2\nvt 1 0\nvt 0 1\n", "f 1/1 2/2 3/3\n"
    (tmp_path / "a.obj").write_text(f"mtllib a b.mtl\n{corners}usemtl red\n{quads}usemtl wood\n{quads}")
    found = load_mesh(tmp_path / "a.obj").surface
    places = [(0.1, 0.2), (1.0, 0.0), (0.0, 1.0)]
    expected = [[(u, 1 - v) for u, v in places], [(u, 1 - v) for u, v in (place(*p) for p in places)]]
    np.testing.assert_allclose(found.uv[np.argsort(found.material)], expected, atol=1e-6)
    assert not recwarn.list


@pytest.mark.parametrize("line", ["parts/a.mtl", r"parts\a.mtl", '"parts/a.mtl"'])
@pytest.mark.parametrize("name", ["beside it.png", '"beside it.png"', "parts/beside it.png", r"parts\beside it.png"])
def test_a_texture_beside_its_library(tmp_path, line, name):
    (tmp_path / "parts").mkdir()
    (tmp_path / "parts" / "a.mtl").write_text(f"newmtl wood\nmap_Kd {name}\nnewmtl red\n")
    (tmp_path / "parts" / "beside it.png").write_bytes(picture())
    (tmp_path / "a.obj").write_text(OBJ.replace("a b.mtl", line))
    np.testing.assert_array_equal(load_mesh(tmp_path / "a.obj").surface.textures[0].pixels, PICTURE)


@pytest.mark.parametrize(
    ("line", "missing"),
    [
        ("a.mtl b.mtl", []), ("my wood.mtl the red.mtl", []), (r"parts\my\ wood.mtl parts/b.mtl", []),
        ("a.mtl the blue.mtl b.mtl", ["the", "blue.mtl"]),
    ],
)  # fmt: skip
def test_several_libraries(tmp_path, recwarn, line, missing):
    (tmp_path / "parts").mkdir()
    for name in ("a.mtl", "my wood.mtl", "parts/my wood.mtl"):
        (tmp_path / name).write_text("newmtl wood\nKd 0.5 0.25 1\n")
    for name in ("b.mtl", "the red.mtl", "parts/b.mtl"):
        (tmp_path / name).write_text("newmtl red\nKd 1 0 0\n")
    (tmp_path / "a.obj").write_text(OBJ.replace("a b.mtl", line))
    found = load_mesh(tmp_path / "a.obj").surface
    assert {found.materials[m].color for m in found.material} == {(0.5, 0.25, 1.0, 1.0), (1.0, 0.0, 0.0, 1.0)}
    assert [name for w in recwarn.list for name in re.findall("library '(.*?)'", str(w.message))] == missing


@pytest.mark.parametrize("name", ["a" * 5000, "", "a b c.mtl"])
def test_a_library_that_is_not_there_is_named(tmp_path, name):
    (tmp_path / "a.obj").write_text(OBJ.replace("a b.mtl", name))
    with pytest.warns(UserWarning, match=f"library '{name[:40]}' "):
        assert load_mesh(tmp_path / "a.obj").surface is None


@pytest.mark.parametrize(
    ("library", "message"),
    [
        ("newmtl wood\nKd 1 x 1\nnewmtl red\n", "Kd '1 x 1'"),
        ("newmtl wood\nKd 255 255 255\nnewmtl red\n", "values above 1 in Kd '255 255 255'"),
        ("newmtl wood\nmap_Kd ../../out.png\nnewmtl red\n", "lies outside"),
        ("newmtl wood\nmap_Kd\nnewmtl red\n", "image ''"),
        ("newmtl wood\n", "material 'red'"),
        (None, "library 'a b.mtl'"),
    ],
)
def test_broken_libraries(tmp_path, library, message):
    if library is not None:
        (tmp_path / "a b.mtl").write_text(library)
    (tmp_path / "a.obj").write_text(OBJ)
    with pytest.warns(UserWarning, match=message):
        mesh = load_mesh(tmp_path / "a.obj")
    assert mesh.surface is None and len(mesh.faces) == 3
