"""Policies on disk, and the agent made from one."""

import dataclasses
import json
import math
import os
import resource
from pathlib import Path

import pytest
import torch
from gymnasium import spaces
from networks import policy_config
from safetensors.torch import load_file, safe_open, save_file

from batchnav.config import to_dict
from batchnav.errors import ArgumentError, CheckpointError
from batchnav.policy import ActorCritic, load_policy, save_policy
from batchnav.policy.weights import load_weights

CONFIG = policy_config(base_width=4, visual_size=12, hidden_size=16, layers=1, embedding_size=6, polar=("goal",))
GOAL = spaces.Box(-math.inf, math.inf, (2,))
SPACE = spaces.Dict({"depth": spaces.Box(0.0, 1.0, (1, 16, 16)), "goal": GOAL})


@pytest.fixture
def policy():
    torch.manual_seed(0)
    policy = ActorCritic(SPACE, spaces.Discrete(4), CONFIG)
    with torch.no_grad():
        policy.actor.weight.mul_(1000)
    return policy


@pytest.fixture
def saved(policy, tmp_path):
    path = tmp_path / "policy.safetensors"
    save_policy(policy, path, {"frames": 7, "task": {"height": 64}})
    return path


def observations(num_envs, steps, seed=0):
    generator = torch.Generator().manual_seed(seed)
    for _ in range(steps):
        yield {
            "depth": torch.rand(num_envs, 1, 16, 16, generator=generator),
            "goal": torch.randn(num_envs, 2, generator=generator),
        }


def rewrite(path, tensors=None, **metadata):
    """Save the file again with these tensors and metadata entries changed (None: left out)."""
    with safe_open(path, framework="pt") as file:
        merged = {**file.metadata(), **metadata}
    tensors = load_file(path) | (tensors or {})
    keep = {name: value for name, value in tensors.items() if value is not None}
    save_file(keep, path, {key: value for key, value in merged.items() if value is not None})


def test_weights_in_bfloat16_take_half_the_space_and_load_as_float32(policy, saved):
    half = saved.with_name("half.safetensors")
    save_policy(policy, half, dtype=torch.bfloat16)
    assert all(tensor.dtype == torch.bfloat16 for tensor in load_file(half).values())
    for name, value in load_policy(half).network.state_dict().items():
        assert value.dtype == torch.float32
        assert torch.equal(value, policy.state_dict()[name].bfloat16().float())


@pytest.mark.parametrize(
    ("name", "parameters"),
    [
        ("pointnav_h200", 10_988_085),
        ("pointnav_plan_small", 459_253),
        ("pointnav_rgb_small", 1_105_799),
        ("pointnav_waypoint_small", 459_253),
        ("objectnav_mask_small", 944_120),
        ("objectnav_rgbd_small", 2_907_655),
        ("imagenav_rgb_small", 2_701_111),
        ("sequence_mask_small", 977_016),
    ],
)
def test_the_bundled_policies_act(name, parameters):
    agent = load_policy(name)
    assert sum(parameter.numel() for parameter in agent.network.parameters()) == parameters
    assert agent.info["env"]["camera"]["width"] == 64
    agent.reset(2)
    goal, image = torch.tensor([[0.0, 0.0], [5.0, 0.0]]), torch.full((2, 3, 64, 64), 128, dtype=torch.uint8)
    seen = {"depth": torch.full((2, 1, 64, 64), 0.5), "pointgoal": goal, "waypoint": goal, "gps": goal}
    seen |= {
        "goal_mask": torch.zeros(2, 1, 64, 64),
        "compass": goal[:, :1],
        "objectgoal": torch.tensor([0, 5]),
        "rgb": image,
        "imagegoal": image,
    }
    action = agent.act({name: value for name, value in seen.items() if name in agent.network.observation_shapes})
    assert action.shape == (2,)


def test_round_trip_acts_alike_and_carries_its_info(policy, saved):
    agent = load_policy(saved)
    assert to_dict(agent.network.config) == to_dict(CONFIG)
    size = sum(parameter.numel() for parameter in policy.parameters())
    assert repr(agent) == f"PolicyAgent({size:,} parameters, sees depth, goal, on cpu)"
    assert agent.info == {"frames": 7, "task": {"height": 64}}
    for name, value in policy.state_dict().items():
        assert torch.equal(agent.network.state_dict()[name], value)
    assert os.listdir(saved.parent) == [saved.name]  # no temporary file is left


