"""Velocity control, from training to evaluation, on a floor without walls."""

import numpy as np
import pytest
import torch
from worlds import episodes_on, write_floor

from batchnav.config import from_dict
from batchnav.data.formats import EpisodeDataset
from batchnav.data.scenes.load import load_scenes
from batchnav.diagnostics.doctor import predict_memory
from batchnav.envs.nav import NavEnv
from batchnav.evaluation.players import PolicyPlayer, ReferencePlayer
from batchnav.evaluation.run import Evaluation
from batchnav.policy import load_policy
from batchnav.scene.resident import SceneSize
from batchnav.training.config import TrainingConfig
from batchnav.training.loop import make_learner, train


def make_run(floor, updates=2, env=None, **changes):
    return from_dict(TrainingConfig, {
        "env": {"body": {"control": "velocity"}, "camera": {"height": 16, "width": 16}, **(env or {})},
        "scenes": {"houses": 0, "sources": [str(floor)]},
        "policy": {"se_resnet9": {"base_width": 4}, "visual_size": 8, "hidden_size": 8, "lstm": {"layers": 1}},
        "ppo": {
            "num_envs": 8, "rollout_steps": 8, "total_frames": 64 * updates, "optimizer": "adamw", "entropy_coef": 0.0,
        },
        "device": "cpu", "save_every": 0.0, **changes,
    })  # fmt: skip


@pytest.fixture(scope="module")
def floor(tmp_path_factory):
    return write_floor(tmp_path_factory.mktemp("floor") / "floor.ply")


def test_a_run_trains_and_its_policy_is_evaluated(floor, tmp_path):
    run = make_run(floor)
    train(run, tmp_path / "run")
    policy = tmp_path / "run" / "policy.safetensors"
    assert load_policy(policy).network.action_space.shape == (2,)
    episodes = tmp_path / "val.json.gz"
    EpisodeDataset(episodes_on(str(floor))).save(episodes)
    evaluation = Evaluation(episodes, torch.device("cpu"), run.env, scenes_dir=tmp_path)
    for player in (
        PolicyPlayer(policy, torch.device("cpu"), deterministic=True),
        PolicyPlayer(policy, torch.device("cpu")),
    ):
        assert player.config.body == run.env.body
        played = evaluation.play(player)
        assert played.episodes["steps"].shape == (3,)
    reference = evaluation.play(ReferencePlayer("shortest_path", run.env))
    assert reference.overall["success"].mean == 1.0
    assert "turns of at most 10°, steps of at most 0.25 m" in evaluation.describe(player)["task"]
    walk = played.trajectories[0]
    assert walk.actions.shape == (len(walk.positions), 2) and walk.tilts.shape == walk.headings.shape
    seen = next(evaluation.images_along(player.config, np.zeros(1, np.int32), [walk]))["depth"]
    assert seen.values.shape == (len(walk.positions), 1, 16, 16)


def test_memory_is_predicted_for_velocity_control(floor):
    found = [
        predict_memory(
            make_run(floor, env={"body": {"control": control}}), [SceneSize.of(load_scenes([str(floor)])[0])], device
        )
        for control in ("v0", "velocity")
        for device in [torch.device("cpu")]
    ]
    assert found[1]["rollout"] == found[0]["rollout"]  # two floats are as long as an i64


@pytest.mark.cuda
@pytest.mark.parametrize("task", ["pointnav", "flee", "explore"])
def test_graphs_learn_as_without_on_cuda(floor, task):
    """Gaussians in a recorded rollout and step."""
    losses = []
    for graphs in (False, True):
        learner = make_learner(
            make_run(floor, env={"task": {"name": task}}, device="cuda", graphs=graphs, deterministic=True)
        )
        losses.append([learner.update(i / 6).read()["loss/loss"] for i in range(6)])
    assert losses[0] == losses[1]


@pytest.mark.cuda
def test_a_velocity_policy_acts_on_cuda_in_bfloat16(floor, tmp_path):
    train(make_run(floor, device="cuda"), tmp_path / "run")
    agent = load_policy(tmp_path / "run" / "policy.safetensors", "cuda")
    env = NavEnv(load_scenes([str(floor)]), 4, "cuda", config=make_run(floor).env)
    observations, _ = env.reset()
    agent.reset(4)
    actions = agent.act(observations, deterministic=True)
    assert actions.dtype == torch.float32 and actions.abs().max() <= 1.0
    env.step(actions)
    env.between_rollouts()
