"""The study's programs: like is compared with like, what varies too much is refused, and nothing is kept unasked."""

import importlib
import sys

import pytest
import torch


def rate(how, value, p5=None, p95=None, part="scaling", machine="M", metric="steps_per_second", **params):
    params = {"part": part, "how": how, "num_envs": 64, **params}
    p5, p95 = p5 or value, p95 or value
    return {"machine": machine, "metric": metric, "value": value, "p5": p5, "p95": p95, "params": params}


def test_a_rate_counts_all_steps_of_a_call_and_says_where_actions_come_from(monkeypatch):
    bench = importlib.import_module("eval.cartpole.bench")
    monkeypatch.setattr(bench, "interleaved", lambda calls, *_: {who: [0.1, 0.2, 0.4] for who in calls})
    candidate = bench.Candidate(lambda: None, 96, bench.SAMPLED)
    (found,) = bench.throughput("fused", {"x": candidate}, torch.device("cpu"), 10)
    assert found["params"] == {
        "part": "fused", "how": "x", "num_envs": 10, "steps_per_call": 96, "actions": "sampled inside",
    }  # fmt: skip
    assert found["value"] == pytest.approx(960 / 0.2) and found["repeats"] == 3


def test_the_page_shows_steady_pairs_with_their_spread(monkeypatch, tmp_path):
    page = importlib.import_module("eval.cartpole.page")
    monkeypatch.setattr(page, "FIGURES", tmp_path)
    names = {"part": "peers", "peer": "them 1"}
    rows = [
        rate("them 1", 10.0, 9.0, 11.0, **names),
        rate("batchnav env.step", 30.0, **names),
        {**rate("them 1", 7.0, 1.0, 11.0, **names), "params": {**names, "how": "them 1", "num_envs": 8}},
        {**rate("batchnav env.step", 70.0, **names), "params": {**names, "how": "batchnav env.step", "num_envs": 8}},
    ]
    text = page.peers(rows, "M", "m")
    assert "| them 1 | 64 | 10 | 20% | 30 | 0% | 3.0 |" in text and "| them 1 | 8 |" not in text
    assert "at most 25% for both: 1 of the 2" in text


@pytest.mark.parametrize("asked", [False, True])
def test_rows_are_recorded_where_asked_for(monkeypatch, asked):
    speed = importlib.import_module("eval.speed_cartpole")
    kept = []
    monkeypatch.setattr(speed, "record", lambda name, rows, append: kept.append((name, rows, append)))
    monkeypatch.setitem(speed.PARTS, "work", lambda device: iter([["row"], []]))
    monkeypatch.setattr(sys, "argv", ["speed_cartpole.py", "--device", "cpu", "--parts", "work"] + ["--record"] * asked)
    speed.main()
    assert kept == [("cartpole", ["row"], asked)]


def test_a_library_that_is_not_there_is_named(capsys):
    speed = importlib.import_module("eval.speed_cartpole")

    def absent(num_envs):
        import no_such_library  # noqa: F401

    assert speed.attempt("them", absent, 4) is None
    assert capsys.readouterr().out == "not measured: them: not installed (no_such_library)\n"
