"""Presets of the Habitat challenges: every number, and that they run with all their noise."""

import pytest
import torch

from batchnav.data.scenes.load import load_scene
from batchnav.envs.config import PRESETS, nav_config
from batchnav.envs.nav import NavEnv
from batchnav.runtime.kernels.graphs import Graphs
from batchnav.scene.bank import SceneBank

HARD = ("challenge_2020", "challenge_2021")


@pytest.mark.parametrize("name", HARD)
def test_challenges_are_as_published(name):
    config = PRESETS[name]
    body, camera = config.body, config.camera
    assert (body.agent_radius, body.agent_height, body.forward_step, body.turn_angle_deg) == (0.18, 0.88, 0.25, 30.0)
    assert (body.sliding, body.actuation_noise, body.robot, body.controller) == (False, 0.5, "LoCoBot", "Proportional")
    assert (camera.height, camera.width, camera.hfov_deg, camera.camera_height) == (360, 640, 70.0, 0.88)
    assert camera.camera_pitch_deg == (0.0 if name == "challenge_2020" else -20.0)
    assert config.sensors == ("rgb", "depth")
    assert (config.depth.min_depth, config.depth.max_depth, config.depth.depth_noise) == (0.1, 10.0, 1.0)
    assert (config.rgb.rgb_noise, config.rgb.noise_intensity) == ("gaussian", 0.1)
    assert (config.rgb.noise_mean, config.rgb.noise_sigma) == (0.0, 1.0)
    assert (config.task.success_distance, config.task.max_steps, config.task.gps_compass) == (0.36, 500, False)


def test_the_noiseless_preset_is_2020_without_noise():
    options = {"actuation_noise": 0.0, "depth_noise": 0.0, "rgb_noise": "none", "gps_compass": True}
    quiet, noiseless = nav_config("challenge_2020", options), PRESETS["challenge_2020_noiseless"]
    assert quiet.camera == noiseless.camera and quiet.task == noiseless.task and quiet.depth == noiseless.depth
    assert (quiet.body.agent_radius, quiet.body.turn_angle_deg) == (0.18, 30.0)
    assert noiseless.body.actuation_noise == 0.0 and noiseless.rgb.rgb_noise == "none"


SMALL = {"height": 36, "width": 64, "agent_radius": 0.1, "agent_height": 1.5}


@pytest.mark.parametrize("device", ["cpu", pytest.param("cuda", marks=pytest.mark.cuda)])
@pytest.mark.parametrize("name", HARD)
def test_presets_run_with_noise(name, device):
    bank = SceneBank.pack([load_scene("house:3")], device, appearance=True)
    runs = []
    for _ in range(2):
        env = NavEnv(bank, 2, config=name, seed=4, **SMALL)
        first = {key: value.clone() for key, value in env.reset()[0].items()}
        seen = [first]
        for _ in range(3):
            seen.append({key: value.clone() for key, value in env.step(torch.tensor([1, 2], device=device))[0].items()})
        assert torch.equal(seen[3]["pointgoal"], first["pointgoal"])  # no GPS, no compass
        assert len(first["rgb"].unique()) > 100 and len(first["depth"][0].unique()) > 10
        assert env.sim.bodies.path_length.min() > 0.0
        runs.append(seen)
    for a, b in zip(*runs, strict=True):
        assert all(torch.equal(a[key], b[key]) for key in a)


@pytest.mark.cuda
def test_replayed_graphs_sample_new_noise():
    bank = SceneBank.pack([load_scene("house:3")], "cuda", appearance=True)
    sensors = ("rgb", "depth", "gps", "compass", "heading")
    envs = [NavEnv(bank, 8, config="challenge_2020", sensors=sensors, seed=4, **SMALL) for _ in range(2)]
    turn = torch.full((8,), 2, device="cuda")

    def step(env):
        observation = env.step(turn)[0]
        env.settle()
        return observation

    for env in envs:
        env.reset()
    replayed, before = Graphs(torch.device("cuda"), enabled=True).wrap(lambda: step(envs[0])), None
    for _ in range(6):
        found, expected = replayed(), step(envs[1])
        assert all(torch.equal(found[name], expected[name]) for name in expected)
        assert before is None or not torch.equal(found["depth"], before)
        before = found["depth"].clone()
