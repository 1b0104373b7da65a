"""The learner on toy environments: it learns, repeats itself, resumes exactly, and waits for nothing."""

import math

import pytest
import torch
from networks import policy_config
from toys import Bandit, Point, RememberBit

from batchnav.errors import CheckpointError, ConfigError
from batchnav.learning import OWN, PPO, PPOConfig
from batchnav.learning.rollout import Rollout
from batchnav.policy import ActorCritic
from batchnav.policy.actions import Categorical
from batchnav.policy.config import PolicyConfig
from batchnav.runtime.conversion import copied_to_cpu

MEMORY = policy_config(base_width=4, visual_size=8, hidden_size=32, layers=1, embedding_size=8)
SETTINGS = PPOConfig(num_envs=64, rollout_steps=18, epochs=4, optimizer="adamw", learning_rate=1e-2)


def make(env, policy=MEMORY, ppo=SETTINGS, seed=0, compile=False):
    torch.manual_seed(seed)
    network = ActorCritic(env.single_observation_space, env.single_action_space, policy)
    return PPO(network, env, ppo, seed=seed, compile=compile)


def settings(**changes):
    return PPOConfig(**{**vars(SETTINGS), **changes})


def flatten(tree, prefix=""):
    """Nested dicts and lists of a state as {path: leaf}."""
    if isinstance(tree, (dict, list)):
        items = tree.items() if isinstance(tree, dict) else enumerate(tree)
        return {k: v for key, value in items for k, v in flatten(value, f"{prefix}/{key}").items()}
    return {prefix: tree}


def assert_same_state(a, b):
    a, b = flatten(a.state_dict()), flatten(b.state_dict())
    assert a.keys() == b.keys()
    for name, value in a.items():
        same = torch.equal(value, b[name]) if isinstance(value, torch.Tensor) else value == b[name]
        assert same, name


@pytest.mark.parametrize(("optimizer", "learning_rate"), [("adamw", 1e-2), ("lamb", 5e-2)])
def test_learns_a_bandit(optimizer, learning_rate):
    ppo = settings(rollout_steps=8, optimizer=optimizer, learning_rate=learning_rate)
    learner = make(Bandit(), policy_config(layers=0, hidden_size=32), ppo)
    for i in range(30):
        stats = learner.update(0.01 + i / 40).read()
    assert stats["episode/return"] > 0.95  # a third by chance
    assert stats["episode/count"] == 64 * 8 and stats["reward"] == pytest.approx(stats["episode/return"])


def test_learns_to_remember():
    learner = make(RememberBit())
    best = max(learner.update(0.01 + i / 80).read()["episode/return"] for i in range(40))
    assert best > 0.95  # half by chance, and without memory


def test_learns_to_point():
    """Actions are numbers: with mean 0 and deviation 1 the reward is below 0, and 1 is the most."""
    ppo = settings(rollout_steps=8, entropy_coef=0.0, learning_rate=3e-3)
    learner = make(Point(), policy_config(layers=0, hidden_size=32), ppo)
    first, *_, last = [learner.update(0.01 + i / 60).read() for i in range(40)]
    assert first["episode/return"] < 0.0 and last["episode/return"] > 0.9
    assert last["loss/entropy"] < first["loss/entropy"]


def test_a_resumed_run_of_numbers_continues_to_the_bit(tmp_path):
    ppo = settings(num_envs=16, minibatches=4)
    straight = make(Point(16), ppo=ppo)
    straight.update(0.0)
    torch.save(straight.state_dict(), tmp_path / "state.pt")
    resumed = make(Point(16), ppo=ppo, seed=5)
    resumed.load_state_dict(torch.load(tmp_path / "state.pt", weights_only=True))
    for learner in (straight, resumed):
        learner.update(0.5)
    assert_same_state(straight, resumed)


