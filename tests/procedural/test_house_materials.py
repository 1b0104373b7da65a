"""Randomised materials: same kind, same surfaces, by the seed alone; geometry and semantics stay the same."""

import dataclasses
import itertools

import numpy as np
import pytest
import torch
from numba import types as nb
from PIL import Image
from torch.utils._python_dispatch import TorchDispatchMode

from batchnav.config import from_dict
from batchnav.data.formats import load_episodes
from batchnav.data.scenes.load import load_all, load_scene
from batchnav.data.scenes.prepared import load_prepared, save_prepared
from batchnav.envs.nav import NavEnv
from batchnav.envs.stream import SceneStream
from batchnav.errors import ArgumentError, CheckpointError, ConfigError, MeshError
from batchnav.procedural import degrade, make_house, make_material_library, with_lights
from batchnav.procedural.materials.finishes import ASSORTED, FINISHES, NUM_KINDS, make_palette
from batchnav.procedural.materials.surface import CATEGORIES, house_surface
from batchnav.procedural.materials.textures import FIRST, LIBRARY, METRES, SIDE, TEXTURE_FAMILIES, texture
from batchnav.procedural.random_stream import RandomStream
from batchnav.procedural.solids import Solids, makes
from batchnav.runtime.bundled import EPISODES
from batchnav.runtime.distributed import Ranks
from batchnav.scene import material_sampling
from batchnav.scene.appearance import COLOR_FIELDS, Appearance, pack_appearance
from batchnav.scene.bank import SceneBank
from batchnav.scene.material_sampling import PERIOD
from batchnav.scene.mesh import check_mesh
from batchnav.scene.resident import ResidentSceneBank, SceneSize
from batchnav.scene.surface import check_surface
from batchnav.training import environment as training
from batchnav.training.config import TrainingConfig
from batchnav.types import LIGHT_STEPS

N, NAMES = 4, ("house:7", "house:17")
SMALL = {"sensors": ("rgb", "depth", "semantic"), "height": 16, "width": 16, "max_steps": 40}
devices = pytest.mark.parametrize("device", ["cpu", pytest.param("cuda", marks=pytest.mark.cuda)])


@pytest.fixture(scope="module")
def library():
    return make_material_library()


@pytest.fixture(scope="module")
def houses():
    return load_all(NAMES)


@pytest.fixture(scope="module")
def room(houses):
    """A scene from a file: as a house, but nothing is known of its finishes."""
    mesh = houses[0].mesh
    return houses[0]._replace(name="room", mesh=mesh._replace(surface=mesh.surface._replace(finish=None)))


def sampled_materials(bank, seed=3, count=0, every_house=True):
    """The materials that a bank has then, and their rows of finishes, on the CPU."""
    bank.randomize_materials(torch.tensor([seed], device=bank.device), count, every_house)
    return bank.appearance.materials.cpu().numpy().copy(), bank.appearance.finish.cpu().numpy()


def same_bits(some, others):
    """Whether materials are equal, links included, which are no numbers."""
    return np.array_equal(some.view(np.int32), others.view(np.int32))


def by_house(bank):
    """bool [M] for each house: its rows of materials."""
    house = bank.appearance.finish[:, 0].cpu().numpy()
    return [house == key for key in dict.fromkeys(house.tolist()) if key]


def test_every_material_of_a_house_is_a_shade_of_a_finish(houses):
    for house in houses:
        surface = house.mesh.surface
        number, kind, light, is_mean = surface.finish.T
        assert len(number) == len(surface.materials) and kind.min() >= 0 and kind.max() < NUM_KINDS
        assert light.min() >= 0 and light.max() <= LIGHT_STEPS and set(is_mean) == {0, 1}
        for i in np.unique(number):  # one kind, one texture, one colour in more or less light
            of_it = number == i
            assert len(set(kind[of_it])) == 1
            for plain in (0, 1):
                shades = np.flatnonzero(of_it & (is_mean == plain))
                assert len({surface.materials[m].texture for m in shades}) <= 1
                colors = np.array([surface.materials[m].color[:3] for m in shades]).reshape(-1, 3)
                full = colors * LIGHT_STEPS / np.maximum(light[shades], 1)[:, None]
                assert not len(full) or np.ptp(full, axis=0).max() < 5e-4


