"""Adapters with the goals of ImageNav and ObjectNav: an image of bytes, and a category as an integer without axes."""

import numpy as np
import pytest
import torch

from batchnav.envs.nav import NavEnv
from tests.tasks.object_rooms import CATEGORIES, furnished

N, SIDE = 4, 36
"""Stable-Baselines3's convolutions need 36 rows."""


@pytest.fixture(scope="module")
def room():
    return furnished()


@pytest.fixture(params=["imagenav", "objectnav"])
def env(request, room):
    """An environment of each task with small images."""
    own = {"imagenav": {"sensors": ("rgb",)}, "objectnav": {"sensors": ("depth",), "categories": CATEGORIES}}
    size = {"height": SIDE, "width": SIDE, "max_steps": 3}
    made = NavEnv([room], N, "cpu", task=request.param, seed=3, final_observation=True, **size, **own[request.param])
    yield made
    made.close()


def goal_of(env):
    """Name of the goal's observation, and its number of values (0: an image)."""
    return ("objectgoal", len(CATEGORIES)) if env.config.task_name == "objectnav" else ("imagegoal", 0)


def test_stable_baselines3_learns(env):
    pytest.importorskip("stable_baselines3")
    from stable_baselines3 import PPO

    from batchnav.envs.adapters.stable_baselines3 import SB3VecEnv

    name, _ = goal_of(env)
    wrapped = SB3VecEnv(env)
    seen = wrapped.reset()
    assert np.array_equal(seen[name], env.last_observation[name].numpy())
    assert wrapped.observation_space[name].contains(seen[name][0])
    model = PPO("MultiInputPolicy", wrapped, n_steps=4, batch_size=8, n_epochs=1, device="cpu")
    model.learn(4 * N)
    features = model.policy.extract_features(model.policy.obs_to_tensor(seen)[0])
    assert features.shape[0] == N and torch.isfinite(features).all()
    assert model.predict(wrapped.reset())[0].shape == (N,)


def test_skrl_models_read_the_goal(env):
    pytest.importorskip("skrl")
    from skrl.utils.model_instantiators.torch import categorical_model
    from skrl.utils.spaces.torch import unflatten_tensorized_space

    from batchnav.envs.adapters.skrl import SkrlEnv

    name, values = goal_of(env)
    wrapped = SkrlEnv(env)
    flat, _ = wrapped.reset()
    assert flat.dtype == torch.float32 and flat.shape[0] == N
    seen, own = unflatten_tensorized_space(wrapped.observation_space, flat), env.last_observation[name]
    assert torch.equal(seen[name].reshape(own.shape).to(own.dtype), own)
    layers = [{"name": "net", "input": "OBSERVATIONS", "layers": [8], "activations": "relu"}]
    if values:
        goal = {"name": "net", "input": f"one_hot_encoding(OBSERVATION_SPACE['{name}'], OBSERVATIONS['{name}'])"}
        layers = [{**layers[0], **goal}]
    else:
        layers[0]["input"] = f"torch.flatten(OBSERVATIONS['{name}'], 1) / 255"
    spaces = {"observation_space": wrapped.observation_space, "action_space": wrapped.action_space, "device": "cpu"}
    model = categorical_model(**spaces, network=layers, output="ACTIONS")
    action = model.act({"observations": flat}, role="policy")[0]
    assert wrapped.step(action)[0].shape == flat.shape


def test_rsl_rl_has_floats(env):
    pytest.importorskip("rsl_rl")
    from batchnav.envs.adapters.rsl_rl import RslRlEnv

    name, values = goal_of(env)
    wrapped = RslRlEnv(env, max_episode_length=3)
    seen, _, _, _ = wrapped.step(torch.eye(4)[torch.ones(N, dtype=torch.long)])
    goal, own = seen[name], env.last_observation[name]
    assert all(tensor.dtype == torch.float32 and tensor.ndim > 1 for tensor in seen.values())
    if values:
        assert (
            goal.shape == (N, values) and torch.equal(goal.argmax(1), own) and torch.equal(goal.sum(1), torch.ones(N))
        )
    else:
        assert torch.equal((goal * 255.0).round().to(torch.uint8), own)


def test_torchrl_rollouts_keep_the_goal_of_an_episode(env):
    pytest.importorskip("torchrl")
    from torchrl.envs.utils import check_env_specs

    from batchnav.envs.adapters.torchrl import TorchRLEnv

    name, _ = goal_of(env)
    wrapped = TorchRLEnv(env)
    check_env_specs(wrapped)
    rollout = wrapped.rollout(8, break_when_any_done=False)
    assert rollout[name].dtype == env.last_observation[name].dtype
    before, after, done = rollout[name], rollout["next", name], rollout["next", "done"].flatten()
    same = (before == after).flatten(2).all(2) if before.ndim > 2 else before == after
    assert same.all() and done.any()  # also in the last step: the final observation has the goal of its episode
