"""Training throughput of RL libraries on CartPole through batchnav's adapters, compared with batchnav's learner.

    python eval/speed_adapters.py --device cuda --num-envs 4096
    python eval/speed_adapters.py --libraries ours skrl

All libraries use the same environment, rollout size, number of epochs and minibatches. Actor and critic have two layers
of 64 units each; batchnav's learner shares the layers between them, after a linear layer of 32. The libraries are
measured in turn, several times. A library that is not installed or fails is skipped with a message. Option --record
appends rows to eval/results/cartpole.jsonl.
"""

from __future__ import annotations

import contextlib
import importlib.metadata
import io
import time
from collections.abc import Callable
from dataclasses import dataclass

import torch

from batchnav.cartpole.env import CartPoleEnv
from batchnav.cli.console import run
from batchnav.config import bounded
from batchnav.errors import ArgumentError
from batchnav.learning import PPO, PPOConfig
from batchnav.policy.actor_critic import ActorCritic
from batchnav.policy.config import PolicyConfig
from batchnav.report.results import record, row
from batchnav.runtime.device import resolve_device


@dataclass(frozen=True)
class Options:
    """Libraries, and sizes of their training."""

    device: str = "cpu"
    """Device of environments and training: cpu, cuda, or auto for a GPU if there is one."""
    num_envs: int = bounded(4096, 1, 2**24)
    """Number of environments."""
    num_steps: int = bounded(64, 1, 10_000)
    """Steps of each environment in a rollout."""
    epochs: int = bounded(4, 1, 10_000)
    """Passes over a rollout."""
    minibatches: int = bounded(4, 1, 2**24)
    """Minibatches in a pass."""
    seconds: float = bounded(5.0, 1e-3, 86_400.0)
    """Seconds of one measurement."""
    repeats: int = bounded(3, 1, 100_000)
    """Measurements of each library."""
    libraries: tuple[str, ...] = ("ours", "single file", "stable_baselines3", "skrl", "rsl_rl", "torchrl")
    """Libraries to measure; "ours" is batchnav's learner, "single file" is train/ppo_single_file.py."""
    record: bool = False
    """Append result rows to eval/results/cartpole.jsonl."""


Train = Callable[[int], None]
"""Function that trains for a number of updates."""


def ours(options: Options, env: CartPoleEnv) -> Train:
    config = PPOConfig(
        num_envs=options.num_envs, rollout_steps=options.num_steps, epochs=options.epochs,
        minibatches=options.minibatches, optimizer="adamw", timeout_bootstrap=True,
    )  # fmt: skip
    network = PolicyConfig(memory="none", hidden_size=64, embedding_size=32)
    policy = ActorCritic(env.single_observation_space, env.single_action_space, network)
    learner = PPO(policy, env, config, graphs=env.device.type == "cuda")

    def train(updates: int) -> None:
        for _ in range(updates):
            stats = learner.update(0.0)
        stats.read()

    return train


def single_file(options: Options, env: CartPoleEnv) -> Train:
    from train.ppo_single_file import Args
    from train.ppo_single_file import train as whole

    frames = options.num_envs * options.num_steps
    args = Args(
        device=str(env.device), num_envs=options.num_envs, num_steps=options.num_steps, update_epochs=options.epochs,
        num_minibatches=options.minibatches,
    )  # fmt: skip
    return lambda updates: whole(Args(**{**vars(args), "total_frames": updates * frames})) and None


def stable_baselines3(options: Options, env: CartPoleEnv) -> Train:
    from stable_baselines3 import PPO

    from batchnav.envs.adapters.stable_baselines3 import SB3VecEnv

    frames = options.num_envs * options.num_steps
    model = PPO(
        "MlpPolicy", SB3VecEnv(env), n_steps=options.num_steps, batch_size=frames // options.minibatches,
        n_epochs=options.epochs, device=env.device,
    )  # fmt: skip
    return lambda updates: model.learn(updates * frames, reset_num_timesteps=False) and None


def skrl(options: Options, env: CartPoleEnv) -> Train:
    from skrl.agents.torch.ppo import PPO, PPO_CFG
    from skrl.memories.torch import RandomMemory
    from skrl.trainers.torch import SequentialTrainer
    from skrl.utils.model_instantiators.torch import categorical_model, deterministic_model

    from batchnav.envs.adapters.skrl import SkrlEnv

    made = SkrlEnv(env)
    spaces = {"observation_space": made.observation_space, "action_space": made.action_space, "device": made.device}
    net = [{"name": "net", "input": "OBSERVATIONS", "layers": [64, 64], "activations": "tanh"}]
    models = {
        "policy": categorical_model(**spaces, network=net, output="ACTIONS"),
        "value": deterministic_model(**spaces, network=net, output="ONE"),
    }
    config = PPO_CFG(rollouts=options.num_steps, mini_batches=options.minibatches, learning_epochs=options.epochs)
    config.experiment.write_interval = config.experiment.checkpoint_interval = 0
    memory = RandomMemory(memory_size=options.num_steps, num_envs=options.num_envs, device=made.device)
    agent = PPO(models=models, memory=memory, cfg=config, **spaces)

    def train(updates: int) -> None:
        settings = {
            "timesteps": updates * options.num_steps, "disable_progressbar": True, "headless": True,
            "close_environment_at_exit": False,
        }  # fmt: skip
        SequentialTrainer(env=made, agents=agent, cfg=settings).train()

    return train