def test_materials_are_of_every_word_and_of_their_kind(library):
    assert len(library.materials) == 2 * library.starts[-1] and len(library.starts) == NUM_KINDS + 1
    sizes = np.diff(library.starts)
    assert (sizes.reshape(len(FINISHES), -1).sum(1) > 500).all()
    families = [None, *TEXTURE_FAMILIES]
    for kind in np.flatnonzero(sizes):
        for i in range(library.starts[kind], library.starts[kind + 1]):
            whole, plain = library.materials[2 * i : 2 * i + 2]
            family = LIBRARY[whole.texture][0] if whole.texture >= 0 else None
            assert family == families[kind % len(families)] and plain.texture == -1


@devices
def test_finishes_are_sampled_from_materials_of_their_kind(houses, library, device):
    bank = SceneBank.pack(houses, device, COLOR_FIELDS, library)
    materials, finish = sampled_materials(bank)
    seen = {}
    for row in np.flatnonzero(finish[:, 2] >= 0):
        house, number, kind, shade = finish[row].tolist()
        first, end = library.starts[kind : kind + 2]
        of_kind = materials[2 * first + (shade & 1) : 2 * end : 2]
        light = np.float32(shade >> 1) / np.float32(LIGHT_STEPS)
        same = np.isclose(of_kind[:, :3] * light, materials[row, :3], atol=1e-6).all(1)
        same &= (of_kind[:, 3:].view(np.int32) == materials[row, 3:].view(np.int32)).all(1)  # bit for bit
        assert same.any()
        found = set(np.flatnonzero(same))
        seen[house, number] = seen.get((house, number), found) & found if light else found
    assert all(seen.values())  # all shades of a finish are shades of one material


@devices
def test_the_seed_and_the_count_decide(houses, library, device):
    bank = SceneBank.pack(houses, device, COLOR_FIELDS, library)
    first, _ = sampled_materials(bank)
    pointer = bank.appearance.materials.data_ptr()
    times = [sampled_materials(bank, count=count)[0] for count in range(2 * PERIOD + 1)]
    sampled_materials(bank)
    assert all(
        same_bits(sampled_materials(bank, count=i, every_house=False)[0], times[i]) for i in range(1, len(times))
    )
    assert bank.appearance.materials.data_ptr() == pointer
    for rows in by_house(bank):
        changes = [not same_bits(a[rows], b[rows]) for a, b in itertools.pairwise(times)]
        assert sum(changes) == 2 and np.diff(np.flatnonzero(changes)) == PERIOD
    alone = SceneBank.pack(houses[1:], device, COLOR_FIELDS, library)
    (own,) = by_house(alone)
    assert same_bits(sampled_materials(alone)[0][own], first[by_house(bank)[1]]) and same_bits(
        sampled_materials(bank)[0], first
    )
    assert not same_bits(sampled_materials(bank, seed=4)[0], first)


@pytest.mark.cuda
def test_cpu_and_gpu_sample_the_same(houses, library):
    found = [
        sampled_materials(SceneBank.pack(houses, device, COLOR_FIELDS, library), count=5)[0]
        for device in ("cpu", "cuda")
    ]
    assert same_bits(*found)


def test_materials_without_finishes_stay(houses, library, room):
    bank = SceneBank.pack([room, houses[1]], "cpu", COLOR_FIELDS, library)
    stays = bank.appearance.finish.numpy()[:, 2] < 0
    before = bank.appearance.materials.numpy().copy()
    after, _ = sampled_materials(bank)
    assert same_bits(before[stays], after[stays]) and not same_bits(before[~stays], after[~stays])
    without = SceneBank.pack(houses, "cpu", set(Appearance._fields) - {"finish"})
    assert not len(without.appearance.finish) and without.material_sampler is None
    without.randomize_materials(torch.tensor([0]), 1)  # nothing
    (scan,) = load_all(["scan:7"])
    assert scan.mesh.surface.finish[-1].tolist() == [0, -1, 0, 0]  # of pieces that float


