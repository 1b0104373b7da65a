"""Every kind of file that is loaded: a good one, made here; how it is used; how it is broken with knowledge."""

from __future__ import annotations

import dataclasses
import json
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import DracoPy
import mutate
import numpy as np
import torch
import trimesh
import yaml
from gymnasium import spaces
from PIL import Image

from batchnav.config import load_config, to_dict
from batchnav.data.episodes import Episode, Goal, episode_table, group_by_scene
from batchnav.data.formats import EpisodeDataset, load_episodes, multion
from batchnav.data.formats.instance_imagenav import image_goal
from batchnav.data.formats.objectnav import FileGoal, ObjectNavEpisode, goals_key, header_of
from batchnav.data.gazebo import read_world
from batchnav.data.goals import GOALS
from batchnav.data.goals.embedding import read_embeddings
from batchnav.data.goals.instance import generate_instances
from batchnav.data.goals.rules import labels_named
from batchnav.data.procthor import make_procthor_house, read_houses
from batchnav.data.scenes.prepared import load_prepared, save_prepared
from batchnav.data.scenes.scene_dataset import SceneDatasetConfig, read_urdf
from batchnav.data.scenes.source import mesh_source
from batchnav.data.sequences import CATEGORY, DESCRIPTION, INSTANCE, POINT, SequenceEpisode, Subtask
from batchnav.envs.config import NavConfig
from batchnav.envs.observations import specs_of
from batchnav.navmesh.navmesh import NavMesh
from batchnav.policy import ActorCritic, load_policy, save_policy
from batchnav.policy.agent import PolicyAgent
from batchnav.renderers.raycast import RaycastRenderer
from batchnav.runtime.files import safetensors_bytes
from batchnav.scene.bank import SceneBank
from batchnav.scene.blocks import compress
from batchnav.scene.bvh import build_bvh
from batchnav.scene.goals import ObjectGoal, SceneGoals
from batchnav.scene.mesh import load_mesh
from batchnav.scene.ros_map import RosMap, write_map
from batchnav.scene.scene import Scene, make_scene
from batchnav.sensors.camera import CameraConfig
from batchnav.sensors.frame import GivenImages
from batchnav.sensors.rgb import RGBSensor
from batchnav.sensors.sensor import Cameras
from batchnav.training.config import TrainingConfig
from batchnav.types import Material, Surface, Texture, TriangleMesh

sys.path.extend(str(Path(__file__).resolve().parents[1] / folder) for folder in (".", "scene"))
from files import Gltf, ktx2
from networks import policy_config
from run_kinds import run_kinds

INSTANCES = 2 * 2**30
"""Bytes that the triangles take which instances in glTF may make of any file."""


class Kind(NamedTuple):
    """One kind of file."""

    name: str
    path: Path
    use: Callable[[], None]
    """Loads the file, then asks and renders what came of it."""
    mutators: tuple[Callable, ...]
    spare: int = 100 * 2**20
    """Bytes that an input may take beside what its own size allows."""


