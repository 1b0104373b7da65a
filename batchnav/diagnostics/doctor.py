"""`batchnav doctor`: devices and renderers of the machine, and the memory of a training run."""

from __future__ import annotations

import math
import os
import shutil
import statistics
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import torch

from batchnav.config import load_config
from batchnav.data.formats import load_episodes
from batchnav.data.play import played_scene_ids
from batchnav.data.scenes.cached import cached_files, most_bytes
from batchnav.data.scenes.datasets import find_sources
from batchnav.data.scenes.ids import scene_ids
from batchnav.data.scenes.load import map_scenes
from batchnav.data.scenes.prepared import save_prepared
from batchnav.data.scenes.source import SceneSource
from batchnav.diagnostics.installation import Finding, package
from batchnav.envs.config import NavConfig
from batchnav.envs.observations import observation_sources, space_of, specs_of
from batchnav.errors import DeviceError
from batchnav.learning import Rollout
from batchnav.navmesh.heap import search_scratch
from batchnav.observation import memory_of
from batchnav.policy.actor_critic import ActorCritic
from batchnav.policy.memory import state_tensors
from batchnav.policy.pretrained import weights_follow
from batchnav.procedural import make_material_library
from batchnav.renderers.opengl.gl import EGLDevice, cuda_match, egl_devices, open_context
from batchnav.runtime.device import resolve_device
from batchnav.runtime.imports import install_command
from batchnav.runtime.parallel import num_threads
from batchnav.scene.resident import SceneSize, num_resident_scenes, slots_of
from batchnav.scene.textures import Palette
from batchnav.sensors.frame import BYTES_RENDERED, appearance_needed, images_needed
from batchnav.sim.bodies import Bodies
from batchnav.sim.episodes import SamplingQueue
from batchnav.sim.simulator import CHUNKS_PER_THREAD
from batchnav.tasks import TASKS
from batchnav.training.config import TrainingConfig

# Prediction of the device memory of a training run, before it starts: `predict_memory`

META = torch.device("meta")
"""PyTorch's device for tensors with shape and dtype but no data."""
COPIES_OF_WEIGHTS = 4
"""Weights, gradients, and the optimiser's two moments, all float32."""
SAMPLE_STEPS, SAMPLE_FRAMES = 32, 64
"""Most steps of the sequences that the network is measured with, and the least number of their frames."""
LAYERS_AT_ONCE = 3
"""Outputs of the largest layer's size that a frozen encoder's forward pass holds at a time."""
LARGEST_IN_BACKWARD = 3
"""Gradients of the largest layer's size that the backward pass allocates in addition to the saved activations."""


def predict_memory(run: TrainingConfig, scenes: Sequence[SceneSize], device: torch.device) -> dict[str, int]:
    """Bytes of all tensors at the peak of a run, by part.

    The driver, CUDA's context and rounding by the allocator are not included. Activations are those of the uncompiled
    network; the compiled one may save fewer. A texture counts once for each scene that has it, and once more for
    the material library.

    Args:
        run: configuration of the run.
        scenes: sizes of its scenes, from `data.scenes.load.map_scenes`.
        device: device of the run. The network runs there on a few frames.
    """
    scenes = [scene.with_appearance(run.appearance_fields) for scene in scenes]
    largest, specs = SceneSize.largest(scenes), specs_of(run.env)
    resident = num_resident_scenes(scenes, run.scenes.resident_scenes, run.scenes.gigabytes)
    storage = {spec.name: spec.stored_on(device) for spec in specs}
    observations = space_of(specs)
    with weights_follow():
        policy = ActorCritic(observations, run.env.body.action_space, run.policy).to(device)
    weights = sum(parameter.nbytes for parameter in policy.parameters() if parameter.requires_grad)
    frozen = sum(parameter.nbytes for parameter in policy.parameters() if not parameter.requires_grad)
    frames = run.learner.frames_per_update // run.learner.minibatches
    steps = min(run.learner.rollout_steps, SAMPLE_STEPS)
    in_memory = sum(size.num_bytes for size in (slots_of(scenes, resident) if resident else scenes))
    return {
        "scenes": in_memory + (_library_bytes() if run.scenes.randomize_materials else 0),
        "simulator": _simulator(run, largest, device),
        "images": _images(run, device, largest.semantic is not None),
        "rollout": _rollout(run, policy, storage, device),
        **({"encoding": _encoding(policy, storage, run.learner.num_envs, device)} if policy.encoded_shapes else {}),
        "weights and optimiser": COPIES_OF_WEIGHTS * weights + frozen,
        "learning": round(frames * _kept_per_frame(policy, storage, device, steps)),
    }


