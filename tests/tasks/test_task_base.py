"""All tasks: their kernels compile for the GPU, and every value of a saved state is refused or played."""

import re

import pytest
import torch
from numba import typeof
from object_rooms import furnished, imaged_room
from rooms import make_room

from batchnav.envs.nav import NavEnv
from batchnav.errors import CheckpointError
from batchnav.navmesh.data import NavMeshData
from batchnav.runtime.kernels.launch import Kernel
from batchnav.tasks import TASKS

N = 3
OPTIONS = {
    "objectnav": {"sensors": ("goal_mask",), "categories": ("chair", "bed")},
    "imagenav": {"sensors": ("rgb",)},
    "instance_imagenav": {"sensors": ("rgb",), "goal_height": 8, "goal_width": 8},
    "explore": {"max_steps": 9},
    "sequence": {"categories": ("chair", "bed")},
}
SCENES = {"objectnav": furnished, "sequence": furnished, "instance_imagenav": imaged_room}
COMPILED = set()
"""Kernels that were compiled in this process, with their control, and with the types of their arguments."""


def make(task, **options):
    scene = SCENES.get(task, lambda: make_room(wall=True))()
    size = {"height": 8, "width": 8, "sensors": ()}
    return NavEnv([scene], N, "cpu", task=task, **{**size, **OPTIONS.get(task, {}), **options})


WORLDS = {"people": {"people": (1, 3)}, "robots": {"people": (1, 3), "agents_per_world": N}}
"""Worlds in which kernels of a step have further arguments, and kernels of their own."""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("task", "control"),
    [
        *((task, "v0") for task in TASKS), ("pointnav", "velocity"), ("flee", "velocity"),
        *(("pointnav", world) for world in WORLDS),
    ],
)  # fmt: skip
def test_kernels_compile_for_the_gpu(task, control, monkeypatch, compile_ptx):
    bound, bind = [], Kernel.bind

    def recorded(kernel, items, *args, **options):
        bound.append((kernel, items, args))
        return bind(kernel, items, *args, **options)

    monkeypatch.setattr(Kernel, "bind", recorded)
    make(task, **WORLDS.get(control, {"control": control}))
    assert len(bound) >= 4
    for kernel, items, args in bound:
        given = tuple(map(typeof, (items, *args) if kernel.over in ("queue", "teams") else args))
        seen = {(kernel, control), (kernel, given)}
        if not COMPILED.isdisjoint(seen):
            continue
        COMPILED.update(seen)
        ptx = compile_ptx(kernel, *given)
        assert ".entry" in ptx
        assert "ld.global.v4" in ptx or not any(isinstance(a, NavMeshData) for a in args), kernel.cpu
        # Sine and cosine of huge angles reduce them by one product of doubles; all else is float32.
        assert not re.search(r"\b(ld|st|add|sub|fma|div|sqrt)[.\w]*\.f64", ptx), kernel.cpu


def extremes(tensor):
    """Tensors like a saved one, full of its type's lowest and highest values, and of others that are no index."""
    if tensor.dtype == torch.bool:
        values = (False, True)
    elif tensor.is_floating_point():
        limits = torch.finfo(tensor.dtype)
        values = (limits.min, limits.max, -float("inf"), float("inf"), float("nan"), -1.0, 50.0)
    else:
        limits = torch.iinfo(tensor.dtype)
        values = (limits.min, limits.max, 0, min(50, limits.max), min(10**9, limits.max))
    return [torch.full_like(tensor, value) for value in values]


@pytest.mark.parametrize("episodes", [True, False])
@pytest.mark.parametrize("task", TASKS)
def test_every_extreme_of_a_saved_state_is_refused_or_played(task, episodes):
    env = make(task)
    if episodes:
        if task in SCENES or task == "imagenav":
            return
        sampled, _ = env.sim, env.reset()
        following = sampled.task.next_episode
        from batchnav.tasks.episode_sampling import EpisodeTable

        goal = getattr(following, "goal", following.position)
        env = make(task, episodes=EpisodeTable(following.scene, following.position, following.heading, goal))
    env.reset()
    for _ in range(2):
        env.step(torch.tensor([1, 2, 3]))
    state, refused = env.state_dict(), 0
    for name, tensor in state.items():
        for value in extremes(tensor):
            try:
                env.load_state_dict({**state, name: value})
            except CheckpointError as error:
                assert name in str(error)
                refused += 1
                continue
            for action in (1, 2, 0, 1):
                env.step(torch.full((N,), action))
    env.load_state_dict(state)
    assert refused > 10
    assert set(env.task.state._fields) | set(env.task.observations) <= set(env.task.ranges)


@pytest.mark.parametrize(
    ("task", "name", "value"),
    [
        ("objectnav", "objectgoal", 50), ("objectnav", "category", 10**9), ("objectnav", "objectgoal", -1),
        ("instance_imagenav", "goal_image", 10**9), ("instance_imagenav", "goal_image", -1),
        ("instance_imagenav", "category", 2), ("pointnav", "table_index", 0), ("explore", "progress", 10.0),
    ],
)  # fmt: skip
def test_values_out_of_range_are_refused(task, name, value):
    env = make(task)
    env.reset()
    state = env.state_dict()
    with pytest.raises(CheckpointError, match=name):
        env.load_state_dict({**state, name: torch.full_like(state[name], value)})


def test_an_image_that_another_object_has_is_refused():
    """The chair of the room has two images, the bed one."""
    env = make("instance_imagenav")
    env.reset()
    state = env.state_dict()
    state |= {"category": torch.full((N,), 1), "goal_image": torch.ones(N, dtype=torch.int64)}
    with pytest.raises(CheckpointError, match=r"'goal_image'\[0\]: found 1, expected the number of one of"):
        env.load_state_dict(state)
