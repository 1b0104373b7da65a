"""Training of the occupancy predictor: recorded maps, rotated batches, losses, training loop, command and errors."""

import math
from pathlib import Path

import pytest
import torch

from batchnav.agents.registry import make_reference_agent
from batchnav.cli import predictor
from batchnav.cli.train import AnticipationOptions as Options
from batchnav.data.scenes.load import load_scenes
from batchnav.envs.nav import NavEnv
from batchnav.errors import ArgumentError, CheckpointError, ConfigError
from batchnav.mapping.costs import COST_UNITS
from batchnav.mapping.learn import recorded as batches
from batchnav.mapping.learn import recorded as recorded_maps
from batchnav.mapping.learn import train
from batchnav.mapping.learn import train as training
from batchnav.mapping.learn.path_cost_gradient import PathEnds, path_costs
from batchnav.mapping.learn.recorded import BLOCKED_COST, STARTS, rotation, sample_rotation
from batchnav.mapping.learn.train import Schedule
from batchnav.mapping.predictor import MAX_PREDICTED_COST, WINDOW, OccupancyNet, load_occupancy, odds
from batchnav.mapping.state import CELLS, SIDE
from batchnav.scene.bank import SceneBank

pytestmark = pytest.mark.usefixtures("one_thread")
ROWS = torch.arange(8)
"""Indices of the recorded maps that most tests use."""


@pytest.fixture(scope="module")
def recorded():
    """48 recorded maps of two houses."""
    bank = SceneBank.pack(load_scenes(["house:0-1"], appearance=False), "cpu")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(recorded_maps, "WARM_UP_STEPS", 10)
        options = Options(Path("unused"), maps=48, num_envs=8, init_from="occupancy")
        return predictor.record_all(bank, options, torch.Generator().manual_seed(0))


class Fixed(torch.nn.Module):
    """A network that predicts the same logits for every map."""

    def __init__(self, logits):
        super().__init__()
        self.logits = torch.nn.Parameter(logits)

    def forward(self, inputs):
        return self.logits.expand(len(inputs), WINDOW, WINDOW)


def test_recorded_maps_agree_with_the_ground_truth(recorded):
    """Free cells are mostly walkable, occupied cells mostly not, and the agent's cell mostly is."""
    blocked, walkable = recorded.layers.is_occupied, recorded.walkable
    free = recorded.layers.is_explored & ~blocked
    assert len(recorded.cells) == 48 and set(recorded.scene.tolist()) == {0, 1}
    assert (free | blocked).float().mean() < 0.5
    assert walkable[free].float().mean() > 0.8 > 0.2 > walkable[blocked].float().mean()
    agent = recorded.starts[:, 0].long()
    assert walkable[torch.arange(48), agent].float().mean() > 0.8, "the centre of its cell may be off the navmesh"
    at = (recorded.places[:, 2] + recorded.low).long()
    assert torch.equal(at[:, 1] * SIDE + at[:, 0], agent)


def test_all_episodes_give_about_the_same_number_of_maps(monkeypatch):
    """The probability of recording a step is inversely proportional to the episode's start distance."""
    metres, probability = torch.tensor([2.0, 4.0, 15.0]), recorded_maps.record_probability
    torch.testing.assert_close(probability(2 * metres), probability(metres) / 2)
    assert (probability(torch.tensor([0.0, 1.0])) < 1).all(), "not all steps of a short episode"
    seen, kept = [], []

    def far_only(distance):
        seen.extend(distance.tolist())
        return (distance > 5.0).float()

    def keep(env, is_walkable, rows, generator):
        kept.extend(env.task.episode_info["start_distance"][rows].tolist())

    for name, value in (("WARM_UP_STEPS", 1), ("record_probability", far_only), ("snapshot", keep)):
        monkeypatch.setattr(recorded_maps, name, value)
    bank = SceneBank.pack(load_scenes(["house:0-1"], appearance=False), "cpu")
    env = NavEnv(bank, 8, seed=0, sensors=("depth", "waypoint"), copy=False)
    agent = make_reference_agent(predictor.AGENT, env)
    recorded_maps.record(env, agent, None, 40, torch.Generator().manual_seed(0), lambda count: None)
    assert len(kept) == 40 and min(kept) > 5.0 > min(seen)


