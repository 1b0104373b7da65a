"""Configuration of a training run: environment, scenes, policy, algorithm, imitation, and where the run executes."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Literal

import torch

from batchnav.agents.registry import check_expert
from batchnav.config import CHOICES, PRESETS, bounded, chosen_settings, sectioned
from batchnav.data.config import ScenesConfig
from batchnav.envs.config import PRESETS as ENV_PRESETS
from batchnav.envs.config import NavConfig
from batchnav.envs.observations import needed_appearance
from batchnav.errors import ConfigError
from batchnav.learning import ALGORITHMS, ImitationConfig, LearnerConfig
from batchnav.policy.config import PolicyConfig
from batchnav.runtime.distributed import Ranks
from batchnav.scene.appearance import FROM_FILES, ID_FIELDS
from batchnav.scene.images import AppearanceConfig


@sectioned
@dataclass(frozen=True)
class TrainingConfig:
    """Training run of a navigation agent. Defaults: PointGoal navigation with the paper's agent."""

    env: NavConfig = field(default_factory=NavConfig, metadata={PRESETS: lambda: ENV_PRESETS})
    """Environment: body, cameras, sensors and task. `preset` selects a published variant."""
    scenes: ScenesConfig = field(default_factory=ScenesConfig)
    """Training scenes or episodes."""
    policy: PolicyConfig = field(default_factory=PolicyConfig)
    """Architecture of the policy."""
    algorithm: str = field(default="ppo", metadata={CHOICES: (ALGORITHMS,)})
    """Name of the algorithm in `batchnav.learning.ALGORITHMS`: ppo, dagger or one of your own. The section of its name
    has its settings and the length of the run."""
    imitation: ImitationConfig = field(default_factory=ImitationConfig)
    """Imitation of an expert in addition to the algorithm's own loss."""
    imports: tuple[str, ...] = ()
    """Modules of your own that register parts by name: dotted names, or files beside the configuration. They are
    imported, so executed, before the rest of the configuration is read; `--import` adds to them."""
    device: str = "auto"
    """Device: "cpu", "cuda", "cuda:1", or "auto" for a GPU if there is one."""
    processes: int = bounded(1, 1, 1024)
    """Number of CPU training processes that share the algorithm's `num_envs` environments. On a machine that
    also runs other programs, one process per core trains faster than one process with threads. No effect on a GPU."""
    renderer: Literal["raycast", "opengl", "auto"] = "raycast"
    """Renderer. "auto" times both on a few batches at each start, takes the faster one and logs the choice."""
    seed: int = bounded(0, 0, 2**62)
    """Seed of initial weights, episodes and action sampling."""
    init_from: str = ""
    """Initial weights: a policy file, a run's folder, or the name of a bundled policy. The run may add vector
    and integer observations that the policy does not read, for example "waypoint". The optimiser state starts empty.
    "": random weights."""
    compile: bool = False
    """Run the policy through torch.compile: slower start, faster updates on a GPU."""
    graphs: bool = False
    """Replay rollouts and optimiser steps as CUDA graphs: the same losses with less host work. No effect on the CPU."""
    deterministic: bool = False
    """Use deterministic operations only: equal seeds then give equal losses on the same GPU. The CPU is always
    deterministic."""
    save_every: float = bounded(60.0, 0.0, 1e9)
    """Interval between saves of weights and resume state, seconds."""
    eval_every: int = bounded(0, 0, 10**13)
    """Interval between evaluations on the validation episodes, frames; the best policy is kept as `best.safetensors`.
    0: no evaluation during training."""
    keep_every: int = bounded(0, 0, 10**13)
    """Interval between policies kept in `checkpoints`, frames. 0: only the last policy is kept."""
    eval_split: Literal["val", "wide_val"] = "val"
    """Validation episodes. "wide_val" has PointNav episodes for bodies of radius 0.18 m, as in the Habitat
    challenges."""
    on_sigusr1: Literal["restart", "save"] = "restart"
    """Reaction to SIGUSR1: "restart" saves and exits with status 0, for a scheduler that starts the run again; "save"
    saves and continues."""

    def validate(self) -> None:
        """ConfigError for a value out of range, or for settings that contradict each other."""
        if (self.scenes.resident_scenes or self.scenes.gigabytes) and self.renderer != "raycast":
            raise ConfigError(f"renderer: found {self.renderer!r} with scene streaming, expected 'raycast'")
        if self.scenes.randomize_materials and "paint" not in needed_appearance(self.env):
            raise ConfigError(
                f"scenes.randomize_materials: found true with sensors {', '.join(self.env.sensors)}, expected a sensor "
                f"that reads colour among them; add 'rgb' or set false"
            )
        self._check_expert()
        for name, setting in self.policy.labels.items():
            if name not in self.env.sensors:
                raise ConfigError(
                    f"policy.{setting}: found {name!r} with sensors {', '.join(self.env.sensors)}, expected it among "
                    f"them, to learn from"
                )
        if self.learner.num_envs % (self.processes * self.learner.minibatches):
            raise ConfigError(
                f"{self.algorithm}.num_envs: found {self.learner.num_envs}, expected a multiple of the "
                f"{self.processes} processes times the {self.learner.minibatches} minibatches"
            )

    def _check_expert(self) -> None:
        """ConfigError if the expert cannot act in this environment, or if there are two."""
        own = getattr(self.learner, "expert", "")
        if own and self.imitation.expert:
            raise ConfigError(
                f"imitation.expert: found {self.imitation.expert!r} with {self.algorithm}.expert {own!r}, expected one "
                f"of them to be ''"
            )
        if self.expert:
            check_expert(self.expert, self.env, f"{self.algorithm}.expert" if own else "imitation.expert")

    @property
    def learner(self) -> LearnerConfig:
        """Settings of the algorithm. ConfigError for an unknown name."""
        (settings,) = chosen_settings(self, "algorithm")
        return settings

    @property
    def expert(self) -> str:
        """Name of the expert of the algorithm or of the imitation loss; "": none."""
        return getattr(self.learner, "expert", "") or self.imitation.expert

    @property
    def acting_env(self) -> NavConfig:
        """The environment without the labels that the policy learns from, which is that of evaluation and use."""
        labels = self.policy.labels
        sensors = tuple(name for name in self.env.sensors if name not in labels)
        return replace(self.env, sensors=sensors)

    @property
    def appearance(self) -> AppearanceConfig | bool:
        """Surface data that scenes are loaded with, as `load_scene` takes it; False for agents that see depth only."""
        is_read = needed_appearance(self.env) & FROM_FILES
        ids = not is_read.isdisjoint(ID_FIELDS)
        return AppearanceConfig(self.scenes.largest_texture, ids) if is_read else False

    @property
    def appearance_fields(self) -> frozenset[str]:
        """Fields of `scene.appearance.Appearance` that resident scenes hold."""
        return needed_appearance(self.env) | ({"finish"} if self.scenes.randomize_materials else frozenset())

    def processes_on(self, device: torch.device) -> int:
        """Number of training processes of one machine: `processes` on the CPU, 1 on a GPU."""
        return self.processes if device.type == "cpu" else 1

    def learner_of(self, ranks: Ranks) -> LearnerConfig:
        """Settings of the algorithm on one rank: with several CPU processes, `num_envs` is divided among them.

        ConfigError where the number of ranks differs from `processes`.
        """
        processes = self.processes_on(ranks.device)
        if processes == 1 or ranks.world_size == 1:
            return self.learner
        if ranks.world_size != processes:
            raise ConfigError(
                f"processes: found {processes}, expected {ranks.world_size}, the number of started processes"
            )
        return replace(self.learner, num_envs=self.learner.num_envs // processes)
