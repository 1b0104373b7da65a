"""ONNX files of policies beside the policies themselves, and the descriptions beside them."""

import json
from dataclasses import replace

import numpy as np
import onnx
import pytest
import torch
from gymnasium import spaces
from onnx_beside import ENV, SMALL, TYPES, play_beside, play_sampled, policy, randomized, session_of
from torch import nn

from batchnav.envs.config import NavConfig, with_options
from batchnav.errors import ArgumentError, ConfigError, MissingPackageError
from batchnav.export import export_policy
from batchnav.export.onnx_policy import OPSET, PolicyStep, read_description, write_onnx
from batchnav.policy.actor_critic import ActorCritic
from batchnav.policy.agent import PolicyAgent
from batchnav.policy.config import MEMORIES
from batchnav.policy.lstm import EpisodicLSTM
from batchnav.policy.memory import Memory
from batchnav.policy.pretrained import FrozenResNet9, TimmEncoder, weights_follow
from batchnav.policy.transformer import CausalTransformer
from batchnav.policy.weights import load_policy, save_policy
from batchnav.sensors.camera import CameraConfig
from batchnav.sensors.scan import LidarConfig
from batchnav.sim.bodies import BodyConfig
from batchnav.tasks.objectnav import ObjectNavConfig

VELOCITY = BodyConfig(control="velocity")
CASES = {
    "depth": (ENV, SMALL),
    "rgb": (replace(ENV, sensors=("rgb",)), replace(SMALL, normalized=("rgb",))),
    "waypoint and map": (
        replace(ENV, sensors=("depth", "waypoint", "ego_map")),
        replace(SMALL, encoder="simple_cnn", log_distance=True),
    ),
    "lidar": (
        replace(ENV, sensors=("lidar", "depth360"), lidar=LidarConfig(beams=60)),
        replace(SMALL, encoder="simple_cnn"),
    ),
    "velocity": (replace(ENV, body=VELOCITY), replace(SMALL, encoder="simple_cnn", lstm=EpisodicLSTM.Config(layers=1))),
    "transformer": (
        ENV,
        replace(SMALL, encoder="simple_cnn", memory="transformer", transformer=CausalTransformer.Config(window=16)),
    ),
    "pretrained, resized": (
        replace(ENV, sensors=("rgb", "depth")),
        replace(SMALL, encoder="timm:test_vit", timm=TimmEncoder.Config("random", image_size=48)),
    ),
    "partly trained": (
        replace(ENV, sensors=("rgb",)),
        replace(SMALL, encoder="timm:test_convnext", timm=TimmEncoder.Config("random", unfreeze_last=1)),
    ),
    "frozen trunk": (
        replace(ENV, sensors=("rgb",)),
        replace(SMALL, encoder="frozen_resnet9", frozen_resnet9=FrozenResNet9.Config(base_width=8)),
    ),
    "without memory": (replace(ENV, sensors=("rgb", "depth")), replace(SMALL, memory="none")),
    "category and mask": (
        replace(
            ENV,
            sensors=("depth", "goal_mask", "gps", "compass"),
            task=ObjectNavConfig(),
            body=BodyConfig(control="v1"),
        ),
        SMALL,
    ),
}


# The tests below compare files of the other three.
@pytest.mark.parametrize("case", [case for case in CASES if case not in ("depth", "rgb", "waypoint and map")])
def test_onnxruntime_computes_what_torch_does(case, tmp_path):
    with weights_follow():  # which `policy` makes
        agent = policy(*CASES[case])
    path = tmp_path / "policy.onnx"
    export_policy(agent, path)
    play_sampled(agent, path)
    found = read_description(path.with_suffix(".json"))
    session = session_of(path)
    for told, values in ((found["inputs"], session.get_inputs()), (found["outputs"], session.get_outputs())):
        assert [entry["name"] for entry in told] == [value.name for value in values]
        assert [entry["shape"] for entry in told] == [value.shape for value in values]
        assert [entry["dtype"] for entry in told] == [TYPES[value.type] for value in values]


def test_a_file_of_an_rgb_policy_acts_alike(tmp_path):
    """Weights in bfloat16, exported by the path of their file."""
    made = policy(*CASES["rgb"])
    weights, path = tmp_path / "policy.safetensors", tmp_path / "policy.onnx"
    save_policy(made.network, weights, made.info, torch.bfloat16)
    export_policy(weights, path)
    play_sampled(load_policy(weights), path, steps=50)


def test_episodes_of_a_simulator_are_alike(tmp_path):
    """Observations of an environment, a map and a waypoint among them, over ends of its episodes."""
    agent, path = policy(*CASES["waypoint and map"]), tmp_path / "policy.onnx"
    export_policy(agent, path)
    play_beside(agent, path, steps=130)


