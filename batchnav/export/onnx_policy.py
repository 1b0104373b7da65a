"""ONNX files of policies: one step of the network, for ONNX Runtime and other programs without PyTorch.

The network is exported in its inference form: with running normalisation inside, and without the autograd functions
that training on the CPU uses. The batch size is free, or 1 in a static file, whose shapes are all constants.
`batchnav.export.onnx_policy` names inputs and outputs.
"""

from __future__ import annotations

import contextlib
import copy
import importlib.util
import json
import logging
import math
import warnings
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import nn

from batchnav.config import to_dict
from batchnav.data.files import read_json
from batchnav.envs.config import NavConfig, config_of, trained_config, warn_other_cameras, with_camera
from batchnav.envs.observations import specs_of
from batchnav.errors import ArgumentError, BatchnavError, MissingPackageError
from batchnav.observation import Spec
from batchnav.policy.actor_critic import ActorCritic
from batchnav.policy.agent import PolicyAgent
from batchnav.policy.memory import map_state, state_tensors
from batchnav.policy.weights import load_policy
from batchnav.runtime.device import torch_defaults
from batchnav.runtime.files import check_target, replacing
from batchnav.runtime.imports import install_command
from batchnav.sensors.camera import CameraConfig
from batchnav.sensors.scan import LIDAR, LidarConfig
from batchnav.sim.bodies import ACTIONS, FORWARD, LEFT, LOOK_DOWN, LOOK_UP, NUM_ACTIONS, RIGHT, BodyConfig

# Description of a policy for a program on a robot: cameras, inputs with units and conventions, actions, as JSON.
#
# The file is self-contained: a program reads it beside the ONNX file without this package.
# `docs/howto/deploy_on_a_robot.md` describes its fields.

FORMAT = "batchnav deployment 1"
"""Name of the file format."""
PREVIOUS_ACTION, EPISODE_START, STATE = "previous_action", "episode_start", "state"
"""Inputs of the ONNX file beside the observations; only policies with memory have them."""
VALUE, NEXT_STATE = "value", "next_state"
"""Outputs of the ONNX file beside the action distribution. States of several tensors have names with a number."""
MEANINGS = {
    "depth": "Planar depth, along the camera's forward axis: clip((metres - min_depth) / (max_depth - min_depth), 0, "
    "1). Pixels without a measurement have hole_value. Row 0 is the top, column 0 is on the left.",
    "lidar": "Ranges of a LiDAR as a share of range_max, rows from the lowest, beams counter-clockwise as in "
    "sensor_msgs/LaserScan: 1 for +inf (no hit within range_max), 0 for -inf (nearer than range_min).",
    "depth360": "Horizontal distance as a share of panorama_range, 1 without a hit: a cylindrical image whose columns "
    "go from behind over the left, ahead and the right to behind.",
    "rgb": "Red, green and blue, 0 to 255. Row 0 is the top, column 0 is on the left.",
    "normals": "Unit normals of surfaces in the camera's frame.",
    "ego_map": "Egocentric map from batchnav.export.RobotMapper.",
    "waypoint": "From batchnav.export.RobotMapper: remaining path length, metres, and bearing of the next waypoint, "
    "radians, positive to the left.",
    "gps": "Position relative to the start: metres ahead and to the right of the start pose.",
    "compass": "Heading relative to the start, radians, positive to the left, in (-pi, pi].",
    "heading": "Heading relative to the world's -Z axis (x of ROS), radians, positive to the left, in (-pi, pi].",
    "pointgoal": "Distance to the goal, metres, and its bearing, radians, positive to the left, in (-pi, pi].",
    "objectgoal": "Index of the goal's category in environment.task.categories.",
    "goal_mask": "255 x the detector's score, 0 to 1, where the pixel shows an object of the goal's category, else 0.",
    "imagegoal": "Red, green and blue, 0 to 255, of the image at the goal.",
    "goal_embedding": "Embedding of the goal's category or description, from the file in environment.goal_embedding.",
    "goal_hfov": "Horizontal field of view of the camera that took imagegoal, radians.",
}  # fmt: skip
"""Meaning of an observation by the sensor's name; sensors of other cameras have a prefix."""


