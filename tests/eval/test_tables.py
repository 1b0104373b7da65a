"""Tables of results: one line per agent, the newest values, and the check that files hold the current tables."""

import json
import sys

import pytest

from batchnav.agents.registry import REFERENCE_AGENTS
from batchnav.report import results
from batchnav.runtime.bundled import ASSETS
from eval.publish import agents, readme, summary, tables
from eval.record.run import load_entries
from tests.pages import ROOT

STAMP = {"machine": "NVIDIA H200", "commit": "1234567", "date": "2026-11-21"}
H200, CPU = "NVIDIA H200", "CPU: Some(R) Processor @ 2.50GHz, 2 cores"
SIM = {"scene": "a", "task": "pointnav", "num_envs": 8, "actuation_noise": 0.0, "actions": "all"}


@pytest.fixture
def files(tmp_path, monkeypatch):
    """Path of a page for tables, and a folder without results."""
    page = tmp_path / "README.md"
    monkeypatch.setattr(tables, "FILES", (page,))
    monkeypatch.setattr(results, "RESULTS", tmp_path)
    return page


def write(name, *rows):
    """Append rows of (metric, value, parameters, other entries) to a file."""
    with (results.RESULTS / f"{name}.jsonl").open("a") as file:
        for metric, value, params, others in rows:
            row = {"metric": metric, "value": value, "params": params, **STAMP, **others}
            file.write(json.dumps(row) + "\n")


def lines(name, **wanted):
    return tables.table(name, {key: [value] for key, value in wanted.items()}).splitlines()


def test_an_agent_is_one_line_with_both_intervals(files):
    mine = {"agent": "learned", "split": "val", "episodes": 200, "frames": 300_023_808, "seed": 0, "sample": True}
    old = {"low": 0.868, "high": 0.922, "commit": "old"}
    new = {"low": 0.868, "high": 0.922, "scene_low": 0.85, "scene_high": 0.94, "scenes": 20}
    write("pointnav", ("spl", 0.895, mine, old), ("success", 0.985, mine, new), ("spl", 0.895, mine, new))
    random = {"agent": "random", "split": "test", "episodes": 200}
    write("pointnav", ("spl", 0.00107, random, {"low": -0.00104, "high": 0.00318}))
    assert lines("pointnav") == [
        "| agent | frames | split | episodes | success | SPL | commit |",
        "| --- | --- | --- | --- | ---: | ---: | --- |",
        "| learned | 300 M | val | 200 | **0.985** (0.868–0.922; 0.850–0.940) | **0.895** (0.868–0.922; 0.850–0.940) "
        "| 1234567 |",
        "| random |  | test | 200 |  | **0.001** (0.000–0.003) | 1234567 |",  # no SPL below 0
    ]
    assert lines("pointnav", split="test")[2].startswith("| random |")
    assert lines("pointnav", split="absent") == ["No figures yet."]


def test_agents_under_other_conditions_have_lines_of_their_own(files):
    params = {"agent": "learned", "split": "wide_val", "frames": 55_050_240, "actuation_noise": 0.5}
    ends = {"low": 0.4, "high": 0.5}
    write("pointnav", ("spl", 0.45, params, ends), ("spl", 0.41, params | {"gps_compass": False}, ends))
    write("pointnav", ("spl", 0.43, params | {"camera_height": 0.88, "hfov_deg": 79.0}, ends))
    changes = {"changes": {"body.agent_radius": 0.3, "depth.depth_noise": 1.0}, "agent_radius": 0.3, "depth_noise": 1.0}
    write("pointnav", ("spl", 0.4, params | changes, ends))
    assert [line.split(" | ")[0] for line in lines("pointnav")[2:]] == [
        "| learned, actuation noise",
        "| learned, actuation noise, no GPS and compass",
        "| learned, actuation noise, camera at 0.88 m, 79 degrees",
        "| learned, actuation noise, depth noise, agent radius 0.3",
    ]


