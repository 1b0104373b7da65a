"""Memory of a policy: a causal transformer over a sliding window of the episode's steps.

Blocks are pre-norm: the identity map reordering of GTrXL (Parisotto et al., "Stabilizing transformers for reinforcement
learning", ICML 2020). GTrXL's gates have biases with which a new network acts on the current step alone; here the last
layer of each residual branch begins at zero, as in Fixup (Zhang et al. 2019), with the same effect.

Positions are relative: rotary embeddings (Su et al., "RoFormer", 2021). Keys are rotated before they are stored, so a
step costs one row of attention.

The recurrent state holds the keys and values of the last `window` steps of each block, in a ring buffer.
"""

from __future__ import annotations

import dataclasses
import math
from dataclasses import dataclass
from typing import NamedTuple, cast

import torch
from torch import nn
from torch.nn import functional as F

from batchnav.config import bounded
from batchnav.errors import ConfigError
from batchnav.policy.config import PolicyConfig
from batchnav.policy.memory import Memory
from batchnav.runtime.device import compiled

MLP_RATIO = 2
"""Width of a block's hidden layer, relative to the block's width: two blocks have about as many parameters as two LSTM
layers of the same width."""
WINDOWS_IN_PERIOD = 16
"""Period of the slowest rotation, in windows. Every frequency is a multiple of this one, so that angles repeat exactly
and stay exact however long an episode is."""


class TransformerState(NamedTuple):
    """State of a `CausalTransformer`.

    Bytes per environment: 4 * layers * window * hidden_size on CUDA, twice as many on the CPU. That is 512 KiB on CUDA
    for two layers of width 512 and a window of 128.
    """

    caches: tuple[torch.Tensor, ...]
    """Rotated keys, then values, of each layer: [B, 2, heads, window, head size], bf16 on CUDA, else f32. Step p of an
    episode is in slot p % window."""
    steps: torch.Tensor
    """i64 [B]: steps since the start of the episode."""