def test_load_weights_needs_an_equal_network(policy, saved):
    torch.manual_seed(1)
    other = ActorCritic(SPACE, spaces.Discrete(4), CONFIG)
    load_weights(other, saved)
    assert all(torch.equal(value, policy.state_dict()[name]) for name, value in other.state_dict().items())
    with pytest.raises(CheckpointError, match=r"action_space: found Discrete\(4\), expected Discrete\(6\)"):
        load_weights(ActorCritic(SPACE, spaces.Discrete(6), CONFIG), saved)
    larger = dataclasses.replace(CONFIG, hidden_size=32)
    with pytest.raises(CheckpointError, match=r"config: found hidden_size=16, expected hidden_size=32$"):
        load_weights(ActorCritic(SPACE, spaces.Discrete(4), larger), saved)
    without = spaces.Dict({"goal": SPACE["goal"]})
    with pytest.raises(CheckpointError, match=r"observation_shapes: found depth=\(.*\), expected none of them$"):
        load_weights(ActorCritic(without, spaces.Discrete(4), CONFIG), saved)


@pytest.mark.parametrize("memory", ["none", "lstm"])
def test_a_network_that_reads_more_begins_with_the_same_actions(tmp_path, memory):
    """The further observation is in the middle of the input, with zero weights that have a gradient."""
    config = dataclasses.replace(CONFIG, memory=memory)
    less = ActorCritic(SPACE, spaces.Discrete(4), config)
    save_policy(less, tmp_path / "less.safetensors")
    more_space = spaces.Dict({"bearing": spaces.Box(-9, 9, (2,)), **SPACE.spaces})
    more_config = dataclasses.replace(config, polar=("bearing", *config.polar))
    more = ActorCritic(more_space, spaces.Discrete(4), more_config)
    load_weights(more, tmp_path / "less.safetensors")
    previous, start, state = torch.zeros(3).long(), torch.ones(3, dtype=torch.bool), less.initial_state(3)
    for obs in observations(3, 4):
        uniforms = torch.rand(3)
        expected = less.act(obs, previous, start, state, uniforms)
        found = more.act({**obs, "bearing": torch.randn(3, 2)}, previous, start, state, uniforms)
        assert torch.equal(found.action, expected.action)
        torch.testing.assert_close(found.value, expected.value)
        previous, start, state = expected.action, torch.zeros(3, dtype=torch.bool), expected.state
    found.value.sum().backward()
    width, columns = config.embedding_size, dict(more.named_parameters())
    read = columns["body.weight_ih_l0" if memory == "lstm" else "body.0.weight"]
    at = list(more.body_inputs).index("bearing")
    begin = sum(list(more.body_inputs.values())[:at])
    assert not read[:, begin : begin + width].any()
    assert read.grad[:, begin : begin + width].any()
    save_policy(more, tmp_path / "more.safetensors")
    with pytest.raises(CheckpointError, match=r"observation_shapes: found .*bearing.*, expected"):
        load_weights(less, tmp_path / "more.safetensors")


def test_the_same_policy_is_the_same_file(policy, saved):
    """The library writes metadata in an order that differs from file to file."""
    for i in range(5):
        again = saved.with_name(f"{i}.safetensors")
        save_policy(policy, again, {"frames": 7, "task": {"height": 64}})
        assert again.read_bytes() == saved.read_bytes()
    with safe_open(saved, framework="pt") as file:
        assert file.metadata()["num_actions"] == "4"


def test_the_check_sum_detects_changed_weights_unless_it_is_removed(saved):
    changed = {"critic.bias": torch.tensor([0.5])}
    rewrite(saved, changed)
    with pytest.raises(CheckpointError, match=r"policy\.safetensors: is damaged.*'sha256'"):
        load_policy(saved)
    rewrite(saved, sha256=None)
    assert load_policy(saved).network.critic.bias.item() == 0.5


