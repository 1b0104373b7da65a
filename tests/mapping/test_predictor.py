"""Guesses of what agents have not seen: what the network reads, what its guesses cost, when they are due, resuming."""

import math

import pytest
import torch
from safetensors.torch import load_file, save_file

import batchnav
from batchnav.data.scenes import find_scene
from batchnav.envs.nav import NavEnv
from batchnav.errors import CheckpointError, ConfigError
from batchnav.mapping import predictor
from batchnav.mapping.costs import COST_UNITS
from batchnav.mapping.predictor import (
    MAX_PREDICTED_COST,
    WINDOW,
    OccupancyNet,
    OccupancyPredictor,
    Windows,
    load_occupancy,
    network_input,
    odds,
    save_occupancy,
)
from batchnav.mapping.state import CELLS, OCCUPIED, PREDICTION_INTERVAL, SIDE, TRAVERSED, MapState
from batchnav.scene.bank import SceneBank
from batchnav.sim.bodies import FORWARD, LEFT, RIGHT

SENSORS = ("depth", "waypoint")
pytestmark = pytest.mark.usefixtures("one_thread")


@pytest.fixture(scope="module")
def house():
    return find_scene("house:3")


@pytest.fixture(scope="module")
def weights(tmp_path_factory):
    """A network that has learned nothing, and guesses all kinds of things."""
    torch.manual_seed(0)
    model = OccupancyNet()
    with torch.no_grad():
        model.out.weight.mul_(300.0)
    path = tmp_path_factory.mktemp("weights") / "drawn.safetensors"
    save_occupancy(path, model)
    return path


class Standing:
    """Bodies at a place of their own."""

    def __init__(self, position, heading):
        self.position, self.heading = position, heading


def known_map(goal_ahead):
    """A map of one agent at (3, 5) that looks along -z, with a goal straight ahead; and where it stands."""
    state = MapState.empty(1, torch.device("cpu"), with_predictor=True)
    bodies = Standing(torch.tensor([[3.0, 0.0, 5.0]]), torch.zeros(1))
    goal = torch.tensor([[goal_ahead, 0.0]])
    size, middle = 0.2, 5.0 - goal_ahead / 2
    state.origin_and_resolution[0] = torch.tensor([3.0 - SIDE / 2 * size, middle - SIDE / 2 * size, size])
    state.pose[0] = torch.tensor([3.0, 5.0, 0.0])
    return state, bodies, goal


def walk(env, steps):
    """What the plan told while an agent followed it."""
    observation, _ = env.reset(seed=5)
    told = [observation["waypoint"].clone()]
    for _ in range(steps):
        angle = observation["waypoint"][:, 1]
        turn = torch.where(angle > 0, LEFT, RIGHT)
        observation, *_ = env.step(torch.where(angle.abs() <= math.radians(5.0), FORWARD, turn))
        told.append(observation["waypoint"].clone())
    return torch.stack(told)


def test_windows_lie_around_the_agent():
    state, bodies, goal = known_map(4.0)
    windows = Windows(torch.zeros(1, dtype=torch.int64), state, bodies, goal)
    there, start, agent = windows.places[0]
    assert torch.allclose(agent, start, atol=1e-3) and torch.allclose(agent, torch.tensor([64.0, 64.0]), atol=1.0)
    assert torch.allclose(there - agent, torch.tensor([0.0, -20.0]), atol=1e-3)
    state.occupancy[0, int(windows.cells[0, 44, 64])] = OCCUPIED
    state.explored[0, int(windows.cells[0, 50, 60])] = TRAVERSED
    free, blocked = windows.known_cells(state)
    assert free[0].nonzero().tolist() == [[50, 60]] and blocked[0].nonzero().tolist() == [[44, 64]]
    planes = network_input(free, blocked, windows.places)[0]
    assert planes.shape == (6, WINDOW, WINDOW) and planes[:3].sum(0).eq(1.0).all()
    at = [divmod(int(plane.argmax()), WINDOW) for plane in planes[3:]]
    assert at[0][0] == at[2][0] - 20 and at[1] == at[2]


def test_windows_do_not_leave_the_map():
    state, bodies, goal = known_map(4.0)
    state.pose[0] = torch.tensor([3.0 + 30.0, 5.0 - 18.0, 0.0])
    windows = Windows(torch.zeros(1, dtype=torch.int64), state, bodies, goal)
    assert windows.cells.min() >= 0 and windows.cells.max() < CELLS
    assert windows.cells[0, 0, 0] == SIDE - WINDOW, "the last columns of the first rows"


