"""Houses with furniture of a user's folder: placement, materials, the cache, and the check of the folder."""

import os
from collections import Counter

import numpy as np
import pytest
import trimesh
from PIL import Image

from batchnav import load_scene, load_scenes
from batchnav.cli import main
from batchnav.data.episodes import scene_name
from batchnav.data.scenes.ids import parse_scene_id, scene_ids
from batchnav.errors import MeshError
from batchnav.procedural import make_house, read_furniture
from batchnav.procedural.furniture.kinds import KINDS, TELEVISIONS
from batchnav.procedural.random_stream import RandomStream
from batchnav.procedural.solids import Solids

SEED = 26


def boxes(*bounds):
    return trimesh.util.concatenate([trimesh.creation.box(bounds=[low, high]) for low, high in bounds])


SOFA = boxes(((-1.0, 0.0, -0.45), (1.0, 0.45, 0.45)), ((-1.0, 0.45, 0.25), (1.0, 0.9, 0.45)))
CHAIR = boxes(((-0.22, 0.0, -0.22), (0.22, 0.45, 0.22)), ((-0.22, 0.45, 0.18), (0.22, 0.9, 0.22)))
"""Backs are at +Z, since fronts look along -Z."""


def lamp():
    made = trimesh.creation.cylinder(radius=0.15, height=1.5, sections=12)
    made.apply_transform(trimesh.transformations.rotation_matrix(np.pi / 2, (1, 0, 0)))
    made.apply_translation((0.0, 0.75, 0.0))
    return made


def textured(mesh, image):
    """The mesh with a texture that covers each triangle once."""
    mesh = mesh.copy()
    mesh.unmerge_vertices()
    uv = np.tile([(0.1, 0.1), (0.9, 0.1), (0.1, 0.9)], (len(mesh.faces), 1))
    material = trimesh.visual.material.PBRMaterial(baseColorTexture=image, baseColorFactor=(255, 255, 255, 255))
    mesh.visual = trimesh.visual.TextureVisuals(uv=uv, material=material)
    return mesh


@pytest.fixture
def folder(tmp_path):
    """A folder of five models, of which the sofa has a red texture."""
    image = Image.new("RGB", (8, 8), (255, 0, 0))
    small = boxes(((-0.1, 0.0, -0.1), (0.1, 0.2, 0.1)))
    large = boxes(((-0.6, 0.0, -0.3), (0.6, 1.1, 0.3)))
    models = {"sofa/red": textured(SOFA, image), "chair/plain": CHAIR, "lamp/tall": lamp(), "gadget/cube": small}
    for name, mesh in {**models, "piano/upright": large}.items():
        file = tmp_path / "mine" / f"{name}.glb"
        file.parent.mkdir(parents=True, exist_ok=True)
        mesh.export(file)
    return tmp_path / "mine"


def objects(mesh, category):
    """Triangles of each object of a category."""
    surface = mesh.surface
    of = surface.category == surface.categories.index(category)
    return [np.flatnonzero(surface.object_id == number) for number in np.unique(surface.object_id[of])]


def same(a, b):
    fields = ("material", "uv", "object_id", "category", "finish")
    return (
        a.vertices.tobytes() == b.vertices.tobytes()
        and a.faces.tobytes() == b.faces.tobytes()
        and a.surface.materials == b.surface.materials
        and all(getattr(a.surface, name).tobytes() == getattr(b.surface, name).tobytes() for name in fields)
    )


def test_models_take_the_places_of_our_own_pieces(folder):
    furniture = read_furniture(folder)
    mesh, again, plain = make_house(SEED, True, furniture), make_house(SEED, True, furniture), make_house(SEED, True)
    assert same(mesh, again) and not same(mesh, plain) and same(plain, make_house(SEED, True))
    (sofa,) = objects(mesh, "sofa")
    assert len(sofa) == 24  # two boxes
    corners = mesh.vertices[mesh.faces[sofa]].reshape(-1, 3)
    size = np.sort(np.ptp(corners, axis=0))
    assert size == pytest.approx((0.9, 0.9, 2.0), rel=0.07) and abs(corners[:, 1].min()) < 1e-3
    assert any(len(chair) == 24 for chair in objects(mesh, "chair"))
    assert objects(mesh, "piano") and objects(mesh, "gadget")


