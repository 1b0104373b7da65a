"""Videos of episodes: sensor images next to a map with the path."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
from PIL import Image, ImageDraw, ImageFont

from batchnav.errors import BatchnavError
from batchnav.evaluation.play import Recording
from batchnav.runtime.extras import install_command
from batchnav.runtime.files.atomic import replacing
from batchnav.types import Metric
from batchnav.view.mosaic import colour, colour_depth
from batchnav.view.topdown import BLUE, INK, ORANGE, PAPER, TopDownMap

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


def save_mp4(frames: list[Image.Image], path: str | Path, frames_per_second: int = 12) -> None:
    """Write frames as an MP4 (H.264), whole or not at all. BatchnavError if PyAV is not installed."""
    try:
        import av
    except ImportError as error:
        raise BatchnavError(f"{path}: found no PyAV, expected it: {install_command('video')}") from error
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
        text += f", goal {np.hypot(gap[0], gap[2]):.1f} m away"
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