def deployment_config(
    policy: PolicyAgent,
    camera_height: float | None = None,
    hfov_deg: float | None = None,
    camera_info: str | Path | None = None,
) -> NavConfig:
    """The environment of a policy on a robot: that of its training, with the robot's main camera.

    Logs a warning for a camera that the policy was not trained with.

    Args:
        policy: the policy.
        camera_height: height of the camera above the floor, metres; None: that of training.
        hfov_deg: horizontal field of view, degrees; None: that of training.
        camera_info: calibration file of the camera, as in `load_camera_info`; None: the lens of training.

    ConfigError for an invalid camera.
    """
    config = with_camera(config_of(policy.info), camera_height, hfov_deg, camera_info)
    warn_other_cameras("policy", policy.info, config)
    return config


def read_specs(policy: PolicyAgent, config: NavConfig) -> list[Spec]:
    """Specs of the observations that a policy reads, in its order.

    ArgumentError for an observation that its environment does not have, or has in another shape.
    """
    specs, found = {spec.name: spec for spec in specs_of(config)}, []
    for name, shape in policy.network.observation_shapes.items():
        if name not in specs or specs[name].shape != shape:
            offered = ", ".join(f"{spec.name} {list(spec.shape)}" for spec in specs.values())
            raise ArgumentError(
                f"policy: found the observation {name} {list(shape)}, expected one of its environment: {offered}; "
                "only policies of NavEnv can be exported"
            )
        found.append(specs[name])
    return found


def describe(policy: PolicyAgent, config: NavConfig, static: bool = False) -> dict[str, Any]:
    """The description as values for JSON.

    Args:
        policy: the policy.
        config: its environment on the robot, from `deployment_config`.
        static: True for a batch size of 1; False: "batch" stands for any size.
    """
    trained, values = trained_config(policy.info), [*map(_observation, read_specs(policy, config))]
    inputs, outputs = [*values, *_recurrent_inputs(policy)], _outputs(policy)
    if static:
        for value in (*inputs, *outputs):
            value["shape"] = [1 if size == "batch" else size for size in value["shape"]]
    return {
        "format": FORMAT, "task": config.task_name, "expert": policy.info.get("expert"),
        "frames": policy.info.get("frames"),
        "cameras": {
            name or "main": _camera(camera, trained.all_cameras[name]) for name, camera in config.all_cameras.items()
        },
        "depth": {name: getattr(config.depth, name) for name in ("min_depth", "max_depth", "hole_value")},
        **({"lidar": _lidar(config.lidar)} if LIDAR in config.sensors else {}),
        "inputs": inputs, "outputs": outputs,
        "actions": _actions(config.body),
        "body": {"radius": config.body.agent_radius, "height": config.body.agent_height},
        "environment": to_dict(config),
    }  # fmt: skip


def read_description(path: str | Path) -> dict[str, Any]:
    """The description in a JSON file. ArgumentError where it cannot be read or is none."""
    found = read_json(Path(path), ArgumentError, gzipped=False)
    if not isinstance(found, dict) or found.get("format") != FORMAT:
        kind = found.get("format") if isinstance(found, dict) else type(found).__name__
        raise ArgumentError(f"{path}: found format {kind!r}, expected {FORMAT!r}; write it again by `batchnav export`")
    return found


def state_names(count: int, prefix: str = STATE) -> list[str]:
    """Names of the tensors of a memory's state in the ONNX file, in the order of `policy.memory.state_tensors`."""
    return [prefix] if count == 1 else [f"{prefix}_{index}" for index in range(count)]


def _camera(camera: CameraConfig, trained: CameraConfig) -> dict[str, Any]:
    """A camera: size, fields of view, camera matrix, distortion, pose on the body, and the ranges of training."""
    (fx, _, cx), (_, fy, cy), _ = camera.intrinsics.tolist()
    return {
        "width": camera.width, "height": camera.height, "hfov_deg": camera.hfov_deg,
        "vfov_deg": round(math.degrees(2 * math.atan(camera.height / 2 / fy)), 6),
        "focal_length_pixels": round(fx, 6), "distortion": list(camera.distortion),
        "fx": round(fx, 6), "fy": round(fy, 6), "cx": round(cx, 6), "cy": round(cy, 6),
        "height_above_floor": camera.camera_height, "forward": camera.camera_forward, "left": camera.camera_left,
        "heading_deg": camera.camera_heading_deg, "pitch_deg": camera.camera_pitch_deg,
        "trained_heights": list(trained.heights), "trained_hfov_deg": list(trained.hfovs_deg),
    }  # fmt: skip