def test_paths_start_at_reachable_frontier_cells(recorded):
    """Starts are reached over explored cells. True paths are no shorter than paths that assume free unknown cells."""
    some = recorded.starts[:, 1:] >= 0
    assert some.sum(1).ge(3).sum() >= 24 and recorded.starts.shape == (48, STARTS)
    cells = recorded.starts[:, 1:].clamp(min=0).long()
    assert recorded.layers.is_explored.gather(1, cells)[some].all()
    assert ((recorded.reach[:, 1:] > 0) & (recorded.reach[:, 1:] < BLOCKED_COST))[some].float().mean() > 0.9
    assert (recorded.reach[:, 0] == 0).all()
    total = recorded.reach + recorded.true_cost
    valid = (recorded.true_cost < BLOCKED_COST) & (recorded.starts >= 0)
    assert valid.float().mean() > 0.5
    direct = recorded.true_cost[:, :1].expand_as(total)
    # exceptions: explored cells next to unknown obstacles cost more on the true map
    assert (total[valid] >= direct[valid] - 1).float().mean() > 0.95
    no_prediction = torch.zeros(48, CELLS)
    free = path_costs(recorded.layers, PathEnds(recorded.goal, recorded.starts), no_prediction)
    both = valid & (free < BLOCKED_COST)
    assert (free <= recorded.true_cost + 60)[both].float().mean() > 0.95


def test_quarter_turns_and_mirroring_permute_the_cells(recorded):
    """The Gaussian at the goal moves with the cells around it."""
    maps = recorded.select(ROWS)
    plain = batches.make_batch(maps)
    planes = lambda batch: torch.stack([*batch[1:], batch.inputs[:, 3]], 1)  # noqa: E731
    mirrored = batches.make_batch(maps, rotation(0.0, mirrored=True))
    torch.testing.assert_close(planes(mirrored).flip(3), planes(plain), rtol=0, atol=1e-4)
    quarter = batches.make_batch(maps, rotation(math.pi / 2))
    torch.testing.assert_close(planes(quarter), planes(plain).transpose(2, 3).flip(3), rtol=0, atol=1e-3)