def kinds(folder: Path) -> Iterator[Kind]:
    """All of them, their good files written below `folder`."""
    table = trimesh.creation.box((1, 1, 1), trimesh.transformations.translation_matrix([1, 0.6, 1]))
    box = trimesh.util.concatenate([trimesh.creation.box((6.0, 0.2, 8.0)), table])
    count = len(box.faces)
    look = Surface(
        np.arange(count, dtype=np.int32) % 2, (Material((0.5, 0.2, 1.0, 1.0)), Material(texture=0)),
        (Texture(np.arange(48, dtype=np.uint8).reshape(3, 4, 4)),), np.ones((count, 3, 2), np.float32),
        np.full((count, 3, 4), 99, np.uint8),
    )  # fmt: skip
    floor = make_scene("floor", TriangleMesh(np.float32(box.vertices), np.int32(box.faces), surface=look))
    blind = (mutate.blindly,)

    path = folder / "a.navmesh"
    floor.navmesh.save(path)
    yield Kind("navmesh", path, lambda path=path: ask(NavMesh.load(path)), (*blind, mutate.navmesh, mutate.navmesh))
    path = folder / "a.scene"
    save_prepared(floor, path)
    yield Kind("scene", path, lambda path=path: show(load_prepared(path)), (*blind, mutate.scene, mutate.scene))
    path = folder / "compact.scene"
    packed = look._replace(textures=tuple(each._replace(pixels=compress(each.pixels)) for each in look.textures))
    save_prepared(floor._replace(mesh=floor.mesh._replace(surface=packed)), path, compact=True)
    yield Kind("compact", path, lambda path=path: show(load_prepared(path)), (*blind, mutate.scene, mutate.scene))

    def see(path):
        mesh = load_mesh(path)
        show(Scene("mesh", mesh, floor.navmesh, build_bvh(mesh)))

    parts = trimesh.Scene([box])
    parts.add_geometry(box, transform=trimesh.transformations.rotation_matrix(1.0, [0, 1, 0]))
    structured = {"glb": (mutate.glb, mutate.glb), "gltf": (mutate.json_text, mutate.json_text)}
    for suffix in ("glb", "gltf", "obj", "off", "ply", "stl"):
        path = folder / suffix / f"a.{suffix}"
        path.parent.mkdir()
        if suffix == "gltf":
            for name, data in trimesh.exchange.gltf.export_gltf(parts).items():
                (path.parent / name).write_bytes(data)
            (path.parent / "model.gltf").rename(path)
        else:
            (parts if suffix == "glb" else box).export(path)
        spare = {"spare": INSTANCES} if suffix in structured else {}
        yield Kind(suffix, path, lambda path=path: see(path), (*blind, *structured.get(suffix, ())), **spare)

    path = folder / "draco.glb"
    path.write_bytes(_draco(box))
    yield Kind("draco", path, lambda path=path: see(path), (mutate.glb,), spare=INSTANCES)
    yield from _materials(folder / "materials", see)
    yield from _annotations(folder / "annotations")
    for name, path, use, mutators in run_kinds(folder, floor):
        yield Kind(name, path, use, mutators)
    path = folder / "text.ply"
    path.write_bytes(trimesh.exchange.ply.export_ply(box, encoding="ascii"))
    yield Kind("ply_text", path, lambda path=path: see(path), (*blind, mutate.digit))

    path = folder / "a.json.gz"
    walk = [
        Episode(str(k), "floor", (0.0, 0.1, 3.0), (0.0, 0.0, 0.0, 1.0), (Goal((0.0, 0.1, 2.0 - 0.5 * k), 0.2),))
        for k in range(3)
    ]
    EpisodeDataset(walk).save(path)
    yield Kind("episodes", path, lambda path=path: play(path, floor), (*blind, mutate.json_text, mutate.json_text))
    yield from _searches(folder / "searches", floor)
    yield from _sequences(folder / "sequences", floor)
    yield from _dataset(folder / "dataset")
    path = folder / "a.urdf"
    path.write_text(
        '<robot><link name="a"/><link name="b"><visual><origin xyz="1 2 3" rpy="0 1 0"/><geometry><mesh filename="b"'
        ' scale="1 1 1"/></geometry></visual></link><joint name="j" type="revolute"><parent link="a"/><child link="b"/>'
        '<axis xyz="0 0 1"/></joint></robot>'
    )
    yield Kind("urdf", path, lambda path=path: read_urdf(path, {"j": 0.5}), blind)
    path = folder / "houses.json"
    path.write_text(json.dumps(_house()))
    sizes = {"Cup": [0.1, 0.1, 0.1]}
    use = lambda path=path: [make_procthor_house(house, sizes) for house in read_houses(path)]  # noqa: E731
    yield Kind("procthor", path, use, (*blind, mutate.json_text, mutate.json_text))
    path = folder / "a.safetensors"
    space = spaces.Dict({"depth": spaces.Box(0.0, 1.0, (1, 16, 16)), "goal": spaces.Box(-np.inf, np.inf, (2,))})
    small = policy_config(base_width=4, visual_size=12, hidden_size=16, embedding_size=6, polar=("goal",))
    save_policy(ActorCritic(space, spaces.Discrete(4), small), path, {"frames": 7})
    yield Kind("policy", path, lambda path=path: act(load_policy(path)), (*blind, mutate.policy, mutate.policy))
    path = folder / "a.yaml"
    env = NavConfig(cameras={"left": CameraConfig(camera_pitch_deg=-30.0)})
    path.write_text(yaml.safe_dump(to_dict(TrainingConfig(env=env))))
    use = lambda path=path: configure(load_config(path, TrainingConfig))  # noqa: E731
    yield Kind("config", path, use, (*blind, mutate.yaml_text, mutate.yaml_text))
    labels = folder / "labels.yaml"
    labels.write_text('chair: ["*chair*", stool]\nshelf: "*shel?ing"\n')
    yield Kind("labels", labels, lambda: labels_named(str(labels)).category("my_ArmChair"), (*blind, mutate.yaml_text))
    yield from _of_robots(folder / "robots", box, see)


