"""Lists of files that a server sends: checks of their names and sizes before a file is written."""

from __future__ import annotations

import json
from collections.abc import Sequence
from http.client import HTTPResponse
from typing import Any, NamedTuple

from batchnav.errors import BatchnavError, shortened

MAX_PAGES, MAX_PAGE_BYTES = 10_000, 2**25
"""Largest number of pages of a list; largest size of a page, bytes. Hugging Face sends 1,000 files per page."""
TEMPORARY = (".part", ".part.tag")
"""Ends of the names of files that an unfinished download leaves next to its file."""
_MAX_NAME = 255 - len(TEMPORARY[1])
"""Longest name of a file, bytes, that leaves room for a temporary name."""


class DownloadError(BatchnavError):
    """A dataset that cannot be downloaded: unknown, not allowed, interrupted, damaged."""


class ListedFile(NamedTuple):
    """A file of a dataset."""

    path: str
    """Path below the dataset's folder, with "/"."""
    size: int
    """Bytes."""
    is_large: bool
    """True for files of Git LFS, whose checksum is SHA-256; False for git's own."""
    checksum: str


def read_page(answer: HTTPResponse) -> list[dict[str, Any]]:
    """The rows of files on one page. ValueError, KeyError or TypeError where the page is no list of files."""
    data = answer.read(MAX_PAGE_BYTES + 1)
    if len(data) > MAX_PAGE_BYTES:
        raise ValueError(f"a page of more than {MAX_PAGE_BYTES:,} bytes")
    return [row for row in json.loads(data) if row["type"] == "file"]


def check_listing(rows: Sequence[dict[str, Any]], where: str) -> list[ListedFile]:
    """The files of all pages. DownloadError for incomplete rows, impossible names, and names that exclude each other.

    `where`: begin of error messages.
    """
    try:
        files = [
            ListedFile(
                str(row["path"]), int(row["size"]), bool(row.get("lfs")), str((row.get("lfs") or row)["oid"])
            )
            for row in rows
        ]  # fmt: skip
        if any(file.size < 0 for file in files):
            raise ValueError("a negative size")
    except (ValueError, KeyError, TypeError, OverflowError, AttributeError) as error:
        raise DownloadError(f"{where}: found an incomplete list of files ({error})") from error
    names: set[str] = set()
    for file in files:
        if problem := _problem(file.path):
            raise DownloadError(f"{where}: found the file name {shortened(file.path)}, which {problem}")
        if file.path in names:
            raise DownloadError(f"{where}: found the file name {shortened(file.path)} twice, expected different names")
        names.add(file.path)
    for path in names:
        above = path.rpartition("/")[0]
        while above:
            if above in names:
                raise DownloadError(
                    f"{where}: found the files {shortened(above)} and {shortened(path)}, expected no file with the "
                    "name of a folder"
                )
            above = above.rpartition("/")[0]
        if taken := next((path + end for end in TEMPORARY if path + end in names), None):
            raise DownloadError(
                f"{where}: found the files {shortened(path)} and {shortened(taken)}, expected no file with the "
                "temporary name of another download"
            )
    return files


def _problem(path: str) -> str:
    """Why a path cannot be a file below the dataset's folder; "" where it can."""
    parts = path.split("/")
    if not all(part not in ("", ".", "..") for part in parts):
        return "leads out of the dataset's folder or has an empty part, expected names with / between them"
    if not path.isprintable():
        return "has control characters, expected printable ones"
    if max(len(part.encode()) for part in parts) > _MAX_NAME:
        return f"is too long, expected at most {_MAX_NAME} bytes"
    return ""