def test_training_rows_show_the_minibatch_and_the_policy_only_share(files):
    params = {
        "part": "whole", "policy": "paper", "num_envs": 4096, "height": 64, "width": 64, "minibatches": 16,
        "houses": 1000, "resident_scenes": 64, "ranks": 1, "one_graph": False, "deterministic": False, "tuned": False,
    }  # fmt: skip
    write("train", ("frames_per_second", 312364.7, params, {"share_of_policy_only": 0.769}))
    write("train", ("frames_per_second", 406426.2, {**params, "part": "policy"}, {}))
    assert lines("train")[2:] == ["| paper | 64x64 | 4,096 | 8,192 | 64 of 1,000 | **312,000** (77%) | 1234567 |"]


def test_the_leaderboard_has_a_line_per_agent_with_its_command(files):
    def measured(agent, split, success, spl, **params):
        params = {"agent": agent, "split": split, "episodes": 200, **params}
        write("pointnav", ("success", success, params, {}), ("spl", spl, params, {}))

    measured("greedy", "val", 0.04, 0.04)
    measured("learned", "val", 0.985, 0.895, frames=300_023_808, seed=0, sample=True, renderer="raycast")
    measured("learned", "test", 0.99, 0.925, frames=300_023_808, seed=0, sample=True, renderer="raycast")
    measured("learned", "val", 0.5, 0.5, frames=300_023_808, seed=0, sample=False)  # other actions
    measured("greedy", "val", 0.3, 0.3, camera_height=0.88)  # another camera
    measured("greedy", "val", 0.2, 0.2, agent_radius=0.3, changes={"body.agent_radius": 0.3})  # another body
    small = {"frames": 2_750_464, "sample": True, "renderer": "raycast"}
    measured("learned", "val", 0.6, 0.5, seed=1, **small)
    measured("learned", "val", 0.7, 0.6, seed=1, **small, encoder="simple_cnn")
    assert tables.made("leaderboard", "").splitlines()[2:] == [
        "| learned | 300 million | 0.985, 0.895 | 0.990, 0.925 | 2026-11-21 | 1234567 "
        "| `batchnav train --config eval/studies/configs/pointnav_h200_300m.yaml` |",
        "| learned, simple_cnn | 2.8 million | 0.700, 0.600 |  | 2026-11-21 | 1234567 "
        "| `batchnav train --config pointnav_depth_cpu --policy.no-log-distance --scenes.houses 48 --ppo.minibatches 8 "
        "--ppo.total-frames 2750000 --seed 1` |",
        "| learned | 2.8 million | 0.600, 0.500 |  | 2026-11-21 | 1234567 "
        "| `batchnav train --config pointnav_depth_cpu --policy.no-log-distance --policy.encoder se_resnet9 "
        "--policy.se-resnet9.base-width 8 --scenes.houses 48 --ppo.minibatches 8 --ppo.total-frames 2750000 "
        "--seed 1` |",
        "| greedy |  | 0.040, 0.040 |  | 2026-11-21 | 1234567 | `batchnav evaluate greedy` |",
    ]


def test_a_policy_is_found_by_its_hash_and_in_older_rows_by_its_training(files):
    def measured(spl, **params):
        params = {"split": "val", "episodes": 200, "sample": True, "renderer": "raycast", **params}
        write("pointnav", ("spl", spl, params, {}))

    trained = {"frames": 165_019_648, "seed": 7}
    (policy,) = (policy for policy in readme.POLICIES if policy.name == "pointnav_h200")

    def spl():
        return summary.newest(readme.figure_of(policy, "val", "spl"))["value"]

    measured(0.5, agent="learned", **trained)
    assert spl() == 0.5
    digest = summary.bundled_sha256("pointnav_h200")
    measured(0.6, agent="pointnav_h200", policy_sha256=digest, frames=1, seed=0)
    measured(0.7, agent="other", policy_sha256="0" * 16, **trained)
    assert spl() == 0.6


def test_rows_with_and_without_a_hash_share_a_line(files):
    def measured(split, spl, **params):
        write("pointnav", ("spl", spl, {"split": split, "episodes": 200, "frames": 1000, "seed": 7, **params}, {}))

    measured("val", 0.5, agent="learned")
    measured("test", 0.6, agent="learned")
    measured("val", 0.7, agent="mine", policy_sha256="0" * 16)
    (line,) = tables.made("leaderboard", "").splitlines()[2:]
    assert line.startswith("| mine | 1,000 | 0.700 | 0.600 |")