def _library_bytes() -> int:
    """Bytes of the library that materials are sampled from."""
    palette = Palette()
    palette.add_library(make_material_library())
    return sum(array.nbytes for array in palette.arrays())


def _simulator(run: TrainingConfig, largest: SceneSize, device: torch.device) -> int:
    """Bytes of bodies, task and search memory."""
    n, task = run.learner.num_envs, TASKS[run.env.task_name]
    parts = (Bodies.empty(n, META), SamplingQueue.empty(n, META), *task.arrays(n, META, run.env.task))
    origin = n * 8 + 16  # scene of each environment, the seed, and the number of the first environment
    rows = task.search_rows(n, device, min(n, num_threads() * CHUNKS_PER_THREAD))
    scratch = sum(search_scratch(largest.search_size, r, META).data.nbytes for r in rows)
    return sum(tensor.nbytes for part in parts for tensor in _tensors(part)) + origin + scratch


def _tensors(part) -> Iterator[torch.Tensor]:
    """The tensors of nested tuples."""
    if isinstance(part, torch.Tensor):
        yield part
    else:
        for entry in part:
            yield from _tensors(entry)


def _images(run: TrainingConfig, device: torch.device, has_semantic: bool) -> int:
    """Bytes of rendered images, of observation sources, and of the environment's observations."""
    n, sources = run.learner.num_envs, observation_sources(run.env).values()
    total = sum(n * math.prod(source.spec.shape) * source.spec.dtype.itemsize for source in sources)
    for (camera, scale, *_), readers in images_needed(sources, has_semantic).items():
        config, both = run.env.all_cameras[camera], any(source.requires.triangles for source in readers)
        total += n * scale**2 * config.height * config.width * BYTES_RENDERED * (2 if both else 1)
    return total + memory_of(sources, n, device) + run.env.disturbance_memory(n)


def _rollout(run: TrainingConfig, policy: ActorCritic, storage: Mapping[str, torch.dtype], device: torch.device) -> int:
    """Bytes of the rollout and of the recurrent state that the next rollout starts from."""
    num_envs = run.learner.num_envs
    rollout = Rollout(
        policy.rollout_shapes, policy.rollout_types(storage), run.learner.rollout_steps, num_envs, META, (),
        policy.actions, policy.encoded_shapes,
    )  # fmt: skip
    tensors = [value for value in vars(rollout).values() if isinstance(value, torch.Tensor)]
    total = sum(tensor.nbytes for tensor in [*tensors, *rollout.obs.values(), *rollout.latest.values()])
    # A state on `device`, since its types may depend on it.
    state = num_envs * sum(tensor.nbytes for tensor in state_tensors(policy.initial_state(1, device)))
    return total - rollout.action.nbytes + 2 * state  # `action` is a view


def _encoding(policy: ActorCritic, storage: Mapping[str, torch.dtype], num_envs: int, device: torch.device) -> int:
    """Bytes of a step's frozen features: outputs of the encoder's layers, and what is kept of goal images."""
    encoder, largest = policy.pretrained, 0

    def measure(module: torch.nn.Module, inputs: Any, output: Any) -> None:
        nonlocal largest
        largest = max(largest, output.nbytes if isinstance(output, torch.Tensor) else 0)

    assert encoder is not None  # there are encoded images
    hooks = [module.register_forward_hook(measure) for module in encoder.backbone.modules()]
    types, kept = policy.rollout_types(storage), 0
    for name, shape in policy.encoded_shapes.items():
        features = encoder.encode(torch.zeros(1, *shape, dtype=types[name], device=device))
        if name in encoder.settings.goals:
            kept += math.prod(shape) * types[name].itemsize + features.nbytes
    for hook in hooks:
        hook.remove()
    return num_envs * (LAYERS_AT_ONCE * largest + kept)