# Operators that TensorRT 10 reads (onnx-tensorrt's docs/operators.md), of those that policies may need.
TENSORRT = {
    "Add", "And", "ArgMax", "AveragePool", "Cast", "Ceil", "Clip", "Concat", "Constant", "ConstantOfShape", "Conv",
    "Cos", "DepthToSpace", "Div", "Einsum", "Elu", "Equal", "Erf", "Exp", "Expand", "Flatten", "Floor", "Gather",
    "Gelu", "Gemm", "GlobalAveragePool", "Greater", "GreaterOrEqual", "Identity", "InstanceNormalization", "IsNaN",
    "LayerNormalization", "LeakyRelu", "Less", "LessOrEqual", "Log", "LogSoftmax", "MatMul", "Max", "MaxPool",
    "Min", "Mod", "Mul", "Neg", "Not", "Or", "Pad", "Pow", "Range", "Reciprocal", "ReduceMax", "ReduceMean",
    "ReduceSum", "Relu", "Reshape", "Sigmoid", "Sign", "Sin", "Slice", "Softmax", "Softplus", "SpaceToDepth",
    "Split", "Sqrt", "Squeeze", "Sub", "Sum", "Tanh", "Transpose", "Unsqueeze", "Where", "Xor",
}  # fmt: skip


@pytest.mark.parametrize("case", ["depth", "velocity", "transformer"])
def test_a_static_file_has_constant_shapes_and_known_operators(case, tmp_path):
    agent, path = policy(*CASES[case]), tmp_path / "policy.onnx"
    export_policy(agent, path, static=True)
    model = onnx.load(path)
    onnx.checker.check_model(model, full_check=True)
    assert [(entry.domain, entry.version) for entry in model.opset_import] == [("", OPSET)]
    assert not model.functions and {node.op_type for node in model.graph.node} <= TENSORRT
    found, session = read_description(path.with_suffix(".json")), session_of(path)
    for told, values in ((found["inputs"], session.get_inputs()), (found["outputs"], session.get_outputs())):
        assert [entry["shape"] for entry in told] == [value.shape for value in values]
        assert all(type(size) is int for value in values for size in value.shape)
    play_sampled(agent, path, steps=100, batches=(1,))


@pytest.mark.parametrize("film", [(), ("imagegoal",)], ids=["early", "film"])
def test_images_of_the_goal_are_inputs(film, tmp_path):
    """Bytes that stay the same for some steps, as channels of the encoder and as its modulation."""
    rgb = spaces.Box(0, 255, (3, 32, 32), np.uint8)
    config = replace(SMALL, film=film, normalized=("rgb",))
    network = ActorCritic(spaces.Dict([("rgb", rgb), ("imagegoal", rgb)]), spaces.Discrete(4), config)
    agent, path = PolicyAgent(randomized(network)), tmp_path / "policy.onnx"
    write_onnx(agent.network, {"rgb": torch.uint8, "imagegoal": torch.uint8}, path)
    assert PolicyStep(network, ["rgb", "imagegoal"]).input_names == [
        "rgb", "imagegoal", "previous_action", "episode_start", "state",
    ]  # fmt: skip
    play_sampled(agent, path)


class Gated(Memory):
    """A GRU whose state is a dict of two tensors."""

    def __init__(self, input_size: int, hidden_size: int):
        super().__init__()
        self.cell, self.output_size = nn.GRUCell(input_size, hidden_size), hidden_size

    @classmethod
    def from_config(cls, input_size, config, settings=None):
        return cls(input_size, config.hidden_size)

    def initial_state(self, num_envs, device="cpu"):
        return {"h": torch.zeros(num_envs, self.output_size), "steps": torch.zeros(num_envs, 1)}

    def forward(self, x, starts, state):
        outputs = []
        for step, start in zip(x, starts, strict=True):
            h, steps = (torch.where(start[:, None], 0.0, state[name]) for name in ("h", "steps"))
            h = self.cell(step, h)
            state = {"h": h, "steps": steps + 1.0}
            outputs.append(h + state["steps"].log())
        return torch.stack(outputs), state


def test_states_of_several_tensors_have_numbers(tmp_path, monkeypatch):
    monkeypatch.setitem(MEMORIES, "gated", Gated)
    agent = policy(config=replace(SMALL, memory="gated", encoder="simple_cnn"))
    path = tmp_path / "policy.onnx"
    export_policy(agent, path)
    play_sampled(agent, path, steps=100)
    assert PolicyStep(agent.network, ["depth"]).input_names[-2:] == ["state_0", "state_1"]
    assert [entry["name"] for entry in read_description(path.with_suffix(".json"))["outputs"]][-2:] == [
        "next_state_0", "next_state_1",
    ]  # fmt: skip


