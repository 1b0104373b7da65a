"""Tables and learning curves for papers: LaTeX, CSV, Markdown, and intervals over seeds."""

import csv
import json

import numpy as np
import pytest
import yaml
from scipy.stats import t

from batchnav.cli.measure import run_folders
from batchnav.envs.config import NavConfig
from batchnav.errors import ArgumentError
from batchnav.evaluation.intervals import Interval
from batchnav.evaluation.players import ReferencePlayer
from batchnav.report.paper import group_seeds, mean_curve, plot_curves, table, write_table
from batchnav.types import Metric

METRICS = Metric("success", high=1.0, binary=True, headline=True), Metric("spl", headline=True), Metric("steps")
AGENTS = {
    "my_agent & co|": {
        "success": Interval(0.5, 0.25, 0.75, 8, 0.3, 0.7, 2), "spl": Interval(0.25, np.nan, np.nan, 8, scenes=2),
        "steps": Interval(120.0, 100.0, 140.0, 8, scenes=2),
    }
}  # fmt: skip


def test_a_latex_table_has_headlines_with_intervals_and_no_commands_of_names():
    text = table("latex", AGENTS, METRICS)
    assert r"\begin{tabular}{lrr}" in text and r"agent & success & SPL \\" in text
    assert r"my\_agent \& co| & 0.500 (0.250--0.750) & 0.250 \\" in text
    assert "8 episodes in 2 scenes" in text and text.count("{") == text.count("}")


def test_tables_say_which_settings_were_changed():
    for kind, radius in (("latex", r"body.agent\_radius 0.3"), ("markdown", "body.agent_radius 0.3")):
        assert f"Settings: {radius}." in table(kind, AGENTS, METRICS, "body.agent_radius 0.3")
        assert "Settings" not in table(kind, AGENTS, METRICS)


def test_a_markdown_table_escapes_bars():
    lines = table("markdown", AGENTS, METRICS).splitlines()
    assert lines[:3] == ["| agent | success | SPL |", "| --- | ---: | ---: |",
                         "| my_agent & co\\| | 0.500 (0.250–0.750) | 0.250 |"]  # fmt: skip


def test_a_csv_table_has_a_row_per_metric(tmp_path):
    file, text = write_table(tmp_path, "csv", AGENTS, METRICS)
    assert file == tmp_path / "table.csv" and file.read_text() == text
    rows = list(csv.DictReader(text.splitlines()))
    assert [row["metric"] for row in rows] == ["success", "spl", "steps"]
    assert rows[0] == {
        "agent": "my_agent & co|", "metric": "success", "mean": "0.5", "low": "0.25", "high": "0.75",
        "scene_low": "0.3", "scene_high": "0.7", "episodes": "8", "scenes": "2",
    }  # fmt: skip
    assert rows[1]["low"] == rows[1]["high"] == ""


def write_run(folder, seed, rate, values):
    folder.mkdir()
    (folder / "config.yaml").write_text(yaml.safe_dump({"seed": seed, "ppo": {"learning_rate": rate}}))
    rows = [{"frames": 100 * (k + 1), "success": value} for k, value in enumerate(values)]
    (folder / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return folder


def test_runs_that_differ_in_the_seed_are_one_curve(tmp_path):
    values = [0.2, 0.4, 0.6], [0.4, 0.6, 0.8], [0.6, 0.8, 1.0]
    runs = [write_run(tmp_path / f"lr_1e-3_seed{k}", k, 1e-3, each) for k, each in enumerate(values)]
    other = write_run(tmp_path / "lr_1e-4_seed0", 0, 1e-4, [0.0, 0.1, 0.2])
    groups = group_seeds([runs[0], other, *runs[1:]])
    assert [(group.name, group.runs) for group in groups] == [("lr_1e-3", tuple(runs)), ("lr_1e-4_seed0", (other,))]
    axes, spl = plot_curves(groups, METRICS).axes
    assert [line.get_label() for line in axes.lines] == ["lr_1e-3 (3 seeds)", "lr_1e-4_seed0"] and not spl.lines
    np.testing.assert_allclose(axes.lines[0].get_ydata()[[0, -1]], [0.4, 0.8])


def test_the_interval_of_a_curve_is_students_t_over_seeds():
    x = np.array([0.0, 10.0, 20.0])
    at, mean, low, high = mean_curve([(x, x), (x + 5.0, x + 2.0), (x, x + 4.0)])
    assert at[0] == 5.0 and at[-1] == 20.0  # what all curves have
    values = np.array([5.0, 2.0, 9.0])
    half = t.ppf(0.975, 2) * values.std(ddof=1) / np.sqrt(3)
    assert (mean[0], low[0], high[0]) == pytest.approx((values.mean(), values.mean() - half, values.mean() + half))
    assert np.isnan(mean_curve([(x, x)])[2]).all()


def test_agents_without_curves_are_named(tmp_path):
    with pytest.raises(ArgumentError, match=r"--plot: found no metrics.jsonl in .*empty, expected run folders"):
        group_seeds([tmp_path / "empty"])
    with pytest.raises(ArgumentError, match=r"--plot: found greedy, expected run folders"):
        run_folders({"greedy": ReferencePlayer("greedy", NavConfig())})
