"""A policy with a transformer as memory: learning, resuming, files."""

import pytest
import torch
from networks import policy_config
from toys import RememberBit

from batchnav.errors import CheckpointError
from batchnav.learning import PPO, PPOConfig
from batchnav.policy import ActorCritic, PolicyAgent, load_policy, save_policy
from batchnav.policy.memory import state_tensors

CONFIG = policy_config(memory="transformer", hidden_size=16, layers=2, heads=2, window=8, embedding_size=6)


def learner_of(**changes):
    env = RememberBit(64)
    torch.manual_seed(0)
    policy = ActorCritic(env.single_observation_space, env.single_action_space, CONFIG)
    ppo = PPOConfig(
        num_envs=64, rollout_steps=16, epochs=2, minibatches=4, optimizer="adamw", learning_rate=2e-3, gamma=0.9,
        **changes,
    )  # fmt: skip
    return PPO(policy, env, ppo)


def test_it_learns_to_remember():
    """Without memory the mean return of an episode is 0.5."""
    learner = learner_of()
    for _ in range(60):
        stats = learner.update(0.0).read()
    assert stats["episode/return"] > 0.95


def test_evaluate_sees_what_act_saw():
    """Rollouts over ends of episodes; the second one begins from the state of the first."""
    learner = learner_of()
    learner.update(0.0)  # blocks are not the identity any more
    learner.collect()
    rollout, T, envs = learner.rollout, learner.rollout.num_steps, torch.tensor([3, 8, 1])
    obs = {name: rollout.take_obs(name, envs) for name in rollout.obs}
    state0 = learner.policy.body.take(rollout.state0, envs)
    seen = learner.policy.evaluate(
        obs, rollout.prev_action[:T, envs], rollout.start[:T, envs], state0, rollout.action[:, envs]
    )
    torch.testing.assert_close(seen.log_prob, rollout.log_prob[:, envs], atol=1e-5, rtol=1e-5)
    torch.testing.assert_close(seen.value, rollout.value[:, envs], atol=1e-5, rtol=1e-5)


def test_it_resumes_bit_for_bit(tmp_path):
    learner, again = learner_of(), learner_of()
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


def test_it_is_saved_and_acts(tmp_path):
    learner = learner_of()
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
def test_cuda_graphs_replay_it():
    losses = []
    for graphs in (False, True):
        env = RememberBit(64, device="cuda")
        env.capturable = False  # the toy allocates; the optimiser step is a graph
        torch.manual_seed(0)
        policy = ActorCritic(env.single_observation_space, env.single_action_space, CONFIG)
        learner = PPO(policy, env, PPOConfig(num_envs=64, rollout_steps=8, minibatches=2), graphs=graphs)
        losses.append([learner.update(0.0).read()["loss/loss"] for _ in range(4)])
    assert losses[0] == pytest.approx(losses[1], abs=1e-3)