def _searches(folder: Path, floor: Scene) -> Iterator[Kind]:
    """Episodes of ObjectNav and Instance ImageNav, with two objects on the floor."""
    points = floor.navmesh.snap(np.float32([(0.0, 0.1, 3.0), (0.5, 0.1, 2.5)]))
    image = np.float32([(0.0, 1.0, 3.0, 0.5, -0.2, 1.2)])
    things = [
        ObjectGoal("chair", k, f"chair_{k}", (0.0, 0.5, 2.0), points, *np.float32([[0, 1], [0.5, 0.2]]), image)
        for k in (3, 12)
    ]
    walk = [
        ObjectNavEpisode(str(k), "floor", (0.0, 0.1, 2.0 - k), (0.0, 0.0, 0.0, 1.0), object_category="chair")
        for k in range(3)
    ]
    found = {goals_key("floor", "chair"): list(map(FileGoal.of, things))}
    path = folder / "objects.json.gz"
    EpisodeDataset(walk, "category", found, header_of({"chair": 0}, {"chair": 7}), "objectnav").save(
        path, content=False
    )
    use = lambda path=path: search(path, "category", floor)  # noqa: E731
    yield Kind("objectnav", path, use, (mutate.blindly, mutate.json_text, mutate.json_text))
    path = folder / "instances.json.gz"
    scene = floor._replace(goals=SceneGoals("test", tuple(things)).instances)
    generate_instances([scene], 3).save(path, content=False)
    use = lambda path=path: search(path, "instance", floor)  # noqa: E731
    yield Kind("instances", path, use, (mutate.blindly, mutate.json_text, mutate.json_text))


def _sequences(folder: Path, floor: Scene) -> Iterator[Kind]:
    """Goals in sequence: GOAT-Bench with an object, an image and a description, MultiON, and a tour; embeddings."""
    points = floor.navmesh.snap(np.float32([(0.0, 0.1, 3.0), (0.5, 0.1, 2.5)]))
    chair = ObjectGoal("chair", 3, "chair_3", (0.0, 0.5, 2.0), points, *np.float32([[0, 1], [0.5, 0.2]]))
    camera = image_goal(np.float32([0.0, 1.0, 3.0, 0.5, -0.2, 1.2]))
    goal = dataclasses.replace(FileGoal.of(chair), other={"lang_desc": "a chair", "image_goals": [camera]})
    start = (0.0, 0.1, 3.0), (0.0, 0.0, 0.0, 1.0)
    places = tuple(Goal((0.0, 0.1, 2.0 - k)) for k in range(2))
    objects = Subtask(CATEGORY, "chair"), Subtask(INSTANCE, "chair", "3"), Subtask(DESCRIPTION, "chair", "3")
    cylinders = Subtask(POINT, "cylinder_red"), Subtask(POINT, "cylinder_cyan")
    for format, subtasks, goals in (
        ("goat", objects, ()),
        ("multion", cylinders, places),
        ("tour", (Subtask(POINT),) * 2, places),
    ):
        path = folder / f"{format}.json.gz"
        walk = [SequenceEpisode(str(k), "floor", *start, goals, subtasks=subtasks) for k in range(2)]
        found = {goals_key("floor", "chair"): [goal]} if format == "goat" else {}
        header = multion.HEADER if format == "multion" else {}
        EpisodeDataset(walk, "sequence", found, header, format).save(path, content=False)
        use = lambda path=path: search(path, "sequence", floor)  # noqa: E731
        yield Kind(format, path, use, (mutate.blindly, mutate.json_text, mutate.json_text))
    path = folder / "a.safetensors"
    path.write_bytes(safetensors_bytes({name: np.ones(8, np.float32) for name in ("bed", "chair")}, {}))
    yield Kind("embeddings", path, lambda path=path: read_embeddings(path), (mutate.blindly,))


