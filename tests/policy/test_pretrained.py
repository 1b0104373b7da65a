"""Pretrained encoders: features as timm computes them, what a rollout keeps, weights from files, policies on disk."""

import hashlib
import importlib.util
import json
import sys
from dataclasses import replace

import numpy as np
import pytest
import torch
from gymnasium import spaces
from networks import policy_config
from safetensors.torch import safe_open, save_file

from batchnav.config import from_dict
from batchnav.errors import CheckpointError, ConfigError, MissingPackageError
from batchnav.learning import PPO, PPOConfig
from batchnav.policy import ENCODERS, ActorCritic, PolicyAgent, load_policy, save_policy
from batchnav.policy.config import PolicyConfig
from batchnav.policy.pretrained import GOALS_PER_STEP, FeatureMemory, features_of, import_timm
from batchnav.training.config import TrainingConfig
from batchnav.training.loop import train

if importlib.util.find_spec("timm") is None:  # `import_timm` mends its torchvision
    pytest.skip("needs timm, of the extra vision", allow_module_level=True)
timm = import_timm()
BF16 = 1e-3  # of the issue: relative to the largest feature
FUSED = 0.05  # bfloat16 through twelve blocks, rounded at other places; relative to the largest feature
DEVICES = ["cpu", pytest.param("cuda", marks=pytest.mark.cuda)]
MODELS = {
    "vit with registers": ("vit_small_patch14_reg4_dinov2", 28),
    "vit with class token": ("vit_tiny_patch16_224", 32),
    "resnet": ("resnet18", 64),
    "convnext": ("convnext_atto", 64),
}
STEPS, N = 4, 16


def colour(size, channels=3):
    return spaces.Box(0, 255, (channels, size, size), np.uint8)


def space(size, *names, **more):
    return spaces.Dict({**{name: colour(size) for name in names}, **more})


def config(name="vit_tiny_patch16_224", **settings):
    return policy_config(
        layers=1, encoder=f"timm:{name}", visual_size=16, hidden_size=16, timm={"weights": "random", **settings}
    )


def network(size=32, names=("rgb",), model="vit_tiny_patch16_224", more=None, **settings):
    return ActorCritic(space(size, *names, **(more or {})), spaces.Discrete(3), config(model, **settings))


def images(*shape, seed=0):
    return torch.randint(0, 256, shape, generator=torch.Generator().manual_seed(seed), dtype=torch.uint8)


def plain(name, size, state, device):
    """timm's own model with these weights, in evaluation mode."""
    options = {"num_classes": 0} | ({"img_size": size} if name.startswith("vit") else {})
    model = timm.create_model(name, **options)
    model.load_state_dict(state)
    return model.eval().to(device)


def of_timm(model, image):
    """Normalised images through timm's `forward_features`; weights and images in bfloat16."""
    cfg = model.pretrained_cfg
    mean, std = (torch.tensor(cfg[key], device=image.device)[:, None, None] for key in ("mean", "std"))
    x = ((image / 255.0 - mean) / std).bfloat16().contiguous(memory_format=torch.channels_last)
    with torch.no_grad():
        return model.bfloat16().to(memory_format=torch.channels_last).forward_features(x)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("kind", MODELS)
def test_features_are_timms(kind, device):
    name, size = MODELS[kind]
    network_of = {f: network(size, model=name, features=f) for f in ("cls", "patch_mean", "patch_grid")}
    state = network_of["cls"].pretrained.backbone.model.state_dict()
    model = plain(name, size, state, device)
    image = images(2, 3, size, size).to(device)
    x = of_timm(model, image)
    with torch.no_grad():
        if x.dim() == 3:
            grid = x[:, model.num_prefix_tokens :].mT.unflatten(2, model.patch_embed.grid_size)
            expected = {"cls": x[:, 0], "patch_mean": grid.mean((2, 3)), "patch_grid": grid}
        else:
            norm = model.head.norm if kind == "convnext" else torch.nn.Identity()
            pooled = model.forward_head(x, pre_logits=True)
            expected = {"cls": pooled, "patch_mean": pooled, "patch_grid": norm(x)}
    for features, other in network_of.items():
        other.pretrained.backbone.model.load_state_dict(state)
        other.to(device)
        backbone = other.pretrained.backbone
        backbone.model.bfloat16()  # as on CUDA
        found, wanted = backbone(image).float(), expected[features].float()
        assert found.shape == wanted.shape == (2, *other.pretrained.feature_shape)
        assert (found - wanted).abs().max() <= BF16 * wanted.abs().max()