def rsl_rl(options: Options, env: CartPoleEnv) -> Train:
    from rsl_rl.runners import OnPolicyRunner

    from batchnav.envs.adapters.rsl_rl import OneHotActions, RslRlEnv

    network = {"class_name": "MLPModel", "hidden_dims": [64, 64], "activation": "tanh"}
    config = {
        "num_steps_per_env": options.num_steps, "save_interval": 1 << 30,
        "obs_groups": {"actor": ["observation"], "critic": ["observation"]},
        "algorithm": {
            "class_name": "PPO", "num_learning_epochs": options.epochs, "num_mini_batches": options.minibatches,
            "schedule": "fixed",
        },
        "actor": {**network, "distribution_cfg": {"class_name": OneHotActions}}, "critic": network,
    }  # fmt: skip
    return OnPolicyRunner(RslRlEnv(env, 500), config, device=str(env.device)).learn


def torchrl(options: Options, env: CartPoleEnv) -> Train:
    from tensordict.nn import TensorDictModule
    from torchrl.collectors import Collector
    from torchrl.modules import MLP, ProbabilisticActor, ValueOperator
    from torchrl.objectives import ClipPPOLoss
    from torchrl.objectives.value import GAE

    from batchnav.envs.adapters.torchrl import TorchRLEnv

    made, frames = TorchRLEnv(env), options.num_envs * options.num_steps
    shape = {"num_cells": [64, 64], "device": env.device}
    net = TensorDictModule(MLP(in_features=4, out_features=2, **shape), ["observation"], ["logits"])
    actor = ProbabilisticActor(
        net, in_keys=["logits"], spec=made.action_spec, distribution_class=torch.distributions.Categorical,
        return_log_prob=True,
    )  # fmt: skip
    critic = ValueOperator(MLP(in_features=4, out_features=1, **shape), in_keys=["observation"])
    loss, gae = ClipPPOLoss(actor, critic), GAE(gamma=0.99, lmbda=0.95, value_network=critic)
    optimizer = torch.optim.Adam(loss.parameters(), lr=1e-3)
    collector = Collector(
        made, actor, frames_per_batch=frames, total_frames=-1, device=env.device, auto_register_policy_transforms=False
    )
    batches = iter(collector)

    def train(updates: int) -> None:
        for _ in range(updates):
            batch = next(batches)
            for _ in range(options.epochs):
                gae(batch)
                order = torch.randperm(frames, dtype=torch.int64, device=env.device)
                for rows in order.chunk(options.minibatches):
                    losses = loss(batch.reshape(-1)[rows])
                    (losses["loss_objective"] + losses["loss_critic"] + losses["loss_entropy"]).backward()
                    torch.nn.utils.clip_grad_norm_(loss.parameters(), 0.5)
                    optimizer.step()
                    optimizer.zero_grad()

    return train


LIBRARIES = {
    "ours": ours, "single file": single_file, "stable_baselines3": stable_baselines3, "skrl": skrl, "rsl_rl": rsl_rl,
    "torchrl": torchrl,
}  # fmt: skip
PACKAGES = {"stable_baselines3": "stable_baselines3", "skrl": "skrl", "rsl_rl": "rsl-rl-lib", "torchrl": "torchrl"}
"""Packages whose version a row contains, by library."""


def rate(train: Train, frames: int, seconds: float, device: torch.device) -> float:
    """Frames per second, measured for about `seconds`; the libraries' output is discarded."""
    updates, spent, begin = 0, 0.0, time.perf_counter()
    with contextlib.redirect_stdout(io.StringIO()):
        while updates == 0 or spent < seconds:
            more = max(1, updates)  # doubles the number of updates each time
            train(more)
            if device.type == "cuda":
                torch.cuda.synchronize()
            updates, spent = updates + more, time.perf_counter() - begin
    return updates * frames / spent


def rates(options: Options, device: torch.device) -> dict[str, list[float]]:
    """Frames per second of each library, measured in turn; the first turn compiles and does not count."""
    frames, found = options.num_envs * options.num_steps, {name: [] for name in options.libraries}
    made: dict[str, Train] = {}
    for turn in range(1 + options.repeats):
        for name in list(found):
            try:
                if not turn:
                    with contextlib.redirect_stdout(io.StringIO()):
                        made[name] = LIBRARIES[name](options, CartPoleEnv(options.num_envs, device, seed=0))
                measured = rate(made[name], frames, options.seconds if turn else 0.0, device)
            except ImportError as error:
                print(f"not measured: {name}: not installed ({error.name or error})")
                del found[name]
            except Exception as error:  # a failing library must not end the benchmark
                print(f"not measured: {name}: {type(error).__name__}: {str(error)[:200]}")
                del found[name]
            else:
                found[name] += [measured] * bool(turn)
    return found


def main(options: Options) -> list[dict]:
    """Measure the libraries, print the results, and return a row for each."""
    device = resolve_device(options.device)
    for name in options.libraries:
        if name not in LIBRARIES:
            raise ArgumentError(f"libraries: found {name!r}, expected some of {', '.join(LIBRARIES)}")
    size = {name: getattr(options, name) for name in ("num_envs", "num_steps", "epochs", "minibatches")}
    rows = []
    for name, samples in rates(options, device).items():
        version = importlib.metadata.version(PACKAGES[name]) if name in PACKAGES else ""
        params = {"part": "adapters", "library": f"{name} {version}".strip(), **size}
        rows.append(row("cartpole", "frames_per_second", samples, params, device))
    record("cartpole", rows, append=options.record)
    return rows


if __name__ == "__main__":
    run(Options, main, __doc__)
