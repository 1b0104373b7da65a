"""Guesses of what agents have not seen: what the network reads, what its guesses cost, when they are due, resuming."""

import math

import pytest
import torch
from safetensors.torch import load_file, save_file

import batchnav
from batchnav.data.scenes import find_scene
from batchnav.envs.nav import NavEnv
from batchnav.errors import CheckpointError, ConfigError
from batchnav.mapping import predictor as anticipation
from batchnav.mapping.integrate import CELLS, EVERY, OBSTACLE, SIDE, WALKED, Known
from batchnav.mapping.predictor import (
    MOST_ADDED,
    WINDOW,
    Anticipation,
    OccupancyNet,
    Windows,
    load_occupancy,
    network_input,
    odds,
    save_occupancy,
)
from batchnav.mapping.shortest_path import PARTS
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
    known = Known.empty(1, torch.device("cpu"), anticipates=True)
    bodies = Standing(torch.tensor([[3.0, 0.0, 5.0]]), torch.zeros(1))
    goal = torch.tensor([[goal_ahead, 0.0]])
    size, middle = 0.2, 5.0 - goal_ahead / 2
    known.frame[0] = torch.tensor([3.0 - SIDE / 2 * size, middle - SIDE / 2 * size, size])
    known.pose[0] = torch.tensor([3.0, 5.0, 0.0])
    return known, bodies, goal


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
    known, bodies, goal = known_map(4.0)
    windows = Windows(torch.zeros(1, dtype=torch.int64), known, bodies, goal)
    there, start, agent = windows.places[0]
    assert torch.allclose(agent, start, atol=1e-3) and torch.allclose(agent, torch.tensor([64.0, 64.0]), atol=1.0)
    assert torch.allclose(there - agent, torch.tensor([0.0, -20.0]), atol=1e-3)
    known.stands[0, int(windows.cells[0, 44, 64])] = OBSTACLE
    known.ground[0, int(windows.cells[0, 50, 60])] = WALKED
    free, blocked = windows.seen(known)
    assert free[0].nonzero().tolist() == [[50, 60]] and blocked[0].nonzero().tolist() == [[44, 64]]
    planes = network_input(free, blocked, windows.places)[0]
    assert planes.shape == (6, WINDOW, WINDOW) and planes[:3].sum(0).eq(1.0).all()
    at = [divmod(int(plane.argmax()), WINDOW) for plane in planes[3:]]
    assert at[0][0] == at[2][0] - 20 and at[1] == at[2]


def test_windows_do_not_leave_the_map():
    known, bodies, goal = known_map(4.0)
    known.pose[0] = torch.tensor([3.0 + 30.0, 5.0 - 18.0, 0.0])
    windows = Windows(torch.zeros(1, dtype=torch.int64), known, bodies, goal)
    assert windows.cells.min() >= 0 and windows.cells.max() < CELLS
    assert windows.cells[0, 0, 0] == SIDE - WINDOW, "the last columns of the first rows"


def test_what_is_likely_blocked_is_dear():
    """A cell is as dear as its odds are high, which have a bound."""
    chance = torch.tensor([0.01, 0.5, 0.75, 0.9])
    added = odds(torch.logit(chance))
    torch.testing.assert_close(PARTS / added, (1 - chance) / chance + PARTS / MOST_ADDED)
    assert odds(torch.tensor([-40.0, 40.0])).round().tolist() == [0.0, MOST_ADDED]


def test_a_guess_is_made_at_first_and_every_few_steps(house, weights, monkeypatch):
    env = NavEnv([house], 3, "cpu", sensors=SENSORS, anticipation=str(weights), max_steps=11)
    calls = []
    guess_for = Anticipation._guess_for
    monkeypatch.setattr(
        Anticipation,
        "_guess_for",
        lambda self, rows, *more: calls.append(rows.tolist()) or guess_for(self, rows, *more),
    )
    env.reset(seed=0)
    counts = []
    for _ in range(EVERY + 6):
        before = len(calls)
        env.step(torch.full((3,), LEFT))
        counts.append(len(calls) - before)
    assert calls == [[0, 1, 2]] * 3 and (env.mapper.known.anticipated > 0).any(1).all()
    assert [k + 1 for k, count in enumerate(counts) if count] == [1, 1 + EVERY, 12], "a new episode begins with step 11"


