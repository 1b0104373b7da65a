"""How to install the optional packages of an extra, from a checkout and from a wheel."""

from __future__ import annotations

import contextlib
import importlib.metadata
import re
from collections.abc import Iterator

from batchnav.errors import MissingPackageError


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


@contextlib.contextmanager
def needs_extra(extra: str, what: str) -> Iterator[None]:
    """Context of imports: a failed one raises MissingPackageError, which says what to install for `what`."""
    try:
        yield
    except ImportError as error:
        found = f"{what}: found {str(error)!r}"
        raise MissingPackageError(f"{found}, expected the package: {install_command(extra)}", name=error.name) from None
