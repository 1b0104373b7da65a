"""How the guesses of what is unseen are learned: what is recorded, how maps are turned, losses, and the program."""

import math
from pathlib import Path

import pytest
import torch

from batchnav.agents.registry import make_reference_agent
from batchnav.cli import anticipation
from batchnav.cli.anticipation import Options
from batchnav.data.scenes import load_scenes
from batchnav.envs.nav import NavEnv
from batchnav.errors import ArgumentError, CheckpointError, ConfigError
from batchnav.mapping.costs import COST_UNITS
from batchnav.mapping.learn import batches, losses
from batchnav.mapping.learn import recorded as recorded_maps
from batchnav.mapping.learn import train as training
from batchnav.mapping.learn.batches import rotation, sample_rotation
from batchnav.mapping.learn.path_cost_gradient import PathEnds, path_costs
from batchnav.mapping.learn.recorded import BLOCKED_COST, STARTS
from batchnav.mapping.learn.train import Schedule
from batchnav.mapping.predictor import MAX_PREDICTED_COST, WINDOW, OccupancyNet, load_occupancy, odds
from batchnav.mapping.state import CELLS, SIDE
from batchnav.scene.bank import SceneBank

pytestmark = pytest.mark.usefixtures("one_thread")
ROWS = torch.arange(8)


@pytest.fixture(scope="module")
def recorded():
    """MapLayers of two houses."""
    bank = SceneBank.pack(load_scenes(["house:0-1"], appearance=False), "cpu")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(recorded_maps, "WARM_UP_STEPS", 10)
        options = Options(Path("unused"), maps=48, num_envs=8, init_from="occupancy")
        return anticipation.record_all(bank, options, torch.Generator().manual_seed(0))


class Fixed(torch.nn.Module):
    """A network that guesses the same of every map that it is shown, as far as it is told."""

    def __init__(self, logits):
        super().__init__()
        self.logits = torch.nn.Parameter(logits)

    def forward(self, inputs):
        return self.logits.expand(len(inputs), WINDOW, WINDOW)


def test_recorded_maps_agree_with_the_truth(recorded):
    """Where an agent saw ground one can mostly walk, and where it saw obstacles one cannot; it stands where it saw."""
    blocked, walkable = recorded.layers.is_occupied, recorded.walkable
    free = recorded.layers.is_explored & ~blocked
    assert len(recorded.cells) == 48 and set(recorded.scene.tolist()) == {0, 1}
    assert (free | blocked).float().mean() < 0.5
    assert walkable[free].float().mean() > 0.8 > 0.2 > walkable[blocked].float().mean()
    agent = recorded.starts[:, 0].long()
    assert walkable[torch.arange(48), agent].float().mean() > 0.8, "the middle of its cell may be beside it"
    at = (recorded.places[:, 2] + recorded.low).long()
    assert torch.equal(at[:, 1] * SIDE + at[:, 0], agent)


def test_of_every_episode_about_as_many_maps_are_recorded(monkeypatch):
    """Of twice as long ones a step is recorded half as often, and it is the episode's shortest way that counts."""
    metres, chance = torch.tensor([2.0, 4.0, 15.0]), recorded_maps.record_probability
    torch.testing.assert_close(chance(2 * metres), chance(metres) / 2)
    assert (chance(torch.tensor([0.0, 1.0])) < 1).all(), "nor all steps of a short one"
    seen, kept = [], []

    def long_ones(distance):
        seen.extend(distance.tolist())
        return (distance > 5.0).float()

    def keep(env, is_walkable, rows, generator):
        kept.extend(env.task.episode_info["start_distance"][rows].tolist())

    for name, value in (("WARM_UP_STEPS", 1), ("record_probability", long_ones), ("snapshot", keep)):
        monkeypatch.setattr(recorded_maps, name, value)
    bank = SceneBank.pack(load_scenes(["house:0-1"], appearance=False), "cpu")
    env = NavEnv(bank, 8, seed=0, sensors=("depth", "waypoint"), copy=False)
    agent = make_reference_agent(anticipation.AGENT, env)
    recorded_maps.record(env, agent, None, 40, torch.Generator().manual_seed(0), lambda count: None)
    assert len(kept) == 40 and min(kept) > 5.0 > min(seen)


