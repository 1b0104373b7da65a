"""Scene streaming: every scene is visited, observations equal those of resident scenes, and runs repeat."""

import threading
import time
from functools import partial

import numpy as np
import pytest
import torch
import trimesh

from batchnav.envs.nav import PointNavEnv
from batchnav.envs.stream import SceneStream
from batchnav.errors import ArgumentError, CheckpointError, ConfigError, MeshError
from batchnav.scene import small_nodes
from batchnav.scene.bank import BVHData, SceneBank
from batchnav.scene.resident import ResidentSceneBank, SceneSize, num_resident_scenes, slots_of
from batchnav.scene.scene import make_scene
from batchnav.tasks.episode_sampling import EpisodeTable
from batchnav.types import TriangleMesh

N, RESIDENT, ROOMS, ROLLOUT = 12, 4, 12, 8
TASK = {"height": 16, "width": 16, "max_steps": 6}
STALL = 0.3
"""Seconds of a loading stall."""
devices = pytest.mark.parametrize("device", ["cpu", pytest.param("cuda", marks=pytest.mark.cuda)])


def room(k):
    """A floor with k + 1 pillars; sizes and numbers of triangles differ between floors."""
    parts = [trimesh.creation.box((8.0 + 0.25 * k, 0.2, 8.0))]
    for i in range(k + 1):
        pillar = trimesh.creation.box((0.3, 2.0, 0.3))
        pillar.apply_translation((-3.0 + 0.5 * i, 1.0, 1.0 if i % 2 else -1.0))
        parts.append(pillar)
    mesh = trimesh.util.concatenate(parts)
    return make_scene(f"room{k}", TriangleMesh(mesh.vertices.astype(np.float32), mesh.faces.astype(np.int32)))


@pytest.fixture(scope="module")
def rooms():
    return {scene.name: scene for scene in map(room, range(ROOMS))}


def make(rooms, device="cpu", load=None, resident=RESIDENT, seed=3, **options):
    load = load or rooms.__getitem__
    stream = SceneStream(list(rooms), load, list(map(SceneSize.of, rooms.values())), resident, seed)
    return PointNavEnv(stream, N, device, seed, **{**TASK, **options})


def play(env, calls, moves):
    """Results of `calls` rollouts with a move of scenes before each: tensors, and scenes by name."""
    seen, visited = [], []
    for actions in moves.view(calls, -1, N):
        env.between_rollouts()
        for action in actions:
            observation, reward, *_ = env.step(action)
            seen.append(
                torch.cat([observation["depth"].flatten(1), observation["pointgoal"], reward[:, None]], 1).cpu()
            )
            visited.append([env.bank.names[slot] for slot in env.sim.bodies.scene.tolist()])
    return torch.stack(seen), visited


def actions(calls, device="cpu"):
    moves = torch.randint(1, 4, (calls * ROLLOUT, N), generator=torch.Generator().manual_seed(0))
    return moves.to(device)


def test_fixed_episodes_refuse_a_stream(rooms):
    with pytest.raises(ArgumentError, match="episodes: found fixed episodes with a SceneStream"):
        make(rooms, episodes=EpisodeTable.empty(torch.device("cpu")))


@devices
def test_every_scene_is_visited_and_seen_as_if_it_were_resident(rooms, device):
    env, resident = make(rooms, device), PointNavEnv(list(rooms.values()), N, device, **TASK)
    names = list(rooms)
    env.reset()
    resident.reset()
    visited = set()
    for move in actions(60, device).view(60, -1, N):
        env.between_rollouts()
        for action in move:
            here = [env.bank.names[slot] for slot in env.sim.bodies.scene.tolist()]
            visited.update(here)
            for one, other in ((resident.sim.bodies, env.sim.bodies), (resident.task.state, env.task.state)):
                for mine, theirs in zip(one, other, strict=True):
                    mine.copy_(theirs)
            resident.sim.bodies.scene.copy_(torch.tensor([names.index(name) for name in here]))
            found, found_reward, *_ = env.step(action)
            expected, expected_reward, _, _, info = resident.step(action)
            stays = ~info["_episode"]  # after an episode's end the environments sample different episodes
            assert torch.equal(found_reward, expected_reward)
            for name in ("depth", "pointgoal"):
                assert torch.equal(found[name][stays], expected[name][stays])
    assert visited == set(rooms)


@devices
def test_without_moves_equals_an_environment_with_these_scenes(rooms, device):
    env = make(rooms, device)
    env.reset()
    groups = len(env.stream._slot_of)
    resident = PointNavEnv([rooms[name] for name in env.bank.names[:groups]], N, device, seed=3, **TASK)
    resident.reset()
    for action in actions(5, device):
        found, expected = env.step(action), resident.step(action)
        assert torch.equal(found[0]["depth"], expected[0]["depth"])
        assert torch.equal(found[0]["pointgoal"], expected[0]["pointgoal"]) and torch.equal(found[1], expected[1])


