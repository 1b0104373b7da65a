"""The policy network: what is observed and what was done last, through a memory, to actions' odds and a value.

    images ---- encoder ---------.
    vectors --- linear ----------+-- concat -- LSTM (or two tanh layers) --.-- actor:  of actions
    last action - embedding -----'                                         '-- critic: value

Vectors, memory and the last action are there or not as spaces and settings say.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import NamedTuple, cast

import numpy as np
import torch
from gymnasium import spaces
from torch import nn

from batchnav.errors import ConfigError
from batchnav.policy.actions import actions_of
from batchnav.policy.config import PolicyConfig
from batchnav.policy.encoder import ENCODERS
from batchnav.policy.lstm import EpisodicLSTM, lstm_cell
from batchnav.policy.normalize import RunningNorm

PLAIN_OBSERVATION = "observation"
"""The name that an observation which is no dict goes by."""
PREVIOUS_ACTION = "previous action"
"""The name that the last action goes by among what the body reads."""
_NEAR = 0.1
"""Metres: nearer distances hardly differ to a network with `PolicyConfig.log_distance`."""
_WAVES = tuple(math.pi * 2.0**k for k in range(3))
"""Of ln(r + _NEAR), radians each."""
DISTANCE_FEATURES = 1 + 2 * len(_WAVES)
"""What such a network reads of a distance."""


class Act(NamedTuple):
    """One step of B agents."""

    action: torch.Tensor
    """i64 [B], or f32 [B, A] of a Box."""
    log_prob: torch.Tensor
    """f32 [B], of the action taken."""
    value: torch.Tensor
    """f32 [B]."""
    state: torch.Tensor
    """f32 [2, L, B, H], for the next step."""


class Evaluation(NamedTuple):
    """A sequence of T steps of B agents, seen again."""

    log_prob: torch.Tensor
    """f32 [T, B], of the actions given."""
    entropy: torch.Tensor
    """f32 [T, B]."""
    value: torch.Tensor
    """f32 [T, B]."""
    outputs: torch.Tensor
    """f32 [T, B, num_outputs]: the actor's, by which other actions can be judged."""


