"""Occupancy predictor: network input, predicted costs, prediction interval, resuming, errors, CPU against CUDA."""

import math

import pytest
import torch
from safetensors.torch import load_file, save_file

import batchnav
from batchnav.data.scenes.load import load_scene
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
    return load_scene("house:3")


@pytest.fixture(scope="module")
def weights(tmp_path_factory):
    """File of an untrained network with large output weights, so that predictions vary."""
    torch.manual_seed(0)
    model = OccupancyNet()
    with torch.no_grad():
        model.out.weight.mul_(300.0)
    path = tmp_path_factory.mktemp("weights") / "random.safetensors"
    save_occupancy(path, model)
    return path


class StaticBodies:
    """Bodies at fixed poses."""

    def __init__(self, position, heading):
        self.position, self.heading = position, heading


def known_map(goal_ahead):
    """Map state, bodies and goal sensor of one agent at x = 3, z = 5 that looks along -Z at a goal straight ahead."""
    state = MapState.empty(1, torch.device("cpu"), with_predictor=True)
    bodies = StaticBodies(torch.tensor([[3.0, 0.0, 5.0]]), torch.zeros(1))
    goal = torch.tensor([[goal_ahead, 0.0]])
    size, centre = 0.2, 5.0 - goal_ahead / 2
    state.origin_and_resolution[0] = torch.tensor([3.0 - SIDE / 2 * size, centre - SIDE / 2 * size, size])
    state.pose[0] = torch.tensor([3.0, 5.0, 0.0])
    return state, bodies, goal


def waypoints_along(env, steps):
    """Waypoints f32 [steps + 1, N, 2] of agents that follow them."""
    observation, _ = env.reset(seed=5)
    waypoints = [observation["waypoint"].clone()]
    for _ in range(steps):
        angle = observation["waypoint"][:, 1]
        turn = torch.where(angle > 0, LEFT, RIGHT)
        observation, *_ = env.step(torch.where(angle.abs() <= math.radians(5.0), FORWARD, turn))
        waypoints.append(observation["waypoint"].clone())
    return torch.stack(waypoints)


def test_windows_are_centred_on_the_agent():
    state, bodies, goal = known_map(4.0)
    windows = Windows(torch.zeros(1, dtype=torch.int64), state, bodies, goal)
    goal_place, start, agent = windows.places[0]
    assert torch.allclose(agent, start, atol=1e-3) and torch.allclose(agent, torch.tensor([64.0, 64.0]), atol=1.0)
    assert torch.allclose(goal_place - agent, torch.tensor([0.0, -20.0]), atol=1e-3)
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
    assert windows.cells[0, 0, 0] == SIDE - WINDOW, "the top right window"


def test_predicted_costs_are_saturating_odds():
    """Costs are proportional to the odds of being blocked, up to a bound."""
    probability = torch.tensor([0.01, 0.5, 0.75, 0.9])
    costs, against = odds(torch.logit(probability)), (1 - probability) / probability
    torch.testing.assert_close(COST_UNITS / costs, against + COST_UNITS / MAX_PREDICTED_COST)
    assert odds(torch.tensor([-40.0, 40.0])).round().tolist() == [0.0, MAX_PREDICTED_COST]


def test_predictions_are_made_at_the_first_step_and_every_interval(house, weights, monkeypatch):
    env = NavEnv([house], 3, "cpu", sensors=SENSORS, anticipation=str(weights), max_steps=11)
    calls = []
    predict_for = OccupancyPredictor._predict_for
    recorded = lambda self, rows, *more: calls.append(rows.tolist()) or predict_for(self, rows, *more)  # noqa: E731
    monkeypatch.setattr(OccupancyPredictor, "_predict_for", recorded)
    env.reset(seed=0)
    counts = []
    for _ in range(PREDICTION_INTERVAL + 6):
        before = len(calls)
        env.step(torch.full((3,), LEFT))
        counts.append(len(calls) - before)
    assert calls == [[0, 1, 2]] * 3 and (env.mapper.map_state.predicted_cost > 0).any(1).all()
    steps = [k + 1 for k, count in enumerate(counts) if count]
    assert steps == [1, 1 + PREDICTION_INTERVAL, 12], "a new episode begins with step 11"


def test_a_prediction_stays_while_the_map_does_not_change(house, weights):
    """An agent that turns on the spot sees nothing new in its second turn, and its prediction stays."""
    env = NavEnv([house], 3, "cpu", sensors=SENSORS, anticipation=str(weights), turn_angle_deg=30.0)
    env.reset(seed=0)
    state, turns = env.mapper.map_state, 12 + PREDICTION_INTERVAL
    for _ in range(turns):
        env.step([LEFT] * 3)
    cost, step = state.predicted_cost.clone(), state.predicted_at.clone()
    for _ in range(turns):
        env.step([LEFT] * 3)
    assert (state.dirty == 0).all()
    assert torch.equal(state.predicted_at, step) and torch.equal(state.predicted_cost, cost)
    state.dirty[1] = 1
    env.step([LEFT] * 3)
    assert (state.predicted_at == step).tolist() == [True, False, True] and (state.dirty == 0).all()


def test_further_observations_in_a_step_change_nothing(house, weights):
    """With episodes that end, whose final observations are rendered as well as the first of the next."""
    make = lambda **more: NavEnv([house], 4, "cpu", sensors=SENSORS, anticipation=str(weights), max_steps=21, **more)  # noqa: E731
    once, twice = make(), make(final_observation=True)
    for env in (once, twice):
        env.reset(seed=3)
    for k in range(40):
        action = torch.tensor([1, 2, 1, 3]) if k % 5 else torch.full((4,), LEFT)
        seen, other = once.step(action)[0], twice.step(action)[0]
        assert torch.equal(seen["waypoint"], other["waypoint"]), k
        assert torch.equal(twice.observe()["waypoint"], other["waypoint"]), k