def _lidar(config: LidarConfig) -> dict[str, Any]:
    """A LiDAR: angles and ranges as in a sensor_msgs/LaserScan, its rows, and its pose on the body."""
    own, angles = config.resolved, config.angles
    return {
        "angle_min": float(angles[0]), "angle_max": float(angles[-1]), "angle_increment": float(angles[1] - angles[0]),
        "range_min": own.range_min, "range_max": own.range_max, "rows": own.rows,
        "vertical_fov_deg": own.vertical_fov_deg, "height_above_floor": own.lidar_height, "forward": own.lidar_forward,
        "left": own.lidar_left, "heading_deg": own.lidar_heading_deg,
    }  # fmt: skip


def _observation(spec: Spec) -> dict[str, Any]:
    """An observation: name, type, shape, range and meaning; null for a sensor without a known meaning."""
    kind = next((kind for kind in MEANINGS if spec.name == kind or spec.name.endswith(f"_{kind}")), "")
    limits = [value if math.isfinite(value) else None for value in (float(spec.low), float(spec.high))]
    return {
        "name": spec.name, "dtype": str(spec.dtype).removeprefix("torch."), "shape": ["batch", *spec.shape],
        "range": limits, "meaning": MEANINGS.get(kind),
    }  # fmt: skip


def _recurrent_inputs(policy: PolicyAgent) -> list[dict[str, Any]]:
    """The inputs beside the observations; none without memory."""
    network = policy.network
    state = state_tensors(network.initial_state(1))
    if not state:
        return []
    start = _value(EPISODE_START, "bool", ["batch"], "True at the first step of an episode; memory then restarts.")
    kind = str(network.actions.dtype).removeprefix("torch.")
    meaning = "Action of the step before, as it was chosen: not clipped. Any value where an episode starts."
    previous = _value(PREVIOUS_ACTION, kind, ["batch", *network.actions.shape], meaning)
    states = [
        _state(policy, name, tensor, f"{name.replace(STATE, NEXT_STATE)} of the step before; zeros at the first.")
        for name, tensor in zip(state_names(len(state)), state, strict=True)
    ]
    return [*([previous] if network.body.reads_previous_action else []), start, *states]


def _outputs(policy: PolicyAgent) -> list[dict[str, Any]]:
    """The outputs: distribution of the action, value, memory."""
    network = policy.network
    found = []
    for name, meaning in _DISTRIBUTIONS[bool(network.actions.shape)].items():
        size = network.actions.shape or (network.actions.num_outputs,)
        found.append(_value(name, "float32", ["batch", *size], meaning))
    found.append(_value(VALUE, "float32", ["batch"], "Estimate of the discounted reward until the episode ends."))
    state = state_tensors(network.initial_state(1))
    for name, tensor in zip(state_names(len(state), NEXT_STATE), state, strict=True):
        found.append(_state(policy, name, tensor, f"{name.replace(NEXT_STATE, STATE)} of the next step."))
    return found


_DISTRIBUTIONS: dict[bool, dict[str, str]] = {
    False: {"probabilities": "Probability of each action of the table."},
    True: {"mean": "Mean of each component of the action.", "std": "Standard deviation of each component."},
}
"""Meaning of the distribution's parameters, for discrete and for continuous actions."""


def _state(policy: PolicyAgent, name: str, tensor: torch.Tensor, meaning: str) -> dict[str, Any]:
    """A tensor of the memory's state, with "batch" in the dimension that counts agents."""
    sizes: list[Any] = list(tensor.shape)
    sizes[policy.network.body.agent_dim] = "batch"
    return _value(name, str(tensor.dtype).removeprefix("torch."), sizes, meaning)


def _value(name: str, dtype: str, shape: list[Any], meaning: str) -> dict[str, Any]:
    return {"name": name, "dtype": dtype, "shape": shape, "meaning": meaning}


