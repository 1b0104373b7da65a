"""Table and picture of an agent under disturbances: `batchnav evaluate --robustness`."""

from __future__ import annotations

import io
import json
from collections.abc import Mapping, Sequence
from pathlib import Path

from batchnav.errors import BatchnavError
from batchnav.evaluation.intervals import Summary
from batchnav.report.charts import in_words
from batchnav.report.results import print_agents, save_chart
from batchnav.runtime.files import replacing
from batchnav.types import Metric

UNDISTURBED = "undisturbed"
"""Name of the row without a disturbance."""
PICTURE = "robustness.webp"
"""Name of the picture's file."""


def shown_metrics(metrics: Sequence[Metric]) -> list[str]:
    """Names of the metrics in the picture and in the report: the first two headline metrics."""
    return [metric.name for metric in metrics if metric.headline][:2]


def write_robustness(title: str, found: Mapping[str, Summary], metrics: Sequence[Metric], folder: Path) -> None:
    """Print the table, and write `robustness.json` and `robustness.webp`.

    Args:
        title: agent and episodes.
        found: means with intervals of the task's metrics, by condition.
        metrics: the task's descriptions of its metrics.
        folder: folder of both files, which exists.
    """
    print_agents(title, found, metrics)
    rows = {
        condition: {m.name: {"mean": s[m.name].mean, "low": s[m.name].low, "high": s[m.name].high} for m in metrics}
        for condition, s in found.items()
    }
    with replacing(folder / "robustness.json", BatchnavError) as part:
        part.write_text(json.dumps({"title": title, "conditions": rows}, indent=2) + "\n", encoding="utf-8")
    with replacing(folder / PICTURE, BatchnavError) as part:
        part.write_bytes(robustness_picture(title, found, shown_metrics(metrics)))


def robustness_picture(title: str, found: Mapping[str, Summary], shown: Sequence[str]) -> bytes:
    """A WebP image with a bar for each condition and its 95% interval over episodes, one panel per shown metric."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(9, 0.4 * len(found) + 1.2), layout="constrained")
    panels = figure.subplots(1, len(shown), sharey=True, squeeze=False)[0]
    names = list(found)
    for panel, metric in zip(panels, shown, strict=True):
        means = [found[name][metric] for name in names]
        errors = [[each.mean - each.low for each in means], [each.high - each.mean for each in means]]
        colors = ["tab:gray" if name == UNDISTURBED else "tab:blue" for name in names]
        panel.barh(names, [each.mean for each in means], xerr=errors, color=colors, height=0.6)
        panel.axvline(means[0].mean, color="black", linewidth=0.8, linestyle=":")
        panel.set_title(in_words(metric))
        panel.set_xlim(0.0, max(1.0, *(each.mean for each in means)))
    panels[0].invert_yaxis()
    figure.suptitle(title)
    image = io.BytesIO()
    save_chart(figure, image)
    return image.getvalue()