def test_predictions_raise_the_cost_of_unexplored_cells_only(house, weights):
    """Paths over unexplored cells become longer; paths over explored cells do not."""
    env = NavEnv([house], 8, "cpu", sensors=SENSORS, anticipation=str(weights))
    observation, _ = env.reset(seed=1)
    free = observation["waypoint"][:, 0].clone()
    state = env.mapper.map_state
    state.predicted_cost.fill_(4 * COST_UNITS)  # a free cell costs three times as much
    state.path_length.zero_()
    state.predicted_at.zero_()
    costly = env.observe()["waypoint"][:, 0]
    assert (costly >= free - 1e-3).all() and (costly > free + 1.0).sum() >= 3
    state.explored.clamp_(min=1)
    state.path_length.zero_()
    assert (env.observe()["waypoint"][:, 0] <= free + 1e-3).all()


def test_predictions_change_waypoints(house, weights):
    plain, predicted = (
        waypoints_along(NavEnv([house], 8, "cpu", sensors=SENSORS, anticipation=name), 20)
        for name in ("", str(weights))
    )
    assert predicted.isfinite().all() and not torch.equal(plain[2:], predicted[2:])
    assert torch.equal(plain[0], predicted[0]), "the first path precedes the first prediction"


def test_waypoints_do_not_depend_on_the_number_of_agents(house, weights):
    make = lambda n: NavEnv([house], n, "cpu", sensors=SENSORS, anticipation=str(weights))  # noqa: E731
    few, many = (waypoints_along(make(n), 20) for n in (3, 7))
    assert (few - many[:, :3]).abs().lt(1e-3).float().mean() > 0.95


def test_a_resumed_run_continues_with_its_predictions(house, weights):
    make = lambda: NavEnv([house], 4, "cpu", sensors=SENSORS, anticipation=str(weights), max_steps=30)  # noqa: E731
    env, again = make(), make()
    waypoints_along(env, 13)
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


def test_files_without_a_network_are_refused(house, weights, tmp_path):
    with pytest.raises(ConfigError, match="'occupancy' with sensors depth, expected ego_map or waypoint among them"):
        batchnav.PointNavEnv([house], 2, "cpu", anticipation="occupancy")
    with pytest.raises(ConfigError, match=r"nothing: no such file or weights file"):
        batchnav.PointNavEnv([house], 2, "cpu", sensors=SENSORS, anticipation="nothing")
    path, tensors = tmp_path / "mine.safetensors", load_file(weights)
    path.write_bytes(weights.read_bytes()[:1000])
    with pytest.raises(CheckpointError, match=r"mine\.safetensors: found no weights .*expected weights"):
        load_occupancy(path)
    for name, value, message in (
        ("out.bias", torch.full((4,), math.nan), "'out.bias' holds values that are not finite"),
        ("out.bias", torch.zeros(5), r"'out.bias' is torch\.float32 \[5\], expected"),
        ("out.bias", torch.zeros(4, dtype=torch.int8), r"'out.bias' is torch\.int8 \[4\], expected"),
        ("other", torch.zeros(4), "'other' is not part of this network"),
        ("out.bias", torch.zeros(4).to(torch.float8_e4m3fn), r"'out.bias' is torch\.float8_e4m3fn \[4\], expected"),
        ("out.bias", torch.full((4,), 1e300, dtype=torch.float64), r"'out.bias' is torch\.float64 \[4\], expected"),
        ("down.0.1.running_var", torch.full((32,), -1.0), "running_var' holds a negative variance"),
    ):
        save_file({**tensors, name: value}, path)
        with pytest.raises(CheckpointError, match=message):
            load_occupancy(path)
    large = {"down.0.0.weight": torch.full((32, 24, 3, 3), 3e38), "down.0.1.running_var": torch.zeros(32)}
    save_file({**tensors, **large}, path)
    with pytest.raises(CheckpointError, match="found weights that are too large for float32 with their norms"):
        load_occupancy(path)


def test_fused_layers_compute_the_same(weights):
    network = OccupancyPredictor(str(weights), 1, torch.device("cpu"), 0.1)._model
    inputs = torch.rand(2, 6, WINDOW, WINDOW)
    with torch.no_grad():
        torch.testing.assert_close(network(inputs), load_occupancy(weights).eval()(inputs), rtol=1e-3, atol=1e-3)


@pytest.mark.cuda
def test_cuda_predicts_as_the_cpu_does(house, weights):
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
    costs = [env.mapper.map_state.predicted_cost.cpu().float() for env in on.values()]
    assert (costs[0] - costs[1]).abs().le(4.0).float().mean() > 0.97, "bfloat16 on CUDA"
    assert torch.equal(on["cpu"].mapper.map_state.predicted_at, on["cuda"].mapper.map_state.predicted_at.cpu())


@pytest.mark.cuda
def test_agents_beyond_the_capacity_wait(house, weights, monkeypatch):
    monkeypatch.setattr(predictor, "_MIN_CAPACITY", 4)
    env = NavEnv(SceneBank.pack([house], "cuda"), 64, sensors=SENSORS, anticipation=str(weights))
    env.reset(seed=0)
    capacity = round(1.125 * 64 / PREDICTION_INTERVAL)
    for step in range(1, 16):
        env.step(torch.full((64,), LEFT, device="cuda"))
        assert (env.mapper.map_state.predicted_cost > 0).any(1).sum() == min(64, capacity * step)