class ActorCritic(nn.Module):
    """Actor and critic with one body, for a dict of observations, and actions that are discrete or a Box of floats.

    A 3-D box [C, H, W] is an image, floats in 0..1 or bytes, and read by the encoder that the configuration names,
    unless it makes the agent blind; images of one size are channels of one, each further size has an encoder of its
    own. 1-D boxes go through a linear layer each; those named in `config.polar` are [r, angle] and read as
    [r, cos, sin], with `config.log_distance` as [*log_distance(r), cos, sin]. A plain box is the dict
    {"observation": box}. With memory, the previous action is embedded too; a policy without memory sees the
    observation alone.

    ConfigError for spaces and settings that do not go together.
    """

    def __init__(self, observation_space: spaces.Space, action_space: spaces.Space, config: PolicyConfig):
        super().__init__()
        self.config = config
        """The `PolicyConfig` it was made from."""
        self.observation_shapes = _observation_shapes(observation_space, config.blind)
        """What it reads: shape of one environment's observation by name."""
        self.action_space = action_space
        self.actions = actions_of(action_space)
        """How actions are drawn and judged."""
        self.images = _by_size(self.observation_shapes)
        """Names of the images that are read together, for each size."""
        images = {name: shape for name, shape in self.observation_shapes.items() if len(shape) == 3}
        self.norms = nn.ModuleDict({n: RunningNorm(shape[0]) for n, shape in images.items() if n in config.normalized})
        encoders = [self._make_encoder(names) for names in self.images]
        self.encoder = encoders[0] if encoders else None
        self.more_encoders = nn.ModuleList(encoders[1:])
        self.body_inputs = {n[0]: cast(int, e.output_size) for n, e in zip(self.images, encoders, strict=True)}
        """How many numbers the body reads of each part, in their order; images that are read together go by the first's
        name."""
        self.embeddings = nn.ModuleDict()
        for name, shape in self.observation_shapes.items():
            if len(shape) == 1:
                self.embeddings[name] = nn.Linear(self._vector_size(name, shape), config.embedding_size)
                self.body_inputs[name] = config.embedding_size
        if config.lstm_layers:
            self.previous_action = self.actions.embedding(config.embedding_size)
            self.body_inputs[PREVIOUS_ACTION] = config.embedding_size
        width = sum(self.body_inputs.values())
        if config.lstm_layers:
            self.body: EpisodicLSTM | nn.Sequential = EpisodicLSTM(width, config.hidden_size, config.lstm_layers)
        elif width:
            self.body = _feed_forward(width, config.hidden_size)
        else:
            raise ConfigError("blind: a policy with neither images, vector observations nor memory has no input")
        self.actor = nn.Linear(config.hidden_size, self.actions.num_outputs)
        self.critic = nn.Linear(config.hidden_size, 1)
        _init_heads(self.actor, self.critic)

    def initial_state(self, num_envs: int, device: str | torch.device = "cpu") -> torch.Tensor:
        """Zero memory f32 [2, L, num_envs, H]: LSTM h and c (L = 0 where there is no memory)."""
        return torch.zeros(2, self.config.lstm_layers, num_envs, self.config.hidden_size, device=device)

    def act(
        self,
        obs: Mapping[str, torch.Tensor] | torch.Tensor,
        prev_action: torch.Tensor,
        start_mask: torch.Tensor,
        state: torch.Tensor,
        uniforms: torch.Tensor | None = None,
    ) -> Act:
        """One step. A pure function of tensors: no random state, no host synchronisation.

        Args:
            obs: [B, ...] by name.
            prev_action: as `Act.action`: the one taken before this observation; ignored where an episode starts.
            start_mask: bool [B], set where this is an episode's first observation.
            state: f32 [2, L, B, H], memory after the previous step.
            uniforms: f32 [B, *actions.shape] in [0, 1), from which actions are drawn; None takes the most probable.
        """
        outputs, value, state = self._step(obs, prev_action, start_mask, state)
        action, log_prob = self.actions.draw(outputs, uniforms)
        return Act(action, log_prob, value, state)

    def value(
        self,
        obs: Mapping[str, torch.Tensor] | torch.Tensor,
        prev_action: torch.Tensor,
        start_mask: torch.Tensor,
        state: torch.Tensor,
    ) -> torch.Tensor:
        """f32 [B]: the critic alone, arguments as in `act`."""
        return self._step(obs, prev_action, start_mask, state)[1]

    def evaluate(
        self,
        obs: Mapping[str, torch.Tensor] | torch.Tensor,
        prev_action: torch.Tensor,
        starts: torch.Tensor,
        state0: torch.Tensor,
        actions: torch.Tensor,
    ) -> Evaluation:
        """Sequences: obs [T, B, ...], prev_action and actions [T, B, ...], starts bool [T, B], state0 [2, L, B, H].

        Memory restarts inside a sequence where `starts` is set, as it did in `act`.
        """
        outputs, value, _ = self._sequence(obs, prev_action, starts, state0)
        return Evaluation(*self.actions.judge(outputs, actions), value, outputs)

    def compile_parts(self) -> None:
        """Run the encoder and the LSTM's cell through torch.compile, in place, for static shapes."""
        for encoder in self._encoders():
            encoder.compile(dynamic=False)
        if isinstance(self.body, EpisodicLSTM):
            self.body.cell = torch.compile(lstm_cell, dynamic=False)

    def _step(self, obs, prev_action, start_mask, state):
        obs = {name: value[None] for name, value in as_dict(obs).items()}
        outputs, value, state = self._sequence(obs, prev_action[None], start_mask[None], state)
        return outputs[0], value[0], state

    def _sequence(self, obs, prev_action, starts, state):
        """The actor's outputs f32 [T, B, num_outputs], value f32 [T, B], state after the last step."""
        x = self._features(as_dict(obs), prev_action, starts)
        if self.config.lstm_layers:
            x, state = self.body(x, starts, state)
        else:
            x = self.body(x)
        return self.actor(x).float(), self.critic(x).squeeze(-1).float(), state

    def _features(self, obs: Mapping[str, torch.Tensor], prev_action, starts) -> torch.Tensor:
        """What the body reads: [T, B, width]."""
        parts = []
        for names, encoder in zip(self.images, self._encoders(), strict=True):
            image = _together([self._read(name, obs[name]) for name in names])
            parts.append(encoder(image.flatten(0, 1)).unflatten(0, image.shape[:2]))
        for name, embed in self.embeddings.items():
            vector = obs[name]
            if name in self.config.polar:
                r, angle = vector[..., :1], vector[..., 1:]
                distance = log_distance(r) if self.config.log_distance else r
                vector = torch.cat([distance, torch.cos(angle), torch.sin(angle)], dim=-1)
            parts.append(embed(vector))
        if self.config.lstm_layers:
            parts.append(self.actions.embed(self.previous_action, prev_action, starts))
        return torch.cat(parts, dim=-1)

    def watch(
        self, obs: Mapping[str, torch.Tensor], average: Callable[[torch.Tensor], torch.Tensor] = torch.clone
    ) -> None:
        """Count a rollout's images [T, B, C, H, W] into the means and variances of `config.normalized`.

        `average` is as in `RunningNorm.update`.
        """
        for name, norm in self.norms.items():
            cast(RunningNorm, norm).update(obs[name], average)

    def _read(self, name: str, image: torch.Tensor) -> torch.Tensor:
        """An image as the encoder reads it: bytes as 0..1, then normalised where that is asked for."""
        floats = image / 255.0 if image.dtype == torch.uint8 else image
        return self.norms[name](floats) if name in self.norms else floats

    def _encoders(self) -> list[nn.Module]:
        """One for each entry of `images`."""
        return [] if self.encoder is None else [self.encoder, *self.more_encoders]

    def _make_encoder(self, names: tuple[str, ...]) -> nn.Module:
        if self.config.encoder not in ENCODERS:
            raise ConfigError(f"encoder: found {self.config.encoder!r}, expected one of {', '.join(ENCODERS)}")
        channels = sum(self.observation_shapes[name][0] for name in names)
        _, height, width = self.observation_shapes[names[0]]
        return ENCODERS[self.config.encoder]((channels, height, width), self.config)

    def _vector_size(self, name: str, shape: tuple[int, ...]) -> int:
        if name not in self.config.polar:
            return shape[0]
        if shape != (2,):
            raise ConfigError(f"polar: observation {name!r} has shape {list(shape)}, expected [2] (r and angle)")
        return 2 + (DISTANCE_FEATURES if self.config.log_distance else 1)


