"""Policies with another camera than in training: a warning, or an error where the network cannot read its images."""

from dataclasses import replace

import pytest
import torch
from networks import policy_config
from worlds import write_floor

from batchnav.config import to_dict
from batchnav.data.scenes.load import load_all
from batchnav.envs.config import NavConfig, config_of, with_options
from batchnav.envs.nav import NavEnv
from batchnav.envs.observations import space_of, specs_of
from batchnav.errors import ArgumentError
from batchnav.evaluation.play import evaluate
from batchnav.evaluation.players import PolicyPlayer
from batchnav.export.onnx_policy import deployment_config
from batchnav.habitat.agent import HabitatAgent
from batchnav.policy.actor_critic import ActorCritic
from batchnav.policy.agent import PolicyAgent
from batchnav.policy.weights import save_policy
from batchnav.sensors.camera import CameraConfig

ONE = NavConfig(camera=CameraConfig(16, 16), cameras={"left": CameraConfig(16, 16)})
MANY = replace(
    ONE, camera=replace(ONE.camera, camera_height_range=(0.3, 1.6), hfov_range_deg=(55.0, 120.0), camera_pitch_deg=5.0)
)
NETWORK = policy_config(encoder="simple_cnn", visual_size=8, hidden_size=8, layers=0)
END = "; results may be worse than with the camera of training"


def policy(trained):
    torch.manual_seed(0)
    return ActorCritic(space_of(specs_of(trained)), trained.body.action_space, NETWORK)


@pytest.mark.parametrize(
    "make", [deployment_config, lambda agent, *camera: HabitatAgent(agent, "cpu", True, 0, *camera)]
)
@pytest.mark.parametrize(
    ("trained", "camera", "found"),
    [
        (ONE, (None, None), []),
        (ONE, (1.25, 90.0), []),
        (ONE, (0.88, 79.0), ["camera_height 0.88, trained with 1.25; hfov_deg 79, trained with 90"]),
        (MANY, (0.3, 120.0), []),
        (MANY, (1.7, None), ["camera_height 1.7, trained with 0.3 to 1.6"]),
        (MANY, (None, 50.0), ["hfov_deg 50, trained with 55 to 120"]),
    ],
)
def test_a_camera_outside_of_training_is_named(make, trained, camera, found, caplog):
    make(PolicyAgent(policy(trained), {"env": to_dict(trained)}), *camera)
    assert caplog.messages == [f"policy: found {text}{END}" for text in found]


def test_any_camera_of_an_environment_counts_once(tmp_path, caplog):
    """Height, field of view and tilt of all cameras. An image of another size is an error."""
    save_policy(policy(MANY), tmp_path / "mine.safetensors", {"env": to_dict(MANY)})
    player = PolicyPlayer(tmp_path / "mine.safetensors", torch.device("cpu"))
    (scene,) = load_all([str(write_floor(tmp_path / "floor.ply"))])

    def played(config):
        env = NavEnv([scene], 1, "cpu", config=config)
        for _ in range(2):  # as evaluation, videos and maps do
            agent = player.make_agent(env)
        evaluate(agent, env, 1)

    short = with_options(config_of(player.info), {"max_steps": 2})
    played(short)
    assert not caplog.messages
    tilted = replace(short, cameras={"left": CameraConfig(16, 16, hfov_deg=60.0)})
    played(with_options(tilted, {"camera_pitch_deg": -20.0, "camera_height": 0.2}))
    assert caplog.messages == [
        "mine: found camera_height 0.2, trained with 0.3 to 1.6; camera_pitch_deg -20, trained with 5; "
        f"left camera: hfov_deg 60, trained with 90{END}"
    ]
    with pytest.raises(ArgumentError, match=r"'depth'\]: found shape \[1, 1, 16, 24\], expected \[1, 1, 16, 16\]"):
        played(with_options(short, {"width": 24}))
