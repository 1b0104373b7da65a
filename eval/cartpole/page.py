"""Write eval/cartpole/README.md and its figures from eval/results/cartpole.jsonl: the study of batched simulation, as a story.

    python eval/cartpole/page.py

Every number on the page comes from the newest rows; a part that was not measured is left out.
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
from batchnav.cartpole.rollout import BYTES_PER_TRAJECTORY_STEP
from batchnav.cartpole.score import SOLVED
from batchnav.cartpole.step import BYTES_PER_END, BYTES_PER_STEP
from eval.cartpole.bench import MAX_SPREAD, spread

HERE = Path(__file__).parent
RESULTS = HERE.parent / "results" / "cartpole.jsonl"
FIGURES = HERE.parent / "results" / "figures"
PAGE = HERE / "README.md"
SLOWER = 2.0
"""A step has turned from launch-bound to linear where it takes this many times the smallest batch's time."""


def load(path: Path = RESULTS) -> list[dict]:
    """The newest row for each machine, metric and set of parameters.

    Rates say since lately how many steps a call takes and where its actions come from. On a machine where a part was
    measured since, its older rows are left out.
    """
    newest = {}
    for line in path.read_text(encoding="utf-8").splitlines() if path.exists() else []:
        row = json.loads(line)
        if not is_outdated(row["params"]):
            newest[row["machine"], row["metric"], json.dumps(row["params"], sort_keys=True)] = row
    rows = list(newest.values())
    told = {(row["machine"], row["params"]["part"]) for row in rows if "actions" in row["params"]}

    def is_current(row: dict) -> bool:
        place = row["machine"], row["params"]["part"]
        return row["metric"] != "steps_per_second" or "actions" in row["params"] or place not in told

    return [row for row in rows if is_current(row)]


def is_outdated(params: dict) -> bool:
    """Bytes of an older layout of the memory, or a row of a library that does not say what was measured beside it."""
    current = {None, *BYTES_PER_STEP.values(), BYTES_PER_TRAJECTORY_STEP}
    unpaired = params["part"] == "peers" and "peer" not in params
    return params.get("bytes") not in current or unpaired


def select(rows: list[dict], part: str, metric: str, **params) -> list[dict]:
    """Measured rows of a part."""
    wanted = {"part": part, **params}
    return [r for r in rows if r["metric"] == metric and wanted.items() <= r["params"].items()]


def table(head: list[str], lines: list[list[str]]) -> str:
    """A Markdown table."""
    return "\n".join("| " + " | ".join(line) + " |" for line in [head, ["---"] * len(head), *lines]) + "\n"


def figure(value: float) -> str:
    """Three digits, with k, M or G."""
    for size, letter in ((1e9, " G"), (1e6, " M"), (1e3, " k")):
        if value >= size:
            return f"{value / size:.3g}{letter}"
    return f"{value:.3g}"


def duration(seconds: float) -> str:
    """Three digits, in us, ms or s."""
    for size, unit in ((1.0, "s"), (1e-3, "ms"), (1e-6, "us")):
        if seconds >= size:
            return f"{seconds / size:.3g} {unit}"
    return f"{seconds * 1e9:.3g} ns"


def grid(rows: list[dict], column: str, line: str, show=figure, told: tuple[str, ...] = ()) -> str:
    """Median values: one line per value of one parameter, one column per value of another.

    `told`: parameters that a line has besides, each with a column of its own where a row has it.
    """
    columns = sorted({r["params"][column] for r in rows})
    told = tuple(name for name in told if any(name in r["params"] for r in rows))
    cells: dict[tuple, dict] = {}
    for r in rows:
        label = tuple(str(r["params"].get(name, "")) for name in (line, *told))
        cells.setdefault(label, {})[r["params"][column]] = show(r["value"])
    body = [[*label, *(values.get(c, "") for c in columns)] for label, values in cells.items()]
    head = [name.replace("_", " ") for name in (line, *told)]
    return table([*head, *(f"{c:,}" if isinstance(c, int) else str(c) for c in columns)], body)


