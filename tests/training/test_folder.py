"""The run folder: refused configurations, repaired files, detected damage."""

import io
import json
import os
import random
import shutil
import zipfile

import pytest
import torch
import yaml
from gymnasium import spaces
from networks import policy_config
from small_runs import make_run
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from batchnav.errors import BatchnavError, CheckpointError, ConfigError, DivergenceError
from batchnav.policy import ActorCritic, load_policy, save_policy
from batchnav.training.curves import rows_until
from batchnav.training.folder import ResumeFile, RunFolder
from batchnav.training.loop import check_finite


def learner_state(frames):
    generator = torch.Generator().manual_seed(frames)
    return {"frames": frames, "policy": {"w": torch.randn(50, generator=generator), "n": torch.arange(3)}}


def same(a, b):
    if isinstance(a, dict):
        return isinstance(b, dict) and a.keys() == b.keys() and all(same(a[key], b[key]) for key in a)
    return torch.equal(a, b) and a.dtype == b.dtype if isinstance(a, torch.Tensor) else a == b


@pytest.fixture
def run():
    return make_run()


@pytest.fixture
def out(tmp_path, run):
    """A run folder with three rows and a state saved after the second."""
    out = tmp_path / "run"
    with RunFolder(out, run) as folder:
        assert folder.load() is None
        folder.begin(0)
        for frames in (10, 20, 30):
            folder.log({"frames": frames, "spl": frames / 100, "eval": {"spl": float("nan")}})
            if frames == 20:
                folder.save(learner_state(20))
    return out


def reopen(out, run, **options):
    """Open the folder as a resumed run does. Returns the state."""
    with RunFolder(out, run, **options) as folder:
        state = folder.load()
        folder.begin(state["frames"] if state else 0)
    return state


def content(out):
    return {p: p.read_bytes() for p in out.rglob("*") if p.is_file() and p.name != ".lock"}


def test_resume_drops_rows_after_the_state(out, run):
    assert len(rows_until(out / "metrics.jsonl", 30)) == 3
    assert same(reopen(out, run), learner_state(20))
    kept = [json.loads(line) for line in (out / "metrics.jsonl").read_text().splitlines()]
    assert [row["frames"] for row in kept] == [10, 20] and kept[0]["eval"] == {"spl": None}
    board = EventAccumulator(str(out / "tensorboard")).Reload()
    assert [(event.step, round(event.value, 6)) for event in board.Scalars("spl")] == [(10, 0.1), (20, 0.2)]
    assert yaml.safe_load((out / "config.yaml").read_text())["seed"] == run.seed


def test_torch_reads_a_state_with_a_checksum(out):
    assert same(torch.load(out / "resume.pt", weights_only=True)["learner"], learner_state(20))


@pytest.mark.parametrize("seconds", [0.0, 1e9, 5e9])
def test_a_state_is_saved_whatever_the_clock_says(tmp_path, monkeypatch, seconds):
    """ZIP archives hold dates from 1980 to 2107; robots without a clock battery start in 1970."""
    state, file = {"learner": learner_state(20)}, ResumeFile(tmp_path / "resume.pt")
    monkeypatch.setattr("time.time", lambda: seconds)
    file.save(state)
    file.close()
    assert same(file.load()["learner"], state["learner"])
    data = (tmp_path / "resume.pt").read_bytes()
    assert zipfile.ZipFile(io.BytesIO(data)).infolist()[0].date_time == (1980, 1, 1, 0, 0, 0)


def test_members_that_hardly_shrink_are_stored(tmp_path):
    state, file = {"weights": torch.randn(2**18), "map": torch.zeros(2**18)}, ResumeFile(tmp_path / "resume.pt")
    file.save(state)
    file.close()
    assert same(file.load(), state)
    large = [m for m in zipfile.ZipFile(tmp_path / "resume.pt").infolist() if m.file_size == 2**20]
    assert sorted(m.compress_size < 2**16 for m in large) == [False, True]
    assert sorted(m.compress_size == 2**20 for m in large) == [False, True]