def _of_robots(folder: Path, box: trimesh.Trimesh, see: Callable[[Path], None]) -> Iterator[Kind]:
    """A ROS map and its image, a COLLADA file, and a Gazebo world."""
    folder.mkdir()
    cells = np.where(np.indices((12, 15)).sum(0) % 7 > 4, np.int8(100), np.int8(0))
    path, image = folder / "map.yaml", folder / "map.pgm"
    write_map(RosMap(cells, 0.25, (1.0, 2.0, 0.5)), path, "A line that damage may hit without effect.\n" * 12)
    yield Kind("map", path, lambda: see(path), (mutate.blindly, mutate.blindly, mutate.yaml_text))
    yield Kind("pgm", image, lambda: see(path), (mutate.blindly,))
    mesh = folder / "a.dae"
    mesh.write_bytes(trimesh.exchange.dae.export_collada([box]))
    yield Kind("dae", mesh, lambda: see(mesh), (mutate.blindly,))
    world = folder / "a.world"
    world.write_text(
        "<sdf version='1.7'><world name='w'><model name='table'><pose>1 2 3 0 0 0.5</pose><link name='l'>"
        "<visual name='v'><geometry><box><size>1 2 3</size></box></geometry></visual><visual name='m'><geometry><mesh>"
        "<uri>a.dae</uri><scale>1 1 1</scale></mesh></geometry></visual></link></model></world></sdf>"
    )
    yield Kind("world", world, lambda: read_world(world), (mutate.blindly,))


def _draco(box: trimesh.Trimesh) -> bytes:
    """A GLB of one mesh, compressed."""
    data, name = DracoPy.encode(np.float32(box.vertices), np.uint32(box.faces)), "KHR_draco_mesh_compression"
    data += b"\0" * (-len(data) % 4)
    primitive = {"attributes": {}, "extensions": {name: {"bufferView": 0, "attributes": {"POSITION": 0}}}}
    tree = {
        "asset": {"version": "2.0"}, "extensionsUsed": [name], "nodes": [{"mesh": 0}], "scenes": [{"nodes": [0]}],
        "buffers": [{"byteLength": len(data)}], "bufferViews": [{"buffer": 0, "byteLength": len(data)}],
        "meshes": [{"primitives": [primitive]}],
    }  # fmt: skip
    return mutate.pack_glb(tree, data)


def _materials(folder: Path, see: Callable[[Path], None]) -> Iterator[Kind]:
    """A textured box as GLB, and as OBJ with its library and its picture, which have no error of their own."""
    folder.mkdir()
    picture = Image.fromarray(np.random.default_rng(0).integers(0, 256, (8, 12, 3), np.uint8))
    box = trimesh.creation.box((6.0, 0.2, 8.0))
    uv = np.random.default_rng(1).uniform(-2, 2, (len(box.vertices), 2))
    looks = {
        "glb": trimesh.visual.material.PBRMaterial(baseColorTexture=picture, baseColorFactor=(200, 100, 50, 255)),
        "obj": trimesh.visual.material.SimpleMaterial(image=picture, diffuse=(200, 100, 50, 255)),
    }
    for suffix, material in looks.items():
        box.visual = trimesh.visual.TextureVisuals(uv, material=material)
        box.export(folder / f"a.{suffix}")
    mesh = folder / "a.obj"
    (library,), (image,) = folder.glob("*.mtl"), folder.glob("*.png")
    path = folder / "a.glb"
    yield Kind("textured", path, lambda path=path: see(path), (mutate.blindly, mutate.glb, mutate.glb))
    path = folder / "b.glb"
    path.write_bytes(Gltf(ktx2(np.random.default_rng(2).integers(0, 256, (4, 4, 4), np.uint8), levels=2)).data())
    yield Kind("ktx2", path, lambda path=path: see(path), (mutate.blindly, mutate.glb, mutate.glb))
    for name, file in (("mtl", library), ("png", image)):
        yield Kind(name, file, lambda: see(mesh), (mutate.blindly,))