def _actions(body: BodyConfig) -> dict[str, Any]:
    """The actions: a table of steps and turns, or ranges of two speeds."""
    if body.is_discrete:
        amounts = {
            FORWARD: {"metres": body.forward_step}, LEFT: {"degrees": body.turn_angle_deg},
            RIGHT: {"degrees": -body.turn_angle_deg}, LOOK_UP: {"camera_degrees": body.tilt_angle_deg},
            LOOK_DOWN: {"camera_degrees": -body.tilt_angle_deg},
        }  # fmt: skip
        names = ACTIONS[: NUM_ACTIONS[body.control]]
        table = [{"index": index, "name": name, **amounts.get(index, {})} for index, name in enumerate(names)]
        return {"kind": "discrete", "table": table, "max_camera_degrees": body.max_tilt_deg}
    velocity = body.velocity
    return {
        "kind": "velocity", "time_step": velocity.time_step,
        "rule": "speed = lowest + (clip(action, -1, 1) + 1) / 2 * (highest - lowest); below both minima: stop",
        "components": [
            {"index": 0, "name": "forward", "unit": "m/s", "lowest": velocity.lin_vel_range[0],
             "highest": velocity.lin_vel_range[1], "minimum": velocity.min_abs_lin_speed},
            {"index": 1, "name": "left", "unit": "degrees/s", "lowest": velocity.ang_vel_range_deg[0],
             "highest": velocity.ang_vel_range_deg[1], "minimum": velocity.min_abs_ang_speed_deg},
        ],
    }  # fmt: skip


OLDEST_TORCH = (2, 7)
"""Oldest version of PyTorch whose exporter can write policies."""
OPSET = 18
"""Version of ONNX's operators in the file; TensorRT 10 and ONNX Runtime 1.14 read it."""
_BATCH = 2
"""Agents of the example that is traced for a free batch size: sizes 0 and 1 would become constants."""


class PolicyStep(nn.Module):
    """One step of a policy, with a flat list of inputs and outputs.

    Args:
        network: the policy.
        names: names of the observations, in the order of the inputs.
    """

    def __init__(self, network: ActorCritic, names: Sequence[str]):
        super().__init__()
        self.network, self._names = network, tuple(names)
        self._state = network.initial_state(1)

    def forward(self, *inputs: torch.Tensor) -> tuple[torch.Tensor, ...]:
        """Distribution, value and next state, from the inputs that `input_names` lists."""
        values = dict(zip(self.input_names, inputs, strict=True))
        observations = {name: values[name] for name in self._names}
        num_envs, device = inputs[0].shape[0], inputs[0].device  # `len` would make the number a constant
        network, state = self.network, iter([values[name] for name in self._state_names])
        action, none = network.actions, torch.zeros(num_envs, dtype=torch.bool, device=device)
        no_action = torch.zeros(num_envs, *action.shape, dtype=action.dtype, device=device)
        outputs, value, following = network.step(
            observations, values.get(PREVIOUS_ACTION, no_action), values.get(EPISODE_START, none),
            map_state(lambda _: next(state), self._state),
        )  # fmt: skip
        return *action.distribution(outputs).values(), value, *state_tensors(following)

    @property
    def input_names(self) -> list[str]:
        """Names of the inputs: observations, previous action, episode start, state; without memory: observations."""
        if not self._state_names:
            return list(self._names)
        previous = [PREVIOUS_ACTION] if self.network.body.reads_previous_action else []
        return [*self._names, *previous, EPISODE_START, *self._state_names]

    @property
    def output_names(self) -> list[str]:
        """Names of the outputs: parameters of the distribution, value, next state."""
        actions = self.network.actions
        parameters = actions.distribution(torch.zeros(1, actions.num_outputs, dtype=torch.float32, device="cpu"))
        return [*parameters, VALUE, *state_names(len(self._state_names), NEXT_STATE)]

    @property
    def _state_names(self) -> list[str]:
        return state_names(len(state_tensors(self._state)))

    def example(self, dtypes: Sequence[torch.dtype], num_envs: int) -> tuple[torch.Tensor, ...]:
        """Inputs of zeros at an episode's start; `dtypes` are those of the observations."""
        network = self.network
        shapes = [network.observation_shapes[name] for name in self._names]
        observations = [
            torch.zeros(num_envs, *shape, dtype=dtype, device="cpu")
            for shape, dtype in zip(shapes, dtypes, strict=True)
        ]
        if not self._state_names:
            return tuple(observations)
        action = torch.zeros(num_envs, *network.actions.shape, dtype=network.actions.dtype, device="cpu")
        previous = [action] if network.body.reads_previous_action else []
        start = torch.ones(num_envs, dtype=torch.bool, device="cpu")
        state = state_tensors(network.initial_state(num_envs))
        return *observations, *previous, start, *state

    def batch_dims(self) -> list[int]:
        """The dimension of each input that counts agents."""
        states = set(self._state_names)
        return [self.network.body.agent_dim if name in states else 0 for name in self.input_names]