@pytest.mark.parametrize("kind", ["vit with class token", "resnet", "convnext"])
def test_the_last_layers_continue_where_the_frozen_ones_end(kind):
    name, size = MODELS[kind]
    whole, split = network(size, model=name), network(size, model=name, unfreeze_last=1)
    frozen, tail = split.pretrained.backbone.model, split.pretrained.tail
    weights = whole.pretrained.backbone.model.state_dict()
    frozen.load_state_dict({key: value for key, value in weights.items() if key in frozen.state_dict()})
    left = [value for key, value in weights.items() if key not in frozen.state_dict()]
    tail.load_state_dict(dict(zip(tail.state_dict(), left, strict=True)))
    image = images(2, 3, size, size)
    with torch.no_grad():
        found = split.pretrained.backbone.pooled(tail(split.pretrained.encode(image)))
        torch.testing.assert_close(found, whole.pretrained.encode(image), rtol=1e-4, atol=1e-5)
    trained = {key for key, value in split.named_parameters() if value.requires_grad and "pretrained" in key}
    assert {key.split(".")[1] for key in trained} == {"tail", "heads"}


def test_images_are_resized_and_normalised_as_the_model_asks():
    backbone = network(48, image_size=32).pretrained.backbone  # mean and std 0.5
    grey = torch.full((1, 3, 48, 48), 128, dtype=torch.uint8)
    expected = torch.full((1, 3, 32, 32), (128 / 255 - 0.5) / 0.5)
    torch.testing.assert_close(backbone.prepared(grey), expected)
    torch.testing.assert_close(backbone.prepared(grey / 255.0), expected)


class Walk:
    """An environment whose goal image changes every STEPS steps of an agent."""

    capturable = False

    def __init__(self, size=32, device="cpu"):
        self.num_envs, self.device, self.size = N, torch.device(device), size
        self.single_observation_space = space(
            size, "rgb", "left_rgb", "imagegoal", depth=spaces.Box(0.0, 1.0, (1, size, size))
        )
        self.single_action_space = spaces.Discrete(3)
        self.storage = dict.fromkeys(("rgb", "left_rgb", "imagegoal"), torch.uint8) | {"depth": torch.float32}
        self.count = torch.zeros((), dtype=torch.int64)

    def _image(self, number):
        """Images of one number for each agent, u8 [N, 3, H, W]."""
        shape = N, 3, self.size, self.size
        pixels = torch.arange(3 * self.size**2, device=self.device).reshape(1, *shape[1:])
        return ((number.to(self.device).view(-1, 1, 1, 1) + 1) * (pixels + 7) * 31 % 251).to(torch.uint8)

    def _observe(self):
        agents = torch.arange(N)
        seen, goal = self.count * N + agents, (self.count + agents) // STEPS
        depth = self._image(seen)[:, :1].float() / 255.0
        return {"rgb": self._image(seen), "left_rgb": self._image(seen + 1), "imagegoal": self._image(goal),
                "depth": depth}  # fmt: skip

    def reset(self, *, seed=None, options=None):
        self.count.zero_()
        return self._observe(), {}

    def observe_into(self, out):
        assert set(out) == {"rgb", "left_rgb", "imagegoal", "depth"}

    def step(self, actions):
        self.count += 1
        ended = ((self.count + torch.arange(N)) % STEPS == 0).to(self.device)
        reward = (actions == 1).float()
        info = {"episode": {"return": reward}, "_episode": ended}
        return self._observe(), reward, ended, torch.zeros_like(ended), info

    def observe_again(self):
        return {name: value for name, value in self._observe().items() if name != "left_rgb"}

    def settle(self):
        """Nothing runs beside."""

    def between_rollouts(self):
        return {}

    def state_dict(self):
        return {"count": self.count.clone()}

    def load_state_dict(self, state):
        self.count.copy_(state["count"])

    def close(self):
        """Nothing to free."""


def learner_of(env, seed=0, settings=None, **ppo):
    torch.manual_seed(seed)
    policy = ActorCritic(env.single_observation_space, env.single_action_space, config(**(settings or {})))
    shared = {"num_envs": N, "rollout_steps": 6, "epochs": 2, "minibatches": 2, "optimizer": "adamw"}
    return PPO(policy, env, PPOConfig(**shared | ppo), seed=seed)