def test_the_back_of_a_sofa_is_at_a_wall(folder):
    """The back is the high part; walls lie within 5 cm of it, and none in front."""
    mesh = make_house(SEED, True, read_furniture(folder))
    (sofa,) = objects(mesh, "sofa")
    corners = mesh.vertices[mesh.faces[sofa]].reshape(-1, 3)
    high = corners[corners[:, 1] > 0.8]
    out = high.mean(0) - corners.mean(0)
    axis = 0 if abs(out[0]) > abs(out[2]) else 2
    side = np.sign(out[axis])
    back = side * (side * corners[:, axis]).max()
    walls = mesh.vertices[mesh.faces[mesh.surface.category == mesh.surface.categories.index("wall")]][:, :, axis]
    flat = walls[np.ptp(walls, axis=1) < 1e-4].mean(1)
    assert np.abs(flat - back).min() < 0.05


def test_models_keep_their_textures_or_get_finishes_of_ours(folder):
    kept = make_house(SEED, True, read_furniture(folder))
    (sofa,) = objects(kept, "sofa")
    material = kept.surface.materials[kept.surface.material[sofa[0]]]
    pixels = kept.surface.textures[material.texture].pixels
    assert material.texture >= 0 and (pixels[:, :, 0] > 240).all() and (pixels[:, :, 1:3] < 15).all()
    assert (kept.surface.finish[kept.surface.material[sofa], 1] == -1).all()  # never randomised
    random = make_house(SEED, True, read_furniture(folder, "random"))
    (sofa,) = objects(random, "sofa")
    assert (random.surface.finish[random.surface.material[sofa], 1] >= 0).all()
    assert random.vertices.tobytes() == kept.vertices.tobytes()


def test_every_kind_of_furniture_stands_in_its_place():
    """Each construction is one of a category, on the floor, and fills the box that it is placed by."""
    found = Counter()
    for pieces in KINDS.values():
        for piece in pieces:
            solids, size = Solids(2), piece.size(RandomStream(3))
            piece.build(solids, RandomStream(1), *size)
            vertices, _ = solids.arrays()
            low, high = vertices.min(0), vertices.max(0)
            assert -0.02 < low[1] < 0.06 and high[1] < size[2] + 0.6, piece.build  # things on tables are higher
            assert (high[[0, 2]] < np.array(size[:2]) / 2 + 0.04).all(), piece.build
            assert (low[[0, 2]] > -np.array(size[:2]) / 2 - 0.04).all(), piece.build
            category = solids.record[0].category
            fills = size[0] < 1.6 * (high[0] - low[0]) and size[1] < 1.6 * (high[2] - low[2])
            assert fills or category in ("plant", "lighting"), piece.build
            found[category] += 1
    assert min(found.values()) >= 6 and len(found) == 13 and len(set(TELEVISIONS)) >= 6


def test_houses_with_more_kinds():
    """They are the same each time, differ from plain ones, and have more shapes of a category."""
    more, again, plain = make_house(SEED, True, None, True), make_house(SEED, True, None, True), make_house(SEED, True)
    assert same(more, again) and not same(more, plain)
    (loaded,) = load_scenes([f"house:{SEED}?kinds=more"])
    assert same(loaded.mesh, more) and same(load_scene(f"house:{SEED}").mesh, plain)


def test_scene_ids_carry_the_folder(folder):
    ids = scene_ids([f"house:3-4,9?furniture={folder}&materials=random"])
    assert ids == [f"house:{seed}?furniture={folder}&materials=random" for seed in (3, 4, 9)]
    assert parse_scene_id(f"house:1?furniture={folder}&kinds=more").more_kinds
    ref = parse_scene_id(ids[0])
    assert (ref.seed, ref.furniture, ref.materials) == (3, folder, "random")
    assert len({scene_name(each) for each in ids}) == 3 and "/" not in scene_name(ids[0])
    for wrong, message in (
        ("house:3?", "furniture=FOLDER"), ("house:3?furnitur=a", "furniture=FOLDER"),
        ("house:3?furniture=a&furniture=b", "furniture=FOLDER"), ("house:3?materials=random", "furniture=FOLDER"),
        ("hall:3?furniture=a", "some of materials=FOLDER, lights=random"), ("house:3?kinds=less", "expected more"),
        ("house:3?lights=on", "found 'on', expected random"), ("house:3?lights=random&lights=random", "options"),
    ):  # fmt: skip
        with pytest.raises(MeshError, match=message):
            parse_scene_id(wrong)
    with pytest.raises(MeshError, match="found no such folder"):
        load_scene(f"house:3?furniture={folder / 'absent'}")
    with pytest.raises(MeshError, match=r"materials .*blue: found no such folder, expected keep or random"):
        load_scene(f"house:3?furniture={folder}&materials=blue", appearance=True)


