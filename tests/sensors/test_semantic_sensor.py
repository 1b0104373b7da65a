"""Semantic and instance ids: equal to the triangles of the brute-force renderer; one list of names per bank."""

import numpy as np
import pytest
import torch
from frames import bodies_at, make_frame, observe, room_scene
from numba import types as nb
from render_reference import visibility_reference

import batchnav
from batchnav.errors import ArgumentError, ConfigError
from batchnav.geometry.pose import tan_half
from batchnav.procedural import make_house
from batchnav.renderers.raycast import RaycastRenderer
from batchnav.scene.bank import BVHData, SceneBank
from batchnav.scene.resident import ResidentSceneBank, SceneSize
from batchnav.scene.scene import make_scene
from batchnav.sensors import object_pixels, semantic
from batchnav.sensors.camera import MAIN, CameraConfig
from batchnav.sensors.frame import GivenImages
from batchnav.sensors.normals import NormalSensor
from batchnav.sensors.semantic import Ids, InstanceSensor, SemanticSensor
from batchnav.sensors.sensor import Cameras
from batchnav.types import Material, Surface
from tests.labelled import labelled_scene

WALL, FLOOR, CEILING = 1, 2, 3
HEADINGS = np.float32([0.0, 0.7, -2.0, 3.1])


def named_room(names=("", "wall", "floor", "ceiling"), first_id=10):
    """The room, with categories by the direction of its faces."""
    scene = room_scene()
    a, b, c = (scene.mesh.vertices[scene.mesh.faces[:, k]].astype(float) for k in range(3))
    up = np.cross(b - a, c - a)[:, 1]
    kind = np.where(up > 1e-6, FLOOR, np.where(up < -1e-6, CEILING, WALL))
    category = np.array([names.index(("", "wall", "floor", "ceiling")[k]) for k in kind], np.int32)
    ids = np.arange(len(kind), dtype=np.int32) + first_id
    surface = Surface(
        np.zeros(len(kind), np.int32), (Material(),), object_id=ids, category=category, categories=tuple(names)
    )
    return make_scene("room", scene.mesh._replace(surface=surface), scene.navmesh)


def seen(bank, position, heading, scene=0, names=("semantic", "instance"), camera=None):
    bodies = bodies_at(position, heading, bank.device, scene)
    return observe(*make_frame(bank, bodies, camera or CameraConfig(height=16, width=24), list(names)))


def test_a_room_reads_wall_floor_and_ceiling(device):
    bank = SceneBank.pack([named_room()], device, appearance=("category", "object_id"))
    found = seen(bank, [[0, 0, 0]] * 4, HEADINGS)["semantic"][:, 0]
    assert bank.categories == ("", "wall", "floor", "ceiling")
    above, ahead, below = found[:, 0, 12], found[:, 7:9, 12], found[:, -1, 12]
    assert (above == CEILING).all() and (ahead == WALL).all() and (below == FLOOR).all()


def test_ids_follow_the_reference_renderers_triangles(device):
    """Exact where both renderers see the same triangle; at ties the id of either is accepted."""
    scene = make_scene("house:2", make_house(2, surface=True))
    bank, camera = SceneBank.pack([scene], device, appearance=("category", "object_id")), CameraConfig(16, 24)
    places = scene.navmesh.sample(2, seed=0)
    found = seen(bank, places, HEADINGS[:2], camera=camera)
    eyes = places + np.array([0.0, camera.camera_height, 0.0])
    compared = agree = 0
    for i, heading in enumerate(HEADINGS[:2]):
        _, triangle = visibility_reference(scene.mesh, eyes[i], heading, camera.height, camera.width, camera.hfov_deg)
        surface = scene.mesh.surface
        for name, ids in (("semantic", surface.category), ("instance", surface.object_id)):
            expected = np.where(triangle >= 0, ids[np.maximum(triangle, 0)], 0)
            same = found[name][i, 0] == expected
            compared, agree = compared + same.size, agree + same.sum()
    assert agree >= 0.998 * compared


