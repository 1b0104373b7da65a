"""Memory of agents with several goals in an episode: where they saw objects of every category."""

import numpy as np
import torch
from numba import typeof

from batchnav.agents.registry import agent_config, make_reference_agent
from batchnav.data.episodes import rotation_of
from batchnav.data.sequences import CATEGORY, SequenceEpisode, Subtask
from batchnav.envs.config import PRESETS, with_options
from batchnav.envs.nav import NavEnv
from batchnav.mapping import memory
from batchnav.mapping.evidence import object_cells
from batchnav.mapping.search import GOAL_CELLS
from batchnav.runtime.kernels.launch import Kernel
from batchnav.sim.bodies import LEFT, STOP
from tests.tasks.object_rooms import CATEGORIES, furnished

SIZE = 16
"""Rows and columns of the images."""
CHAIR, BED = Subtask(CATEGORY, "chair"), Subtask(CATEGORY, "bed")


def searching(agent="map_searcher"):
    """An environment of a searcher between a chair and a bed, which asks for both in turn."""
    scene = furnished()
    start = tuple(scene.navmesh.snap(np.array([[2.8, 0.0, 2.5]], np.float32))[0].tolist())
    episode = SequenceEpisode("0", scene.name, start, rotation_of(0.0), subtasks=(CHAIR, BED, CHAIR))
    options = {"height": SIZE, "width": SIZE, "categories": CATEGORIES, "initial_scan": False}
    config = with_options(agent_config(agent, PRESETS["sequence_houses"]), options)
    env = NavEnv([scene], 1, "cpu", task="sequence", config=config, episodes=[episode])
    env.reset()
    return env, make_reference_agent(agent, env)


def turn_around(env):
    for _ in range(12):
        env.step(torch.tensor([LEFT]))


def test_the_cells_of_the_next_goal_are_those_where_its_category_was_seen():
    env, _ = searching()
    turn_around(env)
    mapper = env.mapper
    chairs, beds = mapper.goal_map.evidence[0].clone(), mapper.seen.evidence[1].clone()
    assert object_cells(chairs).any() and object_cells(beds).any()
    assert not (object_cells(chairs) & object_cells(beds)).any()
    env.step(torch.tensor([STOP]))
    assert object_cells(mapper.goal_map.evidence[0])[object_cells(beds)].all()
    assert object_cells(mapper.seen.evidence[0])[object_cells(chairs)].all()
    assert int(mapper.goal_map.counters[0, GOAL_CELLS]) == int(mapper.goal_cells(0).sum())
    assert int(mapper.map_state.path_length[0]) > 0 and not mapper.arrived.any(), "it plans to the bed"
    beds = mapper.goal_map.evidence[0].clone()
    env.step(torch.tensor([STOP]))
    assert mapper.goal_cells(0)[object_cells(chairs)].all()
    assert object_cells(mapper.seen.evidence[1])[object_cells(beds)].all()
    env.step(torch.tensor([STOP]))
    seen = object_cells(mapper.seen.evidence).sum()
    assert int(seen) < int(object_cells(chairs).sum()), "a new episode begins without memory"


def test_objects_that_later_views_do_not_confirm_are_forgotten():
    env, _ = searching()
    mapper, number = env.mapper, env.bank.goal_categories.index("bed") + 1
    depth = torch.full((1, SIZE, SIZE), 2.0)
    cameras = mapper._run[0]

    def beds_after(*numbers):
        mapper.reset()
        for each in numbers:
            mapper.search_objects(depth, torch.full((1, 1, SIZE, SIZE), each, dtype=torch.int32), cameras)
        return int(object_cells(mapper.seen.evidence[number - 1]).sum())

    seen = beds_after(number)
    assert seen > 0 and beds_after(number, 0, 0) == seen and beds_after(number, 0, 0, 0) == 0
    assert beds_after(number, *(number % len(CATEGORIES) + 1,) * 3) == 0, "another category is there"


def test_the_forgetful_searcher_begins_a_new_map_for_every_goal():
    env, agent = searching("map_searcher_forgetful")
    start = torch.zeros(1, dtype=torch.bool)
    agent.act(env.observe(), ~start)
    turn_around(env)
    explored = int(env.mapper.map_state.explored.count_nonzero())
    observation, *_ = env.step(torch.tensor([STOP]))
    assert agent.act(observation, start).tolist() == [LEFT]
    env.step(torch.tensor([LEFT]))
    assert int(env.mapper.map_state.explored.count_nonzero()) < explored / 2
    words = torch.cat([env.mapper.seen.evidence, env.mapper.goal_map.evidence])
    assert int((words & 0xFFF).sum()) < SIZE * SIZE + 1


def test_the_kernels_compile_for_the_gpu(monkeypatch, compile_ptx):
    bound, bind = [], Kernel.bind

    def recorded(kernel, items, *args, **options):
        bound.append((kernel, args))
        return bind(kernel, items, *args, **options)

    monkeypatch.setattr(Kernel, "bind", recorded)
    searching()
    found = {kernel: args for kernel, args in bound if kernel in (memory.recall, memory.remember)}
    assert len(found) == 2
    for kernel, args in found.items():
        ptx = compile_ptx(kernel, *map(typeof, args))
        assert ".entry" in ptx and "bar.sync" in ptx and ".f64" not in ptx