def test_ways_begin_where_agents_may_leave_what_they_saw(recorded):
    """They are reached over seen ground, and the true way is no shorter than one over which nothing stands."""
    some = recorded.starts[:, 1:] >= 0
    assert some.sum(1).ge(3).sum() >= 24 and recorded.starts.shape == (48, STARTS)
    cells = recorded.starts[:, 1:].clamp(min=0).long()
    assert recorded.layers.is_explored.gather(1, cells)[some].all()
    assert ((recorded.reach[:, 1:] > 0) & (recorded.reach[:, 1:] < BLOCKED_COST))[some].float().mean() > 0.9
    assert (recorded.reach[:, 0] == 0).all()
    whole = recorded.reach + recorded.true_cost
    good = (recorded.true_cost < BLOCKED_COST) & (recorded.starts >= 0)
    assert good.float().mean() > 0.5
    direct = recorded.true_cost[:, :1].expand_as(whole)
    # over what was seen a wall may stand whose other side is state, and the truth leads past it all the same
    assert (whole[good] >= direct[good] - 1).float().mean() > 0.95
    nothing = torch.zeros(48, CELLS)
    free = path_costs(recorded.layers, PathEnds(recorded.goal, recorded.starts), nothing)
    both = good & (free < BLOCKED_COST)
    assert (free <= recorded.true_cost + 60)[both].float().mean() > 0.95, (
        "nobody takes the unseen for dearer than it is"
    )


def test_turned_maps_are_the_same_maps(recorded):
    """The goal's spot turns with the cells around it; four quarters are none."""
    maps = recorded.select(ROWS)
    plain = batches.make_batch(maps)
    planes = lambda batch: torch.stack([*batch[1:], batch.inputs[:, 3]], 1)  # noqa: E731
    mirrored = batches.make_batch(maps, rotation(0.0, mirrored=True))
    torch.testing.assert_close(planes(mirrored).flip(3), planes(plain), rtol=0, atol=1e-4)
    quarter = batches.make_batch(maps, rotation(math.pi / 2))
    torch.testing.assert_close(planes(quarter), planes(plain).transpose(2, 3).flip(3), rtol=0, atol=1e-3)


