"""Replayed steps of few agents: results of plain steps, bit for bit, and plain steps where a graph would be wrong.

On the CPU nothing is recorded; there the tests take the same path through tensors for actions and joined results.
"""

import itertools

import numpy as np
import pytest
import torch

from batchnav.data.scenes.load import load_scene
from batchnav.envs import nav
from batchnav.envs.nav import NavEnv, PointNavEnv, has_only_own_code
from batchnav.envs.stream import SceneStream
from batchnav.errors import ArgumentError
from batchnav.gym.envs import GymnasiumNav
from batchnav.renderers.choose import RENDERERS
from batchnav.renderers.raycast import RaycastRenderer
from batchnav.runtime.kernels.graphs import WARM_UPS, Graphs
from batchnav.scene.bank import SceneBank
from batchnav.scene.resident import SceneSize
from batchnav.sensors import SENSORS
from batchnav.sensors.normals import NormalSensor
from batchnav.tasks import TASKS
from batchnav.tasks.pointnav import PointNav

N = 5
SMALL = {"height": 16, "width": 16, "max_steps": 12}
SCENES = "house:3", "house:4"
RECORDED = WARM_UPS + 1  # number of the first step that is replayed


class Counting(PointNav):
    """A task with host code in each step."""

    steps = 0

    def score(self):
        super().score()
        self.steps += 1
        self.reward += float(self.steps)


class OwnSensor(NormalSensor):
    """A sensor of another package."""


class OwnEnv(PointNavEnv):
    """An environment of another package."""


@pytest.fixture(scope="module")
def scenes():
    return [load_scene(name, appearance=True) for name in SCENES]


@pytest.fixture(scope="module")
def banks(scenes):
    """Banks by device."""
    return {}


@pytest.fixture
def bank(device, scenes, banks):
    if device not in banks:
        banks[device] = SceneBank.pack(scenes, device, appearance=True)
    return banks[device]


def replayed(env):
    """The environment with replayed steps; on the CPU it would take plain ones."""
    if env.device.type == "cpu":
        env._replay = env._make_replay()
    assert env._replay is not None
    return env


def plain(env):
    """The environment with plain steps."""
    env._replay = None
    return env


def flat(result):
    """Copies of all tensors of a result, by name."""
    if isinstance(result, (torch.Tensor, np.ndarray)):
        return {"": torch.as_tensor(result).cpu().clone()}
    parts = result.items() if isinstance(result, dict) else enumerate(result)
    return {f"{name}/{key}": value for name, part in parts for key, value in flat(part).items()}


def assert_equal(found, expected, message):
    found, expected = flat(found), flat(expected)
    assert list(found) == list(expected)
    for name, value in expected.items():
        assert found[name].dtype == value.dtype and torch.equal(found[name], value), f"{message}: {name}"


def host_state(value, name="env", seen=None):
    """Numbers, and addresses of tensors, by the path to them through the package's objects."""
    seen = set() if seen is None else seen
    if isinstance(value, torch.Tensor):
        return {name: (value.data_ptr(), value.shape, value.dtype)}
    if isinstance(value, np.ndarray):
        return {name: (value.ctypes.data, value.shape, value.dtype)}
    if value is None or isinstance(value, (int, float, str, np.generic)):
        return {name: value}
    if isinstance(value, (tuple, list, dict)):
        parts = value if isinstance(value, dict) else dict(enumerate(value))
    elif type(value).__module__.startswith("batchnav.") and hasattr(value, "__dict__") and id(value) not in seen:
        seen.add(id(value))
        parts = vars(value)
    else:
        return {}
    return {path: x for key, part in parts.items() for path, x in host_state(part, f"{name}.{key}", seen).items()}


def random_actions(env, seed=0):
    """Endless random actions; a tenth of the discrete ones are stops."""
    generator, body = torch.Generator().manual_seed(seed), env.config.body
    while not body.is_discrete:
        yield (2 * torch.rand(env.num_envs, 2, generator=generator) - 1).to(env.device)
    while True:
        stop = torch.rand(env.num_envs, generator=generator) < 0.1
        yield torch.randint(1, 4, (env.num_envs,), generator=generator).masked_fill(stop, 0).to(env.device)


