"""A training run's configuration: what the environment is made of, where it runs, the policy and PPO."""

from __future__ import annotations

from dataclasses import dataclass, field, fields, replace
from typing import Literal

import torch

from batchnav.config import in_range
from batchnav.data.config import ScenesConfig
from batchnav.envs.config import NavConfig
from batchnav.envs.observations import needed_appearance
from batchnav.errors import ConfigError
from batchnav.mapping.mapper import WAYPOINT
from batchnav.policy.config import PolicyConfig
from batchnav.ppo.config import KickstartConfig, PPOConfig
from batchnav.runtime.distributed.ranks import Ranks
from batchnav.scene.appearance import FROM_FILES
from batchnav.scene.images import AppearanceConfig
from batchnav.tasks import TASKS


@dataclass(frozen=True)
class PointNavRun(NavConfig):
    """One training run of a navigation agent: of the task that `task` names, PointGoal where it names none."""

    scenes: ScenesConfig = field(default_factory=ScenesConfig)
    policy: PolicyConfig = field(default_factory=PolicyConfig)
    ppo: PPOConfig = field(default_factory=PPOConfig)
    kickstart: KickstartConfig = field(default_factory=KickstartConfig)
    device: str = "auto"
    processes: int = 1
    """On the CPU: train in so many processes of this machine, which share `ppo.num_envs`. Beside other programs
    they have more frames a second, a core each, than one process has with threads. No effect on a GPU."""
    renderer: Literal["raycast", "opengl", "auto"] = "raycast"
    """auto: both draw a few batches at each start, and the faster is taken; the choice is logged."""
    seed: int = 0
    init_from: str = ""
    """A policy to begin with: a file, a run's folder, or the name of one that comes with batchnav. Vectors that it did
    not read, as "waypoint", may be among the sensors. The optimiser begins anew."""
    compile: bool = False
    """Run the policy through torch.compile."""
    graphs: bool = False
    """Replay rollouts and optimiser steps as CUDA graphs: the same losses with less work for the host. No effect on the
    CPU."""
    deterministic: bool = False
    """Only operations that give the same bits twice: the same seed then has the same losses on the same GPU. On the CPU
    that is so without it."""
    save_every: float = 60.0
    """Seconds between two saves of weights and resume state."""
    eval_every: int = 0
    """Frames between two evaluations on the validation episodes, the best of which is kept as `best.safetensors`; 0:
    none while training."""
    keep_every: int = 0
    """Frames between two policies that are kept in `checkpoints`; 0: none but the last."""
    eval_split: Literal["val", "wide_val"] = "val"
    """Which those are: "wide_val" has PointNav episodes for bodies as wide as the Habitat challenges' (radius 0.18
    m)."""
    on_sigusr1: Literal["restart", "save"] = "restart"
    """What SIGUSR1 asks for: a save and an end with status 0, for a scheduler that starts the run again; or a save."""

    def validate(self) -> None:
        """ConfigError where a value is out of range."""
        super().validate()
        if (self.scenes.slots or self.scenes.gigabytes) and self.renderer != "raycast":
            raise ConfigError(f"renderer: found {self.renderer!r} with scenes that take turns, expected 'raycast'")
        if self.scenes.redraw_finishes and "paint" not in needed_appearance(self.nav):
            raise ConfigError(
                f"redraw_finishes: found true with sensors {', '.join(self.sensors)}, expected one that sees colour"
            )
        self._check_teacher()
        in_range(self, "processes", 1, 1024)
        if self.ppo.num_envs % (self.processes * self.ppo.minibatches):
            raise ConfigError(
                f"ppo.num_envs: found {self.ppo.num_envs}, expected a multiple of the {self.processes} processes times "
                f"the {self.ppo.minibatches} minibatches"
            )
        in_range(self, "save_every", 0.0, 1e9)
        in_range(self, "eval_every", 0, 10**13)
        in_range(self, "keep_every", 0, 10**13)
        in_range(self, "seed", 0, 2**62)

    def _check_teacher(self) -> None:
        """ConfigError where the teacher could not play this, or goes by what is not observed."""
        teacher, found = self.kickstart.teacher, f"kickstart.teacher: found {self.kickstart.teacher!r}"
        if not teacher:
            return
        if teacher not in TASKS[self.task_name].reference_agents:
            raise ConfigError(f"{found} with the task {self.task_name}, expected '' or another task")
        if not self.body.is_discrete:
            raise ConfigError(f"{found} with the body's speeds, expected '' or a body that steps and turns")
        if teacher == "planner" and WAYPOINT not in self.sensors:
            raise ConfigError(f"{found} with sensors {', '.join(self.sensors)}, expected {WAYPOINT!r} among them")

    @property
    def appearance(self) -> AppearanceConfig | bool:
        """What is read of surfaces, as `load_scene` takes it: nothing where agents see depth alone."""
        is_read = needed_appearance(self.nav) & FROM_FILES
        return AppearanceConfig(self.scenes.largest_texture) if is_read else False

    def processes_on(self, device: torch.device) -> int:
        """`processes`, on the CPU."""
        return self.processes if device.type == "cpu" else 1

    def ppo_of(self, ranks: Ranks) -> PPOConfig:
        """What one of the processes that train together learns by. ConfigError where they are not as many as said."""
        processes = self.processes_on(ranks.device)
        if processes == 1 or ranks.world_size == 1:
            return self.ppo
        if ranks.world_size != processes:
            raise ConfigError(f"processes: found {processes}, expected {ranks.world_size}, as many as were started")
        return replace(self.ppo, num_envs=self.ppo.num_envs // processes)

    @property
    def appearance_fields(self) -> frozenset[str]:
        """The fields of `scene.appearance.Appearance` that the scenes in memory have."""
        return needed_appearance(self.nav) | ({"finish"} if self.scenes.redraw_finishes else frozenset())

    @property
    def nav(self) -> NavConfig:
        """The environment's part."""
        return NavConfig(**{f.name: getattr(self, f.name) for f in fields(NavConfig)})
