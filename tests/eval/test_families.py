"""Several policies on several episode files: one table per file."""

from eval.studies import families


def test_every_policy_plays_every_file(rooms, checkpoint, monkeypatch):
    recorded = []
    monkeypatch.setattr(families, "append_rows", lambda name, rows: recorded.append(rows))
    files = (rooms / "mine.json.gz", rooms / "mine.json.gz")
    families.main(families.Options((checkpoint,), files, device="cpu", record=True))
    first, second = recorded  # one result for each file
    assert [row["metric"] for row in first] == ["success", "spl", "soft_spl"]
    assert [row["value"] for row in first] == [row["value"] for row in second]
    assert all(0.0 <= row["low"] <= row["value"] <= row["high"] <= 1.0 for row in first)