def play(one, other, steps=40):
    """Step two environments with the same actions, resets, seeds and states; compare every result."""
    manual = one.metadata["autoreset_mode"].value == "Disabled"
    assert_equal(one.reset(seed=3), other.reset(seed=3), "reset")
    saved = other.state_dict()
    for step, actions in zip(range(steps), random_actions(one), strict=False):
        found, expected = one.step(actions), other.step(actions)
        assert_equal(found, expected, f"step {step}")
        if manual and (ended := torch.as_tensor(expected[2]) | torch.as_tensor(expected[3])).any():
            mask = {"reset_mask": ended}
            assert_equal(one.reset(options=mask), other.reset(options=mask), f"reset of ended episodes {step}")
        if step == 8:
            saved = other.state_dict()
        elif step == 14:
            mask = {"reset_mask": torch.arange(one.num_envs) % 2 == 0}
            assert_equal(one.reset(options=mask), other.reset(options=mask), "partial reset")
        elif step == 20:
            assert_equal(one.reset(seed=11), other.reset(seed=11), "reset with a seed")
        elif step == 26:
            assert one.between_rollouts().keys() == other.between_rollouts().keys()
        elif step == 30:
            one.load_state_dict(saved)
            other.load_state_dict(saved)
            assert_equal(one.observe(), other.observe(), "loaded state")
    assert_equal(one.state_dict(), other.state_dict(), "final state")


OPTIONS = [
    {},
    {"sensors": ("depth", "rgb", "semantic", "gps", "compass"), "final_observation": True},
    {"sensors": ("depth",), "depth_noise": 1.0, "actuation_noise": 1.0, "output": "numpy"},
    {"sensors": ("depth", "waypoint", "ego_map"), "copy": False},
    {"sensors": ("depth", "waypoint"), "drift": (0.0, 0.1), "latency": (0, 2), "localisation": True},
    {"autoreset_mode": "NEXT_STEP"},
    {"autoreset_mode": "DISABLED", "output": "numpy", "copy": False},
    {"control": "velocity", "sensors": ()},
    {"task": "explore"},
    {"task": "flee", "sensors": ("normals",)},
    {"task": "imagenav", "sensors": ("rgb",)},
]


@pytest.mark.parametrize("options", OPTIONS, ids=lambda options: "-".join(map(str, options.values())) or "default")
def test_replayed_steps_are_the_plain_ones(bank, options):
    make = lambda: NavEnv(bank, N, seed=1, **SMALL, **options)  # noqa: E731
    one, other = replayed(make()), plain(make())
    play(one, other)
    assert bank.device.type == "cpu" or one._replay.run._graph is not None


@pytest.mark.parametrize("options", OPTIONS, ids=lambda options: "-".join(map(str, options.values())) or "default")
def test_a_step_keeps_no_state_on_the_host(options):
    """A replay leaves out the work of the host, so this work must be the same in every step."""
    env = NavEnv([load_scene(name, appearance=True) for name in SCENES], N, "cpu", seed=1, **SMALL, **options)
    env.reset()
    actions = random_actions(env)
    for _ in range(RECORDED):
        env.step(next(actions))
    before = host_state(env)
    assert len(before) > 100
    for _ in range(20):
        env.step(next(actions))
    after = host_state(env)
    assert {name for name in before | after if before.get(name) != after.get(name)} == set()


@pytest.mark.cuda
@pytest.mark.parametrize("sensors", [("goal_mask", "depth"), ("waypoint", "semantic")])
def test_objectnav_replays_its_steps(scenes, sensors):
    make = lambda: NavEnv(scenes, N, "cuda", seed=1, task="objectnav", sensors=sensors, **SMALL)  # noqa: E731
    play(replayed(make()), plain(make()))


def test_gymnasiums_names_are_replayed(bank):
    play(replayed(GymnasiumNav(bank, N, seed=1, **SMALL)), plain(GymnasiumNav(bank, N, seed=1, **SMALL)))


def test_environments_of_one_process_are_replayed_in_turn(bank):
    """Two of them have the same number of agents."""
    sizes = 1, N, N, 7
    pairs = [[f(NavEnv(bank, n, seed=k, **SMALL)) for f in (replayed, plain)] for k, n in enumerate(sizes)]
    for pair in pairs:
        assert_equal(*(env.reset() for env in pair), "reset")
    actions = [random_actions(one) for one, _ in pairs]
    for step, (k, (one, other)) in itertools.product(range(20), enumerate(pairs)):
        action = next(actions[k])
        assert_equal(one.step(action), other.step(action), f"environment {k}, step {step}")