def make(scenes, device, library, **options):
    return NavEnv(scenes, N, device, 5, material_library=library, **{**SMALL, **options})


def play(env, calls):
    """The observations of some rollouts."""
    moves, seen = torch.randint(1, 4, (calls, 3, N), generator=torch.Generator().manual_seed(calls)), []
    for rollout in moves:
        env.between_rollouts()
        seen += [env.step(action.to(env.device))[0] for action in rollout]
    return [{name: value.cpu() for name, value in one.items()} for one in seen]


def equal(some, others, *names):
    return all(torch.equal(a[name], b[name]) for a, b in zip(some, others, strict=True) for name in names)


@devices
def test_environments_show_other_colours_and_the_same_geometry(houses, library, device):
    envs = [make(houses, device, library), make(houses, device, None), make(houses, device, library)]
    firsts = [env.reset()[0] for env in envs]
    assert torch.equal(firsts[0]["rgb"], firsts[2]["rgb"]) and not torch.equal(firsts[0]["rgb"], firsts[1]["rgb"])
    for calls in (2, PERIOD):
        varied, plain, again = (play(env, calls) for env in envs)
        assert equal(varied, plain, "depth", "semantic", "pointgoal") and equal(varied, again, "rgb")
        assert not equal(varied, plain, "rgb")
    first = envs[0].reset(seed=5)[0]
    assert torch.equal(first["rgb"], firsts[0]["rgb"])


@devices
def test_environments_of_one_bank_randomise_independently(houses, library, device):
    bank = SceneBank.pack(houses, device, True, library)
    before = bank.appearance.materials.view(torch.int32).clone()  # bits: some are no floats
    one, other, alone = make(bank, "auto", None), make(bank, "auto", None), make(houses, device, library)
    first = one.reset()[0]["rgb"]
    other.reset(seed=8)
    assert torch.equal(one.observe()["rgb"], first)
    play(other, PERIOD)
    alone.reset()
    assert equal(play(one, PERIOD + 2), play(alone, PERIOD + 2), "rgb")
    assert torch.equal(bank.appearance.materials.view(torch.int32), before)
    assert one.bank.appearance.texels is other.bank.appearance.texels  # all else is shared


@devices
def test_resumes_exactly(houses, library, device):
    env = make(houses, device, library)
    env.reset()
    play(env, PERIOD + 3)
    saved = env.state_dict()
    expected = play(env, PERIOD)
    other = make(houses, device, library)
    other.reset(seed=8)
    other.load_state_dict(saved)
    found = play(other, PERIOD)
    assert equal(found, expected, "rgb", "depth", "pointgoal")
    other.load_state_dict(saved)
    assert equal(play(other, PERIOD), expected, "rgb")
    with pytest.raises(CheckpointError, match="'num_randomizations': found -1 to -1"):
        other.load_state_dict(saved | {"num_randomizations": torch.tensor([-1])})


def test_states_load_with_and_without_a_material_library(houses, library):
    plain, varied = make(houses, "cpu", None), make(houses, "cpu", library)
    for env in (plain, varied):
        env.reset()
        play(env, 2)
    without, with_count = plain.state_dict(), varied.state_dict()
    assert "num_randomizations" not in without and with_count["num_randomizations"] == 2
    varied.load_state_dict(without)
    assert varied.state_dict()["num_randomizations"] == 0 and equal(play(varied, 1), play(plain, 1), "depth")
    plain.load_state_dict(with_count)


@devices
def test_streamed_scenes_are_randomised(houses, library, room, device):
    scenes = {scene.name: scene for scene in (*houses, room, houses[0]._replace(name="again"))}
    capacity = SceneSize.largest(map(SceneSize.of, scenes.values()))
    bank = ResidentSceneBank([capacity] * 2, device, COLOR_FIELDS, library)
    for slot, scene in enumerate((room, houses[1])):
        bank.replace(slot, scene)
    materials, finish = sampled_materials(bank, count=4)
    resident = SceneBank.pack([houses[1]], device, COLOR_FIELDS, library)
    (rows,), (own,) = by_house(bank), by_house(resident)
    assert np.array_equal(materials[: len(finish)][rows][:, :3], sampled_materials(resident, count=4)[0][own][:, :3])
    runs = []
    for _ in range(2):
        env = make(SceneStream(list(scenes), scenes.__getitem__, capacity, 2, 1), device, library)
        env.reset()
        runs.append(play(env, 12))
        env.close()
    assert equal(*runs, "rgb", "depth")