def test_a_small_file_of_many_zeros_is_not_unpacked(out, run):
    file = ResumeFile(out / "resume.pt")
    file.save({"learner": learner_state(20) | {"zeros": torch.zeros(2**27, dtype=torch.uint8)}, "seconds": 1.0})
    file.close()
    assert (out / "resume.pt").stat().st_size < 2**20
    with (
        RunFolder(out, run) as folder,
        pytest.raises(CheckpointError, match=r"unpacks to 134,2[0-9,]+ bytes"),
    ):
        folder.load(size=1000)


def test_a_state_without_a_checksum_is_refused(out, run):
    torch.save({"learner": learner_state(20), "seconds": 1.0}, out / "resume.pt")
    with pytest.raises(CheckpointError, match=r"resume\.pt.*no checksum.*delete the file"):
        reopen(out, run)


def test_every_flipped_bit_of_the_state_is_detected(out, run):
    path = out / "resume.pt"
    good = path.read_bytes()
    with RunFolder(out, run) as folder:
        for bit in random.Random(0).sample(range(8 * len(good)), 1000):
            data = bytearray(good)
            data[bit // 8] ^= 1 << bit % 8
            path.write_bytes(data)
            with pytest.raises(CheckpointError, match=r"resume\.pt") as error:
                folder.load()
            assert "\n" not in str(error.value)


@pytest.mark.parametrize("size", [0, 1, 70, 1000, -72, -200])
def test_a_truncated_state_is_named_in_the_error(out, run, size):
    (out / "resume.pt").write_bytes((out / "resume.pt").read_bytes()[:size])
    before = content(out)
    with pytest.raises(CheckpointError, match=r"resume\.pt.*delete the file"):
        reopen(out, run)
    assert content(out) == before


def test_a_state_cannot_run_code(out, run):
    class Code:
        def __reduce__(self):
            return os.mkdir, (str(out / "ran"),)

    torch.save({"learner": {"frames": 20, "x": Code()}, "seconds": 1.0}, out / "resume.pt")
    with pytest.raises(CheckpointError, match=r"resume\.pt"):
        reopen(out, run)
    assert not (out / "ran").exists()


def test_another_configuration_is_refused_unless_the_change_is_allowed(out, run):
    other = make_run(ppo={"learning_rate": 1e-4})
    before = content(out)
    with pytest.raises(CheckpointError, match=r"ppo\.learning_rate = 0\.0005, expected 0\.0001.*--allow-changes"):
        RunFolder(out, other)
    assert content(out) == before
    reopen(out, other, allow_changes=True)
    reopen(out, make_run(), allow_changes=True)
    lines = (out / "config.yaml").read_text().splitlines()
    assert lines[:2] == [
        "# from frame 20 on: ppo.learning_rate = 0.0001, was 0.0005",
        "# from frame 20 on: ppo.learning_rate = 0.0005, was 0.0001",
    ]
    with pytest.raises(CheckpointError, match="learning_rate"):
        RunFolder(out, other)


def test_a_setting_newer_than_the_run_has_its_default(out, run):
    path = out / "config.yaml"
    path.write_text(path.read_text().replace("on_sigusr1: restart\n", ""))
    assert reopen(out, run)["frames"] == 20


def test_a_failed_first_start_leaves_the_folder_free(tmp_path, run):
    out = tmp_path / "run"
    with RunFolder(out, make_run(seed=1)):
        pass  # nothing came of it
    assert not (out / "config.yaml").exists()
    with RunFolder(out, make_run(seed=2)) as folder:
        folder.begin(0)
        folder.log({"frames": 10})  # killed before its first save
    assert reopen(out, run) is None
    assert yaml.safe_load((out / "config.yaml").read_text())["seed"] == 0
    assert (out / "metrics.jsonl").read_text() == ""


def test_another_task_is_named_first(out, run):
    other = make_run(env={"preset": "objectnav_houses"})
    with pytest.raises(CheckpointError, match=r"holds a run with env\.task\.name = 'pointnav', expected 'objectnav'"):
        RunFolder(out, other)
    with RunFolder(out, other, allow_changes=True) as folder:
        assert folder.changes[0] == "env.task.name = 'objectnav', was 'pointnav'"


def test_weights_alone_reserve_the_folder(out, run):
    (out / "resume.pt").rename(out / "policy.safetensors")
    with pytest.raises(CheckpointError, match="holds a run with seed = 0, expected 1"):
        RunFolder(out, make_run(seed=1))


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (b"\xff\xfe", "UTF-8|utf-8"),
        (b"ppo: {gamma: [", "not YAML"),
        (b"ppo: {gama: 1.0}", "nearest is 'gamma'"),
        (b"- 1", "mapping"),
        (b"", "holds a run with"),
        (b"seed: 2026-01-01", "seed"),
    ],
)
def test_a_broken_configuration_is_a_one_line_error_without_loss(out, run, text, words):
    (out / "config.yaml").write_bytes(text)
    before = content(out)
    with pytest.raises((CheckpointError, ConfigError), match=words) as error:
        RunFolder(out, run)
    assert str(out) in str(error.value) and "\n" not in str(error.value)
    assert content(out) == before


