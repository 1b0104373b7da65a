"""What `render` shows: each agent's pictures beside the map with its path."""

from __future__ import annotations

import numpy as np
from PIL import Image

from batchnav.envs.nav import NavEnv
from batchnav.view.mosaic import colour
from batchnav.view.topdown import BLUE, FOOT, PAPER, TopDownMap

MAP_SIZE = 320
"""Pixels of a map's longer side."""
STOREY = 0.5
"""Metres between the heights at which a scene's maps are drawn."""


class Pictures:
    """Follows the agents of an environment, and draws them when asked."""

    def __init__(self, env: NavEnv):
        self.env = env
        self._paths: list[list[np.ndarray]] = [[] for _ in range(env.num_envs)]
        self._episodes = np.full(env.num_envs, -1)
        self._maps: dict[tuple[int, int], TopDownMap] = {}

    def follow(self) -> None:
        """Note where the agents are; a path begins anew with its episode."""
        bodies = self.env.sim.bodies
        episodes, positions = bodies.episode.cpu().numpy().copy(), bodies.position.cpu().numpy().copy()
        for i, path in enumerate(self._paths):
            if episodes[i] != self._episodes[i]:
                path.clear()
            path.append(positions[i])
        self._episodes = episodes

    def draw(self) -> tuple[np.ndarray, ...]:
        """u8 [H, W, 3] for each agent."""
        seen = {spec: self.env.seen[spec.name].cpu().numpy() for spec in self.env.specs if len(spec.shape) == 3}
        return tuple(
            self._beside([Image.fromarray(colour(values[i], spec)) for spec, values in seen.items()], self._map(i))
            for i in range(self.env.num_envs)
        )

    def _map(self, i: int) -> TopDownMap:
        """The map of agent `i`, with its path and where it looks."""
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

    def _beside(self, views: list[Image.Image], plan: TopDownMap) -> np.ndarray:
        """Pictures in a row of one height, the map at the right; of one size whatever the scene, as videos need it."""
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
