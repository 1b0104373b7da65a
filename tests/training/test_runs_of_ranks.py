"""Distributed runs (Gloo, CartPole): stopped, killed, failing, resumed with the same or another number of ranks."""

import os
import signal

import pytest
import torch
from small_runs import FRAMES, assert_same_run, finish, log_of, make_run, rows, start_ranks, wait_until

UPDATES = 8


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """An uninterrupted run of two ranks."""
    out = tmp_path_factory.mktemp("ranks") / "whole"
    assert statuses(start_ranks(make_run(2 * UPDATES), out, 2)) == [0, 0], log_of(out)
    return out


def statuses(processes):
    return [finish(process) for process in processes]


def errors(out):
    """The error lines of a log."""
    return [line for line in log_of(out).splitlines() if line.startswith("error: ")]


def test_all_frames_count_and_one_process_writes(whole):
    assert [row["frames"] for row in rows(whole)] == [2 * FRAMES * (i + 1) for i in range(UPDATES)]
    state = torch.load(whole / "resume.pt", weights_only=True)["learner"]
    assert state["frames"] == 2 * UPDATES * FRAMES and len(state["others"]) == 1
    lines = [line for line in log_of(whole).splitlines() if not line.startswith("compil")]  # slow the first time
    assert lines and all(" frames  " in line for line in lines) and len(lines) == len(set(lines))  # rank 0's progress


def test_a_run_with_a_killed_rank_resumes_bit_for_bit(whole, held, tmp_path):
    out = tmp_path / "killed"
    processes = start_ranks(make_run(2 * UPDATES), out, 2, faults={1: held})
    wait_until(processes[1], lambda: len(rows(out)) >= 3)
    os.kill(processes[1].pid, signal.SIGKILL)
    assert statuses(processes) == [1, -signal.SIGKILL]
    (line,) = errors(out)
    assert line.startswith("error: rank 1 (") and "no heartbeat (killed?)" in line
    assert statuses(start_ranks(make_run(2 * UPDATES), out, 2)) == [0, 0], log_of(out)
    assert_same_run(out, whole)


@pytest.mark.parametrize(("number", "status"), [(signal.SIGTERM, 143), (signal.SIGUSR1, 0)], ids=lambda x: str(x))
def test_a_signal_to_one_rank_saves_and_ends_all(whole, held, tmp_path, number, status):
    out = tmp_path / "stopped"
    run = make_run(2 * UPDATES, save_every=1e6)
    processes = start_ranks(run, out, 2, faults={1: held})
    wait_until(processes[1], lambda: len(rows(out)) >= 3)
    for _ in range(2):  # as torchrun hands on what its processes got already
        os.kill(processes[1].pid, number)
    held.unlink()
    assert statuses(processes) == [status] * 2
    assert log_of(out).count(f"{number.name}: saved at frame ") == 1 and not errors(out)
    if status:
        assert statuses(start_ranks(run, out, 2)) == [0, 0], log_of(out)
        assert_same_run(out, whole)


@pytest.mark.parametrize("ranks", [1, 3])
def test_another_number_of_ranks_resumes_with_new_episodes(tmp_path, ranks):
    out = tmp_path / "other"
    assert statuses(start_ranks(make_run(6), out, 2)) == [0, 0], log_of(out)
    before = torch.load(out / "resume.pt", weights_only=True)["learner"]
    longer = make_run(12)
    processes = start_ranks(longer, out, ranks, allow_changes=True)
    assert statuses(processes) == [0] * ranks, log_of(out)
    frames = [row["frames"] for row in rows(out)]
    assert frames[:4] == [2 * FRAMES, 4 * FRAMES, 6 * FRAMES, (6 + ranks) * FRAMES] and frames[-1] == 12 * FRAMES
    assert f"found the state of 2 processes, expected {ranks}; weights" in log_of(out)
    assert f"# from frame {6 * FRAMES:,} on: ranks = {ranks}, was 2" in (out / "config.yaml").read_text()
    after = torch.load(out / "resume.pt", weights_only=True)["learner"]
    assert len(after.get("others", [])) == ranks - 1
    steps = [state["optimizer"]["state"][0]["step"].item() for state in (before, after)]
    assert steps == [3 * 2, (3 + 6 // ranks) * 2]  # two minibatches an update


@pytest.mark.parametrize(
    ("fault", "message"),
    [
        ("nan", "cpu): update to frame 768: found loss nan, expected a finite number;"),
        ("memory", "cpu): OutOfMemoryError: no memory; all 2 ranks end"),
    ],
)
def test_a_failure_of_one_rank_is_one_message_that_names_it(tmp_path, fault, message):
    out = tmp_path / "failing"
    assert statuses(start_ranks(make_run(2 * UPDATES), out, 2, faults={1: fault})) == [1, 1]
    (line,) = errors(out)
    assert line.startswith("error: rank 1 (") and message in line
    assert torch.load(out / "resume.pt", weights_only=True)["learner"]["frames"] == 2 * 2 * FRAMES


def test_a_stalled_rank_ends_all(tmp_path):
    out = tmp_path / "slow"
    assert statuses(start_ranks(make_run(2 * UPDATES), out, 2, faults={1: "sleep"}, stall_seconds=2.0)) == [1, 1]
    (line,) = errors(out)
    assert line.startswith("error: rank 1 (") and "did not begin all-reduce" in line and "within 2 s" in line
