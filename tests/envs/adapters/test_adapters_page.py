"""docs/howto/other_libraries.md: each example learns CartPole as written; so does the single-file program."""

import re
from pathlib import Path

import pytest
import torch

from batchnav.cartpole.env import CartPoleEnv
from train import ppo_single_file

PAGE = Path(__file__).parents[3] / "docs" / "howto" / "other_libraries.md"
LEARNED = 150.0
"""Mean return of the most probable actions. Random actions reach 22, the examples 290 to 500."""


@pytest.fixture(autouse=True)
def same_run_each_time():
    """Runs in one thread, which is fastest for small networks; set after numba's threads started and set OpenMP's
    number."""
    CartPoleEnv(2)
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    torch.manual_seed(0)
    yield
    torch.set_num_threads(threads)


@torch.no_grad()
def mean_return(act):
    """One episode in each of 100 environments."""
    env = CartPoleEnv(100, seed=1)
    observation, _ = env.reset()
    total, running = torch.zeros(100), torch.ones(100, dtype=torch.bool)
    while running.any():
        observation, reward, terminated, truncated, _ = env.step(torch.as_tensor(act(observation)))
        total += reward * running
        running &= ~(terminated | truncated)
    return float(total.mean())


@pytest.mark.slow
@pytest.mark.parametrize(
    ("heading", "library"),
    [("Stable-Baselines3", "stable_baselines3"), ("skrl", "skrl"), ("rsl_rl", "rsl_rl"), ("TorchRL", "torchrl")],
)
def test_an_example_learns(heading, library, monkeypatch, tmp_path):
    pytest.importorskip(library)
    monkeypatch.chdir(tmp_path)  # where skrl leaves its logs
    monkeypatch.setenv("SB3_LOGDIR", str(tmp_path))
    monkeypatch.setattr("atexit.register", lambda call: call)  # skrl would log when all streams are closed
    example = re.search(rf"^## {heading}\n\n```python\n(.*?)```", PAGE.read_text(), re.DOTALL | re.MULTILINE)[1]
    space = {}
    exec(compile(example, f"{PAGE}: {heading}", "exec"), space)
    assert mean_return(space["act"]) > LEARNED


def test_the_single_file_learns(capsys):
    agent = ppo_single_file.train(ppo_single_file.Args(total_frames=50_000, device="auto")).cpu()
    assert mean_return(lambda observation: agent.actor(observation).argmax(1)) > LEARNED
    *_, last = capsys.readouterr().out.splitlines()
    assert "51,200 frames" in last and "mean return" in last