@pytest.mark.parametrize("settings", [{}, {"features": "patch_grid"}, {"unfreeze_last": 2}], ids=str)
def test_each_frame_is_encoded_once_and_learning_reads_its_features(settings, monkeypatch):
    learner = learner_of(Walk(), settings=settings, epochs=1, minibatches=1)
    encoder, rollout = learner.policy.pretrained, learner.rollout
    rows, encode = [], type(encoder).encode
    monkeypatch.setattr(type(encoder), "encode", lambda self, x, fixed=True: rows.append(len(x)) or encode(self, x))
    before = {key: value.clone() for key, value in encoder.backbone.state_dict().items()}
    stats = learner.update(0.0).read()
    assert sum(rows) == 6 * 2 * N + sum(int(done.sum()) for done in rollout.start[1:])  # goals only where they change
    assert stats["loss/approx_kl"] == pytest.approx(0.0, abs=1e-6)  # the policy that learns is the one that acted
    assert set(rollout.obs) == {"depth", *(features_of(name) for name in ("rgb", "left_rgb", "imagegoal"))}
    assert set(rollout.latest) == {"rgb", "left_rgb", "imagegoal"}
    for name, image in rollout.latest.items():
        torch.testing.assert_close(rollout.obs[features_of(name)][-1], encode(encoder, image), rtol=1e-4, atol=1e-5)
    assert all(torch.equal(value, before[key]) for key, value in encoder.backbone.state_dict().items())


def test_a_trained_model_stores_images():
    learner = learner_of(Walk(), settings={"frozen": False})
    before = learner.policy.pretrained.backbone.model.patch_embed.proj.weight.clone()
    learner.update(0.5)
    assert learner.rollout.obs["rgb"].dtype == torch.uint8 and not learner.rollout.latest
    assert not torch.equal(learner.policy.pretrained.backbone.model.patch_embed.proj.weight, before)


def test_a_resumed_run_continues_to_the_bit(tmp_path):
    straight = learner_of(Walk())
    for _ in range(2):
        straight.update(0.0)
    torch.save(straight.state_dict(), tmp_path / "state.pt")
    resumed = learner_of(Walk(), seed=5)
    state = torch.load(tmp_path / "state.pt", weights_only=True)
    assert "left_rgb" in state["own"]["obs"] and "rgb" not in state["own"]["obs"]
    resumed.load_state_dict(state)
    for learner in (straight, resumed):
        learner.update(0.1)
    for name, weight in straight.policy.state_dict().items():
        assert torch.equal(weight, resumed.policy.state_dict()[name]), name
    for name, rows in straight.rollout.obs.items():
        assert torch.equal(rows, resumed.rollout.obs[name]), name


def test_a_fixed_number_of_goals_is_encoded_in_a_step():
    encoder = network(names=("imagegoal",)).pretrained
    memory, exact = (FeatureMemory(encoder, fixed) for fixed in (True, False))
    goal = images(N, 3, 32, 32)
    close = {"rtol": 1e-4, "atol": 1e-5}
    torch.testing.assert_close(memory("imagegoal", goal), exact("imagegoal", goal), **close)  # the first call: all
    goal[3] = images(3, 32, 32, seed=1)
    torch.testing.assert_close(memory("imagegoal", goal), exact("imagegoal", goal), **close)
    goal[:5] = images(5, 3, 32, 32, seed=2)
    taken = N // GOALS_PER_STEP
    for encoded in range(taken, 5 + taken, taken):
        found, expected = memory("imagegoal", goal), exact("imagegoal", goal).clone()
        expected[encoded:5] = 0.0
        torch.testing.assert_close(found, expected, **close)


