"""How the guesses of what is unseen are learned: what is recorded, how maps are turned, losses, and the program."""

import math

import pytest
import torch

from batchnav.data.scenes import load_scenes
from batchnav.errors import ArgumentError, CheckpointError, ConfigError
from batchnav.scene.bank import SceneBank
from batchnav.sensors.anticipation import WINDOW, OccupancyNet, load_occupancy
from train import anticipation
from train.anticipation import BLOCKED, FREE, RECORDED, WALKABLE, Options

pytestmark = pytest.mark.usefixtures("one_thread")


@pytest.fixture(scope="module")
def recorded():
    """Maps of two houses from an eighth of the steps."""
    bank = SceneBank.pack(load_scenes(["house:0-1"], appearance=False), "cpu")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(anticipation, "BEFORE", 10)
        return anticipation.record(bank, 24, 8, torch.Generator().manual_seed(0))


def test_recorded_maps_agree_with_the_truth(recorded):
    """Where an agent saw ground one can mostly walk, and where it saw obstacles one cannot; it stands where it saw."""
    free, blocked, walkable = (((recorded.cells & bit) > 0) for bit in (FREE, BLOCKED, WALKABLE))
    assert len(recorded.cells) == 24 and set(recorded.scene.tolist()) == {0, 1}
    assert not (free & blocked).any() and (free | blocked).float().mean() < 0.5
    assert walkable[free].float().mean() > 0.8 > 0.2 > walkable[blocked].float().mean()
    columns, rows = recorded.places[:, 2].long().unbind(1)
    assert walkable[torch.arange(24), rows, columns].float().mean() > 0.8, "the middle of its cell may be beside it"


def test_turned_maps_are_the_same_maps(recorded):
    """The goal's spot turns with the cells around it."""
    rows = torch.arange(8)
    plain = anticipation.batch_of(recorded, rows)
    for turns in ((True, False, False), (False, True, False), (False, False, True), (True, True, True)):
        turned = anticipation.batch_of(recorded, rows, turns)
        back = torch.stack([turned.unseen.float(), turned.blocked, turned.inside.float(), turned.inputs[:, 3]], 1)
        back = back.transpose(2, 3) if turns[2] else back
        back = back.flip(2) if turns[1] else back
        back = back.flip(3) if turns[0] else back
        expected = torch.stack([plain.unseen.float(), plain.blocked, plain.inside.float(), plain.inputs[:, 3]], 1)
        torch.testing.assert_close(back, expected, rtol=0, atol=1e-4)


def test_maps_are_turned_by_any_angle(recorded):
    """A right angle loses nothing. The cells that spots lie on turn with them, and what is off is not learned."""
    cells, places = recorded.cells[:8], recorded.places[:8]
    quarter, spots = anticipation.turned(cells, places, math.pi / 2)
    assert torch.equal(quarter, cells.transpose(1, 2).flip(2))
    torch.testing.assert_close(spots, torch.stack([WINDOW - places[..., 1], places[..., 0]], 2))
    cells = torch.full_like(cells, RECORDED)
    columns, rows = torch.full((8,), 40), torch.arange(50, 58)
    for k in range(8):
        cells[k, rows[k] - 1 : rows[k] + 2, columns[k] - 1 : columns[k] + 2] |= FREE
    places = torch.stack([columns + 0.5, rows + 0.5], 1)[:, None].expand(-1, 3, -1)
    slanted, spots = anticipation.turned(cells, places, math.radians(30))
    columns, rows = spots[:, 0].floor().long().unbind(1)
    assert ((slanted[torch.arange(8), rows, columns] & FREE) > 0).all() and (rows != torch.arange(50, 58)).all()
    assert slanted[0, 0, 0] == 0 and slanted[0, 64, 64] == RECORDED
    batch = anticipation.batch_of(recorded, torch.arange(8), angle=math.radians(30))
    assert not batch.unseen[:, 0, 0].any(), "off the recorded window there is nothing to learn"
    assert batch.unseen.float().mean() > 0.7


def test_training_goes_on_from_other_weights(tmp_path, capsys, monkeypatch):
    """At a rate of nothing the weights stay what they were."""
    monkeypatch.setattr(anticipation, "BEFORE", 4)
    monkeypatch.setattr(anticipation, "HELD_OUT", 2)
    out = tmp_path / "mine.safetensors"
    few = {"scenes": ("house:0-1",), "maps": 6, "num_envs": 4, "steps": 1, "batch": 2, "device": "cpu"}
    anticipation.main(Options(out, **few, init_from="occupancy", learning_rate=0.0))
    assert "the network, at 30 degrees" in capsys.readouterr().out
    found, expected = load_occupancy(out).state_dict(), load_occupancy("occupancy").state_dict()
    for name, value in expected.items():
        if "running" not in name and "batches" not in name:
            torch.testing.assert_close(found[name], value, rtol=0, atol=0)


def test_bounds_are_a_cell_wider():
    marked = torch.zeros(3, 10, dtype=torch.bool)
    marked[0, [3, 6]] = True
    marked[1, 0] = True
    inside = anticipation.between(marked)
    assert [row.nonzero()[:, 0].tolist() for row in inside] == [[2, 3, 4, 5, 6, 7], [0, 1], []]


def test_training_lowers_the_loss(recorded, monkeypatch):
    monkeypatch.setattr(anticipation, "WARM_UP", 5)
    monkeypatch.setattr(anticipation, "NOTICE", 8)
    torch.manual_seed(0)
    model, rows = OccupancyNet(), torch.arange(24)
    losses = anticipation.train(model, recorded, rows, 24, 4, torch.Generator().manual_seed(0), 3e-3)
    assert len(losses) == 3 and losses[2] < losses[0]
    found = anticipation.log_losses(model, recorded, rows, 8)
    assert all(0.0 < nats < 3.0 for values in found.values() for nats in values)


def test_program(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(anticipation, "BEFORE", 4)
    monkeypatch.setattr(anticipation, "HELD_OUT", 2)
    out = tmp_path / "mine.safetensors"
    anticipation.main(Options(out, ("house:0-1",), maps=6, num_envs=4, steps=1, batch=2, device="cpu"))
    assert "log loss in scenes held out" in capsys.readouterr().out
    assert load_occupancy(out)(torch.zeros(1, 6, WINDOW, WINDOW)).shape == (1, WINDOW, WINDOW)


def test_what_cannot_be_is_refused(recorded, tmp_path):
    with pytest.raises(ArgumentError, match="maps: found 24 and 0 of scenes to learn from and of scenes held out"):
        anticipation.split(recorded, torch.Generator())
    with pytest.raises(ArgumentError, match="steps: found 0"):
        anticipation.main(Options(tmp_path / "mine.safetensors", steps=0))
    with pytest.raises(ArgumentError, match="scenes: found 2 scenes, expected 10 or more"):
        anticipation.main(Options(tmp_path / "mine.safetensors", ("house:0-1",), device="cpu"))
    with pytest.raises(ArgumentError, match="learning_rate: found -1"):
        anticipation.main(Options(tmp_path / "mine.safetensors", learning_rate=-1.0))
    with pytest.raises(ConfigError, match="nothing"):
        anticipation.main(Options(tmp_path / "mine.safetensors", init_from="nothing"))
    with pytest.raises(CheckpointError, match="found a folder, expected a file"):
        anticipation.main(Options(tmp_path))
    (tmp_path / "file").touch()
    with pytest.raises(CheckpointError, match="expected a folder"):
        anticipation.main(Options(tmp_path / "file" / "mine.safetensors"))
