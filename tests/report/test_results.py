"""Result rows: their commit, the newest rows, and their table in a terminal."""

import json
import subprocess

import pytest
from matplotlib.figure import Figure
from PIL import Image

from batchnav.report import results


@pytest.fixture
def tree(tmp_path, monkeypatch):
    """A folder for results, with an empty cache of the commit."""
    monkeypatch.setattr(results, "ROOT", tmp_path)
    monkeypatch.setattr(results, "RESULTS", tmp_path / "eval" / "results")
    (tmp_path / "eval" / "results").mkdir(parents=True)
    results.commit.cache_clear()
    yield tmp_path
    results.commit.cache_clear()


def git(tree, *words):
    identity = ["-c", "user.name=n", "-c", "user.email=e@example.org"]
    return subprocess.run(["git", *identity, *words], cwd=tree, check=True, capture_output=True, text=True).stdout


@pytest.fixture
def repository(tree):
    """The folder as a repository with a program and a result file."""
    (tree / "program.py").write_text("one\n")
    (tree / "eval" / "results" / "sim.jsonl").write_text("")
    git(tree, "init", "--quiet")
    git(tree, "add", ".")
    git(tree, "commit", "--quiet", "--message", "first")
    return tree


def row(value=1.0, metric="steps_per_second", **params):
    return results.row("sim", metric, value, params, "cpu")


def test_rows_do_not_change_the_commit_that_made_them(repository):
    head = git(repository, "rev-parse", "--short", "HEAD").strip()
    for value in (1.0, 2.0):
        results.append_rows("sim", [row(value)])
        results.commit.cache_clear()  # as in another process
    found = [json.loads(line) for line in (repository / "eval" / "results" / "sim.jsonl").read_text().splitlines()]
    assert [r["commit"] for r in found] == [head, head]


def test_a_changed_program_is_told_and_looked_at_once(repository):
    head = git(repository, "rev-parse", "--short", "HEAD").strip()
    assert results.commit() == head
    (repository / "program.py").write_text("two\n")
    assert results.commit() == head  # the running program is the version at the start
    results.commit.cache_clear()
    assert results.commit() == head + "+"


def test_nothing_is_appended_unless_asked_for(tree, capsys):
    results.record("sim", [row()])
    assert not (tree / "eval" / "results" / "sim.jsonl").exists()
    results.record("sim", [row()], append=True)
    assert len((tree / "eval" / "results" / "sim.jsonl").read_text().splitlines()) == 1


def test_the_newest_row_of_each_figure(tree):
    results.append_rows("train", [row(1.0, num_envs=8, checkpoint="a"), row(2.0, num_envs=16)])
    later = [row(3.0, num_envs=8, checkpoint="b"), row(4.0, num_envs=8, resident_scenes=2)]
    results.append_rows("train", later)
    assert [r["value"] for r in results.rows_of("train")] == [3.0, 2.0, 4.0]
    assert results.rows_of("absent") == []


def test_charts_in_webp_have_the_pixels_of_png(tmp_path):
    figure = Figure(figsize=(2, 1))
    figure.subplots().plot([0, 1, 4])
    for name in ("chart.webp", "chart.png", "chart.svg"):
        results.save_chart(figure, tmp_path / name)
    webp, png = (Image.open(tmp_path / name).convert("RGBA") for name in ("chart.webp", "chart.png"))
    assert webp.size == (220, 110) and webp.tobytes() == png.tobytes()
    assert (tmp_path / "chart.webp").stat().st_size < (tmp_path / "chart.png").stat().st_size
    assert "</svg>" in (tmp_path / "chart.svg").read_text()


def test_a_table_is_readable_in_80_columns(capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    common = {"num_agents": 4096, "height": 64, "width": 64, "triangles": 145_840, "frames": 300_023_808}
    names = ("raycast", "opengl without occlusion culling", "Embree (embreex 4.4.0.post1)")
    rows = [
        results.row("render", "frames_per_second", [1.4e6, 1.5e6], {"renderer": r, "scene": s, **common}, "cpu")
        for r in names
        for s in ("aws_small_house", "house:1048576", "country_kitchen")
    ]
    results.print_table("render", rows)
    text = capsys.readouterr().out
    assert max(map(len, text.splitlines())) <= 80 and "…" not in text
    assert all(word in text for word in ("raycast", "country_kitchen", "1,450,000", "frames/s", "frames 300 M"))
    results.print_table("pointnav", [{**rows[0], "metric": "spl", "value": 0.5, "low": 0.4, "high": 0.6}])
    text = capsys.readouterr().out
    assert "median" not in text and "0.4 to 0.6" in text
    results.print_table("nothing", [])


def test_figures():
    assert [results.figure(v) for v in (0.12345, 99.94, 320906.4, 124.4)] == ["0.123", "99.9", "321,000", "124"]
    assert [results.shown(v) for v in (300_023_808, 2_750_464, 4096, None, True)] == [
        "300 M",
        "2.75 M",
        "4096",
        "",
        "True",
    ]