def test_agents_act_by_images_and_by_features_alike():
    policy = network(names=("rgb", "imagegoal"))
    agent = PolicyAgent(policy)
    agent.reset(4)
    start = torch.zeros(4, dtype=torch.bool)
    state, previous = policy.initial_state(4), torch.zeros(4, dtype=torch.int64)
    for step in range(3):
        obs = {"rgb": images(4, 3, 32, 32, seed=step), "imagegoal": images(4, 3, 32, 32, seed=step // 2)}
        action = agent.act(obs, deterministic=True)
        with torch.no_grad():
            act = policy.act(obs, previous, start if step else ~start, state)
        state, previous = act.state, act.action
        assert torch.equal(action, act.action)
        torch.testing.assert_close(agent._state[0], state[0], rtol=1e-4, atol=1e-5)


def weights_file(path, model="vit_tiny_patch16_224", size=48):
    """A file with weights of the model for larger images, and the model."""
    torch.manual_seed(7)
    made = timm.create_model(model, img_size=size)
    save_file(made.state_dict(), path)
    return made


def test_weights_are_read_from_a_file_and_named_in_the_policy(tmp_path, monkeypatch):
    file = tmp_path / "vit.safetensors"
    made = weights_file(file)
    policy = network(weights=str(file))
    read = policy.pretrained.backbone.model
    torch.testing.assert_close(read.blocks[0].mlp.fc1.weight, made.blocks[0].mlp.fc1.weight)
    assert read.pos_embed.shape[1] == 5 and made.pos_embed.shape[1] == 10  # resampled to 2x2 patches
    source = policy.pretrained_source
    assert source.model == "vit_tiny_patch16_224.augreg_in21k_ft_in1k" and source.licence == "apache-2.0"
    assert (source.weights, source.sha256) == (file.name, hashlib.sha256(file.read_bytes()).hexdigest())
    torch.save({"model": made.state_dict()}, tmp_path / "vit.pth")
    again = network(weights=str(tmp_path / "vit.pth")).pretrained.backbone.model
    assert torch.equal(again.pos_embed, read.pos_embed)

    save_policy(policy, tmp_path / "policy.safetensors")
    file.unlink()  # the policy has the weights
    loaded = load_policy(tmp_path / "policy.safetensors").network
    assert loaded.pretrained_source == source and loaded.config == policy.config
    for name, value in policy.state_dict().items():
        assert torch.equal(value, loaded.state_dict()[name]), name


def test_a_run_resumes_without_the_file_of_its_weights(tmp_path):
    file, out = tmp_path / "vit.safetensors", tmp_path / "run"
    weights_file(file)
    run = from_dict(TrainingConfig, {
        "env": {"sensors": ["rgb"], "camera": {"height": 32, "width": 32}}, "scenes": {"houses": 1},
        "policy": {
            "encoder": "timm:vit_tiny_patch16_224", "visual_size": 8, "hidden_size": 8, "lstm": {"layers": 1},
            "timm": {"weights": str(file)},
        },
        "ppo": {"num_envs": 4, "rollout_steps": 4, "minibatches": 1, "total_frames": 16, "optimizer": "adamw"},
        "device": "cpu", "eval_every": 0,
    })  # fmt: skip
    train(run, out)
    before = load_policy(out).network
    file.unlink()
    train(replace(run, ppo=replace(run.ppo, total_frames=32)), out, allow_changes=True)
    after = load_policy(out)
    assert after.info["frames"] == 32 and after.network.pretrained_source == before.pretrained_source
    assert after.network.pretrained_source.sha256
    for name, value in before.pretrained.backbone.state_dict().items():
        assert torch.equal(value, after.network.pretrained.backbone.state_dict()[name]), name


def test_files_of_other_models_and_other_kinds_are_refused(tmp_path):
    file = tmp_path / "weights.safetensors"
    weights_file(file, "vit_small_patch16_224", 32)
    with pytest.raises(ConfigError, match=r"weights\.safetensors does not fit vit_tiny_patch16_224"):
        network(weights=str(file))
    save_file({"a": torch.zeros(2)}, file)
    with pytest.raises(ConfigError, match=r"no finite values for .* tensors of vit_tiny_patch16_224, such as"):
        network(weights=str(file))
    with pytest.raises(ConfigError, match=r"none\.safetensors"):
        network(weights=str(tmp_path / "none.safetensors"))
    (tmp_path / "code.pth").write_bytes(b"cos\nsystem\n(S'touch /tmp/never'\ntR.")
    with pytest.raises(ConfigError, match="not a file of tensors only"):
        network(weights=str(tmp_path / "code.pth"))
    (tmp_path / "weights.npz").write_bytes(b"")
    with pytest.raises(ConfigError, match=r"expected a file \.safetensors"):
        network(weights=str(tmp_path / "weights.npz"))


def test_without_a_file_and_a_network_the_message_says_what_to_do(monkeypatch):
    import huggingface_hub

    def fail(repository, file):
        raise OSError("no route to host")

    monkeypatch.setattr(huggingface_hub, "hf_hub_download", fail)
    with pytest.raises(ConfigError, match=r"download of timm/vit_tiny.*no route to host.*set timm.weights to a file"):
        network(weights="")


def test_without_timm_the_message_names_the_extra(monkeypatch):
    monkeypatch.setitem(sys.modules, "timm", None)
    with pytest.raises(MissingPackageError, match=r"extra 'vision'.*timm"):
        network()


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"model": "vit_tiny_patch17_224"}, "the nearest model is 'timm:vit_tiny_patch16_224"),
        ({"size": 40}, r"40x40 pixels, expected multiples of the patch size 16"),
        ({"unfreeze_last": 12}, "expected at most 11 of 12"),
        ({"unfreeze_last": 1, "frozen": False}, "found 1 with frozen false"),
        ({"unfreeze_last": 1, "model": "vit_small_patch16_dinov3"}, "found a model Eva"),
        ({"more": {"other": colour(64)}}, r"found 0 with images.*other 64x64"),
        ({"more": {"normals": spaces.Box(-1.0, 1.0, (3, 32, 32))}}, "normals with values from -1"),
        ({"images": ("depth",)}, "found 'depth', expected images with 3 channels"),
        ({"names": (), "more": {"depth": spaces.Box(0.0, 1.0, (1, 32, 32))}}, "expected one with 3 channels"),
    ],
    ids=str,
)
def test_settings_that_do_not_fit_are_named(changes, message):
    with pytest.raises(ConfigError, match=message):
        network(**changes)


