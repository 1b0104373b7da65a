"""Flee and Explore: seeds, resuming, returns, sampling, CUDA kernels, configuration files and errors."""

import math
from dataclasses import dataclass

import pytest
import torch
from rooms import make_room
from worlds import slab

from batchnav.config import from_dict, load_config, to_dict
from batchnav.data.scenes.load import load_scene
from batchnav.envs.config import NavConfig, config_of
from batchnav.envs.nav import NavEnv
from batchnav.errors import ConfigError, EpisodeError
from batchnav.scene.bank import SceneBank
from batchnav.tasks import TASKS, flee
from batchnav.tasks.explore import ExploreConfig
from batchnav.tasks.flee import FleeConfig
from batchnav.training.config import TrainingConfig

N = 12
NAMES = ("flee", "explore")


@pytest.fixture(scope="module")
def bank():
    return SceneBank.pack([load_scene("house:3"), load_scene("house:7")], "cpu")


def make(bank, task, **options):
    return NavEnv(bank, N, task=task, sensors=(), max_steps=25, **{"seed": 4, **options})


def play_randomly(env, steps=60):
    """Rewards, flags, metrics and positions of a run with seeded random actions, one row per step."""
    generator = torch.Generator().manual_seed(1)
    rows = []
    for _ in range(steps):
        action = torch.multinomial(torch.tensor([0.01, 0.6, 0.2, 0.19]), N, replacement=True, generator=generator)
        _, reward, terminated, truncated, info = env.step(action.to(env.device))
        parts = [reward, terminated, truncated, *info["episode"].values(), env.sim.bodies.position.flatten()]
        rows.append(torch.cat([part.float().cpu() for part in parts]))
    return torch.stack(rows)


@pytest.mark.parametrize("task", NAMES)
def test_the_seed_determines_the_run(bank, task):
    runs = []
    for seed in (4, 4, 5):
        env = make(bank, task, seed=seed)
        env.reset()
        runs.append(play_randomly(env))
    assert torch.equal(runs[0], runs[1]) and not torch.equal(runs[0], runs[2])


@pytest.mark.parametrize("task", NAMES)
def test_a_resumed_run_continues_alike(bank, task):
    env, other = make(bank, task), make(bank, task, seed=9)
    env.reset()
    play_randomly(env, 7)
    other.load_state_dict(env.state_dict())
    assert torch.equal(play_randomly(env), play_randomly(other))


@pytest.mark.parametrize("task", NAMES)
def test_returns_are_the_sums_of_rewards(bank, task):
    env = make(bank, task)
    env.reset()
    total = torch.zeros(N)
    for action in torch.randint(1, 4, (60, N), generator=torch.Generator().manual_seed(0)):
        _, reward, _, _, info = env.step(action)
        total += reward
        torch.testing.assert_close(info["episode"]["return"], total, rtol=0.0, atol=1e-4)
        total[info["_episode"]] = 0.0
    assert set(info["episode"]) == {metric.name for metric in env.task.metric_specs}


@pytest.mark.parametrize("task", NAMES)
def test_only_agents_that_began_an_episode_are_queued(bank, task):
    env = make(bank, task)
    env.reset()
    for actions in ([1] * N, [0] + [1] * (N - 1)):
        env.step(torch.tensor(actions))
        queued = env.sim.queue.agents
        assert queued[queued >= 0].tolist() == [i for i, action in enumerate(actions) if action == 0]


@pytest.mark.parametrize("task", NAMES)
def test_a_small_island_has_no_start(task):
    with pytest.raises(EpisodeError, match="'small': no start found in 1000 tries"):
        NavEnv([slab("small", 1.6)], 2, "cpu", task=task, sensors=())


def test_an_island_of_too_many_cells_is_refused():
    with pytest.raises(EpisodeError, match=r"at most 65,536 cells of 0\.25 m"):
        NavEnv([slab("field", 90.0)], 2, "cpu", task="explore", sensors=(), cell_size=0.25)


