"""Write eval/cartpole/README.md, the study of batched simulation, and its figures from eval/results/cartpole.jsonl.

    python eval/cartpole/page.py

Every measurement on the page comes from the newest rows; parts without rows are omitted. The fixed text is in
`story.py`.
"""

from __future__ import annotations

import itertools
import json
from pathlib import Path

import matplotlib
import numpy as np
import torch

matplotlib.use("Agg")
import matplotlib.pyplot as plt

from batchnav.cartpole.physics import WINDOW
from batchnav.cartpole.program import SOLVED
from batchnav.cartpole.rollout import BYTES_PER_TRAJECTORY_STEP
from batchnav.cartpole.step import BYTES_PER_END, BYTES_PER_STEP
from batchnav.report.results import save_chart
from eval.cartpole.bench import MAX_SPREAD, spread
from eval.cartpole.story import STORY

HERE = Path(__file__).parent
RESULTS = HERE.parent / "results" / "cartpole.jsonl"
FIGURES = HERE.parent / "results" / "figures"
PAGE = HERE / "README.md"
SLOWER = 2.0
"""A step is launch-bound up to this multiple of the smallest batch's time; beyond it, the time grows with the batch."""


def load(path: Path = RESULTS) -> list[dict]:
    """The newest row for each machine, metric and set of parameters.

    Newer rows of rates state the steps per call and the source of actions. Where a machine has such rows of a part, its
    older rows of that part are omitted.
    """
    newest = {}
    for line in path.read_text(encoding="utf-8").splitlines() if path.exists() else []:
        row = json.loads(line)
        if not is_outdated(row["params"]):
            newest[row["machine"], row["metric"], json.dumps(row["params"], sort_keys=True)] = row
    rows = list(newest.values())
    newer = {(row["machine"], row["params"]["part"]) for row in rows if "actions" in row["params"]}

    def is_current(row: dict) -> bool:
        place = row["machine"], row["params"]["part"]
        return row["metric"] != "steps_per_second" or "actions" in row["params"] or place not in newer

    return [row for row in rows if is_current(row)]


def is_outdated(params: dict) -> bool:
    """Return True for bytes of an older memory layout, and for peer rows without the name of the peer."""
    current = {None, *BYTES_PER_STEP.values(), BYTES_PER_TRAJECTORY_STEP}
    unpaired = params["part"] == "peers" and "peer" not in params
    return params.get("bytes") not in current or unpaired


def select(rows: list[dict], part: str, metric: str, **params) -> list[dict]:
    """Rows of a part with the given metric and parameters."""
    wanted = {"part": part, **params}
    return [r for r in rows if r["metric"] == metric and wanted.items() <= r["params"].items()]


def table(head: list[str], lines: list[list[str]]) -> str:
    """A Markdown table."""
    return "\n".join("| " + " | ".join(line) + " |" for line in [head, ["---"] * len(head), *lines]) + "\n"


def figure(value: float) -> str:
    """Format with three digits, and k, M or G."""
    for size, letter in ((1e9, " G"), (1e6, " M"), (1e3, " k")):
        if value >= size:
            return f"{value / size:.3g}{letter}"
    return f"{value:.3g}"


def duration(seconds: float) -> str:
    """Format seconds with three digits, in ns, us, ms or s."""
    for size, unit in ((1.0, "s"), (1e-3, "ms"), (1e-6, "us")):
        if seconds >= size:
            return f"{seconds / size:.3g} {unit}"
    return f"{seconds * 1e9:.3g} ns"