def test_a_guess_stays_where_nothing_new_was_seen(house, weights):
    """Who turns on the spot sees nothing new the second time around, and guesses nothing else."""
    env = NavEnv([house], 3, "cpu", sensors=SENSORS, anticipation=str(weights), turn_angle_deg=30.0)
    env.reset(seed=0)
    known, turns = env.mapper.known, 12 + EVERY
    for _ in range(turns):
        env.step([LEFT] * 3)
    guess, guessed = known.anticipated.clone(), known.guessed.clone()
    for _ in range(turns):
        env.step([LEFT] * 3)
    assert (known.news == 0).all() and torch.equal(known.guessed, guessed) and torch.equal(known.anticipated, guess)
    known.news[1] = 1
    env.step([LEFT] * 3)
    assert (known.guessed == guessed).tolist() == [True, False, True] and (known.news == 0).all()


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
    known = env.mapper.known
    known.anticipated.fill_(4 * PARTS)  # three times as dear
    known.length.zero_()
    known.guessed.zero_()
    dearer = env.observe()["waypoint"][:, 0]
    assert (dearer >= free - 1e-3).all() and (dearer > free + 1.0).sum() >= 3
    known.ground.clamp_(min=1)
    known.length.zero_()
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
    with pytest.raises(CheckpointError, match="known_anticipated"):
        again.load_state_dict({**state, "known_anticipated": torch.full_like(state["known_anticipated"], 255)})
    plain = NavEnv([house], 4, "cpu", sensors=SENSORS)
    plain.reset(seed=0)
    assert not {"known_anticipated", "known_guessed", "known_news"} & plain.state_dict().keys()


def test_what_is_no_network_is_refused(house, weights, tmp_path):
    with pytest.raises(ConfigError, match="'occupancy' with sensors depth, expected ego_map or waypoint among them"):
        batchnav.PointNavEnv([house], 2, "cpu", anticipation="occupancy")
    with pytest.raises(ConfigError, match=r"nothing: no such file or weights file"):
        batchnav.PointNavEnv([house], 2, "cpu", sensors=SENSORS, anticipation="nothing")
    path, tensors = tmp_path / "mine.safetensors", load_file(weights)
    path.write_bytes(weights.read_bytes()[:1000])
    with pytest.raises(CheckpointError, match=r"mine\.safetensors: found something else .*expected weights"):
        load_occupancy(path)
    for name, value, message in (
        ("out.bias", torch.full((4,), math.nan), r"out\.bias: found values that are not finite"),
        ("out.bias", torch.zeros(5), r"out\.bias: found torch\.float32 \[5\], expected"),
        ("out.bias", torch.zeros(4, dtype=torch.int8), r"out\.bias: found torch\.int8 \[4\], expected"),
        ("other", torch.zeros(4), "found or missed 'other'"),
    ):
        save_file({**tensors, name: value}, path)
        with pytest.raises(CheckpointError, match=message):
            load_occupancy(path)


def test_fewer_passes_say_the_same(weights):
    network = Anticipation(str(weights), 1, torch.device("cpu"), 0.1)._model
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
    guesses = [env.mapper.known.anticipated.cpu().float() for env in on.values()]
    assert (guesses[0] - guesses[1]).abs().le(4.0).float().mean() > 0.97, "bfloat16 on CUDA"
    assert torch.equal(on["cpu"].mapper.known.guessed, on["cuda"].mapper.known.guessed.cpu())


@pytest.mark.cuda
def test_those_wait_for_whom_there_is_no_room(house, weights, monkeypatch):
    monkeypatch.setattr(anticipation, "_FEW", 4)
    env = NavEnv(SceneBank.pack([house], "cuda"), 64, sensors=SENSORS, anticipation=str(weights))
    env.reset(seed=0)
    room = round(1.125 * 64 / EVERY)
    for step in range(1, 16):
        env.step(torch.full((64,), LEFT, device="cuda"))
        assert (env.mapper.known.anticipated > 0).any(1).sum() == min(64, room * step)
