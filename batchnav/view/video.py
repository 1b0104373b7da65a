"""Sensor images in colour, and videos of episodes: the images next to a map with the path."""

from __future__ import annotations

import importlib
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image, ImageDraw, ImageFont

from batchnav.errors import ArgumentError, BatchnavError
from batchnav.evaluation.play import Recording
from batchnav.observation import Spec
from batchnav.runtime.files import replacing
from batchnav.runtime.imports import install_command
from batchnav.types import Metric
from batchnav.view.topdown import AMBER, BLUE, INK, ORANGE, PAPER, TopDownMap

# Sensor images as colour images, single or in a grid

# Viridis (Nathaniel Smith and Stefan van der Walt, CC0), sampled at even steps. It is perceptually uniform and suitable
# for colour-blind readers and greyscale.
_VIRIDIS = np.array([
    (68, 1, 84), (71, 45, 123), (59, 82, 139), (44, 114, 142), (33, 145, 140),
    (40, 174, 128), (94, 201, 98), (173, 220, 48), (253, 231, 37),
])  # fmt: skip
HOLE = (20, 20, 20)
"""Colour of depth 0 (no surface) and of id 0."""


def colour_depth(depth: np.ndarray, far: float = 1.0) -> np.ndarray:
    """Colours of depth f32 [..., H, W]: u8 [..., H, W, 3], yellow near, purple at `far` and beyond, dark in holes."""
    depth = np.asarray(depth, np.float32)
    # The square root gives most colours to the near range, where most surfaces are.
    nearness = 1.0 - np.sqrt(np.clip(np.nan_to_num(depth) / far, 0.0, 1.0))
    steps = np.linspace(0.0, 1.0, len(_VIRIDIS))
    colours = np.stack([np.interp(nearness, steps, channel) for channel in _VIRIDIS.T], axis=-1)
    return np.where(depth[..., None] > 0.0, np.round(colours), HOLE).astype(np.uint8)


def colour(values: np.ndarray, spec: Spec) -> np.ndarray:
    """Sensor images [..., C, H, W] as colour images u8 [..., H, W, 3].

    One channel is depth, a mask, or ids with one colour each; three channels are colour. ArgumentError for other
    channels.
    """
    if holds_ids(spec):
        return colour_ids(values[..., 0, :, :])
    if values.shape[-3] == 1 and not spec.dtype.is_floating_point:
        return np.where(np.moveaxis(values, -3, -1) > 0, AMBER, HOLE).astype(np.uint8)
    if values.shape[-3] == 1:
        return colour_depth(values[..., 0, :, :], spec.high)
    if values.shape[-3] != 3:
        raise ArgumentError(f"{spec.name}: found {values.shape[-3]} channels, expected 1 (depth or ids) or 3 (colour)")
    share = (values.astype(np.float32) - spec.low) / (spec.high - spec.low)
    return np.round(255 * np.moveaxis(np.clip(share, 0.0, 1.0), -3, -1)).astype(np.uint8)


def holds_ids(spec: Spec) -> bool:
    """True where a sensor's images hold ids, such as categories or instances."""
    return spec.shape[0] == 1 and not spec.dtype.is_floating_point and spec.high > 255


def colour_ids(ids: np.ndarray) -> np.ndarray:
    """Ids i32 [..., H, W] -> u8 [..., H, W, 3]: each id has the same colour in every image; 0 is dark."""
    # Multiples of the golden ratio keep consecutive hues far apart.
    hue = (np.asarray(ids, np.float64) * 0.618033988749895)[..., None] + np.array([0.0, 2.0, 1.0]) / 3.0
    colours = 105.0 + 130.0 * np.clip(np.abs(hue % 1.0 * 6.0 - 3.0) - 1.0, 0.0, 1.0)
    return np.where(np.asarray(ids)[..., None] > 0, np.round(colours), HOLE).astype(np.uint8)


