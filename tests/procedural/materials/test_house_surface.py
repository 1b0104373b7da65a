"""Houses in colour: the same triangles, every one of them part of a thing, made of something, with its place in it."""

import hashlib
import subprocess
import sys

import numpy as np
import pytest

from batchnav.data.scenes import find_scene
from batchnav.procedural import degrade, make_house
from batchnav.procedural.materials.finishes import ASSORTED, FINISHES, make_palette
from batchnav.procedural.materials.patterns import SIDE
from batchnav.procedural.materials.surface import CATEGORIES, house_surface
from batchnav.procedural.materials.textures import FIRST, LIBRARY, METRES, TEXTURE_FAMILIES, texture
from batchnav.procedural.random_stream import RandomStream
from batchnav.procedural.solids import Solids, makes
from batchnav.scene.appearance import COLOR_FIELDS, pack_appearance
from batchnav.scene.mesh import check_mesh
from batchnav.scene.surface import check_surface

SEEDS = (0, 7, 17, 110_005)
EVERYWHERE = {"wall", "floor", "ceiling", "doorframe", "baseboard", "lighting"}


@pytest.fixture(scope="module")
def houses():
    return {seed: make_house(seed, surface=True) for seed in SEEDS}


def corners(mesh) -> np.ndarray:
    return mesh.vertices[mesh.faces].astype(np.float64)


def textured(surface) -> np.ndarray:
    return np.array([material.texture >= 0 for material in surface.materials])[surface.material]


def named(surface) -> np.ndarray:
    return np.array(surface.categories)[surface.category]


def test_triangles_are_the_same_with_and_without_surface(houses):
    for seed, house in houses.items():
        plain = make_house(seed)
        assert plain.surface is None
        assert plain.vertices.tobytes() == house.vertices.tobytes() and plain.faces.tobytes() == house.faces.tobytes()


def test_surfaces_are_whole(houses):
    for house in houses.values():
        surface = check_surface(house.surface, len(house.faces), "house")
        assert surface.categories == CATEGORIES and surface.color is None
        assert np.isfinite(surface.uv).all() and surface.uv.min() >= 0.0
        assert surface.object_id.min() >= 1 and (surface.category > 0).all()
        assert set(named(surface)) >= EVERYWHERE
        numbers = np.unique(surface.object_id)
        assert 60 < len(numbers) < 3000
        for number in numbers:  # a thing is of one category
            assert len(np.unique(surface.category[surface.object_id == number])) == 1


def test_a_seed_gives_the_same_surface_in_another_process(houses):
    def digest(surface) -> str:
        parts = [surface.material, surface.uv, surface.object_id, surface.category]
        text = repr(surface.materials).encode() + b"".join(t.pixels.tobytes() for t in surface.textures)
        return hashlib.sha256(b"".join(part.tobytes() for part in parts) + text).hexdigest()

    code = (
        "import hashlib; from batchnav.procedural import make_house; s = make_house(7, surface=True).surface;"
        "parts = [s.material, s.uv, s.object_id, s.category];"
        "text = repr(s.materials).encode() + b''.join(t.pixels.tobytes() for t in s.textures);"
        "print(hashlib.sha256(b''.join(p.tobytes() for p in parts) + text).hexdigest())"
    )
    other = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert other.stdout.strip() == digest(houses[7].surface)
    assert len({digest(house.surface) for house in houses.values()}) == len(houses)


def test_floors_face_up_and_ceilings_down(houses):
    for house in houses.values():
        a, b, c = np.moveaxis(corners(house), 1, 0)
        up, names = np.cross(b - a, c - a)[:, 1], named(house.surface)
        assert (up[names == "floor"] > 0).all() and (up[names == "ceiling"] < 0).all()
        assert np.abs(up[names == "wall"]).max() < 1e-9
        assert house.vertices[house.faces[names == "floor"]][..., 1].max() == 0.0


def test_a_metre_is_as_many_texels_everywhere_on_a_texture(houses):
    """UVs are planar, in metres: an edge that lies in its triangle's plane of projection keeps its length."""
    house = houses[0]
    surface, points = house.surface, corners(house)
    flat = np.isin(named(surface), ("floor", "wall"))
    rows = np.flatnonzero(flat & textured(surface))
    assert len(rows) > 50
    library = {id(texture(row).pixels): row for row in range(len(LIBRARY))}
    for row in rows[:200]:
        material = surface.materials[surface.material[row]]
        metres = METRES[library[id(surface.textures[material.texture].pixels)]]
        uv = surface.uv[row].astype(float) * metres
        lengths = np.linalg.norm(np.roll(uv, -1, axis=0) - uv, axis=1)
        expected = np.linalg.norm(np.roll(points[row], -1, axis=0) - points[row], axis=1)
        np.testing.assert_allclose(lengths, expected, atol=2e-4)


def test_materials_are_told_apart(houses):
    """Walls, floors and ceilings of a house differ, and so do houses."""

    def mean(surface, name):
        material = surface.materials[np.bincount(surface.material[named(surface) == name]).argmax()]
        pixels = surface.textures[material.texture].pixels if material.texture >= 0 else np.full((1, 1, 4), 255)
        return np.array(material.color[:3]) * pixels[..., :3].mean((0, 1)) / 255

    floors = [mean(house.surface, "floor") for house in houses.values()]
    ceilings = [mean(house.surface, "ceiling") for house in houses.values()]
    assert all(np.abs(f - c).max() > 0.05 for f, c in zip(floors, ceilings, strict=True))
    assert len({tuple(np.round(floor, 2)) for floor in floors}) == len(floors)
    for house in houses.values():
        assert len(house.surface.materials) > 100 and len(house.surface.textures) > 20