def test_agent_keeps_memory_and_previous_action(policy, saved):
    agent = load_policy(saved)
    agent.reset(3)
    state, previous, start = policy.initial_state(3), torch.zeros(3).long(), torch.ones(3, dtype=torch.bool)
    for t, obs in enumerate(observations(3, 8)):
        if t:
            start = torch.tensor([t % 2 == 0, False, t == 5])
        with torch.no_grad():
            act = policy.act(obs, previous, start, state)
        state, previous = act.state, act.action
        assert torch.equal(agent.act(obs, episode_start=start if t else None, deterministic=True), act.action)


def test_agent_samples_the_same_actions_from_the_same_seed(saved):
    agent = load_policy(saved)
    runs = []
    for seed in (1, 1, 2):
        agent.reset(16, seed=seed)
        runs.append(torch.stack([agent.act(obs) for obs in observations(16, 6)]))
    assert torch.equal(runs[0], runs[1]) and not torch.equal(runs[0], runs[2])


def test_agent_refuses_what_does_not_fit(saved):
    agent = load_policy(saved)
    obs = next(observations(2, 1))
    with pytest.raises(ArgumentError, match="reset"):
        agent.act(obs)
    agent.reset(2)
    with pytest.raises(ArgumentError, match="'goal'"):
        agent.act({"depth": obs["depth"]})
    with pytest.raises(ArgumentError, match=r"depth.*\[2, 1, 8, 8\].*\[2, 1, 16, 16\]"):
        agent.act({**obs, "depth": torch.rand(2, 1, 8, 8)})
    with pytest.raises(ArgumentError, match="episode_start"):
        agent.act(obs, episode_start=torch.ones(3, dtype=torch.bool))
    for bad, found in ((torch.nan, "nan"), (torch.inf, "inf"), (-torch.inf, "-inf"), (1e30, r"1e\+30")):
        obs["depth"][1, 0, 3, 4] = bad
        with pytest.raises(ArgumentError, match=rf"observations\['depth'\]: found {found} for agents \[1\], expected"):
            agent.act(obs)
    with pytest.raises(ArgumentError, match="num_envs"):
        agent.reset(0)


@pytest.mark.parametrize("keep", [0, 5, 300, 0.5, 0.999])
def test_truncated_file(saved, keep):
    data = saved.read_bytes()
    saved.write_bytes(data[: keep if isinstance(keep, int) else int(len(data) * keep)])
    with pytest.raises(CheckpointError, match=r"policy\.safetensors"):
        load_policy(saved)


def test_other_kinds_of_file(tmp_path):
    with pytest.raises(CheckpointError, match=r"nothing.*no such file"):
        load_policy(tmp_path / "nothing")
    with pytest.raises(CheckpointError, match="no such file"):
        load_policy(tmp_path)
    pickled = tmp_path / "policy.pt"
    torch.save({"a": torch.zeros(3)}, pickled)
    with pytest.raises(CheckpointError, match=r"policy\.pt.*safetensors"):
        load_policy(pickled)
    foreign = tmp_path / "foreign.safetensors"
    save_file({"a": torch.zeros(3)}, foreign)
    with pytest.raises(CheckpointError, match="format"):
        load_policy(foreign)


@pytest.mark.parametrize(
    ("tensors", "message"),
    [
        ({"actor.weight": torch.full((4, 16), math.nan)}, "'actor.weight'.*not finite"),
        ({"critic.bias": torch.tensor([math.inf])}, "'critic.bias'.*not finite"),
        ({"actor.weight": torch.zeros(5, 16)}, r"'actor.weight' is .*\[5, 16\].*\[4, 16\]"),
        ({"actor.weight": torch.zeros(4, 16, dtype=torch.float16)}, "'actor.weight' is torch.float16"),
        ({"actor.weight": None}, "lacks tensor 'actor.weight'"),
        ({"stray": torch.zeros(1)}, "'stray' is not part"),
    ],
)
def test_bad_tensors_are_named(saved, tensors, message):
    rewrite(saved, tensors)
    with pytest.raises(CheckpointError, match=rf"policy\.safetensors.*{message}"):
        load_policy(saved)


