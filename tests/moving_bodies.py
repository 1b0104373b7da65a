"""Moving bodies for tests."""

import numpy as np
import torch

from batchnav.types import PERSON, MovingBodies


def made(device="cpu", **columns):
    """`MovingBodies` from arrays; absent ones are those of standing people."""
    position = np.asarray(columns.pop("position"), np.float32)
    worlds, most = position.shape[:2]
    floats = {"heading": 0.0, "velocity": 0.0, "radius": 0.3, "height": 1.7} | columns
    shapes = {"velocity": (worlds, most, 2), "count": (worlds,)}
    values = {"count": most, "shape": PERSON, "appearance": 0} | floats

    def tensor(name):
        dtype = np.int32 if name in ("count", "shape", "appearance") else np.float32
        array = np.broadcast_to(np.asarray(values[name], dtype), shapes.get(name, (worlds, most)))
        return torch.as_tensor(array.copy(), device=device)

    return MovingBodies(
        **{
            name: torch.as_tensor(position, device=device) if name == "position" else tensor(name)
            for name in MovingBodies._fields
        }
    )


def crowd(worlds, most, seed, device="cpu"):
    """Bodies of all shapes on the floor of `room((8, 3, 8))`, some of them over each other."""
    rng, size = np.random.default_rng(seed), (worlds, most)
    position = rng.uniform(-3, 3, (*size, 3)) * [1, 0, 1] + [0, -1.5, 0]
    return made(
        device, position=position, heading=rng.uniform(-4, 4, size), radius=rng.uniform(0.15, 0.45, size),
        height=rng.uniform(1.2, 2.0, size), shape=rng.integers(0, 3, size), appearance=rng.integers(0, 40, size),
        count=rng.integers(most - 1, most + 1, worlds),
    )  # fmt: skip
