"""What agents take for the unseen: the truth near what is seen, a learned guess, and how it is recorded and learned."""

import dataclasses
import json
import math

import numpy as np
import pytest
import torch
from torch import nn

from batchnav.data.episodes import save_episodes
from batchnav.data.generate import generate_episodes
from batchnav.data.scenes import load_scenes
from batchnav.errors import ArgumentError
from batchnav.runtime.device import limit_threads, num_threads
from batchnav.runtime.files import safetensors_bytes
from eval import free_space, guess, unseen, without_map
from eval.free_space import BLOCKED, MARGIN, Maps
from eval.unseen import BLOCK, Guess, Truth, UNet

PLACES = np.array([[[10.5, 20.5], [70.0, 20.0], [70.0, 20.0]]])
"""Goal, start and agent on the map of `maps`."""


@pytest.fixture(scope="module", autouse=True)
def one_thread():
    """For loops and networks, which share them: where the machine is busy, two wait long for each other."""
    before, loops = torch.get_num_threads(), num_threads()
    torch.set_num_threads(1)
    limit_threads(1)
    yield
    torch.set_num_threads(before)
    limit_threads(loops)


@pytest.fixture(scope="module")
def houses():
    return load_scenes(["house:0-1"], appearance=False)


@pytest.fixture(scope="module")
def episodes(houses, tmp_path_factory):
    """A file of four episodes in two houses."""
    path = tmp_path_factory.mktemp("houses") / "mine.json.gz"
    save_episodes([episode for house in houses for episode in generate_episodes(house, 2)], path)
    return path


@pytest.fixture(scope="module")
def recorded(houses):
    return guess.record(houses, 2, 4)


@pytest.fixture
def maps():
    """One map of 4 m by 4 m with a wall across at z = 2 m; the left half of it, and of what is before it, is known."""
    free, known = np.ones((1, 80, 80), bool), np.zeros((1, 80, 80), bool)
    free[0, 38:42] = False
    cost, time = np.ones((1, 80, 80), np.float32), np.zeros((1, 80, 80), np.float32)
    made = Maps(free, known, cost, known.copy(), time, np.zeros((1, 2)), np.array([[80, 80]]), np.ones(1, bool))
    for r in range(38, 80):
        for c in range(40):
            free_space.reveal(0, r, c, made)
    return made


class Sees(nn.Module):
    """Takes for blocked what is seen to be, and all else for free."""

    def forward(self, x):
        return 40.0 * (x[:, 1:2] - 0.5)


def no_chance():
    """A network for which nothing is ever blocked."""
    model = UNet()
    nn.init.zeros_(model.out.weight)
    nn.init.constant_(model.out.bias, -1000.0)
    return model


def costs_of(source, maps):
    ((i, cost),) = source.costs(np.array([0]), maps, PLACES)
    assert i == 0 and cost.dtype == np.float32
    return cost


def mean(path, episodes, **options):
    """Mean success and SPL in a file of episodes."""
    without_map.main(without_map.Options((episodes,), num_envs=8, out=path, **options))
    (file,) = path.iterdir()
    found = json.loads(file.read_text())["overall"]
    return found["success"]["mean"], found["spl"]["mean"], file.name


def test_truth_is_told_within_a_distance(maps):
    """The wall goes on to the right of column 40: 1 m of it are told, and what is beside those cells is dearer."""
    cost = costs_of(Truth(1.0), maps)
    assert (cost[38:42, 40:60] == BLOCKED).all() and (cost[38:42, 61:] == 1.0).all()
    assert (cost[37, :60] == MARGIN).all() and (cost[:37] == 1.0).all()


def test_truth_of_everything_is_the_map(episodes, tmp_path):
    """Nearly: seen cells beside an unseen wall become dearer when it is seen, so ways along walls differ by a cell."""
    told = mean(tmp_path / "told", episodes, truth_within=100.0)
    known = mean(tmp_path / "known", episodes, sees="map")
    assert told[0] == known[0] == 1.0 and told[1] == pytest.approx(known[1], abs=0.01)
    assert told[2] == "mine_ahead_truth_100.json" and known[2] == "mine_map.json"


def test_no_chance_costs_what_the_unseen_did(maps):
    before = maps.cost.copy()
    free_space.set_unseen(0, costs_of(Guess(no_chance()), maps), maps)
    np.testing.assert_array_equal(maps.cost, before)


def test_no_chance_leaves_the_agent_as_it_was(episodes, tmp_path):
    """Nearly: it plans oftener, and a plan made from farther on comes to the same way but for rounding."""
    unseen.save_guess(tmp_path / "free.safetensors", no_chance())
    guessed = mean(tmp_path / "guessed", episodes, guess=tmp_path / "free.safetensors")
    plain = mean(tmp_path / "plain", episodes)
    assert guessed[0] == plain[0] and guessed[1] == pytest.approx(plain[1], abs=0.01)
    assert guessed[2] == "mine_ahead_guess.json"


def test_costs_rise_from_an_even_chance():
    cost = unseen.cost_of(np.array([0.0, 0.5, 0.75, 0.9, 1.0], np.float32))
    np.testing.assert_allclose(cost, [1.0, 1.0, 4.0, 13.0, 100.0], rtol=1e-5)


