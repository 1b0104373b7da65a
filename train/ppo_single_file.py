"""PPO in one file, in the style of CleanRL. From batchnav it uses only the environment.

    python train/ppo_single_file.py                                            # CartPole: a few seconds on a CPU
    python train/ppo_single_file.py --device cuda --num-envs 4096 --total-frames 20_000_000

`--device auto` uses a GPU if there is one.

Schulman et al., "Proximal policy optimization algorithms" (2017), with the details of Huang et al., "The 37
implementation details of PPO" (ICLR Blog Track, 2022). For another environment, change the line that creates it, and
`Agent`, which expects flat observations. All tensors stay on the device.
"""

from __future__ import annotations

import time
from dataclasses import dataclass

import torch
from torch import nn
from torch.distributions import Categorical

from batchnav import CartPoleEnv
from batchnav.cli.console import run
from batchnav.config import bounded


@dataclass(frozen=True)
class Args:
    """Hyperparameters of the run."""

    seed: int = bounded(0, 0, 2**62)
    """Seed of initial weights, start states, action sampling and minibatches."""
    device: str = "cpu"
    """Device: cpu, cuda, or auto for a GPU if there is one."""
    num_envs: int = bounded(32, 1, 2**24)
    """Number of environments."""
    num_steps: int = bounded(64, 1, 10_000)
    """Number of steps of each environment in a rollout."""
    total_frames: int = bounded(60_000, 1, 2**62)
    """Length of the run: steps of all environments together."""
    learning_rate: float = bounded(2e-3, 1e-12, 1e3)
    """Learning rate of Adam, constant."""
    gamma: float = bounded(0.99, 0.0, 1.0)
    """Discount per step."""
    gae_lambda: float = bounded(0.98, 0.0, 1.0)
    """Lambda of generalised advantage estimation."""
    update_epochs: int = bounded(10, 1, 10_000)
    """Number of passes over a rollout."""
    num_minibatches: int = bounded(4, 1, 2**24)
    """Number of minibatches in a pass."""
    clip_coef: float = bounded(0.2, 1e-6, 1e3)
    """Clip range of the probability ratio."""
    vf_coef: float = bounded(0.5, 0.0, 1e6)
    """Coefficient of the value loss."""
    max_grad_norm: float = bounded(0.5, 1e-12, 1e12)
    """Largest norm of the gradient; a larger gradient is scaled down to it."""


def layer(inputs: int, outputs: int, gain: float = 2**0.5) -> nn.Linear:
    """A linear layer with orthogonal weights of this gain and zero biases."""
    made = nn.Linear(inputs, outputs)
    nn.init.orthogonal_(made.weight, gain)
    nn.init.zeros_(made.bias)
    return made


class Agent(nn.Module):
    """Actor and critic for flat observations [..., D]."""

    def __init__(self, inputs: int, actions: int):
        super().__init__()
        self.critic = nn.Sequential(layer(inputs, 64), nn.Tanh(), layer(64, 64), nn.Tanh(), layer(64, 1, 1.0))
        self.actor = nn.Sequential(layer(inputs, 64), nn.Tanh(), layer(64, 64), nn.Tanh(), layer(64, actions, 0.01))

    def value(self, obs: torch.Tensor) -> torch.Tensor:
        """State values [...] of observations [..., D]."""
        return self.critic(obs).squeeze(-1)

    def policy(self, obs: torch.Tensor) -> Categorical:
        """Action distribution for observations [..., D]."""
        return Categorical(logits=self.actor(obs), validate_args=False)


def gae(
    rewards: torch.Tensor, values: torch.Tensor, next_values: torch.Tensor, ends: torch.Tensor, gamma: float, lam: float
) -> torch.Tensor:
    """Advantages f32 [T, N] (GAE, Schulman et al., 2016) from tensors [T, N]; `next_values` are 0 after termination."""
    advantages, running = torch.zeros_like(rewards), torch.zeros_like(rewards[0])
    for t in reversed(range(len(rewards))):
        running = rewards[t] + gamma * next_values[t] - values[t] + gamma * lam * (1.0 - ends[t]) * running
        advantages[t] = running
    return advantages


def train(args: Args) -> Agent:
    """Train, and print the mean return of the episodes that end in each rollout. Returns the agent."""
    torch.manual_seed(args.seed)
    env = CartPoleEnv(args.num_envs, args.device, args.seed)
    device = env.device  # resolved from "auto"
    agent = Agent(env.single_observation_space.shape[0], int(env.single_action_space.n)).to(device)
    optimizer = torch.optim.Adam(agent.parameters(), lr=args.learning_rate, eps=1e-5)
    shape, begin, frames = (args.num_steps, args.num_envs), time.perf_counter(), 0
    obs = torch.zeros(*shape, *env.single_observation_space.shape, dtype=torch.float32, device=device)
    actions = torch.zeros(shape, dtype=torch.int64, device=device)
    logprobs, rewards, values, next_values, ends = (
        torch.zeros(shape, dtype=torch.float32, device=device) for _ in range(5)
    )

    next_obs, _ = env.reset(seed=args.seed)
    while frames < args.total_frames:
        returns, episodes = (
            torch.zeros((), dtype=torch.float32, device=device),
            torch.zeros((), dtype=torch.float32, device=device),
        )
        with torch.no_grad():
            for t in range(args.num_steps):
                obs[t] = next_obs  # a copy: the environment reuses its tensors
                policy = agent.policy(obs[t])
                actions[t] = policy.sample()
                logprobs[t], values[t] = policy.log_prob(actions[t]), agent.value(obs[t])
                next_obs, rewards[t], terminated, truncated, info = env.step(actions[t])
                # After an end, `next_obs` is the new episode's first observation; the old one's last is in `final_obs`.
                ended = terminated | truncated
                last = torch.where(ended.unsqueeze(1), info["final_obs"], next_obs)
                next_values[t] = agent.value(last) * ~terminated
                ends[t] = ended
                returns += (info["episode"]["return"] * ended).sum()
                episodes += ended.sum()
            advantages = gae(rewards, values, next_values, ends, args.gamma, args.gae_lambda)
        frames += actions.numel()

        flat = [x.flatten(0, 1) for x in (obs, actions, logprobs, advantages, advantages + values)]
        for _ in range(args.update_epochs):
            order = torch.randperm(actions.numel(), dtype=torch.int64, device=device)
            for rows in order.chunk(args.num_minibatches):
                b_obs, b_actions, b_logprobs, b_advantages, b_returns = (x[rows] for x in flat)
                policy = agent.policy(b_obs)
                ratio = (policy.log_prob(b_actions) - b_logprobs).exp()
                b_advantages = (b_advantages - b_advantages.mean()) / (b_advantages.std() + 1e-8)
                clipped = ratio.clamp(1.0 - args.clip_coef, 1.0 + args.clip_coef)
                policy_loss = -torch.min(b_advantages * ratio, b_advantages * clipped).mean()
                value_loss = 0.5 * (agent.value(b_obs) - b_returns).square().mean()
                optimizer.zero_grad()
                (policy_loss + args.vf_coef * value_loss).backward()
                nn.utils.clip_grad_norm_(agent.parameters(), args.max_grad_norm)
                optimizer.step()
        rate = frames / (time.perf_counter() - begin)
        print(
            f"{frames:>12,} frames  {rate:>12,.0f} frames/s  mean return {float(returns / episodes):6.1f}", flush=True
        )
    return agent


if __name__ == "__main__":
    run(Args, train, __doc__)
