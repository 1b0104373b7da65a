"""Several processes that train one policy: the run that one process has. On the CPU by gloo, on CUDA by NCCL."""

import math
import os
import subprocess
import sys

import pytest
import torch
from networks import policy_config
from ranks import PATIENCE, free_port, results_of, variables

from batchnav.data.scenes.load import load_all
from batchnav.envs.nav import PointNavEnv
from batchnav.errors import ArgumentError, ConfigError, DeviceError
from batchnav.learning import PPO, PPOConfig
from batchnav.learning.stats import NUM_FINITE, merged
from batchnav.policy import ActorCritic
from batchnav.runtime.distributed import Ranks, join
from batchnav.runtime.kernels.graphs import WARM_UPS

N = 128
"""Environments in all."""
STEPS = 8
UPDATES = 6
POLICY = policy_config(base_width=4, visual_size=8, hidden_size=16, layers=1, embedding_size=8)
HOUSES = [f"house:{i}" for i in range(6)]
ROUNDING = {"rtol": 1e-4, "atol": 1e-6}
"""Between the losses of one process and of several: sums over minibatches are rounded in another order."""


class Together(PPO):
    """One process that learns from the minibatches that two have: environments i and i + N / 2 in the same one."""

    def _sample_minibatches(self):
        half = self.config.num_envs // 2
        order = torch.randperm(half, generator=self.generator, device=self.device).view(self.config.minibatches, -1)
        return torch.cat([order, order + half], dim=1)


def make(ranks, kind=PPO, graphs=False, **ppo):
    n = N // ranks.world_size
    scenes, size = load_all(ranks.shard(HOUSES)), {"height": 16, "width": 16}
    env = PointNavEnv(scenes, n, ranks.device, **size, max_steps=12, first_env=ranks.rank * n)
    torch.manual_seed(ranks.rank)  # rank 0's weights count
    network = ActorCritic(env.single_observation_space, env.single_action_space, POLICY)
    with torch.no_grad():
        network.actor.bias[0] -= 2.0  # stop seldom
    settings = {"num_envs": n, "rollout_steps": STEPS, "minibatches": 2, "epochs": 2, "normalize_advantage": True}
    ppo = PPOConfig(**settings | {"learning_rate": 1e-3} | ppo)
    return kind(network, env, ppo, seed=7, graphs=graphs, ranks=ranks)


def updates(learner, count=UPDATES):
    """Every statistic but the times, as of all ranks."""
    rows = []
    for i in range(count):
        row = merged(learner.ranks.all_gather(learner.update(i / UPDATES).read()))
        rows.append({name: value for name, value in row.items() if not name.startswith("seconds")})
    return rows


def weights(learner):
    return torch.cat([p.detach().flatten() for p in learner.policy.parameters()]).cpu().numpy()


def train(ranks, count, options):
    learner = make(ranks, **options)
    return updates(learner, count), weights(learner)


def train_alone(ranks, count, options):
    """In a process like a rank's, with as many threads, but without anybody to speak to."""
    return train(Ranks(torch.device("cpu")), count, options)


def numbers(rows):
    return torch.tensor([list(row.values()) for row in rows], dtype=torch.float64)


@pytest.mark.parametrize("optimizer", ["lamb", "adamw"])
def test_two_ranks_learn_as_one_process_does(tmp_path, optimizer):
    options = {"optimizer": optimizer}
    alone = make(Ranks(torch.device("cpu")), Together, **options)
    expected = updates(alone)
    (rows, first), (others, second) = results_of(train, 2, tmp_path / "log", UPDATES, options)
    assert rows == others and (first == second).all()
    assert [list(row) for row in rows] == [list(row) for row in expected]
    torch.testing.assert_close(numbers(rows), numbers(expected), equal_nan=True, **ROUNDING)
    assert rows[-1]["frames"] == UPDATES * N * STEPS and rows[0]["episode/count"] == expected[0]["episode/count"]
    assert sum(row["episode/count"] for row in rows) > N
    if optimizer == "lamb":
        again, bits = results_of(train, 2, tmp_path / "log", UPDATES, options)[0]
        assert str(again) == str(rows) and (bits == first).all()


def test_a_rank_alone_gives_the_same_bits_by_way_of_the_bucket(tmp_path):
    options = {"normalize_advantage": False}  # a variance over ranks is rounded otherwise than torch's
    ((rows, found),) = results_of(train, 1, tmp_path / "log", 2, options)
    ((expected, alone),) = results_of(train_alone, 1, tmp_path / "log", 2, options)
    assert (alone == found).all()
    for row in (*rows, *expected):
        del row["loss/explained_variance"]
    assert str(rows) == str(expected)


def test_environments_play_the_same_episodes_in_one_process_and_in_two():
    def play(ranks):
        env = make(ranks).env
        env.reset(seed=5)
        actions = torch.randint(4, (40, N), generator=torch.Generator().manual_seed(1))
        mine = actions[:, ranks.rank * env.num_envs : (ranks.rank + 1) * env.num_envs]
        seen = []
        for action in mine:
            observation, reward, *_ = env.step(action.contiguous())
            seen.append(torch.cat([reward[:, None], observation["pointgoal"], observation["depth"].flatten(1)], dim=1))
        assert env.sim.bodies.episode.min() > 0
        return torch.stack(seen)

    cpu = torch.device("cpu")
    whole, *halves = play(Ranks(cpu)), *(play(Fake(cpu, rank, 2)) for rank in range(2))
    assert torch.equal(whole, torch.cat(halves, dim=1))
    with pytest.raises(ArgumentError, match="first_env: found -1"):
        PointNavEnv(load_all(HOUSES[:1]), 2, "cpu", first_env=-1)


class Fake(Ranks):
    """One of several that never speaks to the others."""