def test_streamed_scenes_reach_replayed_steps(device):
    """Scenes change under a recorded graph, and agents move to other scenes."""
    known = {name: load_scene(name) for name in (*SCENES, "house:5", "house:6")}
    capacity = SceneSize.largest(map(SceneSize.of, known.values()))
    make = lambda: NavEnv(SceneStream(list(known), known.__getitem__, capacity, 3, 0), N, device, **SMALL)  # noqa: E731
    one, other = replayed(make()), plain(make())
    assert_equal(one.reset(), other.reset(), "reset")
    visited = set()
    for step, action in zip(range(60), random_actions(one), strict=False):
        assert_equal(one.step(action), other.step(action), f"step {step}")
        if step % 6 == 5:
            assert one.between_rollouts()["scenes_loaded"] == other.between_rollouts()["scenes_loaded"]
        visited |= {one.bank.names[k] for k in one.sim.bodies.scene.tolist()}
    assert len(visited) > 2
    one.close()
    other.close()


def test_other_tensors_for_observations_take_plain_steps(bank):
    one, other = replayed(NavEnv(bank, N, seed=1, **SMALL)), plain(NavEnv(bank, N, seed=1, **SMALL))
    assert_equal(one.reset(), other.reset(), "reset")
    given = [{name: value.clone() for name, value in env.last_observation.items()} for env in (one, other)]
    for step, action in zip(range(24), random_actions(one), strict=False):
        for env, out in zip((one, other), given, strict=True):
            env.observe_into(out if step % 8 >= 4 else None)
        found = one.step(action)
        assert_equal(found, other.step(action), f"step {step}")
        assert (found[0]["depth"].data_ptr() == given[0]["depth"].data_ptr()) == (step % 8 >= 4)


def test_results_of_earlier_steps_stay(bank):
    env = replayed(NavEnv(bank, N, seed=1, **SMALL))
    env.reset()
    kept = []
    for _, action in zip(range(10), random_actions(env), strict=False):
        result = env.step(action)
        kept.append((result, flat(result)))
        result[-1]["added"] = torch.zeros(1)  # wrappers add keys
        del result[-1]["added"]
    for result, expected in kept:
        assert_equal(flat(result), expected, "kept")


def test_live_results_are_the_environments_tensors(bank):
    env = replayed(NavEnv(bank, N, seed=1, copy=False, **SMALL))
    env.reset()
    for _, action in zip(range(2 * RECORDED), random_actions(env), strict=False):
        observation, reward, terminated, truncated, info = env.step(action)
        assert all(value is env.last_observation[name] for name, value in observation.items())
        assert reward is env.task.reward and list(observation) == list(env.last_observation)
        assert terminated is env.sim.bodies.terminated and truncated is env.sim.bodies.truncated
        info["added"] = observation["added"] = reward  # as wrappers do
    assert set(env.step(action)[0]) == {"depth", "pointgoal"} and set(env.step(action)[-1]) == {"episode", "_episode"}


def test_wrong_actions_are_refused_as_in_plain_steps(bank):
    env = replayed(NavEnv(bank, N, seed=1, **SMALL))
    good = torch.ones(N, dtype=torch.int64, device=bank.device)
    with pytest.raises(ArgumentError, match="expected a call of reset"):
        env.step(good)
    env.reset()
    for _ in range(RECORDED + 1):
        env.step(good)
        for wrong, message in ((good[:1], r"actions: found torch.int64 \[1\]"), (good.float(), "found torch.float32")):
            with pytest.raises(ArgumentError, match=message):
                env.step(wrong)
    env.step([1] * N)
    env.step(good.to(torch.int32))
    assert env.sim.bodies.steps.tolist() == [RECORDED + 3] * N
    env.close()
    with pytest.raises(ArgumentError, match="closed"):
        env.step(good)


def test_actions_with_a_gradient_leave_none_behind(bank):
    env = replayed(NavEnv(bank, N, seed=1, control="velocity", sensors=(), **SMALL))
    env.reset()
    for _ in range(RECORDED + 1):
        result = env.step(torch.zeros(N, 2, device=bank.device, requires_grad=True))
        assert not any(leaf.requires_grad for leaf in (result[1], *result[0].values()))


