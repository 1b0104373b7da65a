"""Instance ImageNav: find the object that an image shows, and stop at one of its view points.

Habitat's task `InstanceImageNav` (Krantz et al., 2022). The image is that of a camera of its own: pose and field of
view belong to the goal. Each object of a scene that has images is a category of its own (`SceneGoals.instances`);
success, rewards and distances are those of ObjectNav.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from batchnav.config import bounded
from batchnav.errors import ArgumentError, EpisodeError
from batchnav.observation import ObservationSource
from batchnav.runtime.kernels.arrays import check_tensor, view
from batchnav.runtime.kernels.launch import kernel
from batchnav.runtime.kernels.rng import uniform4
from batchnav.scene.bank import SceneBank
from batchnav.scene.goals import IMAGE_COLUMNS
from batchnav.sim.episodes import GOAL_DRAW, agent_number
from batchnav.sim.simulator import Simulator
from batchnav.tasks.episode_sampling import EpisodeTable, table_row
from batchnav.tasks.imagenav import ImageNav
from batchnav.tasks.objectnav import ObjectNav, ObjectNavConfig
from batchnav.tasks.task import refuse_where


@kernel(over="queue")
def sample_image(i, bodies, sampling, table, image_rows, num_categories, next_out):
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


@dataclass(frozen=True)
class InstanceImageNavConfig(ObjectNavConfig):
    """Configuration of Instance ImageNav. Defaults: Habitat's, for HM3D."""

    success_target = "the nearest view point of the object in the image"
    max_steps: int = 1000
    categories: tuple[str, ...] = ()
    """Empty: goals are objects, and object ids name them."""
    goal_height: int = bounded(512, 4, 1024)
    """Rows of the goal's image, pixels."""
    goal_width: int = bounded(512, 4, 1024)
    """Columns of the goal's image, pixels."""


class InstanceImageNav(ObjectNav):
    """The Instance ImageNav task."""

    Config = InstanceImageNavConfig
    title = "Instance ImageGoal"
    goal_kind = "instance"
    episode_file = "instance_imagenav_{split}.json.gz"
    reference_agents = ("random", "forward", "shortest_path")
    goal_images = staticmethod(ImageNav.goal_images)

    def __init__(self, sim: Simulator, config: InstanceImageNavConfig, episodes: EpisodeTable | None = None):
        if sim.bank.goals is None:
            raise ArgumentError("scenes: found a bank without goals, expected SceneBank.pack(..., goal_categories=())")
        self._image_rows, self._images = goal_images_of(sim.bank)
        super().__init__(sim, config, episodes)
        self.observations = {}
        self.ranges |= {"goal_image": (0, max(int(self._image_rows[:, 1].max()) - 1, 0))}
        self.no_episode_message = self._no_episode_of("objects with images")

    @staticmethod
    def sources(config: Any) -> tuple[ObservationSource, ...]:
        """None besides the image of the goal."""
        return ()

    @staticmethod
    def goal_categories(config: Any) -> tuple[str, ...]:
        """Empty: those of the scenes."""
        return ()

    @staticmethod
    def goal_image_size(config: InstanceImageNavConfig) -> tuple[int, int]:
        """Height and width of the images of the goal."""
        return config.goal_height, config.goal_width

    @property
    def goal_camera(self) -> torch.Tensor:
        """f32 [N, 6]: cameras of the goals' images, with the columns of `scene.goals.ObjectGoal.images`."""
        state, rows = self.running, self._image_rows
        goal = self.sim.bodies.scene.long() * len(self.categories) + state.category
        return self._images[rows[goal, 0].long() + state.goal_image]

    def check_table(self) -> None:
        """EpisodeError for an episode whose object is not in its scene, or whose image the object does not have."""
        super().check_table()
        table = self.episodes
        if not len(table.scene):
            return
        check_tensor("episodes.goal_image", table.goal_image, (len(table.scene),), torch.int64, self.sim.device)
        assert table.goal_image is not None and table.category is not None
        count = self._image_rows[table.scene.long() * len(self.categories) + table.category, 1]
        bad = (table.goal_image < 0) | (table.goal_image >= count)
        if bad.any():
            row = int(bad.nonzero()[0])
            raise EpisodeError(
                f"episodes.goal_image[{row}]: found {int(table.goal_image[row])}, expected the number of one of the "
                f"goal's {int(count[row])} images, from 0"
            )

    def check_state(self, state: Mapping[str, torch.Tensor]) -> None:
        """CheckpointError for an object that is not in the agent's scene, or an image that the object does not have."""
        super().check_state(state)
        goal = state["scene"].cpu().long() * len(self.categories) + state["category"].cpu()
        number, found = self._image_rows.cpu()[goal, 1], state["goal_image"].cpu()
        refuse_where(found >= number, "goal_image", found, "the number of one of the goal's images")

    def sample_episodes(self) -> None:
        """Sample the queued agents' next episodes: start and object as in ObjectNav, and an image of the object."""
        self.sample_pairs()
        self._pick_images()

    def _bind(self) -> None:
        """Bind the kernels to their arguments; only the actions change between steps."""
        super()._bind()
        sim = self.sim
        read = *map(view, (sim.bodies, sim.sampling, self.episodes, self._image_rows)), np.int32(len(self.categories))
        self._pick_images: Callable[[], None] = sample_image.bind(view(sim.queue), *read, view(self.next_episode))


def goal_images_of(bank: SceneBank, all_goals: bool = True) -> tuple[torch.Tensor, torch.Tensor]:
    """Images of the goals of a bank.

    `all_goals`: True where each goal must have images.

    Returns i32 [K * C, 2], first image and number of images of each (scene, category), and all images f32 [I, 6].
    ArgumentError for goals without images.
    """
    names = bank.goal_categories
    rows, images, first = np.zeros((bank.num_scenes * len(names), 2), np.int32), [], 0
    number = {name: k for k, name in enumerate(names)}
    for k, scene in enumerate(bank.scenes):
        for goal in scene.goals.objects if scene.goals else ():
            if not len(goal.images) and not all_goals:
                continue
            if not len(goal.images):
                raise ArgumentError(
                    f"scene {scene.name!r}: found the goal {goal.name!r} without images, expected goals that "
                    "have some: those of Instance ImageNav files and of `with_image_goals`; ObjectNav's have none"
                )
            rows[k * len(names) + number[goal.category]] = first, len(goal.images)
            images.append(goal.images)
            first += len(goal.images)
    packed = np.concatenate(images or [np.zeros((1, IMAGE_COLUMNS), np.float32)])
    return torch.from_numpy(rows).to(bank.device), torch.from_numpy(packed).to(bank.device)