def test_two_runs_are_equal_to_the_bit():
    def losses():
        learner = make(RememberBit(16, image=True), ppo=settings(num_envs=16, minibatches=4, optimizer="lamb"))
        return [learner.update(i / 3).read()["loss/loss"] for i in range(3)]

    assert losses() == losses()


@pytest.mark.parametrize("optimizer", ["adamw", "lamb"])
def test_resumed_run_continues_to_the_bit(tmp_path, optimizer):
    ppo = settings(optimizer=optimizer, num_envs=16)
    straight = make(RememberBit(16, image=True), ppo=ppo)
    for i in range(2):
        straight.update(i / 4)
    torch.save(straight.state_dict(), tmp_path / "state.pt")
    for i in range(2, 4):
        straight.update(i / 4)
    resumed = make(RememberBit(16, image=True), ppo=ppo, seed=5)
    resumed.load_state_dict(torch.load(tmp_path / "state.pt", weights_only=True))
    for i in range(2, 4):
        resumed.update(i / 4)
    assert resumed.frames == 4 * ppo.frames_per_update
    assert_same_state(straight, resumed)


def test_resume_state_of_another_run_is_refused():
    state = make(RememberBit()).state_dict()
    other = make(RememberBit(), PolicyConfig(**{**vars(MEMORY), "hidden_size": 16}))
    found = (
        r"resume state: does not fit this run: tensor 'body\.\S+' is torch\.float32 \[.*\], expected .* \[64, \d+\]$"
    )
    with pytest.raises(CheckpointError, match=found):
        other.load_state_dict(state)
    with pytest.raises(CheckpointError, match="'optimizer'"):
        make(RememberBit()).load_state_dict({"policy": state["policy"]})


def test_rollout_is_what_happened():
    """The stored rollout, played again by hand in a second environment."""
    learner = make(RememberBit(8), ppo=settings(num_envs=8, rollout_steps=9))
    env = RememberBit(8)
    obs, _ = env.reset(seed=0)
    start, previous = torch.ones(8, dtype=torch.bool), torch.zeros(8, dtype=torch.int64)
    for _ in range(2):  # the second rollout goes on where the first ended
        learner.collect()
        rollout = learner.rollout
        for t in range(9):
            assert torch.equal(rollout.obs["cue"][t], obs["cue"])
            assert torch.equal(rollout.start[t], start)
            assert torch.equal(rollout.prev_action[t], previous)
            obs, reward, terminated, _, _ = env.step(rollout.action[t])
            assert torch.equal(rollout.reward[t], reward)
            start, previous = terminated, rollout.action[t].clone()
        seen = learner.policy.evaluate(
            {"cue": rollout.obs["cue"][:9]}, rollout.prev_action[:9], rollout.start[:9], rollout.state0, rollout.action
        )
        torch.testing.assert_close(seen.log_prob, rollout.log_prob)
        torch.testing.assert_close(seen.value, rollout.value)


def test_first_step_on_fresh_data_has_ratio_one():
    learner = make(RememberBit(), ppo=settings(epochs=1, minibatches=1))
    stats = learner.update(0.0).read()
    assert stats["loss/approx_kl"] == pytest.approx(0.0, abs=1e-6) and stats["loss/clip_fraction"] == 0.0


