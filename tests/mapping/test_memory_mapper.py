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
from batchnav.mapping.search import GOAL_CELLS, HITS
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
    chairs, beds = mapper.goal_map.hits[0].clone(), mapper.seen.hits[1].clone()
    assert (chairs >= int(HITS)).any() and (beds >= int(HITS)).any() and not (chairs * beds).any()
    env.step(torch.tensor([STOP]))
    assert (mapper.goal_map.hits[0] >= beds).all() and (mapper.seen.hits[0] >= chairs).all()
    assert int(mapper.goal_map.counters[0, GOAL_CELLS]) == int((mapper.goal_map.hits[0] >= int(HITS)).sum())
    assert int(mapper.map_state.path_length[0]) > 0 and not mapper.arrived.any(), "it plans to the bed"
    beds = mapper.goal_map.hits[0].clone()
    env.step(torch.tensor([STOP]))
    assert (mapper.goal_map.hits[0] >= chairs).all() and (mapper.seen.hits[1] >= beds).all()
    env.step(torch.tensor([STOP]))
    assert int(mapper.seen.hits.sum()) < int(chairs.sum()), "a new episode begins without memory"


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
    assert int(env.mapper.seen.hits.sum()) + int(env.mapper.goal_map.hits.sum()) < SIZE * SIZE + 1


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
        assert ".entry" in ptx and ".f64" not in ptx
        assert ("bar.sync" in ptx) == (kernel is memory.recall)
