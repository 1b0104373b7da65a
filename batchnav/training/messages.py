"""Messages of a training run: startup summary and next steps."""

from __future__ import annotations

from pathlib import Path

from batchnav.data.scene_ref import scene_ids
from batchnav.errors import printable, shell_word
from batchnav.learning.learner import Learner
from batchnav.runtime.console import next_command, number_of
from batchnav.runtime.device import machine
from batchnav.training.config import TrainingConfig


def startup_summary(config: TrainingConfig, learner: Learner, out: Path) -> str:
    """Startup summary: task, frames, device, scenes, environments, policy size, output folder."""
    scenes = config.scenes.episodes or number_of(len(scene_ids(config.scenes.names)), "scene")
    parameters = sum(weights.numel() for weights in learner.policy.parameters())
    several = f"{learner.ranks.world_size} x " if learner.ranks.is_distributed else ""
    first = f" from frame {learner.frames:,}" if learner.frames else ""
    return (
        f"training {config.env.task_name}{first} to {config.ppo.total_frames:,} on {several}{machine(learner.device)}: "
        f"{scenes}, {number_of(config.ppo.num_envs, 'environment')}, policy of {parameters:,} parameters\n"
        f"output: {printable(str(out))} (policy.safetensors, metrics.jsonl); curves: "
        f"tensorboard --logdir {shell_word(out)}"
    )


def next_steps(frames: int, out: Path) -> str:
    """Message at the end of training: frames done, and the commands to evaluate and to continue."""
    evaluate = next_command("evaluate", "batchnav", "evaluate", out, "--report")
    resume = next_command("continue", "batchnav", "train", "--resume", "--out", out, "--ppo.total-frames", 2 * frames)
    return f"trained {frames:,} frames\n{evaluate}\n{resume}"
