"""Self-contained HTML pages (images, style and script inlined), and the page of a training run."""

from __future__ import annotations

import datetime
import functools
import json
import logging
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import jinja2
import yaml

from batchnav.config import to_dict
from batchnav.errors import CheckpointError, shell_word
from batchnav.report.charts import COLOURS, Rows, charts, is_plottable, learning_curves
from batchnav.report.results import commit
from batchnav.runtime.files import replacing

log = logging.getLogger(__name__)

FIRST_SECONDS, REFRESH_SECONDS = 5.0, 20.0
"""Seconds until a run's page is first written, and the minimum between two later writes."""
SHARE = 0.001
"""Maximum fraction of the training time that is spent on writing the page."""


@functools.cache
def _templates() -> jinja2.Environment:
    return jinja2.Environment(
        loader=jinja2.PackageLoader("batchnav", ""), autoescape=True, undefined=jinja2.StrictUndefined,
        trim_blocks=True, lstrip_blocks=True,
    )  # fmt: skip


def render(template: str, **values: Any) -> str:
    """Render a template of the package, such as "report/pages/run.html"."""
    return _templates().get_template(template).render(**values)


def script_json(data: Any) -> str:
    """JSON that can stand in a page's script element: no text of it ends the element or opens a comment."""
    text = json.dumps(data, separators=(",", ":"))
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


def command() -> str:
    """The command line of this process as one would type it, quoted for a shell."""
    program = Path(sys.argv[0])
    if program.name in ("batchnav", "__main__.py"):  # the installed command, or `python -m batchnav`
        words = ["batchnav"]
    else:
        words = ["python", str(program)] if program.suffix == ".py" else [program.name]
    return " ".join(map(shell_word, [*words, *sys.argv[1:]]))


def now() -> str:
    """Date and time to the minute, with the time zone."""
    return datetime.datetime.now().astimezone().strftime("%Y-%m-%d %H:%M %Z")


def as_yaml(config: Any) -> str:
    """A configuration in YAML."""
    return yaml.safe_dump(to_dict(config), sort_keys=False)


class RunPage:
    """The page of a training run (`report.html` in its folder), rewritten during training; the browser reloads it.

    A page that cannot be written logs a warning; training continues.

    Args:
        path: the file to write.
        config: the run's configuration, a dataclass.
        rows: curves of the run so far.
        metrics: (low, high) of the task's headline metrics, by name.
    """

    def __init__(self, path: Path, config: Any, rows: Rows, metrics: Mapping[str, tuple[float, float]]):
        self.path, self.config, self.metrics = path, config, metrics
        self.rows = Rows([self._of_charts(row) for row in rows.training], list(rows.evaluations))
        self._header = {"command": command(), "commit": commit(), "started": now()}
        self._due = time.monotonic() + FIRST_SECONDS

    def add(self, row: dict[str, Any]) -> None:
        """Append a row of `metrics.jsonl`, and write the page if it is due."""
        if "eval" in row:
            self.rows.evaluations.append(row)
        else:
            self.rows.training.append(self._of_charts(row))
        begin = time.monotonic()
        if begin >= self._due:
            self.write(running=True)
            end = time.monotonic()
            self._due = end + max(REFRESH_SECONDS, (end - begin) / SHARE)

    def write(self, running: bool) -> None:
        """Write the page. The browser reloads it periodically if `running`."""
        total = self.config.learner.total_frames
        done = self.rows.training[-1]["frames"] if self.rows.training else 0
        text = render(
            "report/pages/run.html", title=self.path.absolute().parent.name, running=running, done=done, total=total,
            refresh=round(REFRESH_SECONDS), written=now(), left=self._left(done, total), header=self._header,
            charts=charts({"": self.rows}, self.metrics), colours=COLOURS, config=as_yaml(self.config),
        )  # fmt: skip
        try:
            with replacing(self.path, CheckpointError) as part:
                part.write_text(text, encoding="utf-8", errors="backslashreplace")
        except CheckpointError as error:
            log.warning("%s", error)

    def _left(self, done: int, total: int) -> float:
        """Estimated remaining time in minutes, from the last 20 updates."""
        speeds = [row.get("frames_per_second") for row in self.rows.training[-20:]]
        last = [speed for speed in speeds if is_plottable(speed) and speed > 0]
        return (total - done) * len(last) / sum(last) / 60.0 if last else 0.0

    def _of_charts(self, row: dict[str, Any]) -> dict[str, Any]:
        """The values of a row that charts plot; thousands of complete rows would take too much memory."""
        return {key: row[key] for key in ("frames", *self.metrics, *learning_curves()) if key in row}