def test_what_is_likely_blocked_is_dear():
    """A cell is as dear as its odds are high, which have a bound."""
    chance = torch.tensor([0.01, 0.5, 0.75, 0.9])
    added = odds(torch.logit(chance))
    torch.testing.assert_close(COST_UNITS / added, (1 - chance) / chance + COST_UNITS / MAX_PREDICTED_COST)
    assert odds(torch.tensor([-40.0, 40.0])).round().tolist() == [0.0, MAX_PREDICTED_COST]


def test_a_guess_is_made_at_first_and_every_few_steps(house, weights, monkeypatch):
    env = NavEnv([house], 3, "cpu", sensors=SENSORS, anticipation=str(weights), max_steps=11)
    calls = []
    predict_for = OccupancyPredictor._predict_for
    monkeypatch.setattr(
        OccupancyPredictor,
        "_predict_for",
        lambda self, rows, *more: calls.append(rows.tolist()) or predict_for(self, rows, *more),
    )
    env.reset(seed=0)
    counts = []
    for _ in range(PREDICTION_INTERVAL + 6):
        before = len(calls)
        env.step(torch.full((3,), LEFT))
        counts.append(len(calls) - before)
    assert calls == [[0, 1, 2]] * 3 and (env.mapper.map_state.predicted_cost > 0).any(1).all()
    assert [k + 1 for k, count in enumerate(counts) if count] == [1, 1 + PREDICTION_INTERVAL, 12], (
        "a new episode begins with step 11"
    )


def test_a_guess_stays_where_nothing_new_was_seen(house, weights):
    """Who turns on the spot sees nothing new the second time around, and guesses nothing else."""
    env = NavEnv([house], 3, "cpu", sensors=SENSORS, anticipation=str(weights), turn_angle_deg=30.0)
    env.reset(seed=0)
    state, turns = env.mapper.map_state, 12 + PREDICTION_INTERVAL
    for _ in range(turns):
        env.step([LEFT] * 3)
    guess, guessed = state.predicted_cost.clone(), state.predicted_at.clone()
    for _ in range(turns):
        env.step([LEFT] * 3)
    assert (
        (state.dirty == 0).all()
        and torch.equal(state.predicted_at, guessed)
        and torch.equal(state.predicted_cost, guess)
    )
    state.dirty[1] = 1
    env.step([LEFT] * 3)
    assert (state.predicted_at == guessed).tolist() == [True, False, True] and (state.dirty == 0).all()


def test_how_often_one_looks_is_nothing_to_it(house, weights):
    """Episodes end in between; last observations are drawn beside the first of the next."""
    make = lambda **more: NavEnv([house], 4, "cpu", sensors=SENSORS, anticipation=str(weights), max_steps=21, **more)  # noqa: E731
    once, twice = make(), make(final_observation=True)
    for env in (once, twice):
        env.reset(seed=3)
    for k in range(40):
        action = torch.tensor([1, 2, 1, 3]) if k % 5 else torch.full((4,), LEFT)
        seen, other = once.step(action)[0], twice.step(action)[0]
        assert torch.equal(seen["waypoint"], other["waypoint"]), k
        assert torch.equal(twice.observe()["waypoint"], other["waypoint"]), k


def test_the_way_avoids_what_is_guessed_to_be_blocked(house, weights):
    """Cells that were not seen cost more; those that were seen cost what they did."""
    env = NavEnv([house], 8, "cpu", sensors=SENSORS, anticipation=str(weights))
    observation, _ = env.reset(seed=1)
    free = observation["waypoint"][:, 0].clone()
    state = env.mapper.map_state
    state.predicted_cost.fill_(4 * COST_UNITS)  # three times as dear
    state.path_length.zero_()
    state.predicted_at.zero_()
    dearer = env.observe()["waypoint"][:, 0]
    assert (dearer >= free - 1e-3).all() and (dearer > free + 1.0).sum() >= 3
    state.explored.clamp_(min=1)
    state.path_length.zero_()
    assert (env.observe()["waypoint"][:, 0] <= free + 1e-3).all()


def test_a_plan_is_another_one_with_guesses(house, weights):
    plain, guessed = (
        walk(NavEnv([house], 8, "cpu", sensors=SENSORS, anticipation=name), 20) for name in ("", str(weights))
    )
    assert guessed.isfinite().all() and not torch.equal(plain[2:], guessed[2:])
    assert torch.equal(plain[0], guessed[0]), "the first plan is made before the first guess"


