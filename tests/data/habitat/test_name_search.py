"""The search for names against Python's `in`."""

import numpy as np

from batchnav.data.scenes.search import first_containing


def test_the_first_text_that_contains_a_word():
    rng = np.random.default_rng(0)
    texts, words = (
        ["".join(rng.choice(list("ab/"), rng.integers(high))) for _ in range(200)] for high in (30, 9)
    )  # fmt: skip
    expected = {word: next((i for i, text in enumerate(texts) if word in text), None) for word in words if word}
    assert first_containing(texts, words) == {word: i for word, i in expected.items() if i is not None}
    assert first_containing([], ["a"]) == first_containing(["a"], []) == {}
    deep = "a" * 100_000
    assert first_containing([deep], [deep, deep[1:], "ab"]) == {deep: 0, deep[1:]: 0}