class Allocations(TorchDispatchMode):
    """Notes the bytes of each memory that tensors have."""

    def __init__(self):
        super().__init__()
        self.bytes_at = {}

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        result = function(*args, **(kwargs or {}))
        if isinstance(result, torch.Tensor):
            memory = result.untyped_storage()
            self.bytes_at[memory.data_ptr()] = memory.nbytes()
        return result


def test_resident_scenes_allocate_their_textures_once(houses, library):
    capacity = SceneSize.largest(map(SceneSize.of, houses))
    with Allocations() as noted:
        bank = ResidentSceneBank([capacity] * 8, "cpu", COLOR_FIELDS, library)
    texels = bank.appearance.texels.nbytes
    slots = 8 * capacity.appearance.texels * bank.appearance.texels.element_size()
    assert slots > texels / 2
    assert [size for size in noted.bytes_at.values() if size >= slots] == [texels]


def test_invalid_uses_of_randomised_materials_are_refused(houses, library, room):
    with pytest.raises(ArgumentError, match="material_library: found one for a bank without colours"):
        make(houses, "cpu", library, sensors=("depth",))
    with pytest.raises(ArgumentError, match="material_library: found one with a SceneBank"):
        make(SceneBank.pack(houses, "cpu", True), "cpu", library)
    scenes = {"houses": 0, "sources": ["a.glb", "b.glb"], "randomize_materials": True}
    run = from_dict(TrainingConfig, {"env": {"sensors": ["rgb"]}, "scenes": scenes, "device": "cpu"})
    with pytest.raises(
        ConfigError, match="randomize_materials: found true with 2 scenes from files, expected procedural houses"
    ):
        training.make_environment(run, Ranks(torch.device("cpu")))
    with pytest.raises(
        ConfigError, match="randomize_materials: found true with sensors depth, expected a sensor that reads colour"
    ):
        from_dict(TrainingConfig, {"scenes": {"randomize_materials": True}})
    surface = room.mesh.surface
    with pytest.raises(MeshError, match=r"surface.finish: found int32 \[3, 4\], expected int32 \[\d+, 4\]"):
        check_surface(surface._replace(finish=np.zeros((3, 4), np.int32)), len(room.mesh.faces), "room")


def test_training_randomises_and_validation_does_not():
    scenes, ppo = {"houses": 1, "first_house": 7, "randomize_materials": True}, {"num_envs": 2, "minibatches": 1}
    run = from_dict(TrainingConfig, {"env": {"sensors": ["rgb"]}, "scenes": scenes, "ppo": ppo, "device": "cpu"})
    assert training.make_environment(run, Ranks(torch.device("cpu"))).bank.material_sampler is not None
    slots = dataclasses.replace(run, scenes=dataclasses.replace(run.scenes, houses=3, resident_scenes=2))
    assert training.make_environment(slots, Ranks(torch.device("cpu"))).bank.material_sampler is not None
    episodes = load_episodes(EPISODES / "val.json.gz")
    assert training.fixed_episodes(episodes[:1], run, torch.device("cpu"), 1).bank.material_sampler is None


def test_prepared_scenes_keep_finishes(houses, tmp_path):
    save_prepared(houses[0], tmp_path / "a.scene")
    found = load_prepared(tmp_path / "a.scene").mesh.surface.finish
    assert np.array_equal(found, houses[0].mesh.surface.finish)


def test_the_kernel_compiles_for_the_gpu(compile_ptx):
    rows, read = nb.int32[:, ::1], (nb.int32[::1], nb.int64[::1], nb.int64, nb.boolean, nb.int32)
    ptx = compile_ptx(material_sampling.sample_material, rows, *read, nb.float32[:, ::1])
    assert ".f64" not in ptx and "ld.global.v4" in ptx and "st.global.v4" in ptx