@devices
def test_a_run_does_not_depend_on_how_long_scenes_take(rooms, device):
    def slowly(name):
        time.sleep(0.03)
        return rooms[name]

    runs = []
    for load in (None, slowly):
        env = make(rooms, device, load)
        env.reset()
        runs.append(play(env, 20, actions(20, device)))
    assert torch.equal(runs[0][0], runs[1][0]) and runs[0][1] == runs[1][1]


@devices
def test_resumes_exactly(rooms, device):
    env, moves = make(rooms, device), actions(24, device)
    env.reset()
    play(env, 12, moves[: 12 * ROLLOUT])
    saved = env.state_dict()
    expected = play(env, 12, moves[12 * ROLLOUT :])
    other = make(rooms, device, seed=99)
    other.stream._seed = 3
    other.reset()
    other.load_state_dict(saved)
    found = play(other, 12, moves[12 * ROLLOUT :])
    assert torch.equal(found[0], expected[0]) and found[1] == expected[1]
    with pytest.raises(CheckpointError, match="stream_in_slot"):
        make(rooms, device, resident=5).load_state_dict(saved)


def test_agents_stay_until_their_episode_ends(rooms):
    env = make(rooms, max_steps=500)
    env.reset()
    before = env.sim.bodies.scene.clone()
    env.between_rollouts()
    for action in torch.full((ROLLOUT, N), 2):
        env.step(action)
    assert torch.equal(env.sim.bodies.scene, before)
    sent = env.sim.sampling.scene_ranges[:, 0] != before
    assert 0 < sent.sum() < N
    env.step(torch.zeros(N, dtype=torch.int64))
    assert torch.equal(env.sim.bodies.scene != before, sent)


def test_scenes_load_in_parallel_and_stalls_are_reported(rooms, monkeypatch):
    threads, gate, clock = [], threading.Event(), time.perf_counter
    gate.set()

    def load(name):
        threads.append(threading.current_thread().name)
        gate.wait()
        return rooms[name]

    def read_clock():
        """Once a wait begins, its scene takes as long as STALL."""
        threading.Timer(STALL, gate.set).start()
        return clock()

    env = make(rooms, load=load)
    env.reset()
    for _, ahead in env.stream._loads:
        ahead.result()
    ready = env.between_rollouts()
    assert ready["scenes_loaded"] == 1 and ready["scene_stall"] < STALL
    play(env, 1, actions(1))  # longer than all episodes: a slot is free, and requested at the next call
    gate.clear()
    assert env.between_rollouts() == {"scenes_loaded": 0, "scene_stall": 0.0}
    monkeypatch.setattr(time, "perf_counter", read_clock)
    assert env.between_rollouts()["scene_stall"] > 0.9 * STALL
    assert all(name.startswith("scenes") for name in threads)
    env.close()


def test_a_scene_that_cannot_be_loaded_is_named(rooms):
    def load(name):
        if name == "room5":
            raise MeshError("room5: damaged")
        return rooms[name]

    with pytest.raises(MeshError, match="room5"):
        env = make(rooms, load=load)
        env.reset()
        play(env, 40, actions(40))


def test_invalid_numbers_of_slots_are_refused(rooms):
    small = SceneSize.of(rooms["room0"])
    bank = ResidentSceneBank([SceneSize.largest([small])] * 2)
    bank.replace(1, rooms["room0"])
    with pytest.raises(ArgumentError, match=r"'room9'.*expected at most"):
        bank.replace(0, rooms["room9"])
    for resident in (1, ROOMS):
        with pytest.raises(ConfigError, match=f"resident_scenes: found {resident}"):
            make(rooms, resident=resident)


def test_opengl_refuses_a_stream(rooms):
    with pytest.raises(ArgumentError, match="renderer: found 'auto' with scene streaming"):
        make(rooms, renderer="auto")