def curves(rows: list[dict], x: str, by: str, title: str, xlabel: str, ylabel: str, name: str) -> str:
    """A log-log figure, one line per value of `by`, with the 5th to 95th percentile; its Markdown."""
    fig, axes = plt.subplots(figsize=(7, 4.5))
    for number, label in enumerate(dict.fromkeys(r["params"][by] for r in rows)):
        points = sorted((r for r in rows if r["params"][by] == label), key=lambda r: r["params"][x])
        xs = [r["params"][x] for r in points]
        style = "-" if number < 10 else "--"  # there are ten colours
        axes.plot(xs, [r["value"] for r in points], style, marker="o", markersize=3, label=str(label))
        axes.fill_between(xs, [r["p5"] for r in points], [r["p95"] for r in points], alpha=0.2)
    axes.set(xscale="log", yscale="log", xlabel=xlabel, ylabel=ylabel, title=title)
    axes.grid(alpha=0.3)
    axes.legend(fontsize=7)
    return save(fig, name, title)


def save(fig, name: str, title: str) -> str:
    """Write the figure and return its Markdown."""
    FIGURES.mkdir(parents=True, exist_ok=True)
    fig.tight_layout()
    fig.savefig(FIGURES / f"cartpole_{name}.png", dpi=130, metadata={"Software": None})
    plt.close(fig)
    return f"![{title}](../results/figures/cartpole_{name}.png)\n"


TOLD = ("steps_per_call", "actions")
"""What rates have to share to be compared."""


def scaling(rows: list[dict], machine: str, tag: str) -> str:
    """How throughput grows with the number of environments."""
    found = select(rows, "scaling", "steps_per_second")
    if not found:
        return ""
    text = f"### Steps per second against the number of environments ({machine})\n\n"
    text += curves(found, "num_envs", "how", "Throughput", "environments", "environment steps/s", f"scaling_{tag}")
    times = [{**r, **{k: r["params"]["num_envs"] / r[o] for k, o in zip(("value", "p5", "p95"), ("value", "p95", "p5"),
              strict=True)}} for r in found]  # fmt: skip
    text += "\n" + curves(times, "num_envs", "how", "Time of one step of all", "environments", "seconds",
                          f"runtime_{tag}")  # fmt: skip
    text += "\n" + grid(found, "num_envs", "how", told=TOLD)
    if select(rows, "scaling", "steps_per_second", how="graph, info read"):
        text += (
            "\nA step leaves the final states and lengths of ended episodes on lists. Reading `info` spreads them out "
            "by environment, at each step at which it is read: the line *info read*.\n"
        )
    return text + "\n" + ratios(found)


OURS = {"env.step", "graph", "graph, actions u8", "fused random, graph"}
"""The lines of ours that stand beside others."""


def ratios(rows: list[dict]) -> str:
    """How many times faster ours is than each peer, like with like: as many steps a call, and the actions' origin."""
    others = [r for r in rows if r["params"]["how"].startswith(("gymnax", "torch"))]
    ours = [r for r in rows if r["params"]["how"] in OURS]
    lines = []
    for other, own in itertools.product(others, ours):
        same = {name: other["params"].get(name) for name in ("num_envs", *TOLD)}
        if None not in same.values() and same.items() <= own["params"].items():
            n, *told = same.values()
            times = f"{own['value'] / other['value']:.1f}"
            lines.append([f"{n:,}", own["params"]["how"], other["params"]["how"], *map(str, told), times])
    if not lines:
        return "These rows do not say how many steps a call takes and where its actions come from: no ratios.\n"
    head = ["environments", "ours", "beside", *(name.replace("_", " ") for name in TOLD), "times as fast"]
    return (
        "Only what takes as many steps a call, and has its actions from the same place, is compared: from a tensor "
        "filled before (read), or from a generator that is timed as well (drawn inside).\n\n" + table(head, lines)
    )


def fused(rows: list[dict], machine: str, tag: str) -> str:
    """The policy in the kernel."""
    found = select(rows, "fused", "steps_per_second")
    if not found:
        return ""
    return f"### The policy inside the kernel ({machine})\n\n" + grid(found, "num_envs", "how", told=("actions",))