# Houses in colour: the same triangles, every one of them part of a thing, made of something, with its place in it

SEEDS = (0, 7, 17, 110_005)
EVERYWHERE = {"wall", "floor", "ceiling", "doorframe", "baseboard", "lighting"}


@pytest.fixture(scope="module")
def seeded():
    return {seed: make_house(seed, surface=True) for seed in SEEDS}


def corners(mesh) -> np.ndarray:
    return mesh.vertices[mesh.faces].astype(np.float64)


def textured(surface) -> np.ndarray:
    return np.array([material.texture >= 0 for material in surface.materials])[surface.material]


def named(surface) -> np.ndarray:
    return np.array(surface.categories)[surface.category]


def test_triangles_are_the_same_with_and_without_surface(seeded):
    for seed, house in seeded.items():
        plain = make_house(seed)
        assert plain.surface is None
        assert plain.vertices.tobytes() == house.vertices.tobytes() and plain.faces.tobytes() == house.faces.tobytes()


def test_surfaces_are_whole(seeded):
    for house in seeded.values():
        surface = check_surface(house.surface, len(house.faces), "house")
        assert surface.categories == CATEGORIES and surface.color is None
        assert np.isfinite(surface.uv).all() and surface.uv.min() >= 0.0
        assert surface.object_id.min() >= 1 and (surface.category > 0).all()
        assert set(named(surface)) >= EVERYWHERE
        numbers = np.unique(surface.object_id)
        assert 60 < len(numbers) < 3000
        for number in numbers:  # a thing is of one category
            assert len(np.unique(surface.category[surface.object_id == number])) == 1


def test_floors_face_up_and_ceilings_down(seeded):
    for house in seeded.values():
        a, b, c = np.moveaxis(corners(house), 1, 0)
        up, names = np.cross(b - a, c - a)[:, 1], named(house.surface)
        assert (up[names == "floor"] > 0).all() and (up[names == "ceiling"] < 0).all()
        assert np.abs(up[names == "wall"]).max() < 1e-9
        assert house.vertices[house.faces[names == "floor"]][..., 1].max() == 0.0


def test_a_metre_is_as_many_texels_everywhere_on_a_texture(seeded):
    """UVs are planar, in metres: an edge that lies in its triangle's plane of projection keeps its length."""
    house = seeded[0]
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


def test_materials_are_told_apart(seeded):
    """Walls, floors and ceilings of a house differ, and so do seeded."""

    def mean(surface, name):
        material = surface.materials[np.bincount(surface.material[named(surface) == name]).argmax()]
        pixels = surface.textures[material.texture].pixels if material.texture >= 0 else np.full((1, 1, 4), 255)
        return np.array(material.color[:3]) * pixels[..., :3].mean((0, 1)) / 255

    floors = [mean(house.surface, "floor") for house in seeded.values()]
    ceilings = [mean(house.surface, "ceiling") for house in seeded.values()]
    assert all(np.abs(f - c).max() > 0.05 for f, c in zip(floors, ceilings, strict=True))
    assert len({tuple(np.round(floor, 2)) for floor in floors}) == len(floors)
    for house in seeded.values():
        assert len(house.surface.materials) > 100 and len(house.surface.textures) > 20


def test_all_houses_share_one_library(seeded):
    """So a bank stores a texture once: what a thousand seeded take is bounded by the library."""
    pixels = [{id(t.pixels) for t in house.surface.textures} for house in seeded.values()]
    library = {id(texture(row).pixels) for row in range(len(LIBRARY))}
    assert all(found <= library for found in pixels) and pixels[0] & pixels[1]
    packed = pack_appearance([house.surface and house for house in seeded.values()], COLOR_FIELDS, {"": 0})
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
        chosen = floor & (surface.material == material)
        ratio = area[chosen] / in_texture[chosen]
        assert ratio.std() < 0.1 * ratio.mean()
    assert floor.sum() > 100