def depth_mosaic(
    depth: np.ndarray, columns: int | None = None, scale: int = 1, gap: int = 2, far: float = 1.0
) -> Image.Image:
    """A grid of depth images f32 [N, H, W] in one image. Colours: `colour_depth`; layout: `mosaic`.

    Depth is 0..1, or metres with `far` in metres. ArgumentError for another shape.
    """
    if depth.ndim != 3 or not len(depth):
        raise ArgumentError(f"depth: found shape {list(depth.shape)}, expected [N, H, W] with N >= 1")
    return mosaic(colour_depth(depth, far), columns, scale, gap)


def mosaic(pictures: np.ndarray, columns: int | None = None, scale: int = 1, gap: int = 2) -> Image.Image:
    """A grid of images in one image; the first is at the top left.

    Args:
        pictures: u8 [N, H, W, 3].
        columns: images per row; default: the square root of N, rounded up.
        scale: integer enlargement factor.
        gap: white pixels between images.
    """
    n, height, width, _ = pictures.shape
    columns = min(n, columns or math.ceil(math.sqrt(n)))
    rows = -(-n // columns)
    images = pictures.repeat(scale, axis=1).repeat(scale, axis=2)
    step_y, step_x = height * scale + gap, width * scale + gap
    sheet = np.full((rows * step_y - gap, columns * step_x - gap, 3), 255, np.uint8)
    for i, image in enumerate(images):
        y, x = i // columns * step_y, i % columns * step_x
        sheet[y : y + height * scale, x : x + width * scale] = image
    return Image.fromarray(sheet)


MAX_FRAMES = 160
"""Maximum number of frames; longer episodes are subsampled evenly, which keeps files below a few megabytes."""
DEPTH_COLOURS = 128
"""Number of a GIF's 256 colours that are reserved for depth."""
CAPTION = 24
"""Height of the caption, pixels."""
HOLD_SECONDS = 1.5
"""Duration of the last frame, seconds."""


def draw_episode(plan: TopDownMap, recording: Recording, shortest: np.ndarray | None) -> None:
    """Draw an episode on a map: the agent's path and start; also goal and shortest path f32 [K, 3] if there are any."""
    _draw_goal(plan, recording, shortest)
    if recording.seen is not None:
        plan.draw_bodies(recording.seen, len(recording.positions) - 1)
    plan.draw_path(recording.positions, BLUE)
    plan.draw_start(recording.positions[0], float(recording.headings[0]))


def video_frames(plan: TopDownMap, recording: Recording, shortest: np.ndarray | None) -> list[Image.Image]:
    """One frame per shown step: sensor images, the map with the path to the right, a caption below."""
    plan = plan.copy()
    _draw_goal(plan, recording, shortest)
    steps = len(recording.positions)
    shown = [*range(0, steps - 1, -(-steps // MAX_FRAMES)), steps - 1]
    return [_frame(plan.copy(), recording, step) for step in shown]


def save_gif(frames: list[Image.Image], path: str | Path, frames_per_second: float = 12.0) -> None:
    """Write frames as a looping GIF, whole or not at all."""
    palette = _palette(frames[-1])
    paletted = [frame.quantize(palette=palette, dither=Image.Dither.NONE) for frame in frames]
    durations = [round(1000 / frames_per_second)] * (len(frames) - 1) + [round(1000 * HOLD_SECONDS)]
    with replacing(Path(path), BatchnavError) as part:
        paletted[0].save(part, "GIF", save_all=True, append_images=paletted[1:], duration=durations, loop=0)


def find_av(purpose: str) -> Any:
    """The module `av` of PyAV. BatchnavError, which begins with `purpose`, if it is not installed."""
    try:
        return importlib.import_module("av")
    except ImportError as error:
        raise BatchnavError(f"{purpose}: found no PyAV, expected it: {install_command('video')}") from error


def save_mp4(frames: list[Image.Image], path: str | Path, frames_per_second: int = 12) -> None:
    """Write frames as an MP4 (H.264), whole or not at all. BatchnavError if PyAV is not installed."""
    av = find_av(str(path))
    width, height = (side + side % 2 for side in frames[0].size)  # H.264 needs even sizes
    shown = [*frames, *[frames[-1]] * round(HOLD_SECONDS * frames_per_second)]
    with replacing(Path(path), BatchnavError) as part, av.open(str(part), "w", format="mp4") as file:
        stream = file.add_stream("libx264", rate=frames_per_second)
        stream.width, stream.height, stream.pix_fmt = width, height, "yuv420p"
        for frame in shown:
            whole = Image.new("RGB", (width, height), PAPER)
            whole.paste(frame)
            file.mux(stream.encode(av.VideoFrame.from_image(whole)))
        file.mux(stream.encode())


def _palette(last: Image.Image) -> Image.Image:
    """One palette for all frames, which avoids flicker: depth colours and the colours of the last frame."""
    ramp = colour_depth(np.linspace(0.0, 1.0, DEPTH_COLOURS, dtype=np.float32)[None])[0]
    drawn = last.quantize(256 - DEPTH_COLOURS, method=Image.Quantize.MAXCOVERAGE).getpalette() or []
    palette = Image.new("P", (1, 1))
    palette.putpalette([*ramp.flatten().tolist(), *drawn[: 3 * (256 - DEPTH_COLOURS)]])
    return palette


def _draw_goal(plan: TopDownMap, recording: Recording, shortest: np.ndarray | None) -> None:
    if recording.goal is not None and shortest is not None:
        plan.draw_path(shortest, ORANGE, dash=7.0)
        plan.draw_goal(recording.goal, recording.goal_radius)
    plan.draw_scale_bar()


def _frame(plan: TopDownMap, recording: Recording, step: int) -> Image.Image:
    if recording.seen is not None:
        plan.draw_bodies(recording.seen, step)
    plan.draw_path(recording.positions[: step + 1], BLUE)
    plan.draw_start(recording.positions[step], float(recording.headings[step]), BLUE)
    side = plan.size[1]
    views = [Image.fromarray(colour(values[step], spec)) for spec, values in recording.images.values()]
    widths = [round(side * view.width / view.height) for view in views]
    frame = Image.new("RGB", (sum(widths) + 6 * len(views) + plan.size[0], side + CAPTION), PAPER)
    x = 0
    for view, width in zip(views, widths, strict=True):
        frame.paste(view.resize((width, side), Image.Resampling.NEAREST), (x, 0))
        x += width + 6
    frame.paste(plan.image, (x, 0))
    ImageDraw.Draw(frame).text(
        (4, side + CAPTION // 2), caption(recording, step), fill=INK, font=ImageFont.load_default(13), anchor="lm"
    )
    return frame


def caption(recording: Recording, step: int) -> str:
    """Caption of a frame: step, straight-line distance to the goal, and in the last frame the outcome."""
    text = f"step {step + 1} of {len(recording.positions)}"
    if recording.goal is not None:
        gap = recording.goal - recording.positions[step]
        text += f", goal {np.linalg.norm(gap):.1f} m away"
    return f"{text}; {outcome(recording)}" if step == len(recording.positions) - 1 else text


def outcome(recording: Recording) -> str:
    """Headline metrics of an episode as text."""
    return outcome_of(recording.metric_specs, recording.metrics)


def outcome_of(metric_specs: Sequence[Metric], metrics: Mapping[str, float]) -> str:
    """Headline metrics as text, such as "success, spl 0.93" or "no success, spl 0.00"."""
    words = []
    for metric in metric_specs:
        value = metrics[metric.name]
        if metric.headline and metric.binary:
            words.append(metric.name if value else f"no {metric.name}")
        elif metric.headline:
            words.append(f"{metric.name.replace('_', ' ')} {value:.2f}")
    return ", ".join(words)