def test_readme_has_throughput_with_peers_and_a_caption(files):
    assert tables.made("throughput", "") == "No figures yet.\n"
    params = {"scene": "aws_small_house", "num_agents": 4096, "height": 64, "width": 64}
    write("render", ("frames_per_second", 2_519_607.0, {**params, "renderer": "raycast"}, {"date": "2026-11-20"}))
    write("render", ("frames_per_second", 1_013_000.0, {**params, "renderer": "warp 1.19.0 cubql"}, {}))
    line, _, caption = tables.made("throughput", "").splitlines()[2:]
    assert line.endswith("| **2.5 million** | Warp 1.19: 1 million |")
    assert caption.endswith("H200; 2026-11-20 to 2026-11-21.*")


def test_readme_has_agents_by_scene_family_and_policies_with_intervals(files):
    assert tables.made("learning", "") == "No figures yet.\n"
    digest, ends = summary.bundled_sha256("pointnav_h200"), {"low": 0.85, "high": 0.95, "machine": CPU}
    mine = {"agent": "pointnav_h200", "policy_sha256": digest, "episodes": 200}
    for split, spl in (("val", 0.9), ("hall", 0.8)):
        write("pointnav", ("spl", spl, {**mine, "split": split}, ends))
        write("pointnav", ("success", 0.99, {**mine, "split": split}, ends))
    write("pointnav", ("spl", 0.95, {"agent": "map_planner", "split": "val", "episodes": 200}, {}))
    write("pointnav", ("spl", 0.1, {"agent": "map_planner", "split": "val", "camera_height": 0.3}, {}))
    *lines, _, caption = tables.made("learning", "").splitlines()
    assert lines[2] == "| map planner (no learned policy) | 0.95 |  |  |  |  |"  # best on val first
    assert lines[3] == "| `pointnav_h200` | 0.90 | 0.80 |  |  |  |"
    assert caption == "*200 episodes in 20 unseen scenes of each family. CPU and H200; 2026-11-21.*"
    (line,) = (line for line in tables.made("policies", "").splitlines() if "pointnav_h200" in line)
    assert line.endswith("| 0.990 (0.850 to 0.950) | 0.900 (0.850 to 0.950) | 22 MB |")


def test_the_table_of_agents_has_success_and_spl_by_scene_family_and_commands(files):
    assert tables.made("agents", "") == "No figures yet.\n"

    def measured(split, success, spl, **params):
        params = {"split": split, "episodes": 200, **params}
        write("pointnav", ("success", success, params, {}), ("spl", spl, params, {}))

    bundled = {"agent": "pointnav_h200", "policy_sha256": summary.bundled_sha256("pointnav_h200")}
    measured("val", 0.99, 0.9, **bundled)
    measured("scan", 0.98, 0.8, **bundled)
    measured("val", 0.7, 0.95, agent="learned", sample=True, frames=5_001_216)
    measured("val", 0.1, 0.1, agent="learned", sample=False, frames=5_001_216)  # other actions
    measured("val", 0.2, 0.2, agent="greedy", hfov_deg=79.0)  # another camera
    head, _, first, second, _, caption = tables.made("agents", "").splitlines()
    assert head.startswith("| agent | houses, `val` | houses, `test` | open-plan rooms |")
    command = "`batchnav train --config pointnav_depth_cpu`"
    assert first == f"| `pointnav_depth_cpu` | 0.700, 0.950 |  |  |  |  |  | {command} |"  # best on val first
    assert second == (
        "| `pointnav_h200` | 0.990, 0.900 |  |  |  |  | 0.980, 0.800 | `batchnav evaluate pointnav_h200` |"
    )
    assert caption.endswith("sampled actions. H200; 2026-11-21.*")


def test_each_agent_of_the_table_has_a_configuration_or_is_played_by_name(files):
    for of_task in agents.AGENTS.values():
        names = [agent.name for agent in of_task]
        assert len(set(names)) == len(names) <= 12
        for agent in of_task:
            if agent.conditions:
                assert (ROOT / "configs" / f"{agent.name}.yaml").is_file()
            else:
                assert agent.name in REFERENCE_AGENTS or (ASSETS / "policies" / agent.name).is_dir()