def test_a_missing_configuration_is_named(out, run):
    (out / "config.yaml").unlink()
    before = content(out)
    with pytest.raises(CheckpointError, match=r"config\.yaml: no such file .* --allow-changes"):
        RunFolder(out, run)
    assert content(out) == before
    assert reopen(out, run, allow_changes=True)["frames"] == 20  # the command's own is taken
    assert (out / "config.yaml").read_text().startswith("# from frame 20 on: settings unknown, config.yaml was missing")


@pytest.mark.parametrize("how", ["deleted", "moved", "replaced"])
def test_a_folder_that_is_gone_is_an_error_at_the_next_save(how, tmp_path, run):
    out = tmp_path / "run"
    with (
        pytest.raises(CheckpointError, match=r"run: found no metrics\.jsonl, .* deleted or moved"),
        RunFolder(out, run) as f,
    ):
        f.begin(0)
        if how == "deleted":
            shutil.rmtree(out)
        else:
            out.rename(tmp_path / "elsewhere")
        if how == "replaced":
            out.mkdir()
            (out / "metrics.jsonl").touch()
        f.log({"frames": 10})
        f.save(learner_state(10))


def test_no_flipped_bit_of_the_configuration_changes_the_run(out, run):
    path = out / "config.yaml"
    good = path.read_bytes()
    for bit in random.Random(1).sample(range(8 * len(good)), 60):
        data = bytearray(good)
        data[bit // 8] ^= 1 << bit % 8
        path.write_bytes(data)
        try:
            folder = RunFolder(out, run)
        except BatchnavError as error:
            assert str(out) in str(error) and "\n" not in str(error)
        else:
            folder.close()  # the same settings, written in another way


@pytest.mark.parametrize(
    ("damage", "words"),
    [
        (lambda text: b"\xff" + text[1:], "byte 0 is not UTF-8"),
        (lambda text: b"[" + text[1:], "line 1: is damaged"),
        (lambda text: text.replace(b'"frames"', b'"frimes"', 1), "line 1: is damaged"),
        (lambda text: b'{"frames": 1e999999}\n[' + b"[" * 100_000 + text, "is damaged"),
    ],
)
def test_damaged_curves_are_a_one_line_error_without_loss(out, run, damage, words):
    path = out / "metrics.jsonl"
    path.write_bytes(damage(path.read_bytes()))
    before = content(out)
    with pytest.raises(CheckpointError, match=rf"metrics\.jsonl.*{words}.*move the file away"):
        reopen(out, run)
    assert content(out) == before
    path.unlink()
    assert reopen(out, run)["frames"] == 20


def test_damaged_rows_after_the_state_are_dropped(out, run):
    path = out / "metrics.jsonl"
    whole = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(b"".join(whole)[:-5] + b"\n\x00\x00[")
    reopen(out, run)
    assert path.read_bytes() == b"".join(whole[:2])


def test_leftovers_are_removed_and_other_files_stay(out, run):
    for name in (".resume.pt.0123abcd.part", ".policy.safetensors.00000000.part", ".notes.0123abcd.part", "resume.txt"):
        (out / name).write_text("half")
    reopen(out, run)
    assert sorted(p.name for p in out.iterdir()) == [
        ".lock", ".notes.0123abcd.part", "config.yaml", "metrics.jsonl", "report.html", "resume.pt", "resume.txt",
        "tensorboard",
    ]  # fmt: skip


def test_one_run_at_a_time_uses_a_folder(out, run):
    with RunFolder(out, run), pytest.raises(CheckpointError, match=rf"in use by process {os.getpid()} on .+ since "):
        RunFolder(out, run)
    with pytest.raises(CheckpointError, match="seed"):
        RunFolder(out, make_run(seed=1))
    RunFolder(out, run).close()  # nor does one keep it that was refused


def test_a_path_that_is_not_a_folder_is_a_one_line_error(tmp_path, run):
    (tmp_path / "file").write_text("mine")
    for out in (tmp_path / "file", tmp_path / "file" / "below"):
        with pytest.raises(CheckpointError, match=r"expected a folder") as error:
            RunFolder(out, run)
        assert "\n" not in str(error.value)
    assert (tmp_path / "file").read_text() == "mine"


def test_a_folder_that_cannot_be_written_is_a_one_line_error(tmp_path, run):
    out = tmp_path / "read_only"
    out.mkdir()
    if os.geteuid() == 0:
        out = "/proc/self/fd"  # no user may write there
    else:
        out.chmod(0o500)
    with pytest.raises(CheckpointError, match="cannot be written"):
        RunFolder(type(tmp_path)(out), run)


def test_a_failed_start_reports_its_cause(out, run, monkeypatch):
    """Closing the folder does not hide the error."""
    monkeypatch.setattr(RunFolder, "_write_config", lambda self, frames: (_ for _ in ()).throw(CheckpointError("full")))
    with pytest.raises(CheckpointError, match="full"):
        reopen(out, run)


def test_a_failed_save_leaves_the_last_one(out, run, monkeypatch):
    before = (out / "resume.pt").read_bytes()
    with RunFolder(out, run) as folder:
        folder.begin(folder.load()["frames"])

        def full(handle):
            raise OSError(28, "No space left on device")

        monkeypatch.setattr("batchnav.runtime.files.os.fsync", full)
        with pytest.raises(CheckpointError, match=r"cannot be written.*No space left"):
            folder.save(learner_state(30))
    monkeypatch.undo()
    assert (out / "resume.pt").read_bytes() == before
    assert not list(out.glob(".*.part"))


def test_every_flipped_bit_of_a_policy_is_detected(tmp_path):
    path = tmp_path / "policy.safetensors"
    config = policy_config(hidden_size=4, embedding_size=3, layers=1)
    space = spaces.Dict({"x": spaces.Box(-1.0, 1.0, (2,))})
    save_policy(ActorCritic(space, spaces.Discrete(2), config), path, {"frames": 7})
    good, expected = path.read_bytes(), load_policy(path)
    refused = 0
    for bit in random.Random(2).sample(range(8 * len(good)), 150):
        data = bytearray(good)
        data[bit // 8] ^= 1 << bit % 8
        path.write_bytes(data)
        try:
            agent = load_policy(path)
        except CheckpointError as error:
            assert "policy.safetensors" in str(error) and "\n" not in str(error)
            refused += 1
        else:  # the bit was in the check sum's name
            assert agent.info == expected.info and same(agent.network.state_dict(), expected.network.state_dict())
    assert refused > 140


def test_seconds_add_up_over_starts(out, run):
    file = ResumeFile(out / "resume.pt")
    file.save({**file.load(), "seconds": 1000.0})
    file.close()
    with RunFolder(out, run) as folder:
        folder.load()
        folder.begin(20)
        assert 1000.0 <= folder.seconds < 1100.0


def test_non_finite_numbers_end_a_run_with_advice(tmp_path, out, run):
    """A gradient that is not finite ends the run even if the loss is finite."""
    with RunFolder(tmp_path / "new", run) as folder:
        check_finite({"frames": 10, "loss": 0.5, "grad_norm": 1.0}, folder, "ppo")
        with pytest.raises(DivergenceError, match=r"found grad_norm nan.*no state was saved.*--ppo\.learning-rate"):
            check_finite({"frames": 10, "loss": 0.5, "grad_norm": float("nan")}, folder, "ppo")
    with RunFolder(out, run) as folder, pytest.raises(DivergenceError, match=r"loss inf.*last good.*--allow-changes"):
        check_finite({"frames": 40, "loss": float("inf"), "grad_norm": 1.0}, folder, "ppo")
