"""The policy network: observations and the previous action, through a memory, to an action distribution and a value.

    images ------- encoder ------.     (`PolicyConfig.film`: modulated by further images; `policy.pretrained`)
    scans -------- scan encoder -+
    vectors ------ linear -------+-- concat -- memory (or two tanh layers) --.-- actor: action distribution
    categories --- embedding ----+                                           '-- critic: value
    last action -- embedding ----'

    images, categories -- mask head: predicted mask of the goal, one more image      (`PolicyConfig.predicted_mask`)
    memory -- auxiliary losses, in training only                                     (`PolicyConfig.auxiliary`)

Each kind of observation, the memory and the previous action are optional: the spaces and `PolicyConfig` determine which
of them a policy has.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple, cast

import torch
from gymnasium import spaces
from torch import nn
from torch.nn import functional as F

from batchnav.config import all_settings, chosen_settings
from batchnav.errors import ConfigError
from batchnav.policy.actions import actions_of
from batchnav.policy.auxiliary import Auxiliary, Steps
from batchnav.policy.config import AUXILIARY, ENCODERS, MEMORIES, PolicyConfig
from batchnav.policy.encoder import CELL, FiLMEncoder, SEResNet9, SEResNet9Trunk, he_normal
from batchnav.policy.memory import Memory, State
from batchnav.policy.observations import (
    DISTANCE_FEATURES,
    RunningNorm,
    as_dict,
    embed_rows,
    is_image,
    is_integer,
    is_scan,
    is_vector,
    log_distance,
    names_by_size,
    num_categories,
    spaces_to_read,
)
from batchnav.policy.pretrained import FeatureMemory, PretrainedEncoder, features_of, weights_are_read
from batchnav.policy.vision import CHANNELS, MEAN, STD, load_trunk
from batchnav.runtime.device import compiled, torch_defaults
from batchnav.runtime.weights import Source

# Prediction of the goal's mask: a small segmentation network beside the encoder.
#
# A policy without a recognised goal learns which pixels show it from a mask that the simulator renders for training
# only. The predicted mask is a channel of the encoder's images. No gradient of the policy's loss reaches this network,
# and none of its own loss reaches the rest of the policy.

DILATIONS = (1, 2, 4)
"""Dilation of the convolutions of each block, cells (Yu and Koltun, ICLR 2016): together they see 14 cells, or 56
pixels, on each side."""
PRIOR = 0.02
"""Probability of pixels before training, about the share of pixels that show the goal (focal loss's prior: Lin et
al., ICCV 2017)."""
LOGITS_GAIN = 0.1
"""Scale of the last layer's initial weights, so that a new network predicts about PRIOR everywhere."""


class MaskHead(nn.Module):
    """Logits of each pixel, that it shows the goal: space-to-depth, residual blocks that the goal modulates, a layer.

    Args:
        channels: channels of the images.
        categories: number of values of each integer observation, such as the goal's category.
        width: channels inside.
    """

    def __init__(self, channels: int, categories: Sequence[int], width: int):
        super().__init__()
        self.stem = nn.Conv2d(channels * CELL * CELL, width, 1)
        self.blocks = nn.ModuleList(_Block(width, dilation) for dilation in DILATIONS)
        self.modulation = nn.ModuleList(nn.Embedding(size, 2 * width * len(DILATIONS)) for size in categories)
        self.logits = nn.Conv2d(width, CELL * CELL, 1)
        for weight, gain in ((self.stem.weight, 1.0), (self.logits.weight, LOGITS_GAIN)):
            he_normal(weight, gain)
        nn.init.zeros_(self.stem.get_parameter("bias"))
        nn.init.constant_(self.logits.get_parameter("bias"), math.log(PRIOR / (1.0 - PRIOR)))
        self.to(memory_format=torch.channels_last)  # type: ignore[call-overload]  # annotation of torch

    def forward(self, image: torch.Tensor, categories: Sequence[torch.Tensor]) -> torch.Tensor:
        """Logits [B, 1, H, W] of images [B, C, H, W] and of each integer observation, i64 [B]."""
        height, width = image.shape[2:]
        image = F.pad(image, (0, -width % CELL, 0, -height % CELL))
        x = F.relu(self.stem(F.pixel_unshuffle(image, CELL)))
        film = x.new_zeros(len(x), 2 * x.shape[1] * len(DILATIONS))
        for embedding, value in zip(self.modulation, categories, strict=True):
            film = film + embed_rows(cast(nn.Embedding, embedding), value)
        for block, part in zip(self.blocks, film.chunk(len(DILATIONS), dim=1), strict=True):
            x = block(x, part)
        return F.pixel_shuffle(self.logits(x), CELL)[:, :, :height, :width]


