"""Evaluation on tasks without a goal: agents, tables, rows, report."""

import json

import numpy as np
import pytest
import torch
from gymnasium import spaces
from networks import policy_config

from batchnav.cli import evaluate as program
from batchnav.cli import measure
from batchnav.config import to_dict
from batchnav.envs.config import NavConfig, with_options
from batchnav.errors import ArgumentError, ConfigError, EpisodeError
from batchnav.policy.actor_critic import ActorCritic
from batchnav.policy.weights import save_policy
from batchnav.tasks import TASKS


@pytest.mark.parametrize("task, agent", [("flee", "shortest_path"), ("explore", "frontier")])
def test_the_agent_that_knows_the_map_is_ahead_of_the_one_that_walks_on(rooms, tmp_path, monkeypatch, task, agent):
    rows, shares = [], []
    monkeypatch.setattr(measure, "append_rows", lambda name, new: rows.append((name, new)))
    for name in (agent, "forward"):
        options = {"episodes": rooms / "mine.json.gz", "out": tmp_path, "device": "cpu", "append_results": True}
        program.main(program.Options(task=task, agents=(name,), **options))
        results = json.loads((tmp_path / "results.json").read_text())
        specs = TASKS[task].metric_specs
        assert set(results["overall"]) == {metric.name for metric in specs} and not results["distance_mismatches"]
        assert results["env"]["task"]["name"] == task
        shares.append(results["overall"][specs[1].name]["mean"])
        assert rows[-1][0] == task
        assert [row["metric"] for row in rows[-1][1]] == [metric.name for metric in specs if metric.headline]
        assert {row["benchmark"] for row in rows[-1][1]} == {task}
    # The forward agent ends at the wall, 4.85 m from (0, 2). The farthest points, the corners, are 5.63 m away.
    assert shares[0] > shares[1] + 0.1 and 0.0 < shares[1] < 0.87


@pytest.mark.parametrize("task", ["flee", "explore"])
def test_a_policy_of_the_task_with_its_report(rooms, tmp_path, task):
    config = with_options(NavConfig(task=TASKS[task].Config()), {"height": 32, "width": 32, "max_steps": 12})
    observations = spaces.Dict({"depth": spaces.Box(0.0, 1.0, (1, 32, 32), np.float32)})
    torch.manual_seed(0)
    network = ActorCritic(observations, spaces.Discrete(4), policy_config(base_width=4, visual_size=8, hidden_size=8))
    save_policy(network, tmp_path / "policy.safetensors", {"env": to_dict(config), "frames": 12})
    (tmp_path / "metrics.jsonl").write_text('{"frames": 100, "seconds": 1.0, "return": 0.5}\n')
    program.main(program.Options(
        agents=(str(tmp_path / "policy.safetensors"),), episodes=rooms / "mine.json.gz", device="cpu", report=True,
        report_episodes=1, out=tmp_path / "report",
    ))  # fmt: skip
    text = (tmp_path / "report" / "index.html").read_text()
    names = [metric.name.replace("_", " ") for metric in TASKS[task].metric_specs if metric.shown]
    assert TASKS[task].title in text and all(f"<th>{name}</th>" in text for name in names)
    assert all(f">{agent}</span>" in text for agent in (tmp_path.name, *TASKS[task].reference_agents))
    assert "shortest path" not in text and "data:image/webp" in text


def test_what_a_task_does_not_know_is_named(rooms, tmp_path):
    options = {"episodes": rooms / "mine.json.gz", "out": tmp_path, "device": "cpu"}
    with pytest.raises(ArgumentError, match="agent: found 'greedy', expected one of random, forward, shortest_path"):
        program.main(program.Options(task="flee", agents=("greedy",), **options))
    with pytest.raises(ConfigError, match="task: found 'fly', expected one of pointnav, flee, explore"):
        program.main(program.Options(task="fly", agents=("random",), **options))
    with pytest.raises(EpisodeError, match="split: found building, expected one of test, val: there is no starts_buil"):
        program.main(program.Options(task="flee", agents=("random",), split="building", device="cpu"))