@pytest.mark.parametrize(
    "metadata",
    [
        {"format": "batchnav policy 999"},
        {"format": None},
        {"policy": "{"},
        {"policy": json.dumps({"hiden_size": 3})},
        {"policy": json.dumps({"encoder": "not there"})},
        {"policy": json.dumps({"se_resnet9": {"base_width": -1}})},
        {"observations": json.dumps({"depth": [1, 2]})},
        {"observations": json.dumps([1])},
        {"observations": json.dumps({"goal": [-2]})},
        {"num_actions": "0"},
        {"num_actions": json.dumps("four")},
        {"num_actions": "true"},
        {"num_actions": "1e3"},
        {"num_actions": str(10**12)},
        {"num_actions": "9" * 5000},
        {"observations": json.dumps({"depth": [10**5, 10**5, 10**5]})},
        {"observations": json.dumps({"depth": [1, 10**30, 2]})},
        {"observations": json.dumps({"depth": [2] * 100_000})},
        {"observations": json.dumps({f"x{i}": [1] for i in range(1000)})},
        {"observations": json.dumps({"goal": [True]})},
        {"observations": json.dumps({"goal": "22"})},
        {"policy": json.dumps({"hidden_size": 8192, "lstm": {"layers": 8}, "se_resnet9": {"base_width": 512}})},
        {"policy": json.dumps({"hidden_size": 10**12})},
        {"policy": "[" * 100_000},
        {"info": "[" * 100_000 + "]" * 100_000},
        {"info": json.dumps({"x": "y" * 2**20})},
        {"info": "5"},
        {"info": None},
    ],
    ids=lambda metadata: str(metadata)[:60],
)
def test_bad_settings(saved, metadata):
    rewrite(saved, **metadata)
    with pytest.raises(CheckpointError, match=r"policy\.safetensors") as error:
        load_policy(saved)
    assert "\n" not in str(error.value) and len(str(error.value)) < 500 + len(str(saved))


def test_excessive_sizes_are_refused_before_allocation(saved):
    """In a process that may take 1 GiB more than it has: 10^12 actions would need 64 TB."""
    for change in ({"num_actions": str(10**12)}, {"policy": json.dumps({"hidden_size": 8192, "lstm": {"layers": 8}})}):
        rewrite(saved, **change)
        before = resource.getrlimit(resource.RLIMIT_AS)
        used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
        resource.setrlimit(resource.RLIMIT_AS, (used + 2**30, before[1]))
        try:
            with pytest.raises(CheckpointError):
                load_policy(saved)
        finally:
            resource.setrlimit(resource.RLIMIT_AS, before)


def test_weights_that_are_not_finite_do_not_replace_a_good_file(policy, saved):
    before = saved.read_bytes()
    with torch.no_grad():
        policy.critic.weight[0, 0] = math.nan
    with pytest.raises(CheckpointError, match=r"'critic\.weight'"):
        save_policy(policy, saved)
    assert saved.read_bytes() == before


def test_file_permissions_follow_the_umask(policy, tmp_path):
    (tmp_path / "plain").touch()
    save_policy(policy, tmp_path / "policy.safetensors")
    assert (tmp_path / "policy.safetensors").stat().st_mode == (tmp_path / "plain").stat().st_mode


def test_unwritable_place(policy, tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(CheckpointError, match="cannot be written"):
        save_policy(policy, tmp_path / "file" / "policy.safetensors")


def test_a_bad_memory_ends_with_its_episode():
    """The state of an earlier episode is not read, whatever it holds."""
    box = spaces.Dict({"pointgoal": spaces.Box(-9.0, 9.0, (2,))})
    network = ActorCritic(box, spaces.Discrete(4), policy_config(hidden_size=8, layers=2)).eval()
    obs, previous, start = {"pointgoal": torch.ones(2, 2)}, torch.zeros(2, dtype=torch.int64), torch.ones(2).bool()
    with torch.no_grad():
        good = network.act(obs, previous, start, network.initial_state(2))
        for bad in (torch.nan, torch.inf):
            found = network.act(obs, previous, start, torch.full_like(network.initial_state(2), bad))
            assert found.value.equal(good.value) and found.state.equal(good.state)