class _Block(nn.Module):
    """Residual block of two dilated convolutions with FiLM between them (Perez et al., AAAI 2018)."""

    def __init__(self, width: int, dilation: int):
        super().__init__()
        self.conv1, self.conv2 = (nn.Conv2d(width, width, 3, padding=dilation, dilation=dilation) for _ in range(2))
        for convolution in (self.conv1, self.conv2):
            he_normal(convolution.weight)
            nn.init.zeros_(convolution.get_parameter("bias"))

    def forward(self, x: torch.Tensor, film: torch.Tensor) -> torch.Tensor:
        """[B, C, H, W] and [B, 2 C]: scales relative to 1, and shifts."""
        scale, shift = film[:, :, None, None].chunk(2, dim=1)
        y = F.relu(self.conv1(x) * (1.0 + scale) + shift)
        return F.relu(x + self.conv2(y))


PREVIOUS_ACTION = "previous action"
"""Key of the previous action's embedding in `ActorCritic.body_inputs`."""


class Act(NamedTuple):
    """Result of one step of B agents."""

    action: torch.Tensor
    """i64 [B], or f32 [B, A] for a Box."""
    log_prob: torch.Tensor
    """Log probability of the action, f32 [B]."""
    value: torch.Tensor
    """Value estimate, f32 [B]."""
    state: State
    """State of the memory for the next step."""


class Evaluation(NamedTuple):
    """Result of `ActorCritic.evaluate` for sequences of T steps of B agents."""

    log_prob: torch.Tensor
    """Log probability of the given actions, f32 [T, B]."""
    entropy: torch.Tensor
    """Entropy of the action distribution, f32 [T, B]."""
    value: torch.Tensor
    """Value estimate, f32 [T, B]."""
    outputs: torch.Tensor
    """Parameters of the action distribution, f32 [T, B, num_outputs], to evaluate further actions with."""
    mask_logits: torch.Tensor | None = None
    """Logits of the predicted mask, [T, B, 1, H, W]; None for a policy that predicts none."""
    auxiliary: tuple[torch.Tensor, dict[str, torch.Tensor]] | None = None
    """Sum of the auxiliary losses with their coefficients, and their detached scalars by name; None without losses."""