def _annotations(folder: Path) -> Iterator[Kind]:
    """Lists of objects beside meshes with ids: HM3D's colours in a texture, Replica's and Gibson's numbers of faces."""
    folder.mkdir()
    box = trimesh.creation.box((6.0, 0.2, 8.0))
    picture = Image.fromarray(np.array([[(255, 0, 0), (0, 10, 200)]], np.uint8))
    uv = np.random.default_rng(1).uniform(0, 1, (len(box.vertices), 2))
    painted = box.copy()
    material = trimesh.visual.material.PBRMaterial(baseColorTexture=picture)
    painted.visual = trimesh.visual.TextureVisuals(uv, material=material)
    painted.export(folder / "X.semantic.glb")
    text = 'HM3D Semantic Annotations\n1,FF0000,"door frame",0\n7,000AC8,"chair, armchair",2\n'
    (folder / "X.semantic.txt").write_text(text)
    numbered = trimesh.exchange.ply.export_ply(box, encoding="ascii").decode()
    numbered = numbered.replace("end_header", "property int object_id\nend_header")
    head, faces = numbered.split("end_header\n")
    lines = [f"{line} {k % 3}" if line.startswith("3 ") and line.count(" ") == 3 else line
             for k, line in enumerate(faces.splitlines())]  # fmt: skip
    (folder / "mesh_semantic.ply").write_text(f"{head}end_header\n" + "\n".join(lines) + "\n")
    objects = {"objects": [{"id": k, "class_name": "chair"} for k in range(3)]}
    (folder / "info_semantic.json").write_text(json.dumps(objects))
    for name, file, mesh in (("semantic", "X.semantic.txt", "X.semantic.glb"),
                             ("objects", "info_semantic.json", "mesh_semantic.ply")):  # fmt: skip
        use = lambda mesh=folder / mesh: mesh_source(mesh).load_mesh()  # noqa: E731
        more = (mutate.json_text, mutate.json_text) if name == "objects" else ()
        yield Kind(name, folder / file, use, (mutate.blindly, *more))


def _dataset(folder: Path) -> Iterator[Kind]:
    """A dataset of Habitat's: its config, a stage's, an object's, a scene instance."""

    def write(name, data):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(json.dumps(data))
        return folder / name

    row = {"template_name": "cube", "rotation": [1, 0, 0, 0], "translation": [0, 1, 0], "uniform_scale": 1.5}
    sections = {"stages": "stages", "objects": "objects", "scene_instances": "scenes"}
    config = write("own.scene_dataset_config.json", {
        **{key: {"paths": {".json": [value]}, "configs": []} for key, value in sections.items()},
        "navmesh_instances": {"a": "b"},
        "semantic_scene_descriptor_instances": {"paths": {".json": ["*/*.lexicon.json"]}, "x": "objects/x.json"},
    })  # fmt: skip
    files = {
        "dataset": config,
        "stage": write("stages/floor.stage_config.json", {
            "render_asset": "floor.ply", "scale": [1, 1, 1], "up": [0, 1, 0],
        }),
        "object": write("objects/cube.object_config.json", {"render_asset": "cube.ply", "COM": [0, 0, 0]}),
        "instance": write("scenes/flat.scene_instance.json", {
            "stage_instance": {"template_name": "floor"}, "object_instances": [row], "navmesh_instance": "a",
        }),
    }  # fmt: skip
    trimesh.creation.box((6.0, 0.2, 8.0)).export(folder / "stages" / "floor.ply")
    trimesh.creation.box((1.0, 1.0, 1.0)).export(folder / "objects" / "cube.ply")
    for name, path in files.items():
        use = lambda: SceneDatasetConfig(config).source("flat").load_mesh()  # noqa: E731
        yield Kind(name, path, use, (mutate.blindly, mutate.json_text, mutate.json_text))