def test_maps_are_rotated_by_any_angle(recorded):
    """A place and the cell below it rotate alike. Cells off the map are not predicted."""
    matrix = rotation(math.radians(30.0))
    maps = recorded.select(ROWS)
    maps = maps._replace(places=(maps.starts[:, :1] % SIDE).unsqueeze(2) * torch.tensor([1.0, 0.0]) + 0.5)
    maps = maps._replace(places=maps.places + (maps.starts[:, :1] // SIDE).unsqueeze(2) * torch.tensor([0.0, 1.0]))
    maps = maps._replace(places=(maps.places - maps.low[:, None]).expand(-1, 3, -1))
    cells, on_map = batches.rotated_cells(maps, matrix)
    columns, rows = batches.rotate_places(matrix, maps.places)[:, 0].floor().long().unbind(1)
    assert torch.equal(cells[ROWS, rows, columns], maps.starts[:, 0].long()) and on_map[ROWS, rows, columns].all()
    corner = maps._replace(low=torch.zeros_like(maps.low))
    batch = batches.make_batch(corner, matrix)
    cells, on_map = batches.rotated_cells(corner, matrix)
    assert not on_map.all() and not (batch.unknown & ~on_map).any() and cells.max() < CELLS


def test_sampled_rotations_are_orthogonal(recorded):
    generator = torch.Generator().manual_seed(0)
    for matrix in [sample_rotation(generator) for _ in range(20)]:
        torch.testing.assert_close(matrix @ matrix.T, torch.eye(2))
        rotated = batches.rotate_places(matrix, recorded.places)
        torch.testing.assert_close(batches.rotate_places(matrix.T, rotated), recorded.places, rtol=0, atol=1e-3)


def test_paths_pay_predicted_costs(recorded):
    """A constant prediction lengthens paths by the cost of their unknown cells, and at most 4.5 times."""
    maps, even = recorded.select(ROWS), torch.zeros(1, WINDOW, WINDOW)
    free = train.predict_paths(Fixed(even - 10.0), maps, torch.eye(2))
    seven = train.predict_paths(Fixed(even + 2.06), maps, torch.eye(2))  # odds of 7
    assert odds(torch.tensor(2.06)).round() == 7 * COST_UNITS and odds(torch.tensor(30.0)) == MAX_PREDICTED_COST
    valid = free.valid & seven.valid
    assert torch.equal(free.true, seven.true) or (free.valid != seven.valid).any()
    low, high = free.predicted[valid], seven.predicted[valid]
    assert (high >= low - 1e-3).all() and (high > low + 1.0).any() and (high <= 4.5 * low + 1e-3).all()


def test_predictions_are_rotated_back_to_the_map(recorded):
    """A network that predicts each cell from that cell alone gives the same paths for all grid symmetries."""

    class Near(torch.nn.Module):
        def forward(self, inputs):
            return 4.0 * inputs[:, 3] + 3.0 * inputs[:, 5] - 1.0  # high around the goal and the agent

    maps = recorded.select(ROWS)
    plain = train.predict_paths(Near(), maps, torch.eye(2))
    for quarters, mirrored in ((1, False), (2, False), (0, True), (3, True)):
        rotated = train.predict_paths(Near(), maps, rotation(math.pi / 2 * quarters, mirrored))
        assert torch.equal(rotated.valid, plain.valid)
        torch.testing.assert_close(rotated.predicted, plain.predicted, rtol=0.01, atol=0.1)
    even = train.predict_paths(Fixed(torch.zeros(1, WINDOW, WINDOW) - 10.0), maps, torch.eye(2))
    assert ((plain.predicted - even.predicted)[plain.valid & even.valid] > 0.5).any()


def test_the_best_frontier_cell_has_no_regret(recorded):
    valid = torch.tensor([[True, True, True, False]])
    paths = train.Paths(
        torch.tensor([[9.0, 3.0, 1.0, 0.0]]), torch.tensor([[9.0, 2.0, 6.0, 0.0]]),
        torch.tensor([[0.0, 1.0, 1.0, 0.0]]), valid,
    )  # fmt: skip
    assert train.regret(paths).tolist() == [[0.0, 4.0, 0.0]]
    predicted = train.frontier_lengths(paths.reach + paths.predicted, valid)
    assert predicted.argmin(1).tolist() == [1], "the prediction chooses the path that is 4 m longer"


def test_training_starts_from_given_weights(tmp_path, capsys, monkeypatch):
    """With a learning rate of 0 the weights do not change."""
    monkeypatch.setattr(recorded_maps, "WARM_UP_STEPS", 4)
    monkeypatch.setattr(batches, "HELD_OUT", 2)
    out = tmp_path / "mine.safetensors"
    short = {"maps": 12, "num_envs": 4, "steps": 1, "path_steps": 1, "batch": 2, "device": "cpu"}
    predictor.main(Options(out, ("house:0-1",), **short, init_from="occupancy", learning_rate=0.0))
    assert "network, rotated 30 degrees" in capsys.readouterr().out
    found, expected = load_occupancy(out).state_dict(), load_occupancy("occupancy").state_dict()
    for name, value in expected.items():
        if "running" not in name and "batches" not in name:
            torch.testing.assert_close(found[name], value, rtol=0, atol=0)


def test_spans_are_one_cell_wider_on_either_side():
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

    def path_measures():
        """Path loss of all maps, and RMS error of their paths, metres."""
        with torch.no_grad():
            loss = train.path_loss(model.eval(), recorded.select(rows), rotation(0.0)).item()
        return loss, training.path_errors(model, recorded, rows, 8, rotation(0.0))[1]

    before = path_measures()
    training.train(model, recorded, rows, Schedule(24, 8, 1e-3), generator, on_paths=True)
    assert all(now < then for now, then in zip(path_measures(), before, strict=True))


def test_interrupted_training_leaves_the_weights_of_the_last_report(recorded, tmp_path, monkeypatch):
    """With a report every two steps, and training that fails after the third step."""
    out, model, three = tmp_path / "mine.safetensors", OccupancyNet(), iter([train.occupancy_loss] * 3)
    first = model.out.weight.bfloat16().float()  # the precision of files
    monkeypatch.setattr(training, "REPORT_INTERVAL", 2)
    monkeypatch.setattr(training, "occupancy_loss", lambda *maps: next(three)(*maps))
    with pytest.raises(StopIteration):
        training.train(model, recorded, ROWS, Schedule(8, 2, 1e-3), torch.Generator().manual_seed(0), out=out)
    kept, now = load_occupancy(out).out.weight, model.out.weight.bfloat16().float()
    assert not torch.equal(kept, first) and not torch.equal(kept, now), (
        "the weights of step 2 are neither the first nor the current ones"
    )


def test_a_gradient_step_lowers_the_path_loss(recorded):
    """The logits of a constant prediction are trained directly."""
    model, maps = Fixed(torch.full((1, WINDOW, WINDOW), 1.0)), recorded.select(ROWS)
    loss = train.path_loss(model, maps, torch.eye(2))
    loss.backward()
    gradient = model.logits.grad
    assert gradient.abs().sum() > 0
    with torch.no_grad():
        model.logits -= 2.0 * gradient / gradient.abs().max()
    assert train.path_loss(model, maps, torch.eye(2)) < loss


def test_the_command_writes_weights_and_prints_measures(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(recorded_maps, "WARM_UP_STEPS", 4)
    monkeypatch.setattr(batches, "HELD_OUT", 2)
    out = tmp_path / "mine.safetensors"
    predictor.main(Options(out, ("house:0-1",), maps=12, num_envs=4, steps=1, path_steps=1, batch=2, device="cpu"))
    shown = capsys.readouterr().out
    assert [shown.count(text) for text in ("log loss, held-out scenes", "regret")] == [2, 2]
    assert load_occupancy(out)(torch.zeros(1, 6, WINDOW, WINDOW)).shape == (1, WINDOW, WINDOW)


def test_invalid_options_are_refused(recorded, tmp_path):
    with pytest.raises(ArgumentError, match="maps: found 48 maps of training scenes and 0 of held-out scenes"):
        batches.split_scenes(recorded, torch.Generator())
    with pytest.raises(ArgumentError, match="steps: found -1"):
        predictor.main(Options(tmp_path / "mine.safetensors", steps=-1))
    with pytest.raises(ArgumentError, match="--steps and --path-steps are both 0; set one of them"):
        predictor.main(Options(tmp_path / "mine.safetensors", steps=0, path_steps=0))
    with pytest.raises(ArgumentError, match="scenes: found 2 scenes, expected 10 or more"):
        predictor.main(Options(tmp_path / "mine.safetensors", ("house:0-1",), device="cpu"))
    with pytest.raises(ArgumentError, match="--learning-rate: found -1"):
        predictor.main(Options(tmp_path / "mine.safetensors", learning_rate=-1.0))
    with pytest.raises(ConfigError, match="nothing"):
        predictor.main(Options(tmp_path / "mine.safetensors", init_from="nothing"))
    with pytest.raises(CheckpointError, match="found a folder, expected a file; name one in it"):
        predictor.main(Options(tmp_path))
    (tmp_path / "file").touch()
    with pytest.raises(CheckpointError, match="expected a folder"):
        predictor.main(Options(tmp_path / "file" / "mine.safetensors"))
