"""The recorded observation of docs/howto/deploy_on_a_robot.md: python -m docs.figures.robot

Writes docs/howto/robot/: images as from a robot's camera, and numbers that follow from them.
"""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image

import batchnav
from batchnav.envs.config import config_of
from batchnav.export import RobotMapper

FOLDER = Path(__file__).parents[1] / "howto" / "robot"
SCENE, POLICY, SEED, TURNS = "house:7", "pointnav_plan_small", 11, 7
PIXELS = ((10, 10), (32, 32), (50, 20), (60, 55))
"""Rows and columns of the pixels that the file of numbers lists."""


def record() -> tuple[np.ndarray, np.ndarray, dict[str, Any]]:
    """Depth u16 [H, W] in millimetres, colour u8 [H, W, 3], and the numbers."""
    policy = batchnav.load_policy(POLICY)
    config = config_of(policy.info)
    options = {"sensors": ("depth", "rgb"), "anticipation": "", "initial_scan": False}
    env = batchnav.NavEnv([batchnav.load_scene(SCENE)], 1, "cpu", SEED, config=config, **options)
    seen, _ = env.reset()
    for _ in range(TURNS):
        seen, *_ = env.step(torch.tensor([3]))
    x, _, z = env.sim.bodies.position[0].tolist()
    heading = float(env.sim.bodies.heading[0])
    distance, bearing = seen["pointgoal"][0].tolist()
    metres = seen["depth"][0, 0].numpy() * config.depth.max_depth
    depth, rgb = np.round(metres * 1000.0).astype(np.uint16), seen["rgb"][0].permute(1, 2, 0).numpy().copy()
    env.close()
    pose = -z, -x, math.remainder(heading, 2.0 * math.pi)
    goal = pose[0] + distance * math.cos(heading + bearing), pose[1] + distance * math.sin(heading + bearing)
    measured = depth.astype(np.float32) / 1000.0
    observed = {"depth": (measured / config.depth.max_depth)[None, None], "pointgoal": seen["pointgoal"].numpy()}
    mapper = RobotMapper(frozenset({"waypoint"}), config)
    mapper.reset()
    observed |= mapper.observe(measured, pose, observed["pointgoal"][0])
    network, start = policy.network, torch.ones(1, dtype=torch.bool)
    with torch.no_grad():
        outputs, value, _ = network.step(
            {name: torch.from_numpy(observed[name]) for name in network.observation_shapes},
            torch.zeros(1, dtype=torch.int64), start, network.initial_state(1),
        )  # fmt: skip
    numbers = {
        "scene": SCENE, "policy": POLICY, "pose": pose, "goal": goal,
        "pointgoal": observed["pointgoal"][0], "waypoint": observed["waypoint"][0],
        "depth": {f"{row},{column}": observed["depth"][0, 0, row, column] for row, column in PIXELS},
        "probabilities": network.actions.distribution(outputs)["probabilities"][0].numpy(), "value": float(value),
    }  # fmt: skip
    return depth, rgb, numbers


def main() -> None:
    """Write the files."""
    depth, rgb, numbers = record()
    FOLDER.mkdir(exist_ok=True)
    Image.fromarray(depth).save(FOLDER / "depth.png")
    Image.fromarray(rgb).save(FOLDER / "rgb.png")
    text = json.dumps(numbers, indent=1, default=lambda value: np.float64(value).round(6).tolist())
    (FOLDER / "numbers.json").write_text(text + "\n")


if __name__ == "__main__":
    main()
