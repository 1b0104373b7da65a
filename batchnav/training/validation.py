"""Validation during training: the current policy on fixed episodes in unseen scenes."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from batchnav.data.played_file import load_played
from batchnav.envs.observations import goal_categories_of
from batchnav.evaluation.play import evaluate
from batchnav.policy.actor_critic import ActorCritic
from batchnav.policy.agent import PolicyAgent
from batchnav.runtime.bundled import find_split
from batchnav.runtime.distributed import Ranks
from batchnav.tasks import TASKS
from batchnav.training.config import TrainingConfig
from batchnav.training.environment import fixed_episodes


class Validation:
    """Evaluation of the policy on the validation episodes; each rank plays a share of them.

    Args:
        config: the run's configuration. Camera parameters are fixed here (`NavConfig.with_fixed_cameras`).
        policy: the policy in training; `measure` reads its current weights.
        ranks: the processes that train together.
    """

    def __init__(self, config: TrainingConfig, policy: ActorCritic, ranks: Ranks):
        self.ranks = ranks
        path = find_split(config.eval_split, TASKS[config.env.task_name].episode_file)
        file = load_played(path, goal_categories_of(config.env))
        episodes = ranks.shard(file.episodes)
        played = replace(config, env=config.acting_env.with_fixed_cameras)
        self.env = fixed_episodes(file, episodes, played, ranks.device, len(episodes))
        # A copy: the policy in training may be compiled for its own batch size, and keeps its gradients.
        network = ActorCritic(self.env.single_observation_space, self.env.single_action_space, config.policy)
        self.trained, self.agent = policy, PolicyAgent(network.to(ranks.device))

    def measure(self) -> dict[str, float]:
        """Means of the task's metrics over all validation episodes, by name."""
        self.agent.network.load_state_dict(self.trained.state_dict())
        results = evaluate(self.agent, self.env, self.env.num_envs)
        names = [metric.name for metric in self.env.task.metric_specs if metric.shown]
        of_ranks = self.ranks.all_gather({name: results[name] for name in names})
        return {name: float(np.concatenate([found[name] for found in of_ranks]).mean()) for name in names}