@pytest.mark.parametrize("truncate", [False, True])
def test_time_out_is_bootstrapped_with_the_final_observation(truncate):
    learner = make(RememberBit(8, truncate=truncate), ppo=settings(num_envs=8, rollout_steps=9, timeout_bootstrap=True))
    learner.collect()
    rollout, policy = learner.rollout, learner.policy
    state, no = rollout.state0, torch.zeros(8, dtype=torch.bool)
    env = RememberBit(8, truncate=truncate)
    env.reset(seed=0)
    with torch.no_grad():
        for t in range(8):
            act = policy.act({"cue": rollout.obs["cue"][t]}, rollout.prev_action[t], rollout.start[t], state)
            state, info = act.state, env.step(rollout.action[t])[-1]
            cut_off = policy.value(info["final_obs"], rollout.action[t], no, state)
            at_end = cut_off if truncate else torch.zeros(8)
            expected = torch.where(rollout.done[t], at_end, rollout.value[t + 1])
            torch.testing.assert_close(rollout.next_value[t], expected)
    assert rollout.done.any()


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32, torch.uint8])
@pytest.mark.parametrize("shape", [(1, 4, 16), (3, 2, 9), (2,), (3,)])
def test_a_minibatch_has_its_environments_observations(shape, dtype):
    state, actions = torch.zeros(2, 1, 6, 4), Categorical(3)
    rollout = Rollout({"seen": shape}, {"seen": dtype}, 4, 6, torch.device("cpu"), state, actions)
    rollout.obs["seen"].copy_(200 * torch.rand(rollout.obs["seen"].shape))
    envs = torch.tensor([4, 1])
    found = rollout.take_obs("seen", envs)
    assert found.dtype == dtype and torch.equal(found, rollout.obs["seen"][:4, envs])


def test_episode_means_exclude_running_episodes():
    learner = make(RememberBit(6, delay=5), ppo=settings(num_envs=6, rollout_steps=2, minibatches=1))
    stats = learner.update(0.0).read()  # staggered starts: two of six end in two steps; the others' entries are NaN
    ended = learner.rollout.done
    assert stats["episode/count"] == ended.sum() == 2
    assert stats["episode/return"] == learner.rollout.reward[ended].mean()
    learner = make(RememberBit(1, delay=5), ppo=settings(num_envs=1, rollout_steps=2, minibatches=1))
    stats = learner.update(0.0).read()
    assert stats["episode/count"] == 0 and math.isnan(stats["episode/return"])


def test_each_epoch_has_other_minibatches(monkeypatch):
    learner = make(RememberBit(8), ppo=settings(num_envs=8, minibatches=2, epochs=3))
    seen, loss = [], learner.loss
    monkeypatch.setattr(learner, "loss", lambda envs, *rest: (seen.append(envs.tolist()), loss(envs, *rest))[1])
    learner.update(0.0)
    epochs = [seen[i] + seen[i + 1] for i in range(0, 6, 2)]
    assert all(sorted(epoch) == list(range(8)) for epoch in epochs)
    assert len({tuple(epoch) for epoch in epochs}) == 3


def test_settings_that_do_not_fit():
    with pytest.raises(ConfigError, match=r"num_envs: found 64.*32"):
        make(RememberBit(32))
    bandit = make(Bandit(), policy_config(layers=0), settings(timeout_bootstrap=True))
    with pytest.raises(ConfigError, match="final_obs"):
        bandit.update(0.0)


@pytest.mark.cuda
@pytest.mark.parametrize("optimizer", ["adamw", "lamb"])
def test_an_update_does_not_synchronise(optimizer):
    ppo = settings(optimizer=optimizer, timeout_bootstrap=True, normalize_advantage=True)
    learner = make(RememberBit(image=True, device="cuda"), ppo=ppo)
    learner.update(0.0)  # allocations and library handles
    torch.cuda.set_sync_debug_mode("error")
    try:
        stats = learner.update(0.5)
    finally:
        torch.cuda.set_sync_debug_mode("default")
    assert math.isfinite(stats.read()["loss/loss"])
    assert learner.rollout.obs["image"].dtype == torch.bfloat16


@pytest.mark.cuda
@pytest.mark.slow
def test_compiled_network_agrees():
    runs = []
    for compile in (False, True):
        learner = make(RememberBit(image=True, device="cuda"), compile=compile)
        runs.append(learner.update(0.0).read()["loss/value_loss"])
    assert runs[0] == pytest.approx(runs[1], rel=0.05)  # bfloat16