def _house() -> dict:
    corners = [{"x": x, "y": 0, "z": z} for x, z in ((0, 0), (0, 4), (4, 4), (4, 0))]
    wall = {"id": "w", "polygon": [*corners[:2], *({**corner, "y": 2.5} for corner in corners[:2])]}
    hole = [{"x": 1, "y": 0, "z": 0}, {"x": 2, "y": 2, "z": 0}]
    door = {"wall0": "w", "wall1": "w", "holePolygon": hole, "openable": True, "openness": 1}
    item = {"assetId": "Cup", "position": {"x": 1, "y": 1, "z": 1}, "rotation": {"y": 30}, "children": []}
    return {"rooms": [{"floorPolygon": corners}], "walls": [wall], "doors": [door], "objects": [item]}


def ask(navmesh: NavMesh) -> None:
    """Every query of a navmesh; answers are in range, whatever they are."""
    low, high = navmesh.bounds
    draw = np.random.default_rng(0)
    points = (low + (high - low) * draw.random((16, 3))).astype(np.float32)
    if navmesh.num_islands:
        points[:8] = navmesh.sample(8)
    ends = points[::-1].copy()
    navmesh.is_navigable(points), navmesh.distance_to_wall(points), navmesh.geodesic_distance(points, ends)
    snapped, islands = navmesh.snap(points), navmesh.island(points)
    assert islands.min() >= -1 and islands.max() < max(navmesh.num_islands, 1)
    assert navmesh.try_step(points, ends).shape == snapped.shape and navmesh.shortest_path(points[0], ends[0]).ndim == 2


def show(scene: Scene) -> None:
    """Asks a scene's navmesh, and renders from its middle and beside it."""
    ask(scene.navmesh)
    bank = SceneBank.pack([scene], appearance=True)
    low, high = scene.mesh.vertices.min(0), scene.mesh.vertices.max(0)
    with np.errstate(all="ignore"):
        eyes = np.float32([low - 1, (low + high) / 2, high + 1, [0, 1.5, 0]])
    renderer = RaycastRenderer(bank, num_agents=4, height=16, width=16)
    cameras = Cameras.level(torch.zeros(4, dtype=torch.int32), torch.from_numpy(np.nan_to_num(eyes)), torch.arange(4.0))
    depth, triangle = renderer.visibility(*cameras.poses)
    RGBSensor(CameraConfig(16, 16)).write(
        GivenImages(depth, triangle, cameras, bank.appearance), torch.zeros(4, 3, 16, 16, dtype=torch.uint8)
    )


def act(agent: PolicyAgent) -> None:
    """Two steps of two agents; actions are in range."""
    agent.reset(2)
    shapes = agent.network.observation_shapes
    for _ in range(2):
        action = agent.act({name: torch.full((2, *shape), 0.5) for name, shape in shapes.items()})
        assert action.min() >= 0 and action.max() < agent.network.action_space.n


def configure(run: TrainingConfig) -> None:
    """What a run's configuration says before anything is made: its scenes, what is observed, the policy for it."""
    assert len(run.scenes.names) == run.scenes.houses + len(run.scenes.sources)
    space = spaces.Dict({spec.name: spec.box for spec in specs_of(run.env)})
    with torch.device("meta"):  # weights of any size
        ActorCritic(space, spaces.Discrete(4), run.policy)


def search(path: Path, kind: str, scene: Scene) -> None:
    """Goals and episodes as environments use them; what was read is written, and read back equal."""
    dataset = load_episodes(path)
    goals = GOALS[dataset.kind]
    for scene_id, episodes in group_by_scene(dataset.episodes).items():
        named = scene._replace(name=scene_id)
        if dataset.kind == kind:
            named = named._replace(goals=goals.scene_goals(dataset, scene_id))
        playable = [episode for episode in episodes if dataset.kind == kind or len(episode.goals) == 1]
        list(goals.unplayable(playable, named))
        list(goals.findings([], playable, named))
    copy = path.parent / "copy" / path.name
    dataset.save(copy, content=False)
    assert load_episodes(copy) == dataset


def play(path: Path, scene: Scene) -> None:
    """Episodes as a table, and whether they can be played."""
    dataset = load_episodes(path)
    names = sorted({episode.scene_id for episode in dataset})
    for mine in group_by_scene(dataset.episodes).values():
        list(GOALS["point"].unplayable(mine, scene))
    table = episode_table([e for e in dataset if len(e.goals) == 1] or dataset, names, "cpu")
    table.check(SceneBank.pack([scene] * len(names)))
