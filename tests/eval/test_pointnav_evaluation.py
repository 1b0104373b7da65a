import dataclasses
import hashlib
import json
import math
import re
import shutil
from pathlib import Path

import numpy as np
import pytest
import torch
import trimesh
from gymnasium import spaces
from networks import policy_config

from batchnav.agents.registry import make_reference_agent
from batchnav.agents.simple import GreedyAgent
from batchnav.cli import evaluate as program
from batchnav.cli import measure
from batchnav.cli.measure import default_folder
from batchnav.config import to_dict
from batchnav.data.episodes import Episode, Goal, rotation_of
from batchnav.data.formats import EpisodeDataset
from batchnav.envs.config import NavConfig, with_options
from batchnav.errors import ArgumentError, BatchnavError, CheckpointError, ConfigError, EpisodeError
from batchnav.evaluation.intervals import summarise
from batchnav.policy.actor_critic import ActorCritic
from batchnav.policy.weights import save_policy
from batchnav.report.results import print_agents, print_scenes
from batchnav.tasks import TASKS
from batchnav.tasks.goal_task import METRIC_SPECS, METRICS
from batchnav.tasks.socialnav import SocialNav


def test_greedy_on_open_floors(rooms, tmp_path):
    mine = rooms / "mine.json.gz"
    program.main(program.Options(agents=("greedy",), episodes=mine, num_envs=3, out=tmp_path, device="cpu"))
    results = json.loads((tmp_path / "results.json").read_text())
    assert results["agent"] == "greedy" and len(results["episodes"]) == 10 and len(results["scenes"]) == 2
    assert results["overall"]["success"]["mean"] == 1.0 and results["overall"]["success"]["count"] == 10
    # Wilson's lower end for 10 of 10.
    assert results["overall"]["success"]["low"] == pytest.approx(10 / (10 + 1.959963984540054**2))
    # The start may differ from the floor's height; the first step adds the difference to the path.
    assert results["overall"]["spl"]["mean"] > 0.95
    assert [e["episode_id"] for e in results["episodes"]] == [*"01234"] * 2
    assert all(scene["steps"]["count"] == 5 for scene in results["scenes"].values())
    steps = [e["steps"] for e in results["episodes"]]
    assert steps[:5] == steps[5:] == sorted(set(steps))


