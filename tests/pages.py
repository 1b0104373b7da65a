"""Code blocks of a documentation page, with the comments before them that control their tests.

<!-- needs: minutes -->                   skipped: the block takes long or needs something else;
                                          `gpu` alone runs on machines with a GPU
<!-- short: --ppo.total-frames 2048 -->   options that tests append to the last command, for a short run
<!-- file: reach_height.py -->            the block is a file that later blocks use
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import NamedTuple

from markdown_it import MarkdownIt

ROOT = Path(__file__).parents[1]
PAGES = (ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md")))
"""Pages whose blocks are tested."""
NEEDS = {"gpu", "several GPUs", "data", "minutes", "network", "software"}
"""Requirements that blocks can name: devices, datasets, time, downloads, programs that CI does not have."""
COMMENT = re.compile(r"<!-- (needs|short|file): (.*?) -->")


class Block(NamedTuple):
    """A fenced block."""

    language: str
    text: str
    line: int
    """Number of the block's first line in its page."""
    needs: frozenset[str]
    short: str
    file: str


def blocks(page: Path) -> list[Block]:
    """Fenced blocks of a page, in order."""
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