def test_all_houses_share_one_library(houses):
    """So a bank stores a texture once: what a thousand houses take is bounded by the library."""
    pixels = [{id(t.pixels) for t in house.surface.textures} for house in houses.values()]
    library = {id(texture(row).pixels) for row in range(len(LIBRARY))}
    assert all(found <= library for found in pixels) and pixels[0] & pixels[1]
    packed = pack_appearance([house.surface and house for house in houses.values()], COLOR_FIELDS, {"": 0})
    size = SIDE * SIDE
    assert len(packed.texels) <= len(set.union(*pixels)) * size * 4 / 3 + 1
    assert 4 * len(LIBRARY) * size * 4 / 3 < 40e6  # bytes of the whole library


def test_textures_are_opaque_and_close_on_themselves():
    assert len(LIBRARY) > 250 and set(FIRST) == set(TEXTURE_FAMILIES)
    for family in ("plain", "grain", "planks", "tiles", "weave", "cloth", "stone", "carpet"):
        pixels = texture(FIRST[family]).pixels
        assert pixels.shape == (SIDE, SIDE, 4) and (pixels[..., 3] == 255).all()
    # where a soft texture repeats there is no seam: neighbours across it differ no more than those within
    soft = texture(FIRST["plain"]).pixels[..., 0].astype(int)
    within = np.abs(np.diff(soft, axis=0)).mean()
    assert np.abs(soft[0] - soft[-1]).mean() < 3 * within + 1


def test_every_word_has_a_finish():
    rng = RandomStream(5)
    palette = make_palette(rng)
    for word, finish in FINISHES.items():
        for _ in range(8):
            made = finish(rng, palette)
            assert len(made.color) == 3 and all(0.0 <= channel <= 1.0 for channel in made.color), word
            assert -1 <= made.texture < len(LIBRARY)
    assert set(ASSORTED) <= set(FINISHES)


@makes("chair")
def two_boxes(solids):
    solids.material = "wood"
    solids.box((-0.5, 0, -0.5), (0.5, 1, 0.5))
    solids.material = "fabric"
    solids.box((-0.5, 1, -0.5), (0.5, 2, 0.5))


def test_things_that_are_placed_twice_are_two_of_one_look():
    solids, one, other = Solids(1), Solids(1), Solids(1)
    two_boxes(one)
    two_boxes(other)
    for x, solid in ((0.0, one), (3.0, one), (6.0, other)):
        solids.place(solid, x, 0.0, 60)
    vertices, faces = solids.arrays()
    surface = house_surface(1, solids.record, (vertices, faces, np.ones(len(faces), bool)))
    assert surface.object_id.reshape(3, 24).tolist() == [[1] * 24, [2] * 24, [3] * 24]
    assert (named(surface) == "chair").all()
    materials = surface.material.reshape(3, 2, 12)
    assert np.array_equal(materials[0], materials[1]) and not np.array_equal(materials[0], materials[2])
    uv = surface.uv.reshape(3, 24, 3, 2)
    np.testing.assert_allclose(uv[0], uv[1], atol=1e-5)


def test_scans_keep_the_surface_of_what_is_left():
    house = make_house(5, surface=True)
    plain, scan = degrade(house._replace(surface=None), 5), degrade(house, 5)
    assert plain.surface is None
    assert plain.vertices.tobytes() == scan.vertices.tobytes() and plain.faces.tobytes() == scan.faces.tobytes()
    surface = check_mesh(scan, "scan").surface
    names = named(surface)
    assert EVERYWHERE - {"ceiling"} <= set(names)
    assert (surface.object_id[names == ""] == 0).all() and (names == "").sum() <= 40
    # UVs still say where on the house's floor a piece of floor is, but for the noise of the surface
    points, uv = corners(scan), surface.uv.astype(float)
    area = np.linalg.norm(np.cross(points[:, 1] - points[:, 0], points[:, 2] - points[:, 0]), axis=1)
    e, f = uv[:, 1] - uv[:, 0], uv[:, 2] - uv[:, 0]
    in_texture = np.abs(e[:, 0] * f[:, 1] - e[:, 1] * f[:, 0])
    floor = (names == "floor") & textured(surface) & (area > 0.05)
    for material in np.unique(surface.material[floor]):
        ratio = (area / in_texture)[floor & (surface.material == material)]
        assert ratio.std() < 0.1 * ratio.mean()
    assert floor.sum() > 100


def test_the_cache_keeps_surfaces_for_those_who_want_them():
    """Made, then read from the disk, with and without: the same triangles."""
    made, again = find_scene("house:5"), find_scene("house:5")
    bare = find_scene("house:5", appearance=False)
    assert bare.mesh.surface is None and bare.categories == ("",)
    assert again.categories == CATEGORIES
    for name in ("material", "uv", "object_id", "category"):
        np.testing.assert_array_equal(getattr(made.mesh.surface, name), getattr(again.mesh.surface, name))
    assert made.mesh.surface.materials == again.mesh.surface.materials
    pictures = [[id(t.pixels) for t in scene.mesh.surface.textures] for scene in (made, again)]
    assert pictures[0] == pictures[1]  # the library's own
    assert made.mesh.vertices.tobytes() == bare.mesh.vertices.tobytes()
    assert find_scene("scan:5").categories == CATEGORIES
