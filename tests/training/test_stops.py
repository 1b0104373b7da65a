"""Runs that are killed, stopped, started twice, or out of disk space resume bit for bit without loss."""

import os
import random
import re
import shutil
import signal
import threading
import time
from pathlib import Path

import pytest
import torch
import yaml
from safetensors.torch import load_file
from small_runs import BEGUN, FRAMES, PATIENCE, assert_same_run, finish, log_of, make_run, rows, start, wait_until

from batchnav.training.folder import ResumeFile
from batchnav.training.signals import SIGNALS, StopSignals

KILLS = int(os.environ.get("BATCHNAV_KILLS", "4"))
"""Number of kills of one run at random moments, and of further kills during saves."""
UPDATES = 18


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """An uninterrupted run."""
    out = tmp_path_factory.mktemp("runs") / "whole"
    assert finish(start(make_run(UPDATES), out)) == 0, log_of(out)
    assert len(rows(out)) == UPDATES
    return out


def kill(process):
    os.kill(process.pid, signal.SIGKILL)
    assert finish(process) == -signal.SIGKILL


def saving(out):
    """True while a file is being written."""
    return out.is_dir() and any(name.endswith(".part") for name in os.listdir(out))


def stop_in_a_save(process, out):
    """Suspend a run while it writes a file."""
    while True:
        wait_until(process, lambda: saving(out), pause=0.0)
        os.kill(process.pid, signal.SIGSTOP)
        wait_until(process, lambda: Path(f"/proc/{process.pid}/stat").read_text().rpartition(")")[2].split()[0] == "T")
        if saving(out):
            return
        os.kill(process.pid, signal.SIGCONT)