def test_disturbances_of_a_bundled_policy_have_a_table_and_a_picture(files, monkeypatch):
    name = "pointnav_waypoint_small"
    params = {"agent": name, "split": "val", "episodes": 200, "policy_sha256": summary.bundled_sha256(name)}
    ends = {"low": 0.4, "high": 0.6}
    for condition in ("undisturbed", "latency 1 step"):
        own = {**params, "condition": condition}
        write("robustness", ("success", 0.5, own, ends), ("spl", 0.45, own, ends))
        write("robustness", ("spl", 0.9, {**own, "policy_sha256": "another"}, ends))
    files.write_text(f"<!-- results robustness agent={name} split=val -->\n<!-- end -->\n")
    monkeypatch.setattr(sys, "argv", ["tables.py"])
    tables.main()
    assert files.read_text().splitlines()[1:-1] == [
        "| condition | episodes | success | SPL | date |",
        "| --- | --- | ---: | ---: | --- |",
        "| undisturbed | 200 | **0.500** (0.400–0.600) | **0.450** (0.400–0.600) | 2026-11-21 |",
        "| latency 1 step | 200 | **0.500** (0.400–0.600) | **0.450** (0.400–0.600) | 2026-11-21 |",
    ]
    assert (files.parent / "robustness.webp").stat().st_size > 1000


def test_the_record_shows_all_seeds_misses_and_entries_without_rows(files, monkeypatch):
    entry = {"entry": "pointnav_depth_080", "empty_cache": False, "frames": 12_058_624}
    curve = {"curve": {"seconds": [10.0, 70.0], "values": [0.1, 0.8]}}
    for seed, seconds, spl in (0, 90.0, 0.9), (0, 71.0, 0.79), (1, 73.0, 0.80):
        write("record", ("seconds", seconds, {**entry, "seed": seed, "val_spl": spl, "other_spl": 0.82}, curve))
    files.write_text("<!-- results record -->\n<!-- end -->\n")
    monkeypatch.setattr(sys, "argv", ["tables.py"])
    tables.main()
    lines = files.read_text().splitlines()
    measured = [line for line in lines if "**" in line]
    assert [line.split(" | ")[1:] for line in measured] == [[
        "spl 0.8", "H200", "compiled before", "**72** (71, 73)", "spl **0.795** (0.790, 0.800), missed",
        "spl **0.820** (0.820, 0.820)", "12 million", "2026-11-21 |",
    ]]  # fmt: skip
    assert sum("not measured" in line for line in lines) == len(load_entries()) - 1
    assert lines[-2].startswith("![") and (files.parent / "record.webp").stat().st_size > 1000


def test_lines_end_with_commits_on_the_results_page_and_with_dates_elsewhere(files, monkeypatch):
    write("sim", ("steps_per_second", 8.0, SIM, {}))
    results_page = files.parent / "results" / "README.md"
    results_page.parent.mkdir()
    for page in (files, results_page):
        page.write_text("<!-- results sim -->\n<!-- end -->\n")
    monkeypatch.setattr(tables, "FILES", (files, results_page))
    monkeypatch.setattr(sys, "argv", ["tables.py"])
    tables.main()
    assert files.read_text().splitlines()[-2].endswith("| 2026-11-21 |")
    assert results_page.read_text().splitlines()[-2].endswith("| 1234567 |")


def test_the_check_finds_outdated_tables(files, monkeypatch):
    page = "before\n<!-- results sim num_envs=8 -->\n{}<!-- end -->\nafter\n"
    files.write_text(page.format("stale\n"))
    write("sim", ("steps_per_second", 8.0, SIM, {}))
    monkeypatch.setattr(sys, "argv", ["tables.py", "--check"])
    with pytest.raises(SystemExit, match=r"run python -m eval\.publish\.tables"):
        tables.main()
    assert "stale" in files.read_text()
    monkeypatch.setattr(sys, "argv", ["tables.py"])
    tables.main()
    assert files.read_text() == page.format(tables.table("sim", {}, "date"))
    monkeypatch.setattr(sys, "argv", ["tables.py", "--check"])
    tables.main()
    files.write_text("<!-- results smi -->\n<!-- end -->\n")
    with pytest.raises(SystemExit, match="found <!-- results smi -->, expected one of pointnav"):
        tables.main()