@pytest.mark.parametrize("large", [10**6, 100])
def test_slots_hold_scenes_as_a_packed_bank_does(rooms, large, monkeypatch):
    """Of any sizes; where one scene is large, the nodes of all are small."""
    monkeypatch.setattr(small_nodes, "FROM_TRIANGLES", large)
    scenes = [rooms["room2"], rooms["room9"], rooms["room0"]]
    bank = ResidentSceneBank(list(map(SceneSize.of, scenes)), "cpu", ("normal", "object_id"))
    packed = SceneBank.pack(scenes, "cpu", ("normal", "object_id"))
    for k in (1, 0, 2):
        bank.replace(k, scenes[k])
    assert bank.names == ["room2", "room9", "room0"] and bank.first_triangle.equal(packed.first_triangle)
    assert bank.bvh.nodes.ndim == (3 if large == 100 else 2)
    for found, expected in zip((*bank.bvh, *bank.appearance), (*packed.bvh, *packed.appearance), strict=True):
        assert found.numpy().tobytes() == expected.numpy().tobytes()
    first, alone = bank.navmesh, SceneBank.pack(scenes[:1]).navmesh
    for found, expected in zip(first, alone, strict=True):
        assert found[: len(expected)].numpy().tobytes() == expected.numpy().tobytes()  # bytes: some integers are NaNs


def test_slots_have_the_sizes_of_the_scenes(rooms):
    """64 of 800 with 0.5 to 3 million triangles take the memory of 64 scenes of mean size, and all fit their slots."""
    one = SceneSize.of(rooms["room0"]).with_appearance(())
    triangles = np.random.default_rng(0).integers(500_000, 3_000_000, 800).tolist()
    sizes = [one._replace(bvh=BVHData(n // 3, n, n, 1), large=True) for n in triangles]
    mean = sum(size.num_bytes for size in sizes) / 800
    slots = slots_of(sizes, 64)
    assert mean < sum(slot.num_bytes for slot in slots) / 64 < 1.02 * mean < 0.62 * SceneSize.largest(sizes).num_bytes
    for k, number in enumerate(sorted(triangles, reverse=True)):
        assert slots[k * 64 // 800].bvh.triangles >= number


@pytest.mark.parametrize("resident", [4, 7])
def test_every_scene_is_loaded_equally_often(rooms, resident):
    """Whatever its size, in any slot: with slots of several sizes, and with slots that hold any scene."""
    sizes = list(map(SceneSize.of, rooms.values()))
    for of_slots in (sizes, SceneSize.largest(sizes)):
        loads = []
        load = lambda name, loads=loads: loads.append(name) or rooms[name]  # noqa: E731
        stream = SceneStream(list(rooms), load, of_slots, resident, 3)
        env = PointNavEnv(stream, N, "cpu", 3, **{**TASK, "height": 4, "width": 4, "max_steps": 1})
        env.reset()
        memory = [tensor.data_ptr() for tensor in (*env.bank.bvh, *env.bank.navmesh)]
        for _ in range(12 * ROOMS):
            env.between_rollouts()
            env.step(torch.full((N,), 2))
        for _, ahead in env.stream._loads:
            ahead.result()
        counts = [loads.count(name) for name in rooms]
        assert max(counts) - min(counts) <= 2 and min(counts) >= 6
        assert memory == [tensor.data_ptr() for tensor in (*env.bank.bvh, *env.bank.navmesh)]
        env.close()


def test_states_of_other_slots_are_refused(rooms):
    env = make(rooms)
    env.reset()
    saved = env.state_dict()
    slots, large = env.stream._places, list(rooms).index("room11")
    smallest = max(range(RESIDENT), key=lambda slot: slots[slot][0])
    in_slot = saved["stream_in_slot"].clone()
    in_slot[smallest] = large
    for name, value, message in (
        ("in_slot", in_slot, f"found scene 'room11' in slot {smallest}, expected one that fits"),
        ("leaving", saved["stream_loads"], "expected each slot at most once"),
        ("turn", torch.tensor([9]), "stream_turn"),
    ):
        with pytest.raises(CheckpointError, match=message):
            env.load_state_dict({**saved, f"stream_{name}": value})
    env.close()


def test_as_many_slots_as_fit_the_budget(rooms):
    capacities = [SceneSize.of(scene) for scene in rooms.values()]
    total, two, three = (
        sum(c.num_bytes for c in some) for some in (capacities, *map(partial(slots_of, capacities), (2, 3)))
    )
    assert num_resident_scenes(capacities, 0, 0.0) == num_resident_scenes(capacities, 0, 1.001e-9 * total) == 0
    assert num_resident_scenes(capacities, RESIDENT, 0.0) == RESIDENT
    assert num_resident_scenes(capacities, ROOMS, 0.0) == 0  # all stay
    for wanted in (0, RESIDENT):
        assert num_resident_scenes(capacities, wanted, 1.001e-9 * two) == 2
        assert num_resident_scenes(capacities, wanted, 1.001e-9 * three) == 3
    with pytest.raises(ConfigError, match=r"gigabytes: found .*, expected at least"):
        num_resident_scenes(capacities, 0, 0.999e-9 * two)