def _kept_per_frame(policy: ActorCritic, storage: Mapping[str, torch.dtype], device: torch.device, steps: int) -> float:
    """Peak bytes per frame of a learning step, measured with sequences of a few environments."""
    # The two numbers are coprime: a tensor whose size occurs with both does not grow with the frames (as the weights
    # in bfloat16), and does not count.
    few = max(SAMPLE_FRAMES // steps, 2)
    more = 2 * few + 1
    before, after = (_kept(policy, storage, device, steps, envs) for envs in (few, more))
    grown = sum(size for size, _ in after) - sum(size for size, _ in before)
    largest = max((size for size, of_layer in after if of_layer and (size, True) not in before), default=0)
    return grown / (steps * (more - few)) + LARGEST_IN_BACKWARD * largest / (steps * more)


def _kept(
    policy: ActorCritic, dtypes: Mapping[str, torch.dtype], device: torch.device, steps: int, envs: int
) -> list[tuple[int, bool]]:
    """Tensors that a learning step on `steps` steps of `envs` environments saves for the backward pass.

    Returns:
        Bytes of each saved storage, in the order of the layers, and True where its layer computes a gradient for it.
    """
    kept: dict[int, tuple[torch.UntypedStorage, bool]] = {}
    types = policy.rollout_types(dtypes)
    own = {parameter.untyped_storage().data_ptr() for parameter in policy.parameters()}

    def keep(tensor: torch.Tensor) -> torch.Tensor:
        storage = tensor.untyped_storage()
        if storage.data_ptr() not in own:
            # tensors saved by this package's own kernels never require a gradient
            kept[storage.data_ptr()] = storage, tensor.is_floating_point() and storage.data_ptr() not in read
        return tensor

    obs = {
        name: torch.rand(steps, envs, *shape, dtype=torch.float32, device=device).to(types[name])
        for name, shape in policy.rollout_shapes.items()
        if name not in policy.label_shapes
    }
    kind = policy.actions
    read = {value.untyped_storage().data_ptr() for value in obs.values()}
    actions = torch.zeros(steps, envs, *kind.shape, dtype=kind.dtype, device=device)
    starts = torch.zeros(steps, envs, dtype=torch.bool, device=device)
    state = policy.initial_state(envs, device)
    with (
        torch.autocast(device.type, dtype=torch.bfloat16, enabled=device.type == "cuda"),
        torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor),
    ):
        seen = policy.evaluate(obs, actions, starts, state, actions)
    sizes = [(storage.nbytes(), of_layer) for storage, of_layer in kept.values()]
    del seen
    return sizes


# Plan for a folder of scenes: memory, disk and time of all of them, from a few: `plan_findings`

SAMPLED = 3
"""Number of scenes that are loaded for a plan: the smallest, the median and the largest file."""
PLANNED = {"depth": ("depth",), "rgb + depth": ("rgb", "depth")}
"""Sensors whose device memory is told, by name."""


class SampledScene(NamedTuple):
    """Measurements of one scene."""

    size: int
    """Bytes of its files."""
    seconds: float
    """Duration of reading its files, baking and building."""
    prepared: int
    """Bytes of its prepared file."""
    memory: dict[str, int]
    """Bytes on the device by the names of `PLANNED`."""


