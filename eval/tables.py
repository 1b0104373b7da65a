"""Write the tables of results from eval/results/*.jsonl: the newest row of each figure, with the commit that made it.

    python eval/tables.py            rewrites what is between `<!-- results NAME -->` and `<!-- end -->`
    python eval/tables.py --check    exits 1 where a file is not what it would write

In README.md and eval/results/README.md. `<!-- results NAME metric=success|spl width=64 -->` takes only the rows with
these values.
"""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
FILES = (ROOT / "README.md", ROOT / "eval" / "results" / "README.md")
BLOCK = re.compile(r"(<!-- results (\w+)((?: \w+=\S+)*) -->\n).*?(<!-- end -->)", re.DOTALL)
HIDDEN = {"height", "geodesic", "repeats", "checkpoint"}
"""Parameters that tables leave out: they are the defaults, or the text says them."""


def rows_of(name: str) -> list[dict]:
    """The newest row for each (machine, metric, parameters) of a benchmark, in the file's order.

    The folder of a checkpoint is none of these: of agents alike in all else the newest figure stands.
    """
    path = ROOT / "eval" / "results" / f"{name}.jsonl"
    newest = {}
    for line in path.read_text(encoding="utf-8").splitlines() if path.exists() else []:
        row = json.loads(line)
        params = {key: value for key, value in row["params"].items() if key != "checkpoint"}
        newest[row["machine"], row["metric"], json.dumps(params, sort_keys=True)] = row
    return list(newest.values())


def table(name: str, wanted: dict[str, list[str]]) -> str:
    """A benchmark's rows as a Markdown table: those whose parameters, or metric, have one of the wanted values."""

    def is_wanted(row: dict) -> bool:
        facts = {**row["params"], "metric": row["metric"]}
        return all(str(facts.get(key, "")) in values for key, values in wanted.items())

    rows = [row for row in rows_of(name) if is_wanted(row)]
    if not rows:
        return "No figures yet.\n"
    same = {key for key, values in wanted.items() if len(values) == 1}
    keys = [k for k in dict.fromkeys(k for row in rows for k in row["params"]) if k not in HIDDEN | same]
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
    for path in FILES:
        text = path.read_text(encoding="utf-8")
        new = BLOCK.sub(lambda m: m[1] + table(m[2], parse(m[3])) + m[4], text)
        if "--check" in sys.argv and new != text:
            sys.exit(f"{path}: its tables are not those of eval/results: run python eval/tables.py")
        path.write_text(new, encoding="utf-8")


def parse(conditions: str) -> dict[str, list[str]]:
    """Values by name, of " name=value|value ..."."""
    pairs = (condition.split("=", 1) for condition in conditions.split())
    return {name: values.split("|") for name, values in pairs}


if __name__ == "__main__":
    main()
