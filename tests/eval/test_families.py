"""Several policies on several episode files, in one table each."""

from eval.studies import families


def test_every_policy_plays_every_file(rooms, checkpoint, capsys, monkeypatch):
    recorded = []
    monkeypatch.setattr(families, "append_rows", lambda name, rows: recorded.extend(rows))
    files = (rooms / "mine.json.gz", rooms / "mine.json.gz")
    families.main(families.Options((checkpoint,), files, device="cpu", record=True))
    assert capsys.readouterr().out.count("10 episodes in 2 scenes") == 2
    assert [row["metric"] for row in recorded] == 2 * ["success", "spl", "soft_spl"]
