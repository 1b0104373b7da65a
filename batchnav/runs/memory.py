"""How much memory a training run will take on its device, before it starts: `predict_memory`."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from gymnasium import spaces

from batchnav.config import PointNavRun
from batchnav.navmesh.data import search_scratch
from batchnav.policy.actor_critic import ActorCritic
from batchnav.ppo.rollout import IMAGE_DTYPE_CUDA, Rollout
from batchnav.scene.slots import Capacity, slots_needed
from batchnav.sim.pointnav import scratch_rows
from batchnav.sim.state import NUM_ACTIONS, AgentState, StepResult, Upcoming, Walked

META = torch.device("meta")
"""Tensors of shape and type alone."""
COPIES_OF_WEIGHTS = 4
"""Weights, gradients, and the optimiser's two moments, all float32."""
SAMPLE_STEPS = 2
"""Steps of the sequences that are tried out."""
LARGEST_IN_BACKWARD = 2
"""Gradients of the largest layer's size that the backward pass makes beside what was kept for it."""


def predict_memory(run: PointNavRun, scenes: Sequence[Capacity], device: torch.device) -> dict[str, int]:
    """Bytes of tensors that a run has at its peak, by part.

    What the driver, CUDA's context and the allocator's rounding take comes on top. The activations are those of the
    network as it is written; compiled, it may keep less.

    Args:
        run: the configuration.
        scenes: what each of its scenes takes (`data.scenes.measure_scenes`).
        device: where it will run. The network is tried out there on a few frames.
    """
    n, task, room = run.ppo.num_envs, run.task, Capacity.for_all(scenes)
    slots = slots_needed(scenes, run.scenes.slots, run.scenes.gigabytes)
    simulator = (part.empty(n, META) for part in (AgentState, Walked, Upcoming, StepResult))
    scratch = [search_scratch(room.search_size, rows, META).data.nbytes for rows in scratch_rows(n, device) if rows]
    observations = spaces.Dict({
        "depth": spaces.Box(0.0, 1.0, (1, task.height, task.width), np.float32),
        "pointgoal": spaces.Box(-np.inf, np.inf, (2,), np.float32),
    })  # fmt: skip
    policy = ActorCritic(observations, spaces.Discrete(NUM_ACTIONS), run.policy).to(device)
    weights = sum(parameter.nbytes for parameter in policy.parameters())
    frames = run.ppo.frames_per_update // run.ppo.minibatches
    return {
        "scenes": slots * room.num_bytes if slots else sum(scene.num_bytes for scene in scenes),
        "simulator": sum(tensor.nbytes for part in simulator for tensor in part) + sum(scratch),
        "images": 2 * n * task.height * task.width * 4,  # the renderer's in metres, the environment's own observation
        "rollout": _rollout(run, policy, device),
        "weights and optimiser": COPIES_OF_WEIGHTS * weights,
        "learning": round(frames * _kept_per_frame(policy, device)),
    }


def _rollout(run: PointNavRun, policy: ActorCritic, device: torch.device) -> int:
    """Bytes of the rollout and of the memory that the next one begins with."""
    state = policy.initial_state(run.ppo.num_envs, META)
    rollout = Rollout(policy.observation_shapes, run.ppo.rollout_steps, run.ppo.num_envs, META, state)
    total = state.nbytes + sum(value.nbytes for value in vars(rollout).values() if isinstance(value, torch.Tensor))
    total -= rollout.action.nbytes  # a view
    for slots in rollout.obs.values():
        narrow = device.type == "cuda" and slots.ndim == 5
        total += slots.numel() * (IMAGE_DTYPE_CUDA.itemsize if narrow else slots.itemsize)
    return total


def _kept_per_frame(policy: ActorCritic, device: torch.device) -> float:
    """Bytes that a learning step holds for each frame at its peak, from short sequences of a few environments."""
    few, more = 32, 64
    # The difference: what does not grow with the frames, as the weights in bfloat16, is left out.
    return (_kept(policy, device, more) - _kept(policy, device, few)) / (SAMPLE_STEPS * (more - few))


def _kept(policy: ActorCritic, device: torch.device, envs: int) -> int:
    """Bytes that a learning step on SAMPLE_STEPS steps of so many environments holds at its peak."""
    kept: dict[int, torch.UntypedStorage] = {}
    largest = 0
    own = {parameter.untyped_storage().data_ptr() for parameter in policy.parameters()}

    def keep(tensor: torch.Tensor) -> torch.Tensor:
        nonlocal largest
        storage = tensor.untyped_storage()
        if storage.data_ptr() not in own:
            kept[storage.data_ptr()] = storage
            if tensor.requires_grad:
                largest = max(largest, storage.nbytes())
        return tensor

    narrow = IMAGE_DTYPE_CUDA if device.type == "cuda" else torch.float32
    obs = {
        name: torch.rand(SAMPLE_STEPS, envs, *shape, device=device).to(narrow if len(shape) == 3 else torch.float32)
        for name, shape in policy.observation_shapes.items()
    }
    actions = torch.zeros(SAMPLE_STEPS, envs, dtype=torch.int64, device=device)
    starts, state = torch.zeros_like(actions, dtype=torch.bool), policy.initial_state(envs, device)
    with (
        torch.autocast(device.type, dtype=torch.bfloat16, enabled=device.type == "cuda"),
        torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor),
    ):
        seen = policy.evaluate(obs, actions, starts, state, actions)
    total = sum(storage.nbytes() for storage in kept.values())
    del seen
    return total + LARGEST_IN_BACKWARD * largest
