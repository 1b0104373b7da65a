"""Write the model card of a trained policy: weights in bfloat16, success and SPL next to reference agents, curves.

    python eval/publish/model_card.py --run runs/best --out assets/policies/pointnav_h200
    python eval/publish/model_card.py --run runs/best --control runs/blind --out cards/best \
        --episodes data/mine/val.json.gz

Plays every episode file once with each agent, using the weights as stored in bfloat16. Writes policy.safetensors,
config.yaml, curves.webp and README.md into --out. Option --record also appends rows to eval/results/pointnav.jsonl.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path

import torch
import tyro

from batchnav.config import load_config
from batchnav.envs.config import NavConfig
from batchnav.envs.observations import needed_appearance
from batchnav.errors import ArgumentError, BatchnavError
from batchnav.evaluation.players import Player, PolicyPlayer, ReferencePlayer
from batchnav.evaluation.run import Evaluation, result_rows
from batchnav.policy.weights import load_policy, save_policy
from batchnav.procedural import EPISODE_FAMILIES
from batchnav.report.model_card import Trained, write_model_card
from batchnav.report.results import append_rows, print_agents
from batchnav.runtime.bundled import EPISODES, WEIGHTS
from batchnav.runtime.device import machine, resolve_device
from batchnav.tasks.goal_task import METRIC_SPECS
from batchnav.training.config import TrainingConfig
from batchnav.training.folder import CONFIG_NAME


@dataclass(frozen=True)
class Options:
    """The run to describe, and how to evaluate it."""

    run: Path
    """Folder of the training run."""
    out: Path
    """Folder to write the card to."""
    control: Path | None = None
    """Folder of the run of a blind agent to compare with; default: none."""
    episodes: tuple[Path, ...] = tuple(EPISODES / f"{name}.json.gz" for name in EPISODE_FAMILIES)
    """Episode files to play."""
    trained_on: str = ""
    """Name of the machine that trained the policy; default: this machine."""
    device: str = "auto"
    """Device of policies and environments: cuda, cpu, or auto for a GPU if there is one."""
    num_envs: int = 256
    """Parallel environments, at most one per episode."""
    record: bool = False
    """Append result rows to eval/results/pointnav.jsonl."""


def main(options: Options) -> None:
    """Evaluate all agents on all files, and write the card."""
    device = resolve_device(options.device)
    for name in (CONFIG_NAME, "metrics.jsonl", WEIGHTS):
        if not (options.run / name).is_file():  # check before the evaluation, which takes minutes
            raise ArgumentError(f"{options.run}: found no {name}, expected the folder of a training run")
    options.out.mkdir(parents=True, exist_ok=True)
    weights = options.out / WEIGHTS
    trained = load_policy(options.run / WEIGHTS)
    save_policy(trained.network, weights, trained.info, torch.bfloat16)
    players: dict[str, Player] = {"this agent": PolicyPlayer(weights, device)}
    runs = {"this agent": options.run}
    if options.control:
        players["blind agent"] = PolicyPlayer(options.control / "policy.safetensors", device)
        runs["blind agent"] = options.control
    players["greedy agent"] = ReferencePlayer("greedy", NavConfig())
    results, rows = {}, []
    for path in options.episodes:
        config = players["this agent"].config
        appearance = needed_appearance(config)
        evaluation = Evaluation(path, device, config, options.num_envs, appearance=appearance)
        for name, player in players.items():
            played = evaluation.play(player)
            results[evaluation.split, name] = played.overall
            rows += result_rows(evaluation, played)
        print_agents(
            f"{', '.join(players)} on {path.name}",
            {name: results[evaluation.split, name] for name in players},
            METRIC_SPECS,
        )
    write_model_card(
        options.out, runs, results, METRIC_SPECS,
        trained_with(options.run / CONFIG_NAME)._replace(pretrained=trained.network.pretrained_source),
        trained.info["frames"],
        options.trained_on or machine(device), machine(device),
    )  # fmt: skip
    if options.record:
        append_rows("pointnav", rows)


def trained_with(path: Path) -> Trained:
    """The parts of a run's configuration file that a card describes."""
    run = load_config(path, TrainingConfig)
    return Trained(run.env, run.policy, run.scenes, path.read_text(encoding="utf-8"))


if __name__ == "__main__":
    try:
        main(tyro.cli(Options, description=__doc__))
    except BatchnavError as error:
        sys.exit(f"error: {error}")
