"""How to install the optional packages of an extra, from a checkout and from a wheel."""

from __future__ import annotations

import importlib.metadata
import re


def install_command(extra: str) -> str:
    """A pip command for the packages of an extra of `pyproject.toml`, such as "viewer".

    It names the packages themselves, so it needs neither the checkout nor an index that has batchnav.
    """
    try:
        lines = importlib.metadata.requires("batchnav") or []
    except importlib.metadata.PackageNotFoundError:  # a checkout that is not installed
        lines = []
    pattern = re.compile(rf"""^(.*?)\s*;.*\bextra == ['"]{re.escape(extra)}['"]""")
    found = [match.group(1) for match in map(pattern.match, lines) if match]
    return "pip install " + (" ".join(f"'{name}'" for name in found) or f"'.[{extra}]' in the checkout")