def test_shares_are_neighbours_and_never_empty():
    for count, world_size in ((6, 2), (7, 3), (1, 4), (3, 2), (5, 8)):
        shares = [Fake(None, rank, world_size).shard(list(range(count))) for rank in range(world_size)]
        assert all(shares) and sorted({item for share in shares for item in share}) == list(range(count))
        if count >= world_size:
            assert [item for share in shares for item in share] == list(range(count))


def test_statistics_of_several_ranks_are_those_of_all_environments():
    one = {
        "loss/loss": 1.0,
        "episode/count": 3.0,
        "episode/spl": 0.5,
        "seconds/learn": 2.0,
        NUM_FINITE: 4.0,
        "frames": 8,
    }
    two = {
        "loss/loss": 3.0,
        "episode/count": 1.0,
        "episode/spl": 0.1,
        "seconds/learn": 1.0,
        NUM_FINITE: 4.0,
        "frames": 8,
    }
    expected = {"loss/loss": 2.0, "episode/count": 4.0, "episode/spl": 0.4, "seconds/learn": 2.0, "frames": 8}
    assert merged([one, {**two, "between_rollouts/scenes_loaded": 1.0}]) == {
        **expected,
        "between_rollouts/scenes_loaded": 1.0,
    }
    none = {"episode/count": 0.0, "episode/spl": math.nan}
    assert merged([none, one | {"episode/count": 2.0}])["episode/spl"] == 0.5
    assert math.isnan(merged([none, none])["episode/spl"])


@pytest.mark.parametrize(
    ("changes", "error", "message"),
    [
        ({"RANK": "2"}, ConfigError, "RANK: found 2 with WORLD_SIZE 2, expected 0 to 1"),
        ({"RANK": "one"}, ConfigError, "RANK: found 'one', expected a whole number"),
        ({"WORLD_SIZE": "-2"}, ConfigError, "WORLD_SIZE: found '-2'"),
        ({}, DeviceError, r"rank 1 of 2: did not join within 3 s"),
    ],
)
def test_a_failed_start_of_several_processes_says_why(monkeypatch, changes, error, message):
    for name, value in {**variables(0, 2, free_port()), **changes}.items():
        monkeypatch.setenv(name, value)
    with pytest.raises(error, match=message):
        join("cpu", rendezvous_seconds=3.0)


JOIN = "import os; from batchnav.runtime.distributed import join\nwith join('cpu', force_process_group=True): "
"""Program of a rank. A process of its own, since PyTorch numbers process groups, failed ones too."""


def rank_of_a_machine(program, rank, world_size, port, **variables_too):
    """Start a rank that is alone on its machine."""
    env = {**os.environ, **variables(rank, world_size, port), "LOCAL_RANK": "0", "LOCAL_WORLD_SIZE": "1"}
    command = [sys.executable, "-c", JOIN + program]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    return subprocess.Popen(command, env=env | variables_too, text=True, **pipes)


def test_an_interface_that_reaches_nobody_is_named():
    process = rank_of_a_machine("pass", 0, 1, free_port(), GLOO_SOCKET_IFNAME="nowhere0")
    message = process.communicate(timeout=PATIENCE)[1].splitlines()[-1]
    assert process.returncode == 1 and message.startswith("batchnav.errors.DeviceError: rank 0 (")
    assert "cannot reach the other ranks from the network interface nowhere0" in message
    assert message.endswith("name another with GLOO_SOCKET_IFNAME (CPU) and NCCL_SOCKET_IFNAME (GPU)")


def test_ranks_of_several_machines_take_the_interface_to_the_first():
    port = free_port()
    started = [rank_of_a_machine("print(os.environ['GLOO_SOCKET_IFNAME'])", rank, 2, port) for rank in range(2)]
    assert [process.communicate(timeout=PATIENCE)[0].split()[-1] for process in started] == ["lo", "lo"]


def test_each_rank_takes_its_device(monkeypatch):
    for name, value in variables(0, 2, free_port()).items():
        monkeypatch.setenv(name, value)
    with pytest.raises(ConfigError, match=r"device: found 'cuda:1' with 2 ranks, expected 'cuda'"):
        join("cuda:1")


@pytest.mark.cuda
@pytest.mark.parametrize("options", [{}, {"graphs": True}], ids=str)
def test_nccl_alone_changes_nothing(tmp_path, options):
    """Also within the graph: recorded after it was warmed up, replayed many times."""
    count = WARM_UPS + 4
    ((rows, _),) = results_of(train, 1, tmp_path / "log", count, options, device="cuda")
    alone = make(Ranks(torch.device("cuda")), graphs=options.get("graphs", False))
    expected = updates(alone, count)
    torch.testing.assert_close(numbers(rows[:2]), numbers(expected[:2]), equal_nan=True, rtol=1e-2, atol=1e-3)
    assert all(math.isfinite(row["loss/loss"]) for row in rows)


@pytest.mark.cuda
@pytest.mark.parametrize("options", [{}, {"graphs": True}], ids=str)
def test_two_gpus_keep_the_same_weights_and_learn_as_one(tmp_path, options):
    if torch.cuda.device_count() < 2:
        pytest.skip(f"found {torch.cuda.device_count()} GPUs, expected 2")
    (rows, first), (others, second) = results_of(train, 2, tmp_path / "log", 50, options, device="cuda")
    assert str(rows) == str(others) and (first == second).all()
    expected = updates(make(Ranks(torch.device("cuda")), Together), 2)
    names = ("loss/value_loss", "loss/entropy", "reward")  # sums in bfloat16 decide some actions
    for row, other in zip(rows, expected, strict=False):
        assert [row[name] for name in names] == pytest.approx([other[name] for name in names], rel=0.05)