def test_code_of_others_takes_plain_steps(bank, monkeypatch):
    monkeypatch.setitem(TASKS, "counting", Counting)
    monkeypatch.setitem(SENSORS, "own", OwnSensor)
    others = (
        NavEnv(bank, N, task="counting", **SMALL),
        OwnEnv(bank, N, **SMALL),
        NavEnv(bank, N, sensors=("own",), **SMALL),
    )
    for env in others:
        assert not has_only_own_code(env) and env._replay is None
        env.reset()
    rewards = [others[0].step(action)[1].min() for _, action in zip(range(9), random_actions(others[0]), strict=False)]
    assert all(later > earlier + 0.5 for earlier, later in itertools.pairwise(rewards))
    monkeypatch.setitem(RENDERERS, "raycast", type("Theirs", (RaycastRenderer,), {"__module__": "theirs"}))
    assert not has_only_own_code(NavEnv(bank, N, **SMALL))
    monkeypatch.undo()
    monkeypatch.setitem(SENSORS, "rgb", type("RGB", (SENSORS["rgb"],), {"__module__": "theirs"}))
    assert not has_only_own_code(NavEnv(bank, N, task="imagenav", sensors=("depth",), **SMALL))  # as the goal's image
    assert has_only_own_code(NavEnv(bank, N, **SMALL)) and has_only_own_code(GymnasiumNav(bank, N, **SMALL))


def test_only_few_agents_on_a_gpu_are_replayed(bank, monkeypatch):
    monkeypatch.setattr(nav, "MAX_REPLAYED_ENVS", N)
    few, many = NavEnv(bank, N, **SMALL), NavEnv(bank, N + 1, **SMALL)
    assert (few._replay is not None) == (bank.device.type == "cuda") and many._replay is None


@pytest.mark.cuda
def test_an_opengl_renderer_takes_plain_steps(opengl):
    env = NavEnv([load_scene("house:3")], N, "cuda", renderer="opengl", **SMALL)
    assert env._replay is None
    env.reset()
    for _, action in zip(range(2 * RECORDED), random_actions(env), strict=False):
        env.step(action)


@pytest.mark.cuda
def test_a_replayed_step_waits_for_nothing():
    env = NavEnv([load_scene("house:3")], N, "cuda", **SMALL)
    env.reset()
    actions = random_actions(env)
    ready = [next(actions) for _ in range(30)]
    for action in ready[:10]:
        env.step(action)
    torch.cuda.synchronize()
    torch.cuda.set_sync_debug_mode("error")
    try:
        for action in ready[10:]:
            env.step(action)
    finally:
        torch.cuda.set_sync_debug_mode("default")


@pytest.mark.cuda
@pytest.mark.parametrize("before", [0, 2 * RECORDED])
def test_a_graph_of_the_caller_holds_plain_steps(before):
    """Recorded before or after the environment has a graph of its own; both may then alternate."""
    device = torch.device("cuda")
    one, other = (NavEnv([load_scene("house:3")], N, device, seed=1, **SMALL) for _ in range(2))
    plain(other)
    for env in (one, other):
        env.reset()
    actions, action = random_actions(one), torch.zeros(N, dtype=torch.int64, device=device)

    def work():
        result = one.step(action)
        one.settle()
        return result

    recorded = Graphs(device, enabled=True).wrap(work)
    for step in range(before + 16):
        action.copy_(next(actions))
        found = recorded() if step >= before and step % 4 < 3 else one.step(action)
        assert_equal(found, other.step(action), f"step {step}")


@pytest.mark.cuda
def test_streams_of_the_caller_are_kept():
    """A step on another stream is complete for work that follows on this stream."""
    one, other = (NavEnv([load_scene("house:3")], N, "cuda", seed=1, **SMALL) for _ in range(2))
    plain(other)
    side = torch.cuda.Stream()
    for env in (one, other):
        env.reset()
    for step, action in zip(range(20), random_actions(one), strict=False):
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side if step % 2 else torch.cuda.current_stream()):
            found = flat(one.step(action))
        torch.cuda.current_stream().wait_stream(side)
        assert_equal(found, flat(other.step(action)), f"step {step}")


@pytest.mark.cuda
def test_inference_mode_may_begin_and_end_at_any_step():
    one, other = (NavEnv([load_scene("house:3")], N, "cuda", seed=1, **SMALL) for _ in range(2))
    plain(other)
    for env in (one, other):
        env.reset()
    for step, action in zip(range(12), random_actions(one), strict=False):
        with torch.inference_mode(step % 5 < 3):
            assert_equal(one.step(action), other.step(action), f"step {step}")