def test_plans_do_not_depend_on_how_many_walk_beside(house, weights):
    few, many = (walk(NavEnv([house], n, "cpu", sensors=SENSORS, anticipation=str(weights)), 20) for n in (3, 7))
    assert (few - many[:, :3]).abs().lt(1e-3).float().mean() > 0.95


def test_resuming_goes_on_with_guesses(house, weights):
    make = lambda: NavEnv([house], 4, "cpu", sensors=SENSORS, anticipation=str(weights), max_steps=30)  # noqa: E731
    env, again = make(), make()
    walk(env, 13)
    state = env.state_dict()
    again.reset(seed=9)
    again.load_state_dict(state)
    for _ in range(20):
        action = torch.tensor([1, 2, 1, 3])
        seen, other = env.step(action)[0], again.step(action)[0]
        assert torch.equal(seen["waypoint"], other["waypoint"])
    with pytest.raises(CheckpointError, match="map_predicted_cost"):
        again.load_state_dict({**state, "map_predicted_cost": torch.full_like(state["map_predicted_cost"], 255)})
    plain = NavEnv([house], 4, "cpu", sensors=SENSORS)
    plain.reset(seed=0)
    assert not {"map_predicted_cost", "map_predicted_at", "map_dirty"} & plain.state_dict().keys()


def test_what_is_no_network_is_refused(house, weights, tmp_path):
    with pytest.raises(ConfigError, match="'occupancy' with sensors depth, expected ego_map or waypoint among them"):
        batchnav.PointNavEnv([house], 2, "cpu", anticipation="occupancy")
    with pytest.raises(ConfigError, match=r"nothing: no such file or weights file"):
        batchnav.PointNavEnv([house], 2, "cpu", sensors=SENSORS, anticipation="nothing")
    path, tensors = tmp_path / "mine.safetensors", load_file(weights)
    path.write_bytes(weights.read_bytes()[:1000])
    with pytest.raises(CheckpointError, match=r"mine\.safetensors: found no weights .*expected weights"):
        load_occupancy(path)
    for name, value, message in (
        ("out.bias", torch.full((4,), math.nan), r"out\.bias: found values that are not finite"),
        ("out.bias", torch.zeros(5), r"out\.bias: found torch\.float32 \[5\], expected"),
        ("out.bias", torch.zeros(4, dtype=torch.int8), r"out\.bias: found torch\.int8 \[4\], expected"),
        ("other", torch.zeros(4), "found an unknown or missing tensor 'other'"),
    ):
        save_file({**tensors, name: value}, path)
        with pytest.raises(CheckpointError, match=message):
            load_occupancy(path)


def test_fewer_passes_say_the_same(weights):
    network = OccupancyPredictor(str(weights), 1, torch.device("cpu"), 0.1)._model
    inputs = torch.rand(2, 6, WINDOW, WINDOW)
    with torch.no_grad():
        torch.testing.assert_close(network(inputs), load_occupancy(weights).eval()(inputs), rtol=1e-3, atol=1e-3)


@pytest.mark.cuda
def test_both_devices_guess_alike(house, weights):
    on = {
        device: NavEnv(SceneBank.pack([house], device), 64, sensors=SENSORS, anticipation=str(weights))
        for device in ("cpu", "cuda")
    }
    for env in on.values():
        env.reset(seed=7)
    generator = torch.Generator().manual_seed(0)
    for _ in range(40):
        action = torch.randint(1, 4, (64,), generator=generator)
        for env in on.values():
            env.step(action.to(env.device))
    guesses = [env.mapper.map_state.predicted_cost.cpu().float() for env in on.values()]
    assert (guesses[0] - guesses[1]).abs().le(4.0).float().mean() > 0.97, "bfloat16 on CUDA"
    assert torch.equal(on["cpu"].mapper.map_state.predicted_at, on["cuda"].mapper.map_state.predicted_at.cpu())


@pytest.mark.cuda
def test_those_wait_for_whom_there_is_no_room(house, weights, monkeypatch):
    monkeypatch.setattr(predictor, "_MIN_CAPACITY", 4)
    env = NavEnv(SceneBank.pack([house], "cuda"), 64, sensors=SENSORS, anticipation=str(weights))
    env.reset(seed=0)
    room = round(1.125 * 64 / PREDICTION_INTERVAL)
    for step in range(1, 16):
        env.step(torch.full((64,), LEFT, device="cuda"))
        assert (env.mapper.map_state.predicted_cost > 0).any(1).sum() == min(64, room * step)
