"""Validation during training on fixed episodes in unseen scenes, and the policies that a run keeps."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from batchnav.data.formats import load_episodes
from batchnav.evaluation.play import evaluate
from batchnav.policy.actor_critic import ActorCritic
from batchnav.policy.agent import PolicyAgent
from batchnav.policy.pretrained import weights_follow
from batchnav.report.charts import is_plottable, load_metrics
from batchnav.runtime.bundled import find_split
from batchnav.runtime.distributed import Ranks
from batchnav.tasks import TASKS
from batchnav.training.config import TrainingConfig
from batchnav.training.environment import fixed_episodes


class Validation:
    """Evaluation of the policy on the validation episodes; each rank plays a share of them.

    Args:
        config: the run's configuration. It validates in `NavConfig.for_evaluation`.
        policy: the policy in training; `measure` reads its current weights.
        ranks: the processes that train together.
    """

    def __init__(self, config: TrainingConfig, policy: ActorCritic, ranks: Ranks):
        self.ranks = ranks
        files = {name: task.episode_file for name, task in TASKS.items()}
        path = find_split(config.eval_split, files[config.env.task_name], files.values())
        dataset = load_episodes(path)
        mine = dataset.with_episodes(ranks.shard(dataset.episodes))
        played = replace(config, env=config.acting_env.for_evaluation)
        self.env = fixed_episodes(mine, played, ranks.device, len(mine))
        # A copy: the policy in training may be compiled for its own batch size, and keeps its gradients.
        with weights_follow():
            network = ActorCritic(self.env.single_observation_space, self.env.single_action_space, config.policy)
        self.trained, self.agent = policy, PolicyAgent(network.to(ranks.device))

    def measure(self) -> dict[str, float]:
        """Means of the task's metrics over all validation episodes, by name."""
        self.agent.network.load_state_dict(self.trained.state_dict())
        results = evaluate(self.agent, self.env, self.env.num_envs)
        names = [metric.name for metric in self.env.task.metric_specs if metric.shown]
        of_ranks = self.ranks.all_gather({name: results[name] for name in names})
        return {name: float(np.concatenate([found[name] for found in of_ranks]).mean()) for name in names}


class Checkpoints:
    """Writes checkpoints of the policy.

        checkpoints/policy_000001000000.safetensors    a series, one file after each interval of `every` frames
        best.safetensors                               best policy so far on the validation episodes

    Args:
        folder: the run's folder; after a resume, the best score so far is read from its `metrics.jsonl`.
        every: interval of the series, frames; 0: no series.
        metrics: names of the metrics that rank policies, the most important one first.
        write: writes the current policy to a file.
    """

    def __init__(self, folder: Path, every: int, metrics: Sequence[str], write: Callable[[Path], None]):
        self.folder, self.every, self.metrics, self.write = folder, every, tuple(metrics), write
        _, evaluations = load_metrics(folder / "metrics.jsonl")
        self._best = max((self._score(row["eval"]) for row in evaluations), default=None)

    def after_update(self, before: int, frames: int) -> None:
        """Write a checkpoint of the series if one is due; the update went from frame `before` to frame `frames`."""
        if self.every and before // self.every != frames // self.every:
            self.write(self.folder / "checkpoints" / f"policy_{frames:012d}.safetensors")

    def after_validation(self, found: Mapping[str, float]) -> None:
        """Write `best.safetensors` if the metrics `found`, by name, rank above those of all earlier validations."""
        score = self._score(found)
        if self._best is None or score > self._best:
            self._best = score
            self.write(self.folder / "best.safetensors")

    def _score(self, found: Mapping[str, float | None]) -> tuple[float, ...]:
        """Values of the ranking metrics; a value that is no finite number (null in a file) ranks last."""
        values = (found.get(name) for name in self.metrics)
        return tuple(value if is_plottable(value) else -math.inf for value in values)
