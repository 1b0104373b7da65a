"""JSON files and the search for names in them: bounds that hold for any file."""

import tracemalloc

import numpy as np
import pytest

from batchnav.data.files import first_containing, read_json
from batchnav.errors import MeshError

JSON_MEMORY = 33
"""JSON takes at most so many times its text in memory; objects of nothing but an object take the most."""


@pytest.mark.parametrize(
    "piece", ["{}", "[]", '{"":0}', '{"":{}}', '{"":[]}', "[[]]", '"\u0101"', "300", "1.5", "null"]
)
def test_the_memory_of_json_is_bounded_by_its_text(tmp_path, piece):
    path = tmp_path / "a.json"
    path.write_text(f"[{','.join([piece] * 100_000)}]", encoding="utf-8")
    tracemalloc.start()
    try:
        read_json(path, MeshError)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak <= (JSON_MEMORY + 6) * path.stat().st_size  # beside it: the bytes, and the text in up to 4 a character


def test_the_first_text_that_contains_a_word():
    draw = np.random.default_rng(0)
    texts, words = (
        ["".join(draw.choice(list("ab/"), draw.integers(high))) for _ in range(200)] for high in (30, 9)
    )  # fmt: skip
    expected = {word: next((i for i, text in enumerate(texts) if word in text), None) for word in words if word}
    assert first_containing(texts, words) == {word: i for word, i in expected.items() if i is not None}
    assert first_containing([], ["a"]) == first_containing(["a"], []) == {}
    deep = "a" * 100_000
    assert first_containing([deep], [deep, deep[1:], "ab"]) == {deep: 0, deep[1:]: 0}
