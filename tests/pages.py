"""The blocks of code of a page of the documentation, and what comments before them say of running them.

<!-- needs: minutes -->                   not run by tests: it takes long, or has to have what they have not;
                                          `gpu` alone is run on machines with a GPU
<!-- short: --ppo.total-frames 2048 -->   options that tests append to a block's last command, to cut it short
<!-- file: reach_height.py -->            the block is a file, which the blocks after it use
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import NamedTuple

from markdown_it import MarkdownIt

ROOT = Path(__file__).parents[1]
PAGES = (ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md")))
"""All pages whose blocks are tested."""
NEEDS = {"gpu", "several GPUs", "data", "minutes", "network", "software"}
"""What keeps a block from being run everywhere: devices, data sets, time, downloads, programs that CI does not have."""
COMMENT = re.compile(r"<!-- (needs|short|file): (.*?) -->")


class Block(NamedTuple):
    """A fenced block."""

    language: str
    text: str
    line: int
    """Of the page, the first of the block's own."""
    needs: frozenset[str]
    short: str
    file: str


def blocks(page: Path) -> list[Block]:
    """The fenced blocks of a page, in its order."""
    found, said = [], {}
    for token in MarkdownIt("commonmark").parse(page.read_text(encoding="utf-8")):
        if token.type == "html_block":
            said |= dict(COMMENT.findall(token.content))
        elif token.type in ("fence", "code_block"):
            needs = frozenset(filter(None, said.get("needs", "").split(", ")))
            found.append(
                Block(token.info, token.content, token.map[0] + 2, needs, said.get("short", ""), said.get("file", ""))
            )
        if token.type != "html_block":
            said = {}
    return found