def test_the_description_has_camera_actions_and_expert(tmp_path):
    env = with_options(
        replace(ENV, camera=CameraConfig(height=32, width=64, camera_height_range=(0.3, 1.6), camera_pitch_deg=-15.0)),
        {"min_depth": 0.3, "max_depth": 5.0, "hole_value": 1.0, "control": "v1", "forward_step": 0.1},
    )
    agent = policy(env, expert="map_planner", frames=1000)
    found = json.loads(export_policy(agent, tmp_path / "p.onnx", 0.6, 80.0).read_text())
    camera = found["cameras"]["main"]
    assert (camera["width"], camera["height"], camera["hfov_deg"], camera["height_above_floor"]) == (64, 32, 80.0, 0.6)
    assert camera["focal_length_pixels"] == pytest.approx(32.0 / np.tan(np.radians(40.0)), abs=1e-5)
    assert camera["vfov_deg"] == pytest.approx(np.degrees(2 * np.arctan(0.5 * np.tan(np.radians(40.0)))), abs=1e-5)
    assert camera["pitch_deg"] == -15.0 and camera["trained_heights"] == [0.3, 1.6]
    assert camera["trained_hfov_deg"] == [90.0, 90.0]
    assert found["depth"] == {"min_depth": 0.3, "max_depth": 5.0, "hole_value": 1.0}
    assert found["expert"] == "map_planner" and found["frames"] == 1000 and found["task"] == "pointnav"
    assert found["actions"]["table"] == [
        {"index": 0, "name": "stop"}, {"index": 1, "name": "forward", "metres": 0.1},
        {"index": 2, "name": "left", "degrees": 10.0}, {"index": 3, "name": "right", "degrees": -10.0},
        {"index": 4, "name": "look up", "camera_degrees": 30.0},
        {"index": 5, "name": "look down", "camera_degrees": -30.0},
    ]  # fmt: skip
    assert all(entry["meaning"] for entry in (*found["inputs"], *found["outputs"]))


def test_what_cannot_be_exported_is_refused(tmp_path):
    with pytest.raises(ArgumentError, match=r"policy\.pt: found suffix '\.pt', expected \.onnx"):
        export_policy(policy(), tmp_path / "policy.pt")
    with pytest.raises(ConfigError, match=r"camera_height: found 11\.0, expected 0 to 10"):
        export_policy(policy(), tmp_path / "policy.onnx", camera_height=11.0)
    network = ActorCritic(spaces.Box(-1.0, 1.0, (4,)), spaces.Discrete(2), SMALL)
    with pytest.raises(ArgumentError, match=r"found the observation observation \[4\], expected one of its environ"):
        export_policy(PolicyAgent(network), tmp_path / "policy.onnx")
    for text, found in (("{", "does not hold JSON"), ("[]", "found format 'list'"), ("{}", "found format None")):
        (tmp_path / "policy.json").write_text(text)
        with pytest.raises(ArgumentError, match=found):
            read_description(tmp_path / "policy.json")
    assert not list(tmp_path.glob("*.onnx"))


def test_without_the_exporters_packages_the_error_says_what_to_install(tmp_path, monkeypatch):
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(
        MissingPackageError,
        match=r"found no package onnx and onnxscript, expected it: pip install 'onnx>=[\d.]+' 'onnxscript>=[\d.]+'$",
    ):
        export_policy(policy(NavConfig(), replace(SMALL, encoder="simple_cnn")), tmp_path / "policy.onnx")
    assert not list(tmp_path.iterdir())


def test_older_versions_of_pytorch_are_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(torch, "__version__", "2.6.0+cu124")
    with pytest.raises(MissingPackageError, match=r"export: found PyTorch 2\.6\.0\+cu124, expected 2\.7 or later"):
        export_policy(policy(NavConfig(), replace(SMALL, encoder="simple_cnn")), tmp_path / "policy.onnx")
    assert not list(tmp_path.iterdir())


# ONNX files of the bundled policies beside the policies themselves


@pytest.mark.slow
@pytest.mark.parametrize(
    "name",
    [
        "pointnav_h200",
        "pointnav_plan_small",
        "pointnav_rgb_small",
        "pointnav_waypoint_small",
        "objectnav_mask_small",
        "objectnav_rgbd_small",
        "imagenav_rgb_small",
        "sequence_mask_small",
    ],
)
def test_bundled_policies_act_alike(name, tmp_path):
    path = tmp_path / "policy.onnx"
    export_policy(name, path)
    play_sampled(load_policy(name), path)
