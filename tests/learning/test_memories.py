"""Memories besides the LSTM: one of our own, which is one class and one line in MEMORIES, and the transformer."""

from typing import NamedTuple

import pytest
import torch
from networks import policy_config
from torch import nn
from toys import RememberBit

from batchnav.errors import CheckpointError
from batchnav.learning import PPO, PPOConfig
from batchnav.policy import MEMORIES, ActorCritic, PolicyAgent, load_policy, save_policy
from batchnav.policy.config import PolicyConfig
from batchnav.policy.memory import Memory, copy_state_, map_state, state_tensors


class GRUState(NamedTuple):
    hidden: torch.Tensor
    """f32 [B, H]."""
    extra: dict[str, torch.Tensor]
    """"steps": f32 [B, 1], steps since the start of the episode."""


class EpisodicGRU(Memory):
    """A GRU cell whose state is zeroed where an episode starts."""

    input_weights = ("cell.weight_ih",)

    def __init__(self, input_size, hidden_size):
        super().__init__()
        self.cell, self.output_size = nn.GRUCell(input_size, hidden_size), hidden_size

    @classmethod
    def from_config(cls, input_size, config, settings=None):
        return cls(input_size, config.hidden_size)

    def initial_state(self, num_envs, device="cpu"):
        steps = torch.zeros(num_envs, 1, device=device)
        return GRUState(torch.zeros(num_envs, self.output_size, device=device), {"steps": steps})

    def forward(self, x, starts, state):
        outputs = []
        for inputs, start in zip(x, starts, strict=True):
            keep = (~start).float()[:, None]
            hidden = self.cell(inputs, state.hidden * keep)
            state = GRUState(hidden, {"steps": state.extra["steps"] * keep + 1.0})
            outputs.append(hidden)
        return torch.stack(outputs), state


@pytest.fixture(autouse=True)
def gru(monkeypatch):
    monkeypatch.setitem(MEMORIES, "gru", EpisodicGRU)


CONFIGS = {
    "gru": PolicyConfig(memory="gru", hidden_size=16, embedding_size=6),
    "transformer": policy_config(memory="transformer", hidden_size=16, layers=2, heads=2, window=8, embedding_size=6),
}


@pytest.fixture(params=CONFIGS)
def memory(request):
    return request.param


def make(memory="gru", num_envs=16, device="cpu", graphs=False, **changes):
    env = RememberBit(num_envs, device=device)
    env.capturable = False  # the toy allocates; on CUDA the optimiser step is a graph
    torch.manual_seed(0)
    policy = ActorCritic(env.single_observation_space, env.single_action_space, CONFIGS[memory])
    settings = {"rollout_steps": 16, "minibatches": 2, "optimizer": "adamw", "learning_rate": 1e-2, **changes}
    return PPO(policy, env, PPOConfig(num_envs=num_envs, **settings), graphs=graphs)


def test_all_its_weights_learn():
    learner = make()
    before = [parameter.clone() for parameter in learner.policy.body.parameters()]
    learner.update(0.01)
    assert all((new != old).any() for new, old in zip(learner.policy.body.parameters(), before, strict=True))
    assert learner.state.extra["steps"].max() > 1


def test_a_transformer_learns_to_remember():
    """Without memory the mean return of an episode is 0.5."""
    learner = make("transformer", 64, epochs=2, minibatches=4, learning_rate=2e-3, gamma=0.9)
    for _ in range(60):
        stats = learner.update(0.0).read()
    assert stats["episode/return"] > 0.95


def test_it_resumes_bit_for_bit(memory, tmp_path):
    learner, again = make(memory), make(memory)
    learner.update(0.01)
    torch.save(learner.state_dict(), tmp_path / "resume.pt")
    again.load_state_dict(torch.load(tmp_path / "resume.pt", weights_only=True))
    for found, expected in zip(state_tensors(again.state), state_tensors(learner.state), strict=True):
        assert found.equal(expected)
    for found, expected in zip(again.update(0.5).losses.values(), learner.update(0.5).losses.values(), strict=True):
        assert found.equal(expected)
    state = learner.state_dict()
    count = len(state["own"]["memory"])
    with pytest.raises(CheckpointError, match=rf"resume state: .*memory: found {count - 1} tensors, expected {count}"):
        again.load_state_dict(state | {"own": {**state["own"], "memory": state["own"]["memory"][:-1]}})


def test_evaluate_sees_what_act_saw(memory):
    """Rollouts over ends of episodes; the second one begins from the state of the first."""
    learner = make(memory)
    learner.update(0.0)  # blocks of a transformer are not the identity any more
    learner.collect()
    rollout, T, envs = learner.rollout, learner.rollout.num_steps, torch.tensor([3, 8, 1])
    obs = {name: rollout.take_obs(name, envs) for name in rollout.obs}
    state0 = learner.policy.body.take(rollout.state0, envs)
    assert all(len(tensor) == 3 for tensor in state_tensors(state0))
    seen = learner.policy.evaluate(
        obs, rollout.prev_action[:T, envs], rollout.start[:T, envs], state0, rollout.action[:, envs]
    )
    torch.testing.assert_close(seen.log_prob, rollout.log_prob[:, envs], atol=1e-5, rtol=1e-5)
    torch.testing.assert_close(seen.value, rollout.value[:, envs], atol=1e-5, rtol=1e-5)


def test_it_is_saved_and_acts(memory, tmp_path):
    learner = make(memory)
    learner.update(0.0)
    save_policy(learner.policy, tmp_path / "policy.safetensors")
    agents = [PolicyAgent(learner.policy), load_policy(tmp_path / "policy.safetensors")]
    for agent in agents:
        agent.reset(4)
    for _ in range(20):
        cue, start = torch.randn(4, 2), torch.rand(4) < 0.1
        found, expected = (agent.act({"cue": cue}, start) for agent in agents)
        assert found.equal(expected)


@pytest.mark.cuda
def test_cuda_graphs_replay_a_transformer():
    losses = []
    for graphs in (False, True):
        learner = make("transformer", 64, "cuda", graphs, rollout_steps=8, optimizer="lamb", learning_rate=5e-4)
        losses.append([learner.update(0.0).read()["loss/loss"] for _ in range(4)])
    assert losses[0] == pytest.approx(losses[1], abs=1e-3)


def test_a_state_of_another_memory_is_refused():
    learner, state = make(), make().state_dict()
    state["own"]["memory"] = torch.zeros(2, 1, 16, 16)
    with pytest.raises(CheckpointError, match="resume state"):
        learner.load_state_dict(state)


def test_states_are_trees_of_tensors():
    state = GRUState(torch.ones(2, 3), {"steps": torch.full((2, 1), 2.0)})
    doubled = map_state(lambda tensor: 2.0 * tensor, state)
    assert isinstance(doubled, GRUState) and [t.max().item() for t in state_tensors(doubled)] == [2.0, 4.0]
    copy_state_(state, doubled)
    assert state.hidden.eq(2.0).all() and state.extra["steps"].eq(4.0).all()
    assert map_state(torch.clone, ()) == () and state_tensors(()) == []
    with pytest.raises(ValueError, match=r"memory: found shape \[1, 3\], expected \[2, 3\]"):
        copy_state_(state, doubled._replace(hidden=torch.ones(1, 3)))