def plan_findings(folder: Path, split: str = "train") -> list[Finding]:
    """What the scenes of a folder or dataset need: disk, time and device memory, and how many fit.

    A few scenes are loaded; the others are estimated by the sizes of their files. Raises MeshError where there are
    none, and for a scene that cannot be loaded.
    """
    sources = sorted(find_sources(folder, split), key=_size_of_files)
    places = sorted({0, len(sources) // 2, len(sources) - 1})[:SAMPLED]
    samples = [_sampled(sources[place]) for place in places]
    total, measured = sum(map(_size_of_files, sources)), sum(sample.size for sample in samples)
    scale = total / max(1, measured)
    prepared, seconds = (scale * sum(getattr(s, name) for s in samples) for name in ("prepared", "seconds"))
    free = shutil.disk_usage(sources[0].prepared.parent).free
    workers = max(1, min(num_threads(), len(sources)))
    findings = [
        Finding("plan: scenes", f"{len(sources):,} in {total / 1e9:.2f} GB; {len(samples)} were measured"),
        Finding(
            "plan: prepared files", f"{prepared / 1e9:.2f} GB, {free / 1e9:.0f} GB free",
            "" if prepared < free else "free some space, or name another disk: batchnav data prepare --out",
        ),
        Finding("plan: batchnav data prepare", f"{seconds / workers / 60:.1f} minutes with {workers} processes"),
        _page_cache(prepared, len(sources)),
    ]  # fmt: skip
    device = resolve_device("auto")
    available = _free_memory(device)
    for name in PLANNED:
        needed = scale * sum(sample.memory[name] for sample in samples)
        fit = int(available * len(sources) / needed) if needed else len(sources)
        every = "all fit" if fit >= len(sources) else f"{fit:,} fit"
        findings.append(
            Finding(
                f"plan: {name}",
                f"{needed / 1e9:.2f} GB; {every} into {available / 1e9:.0f} GB of {device}",
                "" if fit >= len(sources) else f"train with --scenes.gigabytes {max(1, int(0.5 * available / 1e9))}",
            )
        )
    return findings


def _page_cache(prepared: float, number: int) -> Finding:
    """Whether the system's file cache can hold all prepared files, which scene streaming reads again and again."""
    available = _host_memory()
    text = f"{prepared / 1e9:.2f} GB of prepared files, {available / 1e9:.0f} GB of memory for the file cache"
    if prepared <= available:
        return Finding("plan: file cache", text)
    missed = 1.0 - available / prepared
    return Finding(
        "plan: file cache", text,
        f"with scene streaming, about {missed:.0%} of the scenes, {prepared / number / 1e6:.0f} MB each, come from the "
        "disk: keep the prepared files on a fast one",
    )  # fmt: skip


def _host_memory() -> int:
    """Bytes of memory on the host that processes and the file cache can take."""
    for line in Path("/proc/meminfo").read_text().splitlines():
        if line.startswith("MemAvailable:"):
            return 1024 * int(line.split()[1])
    return _free_memory(torch.device("cpu"))


def _size_of_files(source: SceneSource) -> int:
    return sum(file.stat().st_size for file in source.files if file.is_file())


def _sampled(source: SceneSource) -> SampledScene:
    """Measurements of a scene, which is read from its files."""
    start = time.perf_counter()
    scene = source.load()
    seconds = time.perf_counter() - start
    with tempfile.TemporaryDirectory() as folder:
        save_prepared(scene, Path(folder) / "a.scene", compact=True)
        prepared = (Path(folder) / "a.scene").stat().st_size
    size = SceneSize.of(scene)
    memory = {
        name: size.with_appearance(
            appearance_needed(observation_sources(NavConfig(sensors=sensors)).values())
        ).num_bytes
        for name, sensors in PLANNED.items()
    }
    return SampledScene(_size_of_files(source), seconds, prepared, memory)


def _free_memory(device: torch.device) -> int:
    """Free bytes of a device; of the CPU, physical memory that is available."""
    if device.type == "cuda":
        return torch.cuda.mem_get_info(device)[0]
    return os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")


CUDA_PACKAGES = ("numba-cuda", "cuda-bindings", "nvidia-nvvm", "nvidia-cuda-nvrtc", "nvidia-nvjitlink")
"""Packages that compile kernels for a GPU. Conda and the system's toolkit may have them under other names."""
MAX_MEASURED = 64
"""Maximum number of scenes measured for a prediction: generating thousands of scenes takes minutes."""


def examine() -> list[Finding]:
    """Examine CUDA, NCCL, EGL and OpenGL."""
    findings = [*_cuda(), *_nccl(), *_egl()]
    opengl = _opengl()
    has_cuda = torch.cuda.is_available()
    where = torch.cuda.get_device_name() if has_cuda else f"{num_threads()} CPU threads"
    renderers = "raycast" if opengl.advice else "raycast; opengl with --renderer opengl; auto picks the faster one"
    files = cached_files()
    size = sum(file.stat().st_size for file in files)
    kept = Finding("cached scenes", f"{len(files)} of mesh files, {size / 1e9:.1f} of {most_bytes() / 1e9:.0f} GB")
    return [*findings, opengl, Finding("device: auto", where), Finding("renderers", renderers), kept]


def memory_findings(config: Path) -> list[Finding]:
    """Memory that `predict_memory` predicts for a training configuration, by part, on the configuration's device.

    If there are more than `MAX_MEASURED` scenes, that many are measured, evenly spaced over the list; each represents
    its neighbours. The first line of the report then gives the error of the estimate.
    """
    run = load_config(config, TrainingConfig)
    device = resolve_device(run.device)
    if run.scenes.episodes:
        names = sorted(set(played_scene_ids(load_episodes(run.scenes.episodes)).values()))
    else:
        names = scene_ids(run.scenes.names)
    n = min(len(names), MAX_MEASURED)
    chosen = [names[(2 * k + 1) * len(names) // (2 * n)] for k in range(n)]
    measured = map_scenes(SceneSize.of, chosen, run.env.body.navmesh, run.appearance)
    scenes = [measured[i * n // len(names)] for i in range(len(names))]
    parts = predict_memory(run, scenes, device)
    sizes = {**parts, f"total, on {device}": sum(parts.values())}
    findings = [Finding(f"memory: {name}", f"{size / 1e9:.3f} GB") for name, size in sizes.items()]
    if n < len(names):
        sizes_of_scenes = [scene.with_appearance(run.appearance_fields).num_bytes for scene in measured]
        findings.insert(0, Finding("memory: scenes measured", _sampling_error(sizes_of_scenes, len(names))))
    return findings


def _sampling_error(sizes: Sequence[int], number: int) -> str:
    """Sampling error, in words, of the total size of `number` scenes that is estimated from the measured `sizes`."""
    few = len(sizes)
    error = statistics.stdev(sizes) / statistics.mean(sizes) * math.sqrt(1 / few - 1 / number)
    return f"{few} of {number:,}: the total is within {1.96 * error:.0%} (95%); the largest scene may be larger"


def _cuda() -> list[Finding]:
    """CUDA devices that PyTorch finds, and the packages that compile kernels."""
    if torch.version.cuda is None:
        return [
            Finding("CUDA", "this PyTorch build is for the CPU", "for an NVIDIA GPU: install a CUDA build of PyTorch")
        ]
    if not torch.cuda.is_available():
        return [Finding("CUDA", "no device", "for an NVIDIA GPU: install its driver; nvidia-smi shows it")]
    findings = [package(name, install_command("cuda")) for name in CUDA_PACKAGES]
    for i in range(torch.cuda.device_count()):
        free, total = (size / 2**30 for size in torch.cuda.mem_get_info(i))
        findings.append(
            Finding(
                f"cuda:{i}",
                f"{torch.cuda.get_device_name(i)}, {free:.0f} of {total:.0f} GiB free, "
                f"PyTorch for CUDA {torch.version.cuda}",
            )
        )
    return findings


def _nccl() -> list[Finding]:
    """Communication of several processes: NCCL, its settings, and peer access between GPUs."""
    if not torch.distributed.is_available():
        return [
            Finding("several GPUs", "this PyTorch build has no torch.distributed", "install PyTorch from pytorch.org")
        ]
    if not torch.distributed.is_nccl_available():
        return [Finding("NCCL", "not in this PyTorch build; several processes train on the CPU with Gloo")]
    version = torch.cuda.nccl.version()
    version = ".".join(map(str, version)) if isinstance(version, tuple) else str(version)
    settings = [f"{name}={value}" for name, value in sorted(os.environ.items()) if name.startswith("NCCL_")]
    findings = [Finding("NCCL", ", ".join([version, *settings]))]
    count = torch.cuda.device_count() if torch.cuda.is_available() else 0
    if count > 1:
        pairs = [(i, j) for i in range(count) for j in range(i + 1, count)]
        apart = [f"cuda:{i} and cuda:{j}" for i, j in pairs if not torch.cuda.can_device_access_peer(i, j)]
        found = f"no peer access between {', '.join(apart[:8])}" if apart else "peer access between all"
        advice = "sums over these GPUs pass through host memory; nvidia-smi topo -m shows the links" if apart else ""
        findings.append(Finding(f"peer access of {count} GPUs", found, advice))
    return findings


def _egl() -> list[Finding]:
    """EGL devices, with the CUDA device of each."""
    try:
        devices = egl_devices()
    except DeviceError as error:
        return [Finding("EGL", "missing", str(error))]
    ordinals = range(torch.cuda.device_count()) if torch.cuda.is_available() else ()
    matches = {match.index: i for i in ordinals if (match := cuda_match(i, devices))}
    return [Finding(f"EGL device {d.index}", _describe(d, matches.get(d.index))) for d in devices]


def _describe(device: EGLDevice, cuda_index: int | None) -> str:
    """Name of an EGL device and of its CUDA device."""
    return (device.name or "unnamed") + ("" if cuda_index is None else f", cuda:{cuda_index}")


def _opengl() -> Finding:
    """The OpenGL context that the renderer would use."""
    device = torch.device("cuda", torch.cuda.current_device()) if torch.cuda.is_available() else torch.device("cpu")
    try:
        context = open_context(device)
    except DeviceError as error:
        return Finding("OpenGL", "no context", str(error))
    with context:
        found = f"{context.renderer} on EGL device {context.device.index}"
    context.release()
    return Finding("OpenGL", found)