def test_ids_follow_the_renderers_own_triangles(device):
    scenes = [named_room(), make_scene("house:2", make_house(2, surface=True))]
    bank, camera = SceneBank.pack(scenes, device, appearance=("category", "object_id")), CameraConfig(24, 32)
    bodies = bodies_at(scenes[1].navmesh.sample(4, seed=1), HEADINGS, device, scene=1)
    frame, sensors = make_frame(bank, bodies, camera, ["semantic", "instance"])
    found = observe(frame, sensors)
    triangle = frame.renderers[MAIN, 1].visibility(*frame.cameras(MAIN).poses).triangle.cpu().numpy()
    own = np.maximum(triangle - len(scenes[0].mesh.faces), 0)
    surface = scenes[1].mesh.surface
    np.testing.assert_array_equal(found["instance"][:, 0], np.where(triangle >= 0, surface.object_id[own], 0))
    names = np.array(bank.categories)[found["semantic"][:, 0]]
    expected = np.where(triangle >= 0, np.array(surface.categories)[surface.category[own]], "")
    np.testing.assert_array_equal(names, expected)


def test_holes_and_unknown_ids_read_zero(device):
    bank = SceneBank.pack([named_room()], device, appearance=True)
    outside = seen(bank, [[0, 50, 0]], [0.0])
    assert (outside["semantic"] == 0).all() and (outside["instance"] == 0).all()
    plain = SceneBank.pack([room_scene()], device, appearance=True)
    assert plain.categories == ("",)
    inside = seen(plain, [[0, 0, 0]], [0.0])
    assert (inside["semantic"] == 0).all() and (inside["instance"] == 0).all()


def test_scenes_of_a_bank_share_one_list_of_names(device):
    """By name, independent of each scene's numbering and of its name of row 0."""
    first = named_room()
    second = named_room(("unknown", "ceiling", "sofa", "wall", "floor"))
    bank = SceneBank.pack([first, second], device, appearance=("category",))
    assert bank.categories == ("", "wall", "floor", "ceiling", "sofa")
    assert second.categories[0] == "unknown"
    images = [seen(bank, [[0, 0, 0]], [0.7], scene, ["semantic"])["semantic"] for scene in (0, 1)]
    np.testing.assert_array_equal(*images)


def test_slots_share_one_list_that_grows(device):
    first, second = named_room(), named_room(("", "sofa", "floor", "wall", "ceiling"))
    bank = ResidentSceneBank(
        [SceneSize.largest(map(SceneSize.of, (first, second)))] * 2, device, appearance=("category",)
    )
    bank.replace(0, first)
    assert bank.categories == ("", "wall", "floor", "ceiling")
    bank.replace(1, second)
    assert bank.categories == ("", "wall", "floor", "ceiling", "sofa")
    images = [seen(bank, [[0, 0, 0]], [0.7], slot, ["semantic"])["semantic"] for slot in (0, 1)]
    np.testing.assert_array_equal(*images)


def test_spec():
    for sensor, name in ((SemanticSensor, "semantic"), (InstanceSensor, "instance")):
        spec = sensor(CameraConfig(height=6, width=9)).spec
        assert (spec.name, spec.shape) == (name, (1, 6, 9))
        assert {spec.stored_on(torch.device(kind)) for kind in ("cpu", "cuda")} == {torch.int32}
        box = spec.box
        assert box.dtype == "int32" and box.low.min() == 0 and box.high.max() == 2**31 - 1


@pytest.mark.parametrize("kind", [SemanticSensor, InstanceSensor, NormalSensor])
def test_triangles_that_are_missing_or_of_another_size_are_refused(kind):
    """The sensors check sizes, since kernels check nothing."""
    bank, sensor = SceneBank.pack([named_room()], appearance=True), kind(CameraConfig(8, 12))
    out = torch.zeros(2, *sensor.spec.shape, dtype=sensor.spec.dtype)
    sight = Cameras.level(torch.zeros(2, dtype=torch.int32), torch.zeros(2, 3), torch.zeros(2))
    depth, triangle = torch.zeros(2, 8, 8), torch.zeros(2, 8, 8, dtype=torch.int32)
    with pytest.raises(ArgumentError, match=r"found triangles \[2, 8, 8\], expected \[2, 8, 12\]"):
        sensor.write(GivenImages(depth, triangle, sight, bank.appearance), out)
    with pytest.raises(ArgumentError, match="triangles: found none"):
        sensor.write(GivenImages(depth, None, sight, bank.appearance), out)