@pytest.mark.cuda
@pytest.mark.parametrize("task", NAMES)
def test_cuda_steps_as_the_cpu_does(bank, task):
    envs = [make(SceneBank.pack(bank.scenes, device), task) for device in ("cpu", "cuda")]
    for env in envs:
        env.reset()
    on_cpu, on_gpu = envs
    agreeing = 0.0
    for action in torch.randint(0, 4, (100, N), generator=torch.Generator().manual_seed(0)):
        for one, other in ((on_gpu.sim.bodies, on_cpu.sim.bodies), (on_gpu.task.state, on_cpu.task.state)):
            for mine, theirs in zip(one, other, strict=True):
                mine.copy_(theirs)
        results = [env.step(action.to(env.device)) for env in envs]
        torch.cuda.synchronize()
        assert torch.equal(results[0][2], results[1][2].cpu()) and torch.equal(results[0][3], results[1][3].cpu())
        metrics = [torch.stack([result[1], *result[4]["episode"].values()]).cpu() for result in results]
        close = ((metrics[0] - metrics[1]).abs() < 2e-2).all(0)
        close &= (on_cpu.task.next_episode.reachable - on_gpu.task.next_episode.reachable.cpu()).abs() < 1.5
        agreeing += float(close.float().mean()) / 100
    assert agreeing > 0.99  # an agent on a polygon's edge may be located on either side


@pytest.mark.cuda
@pytest.mark.parametrize("task", NAMES)
def test_cuda_step_does_not_wait(bank, task):
    env = make(SceneBank.pack(bank.scenes, "cuda"), task)
    env.reset()
    actions = torch.randint(0, 4, (20, N), device="cuda")
    env.step(actions[0])
    torch.cuda.synchronize()
    torch.cuda.set_sync_debug_mode("error")
    try:
        for action in actions:
            env.step(action)
    finally:
        torch.cuda.set_sync_debug_mode("default")


def test_a_configuration_file_names_its_task(tmp_path):
    path = tmp_path / "flee.yaml"
    path.write_text("env: {task: {name: flee, max_steps: 77}}\n")
    run = load_config(path, TrainingConfig)
    assert run.env.task == FleeConfig(max_steps=77) and run.env.task_name == "flee"
    assert from_dict(TrainingConfig, to_dict(run)) == run and to_dict(run)["env"]["task"]["name"] == "flee"
    assert config_of({"env": to_dict(NavConfig(task=ExploreConfig(cell_reward=1.0)))}).task.cell_reward == 1.0
    assert load_config(_written(path, "env: {task: {max_steps: 7}}"), TrainingConfig).env.task_name == "pointnav"
    for text, message in (
        ("env: {task: {name: fly}}", "task.name: found 'fly', expected one of pointnav, flee, explore"),
        ("env: {task: {name: [flee]}}", r"task.name: found \['flee'\]"),
        ("env: {task: {name: flee, success_distance: 1.0}}", "task.success_distance: unknown key"),
        ("env: {task: {name: explore, cell_size: 0.0}}", "task.cell_size: found 0.0, expected 0.25 to 100"),
    ):
        with pytest.raises(ConfigError, match=message):
            load_config(_written(path, text), TrainingConfig)


def _written(path, text):
    path.write_text(text)
    return path


def test_settings_of_another_task_are_refused(bank):
    with pytest.raises(ConfigError, match="found FleeConfig, expected ExploreConfig for the task 'explo"):
        NavEnv(bank, N, task="explore", config=NavConfig(task=FleeConfig()))
    with pytest.raises(ConfigError, match="option 'success_distance' is unknown"):
        NavEnv(bank, N, task="flee", success_distance=1.0)


def test_a_setting_in_two_parts_of_the_configuration_is_refused(bank, monkeypatch):
    @dataclass(frozen=True)
    class TallConfig(FleeConfig):
        height: float = 1.0

    monkeypatch.setitem(TASKS, "tall", type("Tall", (flee.Flee,), {"Config": TallConfig}))
    with pytest.raises(ConfigError, match=r"option 'height': found in camera, task; set it in a NavConfig"):
        NavEnv(bank, N, task="tall", sensors=(), height=2.0)


def test_spaces_and_metric_specs_follow_from_the_task(bank):
    for name in NAMES:
        task = TASKS[name]
        env = NavEnv(bank, 2, task=name, height=8, width=8)
        assert set(env.single_observation_space.spaces) == {"depth"}
        assert math.isinf(task.metric_specs[0].high) and any(metric.headline for metric in task.metric_specs)
    assert make_room(True).navmesh.num_polygons > 0