def log_distance(r: torch.Tensor) -> torch.Tensor:
    """Distances f32 [..., 1] as a network can tell them apart, near and far: f32 [..., DISTANCE_FEATURES].

    Their logarithm, and sines and cosines of it at several frequencies: Fourier features (Tancik et al., "Fourier
    features let networks learn high frequency functions in low dimensional domains", NeurIPS 2020).
    """
    x = torch.log(r.clamp(min=0.0) + _NEAR)
    waves = torch.cat([x * frequency for frequency in _WAVES], dim=-1)
    return torch.cat([x, torch.sin(waves), torch.cos(waves)], dim=-1)


def as_dict(obs: Mapping[str, torch.Tensor] | torch.Tensor) -> Mapping[str, torch.Tensor]:
    """Observations by name: a plain tensor goes by PLAIN_OBSERVATION."""
    return obs if isinstance(obs, Mapping) else {PLAIN_OBSERVATION: obs}


def _observation_shapes(space: spaces.Space, blind: bool) -> dict[str, tuple[int, ...]]:
    """Shape of each observation that is read, in the space's order."""
    boxes = dict(space.spaces) if isinstance(space, spaces.Dict) else {PLAIN_OBSERVATION: space}
    shapes = {}
    for name, box in boxes.items():
        if not isinstance(box, spaces.Box) or not _can_be_read(box):
            raise ConfigError(
                f"observation {name!r}: found {box}, expected a Box of floats [n] or [C, H, W], or of bytes [C, H, W]"
            )
        if not (blind and len(box.shape) == 3):
            shapes[name] = tuple(map(int, box.shape))
    return shapes


def _can_be_read(box: spaces.Box) -> bool:
    """Whether these are floats in a vector or an image, or an image of bytes."""
    dimensions, is_float = len(box.shape), np.issubdtype(box.dtype, np.floating)
    return (is_float and dimensions in (1, 3)) or (box.dtype == np.uint8 and dimensions == 3)


def _by_size(shapes: Mapping[str, tuple[int, ...]]) -> list[tuple[str, ...]]:
    """Names of the images by height and width, in the order in which the sizes first come."""
    groups: dict[tuple[int, ...], list[str]] = {}
    for name, shape in shapes.items():
        if len(shape) == 3:
            groups.setdefault(shape[1:], []).append(name)
    return [tuple(names) for names in groups.values()]


def _together(images: list[torch.Tensor]) -> torch.Tensor:
    """Images [T, B, C, H, W] as channels of one."""
    return images[0] if len(images) == 1 else torch.cat(images, dim=2)


def _feed_forward(width: int, hidden_size: int) -> nn.Sequential:
    first, second = nn.Linear(width, hidden_size), nn.Linear(hidden_size, hidden_size)
    for layer in (first, second):
        nn.init.orthogonal_(layer.weight, gain=2**0.5)
        nn.init.zeros_(layer.bias)
    return nn.Sequential(first, nn.Tanh(), second, nn.Tanh())


def _init_heads(actor: nn.Linear, critic: nn.Linear) -> None:
    """Near-uniform actions, or Gaussians of mean 0 and deviation 1, and near-zero values: as in the paper's release."""
    nn.init.orthogonal_(actor.weight, gain=0.01)
    nn.init.zeros_(actor.bias)
    nn.init.normal_(critic.weight)
    if not critic.weight.is_meta:  # which has no values, and whose norm imports torch's compiler
        with torch.no_grad():
            critic.weight.mul_(0.1 / critic.weight.norm(dim=1, keepdim=True))
    nn.init.zeros_(critic.bias)
