"""Comparison of two GPUs with one, as a dry run: command lines, minibatches of one process, and parts that fail."""

import dataclasses

import torch
import tyro

from batchnav.bench import train as speed_train
from batchnav.runtime.distributed.ranks import Ranks
from eval.studies import two_gpus

OPTIONS = two_gpus.Options(dry_run=True, houses=2, num_envs=8, minibatch_frames=64, size=16, compile=False)


def test_speed_of_one_and_of_two(monkeypatch, capsys):
    seen = []

    def results_of(command, options):
        seen.append(command)
        extra = {"per_gpu": 95.0, "communication": 0.01, "all_reduce": 1e-4} if len(seen) > 1 else {}
        value = 190.0 if len(seen) > 1 else 100.0
        return [{"params": {"part": "whole"}, "value": value, "microseconds_per_frame": {}, **extra}]

    monkeypatch.setattr(two_gpus, "results_of", results_of)
    two_gpus.speed(OPTIONS)
    assert capsys.readouterr().out.count('"speedup": 1.9') == 1
    for command, ranks in zip(seen, (1, 2), strict=True):
        program = next(i for i, word in enumerate(command) if word.endswith("eval/speed_train.py"))
        assert ("--nproc-per-node=2" in command[:program]) == (ranks == 2)
        options = tyro.cli(speed_train.Options, args=command[program + 1 :])
        assert options.json and options.num_envs == (8,) and options.minibatch_frames == 64


def test_one_process_learns_from_the_minibatches_of_two():
    ranks = Ranks(torch.device("cpu"))
    learner = two_gpus.make_learner(OPTIONS, ranks)
    assert isinstance(learner, two_gpus.AllRanksLearner) and learner.env.num_envs == 8 and learner.num_parts == 2
    rows = learner._sample_minibatches()
    assert sorted(rows.flatten().tolist()) == list(range(8))
    half = rows.shape[1] // 2
    assert torch.equal(rows[:, :half] + 4, rows[:, half:])


def test_a_part_that_fails_is_reported_and_the_others_run(monkeypatch, capsys):
    def fail(options):
        raise AssertionError("no luck")

    monkeypatch.setattr(two_gpus, "same", fail)
    monkeypatch.setattr(two_gpus, "restart", lambda options: two_gpus.report("restart", status=0))
    assert two_gpus.main(dataclasses.replace(OPTIONS, parts=("same", "restart"))) == 1
    out = capsys.readouterr().out
    assert '"failed": "AssertionError: no luck"' in out and '"part": "restart", "status": 0' in out
