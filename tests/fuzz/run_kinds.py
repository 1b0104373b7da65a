"""Kinds of files beside scenes: noise tables, predictor weights, curves, states to resume from, viewer messages."""

from __future__ import annotations

import hashlib
import io
import json
import types
from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec.msgpack
import mutate
import numpy as np
import torch
import yaml

from batchnav.config import to_dict
from batchnav.envs.nav import NavEnv
from batchnav.errors import ArgumentError
from batchnav.mapping.predictor import OccupancyNet, load_occupancy, network_input, save_occupancy
from batchnav.report.charts import Rows, charts, learning_curves, load_metrics
from batchnav.scene.scene import Scene
from batchnav.sensors.noise import RedwoodNoise, synthetic_table
from batchnav.sensors.sensor import NoiseCounters
from batchnav.training.config import TrainingConfig
from batchnav.training.curves import rows_until
from batchnav.training.folder import RunFolder
from batchnav.training.validation import Checkpoints
from batchnav.view.viewer.guard import accepts

CONTROL_VALUES = [0, 1, 2, 5.5, 7.25, 8, 10, -1, 11, 1e300, float("nan"), float("inf"), True, "5", None, [5]]
"""Values for a slider from 0 to 10."""
Use = Callable[[], object]
Made = tuple[str, Path, Use, tuple[Callable, ...]]
"""Name, good file, use and mutators of a kind."""


def run_kinds(folder: Path, floor: Scene) -> Iterator[Made]:
    """All of them, their good files written below `folder`."""
    path = folder / "table.npy"
    np.save(path, synthetic_table().reshape(80, 400))
    yield "table", path, lambda path=path: measure(path), (mutate.blindly, npy, npy)
    path = folder / "occupancy.safetensors"
    torch.manual_seed(0)
    save_occupancy(path, OccupancyNet())
    yield "predictor", path, lambda path=path: predict(path), (mutate.blindly, weights, weights)
    path = folder / "metrics.jsonl"
    rows = [
        {"frames": 100 * k, "seconds": 2.0 * k, "spl": 0.1 * k, "return": None if k < 2 else 1.0, "episodes": {"a": 1}}
        for k in range(6)
    ]
    path.write_text("".join(json.dumps(row) + "\n" for row in [*rows, {"frames": 500, "eval": {"spl": 0.3}}]))
    yield "metrics", path, lambda path=path: plot(path), (mutate.blindly, json_line, json_line)
    yield _state(folder / "run", floor)
    camera = {
        "type": "ViewerCameraMessage", "wxyz": [1.0, 0.0, 0.0, 0.0], "position": [0.0, 1.0, 2.0], "fov": 1.0,
        "near": 0.1, "far": 100.0, "image_height": 300, "image_width": 400, "look_at": [0.0, 0.0, 0.0],
        "up_direction": [0.0, 1.0, 0.0],
    }  # fmt: skip
    control = {"type": "GuiUpdateMessage", "uuid": "u", "updates": {"value": 3}}
    for name, fields in (("camera", camera), ("control", control)):
        path = folder / f"{name}.msgpack"
        path.write_bytes(msgspec.msgpack.encode(fields))
        yield name, path, lambda path=path: receive(path.read_bytes()), (mutate.blindly, message, message)


def _state(folder: Path, floor: Scene) -> Made:
    """A state to resume from, with the maps of two agents."""
    folder.mkdir()
    env = NavEnv([floor], 2, "cpu", seed=0, sensors=("waypoint",))
    env.reset()
    for _ in range(3):
        env.step(torch.tensor([1, 2]))
    content = io.BytesIO()
    torch.save({"learner": {"frames": 5, "env": env.state_dict()}, "seconds": 1.0}, content)
    path = folder / "resume.pt"
    path.write_bytes(sealed(content.getvalue()))
    (folder / "config.yaml").write_text(yaml.safe_dump(to_dict(TrainingConfig())))

    def resume() -> None:
        with RunFolder(folder, TrainingConfig()) as run:
            env.load_state_dict(run.load()["env"])
        for action in ([1, 2], [3, 0]):
            env.step(torch.tensor(action))

    return "resume", path, resume, (mutate.blindly, state, state)


def sealed(data: bytes) -> bytes:
    """A resume file with the checksum that training appends."""
    return data + b"sha256:" + hashlib.sha256(data).hexdigest().encode()


def measure(path: Path) -> None:
    """Measured depths from 0 to 12 m with a table's distortion."""
    zero = torch.zeros(1, dtype=torch.int64)
    noise = NoiseCounters(zero, zero, zero.int(), zero.int(), 0)
    measured = RedwoodNoise(1.0, str(path)).measure(noise, torch.linspace(0.0, 12.0, 96).reshape(1, 8, 12))
    assert measured.isfinite().all() and measured.min() >= 0.0


def predict(path: Path) -> None:
    """Logits of an empty map."""
    empty = torch.zeros(1, 128, 128, dtype=torch.bool)
    with torch.no_grad():
        assert load_occupancy(path).eval()(network_input(empty, empty, torch.zeros(1, 3, 2))).shape == (1, 128, 128)


def plot(path: Path) -> None:
    """Charts, rows to keep, and the best score so far."""
    rows = Rows(*load_metrics(path))
    metrics = {"spl": (0.0, 1.0)}
    assert len(charts({"a": rows, "b": rows}, metrics)) <= len(learning_curves()) + 1
    rows_until(path, 250)
    Checkpoints(path.parent, 10, ("spl", "success"), lambda file: None).after_validation({"spl": 0.5})