@pytest.mark.parametrize("changes", [{"film": ("imagegoal",)}, {"predicted_mask": "mask"}, {"normalized": ("rgb",)}])
def test_parts_that_need_all_channels_are_refused(changes):
    read = space(32, "rgb", "imagegoal", mask=colour(32, 1))
    with pytest.raises(ConfigError, match=f"{next(iter(changes))}.*pretrained encoder 'timm:resnet18'"):
        ActorCritic(read, spaces.Discrete(3), replace(config("resnet18"), **changes))


def test_names_with_a_colon_are_parts_of_a_family():
    assert "timm:resnet18" in ENCODERS and "timm:" not in ENCODERS and "tim:resnet18" not in ENCODERS
    assert list(ENCODERS) == list(dict(ENCODERS))  # a family is no name
    with pytest.raises(ConfigError, match=r"found 'resnet18', expected one of .*timm:NAME"):
        ActorCritic(space(32, "rgb"), spaces.Discrete(3), from_dict(PolicyConfig, {"encoder": "resnet18"}))


def test_a_policy_file_with_another_model_is_refused(tmp_path):
    path = tmp_path / "policy.safetensors"
    save_policy(network(model="resnet18"), path)
    with safe_open(path, "pt") as file:
        tensors, metadata = {name: file.get_tensor(name) for name in file.keys()}, file.metadata()  # noqa: SIM118
    del metadata["sha256"]
    settings = json.loads(metadata["policy"])
    save_file(tensors, path, metadata | {"policy": json.dumps(settings | {"encoder": "timm:resnet34"})})
    with pytest.raises(CheckpointError, match="lacks tensor"):
        load_policy(path)
    save_file(tensors, path, metadata | {"policy": json.dumps(settings | {"encoder": "timm:hf-hub:some/model"})})
    with pytest.raises(CheckpointError, match="the nearest model is"):
        load_policy(path)


@pytest.mark.cuda
@pytest.mark.parametrize("settings", [{}, {"unfreeze_last": 2, "features": "patch_grid"}], ids=str)
def test_training_on_a_gpu_in_graphs_equals_training_without(settings):
    losses = []
    for graphs in (False, True):
        env = Walk(device="cuda")
        torch.manual_seed(0)
        policy = ActorCritic(env.single_observation_space, env.single_action_space, config(**settings))
        ppo = PPOConfig(num_envs=N, rollout_steps=6, minibatches=2, optimizer="adamw")
        learner = PPO(policy, env, ppo, seed=0, graphs=graphs)
        losses.append([learner.update(0.5).read()["loss/loss"] for _ in range(6)])
        assert learner.rollout.obs["rgb.features"].dtype == torch.bfloat16
        assert learner.policy.pretrained.backbone.model.patch_embed.proj.weight.dtype == torch.bfloat16
    assert losses[0] == pytest.approx(losses[1], rel=0.02)  # attention's gradient adds in any order


@pytest.mark.cuda
def test_a_compiled_encoder_and_the_memory_of_goals_fit_a_cuda_graph():
    policy = network(names=("rgb", "imagegoal")).cuda()
    plain = {name: value.clone() for name, value in policy.with_features(
        {name: images(N, 3, 32, 32).cuda() for name in policy.colour}).items()}  # fmt: skip
    policy.compile_parts()
    memory, obs = policy.feature_memory(fixed=True), {n: images(N, 3, 32, 32).cuda() for n in policy.colour}
    for _ in range(3):
        policy.with_features(obs, memory)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        found = policy.with_features(obs, memory)
    graph.replay()
    for name in ("rgb.features", "imagegoal.features"):
        scale = plain[name].float().abs().max()
        assert (found[name].float() - plain[name].float()).abs().max() <= FUSED * scale, name
    obs["imagegoal"].copy_(images(N, 3, 32, 32, seed=1))
    for _ in range(GOALS_PER_STEP):
        graph.replay()
    expected = policy.pretrained.encode(obs["imagegoal"], fixed=False)
    difference = (found["imagegoal.features"].float() - expected.float()).abs().max()
    assert difference <= FUSED * expected.float().abs().max()