def export_policy(
    policy: PolicyAgent | str | Path,
    path: str | Path,
    camera_height: float | None = None,
    hfov_deg: float | None = None,
    static: bool = False,
    camera_info: str | Path | None = None,
) -> Path:
    """Write a policy as an ONNX file, and its description as a JSON file of the same name.

    Args:
        policy: policy file, run folder, name of a bundled policy, or a loaded policy of NavEnv.
        path: the .onnx file to write.
        camera_height: height of the robot's camera above the floor, metres; None: that of training.
        hfov_deg: horizontal field of view of the robot's camera, degrees; None: that of training.
        camera_info: calibration file of the robot's camera, as in `load_camera_info`, resized to the policy's image.
        static: fix the batch size at 1, so that all shapes are constants, as TensorRT and other compilers need.

    Returns:
        Path of the JSON file.

    Raises:
        ArgumentError: the path is no .onnx file, or cannot be written.
        MissingPackageError: a package of the extra `export` is missing.
    """
    path = Path(path)
    if path.suffix != ".onnx":
        raise ArgumentError(f"{path}: found suffix {path.suffix!r}, expected .onnx")
    check_target(path, ArgumentError)
    check_packages()  # raises before the policy is loaded
    policy = policy if isinstance(policy, PolicyAgent) else load_policy(policy)
    config = deployment_config(policy, camera_height, hfov_deg, camera_info)
    specs, description = read_specs(policy, config), describe(policy, config, static)
    with replacing(path.with_suffix(".json"), ArgumentError) as part:  # complete only once the ONNX file is
        part.write_text(json.dumps(description, indent=2) + "\n", encoding="utf-8")
        write_onnx(policy.network, {spec.name: spec.dtype for spec in specs}, path, static)
    return path.with_suffix(".json")


def check_packages() -> None:
    """MissingPackageError without the packages of the extra `export`, or with a PyTorch that is too old."""
    if missing := [name for name in ("onnx", "onnxscript") if importlib.util.find_spec(name) is None]:
        names, command = " and ".join(missing), install_command("export", *missing)
        raise MissingPackageError(f"export: found no package {names}, expected it: {command}")
    if tuple(map(int, torch.__version__.split(".")[:2])) < OLDEST_TORCH:
        expected = ".".join(map(str, OLDEST_TORCH))
        raise MissingPackageError(f"export: found PyTorch {torch.__version__}, expected {expected} or later")


def write_onnx(network: ActorCritic, dtypes: dict[str, torch.dtype], path: Path, static: bool = False) -> None:
    """Write one step of a network as an ONNX file; `dtypes` are those of its observations by name, in order.

    `static` fixes the batch size at 1.

    ArgumentError where the file cannot be written, MissingPackageError without the extra `export` or with a PyTorch
    older than 2.7, whose exporter cannot write these networks.
    """
    check_packages()
    with torch_defaults(), torch.no_grad(), _quiet():
        step = PolicyStep(copy.deepcopy(network).cpu(), list(dtypes)).eval()
        shapes: tuple[dict[int, Any], ...] = tuple({dim: "batch"} for dim in step.batch_dims())
        program = torch.onnx.export(
            step, step.example(list(dtypes.values()), 1 if static else _BATCH), dynamo=True, verbose=False,
            dynamic_shapes=None if static else (shapes,), opset_version=OPSET,
            input_names=step.input_names, output_names=step.output_names,
        )  # fmt: skip
        if program is None:  # only the exporter without dynamo returns None
            raise BatchnavError("export: found no ONNX program, expected one")
        with replacing(path, ArgumentError) as part:
            program.save(part)


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Context without the exporter's warnings on packages and axis names, which do not concern policies."""
    log = logging.getLogger("torch.onnx")
    level = log.level
    try:
        log.setLevel(logging.ERROR)
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", module=r"torch\..*|copyreg")
            yield
    finally:
        log.setLevel(level)