class CausalTransformer(Memory):
    """Transformer in which a step attends to itself and to the `window - 1` steps before it in its episode.

    `step` and `forward` compute the same function. `forward` attends once over the stored steps and the whole sequence,
    with a mask of episode starts and of the window. The state after the sequence passes no gradient.
    """

    @dataclass(frozen=True)
    class Config:
        """Settings of the memory `transformer`."""

        layers: int = bounded(2, 1, 8)
        """Number of blocks."""
        heads: int = bounded(8, 1, 64)
        """Number of attention heads; `hidden_size` is a multiple of twice this number."""
        window: int = bounded(128, 1, 4096)
        """Number of steps that are attended to, the current one included. State of an environment on CUDA: 4 * layers *
        window * hidden_size bytes."""

    input_weights = ("input.weight",)

    def __init__(self, input_size: int, hidden_size: int, num_layers: int, heads: int, window: int):
        super().__init__()
        self.output_size, self.heads, self.window = hidden_size, heads, window
        self.input = nn.Linear(input_size, hidden_size)
        self.blocks = nn.ModuleList(Block(hidden_size, heads) for _ in range(num_layers))
        self.norm = nn.LayerNorm(hidden_size)
        nn.init.orthogonal_(self.input.weight)
        nn.init.zeros_(self.input.bias)
        pairs = hidden_size // heads // 2
        fastest = window * WINDOWS_IN_PERIOD / (2.0 * math.pi)  # one radian per step
        turns = [round(fastest ** (i / max(pairs - 1, 1))) for i in range(pairs)]
        device = torch.get_default_device()
        self.turns: torch.Tensor
        """i64 [head size / 2]: rotations of each pair of numbers in a period."""
        self.register_buffer("turns", torch.tensor(turns, dtype=torch.int64, device=device), persistent=False)

    @classmethod
    def from_config(cls, input_size: int, config: PolicyConfig, settings: Config | None = None) -> CausalTransformer:
        """Blocks of width `hidden_size`. ConfigError where the heads do not divide the width evenly."""
        layers, heads, window = dataclasses.astuple(settings or cls.Config())
        if config.hidden_size % (2 * heads):
            raise ConfigError(
                f"hidden_size: found {config.hidden_size} with transformer.heads {heads}, expected a multiple of "
                f"{2 * heads}: heads of an even width"
            )
        return cls(input_size, config.hidden_size, layers, heads, window)

    def initial_state(self, num_envs: int, device: str | torch.device = "cpu") -> TransformerState:
        """Zeros."""
        device = torch.device(device)
        dtype = torch.bfloat16 if device.type == "cuda" else torch.float32
        shape = (num_envs, 2, self.heads, self.window, self.output_size // self.heads)
        caches = tuple(torch.zeros(shape, dtype=dtype, device=device) for _ in self.blocks)
        return TransformerState(caches, torch.zeros(num_envs, dtype=torch.int64, device=device))

    def compile_parts(self) -> None:
        """Compile the blocks, for static shapes."""
        for block in self.blocks:
            compiled(block)

    def step(
        self, x: torch.Tensor, start: torch.Tensor, state: TransformerState
    ) -> tuple[torch.Tensor, TransformerState]:
        """One step, as in `Memory.step`: its keys and values replace the oldest ones of the ring buffer."""
        now = torch.where(start, 0, state.steps)
        age = (now[:, None] - self._slots(x)) % self.window
        visible = (age <= now[:, None])[:, None, None]
        # The first step of an episode fills the buffer, so that nothing of an earlier one is left, such as NaN.
        own = ((age == 0) | start[:, None])[:, None, None, :, None]
        rotation, caches = self._rotation(now[:, None]), []
        x = self.input(x)[:, None]
        for block, cache in zip(self.blocks, state.caches, strict=True):
            x, seen = block(x, rotation, visible, cache, own)
            caches.append(seen)
        return self.norm(x)[:, 0], TransformerState(tuple(caches), now + 1)

    def forward(
        self, x: torch.Tensor, starts: torch.Tensor, state: TransformerState
    ) -> tuple[torch.Tensor, TransformerState]:
        """A sequence, as in `Memory.forward`."""
        starts = starts.t()
        first = _last_start(starts)
        t = torch.arange(starts.shape[1], dtype=torch.int64, device=x.device)
        now = torch.where(first >= 0, t - first, state.steps[:, None] + t)
        visible = torch.cat([self._visible_slots(first, now, state.steps), self._visible_steps(first)], dim=2)[:, None]
        row_of_slot = self._rows_after(now, first)[:, None, None, :, None]
        rotation, caches = self._rotation(now), []
        x = self.input(x).transpose(0, 1)
        for block, cache in zip(self.blocks, state.caches, strict=True):
            # zeros where the sequence begins an episode: masked rows of NaN would make outputs NaN
            cache = torch.where(starts[:, 0].view(-1, 1, 1, 1, 1), 0.0, cache)
            x, seen = block(x, rotation, visible, cache)
            caches.append(seen.detach().gather(3, row_of_slot.expand(cache.shape)))
        return self.norm(x).transpose(0, 1), TransformerState(tuple(caches), now[:, -1] + 1)

    def _slots(self, x: torch.Tensor) -> torch.Tensor:
        """Numbers of the ring buffer's slots, i64 [window]."""
        return torch.arange(self.window, dtype=torch.int64, device=x.device)

    def _visible_slots(self, first: torch.Tensor, now: torch.Tensor, steps: torch.Tensor) -> torch.Tensor:
        """bool [B, T, window]: the slots of the ring buffer before the sequence that each of its steps attends to.

        Args:
            first: `_last_start` of the sequence, i64 [B, T].
            now: steps since the start of the episode, i64 [B, T].
            steps: `now` of the sequence's first step if no episode starts there, i64 [B].
        """
        before = steps[:, None] - 1
        held = before - (before - self._slots(now)) % self.window  # the step in each slot; negative where it is empty
        in_window = now[:, :, None] - held[:, None] < self.window
        return (first < 0)[:, :, None] & (held >= 0)[:, None] & in_window

    def _visible_steps(self, first: torch.Tensor) -> torch.Tensor:
        """bool [B, T, T]: the steps of the sequence that each of its steps attends to; `first` is `_last_start`."""
        t = torch.arange(first.shape[1], dtype=torch.int64, device=first.device)
        ago = t[:, None] - t
        return (ago >= 0) & (ago < self.window) & (t >= first[:, :, None])

    def _rows_after(self, now: torch.Tensor, first: torch.Tensor) -> torch.Tensor:
        """i64 [B, window]: row that each slot holds after a sequence, among the slots before it and the sequence.

        Where an episode began, slots that are still empty hold its first step. `first`: as in `_visible_slots`.
        """
        slots, t = self._slots(now), torch.arange(now.shape[1], dtype=torch.int64, device=now.device)
        written = (now % self.window)[:, :, None] == slots
        last = torch.where(written, t[:, None], -1).amax(1).maximum(first[:, -1:])
        return torch.where(last >= 0, self.window + last, slots)

    def _rotation(self, now: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Cosines and sines f32 [B, 1, T, head size / 2] of the angles of steps i64 [B, T]."""
        period = WINDOWS_IN_PERIOD * self.window
        parts = (now % period)[:, None, :, None] * self.turns % period
        angle = parts.float() * (2.0 * math.pi / period)
        return angle.cos(), angle.sin()


class Block(nn.Module):
    """Pre-norm attention and feed-forward layers with residual connections; the identity when it is new."""

    def __init__(self, width: int, heads: int):
        super().__init__()
        self.heads = heads
        self.attention_norm, self.mlp_norm = nn.LayerNorm(width), nn.LayerNorm(width)
        self.query_key_value = nn.Linear(width, 3 * width)
        self.project = nn.Linear(width, width)
        self.mlp = nn.Sequential(nn.Linear(width, MLP_RATIO * width), nn.GELU(), nn.Linear(MLP_RATIO * width, width))
        hidden, last = cast(nn.Linear, self.mlp[0]), cast(nn.Linear, self.mlp[2])
        for layer in (self.query_key_value, hidden):
            nn.init.orthogonal_(layer.weight)
        for layer in (self.project, last):
            nn.init.zeros_(layer.weight)
        for layer in (self.query_key_value, hidden, self.project, last):
            nn.init.zeros_(layer.bias)

    def forward(
        self,
        x: torch.Tensor,
        rotation: tuple[torch.Tensor, torch.Tensor],
        visible: torch.Tensor,
        cache: torch.Tensor,
        own: torch.Tensor | None = None,
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """T steps of B agents.

        Args:
            x: inputs [B, T, width].
            rotation: cosines and sines f32 [B, 1, T, head size / 2].
            visible: bool [B, 1, T, S]: the rows that each step attends to.
            cache: keys and values before these steps, [B, 2, heads, window, head size]; the products have its type.
            own: bool [B, 1, 1, window, 1], for T = 1: the slots that the step replaces. None: the steps are appended.

        Returns:
            outputs [B, T, width], and the S rows of keys and values that the steps attend to.
        """
        parts = self.query_key_value(self.attention_norm(x)).unflatten(2, (3, self.heads, -1))
        query, key, value = parts.permute(2, 0, 3, 1, 4)
        new = torch.stack([_rotate(key, rotation).to(cache.dtype), value.to(cache.dtype)], dim=1)
        seen = torch.cat([cache, new], dim=3) if own is None else torch.where(own, new, cache)
        keys, values = seen.unbind(1)
        query = _rotate(query, rotation).to(cache.dtype)
        found = F.scaled_dot_product_attention(query, keys, values, attn_mask=visible)
        x = x + self.project(found.transpose(1, 2).flatten(2).to(x.dtype))
        return x + self.mlp(self.mlp_norm(x)), seen


def _rotate(x: torch.Tensor, rotation: tuple[torch.Tensor, torch.Tensor]) -> torch.Tensor:
    """Rotate pairs (i, i + D / 2) of [B, heads, T, D]; the result has the rotation's type."""
    (a, b), (cos, sin) = x.chunk(2, dim=-1), rotation
    return torch.cat([a * cos - b * sin, a * sin + b * cos], dim=-1)


def _last_start(starts: torch.Tensor) -> torch.Tensor:
    """i64 [B, T]: the last step up to each one where an episode starts, -1 for none; starts bool [B, T]."""
    t = torch.arange(starts.shape[1], dtype=torch.int64, device=starts.device)
    return torch.where(starts, t, -1).cummax(1).values
