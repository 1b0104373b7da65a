"""Kernels of Instance ImageNav: the choice of an image of the goal, for one agent, and its loops over all agents."""

from __future__ import annotations

import numpy as np
from numba import prange

from batchnav.runtime.kernels.decorators import cpu_kernel, cuda, exact_cuda_kernel, lean_function
from batchnav.runtime.kernels.rng import uniform4
from batchnav.sim.episodes import GOAL_DRAW, NO_AGENT, agent_number
from batchnav.tasks.episode_sampling import table_row


@lean_function
def pick_image_one(i, bodies, sampling, table, image_rows, num_categories, next_out):
    """Write the number of the image of the agent's next episode: the table's, or a random one of the goal's.

    `image_rows`: i32 [K * C, 2], first image and number of images of each (scene, category).
    """
    episode = bodies.episode[i] + np.int32(1)
    if table.scene.shape[0] > 0:
        k, _ = table_row(i, episode, table, bodies.scene.shape[0])
        next_out.goal_image[i] = table.goal_image[k]
        return
    u, _, _, _ = uniform4(sampling.seed[0], agent_number(i, sampling), episode, GOAL_DRAW)
    count = image_rows[next_out.scene[i] * num_categories + np.int32(next_out.category[i]), 1]
    next_out.goal_image[i] = max(min(np.int32(u * np.float32(count)), np.int32(count - np.int32(1))), np.int32(0))


@cpu_kernel
def pick_image_cpu(bodies, queued, sampling, table, image_rows, num_categories, next_out):
    """`pick_image_one` of the queued agents."""
    n = np.int64(queued.count[0])
    for k in prange(n):
        i = np.int64(queued.agents[k])
        if i != NO_AGENT:
            pick_image_one(i, bodies, sampling, table, image_rows, num_categories, next_out)


@exact_cuda_kernel
def pick_image_cuda(bodies, queued, sampling, table, image_rows, num_categories, next_out):
    """`pick_image_one` of the queued agents."""
    k = cuda.grid(1)
    if k < queued.count[0]:
        pick_image_one(np.int64(queued.agents[k]), bodies, sampling, table, image_rows, num_categories, next_out)


PICK_IMAGE = pick_image_cpu, pick_image_cuda
"""The kernel in its CPU and CUDA forms."""
