"""CUDA graphs: what a replay repeats, what it takes anew from tensors, and that the learner's results stay the same.

On the CPU nothing is recorded; there the tests look at what a recording relies on: tensors that stay where they are.
"""

import copy

import pytest
import torch
from networks import policy_config

from batchnav.agents.registry import make_reference_agent
from batchnav.data.scenes.load import load_scene
from batchnav.envs.nav import PointNavEnv
from batchnav.learning import PPO, PPOConfig
from batchnav.policy import ActorCritic
from batchnav.policy.config import PolicyConfig
from batchnav.runtime.device import resolve_device
from batchnav.runtime.kernels.graphs import WARM_UPS, Graphs

N, UPDATES = 16, WARM_UPS + 3
POLICY = policy_config(base_width=4, visual_size=8, hidden_size=16, layers=1, embedding_size=8)
devices = pytest.mark.parametrize("device", ["cpu", pytest.param("cuda", marks=pytest.mark.cuda)])


class Copying(PointNavEnv):
    """The environment as others are: the learner copies what `step` returns."""

    def observe_into(self, out):
        pass


@pytest.fixture(autouse=True)
def deterministic():
    """Sums whose order changes from run to run would look like something that graphs changed."""
    torch.use_deterministic_algorithms(True, warn_only=True)
    yield
    torch.use_deterministic_algorithms(False)


@pytest.fixture(scope="module")
def scene():
    return load_scene("house:3")


def make(scene, device="cpu", graphs=False, kind=PointNavEnv, policy=POLICY, compile=False, expert="", **ppo):
    torch.manual_seed(0)
    env = kind([scene], N, device, height=16, width=16, max_steps=20)
    network = ActorCritic(env.single_observation_space, env.single_action_space, policy)
    expert = make_reference_agent(expert, env).act if expert else None
    ppo = PPOConfig(num_envs=N, rollout_steps=6, **ppo)
    return PPO(network, env, ppo, compile=compile, graphs=graphs, expert=expert)


def losses(learner, updates=UPDATES):
    """Every statistic but the times, update by update: the learning rate falls, episodes end, minibatches differ."""
    rows = [learner.update(i / updates).read() for i in range(updates)]
    return [[value for name, value in row.items() if not name.startswith("seconds")] for row in rows]


def addresses(learner):
    """Where everything lies that a rollout or an optimiser step reads or writes."""
    env, rollout = learner.env, learner.rollout
    groups = {
        "rollout": {name: value for name, value in vars(rollout).items() if isinstance(value, torch.Tensor)},
        "observations": rollout.obs,
        "learner": {name: value for name, value in vars(learner).items() if isinstance(value, torch.Tensor)},
        "episodes": {"count": learner.episodes.count, "sums": learner.episodes.sums},
        "weights": dict(learner.policy.named_parameters()),
        "optimiser": {
            f"{i}.{name}": value
            for i, state in enumerate(learner.optimizer.state.values())
            for name, value in state.items()
            if isinstance(value, torch.Tensor)
        },
        "bodies": env.sim.bodies._asdict(),
        "task": {**env.task.state._asdict(), **env.task.metrics, **env.task.observations, "reward": env.task.reward},
        "origin": env.sim.sampling._asdict(),
    }
    return {f"{group}/{name}": value.data_ptr() for group, values in groups.items() for name, value in values.items()}


@devices
def test_a_wrapped_function_works_once_a_call_and_reads_its_tensors_anew(device):
    device = resolve_device(device)
    total, step = torch.zeros(4, device=device), torch.ones((), device=device)

    def work():
        total.add_(step)
        return total * 2

    work = Graphs(device, enabled=True).wrap(work)
    expected = 0.0
    for i in range(WARM_UPS + 4):
        step.fill_(float(i))
        expected += i
        assert work().tolist() == [2 * expected] * 4, f"call {i}"
        assert total.tolist() == [expected] * 4, f"call {i}"


@devices
@pytest.mark.parametrize("options", [{"optimizer": "lamb"}, {"optimizer": "adamw"}, {"expert": "greedy"}])
def test_graphs_do_not_change_the_losses(scene, device, options):
    # Not to the bit on CUDA: libraries may choose other sums while they are recorded.
    plain, replayed = (losses(make(scene, device, graphs, **options)) for graphs in (False, True))
    for i, (expected, found) in enumerate(zip(plain, replayed, strict=True)):
        tolerance = {} if device == "cuda" else {"rtol": 0.0, "atol": 0.0}
        message = f"update {i}; warm-up ends, and recording begins, at {WARM_UPS}"
        torch.testing.assert_close(
            torch.tensor(found), torch.tensor(expected), equal_nan=True, msg=lambda text, m=message: f"{m}\n{text}",
            **tolerance,
        )  # fmt: skip


@devices
def test_a_seed_gives_the_same_losses_twice(scene, device):
    one, other = (torch.tensor(losses(make(scene, device, graphs=True))) for _ in range(2))
    torch.testing.assert_close(one, other, rtol=0.0, atol=0.0, equal_nan=True)


@devices
def test_what_a_graph_works_on_stays_where_it_is(scene, device):
    learner = make(scene, device)
    learner.update(0.0)
    before = addresses(learner)
    learner.update(0.5)
    assert addresses(learner) == before


@devices
def test_a_resumed_run_records_anew(scene, device):
    straight = make(scene, device, graphs=True)
    losses(straight)
    resumed = make(scene, device, graphs=True)
    losses(resumed, 4)  # recorded once, on what the state then replaces
    resumed.load_state_dict(copy.deepcopy(straight.state_dict()))
    for _ in range(WARM_UPS + 2):
        expected, found = (learner.update(0.5).read()["loss/loss"] for learner in (straight, resumed))
        assert found == pytest.approx(expected, rel=1e-3 if device == "cuda" else 0.0)


def test_observations_written_in_place_are_those_that_were_copied(scene):
    written, copied = (torch.tensor(losses(make(scene, kind=kind))) for kind in (PointNavEnv, Copying))
    torch.testing.assert_close(written, copied, rtol=0.0, atol=0.0, equal_nan=True)


def test_a_blind_policy_has_nothing_rendered(scene, monkeypatch):
    learner = make(scene, policy=PolicyConfig(**{**vars(POLICY), "blind": True}))
    monkeypatch.setattr(learner.env.frame.renderers["", 1], "render", None)
    learner.update(0.0)


@pytest.mark.cuda
def test_a_rollout_is_recorded_and_waits_for_nothing(scene):
    learner = make(scene, "cuda", graphs=True)
    losses(learner)
    assert learner._collect_rollout._graph is not None and learner._learn_minibatch._graph is not None
    torch.cuda.set_sync_debug_mode("error")
    try:
        learner.update(0.5)
    finally:
        torch.cuda.set_sync_debug_mode("default")


@pytest.mark.cuda
def test_a_new_seed_reaches_a_recorded_rollout(scene):
    ends = []
    for seed in (1, 1, 2):
        learner = make(scene, "cuda", graphs=True)
        losses(learner)
        learner.env.sim.sampling.seed.fill_(seed)
        losses(learner)
        ends.append(learner.env.task.state.goal.clone())
    assert torch.equal(ends[0], ends[1]) and not torch.equal(ends[0], ends[2])


@pytest.mark.cuda
@pytest.mark.slow
def test_a_compiled_network_can_be_recorded(scene):
    plain, replayed = (losses(make(scene, "cuda", graphs, compile=True)) for graphs in (False, True))
    torch.testing.assert_close(torch.tensor(replayed), torch.tensor(plain), equal_nan=True, rtol=1e-2, atol=1e-3)