def odd_tensors(like):
    """Tensors of the type and shape of another one whose values cannot be read as its are."""
    number = like.float().reshape(-1, 1) if like.ndim < 2 else like.float()
    return {
        "meta": torch.empty_like(like, device="meta"), "sparse": like.to_sparse(),
        "quantized": torch.quantize_per_tensor(number, 0.1, 0, torch.qint8).reshape(like.shape), "none": None,
    }  # fmt: skip


@pytest.mark.filterwarnings("ignore:torch.quantize_per_tensor")
@pytest.mark.parametrize("kind", ["meta", "sparse", "quantized", "none"])
@pytest.mark.parametrize("where", ["policy", "moment", "memory", "obs", "start", "prev_action"])
def test_odd_tensors_of_a_state_are_refused(where, kind):
    learner = make(RememberBit(4), ppo=settings(num_envs=4, minibatches=1, optimizer="lamb"))
    state = copied_to_cpu(learner.state_dict())
    own = state[OWN]
    place, name = {
        "policy": (state["policy"], "critic.weight"), "moment": (state["optimizer"]["state"][0], "exp_avg"),
        "memory": (own["memory"], 0) if isinstance(own["memory"], list) else (own, "memory"),
        "obs": (own["obs"], min(own["obs"])), "start": (own, "start"), "prev_action": (own, "prev_action"),
    }[where]  # fmt: skip
    place[name] = odd_tensors(place[name])[kind]
    with pytest.raises(CheckpointError, match="resume state: does not fit this run"):
        learner.load_state_dict(state)


@pytest.mark.parametrize("optimizer", ["adamw", "lamb"])
@pytest.mark.parametrize(
    ("spoil", "found"),
    [
        (lambda kept: kept[0].pop("exp_avg"), r"parameter 0 has .*, expected .*exp_avg, exp_avg_sq"),
        (lambda kept: kept.update({10**6: kept[0]}), "found parameter 1000000, expected 0 to"),
        (lambda kept: kept[0].update(exp_avg=torch.zeros(1).expand(2**30)), r"exp_avg 0: found .*\[1073741824\]"),
        (lambda kept: kept[0].update(exp_avg_sq=-kept[0]["exp_avg_sq"] - 1.0), "exp_avg_sq 0: found NaN or a negative"),
        (lambda kept: kept[0]["exp_avg"].fill_(float("nan")), "exp_avg 0: found NaN"),
    ],
)
def test_a_forged_state_of_the_optimiser_is_refused(optimizer, spoil, found):
    learner = make(RememberBit(4), ppo=settings(num_envs=4, minibatches=1, optimizer=optimizer))
    learner.update(0.0)
    state = copied_to_cpu(learner.state_dict())
    spoil(state["optimizer"]["state"])
    with pytest.raises(CheckpointError, match=f"does not fit this run: optimizer: {found}"):
        learner.load_state_dict(state)


def test_moments_that_share_memory_in_a_file_do_not_after_loading(tmp_path):
    learner = make(RememberBit(4), ppo=settings(num_envs=4, minibatches=1, optimizer="lamb"))
    state = copied_to_cpu(learner.state_dict())
    for kept in state["optimizer"]["state"].values():
        kept["exp_avg"] = kept["exp_avg_sq"]
    torch.save(state, tmp_path / "state.pt")
    learner.load_state_dict(torch.load(tmp_path / "state.pt", weights_only=True))
    places = [tensor.data_ptr() for kept in learner.optimizer.state.values() for tensor in kept.values()]
    assert len(set(places)) == len(places)


@pytest.mark.parametrize(("name", "value"), [("prev_action", 10**9), ("prev_action", -1), ("frames", -1)])
def test_integers_of_a_state_out_of_range_are_refused(name, value):
    learner = make(RememberBit(4), ppo=settings(num_envs=4, minibatches=1))
    state = copied_to_cpu(learner.state_dict())
    if name == "frames":
        state["frames"] = value
    else:
        state[OWN][name][0] = value
    with pytest.raises(CheckpointError, match=f"{name}: found"):
        learner.load_state_dict(state)
