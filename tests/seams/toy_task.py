"""A task with a kind of goal of its own, from outside the package: go to a corner that the episode names.

One file, three registrations. The file of episodes has no positions of goals: they follow from the scene.
"""

import json
from dataclasses import asdict, dataclass, replace

import numpy as np
import torch

from batchnav.data.episodes import Episode, Goal
from batchnav.data.formats import FORMATS, EpisodeDataset, Format
from batchnav.data.goals import GOALS
from batchnav.data.goals.point import PointGoals, generate_starts
from batchnav.observation import Spec, TaskObservation
from batchnav.tasks import TASKS
from batchnav.tasks.pointnav import PointNav, PointNavConfig

CORNERS = ("north west", "north east", "south west", "south east")
FIELDS = ("episode_id", "scene_id", "start_position", "start_rotation", "corner")


@dataclass(frozen=True)
class CornerEpisode(Episode):
    """An episode without a position of its goal."""

    goals: tuple = ()
    corner: str = ""


def read(file, content_scenes):
    """One JSON object a line."""
    rows = [json.loads(line) for line in file.path.read_text().splitlines()]
    rows = [{name: tuple(value) if isinstance(value, list) else value for name, value in row.items()} for row in rows]
    return EpisodeDataset([CornerEpisode(**row) for row in rows], "corner")


def write(dataset, path, content):
    """Write the objects."""
    path.write_text("".join(json.dumps({k: asdict(e)[k] for k in FIELDS}) + "\n" for e in dataset))


def pointed(episode, scene):
    """The episode with the position of its corner: the point of the navmesh that is nearest to it."""
    low, high = scene.navmesh.bounds
    number = CORNERS.index(episode.corner)
    x, z = (low, high)[number % 2][0], (low, high)[number // 2][2]
    (place,) = scene.navmesh.snap(np.array([(x * 0.9, low[1], z * 0.9)], np.float32)).tolist()
    return replace(episode, goals=(Goal(tuple(place)),))


class CornerGoals(PointGoals):
    """Corners of a scene."""

    name, task, plays, title, format = "corner", "corner", ("corner",), "CornerNav", "corner"
    failures = {"left it": "it was at the corner, and went on", "never there": "it never came to the corner"}  # noqa: RUF012

    def generate(self, scenes, per_scene, seed, config):
        """Random starts; the corners take turns."""
        rows = [(e, CORNERS[i % 4]) for scene in scenes for i, e in enumerate(generate_starts(scene, per_scene, seed))]
        found = [CornerEpisode(e.episode_id, e.scene_id, e.start_position, e.start_rotation, corner=c) for e, c in rows]
        return EpisodeDataset(found, "corner", format="corner")

    def out_of_reach(self, episodes, scene, success_distance):
        """As points."""
        return super().out_of_reach([pointed(e, scene) for e in episodes], scene, success_distance)

    def unplayable(self, episodes, scene):
        """As points."""
        for episode, problem in super().unplayable([pointed(e, scene) for e in episodes], scene):
            yield next(each for each in episodes if each.episode_id == episode.episode_id), problem

    def findings(self, playable, episodes, scene):
        """None."""
        return iter(())

    def table(self, episodes, bank):
        """As points."""
        scenes = {scene.name: scene for scene in bank.scenes}
        return super().table([pointed(e, scenes[e.scene_id]) for e in episodes], bank)

    def category(self, episode):
        """The corner."""
        return episode.corner

    def shown(self, episode, scene):
        """As a point."""
        return super().shown(pointed(episode, scene), scene)

    def failure(self, failed):
        """Whether the agent was ever there."""
        (goal,) = pointed(failed.episode, failed.scene).goals
        return "left it" if failed.at(np.array([goal.position], np.float32)).any() else "never there"


@dataclass(frozen=True)
class CornerNavConfig(PointNavConfig):
    """Settings of the task."""

    success_distance: float = 0.5


class CornerNav(PointNav):
    """Go to the corner with the number that the agent observes."""

    Config = CornerNavConfig
    title = "CornerNav"
    goal_kind = "corner"
    reference_agents = ("random", "shortest_path")

    def _bind(self):
        super()._bind()
        begin, self._corner = self.begin_episodes, torch.zeros(self.sim.num_envs, dtype=torch.int64)

        def begin_and_name(all_agents):
            begin(all_agents)
            goal = self.running.goal
            self._corner.copy_((goal[:, 0] > 0).long() + 2 * (goal[:, 2] > 0).long())

        self.begin_episodes = begin_and_name

    def __init__(self, sim, config, episodes=None):
        super().__init__(sim, config, episodes)
        self.observations = {"corner": self._corner}

    @staticmethod
    def sources(config):
        """The number of the corner."""
        return (TaskObservation(Spec("corner", (), torch.int64, 0, 3, torch.int64)),)


TASKS["corner"] = CornerNav
GOALS["corner"] = CornerGoals()
FORMATS["corner"] = Format(lambda file: True, read, write, suffix=".corners")
