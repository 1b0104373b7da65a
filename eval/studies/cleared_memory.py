"""What a memory is worth: policies of the task `sequence`, with and without the memory cleared at every new goal.

    python eval/studies/cleared_memory.py runs/sequence
    python eval/studies/cleared_memory.py runs/sequence --episodes data/mine/val.json.gz --record

Each policy plays every episode twice, and three times if it reads a map. In the second evaluation its memory begins
anew, as at an episode's start, when the goal changes; in the third one the map too. The difference of success rate and
SPL of later subtasks is what memory and map kept of the house. Prints each evaluation by position in the sequence.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import torch
import tyro
from rich.table import Table

from batchnav.agents.protocol import Agent
from batchnav.cli.console import run
from batchnav.config import bounded
from batchnav.envs.nav import NavEnv
from batchnav.envs.observations import needed_appearance
from batchnav.evaluation.players import Player, find_players
from batchnav.evaluation.run import Evaluation, result_rows
from batchnav.evaluation.subtasks import by_position
from batchnav.mapping.memory import MemoryMapper
from batchnav.report.results import append_rows
from batchnav.runtime.bundled import find_split
from batchnav.runtime.console import terminal
from batchnav.runtime.device import resolve_device
from batchnav.sim.bodies import LEFT
from batchnav.tasks.sequence import Sequence


@dataclass(frozen=True)
class Options:
    """Policies and episodes of the evaluation."""

    agents: tyro.conf.Positional[tuple[str, ...]]
    """Policies of the task sequence (files, run folders)."""
    episodes: Path | None = None
    """Episode file; default: the bundled validation episodes of sequences."""
    device: str = "auto"
    """Device of policies and environments: cuda, cpu, or auto for a GPU if there is one."""
    num_envs: int = bounded(256, 1, 2**24)
    """Parallel environments, at most one per episode."""
    record: bool = False
    """Append result rows to eval/results/cleared_memory.jsonl, with the parameter "memory"."""


def main(options: Options) -> None:
    """Evaluate every policy with its memory and with the memory cleared; print and record the results."""
    device = resolve_device(options.device)
    players = find_players(options.agents, device, "sequence")
    path = options.episodes or find_split("val", Sequence.episode_file)
    fields = frozenset().union(*(needed_appearance(player.config) for player in players.values()))
    config = next(iter(players.values())).config
    evaluation = Evaluation(path, device, config, options.num_envs, appearance=fields)
    for name, player in players.items():
        shown_as: dict[str, Player] = {"kept": player, "cleared at every goal": ForgetfulPlayer(player)}
        if player.config.has_map:
            shown_as["and map cleared at every goal"] = ForgetfulPlayer(player, with_map=True)
        for memory, shown in shown_as.items():
            played = evaluation.play(shown)
            table = Table("subtask", "success", "SPL", "number", title=f"{name}: memory {memory}")
            for row in by_position(played.episodes):
                cells = [f"{each.mean:.3f} ({each.low:.3f} to {each.high:.3f})" for each in (row.success, row.spl)]
                table.add_row(str(row.position), *cells, str(row.success.count))
            terminal().print(table)
            if options.record:
                rows = result_rows(evaluation, played._replace(player=player))
                append_rows("cleared_memory", [{**row, "params": {**row["params"], "memory": memory}} for row in rows])


class ForgetfulPlayer:
    """A `Player` that acts as `player` does, but whose memory begins anew when the goal changes.

    Args:
        player: the player.
        with_map: True if its map begins anew too. As the observation at that step has the waypoint of the old map, it
            turns left there.
    """

    def __init__(self, player: Player, with_map: bool = False):
        self.name, self.config, self.env_config = player.name, player.config, player.env_config
        self._player, self.changes, self._with_map = player, player.changes, with_map

    def make_agent(self, env: NavEnv) -> Agent:
        """The player's agent, with its memory cleared at every new goal."""
        mapper = env.mapper if self._with_map else None
        assert mapper is None or isinstance(mapper, MemoryMapper)  # that of the task sequence
        return _ForgetfulAgent(self._player.make_agent(env), env, mapper)


class _ForgetfulAgent:
    """An agent to whom every new goal is a new episode."""

    def __init__(self, agent: Agent, env: NavEnv, mapper: MemoryMapper | None):
        self._agent, self._mapper, self._number = agent, mapper, env.task.goal_number
        self._known = self._number.clone()

    def reset(self, num_envs: int) -> None:
        """Reset the agent."""
        self._agent.reset(num_envs)
        self._known.copy_(self._number)

    def act(self, observations: dict[str, torch.Tensor], episode_start: torch.Tensor) -> torch.Tensor:
        """The agent's actions."""
        changed = (self._number != self._known) & ~episode_start
        self._known.copy_(self._number)
        actions = self._agent.act(observations, episode_start | changed)
        if self._mapper is None:
            return actions
        self._mapper.forget(changed)
        return torch.where(changed, LEFT, actions)


if __name__ == "__main__":
    run(Options, main, __doc__)
