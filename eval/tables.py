"""Write README's result tables from eval/results/*.jsonl: the newest row of each figure, with the commit that made it.

python eval/tables.py            rewrites the parts of README.md between `<!-- results NAME -->` and `<!-- end -->`
python eval/tables.py --check    exits 1 where README.md is not what it would write
"""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
BLOCK = re.compile(r"(<!-- results (\w+) -->\n).*?(<!-- end -->)", re.DOTALL)
HIDDEN = {"height", "geodesic", "repeats", "checkpoint"}
"""Parameters that tables leave out: they are the defaults, or the text says them."""


def rows_of(name: str) -> list[dict]:
    """The newest row for each (machine, metric, parameters) of a benchmark, in the file's order."""
    path = ROOT / "eval" / "results" / f"{name}.jsonl"
    newest = {}
    for line in path.read_text(encoding="utf-8").splitlines() if path.exists() else []:
        row = json.loads(line)
        newest[row["machine"], row["metric"], json.dumps(row["params"], sort_keys=True)] = row
    return list(newest.values())


def table(name: str) -> str:
    """A benchmark's rows as a Markdown table."""
    rows = rows_of(name)
    if not rows:
        return "No figures yet.\n"
    keys = [k for k in dict.fromkeys(k for row in rows for k in row["params"]) if k not in HIDDEN]
    head = ["machine", *(k.replace("_", " ") for k in keys), "metric", "value", "range", "commit"]
    lines = [head, ["---"] * len(head)]
    for row in rows:
        low, high = row.get("low", row.get("p5")), row.get("high", row.get("p95"))
        spread = f"{figure(low)} to {figure(high)}" if low is not None and high is not None else ""
        values = [str(row["params"].get(k, "")) for k in keys]
        metric = row["metric"].replace("_per_second", "/s").replace("_", " ")
        lines.append([row["machine"], *values, metric, f"**{figure(row['value'])}**", spread, row["commit"]])
    return "".join("| " + " | ".join(cells) + " |\n" for cells in lines)


def figure(value: float) -> str:
    """Three digits, and thousands apart."""
    if abs(value) < 100:
        return f"{value:.3g}"
    digits = max(0, len(str(int(abs(value)))) - 3)
    return f"{round(value, -digits):,.0f}"


def main() -> None:
    readme = ROOT / "README.md"
    text = readme.read_text(encoding="utf-8")
    new = BLOCK.sub(lambda m: m[1] + table(m[2]) + m[3], text)
    if "--check" in sys.argv:
        sys.exit(0 if new == text else "README.md's tables are not those of eval/results: run python eval/tables.py")
    readme.write_text(new, encoding="utf-8")


if __name__ == "__main__":
    main()