@pytest.mark.parametrize("canvas", [128, 16])
def test_a_guess_is_for_the_cells_that_it_is_of(maps, monkeypatch, canvas):
    """A block that is all wall is dear where it is on the map, whether the canvas has all of that or a part."""
    monkeypatch.setattr(unseen, "CANVAS", canvas)
    maps.free[0], maps.known[0] = True, True
    maps.free[0, 60:64, 12:16] = False
    cost = costs_of(Guess(Sees()), maps)
    dear = cost > 1.0
    assert dear[60:64, 12:16].sum() == dear.sum() == 12, "between blocks it is interpolated, which rounds the corners"


def test_a_view_has_the_agent_where_the_map_is_larger(maps):
    view = unseen.view_of(0, maps, PLACES[0], 16)
    assert view.low.tolist() == [4, 0] and view.places[2].tolist() == [13.5, 5.0]
    assert view.seen[0, 7:, :10].min() == BLOCK**2 and view.seen[1, 5, 0] == 2 * BLOCK
    whole = unseen.view_of(0, maps, PLACES[0], 32)
    assert whole.low.tolist() == [-6, -6] and whole.seen.sum() == maps.known.sum()
    assert unseen.in_blocks(~maps.free[0], whole.low, 32, outside=True)[5, 5] == BLOCK**2


def test_recorded_maps_agree_with_the_truth(recorded):
    """What was seen free is no more than there is, and so for what is blocked; the agent is where it has seen."""
    free, blocked = recorded.seen[:, 0].astype(int), recorded.seen[:, 1].astype(int)
    truth = recorded.blocked[recorded.floor].astype(int)
    assert len(truth) > 10 and set(recorded.house) == {0, 1}
    assert (blocked <= truth).all() and (free <= BLOCK**2 - truth).all() and free.any() and blocked.any()
    r, c = recorded.places[:, 2].astype(int).T
    assert (free[range(len(r)), r, c] > 0).all()


def test_cut_out_maps_keep_the_agent_where_it_has_seen(recorded):
    batch = guess.batch_of(recorded, np.arange(len(recorded.seen)), torch.device("cpu"), np.random.default_rng(0))
    agents = batch.inputs[:, 5].flatten(1).argmax(1)
    assert batch.inputs.shape[2:] == (guess.CROP, guess.CROP)
    assert (batch.inputs[:, 0].flatten(1).gather(1, agents[:, None]) > 0.0).all()
    assert batch.inside.any() and batch.share.min() >= 0.0 and batch.share.max() <= 1.0


def test_training_lowers_the_loss(recorded, monkeypatch):
    monkeypatch.setattr(guess, "BATCH", 4)
    monkeypatch.setattr(guess, "CROP", 48)
    monkeypatch.setattr(guess, "WARM_UP", 5)
    torch.manual_seed(0)
    losses = guess.train(UNet(), recorded, np.arange(len(recorded.seen)), 50, np.random.default_rng(0))
    assert len(losses) == 50 and np.mean(losses[-20:]) < np.mean(losses[:10]) - 0.02


def test_losses_of_the_other_guesses(recorded):
    """The truth is the best guess, and what is known of distances is better than nothing where it is from."""
    rows = np.arange(len(recorded.seen))
    found = guess.log_losses(UNet(), recorded, rows, guess.blocked_shares(recorded, rows))
    assert found["truth"][-1] < found["by distance"][-1] <= found["constant"][-1] < math.log(2.0)


def test_program(houses, episodes, tmp_path, capsys, monkeypatch):
    """From houses to maps, weights and an agent."""
    monkeypatch.setattr(guess, "BATCH", 2)
    maps, weights = tmp_path / "maps.npz", tmp_path / "guess.safetensors"
    guess.main(guess.Record(maps, ("house:0-1",), episodes=1, num_envs=2))
    assert "of 2 floors" in capsys.readouterr().out
    guess.main(guess.Train(maps, weights, steps=2, device="cpu"))
    assert "by distance" in capsys.readouterr().out
    assert mean(tmp_path / "out", episodes, guess=weights)[0] > 0.0


def test_what_is_no_training_house_is_refused():
    for name in ("house:100000", "hall:0", "house:x"):
        with pytest.raises(ArgumentError, match=f"houses: found {name}, expected ids from house:0 to house:99999"):
            guess.training_houses((name,))


def test_other_files_are_refused(tmp_path):
    path = tmp_path / "file"
    with pytest.raises(ArgumentError, match="file: cannot be read"):
        unseen.load_guess(path)
    for data in (b"no weights", safetensors_bytes({"a": np.zeros(3)}, {})):
        path.write_bytes(data)
        with pytest.raises(ArgumentError, match="file: found something else, expected weights"):
            unseen.load_guess(path)
        with pytest.raises(ArgumentError, match="file: found something else, expected maps"):
            guess.load_recorded(path)


def test_options_that_do_not_go_together_are_refused(tmp_path):
    options = without_map.Options(truth_within=-1.0)
    with pytest.raises(ArgumentError, match=r"truth_within: found -1\.0, expected metres"):
        without_map.main(options)
    for other in ({"guess": tmp_path}, {"unknown": 2.0}):
        with pytest.raises(ArgumentError, match=r"expected one of guess, truth_within, unknown"):
            without_map.main(dataclasses.replace(options, **other))
    with pytest.raises(ArgumentError, match="steps: found 0"):
        guess.main(guess.Train(tmp_path, tmp_path, steps=0))
