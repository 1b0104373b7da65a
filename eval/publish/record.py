"""The table of the record and its curves, from the rows of eval/results/record.jsonl."""

from __future__ import annotations

from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np

from batchnav.report import results
from batchnav.report.results import save_chart
from eval.publish.summary import Row, machine, markdown, rounded, wanted_rows
from eval.record.run import Entry, load_entries

PICTURE = "record.webp"
"""Name of the picture of the curves, in eval/results."""
COLUMNS = 3
"""Panels in a row of the picture."""


def newest_of(name: str) -> dict[tuple[str, bool], dict[int, Row]]:
    """The newest row of each seed of an entry, by machine and by whether the cache was empty."""
    found: dict[tuple[str, bool], dict[int, Row]] = {}
    for row in wanted_rows("record", {"entry": [name]}):
        found.setdefault((row["machine"], row["params"]["empty_cache"]), {})[row["params"]["seed"]] = row
    return found


def record() -> str:
    """Table of all entries: seconds, results on `val` and on the other episodes, with all seeds; then the curves."""
    cells = [["record", "bar", "machine", "kernels", "seconds", "`val`", "other episodes", "frames", "date"]]
    cells.append(["---"] * 4 + ["---:"] * 4 + ["---"])
    for name, entry in load_entries().items():
        bars = ", ".join(f"{metric} {bar:g}" for metric, bar in entry.bars.items())
        head = [f"`{name}`: {entry.title}", bars]
        groups = newest_of(name)
        if not groups:
            cells.append([*head, *[""] * 2, "not measured", *[""] * 4])
        for (_, empty), by_seed in groups.items():
            rows = [by_seed[seed] for seed in sorted(by_seed)]
            cells.append([
                *head, machine(rows[0]), "empty cache" if empty else "compiled before",
                _mean_and_seeds([row["value"] for row in rows], "{:.0f}"),
                _of_split(entry, rows, "val"), _of_split(entry, rows, "other"),
                rounded(round(np.mean([row["params"]["frames"] for row in rows]))),
                ", ".join(dict.fromkeys(row["date"] for row in rows)),
            ])  # fmt: skip
    picture = f"\n![Training against seconds](../../eval/results/{PICTURE})\n"
    return markdown(cells) + (picture if any(map(newest_of, load_entries())) else "")


def _of_split(entry: Entry, rows: list[Row], split: str) -> str:
    """Mean and seeds of the metrics with a bar; a mean on `val` below its bar is called a miss."""
    parts = []
    for metric, bar in entry.bars.items():
        values = [row["params"][key] for row in rows if (key := f"{split}_{metric}") in row["params"]]
        if values:
            missed = split == "val" and np.mean(values) < bar
            text = _mean_and_seeds(values, "{:.3f}" if bar <= 1.0 else "{:.1f}")
            parts.append(f"{metric} {text}{', missed' if missed else ''}")
    return "; ".join(parts)


def _mean_and_seeds(values: list[float], form: str) -> str:
    """The mean in bold, and each seed's value where there are several."""
    mean = f"**{form.format(np.mean(values))}**"
    return f"{mean} ({', '.join(map(form.format, values))})" if len(values) > 1 else mean


def write_curves() -> Path | None:
    """Plot the headline metric of training against seconds, a panel for each measured entry; None without rows."""
    measured = {name: entry for name, entry in load_entries().items() if newest_of(name)}
    if not measured:
        return None
    lines = -(-len(measured) // COLUMNS)
    figure, panels = plt.subplots(lines, COLUMNS, figsize=(12, 3.2 * lines), layout="constrained", squeeze=False)
    for axes in panels.flat[len(measured) :]:
        axes.axis("off")
    for axes, (name, entry) in zip(panels.flat, measured.items(), strict=False):
        for (_, empty), by_seed in newest_of(name).items():
            for seed, row in sorted(by_seed.items()):
                label = f"seed {seed}{', empty cache' if empty else ''}"
                axes.plot(row["curve"]["seconds"], row["curve"]["values"], "--" if empty else "-", label=label)
        axes.axhline(entry.bars[entry.metric], color="#888888", linewidth=0.8)
        axes.set(title=name, xlabel="seconds since the start", ylabel=f"{entry.metric} in training", xlim=(0, None))
        axes.set_ylim(0, None)
        axes.grid(color="#E5E5E5", linewidth=0.7)
        axes.legend(fontsize="small")
    save_chart(figure, path := results.RESULTS / PICTURE, 90)
    plt.close(figure)
    return path


TABLES = {"record": record}