def grid(rows: list[dict], column: str, line: str, show=figure, extra: tuple[str, ...] = ()) -> str:
    """Table of median values: a line per value of one parameter, a column per value of another.

    `extra`: further parameters of a line; each gets a column if a row contains it.
    """
    columns = sorted({r["params"][column] for r in rows})
    extra = tuple(name for name in extra if any(name in r["params"] for r in rows))
    cells: dict[tuple, dict] = {}
    for r in rows:
        label = tuple(str(r["params"].get(name, "")) for name in (line, *extra))
        cells.setdefault(label, {})[r["params"][column]] = show(r["value"])
    body = [[*label, *(values.get(c, "") for c in columns)] for label, values in cells.items()]
    head = [title(name) for name in (line, *extra)]
    return table([*head, *(f"{c:,}" if isinstance(c, int) else str(c) for c in columns)], body)


def title(name: str) -> str:
    """Title of the column of a parameter."""
    return {"how": "variant"}.get(name, name.replace("_", " "))


def curves(rows: list[dict], x: str, by: str, heading: str, xlabel: str, ylabel: str, name: str) -> str:
    """Plot on log-log axes, one line per value of `by`, with the 5th to 95th percentile; returns its Markdown."""
    fig, axes = plt.subplots(figsize=(7, 4.5))
    for number, label in enumerate(dict.fromkeys(r["params"][by] for r in rows)):
        points = sorted((r for r in rows if r["params"][by] == label), key=lambda r: r["params"][x])
        xs = [r["params"][x] for r in points]
        style = "-" if number < 10 else "--"  # ten colours
        axes.plot(xs, [r["value"] for r in points], style, marker="o", markersize=3, label=str(label))
        axes.fill_between(xs, [r["p5"] for r in points], [r["p95"] for r in points], alpha=0.2)
    axes.set(xscale="log", yscale="log", xlabel=xlabel, ylabel=ylabel, title=heading)
    axes.grid(alpha=0.3)
    axes.legend(fontsize=7)
    return save(fig, name, heading)


def save(fig, name: str, heading: str) -> str:
    """Write the figure and return its Markdown."""
    FIGURES.mkdir(parents=True, exist_ok=True)
    fig.tight_layout()
    save_chart(fig, FIGURES / f"cartpole_{name}.webp", dpi=130)
    plt.close(fig)
    return f"![{heading}](../results/figures/cartpole_{name}.webp)\n"


SHARED = ("steps_per_call", "actions")
"""Parameters that must be equal where two rates are compared."""


def scaling(rows: list[dict], machine: str, tag: str) -> str:
    """Section: throughput against the number of environments."""
    found = select(rows, "scaling", "steps_per_second")
    if not found:
        return ""
    text = f"### Steps per second against the number of environments ({machine})\n\n"
    text += curves(found, "num_envs", "how", "Throughput", "environments", "environment steps/s", f"scaling_{tag}")
    times = [{**r, **{k: r["params"]["num_envs"] / r[o] for k, o in zip(("value", "p5", "p95"), ("value", "p95", "p5"),
              strict=True)}} for r in found]  # fmt: skip
    text += "\n" + curves(times, "num_envs", "how", "Time of one step of all environments", "environments", "seconds",
                          f"runtime_{tag}")  # fmt: skip
    text += "\n" + grid(found, "num_envs", "how", extra=SHARED)
    if select(rows, "scaling", "steps_per_second", how="graph, info read"):
        text += (
            "\nA step appends the final states and lengths of ended episodes to lists. Reading `info` scatters them by "
            "environment, at each step that reads it: the line *info read*.\n"
        )
    return text + "\n" + ratios(found)


OURS = {"env.step", "graph", "graph, actions u8", "fused random, graph"}
"""Variants of batchnav that are compared with peers."""


