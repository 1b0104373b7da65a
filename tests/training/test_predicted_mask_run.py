"""ObjectNav with a predicted mask, from training to evaluation: the true mask is rendered in training only."""

import json

import pytest
import torch

from batchnav.config import from_dict, validate
from batchnav.data.scenes.load import load_scene
from batchnav.diagnostics.doctor import predict_memory
from batchnav.envs.config import config_of
from batchnav.envs.nav import NavEnv
from batchnav.errors import ConfigError
from batchnav.evaluation.play import evaluate
from batchnav.policy import load_policy
from batchnav.scene.resident import SceneSize
from batchnav.training.config import TrainingConfig
from batchnav.training.environment import cache_goals, training_scenes
from batchnav.training.loop import make_learner, train
from batchnav.training.validation import Validation
from tests.labelled import write_named


def make_run(**changes):
    return from_dict(TrainingConfig, {
        "env": {
            "preset": "objectnav_houses", "camera": {"height": 16, "width": 16},
            "sensors": ["rgb", "depth", "goal_mask", "gps", "compass"], "task": {"max_steps": 20},
        },
        "scenes": {"houses": 1, "randomize_materials": True},
        "policy": {
            "encoder": "simple_cnn", "simple_cnn": {"base_width": 4}, "visual_size": 8, "hidden_size": 8,
            "lstm": {"layers": 1},
            "predicted_mask": "goal_mask", "mask_width": 4, "normalized": ["rgb"],
        },
        "ppo": {"num_envs": 8, "rollout_steps": 8, "total_frames": 192, "optimizer": "adamw"},
        "device": "cpu", "save_every": 0.0, **changes,
    })  # fmt: skip


def test_a_run_trains_with_the_true_mask_and_its_policy_plays_without(tmp_path):
    run = make_run()
    train(run, tmp_path)
    rows = [json.loads(line) for line in (tmp_path / "metrics.jsonl").read_text().splitlines()]
    assert len(rows) == 3 and all(row["mask_loss"] > 0.0 and 0.0 <= row["mask_iou"] <= 1.0 for row in rows)
    policy = load_policy(tmp_path)
    config = config_of(policy.info)
    assert config == run.acting_env.for_evaluation and set(config.sensors) == {"rgb", "depth", "gps", "compass"}
    env = NavEnv([load_scene("house:3")], 4, "cpu", task="objectnav", config=config)
    assert "goal_mask" not in env.sources
    assert evaluate(policy, env, 4)["steps"].min() >= 1


def test_the_rollout_keeps_the_label():
    run = make_run()
    learner = make_learner(run)
    learner.collect()
    label = learner.rollout.obs["goal_mask"]
    assert label.dtype == torch.uint8 and label.shape == (9, 8, 1, 16, 16) and "goal_mask" in learner.env.sources
    found = predict_memory(run, [SceneSize.of(scene) for scene in learner.env.bank.scenes], torch.device("cpu"))
    kept = vars(learner.rollout) | learner.rollout.obs | {"action": None, "state": learner.state}  # `action`: a view
    assert found["rollout"] == sum(tensor.nbytes for tensor in kept.values() if isinstance(tensor, torch.Tensor))


def test_a_label_that_is_not_rendered_is_refused():
    env = {"preset": "objectnav_houses", "sensors": ["rgb", "depth"]}
    with pytest.raises(ConfigError, match="predicted_mask: found 'goal_mask' with sensors rgb, depth, expected it"):
        validate(make_run(env=env))
    with pytest.raises(ConfigError, match=r"policy\.place: found 'true_goal' with sensors depth, expected it"):
        validate(from_dict(TrainingConfig, {"policy": {"auxiliary": ["place"]}}))


def test_validation_renders_no_true_mask(monkeypatch):
    run = make_run()
    learner, asked = make_learner(run), []

    def environment(dataset, config, device, num_envs):
        asked.append(config.env)
        return NavEnv([load_scene("house:3")], 4, device, task="objectnav", config=config.env)

    monkeypatch.setattr("batchnav.training.validation.fixed_episodes", environment)
    measured = Validation(run, learner.policy, learner.ranks).measure()
    assert asked == [run.acting_env.for_evaluation] and 0.0 <= measured["success"] <= 1.0


def test_goals_of_streamed_scenes_are_made_ahead(tmp_path, monkeypatch):
    """Some scenes at a time, on the device of training; the stream then finds them in the cache."""
    chairs = [[("chair", (-0.3, 0.0, k), (0.3, 0.8, k + 1.0))] for k in range(3)]
    names = [str(write_named(tmp_path / f"{k}.glb", chair)) for k, chair in enumerate(chairs)]
    run = make_run(scenes={"houses": 0, "sources": names, "resident_scenes": 2})
    monkeypatch.setattr("batchnav.training.environment.GOALS_AT_ONCE", 1)
    cache_goals(run, names, torch.device("cpu"))
    monkeypatch.setattr("batchnav.data.goals.view_points.search_goals", None)
    stream = training_scenes(run, names, torch.device("cpu"))
    assert stream.names == tuple(names)
    stream.close()
