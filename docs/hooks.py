"""Pages of the site that are generated or lie elsewhere in the tree, and links between pages."""

from __future__ import annotations

import posixpath
import re
from pathlib import Path

import reference_pages
from mkdocs.structure.files import File

ROOT = Path(__file__).resolve().parents[1]
CARDS = sorted((ROOT / "assets/policies").glob("*/README.md"))
ENCODERS = sorted((ROOT / "assets/encoders").glob("*.md"))
PAGES = {
    "README.md": "index.md",
    "CONTRIBUTING.md": "contributing.md",
    "CHANGELOG.md": "changelog.md",
    "SECURITY.md": "security.md",
    "eval/cartpole/README.md": "cartpole.md",
    "eval/results/README.md": "results.md",
    "eval/studies/README.md": "studies.md",
    **{f"assets/policies/{path.parent.name}/README.md": f"cards/{path.parent.name}.md" for path in CARDS},
    **{f"assets/encoders/{path.name}": f"cards/{path.name}" for path in ENCODERS},
    "eval/log/README.md": "log/index.md",
    **{f"eval/log/{path.name}": f"log/{path.name}" for path in sorted((ROOT / "eval/log").glob("[!R]*.md"))},
}
"""Path of a page in the repository -> its path in the site."""
PICTURES = ("eval/results/*.webp", "eval/results/figures/*.webp", "assets/policies/*/*.webp")
NAMES = {site: tree for tree, site in PAGES.items()}
LINK = re.compile(r"(!?\[[^\]]*\])\(([^)\s#]+)(#[^)\s]*)?\)")


def on_files(files, config):
    """Add generated pages, and pages and pictures from outside docs/."""
    for site, generate in reference_pages.PAGES.items():
        files.append(File.generated(config, site, content=generate()))
    for tree, site in PAGES.items():
        files.append(File.generated(config, site, abs_src_path=str(ROOT / tree)))
    for pattern in PICTURES:
        for path in sorted(ROOT.glob(pattern)):
            files.append(File.generated(config, path.relative_to(ROOT).as_posix(), abs_src_path=str(path)))
    return files


def on_page_markdown(markdown, page, config, files):
    """Change links between files of the repository to links between pages of the site.

    A link to a file that the site lacks becomes plain text.
    """
    here = page.file.src_uri
    folder = posixpath.dirname(NAMES.get(here, f"docs/{here}"))

    def moved(match: re.Match) -> str:
        text, target, anchor = match[1], match[2], match[3] or ""
        if ":" in target:
            return match[0]
        tree = posixpath.normpath(posixpath.join(folder, target))
        site = PAGES.get(tree, tree.removeprefix("docs/"))
        if files.get_file_from_path(site):
            return f"{text}({posixpath.relpath(site, posixpath.dirname(here) or '.')}{anchor})"
        return text[1:-1] if (ROOT / tree).exists() else match[0]

    return LINK.sub(moved, markdown)