def receive(raw: bytes) -> None:
    """A message to the viewer, which has one slider; ArgumentError where it is dropped."""
    slider = types.SimpleNamespace(min=0, max=10, value=5)
    server = types.SimpleNamespace(gui=types.SimpleNamespace(_gui_input_handle_from_uuid={"u": slider}))
    if not accepts(server, raw):
        raise ArgumentError("the message is dropped")
    fields = msgspec.msgpack.decode(raw)
    if fields["type"] == "GuiUpdateMessage":
        assert 0 <= fields["updates"]["value"] <= 10


def npy(data: bytes, draw: np.random.Generator) -> bytes:
    """A table with another header, of which the length is right, or with other numbers."""
    values = np.load(io.BytesIO(data))
    if draw.integers(2):
        file = io.BytesIO()
        kinds = np.float64, np.float16, np.float32, np.complex64, np.int8, ">f4", "U3", "V4", "M8[s]"
        with np.errstate(all="ignore"):
            changed = mutate.array(values, draw)
            if draw.integers(3) == 0:
                changed = changed.astype(kinds[draw.integers(len(kinds))])
        np.save(file, np.asfortranarray(changed) if draw.integers(4) == 0 else changed)
        return file.getvalue()
    shapes = "(80, 400)", "(10**12,)", "(1000000000000,)", "(-1, 400)", "(80, 400, 0)", "()", "(80.0, 400)", "(" * 500
    types_ = "'<f4'", "'<f8'", "'|O'", "[('a', '<f4')]", "'<f4' * 9", "None", "'V0'", "'<U999999999'", "'" + "(" * 500
    header = f"{{'descr': {types_[draw.integers(len(types_))]}, 'fortran_order': {draw.integers(3)}, "
    header += f"'shape': {shapes[draw.integers(len(shapes))]}, }}" + "\n" * int(draw.integers(3))
    if draw.integers(2):
        header = header.replace("'fortran_order': 0", "'fortran_order': False").replace("': 1, '", "': True, '")
    text, version = header.encode(), int(draw.integers(1, 4))
    return (
        b"\x93NUMPY" + bytes([version, 0]) + len(text).to_bytes(2 if version == 1 else 4, "little") + text + data[128:]
    )


def weights(data: bytes, draw: np.random.Generator) -> bytes:
    """Weights of which a tensor has other numbers, another type or shape, or is absent."""
    from safetensors.torch import load, save

    tensors = load(data)
    name = sorted(tensors)[draw.integers(len(tensors))]
    value = tensors.pop(name)
    kinds = torch.float8_e4m3fn, torch.float16, torch.float64, torch.int32, torch.complex64
    how = draw.integers(6)
    if how == 0:
        value = value.to(kinds[draw.integers(len(kinds))])
    elif how == 1:
        value = value.reshape(-1)[: int(draw.integers(3))]
    elif how < 5:
        with np.errstate(all="ignore"):
            changed = torch.from_numpy(mutate.array(value.float().numpy(), draw))
        value = changed.to(value.dtype) if how < 4 else changed
    tensors |= {} if draw.integers(10) == 0 else {name: value.contiguous()}
    return save({key: each.clone() for key, each in tensors.items()})


def json_line(data: bytes, draw: np.random.Generator) -> bytes:
    """Curves of which a row has other values."""
    lines = data.splitlines()
    at = int(draw.integers(len(lines)))
    lines[at] = json.dumps(mutate.json_value(json.loads(lines[at]), draw)).encode()
    return b"\n".join(lines) + b"\n"


def state(data: bytes, draw: np.random.Generator) -> bytes:
    """A state of which some tensors have other numbers, types or shapes, or are absent; its checksum is right again."""
    if draw.integers(8) == 0:
        return sealed(mutate.blindly(data[:-71], draw))
    found = torch.load(io.BytesIO(data), weights_only=True)
    tensors = found["learner"]["env"]
    names = sorted(tensors)
    for _ in range(draw.integers(1, 4)):
        name = names[draw.integers(len(names))]
        value = tensors.get(name)
        how = draw.integers(12)
        if how == 0:
            tensors.pop(name, None)
        elif how == 1:
            tensors[name] = mutate.VALUES[draw.integers(len(mutate.VALUES))]
        elif not isinstance(value, torch.Tensor):
            continue
        elif how == 2:
            tensors[name] = value.double() if value.is_floating_point() else value.to(torch.int16)
        elif how == 3:
            tensors[name] = value.reshape(-1)[:-1]
        else:
            with np.errstate(all="ignore"):
                changed = mutate.array(value.numpy(), draw)
            tensors[name] = torch.from_numpy(changed.copy())
    content = io.BytesIO()
    torch.save(found, content)
    return sealed(content.getvalue())


def message(data: bytes, draw: np.random.Generator) -> bytes:
    """A message with other fields, or of which a control's value is another."""
    fields = msgspec.msgpack.decode(data)
    try:
        if "updates" in fields and draw.integers(2):
            fields["updates"]["value"] = CONTROL_VALUES[draw.integers(len(CONTROL_VALUES))]
            return msgspec.msgpack.encode(fields)
        return msgspec.msgpack.encode(mutate.json_value(fields, draw))
    except (OverflowError, TypeError, ValueError):  # integers beyond 64 bits have no place in a message
        return mutate.blindly(data, draw)