def test_maps_are_turned_by_any_angle(recorded):
    """The cells that spots lie on turn with them; there is nothing to learn off the map."""
    turn = rotation(math.radians(30.0))
    maps = recorded.select(ROWS)
    maps = maps._replace(places=(maps.starts[:, :1] % SIDE).unsqueeze(2) * torch.tensor([1.0, 0.0]) + 0.5)
    maps = maps._replace(places=maps.places + (maps.starts[:, :1] // SIDE).unsqueeze(2) * torch.tensor([0.0, 1.0]))
    maps = maps._replace(places=(maps.places - maps.low[:, None]).expand(-1, 3, -1))
    cells, on_map = batches.rotated_cells(maps, turn)
    columns, rows = batches.rotate_places(turn, maps.places)[:, 0].floor().long().unbind(1)
    assert torch.equal(cells[ROWS, rows, columns], maps.starts[:, 0].long()) and on_map[ROWS, rows, columns].all()
    corner = maps._replace(low=torch.zeros_like(maps.low))
    batch = batches.make_batch(corner, turn)
    cells, on_map = batches.rotated_cells(corner, turn)
    assert not on_map.all() and not (batch.unknown & ~on_map).any() and cells.max() < CELLS


def test_drawn_turns_lose_nothing(recorded):
    generator = torch.Generator().manual_seed(0)
    for turn in [sample_rotation(generator) for _ in range(20)]:
        torch.testing.assert_close(turn @ turn.T, torch.eye(2))
        there = batches.rotate_places(turn, recorded.places)
        torch.testing.assert_close(batches.rotate_places(turn.T, there), recorded.places, rtol=0, atol=1e-3)


def test_ways_pay_what_is_guessed_where_it_was_guessed(recorded):
    """What is guessed alike everywhere lengthens a way by what its unseen cells cost, however the map is turned."""
    maps, even = recorded.select(ROWS), torch.zeros(1, WINDOW, WINDOW)
    free = losses.predict_paths(Fixed(even - 10.0), maps, torch.eye(2))
    seven = losses.predict_paths(Fixed(even + 2.06), maps, torch.eye(2))  # odds of 7
    assert odds(torch.tensor(2.06)).round() == 7 * COST_UNITS and odds(torch.tensor(30.0)) == MAX_PREDICTED_COST
    good = free.valid & seven.valid
    assert torch.equal(free.true, seven.true) or (free.valid != seven.valid).any()
    assert (seven.predicted >= free.predicted - 1e-3)[good].all() and (seven.predicted > free.predicted + 1.0)[
        good
    ].any()
    assert (seven.predicted <= 4.5 * free.predicted + 1e-3)[good].all()


def test_guesses_lie_where_the_turned_map_has_them(recorded):
    """A network that guesses a cell by itself alone has the same ways however the map is turned by quarters."""

    class Near(torch.nn.Module):
        def forward(self, inputs):
            return 4.0 * inputs[:, 3] + 3.0 * inputs[:, 5] - 1.0  # around the goal, and around the agent

    maps = recorded.select(ROWS)
    plain = losses.predict_paths(Near(), maps, torch.eye(2))
    for quarters, mirrored in ((1, False), (2, False), (0, True), (3, True)):
        turned = losses.predict_paths(Near(), maps, rotation(math.pi / 2 * quarters, mirrored))
        assert torch.equal(turned.valid, plain.valid)
        torch.testing.assert_close(turned.predicted, plain.predicted, rtol=0.01, atol=0.1)
    even = losses.predict_paths(Fixed(torch.zeros(1, WINDOW, WINDOW) - 10.0), maps, torch.eye(2))
    assert ((plain.predicted - even.predicted)[plain.valid & even.valid] > 0.5).any()


def test_the_best_choice_loses_nothing(recorded):
    good = torch.tensor([[True, True, True, False]])
    ways = losses.Paths(
        torch.tensor([[9.0, 3.0, 1.0, 0.0]]), torch.tensor([[9.0, 2.0, 6.0, 0.0]]),
        torch.tensor([[0.0, 1.0, 1.0, 0.0]]), good,
    )  # fmt: skip
    assert losses.regret(ways).tolist() == [[0.0, 4.0, 0.0]]
    assert losses.frontier_lengths(ways.reach + ways.predicted, good).argmin(1).tolist() == [1], (
        "the wrong one: 4 m longer"
    )


def test_training_goes_on_from_other_weights(tmp_path, capsys, monkeypatch):
    """At a rate of nothing the weights stay what they were."""
    monkeypatch.setattr(recorded_maps, "WARM_UP_STEPS", 4)
    monkeypatch.setattr(batches, "HELD_OUT", 2)
    out = tmp_path / "mine.safetensors"
    few = {
        "scenes": ("house:0-1",),
        "maps": 12,
        "num_envs": 4,
        "steps": 1,
        "path_steps": 1,
        "batch": 2,
        "device": "cpu",
    }
    anticipation.main(Options(out, **few, init_from="occupancy", learning_rate=0.0))
    assert "network, rotated 30 degrees" in capsys.readouterr().out
    found, expected = load_occupancy(out).state_dict(), load_occupancy("occupancy").state_dict()
    for name, value in expected.items():
        if "running" not in name and "batches" not in name:
            torch.testing.assert_close(found[name], value, rtol=0, atol=0)


def test_bounds_are_a_cell_wider():
    marked = torch.zeros(3, 10, dtype=torch.bool)
    marked[0, [3, 6]] = True
    marked[1, 0] = True
    inside = batches.span(marked)
    assert [row.nonzero()[:, 0].tolist() for row in inside] == [[2, 3, 4, 5, 6, 7], [0, 1], []]


def test_training_lowers_both_losses(recorded, monkeypatch):
    monkeypatch.setattr(training, "WARM_UP", 5)
    monkeypatch.setattr(training, "REPORT_INTERVAL", 8)
    torch.manual_seed(0)
    model, rows, generator = OccupancyNet(), torch.arange(0, 48, 2), torch.Generator().manual_seed(0)
    found_losses = training.train(model, recorded, rows, Schedule(24, 4, 3e-3), generator)
    assert len(found_losses) == 3 and found_losses[2] < found_losses[0]
    found = training.log_losses(model, recorded, rows, 8, rotation(0.0))
    assert all(0.0 < nats < 3.0 for values in found.values() for nats in values)

    def by_ways():
        """The loss of all maps, and the error of their ways."""
        with torch.no_grad():
            loss = losses.path_loss(model.eval(), recorded.select(rows), rotation(0.0)).item()
        return loss, training.path_errors(model, recorded, rows, 8, rotation(0.0))[1]

    before = by_ways()
    training.train(model, recorded, rows, Schedule(24, 8, 1e-3), generator, on_paths=True)
    assert all(now < then for now, then in zip(by_ways(), before, strict=True))


def test_what_was_learned_is_kept_when_training_is_broken_off(recorded, tmp_path, monkeypatch):
    """Up to the last line that told of it."""
    out, model, three = tmp_path / "mine.safetensors", OccupancyNet(), iter([losses.occupancy_loss] * 3)
    first = model.out.weight.bfloat16().float()  # as files have it
    monkeypatch.setattr(training, "REPORT_INTERVAL", 2)
    monkeypatch.setattr(training, "occupancy_loss", lambda *maps: next(three)(*maps))
    with pytest.raises(StopIteration):
        training.train(model, recorded, ROWS, Schedule(8, 2, 1e-3), torch.Generator().manual_seed(0), out=out)
    kept, now = load_occupancy(out).out.weight, model.out.weight.bfloat16().float()
    assert not torch.equal(kept, first) and not torch.equal(kept, now), "neither those of before nor the third step's"


def test_what_ways_teach_is_their_slope(recorded):
    """A logit that many ways pass by lowers the loss as its gradient says."""
    model, maps = Fixed(torch.full((1, WINDOW, WINDOW), 1.0)), recorded.select(ROWS)
    loss = losses.path_loss(model, maps, torch.eye(2))
    loss.backward()
    gradient = model.logits.grad
    assert gradient.abs().sum() > 0
    with torch.no_grad():
        model.logits -= 2.0 * gradient / gradient.abs().max()
    assert losses.path_loss(model, maps, torch.eye(2)) < loss


def test_program(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(recorded_maps, "WARM_UP_STEPS", 4)
    monkeypatch.setattr(batches, "HELD_OUT", 2)
    out = tmp_path / "mine.safetensors"
    anticipation.main(Options(out, ("house:0-1",), maps=12, num_envs=4, steps=1, path_steps=1, batch=2, device="cpu"))
    shown = capsys.readouterr().out
    assert [shown.count(text) for text in ("log loss, held-out scenes", "regret")] == [2, 2]
    assert load_occupancy(out)(torch.zeros(1, 6, WINDOW, WINDOW)).shape == (1, WINDOW, WINDOW)


def test_what_cannot_be_is_refused(recorded, tmp_path):
    with pytest.raises(ArgumentError, match="maps: found 48 of training scenes and 0 of held-out scenes"):
        batches.split_scenes(recorded, torch.Generator())
    with pytest.raises(ArgumentError, match="steps: found -1"):
        anticipation.main(Options(tmp_path / "mine.safetensors", steps=-1))
    with pytest.raises(ArgumentError, match="--steps and --path-steps are both 0; set one of them"):
        anticipation.main(Options(tmp_path / "mine.safetensors", steps=0, path_steps=0))
    with pytest.raises(ArgumentError, match="scenes: found 2 scenes, expected 10 or more"):
        anticipation.main(Options(tmp_path / "mine.safetensors", ("house:0-1",), device="cpu"))
    with pytest.raises(ArgumentError, match="learning_rate: found -1"):
        anticipation.main(Options(tmp_path / "mine.safetensors", learning_rate=-1.0))
    with pytest.raises(ConfigError, match="nothing"):
        anticipation.main(Options(tmp_path / "mine.safetensors", init_from="nothing"))
    with pytest.raises(CheckpointError, match="found a folder, expected a file name"):
        anticipation.main(Options(tmp_path))
    (tmp_path / "file").touch()
    with pytest.raises(CheckpointError, match="expected a folder"):
        anticipation.main(Options(tmp_path / "file" / "mine.safetensors"))