def test_the_cache_knows_the_content_of_the_folder(folder):
    """The scene is mapped from the cache, with its textures, until a model changes."""
    name = f"house:{SEED}?furniture={folder}"
    (first,), (again,) = load_scenes([name]), load_scenes([name])
    assert first.name == name and same(first.mesh, again.mesh)
    images = [texture.pixels for texture in again.mesh.surface.textures if np.shape(texture.pixels)[0] == 8]
    assert images and images[0] is read_furniture(folder).textures[0].pixels  # shared by all houses
    assert load_scene(f"house:{SEED}").mesh.vertices.tobytes() == make_house(SEED).vertices.tobytes()
    bigger = SOFA.copy()
    bigger.apply_scale((1.1, 1.0, 1.0))
    bigger.export(folder / "sofa" / "red.glb")
    os.utime(folder / "sofa" / "red.glb", (1, 1))
    changed = load_scene(name)
    (sofa,) = objects(changed.mesh, "sofa")
    assert np.ptp(changed.mesh.vertices[changed.mesh.faces[sofa]].reshape(-1, 3), axis=0).max() > 2.05


def test_sizes_and_axes_of_a_folder(tmp_path):
    """A sofa in centimetres, +Z up, that faces +X."""
    (tmp_path / "sofa").mkdir()
    turned = SOFA.copy()
    turned.vertices = 100.0 * turned.vertices[:, [2, 0, 1]] * (-1.0, -1.0, 1.0)
    turned.export(tmp_path / "sofa" / "odd.glb")
    (tmp_path / "sizes.yaml").write_text("sofa/*: {up: z, front: x, scale: 0.01}\n")
    (model,) = read_furniture(tmp_path).models
    assert model.size == pytest.approx((2.0, 0.9, 0.9), abs=1e-5)
    assert model.vertices[model.vertices[:, 1] > 0.8][:, 2].max() < 0.0  # its back is at -Z in our frame
    (tmp_path / "sizes.yaml").write_text("sofa/odd: {up: z, front: x, width: 1.8}\n")
    assert read_furniture(tmp_path).models[0].size == pytest.approx((1.8, 0.81, 0.81), abs=1e-5)
    for text, message in (
        ("sofa/other: {scale: 1}", "no such model"), ("sofa/odd: {scale: -1}", "number above 0"),
        ("sofa/odd: {up: z, front: z}", "right angle"), ("sofa/odd: 3", "expected lines"), ("a: [", "is not YAML"),
    ):  # fmt: skip
        (tmp_path / "sizes.yaml").write_text(text)
        with pytest.raises((MeshError, ValueError), match=message):
            read_furniture(tmp_path)


def test_the_check_names_what_is_wrong(folder, tmp_path, capsys):
    sheet = tmp_path / "sheet.png"
    main(["data", "objects", str(folder), "--sheet", str(sheet)])
    text = capsys.readouterr().out
    assert "5 models, none with problems" in text and Image.open(sheet).size == (5 * 132, 162)
    changes = {
        "chair/over": (CHAIR, (1.0, -1.0, 1.0), (0.0, 0.9, 0.0)), "sofa/cm": (SOFA, 100.0, 0.0),
        "sofa/high": (SOFA, 1.0, (0.0, 0.5, 0.0)), "chair/turned": (CHAIR, (-1.0, 1.0, -1.0), 0.0),
        "chair/lying": (boxes(((-0.22, -0.2, 0.0), (0.22, 0.2, 1.2))), 1.0, 0.0),
    }  # fmt: skip
    for name, (mesh, scale, shift) in changes.items():
        moved = mesh.copy()
        moved.vertices = moved.vertices * scale + shift
        moved.export(folder / f"{name}.glb")
    with pytest.raises(SystemExit):
        main(["data", "objects", str(folder), "--sheet", str(sheet)])
    text = " ".join(capsys.readouterr().out.split())
    for name, problem in (
        ("chair/over", "is upside down"), ("sofa/cm", "200 x 90 x 90 m looks like centimetres"),
        ("sofa/high", "its lowest point is at y = 0.50 m"), ("chair/turned", "write front: z"),
        ("chair/lying", "write up: z"),
    ):  # fmt: skip
        assert f"{name}: {problem}" in text or (f"{name}: " in text and problem in text)
    assert "10 models, 5 with problems" in text