def ratios(rows: list[dict]) -> str:
    """Table of speed ratios to each peer, for equal steps per call and equal sources of actions."""
    others = [r for r in rows if r["params"]["how"].startswith(("gymnax", "torch"))]
    ours = [r for r in rows if r["params"]["how"] in OURS]
    lines = []
    for other, own in itertools.product(others, ours):
        same = {name: other["params"].get(name) for name in ("num_envs", *SHARED)}
        if None not in same.values() and same.items() <= own["params"].items():
            n, *shared = same.values()
            times = f"{own['value'] / other['value']:.1f}"
            lines.append([f"{n:,}", own["params"]["how"], other["params"]["how"], *map(str, shared), times])
    if not lines:
        return "There are no ratios, since the rows do not state the steps per call and the source of actions.\n"
    head = ["environments", "batchnav", "peer", *map(title, SHARED), "speed ratio"]
    return (
        "Rates are compared only for equal steps per call and equal sources of actions: a tensor filled before (read), "
        "or a generator inside the timed call (sampled inside).\n\n" + table(head, lines)
    )


def fused(rows: list[dict], machine: str, tag: str) -> str:
    """Section: the policy inside the kernel."""
    found = select(rows, "fused", "steps_per_second")
    if not found:
        return ""
    return f"### The policy inside the kernel ({machine})\n\n" + grid(found, "num_envs", "how", extra=("actions",))