@pytest.mark.parametrize("in_save", [False, True], ids=["anywhere", "in saves"])
def test_a_killed_run_resumes_bit_for_bit(whole, tmp_path, in_save):
    out, chance = tmp_path / "killed", random.Random(KILLS + in_save)
    kills = torn = 0
    for i in range(KILLS):
        process = start(make_run(UPDATES), out)
        count = min(len(rows(out)) + chance.randint(0, 2), (i + 1) * (UPDATES - 6) // KILLS)
        wait_until(process, lambda count=count: len(rows(out)) >= count)
        if in_save:
            stop_in_a_save(process, out)
        else:
            time.sleep(chance.uniform(0.0, 0.03))
        if not process.is_alive():
            break
        kill(process)
        kills += 1
        torn += saving(out)
    assert finish(start(make_run(UPDATES), out)) == 0, log_of(out)
    assert_same_run(out, whole)
    assert (out / "config.yaml").read_bytes() == (whole / "config.yaml").read_bytes()
    assert not saving(out), "temporary files were left"
    assert kills > KILLS // 2 and torn >= kills * in_save, "too few kills came while a file was being written"


@pytest.mark.parametrize(
    ("number", "status"), [(signal.SIGTERM, 143), (signal.SIGINT, 130), (signal.SIGUSR1, 0)], ids=lambda x: str(x)
)
def test_a_signal_saves_and_ends_the_run(whole, held, tmp_path, number, status):
    out = tmp_path / "stopped"
    run = make_run(UPDATES, save_every=1e6)
    process = start(run, out, faults={0: held})
    wait_until(process, lambda: len(rows(out)) >= 3)
    os.kill(process.pid, number)
    held.unlink()
    assert finish(process) == status
    saved = torch.load(out / "resume.pt", weights_only=True)["learner"]["frames"]
    assert 3 * FRAMES <= saved == rows(out)[-1]["frames"] < UPDATES * FRAMES
    log = log_of(out)
    assert f"{number.name}: saved at frame {saved:,}" in log and "Traceback" not in log
    assert ("start the same command again" in log) == (status == 0)
    assert finish(start(run, out)) == 0, log_of(out)
    assert_same_run(out, whole)


def test_sigusr1_can_request_a_save_without_an_exit(tmp_path):
    out = tmp_path / "saved"
    process = start(make_run(10_000, save_every=1e6, on_sigusr1="save"), out)
    wait_until(process, lambda: len(rows(out)) >= 2)
    assert not (out / "resume.pt").exists()
    os.kill(process.pid, signal.SIGUSR1)
    wait_until(process, (out / "resume.pt").exists)
    seen = len(rows(out))
    wait_until(process, lambda: len(rows(out)) > seen + 2)
    os.kill(process.pid, signal.SIGTERM)
    assert finish(process) == 143


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_repeated_immediately_counts_once(held, tmp_path, number):
    out = tmp_path / "twice"
    process = start(make_run(10_000, save_every=1e6), out, faults={0: held})
    wait_until(process, lambda: len(rows(out)) >= 3)
    for _ in range(2):
        os.kill(process.pid, number)
        time.sleep(0.1)
    held.unlink()
    assert finish(process) == 128 + number
    assert log_of(out).count(f"{number.name}: saved at frame") == 1
    assert torch.load(out / "resume.pt", weights_only=True)["learner"]["frames"] >= 3 * FRAMES


def test_a_second_signal_ends_a_run_immediately_and_keeps_the_last_save(tmp_path):
    out = tmp_path / "hurried"
    # One update after the first save takes minutes.
    run = make_run(10_000)
    process = start(run, out)
    wait_until(process, lambda: (out / "resume.pt").exists())
    os.kill(process.pid, signal.SIGTERM)
    assert finish(process) == 143
    before = (out / "resume.pt").read_bytes()
    slow = make_run(10_000, ppo={"epochs": 1000, "minibatches": 8, "total_frames": 10_000 * FRAMES})
    process = start(slow, out, allow_changes=True, faults={0: BEGUN})
    wait_until(process, lambda: BEGUN in log_of(out))
    until = time.monotonic() + PATIENCE
    while process.is_alive() and time.monotonic() < until:  # a process that does not get to run sees two as one
        os.kill(process.pid, signal.SIGTERM)
        time.sleep(0.2)
    assert finish(process) == -signal.SIGTERM
    assert (out / "resume.pt").read_bytes() == before
    assert log_of(out).count("SIGTERM: saved at frame") == 1  # the first run's


def test_a_signal_before_the_first_update_ends_the_run_with_its_status(tmp_path):
    out = tmp_path / "early"
    process = start(make_run(UPDATES), out)
    wait_until(process, (out / ".lock").exists, pause=0.0)
    os.kill(process.pid, signal.SIGUSR1)
    assert finish(process) == 0
    assert "SIGUSR1: " in log_of(out) and "start the same command again" in log_of(out)


def test_a_second_run_in_a_folder_names_the_first_and_ends(whole, held, tmp_path):
    out = tmp_path / "shared"
    first = start(make_run(UPDATES, save_every=1e6), out, faults={0: held})
    wait_until(first, lambda: len(rows(out)) >= 3)
    os.kill(first.pid, signal.SIGSTOP)
    before = {path: path.read_bytes() for path in out.rglob("*") if path.is_file()}
    assert finish(start(make_run(UPDATES, save_every=1e6), out)) == 1
    assert f"in use by process {first.pid} on " in log_of(out) and "Traceback" not in log_of(out)
    assert {path: path.read_bytes() for path in out.rglob("*") if path.is_file()} == before
    os.kill(first.pid, signal.SIGCONT)
    held.unlink()
    assert finish(first) == 0
    assert_same_run(out, whole)


def test_a_full_disk_is_a_one_line_error_and_keeps_saves(whole, tmp_path):
    out = tmp_path / "full"
    run = make_run(UPDATES)
    limits = [4000, (whole / "metrics.jsonl").stat().st_size // 2, (whole / "resume.pt").stat().st_size - 100]
    for limit in sorted(limits):
        before = (out / "resume.pt").read_bytes() if (out / "resume.pt").exists() else None
        assert finish(start(run, out, largest_file=limit)) == 1
        log = log_of(out).splitlines()
        assert log[-1].startswith("error: ") and "cannot be written (File too large)" in log[-1]
        assert "Traceback" not in log_of(out) and not saving(out)
        if before is not None:
            assert torch.load(out / "resume.pt", weights_only=True)["learner"]["frames"] > 0
    assert finish(start(run, out)) == 0, log_of(out)
    assert_same_run(out, whole)


def test_a_longer_run_says_how_its_schedules_jump(whole, tmp_path):
    out = tmp_path / "longer"
    shutil.copytree(whole, out)
    last, total = rows(out)[-1]["learning_rate"], UPDATES * FRAMES
    assert finish(start(make_run(UPDATES + 1, ppo={"schedule_frames": total}), out, allow_changes=True)) == 0
    assert "schedules" not in log_of(out) and rows(out)[-1]["learning_rate"] <= last
    assert finish(start(make_run(2 * UPDATES), out, allow_changes=True)) == 0
    found = re.search(
        rf"schedules are now {2 * total:,} frames long, not {total:,}: .* learning rate from (\S+) to (\S+);"
        rf" .* --ppo\.schedule-frames {total}\n",
        log_of(out),
    )
    rates = [row["learning_rate"] for row in rows(out)[UPDATES : UPDATES + 2]]
    assert found and [float(word) for word in found.groups()] == pytest.approx(rates, rel=0.01)


def test_a_deleted_folder_is_an_error_and_keeps_the_weights(held, tmp_path):
    out = tmp_path / "deleted"
    process = start(make_run(UPDATES, save_every=1e6), out, faults={0: held})
    wait_until(process, lambda: len(rows(out)) >= 3)
    shutil.rmtree(out)
    held.unlink()
    assert finish(process) == 1
    message = log_of(out).splitlines()[-1]
    assert message.startswith(f"error: {out}: found no metrics.jsonl") and "policy.safetensors" in message
    assert (out / "policy.safetensors").is_file() and not (out / "resume.pt").exists()


def replace_state(out, state):
    """Write the state of a run that has ended."""
    file = ResumeFile(out / "resume.pt")
    file.save(state)
    file.close()


def test_a_diverged_run_resumes_with_another_learning_rate(held, tmp_path):
    out = tmp_path / "diverging"
    run = make_run(UPDATES)
    process = start(run, out, faults={0: held})
    wait_until(process, lambda: len(rows(out)) >= 3)
    os.kill(process.pid, signal.SIGTERM)
    held.unlink()
    assert finish(process) == 143
    frames, done = rows(out)[-1]["frames"], len(rows(out))
    policy = (out / "policy.safetensors").read_bytes()
    good = torch.load(out / "resume.pt", weights_only=True)
    bad = torch.load(out / "resume.pt", weights_only=True)
    bad["learner"]["policy"]["critic.bias"].fill_(float("nan"))
    replace_state(out, bad)
    assert finish(start(run, out)) == 1
    message = log_of(out).splitlines()[-1]
    assert message.startswith("error: ") and "found loss nan" in message
    assert "--ppo.learning-rate" in message and "--allow-changes" in message
    assert (out / "policy.safetensors").read_bytes() == policy
    replace_state(out, good)
    slower = make_run(UPDATES, ppo={"learning_rate": 1e-4, "weight_decay": 0.5})
    assert finish(start(slower, out)) == 1
    assert "learning_rate" in log_of(out).splitlines()[-1] and "--allow-changes" in log_of(out).splitlines()[-1]
    assert finish(start(slower, out, allow_changes=True)) == 0, log_of(out)
    text = (out / "config.yaml").read_text()
    assert text.splitlines()[:2] == [
        f"# from frame {frames:,} on: ppo.learning_rate = 0.0001, was 0.0005",
        f"# from frame {frames:,} on: ppo.weight_decay = 0.5, was 0.01",
    ]
    assert yaml.safe_load(text)["ppo"]["learning_rate"] == 1e-4
    rates = [row["learning_rate"] for row in rows(out)]
    assert rates[done] < 0.5 * rates[done - 1]
    state = torch.load(out / "resume.pt", weights_only=True)["learner"]["optimizer"]
    assert state["param_groups"][0]["weight_decay"] == 0.5
    # The history stays when the run is started again, and what cannot go on is refused with the state as it was.
    assert finish(start(slower, out)) == 0
    assert (out / "config.yaml").read_text() == text
    before = (out / "resume.pt").read_bytes()
    other_network = {"policy": {"hidden_size": 17, "memory": "none"}}
    cases = (
        (
            {"ppo": {"optimizer": "lamb"}},
            r"optimizer: found adamw, expected lamb;.* ppo.optimizer = 'lamb', was 'adamw'",
        ),
        (
            other_network,
            r"tensor 'body.0.weight' is .* \[16, \d+\], .* \[17, \d+\]; .* policy.hidden_size = 17, was 16; ",
        ),
    )
    for change, expected in cases:
        assert finish(start(make_run(UPDATES, **change), out, allow_changes=True)) == 1
        assert re.search(f"error: {out}: resume state: does not fit this run: {expected}", log_of(out).splitlines()[-1])
    assert (out / "resume.pt").read_bytes() == before and (out / "config.yaml").read_text() == text


def test_handlers_are_restored_and_other_threads_set_none():
    before = [signal.getsignal(number) for number in SIGNALS]
    with StopSignals() as signals:
        assert [signal.getsignal(number) for number in SIGNALS] == [signals._handle] * 3
    assert [signal.getsignal(number) for number in SIGNALS] == before
    found = []

    def elsewhere():
        with StopSignals() as signals, signals.deferred():
            found.extend(signal.getsignal(number) for number in SIGNALS)
            signals.end("nothing")  # was not asked for

    thread = threading.Thread(target=elsewhere)
    thread.start()
    thread.join()
    assert found == before


def test_an_exit_that_compiled_code_reports_as_an_error_is_an_exit():
    with pytest.raises(SystemExit) as raised, StopSignals() as signals:
        signals.status = 130
        try:
            signals.end("nothing was lost")
        except SystemExit as end:
            raise SystemError("returned a result with an exception set") from end
    assert raised.value.code == 130


def test_a_run_starts_with_the_weights_of_another(tmp_path):
    first, second = tmp_path / "first", tmp_path / "second"
    assert finish(start(make_run(2), first)) == 0, log_of(first)
    still = {"learning_rate": 0.0, "total_frames": FRAMES}
    assert finish(start(make_run(init_from=str(first / "policy.safetensors"), ppo=still), second)) == 0, log_of(second)
    weights = [load_file(out / "policy.safetensors") for out in (first, second)]
    assert all(torch.equal(value, weights[1][name]) for name, value in weights[0].items())
    absent = tmp_path / "absent"
    assert finish(start(make_run(init_from="nowhere/policy.safetensors"), absent)) != 0
    assert "nowhere/policy.safetensors: no such file" in log_of(absent)