def block(rows: list[dict], machine: str, tag: str) -> str:
    """Threads per block, the turning point, and the best size for each number of environments."""
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
        lines.append([str(size), duration(line[0]), f"{turn:,}" if turn else "beyond", duration(line[-1])])
    text += table(["threads per block", "one environment", f"takes {SLOWER:g} times that from",
                   f"{counts[-1]:,} environments"], lines)  # fmt: skip
    best = {n: min((s for s in sizes if (s, n) in times), key=lambda s: times[s, n]) for n in counts}
    text += "\nBest size found: " + ", ".join(f"{size} at {n:,}" for n, size in best.items()) + ".\n"
    each = {s: duration(times[s, counts[-1]] / -(-counts[-1] // s)) for s in sizes if (s, counts[-1]) in times}
    return text + (
        "\nWhat small blocks cost is mostly that of starting them, whatever is in them: for each block the largest "
        "batch takes " + ", ".join(f"{time} in blocks of {size}" for size, time in each.items()) + ".\n"
    )


def work(rows: list[dict], machine: str, tag: str) -> str:
    """Time against work per step."""
    found = select(rows, "work", "seconds_per_step")
    if not found:
        return ""
    text = f"### Work per step ({machine})\n\nThe dynamics 1 to 1000 times per step, "
    text += f"{found[0]['params']['num_envs']:,} environments.\n\n"
    text += curves(found, "work", "how", "Step time by work", "repetitions of the dynamics", "seconds per step",
                   f"work_{tag}") + "\n" + grid(found, "work", "how", duration)  # fmt: skip
    times = {(r["params"]["how"], r["params"]["work"]): r["value"] for r in found}
    compiled = [f"{times[who, n] / times['kernel', n]:.0f} at {n}" for who, n in times if who == "torch compiled"]
    text += (
        "\nA kernel pays its launch once and then only for arithmetic. PyTorch, operation by operation, pays some "
        "forty launches for each repetition."
    )
    return text + (f" Compiled it pays a few; times the kernel's: {', '.join(compiled)}.\n" if compiled else "\n")


def generator(rows: list[dict], machine: str, tag: str) -> str:
    """Which random numbers pay."""
    found = select(rows, "generator", "steps_per_second")
    if not found:
        return ""
    text = f"### Which generator pays ({machine})\n\nFused steps per second; starts drawn where needed, or ahead.\n\n"
    return (
        text
        + grid(found, "num_envs", "how")
        + (
            "\nIn the branch a warp waits for its slowest thread, and three warps in four have one that restarts. "
            f"Drawn ahead, all threads draw together, every {WINDOW} steps: those share a start.\n"
        )
    )


def breakdown(rows: list[dict], machine: str, tag: str) -> str:
    """Where a step's time goes."""
    copies = select(rows, "breakdown", "bytes_per_second", how="device copy")
    if not copies:
        return ""
    copy = copies[0]["value"]
    text = f"### Where a step's time goes ({machine})\n\n"
    text += (
        f"A step moves {BYTES_PER_STEP[torch.int64]} bytes per environment, {BYTES_PER_STEP[torch.uint8]} where "
        f"actions are single bytes; where an episode ends (1 in 22) its record of {BYTES_PER_END} and when the next "
        f"began, not counted below. A copy on this device moves {copy / 1e12:.2f} TB/s.\n\n"
    )
    text += grid(select(rows, "breakdown", "seconds_per_step"), "num_envs", "how", duration) + "\n"
    moved = [r for r in select(rows, "breakdown", "bytes_per_second") if "bytes" in r["params"]]
    lines = [
        [r["params"]["how"], f"{r['params']['num_envs']:,}", str(r["params"]["bytes"]), f"{r['value'] / 1e12:.2f} TB/s",
         f"{r['value'] / copy:.0%}"] for r in moved
    ]  # fmt: skip
    text += table(["", "environments", "bytes per step", "reached", "of a copy"], lines)
    return text + (
        f"\nWith the trajectory written a step writes {BYTES_PER_TRAJECTORY_STEP} bytes and reads none. With few "
        "environments the launch is the cost, with many memory. Where the state fits the second-level cache, more than "
        "the memory's own speed can be reached.\n"
    )


def peers(rows: list[dict], machine: str, tag: str) -> str:
    """Other libraries on the CPU, in pairs with ours."""
    pairs: dict[tuple[str, int], dict[bool, dict]] = {}
    for r in select(rows, "peers", "steps_per_second"):
        peer, how = r["params"]["peer"], r["params"]["how"]
        pairs.setdefault((peer, r["params"]["num_envs"]), {})[how == peer] = r
    kept = {key: pair for key, pair in pairs.items() if all(spread(r) <= MAX_SPREAD for r in pair.values())}
    if not pairs:
        return ""
    text = f"### Other libraries ({machine})\n\nAll on this machine's CPU, taking turns with ours; actions are read.\n"
    text += (
        f"A pair is shown where the spread, (p95 - p5) / median, is at most {MAX_SPREAD:.0%} for both: "
        f"{len(kept)} of the {len(pairs)} that were recorded.\n\n"
    )
    if not kept:
        return text
    # The figure has one line of ours: beside the first library that was measured with as many.
    ours = {n: pair[False] for (_, n), pair in reversed(kept.items())}
    shown = [ours[n] for n in sorted(ours)] + [pair[True] for pair in kept.values()]
    text += curves(shown, "num_envs", "how", "On the CPU", "environments", "environment steps/s", f"peers_{tag}")
    lines = [
        [peer, f"{n:,}", figure(pair[True]["value"]), f"{spread(pair[True]):.0%}", figure(pair[False]["value"]),
         f"{spread(pair[False]):.0%}", f"{pair[False]['value'] / pair[True]['value']:.1f}"]
        for (peer, n), pair in kept.items()
    ]  # fmt: skip
    head = ["library", "environments", "its steps/s", "spread", "ours beside it", "spread", "times as fast"]
    return text + "\n" + table(head, lines)


def ppo(rows: list[dict], machine: str, tag: str) -> str:
    """Learning curves."""
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
    head = ["environments by", "number", "solved", "median time", "range", "median frames"]
    return text + table(head, lines)


STORY = """# Batched simulation, explained with CartPole

CartPole is the smallest environment there is: some forty multiplications and additions a step. That makes it the best
place to see what batched simulation is about, since whatever is not arithmetic shows. `batchnav/cartpole/plain.py` is
the code to read first, `batchnav/cartpole/step.py` the fast one, `train/cartpole.py` trains with it, and
`eval/speed_cartpole.py` measures; this page is written from its rows by `eval/cartpole/page.py`. It repeats an earlier
study of batched environments (a course report) and says where the answers differ.

1. **Asking costs more than doing.** A Python call takes microseconds, a kernel launch as well; one CartPole step takes
   a nanosecond. So a step's time is flat in the number of environments until the device has enough to do, and only then
   linear. A CUDA graph asks for many steps at once; a fused kernel asks for a thousand. And between two kernels the GPU
   itself pauses for about half a microsecond, unless the second may come in while the first ends.
2. **Then memory is the limit**, so a step should move few bytes. The state is the observation, and the reward is
   written once. What only ended episodes need is written only for them, and next to each other: memory moves 32 bytes
   at a time, so three scattered numbers cost as much as three times eight numbers in a row. The start of the next
   episode follows from the time, which all environments share, not from an episode's number, which each would have to
   load. An action as a single byte saves another seven. And what was touched last is still in the cache: so steps go
   back and forth over the environments.
3. **Then arithmetic**, where the policy runs in the kernel and the state stays in registers; and there the random
   starts cost more than the physics unless they are drawn ahead. With one launch a step a block's threads gather the
   ended environments first, and draw for all of them together.
4. **Learning needs updates, not frames.** With more environments each update sees more, but learns once.
"""

WHY_MORE_DID_NOT_HELP = """The earlier study found that more environments did not make PPO learn faster. The reason is
in its settings: one pass over a larger batch is still one pass, and CartPole needs some hundreds of optimiser steps
whatever the batch. A hundred times the environments with the same passes spend a hundred times the frames on each. What
brings the efficiency back, step by step in the table: (a) short rollouts cut into more minibatches; (b) the higher
learning rate that their smoother gradients allow; (c) a long credit horizon, lambda 0.98: with 0.95 the pole is soon
held up, but the cart leaves the track after some 110 steps, and it takes many updates to find that out. On a GPU that
makes seeds alike rather than faster. What remains is that a good episode lasts 500 steps, and no number of environments
makes it shorter.
"""


def batch(rows: list[dict], machine: str, tag: str) -> str:
    """Why more environments need not help."""
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
    text = f"### Why more environments did not help, and what does ({machine})\n\n" + WHY_MORE_DID_NOT_HELP
    return text + "\nMedians over the seeds that solved it; each line adds to the one above.\n\n" + table(head, lines)


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
                commits = sorted({row["commit"] for row in own if row["params"]["part"] == section.__name__})
                text += f"\n{part}\nMeasured at {', '.join(commits)}.\n"
    text += "" if rows else "\nNo rows yet.\n"
    PAGE.write_text(text, encoding="utf-8")
    print(f"{PAGE}: {len(rows)} rows")


if __name__ == "__main__":
    main()