def test_ids_in_an_environment():
    env = batchnav.NavEnv([named_room()], 2, "cpu", sensors=("depth", "semantic", "instance"), height=8, width=8)
    observation, _ = env.reset(seed=0)
    assert env.bank.appearance_fields == {"category", "object_id"}
    assert observation["semantic"].dtype == torch.int32 and env.storage["semantic"] == torch.int32
    assert set(observation["semantic"].unique().tolist()) <= {WALL, FLOOR, CEILING}
    assert env.single_observation_space["instance"].contains(observation["instance"][0].numpy())


def test_a_policy_of_float_images_refuses_ids():
    from batchnav.policy.actor_critic import ActorCritic
    from batchnav.policy.config import PolicyConfig

    env = batchnav.NavEnv([named_room()], 2, "cpu", sensors=("semantic",), height=32, width=32)
    with pytest.raises(ConfigError, match="semantic"):
        ActorCritic(env.single_observation_space, env.single_action_space, PolicyConfig())


def test_images_of_ids():
    found = batchnav.render(named_room(), [0, 1.25, 0], 0.0, sensors=("semantic", "instance"), height=8, width=12)
    assert found["semantic"].shape == (1, 8, 12) and found["semantic"].dtype == np.int32
    assert (found["instance"] >= 10).all()


def test_cuda_kernel_compiles(compile_ptx):
    ints = nb.Array(nb.int32, 1, "C")
    ptx = compile_ptx(semantic.look_up, ints, ints, ints)
    assert ".f64" not in ptx and "div" not in ptx


def test_ids_of_tiles_compile_to_ptx_without_double_precision(compile_ptx):
    floats = {n: nb.Array(nb.float32, n, "C") for n in (1, 2, 3)}
    ints = {n: nb.Array(nb.int32, n, "C") for n in (1, 2, 3, 4)}
    ids = nb.NamedTuple((ints[1], floats[2], ints[2]), semantic.Ids)
    poses = floats[2], floats[1], floats[1], floats[1]
    ptx = compile_ptx(semantic._tiled_cuda, ints[3], floats[3], *poses, ids, nb.int32, ints[4])
    assert ".f64" not in ptx and "ld.global.v4" in ptx


# Numbers of pixels that show an object: a closed form, the renderer's images, cuda and the compiled kernel

IMAGE = 240, 320, 90.0


def pixels_of(scene, position, heading, object_id, device="cpu", pitch=0.0, image=IMAGE, **limits):
    """Number of pixels of each view of one object."""
    mesh = scene.mesh
    points = mesh.vertices[mesh.faces[mesh.surface.object_id == object_id]].reshape(-1, 3)
    n = len(heading)
    objects = object_pixels.Objects(
        np.zeros(1, np.int32), np.array([object_id], np.int32), np.array([(*points.min(0), *points.max(0))], np.float32)
    )
    height, width, hfov_deg = image
    views = object_pixels.Views(
        np.asarray(position, np.float32), np.asarray(heading, np.float32), np.full(n, pitch, np.float32),
        np.full(n, tan_half(hfov_deg)), np.zeros(n, np.int32),
    )  # fmt: skip
    rays = object_pixels.ObjectRays([scene], objects, torch.device(device))
    return rays.pixels(views, (height, width), **limits).cpu().numpy()


def test_a_square_covers_its_share_of_the_image(device):
    """A square of side a at depth z covers (160 a / z)^2 pixels of 320 x 240 with 90 degrees."""
    scene = labelled_scene([("tv", (-0.25, 0.75, -2.0), (0.25, 1.25, -1.9))])
    found = pixels_of(scene, [(0, 1.0, z - 1.9) for z in (1.0, 0.5, 2.0)], [0.0] * 3, 2, device)
    assert found.tolist() == [6400, 25600, 1600]