def test_the_cache_keeps_surfaces_for_those_who_want_them():
    """Made, then read from the disk, with and without: the same triangles."""
    made, again = load_scene("house:5"), load_scene("house:5")
    bare = load_scene("house:5", appearance=False)
    assert bare.mesh.surface is None and bare.categories == ("",)
    assert again.categories == CATEGORIES
    for name in ("material", "uv", "object_id", "category"):
        np.testing.assert_array_equal(getattr(made.mesh.surface, name), getattr(again.mesh.surface, name))
    assert made.mesh.surface.materials == again.mesh.surface.materials
    pictures = [[id(t.pixels) for t in scene.mesh.surface.textures] for scene in (made, again)]
    assert pictures[0] == pictures[1]  # the library's own
    assert made.mesh.vertices.tobytes() == bare.mesh.vertices.tobytes()
    assert load_scene("scan:5").categories == CATEGORIES


# Random lights, and pictures of a folder as materials


def test_random_lights_darken_surfaces_but_not_lamps_and_windows(houses, library):
    lit, again = with_lights(houses[0].mesh, 7), with_lights(houses[0].mesh, 7)
    old, new = houses[0].mesh.surface, check_mesh(lit, "lit").surface
    assert new.color.tobytes() == again.surface.color.tobytes() and new.materials == again.surface.materials
    assert with_lights(houses[0].mesh, 8).surface.color.tobytes() != new.color.tobytes()
    shown = [
        np.array([material.color[:3] for material in surface.materials])[surface.material] for surface in (old, new)
    ]
    tint = new.color[:, :, :3].mean(1) / 255.0
    brightness = (shown[1] * tint).sum(1) / shown[0].sum(1)
    assert brightness.max() <= 1.0 + 1e-3 and 0.2 < brightness.mean() < 0.9
    kinds = new.finish[new.material, 1] // (len(TEXTURE_FAMILIES) + 1)
    shining = np.isin(kinds, [list(FINISHES).index(name) for name in ("pane", "lamp", "shade")])
    assert shining.any() and (abs(brightness[shining] - 1.0) < 1e-6).all()
    large = tint[(tint < 1.0).any(1)]
    assert len(large) > 1000 and large.std(0).min() > 0.03 and abs(large[:, 0] - large[:, 2]).max() > 0.05
    # randomised materials keep the light
    scene = houses[0]._replace(mesh=lit)
    bank = SceneBank.pack([scene], "cpu", COLOR_FIELDS, library)
    bank.randomize_materials(torch.tensor([3]), 0)
    finish, brightest = bank.appearance.finish.numpy(), bank.appearance.materials.numpy()[:, :3].max(1)
    light = (finish[:, 3] >> 1) / LIGHT_STEPS
    random = finish[:, 2] >= 0
    assert (brightest[: len(light)] <= light + 1e-6)[random].all() and light[random].min() < 0.5


@pytest.fixture
def pictures(tmp_path):
    """A folder with a red and a green wall, a blue floor, and brown furniture."""
    folder = tmp_path / "mine"
    for name, color in {"wall/red": (200, 0, 0), "wall/green": (0, 200, 0), "floor/blue": (0, 0, 200)}.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        Image.new("RGB", (40, 20), color).save(folder / f"{name}.png")
    (folder / "furniture").mkdir()
    Image.new("RGB", (600, 300), (120, 60, 20)).save(folder / "furniture" / "brown.jpg")
    (folder / "sizes.yaml").write_text("floor/*: 0.5\nwall/red: 2\n")
    return folder


def colours_of(surface):
    """f64 [F, 3]: hue of each triangle, its largest channel 1."""
    rows = []
    for material in surface.materials:
        texture = 255.0 if material.texture < 0 else surface.textures[material.texture].pixels[..., :3].mean((0, 1))
        rows.append(np.array(material.color[:3]) * texture)
    shown = np.array(rows)[surface.material]
    return shown / shown.max(1, keepdims=True)