class ActorCritic(nn.Module):
    """Actor and critic with a shared body, for a dict of observations, and discrete or continuous actions.

    Images [C, H, W], floats in 0..1 or bytes, are read by the encoder that the configuration names, unless the policy
    is blind. Images of one size are concatenated as channels; each further size has its own encoder. A pretrained
    encoder (`policy.pretrained`) reads colour images one by one, and a `se_resnet9` the others. Images named in
    `config.film` are no channels: they modulate the encoder of the images of their size. Scans [rows, beams] have an
    encoder each, `config.scan_encoder`. Vectors [n] have a linear layer each; those named in `config.polar` are
    [r, angle] and enter as [r, cos, sin], or with `config.log_distance` as [*log_distance(r), cos, sin]. Integers have
    an embedding each. A plain box counts as the dict {"observation": box}. A policy with memory also reads the previous
    action.

    The image `config.predicted_mask` is not read: the policy predicts it from the images of the first size, and reads
    its prediction with them. The labels of auxiliary losses are not read either. The observation space needs both for
    learning only.

    Args:
        observation_space: of one environment.
        action_space: of one environment: Discrete, or a Box [A] of -1 to 1.
        config: the architecture.
        device: where the parameters are made, whatever PyTorch's default device is.

    Raises:
        ConfigError: the spaces do not fit the configuration or are not supported.
    """

    def __init__(
        self,
        observation_space: spaces.Space,
        action_space: spaces.Space,
        config: PolicyConfig,
        device: str | torch.device = "cpu",
    ):
        super().__init__()
        self.config = config
        """The architecture."""
        read = spaces_to_read(observation_space, config.blind)
        labels = {name: read.pop(name) for name in config.labels if name in read}
        self.observation_shapes = {name: tuple(map(int, space.shape or ())) for name, space in read.items()}
        """Shape of one environment's observation, by name, for all observations that the policy reads."""
        self.num_categories = {name: num_categories(space, name) for name, space in read.items() if is_integer(space)}
        """Number of values of each integer observation, by name."""
        self.action_space = action_space
        self.actions = actions_of(action_space)
        """The action distribution."""
        images = {name: self.observation_shapes[name] for name, space in read.items() if is_image(space)}
        self.film = tuple(name for name in images if name in config.film)
        """Names of the images that modulate the encoder of the others of their size."""
        self.colour = self._read_by_pretrained(read)
        """Names of the images that the pretrained encoder reads; empty without one."""
        others = {name: shape for name, shape in images.items() if name not in (*self.film, *self.colour)}
        self.images = names_by_size(others)
        """Names of the images that share an encoder; one entry per image size."""
        if not config.blind:
            self._check_film(images)
        self.label_shapes = {name: tuple(map(int, space.shape or ())) for name, space in labels.items()}
        """Shape of the observations that the policy learns from alone, by name; empty where the space has none."""
        if config.predicted_mask:
            self._check_mask()
        self._check_labels()
        with torch_defaults(device):
            self._make_layers(read, images)

    def _make_layers(self, read: Mapping[str, spaces.Space], images: Mapping[str, tuple[int, ...]]) -> None:
        """Make all layers, for the observations that the policy reads and the shapes of its images, by name."""
        config = self.config
        self.norms = nn.ModuleDict({n: RunningNorm(shape[0]) for n, shape in images.items() if n in config.normalized})
        encoders = [self._make_encoder(names) for names in self.images]
        self.encoder = encoders[0] if encoders else None
        self._start_from_weights(encoders)
        self.more_encoders = nn.ModuleList(encoders[1:])
        self.body_inputs = {n[0]: cast(int, e.output_size) for n, e in zip(self.images, encoders, strict=True)}
        """Width of each part of the body's input, in order. Images that share an encoder have the first one's name."""
        self.pretrained: PretrainedEncoder | None = None
        """Encoder of the images in `colour`."""
        if self.colour:
            shapes = {name: images[name] for name in self.colour}
            self.pretrained = ENCODERS[config.encoder](shapes, config, *chosen_settings(config, "encoder"))
            self.body_inputs |= dict.fromkeys(self.colour, config.visual_size)
        scans, make = (
            {n: self.observation_shapes[n] for n, space in read.items() if is_scan(space)},
            config.scan_encoder,
        )
        settings = chosen_settings(config, "scan_encoder") if scans else ()
        if scans and hasattr(ENCODERS[make], "images_read"):
            raise ConfigError(f"scan_encoder: found {make!r}, a pretrained encoder of colour images, expected another")
        self.scan_encoders = nn.ModuleDict({n: ENCODERS[make]((1, *s), config, *settings) for n, s in scans.items()})
        """Encoder of each scan, by name."""
        self.body_inputs |= {name: cast(int, encoder.output_size) for name, encoder in self.scan_encoders.items()}
        self.embeddings = nn.ModuleDict()
        for name, space in read.items():
            if is_vector(space):
                width = self._vector_width(name, self.observation_shapes[name])
                self.embeddings[name] = nn.Linear(width, config.embedding_size)
            elif is_integer(space):
                self.embeddings[name] = nn.Embedding(self.num_categories[name], config.embedding_size)
            else:
                continue
            self.body_inputs[name] = config.embedding_size
        memory_settings = chosen_settings(config, "memory")
        memory = MEMORIES[config.memory]
        if memory.reads_previous_action:
            self.previous_action = self.actions.embedding(config.embedding_size)
            self.body_inputs[PREVIOUS_ACTION] = config.embedding_size
        if not self.body_inputs:
            raise ConfigError(
                "policy: found no input (images, vector observations or a memory with the previous action), expected "
                "at least one; set blind: false, or memory: lstm"
            )
        self.body: Memory = memory.from_config(sum(self.body_inputs.values()), config, *memory_settings)
        """The memory, or feed-forward layers in its place."""
        self.actor = nn.Linear(self.body.output_size, self.actions.num_outputs)
        self.critic = nn.Linear(self.body.output_size, 1)
        _init_heads(self.actor, self.critic)
        self.mask_head: MaskHead | None = None
        if config.predicted_mask:
            channels = self._joint_shape(self.images[0])[0]
            self.mask_head = MaskHead(channels, tuple(self.num_categories.values()), config.mask_width)
        self.auxiliary = nn.ModuleDict({
            name: AUXILIARY[name](self.body.output_size, self.actions, *settings)
            for name, settings in all_settings(config, "auxiliary").items()
        })  # fmt: skip
        """Auxiliary losses by name."""

    @property
    def pretrained_source(self) -> Source | None:
        """Origin of the pretrained weights; None without a pretrained encoder."""
        return None if self.pretrained is None else self.pretrained.source

    @property
    def encoded_shapes(self) -> dict[str, tuple[int, ...]]:
        """Shape of the images, by name, that a rollout keeps as features only."""
        frozen = self.pretrained is not None and self.pretrained.feature_shape is not None
        return {name: self.observation_shapes[name] for name in self.colour} if frozen else {}

    @property
    def rollout_shapes(self) -> dict[str, tuple[int, ...]]:
        """Shape of one environment's observation, by name, for all that a rollout keeps: those read, and the label.

        Features, by the name that `features_of` gives, stand in for the images of a frozen encoder.
        """
        encoded = self.encoded_shapes
        kept = {name: shape for name, shape in self.observation_shapes.items() if name not in encoded}
        features = {features_of(name): cast(PretrainedEncoder, self.pretrained).feature_shape or () for name in encoded}
        return kept | features | self.label_shapes

    def rollout_types(self, storage: Mapping[str, torch.dtype]) -> dict[str, torch.dtype]:
        """Types of `rollout_shapes` and `encoded_shapes`: an environment's `storage`, and the types of features."""
        encoded = self.encoded_shapes
        if not encoded:
            return dict(storage)
        kind = next(cast(PretrainedEncoder, self.pretrained).backbone.model.parameters()).dtype
        return {**storage, **{features_of(name): kind for name in encoded}}

    def feature_memory(self, fixed: bool) -> FeatureMemory | None:
        """Memory for `with_features`; None where no image stays the same. `fixed`: as in `FeatureMemory`."""
        goals = self.pretrained.settings.goals if self.pretrained and self.encoded_shapes else ()
        if self.pretrained is None or not any(name in goals for name in self.colour):
            return None
        return FeatureMemory(self.pretrained, fixed)

    def with_features(
        self, obs: Mapping[str, torch.Tensor] | torch.Tensor, memory: FeatureMemory | None = None
    ) -> dict[str, torch.Tensor]:
        """Observations [N, ...] of one step, with the features of images that a frozen encoder reads.

        `act` and `evaluate` read features in place of their images. `memory`: keeps the features of goal images.
        """
        obs = dict(as_dict(obs))
        for name in self.encoded_shapes:
            if memory is not None and name in cast(PretrainedEncoder, self.pretrained).settings.goals:
                obs[features_of(name)] = memory(name, obs[name])
            else:
                obs[features_of(name)] = cast(PretrainedEncoder, self.pretrained).encode(obs[name])
        return obs

    def initial_state(self, num_envs: int, device: str | torch.device = "cpu") -> State:
        """State of the memory at the start of an episode, for `num_envs` environments."""
        return self.body.initial_state(num_envs, device)

    def act(
        self,
        obs: Mapping[str, torch.Tensor] | torch.Tensor,
        prev_action: torch.Tensor,
        start_mask: torch.Tensor,
        state: State,
        uniforms: torch.Tensor | None = None,
    ) -> Act:
        """Choose the actions of one step. A pure function of tensors: no random state, no host synchronisation.

        Args:
            obs: observations [B, ...] by name, or one tensor for an unnamed observation.
            prev_action: action before this observation, as `Act.action`; ignored where an episode starts.
            start_mask: bool [B], set where this is an episode's first observation.
            state: state of the memory after the previous step.
            uniforms: f32 [B, *actions.shape] in [0, 1), from which actions are sampled; None takes the mode.
        """
        outputs, value, state = self.step(obs, prev_action, start_mask, state)
        action, log_prob = self.actions.sample(outputs, uniforms)
        return Act(action, log_prob, value, state)

    def value(
        self,
        obs: Mapping[str, torch.Tensor] | torch.Tensor,
        prev_action: torch.Tensor,
        start_mask: torch.Tensor,
        state: State,
    ) -> torch.Tensor:
        """Value estimate f32 [B]; the arguments are those of `act`."""
        return self.step(obs, prev_action, start_mask, state)[1]

    def step(
        self,
        obs: Mapping[str, torch.Tensor] | torch.Tensor,
        prev_action: torch.Tensor,
        start_mask: torch.Tensor,
        state: State,
    ) -> tuple[torch.Tensor, torch.Tensor, State]:
        """One step: the actor's outputs f32 [B, num_outputs], the value f32 [B] and the memory's next state.

        The arguments are those of `act`; `actions.distribution` explains the outputs.
        """
        obs = {name: value[None] for name, value in as_dict(obs).items()}
        x, _ = self._features(obs, prev_action[None], start_mask[None])
        x, state = self.body.step(x[0], start_mask, state)
        outputs, value = self._heads(x[None])
        return outputs[0], value[0], state

    def evaluate(
        self,
        obs: Mapping[str, torch.Tensor] | torch.Tensor,
        prev_action: torch.Tensor,
        starts: torch.Tensor,
        state0: State,
        actions: torch.Tensor,
    ) -> Evaluation:
        """Log probabilities, entropies and values for sequences of steps that `act` took, with gradients.

        Args:
            obs: observations [T, B, ...] by name.
            prev_action: [T, B, ...], action before each observation.
            starts: bool [T, B], set at the first observation of an episode; the memory restarts there.
            state0: state of the memory before step 0.
            actions: actions to evaluate, [T, B, ...].
        """
        x, mask_logits = self._features(as_dict(obs), prev_action, starts)
        x, _ = self.body(x, starts, state0)
        outputs, value = self._heads(x)
        auxiliary = self._auxiliary_loss(Steps(x, as_dict(obs), actions, starts)) if self.auxiliary else None
        return Evaluation(*self.actions.evaluate(outputs, actions), value, outputs, mask_logits, auxiliary)

    def predict_mask(self, obs: Mapping[str, torch.Tensor]) -> torch.Tensor:
        """Probability of each pixel to show the goal, f32 [B, 1, H, W], for a policy with `config.predicted_mask`.

        Args:
            obs: the images of the first size and the integer observations, [B, ...] by name.
        """
        assert self.mask_head is not None
        image = self._image(self.images[0], {name: obs[name][None] for name in self.images[0]})
        logits = self.mask_head(image.flatten(0, 1), [obs[name].reshape(-1) for name in self.num_categories])
        return torch.sigmoid(logits.float())

    def compile_parts(self) -> None:
        """Run the encoders and the memory's compilable part through torch.compile, in place, for static shapes."""
        for encoder in (*self._encoders(), *self.scan_encoders.values()):
            compiled(encoder)
        if self.pretrained is not None:
            self.pretrained.compile_parts()
        if self.mask_head is not None:
            compiled(self.mask_head)
        self.body.compile_parts()

    def update_norms(
        self, obs: Mapping[str, torch.Tensor], average: Callable[[torch.Tensor], torch.Tensor] = torch.clone
    ) -> None:
        """Update the means and variances of `config.normalized` with a rollout's images [T, B, C, H, W].

        `average` is as in `RunningNorm.update`.
        """
        for name, norm in self.norms.items():
            cast(RunningNorm, norm).update(obs[name], average)

    def _auxiliary_loss(self, steps: Steps) -> tuple[torch.Tensor, dict[str, torch.Tensor]]:
        """`Evaluation.auxiliary`."""
        losses: list[torch.Tensor] = []
        scalars: dict[str, torch.Tensor] = {}
        for name, each in self.auxiliary.items():
            loss, found = cast(Auxiliary, each).loss(steps)
            losses.append(cast(Auxiliary, each).settings.coef * loss)
            scalars |= {f"{name}_{key}": value for key, value in {"loss": loss.detach(), **found}.items()}
        return torch.stack(losses).sum(), scalars

    def _heads(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """The actor's outputs f32 [T, B, num_outputs] and the value f32 [T, B]."""
        return self.actor(x).float(), self.critic(x).squeeze(-1).float()

    def _features(
        self, obs: Mapping[str, torch.Tensor], prev_action: torch.Tensor, starts: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor | None]:
        """Input of the body, [T, B, width], and the logits of the predicted mask, if there is one."""
        parts, mask_logits = [], None
        for names, encoder in zip(self.images, self._encoders(), strict=True):
            image = self._image(names, obs)
            if self.mask_head is not None and names == self.images[0]:
                categories = [obs[name].reshape(-1) for name in self.num_categories]
                mask_logits = self.mask_head(image.flatten(0, 1), categories).unflatten(0, starts.shape)
                image = torch.cat([image, torch.sigmoid(mask_logits.detach())], dim=2)
            if isinstance(encoder, FiLMEncoder):
                parts.append(encoder(image, self._image(self._film_of(names), obs)))
            else:
                parts.append(encoder(image.flatten(0, 1)).unflatten(0, image.shape[:2]))
        for name in self.colour:
            parts.append(self._read_image(name, obs).unflatten(0, starts.shape))
        for name, encoder in self.scan_encoders.items():
            parts.append(encoder(obs[name].flatten(0, 1).unsqueeze(1)).unflatten(0, starts.shape))
        for name, embedding in self.embeddings.items():
            if name in self.num_categories:
                parts.append(embed_rows(cast(nn.Embedding, embedding), obs[name].reshape(starts.shape)))
            else:
                parts.append(embedding(self._prepare_vector(name, obs[name])))
        if self.body.reads_previous_action:
            parts.append(self.actions.embed(self.previous_action, prev_action, starts))
        return torch.cat(parts, dim=-1), mask_logits

    def _read_image(self, name: str, obs: Mapping[str, torch.Tensor]) -> torch.Tensor:
        """Output [T * B, visual_size] of the pretrained encoder: from an image's features where `obs` has them."""
        pretrained = cast(PretrainedEncoder, self.pretrained)
        if pretrained.feature_shape is None:
            return pretrained(name, obs[name].flatten(0, 1))
        features = obs.get(features_of(name))
        return pretrained(
            name, pretrained.encode(obs[name].flatten(0, 1)) if features is None else features.flatten(0, 1)
        )

    def _image(self, names: Sequence[str], obs: Mapping[str, torch.Tensor]) -> torch.Tensor:
        """Images [T, B, C, H, W] of one size, prepared, and concatenated along the channels."""
        images = [self._prepare_image(name, obs[name]) for name in names]
        return images[0] if len(images) == 1 else torch.cat(images, dim=2)

    def _prepare_image(self, name: str, image: torch.Tensor) -> torch.Tensor:
        """Input of the encoder: bytes as floats in 0..1, normalised where `config.normalized` says so."""
        floats = image.float() / 255.0 if image.dtype == torch.uint8 else image
        return self.norms[name](floats) if name in self.norms else floats

    def _prepare_vector(self, name: str, vector: torch.Tensor) -> torch.Tensor:
        """Input of a vector's linear layer: [r, angle] as features of r, cos and sin where `config.polar` says so."""
        if name not in self.config.polar:
            return vector
        r, angle = vector[..., :1], vector[..., 1:]
        distance = log_distance(r) if self.config.log_distance else r
        return torch.cat([distance, torch.cos(angle), torch.sin(angle)], dim=-1)

    def _encoders(self) -> list[nn.Module]:
        """One encoder for each entry of `images`."""
        return [] if self.encoder is None else [self.encoder, *self.more_encoders]

    def _make_encoder(self, names: tuple[str, ...]) -> nn.Module:
        settings = chosen_settings(self.config, "encoder")
        (channels, height, width), film = self._joint_shape(names), self._film_of(names)
        has_mask = bool(self.config.predicted_mask) and names == self.images[0]
        shape = channels + has_mask, height, width
        if film:
            return FiLMEncoder(shape, self._joint_shape(film)[0], self.config)
        if self.colour:
            (own,) = settings
            return SEResNet9(shape, self.config, SEResNet9.Config(base_width=own.other_width))
        return ENCODERS[self.config.encoder](shape, self.config, *settings)

    def _start_from_weights(self, encoders: Sequence[nn.Module]) -> None:
        """Load `se_resnet9.weights` into the trunks that read colour. ConfigError where no trunk can start from them.

        Images in `normalized` begin with the mean and variance that these weights were trained with.
        """
        settings: Any = (*chosen_settings(self.config, "encoder"), None)[0]
        if not isinstance(settings, SEResNet9Trunk.Config) or not settings.weights or not encoders:
            return
        found = []
        for names, encoder in zip(self.images, encoders, strict=True):
            film = isinstance(encoder, FiLMEncoder)
            trunks = [(encoder.encoder, names), (encoder.trunk, self._film_of(names))] if film else [(encoder, names)]
            for trunk, read in trunks:
                channels = [self.observation_shapes[name][0] for name in read]
                if CHANNELS in channels:
                    place = channels.index(CHANNELS)
                    found.append(read[place])
                    if weights_are_read():
                        load_trunk(cast(Any, trunk), settings.weights, sum(channels[:place]), "se_resnet9")
        if not found:
            shapes = ", ".join(
                f"{name} {list(self.observation_shapes[name])}" for names in self.images for name in names
            )
            raise ConfigError(f"se_resnet9.weights: found images {shapes}, expected one with {CHANNELS} channels")
        for name in found:
            if name not in self.norms:
                raise ConfigError(
                    f"normalized: found {list(self.config.normalized)}, expected {name!r} in it, since the weights "
                    f"{settings.weights} read normalised images"
                )
            cast(RunningNorm, self.norms[name]).start_from(MEAN, STD)

    def _film_of(self, names: Sequence[str]) -> list[str]:
        """Names of the images that modulate the encoder of these images."""
        size = self.observation_shapes[names[0]][1:]
        return [name for name in self.film if self.observation_shapes[name][1:] == size]

    def _joint_shape(self, names: Sequence[str]) -> tuple[int, int, int]:
        """(C, H, W) of images of one size that are concatenated."""
        _, height, width = self.observation_shapes[names[0]]
        return sum(self.observation_shapes[name][0] for name in names), height, width

    def _read_by_pretrained(self, read: Mapping[str, spaces.Space]) -> tuple[str, ...]:
        """Names of the images that a pretrained encoder reads.

        ConfigError for settings that need an encoder of all channels.
        """
        config = self.config
        if not hasattr(ENCODERS.get(config.encoder), "images_read"):
            return ()
        names = ENCODERS[config.encoder].images_read(read, *chosen_settings(config, "encoder"))
        unfit = {"film": config.film, "predicted_mask": config.predicted_mask}
        unfit["normalized"] = tuple(name for name in config.normalized if name in names)
        for key, value in unfit.items():
            if value:
                raise ConfigError(
                    f"{key}: found {value!r} with the pretrained encoder {config.encoder!r}, expected none; choose "
                    "another encoder for it"
                )
        return names

    def _check_film(self, images: Mapping[str, tuple[int, ...]]) -> None:
        """ConfigError where `config.film` names no images, or images without others of their size to modulate."""
        if missing := [name for name in self.config.film if name not in images]:
            raise ConfigError(f"film: found {missing[0]!r}, expected images among {', '.join(images) or 'none'}")
        sizes = [images[names[0]][1:] for names in self.images]
        if alone := [name for name in self.film if images[name][1:] not in sizes]:
            found = ", ".join(f"{name} {shape[1]}x{shape[2]}" for name, shape in images.items())
            raise ConfigError(
                f"film: found {alone[0]!r} with no other image of its size to modulate ({found}), expected one; "
                "leave film empty for an encoder of its own"
            )

    def _check_mask(self) -> None:
        """ConfigError for a mask without images to predict it from, or of another shape than one of their channels."""
        name = self.config.predicted_mask
        if not self.images:
            raise ConfigError(f"predicted_mask: found {name!r} for a policy that reads no images, expected images")
        expected = 1, *self._joint_shape(self.images[0])[1:]
        if (found := self.label_shapes.get(name, expected)) != expected:
            raise ConfigError(
                f"predicted_mask: found {name} {list(found)}, expected {list(expected)}: the images' size"
            )

    def _check_labels(self) -> None:
        """ConfigError where the space has a label of another shape than an auxiliary loss learns from."""
        for each, settings in all_settings(self.config, "auxiliary").items():
            for name, expected in AUXILIARY[each].labels(*settings).items():
                if (found := self.label_shapes.get(name, expected)) != expected:
                    raise ConfigError(
                        f"auxiliary {each}: observation {name!r} has shape {list(found)}, expected {list(expected)}"
                    )

    def _vector_width(self, name: str, shape: tuple[int, ...]) -> int:
        """Width of `_prepare_vector`. ConfigError for a vector in `config.polar` that is not [r, angle]."""
        if name not in self.config.polar:
            return shape[0]
        if shape != (2,):
            raise ConfigError(f"polar: observation {name!r} has shape {list(shape)}, expected [2] (r and angle)")
        return 2 + (DISTANCE_FEATURES if self.config.log_distance else 1)


def _init_heads(actor: nn.Linear, critic: nn.Linear) -> None:
    """Initialise the heads as in the paper's release.

    Actions are nearly uniform, or Gaussian with mean 0 and standard deviation 1; values are nearly 0.
    """
    nn.init.orthogonal_(actor.weight, gain=0.01)
    nn.init.zeros_(actor.bias)
    nn.init.normal_(critic.weight)
    if not critic.weight.is_meta:  # meta tensors have no values, and `norm` of one would import torch's compiler
        with torch.no_grad():
            critic.weight.mul_(0.1 / critic.weight.norm(dim=1, keepdim=True))
    nn.init.zeros_(critic.bias)
