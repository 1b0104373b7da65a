"""`Learner`, the base of algorithms that collect rollouts and take gradient steps on them.

`update` does not synchronise with the device; `UpdateStats.read` does. A rollout and an optimiser step work on tensors
with fixed addresses, so each can be one CUDA graph.

Several processes may train one policy (`runtime.distributed`), each in its own environments. They start from equal
weights and generator states and take each step with the mean of all gradients, so their weights stay bit-equal. A step
then learns from one minibatch of each process. It consists of two graphs; the sum over processes (NCCL) runs between
them, outside the graphs.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

import torch
from torch.nn.modules.batchnorm import _BatchNorm

from batchnav.config import validate
from batchnav.errors import ArgumentError, CheckpointError, ConfigError
from batchnav.learning.algorithm import OWN, Expert, Samples
from batchnav.learning.config import ImitationConfig, LearnerConfig
from batchnav.learning.losses import imitation_loss, mask_loss
from batchnav.learning.optimizers import Bucket, check_optimizer_state, learning_rate, make_optimizer
from batchnav.learning.rollout import Rollout
from batchnav.learning.stats import EpisodeSums, Timer, UpdateStats
from batchnav.policy.actor_critic import Act, ActorCritic, Evaluation
from batchnav.policy.memory import State, copy_state_, state_tensors
from batchnav.policy.observations import as_dict
from batchnav.runtime.checks import check_int
from batchnav.runtime.conversion import check_torch, copied_to_cpu, vec_env
from batchnav.runtime.distributed import Ranks
from batchnav.runtime.kernels.arrays import is_dense, tensor_text
from batchnav.runtime.kernels.graphs import Graphs
from batchnav.runtime.weights import check_names_and_shapes
from batchnav.types import VecEnv

_MOST_FRAMES = 2**63 - 1


class Learner:
    """Learns one policy in one vectorised environment, on the environment's device.

        learner = PPO(policy, env, PPO.Config(num_envs=64), seed=0)
        while learner.frames < learner.config.total_frames:
            stats = learner.update(learner.config.progress(learner.frames))

    A subclass defines `loss`, and `Config` and the further hooks where it needs them:

        begin_update(progress)    before the rollout, outside the graphs: coefficients, random numbers
        choose(t, act)            the action that is executed in step t; in the graph of the rollout
        finish_rollout()          after the rollout, outside the graphs: advantages
        loss(envs, evaluated)     the loss of one minibatch; in the graph of the optimiser step
        summary()                 further scalars of the update

    Hooks do not synchronise with the device; those in a graph work on tensors that stay where they are.
    BatchNorm layers of an encoder use their stored statistics: those of a batch would differ between acting and
    learning.

    Args:
        policy: the network; moved to the environment's device.
        env: the environments; reset with `seed`.
        config: settings; `num_envs` counts the environments of this process, `total_frames` the steps of all processes.
        seed: seed of environments, action sampling and minibatches. The caller seeds the initial weights.
        compile: run the network through torch.compile.
        graphs: replay the optimiser step, and the rollout if the environment is `capturable`, as CUDA graphs. Kernels
            and their order are the same, so results are equal. No effect on the CPU.
        ranks: the processes that train together, with equal settings and seed but different environments (`first_env`
            of `NavEnv`); None: this process alone.
        expert: labels the observations of the rollout with its actions, `rollout.expert_action`.
        imitation: coefficient and schedule of the imitation loss that is added where there is an expert.

    Raises:
        ConfigError: environment and configuration do not fit.
    """

    Config: ClassVar[type[LearnerConfig]] = LearnerConfig
    """Dataclass of the settings."""
    curves: ClassVar[Mapping[str, tuple[str, str]]] = {
        "entropy": ("entropy", "nats"),
        "mask_loss": ("loss of the predicted mask", ""),
        "mask_iou": ("IoU of the predicted mask", ""),
    }
    """Title and unit of the scalars that pages of runs plot, by name."""
    learns_values = True
    """False for an algorithm that does not read value estimates: the value head does not learn."""
    adds_imitation = True
    """False for an algorithm whose own loss imitates the expert."""

    @torch.inference_mode(False)
    def __init__(
        self,
        policy: ActorCritic,
        env: VecEnv,
        config: Any,
        seed: int = 0,
        compile: bool = False,
        graphs: bool = False,
        ranks: Ranks | None = None,
        expert: Expert | None = None,
        imitation: ImitationConfig | None = None,
    ):
        validate(config)
        env = vec_env(env)
        if config.num_envs != env.num_envs:
            raise ConfigError(f"num_envs: found {config.num_envs}, expected the environment's {env.num_envs}")
        self.device = torch.device(env.device)
        self.env, self.config, self.seed = env, config, seed
        self.ranks = ranks or Ranks(self.device)
        self.policy = policy.to(self.device)
        if not self.learns_values:
            self.policy.critic.requires_grad_(False)
        for layer in self.policy.modules():
            if isinstance(layer, _BatchNorm):
                layer.eval()
        if compile:
            self.policy.compile_parts()
        self.frames = 0
        self.lr = torch.tensor(0.0, dtype=torch.float32, device=self.device)
        self.optimizer = make_optimizer(self.policy, config, self.lr)
        self.generator = torch.Generator(self.device).manual_seed(seed)
        self.state = self.policy.initial_state(env.num_envs, self.device)
        self._check_observations()
        T, actions = config.rollout_steps, self.policy.actions
        types = self.policy.rollout_types(env.storage)
        self.rollout = Rollout(
            self.policy.rollout_shapes, types, T, env.num_envs, self.device, self.state, actions,
            self.policy.encoded_shapes,
        )  # fmt: skip
        self._features = self.policy.feature_memory(fixed=self.device.type == "cuda")
        self.uniforms = torch.empty(T, env.num_envs, *actions.shape, dtype=torch.float32, device=self.device)
        self.expert, self.imitation = expert, imitation or ImitationConfig()
        self.imitation_coef = torch.tensor(0.0, dtype=torch.float32, device=self.device)
        if self.ranks.is_distributed:
            self.bucket = Bucket(self.policy.parameters())
            self.bucket.broadcast_(self.ranks)
            self._all_uniforms = torch.cat([self.uniforms] * self.ranks.world_size, dim=1)
        self.minibatch = torch.zeros(config.num_envs // config.minibatches, dtype=torch.int64, device=self.device)
        self.episodes = EpisodeSums(env.num_envs, self.device)
        self._stats_names: tuple[str, ...] = ()
        self._graphs = graphs
        self._record()
        self._begin(seed)

    def _check_observations(self) -> None:
        """ConfigError where the environment's observations do not fit the policy."""
        for name, setting in self.policy.config.labels.items():
            if name not in self.policy.label_shapes:
                raise ConfigError(f"{setting}: found no observation {name!r} to learn from, expected it")
        for name in self.policy.num_categories:
            if self.env.storage[name].is_floating_point:
                raise ConfigError(f"storage[{name!r}]: found {self.env.storage[name]}, expected integers, as observed")

    def _begin(self, seed: int) -> None:
        """Reset the environments and put their first observations into the last row of the rollout."""
        obs, _ = self.env.reset(seed=seed)
        check_torch(obs)
        if self._features is not None:
            self._features.clear()
        self._put_obs(-1, obs)
        self.rollout.start[-1] = True

    def replace_env(self, env: VecEnv) -> None:
        """Continue in another environment with the same shapes, from the current observations and memory."""
        self.env = env
        self._record()

    def _record(self) -> None:
        """Set up the functions of rollout and optimiser step; with CUDA graphs, their next calls record new graphs."""
        graphs = Graphs(self.device, self._graphs)
        self._collect_rollout = graphs.wrap(self._collect_steps) if self.env.capturable else self._collect_steps
        self._find_gradients, self._take_step = self._gradients_of_rollout, self._step_by_mean
        if not self.ranks.is_distributed:
            self._learn_minibatch = graphs.wrap(self._learn_from_rollout)
        else:
            self._find_gradients = graphs.wrap(self._gradients_of_rollout)
            self._take_step = graphs.wrap(self._step_by_mean)
            self._learn_minibatch = self._learn_together

    # What an algorithm defines.

    def begin_update(self, progress: float) -> None:
        """Prepare an update before its rollout; `progress`: finished fraction of the run."""

    def choose(self, t: int, act: Act) -> torch.Tensor:
        """The action that is executed in step t of the rollout, as `Act.action`: the policy's."""
        return act.action

    def finish_rollout(self) -> None:
        """Compute what the loss needs from the whole rollout, such as advantages."""

    def loss(self, envs: torch.Tensor, evaluated: Evaluation) -> tuple[torch.Tensor, dict[str, torch.Tensor]]:
        """The loss on the sequences of some environments: f32 scalar with gradient, and detached scalars by name.

        Args:
            envs: indices of the B environments, i64 [B]; `rollout.action[:, envs]` are their actions [T, B].
            evaluated: the current policy's outputs at the rollout's observations and actions, f32 [T, B].
        """
        raise NotImplementedError(f"{type(self).__name__}: found no method `loss`, expected one; define it")

    def summary(self) -> dict[str, torch.Tensor]:
        """Further scalars of the update by name, on the device."""
        return {}

    def samples(self) -> Samples:
        """Tensors of the last rollout, for TensorBoard."""
        rollout = self.rollout
        values = {"value": rollout.value} if self.learns_values else {}
        return Samples(rollout.get_obs(-1) | rollout.latest, {**values, "action": rollout.action})

    # The update.

    def update(self, progress: float) -> UpdateStats:
        """Collect one rollout and learn from it. `progress`: finished fraction of the run, 0 to 1, for schedules.

        Returns the update's statistics on the device; `read()` copies them to the host.
        """
        config, ranks, timer = self.config, self.ranks, Timer(self.device)
        lr = self.learning_rate(progress)
        self.lr.fill_(lr)
        self.imitation_coef.fill_(self.imitation.coef_at(progress))
        self.begin_update(progress)
        between_rollouts = self.env.between_rollouts()
        self.collect()
        timer.mark()
        rollout = self.rollout
        self.finish_rollout()
        parts = []
        for _ in range(config.epochs):
            for envs in self._sample_minibatches():
                self.minibatch.copy_(envs)
                parts.append(self._learn_minibatch().clone())
        self.policy.update_norms({name: rows[: rollout.num_steps] for name, rows in rollout.obs.items()}, ranks.average)
        timer.mark()
        self.frames += self.frames_per_update
        found, num_finite = torch.stack(parts), None
        if ranks.is_distributed:
            own_norm = found[:, -2]
            num_finite = (found[:, 0] + own_norm).isfinite().cumprod(0).sum()
            found = torch.cat([found[:, :-2], found[:, -1:]], dim=1)
        return UpdateStats(
            frames=self.frames,
            learning_rate=lr,
            losses=dict(zip((*self._stats_names, "grad_norm"), found.mean(0).unbind(), strict=True)) | self.summary(),
            reward=rollout.reward.mean(),
            episodes=self.episodes.take(),
            between_rollouts=between_rollouts,
            timer=timer,
            num_finite=num_finite,
        )

    def learning_rate(self, progress: float) -> float:
        """Learning rate at this progress of the run, 0 to 1."""
        return learning_rate(progress, self.config.learning_rate, self.frames_per_update // self.config.minibatches)

    def schedules(self, progress: float) -> dict[str, float]:
        """Learning rate, and coefficient of the imitation loss where there is one, at this progress of the run."""
        values = {"learning rate": self.learning_rate(progress)}
        if self.expert and self.adds_imitation:
            values["imitation coefficient"] = self.imitation.coef_at(progress)
        return values

    @property
    def frames_per_update(self) -> int:
        """Environment steps of all ranks in one update."""
        return self.config.frames_per_update * self.ranks.world_size

    def _sample_minibatches(self) -> torch.Tensor:
        """Random partition of the environments, i64 [minibatches, B], equal on all ranks."""
        order = torch.randperm(self.config.num_envs, generator=self.generator, dtype=torch.int64, device=self.device)
        return order.view(self.config.minibatches, -1)

    # The rollout.

    @torch.no_grad()
    def collect(self) -> None:
        """Fill the rollout with `rollout_steps` steps of every environment."""
        self.fill_uniform_(self.uniforms)
        self._collect_rollout()

    def fill_uniform_(self, uniforms: torch.Tensor) -> None:
        """Fill f32 [T, N, ...] with random numbers in [0, 1): on several ranks, with this rank's part of all ranks'."""
        if not self.ranks.is_distributed:
            uniforms.uniform_(generator=self.generator)
            return
        # Sample for all ranks, as one process would.
        mine = slice(self.ranks.rank * self.env.num_envs, (self.ranks.rank + 1) * self.env.num_envs)
        everyones = self._all_uniforms if uniforms.shape == self.uniforms.shape else self._all_uniforms[..., 0]
        uniforms.copy_(everyones.uniform_(generator=self.generator)[:, mine])

    @torch.no_grad()
    def _collect_steps(self) -> None:
        """The steps of `collect`, with actions sampled from `uniforms`."""
        rollout, state = self.rollout, self.state
        rollout.roll()
        copy_state_(rollout.state0, state)
        with self._autocast():
            for t in range(rollout.num_steps):
                if self.expert:
                    rollout.expert_action[t] = self.expert(rollout.targets(t), self._expert_begins(t))
                act = self.policy.act(
                    rollout.get_obs(t), rollout.prev_action[t], rollout.start[t], state, self.uniforms[t]
                )
                state = act.state
                rollout.action[t] = self.choose(t, act)
                rollout.log_prob[t] = act.log_prob
                rollout.value[t] = act.value
                reward, terminated, truncated, info = self._step(t)
                rollout.reward[t] = reward
                torch.logical_or(terminated, truncated, out=rollout.start[t + 1])
                if self.config.reads_final_obs:
                    self._bootstrap(t, truncated & ~terminated, info, state)
                self.episodes.add(info)
            if self.learns_values:
                T = rollout.num_steps
                last = self.policy.value(rollout.get_obs(T), rollout.prev_action[T], rollout.start[T], state)
        copy_state_(self.state, state)
        self.env.settle()
        if self.learns_values:
            # V(s_{t+1}) inside an episode; at its end 0, or the value that `_bootstrap` wrote
            following = torch.cat([rollout.value[1:], last[None]])
            ended = rollout.next_value if self.config.reads_final_obs else torch.zeros_like(following)
            torch.where(rollout.done, ended, following, out=rollout.next_value)

    def _expert_begins(self, t: int) -> torch.Tensor:
        """bool [N], set where the expert's action of step t - 1 was not executed, or an episode or the rollout begins.

        An expert forgets there what it was about to do, a sequence of turns for example.
        """
        if t == 0:
            return torch.ones_like(self.rollout.start[0])
        other = (self.rollout.prev_action[t] != self.rollout.expert_action[t - 1]).reshape(self.env.num_envs, -1)
        return self.rollout.start[t] | other.any(1)

    def _step(self, t: int) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, Mapping[str, Any]]:
        """Step the environment. Its observation goes to row t + 1, without a copy if the environment wrote it there."""
        self.env.observe_into(self.rollout.targets(t + 1))
        obs, reward, terminated, truncated, info = self.env.step(self.rollout.action[t])
        self._put_obs(t + 1, obs)
        return reward, terminated, truncated, info

    def _put_obs(self, t: int, obs: Any) -> None:
        """Put an observation into row t of the rollout, with the features of images that a frozen encoder reads."""
        self.rollout.put_obs(t, self.policy.with_features(obs, self._features))

    def _bootstrap(self, t: int, cut: torch.Tensor, info: Mapping[str, Any], state: State) -> None:
        """Write V(final observation), with the memory after step t, to next_value[t] where `cut`, else 0."""
        if "final_obs" not in info:
            raise ConfigError(
                "timeout_bootstrap: found no 'final_obs' in the environment's info, expected one; enable it there"
            )
        final_obs, never = as_dict(info["final_obs"]), torch.zeros_like(cut)
        value = self.policy.value(final_obs, self.rollout.action[t], never, state)
        self.rollout.next_value[t] = torch.where(cut, value, 0.0)

    # The optimiser step.

    def _learn_from_rollout(self) -> torch.Tensor:
        """One optimiser step on the environments in `minibatch`; returns `_loss`'s statistics and the gradient norm."""
        loss, stats = self._loss(self.minibatch)
        self.optimizer.zero_grad(set_to_none=True)
        loss.backward()
        return torch.stack([*stats, self._step_optimizer()])

    def _learn_together(self) -> torch.Tensor:
        """`_learn_from_rollout` with all ranks' mean gradient: statistics, own norm, norm of the mean."""
        stats = self._find_gradients()
        self.ranks.sum_(self.bucket.flat)
        return torch.cat([stats, self._take_step()])

    def _gradients_of_rollout(self) -> torch.Tensor:
        """Write this rank's gradients to the bucket; returns statistics and the norm of these gradients."""
        self.bucket.flat.zero_()
        loss, stats = self._loss(self.minibatch)
        loss.backward()
        return torch.stack([*stats, self.bucket.flat.norm()])

    def _step_by_mean(self) -> torch.Tensor:
        """One optimiser step by the mean of the gradients whose sum is in the bucket; returns its norm, f32 [1]."""
        self.bucket.flat.div_(self.ranks.world_size)
        return self._step_optimizer()[None]

    def _step_optimizer(self) -> torch.Tensor:
        """Clip the gradients and take an optimiser step; returns their norm before clipping."""
        grad_norm = torch.nn.utils.clip_grad_norm_(self.policy.parameters(), self.config.max_grad_norm)
        self.optimizer.step()
        return grad_norm

    def _loss(self, envs: torch.Tensor) -> tuple[torch.Tensor, tuple[torch.Tensor, ...]]:
        """Loss on the sequences of the environments `envs` i64 [B] with the terms that any algorithm may have.

        The statistics are those of `loss`, "loss" first, then those of predicted mask and auxiliary losses;
        `_stats_names` names them.
        """
        rollout, T = self.rollout, self.config.rollout_steps
        obs = {name: rollout.take_obs(name, envs) for name in rollout.obs}
        with self._autocast():
            evaluated = self.policy.evaluate(
                obs,
                rollout.prev_action[:T, envs],
                rollout.start[:T, envs],
                self.policy.body.take(rollout.state0, envs),
                rollout.action[:, envs],
            )
        loss, stats = self.loss(envs, evaluated)
        stats = {"loss": loss.detach(), **stats}
        if self.expert and self.adds_imitation:
            loss = loss + self.imitation_coef * imitation_loss(self.expert_log_prob(envs, evaluated))
        if evaluated.mask_logits is not None:
            of_mask, mask_stats = mask_loss(evaluated.mask_logits, obs[self.policy.config.predicted_mask])
            loss, stats = loss + self.config.mask_coef * of_mask, stats | mask_stats
        if evaluated.auxiliary is not None:
            loss, stats = loss + evaluated.auxiliary[0], stats | evaluated.auxiliary[1]
        self._stats_names = tuple(stats)
        return loss, tuple(stats.values())

    def expert_log_prob(self, envs: torch.Tensor, evaluated: Evaluation) -> torch.Tensor:
        """Log probability of the expert's actions by the current policy, f32 [T, B]."""
        return self.policy.actions.evaluate(evaluated.outputs, self.rollout.expert_action[:, envs])[0]

    def _autocast(self) -> torch.autocast:
        """Autocast to bfloat16 products on CUDA; float32 on the CPU."""
        return torch.autocast(self.device.type, dtype=torch.bfloat16, enabled=self.device.type == "cuda")

    # The state.

    def state_dict(self) -> dict[str, Any]:
        """State from which training continues, on the CPU bit for bit.

        Nested dicts and lists of numbers and of tensors, which are copies on the CPU. Ranks differ in the key OWN. Its
        "obs" lacks observations that the environment computes again from its own state, bit for bit.
        """
        rollout = self.rollout
        state = {
            "frames": self.frames,
            "policy": self.policy.state_dict(),
            "optimizer": self.optimizer.state_dict(),
            "generator": self.generator.get_state(),
            OWN: {
                "memory": self.state if isinstance(self.state, torch.Tensor) else state_tensors(self.state),
                "obs": rollout.last_obs_without(self.env.observe_again()),
                "start": rollout.start[-1],
                "prev_action": rollout.prev_action[-1],
                "env": self.env.state_dict(),
            },
        }
        return copied_to_cpu(state)  # the environment's too: one from another package may return live tensors

    def load_state_dict(self, state: dict[str, Any], new_episodes: bool = False) -> None:
        """Continue from the result of `state_dict`.

        Args:
            state: the state.
            new_episodes: start new episodes instead of loading the key OWN.

        Raises:
            CheckpointError: the state does not fit this run.
        """
        misfit = "resume state: does not fit this run"
        try:
            check_names_and_shapes(state["policy"], self.policy.state_dict(), misfit)
            try:
                moments = check_optimizer_state(state["optimizer"], self.optimizer, self.config.optimizer)
                frames = check_int("frames", state["frames"], 0, _MOST_FRAMES)
            except (ArgumentError, CheckpointError) as error:
                raise CheckpointError(f"{misfit}: {error}") from error
            self.policy.load_state_dict(state["policy"])
            # Hyperparameters are this run's settings; only the optimiser's moments and counts are loaded.
            groups = self.optimizer.state_dict()["param_groups"]
            self.optimizer.load_state_dict({"state": moments, "param_groups": groups})
            self.optimizer.param_groups[0]["lr"] = self.lr
            self.generator.set_state(state["generator"].cpu())
            self.frames = frames
            if new_episodes:
                self._begin(self.seed + self.frames)  # other episodes than at the start of the run
            else:
                self._load_own(state[OWN])
            self._record()  # the optimiser's state has new addresses
        except (KeyError, IndexError, RuntimeError, ValueError, TypeError, AttributeError) as error:
            message = " ".join(str(error).split())  # torch's messages have several lines
            raise CheckpointError(f"{misfit} ({type(error).__name__}: {message})") from error

    def _load_own(self, state: dict[str, Any]) -> None:
        """Load what differs between ranks."""
        rollout, categories = self.rollout, self.policy.num_categories
        last = {"start": rollout.start[-1], "prev_action": rollout.prev_action[-1]}
        for name, target in last.items():
            size = self.policy.actions.num_outputs if name == "prev_action" and not self.policy.actions.shape else None
            _check_saved(name, state[name], target, size)
        self.env.load_state_dict(state["env"])
        obs = {**self.env.observe_again(), **state["obs"]}
        latest = rollout.get_obs(-1) | rollout.latest
        for name, row in latest.items():
            _check_saved(f"obs[{name!r}]", obs[name], row, categories.get(name))
        copy_state_(self.state, state["memory"])
        for name, target in last.items():
            target.copy_(state[name])
        for name, row in latest.items():
            row.copy_(obs[name])
        if self._features is not None:
            self._features.restore(rollout.latest, latest)


def _check_saved(name: str, found: Any, target: torch.Tensor, size: int | None) -> None:
    """ValueError where a saved tensor does not fit its target, or an integer is not one of `size` values."""
    fits = isinstance(found, torch.Tensor) and is_dense(found) and found.shape == target.shape
    if not fits or not (found.dtype == target.dtype or (found.is_floating_point() and target.is_floating_point())):
        raise ValueError(f"{name}: found {tensor_text(found)}, expected {target.dtype} {list(target.shape)}")
    if size is not None and ((found < 0) | (found >= size)).any():
        raise ValueError(f"{name}: found a value out of range, expected 0 to {size - 1}")