def test_pictures_are_the_materials_of_a_scene(pictures):
    name = f"house:7?materials={pictures}"
    made, again, plain = load_scene(name), load_scene(name), load_scene("house:7")
    surface = check_surface(made.mesh.surface, len(made.mesh.faces), name)
    for field in ("material", "uv", "finish"):
        np.testing.assert_array_equal(getattr(surface, field), getattr(again.mesh.surface, field))
    assert made.mesh.vertices.tobytes() == plain.mesh.vertices.tobytes()
    of, hue = named(surface), colours_of(surface)
    assert (hue[of == "floor"] == (0, 0, 1)).all()
    walls = {tuple(row) for row in hue[of == "wall"].tolist()}
    assert walls == {(1, 0, 0), (0, 1, 0)}
    ceiling = of == "ceiling"
    np.testing.assert_array_equal(hue[ceiling], colours_of(plain.mesh.surface)[ceiling])
    assert (abs(hue[of == "wardrobe"] - (1.0, 0.5, 1 / 6)) < 0.05).all(1).mean() > 0.3
    pictured = np.array([material.texture >= len(plain.mesh.surface.textures) for material in surface.materials])
    assert pictured.any() and (surface.finish[: len(pictured)][pictured, 1] == -1).all()  # never randomised
    # a picture of 0.5 x 0.25 m on the floor, of 2 x 1 m on red walls, of 1 x 0.5 m on green ones
    points, uv = corners(made.mesh), surface.uv.astype(float)
    area = np.linalg.norm(np.cross(points[:, 1] - points[:, 0], points[:, 2] - points[:, 0]), axis=1)
    e, f = uv[:, 1] - uv[:, 0], uv[:, 2] - uv[:, 0]
    tiles = np.abs(e[:, 0] * f[:, 1] - e[:, 1] * f[:, 0])
    for chosen, tile in ((of == "floor", 0.125), ((hue == (1, 0, 0)).all(1), 2.0), ((hue == (0, 1, 0)).all(1), 0.5)):
        large = chosen & (area > 0.5)
        np.testing.assert_allclose(area[large] / tiles[large], tile, rtol=0.02)
    assert max(texture.pixels.shape[1] for texture in surface.textures) <= 256
    Image.new("RGB", (40, 20), (200, 0, 200)).save(pictures / "floor" / "blue.png")
    (changed,) = load_all([name])
    assert (colours_of(changed.mesh.surface)[of == "floor"] == (1, 0, 1)).all()


@pytest.mark.parametrize("family", ["hall:4", "building:2", "scan:5"])
def test_every_family_takes_lights_and_pictures(pictures, family):
    scene = load_scene(f"{family}?lights=random&materials={pictures}")
    surface = check_surface(scene.mesh.surface, len(scene.mesh.faces), family)
    floor = named(surface) == "floor"
    assert (colours_of(surface)[floor] == (0, 0, 1)).mean() > 0.9 and (surface.color[floor, :, :3] < 255).any()


def test_bad_pictures_are_refused(pictures, tmp_path):
    refused = lambda: load_scene(f"house:7?materials={pictures}")  # noqa: E731
    (pictures / "sizes.yaml").write_text("floor/oak: 1\n")
    with pytest.raises(MeshError, match=r"floor/oak.*: found no such picture, expected one of floor/blue"):
        refused()
    (pictures / "sizes.yaml").write_text("floor/blue: wide\n")
    with pytest.raises(MeshError, match=r"found .*wide.*, expected a width from 0\.01 to 100 metres"):
        refused()
    (pictures / "sizes.yaml").unlink()
    (pictures / "wall" / "red.png").write_bytes(b"no picture")
    with pytest.raises(MeshError, match=r"red\.png: is not an image of PNG"):
        refused()
    whole = (pictures / "furniture" / "brown.jpg").read_bytes()
    (pictures / "wall" / "red.png").write_bytes(whole[: len(whole) // 2])
    with pytest.raises(MeshError, match=r"red\.png: cannot be decoded"):
        refused()
    (pictures / "wall" / "red.png").unlink()
    (pictures / "walls").mkdir()
    with pytest.raises(MeshError, match=r"found folders .*walls.*, expected some of wall, floor, ceiling, furniture"):
        refused()
    (tmp_path / "empty").mkdir()
    with pytest.raises(MeshError, match=r"empty: found no pictures, expected \.jpg"):
        load_scene(f"house:7?materials={tmp_path / 'empty'}")
