"""Rendered frames of `gymnasium`'s render mode "rgb_array": images of each agent next to a map with its path."""

from __future__ import annotations

import numpy as np
from PIL import Image

from batchnav.envs.nav import NavEnv
from batchnav.view.mosaic import colour
from batchnav.view.topdown import BLUE, FOOT, PAPER, TopDownMap

MAP_SIZE = 320
"""Longer side of a map, pixels."""
STOREY = 0.5
"""Vertical spacing of the maps of a scene, metres."""


class FrameRenderer:
    """Tracks the agents of an environment and renders frames of them."""

    def __init__(self, env: NavEnv):
        self.env = env
        self._paths: list[list[np.ndarray]] = [[] for _ in range(env.num_envs)]
        self._episodes = np.full(env.num_envs, -1)
        self._maps: dict[tuple[int, int], TopDownMap] = {}

    def follow(self) -> None:
        """Record the agents' positions. A path starts with its episode."""
        bodies = self.env.sim.bodies
        episodes, positions = bodies.episode.cpu().numpy().copy(), bodies.position.cpu().numpy().copy()
        for i, path in enumerate(self._paths):
            if episodes[i] != self._episodes[i]:
                path.clear()
            path.append(positions[i])
        self._episodes = episodes

    def render(self) -> tuple[np.ndarray, ...]:
        """One frame per agent, u8 [H, W, 3]."""
        seen = {
            spec: self.env.last_observation[spec.name].cpu().numpy() for spec in self.env.specs if len(spec.shape) == 3
        }
        return tuple(
            self._compose([Image.fromarray(colour(values[i], spec)) for spec, values in seen.items()], self._map(i))
            for i in range(self.env.num_envs)
        )

    def _map(self, i: int) -> TopDownMap:
        """The map of agent `i` with goal, path and heading."""
        bodies, target = self.env.sim.bodies, self.env.task.target
        row, height = int(bodies.scene[i]), float(bodies.position[i, 1])
        key = row, round(height / STOREY)
        if key not in self._maps:
            scene = self.env.bank.scenes[row]
            self._maps[key] = TopDownMap(scene.navmesh, scene.mesh, height, MAP_SIZE)
        plan = self._maps[key].copy()
        if target is not None:
            plan.draw_goal(target[i].cpu().numpy(), self.env.task.target_radius)
        plan.draw_path(np.array(self._paths[i]))
        plan.draw_start(self._paths[i][-1], float(bodies.heading[i]), BLUE)
        return plan

    def _compose(self, views: list[Image.Image], plan: TopDownMap) -> np.ndarray:
        """Images in a row with the map on the right. The size does not depend on the scene, as videos require."""
        side = MAP_SIZE + FOOT
        scaled = [
            view.resize((round(side * view.width / view.height), side), Image.Resampling.NEAREST) for view in views
        ]
        frame = Image.new("RGB", (sum(view.width for view in scaled) + MAP_SIZE, side), PAPER)
        left = 0
        for picture in (*scaled, plan.image):
            frame.paste(picture, (left, 0))
            left += picture.width
        return np.asarray(frame)
