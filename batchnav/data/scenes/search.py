"""Search paths of scene datasets: names with `*`, `?` and `[...]`, within bounds; and names in names."""

from __future__ import annotations

import fnmatch
import os
import re
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path, PurePosixPath

from batchnav.errors import MeshError, shortened

MAX_ENTRIES = 1_000_000
"""Largest number of folder entries that the patterns of one dataset may look at."""
_MAGIC = re.compile(r"[*?[]")


class Search:
    """Search for the files that patterns name, as `glob.glob` does without `**`.

    A wildcard does not match a link to a folder that holds the link. Folders that cannot be read are left out.

    Args:
        where: begin of error messages, the file that holds the patterns.
        folder: base of relative patterns; its own name is taken literally.

    MeshError where all searches together look at more than MAX_ENTRIES entries.
    """

    def __init__(self, where: str, folder: Path):
        self._where, self._folder, self._left = where, folder, MAX_ENTRIES

    def files(self, pattern: str) -> list[Path]:
        """Files that match a pattern, and files directly in matching folders."""
        found: list[Path] = []
        for match in self._matches(pattern):
            if os.path.isdir(match):
                found += [match / name for name in self._names(match, pattern)]
            else:
                found.append(match)
        return found

    def _matches(self, pattern: str) -> list[Path]:
        """Existing paths that match a pattern."""
        paths = [self._folder]
        for part in PurePosixPath(pattern).parts:
            paths = list(self._step(paths, part, pattern))
        return paths

    def _step(self, paths: Iterable[Path], part: str, pattern: str) -> Iterator[Path]:
        """The existing paths that continue `paths` by one part of a pattern."""
        if not _MAGIC.search(part):
            yield from (path / part for path in paths if os.path.lexists(path / part))
            return
        is_match = re.compile(fnmatch.translate(part)).match
        for path in paths:
            found = (name for name in self._names(path, pattern) if is_match(name))
            shown = (path / name for name in found if part[0] == "." or name[0] != ".")
            yield from (each for each in shown if not _is_cycle(each))

    def _names(self, folder: Path, pattern: str) -> list[str]:
        """Sorted names in a folder; none where it cannot be read."""
        names: list[str] = []
        try:
            with os.scandir(folder) as entries:
                for entry in entries:
                    names.append(entry.name)
                    self._left -= 1
                    if self._left < 0:
                        raise MeshError(
                            f"{self._where}: pattern {shortened(pattern)}: searched more than {MAX_ENTRIES:,} files "
                            f"and folders, expected a pattern of the dataset's own folders"
                        )
        except OSError:
            return []
        return sorted(names)


def _is_cycle(path: Path) -> bool:
    """True for a link to a folder that holds the link, and for a link that cannot be read."""
    try:
        return os.path.islink(path) and os.path.realpath(path) in map(os.path.realpath, path.parents)
    except OSError:
        return True


def first_containing(texts: Sequence[str], words: Iterable[str]) -> dict[str, int]:
    """For each word that occurs in a text, the index of the first such text; linear in the number of characters.

    Method: Aho and Corasick, "Efficient string matching", CACM 18(6), 1975. A tree holds the prefixes of all words;
    each node links to the longest proper suffix that is also a prefix.
    """
    longest = max(map(len, texts), default=0)
    children: list[dict[str, int]] = [{}]
    ends: dict[int, str] = {}
    for word in words:
        if not 0 < len(word) <= longest:
            continue
        node = 0
        for letter in word:
            if letter not in children[node]:
                children[node][letter] = len(children)
                children.append({})
            node = children[node][letter]
        ends[node] = word
    shorter, order = [0] * len(children), list(children[0].values())
    for node in order:  # grows during the loop
        for letter, child in children[node].items():
            shorter[child] = _next_node(children, shorter, shorter[node], letter)
            order.append(child)
    found: dict[str, int] = {}
    seen = [False] * len(children)
    for i, text in enumerate(texts if ends else ()):
        node = 0
        for letter in text:
            node = end = _next_node(children, shorter, node, letter)
            while end and not seen[end]:  # each node is visited once over all texts
                seen[end] = True
                if end in ends:
                    found[ends[end]] = i
                end = shorter[end]
    return found


def _next_node(children: list[dict[str, int]], shorter: list[int], node: int, letter: str) -> int:
    """The node of the longest prefix that is a suffix of `node` plus `letter`."""
    while node and letter not in children[node]:
        node = shorter[node]
    return children[node].get(letter, 0)
