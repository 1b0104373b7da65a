"""Screenshots of pages for the docs: the report of an evaluation, the report of a run, and the viewer.

    batchnav evaluate pointnav_plan_small --episodes EPISODES --report --out reports/first
    batchnav train --config pointnav_waypoint_cpu --out runs/tutorial
    batchnav view house:7 --agents pointnav_plan_small
    python docs/figures/pages.py --report reports/first --run runs/tutorial --viewer http://127.0.0.1:8080

A name such as `report_400.png` has the width of the window. Requires Chromium.
"""

from __future__ import annotations

import base64
import io
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

import tyro
from PIL import Image

ROOT = Path(__file__).resolve().parents[2]
sys.path.append(str(ROOT / "tests"))
from browser import Page, browser  # noqa: E402

REPORT = {1600: (2450, 1100), 900: (1100, 900), 400: (1750, 400)}
RUN = {900: (1285, 900)}
VIEWER = {1600: (1000, 1200), 400: (850, 400)}
"""Height of the picture and width of the file, pixels, by width of the window."""
STEP = 40
"""Step of the viewer's episode."""
CLOSE = "document.querySelectorAll('.mantine-Notification-closeButton').forEach(button => button.click())"
"""Script that closes the viewer's messages, such as the one on rendering without a GPU."""


@dataclass(frozen=True)
class Options:
    """Pages to show; a page that is not given keeps its pictures."""

    report: Path | None = None
    """Folder of an evaluation with --report."""
    run: Path | None = None
    """Folder of a training run."""
    viewer: str = ""
    """Address of a viewer, in which an episode is played."""
    out: Path = ROOT / "docs/images"
    """Folder of the pictures."""


def main(options: Options) -> None:
    """Write the pictures of all pages that are given."""
    with tempfile.TemporaryDirectory() as profile, browser(Path(profile)) as page:
        page.call("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": "light"}])
        if options.report:
            for width in REPORT:
                page.open((options.report / "index.html").resolve().as_uri(), width)
                save(page, options.out / f"report_{width}.png", width, *REPORT[width])
        if options.run:
            for width in RUN:
                page.open((options.run / "report.html").resolve().as_uri(), width)
                save(page, options.out / f"run_{width}.png", width, *RUN[width])
        if options.viewer:
            for width in VIEWER:
                page.open(options.viewer, width, VIEWER[width][0])
                play(page)
                save(page, options.out / f"viewer_{width}.png", width, *VIEWER[width])


def play(page: Page) -> None:
    """Play the viewer's episode from its start up to `STEP`."""
    text, step = "document.body.innerText", "+(document.body.innerText.match(/step (\\d+) of/) ?? [0, 0])[1]"
    press = "[...document.querySelectorAll('button')].find(button => button.textContent == '{}').click()"
    page.wait_for(f"{text}.includes('Play') && document.querySelector('canvas') != null")
    for button, shown in (
        ("start", f"{step} == 1"),
        ("Play", f"{step} >= {STEP}"),
        ("Pause", f"{text}.includes('Play')"),
    ):
        page.run(press.format(button))
        page.wait_for(shown)
    page.run(CLOSE)


def save(page: Page, path: Path, width: int, height: int, side: int) -> None:
    """Save the top of a page as a PNG of `side` pixels' width, with a palette of 256 colours."""
    clip = {"x": 0, "y": 0, "width": width, "height": height, "scale": 1}
    shot = page.call("Page.captureScreenshot", format="png", captureBeyondViewport=True, clip=clip)
    with Image.open(io.BytesIO(base64.b64decode(shot["data"]))) as image:
        small = image.convert("RGB").resize((side, height * side // width), Image.Resampling.LANCZOS)
        small.quantize(256, Image.Quantize.FASTOCTREE, dither=Image.Dither.NONE).save(path, optimize=True)


if __name__ == "__main__":
    main(tyro.cli(Options, description=__doc__))