def block(rows: list[dict], machine: str, tag: str) -> str:
    """Section: threads per block, the end of the launch-bound range, and the best block for each batch size."""
    found = select(rows, "block", "seconds_per_step")
    if not found:
        return ""
    text = f"### Threads per block ({machine})\n\nOne step in a CUDA graph.\n\n"
    text += curves(found, "num_envs", "block", "Step time by threads per block", "environments", "seconds per step",
                   f"block_{tag}") + "\n"  # fmt: skip
    times = {(r["params"]["block"], r["params"]["num_envs"]): r["value"] for r in found}
    sizes, counts = (sorted({key[k] for key in times}) for k in (0, 1))
    lines = []
    for size in sizes:
        line = [times[size, n] for n in counts if (size, n) in times]
        turn = next((n for n, t in zip(counts, line, strict=False) if t > SLOWER * line[0]), None)
        lines.append([str(size), duration(line[0]), f"{turn:,}" if turn else "never", duration(line[-1])])
    text += table(["threads per block", "one environment", f"{SLOWER:g} times as long from",
                   f"{counts[-1]:,} environments"], lines)  # fmt: skip
    best = {n: min((s for s in sizes if (s, n) in times), key=lambda s: times[s, n]) for n in counts}
    fastest = ", ".join(f"{size} at {n:,}" for n, size in best.items())
    largest = {s: times[s, counts[-1]] / -(-counts[-1] // s) for s in sizes if (s, counts[-1]) in times}
    each = ", ".join(f"{duration(seconds)} at {size}" for size, seconds in largest.items())
    return text + (
        f"\nFastest number of threads per block, by number of environments: {fastest}.\n"
        "\nMost of the cost of small blocks is starting them. Time per block in the largest batch, by threads per "
        f"block: {each}.\n"
    )


def work(rows: list[dict], machine: str, tag: str) -> str:
    """Section: time against work per step."""
    found = select(rows, "work", "seconds_per_step")
    if not found:
        return ""
    text = f"### Work per step ({machine})\n\nThe dynamics are computed 1 to 1000 times per step, with "
    text += f"{found[0]['params']['num_envs']:,} environments.\n\n"
    text += curves(found, "work", "how", "Step time by work", "repetitions of the dynamics", "seconds per step",
                   f"work_{tag}") + "\n" + grid(found, "work", "how", duration)  # fmt: skip
    times = {(r["params"]["how"], r["params"]["work"]): r["value"] for r in found}
    compiled = [f"{times[who, n] / times['kernel', n]:.0f} at {n}" for who, n in times if who == "torch compiled"]
    text += (
        "\nThe kernel needs one launch, and then only arithmetic. Eager PyTorch launches one kernel per operation: "
        "about forty per repetition."
    )
    return text + (
        f" Compiled PyTorch needs a few. Ratio of its time to the kernel's, by repetitions: {', '.join(compiled)}.\n"
        if compiled
        else "\n"
    )


def generator(rows: list[dict], machine: str, tag: str) -> str:
    """Section: generators of initial states."""
    found = select(rows, "generator", "steps_per_second")
    if not found:
        return ""
    text = f"### Generators of initial states ({machine})\n\n"
    text += "Fused steps per second; states sampled at reset (in the branch) or ahead.\n\n"
    return (
        text
        + grid(found, "num_envs", "how")
        + (
            "\nAt each step, three warps in four have a thread that resets. If it samples its state in the branch, the "
            f"whole warp waits for it. If states are sampled ahead, all threads sample together every {WINDOW} steps, "
            "and an environment's resets within these steps use the same state.\n"
        )
    )


def breakdown(rows: list[dict], machine: str, tag: str) -> str:
    """Section: parts of a step's time."""
    copies = select(rows, "breakdown", "bytes_per_second", how="device copy")
    if not copies:
        return ""
    copy = copies[0]["value"]
    text = f"### Breakdown of a step ({machine})\n\n"
    text += (
        f"A step moves {BYTES_PER_STEP[torch.int64]} bytes per environment, or {BYTES_PER_STEP[torch.uint8]} with "
        f"one-byte actions. An ended episode (1 in 22 steps) adds a record of {BYTES_PER_END} bytes and the start time "
        f"of the next episode, which are not counted below. A copy on this device moves {copy / 1e12:.2f} TB/s.\n\n"
    )
    text += grid(select(rows, "breakdown", "seconds_per_step"), "num_envs", "how", duration) + "\n"
    moved = [r for r in select(rows, "breakdown", "bytes_per_second") if "bytes" in r["params"]]
    lines = [
        [r["params"]["how"], f"{r['params']['num_envs']:,}", str(r["params"]["bytes"]), f"{r['value'] / 1e12:.2f} TB/s",
         f"{r['value'] / copy:.0%}"] for r in moved
    ]  # fmt: skip
    text += table(["", "environments", "bytes per step", "bandwidth", "share of a copy"], lines)
    return text + (
        f"\nA step that writes the trajectory writes {BYTES_PER_TRAJECTORY_STEP} bytes and reads none. The launch is "
        "the limit for few environments, and memory bandwidth for many. If the state fits in the second-level cache, "
        "the bandwidth can exceed that of the memory.\n"
    )


def peers(rows: list[dict], machine: str, tag: str) -> str:
    """Section: other libraries on the CPU, in pairs with batchnav."""
    pairs: dict[tuple[str, int], dict[bool, dict]] = {}
    for r in select(rows, "peers", "steps_per_second"):
        peer, how = r["params"]["peer"], r["params"]["how"]
        pairs.setdefault((peer, r["params"]["num_envs"]), {})[how == peer] = r
    kept = {key: pair for key, pair in pairs.items() if all(spread(r) <= MAX_SPREAD for r in pair.values())}
    if not pairs:
        return ""
    text = (
        f"### Other libraries ({machine})\n\nAll run on this machine's CPU, in turn with batchnav; actions are read.\n"
    )
    text += (
        f"Pairs are shown if the spread, (p95 - p5) / median, is at most {MAX_SPREAD:.0%} for both: "
        f"{len(kept)} of the {len(pairs)} recorded pairs.\n\n"
    )
    if not kept:
        return text
    # The figure has one line of batchnav: for each number of environments, from the pair with the first library.
    ours = {n: pair[False] for (_, n), pair in reversed(kept.items())}
    shown = [ours[n] for n in sorted(ours)] + [pair[True] for pair in kept.values()]
    text += curves(shown, "num_envs", "how", "On the CPU", "environments", "environment steps/s", f"peers_{tag}")
    lines = [
        [peer, f"{n:,}", figure(pair[True]["value"]), f"{spread(pair[True]):.0%}", figure(pair[False]["value"]),
         f"{spread(pair[False]):.0%}", f"{pair[False]['value'] / pair[True]['value']:.1f}"]
        for (peer, n), pair in kept.items()
    ]  # fmt: skip
    head = ["library", "environments", "its steps/s", "spread", "batchnav's steps/s", "spread", "speed ratio"]
    return text + "\n" + table(head, lines)


def ppo(rows: list[dict], machine: str, tag: str) -> str:
    """Section: learning curves."""
    found = [r for r in rows if r["metric"] == "seconds_to_solve" and "curve" in r]
    if not found:
        return ""
    fig, axes = plt.subplots(figsize=(7, 4.5))
    lines = []
    for number, how in enumerate(dict.fromkeys(r["params"]["how"] for r in found)):
        runs = [r for r in found if r["params"]["how"] == how]
        for k, run in enumerate(runs):
            seconds, _, score = zip(*run["curve"], strict=True)
            axes.plot(seconds, score, color=f"C{number}", alpha=0.7, linewidth=1, label=how if k == 0 else None)
        solved = [r for r in runs if r["params"]["solved"]]
        seconds, frames = [r["value"] for r in solved], [r["frames"] for r in solved]
        lines.append([
            how, f"{runs[0]['params']['num_envs']:,}", f"{len(solved)} of {len(runs)}",
            duration(float(np.median(seconds))) if solved else "",
            f"{duration(min(seconds))} to {duration(max(seconds))}" if solved else "",
            figure(float(np.median(frames))) if solved else "",
        ])  # fmt: skip
    axes.axhline(SOLVED, color="grey", linewidth=0.8)
    axes.set(xlabel="seconds of training", ylabel="mean return", title="Return against training time")
    axes.grid(alpha=0.3)
    axes.legend(fontsize=7)
    text = f"### Average return against training time ({machine})\n\n"
    text += save(fig, f"ppo_{tag}", "Return against training time") + "\n"
    head = ["implementation", "environments", "solved", "median time", "range", "median frames"]
    return text + table(head, lines)


def batch(rows: list[dict], machine: str, tag: str) -> str:
    """Section: PPO with more environments."""
    found = select(rows, "batch", "frames_to_solve")
    if not found:
        return ""
    lines = []
    for n in sorted({r["params"]["num_envs"] for r in found}):
        for how in dict.fromkeys(r["params"]["how"] for r in found):
            runs = [r for r in found if (r["params"]["num_envs"], r["params"]["how"]) == (n, how)]
            solved = [r for r in runs if r["params"]["solved"]]
            middle = [float(np.median([r[k] for r in solved])) if solved else None
                      for k in ("value", "optimiser_steps", "seconds")]  # fmt: skip
            shown = ["", "", ""] if not solved else [figure(middle[0]), f"{middle[1]:,.0f}", duration(middle[2])]
            lines.append([f"{n:,}", how, f"{len(solved)} of {len(runs)}", *shown])
    head = ["environments", "settings", "solved", "frames", "optimiser steps", "training time"]
    text = f"### PPO by number of environments ({machine})\n\n"
    return (
        text
        + "Medians over the seeds that solved the task. Each line adds one change to the line above it.\n\n"
        + table(head, lines)
    )


SECTIONS = (scaling, fused, block, work, generator, breakdown, peers, ppo, batch)


def main() -> None:
    """Write the page."""
    rows, text = load(), STORY
    for machine in sorted({row["machine"] for row in rows}, key=lambda name: (name.startswith("CPU"), name)):
        own = [row for row in rows if row["machine"] == machine]
        tag = "".join(c if c.isalnum() else "_" for c in machine.lower()).strip("_")[:40]
        text += f"\n## {machine}\n"
        for section in SECTIONS:
            if part := section(own, machine, tag):
                dates = sorted({row["date"] for row in own if row["params"]["part"] == section.__name__})
                text += f"\n{part}\nMeasured on {' and '.join(dates)}.\n"
    text += "" if rows else "\nNo rows yet.\n"
    PAGE.write_text(text, encoding="utf-8")
    print(f"{PAGE}: {len(rows)} rows")


if __name__ == "__main__":
    main()