def test_a_square_behind_the_camera_or_beyond_the_depth_has_no_pixels(device):
    scene = labelled_scene([("tv", (-0.25, 0.75, -2.0), (0.25, 1.25, -1.9))])
    place = [(0, 1.0, -0.9)]
    assert pixels_of(scene, place, [np.pi], 2, device).tolist() == [0]
    assert pixels_of(scene, place, [0.0], 2, device, max_depth=0.99).tolist() == [0]
    assert pixels_of(scene, place, [0.0], 2, device, max_depth=1.01).tolist() == [6400]


@pytest.mark.parametrize("pitch", [0.0, -0.5, 0.5])
def test_counts_are_those_of_the_renderers_images(device, pitch):
    """In a furnished house, for objects beside, around and behind the camera."""
    scene = make_scene("house:2", make_house(2, surface=True))
    ids = scene.mesh.surface.object_id
    places = scene.navmesh.sample(24, seed=1).astype(float) + np.array([0.0, 1.0, 0.0])
    headings = np.linspace(-3.0, 3.0, len(places)).astype(np.float32)
    image = 60, 80, 90.0
    renderer = RaycastRenderer(SceneBank.pack([scene], device), len(places), *image)
    poses = [torch.zeros(len(places), dtype=torch.int32), torch.tensor(places, dtype=torch.float32)]
    poses += [torch.tensor(headings), torch.full((len(places),), pitch)]
    _, triangle = renderer.visibility(*(pose.to(device) for pose in poses))
    seen = np.where((triangle := triangle.cpu().numpy()) >= 0, ids[np.maximum(triangle, 0)], 0)
    most_seen = np.argsort(-np.bincount(seen[seen > 0]))[:12]
    assert np.isin(most_seen, ids).all()
    for object_id in most_seen.tolist():
        expected = (seen == object_id).sum((1, 2))
        found = pixels_of(scene, places, headings, object_id, device, pitch, image)
        # One pixel on an outline may round differently; of triangles of two objects in one plane either may win.
        assert np.abs(found - expected).max() <= (1 if device == "cpu" else 0.002 * image[0] * image[1])


@pytest.mark.cuda
def test_cpu_and_cuda_count_the_same():
    """Up to pixels on outlines, where devices round differently."""
    scene = make_scene("house:2", make_house(2, surface=True))
    places = scene.navmesh.sample(64, seed=3).astype(float) + np.array([0.0, 1.0, 0.0])
    headings = np.linspace(-3.0, 3.0, len(places)).astype(np.float32)
    total = differ = 0
    for object_id in np.unique(scene.mesh.surface.object_id)[:40].tolist():
        cpu, cuda = (pixels_of(scene, places, headings, object_id, device) for device in ("cpu", "cuda"))
        total, differ = total + cpu.sum(), differ + np.abs(cpu - cuda).sum()
    assert differ <= 1e-4 * total


def test_the_kernels_compile_to_ptx_without_double_precision(compile_ptx):
    floats = {n: nb.Array(nb.float32, n, "C") for n in (1, 2)}
    ints = {n: nb.Array(nb.int32, n, "C") for n in (1, 2)}
    bvh = nb.NamedTuple((floats[2], floats[2], ints[1], ints[1]), BVHData)
    ids = nb.NamedTuple((ints[1], floats[2], ints[2]), Ids)
    views = nb.NamedTuple((floats[2], floats[1], floats[1], floats[1], ints[1]), object_pixels.Views)
    objects = nb.NamedTuple((ints[1], ints[1], floats[2]), object_pixels.Objects)
    size, limits = (nb.int32, nb.int32), (floats[1], ints[2])
    ptx = compile_ptx(object_pixels.count_cuda, bvh, bvh, objects, ids, views, *limits, *size, ints[1])
    assert ".f64" not in ptx and "ld.global.v4" in ptx
    ptx = compile_ptx(object_pixels.bound.cuda, nb.int64, objects, views, *size, nb.float32, *limits)
    assert ".f64" not in ptx
