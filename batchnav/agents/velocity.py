"""Velocity control of agents that choose discrete actions."""

from __future__ import annotations

import torch

from batchnav.agents.protocol import Agent
from batchnav.envs.nav import NavEnv
from batchnav.errors import ConfigError


class VelocityControlAgent:
    """Executes the discrete actions of `agent` with a body under velocity control.

    A forward action is the highest linear velocity; a turn is the highest angular velocity on the spot.

    Args:
        agent: chooses actions i64 [N].
        env: environment whose body takes velocity commands. ConfigError unless the linear range includes 0 m/s and a
            forward velocity, and the angular range is symmetric.
    """

    @torch.inference_mode(False)
    def __init__(self, agent: Agent, env: NavEnv):
        self.agent, velocity = agent, env.config.body.velocity
        (low, high), (right, left) = velocity.lin_vel_range, velocity.ang_vel_range_deg
        if not (low <= 0.0 < high and right == -left):
            raise ConfigError(
                f"body.velocity: found {low:g} to {high:g} m/s and {right:g} to {left:g} deg/s, expected 0 m/s and a "
                "forward velocity in the first range and a symmetric second range, since reference agents stop, step "
                "and turn to both sides; change lin_vel_range or ang_vel_range_deg"
            )
        # Rows in the order of the discrete actions: stop, forward, left, right.
        commands = torch.tensor(
            [[0.0, 0.0], [high, 0.0], [0.0, left], [0.0, right]], dtype=torch.float32, device=env.device
        )
        lowest, highest = torch.tensor([[low, right], [high, left]], dtype=torch.float32, device=env.device)
        self._actions = 2.0 * (commands - lowest) / (highest - lowest) - 1.0

    def reset(self, num_envs: int) -> None:
        """Reset the discrete agent."""
        self.agent.reset(num_envs)

    def act(self, observations: dict[str, torch.Tensor], episode_start: torch.Tensor) -> torch.Tensor:
        """Velocity commands f32 [N, 2], each normalised to -1..1 over its range."""
        return self._actions[self.agent.act(observations, episode_start)]
