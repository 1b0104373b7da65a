"""Search for many names in many texts, in linear time."""

from __future__ import annotations

from collections.abc import Iterable, Sequence


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
            shorter[child] = _step(children, shorter, shorter[node], letter)
            order.append(child)
    found: dict[str, int] = {}
    seen = [False] * len(children)
    for i, text in enumerate(texts if ends else ()):
        node = 0
        for letter in text:
            node = end = _step(children, shorter, node, letter)
            while end and not seen[end]:  # each node is visited once over all texts
                seen[end] = True
                if end in ends:
                    found[ends[end]] = i
                end = shorter[end]
    return found


def _step(children: list[dict[str, int]], shorter: list[int], node: int, letter: str) -> int:
    """The node of the longest prefix that is a suffix of `node` plus `letter`."""
    while node and letter not in children[node]:
        node = shorter[node]
    return children[node].get(letter, 0)