def test_a_scene_is_one_line_of_80_columns(capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    played = dict.fromkeys(METRICS, np.array([0.0, 1.0] * 5)) | {"scene": np.zeros(10)}
    summary = summarise(played | {"collisions": np.full(10, 412.5)}, METRIC_SPECS)
    print_scenes("by scene", {"house:1100012": summary}, METRIC_SPECS)
    text = capsys.readouterr().out
    assert re.search(r"house:1100012 +10 +0\.500 +0\.500 +0\.500 +0\.500 +412\.5 +0\.500 ", text)


def test_many_metrics_of_a_scene_are_its_headline_ones(capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    metrics = SocialNav.metric_specs
    played = {metric.name: np.full(10, 0.25) for metric in metrics if not metric.binary}
    played |= {metric.name: np.array([0.0, 1.0] * 5) for metric in metrics if metric.binary}
    print_scenes("by scene", {"house:1100012": summarise(played | {"scene": np.zeros(10)}, metrics)}, metrics)
    text = capsys.readouterr().out
    assert "…" not in text and re.search(r"house:1100012 +10 +0\.500 +0\.250 +0\.250 +0\.500 +0\.500 +0\.250 ", text)


@pytest.mark.parametrize("names", [["pointnav_waypoint_small"], ["pointnav_plan_small", "greedy"]])
def test_a_metric_of_an_agent_is_one_line_of_80_columns(capsys, monkeypatch, names):
    monkeypatch.setenv("COLUMNS", "80")
    played = dict.fromkeys(METRICS, np.array([0.0, 1.0] * 5)) | {"scene": np.arange(10) % 2}
    print_agents("mine", dict.fromkeys(names, summarise(played, METRIC_SPECS)), METRIC_SPECS)
    lines = [line for line in capsys.readouterr().out.splitlines() if "0.500" in line]
    shown = [metric for metric in METRIC_SPECS if (metric.shown if len(names) == 1 else metric.headline)]
    assert len(lines) == len(names) * len(shown)
    for line, metric in zip(lines, shown * len(names), strict=True):
        assert f" {metric.name.replace('_', ' ')} " in line
    assert all((name in lines[i * len(shown)]) == (len(names) > 1) for i, name in enumerate(names))


def test_tables_on_a_narrow_terminal_have_all_columns(capsys, monkeypatch):
    def printed(columns):
        monkeypatch.setenv("COLUMNS", columns)
        print_scenes("by scene", {"house:1100012": summary}, METRIC_SPECS)
        print_agents("mine", {"greedy": summary, "random": summary}, METRIC_SPECS)
        return capsys.readouterr().out

    summary = summarise(dict.fromkeys(METRICS, np.array([0.0, 1.0] * 5)) | {"scene": np.zeros(10)}, METRIC_SPECS)
    assert printed("40") == printed("80")


def test_what_is_printed_and_recorded(rooms, tmp_path, capsys, monkeypatch):
    """Tables fit 80 columns, with the agent's means last; without --append-results, result files do not change."""
    rows = []
    monkeypatch.setattr(measure, "append_rows", lambda name, new: rows.append((name, new)))
    monkeypatch.setenv("COLUMNS", "80")
    options = {"episodes": rooms / "mine.json.gz", "device": "cpu", "out": tmp_path}
    program.main(program.Options(agents=("forward",), **options))
    assert rows == []
    text = capsys.readouterr().out
    *tables, where, report, watch = text.splitlines()
    assert max(map(len, tables)) <= 80 and "…" not in text
    assert where == f"results: {tmp_path / 'results.json'}"
    episodes = f"--episodes {rooms / 'mine.json.gz'}"
    again = f"{episodes} --device cpu --out {tmp_path}"
    assert report == f"To write a report: batchnav evaluate forward --task pointnav {again} --report"
    assert watch == f"To watch them in the browser: batchnav view {episodes} --device cpu --agents forward"
    last = text[text.index("forward agent on mine.json.gz") :]
    for words in ("95% over episodes", "95% over scenes", "distance to goal", "0.722–1.000", "10 episodes in 2 scenes"):
        assert words in last
    program.main(program.Options(agents=("forward",), append_results=True, **options))
    ((name, found),) = rows
    assert name == "pointnav" and [row["metric"] for row in found] == ["success", "spl", "soft_spl"]
    # All houses have equal results: Wilson's interval has a width, a bootstrap over scenes has none.
    assert found[0]["low"] < found[0]["value"] == 1.0 and found[0]["scene_low"] is None


def test_habitats_episodes_in_habitats_folders(tmp_path, capsys):
    """Scenes are below --scenes-dir, +Z up. Episodes whose stated distance differs from the navmesh's are listed."""
    floor = trimesh.creation.box((6.0, 8.0, 0.2))
    (tmp_path / "scenes" / "gibson").mkdir(parents=True)
    floor.export(tmp_path / "scenes" / "gibson" / "Adrian.glb")
    episodes = [
        Episode(
            str(k), "data/scene_datasets/gibson/Adrian.glb", (0.0, 0.1, 3.0), rotation_of(0.0),
            (Goal((0.0, 0.1, 1.0 - k)),), {"geodesic_distance": 2.0},
        )
        for k in range(2)
    ]  # fmt: skip
    EpisodeDataset(episodes).save(tmp_path / "val" / "val.json.gz", content=True)
    program.main(program.Options(
        agents=("shortest_path",), episodes=tmp_path / "val" / "val.json.gz", scenes_dir=tmp_path / "scenes",
        out=tmp_path / "out", device="cpu",
    ))  # fmt: skip
    results = json.loads((tmp_path / "out" / "results.json").read_text())
    assert results["overall"]["success"] == results["overall"]["success"] | {"mean": 1.0, "count": 2}
    (line,) = results["distance_mismatches"]
    assert "episode '1' of scene 'gibson/Adrian.glb'" in line and "2.000 m, found 3.0" in line
    assert "episode '1'" in capsys.readouterr().out


def test_a_checkpoint_with_its_report(rooms, checkpoint, tmp_path, monkeypatch):
    """A policy file gives a report and result rows with the name of its folder."""
    name = checkpoint.parent.name
    (tmp_path / "metrics.jsonl").write_text('{"frames": 100, "seconds": 1.0, "success": 0.5}\n')
    rows = []
    monkeypatch.setattr(measure, "append_rows", lambda name, new: rows.extend(new))
    program.main(program.Options(
        agents=(str(checkpoint),), episodes=rooms / "mine.json.gz", device="cpu", report=True, append_results=True,
        report_episodes=2, out=tmp_path / "report",
    ))  # fmt: skip
    assert {p.name for p in (tmp_path / "report").iterdir()} == {"index.html", "results.json"}
    text = (tmp_path / "report" / "index.html").read_text()
    assert "1,234 frames" in text and "shortest_path" in text and "Learning curves" in text
    assert {(r["params"]["agent"], r["metric"]) for r in rows} == {
        (agent, metric)
        for agent in (name, "random", "forward", "greedy", "shortest_path")
        for metric in ("success", "spl", "soft_spl")
    }
    learned = next(r for r in rows if r["params"]["agent"] == name)
    assert learned["params"]["frames"] == 1234 and learned["low"] <= learned["value"] <= learned["high"]
    assert learned["scenes"] == 2
    assert learned["params"]["policy_sha256"] == hashlib.sha256(checkpoint.read_bytes()).hexdigest()[:16]
    assert json.loads(json.dumps(rows, allow_nan=False)) == rows
    results = json.loads((tmp_path / "report" / "results.json").read_text())
    assert results["env"]["task"]["max_steps"] == 20
    assert set(results["overall"]) == set(METRICS)


def test_another_camera(rooms, checkpoint, tmp_path, monkeypatch, caplog):
    """All agents play with the camera, and results and rows contain it. One line warns of it."""
    rows = []
    monkeypatch.setattr(measure, "append_rows", lambda name, new: rows.extend(new))
    options = {"episodes": rooms / "mine.json.gz", "device": "cpu", "out": tmp_path, "append_results": True}
    program.main(program.Options((str(checkpoint), "greedy"), camera_height=0.4, hfov_deg=110.0, **options))
    assert {(row["params"]["camera_height"], row["params"]["hfov_deg"]) for row in rows} == {(0.4, 110.0)}
    (warning,) = [message for message in caplog.messages if "trained with" in message]
    assert warning.startswith(f"{checkpoint.parent.name}: found camera_height 0.4, trained with 1.25; hfov_deg 110, ")
    for agent in (checkpoint.parent.name, "greedy"):
        camera = json.loads((tmp_path / agent / "results.json").read_text())["env"]["camera"]
        assert (camera["camera_height"], camera["hfov_deg"]) == (0.4, 110.0)
    with pytest.raises(ConfigError, match=r"hfov_deg: found 180\.0, expected 1 to 170"):
        program.main(program.Options(("greedy",), hfov_deg=180.0, **options))


def test_another_body_and_noise(rooms, checkpoint, tmp_path, monkeypatch):
    """Options of their own, and any key of the environment as in training; results, rows and folder name them."""
    rows = []
    monkeypatch.setattr(measure, "append_rows", lambda name, new: rows.extend(new))
    words = ("--agent-radius", "0.12", "--depth-noise", "1", "--actuation-noise", "0.5", "--append-results")
    words += ("--episodes", str(rooms / "mine.json.gz"), "--device", "cpu", "--out", str(tmp_path))
    options = program.parse((str(checkpoint), "--env.body.no-sliding", *words, "--env.task.max-steps", "7"))
    assert options.env == ("--env.body.no-sliding", "--env.task.max-steps", "7") and options.agents == (
        str(checkpoint),
    )
    program.main(options)
    results = json.loads((tmp_path / "results.json").read_text())
    body = {name: results["env"]["body"][name] for name in ("agent_radius", "actuation_noise", "sliding")}
    assert body == {"agent_radius": 0.12, "actuation_noise": 0.5, "sliding": False}
    assert results["env"]["depth"]["depth_noise"] == 1.0 and max(e["steps"] for e in results["episodes"]) <= 7
    expected = body | {"depth_noise": 1.0, "max_steps": 7}
    assert all(row["params"].items() >= expected.items() for row in rows) and rows
    folder = default_folder(dataclasses.replace(options, agents=("greedy",), split="val", episodes=None))
    name = "eval_val_radius_0.12m_depth_noise_1_actuation_noise_0.5_body.no_sliding_task.max_steps_7"
    assert folder == Path("runs/greedy") / name
    with pytest.raises(ConfigError, match=r"body\.agent_radius: found 11\.0, expected 0 to 10"):
        program.main(program.parse(("greedy", *words, "--env.body.agent-radius", "11")))
    with pytest.raises(ConfigError, match=r"depth_noise: found -1\.0, expected 0 to 10"):
        program.main(program.parse(("greedy", *words, "--depth-noise=-1")))


def test_a_policy_that_sees_through_opengl_scores_the_same(rooms, checkpoint, tmp_path, opengl):
    """Images differ only at a few edges, so the same random numbers give nearly the same actions and end positions."""
    results = []
    for renderer in ("raycast", "opengl"):
        program.main(program.Options(
            agents=(str(checkpoint),), episodes=rooms / "mine.json.gz", device="cpu", renderer=renderer,
            out=tmp_path / renderer,
        ))  # fmt: skip
        results.append(json.loads((tmp_path / renderer / "results.json").read_text())["overall"])
    cast, rasterised = results
    for metric in ("success", "spl", "soft_spl", "distance_to_goal", "path_length"):
        assert cast[metric]["low"] <= rasterised[metric]["mean"] <= cast[metric]["high"], metric


def test_several_agents_on_the_same_episodes(rooms, checkpoint, tmp_path, capsys):
    """Policies have the names of their folders and separate results, and a table compares them."""
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
        shutil.copy(checkpoint, tmp_path / name)
    options = {"episodes": rooms / "mine.json.gz", "device": "cpu", "out": tmp_path / "out"}
    words = (str(tmp_path / "one"), str(tmp_path / "two" / "policy.safetensors"), "greedy")
    program.main(program.Options(agents=words, **options))
    found = [json.loads((tmp_path / "out" / n / "results.json").read_text()) for n in ("one", "two", "greedy")]
    assert found[0]["overall"] == found[1]["overall"] and found[2]["agent"] == "greedy"
    text = capsys.readouterr().out
    compared = text[text.index("agents on mine.json.gz") :]
    assert all(name in compared for name in ("one", "two", "greedy"))
    with pytest.raises(ArgumentError, match="folders of different names"):
        program.main(program.Options(agents=(*words, str(tmp_path / "one")), **options))


def test_a_failing_agent_keeps_the_results_of_those_before(rooms, tmp_path, monkeypatch):
    def act(self, observations, episode_start):
        raise BatchnavError("greedy fails")

    options = {"episodes": rooms / "mine.json.gz", "device": "cpu", "out": tmp_path}
    monkeypatch.setattr(GreedyAgent, "act", act)
    with pytest.raises(BatchnavError, match="greedy fails"):
        program.main(program.Options(agents=("forward", "greedy", "random"), **options))
    assert (tmp_path / "forward" / "results.json").is_file() and not (tmp_path / "random").exists()


def test_all_agents_are_checked_before_any_plays(rooms, tmp_path, monkeypatch):
    def make(name, env):
        if name == "shortest_path":
            raise ConfigError("shortest_path cannot be made")
        return make_reference_agent(name, env)

    options = {"episodes": rooms / "mine.json.gz", "device": "cpu", "out": tmp_path, "report": True}
    monkeypatch.setattr("batchnav.evaluation.players.make_reference_agent", make)
    monkeypatch.setattr("batchnav.evaluation.run.evaluate", lambda *args, **kwargs: pytest.fail("an agent played"))
    with pytest.raises(ConfigError, match="cannot be made"):
        program.main(program.Options(agents=("forward",), **options))  # the report adds the shortest-path follower


def test_videos_of_a_few_episodes(rooms, checkpoint, tmp_path):
    options = {"episodes": rooms / "mine.json.gz", "device": "cpu", "out": tmp_path / "out"}
    program.main(program.Options(agents=(str(checkpoint),), videos="gif", **options))
    found = sorted(path.name for path in (tmp_path / "out" / "videos").iterdir())
    assert found == [f"episode_{row:04d}.gif" for row in (0, 2, 4, 5, 7, 9)]


def test_results_go_beside_a_policy_of_ones_own_only(checkpoint):
    """Nothing is written into the package."""

    def folder_of(agent, **options):
        return default_folder(program.Options(agents=(str(agent),), **options))

    assert folder_of(checkpoint) == checkpoint.parent / "eval_val"
    assert folder_of("pointnav_h200") == Path("runs/pointnav_h200/eval_val")
    assert folder_of(checkpoint, episodes=Path("data/mine.json.gz")) == checkpoint.parent / "eval_mine"
    assert folder_of("greedy") == Path("runs/greedy/eval_val")
    # Agents that play several tasks have a folder for each.
    assert default_folder(program.Options(agents=("greedy",)), "imagenav") == Path("runs/greedy/eval_imagenav_val")
    several = program.Options(agents=("greedy", str(checkpoint)), split="test")
    assert default_folder(several) == Path("runs/compared_test")
    assert default_folder(several, "objectnav") == Path("runs/compared_objectnav_test")
    bundled = program.Options(agents=("objectnav_rgbd_small",))
    assert default_folder(bundled, "objectnav") == Path("runs/objectnav_rgbd_small/eval_val")
    # Results with another camera have another folder.
    assert folder_of("greedy", camera_height=0.88, hfov_deg=79.0) == Path("runs/greedy/eval_val_0.88m_79deg")


def test_bad_commands(rooms, tmp_path):
    for options, message in (
        (program.Options(), "agents: found none"),
        (program.Options(agents=("greedy",), num_envs=0), "--num-envs: found 0, expected an integer from 1 to"),
        (program.Options(agents=("greedy",), report_episodes=-1), "--report-episodes: found -1, expected an integer"),
        (
            program.Options(agents=("pointnav_plan_small",), task="objectnav", device="cpu"),
            "task: found objectnav, expected pointnav, the task of the policy pointnav_plan_small; name a policy",
        ),
    ):
        with pytest.raises(ArgumentError, match=message):
            program.main(options)
    with pytest.raises(CheckpointError, match="absent"):
        program.main(program.Options(agents=(str(tmp_path / "absent.safetensors"),)))
    (tmp_path / "file").touch()
    with pytest.raises(BatchnavError, match=r"file: found a file at .*, expected a folder"):  # before evaluation
        program.main(program.Options(agents=("greedy",), episodes=rooms / "mine.json.gz", out=tmp_path / "file"))
    with pytest.raises(EpisodeError, match="absent"):
        program.main(program.Options(agents=("greedy",), episodes=tmp_path / "absent.json.gz", out=tmp_path))
    off = Episode("9", str(rooms / "a.ply"), (0.0, 0.2, 2.0), rotation_of(math.pi), (Goal((40.0, 0.2, 0.0)),))
    EpisodeDataset([off]).save(tmp_path / "off.json.gz")
    with pytest.raises(EpisodeError, match=r"off\.json\.gz: episode '9'.*goals\[0\].*there is none near"):
        program.main(program.Options(agents=("greedy",), episodes=tmp_path / "off.json.gz", out=tmp_path))


# Evaluation on tasks without a goal: agents, tables, rows, report


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
    splits = "block, building, course, hall, scan, test, val, wide_test, wide_val"  # those of PointNav alone
    with pytest.raises(EpisodeError, match=f"split: found wrong, expected one of {splits}: there is no wrong.json.gz"):
        program.main(program.Options(agents=("random",), split="wrong", device="cpu"))
